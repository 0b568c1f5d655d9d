/* The checker: what was acknowledged, what was seen, and whether both fit the logs as they are at the end. Pure, one
 * thread. It knows no broker and no time.
 *
 *     struct checker *c = checker_new(partitions);
 *     checker_log(c, ...);                  all records of all partitions, each partition by rising offset; those that
 *                                           were deleted, as a reader had been given them before
 *     checker_start(c, ...);                for each partition of which records were deleted
 *     checker_acknowledged(c, &trail);      any number of times
 *     checker_reader(c, &trail);            once for each reader
 *     checker_group(c, trails, count);      once for each group
 *     const struct verdict *v = checker_judge(c, stderr);
 */
#ifndef BROOK_TESTS_NEMESIS_CHECKER_H
#define BROOK_TESTS_NEMESIS_CHECKER_H

#include "tests/cluster/nemesis/trail.h"

#include <stdio.h>

struct verdict {
    int64_t acknowledged;
    int64_t in_log;       /* records at the end */
    int64_t seen;         /* by readers and groups, all together */
    int64_t seen_again;   /* by groups: after a member died they may */
    int64_t lost;         /* acknowledged, and not in the log */
    int64_t moved;        /* acknowledged with an offset that holds another record */
    int64_t duplicated;   /* places in the log whose record stands in front of them already */
    int64_t out_of_order; /* first places in the log below an earlier record's of the same producer */
    int64_t acknowledged_out_of_order; /* of these, by acknowledged offsets alone */
    int64_t foreign;      /* in the log, and no producer wrote it */
    int64_t vanished;     /* seen at an offset that holds another record, or none */
    int64_t skipped;      /* in the log, and a reader went past it */
    int64_t backwards;    /* a reader was given an offset at or below its last */
    int64_t missed;       /* in the log, and no member of a group saw it */
    int64_t deleted;      /* offsets below the logs' starts at the end */
    int64_t dropped;      /* of these, without anybody having asked for it */
    int64_t undeleted;    /* deletions that were confirmed and are not done */
};

struct checker;
/* Aborts when out of memory, as all below. */
struct checker *checker_new(int32_t partitions);
void checker_free(struct checker *c);

void checker_log(struct checker *c, struct trail_entry entry);
/* Where a partition's log begins at the end, below which offset the deletion of its records was asked for, and up to
 * where that was confirmed; 0: never. */
void checker_start(struct checker *c, int32_t partition, int64_t start, int64_t asked, int64_t confirmed);
/* An offset below 0: it was not told, as for a repeated batch that the broker remembers vaguely. The record must be
 * there. */
void checker_acknowledged(struct checker *c, const struct trail *trail);
/* One that reads every partition from its first record, alone. */
void checker_reader(struct checker *c, const struct trail *trail);
/* Members, of all their lives. At least once: again is allowed, never is not. */
void checker_group(struct checker *c, const struct trail *trails, size_t count);

/* `findings`: the first of each kind are told there, a line each; NULL: nowhere. After the last of the above. */
const struct verdict *checker_judge(struct checker *c, FILE *findings);
#endif
