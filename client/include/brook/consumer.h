/* Consumer: read partitions by hand (assign) or share topics with a group (subscribe).
 *
 *     brook_batch *batch;
 *     while (brook_consumer_poll(c, 1000, &batch, &error) == 0) {
 *         struct brook_message m;
 *         while (brook_batch_next(batch, &m) == 0)
 *             use(m.value, m.value_bytes);
 *         brook_batch_release(batch);          // now its records count as processed
 *     }
 *
 * A batch is a run of consecutive records of one partition, viewed where the network put them: nothing is copied.
 * Its views are good until it is released, which may happen on any thread, in any order, and even after close.
 * A record is processed when its batch is released: auto-commit, commit without positions, and the hand-over of
 * partitions go by that. One thread at a time may poll; the rest may be called from any thread.
 */
#ifndef BROOK_CONSUMER_H
#define BROOK_CONSUMER_H

#include <brook/config.h>
#include <brook/types.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct brook_consumer brook_consumer;
typedef struct brook_batch brook_batch;

struct brook_message {
    int64_t offset;
    int64_t timestamp; /* ms since 1970 */
    const void *key;   /* NULL: none */
    size_t key_bytes;
    const void *value; /* NULL: null */
    size_t value_bytes;
    size_t headers_count;
    const void *headers_; /* the library's: brook_message_header() */
    const void *headers_end_;
};

/* Called inside poll and close. on_assigned: these were claimed. on_revoking: delivery of these has stopped; commit
 * what is done now (the call ends the chance). on_lost: these are somebody else's already: commits will be refused. */
struct brook_rebalance {
    void (*on_assigned)(void *arg, const struct brook_position *positions, size_t count);
    void (*on_revoking)(void *arg, const struct brook_position *positions, size_t count);
    void (*on_lost)(void *arg, const struct brook_position *positions, size_t count);
    void *arg;
};

int brook_consumer_new(const brook_config *config, brook_consumer **ret_consumer, struct brook_error *error);
/* Before subscribe. Any member of `callbacks` may be NULL. Copied. */
void brook_consumer_on_rebalance(brook_consumer *consumer, const struct brook_rebalance *callbacks);
/* Leave the group: stop delivery, commit what was released (with enable.auto.commit), release partitions, all
 * within `timeout_ms`; then free. Batches still out stay good. Returns 0 or -BROOK_E_TIMED_OUT. */
int brook_consumer_close(brook_consumer *consumer, int timeout_ms);

/* Join the group `group.id` for these topics (which need not exist yet). Replaces an earlier subscription.
 * Returns 0, -BROOK_E_CONFIG (no group.id or no zookeeper.connect), -BROOK_E_ILLEGAL_NAME, -BROOK_E_INVALID (assign
 * is in use). */
int brook_consumer_subscribe(brook_consumer *consumer, const char *const *topics, size_t count,
                             struct brook_error *error);
/* All topics, present and future, whose whole name matches a regular expression (PCRE2). */
int brook_consumer_subscribe_pattern(brook_consumer *consumer, const char *pattern, struct brook_error *error);
/* Leave the group, keep the handle. */
int brook_consumer_unsubscribe(brook_consumer *consumer, struct brook_error *error);
/* Read exactly these partitions from these offsets (or BROOK_OFFSET_...). No group membership, no ZooKeeper.
 * Replaces an earlier assignment; count 0 ends it. Whether an offset is in the log's range shows when it is read: with
 * auto.offset.reset=none poll reports -BROOK_E_OFFSET_OUT_OF_RANGE, else it goes there and logs a warning. */
int brook_consumer_assign(brook_consumer *consumer, const struct brook_position *positions, size_t count,
                          struct brook_error *error);

/* The next batch; wait up to `timeout_ms` (-1: as long as it takes). Runs rebalance callbacks. Returns 0 and
 * *ret_batch, which the caller must release; -BROOK_E_AGAIN: nothing came in time; else an event that belongs to the
 * partition named in the sentence (and in *ret_position, if wanted): -BROOK_E_CORRUPT_BATCH,
 * -BROOK_E_OFFSET_OUT_OF_RANGE (auto.offset.reset=none), -BROOK_E_NO_OFFSET, -BROOK_E_UNKNOWN_TOPIC, ... It is
 * reported once per occurrence; other partitions go on; seek past the place to skip it.
 *
 * -BROOK_E_LOG_DIVERGED: records that this consumer was given are gone from the log, from the named offset on, and
 * others take their places. That happens where a replica without them was elected (unclean.leader.election.enable) or
 * where all replicas lost what they had not synced. It is found by the leader epochs of the records that were read
 * since assign, subscribe or seek, before the first record is given out that does not belong behind them; a stored
 * offset carries no epoch. With auto.offset.reset=none the partition then waits for a seek, else it goes on at the
 * named offset. What is still out of it counts for nothing. */
