/* The partitions that a consumer reads, as the loop sees them: what the group driver tells the consumer, and what
 * the consumer tells the driver.
 *
 * A partition is added with a position (and, for a group, the version of its offset node) that come from one claim.
 * It is then pulled, delivered and committed without further help until it is drained, removed or lost. Which
 * member owns what, ZooKeeper, time-outs of a hand-over: the driver's, not known here. An explicit assignment uses
 * the same functions without a driver.
 *
 * The life of a partition under a group:
 *
 *     add -> (delivering) -> begin_drain -> ... -> link.drained() -> remove      given up in order
 *                         -> lost                                                somebody else's already
 *                            begin_drain -> ... -> remove                        the driver's patience has ended
 *
 * Functions: the loop's thread only, unless marked [any]. Strings are copied. Nothing here waits, and no link
 * function is called from inside a function of this header: links are called later, from the loop, so the driver
 * may call back in from them.
 */
#ifndef BROOK_CLIENT_CONSUMER_PARTITIONS_H
#define BROOK_CLIENT_CONSUMER_PARTITIONS_H

#include <brook/types.h>
#include <stdbool.h>
#include <stdint.h>

struct consumer_partitions;

/* What the driver offers the consumer. Called on the loop, but where marked [any]. Any member but
 * `deliver_until_ns` and `resolve_commit` may be NULL. */
struct consumer_link {
    /* After consumer_partition_begin_drain(): nothing of the partition is out any more, the rebalance callback has
     * run, and the last commit has ended (with success, or it was given up). Release it now, then remove. */
    void (*drained)(void *arg, const char *topic, int32_t partition);
    /* A commit of `offset` was answered with `code`: BROOK_E_FENCED or BROOK_E_STALE_MEMBER (a broker refused it), or
     * an outcome that is not known (the connection was lost, OUTCOME_UNKNOWN, a time-out). No further commit of this
     * partition is sent until the driver has found out (sync, read the offset node, then check the owner node) and
     * answers with consumer_commit_resolved(), or with consumer_partition_lost(). */
    void (*resolve_commit)(void *arg, const char *topic, int32_t partition, int64_t offset, int code);
    /* Until when (clock_boot_ns()) records may be handed out: the lease, or INT64_MAX where its loss does not
     * matter; 0: not now. Read at every poll. [any] */
    int64_t (*deliver_until_ns)(void *arg);
    /* The application called poll (at most once per millisecond or so): for max.poll.interval.ms. [any] */
    void (*polled)(void *arg);
    void *arg;
};

/* From now on these partitions belong to a group: commits carry `group` and `member` and the expected versions.
 * Before the first add; again with another member id when the driver has rejoined (no partition may be there then).
 * NULL link: back to simple. Returns 0 or -BROOK_E_NOMEM. */
int consumer_partitions_link(struct consumer_partitions *set, const char *group, const char *member,
                             const struct consumer_link *link);

/* Claimed: read it from `offset` on. BROOK_OFFSET_NONE: no offset is stored (a fact, not a failure): as
 * auto.offset.reset says. `version`: of the offset node after the claim; -1 without a group. on_assigned runs at the
 * application's next poll, before the first record. Returns 0, -BROOK_E_EXISTS or -BROOK_E_NOMEM. */
int consumer_partition_add(struct consumer_partitions *set, const struct brook_position *position, int32_t version);

/* Stop delivering: what was fetched and not handed out is dropped at once, even in the middle of a poll;
 * on_revoking runs at the application's next poll; when all batches that are out are released and the last commit
 * (of what was released, with enable.auto.commit) has ended, link.drained() is called. Unknown or already draining
 * partitions: nothing. */
void consumer_partition_begin_drain(struct consumer_partitions *set, const char *topic, int32_t partition);
/* Released (or given up): forget it. If on_revoking has not run yet, on_lost will. Batches that are still out stay
 * good but count for nothing. Commits that wait are ended with FENCED. Unknown partitions: nothing. */
void consumer_partition_remove(struct consumer_partitions *set, const char *topic, int32_t partition);
/* Somebody else's already (or the session is gone): drop everything at once; on_lost runs at the next poll. */
void consumer_partition_lost(struct consumer_partitions *set, const char *topic, int32_t partition);
/* The same for all. */
void consumer_partitions_lost(struct consumer_partitions *set);

/* The answer to link.resolve_commit(): still ours; the offset node holds `stored` (BROOK_OFFSET_NONE: empty) with
 * `version`. If `stored` is what was to be committed, it counts as done; else it is sent again. */
void consumer_commit_resolved(struct consumer_partitions *set, const char *topic, int32_t partition, int64_t stored,
                              int32_t version);

/* What the consumer reads now, for the driver's check "owned = assigned = consumed". Calls `visit` for each
 * partition that is neither draining nor removed. */
void consumer_partitions_visit(struct consumer_partitions *set,
                               void (*visit)(void *arg, const char *topic, int32_t partition), void *arg);

/* Something about the group that the application should hear: poll returns it once. `code`: positive. */
void consumer_partitions_report(struct consumer_partitions *set, int code, const char *text);
#endif
