/* Where the leader's log begins ours is to begin too, whatever its reason: what was deleted on request must not come back
 * when this replica leads. The start is put on stable storage before it counts, those of all partitions in one write and
 * not often; then the next pull says it, and the leader knows. */
#include "broker/replication/fetcher_internal.h"
#include "proto/base/clock.h"

#define MS ((int64_t)1000000)

void fetch_entry_forget_start(struct fetch_entry *e)
{
    if (e->is_behind)
        TAILQ_REMOVE(&e->link->thread->behind, e, in_behind);
    e->is_behind = false;
}

void fetch_entry_heed_start(struct fetch_entry *e, int64_t leader_start)
{
    struct partition_marks marks;
    partition_marks(e->partition, &marks);
    /* Beyond our log's end: the leader says so when it is asked for what is there, and the log begins anew. */
    if (leader_start <= marks.kept_start || leader_start > marks.log_end)
        return;
    e->leader_start = leader_start;
    if (e->is_behind)
        return;
    e->is_behind = true;
    TAILQ_INSERT_TAIL(&e->link->thread->behind, e, in_behind);
}

struct starts_round {
    struct fetch_entry *entries[FETCHER_STARTS_MAX];
    struct partition *partitions[FETCHER_STARTS_MAX];
    int64_t starts[FETCHER_STARTS_MAX];
    size_t count;
};

static void raise_one(struct fetch_entry *e, int64_t start)
{
    struct brook_error error = {0};
    fetch_entry_forget_start(e);
    int err = partition_raise_start(e->partition, e->state.leader_epoch, start, &error);
    if (err == -BROOK_E_FENCED_EPOCH)
        return; /* a new order comes, and the answers after it say the start again */
    if (err)
        fetch_entry_back_off(e, -err, error.text);
    else if (e->place == FETCH_NAMED)
        fetch_entry_move(e, FETCH_DUE);
}

static void collect(struct fetch_thread *t, struct starts_round *round)
{
    struct fetch_entry *e;
    round->count = 0;
    TAILQ_FOREACH(e, &t->behind, in_behind)
    {
        if (round->count == FETCHER_STARTS_MAX)
            break;
        round->entries[round->count] = e;
        round->partitions[round->count] = e->partition;
        round->starts[round->count++] = e->leader_start;
    }
}

int64_t fetch_thread_raise_starts(struct fetch_thread *t, int64_t now_ns)
{
    static _Thread_local struct starts_round round;
    const struct fetcher_settings *s = &t->fetchers->s;
    if (TAILQ_EMPTY(&t->behind))
        return INT64_MAX;
    if (now_ns < t->starts_due_ns)
        return t->starts_due_ns;
    collect(t, &round);
    int err = s->keep_starts ? s->keep_starts(s->arg, round.partitions, round.starts, round.count) : 0;
    for (size_t i = 0; i < round.count && !err; i++)
        raise_one(round.entries[i], round.starts[i]);
    t->starts_due_ns = clock_boot_ns() + (err ? FETCHER_BACKOFF_MS_MAX : FETCHER_STARTS_MS) * MS;
    return TAILQ_EMPTY(&t->behind) ? INT64_MAX : t->starts_due_ns;
}
