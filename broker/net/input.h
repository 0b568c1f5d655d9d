/* The receiving side of a connection: whole frames out of a byte stream.
 *
 * Small frames are read many at a time into one shared buffer; a frame that is larger than
 * INPUT_SMALL_FRAME_BYTES reserves its full size from the thread's budget before its body is read, and is
 * then read straight into place. Frames are handed out in place and writable, each with a reference on the
 * slab that holds it, so bytes stay put for as long as somebody needs them; a connection with nothing half
 * read holds no memory at all.
 *
 * Knows sockets, and neither events nor messages. The loop's thread only.
 */
#ifndef BROOK_NET_INPUT_H
#define BROOK_NET_INPUT_H

#include "proto/base/pool.h"
#include "proto/wire/frame.h"

#include <stdbool.h>
#include <sys/types.h>

struct brook_error;

#define INPUT_BUFFER_BYTES ((size_t)64 << 10)
#define INPUT_SMALL_FRAME_BYTES ((size_t)32 << 10)
#define INPUT_LOWAT_BYTES_MAX ((size_t)256 << 10)

struct input {
    struct pool *buffers; /* for shared buffers */
    size_t buffer_bytes;  /* of the next one: small until the peer is known, then INPUT_BUFFER_BYTES */
    struct pool *frames;  /* for large frames: the budget */
    struct slab *buffer;  /* NULL: nothing half read */
    size_t start;
    size_t end;
    struct slab *frame; /* a large frame being read; NULL: none */
    size_t frame_have;
    size_t frame_total;
    struct frame_prefix frame_prefix;
    size_t missing; /* bytes of the small frame at `start` that are still to come; 0: not known */
    bool hold;      /* set by the owner: begin no large frame, others were first */
    size_t wanted;  /* after BUSY: what input_grant() must bring */
    int lowat;      /* as set on the socket; 1 by default */
};

struct input_frame {
    const uint8_t *envelope;
    size_t envelope_bytes;
    uint8_t *records;
    size_t records_bytes;
    struct slab *slab; /* the caller's reference */
};

void input_init(struct input *in, struct pool *buffers, struct pool *frames);
void input_done(struct input *in);

/* One receive from `fd`. Returns the bytes read (> 0); 0 at the peer's end; -BROOK_E_AGAIN; -BROOK_E_BUSY (no
 * memory for a buffer now); -BROOK_E_DISCONNECTED. */
ssize_t input_read(struct input *in, int fd);

/* The next whole frame. Returns 0; -BROOK_E_AGAIN when it has to be read first; -BROOK_E_BUSY when the budget
 * has no room for it now; -BROOK_E_FRAME_TOO_LARGE or -BROOK_E_BAD_FRAME with a sentence: the stream is lost.
 */
int input_next(struct input *in, uint32_t frame_bytes_max, uint32_t envelope_bytes_max,
               struct input_frame *ret, struct brook_error *error);

/* After BUSY: begin the large frame in this slab of at least in->wanted bytes (taken over). */
void input_grant(struct input *in, struct slab *slab);

/* After input_next() answered AGAIN: tell the kernel not to wake us for less than is worth it, and give back
 * what is not needed while waiting. */
void input_settle(struct input *in, int fd);

/* The first bytes at hand and not yet handed out (before the first frame: to see who speaks). */
const uint8_t *input_peek(const struct input *in, size_t *ret_bytes);
/* Whether a frame has begun and is not whole. */
bool input_is_half(const struct input *in);
#endif
