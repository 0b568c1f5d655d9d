#include "broker/replication/replica.h"

#include "broker/partition/partition.h"
#include "broker/replication/leader_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct replica {
    _Atomic unsigned refs;
    const struct replica_settings *s;
    struct partition *partition;
    _Atomic bool is_catching_up;
    _Atomic bool counts_by_disk;
    _Atomic bool is_moved_here;
    _Atomic int32_t reached_epoch;

    pthread_mutex_t lock; /* before the partition's; guards all below */
    struct replica_role role;
    int32_t kept_epoch;          /* the newest that is known to be on the disk */
    int64_t broker_epoch;        /* with which the role was taken, or is held since when it does not lead */
    struct leader_state *leader; /* NULL: does not lead */
    bool is_posted;
    struct inbox_item item;
};

int replica_new(const struct replica_settings *settings, struct partition *partition, struct replica **ret_replica)
{
    struct replica *r = calloc(1, sizeof *r);
    if (!r)
        return -BROOK_E_NOMEM;
    atomic_init(&r->refs, 1);
    r->s = settings;
    r->partition = partition_ref(partition);
    r->broker_epoch = -1;
    r->kept_epoch = -1;
    atomic_init(&r->reached_epoch, -1);
    pthread_mutex_init(&r->lock, NULL);
    replica_role_init(&r->role);
    *ret_replica = r;
    return 0;
}

struct replica *replica_ref(struct replica *r)
{
    atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
    return r;
}

void replica_unref(struct replica *r)
{
    if (!r || atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1)
        return;
    partition_unref(r->partition);
    pthread_mutex_destroy(&r->lock);
    free(r->leader);
    free(r);
}

struct partition *replica_partition(struct replica *r)
{
    return r->partition;
}

/* ---- the log's history ------------------------------------------------------------------------------- */

/* A question to the log's epochs, asked under the log's lock. */
struct question {
    void (*ask)(struct question *q, const struct epoch_history *history);
    struct replica *replica;
    const struct leader_beginning *beginning;
    const struct leader_pull *pull;
    int64_t now_ms;
    int32_t current_epoch;
    int32_t epoch;
    int64_t safe_end;
    struct epoch_end end;
    int result;
};

static void look(void *arg, const struct epochs *epochs, int64_t start_offset, int64_t end_offset)
{
    struct question *q = arg;
    struct epoch_history history = {epochs->entries, epochs->count, start_offset, end_offset};
    q->ask(q, &history);
}

static int ask(struct question *q)
{
    log_look_at_epochs(partition_log(q->replica->partition), look, q);
    return q->result;
}

/* ---- limits ------------------------------------------------------------------------------------------ */

static void publish(struct replica *r)
{
    struct watermark_limits limits;
    leader_state_limits(r->leader, &limits);
    partition_set_replicas(r->partition, r->leader->leader_epoch, limits.replicated_end, limits.in_sync);
    partition_set_replicas_start(r->partition, r->leader->leader_epoch, leader_state_replicated_start(r->leader));
}

static int64_t high_watermark(struct replica *r)
{
    struct partition_marks marks;
    partition_marks(r->partition, &marks);
    return marks.high_watermark;
}

/* ---- roles ------------------------------------------------------------------------------------------- */

static void nothing(struct partition *p, void *arg)
{
    (void)p;
    (void)arg;
}

/* End what the partition does now. What a fetcher is appending at this moment is in the log afterwards: the next
 * role, and whoever asks how far the log reaches, must not look before. */
static void end_duty(struct replica *r)
{
    struct partition_marks marks;
    partition_marks(r->partition, &marks);
    if (marks.is_leader || marks.is_follower)
        partition_stop_leading(r->partition);
    if (marks.is_follower)
        partition_with_append_lock(r->partition, nothing, NULL);
    pthread_mutex_lock(&r->lock);
    free(r->leader);
    r->leader = NULL;
    pthread_mutex_unlock(&r->lock);
}

static void begin_epoch(struct question *q, const struct epoch_history *history)
{
    struct leader_beginning b = *q->beginning;
    b.history = history;
    q->result = leader_state_begin(q->replica->leader, &b);
}

static int lead_partition(struct partition *p, const struct leader_state *leader)
{
    struct watermark_limits limits;
    leader_state_limits(leader, &limits);
    return partition_lead_with(p, leader->leader_epoch, limits.epoch_start, limits.replicated_end, limits.in_sync);
}

