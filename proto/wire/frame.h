/* Frames: u32 frame_bytes | u32 envelope_bytes | envelope | record batches. All big-endian.
 *
 * Judges the first eight bytes of a frame and writes them; knows no sockets and allocates nothing. Pure.
 */
#ifndef BROOK_WIRE_FRAME_H
#define BROOK_WIRE_FRAME_H

#include <stddef.h>
#include <stdint.h>

struct brook_error;

#define FRAME_PREFIX_BYTES 8 /* both lengths */
#define FRAME_BYTES_MAX_DEFAULT 104857600
#define ENVELOPE_BYTES_MAX_CLIENT (1 << 20)
#define ENVELOPE_BYTES_MAX_BROKER (16 << 20)
/* Before Hello a frame may be this large only. */
#define FRAME_BYTES_MAX_FIRST 4096

struct frame_prefix {
    uint32_t frame_bytes; /* what follows the first length: 4 + envelope + records */
    uint32_t envelope_bytes;
    uint32_t records_bytes; /* frame_bytes - 4 - envelope_bytes */
};

/* Other protocols whose first bytes are recognised. */
enum frame_foreign { FRAME_BROOK, FRAME_HTTP, FRAME_TLS, FRAME_KAFKA, FRAME_UNKNOWN };

/* Parse the prefix of which `bytes` are at hand.
 * Returns 0; -BROOK_E_AGAIN below eight bytes (but a wrong first length is refused with four);
 * -BROOK_E_FRAME_TOO_LARGE; -BROOK_E_BAD_FRAME. A sentence in *error (may be NULL). */
int frame_parse(const void *data, size_t bytes, uint32_t frame_bytes_max, uint32_t envelope_bytes_max,
                struct frame_prefix *ret, struct brook_error *error);

/* What the first bytes (at least 4) of a connection look like. */
enum frame_foreign frame_recognise(const void *data, size_t bytes);

/* Write the eight bytes. The caller has checked the sum: 4 + envelope + records fits 32 bits. */
void frame_write_prefix(void *to, uint32_t envelope_bytes, uint32_t records_bytes);
#endif
