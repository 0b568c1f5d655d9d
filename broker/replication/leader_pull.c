/* What followers ask of their leader. */
#include "broker/replication/leader_internal.h"
#include "broker/replication/leader_state.h"

static int check_epoch(const struct leader_state *s, int32_t current_epoch)
{
    if (current_epoch < s->leader_epoch)
        return -BROOK_E_FENCED_EPOCH;
    return current_epoch > s->leader_epoch ? -BROOK_E_UNKNOWN_EPOCH : 0;
}

/* Whose pull it is, and that of its newest life. */
static int check_replica(struct leader_state *s, const struct leader_pull *pull, struct leader_replica **ret)
{
    struct leader_replica *r = leader_find(s, pull->broker_id);
    if (!r || r == &s->replicas[s->self])
        return -BROOK_E_UNKNOWN_PARTITION;
    if (pull->broker_epoch < r->broker_epoch || pull->broker_epoch < r->live_epoch || pull->broker_epoch < 0)
        return -BROOK_E_STALE_BROKER_EPOCH;
    *ret = r;
    return 0;
}

static int check_fit(const struct epoch_history *history, const struct leader_pull *pull)
{
    if (pull->offset < history->log_start)
        return -BROOK_E_OFFSET_OUT_OF_RANGE;
    return epoch_history_fits(history, pull->offset, pull->last_epoch) ? 0 : -BROOK_E_LOG_DIVERGED;
}

/* What an earlier life of it had is not there any more, for all we know. */
static void forget_position(struct leader_replica *r, int64_t broker_epoch)
{
    r->broker_epoch = broker_epoch;
    r->end = r->safe_end = r->log_start = -1;
    r->pulled_ms = -1;
}

/* It has all that was committed before this epoch, and will say so whoever asks. */
static bool has_reached(const struct leader_state *s, const struct leader_pull *pull)
{
    return pull->reached_epoch == s->leader_epoch || pull->safe_end > s->epoch_start;
}

static void note_position(struct leader_replica *r, const struct leader_pull *pull, int64_t log_end, int64_t now_ms)
{
    if (pull->offset >= log_end)
        r->caught_up_ms = now_ms;
    else if (r->pulled_ms > r->caught_up_ms && pull->offset >= r->leader_end)
        r->caught_up_ms = r->pulled_ms;
    r->end = pull->offset;
    r->safe_end = pull->safe_end < pull->offset ? pull->safe_end : pull->offset;
    r->log_start = pull->log_start;
    r->pulled_ms = now_ms;
    r->leader_end = log_end;
}

int leader_state_pull(struct leader_state *s, const struct epoch_history *history, const struct leader_pull *pull,
                      int64_t now_ms)
{
    struct leader_replica *replica;
    int r = check_epoch(s, pull->current_epoch);
    if (r || (r = check_replica(s, pull, &replica)))
        return r;
    if (pull->broker_epoch > replica->broker_epoch)
        forget_position(replica, pull->broker_epoch);
    if ((r = check_fit(history, pull)))
        return r;
    note_position(replica, pull, history->log_end, now_ms);
    if (!has_reached(s, pull))
        replica->safe_end = -1;
    return 0;
}

int leader_state_epoch_end(const struct leader_state *s, const struct epoch_history *history, int32_t current_epoch,
                           int32_t epoch, struct epoch_end *ret)
{
    int r = check_epoch(s, current_epoch);
    if (!r)
        *ret = epoch_history_end(history, epoch);
    return r;
}
