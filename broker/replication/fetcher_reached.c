/* The leader epochs that logs have reached (follower_state_reached()). Where replicas count by their disks one is on stable
 * storage before anybody is told: those of all partitions in one write. Then the next pull says it, and the position
 * counts. */
#include "broker/replication/fetcher_internal.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"

#define MS ((int64_t)1000000)

void fetch_entry_forget_reached(struct fetch_entry *e)
{
    if (e->is_reaching)
        TAILQ_REMOVE(&e->link->thread->reaching, e, in_reaching);
    e->is_reaching = false;
}

bool fetch_entry_reach(struct fetch_entry *e)
{
    struct fetch_thread *t = e->link->thread;
    struct partition_marks marks;
    if (e->epoch_start < 0)
        return false;
    partition_marks(e->partition, &marks);
    int32_t reached = fetch_entry_reached(e, marks.safe_end);
    if (reached <= replica_reached_epoch(e->replica))
        return false;
    if (!replica_counts_by_disk(e->replica) || !t->fetchers->s.keep_reached) {
        replica_reach_epoch(e->replica, reached);
        return true;
    }
    e->reaching = reached;
    if (!e->is_reaching)
        TAILQ_INSERT_TAIL(&t->reaching, e, in_reaching);
    e->is_reaching = true;
    return false;
}

struct reached_round {
    struct fetch_entry *entries[FETCHER_REACHED_MAX];
    struct partition *partitions[FETCHER_REACHED_MAX];
    int32_t epochs[FETCHER_REACHED_MAX];
    size_t count;
};

static void collect(struct fetch_thread *t, struct reached_round *round)
{
    struct fetch_entry *e;
    round->count = 0;
    TAILQ_FOREACH(e, &t->reaching, in_reaching)
    {
        if (round->count == FETCHER_REACHED_MAX)
            break;
        round->entries[round->count] = e;
        round->partitions[round->count] = e->partition;
        round->epochs[round->count++] = e->reaching;
    }
}

static void kept(struct fetch_entry *e)
{
    fetch_entry_forget_reached(e);
    replica_epoch_kept(e->replica, e->reaching);
    if (e->place == FETCH_NAMED)
        fetch_entry_move(e, FETCH_DUE);
}

int64_t fetch_thread_keep_reached(struct fetch_thread *t, int64_t now_ns)
{
    static _Thread_local struct reached_round round;
    const struct fetcher_settings *s = &t->fetchers->s;
    if (TAILQ_EMPTY(&t->reaching))
        return INT64_MAX;
    if (now_ns < t->reached_due_ns)
        return t->reached_due_ns;
    collect(t, &round);
    int err = s->keep_reached(s->arg, round.partitions, round.epochs, round.count);
    if (err)
        diag_log(s->diag, DIAG_WARN, "", "the leader epochs that %zu logs have reached can not be kept, trying on: %s",
                 round.count, brook_error_text(err));
    for (size_t i = 0; i < round.count && !err; i++)
        kept(round.entries[i]);
    t->reached_due_ns = clock_boot_ns() + (err ? FETCHER_BACKOFF_MS_MAX : FETCHER_REACHED_MS) * MS;
    return TAILQ_EMPTY(&t->reaching) ? INT64_MAX : t->reached_due_ns;
}
