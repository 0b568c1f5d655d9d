/* gzip by isa-l: several times faster than zlib in both directions, the same standard stream. */
#include "proto/record/codec_kinds.h"

#include "proto/base/err.h"

#include <isa-l/igzip_lib.h>
#include <stdlib.h>

#define LEVEL 1
#define LEVEL_BUFFER_BYTES ISAL_DEF_LVL1_DEFAULT
/* isa-l counts in 32 bits. */
#define PIECE_BYTES ((size_t)1 << 30)
#define ROOM_WISH ((size_t)32 << 10)

struct deflater {
    struct isal_zstream stream;
    uint8_t level_buffer[LEVEL_BUFFER_BYTES];
};

size_t gzip_bound(size_t bytes)
{
    /* Blocks that do not shrink are stored, 5 bytes each for up to 64 KiB; header and trailer are 18. */
    return bytes + bytes / 1024 + 512;
}

static uint8_t *unconst(const void *data)
{
    return (uint8_t *)(uintptr_t)data;
}

int gzip_compress(void **context, const void *from, size_t from_bytes, void *to, size_t to_capacity,
                  size_t *ret_bytes)
{
    if (from_bytes > PIECE_BYTES)
        return -BROOK_E_AGAIN;
    struct deflater *d = *context;
    if (!d && !(d = *context = malloc(sizeof *d)))
        return -BROOK_E_NOMEM;
    isal_deflate_init(&d->stream);
    d->stream.level = LEVEL;
    d->stream.level_buf = d->level_buffer;
    d->stream.level_buf_size = sizeof d->level_buffer;
    d->stream.gzip_flag = IGZIP_GZIP;
    d->stream.end_of_stream = 1;
    d->stream.next_in = unconst(from);
    d->stream.avail_in = (uint32_t)from_bytes;
    d->stream.next_out = to;
    d->stream.avail_out = (uint32_t)(to_capacity < UINT32_MAX ? to_capacity : UINT32_MAX);
    if (isal_deflate(&d->stream) != COMP_OK || d->stream.internal_state.state != ZSTATE_END)
        return -BROOK_E_AGAIN;
    *ret_bytes = d->stream.total_out;
    return 0;
}

void gzip_compress_done(void *context)
{
    free(context);
}

/* One member of the stream, from state->next_in on. */
static int expand_member(struct inflate_state *state, struct codec_output *out)
{
    isal_inflate_reset(state);
    state->crc_flag = ISAL_GZIP;
    while (state->block_state != ISAL_BLOCK_FINISH) {
        uint8_t *at;
        size_t room;
        int r = codec_output_room(out, ROOM_WISH, &at, &room);
        if (r < 0)
            return r;
        uint32_t in_before = state->avail_in;
        state->next_out = at;
        state->avail_out = (uint32_t)(room < PIECE_BYTES ? room : PIECE_BYTES);
        if (isal_inflate(state) != ISAL_DECOMP_OK)
            return -BROOK_E_CORRUPT_BATCH;
        size_t wrote = (size_t)(state->next_out - at);
        r = codec_output_wrote(out, wrote);
        if (r < 0)
            return r;
        if (wrote == 0 && state->avail_in == in_before && state->block_state != ISAL_BLOCK_FINISH)
            return -BROOK_E_CORRUPT_BATCH;
    }
    return 0;
}

int gzip_expand(void **context, const void *from, size_t from_bytes, struct codec_output *out)
{
    if (from_bytes > PIECE_BYTES)
        return -BROOK_E_CORRUPT_BATCH;
    struct inflate_state *state = *context;
    if (!state) {
        if (!(state = *context = malloc(sizeof *state)))
            return -BROOK_E_NOMEM;
        isal_inflate_init(state);
    }
    state->next_in = unconst(from);
    state->avail_in = (uint32_t)from_bytes;
    int r;
    do
        r = expand_member(state, out);
    while (r == 0 && state->avail_in > 0);
    return r;
}

void gzip_expand_done(void *context)
{
    free(context);
}
