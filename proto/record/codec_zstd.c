/* Standard zstd frames, at level 1: far faster than Kafka's default level and about as small on records. */
#include "proto/record/codec_kinds.h"

#include "proto/base/err.h"

#include <zstd.h>
#include <zstd_errors.h>

#define LEVEL 1
#define ROOM_WISH ((size_t)128 << 10)
/* What a frame says about its size is taken as a hint for the room, as far as so many times the input. */
#define HINT_EXPANSION_MAX 64

size_t zstd_bound(size_t bytes)
{
    return ZSTD_compressBound(bytes);
}

int zstd_compress(void **context, const void *from, size_t from_bytes, void *to, size_t to_capacity,
                  size_t *ret_bytes)
{
    if (!*context && !(*context = ZSTD_createCCtx()))
        return -BROOK_E_NOMEM;
    size_t n = ZSTD_compressCCtx(*context, to, to_capacity, from, from_bytes, LEVEL);
    if (ZSTD_isError(n))
        return ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation ? -BROOK_E_NOMEM : -BROOK_E_AGAIN;
    *ret_bytes = n;
    return 0;
}

void zstd_compress_done(void *context)
{
    ZSTD_freeCCtx(context);
}

/* With room for the whole frame the library writes straight into it, else through a window of its own. */
static size_t room_wish(const uint8_t *from, size_t bytes)
{
    unsigned long long claimed = ZSTD_getFrameContentSize(from, bytes);
    if (claimed == ZSTD_CONTENTSIZE_UNKNOWN || claimed == ZSTD_CONTENTSIZE_ERROR ||
        claimed / HINT_EXPANSION_MAX > bytes)
        return ROOM_WISH;
    return (size_t)claimed;
}

static int expand_frames(ZSTD_DCtx *context, const void *from, size_t from_bytes, struct codec_output *out)
{
    ZSTD_inBuffer in = {.src = from, .size = from_bytes};
    size_t hint = 0;
    do {
        ZSTD_outBuffer to = {0};
        uint8_t *at;
        size_t before = in.pos;
        /* 0: a frame has ended, or none has begun. */
        size_t wish = hint == 0 ? room_wish((const uint8_t *)from + in.pos, in.size - in.pos) : ROOM_WISH;
        int r = codec_output_room(out, wish, &at, &to.size);
        if (r < 0)
            return r;
        to.dst = at;
        hint = ZSTD_decompressStream(context, &to, &in);
        if (ZSTD_isError(hint))
            return ZSTD_getErrorCode(hint) == ZSTD_error_memory_allocation ? -BROOK_E_NOMEM
                                                                           : -BROOK_E_CORRUPT_BATCH;
        if (in.pos == before && to.pos == 0)
            return -BROOK_E_CORRUPT_BATCH;
        r = codec_output_wrote(out, to.pos);
        if (r < 0)
            return r;
    } while (in.pos < in.size || hint != 0);
    return 0;
}

int zstd_expand(void **context, const void *from, size_t from_bytes, struct codec_output *out)
{
    if (!*context && !(*context = ZSTD_createDCtx()))
        return -BROOK_E_NOMEM;
    int r = expand_frames(*context, from, from_bytes, out);
    if (r < 0)
        ZSTD_DCtx_reset(*context, ZSTD_reset_session_only);
    return r;
}

void zstd_expand_done(void *context)
{
    ZSTD_freeDCtx(context);
}
