/* Real brokers and a replicated topic "t": a producer with acks=all that remembers what was acknowledged, an
 * administrator, and looks into ZooKeeper and into the data directories. For tests of what faults may not do.
 *
 * One thread. What takes too long fails the test, with the ends of the brokers' logs.
 */
#ifndef BROOK_TESTS_CLUSTER_REPLICATED_H
#define BROOK_TESTS_CLUSTER_REPLICATED_H

#include "coordination/paths.h"
#include "coordination/znodes.h"
#include "tests/support/brokers.h"
#include "tests/support/caller.h"
#include "tests/support/suite.h"
#include "tests/support/zookeeper.h"

#define REPLICATED_WAIT_MS 20000

struct replicated {
    struct brokers *b;
    struct caller caller;
    struct coordinator *zk;
    brook_config *config;
    brook_admin *admin;
    brook_producer *producer;
    int32_t partitions;
    int32_t replicas;
    int64_t sent;
    int64_t stored;
    int64_t failed;
    uint8_t *acknowledged; /* by number */
};

/* Followers that do not pull leave the ISR after a second; sessions of two. `options` may be NULL; its settings take
 * the place of these. Static. */
struct replicated *replicated_begin(int brokers, const struct brokers_options *options);
void replicated_end(struct replicated *r);

/* Make "t" (or another), and wait until all replicas are in sync. `setting`: "key=value" of the topic, or NULL. */
void replicated_topic(struct replicated *r, const char *topic, int32_t partitions, int32_t replicas,
                      const char *setting);
/* Number `count` records of "t" and send them: number n to partition n % partitions. */
void replicated_send(struct replicated *r, int64_t count);
/* Wait until each was answered; all of them must be stored. */
void replicated_flush(struct replicated *r);

/* The state as stored; false: there is none. */
bool replicated_state(struct replicated *r, const char *topic, int32_t partition, struct znode_state *ret,
                      int32_t *ret_version);
int32_t replicated_leader(struct replicated *r, const char *topic, int32_t partition);
/* Wait until these brokers (digits) and no others are in sync in all partitions of "t", and one of them leads. */
void replicated_wait_isr(struct replicated *r, const char *brokers);
/* Another broker than this one leads the partition; returns it. */
int32_t replicated_wait_other_leader(struct replicated *r, const char *topic, int32_t partition, int32_t than);
bool replicated_wait(struct replicated *r, bool (*condition)(void *arg), void *arg, int timeout_ms);
/* Whether the broker's log has the text in it, `times` times at least. Wait for it. */
bool replicated_has_said(struct replicated *r, int id, const char *text, int times);
void replicated_wait_said(struct replicated *r, int id, const char *text, int times);
int replicated_count_said(struct replicated *r, int id, const char *text);
/* The present controller; waits for one that is not `than`. */
int32_t replicated_wait_controller(struct replicated *r, int32_t than);

/* The ends of the brokers' logs, for whoever has to find out why. */
void replicated_show(struct replicated *r);

/* A broker's directory of a partition. Static. */
const char *replicated_directory(struct replicated *r, int id, const char *topic, int32_t partition);
/* What a power cut takes: the last `bytes` of the newest segment, of a broker that does not run. Returns how many there
 * were to take. */
size_t replicated_cut_tail(struct replicated *r, int id, const char *topic, int32_t partition, size_t bytes);

/* Read "t" from its start: whatever was acknowledged is there, in order. Then, with all in sync, the replicas' files must
 * be the same. */
void replicated_check(struct replicated *r);
#endif
