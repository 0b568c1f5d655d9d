/* An outbox: bytes that wait for a socket, in order, some in memory of its own, some borrowed.
 *
 * Bytes are queued in pieces, numbered without end from 0, so that the owner of a request can tell whether
 * its pieces have left (outbox_head()). Own memory is kept in chunks that are used again: nothing is
 * allocated on the steady path. Knows no sockets. One thread.
 */
#ifndef BROOK_WIRE_OUTBOX_H
#define BROOK_WIRE_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define OUTBOX_CHUNK_BYTES ((size_t)64 << 10)
/* Empty chunks that are kept. */
#define OUTBOX_CHUNKS_IDLE_MAX 16

struct outbox_chunk;
struct outbox_piece;

struct outbox {
    struct outbox_piece *pieces; /* a ring, its capacity a power of two */
    size_t capacity;
    uint64_t head, tail;        /* numbers of the first piece queued and of the next one to come */
    size_t head_gone;           /* bytes of the first piece that have left */
    size_t bytes;               /* queued and not yet gone */
    struct outbox_chunk *chunk; /* being filled */
    struct outbox_chunk *idle;
    size_t idle_count;
};

/* A zeroed outbox is empty. Frees memory; the outbox is as new. */
void outbox_done(struct outbox *o);
/* Forget everything queued. Piece numbers go on. */
void outbox_reset(struct outbox *o);

/* Make sure that `pieces` more pieces can be queued and give `bytes` of own memory in a row for the first of
 * them. NULL: out of memory, nothing has changed. */
uint8_t *outbox_reserve(struct outbox *o, size_t bytes, size_t pieces);
/* Queue the first `bytes` > 0 of what outbox_reserve() gave. */
void outbox_commit(struct outbox *o, size_t bytes);
/* Queue borrowed bytes, which stay unchanged until they are gone or dropped. Room was made by
 * outbox_reserve(). */
void outbox_borrow(struct outbox *o, const void *data, size_t bytes);

/* The first bytes queued, of pieces below number `until`. Returns how many of `iov` were filled in. */
size_t outbox_gather(const struct outbox *o, uint64_t until, struct iovec *iov, size_t iov_count);
/* `bytes` of what outbox_gather() gave are gone. */
void outbox_consume(struct outbox *o, size_t bytes);

/* Number of the first piece of which bytes are still here; of the next piece to be queued. */
static inline uint64_t outbox_head(const struct outbox *o)
{
    return o->head;
}
static inline uint64_t outbox_tail(const struct outbox *o)
{
    return o->tail;
}
/* Whether not a byte of piece `first` and those behind it has left. */
static inline bool outbox_is_whole(const struct outbox *o, uint64_t first)
{
    return first > o->head || (first == o->head && o->head_gone == 0);
}
/* Take pieces [first, end) out, which are whole; what is around them still leaves in order. */
void outbox_drop(struct outbox *o, uint64_t first, uint64_t end);
#endif
