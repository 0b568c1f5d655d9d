/* Whether a cluster is whole: everything that lies in ZooKeeper makes sense and waits for nobody, and every broker tells
 * clients the same of it. For tests of controllers that end in the middle of something.
 *
 * One thread.
 */
#ifndef BROOK_TESTS_CLUSTER_AGREEMENT_H
#define BROOK_TESTS_CLUSTER_AGREEMENT_H

#include "tests/cluster/replicated.h"

struct agreement {
    struct replicated *r;
    const char *alive;   /* digits: exactly these brokers are registered */
    const char *asked;   /* of these, whose metadata is compared */
    bool is_all_in_sync; /* each partition has all its replicas in sync */
    char why[300];       /* what was found wrong last */
};

/* Look once. True when
 * - exactly those brokers are registered, and one of them is the controller;
 * - no deletion, plan or election waits in /admin, and no partition is being moved;
 * - each partition of each topic has a state, whose ISR is of its replicas, and a leader that is alive and in sync, unless
 *   nobody in sync is alive;
 * - the metadata of each broker that is asked names that controller, and topics, partitions, leaders, epochs, replicas
 *   and ISR as they are stored.
 * `arg` is a struct agreement: for replicated_wait(). */
bool agreement_holds(void *arg);
/* Wait for it, or fail the test with what is wrong. */
void agreement_wait(struct agreement *a, const char *what);
/* The port that the broker is registered with; 0: it is not. */
int agreement_port(struct replicated *r, int32_t broker);
#endif
