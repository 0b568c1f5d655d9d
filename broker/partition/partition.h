/* One partition that this broker hosts: its log, its two locks, its positions, and who waits for them.
 *
 * Shared by I/O loops. `append` serialises writers and is held across pwritev; loops only try it: a produce
 * is queued (partition_enqueue) and whoever gets the lock writes all that is queued in one go
 * (partition_drain), so a slow disk holds up one loop only and contention makes larger writes. `state` guards
 * role, epoch, marks and waiters and is never held across a system call. Completions and wake-ups go to the
 * inbox of the loop that asked, or run at once when that is the calling loop.
 *
 * Knows the log and nothing of ZooKeeper, connections or messages.
 */
#ifndef BROOK_PARTITION_PARTITION_H
#define BROOK_PARTITION_PARTITION_H

#include "broker/partition/durability.h"
#include "broker/storage/log.h"
#include "proto/base/inbox.h"

struct flusher;
struct partition;

/* Appends written in one go by partition_drain(): at least one, then as many as stay within these. They bound
 * how long one write takes. */
#define PARTITION_DRAIN_BYTES_MAX ((size_t)8 << 20)
#define PARTITION_DRAIN_BATCHES_MAX 1024
/* When nobody waits for the disk, an `fsync` partition is flushed this long after an append. */
#define PARTITION_LAZY_FLUSH_MS 100
/* Writes in a row that one loop does before it passes the rest on to the loop that waits for them. */
#define PARTITION_DRAIN_ROUNDS_MAX 4

/* `log` is taken over. Returns 0 or -BROOK_E_NOMEM (`log` is the caller's still). The topic's name is copied.
 * The partition leads nothing yet. */
int partition_new(const char *topic, int32_t number, const uint8_t topic_id[16], struct log **log,
                  struct partition **ret_partition);
struct partition *partition_ref(struct partition *p);
/* The last reference closes the log. Returns 0, or log_close()'s failure when this was the last one: then the
 * data directory was not cleanly stopped. NULL is fine. */
int partition_unref(struct partition *p);
/* Whoever opened the log may want to end it: when the last reference goes, `released` gets the log, open,
 * instead of its being closed, on the thread that dropped the reference. To be set before the partition is
 * shared. */
void partition_on_release(struct partition *p, void (*released)(void *arg, struct log *log), void *arg);
/* The flusher that syncs the log from now on; borrowed, and stopped before the log is taken out or closed. To
 * be set before the partition is shared. Without one, nothing is flushed but by partition_flush(). */
void partition_use_flusher(struct partition *p, struct flusher *flusher);
/* At the very end, when nobody calls the partition any more but references may still lie about: take the log
 * out of it. The partition is good for partition_unref() only from then on, and calls nobody. */
struct log *partition_take_log(struct partition *p);

/* Whatever its host wants to find from it; to be set before the partition is shared. */
void partition_set_owner(struct partition *p, void *owner);
void *partition_owner(const struct partition *p);
const char *partition_topic(const struct partition *p);
int32_t partition_number(const struct partition *p);
const uint8_t *partition_topic_id(const struct partition *p);
struct log *partition_log(struct partition *p); /* borrowed; reading calls only, unless under `append` */

/* Before the partition is shared: what is known of its high watermark (a checkpoint); it is taken to lie
 * between the log's start and end. Without it, the log's end. */
void partition_start_at(struct partition *p, int64_t high_watermark);

/* ---- role ------------------------------------------------------------------------------------------- */

/* Become leader at `leader_epoch` (never lower than before: -BROOK_E_FENCED_EPOCH), or stop leading and following.
 * Queued appends and waiters are answered -BROOK_E_NOT_LEADER when leading ends. `replicated_end` and `in_sync` are as
 * for partition_set_replicas(), and the epoch begins at `epoch_start`: below it consumers may have seen more than this
 * leader's high watermark says yet. */
int partition_lead_with(struct partition *p, int32_t leader_epoch, int64_t epoch_start, int64_t replicated_end,
                        int32_t in_sync);
void partition_stop_leading(struct partition *p);
bool partition_is_leader(struct partition *p, int32_t *ret_epoch);

/* What a leader knows of the other replicas. `replicated_end`: the least safe end of the others that the high
 * watermark must wait for, INT64_MAX when there are none; `in_sync`: how many replicas count, the leader included.
 * Of another epoch, or when not leading, it is ignored (returns false). Any thread. */
