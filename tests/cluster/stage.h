/* Four real brokers with a gate each on their way to ZooKeeper, and a replicated topic "t": where a controller is watched
 * at work (controller_deeds.h), and what it is asked for.
 *
 * One thread.
 */
#ifndef BROOK_TESTS_CLUSTER_STAGE_H
#define BROOK_TESTS_CLUSTER_STAGE_H

#include "tests/cluster/agreement.h"
#include "tests/support/raw_client.h"
#include "tests/support/zookeeper_gate.h"

#define STAGE_BROKERS 4

struct stage {
    struct replicated *r; /* "t" has 6 partitions of 3 replicas */
    struct zookeeper_gate *gates[STAGE_BROKERS + 1]; /* by broker */
    uint64_t seed;
    int round;          /* names of topics are made of it */
    int32_t controller; /* when the round began */
    int32_t actor;      /* whose writes are counted: the controller, or who is about to be */
    int32_t asked;      /* of whom things are asked that a client asks for */
    int32_t victim;     /* who ends for the deed's sake; 0: nobody */
    int32_t sleeper;    /* who is stopped for it, and can not be asked; 0: nobody */
    bool may_be_nothing; /* what was asked for may never have arrived */
    char topic[32];
    int32_t partitions; /* of the topic as asked for */
    int32_t others[2];  /* brokers that are not the controller */
    struct raw_client client;
    bool is_asking; /* `client` is open */
};

struct stage *stage_begin(void);
void stage_end(struct stage *s);
/* A broker that was killed, or is cut off, is dead at once. */
void stage_expire(struct stage *s, int32_t broker);
/* Wait until all brokers are there, in sync, and agree. */
void stage_wait_whole(struct stage *s, const char *what);
bool stage_exists(struct stage *s, const char *path);

/* Make a node by hand, with what is missing above it. */
void stage_put(struct stage *s, const char *path, const char *text);
/* Send it to s->asked; the answer may never come. */
void stage_ask(struct stage *s, Brook__Request *request);
/* The round's topic of this kind. */
void stage_name_topic(struct stage *s, const char *kind);
/* A topic's node, with these two brokers for each partition. Static. */
const char *stage_node_text(int partitions, int32_t first, int32_t second);
/* Write it by hand, and wait until all is whole. */
void stage_put_topic(struct stage *s, const char *kind, int partitions, int32_t first, int32_t second);
/* The topic's node. False: there is none, or it makes no sense. */
bool stage_read_node(struct stage *s, struct znode_topic *ret);
/* Partitions of the topic; 0: there is none. */
int32_t stage_count_partitions(struct stage *s);
/* Delete the topic if it is there, and wait until all is whole. */
void stage_remove_topic(struct stage *s);
/* Write so many records to each of its partitions, with acks=all; and whether each has as many now. */
void stage_fill(struct stage *s, int records);
bool stage_is_full(struct stage *s, int records);
/* Whether the broker has anything of the topic on its disk, also set aside. */
bool stage_has_directory(struct stage *s, int32_t broker);
#endif
