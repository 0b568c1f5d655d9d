/* Durability: when the log is to be flushed, and what a flush lets go. */
#include "broker/partition/partition_state.h"
#include "proto/base/clock.h"

#include <assert.h>

#define MS ((int64_t)1000000)

/* When the log must be flushed: 0, now; a time; or FLUSHER_NEVER. Under `state`. */
static int64_t flush_due(struct partition *p)
{
    const struct durability *d = &p->durability;
    if (d->mode == DURABILITY_REPLICATED || p->durable_end >= p->log_end || log_offline_reason(p->log))
        return FLUSHER_NEVER;
    /* A follower's leader waits. */
    bool somebody_waits = d->mode == DURABILITY_FSYNC && (p->unacked.head || p->waiters || p->is_follower);
    bool is_too_much = d->mode == DURABILITY_INTERVAL && p->log_end - p->durable_end >= d->flush_messages;
    if (somebody_waits || is_too_much)
        return 0;
    if (!p->dirty_since_ns)
        p->dirty_since_ns = clock_boot_ns();
    int64_t wait_ms = d->mode == DURABILITY_FSYNC ? PARTITION_LAZY_FLUSH_MS : d->flush_ms;
    return wait_ms < (FLUSHER_NEVER - 1 - p->dirty_since_ns) / MS ? p->dirty_since_ns + wait_ms * MS
                                                                  : FLUSHER_NEVER - 1;
}

void partition_want_flush(struct partition *p)
{
    if (p->durability.mode == DURABILITY_REPLICATED || !p->flusher || p->is_flush_hurried)
        return;
    int64_t due_ns = flush_due(p);
    if (due_ns == FLUSHER_NEVER || (p->is_flushing && due_ns != 0))
        return;
    p->is_flush_hurried = due_ns == 0;
    if (p->is_flushing) {
        flusher_hurry(p->flusher, &p->flush);
    } else if (flusher_submit(p->flusher, &p->flush, due_ns)) {
        p->is_flushing = true;
        partition_ref(p);
    }
}

void partition_hurry_flush(struct partition *p)
{
    if (p->is_flushing && !p->is_flush_hurried)
        flusher_hurry(p->flusher, &p->flush);
    p->is_flush_hurried = p->is_flushing;
}

/* A flush has ended: the marks move, or those who waited for it learn that it failed. Under `state`. */
static void take_result(struct partition *p, struct outbox *o)
{
    struct partition_append *a;
    const char *why = log_offline_reason(p->log);
    while (why && (a = append_list_pop(&p->unacked)))
        outbox_answer_written(o, a, BROOK_E_STORAGE_ERROR, why);
    int64_t durable_end = log_durable_end(p->log);
    if (durable_end > p->durable_end)
        p->dirty_since_ns = 0;
    p->durable_end = durable_end;
    /* An append that is just being written moves the end itself: here nothing is seen before it is settled.
     */
    partition_advance(p, p->log_end > durable_end ? p->log_end : durable_end, o);
}

static int64_t flushed(struct flusher_entry *entry, int result)
{
    struct partition *p = CONTAINER_OF(entry, struct partition, flush);
    struct outbox o;
    outbox_init(&o);
    pthread_mutex_lock(&p->state);
    int64_t due_ns = FLUSHER_NEVER;
    if (result != -BROOK_E_CLOSED) {
        take_result(p, &o);
        due_ns = flush_due(p);
        if (result != 0 && due_ns == 0) /* it could not even begin: not at once again */
            due_ns = clock_boot_ns() + PARTITION_LAZY_FLUSH_MS * MS;
    }
    p->is_flushing = due_ns != FLUSHER_NEVER;
    p->is_flush_hurried = due_ns == 0;
    pthread_mutex_unlock(&p->state);
    outbox_post(&o, NULL, NULL);
    if (due_ns == FLUSHER_NEVER)
        partition_unref(p);
    return due_ns;
}

void partition_use_flusher(struct partition *p, struct flusher *flusher)
{
    p->flusher = flusher;
    p->flush.log = p->log;
    p->flush.flushed = flushed;
}

void partition_set_durability(struct partition *p, const struct durability *durability)
{
    struct outbox o;
    assert(durability->mode != DURABILITY_BY_REPLICAS);
    outbox_init(&o);
    pthread_mutex_lock(&p->state);
    p->durability = *durability;
    take_result(p, &o);
    partition_hurry_flush(p); /* then its time is reckoned anew */
    partition_want_flush(p);
    pthread_mutex_unlock(&p->state);
    outbox_post(&o, NULL, NULL);
}

int partition_flush(struct partition *p)
{
    struct outbox o;
    outbox_init(&o);
    int r = log_flush(p->log);
    pthread_mutex_lock(&p->state);
    take_result(p, &o);
    pthread_mutex_unlock(&p->state);
    outbox_post(&o, NULL, NULL);
    return r;
}