bool partition_set_replicas(struct partition *p, int32_t leader_epoch, int64_t replicated_end, int32_t in_sync);
/* Likewise: the least log start of the others that counts as theirs for good. INT64_MAX: there are none; -1: that of
 * one is not known, as at first when there are others. */
bool partition_set_replicas_start(struct partition *p, int32_t leader_epoch, int64_t replicated_start);
/* acks=all needs so many in-sync replicas, before the append and at the answer: with fewer, appends are refused with
 * BROOK_E_NOT_ENOUGH_REPLICAS and the high watermark stands still. A new partition has 1. */
void partition_set_min_in_sync(struct partition *p, int32_t min_in_sync);

/* Become follower at `leader_epoch` (as for partition_lead_with()). Appends that are being written at this moment end
 * before partition_with_append_lock() or one of the calls below comes to its turn. */
int partition_follow(struct partition *p, int32_t leader_epoch);
/* A follower's, on threads that may wait for the disk; one at a time for a partition. `leader_epoch`: of whoever the
 * batches are from; -BROOK_E_FENCED_EPOCH when the partition does not follow at it any more. */

/* Store what the leader sent: batches that were checked, in memory that stays put, offsets as they are; none (`count`
 * 0) is fine. Then the high watermark moves to the leader's, as far as the log reaches. */
int partition_append_replicated(struct partition *p, int32_t leader_epoch, struct log_batch *batches, size_t count,
                                int64_t leader_high_watermark, struct brook_error *error);
/* log_start_over(), where `offset` is where the leader's log begins. */
int partition_start_over(struct partition *p, int32_t leader_epoch, int64_t offset, struct brook_error *error);
/* log_truncate(); the high watermark is lowered only when the log ends below it. */
int partition_truncate(struct partition *p, int32_t leader_epoch, int64_t offset, struct brook_error *error);

/* The leader's log begins at `start`, and that has been put on stable storage for this one: delete what is below, as far
 * as the log reaches. Returns 0, -BROOK_E_FENCED_EPOCH or a storage error. */
int partition_raise_start(struct partition *p, int32_t leader_epoch, int64_t start, struct brook_error *error);

struct partition_marks {
    int64_t log_start;
    int64_t high_watermark;
    int64_t visible_end; /* consumers read below it; at most the high watermark (durability.h) */
    int64_t log_end;
    int64_t epoch_start; /* of the newest epoch that was led here */
    bool is_end_known; /* the high watermark has reached the epoch's start: else `latest` has no answer yet */
    int64_t safe_end; /* what this replica answers for (durability.h) */
    int64_t replicated_start; /* partition_set_replicas_start() */
    int64_t deleted_start;    /* up to where records were deleted on request by this leader; INT64_MIN: none were */
    int64_t kept_start;       /* a log start that is known to be on stable storage */
    int32_t leader_epoch;
    bool is_leader;
    bool is_follower;
};
void partition_marks(struct partition *p, struct partition_marks *ret);

/* ---- durability ------------------------------------------------------------------------------------- */

/* From now on. A new partition is `replicated`. The high watermark is not lowered; with `interval` what
 * consumers see may be until the next flush. */
void partition_set_durability(struct partition *p, const struct durability *durability);
/* Flush the log now, on the calling thread, and let those go who waited for it. Returns log_flush()'s result.
 * When it fails the log is offline, and appends that wait for the high watermark are answered
 * BROOK_E_STORAGE_ERROR. */
int partition_flush(struct partition *p);

/* ---- append ----------------------------------------------------------------------------------------- */

/* One produce to one partition; embedded in the request that asked, which keeps it alive until `done`. */
struct partition_append {
    /* set by the caller */
    struct log_batch *batches; /* checked; memory stays put and writable until done */
    size_t batches_count;
    bool wait_for_all;   /* acks=all: done when the high watermark has passed it */
    int64_t expires_ns;  /* clock_boot_ns(): later it is refused with BROOK_E_REQUEST_EXPIRED. 0: never */
    struct inbox *inbox; /* of the calling loop; `done` runs on the thread that drains it */
    void (*done)(struct partition_append *a);
    /* results */
    struct brook_error error; /* code 0: stored */
    bool maybe_stored;        /* with an error: it is in the log, and whether it stays is not known */
    int64_t base_offset;      /* each batch's is in its header. -1: stored before, where is not known any more */
    int64_t log_start_offset;
    /* the partition's */
    int64_t last_offset;
    size_t duplicates; /* batches at its beginning that were there already */
    struct partition_append *next;
    struct inbox_item item;
};
/* Queue; the answer comes through `done`, exactly once, never from inside this call. Batches of idempotent producers
 * that are there already are not written again: they wait for what the original had to wait for, and are answered with
 * its offset. Others may be refused (log_judge()), whole appends at a time. */
