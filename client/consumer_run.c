#include "client/consumer_run.h"

#include "client/consumer_epochs.h"
#include "proto/base/err.h"
#include "proto/base/pool.h"

#include <assert.h>

/* Most of what applications send shrinks to a quarter or so; a wrong guess costs one more try. */
#define EXPANDED_RATIO_GUESS 4

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Expand behind what the run's slab holds already; -BROOK_E_AGAIN when it does not fit there. */
static int expand_behind(struct record_run *run, struct run_reader *reader, enum codec_id id,
                         const uint8_t *from, size_t from_bytes, size_t *ret_bytes)
{
    size_t room = run->expanded->capacity - run->expanded_bytes;
    if (room < larger(reader->expanded_guess, from_bytes))
        return -BROOK_E_AGAIN;
    int r = codec_expand_into(reader->codec, id, from, from_bytes, run->expanded->data + run->expanded_bytes,
                              smaller(room, reader->expanded_bytes_max), ret_bytes);
    return r == -BROOK_E_EXPANDS_TOO_FAR && room < reader->expanded_bytes_max ? -BROOK_E_AGAIN : r;
}

/* Expand the first compressed batch of a run into a slab that grows until it is large enough, and takes the
 * batches behind it (`left` bytes with this one) too if it can. */
static int expand_first(struct record_run *run, struct run_reader *reader, enum codec_id id,
                        const uint8_t *from, size_t from_bytes, size_t left, size_t *ret_bytes)
{
    size_t run_bytes = smaller(EXPANDED_RATIO_GUESS * left, RUN_BYTES_MAX);
    size_t want = larger(larger(reader->expanded_guess, EXPANDED_RATIO_GUESS * from_bytes), run_bytes);
    for (;;) {
        want = smaller(want, reader->expanded_bytes_max);
        struct slab *slab = pool_take(reader->pool, want);
        if (!slab)
            return -BROOK_E_NOMEM;
        size_t room = smaller(slab->capacity, reader->expanded_bytes_max);
        int r = codec_expand_into(reader->codec, id, from, from_bytes, slab->data, room, ret_bytes);
        if (r == 0) {
            run->expanded = slab;
            return 0;
        }
        slab_unref(slab);
        if (r != -BROOK_E_EXPANDS_TOO_FAR || room >= reader->expanded_bytes_max)
            return r;
        want = 2 * room;
    }
}

/* The records of a batch in the clear. -BROOK_E_AGAIN: they have to go into the next run. */
static int find_records(struct record_run *run, struct run_reader *reader, const uint8_t *batch,
                        const struct batch_header *h, size_t left, const uint8_t **ret_data,
                        size_t *ret_bytes)
{
    const uint8_t *from = batch + BATCH_HEADER_BYTES;
    size_t from_bytes = h->total_bytes - BATCH_HEADER_BYTES;
    enum codec_id id = (enum codec_id)(h->attributes & BATCH_CODEC_MASK);
    if (id == CODEC_NONE) {
        *ret_data = from;
        *ret_bytes = from_bytes;
        return 0;
    }
    size_t bytes = 0;
    int r = run->expanded ? expand_behind(run, reader, id, from, from_bytes, &bytes)
                          : expand_first(run, reader, id, from, from_bytes, left, &bytes);
    if (r < 0)
        return r;
    *ret_data = run->expanded->data + run->expanded_bytes;
    *ret_bytes = bytes;
    run->expanded_bytes += bytes;
    reader->expanded_guess = bytes;
    return 0;
}

/* Walk all records once, so that nothing can go wrong later, and keep the place of the first one from
 * `position` on. *ret_any: there is one. */
static int check_records(struct record_walker *w, int64_t position, bool *ret_any)
{
    struct record_walker first = *w;
    struct record record;
    bool any = false;
    int r;
    while ((r = record_walker_next(w, &record)) == 0) {
        if (any)
            continue;
        if (record.offset >= position)
            any = true;
        else
            first = *w;
    }
    *w = first;
    *ret_any = any;
    return r == -BROOK_E_AGAIN ? 0 : r;
}

