/* What ZooKeeper says of the topics of a nemesis run, read again and again, directly and not through what the nemesis
 * cuts: states of partitions, offsets of groups. Notes times without a leader and breaches of what may never be seen
 * there. A thread of its own; any thread may ask. */
#ifndef BROOK_TESTS_NEMESIS_WATCH_H
#define BROOK_TESTS_NEMESIS_WATCH_H

#include "tests/cluster/nemesis/gaps.h"
#include "tests/cluster/nemesis/topics.h"

#include <stdio.h>

#define WATCH_PARTITIONS_MAX 64
#define WATCH_REPLICAS_MAX 9
#define WATCH_GROUPS_MAX 4

struct watch_options {
    const char *connect;
    const struct topics *topics; /* must exist; borrowed */
    int brokers;
    const char *groups[WATCH_GROUPS_MAX];
    int groups_count;
    /* Whether the broker's process runs now: one that does not leads nothing, whatever the state says. Any thread. */
    bool (*is_up)(void *arg, int broker);
    void *is_up_arg;
    FILE *findings; /* breaches are told there */
};

struct watch_state {
    bool is_known;
    int32_t leader;
    int32_t leader_epoch;
    int32_t isr[WATCH_REPLICAS_MAX];
    int64_t isr_epochs[WATCH_REPLICAS_MAX];
    int isr_count;
    int32_t replicas[WATCH_REPLICAS_MAX]; /* first the preferred leader */
    int replicas_count;
};

struct watch;
/* Never NULL. */
struct watch *watch_new(const struct watch_options *options);
void watch_free(struct watch *w);

/* Wait until all states were read after this call began; false after `timeout_ms`. Then the caller may look. */
bool watch_fresh(struct watch *w, int timeout_ms);
/* As last read. */
void watch_state(struct watch *w, int32_t partition, struct watch_state *ret);
/* -1: none is stored, or it could not be read yet. */
int64_t watch_committed(struct watch *w, int group, int32_t partition);
/* The broker's process is started now: it is not well before it has registered anew. */
void watch_started(struct watch *w, int broker);
/* Every partition has a leader whose process runs, and all its replicas in sync, and processes that run: by what they
 * are registered as now, not as they were before they died. */
bool watch_all_in_sync(struct watch *w);
/* Whether any state lists the broker as in sync; and whether all that do list another whose process runs. */
bool watch_is_in_sync_anywhere(struct watch *w, int broker);
bool watch_has_others_in_sync(struct watch *w, int broker);
/* Two leaders in one epoch, an epoch that went back, an empty or foreign ISR; offsets of a group that went back. */
int64_t watch_state_breaches(struct watch *w);
int64_t watch_offset_breaches(struct watch *w);
/* Borrowed. */
struct gaps *watch_leaderless(struct watch *w);
#endif
