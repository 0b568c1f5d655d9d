#include "proto/wire/outbox.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PIECES_MIN 64

struct outbox_chunk {
    struct outbox_chunk *next; /* idle list */
    size_t capacity;
    size_t used;
    size_t pieces; /* queued ones that lie here */
    uint8_t data[];
};

/* A piece without bytes is a hole: one that was dropped. */
struct outbox_piece {
    const uint8_t *data;
    size_t bytes;
    struct outbox_chunk *chunk; /* NULL: borrowed */
};

static struct outbox_piece *piece_at(const struct outbox *o, uint64_t number)
{
    return &o->pieces[number & (o->capacity - 1)];
}

static int grow(struct outbox *o, size_t pieces)
{
    size_t queued = (size_t)(o->tail - o->head);
    if (queued + pieces <= o->capacity)
        return 0;
    size_t capacity = o->capacity ? o->capacity : PIECES_MIN;
    while (capacity < queued + pieces)
        capacity *= 2;
    struct outbox_piece *wider = malloc(capacity * sizeof *wider);
    if (!wider)
        return -1;
    for (uint64_t n = o->head; n != o->tail; n++)
        wider[n & (capacity - 1)] = *piece_at(o, n);
    free(o->pieces);
    o->pieces = wider;
    o->capacity = capacity;
    return 0;
}

static struct outbox_chunk *chunk_take(struct outbox *o, size_t bytes)
{
    if (bytes <= OUTBOX_CHUNK_BYTES && o->idle) {
        struct outbox_chunk *chunk = o->idle;
        o->idle = chunk->next;
        o->idle_count--;
        return chunk;
    }
    size_t capacity = bytes > OUTBOX_CHUNK_BYTES ? bytes : OUTBOX_CHUNK_BYTES;
    struct outbox_chunk *chunk = malloc(sizeof *chunk + capacity);
    if (!chunk)
        return NULL;
    chunk->capacity = capacity;
    chunk->used = 0;
    chunk->pieces = 0;
    return chunk;
}

/* Nothing lies in the chunk any more. */
static void chunk_give(struct outbox *o, struct outbox_chunk *chunk)
{
    if (chunk->capacity > OUTBOX_CHUNK_BYTES || o->idle_count == OUTBOX_CHUNKS_IDLE_MAX) {
        free(chunk);
        return;
    }
    chunk->used = 0;
    chunk->next = o->idle;
    o->idle = chunk;
    o->idle_count++;
}

static void piece_end(struct outbox *o, struct outbox_piece *piece)
{
    struct outbox_chunk *chunk = piece->chunk;
    piece->chunk = NULL;
    if (!chunk || --chunk->pieces > 0)
        return;
    if (chunk == o->chunk)
        chunk->used = 0;
    else
        chunk_give(o, chunk);
}

void outbox_reset(struct outbox *o)
{
    for (; o->head != o->tail; o->head++)
        piece_end(o, piece_at(o, o->head));
    o->head_gone = 0;
    o->bytes = 0;
}

void outbox_done(struct outbox *o)
{
    outbox_reset(o);
    free(o->chunk);
    while (o->idle) {
        struct outbox_chunk *next = o->idle->next;
        free(o->idle);
        o->idle = next;
    }
    free(o->pieces);
    *o = (struct outbox){0};
}

uint8_t *outbox_reserve(struct outbox *o, size_t bytes, size_t pieces)
{
    if (grow(o, pieces) < 0)
        return NULL;
    if (!o->chunk || o->chunk->capacity - o->chunk->used < bytes) {
        struct outbox_chunk *chunk = chunk_take(o, bytes);
        if (!chunk)
            return NULL;
        if (o->chunk && o->chunk->pieces == 0)
            chunk_give(o, o->chunk);
        o->chunk = chunk;
    }
    return o->chunk->data + o->chunk->used;
}

void outbox_commit(struct outbox *o, size_t bytes)
{
    struct outbox_chunk *chunk = o->chunk;
    assert(bytes > 0 && chunk->capacity - chunk->used >= bytes);
    *piece_at(o, o->tail++) =
        (struct outbox_piece){.data = chunk->data + chunk->used, .bytes = bytes, .chunk = chunk};
    chunk->used += bytes;
    chunk->pieces++;
    o->bytes += bytes;
}

void outbox_borrow(struct outbox *o, const void *data, size_t bytes)
{
    assert(o->tail - o->head < o->capacity);
    *piece_at(o, o->tail++) = (struct outbox_piece){.data = data, .bytes = bytes};
    o->bytes += bytes;
}

size_t outbox_gather(const struct outbox *o, uint64_t until, struct iovec *iov, size_t iov_count)
{
    size_t used = 0;
    size_t gone = o->head_gone;
    uint64_t end = until < o->tail ? until : o->tail;
    for (uint64_t n = o->head; n < end; n++, gone = 0) {
        const struct outbox_piece *piece = piece_at(o, n);
        const uint8_t *data = piece->data + gone;
        size_t bytes = piece->bytes - gone;
        if (bytes == 0)
            continue;
        if (used > 0 && (const uint8_t *)iov[used - 1].iov_base + iov[used - 1].iov_len == data) {
            iov[used - 1].iov_len += bytes;
            continue;
        }
        if (used == iov_count)
            break;
        iov[used++] = (struct iovec){.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
    }
    return used;
}

void outbox_consume(struct outbox *o, size_t bytes)
{
    assert(bytes <= o->bytes);
    o->bytes -= bytes;
    while (o->head != o->tail) {
        struct outbox_piece *piece = piece_at(o, o->head);
        size_t left = piece->bytes - o->head_gone;
        if (bytes < left) {
            o->head_gone += bytes;
            return;
        }
        bytes -= left;
        piece_end(o, piece);
        o->head_gone = 0;
        o->head++;
    }
}

void outbox_drop(struct outbox *o, uint64_t first, uint64_t end)
{
    assert(outbox_is_whole(o, first) && end <= o->tail);
    for (uint64_t n = first; n < end; n++) {
        struct outbox_piece *piece = piece_at(o, n);
        o->bytes -= piece->bytes;
        piece_end(o, piece);
        piece->bytes = 0;
    }
}
