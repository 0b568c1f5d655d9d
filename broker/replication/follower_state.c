#include "broker/replication/follower_state.h"

#include <assert.h>

void follower_state_init(struct follower_state *f)
{
    *f = (struct follower_state){.phase = FOLLOWER_IDLE, .leader = -1, .leader_epoch = -1, .asked = -1};
}

static void ask(struct follower_state *f, int32_t epoch)
{
    f->phase = FOLLOWER_ASK;
    f->asked = epoch;
}

void follower_state_begin(struct follower_state *f, int32_t leader, int32_t leader_epoch)
{
    assert(leader >= 0 && leader_epoch >= f->leader_epoch);
    follower_state_init(f);
    f->leader = leader;
    f->leader_epoch = leader_epoch;
    f->phase = FOLLOWER_PULL;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

bool follower_state_epoch_end(struct follower_state *f, const struct epoch_history *history, int32_t current_epoch,
                              int32_t asked, const struct epoch_end *answer)
{
    if (f->phase != FOLLOWER_ASK || current_epoch != f->leader_epoch || asked != f->asked || answer->epoch > asked)
        return false;
    struct epoch_end ours = epoch_history_end(history, answer->epoch);
    if (ours.epoch >= 0 && ours.epoch < answer->epoch) {
        ask(f, ours.epoch);
        return true;
    }
    /* The same epoch, or nothing in common at all. */
    f->cut = least(answer->epoch < 0 ? history->log_end : ours.end, answer->end);
    f->phase = f->cut < history->log_end ? FOLLOWER_CUT : FOLLOWER_PULL;
    return true;
}

void follower_state_cut(struct follower_state *f, const struct epoch_history *history)
{
    assert(f->phase == FOLLOWER_CUT && history->log_end <= f->cut);
    (void)history;
    f->phase = FOLLOWER_PULL;
}

bool follower_state_cuts_committed(const struct follower_state *f, int64_t high_watermark)
{
    return f->phase == FOLLOWER_CUT && f->cut < high_watermark;
}

static int64_t wanted_offset(const struct follower_state *f, const struct epoch_history *history)
{
    return history->log_end > f->start ? history->log_end : f->start;
}

/* What lies below the leader's start is not missing. */
static int64_t safe_offset(const struct follower_state *f, const struct epoch_history *history, int64_t safe_end)
{
    return safe_end >= history->log_end ? wanted_offset(f, history) : safe_end;
}

void follower_state_pull(const struct follower_state *f, const struct epoch_history *history, int32_t broker_id,
                         int64_t broker_epoch, int64_t safe_end, int32_t reached_epoch, struct leader_pull *ret)
{
    assert(f->phase == FOLLOWER_PULL);
    int64_t offset = wanted_offset(f, history);
    *ret = (struct leader_pull){
        .broker_id = broker_id,
        .broker_epoch = broker_epoch,
        .current_epoch = f->leader_epoch,
        .offset = offset,
        .last_epoch = epoch_history_before(history, offset),
        .safe_end = safe_offset(f, history, safe_end),
        .reached_epoch = reached_epoch,
    };
}

int32_t follower_state_reached(const struct follower_state *f, const struct epoch_history *history,
                               int64_t safe_end, int32_t reached_epoch, int64_t leader_epoch_start)
{
    bool reaches = f->phase == FOLLOWER_PULL && safe_offset(f, history, safe_end) >= leader_epoch_start;
    return reaches && f->leader_epoch > reached_epoch ? f->leader_epoch : reached_epoch;
}

bool follower_state_may_append(const struct follower_state *f, const struct epoch_history *history,
                               int32_t current_epoch, int64_t offset)
{
    return f->phase == FOLLOWER_PULL && current_epoch == f->leader_epoch && offset == wanted_offset(f, history);
}

/* Ask about the newest epoch of ours. If that is the leader's own we have it from this leader, which never cuts:
 * then the refusal is of an earlier pull. An empty log that does not say how it ended, and begins where the
 * leader's does not: begin at the beginning. */
static void diverged(struct follower_state *f, const struct epoch_history *history)
{
    int32_t last = epoch_history_last(history);
    if (last == f->leader_epoch)
        return;
    if (last >= 0) {
        ask(f, last);
        return;
    }
    f->phase = FOLLOWER_CUT;
    f->cut = 0;
}

void follower_state_refused(struct follower_state *f, const struct epoch_history *history, int32_t current_epoch,
                            int error, int64_t leader_log_start)
{
    if (current_epoch != f->leader_epoch || f->phase == FOLLOWER_IDLE)
        return;
    switch (-error) {
    case BROOK_E_LOG_DIVERGED:
        if (f->phase == FOLLOWER_PULL)
            diverged(f, history);
        break;
    case BROOK_E_OFFSET_OUT_OF_RANGE:
        if (leader_log_start > f->start)
            f->start = leader_log_start;
        break;
    case BROOK_E_FENCED_EPOCH:
        f->phase = FOLLOWER_IDLE;
        break;
    default:
        break;
    }
}
