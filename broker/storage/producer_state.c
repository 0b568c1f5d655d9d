#include "broker/storage/producer_state.h"

#include "proto/base/err.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

struct remembered {
    int64_t base_offset;
    int32_t first_sequence;
    int32_t delta; /* records - 1, removed ones included */
};

struct producer {
    int64_t id;
    int64_t seen_ms;
    int64_t since_offset; /* nothing of it lies below; -1: not known */
    struct remembered batches[PRODUCER_BATCHES_MAX]; /* the newest last */
    int16_t epoch;
    uint8_t count; /* 0 between creation and the first batch only */
};

struct entry {
    struct producer p;
    uint64_t saved_in; /* the transaction that has it in its journal */
    UT_hash_handle hh;
    struct entry *prev, *next; /* by when they were last seen, oldest first */
};

/* What an entry was before the transaction. */
struct saved {
    struct entry *entry;
    struct producer before; /* count 0: it was not there */
};

struct producer_state {
    struct entry *by_id;
    struct entry *by_age;
    bool is_open;
    uint64_t transaction;
    struct saved *journal;
    size_t journal_count, journal_room;
};

int producer_state_new(struct producer_state **ret_state)
{
    struct producer_state *s = calloc(1, sizeof *s);
    if (!s)
        return -BROOK_E_NOMEM;
    *ret_state = s;
    return 0;
}

static void forget(struct producer_state *s, struct entry *e)
{
    HASH_DEL(s->by_id, e);
    DL_DELETE(s->by_age, e);
    free(e);
}

void producer_state_clear(struct producer_state *s)
{
    assert(!s->is_open);
    while (s->by_age)
        forget(s, s->by_age);
}

void producer_state_free(struct producer_state *s)
{
    if (!s)
        return;
    s->is_open = false;
    producer_state_clear(s);
    free(s->journal);
    free(s);
}

size_t producer_state_count(const struct producer_state *s)
{
    return s ? HASH_COUNT(s->by_id) : 0;
}

static struct entry *find(const struct producer_state *s, int64_t id)
{
    struct entry *e = NULL;
    if (s)
        HASH_FIND(hh, s->by_id, &id, sizeof id, e);
    return e;
}

static const struct remembered *newest(const struct producer *p)
{
    return &p->batches[p->count - 1];
}

static int64_t last_offset(const struct remembered *b)
{
    return b->base_offset + b->delta;
}

/* ---- judging ---------------------------------------------------------------------------------------- */

/* How far `to` is behind `from`, the short way around. */
static int32_t distance(int32_t from, int32_t to)
{
    uint32_t d = ((uint32_t)to - (uint32_t)from) & INT32_MAX;
    return d < (uint32_t)1 << 30 ? (int32_t)d : (int32_t)(d - ((uint32_t)1 << 31));
}

/* Whether all of the batch lies in one that is remembered. A part of it is good as well: a producer may cut a batch
 * whose answer it never saw. */
static bool is_inside(const struct remembered *b, const struct batch_header *h)
{
    int32_t from = distance(b->first_sequence, h->base_sequence);
    return from >= 0 && from <= b->delta && h->last_offset_delta <= b->delta - from;
}

static bool find_duplicate(const struct producer *p, const struct batch_header *h, struct producer_verdict *ret)
{
    for (int i = p->count; i-- > 0;) {
        const struct remembered *b = &p->batches[i];
        if (!is_inside(b, h))
            continue;
        int64_t base = b->base_offset + distance(b->first_sequence, h->base_sequence);
        *ret = (struct producer_verdict){.is_duplicate = true,
                                         .base_offset = base,
                                         .last_offset = base + h->last_offset_delta};
        return true;
    }
    const struct remembered *oldest = &p->batches[0];
    int32_t last = sequence_after(h->base_sequence, h->last_offset_delta);
    if (distance(oldest->first_sequence, last) >= 0 || distance(oldest->first_sequence, h->base_sequence) >= 0)
        return false;
    *ret = (struct producer_verdict){
        .is_duplicate = true, .base_offset = -1, .last_offset = oldest->base_offset - 1};
    return true;
}

