#include "proto/record/codec_output.h"

#include "proto/base/err.h"

#include <assert.h>
#include <stdlib.h>

#define CAPACITY_MIN ((size_t)64 << 10)
/* A buffer up to this size is never given back; a larger one is when SHRINK_USES uses in a row needed less
 * than a quarter of it. */
#define KEEP_BYTES ((size_t)4 << 20)
#define SHRINK_USES 64

void codec_buffer_done(struct codec_buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct codec_buffer){0};
}

void codec_output_init(struct codec_output *out, struct codec_buffer *buffer, size_t bytes_max)
{
    if (buffer->capacity > KEEP_BYTES && ++buffer->uses >= SHRINK_USES) {
        if (buffer->bytes_peak < buffer->capacity / 4)
            codec_buffer_done(buffer);
        buffer->uses = 0;
        buffer->bytes_peak = 0;
    }
    out->data = buffer->data;
    out->bytes = 0;
    out->capacity = buffer->capacity < bytes_max ? buffer->capacity : bytes_max;
    out->bytes_max = bytes_max;
    out->buffer = buffer;
}

void codec_output_init_fixed(struct codec_output *out, void *to, size_t capacity)
{
    out->data = to;
    out->bytes = 0;
    out->capacity = capacity;
    out->bytes_max = capacity;
    out->buffer = NULL;
}

void codec_output_done(struct codec_output *out)
{
    if (out->buffer && out->bytes > out->buffer->bytes_peak)
        out->buffer->bytes_peak = out->bytes;
}

/* To at least `capacity`, which is at most bytes_max; twice as much as before where possible. */
static int grow(struct codec_output *out, size_t capacity)
{
    struct codec_buffer *buffer = out->buffer;
    assert(buffer && capacity <= out->bytes_max);
    if (capacity > buffer->capacity) {
        size_t doubled = buffer->capacity < SIZE_MAX / 2 ? buffer->capacity * 2 : SIZE_MAX;
        size_t wanted = capacity > doubled ? capacity : doubled;
        if (wanted < CAPACITY_MIN)
            wanted = CAPACITY_MIN;
        if (wanted > out->bytes_max)
            wanted = out->bytes_max;
        uint8_t *data = realloc(buffer->data, wanted);
        if (!data)
            return -BROOK_E_NOMEM;
        buffer->data = data;
        buffer->capacity = wanted;
    }
    out->data = buffer->data;
    out->capacity = buffer->capacity < out->bytes_max ? buffer->capacity : out->bytes_max;
    return 0;
}

int codec_output_reserve(struct codec_output *out, size_t bytes)
{
    if (bytes > out->bytes_max - out->bytes)
        return -BROOK_E_EXPANDS_TOO_FAR;
    return bytes <= out->capacity - out->bytes ? 0 : grow(out, out->bytes + bytes);
}

int codec_output_room(struct codec_output *out, size_t wish, uint8_t **ret_at, size_t *ret_room)
{
    size_t left = out->bytes_max - out->bytes;
    if (wish == 0)
        wish = 1;
    if (wish > left)
        wish = left;
    if (wish > out->capacity - out->bytes) {
        int r = grow(out, out->bytes + wish);
        if (r < 0)
            return r;
    }
    *ret_at = left > 0 ? out->data + out->bytes : out->spill;
    *ret_room = left > 0 ? out->capacity - out->bytes : sizeof out->spill;
    return 0;
}

int codec_output_wrote(struct codec_output *out, size_t bytes)
{
    if (bytes > out->bytes_max - out->bytes)
        return -BROOK_E_EXPANDS_TOO_FAR;
    out->bytes += bytes;
    return 0;
}
