/* What lies between the brokers of a nemesis run, and how to cut it.
 *
 * NETWORK_LOOPBACK: all on 127.0.0.1. What a broker advertises is a proxy's address, and what it is told to be
 * ZooKeeper's too; a proxy finds out by /proc which broker a connection comes from, so each direction between two
 * brokers can be held alone. Clients' connections to a broker are not touched by cuts between brokers.
 * NETWORK_HOSTS (root): each broker in a network namespace of its own on one bridge, ZooKeeper and the clients on the
 * bridge's host under two addresses. A direction is cut by a false neighbour entry: packets leave and nobody takes
 * them, as on a broken link. Everything is named after this process; network_sweep() removes what is left of those
 * that have ended.
 *
 * One thread calls; the proxies have threads of their own.
 */
#ifndef BROOK_TESTS_NEMESIS_NETWORK_H
#define BROOK_TESTS_NEMESIS_NETWORK_H

#include "tests/support/brokers.h"

#define NETWORK_BROKERS_MAX 9
/* The other end of a cut, beside the brokers 1 to 9. */
#define NETWORK_ZOOKEEPER 0

enum network_mode { NETWORK_LOOPBACK, NETWORK_HOSTS };
struct network;

/* Never NULL: prints and aborts. NETWORK_HOSTS makes the namespaces of brokers 1 to `count`. */
struct network *network_new(enum network_mode mode, int count);
void network_free(struct network *n);
/* Remove bridges and namespaces of processes that are gone. */
void network_sweep(void);

/* For struct brokers_options; NULL: 127.0.0.1. */
const char *network_zookeeper_address(const struct network *n);
/* A struct brokers_options place; `arg` is the network. */
void network_place(void *arg, const struct zookeeper *zookeeper, int id, struct brokers_place *place);
/* Which process broker `id` is; 0: none. */
void network_set_pid(struct network *n, int id, pid_t pid);
/* Close all connections, so that those made before the processes were known are made again. */
void network_reconnect(struct network *n);

/* What `from` sends does not reach `to` any more. One of them may be NETWORK_ZOOKEEPER. Cuts do not add up. */
void network_cut(struct network *n, int from, int to);
/* It does again. `reset`: connections between the two end; else what was on its way still arrives. */
void network_heal(struct network *n, int from, int to, bool reset);
#endif