static int out_of_sequence(const struct batch_header *h, int32_t expected, struct brook_error *error)
{
    return brook_error_set(error, BROOK_E_OUT_OF_SEQUENCE,
                           "producer %" PRId64 " epoch %d: sequence %" PRId32 " came, %" PRId32 " is next",
                           h->producer_id, h->producer_epoch, h->base_sequence, expected);
}

int producer_state_check(const struct producer_state *s, const struct batch_header *h,
                         struct producer_verdict *ret_verdict, struct brook_error *error)
{
    const struct entry *e = find(s, h->producer_id);
    *ret_verdict = (struct producer_verdict){.base_offset = -1, .last_offset = -1};
    if (!e) {
        if (h->base_sequence == 0)
            return 0;
        return brook_error_set(error, BROOK_E_UNKNOWN_PRODUCER,
                               "producer %" PRId64 " is not known, and sequence %" PRId32 " is not a first one",
                               h->producer_id, h->base_sequence);
    }
    const struct producer *p = &e->p;
    if (h->producer_epoch < p->epoch)
        return brook_error_set(error, BROOK_E_PRODUCER_FENCED, "producer %" PRId64 ": epoch %d came, %d is in use",
                               h->producer_id, h->producer_epoch, p->epoch);
    if (h->producer_epoch > p->epoch)
        return h->base_sequence == 0 ? 0 : out_of_sequence(h, 0, error);
    int32_t expected = sequence_after(newest(p)->first_sequence, newest(p)->delta);
    expected = sequence_after(expected, 1);
    if (h->base_sequence == expected || find_duplicate(p, h, ret_verdict))
        return 0;
    return out_of_sequence(h, expected, error);
}

/* ---- changing --------------------------------------------------------------------------------------- */

void producer_state_begin(struct producer_state *s)
{
    assert(!s->is_open);
    s->is_open = true;
    s->transaction++;
    s->journal_count = 0;
}

static int save(struct producer_state *s, struct entry *e)
{
    if (!s->is_open || e->saved_in == s->transaction)
        return 0;
    if (s->journal_count == s->journal_room) {
        size_t room = s->journal_room ? 2 * s->journal_room : 4;
        struct saved *wider = realloc(s->journal, room * sizeof *wider);
        if (!wider)
            return -BROOK_E_NOMEM;
        s->journal = wider;
        s->journal_room = room;
    }
    s->journal[s->journal_count++] = (struct saved){.entry = e, .before = e->p};
    e->saved_in = s->transaction;
    return 0;
}

static struct entry *make(struct producer_state *s, int64_t id)
{
    struct entry *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->p.id = id;
    HASH_ADD(hh, s->by_id, p.id, sizeof e->p.id, e);
    if (!e->hh.tbl) { /* no memory for it */
        free(e);
        return NULL;
    }
    DL_APPEND(s->by_age, e);
    return e;
}

static void push(struct producer *p, const struct remembered *b)
{
    if (p->count == PRODUCER_BATCHES_MAX) {
        memmove(&p->batches[0], &p->batches[1], (PRODUCER_BATCHES_MAX - 1) * sizeof p->batches[0]);
        p->count--;
    }
    p->batches[p->count++] = *b;
}

int producer_state_note(struct producer_state *s, const struct batch_header *h, int64_t seen_ms)
{
    struct entry *e = find(s, h->producer_id);
    if (e && last_offset(newest(&e->p)) >= h->base_offset)
        return 0;
    bool is_new = !e;
    if (is_new && !(e = make(s, h->producer_id)))
        return -BROOK_E_NOMEM;
    if (save(s, e) != 0) {
        if (is_new)
            forget(s, e);
        return -BROOK_E_NOMEM;
    }
    struct producer *p = &e->p;
    if (is_new)
        /* Whoever begins later than at 0 was known before, to somebody. */
        p->since_offset = h->base_sequence == 0 ? h->base_offset : -1;
    if (h->producer_epoch != p->epoch)
        p->count = 0;
    p->epoch = h->producer_epoch;
    p->seen_ms = seen_ms;
    push(p, &(struct remembered){.base_offset = h->base_offset,
                                 .first_sequence = h->base_sequence,
                                 .delta = h->last_offset_delta});
    if (s->by_age->prev != e) {
        DL_DELETE(s->by_age, e);
        DL_APPEND(s->by_age, e);
    }
    return 0;
}

