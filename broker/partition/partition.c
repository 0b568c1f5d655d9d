#include "broker/partition/partition.h"

#include "broker/partition/partition_state.h"

#include <stdlib.h>
#include <string.h>

int partition_new(const char *topic, int32_t number, const uint8_t topic_id[16], struct log **log,
                  struct partition **ret_partition)
{
    struct partition *p = calloc(1, sizeof *p);
    if (!p || !(p->topic = strdup(topic))) {
        free(p);
        return -BROOK_E_NOMEM;
    }
    atomic_init(&p->refs, 1);
    p->number = number;
    memcpy(p->topic_id, topic_id, sizeof p->topic_id);
    p->leader_epoch = -1;
    p->limits = (struct watermark_limits){.replicated_end = INT64_MAX, .in_sync = 1, .min_in_sync = 1};
    p->replicated_start = INT64_MAX;
    p->deleted_start = INT64_MIN;
    pthread_mutex_init(&p->append, NULL);
    pthread_mutex_init(&p->state, NULL);
    p->log = *log;
    *log = NULL;
    p->log_end = log_end_offset(p->log);
    p->durable_end = log_durable_end(p->log);
    p->high_watermark = p->log_end;
    p->durability = (struct durability){.mode = DURABILITY_REPLICATED,
                                        .flush_messages = DURABILITY_FLUSH_MESSAGES_DEFAULT,
                                        .flush_ms = DURABILITY_FLUSH_MS_DEFAULT};
    *ret_partition = p;
    return 0;
}

struct partition *partition_ref(struct partition *p)
{
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    return p;
}

int partition_unref(struct partition *p)
{
    if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
        return 0;
    int r = 0;
    if (p->log && p->released)
        p->released(p->released_arg, p->log);
    else
        r = log_close(p->log);
    pthread_mutex_destroy(&p->append);
    pthread_mutex_destroy(&p->state);
    free(p->topic);
    free(p);
    return r;
}

void partition_on_release(struct partition *p, void (*released)(void *arg, struct log *log), void *arg)
{
    p->released = released;
    p->released_arg = arg;
}

void partition_start_at(struct partition *p, int64_t high_watermark)
{
    int64_t start = log_start_offset(p->log);
    p->high_watermark = high_watermark < start ? start : high_watermark > p->log_end ? p->log_end : high_watermark;
}

struct log *partition_take_log(struct partition *p)
{
    struct log *log = p->log;
    p->log = NULL;
    return log;
}

void partition_set_owner(struct partition *p, void *owner)
{
    p->owner = owner;
}

void *partition_owner(const struct partition *p)
{
    return p->owner;
}

const char *partition_topic(const struct partition *p)
{
    return p->topic;
}

int32_t partition_number(const struct partition *p)
{
    return p->number;
}

const uint8_t *partition_topic_id(const struct partition *p)
{
    return p->topic_id;
}

struct log *partition_log(struct partition *p)
{
    return p->log;
}

/* ---- marks ------------------------------------------------------------------------------------------ */

int64_t partition_safe_end(const struct partition *p)
{
    return durability_safe_end(p->durability.mode, p->log_end, p->durable_end);
}

int64_t partition_visible_end(const struct partition *p)
{
    return durability_visible_end(p->durability.mode, p->high_watermark, p->durable_end);
}

static void release_appends(struct partition *p, struct outbox *o)
{
    while (p->unacked.head && watermark_answer(&p->limits, p->high_watermark, p->unacked.head->last_offset) == 0)
        outbox_answer(o, append_list_pop(&p->unacked), 0, NULL);
}

static int64_t awaited_end(const struct partition *p, const struct partition_waiter *w)
{
    switch (w->end) {
    case PARTITION_LOG_END:
        return p->log_end;
    case PARTITION_SAFE_END:
        return partition_safe_end(p);
    case PARTITION_REPLICATED_START:
        return p->replicated_start;
    case PARTITION_VISIBLE_END:
        break;
    }
    return partition_visible_end(p);
}

static bool is_over(const struct partition *p, const struct partition_waiter *w)
{
    return w->offset < awaited_end(p, w) || (w->heeds_deletions && p->deleted_start > w->known_start) ||
           (w->heeds_marks && p->high_watermark > w->known_mark);
}

static void release_waiters(struct partition *p, struct outbox *o)
{
    for (struct partition_waiter *w = p->waiters, *next; w; w = next) {
        next = w->next;
        if (is_over(p, w))
            outbox_wake(o, w);
    }
}

void partition_advance(struct partition *p, int64_t log_end, struct outbox *o)
{
    p->log_end = log_end;
    if (p->durable_end > log_end)
        p->durable_end = log_end;
    if (p->is_leader)
        p->high_watermark = watermark_lead(&p->limits, p->high_watermark, partition_safe_end(p));
    p->high_watermark = watermark_within(p->high_watermark, log_end);
    release_appends(p, o);
    release_waiters(p, o);
}

void partition_marks(struct partition *p, struct partition_marks *ret)
{
    pthread_mutex_lock(&p->state);
    *ret = (struct partition_marks){
        .log_start = log_start_offset(p->log),
        .high_watermark = p->high_watermark,
        .visible_end = partition_visible_end(p),
        .log_end = p->log_end,
        .epoch_start = p->limits.epoch_start,
        .is_end_known = !p->is_leader || watermark_is_current(&p->limits, p->high_watermark),
        .safe_end = partition_safe_end(p),
        .replicated_start = p->replicated_start,
        .deleted_start = p->deleted_start,
        .kept_start = p->kept_start,
        .leader_epoch = p->leader_epoch,
        .is_leader = p->is_leader,
        .is_follower = p->is_follower,
    };
    pthread_mutex_unlock(&p->state);
}

/* ---- waiting ---------------------------------------------------------------------------------------- */

bool partition_wait(struct partition *p, struct partition_waiter *w)
{
    pthread_mutex_lock(&p->state);
    bool wait = (p->is_leader || p->is_follower) && !is_over(p, w);
    if (wait) {
        w->next = p->waiters;
        w->previous = &p->waiters;
        if (w->next)
            w->next->previous = &w->next;
        p->waiters = w;
        p->was_read |= w->end == PARTITION_VISIBLE_END;
        partition_want_flush(p);
    }
    pthread_mutex_unlock(&p->state);
    return wait;
}

bool partition_has_readers(struct partition *p)
{
    pthread_mutex_lock(&p->state);
    bool waits = false;
    for (const struct partition_waiter *w = p->waiters; w && !waits; w = w->next)
        waits = w->end == PARTITION_VISIBLE_END;
    bool has = p->was_read || waits;
    p->was_read = waits; /* they have waited when it is asked the next time */
    pthread_mutex_unlock(&p->state);
    return has;
}

void partition_unwait(struct partition *p, struct partition_waiter *w)
{
    pthread_mutex_lock(&p->state);
    if (w->previous) {
        *w->previous = w->next;
        if (w->next)
            w->next->previous = w->previous;
        w->previous = NULL;
        w->next = NULL;
    }
    w->wake = NULL;
    pthread_mutex_unlock(&p->state);
}
