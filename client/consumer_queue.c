/* The set's queues: what the loop puts in and poll takes out. */
#include "client/consumer_batch.h"
#include "client/consumer_set.h"
#include "proto/base/cleanup.h"
#include "proto/base/err.h"
#include "proto/base/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define IDLE_CHUNKS_MAX 64

/* ---- chunks ---- */

static struct consumer_chunk *chunk_take(struct consumer_set *set)
{
    struct consumer_chunk *chunk = set->idle_chunks;
    if (!chunk)
        return malloc(sizeof *chunk);
    set->idle_chunks = chunk->next;
    set->idle_chunks_count--;
    return chunk;
}

void chunk_give(struct consumer_set *set, struct consumer_chunk *chunk)
{
    if (set->idle_chunks_count == IDLE_CHUNKS_MAX) {
        free(chunk);
        return;
    }
    chunk->next = set->idle_chunks;
    set->idle_chunks = chunk;
    set->idle_chunks_count++;
}

int set_put(struct consumer_set *set, struct consumer_partition *p, struct slab *slab, const uint8_t *data,
            size_t bytes, int64_t end)
{
    struct consumer_chunk *chunk = chunk_take(set);
    if (!chunk)
        return -BROOK_E_NOMEM;
    *chunk = (struct consumer_chunk){.slab = slab_ref(slab), .data = data, .bytes = bytes, .end = end};
    if (!p->chunks)
        DL_APPEND2(set->ready, p, ready_prev, ready_next);
    *p->chunks_tail = chunk;
    p->chunks_tail = &chunk->next;
    p->queued_bytes += bytes;
    set_signal(set);
    return 0;
}

static struct consumer_chunk *pop_chunk(struct consumer_set *set, struct consumer_partition *p)
{
    struct consumer_chunk *chunk = p->chunks;
    p->chunks = chunk->next;
    if (!p->chunks) {
        p->chunks_tail = &p->chunks;
        DL_DELETE2(set->ready, p, ready_prev, ready_next);
    }
    return chunk;
}

/* Back to the front: of its partition, and this partition before the others, whose data is colder. */
static void unpop_chunk(struct consumer_set *set, struct consumer_partition *p, struct consumer_chunk *chunk)
{
    if (p->chunks)
        DL_DELETE2(set->ready, p, ready_prev, ready_next);
    else
        p->chunks_tail = &chunk->next;
    chunk->next = p->chunks;
    p->chunks = chunk;
    DL_PREPEND2(set->ready, p, ready_prev, ready_next);
}

/* Its chunk is used up: let the others have their turn. */
static void end_turn(struct consumer_set *set, struct consumer_partition *p, struct consumer_chunk *chunk)
{
    slab_unref(chunk->slab);
    chunk_give(set, chunk);
    if (set->is_starved)
        set_kick(set, NULL);
    if (p->chunks) {
        DL_DELETE2(set->ready, p, ready_prev, ready_next);
        DL_APPEND2(set->ready, p, ready_prev, ready_next);
    }
}

/* ---- events ---- */

void set_put_event(struct consumer_set *set, struct consumer_partition *p, int code, int64_t offset)
{
    if (p->life != PARTITION_LIVE)
        return;
    if (p->event_code == 0)
        DL_APPEND2(set->events, p, event_prev, event_next);
    p->event_code = code;
    p->event_offset = offset;
    set_signal(set);
}

void set_put_failure(struct consumer_set *set, const struct brook_error *error)
{
    if (set->failures_count == SET_FAILURES_MAX)
        return;
    set->failures[set->failures_count++] = *error;
    set_signal(set);
}

static int take_partition_event(struct consumer_set *set, struct brook_error *error,
                                struct event_place *ret_place)
{
    struct consumer_partition *p = set->events;
    int code = p->event_code;
    snprintf(ret_place->topic, sizeof ret_place->topic, "%s", p->topic);
    ret_place->partition = p->partition;
    ret_place->offset = p->event_offset;
    DL_DELETE2(set->events, p, event_prev, event_next);
    p->event_code = 0;
    if (ret_place->offset < 0)
        return brook_error_set(error, code, "partition %s/%d: %s", ret_place->topic, ret_place->partition,
                               brook_error_text(code));
    if (code == BROOK_E_OFFSET_OUT_OF_RANGE && p->range_first >= 0)
        return brook_error_set(error, code,
                               "partition %s/%d: offset %lld is out of range: the log goes from %lld to %lld",
                               ret_place->topic, ret_place->partition, (long long)ret_place->offset,
                               (long long)p->range_first, (long long)p->range_end);
    if (code == BROOK_E_LOG_DIVERGED)
        return brook_error_set(error, code,
                               "partition %s/%d: records from offset %lld on that were read are gone from the log",
                               ret_place->topic, ret_place->partition, (long long)ret_place->offset);
    return brook_error_set(error, code, "partition %s/%d at offset %lld: %s", ret_place->topic,
                           ret_place->partition, (long long)ret_place->offset, brook_error_text(code));
}

