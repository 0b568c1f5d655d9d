/* Roles: leading, following, neither; and what a leader knows of the other replicas. */
#include "broker/partition/partition_state.h"

static void refuse_all(struct append_list *list, bool is_written, struct outbox *o)
{
    struct partition_append *a;
    while ((a = append_list_pop(list)))
        (is_written ? outbox_answer_written : outbox_answer)(o, a, BROOK_E_NOT_LEADER, NULL);
}

void partition_end_role(struct partition *p, struct outbox *o)
{
    p->is_leader = p->is_follower = false;
    refuse_all(&p->queue, false, o);
    refuse_all(&p->unacked, true, o);
    while (p->waiters)
        outbox_wake(o, p->waiters);
}

/* Another leader's time begins: what was known of the others' positions is of the one before. */
static void forget_replicas(struct partition *p)
{
    p->limits.replicated_end = p->replicated_start = INT64_MAX;
    p->limits.in_sync = 1;
}

int partition_lead_with(struct partition *p, int32_t leader_epoch, int64_t epoch_start, int64_t replicated_end,
                        int32_t in_sync)
{
    struct outbox o;
    outbox_init(&o);
    pthread_mutex_lock(&p->state);
    if (leader_epoch < p->leader_epoch) {
        pthread_mutex_unlock(&p->state);
        return -BROOK_E_FENCED_EPOCH;
    }
    if (p->is_follower)
        partition_end_role(p, &o); /* readers of a follower look again */
    p->leader_epoch = leader_epoch;
    p->limits.epoch_start = epoch_start;
    p->limits.replicated_end = replicated_end;
    p->replicated_start = replicated_end == INT64_MAX ? INT64_MAX : -1;
    p->limits.in_sync = in_sync;
    p->is_leader = true;
    partition_advance(p, log_end_offset(p->log), &o);
    partition_want_flush(p);
    pthread_mutex_unlock(&p->state);
    outbox_post(&o, NULL, NULL);
    return 0;
}

int partition_follow(struct partition *p, int32_t leader_epoch)
{
    struct outbox o;
    outbox_init(&o);
    pthread_mutex_lock(&p->state);
    if (leader_epoch < p->leader_epoch) {
        pthread_mutex_unlock(&p->state);
        return -BROOK_E_FENCED_EPOCH;
    }
    partition_end_role(p, &o);
    forget_replicas(p);
    p->leader_epoch = leader_epoch;
    p->is_follower = true;
    partition_want_flush(p);
    pthread_mutex_unlock(&p->state);
    outbox_post(&o, NULL, NULL);
    return 0;
}

void partition_stop_leading(struct partition *p)
{
    struct outbox o;
    outbox_init(&o);
    pthread_mutex_lock(&p->state);
    partition_end_role(p, &o);
    partition_hurry_flush(p); /* who ends the partition waits for the last reference */
    pthread_mutex_unlock(&p->state);
    outbox_post(&o, NULL, NULL);
}

bool partition_is_leader(struct partition *p, int32_t *ret_epoch)
{
    pthread_mutex_lock(&p->state);
    bool leads = p->is_leader;
    if (ret_epoch)
        *ret_epoch = p->leader_epoch;
    pthread_mutex_unlock(&p->state);
    return leads;
}

bool partition_set_replicas(struct partition *p, int32_t leader_epoch, int64_t replicated_end, int32_t in_sync)
{
    struct outbox o;
    outbox_init(&o);
    pthread_mutex_lock(&p->state);
    bool applies = p->is_leader && p->leader_epoch == leader_epoch;
    if (applies) {
        p->limits.replicated_end = replicated_end;
        p->limits.in_sync = in_sync;
        partition_advance(p, p->log_end, &o);
    }
    pthread_mutex_unlock(&p->state);
    outbox_post(&o, NULL, NULL);
    return applies;
}

bool partition_set_replicas_start(struct partition *p, int32_t leader_epoch, int64_t replicated_start)
{
    struct outbox o;
    outbox_init(&o);
    pthread_mutex_lock(&p->state);
    bool applies = p->is_leader && p->leader_epoch == leader_epoch;
    if (applies && p->replicated_start != replicated_start) {
        p->replicated_start = replicated_start;
        partition_advance(p, p->log_end, &o);
    }
    pthread_mutex_unlock(&p->state);
    outbox_post(&o, NULL, NULL);
    return applies;
}

void partition_set_min_in_sync(struct partition *p, int32_t min_in_sync)
{
    struct outbox o;
    outbox_init(&o);
    pthread_mutex_lock(&p->state);
    p->limits.min_in_sync = min_in_sync;
    partition_advance(p, p->log_end, &o);
    pthread_mutex_unlock(&p->state);
    outbox_post(&o, NULL, NULL);
}
