#include "proto/wire/intake.h"

#include "proto/base/err.h"
#include "proto/base/pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A larger copy of an envelope is not kept for the next frame. */
#define ENVELOPE_KEEP_BYTES ((size_t)64 << 10)

void intake_init(struct intake *in, struct pool *pool, uint32_t frame_bytes_max, uint32_t envelope_bytes_max)
{
    *in = (struct intake){
        .pool = pool, .frame_bytes_max = frame_bytes_max, .envelope_bytes_max = envelope_bytes_max};
}

static void end_frame(struct intake *in)
{
    slab_unref(in->slab);
    in->slab = NULL;
    in->slab_filled = 0;
    in->envelope_filled = 0;
    if (in->envelope_room > ENVELOPE_KEEP_BYTES) {
        free(in->envelope);
        in->envelope = NULL;
        in->envelope_room = 0;
    }
    in->state = INTAKE_PREFIX;
    in->held = false;
}

void intake_reset(struct intake *in)
{
    end_frame(in);
    in->start = 0;
    in->end = 0;
}

void intake_done(struct intake *in)
{
    intake_reset(in);
    free(in->buffer);
    free(in->envelope);
    *in = (struct intake){0};
}

static size_t at_hand(const struct intake *in)
{
    return in->end - in->start;
}

/* Move what is left to the front, so that there is room behind it. */
static void compact(struct intake *in)
{
    if (in->start == 0)
        return;
    memmove(in->buffer, in->buffer + in->start, at_hand(in));
    in->end = at_hand(in);
    in->start = 0;
}

size_t intake_room(struct intake *in, struct iovec iov[INTAKE_IOV_MAX])
{
    if (!in->buffer && !(in->buffer = malloc(INTAKE_BUFFER_BYTES)))
        return 0;
    compact(in);
    size_t n = 0;
    if (in->state == INTAKE_ENVELOPE)
        iov[n++] = (struct iovec){in->envelope + in->envelope_filled,
                                  in->prefix.envelope_bytes - in->envelope_filled};
    else if (in->state == INTAKE_RECORDS)
        iov[n++] =
            (struct iovec){in->slab->data + in->slab_filled, in->prefix.records_bytes - in->slab_filled};
    if (in->end < INTAKE_BUFFER_BYTES)
        iov[n++] = (struct iovec){in->buffer + in->end, INTAKE_BUFFER_BYTES - in->end};
    return n;
}

void intake_received(struct intake *in, size_t bytes)
{
    size_t direct = 0;
    if (in->state == INTAKE_ENVELOPE) {
        size_t wanted = in->prefix.envelope_bytes - in->envelope_filled;
        direct = bytes < wanted ? bytes : wanted;
        in->envelope_filled += direct;
    } else if (in->state == INTAKE_RECORDS) {
        size_t wanted = in->prefix.records_bytes - in->slab_filled;
        direct = bytes < wanted ? bytes : wanted;
        in->slab_filled += direct;
    }
    in->end += bytes - direct;
    assert(in->end <= INTAKE_BUFFER_BYTES);
}

size_t intake_expected(const struct intake *in)
{
    if (in->state == INTAKE_ENVELOPE)
        return in->prefix.envelope_bytes - in->envelope_filled + in->prefix.records_bytes;
    return in->state == INTAKE_RECORDS ? in->prefix.records_bytes - in->slab_filled : 0;
}

const uint8_t *intake_peek(const struct intake *in, size_t *ret_bytes)
{
    *ret_bytes = at_hand(in);
    return in->buffer ? in->buffer + in->start : NULL;
}

static int hold_envelope(struct intake *in)
{
    if (in->envelope && in->envelope_room >= in->prefix.envelope_bytes)
        return 0;
    free(in->envelope);
    in->envelope_room = 0;
    size_t room = in->prefix.envelope_bytes > 1024 ? in->prefix.envelope_bytes : 1024;
    in->envelope = malloc(room);
    if (!in->envelope)
        return -BROOK_E_NOMEM;
    in->envelope_room = room;
    return 0;
}