void producer_state_keep(struct producer_state *s, size_t limit)
{
    s->is_open = false;
    s->journal_count = 0;
    while (HASH_COUNT(s->by_id) > limit)
        forget(s, s->by_age);
}

void producer_state_undo(struct producer_state *s)
{
    s->is_open = false;
    while (s->journal_count > 0) {
        const struct saved *was = &s->journal[--s->journal_count];
        if (was->before.count == 0)
            forget(s, was->entry);
        else
            was->entry->p = was->before;
    }
}

bool producer_state_cut(struct producer_state *s, int64_t end_offset)
{
    struct entry *e, *next;
    bool is_exact = true;
    DL_FOREACH_SAFE(s->by_age, e, next)
    {
        struct producer *p = &e->p;
        while (p->count > 0 && last_offset(newest(p)) >= end_offset)
            p->count--;
        if (p->count > 0)
            continue;
        is_exact = is_exact && p->since_offset >= end_offset;
        forget(s, e);
    }
    return is_exact;
}

void producer_state_expire(struct producer_state *s, int64_t before_ms)
{
    struct entry *e, *next;
    DL_FOREACH_SAFE(s->by_age, e, next)
    if (e->p.seen_ms < before_ms)
        forget(s, e);
}

/* ---- snapshots -------------------------------------------------------------------------------------- */

static size_t batches_count(const struct producer_state *s)
{
    size_t count = 0;
    for (const struct entry *e = s ? s->by_age : NULL; e; e = e->next)
        count += e->p.count;
    return count;
}

int producer_state_save(const struct producer_state *s, void **ret_data, size_t *ret_bytes)
{
    size_t count = batches_count(s), place = 0;
    void *data = malloc(producer_snapshot_bytes(count));
    if (!data)
        return -BROOK_E_NOMEM;
    for (const struct entry *e = s ? s->by_age : NULL; e; e = e->next)
        for (uint8_t i = 0; i < e->p.count; i++) {
            const struct remembered *b = &e->p.batches[i];
            struct producer_snapshot_entry out = {.producer_id = e->p.id,
                                                  .producer_epoch = e->p.epoch,
                                                  .last_sequence = sequence_after(b->first_sequence, b->delta),
                                                  .last_offset = last_offset(b),
                                                  .offset_delta = b->delta,
                                                  .timestamp = e->p.seen_ms,
                                                  .coordinator_epoch = -1,
                                                  .transaction_first_offset = -1};
            producer_snapshot_write(data, place++, &out);
        }
    producer_snapshot_finish(data, count);
    *ret_data = data;
    *ret_bytes = producer_snapshot_bytes(count);
    return 0;
}

static bool is_usable(const struct producer_snapshot_entry *in)
{
    return in->producer_id >= 0 && in->producer_epoch >= 0 && in->last_sequence >= 0 && in->offset_delta >= 0 &&
           in->last_offset >= in->offset_delta;
}

static int load_entry(struct producer_state *s, const struct producer_snapshot_entry *in, int64_t now_ms)
{
    struct entry *e = find(s, in->producer_id);
    int64_t base = in->last_offset - in->offset_delta;
    if (e && (last_offset(newest(&e->p)) >= base || e->p.epoch != in->producer_epoch))
        return 0;
    if (!e && !(e = make(s, in->producer_id)))
        return -BROOK_E_NOMEM;
    e->p.epoch = in->producer_epoch;
    e->p.since_offset = -1;
    e->p.seen_ms = in->timestamp < now_ms ? in->timestamp : now_ms;
    int32_t first = (int32_t)(((uint32_t)in->last_sequence - (uint32_t)in->offset_delta) & INT32_MAX);
    push(&e->p,
         &(struct remembered){.base_offset = base, .first_sequence = first, .delta = in->offset_delta});
    return 0;
}

int producer_state_load(struct producer_state *s, const void *data, size_t count, int64_t now_ms)
{
    int r = 0;
    for (size_t i = 0; i < count && r == 0; i++) {
        struct producer_snapshot_entry in;
        producer_snapshot_read(data, i, &in);
        if (is_usable(&in)) /* Kafka's may hold producers of whom only the epoch is known */
            r = load_entry(s, &in, now_ms);
    }
    return r;
}