static int lead(struct replica *r, const struct replica_news *news)
{
    int32_t room = news->replicas->count + news->state->isr_count; /* one may be older than the other */
    if (room > ZNODE_REPLICAS_MAX)
        room = ZNODE_REPLICAS_MAX;
    struct leader_state *leader = malloc(leader_state_bytes(room));
    if (!leader)
        return -BROOK_E_NOMEM;
    leader_state_init(leader, room);
    pthread_mutex_lock(&r->lock);
    free(r->leader);
    r->leader = leader;
    struct leader_beginning beginning = {.broker_id = r->s->broker_id,
                                         .replicas = news->replicas,
                                         .state = news->state,
                                         .version = news->version,
                                         .lag_ms_max = r->s->lag_ms_max,
                                         .now_ms = news->now_ms,
                                         .is_again = news->is_again};
    struct question q = {.ask = begin_epoch, .replica = r, .beginning = &beginning};
    int err = ask(&q);
    if (!err) {
        replica_reach_epoch(r, leader->leader_epoch);
        leader_state_await_reach(leader, replica_counts_by_disk(r) && r->kept_epoch < leader->leader_epoch);
    }
    partition_set_min_in_sync(r->partition, news->min_in_sync);
    if (!err)
        err = lead_partition(r->partition, leader);
    if (!err)
        publish(r);
    if (err) {
        free(leader);
        r->leader = NULL;
    }
    pthread_mutex_unlock(&r->lock);
    if (err)
        partition_stop_leading(r->partition);
    return err;
}

static int carry_out(struct replica *r, const struct replica_step *step, const struct replica_news *news)
{
    bool leads_on = step->duty == REPLICA_LEAD && r->leader;
    if (!leads_on)
        end_duty(r);
    switch (step->duty) {
    case REPLICA_LEAD:
        return lead(r, news);
    case REPLICA_FOLLOW:
        return partition_follow(r->partition, step->leader_epoch);
    case REPLICA_IDLE:
    case REPLICA_LEAVE:
        break;
    }
    return 0;
}

/* More replicas than there was room for when this epoch began. */
static int grow(struct replica *r, int32_t room)
{
    struct leader_state *leader = calloc(1, leader_state_bytes(room));
    if (!leader)
        return -BROOK_E_NOMEM;
    memcpy(leader, r->leader, leader_state_bytes(r->leader->replicas_max));
    leader->replicas_max = room;
    free(r->leader);
    r->leader = leader;
    return 0;
}

static int take_leaders_news(struct replica *r, const struct replica_news *news)
{
    int err = leader_state_assign(r->leader, news->replicas, news->now_ms);
    return err ? err : leader_state_read(r->leader, news->state, news->version);
}

/* Leading goes on; who is assigned, or in sync, may have changed. What can not be taken now is taken with the next
 * news: the state's version stays as it was, so nothing is written on what was not read. */
static void lead_on(struct replica *r, const struct replica_news *news)
{
    pthread_mutex_lock(&r->lock);
    int err = take_leaders_news(r, news);
    if (err == -BROOK_E_TOO_MANY && r->leader->replicas_max < ZNODE_REPLICAS_MAX && !grow(r, ZNODE_REPLICAS_MAX))
        (void)take_leaders_news(r, news);
    partition_set_min_in_sync(r->partition, news->min_in_sync);
    publish(r);
    pthread_mutex_unlock(&r->lock);
}

/* The same process with the same log: what it reports is vouched for by its present registration, or nobody would
 * count it. */
static void register_anew(struct replica *r, int64_t broker_epoch)
{
    pthread_mutex_lock(&r->lock);
    r->broker_epoch = broker_epoch;
    pthread_mutex_unlock(&r->lock);
}