/* Move up to `wanted` bytes from the buffer to `to`; returns how many. */
static size_t drain(struct intake *in, uint8_t *to, size_t wanted)
{
    size_t bytes = at_hand(in) < wanted ? at_hand(in) : wanted;
    if (bytes > 0)
        memcpy(to, in->buffer + in->start, bytes);
    in->start += bytes;
    return bytes;
}

static int take_slab(struct intake *in)
{
    if (in->prefix.records_bytes == 0 || in->slab)
        return 0;
    in->slab = pool_take(in->pool, in->prefix.records_bytes);
    return in->slab ? 0 : -BROOK_E_QUEUE_FULL;
}

static void hand_out(struct intake *in, const uint8_t *envelope, struct intake_frame *ret)
{
    *ret = (struct intake_frame){.envelope = envelope,
                                 .envelope_bytes = in->prefix.envelope_bytes,
                                 .records_bytes = in->prefix.records_bytes,
                                 .slab = in->slab};
    in->held = true;
}

/* The frame ends within the buffer: its envelope is read in place. */
static int next_whole(struct intake *in, struct intake_frame *ret)
{
    int r = take_slab(in);
    if (r < 0)
        return r;
    const uint8_t *envelope = in->buffer + in->start + FRAME_PREFIX_BYTES;
    in->start += FRAME_PREFIX_BYTES + in->prefix.envelope_bytes;
    if (in->slab)
        in->slab_filled = drain(in, in->slab->data, in->prefix.records_bytes);
    hand_out(in, envelope, ret);
    return 0;
}

/* The frame goes on behind the buffer: copy its envelope, then let the rest come directly. */
static int begin_large(struct intake *in)
{
    int r = hold_envelope(in);
    if (r < 0)
        return r;
    in->start += FRAME_PREFIX_BYTES;
    in->envelope_filled = drain(in, in->envelope, in->prefix.envelope_bytes);
    in->state = INTAKE_ENVELOPE;
    return 0;
}

static int next_prefix(struct intake *in, struct intake_frame *ret, struct brook_error *error)
{
    int r = frame_parse(in->buffer + in->start, at_hand(in), in->frame_bytes_max, in->envelope_bytes_max,
                        &in->prefix, error);
    if (r < 0)
        return r;
    size_t whole = (size_t)in->prefix.frame_bytes + 4;
    if (at_hand(in) >= whole)
        return next_whole(in, ret);
    /* Without records, and small enough for the buffer: wait for the rest in place. */
    if (in->prefix.records_bytes == 0 && whole <= INTAKE_BUFFER_BYTES)
        return -BROOK_E_AGAIN;
    return begin_large(in);
}

static int next_envelope(struct intake *in)
{
    in->envelope_filled +=
        drain(in, in->envelope + in->envelope_filled, in->prefix.envelope_bytes - in->envelope_filled);
    if (in->envelope_filled < in->prefix.envelope_bytes)
        return -BROOK_E_AGAIN;
    int r = take_slab(in);
    if (r == 0)
        in->state = INTAKE_RECORDS;
    return r;
}

static int next_records(struct intake *in, struct intake_frame *ret)
{
    if (in->slab)
        in->slab_filled +=
            drain(in, in->slab->data + in->slab_filled, in->prefix.records_bytes - in->slab_filled);
    if (in->slab_filled < in->prefix.records_bytes)
        return -BROOK_E_AGAIN;
    hand_out(in, in->envelope, ret);
    return 0;
}

int intake_next(struct intake *in, struct intake_frame *ret_frame, struct brook_error *error)
{
    assert(!in->held);
    int r = 0;
    if (in->state == INTAKE_PREFIX) {
        r = next_prefix(in, ret_frame, error);
        if (r < 0 || in->held)
            return r;
    }
    if (in->state == INTAKE_ENVELOPE && (r = next_envelope(in)) < 0)
        return r;
    return next_records(in, ret_frame);
}

void intake_release(struct intake *in)
{
    assert(in->held);
    end_frame(in);
    if (in->start == in->end)
        in->start = in->end = 0;
}