void partition_enqueue(struct partition *p, struct partition_append *a);
/* To be called once per loop turn for each partition enqueued to: try the append lock and write everything
 * queued. Answers of this loop's own appends (same inbox) run inside this call. */
void partition_drain(struct partition *p, struct inbox *own);
/* Take no appends from now on: each is answered with `code` (positive) and `text` (borrowed for the partition's life;
 * NULL: the code's own). Code 0: take them again. What is queued already is still tried; reading goes on. Any thread.
 */
void partition_refuse_appends(struct partition *p, int code, const char *text);
/* Give up an append at its deadline: `done` runs inside this call with BROOK_E_TIMED_OUT, or
 * BROOK_E_NOT_ENOUGH_REPLICAS_AFTER_APPEND (it is stored or will never be). Returns false, and does nothing, when it was answered already or is being written at this
 * moment: `done` has run or will. Own loop only. */
bool partition_cancel(struct partition *p, struct partition_append *a);

/* Run `work` under the append lock, waiting for it (disk threads: retention, truncation), then look at the
 * log's end again and write what was queued meanwhile. Never on an I/O loop. */
void partition_with_append_lock(struct partition *p, void (*work)(struct partition *p, void *arg), void *arg);

/* ---- deleting records ------------------------------------------------------------------------------- */

/* Who puts a new start offset on stable storage before it counts: on a disk thread, without the partition's locks.
 * Returns 0 or a negative error. To be set before the partition is shared; without it the start is kept in memory
 * only. */
void partition_on_trim(struct partition *p, int (*persist)(void *arg, int64_t start_offset), void *arg);
/* Delete the records below `before`; -1: all below the high watermark. With `validate_only` say only what would be
 * the start. Blocks on the disk and on the append lock: never on an I/O loop. Returns 0 and the start offset, which
 * does not go back any more, whatever happens; -BROOK_E_NOT_LEADER; -BROOK_E_OFFSET_OUT_OF_RANGE (beyond the high
 * watermark, or below -1); -BROOK_E_LOG_OFFLINE; a storage error (the start may have risen); with a sentence. */
int partition_delete_records(struct partition *p, int64_t before, bool validate_only, int64_t *ret_start,
                             struct brook_error *error);

/* ---- waiting for data ------------------------------------------------------------------------------- */

/* Consumers wait for the visible end, followers (at their leader) for the log's, a follower's own fetcher for the safe
 * end of the partition that it follows, and a deletion for the start of the other replicas. */
enum partition_end { PARTITION_VISIBLE_END, PARTITION_LOG_END, PARTITION_SAFE_END, PARTITION_REPLICATED_START };

/* A reader that waits until there is something at `offset` below that end. Embedded; one shot. */
struct partition_waiter {
    struct partition_waiter *next;
    struct partition_waiter **previous; /* NULL: not registered */
    int64_t offset;
    enum partition_end end;
    bool heeds_deletions; /* or until a deletion has asked for a later start than known_start */
    int64_t known_start;
    bool heeds_marks; /* or until the high watermark is beyond known_mark */
    int64_t known_mark;
    struct inbox *inbox;
    struct inbox_item item;
    void (*wake)(struct partition_waiter *w); /* own loop */
    bool posted;
};
/* Register under `state` after looking again: returns false, without registering, when there is something
 * already (or the partition is neither led nor followed here any more). `wake` runs once, on the waiter's loop: when
 * there is something, or when the role changed. It may register again from `wake`. */
bool partition_wait(struct partition *p, struct partition_waiter *w);
/* A follower's: whether consumers wait here, or have since it was asked last. */
bool partition_has_readers(struct partition *p);
/* Own loop. After this `wake` does not run any more (it is set to NULL). While `posted` is true the waiter's item
 * lies in the inbox all the same, or another thread is about to put it there: its memory must stay, unused, until the
 * inbox has run it (`posted` is false then). Who waits for that sets `wake` anew. An item of one's own posted behind
 * it does not tell: it may come in front. */
void partition_unwait(struct partition *p, struct partition_waiter *w);
#endif
