/* The sending side of a connection: a queue of memory and of file ranges, in order.
 *
 * Many small replies are packed behind each other and leave in one sendmsg; bytes in front of a file range
 * are sent with MSG_MORE, so that envelope and records share packets. A range holds its segment until it is
 * sent. Knows sockets, and neither events nor messages. The loop's thread only.
 */
#ifndef BROOK_NET_OUTPUT_H
#define BROOK_NET_OUTPUT_H

#include "broker/storage/log.h"
#include "proto/base/pool.h"

#include <stdbool.h>

struct output_piece;

/* Pieces are recycled per loop. */
struct output_spares {
    struct output_piece *free;
    size_t count;
};
void output_spares_done(struct output_spares *spares);

struct output {
    struct pool *buffers;
    struct output_spares *spares;
    struct output_piece *first;
    struct output_piece *last;
    struct slab *tail; /* what output_reserve() fills; pieces hold references of their own */
    size_t tail_used;
    size_t bytes; /* queued, file ranges included */
};

void output_init(struct output *out, struct pool *buffers, struct output_spares *spares);
/* Drops what is queued. */
void output_done(struct output *out);
bool output_is_empty(const struct output *out);

/* `bytes` of room behind what is queued, to be filled and followed by output_commit() of the same size before
 * anything else is called. NULL: out of memory. */
void *output_reserve(struct output *out, size_t bytes);
/* Returns 0 or -BROOK_E_NOMEM (nothing is queued then). */
int output_commit(struct output *out, size_t bytes);
/* Takes over `range`, in every case. Returns 0 or -BROOK_E_NOMEM. */
int output_add_range(struct output *out, struct log_range *range);

/* A part of a file that has to be read from the disk before it can be sent without waiting. */
struct output_cold {
    int fd; /* the segment's: dup() it to read on another thread */
    off_t position;
    size_t bytes;
};

/* Send at most about `bytes_max` to a non-blocking socket. Returns 0 when all is sent; -BROOK_E_AGAIN when
 * the socket is full; -BROOK_E_BUSY when `bytes_max` is used up; -BROOK_E_LOCKED when what comes next is not
 * in the page cache: *ret_cold is to be read by a thread that may wait, then flush again;
 * -BROOK_E_DISCONNECTED; -BROOK_E_STORAGE_ERROR when a range can not be read: what was promised can not be
 * sent, so the connection must be closed. *ret_sent: bytes that left, in every case. */
int output_flush(struct output *out, int fd, size_t bytes_max, size_t *ret_sent,
                 struct output_cold *ret_cold);
/* What flush asked for has been read (or can not be): it is not asked for again. */
void output_warmed(struct output *out, const struct output_cold *cold);
#endif
