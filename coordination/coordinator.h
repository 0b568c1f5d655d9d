/* The face of ZooKeeper that the rest of the program sees.
 *
 * One thread per coordinator drives one ZooKeeper session (session.h). Verbs are asynchronous: any thread may
 * call them, they never wait, and each accepted call gets exactly one reply, run on the thread that drains
 * the inbox named in the call. Observations (below) are how state is followed: they deliver what *is*, again
 * and again, and survive reconnects and new sessions by themselves. Paths are absolute and without the chroot.
 *
 * What this does not know: what any path means (paths.h, znodes.h do), groups, brokers, topics.
 */
#ifndef BROOK_COORDINATION_COORDINATOR_H
#define BROOK_COORDINATION_COORDINATOR_H

#include "proto/base/err.h"
#include "proto/base/inbox.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct diag;
struct coordinator;

/* Limits (design: one large request must never fail its neighbours or stop the ensemble). */
#define COORDINATOR_REQUESTS_IN_FLIGHT_MAX 1000
#define COORDINATOR_REQUESTS_RESERVED 100 /* of these, for urgent calls only */
#define COORDINATOR_WATCH_PATH_BYTES_MAX (512 << 10)
#define COORDINATOR_EPHEMERAL_PATH_BYTES_MAX (512 << 10)
#define COORDINATOR_REQUEST_BYTES_MAX (900 << 10)
#define COORDINATOR_NODE_BYTES_MAX (512 << 10)

struct coordinator_settings {
    /* "host:port[,host:port...][/chroot]", also "[v6]:port". Names are resolved on a thread of their own,
     * again on trouble. Copied. */
    const char *connect;
    int session_timeout_ms; /* asked for; the server may answer another */
    /* File that keeps id and password of the session, so that the next process can close (or, with
     * `resume_session`, take up) this one's. NULL: none is kept. Copied. */
    const char *session_file;
    bool resume_session;
    const struct diag *diag; /* borrowed for the coordinator's life; NULL: silent */
};

/* Check `connect` without connecting. Returns 0 or -BROOK_E_CONFIG with a sentence. */
int coordinator_check_connect(const char *connect, struct brook_error *error);

/* Start the thread; connecting goes on in the background for ever. Returns 0, -BROOK_E_CONFIG (bad connect
 * string), -BROOK_E_NOMEM or -BROOK_E_IO. */
int coordinator_new(const struct coordinator_settings *settings, struct coordinator **ret,
                    struct brook_error *error);
/* Close the session (`keep_session`: leave it to expire or to be resumed), answer all outstanding calls with
 * -BROOK_E_CLOSED (posted before this returns), join the thread. Bounded: takes at most about `timeout_ms`,
 * however ZooKeeper behaves. NULL is fine. Not to be called from a reply. */
void coordinator_free(struct coordinator *c, bool keep_session, int timeout_ms);
/* The same, but for the memory: calls that are made afterwards are answered -BROOK_E_CLOSED by coordinator_free(),
 * which does not wait then. For callers whose replies make further calls: stop, drain, free, drain. */
void coordinator_stop(struct coordinator *c, bool keep_session, int timeout_ms);

/* ---- session ----------------------------------------------------------------------------------------- */

enum coordinator_event {
    COORDINATOR_CONNECTED, /* the session is up (again): `generation` tells whether it is a new one */
    COORDINATOR_SUSPENDED, /* the link is lost; the session may live */
    COORDINATOR_EXPIRED    /* the session is gone, all ephemerals with it; a new one is on its way */
};

struct coordinator_session {
    enum coordinator_event event;
    uint64_t generation; /* counts sessions, from 1 */
    int64_t session_id;
    int timeout_ms; /* negotiated */
    bool resumed;   /* an earlier process had this session (resume_session): its ephemerals are still there */
};

/* Events are delivered in order to `inbox`; the present state is delivered first if a session was up.
 * The listener stays until coordinator_free(). */
typedef void coordinator_session_callback(void *arg, const struct coordinator_session *session);
int coordinator_listen(struct coordinator *c, struct inbox *inbox, coordinator_session_callback *cb, void *arg);

/* The lease: until when (clock_boot_ns()) our session certainly lives, counted from the *send* time of the
 * last sync or write that succeeded; 0 while there is none. Renewed every quarter of the timeout. Any thread,
 * an atomic load. */
int64_t coordinator_lease_until_ns(const struct coordinator *c);
/* Negotiated timeout, 0 before the first session; and the present generation. Atomic loads. */
int coordinator_timeout_ms(const struct coordinator *c);
uint64_t coordinator_generation(const struct coordinator *c);
int64_t coordinator_session_id(const struct coordinator *c);
bool coordinator_is_connected(const struct coordinator *c);
/* A sentence for a caller who got no answer: what the last attempt to get ready failed with, else that the
 * servers (named as in `connect`) do not answer. Any thread. Returns error->code, negated. */
int coordinator_trouble(struct coordinator *c, struct brook_error *error);

/* ---- verbs ------------------------------------------------------------------------------------------- */

struct znode_stat {
    int64_t czxid;
    int64_t mzxid;
    int64_t pzxid;
    int64_t ephemeral_owner; /* 0: persistent */
    int32_t version;
    int32_t cversion;
    int32_t children_count;
};

