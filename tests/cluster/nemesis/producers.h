/* Producers of a nemesis run: threads that write (producer, sequence) to every partition at a steady rate, with
 * acks=all, and note what was acknowledged. */
#ifndef BROOK_TESTS_NEMESIS_PRODUCERS_H
#define BROOK_TESTS_NEMESIS_PRODUCERS_H

#include "tests/cluster/nemesis/checker.h"
#include "tests/cluster/nemesis/gaps.h"
#include "tests/cluster/nemesis/topics.h"

#include <brook/brook.h>

struct producers_options {
    const brook_config *config; /* borrowed during producers_new() */
    const struct topics *topics; /* borrowed */
    int count;
    int pause_ms;       /* between two records of one producer for one partition */
    struct gaps *acks;  /* borrowed: told of every acknowledgement */
};
struct producers;
/* Never NULL. */
struct producers *producers_new(const struct producers_options *options);
/* No new records; wait until all are reported. False: not all were within `timeout_ms`. */
bool producers_stop(struct producers *p, int timeout_ms);
/* After producers_stop(). */
void producers_testify(const struct producers *p, struct checker *c);
/* Records of which nobody knows whether they were stored, and those that were not. */
int64_t producers_unknown(const struct producers *p);
int64_t producers_refused(const struct producers *p);
/* Acknowledged so far; any thread, any time. */
int64_t producers_acknowledged(struct producers *p);
void producers_free(struct producers *p);
#endif
