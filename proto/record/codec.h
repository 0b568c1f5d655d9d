/* Compression of record batches, in Kafka's framings: gzip (a standard stream), snappy (xerial stream),
 * lz4 (frame format, 64 KiB independent blocks), zstd (standard frames). It knows no batches.
 *
 * A `codec` holds the libraries' contexts, made when first used; one per thread, no locks. Declared sizes are
 * never believed: output is bounded by the caller's room, and every decoder error is an error code.
 */
#ifndef BROOK_RECORD_CODEC_H
#define BROOK_RECORD_CODEC_H

#include <stddef.h>

enum codec_id { CODEC_NONE = 0, CODEC_GZIP = 1, CODEC_SNAPPY = 2, CODEC_LZ4 = 3, CODEC_ZSTD = 4 };

struct codec;

/* Returns 0 or -BROOK_E_NOMEM. */
int codec_new(struct codec **ret_codec);
void codec_free(struct codec *codec);

/* "none", "gzip", "snappy", "lz4", "zstd". Returns 0 or -BROOK_E_UNSUPPORTED_CODEC. */
int codec_parse(const char *name, enum codec_id *ret_id);
const char *codec_name(enum codec_id id);

/* The most that compressing `bytes` can take. */
size_t codec_bound(enum codec_id id, size_t bytes);

/* Returns 0 and *ret_bytes written to `to`; -BROOK_E_AGAIN when `to` is too small; -BROOK_E_NOMEM;
 * -BROOK_E_UNSUPPORTED_CODEC. codec_bound() bytes always suffice; with fewer it may say AGAIN although the
 * result would have fitted (lz4 does). */
int codec_compress(struct codec *codec, enum codec_id id, const void *from, size_t from_bytes, void *to,
                   size_t to_capacity, size_t *ret_bytes);

/* Expand all of `from` (concatenated frames included) into a buffer that grows up to `bytes_max` and belongs
 * to the codec until its next call. Returns 0 and the buffer; -BROOK_E_EXPANDS_TOO_FAR beyond `bytes_max`;
 * -BROOK_E_CORRUPT_BATCH for what is not a whole stream; -BROOK_E_UNSUPPORTED_CODEC; -BROOK_E_NOMEM. */
int codec_expand(struct codec *codec, enum codec_id id, const void *from, size_t from_bytes, size_t bytes_max,
                 const void **ret_data, size_t *ret_bytes);
/* The same into the caller's own room, of which `to_capacity` bytes are the limit; what lies in it after an
 * error is undefined. */
int codec_expand_into(struct codec *codec, enum codec_id id, const void *from, size_t from_bytes, void *to,
                      size_t to_capacity, size_t *ret_bytes);
#endif