int set_take_event(struct consumer_set *set, struct brook_error *error, struct event_place *ret_place)
{
    int r = 0;
    set_lock(set);
    if (set->failures_count > 0) {
        struct brook_error *first = &set->failures[0];
        r = brook_error_set(error, first->code, "%s", first->text);
        memmove(first, first + 1, --set->failures_count * sizeof *first);
        *ret_place = (struct event_place){.partition = -1, .offset = -1};
    } else if (set->events) {
        r = take_partition_event(set, error, ret_place);
    }
    set_signal(set);
    set_unlock(set);
    return r;
}

/* ---- rebalance notes ---- */

static void fill_positions(struct rebalance_note *notes, struct brook_position *positions, size_t count)
{
    char *text = (char *)(positions + count);
    struct rebalance_note *note = notes;
    for (size_t i = 0; i < count; i++, note = note->next) {
        const struct consumer_partition *p = note->partition;
        size_t bytes = strlen(p->topic) + 1;
        positions[i] = (struct brook_position){text, p->partition, p->delivered};
        text = (char *)memcpy(text, p->topic, bytes) + bytes;
    }
}

static void drop_front_notes(struct consumer_set *set, size_t count)
{
    for (; count > 0; count--) {
        struct rebalance_note *note = set->notes;
        DL_DELETE(set->notes, note);
        consumer_partition_unref(TAKE(note->partition));
    }
}

size_t set_take_notes(struct consumer_set *set, enum rebalance_kind *ret_kind,
                      struct brook_position **ret_positions)
{
    size_t count = 0, bytes = 0;
    struct brook_position *positions = NULL;
    set_lock(set);
    if (set->notes) {
        *ret_kind = set->notes->kind;
        for (struct rebalance_note *n = set->notes; n && n->kind == *ret_kind; n = n->next, count++)
            bytes += sizeof *positions + strlen(n->partition->topic) + 1;
        positions = malloc(bytes);
    }
    if (positions) {
        fill_positions(set->notes, positions, count);
        drop_front_notes(set, count);
        *ret_positions = positions;
    }
    set_signal(set);
    set_unlock(set);
    return positions ? count : 0;
}

void set_notes_done(struct consumer_set *set, const struct brook_position *positions, size_t count)
{
    set_lock(set);
    for (size_t i = 0; i < count; i++) {
        struct consumer_partition *p = set_find(set, positions[i].topic, positions[i].partition);
        if (!p || p->life != PARTITION_DRAINING || p->notes[REBALANCE_REVOKING].partition)
            continue;
        p->was_revoked = true;
        set_kick(set, p);
    }
    set_unlock(set);
}

/* ---- batches ---- */

/* What was fetched is damaged at `offset`: say so, and fetch it again after a while. */
static void on_damage(struct consumer_set *set, struct consumer_partition *p, int code, int64_t offset)
{
    int64_t now_ms = set_now_ms();
    struct position_effects effects = position_on_damage(&p->position, code, offset, now_ms);
    p->delivered = offset;
    set->counters.damaged++;
    set_void_fetched(set, p);
    set_put_event(set, p, effects.report, offset);
}

/* The run that was filled without the lock becomes a batch. -BROOK_E_NOMEM: it could not be noted. */
static int hand_out(struct consumer_set *set, struct consumer_partition *p, struct brook_batch *batch,
                    int64_t next)
{
    int r = progress_hand_out(&p->progress, next, &batch->processed, &batch->ticket);
    if (r < 0)
        return r;
    batch->first = p->delivered;
    batch->next = next;
    atomic_store_explicit(&batch->processed, batch->first, memory_order_relaxed);
    p->delivered = next;
    if (batch->run.count == 0) {
        progress_release(&p->progress, batch->ticket, next);
        return 0;
    }
    consumer_partition_ref(p);
    batch->partition = p;
    batch->set = set_ref(set);
    p->batches_out++;
    set->batches_out++;
    set->bytes_out += batch->charge_bytes;
    set->counters.batches++;
    for (unsigned i = 0; i < batch->run.count; i++)
        set->counters.records += (uint64_t)batch->run.batches[i].left;
    return 0;
}

