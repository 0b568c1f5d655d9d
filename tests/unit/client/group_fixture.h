/* Members of a group in this process, each with a client of its own, against a real ZooKeeper, and a stub
 * broker that commits offsets as a broker does.
 *
 * A peer stands for a consumer: it notes what it was given and lets go of it when asked to, at once or after
 * a while.
 */
#ifndef BROOK_TESTS_GROUP_FIXTURE_H
#define BROOK_TESTS_GROUP_FIXTURE_H

#include "config.h"

#include "client/client.h"
#include "client/group_driver.h"
#include "tests/support/suite.h"
#include "tests/support/zookeeper.h"

#include <pthread.h>
#include <stdatomic.h>

#define FIXTURE_TOPICS 3
#define FIXTURE_PARTITIONS 200
#define FIXTURE_TIMEOUT_MS 2000

/* The promises about time; sanitizers slow everything down. */
#ifdef BROOK_SANITIZED
#define SECOND_MS 3000
#else
#define SECOND_MS 1000
#endif
#define TICK_MS 200
#define PATIENCE_MS 10000

extern struct zookeeper *fixture_zk;
extern const char *const fixture_topics[FIXTURE_TOPICS]; /* "alpha", "beta", "gamma" */

/* ZooKeeper as an administrator sees it, and a broker. */
struct fixture {
    char connect[200];
    struct fixture_admin *admin;
    struct stub_cluster *cluster;
};
void fixture_init(struct fixture *f, const char *chroot);
void fixture_done(struct fixture *f);
/* Create the topic, or rewrite it: with more partitions, or with another id. */
void fixture_topic(struct fixture *f, int topic, int32_t partitions, bool anew);
void fixture_delete(struct fixture *f, const char *path);
/* Put an ephemeral node of the administrator's session in a node's place, in one transaction. */
void fixture_replace(struct fixture *f, const char *path, const char *data);
bool fixture_exists(struct fixture *f, const char *path);
/* Version of the assignment node: how often it was written; -1: never. */
int32_t fixture_assignment_version(struct fixture *f);
int64_t fixture_offset(struct fixture *f, int topic, int32_t partition);
/* Requests that the server has received. */
long fixture_packets(void);

struct peer {
    struct fixture *fixture;
    struct client *client;
    struct group *group;
    int drain_ms; /* -1: does not let go by itself */
    pthread_mutex_t lock;
    struct peer_partition {
        bool has;
        bool delivers;
        int64_t offset;
        uint64_t generation;
    } partitions[FIXTURE_TOPICS][FIXTURE_PARTITIONS];
    _Atomic int assigned, revoked, lost, hurried;
    struct brook_error failure;
    struct client_timer *timer; /* of slow draining */
};

struct peer_options {
    const char *topics[FIXTURE_TOPICS + 1];
    const char *pattern;
    const char *settings[16]; /* key, value, ...: the last word */
    int drain_ms;
};
/* Never NULL. `options` NULL: topic alpha. */
struct peer *peer_new(struct fixture *f, const struct peer_options *options);
void peer_subscribe(struct peer *p, const struct peer_options *options);
/* Leave politely, wait; then free. Returns what group_leave() said. */
int peer_leave(struct peer *p, enum group_leave_mode mode);
/* As if the process was killed: the session is left to expire. */
void peer_kill(struct peer *p);
int peer_count(struct peer *p, int topic);
bool peer_has(struct peer *p, int topic, int32_t partition);
/* Where it was told to begin. */
int64_t peer_offset(struct peer *p, int topic, int32_t partition);
/* Would poll hand out records of it now? */
bool peer_delivers(struct peer *p, int topic, int32_t partition);
/* Let go of everything that is being drained, committing `offset` (-1: nothing). */
void peer_let_go(struct peer *p, int64_t offset);
/* Waits. */
int peer_commit(struct peer *p, int topic, int32_t partition, int64_t offset);
void peer_member_id(struct peer *p, char *id, size_t room);

/* Whether every partition has exactly one deliverer among the peers, and none of them differs from another by
 * more than one. Fails the test when a partition has two. */
bool peers_share(struct peer **peers, int count, int topic, int32_t partitions);
/* Wait for it; returns the ms it took, or fails the test. */
int64_t peers_settle(struct peer **peers, int count, int topic, int32_t partitions, int timeout_ms);

/* For suite_wait(). */
struct peer_gone {
    struct peer *p;
    int lost;
};
/* Nothing of topic 0. */
bool peer_delivers_nothing(void *arg);
/* At least so many partitions. */
bool peer_has_lost(void *arg);
#endif
