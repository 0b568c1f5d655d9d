/* Where a decoder writes: a codec's own buffer that grows, or a caller's room that does not. Knows no codec.
 *
 * Growth follows what was really written, not what a stream claims. A decoder asks for room, writes, and says
 * how much; one byte beyond `bytes_max` is an error, yet a stream that ends exactly there is whole: at the
 * limit the decoder gets a small spill area to write into, so that it can come to its end.
 */
#ifndef BROOK_RECORD_CODEC_OUTPUT_H
#define BROOK_RECORD_CODEC_OUTPUT_H

#include <stddef.h>
#include <stdint.h>

/* Memory that a codec keeps from call to call. Zeroed: empty. */
struct codec_buffer {
    uint8_t *data;
    size_t capacity;
    size_t bytes_peak; /* the largest use since `uses` was 0 */
    unsigned uses;
};

struct codec_output {
    uint8_t *data;
    size_t bytes;
    size_t capacity;
    size_t bytes_max;
    struct codec_buffer *buffer; /* NULL: the caller's room */
    uint8_t spill[64];
};

/* Begin to fill `buffer` anew. What it held is gone; a huge buffer, little used for a while, is freed. */
void codec_output_init(struct codec_output *out, struct codec_buffer *buffer, size_t bytes_max);
void codec_output_init_fixed(struct codec_output *out, void *to, size_t capacity);
/* Tell the buffer how much was used. */
void codec_output_done(struct codec_output *out);
void codec_buffer_done(struct codec_buffer *buffer);

/* Make room for at least `bytes` more. Returns 0, -BROOK_E_EXPANDS_TOO_FAR or -BROOK_E_NOMEM. */
int codec_output_reserve(struct codec_output *out, size_t bytes);

/* Room for the next bytes, of at least 1 and where possible `wish` bytes. Returns 0 or -BROOK_E_NOMEM. */
int codec_output_room(struct codec_output *out, size_t wish, uint8_t **ret_at, size_t *ret_room);
/* `bytes` were written where codec_output_room() said. Returns 0 or -BROOK_E_EXPANDS_TOO_FAR. */
int codec_output_wrote(struct codec_output *out, size_t bytes);
#endif
