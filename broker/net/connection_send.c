#include "broker/net/connection_internal.h"

#include "broker/net/disk_threads.h"
#include "broker/storage/file_io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Of one connection before the others have their turn. */
#define OUTPUT_BYTES_PER_TURN ((size_t)4 << 20)

static void drop_ranges(struct log_range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++)
        log_range_done(&ranges[i]);
}

void connection_reply(struct connection *c, Brook__Response *response, struct log_range *ranges,
                      size_t ranges_count)
{
    if (connection_is_dead(c)) {
        drop_ranges(ranges, ranges_count);
        return;
    }
    size_t records = 0;
    for (size_t i = 0; i < ranges_count; i++)
        records += ranges[i].bytes;
    size_t envelope = brook__response__get_packed_size(response);
    assert(envelope + records < UINT32_MAX - 4);
    if (output_is_empty(&c->out))
        c->sent_ns = c->loop->face.now_ns;
    uint8_t *at = output_reserve(&c->out, FRAME_PREFIX_BYTES + envelope);
    int r = -BROOK_E_NOMEM;
    if (at) {
        frame_write_prefix(at, (uint32_t)envelope, (uint32_t)records);
        brook__response__pack(response, at + FRAME_PREFIX_BYTES);
        r = output_commit(&c->out, FRAME_PREFIX_BYTES + envelope);
    }
    for (size_t i = 0; i < ranges_count; i++) {
        int added = output_add_range(&c->out, &ranges[i]);
        r = r < 0 ? r : added;
    }
    if (r < 0) {
        connection_complain(c, "out of memory for an answer");
        connection_doom(c);
        return;
    }
    connection_mark_dirty(c);
}

/* On a disk thread. What can not be read will fail again, and be told, when it is sent. */
static void read_cold(struct disk_work *work)
{
    struct connection *c = CONTAINER_OF(work, struct connection, warming);
    char waste[65536];
    size_t done = 0;
    posix_fadvise(c->cold.fd, c->cold.position, (off_t)c->cold.bytes, POSIX_FADV_WILLNEED);
    while (done < c->cold.bytes) {
        ssize_t n = io_pread(c->cold.fd, waste, sizeof waste, c->cold.position + (off_t)done);
        if (n == 0 || (n < 0 && errno != EINTR))
            break;
        done += n > 0 ? (size_t)n : 0;
    }
}

static void go_on_warm(struct disk_work *work)
{
    struct connection *c = CONTAINER_OF(work, struct connection, warming);
    loop_turn_begin(c->loop);
    close(c->cold.fd);
    c->is_warming = false;
    c->sent_ns = c->loop->face.now_ns;
    output_warmed(&c->out, &c->cold);
    connection_mark_dirty(c);
    connection_request_ended(c);
}

/* Let a disk thread wait for the disk instead of the loop. Without a descriptor for that the loop waits. */
static void warm(struct connection *c, const struct output_cold *cold)
{
    c->cold = *cold;
    c->cold.fd = c->loop->disk_threads ? dup(cold->fd) : -1;
    if (c->cold.fd < 0) {
        output_warmed(&c->out, cold);
        connection_mark_dirty(c);
        return;
    }
    c->is_warming = true;
    c->requests_count++;
    c->warming = (struct disk_work){.run = read_cold, .done = go_on_warm, .inbox = &c->loop->inbox};
    disk_threads_submit(c->loop->disk_threads, &c->warming);
}

void connection_flush(struct connection *c)
{
    size_t sent;
    struct output_cold cold;
    int r = output_flush(&c->out, c->fd, OUTPUT_BYTES_PER_TURN, &sent, &cold);
    if (sent)
        c->sent_ns = c->loop->face.now_ns;
    if (r == -BROOK_E_STORAGE_ERROR)
        connection_complain(c, "records that were promised can not be read from the log");
    if (r == 0 || r == -BROOK_E_AGAIN || r == -BROOK_E_BUSY) {
        connection_set_writing(c, r < 0);
    } else if (r == -BROOK_E_LOCKED) {
        connection_set_writing(c, false);
        warm(c, &cold);
    } else {
        connection_doom(c);
    }
}