/* Everything is borrowed and good during the callback only. */
struct coordinator_reply {
    /* 0; -BROOK_E_NO_NODE, _NODE_EXISTS, _BAD_VERSION, _NOT_EMPTY (certain: not applied);
     * -BROOK_E_OUTCOME_UNKNOWN (may have been applied: sync, then read), -BROOK_E_SESSION_EXPIRED (likewise,
     * and the session is gone); -BROOK_E_COORDINATION_LOST (not sent); -BROOK_E_NODE_TOO_LARGE (not sent);
     * -BROOK_E_ZOOKEEPER_AUTH; -BROOK_E_CLOSED; -BROOK_E_INVALID (bad path). */
    int err;
    uint64_t generation;     /* of the session that carried it */
    int64_t sent_ns;         /* clock_boot_ns() at sending */
    struct znode_stat stat;  /* get, exists, set, children; of create only ephemeral_owner is set */
    const char *path;        /* create: the path made (sequential: with its number) */
    const char *data;        /* get; ends in NUL, which data_bytes does not count */
    size_t data_bytes;
    const char *const *children; /* names, unsorted */
    size_t children_count;
    size_t failed_op;                /* multi: index of the op that failed first */
    const struct znode_stat *op_stats; /* multi, on success: per op (set: its new stat) */
};
typedef void coordinator_callback(void *arg, const struct coordinator_reply *reply);

/* Where and how a reply is to be delivered. */
struct coordinator_call {
    struct inbox *inbox;
    coordinator_callback *callback; /* NULL: nobody cares */
    void *arg;
    bool urgent;         /* may use the reserved part of the requests in flight */
    uint64_t generation; /* not 0: carry out in this session only, else -BROOK_E_SESSION_EXPIRED */
};

enum znode_mode { ZNODE_PERSISTENT = 0, ZNODE_EPHEMERAL = 1, ZNODE_SEQUENTIAL = 2, ZNODE_EPHEMERAL_SEQUENTIAL = 3 };

/* All copy what they are given. They can not fail but through their reply. While there is no connection,
 * calls wait for one; a call without connection for longer than the session timeout answers
 * -BROOK_E_COORDINATION_LOST. */
void coordinator_get(struct coordinator *c, const char *path, struct coordinator_call call);
void coordinator_exists(struct coordinator *c, const char *path, struct coordinator_call call);
void coordinator_children(struct coordinator *c, const char *path, struct coordinator_call call);
void coordinator_create(struct coordinator *c, const char *path, const void *data, size_t data_bytes,
                        enum znode_mode mode, struct coordinator_call call);
/* Create `path` and whatever is missing above it, all persistent and empty but the last. NODE_EXISTS when the
 * last one was there. */
void coordinator_create_path(struct coordinator *c, const char *path, const void *data, size_t data_bytes,
                             struct coordinator_call call);
/* `version` -1: any. */
void coordinator_set(struct coordinator *c, const char *path, const void *data, size_t data_bytes, int32_t version,
                     struct coordinator_call call);
void coordinator_delete(struct coordinator *c, const char *path, int32_t version, struct coordinator_call call);
/* Make reads that follow see everything written before (needed after an unknown outcome); renews the lease. */
void coordinator_sync(struct coordinator *c, const char *path, struct coordinator_call call);

/* All or nothing. */
struct coordinator_multi;
struct coordinator_multi *coordinator_multi_new(void); /* NULL: out of memory */
void coordinator_multi_free(struct coordinator_multi *multi);
/* Ops run in this order. Errors (memory, too large) are remembered and answered by the reply. */
void coordinator_multi_check(struct coordinator_multi *m, const char *path, int32_t version);
void coordinator_multi_create(struct coordinator_multi *m, const char *path, const void *data, size_t data_bytes,
                              enum znode_mode mode);
void coordinator_multi_set(struct coordinator_multi *m, const char *path, const void *data, size_t data_bytes,
                           int32_t version);
void coordinator_multi_delete(struct coordinator_multi *m, const char *path, int32_t version);
size_t coordinator_multi_count(const struct coordinator_multi *m);
size_t coordinator_multi_bytes(const struct coordinator_multi *m);
/* Takes *multi and nulls it. */
void coordinator_multi_send(struct coordinator *c, struct coordinator_multi **multi, struct coordinator_call call);

/* ---- observations ------------------------------------------------------------------------------------ */

/* An observation follows one node: its data (or absence), or its children. It reads with a watch, delivers,
 * and reads again when the watch fires, after every reconnect, in every new session, and on a slow timer.
 * A delivery means "this is the state now": equal states are not delivered twice in one session, the first
 * state of a session always is. Read errors other than NO_NODE are retried inside. */
struct observation;

enum observation_kind {
    OBSERVE_DATA,    /* reply: 0 with data and stat, or -BROOK_E_NO_NODE (its creation is then delivered) */
    OBSERVE_CHILDREN /* reply: 0 with children and stat (pzxid!), or -BROOK_E_NO_NODE */
};

/* Returns NULL (out of memory, or the budget of watched path bytes is used up). `delay_ms`: wait this long
 * (plus up to as much again, at random) after a watch fires before reading, so that bursts coalesce; 0: none. */
struct observation *coordinator_observe(struct coordinator *c, enum observation_kind kind, const char *path,
                                        int delay_ms, struct inbox *inbox, coordinator_callback *cb, void *arg);
/* Read and deliver again now, even if nothing changed. */
void observation_poke(struct observation *o);
/* To be called on the thread that drains the inbox; the callback does not run after this returned. NULL is
 * fine. */
void observation_free(struct observation *o);

/* ---- ephemeral nodes that name this process ---------------------------------------------------------- */

/* Deletes an ephemeral node only on the session that made it (`generation`), after reading ephemeralOwner
 * again: reply 0 also when it was gone or somebody else's. */
void coordinator_delete_own(struct coordinator *c, const char *path, struct coordinator_call call);
#endif
