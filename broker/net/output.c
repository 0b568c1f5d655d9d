#include "broker/net/output.h"

#include "broker/storage/file_io.h"
#include "proto/base/err.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define CHUNK_BYTES POOL_SLAB_BYTES_MIN
#define IOV_MAX_USED 64
#define SENDFILE_BYTES_MAX ((size_t)1 << 20)
/* Read ahead in one go by a disk thread. */
#define WARM_BYTES_MAX ((size_t)4 << 20)
#define SPARES_MAX 1024

struct output_piece {
    struct output_piece *next;
    struct slab *slab; /* NULL: a range */
    const uint8_t *data;
    size_t bytes; /* left to send */
    struct log_range range;
    off_t warm_until; /* a range's bytes below are (or were) in the page cache */
};

void output_spares_done(struct output_spares *spares)
{
    while (spares->free) {
        struct output_piece *next = spares->free->next;
        free(spares->free);
        spares->free = next;
    }
    spares->count = 0;
}

static struct output_piece *piece_new(struct output *out)
{
    struct output_piece *piece = out->spares->free;
    if (piece) {
        out->spares->free = piece->next;
        out->spares->count--;
        *piece = (struct output_piece){0};
        return piece;
    }
    return calloc(1, sizeof *piece);
}

static void piece_free(struct output *out, struct output_piece *piece)
{
    if (piece->slab)
        slab_unref(piece->slab);
    else
        log_range_done(&piece->range);
    if (out->spares->count >= SPARES_MAX) {
        free(piece);
        return;
    }
    piece->next = out->spares->free;
    out->spares->free = piece;
    out->spares->count++;
}

static void enqueue(struct output *out, struct output_piece *piece)
{
    if (out->last)
        out->last->next = piece;
    else
        out->first = piece;
    out->last = piece;
    out->bytes += piece->bytes;
}

static void drop_first(struct output *out)
{
    struct output_piece *piece = out->first;
    out->bytes -= piece->bytes;
    out->first = piece->next;
    if (!out->first)
        out->last = NULL;
    piece_free(out, piece);
}

static void drop_tail(struct output *out)
{
    slab_unref(out->tail);
    out->tail = NULL;
    out->tail_used = 0;
}

void output_init(struct output *out, struct pool *buffers, struct output_spares *spares)
{
    *out = (struct output){.buffers = buffers, .spares = spares};
}

void output_done(struct output *out)
{
    while (out->first)
        drop_first(out);
    drop_tail(out);
}

bool output_is_empty(const struct output *out)
{
    return out->first == NULL;
}

void *output_reserve(struct output *out, size_t bytes)
{
    if (out->tail && out->tail->capacity - out->tail_used < bytes)
        drop_tail(out);
    if (!out->tail) {
        out->tail = pool_take(out->buffers, bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES);
        if (!out->tail)
            return NULL;
    }
    return out->tail->data + out->tail_used;
}

int output_commit(struct output *out, size_t bytes)
{
    const uint8_t *at = out->tail->data + out->tail_used;
    struct output_piece *last = out->last;
    if (last && last->slab == out->tail && last->data + last->bytes == at) {
        last->bytes += bytes;
        out->bytes += bytes;
    } else {
        struct output_piece *piece = piece_new(out);
        if (!piece)
            return -BROOK_E_NOMEM;
        piece->slab = slab_ref(out->tail);
        piece->data = at;
        piece->bytes = bytes;
        enqueue(out, piece);
    }
    out->tail_used += bytes;
    return 0;
}

int output_add_range(struct output *out, struct log_range *range)
{
    struct output_piece *piece = range->bytes ? piece_new(out) : NULL;
    if (!piece) {
        bool is_empty = range->bytes == 0;
        log_range_done(range);
        return is_empty ? 0 : -BROOK_E_NOMEM;
    }
    piece->range = *range;
    piece->bytes = range->bytes;
    piece->warm_until = range->is_fresh ? range->position + (off_t)range->bytes : 0;
    enqueue(out, piece);
    return 0;
}

