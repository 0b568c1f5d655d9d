/* A nemesis run: real brokers, real ZooKeeper, real clients, and faults from a seed; README.md tells what must hold.
 * One at a time in a process.
 */
#ifndef BROOK_TESTS_NEMESIS_H
#define BROOK_TESTS_NEMESIS_H

#include "tests/cluster/nemesis/checker.h"
#include "tests/cluster/nemesis/gaps.h"
#include "tests/cluster/nemesis/network.h"
#include "tests/cluster/nemesis/schedule.h"
#include "tests/cluster/nemesis/topics.h"

#define NEMESIS_FAULTS_MAX 4096

struct nemesis_options {
    int brokers;    /* 1 to 9 */
    enum topics_kind topics;
    int replicas;   /* of each topic; min.insync.replicas is one less, at least 1 */
    int partitions; /* of all topics together */
    int producers;
    int groups;     /* 0 to 2, of `members` each */
    int members;
    int seconds;    /* of faults */
    uint64_t seed;
    enum network_mode mode;
    bool no_idempotence;
    bool has_power_disks; /* power can be cut: after power_disks_begin() */
    /* These, one behind the other, instead of `seconds` of those that the seed says; NULL: the seed. */
    const enum fault_kind *plan;
    size_t plan_count;
    FILE *talk;     /* each fault as it happens, and what is found; never NULL */
};

struct nemesis_fault {
    struct fault fault;
    int64_t from_ms, to_ms; /* since the beginning; until it was undone */
    struct gap leaderless;  /* longest of any partition that met it; times as above */
    struct gap silent;      /* likewise, without an acknowledgement */
};

struct nemesis_report {
    struct verdict verdict;
    bool idempotent;             /* then duplicates count */
    int64_t not_stored, unknown; /* what producers were told of the others */
    int64_t watermark_answers, watermark_breaches;
    int64_t state_breaches;      /* in the state znodes */
    int64_t offset_breaches;     /* of groups: an offset that went back */
    int64_t replicas_compared, replicas_different;
    int64_t surprises;           /* a process that ended by itself, something that was not well again in time */
    int64_t run_ms;
    struct nemesis_fault *faults;
    size_t faults_count;
};

/* Aborts when it can not even begin. */
void nemesis_run(const struct nemesis_options *options, struct nemesis_report *ret);
/* Whether all holds. */
bool nemesis_is_fine(const struct nemesis_report *r);
void nemesis_report_print(const struct nemesis_options *o, const struct nemesis_report *r, FILE *out);
/* One JSON object. */
void nemesis_report_json(const struct nemesis_options *o, const struct nemesis_report *r, FILE *out);
void nemesis_report_done(struct nemesis_report *r);
#endif
