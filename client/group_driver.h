/* Group membership of one consumer: which partitions it may read, from where, and its commits.
 *
 * This is the driver of the pure machine in group_member.h: it carries out its effects with ZooKeeper
 * (coordinator.h) and brokers (CommitOffsets), and translates answers into events. The consumer feeds it and
 * obeys it:
 *
 *     group_subscribe ->  assigned(p, offset)   claimed: fetch and deliver from `offset` on
 *                         revoking(p)           stop delivering p now; when the application has released what
 *                                               it holds, call group_drained(p)
 *                         drain_over(p)         time is up (rebalance.drain.ms): p is gone when this returns
 *                         lost(p)               p is somebody else's already: commits are refused
 *     poll            ->  group_poll_begin, group_may_deliver before each batch handed out, group_poll_end
 *
 * A partition is the consumer's from assigned() until it called group_drained(), or drain_over() or lost()
 * was called. Marked [loop]: the client's loop thread; [any]: any thread. All callbacks run on the loop
 * thread, never inside a call of this header but group_subscribe, group_leave, group_drained, group_commit
 * and group_free.
 */
#ifndef BROOK_CLIENT_GROUP_DRIVER_H
#define BROOK_CLIENT_GROUP_DRIVER_H

#include "proto/base/err.h"

#include <brook/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct client;
struct group;

struct group_events {
    /* These were claimed: deliver from `offset` on; BROOK_OFFSET_NONE: none is stored, the reset policy
     * applies. */
    void (*assigned)(void *arg, const struct brook_position *positions, size_t count);
    /* Delivery must have stopped when this returns: a poll that runs at the same time must not hand out one
     * more batch of these. Then on_revoking may run in the next poll; group_drained() is owed for each.
     * `offset` is -1 here and below. */
    void (*revoking)(void *arg, const struct brook_position *positions, size_t count);
    /* Drop what is queued of these before this returns (as above), and tell the application with on_lost. */
    void (*lost)(void *arg, const struct brook_position *positions, size_t count);
    /* The application did not finish in time. Drop the partition as in lost(), and return the offset that may
     * still be committed (all records below were released, and enable.auto.commit is on); -1: commit nothing.
     */
    int64_t (*drain_over)(void *arg, const char *topic, int32_t partition);
    /* Something that the application should know and that does not go away by itself: the member id is in
     * use, a partition stays without an owner, the assignment is too large. For poll to return. */
    void (*failed)(void *arg, const struct brook_error *error);
    void *arg;
};

/* Reads its settings from the client's configuration: group.id, group.instance.id, state.dir,
 * session.timeout.ms, partition.assignment.strategy, max.poll.interval.ms, rebalance.drain.ms,
 * rebalance.settle.ms, group.on.lease.loss. Returns 0, -BROOK_E_CONFIG (no group.id, no zookeeper.connect,
 * ...), -BROOK_E_NOMEM. Callbacks are copied. [loop] */
int group_new(struct client *client, const struct group_events *events, struct group **ret_group,
              struct brook_error *error);
/* Forget everything at once: partitions stay claimed until the session ends. After group_leave() has called
 * back this loses nothing. No callback but `done` of commits and leave (-BROOK_E_CLOSED) runs in here. [loop]
 */
void group_free(struct group *group);

/* Join, or change the subscription (partitions that stay are not paused). Either `topics`, or one regular
 * expression (PCRE2) for whole names. Copied. Returns 0, -BROOK_E_ILLEGAL_NAME, -BROOK_E_INVALID (bad
 * expression: the sentence says where), -BROOK_E_TOO_MANY, -BROOK_E_NOMEM. [loop] */
int group_subscribe(struct group *group, const char *const *topics, size_t count, const char *pattern,
                    struct brook_error *error);
/* The same checks without a group, for brook_consumer_subscribe(). [any] */
int group_check_topics(const char *const *topics, size_t count, struct brook_error *error);
int group_check_pattern(const char *pattern, struct brook_error *error);

enum group_leave_mode {
    GROUP_LEAVE, /* drain, commit, release, delete the ids node */
    /* For a static member (group.instance.id) that closes: drain and commit, but stay registered, so that the
     * process that starts next takes up where this one stopped. As GROUP_LEAVE for other members. */
    GROUP_LEAVE_FOR_RESTART
};
/* Leave: every partition goes through revoking() as in a rebalance. `done` is called once: 0, or
 * -BROOK_E_TIMED_OUT after `timeout_ms` (whatever is left then ends with the session). Without a membership:
 * at once. [loop] */
void group_leave(struct group *group, enum group_leave_mode mode, int timeout_ms,
                 void (*done)(void *arg, int err), void *arg);
/* After a GROUP_LEAVE_FOR_RESTART: whether the session is to be kept (coordinator_free's `keep_session`).
 * [loop] */
bool group_keeps_session(const struct group *group);

/* The application is done with a partition that is being revoked. `offset`: commit this first; -1: nothing.
 * [loop] */
void group_drained(struct group *group, const char *topic, int32_t partition, int64_t offset);

/* Commit the next offsets to read. `done` is called once for the whole call, with 0 or the first error:
 * -BROOK_E_FENCED (not owned, or not any more), -BROOK_E_STALE_MEMBER, -BROOK_E_TIMED_OUT (`timeout_ms` over,
 * 0: none; it may still happen), -BROOK_E_CLOSED. Unknown outcomes are found out inside. One commit per
 * partition is under way; a newer one waits and replaces what waits (which then ends as the newer one does).
 * What is stored already is not written again. Partitions that are being drained may be committed until
 * group_drained(). `which` (what the first error is about, else NULL) is good during the call. `done` may be
 * NULL. [loop] */
typedef void group_commit_callback(void *arg, int err, const struct brook_position *which);
void group_commit(struct group *group, const struct brook_position *positions, size_t count, int timeout_ms,
                  group_commit_callback *done, void *arg);
/* The last offset known to be stored for an owned partition; -1: none or not owned. [loop] */
int64_t group_committed(const struct group *group, const char *topic, int32_t partition);

/* Around every poll of the application: a member that does not poll for max.poll.interval.ms drains, leaves
 * and comes back with the next poll. [any] */
void group_poll_begin(struct group *group);
void group_poll_end(struct group *group);
/* The lease: whether records may be handed to the application now. To be asked inside poll, right before a
 * batch is handed out, for every batch: a process that was stopped and wakes up must find out here that its
 * time is over. `generation` is group_generation() as of assigned(). False: keep the batch, it will be
 * dropped by lost() or delivered later. A few atomic loads and the clock. [any] */
bool group_may_deliver(const struct group *group, uint64_t generation);
/* The session in which partitions are being claimed now: to be read in assigned() and kept with the
 * partition. [any] */
uint64_t group_generation(const struct group *group);

/* This member's id, "" while not registered. Copies at most `room` bytes with NUL. [loop] */
void group_member_id(const struct group *group, char *buffer, size_t room);
#endif
