/* A scripted ZooKeeper server: it speaks the protocol, keeps a small tree in memory, and misbehaves on
 * request, which a real server does not. One thread of its own; every function may be called by any other
 * thread.
 *
 * Sessions end only when told to (fake_zookeeper_expire(), FAKE_EXPIRE) or when their client closes them.
 */
#ifndef BROOK_TESTS_FAKE_ZOOKEEPER_H
#define BROOK_TESTS_FAKE_ZOOKEEPER_H

#include <stdbool.h>
#include <stdint.h>

struct fake_zookeeper;

/* Numbers of the protocol. */
enum fake_op {
    FAKE_CREATE = 1,
    FAKE_DELETE = 2,
    FAKE_EXISTS = 3,
    FAKE_GET = 4,
    FAKE_SET = 5,
    FAKE_SYNC = 9,
    FAKE_PING = 11,
    FAKE_CHILDREN = 12,
    FAKE_CHECK = 13,
    FAKE_MULTI = 14,
    FAKE_REMOVE_WATCHES = 18,
    FAKE_SET_WATCHES = 101,
    FAKE_CLOSE_SESSION = -11,
    FAKE_CONNECT = 0 /* the handshake */
};

/* What to do with a request, after it was applied or not. */
enum fake_answer {
    FAKE_ANSWER,    /* as a good server; with `error` set: that error */
    FAKE_STALL,     /* say nothing, now and from then on, on this connection */
    FAKE_CLOSE,     /* close the connection */
    FAKE_WRONG_XID, /* answer somebody else's request */
    FAKE_EXPIRE,    /* forget the session, and close */
    FAKE_AUTH_FAIL  /* refuse the credentials */
};

struct fake_rule {
    enum fake_op op;
    bool apply;
    enum fake_answer answer;
    int error;      /* not 0: the reply carries this code (nothing is applied) */
    unsigned skip;  /* let so many of them pass first */
    unsigned times; /* 0: once */
};

struct fake_zookeeper *fake_zookeeper_start(void);
void fake_zookeeper_stop(struct fake_zookeeper *f);
int fake_zookeeper_port(const struct fake_zookeeper *f);
/* "127.0.0.1:port" and `chroot`, in a buffer of the thread. */
const char *fake_zookeeper_connect(const struct fake_zookeeper *f, const char *chroot);

/* Rules are tried in the order added; a rule that has done its part is gone. */
void fake_zookeeper_script(struct fake_zookeeper *f, struct fake_rule rule);
/* Expire all sessions: their ephemerals go, their connections are closed. */
void fake_zookeeper_expire(struct fake_zookeeper *f);
/* Close all connections. */
void fake_zookeeper_cut(struct fake_zookeeper *f);
/* Send a reply that nobody has asked for. */
void fake_zookeeper_babble(struct fake_zookeeper *f);

/* How many requests of a kind came in (FAKE_CONNECT: handshakes), and rules are left. */
unsigned fake_zookeeper_count(struct fake_zookeeper *f, enum fake_op op);
unsigned fake_zookeeper_rules(struct fake_zookeeper *f);
/* The version of a node, or -1 when there is none. */
int fake_zookeeper_version(struct fake_zookeeper *f, const char *path);
/* Make, change or remove a node behind the clients' backs; watches fire. */
void fake_zookeeper_put(struct fake_zookeeper *f, const char *path, const char *data);
void fake_zookeeper_remove(struct fake_zookeeper *f, const char *path);
#endif
