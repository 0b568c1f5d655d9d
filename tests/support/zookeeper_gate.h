/* A gate between one process and ZooKeeper, on loopback: it knows the framing of ZooKeeper's protocol just enough to
 * count writes (create, set, delete, multi), and shuts at the k-th of them: nothing goes either way any more but pings
 * and their answers, so that sessions live until somebody ends them. One thread of its own; every function here may be
 * called by any other thread and has taken effect when it returns.
 *
 *     zookeeper_gate_arm(gate, 2, ZOOKEEPER_GATE_SWALLOW);
 *     ...
 *     if (zookeeper_gate_is_shut(gate))     the second write was carried out, and who sent it does not know
 */
#ifndef BROOK_TESTS_ZOOKEEPER_GATE_H
#define BROOK_TESTS_ZOOKEEPER_GATE_H

#include <stdbool.h>

struct zookeeper_gate;

enum zookeeper_gate_manner {
    ZOOKEEPER_GATE_WITHHOLD, /* the k-th write and what follows it stay here */
    ZOOKEEPER_GATE_SWALLOW   /* the k-th write is the last that arrives; its answer stays here. Shut when that has come */
};

/* Which writes count: asked on the gate's thread for each, with the path of its (first) operation. */
typedef bool zookeeper_gate_counts(const char *path);

/* Open. Never NULL: prints and aborts. */
struct zookeeper_gate *zookeeper_gate_start(int zookeeper_port, zookeeper_gate_counts *counts);
/* Closes all connections. NULL is fine. */
void zookeeper_gate_stop(struct zookeeper_gate *gate);
int zookeeper_gate_port(const struct zookeeper_gate *gate);

/* Count from now on, and shut at the `kth` write (from 1). The gate must be open. */
void zookeeper_gate_arm(struct zookeeper_gate *gate, unsigned kth, enum zookeeper_gate_manner manner);
/* Do not shut any more. Returns false when that is too late: it is shut, or about to be. */
bool zookeeper_gate_disarm(struct zookeeper_gate *gate);
bool zookeeper_gate_is_shut(struct zookeeper_gate *gate);
/* Writes since it was armed, those that stay here not among them. */
unsigned zookeeper_gate_writes(struct zookeeper_gate *gate);

/* At once. New connections wait. */
void zookeeper_gate_shut(struct zookeeper_gate *gate);
/* What has stayed here goes on, in its order, unless its connection has ended. */
void zookeeper_gate_open(struct zookeeper_gate *gate);
/* Close all connections, and new ones at once, until it is opened; what has stayed here is gone. */
void zookeeper_gate_cut(struct zookeeper_gate *gate);

/* Of the writes that stayed here and went on when it was opened last: how many there were, were answered, and were
 * carried out. */
struct zookeeper_gate_late {
    unsigned count;
    unsigned answered;
    unsigned carried_out;
};
struct zookeeper_gate_late zookeeper_gate_late(struct zookeeper_gate *gate);
#endif
