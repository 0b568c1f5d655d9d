#include "proto/record/codec.h"

#include "proto/base/err.h"
#include "proto/record/codec_kinds.h"

#include <stdlib.h>
#include <string.h>

struct kind {
    const char *name;
    size_t (*bound)(size_t bytes);
    int (*compress)(void **context, const void *from, size_t from_bytes, void *to, size_t to_capacity,
                    size_t *ret_bytes);
    void (*compress_done)(void *context);
    int (*expand)(void **context, const void *from, size_t from_bytes, struct codec_output *out);
    void (*expand_done)(void *context);
};

static size_t plain_bound(size_t bytes)
{
    return bytes;
}

static int plain_compress(void **context, const void *from, size_t from_bytes, void *to, size_t to_capacity,
                          size_t *ret_bytes)
{
    if (from_bytes > to_capacity)
        return -BROOK_E_AGAIN;
    if (from_bytes > 0)
        memcpy(to, from, from_bytes);
    *ret_bytes = from_bytes;
    return 0;
}

static int plain_expand(void **context, const void *from, size_t from_bytes, struct codec_output *out)
{
    int r = codec_output_reserve(out, from_bytes);
    if (r < 0)
        return r;
    if (from_bytes > 0)
        memcpy(out->data + out->bytes, from, from_bytes);
    return codec_output_wrote(out, from_bytes);
}

static const struct kind kinds[] = {
    [CODEC_NONE] = {"none", plain_bound, plain_compress, NULL, plain_expand, NULL},
    [CODEC_GZIP] = {"gzip", gzip_bound, gzip_compress, gzip_compress_done, gzip_expand, gzip_expand_done},
    [CODEC_SNAPPY] = {"snappy", snappy_bound, snappy_stream_compress, NULL, snappy_stream_expand, NULL},
    [CODEC_LZ4] = {"lz4", lz4_bound, lz4_compress, NULL, lz4_expand, lz4_expand_done},
    [CODEC_ZSTD] = {"zstd", zstd_bound, zstd_compress, zstd_compress_done, zstd_expand, zstd_expand_done},
};
#define KINDS_COUNT (sizeof kinds / sizeof kinds[0])

struct codec {
    struct codec_buffer expanded;
    void *compressors[KINDS_COUNT];
    void *expanders[KINDS_COUNT];
};

int codec_new(struct codec **ret_codec)
{
    struct codec *codec = calloc(1, sizeof *codec);
    if (!codec)
        return -BROOK_E_NOMEM;
    *ret_codec = codec;
    return 0;
}

void codec_free(struct codec *codec)
{
    if (!codec)
        return;
    for (size_t i = 0; i < KINDS_COUNT; i++) {
        if (codec->compressors[i])
            kinds[i].compress_done(codec->compressors[i]);
        if (codec->expanders[i])
            kinds[i].expand_done(codec->expanders[i]);
    }
    codec_buffer_done(&codec->expanded);
    free(codec);
}

int codec_parse(const char *name, enum codec_id *ret_id)
{
    for (size_t i = 0; i < KINDS_COUNT; i++)
        if (strcmp(name, kinds[i].name) == 0) {
            *ret_id = (enum codec_id)i;
            return 0;
        }
    return -BROOK_E_UNSUPPORTED_CODEC;
}

const char *codec_name(enum codec_id id)
{
    return (size_t)id < KINDS_COUNT ? kinds[id].name : "unknown";
}

size_t codec_bound(enum codec_id id, size_t bytes)
{
    return (size_t)id < KINDS_COUNT ? kinds[id].bound(bytes) : 0;
}

int codec_compress(struct codec *codec, enum codec_id id, const void *from, size_t from_bytes, void *to,
                   size_t to_capacity, size_t *ret_bytes)
{
    if ((size_t)id >= KINDS_COUNT)
        return -BROOK_E_UNSUPPORTED_CODEC;
    return kinds[id].compress(&codec->compressors[id], from, from_bytes, to, to_capacity, ret_bytes);
}

/* An address for no bytes, where no buffer was needed yet. */
static const uint8_t out_of_nothing[1];

int codec_expand(struct codec *codec, enum codec_id id, const void *from, size_t from_bytes, size_t bytes_max,
                 const void **ret_data, size_t *ret_bytes)
{
    if ((size_t)id >= KINDS_COUNT)
        return -BROOK_E_UNSUPPORTED_CODEC;
    struct codec_output out;
    codec_output_init(&out, &codec->expanded, bytes_max);
    int r = kinds[id].expand(&codec->expanders[id], from, from_bytes, &out);
    codec_output_done(&out);
    if (r < 0)
        return r;
    *ret_data = out.data ? out.data : out_of_nothing;
    *ret_bytes = out.bytes;
    return 0;
}

int codec_expand_into(struct codec *codec, enum codec_id id, const void *from, size_t from_bytes, void *to,
                      size_t to_capacity, size_t *ret_bytes)
{
    if ((size_t)id >= KINDS_COUNT)
        return -BROOK_E_UNSUPPORTED_CODEC;
    struct codec_output out;
    codec_output_init_fixed(&out, to, to_capacity);
    int r = kinds[id].expand(&codec->expanders[id], from, from_bytes, &out);
    if (r < 0)
        return r;
    *ret_bytes = out.bytes;
    return 0;
}