enum replica_verdict replica_take_news(struct replica *r, const struct replica_news *news, struct replica_step *ret)
{
    struct replica_self self = {.broker_id = r->s->broker_id,
                                .broker_epoch = news->broker_epoch,
                                .log_epoch = log_last_epoch(partition_log(r->partition)),
                                .is_assigned = news->is_assigned};
    enum replica_verdict verdict = replica_role_decide(&r->role, &self, news->state, ret);
    if (verdict == REPLICA_KEEP) {
        *ret = r->role.step;
        if (r->leader)
            lead_on(r, news);
        else
            register_anew(r, news->broker_epoch);
        return verdict;
    }
    if (verdict == REPLICA_REFUSE)
        return verdict;
    pthread_mutex_lock(&r->lock);
    replica_role_begin(&r->role, ret);
    pthread_mutex_unlock(&r->lock);
    int err = carry_out(r, ret, news);
    pthread_mutex_lock(&r->lock);
    r->broker_epoch = news->broker_epoch;
    if (!err)
        replica_role_completed(&r->role);
    pthread_mutex_unlock(&r->lock);
    return REPLICA_CHANGE;
}

void replica_resign(struct replica *r)
{
    end_duty(r);
    pthread_mutex_lock(&r->lock);
    replica_role_init(&r->role);
    pthread_mutex_unlock(&r->lock);
}

void replica_take_broker(struct replica *r, int32_t broker_id, int64_t broker_epoch, bool is_draining)
{
    pthread_mutex_lock(&r->lock);
    if (r->leader) {
        leader_state_broker(r->leader, broker_id, broker_epoch, is_draining);
        publish(r);
    }
    pthread_mutex_unlock(&r->lock);
}

int32_t replica_reached_epoch(const struct replica *r)
{
    return atomic_load_explicit(&r->reached_epoch, memory_order_acquire);
}

void replica_reach_epoch(struct replica *r, int32_t leader_epoch)
{
    int32_t known = replica_reached_epoch(r);
    while (known < leader_epoch && !atomic_compare_exchange_weak_explicit(
                                       &r->reached_epoch, &known, leader_epoch, memory_order_acq_rel, memory_order_acquire))
        ;
}

void replica_epoch_kept(struct replica *r, int32_t leader_epoch)
{
    replica_reach_epoch(r, leader_epoch);
    pthread_mutex_lock(&r->lock);
    if (leader_epoch > r->kept_epoch)
        r->kept_epoch = leader_epoch;
    if (r->leader && r->leader->awaits_reach && r->kept_epoch >= r->leader->leader_epoch) {
        leader_state_await_reach(r->leader, false);
        publish(r);
    }
    pthread_mutex_unlock(&r->lock);
}

int32_t replica_awaited_epoch(struct replica *r)
{
    pthread_mutex_lock(&r->lock);
    int32_t epoch = r->leader && r->leader->awaits_reach ? r->leader->leader_epoch : -1;
    pthread_mutex_unlock(&r->lock);
    return epoch;
}

void replica_set_catching_up(struct replica *r, bool is_catching_up, bool is_moved_here)
{
    atomic_store_explicit(&r->is_catching_up, is_catching_up, memory_order_relaxed);
    atomic_store_explicit(&r->is_moved_here, is_moved_here, memory_order_relaxed);
}

bool replica_is_moved_here(const struct replica *r)
{
    return atomic_load_explicit(&r->is_moved_here, memory_order_relaxed);
}

void replica_set_counts_by_disk(struct replica *r, bool counts)
{
    atomic_store_explicit(&r->counts_by_disk, counts, memory_order_relaxed);
}

bool replica_counts_by_disk(const struct replica *r)
{
    return atomic_load_explicit(&r->counts_by_disk, memory_order_relaxed);
}

bool replica_is_catching_up(const struct replica *r)
{
    return atomic_load_explicit(&r->is_catching_up, memory_order_relaxed);
}

/* ---- the in-sync replicas ----------------------------------------------------------------------------- */

/* The log's start is looked at after the limits that wait for it were published: a deletion that saw the old ones has
 * raised it by then. */
static void tell_start(struct replica *r)
{
    leader_state_starts_at(r->leader, log_start_offset(partition_log(r->partition)));
}

bool replica_propose(struct replica *r, int64_t now_ms, struct leader_isr_change *ret)
{
    pthread_mutex_lock(&r->lock);
    if (r->leader)
        tell_start(r);
    bool is_due = r->leader && leader_state_propose(r->leader, high_watermark(r), now_ms, ret);
    if (is_due) {
        publish(r);
        tell_start(r);
        is_due = leader_state_confirm(r->leader, high_watermark(r));
        if (!is_due)
            publish(r);
    }
    pthread_mutex_unlock(&r->lock);
    return is_due;
}

