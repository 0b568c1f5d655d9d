#include "broker/net/output.h"
#include "proto/base/err.h"
#include "proto/record/batch.h"
#include "tests/support/suite.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct end {
    struct pool *buffers;
    struct output_spares spares;
    struct output out;
    int fds[2]; /* we send to 0 */
    struct log *log;
};

static void begin(struct end *e)
{
    *e = (struct end){0};
    ck_assert_int_eq(pool_new((size_t)64 << 20, 0, &e->buffers), 0);
    output_init(&e->out, e->buffers, &e->spares);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, e->fds), 0);
}

static void done(struct end *e)
{
    output_done(&e->out);
    output_spares_done(&e->spares);
    ck_assert_uint_eq(pool_bytes_in_use(e->buffers), 0);
    pool_unref(e->buffers);
    close(e->fds[0]);
    close(e->fds[1]);
    log_close(e->log);
}

static void add_memory(struct end *e, size_t bytes, char fill)
{
    void *at = output_reserve(&e->out, bytes);
    ck_assert_ptr_nonnull(at);
    memset(at, fill, bytes);
    ck_assert_int_eq(output_commit(&e->out, bytes), 0);
}

static void open_log(struct end *e)
{
    char path[512];
    struct log_settings settings;
    struct log_hint hint = {.recovery_point = -1, .start_offset = -1};
    struct log_recovery recovery;
    struct brook_error error;
    log_settings_default(&settings);
    snprintf(path, sizeof path, "%s/t-0", suite_directory());
    ck_assert_int_eq(log_open(path, &settings, &hint, &e->log, &recovery, &error), 0);
}

/* A batch in the log; returns its range. */
static struct log_range append(struct end *e, size_t value_bytes)
{
    struct batch_writer w;
    struct log_range range;
    struct brook_error error;
    uint8_t *buffer = malloc(value_bytes + 200), *value = calloc(1, value_bytes);
    struct record_view record = {
        .value = value, .value_bytes = (int32_t)value_bytes, .timestamp = 1700000000000};
    struct log_batch batch = {.data = buffer};
    int64_t base;
    batch_writer_init(&w, buffer, value_bytes + 200);
    ck_assert_int_eq(batch_writer_add(&w, &record), 0);
    size_t bytes = batch_writer_finish(&w, -1, -1, -1);
    ck_assert_int_eq(batch_check_produced(buffer, bytes, bytes, &batch.header, &error), 0);
    ck_assert_int_eq(log_append(e->log, &batch, 1, 0, 1700000000000, &base, &error), 0);
    ck_assert_int_eq(log_read(e->log, base, base + 1, bytes, true, bytes, &range), 0);
    ck_assert_uint_eq(range.bytes, bytes);
    free(buffer);
    free(value);
    return range;
}

static size_t receive(struct end *e, char *to, size_t capacity)
{
    ssize_t n = recv(e->fds[1], to, capacity, MSG_DONTWAIT);
    return n < 0 ? 0 : (size_t)n;
}

START_TEST(small_answers_leave_together_and_in_order)
{
    struct end e;
    char got[4096];
    size_t sent;
    struct output_cold cold;
    begin(&e);
    for (char c = 'a'; c <= 'z'; c++)
        add_memory(&e, 100, c);
    ck_assert_uint_eq(e.out.bytes, 2600);
    ck_assert_int_eq(output_flush(&e.out, e.fds[0], 1 << 20, &sent, &cold), 0);
    ck_assert_uint_eq(sent, 2600);
    ck_assert(output_is_empty(&e.out));
    ck_assert_uint_eq(receive(&e, got, sizeof got), 2600);
    for (size_t i = 0; i < 2600; i += 100)
        ck_assert_int_eq(got[i + 50], (char)('a' + (char)(i / 100)));
    ck_assert_uint_eq(pool_bytes_in_use(e.buffers), 0);
    done(&e);
}
END_TEST