/* `used` bytes of the chunk in hand are done with. */
static void advance_chunk(struct consumer_set *set, struct consumer_partition *p,
                          struct consumer_chunk *chunk, size_t used)
{
    bool was_hungry = set_is_hungry(set, p);
    p->queued_bytes -= used;
    chunk->data += used;
    chunk->bytes -= used;
    if (chunk->bytes > 0)
        unpop_chunk(set, p, chunk);
    else
        end_turn(set, p, chunk);
    if (!was_hungry && set_is_hungry(set, p))
        set_kick(set, p);
}

static void drop_chunk(struct consumer_set *set, struct consumer_chunk *chunk)
{
    slab_unref(chunk->slab);
    chunk_give(set, chunk);
}

/* A run of `used` bytes up to `next` was filled: hand it out. -BROOK_E_AGAIN: no record was in it. */
static int take_run(struct consumer_set *set, struct consumer_partition *p, struct consumer_chunk *chunk,
                    struct brook_batch *batch, size_t used, int64_t next)
{
    batch->end = chunk->end;
    batch->charge_bytes = used + (batch->run.expanded ? batch->run.expanded->capacity : 0);
    batch->slab = slab_ref(chunk->slab);
    int r = hand_out(set, p, batch, next);
    if (r < 0) {
        unpop_chunk(set, p, chunk);
        return r;
    }
    set->counters.bytes += used;
    advance_chunk(set, p, chunk, used);
    return batch->run.count > 0 ? 0 : -BROOK_E_AGAIN;
}

static struct run_reader reader_of(const struct consumer_set *set)
{
    return (struct run_reader){.codec = set->codec,
                               .pool = set->pool,
                               .expanded_bytes_max = (size_t)set->settings.queued_bytes_max,
                               .check_crc = set->settings.check_crcs,
                               .expanded_guess = set->expanded_guess};
}

/* Fill the batch from the front chunk. Called and returns with the lock held, gives it up in between.
 * -BROOK_E_AGAIN: nothing came of it, look again. */
static int take_from(struct consumer_set *set, struct consumer_partition *p, struct brook_batch *batch,
                     set_may_deliver *may_deliver, void *arg)
{
    struct consumer_chunk *chunk = pop_chunk(set, p);
    struct run_reader reader = reader_of(set);
    uint32_t generation = p->generation;
    int64_t position = p->delivered, next;
    size_t used = 0;
    set_unlock(set);
    int r = run_fill(&batch->run, &reader, chunk->data, chunk->bytes, position, chunk->end, &used, &next);
    set_lock(set);
    set->expanded_guess = reader.expanded_guess;

    if (p->generation != generation) {
        drop_chunk(set, chunk); /* a seek, a pause, or the partition went, meanwhile */
        return -BROOK_E_AGAIN;
    }
    if (may_deliver && !may_deliver(arg, p->group_generation)) {
        unpop_chunk(set, p, chunk);
        return -BROOK_E_BUSY;
    }
    if (r == 0)
        return take_run(set, p, chunk, batch, used, next);
    if (r == -BROOK_E_NOMEM) {
        unpop_chunk(set, p, chunk);
        return r;
    }
    drop_chunk(set, chunk);
    on_damage(set, p, r, next);
    return r;
}

int set_take_batch(struct consumer_set *set, set_may_deliver *may_deliver, void *arg,
                   struct brook_batch **ret_batch)
{
    set_lock(set);
    struct brook_batch *batch = batch_take(set);
    int r = batch ? -BROOK_E_AGAIN : -BROOK_E_NOMEM;
    /* Notes come first: on_assigned runs before the first record. */
    while (r == -BROOK_E_AGAIN && set->ready && !set->notes && !set_is_full(set)) {
        struct consumer_partition *p = set->ready;
        consumer_partition_ref(p);
        r = take_from(set, p, batch, may_deliver, arg);
        consumer_partition_unref(p);
        if (r < 0) {
            run_clear(&batch->run);
            slab_unref(TAKE(batch->slab));
        }
    }
    if (r == 0)
        *ret_batch = batch;
    else if (batch)
        batch_give(set, batch);
    set_signal(set);
    set_unlock(set);
    return r;
}