static void advance(struct output *out, size_t sent)
{
    while (sent) {
        struct output_piece *piece = out->first;
        if (sent >= piece->bytes) {
            sent -= piece->bytes;
            drop_first(out);
            continue;
        }
        piece->data += sent;
        piece->bytes -= sent;
        out->bytes -= sent;
        sent = 0;
    }
}

static ssize_t send_memory(struct output *out, int fd)
{
    struct iovec iov[IOV_MAX_USED];
    struct msghdr message = {.msg_iov = iov};
    struct output_piece *piece = out->first;
    for (; piece && piece->slab && message.msg_iovlen < IOV_MAX_USED; piece = piece->next)
        iov[message.msg_iovlen++] =
            (struct iovec){.iov_base = (void *)(uintptr_t)piece->data, .iov_len = piece->bytes};
    ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT | (piece ? MSG_MORE : 0));
    if (n > 0)
        advance(out, (size_t)n);
    return n;
}

/* A file system that can not tell counts as warm. */
static bool is_cached(int fd, off_t position)
{
    char byte;
    return io_pread_cached(fd, &byte, 1, position) >= 0 || errno != EAGAIN;
}

/* First and last byte speak for what lies between: the kernel reads ahead, and drops, in runs. */
static bool is_cold(struct output_piece *piece, struct output_cold *ret_cold)
{
    off_t position = piece->range.position;
    size_t bytes = piece->bytes < SENDFILE_BYTES_MAX ? piece->bytes : SENDFILE_BYTES_MAX;
    if (position < piece->warm_until)
        return false;
    if (is_cached(piece->range.fd, position) && is_cached(piece->range.fd, position + (off_t)bytes - 1)) {
        piece->warm_until = position + (off_t)bytes;
        return false;
    }
    ret_cold->fd = piece->range.fd;
    ret_cold->position = position;
    ret_cold->bytes = piece->bytes < WARM_BYTES_MAX ? piece->bytes : WARM_BYTES_MAX;
    return true;
}

void output_warmed(struct output *out, const struct output_cold *cold)
{
    struct output_piece *piece = out->first;
    if (piece && !piece->slab && piece->range.position == cold->position)
        piece->warm_until = cold->position + (off_t)cold->bytes;
}

static ssize_t send_file(struct output *out, int fd)
{
    struct output_piece *piece = out->first;
    off_t position = piece->range.position;
    size_t bytes = piece->bytes < SENDFILE_BYTES_MAX ? piece->bytes : SENDFILE_BYTES_MAX;
    ssize_t n = sendfile(fd, piece->range.fd, &position, bytes);
    if (n > 0) {
        piece->range.position += n;
        piece->bytes -= (size_t)n;
        out->bytes -= (size_t)n;
        if (!piece->bytes)
            drop_first(out);
    }
    return n;
}

static int judge_failure(const struct output *out, ssize_t n)
{
    if (n == 0 || errno == EIO) /* a file that ends early, or can not be read */
        return -BROOK_E_STORAGE_ERROR;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return -BROOK_E_AGAIN;
    return -BROOK_E_DISCONNECTED;
}

int output_flush(struct output *out, int fd, size_t bytes_max, size_t *ret_sent, struct output_cold *ret_cold)
{
    size_t sent = 0;
    int r = 0;
    while (out->first && r == 0) {
        bool is_memory = out->first->slab != NULL;
        if (!is_memory && is_cold(out->first, ret_cold)) {
            r = -BROOK_E_LOCKED;
            break;
        }
        ssize_t n = is_memory ? send_memory(out, fd) : send_file(out, fd);
        if (n > 0)
            sent += (size_t)n;
        else if (n == 0 || errno != EINTR)
            r = judge_failure(out, n);
        if (r == 0 && out->first && sent >= bytes_max)
            r = -BROOK_E_BUSY;
    }
    if (!out->first && out->tail)
        drop_tail(out);
    *ret_sent = sent;
    return r;
}
