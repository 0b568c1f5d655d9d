/* What each codec must be able to do, one .c file per codec. Private to this folder.
 *
 * A context is made by the codec's first call and kept in a slot of `struct codec`. All calls of one slot
 * come from one thread. Compressing returns 0, -BROOK_E_AGAIN (no room) or -BROOK_E_NOMEM. Expanding writes
 * through codec_output, takes all of `from`, and returns 0, -BROOK_E_CORRUPT_BATCH, -BROOK_E_NOMEM or what
 * codec_output said; a context must be usable after an error.
 */
#ifndef BROOK_RECORD_CODEC_KINDS_H
#define BROOK_RECORD_CODEC_KINDS_H

#include "proto/record/codec_output.h"

size_t gzip_bound(size_t bytes);
int gzip_compress(void **context, const void *from, size_t from_bytes, void *to, size_t to_capacity,
                  size_t *ret_bytes);
void gzip_compress_done(void *context);
int gzip_expand(void **context, const void *from, size_t from_bytes, struct codec_output *out);
void gzip_expand_done(void *context);

size_t snappy_bound(size_t bytes);
int snappy_stream_compress(void **context, const void *from, size_t from_bytes, void *to, size_t to_capacity,
                           size_t *ret_bytes);
int snappy_stream_expand(void **context, const void *from, size_t from_bytes, struct codec_output *out);

size_t lz4_bound(size_t bytes);
int lz4_compress(void **context, const void *from, size_t from_bytes, void *to, size_t to_capacity,
                 size_t *ret_bytes);
int lz4_expand(void **context, const void *from, size_t from_bytes, struct codec_output *out);
void lz4_expand_done(void *context);

size_t zstd_bound(size_t bytes);
int zstd_compress(void **context, const void *from, size_t from_bytes, void *to, size_t to_capacity,
                  size_t *ret_bytes);
void zstd_compress_done(void *context);
int zstd_expand(void **context, const void *from, size_t from_bytes, struct codec_output *out);
void zstd_expand_done(void *context);
#endif