static int take_batch(struct record_run *run, struct run_reader *reader, const uint8_t *batch,
                      const struct batch_header *h, size_t left, int64_t position)
{
    int r = reader->check_crc ? batch_check_crc(batch, h) : 0;
    if (r < 0 || (h->attributes & BATCH_CONTROL))
        return r;
    const uint8_t *data = NULL;
    size_t bytes = 0;
    r = find_records(run, reader, batch, h, left, &data, &bytes);
    if (r < 0)
        return r;
    struct record_walker *w = &run->batches[run->count];
    bool any;
    r = record_walker_init(w, h, data, bytes);
    if (r == 0)
        r = check_records(w, position, &any);
    if (r == 0 && any)
        run->count++;
    return r;
}

/* Headers whose numbers can not be: base offset and length are outside of the checksum. `next`: behind the
 * batch before, -1 for the first of a reply, which may begin below the position. */
static bool is_strange(const struct batch_header *h, int64_t next, int64_t end)
{
    return h->last_offset_delta < 0 || h->base_offset > INT64_MAX - INT32_MAX - 1 ||
           (end >= 0 && h->base_offset >= end) || h->base_offset < next;
}

static bool is_full(const struct record_run *run, size_t used)
{
    return run->count == RUN_BATCHES_MAX || (run->count > 0 && used + run->expanded_bytes >= RUN_BYTES_MAX);
}

int run_fill(struct record_run *run, struct run_reader *reader, const uint8_t *data, size_t bytes,
             int64_t position, int64_t end, size_t *ret_used, int64_t *ret_next)
{
    assert(run->count == 0 && !run->expanded);
    size_t used = 0;
    struct batch_header h;
    int r = 0;
    while (used < bytes && !is_full(run, used)) {
        r = batch_read_header(data + used, bytes - used, &h);
        if (r == -BROOK_E_AGAIN) {
            used = bytes;
            r = 0;
            break;
        }
        if (r == 0 && is_strange(&h, run->count > 0 ? position : -1, end))
            r = -BROOK_E_CORRUPT_BATCH;
        if (r == 0 && batch_last_offset(&h) >= position) {
            r = take_batch(run, reader, data + used, &h, bytes - used, position);
            if (r == 0)
                position = batch_last_offset(&h) + 1;
        }
        if (r < 0)
            break;
        used += h.total_bytes;
    }
    if (r == -BROOK_E_AGAIN)
        r = 0;
    *ret_next = position;
    if (r < 0 && run->count == 0) {
        run_clear(run);
        return r;
    }
    *ret_used = used;
    run->index = 0;
    if (run->count > 0)
        run->at = run->batches[0];
    return 0;
}

int run_next(struct record_run *run, struct record *ret_record)
{
    while (run->index < run->count) {
        if (record_walker_next(&run->at, ret_record) == 0)
            return 0;
        if (++run->index < run->count)
            run->at = run->batches[run->index];
    }
    return -BROOK_E_AGAIN;
}

void run_clear(struct record_run *run)
{
    slab_unref(run->expanded);
    run->expanded = NULL;
    run->expanded_bytes = 0;
    run->index = 0;
    run->count = 0;
}

void run_measure(const uint8_t *data, size_t bytes, int64_t position, int64_t end, struct read_epochs *epochs,
                 struct run_extent *ret)
{
    *ret = (struct run_extent){.next = position};
    size_t at = 0;
    while (at < bytes) {
        struct batch_header h;
        int r = batch_read_header(data + at, bytes - at, &h);
        if (r == -BROOK_E_AGAIN) {
            if (ret->whole_bytes == 0 && bytes - at >= BATCH_HEADER_BYTES)
                ret->needed_bytes = h.total_bytes;
            return;
        }
        if (r < 0 || is_strange(&h, ret->whole_bytes > 0 ? ret->next : -1, end)) {
            ret->is_bad = true;
            ret->whole_bytes = bytes - ret->skip_bytes;
            return;
        }
        at += h.total_bytes;
        if (batch_last_offset(&h) < position) {
            ret->skip_bytes = at;
        } else {
            ret->whole_bytes = at - ret->skip_bytes;
            read_epochs_note(epochs, h.leader_epoch, h.base_offset > position ? h.base_offset : position);
            ret->next = batch_last_offset(&h) + 1;
        }
    }
}
