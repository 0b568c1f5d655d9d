/* The LZ4 frame format, as Kafka writes it. */
#include "proto/record/codec_kinds.h"

#include "proto/base/err.h"

#include <lz4frame.h>

/* Room for a whole block spares the library a copy through its own buffer. */
#define BLOCK_BYTES ((size_t)64 << 10)

static const LZ4F_preferences_t preferences = {
    .frameInfo = {.blockSizeID = LZ4F_max64KB, .blockMode = LZ4F_blockIndependent}};

size_t lz4_bound(size_t bytes)
{
    return LZ4F_compressFrameBound(bytes, &preferences);
}

int lz4_compress(void **context, const void *from, size_t from_bytes, void *to, size_t to_capacity,
                 size_t *ret_bytes)
{
    size_t n = LZ4F_compressFrame(to, to_capacity, from, from_bytes, &preferences);
    if (LZ4F_isError(n))
        return -BROOK_E_AGAIN;
    *ret_bytes = n;
    return 0;
}

static int expand_frames(LZ4F_dctx *context, const uint8_t *from, size_t from_bytes, struct codec_output *out)
{
    size_t taken = 0, hint;
    do {
        uint8_t *at;
        size_t room, in = from_bytes - taken;
        int r = codec_output_room(out, BLOCK_BYTES, &at, &room);
        if (r < 0)
            return r;
        hint = LZ4F_decompress(context, at, &room, from + taken, &in, NULL);
        if (LZ4F_isError(hint) || (in == 0 && room == 0))
            return -BROOK_E_CORRUPT_BATCH;
        taken += in;
        r = codec_output_wrote(out, room);
        if (r < 0)
            return r;
    } while (taken < from_bytes || hint != 0);
    return 0;
}

int lz4_expand(void **context, const void *from, size_t from_bytes, struct codec_output *out)
{
    LZ4F_dctx *d = *context;
    if (!d) {
        if (LZ4F_isError(LZ4F_createDecompressionContext(&d, LZ4F_VERSION)))
            return -BROOK_E_NOMEM;
        *context = d;
    }
    int r = expand_frames(d, from, from_bytes, out);
    if (r < 0) {
        /* LZ4F_resetDecompressionContext() forgets to forget the content size of the frame that failed: the
         * next frame would be refused for it. */
        lz4_expand_done(d);
        *context = NULL;
    }
    return r;
}

void lz4_expand_done(void *context)
{
    LZ4F_freeDecompressionContext(context);
}
