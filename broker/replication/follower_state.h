/* What a follower of one partition does next: pull; and when the leader says that the logs have diverged, agree with it
 * where they part, cut, and pull again.
 *
 *      PULL --diverged--> ASK --EpochEnd agrees--> CUT (if there is something above) --cut--> PULL
 *                          ^--another epoch--'
 *
 * Every pull says how the follower's log ends, and the leader compares that with its own: so a new leader is pulled
 * from at once, and only a log that differs costs a question. A log is cut by leader epoch alone, never by a high
 * watermark. Answers that belong to an earlier leader epoch, or to another question, change nothing, and those that
 * come late or twice do no harm: only epochs before the leader's own are asked about, and their ends do not move
 * while it leads. Pure: no I/O, no clock; one owner. The history passed in is that of the follower's own log at
 * that moment.
 */
#ifndef BROOK_REPLICATION_FOLLOWER_STATE_H
#define BROOK_REPLICATION_FOLLOWER_STATE_H

#include "broker/replication/epoch_history.h"
#include "broker/replication/leader_state.h"

enum follower_phase {
    FOLLOWER_IDLE, /* follows nobody, or has to wait for a newer state */
    FOLLOWER_ASK,  /* send EpochEnd(leader_epoch, asked) */
    FOLLOWER_CUT,  /* truncate to `cut`, then follower_state_cut(); see there for a cut below the log's start */
    FOLLOWER_PULL  /* send follower_state_pull() */
};

struct follower_state {
    enum follower_phase phase;
    int32_t leader;
    int32_t leader_epoch;
    int32_t asked;
    int64_t cut;
    int64_t start; /* the leader's log begins there: nothing below is asked for */
};

/* Follow nobody. */
void follower_state_init(struct follower_state *f);
/* Follow `leader` at `leader_epoch`. */
void follower_state_begin(struct follower_state *f, int32_t leader, int32_t leader_epoch);

/* The leader's answer to EpochEnd(current_epoch, asked). Both have that epoch: cut where the shorter of the two ends
 * it. Else ask again for the largest epoch of ours below. Returns whether the answer was taken. */
bool follower_state_epoch_end(struct follower_state *f, const struct epoch_history *history, int32_t current_epoch,
                              int32_t asked, const struct epoch_end *answer);
/* The log was cut: to `cut` or, where that was inside of a batch, to the batch's beginning. `cut` below the log's
 * start: nothing in it is the leader's; the log has been made anew, empty, beginning at `cut`. */
void follower_state_cut(struct follower_state *f, const struct epoch_history *history);
/* Whether that cut takes records below the high watermark that this replica knew: only after an unclean election, and
 * to be said loudly. */
bool follower_state_cuts_committed(const struct follower_state *f, int64_t high_watermark);

/* Which leader epoch this replica has reached, after `reached_epoch`, when a pull was answered without an error (and at
 * the leader epoch that is followed): that of the leader, once the log is safe up to the start of its epoch, as the
 * answer tells it; with `safe_end` INT64_MAX: once it goes up to there. A replica that begins to lead has reached its own.
 * From then on it has all that was committed before that epoch, and keeps it whatever is cut: cuts take nothing that was
 * committed up to the epoch that is followed. Kept as long as the process runs and over a clean stop; where members count by
 * their disks (topics made with durability=fsync) on stable storage before the next pull says it. At first what the disk
 * says (data_dir_reached()). */
int32_t follower_state_reached(const struct follower_state *f, const struct epoch_history *history,
                               int64_t safe_end, int32_t reached_epoch, int64_t leader_epoch_start);

/* What to ask the leader for, in FOLLOWER_PULL. `safe_end`: what this replica holds safely (durability.h). */
void follower_state_pull(const struct follower_state *f, const struct epoch_history *history, int32_t broker_id,
                         int64_t broker_epoch, int64_t safe_end, int32_t reached_epoch, struct leader_pull *ret);
/* May the records that answer the pull at (current_epoch, offset) be appended now? */
bool follower_state_may_append(const struct follower_state *f, const struct epoch_history *history,
                               int32_t current_epoch, int64_t offset);
/* The leader answered an error to the pull or question of `current_epoch`: ask anew (diverged), go on where its log
 * begins (out of range: `leader_log_start`), wait for the newer state that there is (fenced), or try again later (all
 * else, also "not leader": the leader may not have read the state yet. Nothing changes). */
void follower_state_refused(struct follower_state *f, const struct epoch_history *history, int32_t current_epoch,
                            int error, int64_t leader_log_start);
#endif
