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

/* Send at most about `bytes_max` to a non-blocking socket. Returns 0 when all is sent; -BROOK_E_AGAIN when
 * the socket is full; -BROOK_E_BUSY when `bytes_max` is used up; -BROOK_E_DISCONNECTED;
 * -BROOK_E_STORAGE_ERROR when a range can not be read: what was promised can not be sent, so the connection
 * must be closed. *ret_sent: bytes that left, in every case. */
int output_flush(struct output *out, int fd, size_t bytes_max, size_t *ret_sent);
#endif