int brook_consumer_poll(brook_consumer *consumer, int timeout_ms, brook_batch **ret_batch,
                        struct brook_error *error);
/* The partition and offset that the last error of poll was about (same thread). Topic NULL: none. */
void brook_consumer_error_position(const brook_consumer *consumer, struct brook_position *ret_position);

/* ---- batches ------------------------------------------------------------------------------------------ */

const char *brook_batch_topic(const brook_batch *batch);
int32_t brook_batch_partition(const brook_batch *batch);
/* End of the partition (high watermark) when the batch was pulled. */
int64_t brook_batch_high_watermark(const brook_batch *batch);
/* Returns 0 and the next record, or -BROOK_E_AGAIN behind the last. (Checked before: it can not fail.) */
int brook_batch_next(brook_batch *batch, struct brook_message *ret_message);
/* Header `index` < headers_count of a message. Returns 0 or -BROOK_E_INVALID. */
int brook_message_header(const struct brook_message *message, size_t index, struct brook_header *ret_header);
/* Done with it: its records count as processed. NULL is fine. */
void brook_batch_release(brook_batch *batch);
/* Give it back unprocessed from `next_offset` on: only records below count, and are not delivered again by this. */
void brook_batch_release_at(brook_batch *batch, int64_t next_offset);

/* ---- positions ------------------------------------------------------------------------------------------ */

enum brook_commit_mode { BROOK_COMMIT_SYNC, BROOK_COMMIT_ASYNC };
/* Store the group's offsets: of what was released (positions NULL), or exactly these. Partitions that this member
 * does not own any more are refused: -BROOK_E_FENCED. Sync: waits up to `timeout_ms`; on -BROOK_E_OUTCOME_UNKNOWN the
 * library finds out by itself before it answers, so far as time allows. */
int brook_consumer_commit(brook_consumer *consumer, const struct brook_position *positions, size_t count,
                          enum brook_commit_mode mode, int timeout_ms, struct brook_error *error);
/* `offset` may be BROOK_OFFSET_EARLIEST or _LATEST. What was fetched before is dropped. -BROOK_E_NOT_ASSIGNED. */
int brook_consumer_seek(brook_consumer *consumer, const char *topic, int32_t partition, int64_t offset,
                        struct brook_error *error);
/* To the first record with timestamp >= `timestamp_ms` (end if there is none). Waits up to `timeout_ms`. */
int brook_consumer_seek_to_time(brook_consumer *consumer, const char *topic, int32_t partition, int64_t timestamp_ms,
                                int timeout_ms, struct brook_error *error);
/* Stop and resume delivery of a partition; it stays assigned. */
int brook_consumer_pause(brook_consumer *consumer, const char *topic, int32_t partition, struct brook_error *error);
int brook_consumer_resume(brook_consumer *consumer, const char *topic, int32_t partition, struct brook_error *error);
/* Offset of the next record that poll will deliver, -1 while not known. */
int brook_consumer_position(brook_consumer *consumer, const char *topic, int32_t partition, int64_t *ret_offset);
/* The group's stored offset: BROOK_OFFSET_NONE when none is stored (which is not an error). */
int brook_consumer_committed(brook_consumer *consumer, const char *topic, int32_t partition, int timeout_ms,
                             int64_t *ret_offset, struct brook_error *error);
/* Records between position and high watermark, as far as known; -1: not known. */
int brook_consumer_lag(brook_consumer *consumer, const char *topic, int32_t partition, int64_t *ret_records);
/* What is assigned (and owned) now. The array and its strings are one block for free(). */
int brook_consumer_assignment(brook_consumer *consumer, struct brook_position **ret_positions, size_t *ret_count);
/* This member's id in the group, "" outside of one. Copies at most `room` bytes with NUL. */
int brook_consumer_member_id(brook_consumer *consumer, char *buffer, size_t room);

/* Readable while poll would not wait. Owned by the handle. */
int brook_consumer_fd(const brook_consumer *consumer);
/* A JSON object; free() it. */
char *brook_consumer_statistics(brook_consumer *consumer);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
