/* Brokers without a network, in one process: each a real cluster thread on a directory of its own; the test
 * plays the I/O loop of all of them, and an administrator who looks into ZooKeeper.
 *
 * One thread. Everything fails the test when it takes longer than NODE_TIMEOUT_MS.
 */
#ifndef BROOK_TESTS_CLUSTER_NODE_H
#define BROOK_TESTS_CLUSTER_NODE_H

#include "broker/cluster/cluster.h"
#include "coordination/paths.h"
#include "proto/base/diag.h"
#include "tests/support/caller.h"
#include "tests/support/suite.h"
#include "tests/support/zookeeper.h"

#include <stdatomic.h>

#define NODES_MAX 4
#define NODE_TIMEOUT_MS 15000
#define NODE_SESSION_MS 2000

struct node {
    int32_t id;
    struct cluster *cluster; /* NULL: not running */
    struct inbox inbox;
    struct view *view;
    unsigned ready_count;
    struct brook_error ready_error;
    char directory[512];
    struct diag diag;
    _Atomic unsigned warnings;
    _Atomic unsigned recovered; /* logs that were scanned at the start */
    int64_t retention_check_ms;
    int64_t rebalance_interval_ms; /* 0: leaders are not given back by themselves */
    int64_t absent_wait_ms;
    int32_t replicas_max; /* 0: the product's */
    bool is_told; /* of a result */
    struct cluster_topic_result result;
};

struct world {
    const char *connect;
    struct node nodes[NODES_MAX]; /* ids 1 .. NODES_MAX */
    struct caller caller;
    struct coordinator *admin;
};

/* A world of its own in the chroot; the administrator is connected, no node runs. Static. */
struct world *world_begin(struct zookeeper *zk, const char *chroot);
/* Stops what runs. */
void world_end(struct world *w);
struct node *world_node(struct world *w, int32_t id);

/* Start; node_start_at(): with another directory or broker id than its own. */
void node_start(struct world *w, struct node *n);
void node_start_at(struct world *w, struct node *n, int32_t broker_id, const char *directory);
/* The same, but it may be refused. Returns what cluster_new() does. */
int node_try_start_at(struct node *n, const char *connect, int32_t broker_id, const char *directory,
                      struct brook_error *error);
void node_wait_ready(struct world *w, struct node *n);
/* Drain and free, as at SIGTERM. */
void node_stop(struct world *w, struct node *n);
/* cluster_free() without cluster_drain(). */
void node_drop(struct world *w, struct node *n);

/* Drain every inbox until the condition holds. */
bool world_try(struct world *w, bool (*condition)(void *arg), void *arg, int timeout_ms);
void world_wait(struct world *w, bool (*condition)(void *arg), void *arg);
void world_idle(struct world *w, int ms);

/* Intents; wait for the answer and return its code (positive). */
int node_create(struct world *w, struct node *n, const char *topic, int32_t partitions);
int node_create_with(struct world *w, struct node *n, const struct cluster_new_topic *topic, bool validate_only);
int node_delete(struct world *w, struct node *n, const char *topic);
int node_grow(struct world *w, struct node *n, const char *topic, int32_t partitions);
/* Only begin; n->is_told and n->result tell. */
void node_begin_create(struct node *n, const char *topic, int32_t partitions, int timeout_ms);
void node_begin_delete(struct node *n, const char *topic, int timeout_ms);

/* The topic in the node's view; NULL: not there. */
const struct view_topic *node_topic(const struct node *n, const char *topic);
/* Leader of a partition in the node's view; -2: no such partition. */
int32_t node_leader(const struct node *n, const char *topic, int32_t partition);
/* Wait until the node's view names this leader, and if it is the node itself, until it does lead. */
void node_wait_leader(struct world *w, struct node *n, const char *topic, int32_t partition, int32_t leader);
void node_wait_topic_gone(struct world *w, struct node *n, const char *topic);
/* Whether "<topic>-<partition>" is there in the node's directory. */
bool node_has_directory(const struct node *n, const char *topic, int32_t partition);

/* As administrator. */
const struct got *admin_get(struct world *w, const char *path);
bool admin_exists(struct world *w, const char *path);
const struct got *admin_children(struct world *w, const char *path);
int admin_create(struct world *w, const char *path, const char *data);
int admin_set(struct world *w, const char *path, const char *data, int32_t version);
int admin_delete(struct world *w, const char *path);
int32_t admin_controller(struct world *w); /* -1: nobody */
/* End the node's ZooKeeper session from outside, with the password in its session file. */
void admin_expire(struct world *w, const struct node *n);
#endif
