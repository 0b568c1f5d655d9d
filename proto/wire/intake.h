/* An intake: puts frames together from what a socket gives.
 *
 * Small frames, many per receive, are read where they lie in one buffer. The records of a large one go
 * straight into a slab; while one is being filled, what comes behind it lands in the buffer by the same call.
 * Knows no sockets: it says where bytes should go and is told how many came. One thread.
 *
 *     n = intake_room(&in, iov);  got = readv(fd, iov, n);  intake_received(&in, got);
 *     while ((r = intake_next(&in, &frame, &error)) == 0) { ... intake_release(&in); }
 */
#ifndef BROOK_WIRE_INTAKE_H
#define BROOK_WIRE_INTAKE_H

#include "proto/wire/frame.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct pool;
struct slab;
struct brook_error;

#define INTAKE_BUFFER_BYTES ((size_t)64 << 10)
#define INTAKE_IOV_MAX 2

struct intake_frame {
    const uint8_t *envelope;
    size_t envelope_bytes;
    size_t records_bytes;
    struct slab *slab; /* the records, from its first byte; NULL without records. The intake's reference */
};

enum intake_state { INTAKE_PREFIX, INTAKE_ENVELOPE, INTAKE_RECORDS };

struct intake {
    struct pool *pool;
    uint32_t frame_bytes_max;
    uint32_t envelope_bytes_max;
    uint8_t *buffer; /* made at the first receive */
    size_t start, end;
    enum intake_state state;
    struct frame_prefix prefix;
    uint8_t *envelope; /* own copy, when frame and buffer do not fit together */
    size_t envelope_room;
    size_t envelope_filled;
    struct slab *slab;
    size_t slab_filled;
    bool held; /* a frame was handed out */
};

/* `pool` is borrowed. Limits may be changed between frames. */
void intake_init(struct intake *in, struct pool *pool, uint32_t frame_bytes_max, uint32_t envelope_bytes_max);
/* Forget a half frame and what was received; keeps the buffer. */
void intake_reset(struct intake *in);
void intake_done(struct intake *in);

/* Where the next bytes go. Returns the number of entries (1 or 2), or 0: out of memory. */
size_t intake_room(struct intake *in, struct iovec iov[INTAKE_IOV_MAX]);
void intake_received(struct intake *in, size_t bytes);
/* Bytes of the frame begun that are still missing and known to come; 0 between frames. */
size_t intake_expected(const struct intake *in);
/* The bytes of the frame begun that are at hand, for a look at strangers' first bytes. */
const uint8_t *intake_peek(const struct intake *in, size_t *ret_bytes);

/* The next whole frame: good until intake_release(). Returns 0; -BROOK_E_AGAIN: more bytes are needed;
 * -BROOK_E_QUEUE_FULL: the pool has no slab now, call again later and receive nothing until then;
 * -BROOK_E_NOMEM; or an error of frame_parse(), after which the stream can not go on. */
int intake_next(struct intake *in, struct intake_frame *ret_frame, struct brook_error *error);
void intake_release(struct intake *in);
#endif