void replica_take_outcome(struct replica *r, int32_t leader_epoch, enum leader_outcome outcome, int32_t version)
{
    pthread_mutex_lock(&r->lock);
    if (r->leader && r->leader->leader_epoch == leader_epoch) {
        leader_state_outcome(r->leader, outcome, version);
        publish(r);
    }
    pthread_mutex_unlock(&r->lock);
}

bool replica_wants_read(struct replica *r)
{
    pthread_mutex_lock(&r->lock);
    bool wants = r->leader && leader_state_wants_read(r->leader);
    pthread_mutex_unlock(&r->lock);
    return wants;
}

/* ---- followers ---------------------------------------------------------------------------------------- */

static void take_pull(struct question *q, const struct epoch_history *history)
{
    q->result = leader_state_pull(q->replica->leader, history, q->pull, q->now_ms);
}

static void run_look(struct inbox_item *item)
{
    struct replica *r = CONTAINER_OF(item, struct replica, item);
    pthread_mutex_lock(&r->lock);
    r->is_posted = false;
    pthread_mutex_unlock(&r->lock);
    r->s->wants_look(r->s->arg, r);
    replica_unref(r);
}

int replica_pull(struct replica *r, const struct leader_pull *pull, int64_t now_ms)
{
    struct question q = {.ask = take_pull, .replica = r, .pull = pull, .now_ms = now_ms};
    bool post = false;
    pthread_mutex_lock(&r->lock);
    int err = r->leader ? ask(&q) : -BROOK_E_NOT_LEADER;
    if (!err) {
        publish(r);
        post = !r->is_posted && leader_state_could_join(r->leader, pull->broker_id, high_watermark(r), now_ms);
        r->is_posted |= post;
    }
    pthread_mutex_unlock(&r->lock);
    if (post) {
        r->item.run = run_look;
        replica_ref(r);
        inbox_post(r->s->inbox, &r->item);
    }
    return err;
}

static void end_of_epoch(struct question *q, const struct epoch_history *history)
{
    if (q->replica->leader) {
        int32_t current_epoch = q->current_epoch < 0 ? q->replica->leader->leader_epoch : q->current_epoch;
        q->result = leader_state_epoch_end(q->replica->leader, history, current_epoch, q->epoch, &q->end);
    } else {
        q->end = epoch_history_report(history, q->safe_end, replica_reached_epoch(q->replica));
    }
}

/* What was not synced may be gone when this replica, which has led since, counts by its disk. */
static int64_t reported_end(struct replica *r)
{
    struct partition_marks marks;
    if (!replica_counts_by_disk(r))
        return INT64_MAX;
    partition_marks(r->partition, &marks);
    return marks.safe_end;
}

int replica_epoch_end(struct replica *r, int32_t current_epoch, int32_t epoch, struct epoch_end *ret,
                      int64_t *ret_broker_epoch)
{
    struct question q = {.ask = end_of_epoch,
                         .replica = r,
                         .current_epoch = current_epoch,
                         .epoch = epoch,
                         .safe_end = reported_end(r)};
    pthread_mutex_lock(&r->lock);
    int err = 0;
    if (!r->leader)
        err = epoch == INT32_MAX ? replica_role_may_report(&r->role, current_epoch) : -BROOK_E_NOT_LEADER;
    if (err == -BROOK_E_INVALID)
        err = -BROOK_E_NOT_LEADER;
    if (!err)
        err = ask(&q);
    *ret = q.end;
    *ret_broker_epoch = r->broker_epoch;
    pthread_mutex_unlock(&r->lock);
    return err;
}

size_t replica_positions(struct replica *r, struct replica_position ret[ZNODE_REPLICAS_MAX])
{
    size_t count = 0;
    pthread_mutex_lock(&r->lock);
    for (int32_t i = 0; r->leader && i < r->leader->replicas_count && count < ZNODE_REPLICAS_MAX; i++) {
        const struct leader_replica *f = &r->leader->replicas[i];
        bool is_self = i == r->leader->self;
        ret[count++] = (struct replica_position){
            .broker_id = f->broker_id,
            .is_in_sync = (r->leader->stored & leader_bit(i)) != 0,
            .end = is_self ? log_end_offset(partition_log(r->partition)) : f->end,
            .caught_up_ms = is_self ? 0 : f->caught_up_ms,
        };
    }
    pthread_mutex_unlock(&r->lock);
    return count;
}