START_TEST(a_full_socket_loses_and_repeats_nothing)
{
    struct end e;
    uint64_t random = suite_seed();
    static char expected[8 << 20], got[8 << 20];
    size_t queued = 0, have = 0, sent;
    struct output_cold cold;
    begin(&e);
    open_log(&e);
    for (int i = 0; i < 40; i++) {
        size_t bytes = 1 + (size_t)suite_random_below(&random, 60000);
        add_memory(&e, bytes, (char)('a' + i % 26));
        memset(expected + queued, 'a' + i % 26, bytes);
        queued += bytes;
        struct log_range range = append(&e, 1000 + (size_t)suite_random_below(&random, 90000));
        ck_assert_int_eq(pread(range.fd, expected + queued, range.bytes, range.position),
                         (ssize_t)range.bytes);
        queued += range.bytes;
        ck_assert_int_eq(output_add_range(&e.out, &range), 0);
    }
    for (;;) {
        int r = output_flush(&e.out, e.fds[0], 100000, &sent, &cold);
        ck_assert(r == 0 || r == -BROOK_E_AGAIN || r == -BROOK_E_BUSY);
        have += receive(&e, got + have, 1 + (size_t)suite_random_below(&random, 200000));
        if (r == 0 && have == queued)
            break;
    }
    ck_assert_mem_eq(got, expected, queued);
    done(&e);
}
END_TEST

START_TEST(a_range_outlives_its_log)
{
    struct end e;
    char got[4096];
    size_t sent;
    struct output_cold cold;
    begin(&e);
    open_log(&e);
    struct log_range range = append(&e, 1000);
    size_t bytes = range.bytes;
    ck_assert_int_eq(output_add_range(&e.out, &range), 0);
    ck_assert_int_eq(log_delete(&e.log), 0);
    ck_assert_int_eq(output_flush(&e.out, e.fds[0], 1 << 20, &sent, &cold), 0);
    ck_assert_uint_eq(receive(&e, got, sizeof got), bytes);
    done(&e);
}
END_TEST

START_TEST(a_file_that_ends_early_is_told_from_a_closed_peer)
{
    struct end e;
    size_t sent;
    struct output_cold cold;
    begin(&e);
    open_log(&e);
    struct log_range range = append(&e, 1000);
    range.bytes += 50; /* more than there is */
    ck_assert_int_eq(output_add_range(&e.out, &range), 0);
    ck_assert_int_eq(output_flush(&e.out, e.fds[0], 1 << 20, &sent, &cold), -BROOK_E_STORAGE_ERROR);
    close(e.fds[1]);
    e.fds[1] = dup(e.fds[0]);
    output_done(&e.out);
    add_memory(&e, 10, 'x');
    ck_assert_int_eq(output_flush(&e.out, e.fds[0], 1 << 20, &sent, &cold), -BROOK_E_DISCONNECTED);
    done(&e);
}
END_TEST

/* What is not in the page cache is asked for, not waited for. */
START_TEST(cold_ranges_are_told)
{
    struct end e;
    static char got[1 << 20];
    size_t sent;
    struct output_cold cold = {.fd = -1};
    begin(&e);
    open_log(&e);
    struct log_range range = append(&e, 400000);
    size_t bytes = range.bytes, have = 0;
    ck_assert_int_eq(log_flush(e.log), 0);
    ck_assert_int_eq(posix_fadvise(range.fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    int fd = range.fd;
    off_t position = range.position;
    ck_assert_int_eq(output_add_range(&e.out, &range), 0);
    int r = output_flush(&e.out, e.fds[0], 1 << 20, &sent, &cold);
    if (r == -BROOK_E_LOCKED) { /* a file system in memory has nothing cold */
        ck_assert_uint_eq(sent, 0);
        ck_assert_int_eq(cold.fd, fd);
        ck_assert_int_eq(cold.position, position);
        ck_assert_uint_eq(cold.bytes, bytes);
        output_warmed(&e.out, &cold);
    } else {
        fprintf(stderr, "# nothing was cold\n");
    }
    while ((r = output_flush(&e.out, e.fds[0], 1 << 20, &sent, &cold)) != 0 || have < bytes) {
        ck_assert_int_ne(r, -BROOK_E_LOCKED);
        have += receive(&e, got + have, sizeof got - have);
    }
    ck_assert_uint_eq(have, bytes);
    done(&e);
}
END_TEST

SUITE_MAIN("broker/net/output", SUITE_TEST(small_answers_leave_together_and_in_order),
           SUITE_TEST(a_full_socket_loses_and_repeats_nothing), SUITE_TEST(a_range_outlives_its_log),
           SUITE_TEST(cold_ranges_are_told), SUITE_TEST(a_file_that_ends_early_is_told_from_a_closed_peer))
