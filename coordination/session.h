/* The inside of a coordinator: what its thread owns, and what the parts of the room ask of one another.
 *
 * One thread, one ZooKeeper handle, one poll() loop. The library calls our completions and watchers from
 * within its own functions, where the handle must not be touched: they note what happened and return, and
 * the loop acts on it when the library has returned. Everything here belongs to the session thread, but for
 * the atomics and what says so.
 *
 * session.c   the thread: its loop, the states of a session, listeners, timers of the session itself
 * link.c      the handle: addresses, connecting with back-off, driving, closing
 * dispatch.c  requests: queueing, sending, completing, answering
 * observe.c   observations; composite.c, ephemeral.c: machines made of several requests
 */
#ifndef BROOK_COORDINATION_SESSION_H
#define BROOK_COORDINATION_SESSION_H

#include "coordination/coordinator.h"
#include "coordination/ledger.h"
#include "coordination/lease.h"
#include "coordination/request.h"
#include "coordination/servers.h"
#include "coordination/session_file.h"
#include "coordination/timers.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <zookeeper/zookeeper.h>

struct resolver;
struct listener;
struct closer;
struct watch_path;
struct machine;

/* Bytes that the library may hold for sending at a time. */
#define SESSION_SEND_BYTES_MAX ((size_t)8 << 20)
/* A read that was lost with its link is sent again, this often. */
#define SESSION_READ_SENDS_MAX 5

struct link {
    zhandle_t *zh; /* NULL: none now */
    int fd;        /* the handle's, as last told; -1: none */
    int interest;
    int64_t wake_ms;       /* when the handle wants to be called at the latest */
    bool is_up;            /* connected, as we have noted it */
    bool reconnected;      /* the library said "connected" since we last looked */
    int64_t since_ms;      /* is_up: since when; else since when not */
    int64_t retry_at_ms;   /* no attempt before */
    int64_t attempt_at_ms; /* when the present attempt to connect began */
    int64_t complain_at_ms;
    unsigned failures; /* attempts that failed, since a link lasted */
    unsigned flaps;    /* links in a row that were lost at once */
    struct addresses addresses;
    bool is_stale; /* the handle was made with other addresses than these */
    int64_t resolve_at_ms;
    struct resolver *resolver; /* at work; NULL: none */
    unsigned resolve_failures;
    unsigned handles_made;
};

struct queue {
    struct request *early; /* utlist heads; early: part of preparing the session, sent before it is ready */
    struct request *urgent;
    struct request *normal;
    struct request *flying; /* held by the library, in the order sent */
    struct request *completed;
    size_t flying_count;
    size_t flying_bytes;
    uint64_t progress; /* counts what the library has called us for */
};

struct watches {
    struct observation *by_id;  /* uthash */
    struct watch_path *by_path; /* uthash */
    struct observation *fired;  /* list; noted by the watcher */
    _Atomic uint64_t last_id;   /* any thread */
    _Atomic size_t bytes;       /* any thread */
};

struct coordinator {
    /* Set once, read by any thread. */
    struct servers servers;
    int timeout_asked_ms;
    bool resume_session;
    const struct diag *diag;
    struct inbox inbox;
    pthread_t thread;
    bool is_joined;

    /* For readers in any thread. */
    _Atomic int64_t lease_until_ns;
    _Atomic int64_t session_id;
    _Atomic int timeout_ms;
    _Atomic uint64_t generation;
    _Atomic bool is_connected;
    pthread_mutex_t trouble_lock;
    struct brook_error trouble; /* under trouble_lock: what is known to stand in the way; code 0: nothing */

    /* Stopping: coordinator_free() and the session thread. */
    bool stopping; /* session thread */
    bool keep_session;
    int64_t stop_until_ms;
    int done_fd; /* readable when the thread is about to end */
    pthread_mutex_t close_lock;
    int closing_fd; /* under close_lock: a copy of the socket that a close may be blocked on, or -1 */
    _Atomic bool out_of_time;

    /* The session thread's own. */
    struct link link;
    struct queue queue;
    struct watches watches;
    struct timers timers;
    struct lease lease;
    struct ledger ledger;
    struct session_file file;
    struct session_key key; /* of the present session; id 0: none */
    int64_t resuming_id;    /* the session of an earlier process that we try to take up; 0: none */
    bool is_alive;          /* `key` was accepted by a server in this process, and not expired */
    bool is_ready;          /* connected and prepared: requests flow */
    bool resumed;           /* the present session was an earlier process's */
    int64_t not_ready_since_ms;
    bool chroot_exists;  /* seen or made in this session */
    uintptr_t preparing; /* counts preparations, so that late replies of an earlier one are ignored */
    size_t chroot_level; /* bytes of the chroot that have been created so far */
    struct timer prepare_timer;
    struct listener *listeners;
    struct closer *closers;
    struct machine *machines; /* composite calls under way */
    uint64_t seed;
};

/* ---- session.c ----------------------------------------------------------------------------------------- */

int64_t session_now_ms(void);
/* About `ms`, between half of it and one and a half. */
int64_t session_jitter(struct coordinator *c, int64_t ms);
/* The timeout that holds: negotiated, or the one asked for. */
int session_timeout(const struct coordinator *c);
/* The link came up or went down, or the handle is dead (link.c tells). */
void session_link_up(struct coordinator *c);
void session_link_down(struct coordinator *c);
void session_expired(struct coordinator *c);
/* A sync or write was answered. */
void session_renew_lease(struct coordinator *c, const struct request *r);
/* The thread's function, and freeing what it owned after it has ended. */
void *session_run(void *coordinator);
void session_done(struct coordinator *c);
/* Remember for coordinator_trouble(); code 0: nothing stands in the way any more. */
void session_note_trouble(struct coordinator *c, int code, const char *text);
/* Run `run` on the session thread; `item` lives in the caller's object. Any thread. */
void session_post(struct coordinator *c, struct inbox_item *item, void (*run)(struct inbox_item *item));

/* ---- link.c -------------------------------------------------------------------------------------------- */

void link_init(struct coordinator *c);
/* Keep a handle alive: resolve, create, see in which state it is. */
void link_turn(struct coordinator *c, int64_t now_ms);
/* Tell the descriptor to wait for, and when to come back. */
void link_interest(struct coordinator *c, int64_t now_ms);
/* Something happened on the descriptor, or it is time. */
void link_process(struct coordinator *c, int poll_events);
/* Cut the connection, without a word to the server; the session may go on. */
void link_drop(struct coordinator *c);
/* Destroy the handle. `close_session`: tell the server, if connected; this may block, see coordinator_free().
 */
void link_destroy(struct coordinator *c, bool close_session);
void link_done(struct coordinator *c);
int64_t link_wake_ms(const struct coordinator *c);
/* Close any handle so that coordinator_free() can cut it short. */
void link_close_handle(struct coordinator *c, zhandle_t *zh, int fd);
/* A handle with our settings. NULL on failure. */
zhandle_t *link_make_handle(struct coordinator *c, watcher_fn watcher, const struct session_key *key,
                            void *context);

/* ---- resolver.c ---------------------------------------------------------------------------------------- */

/* A thread that gets no signals: those are the program's. Returns 0 or -BROOK_E_IO. */
int thread_start(pthread_t *ret, void *(*run)(void *), void *arg);
/* Look the servers up on a thread of its own; link_resolved() is called later on the session thread. Returns
 * 0, -BROOK_E_NOMEM or -BROOK_E_IO. */
int resolver_start(struct coordinator *c, struct resolver **ret);
/* Nobody waits for the outcome any more; the thread may be stuck in the resolver for long. */
void resolver_abandon(struct resolver *resolver);
/* `err` 0: these are the addresses. */
void link_resolved(struct coordinator *c, int err, const struct addresses *addresses,
                   const struct brook_error *error);

/* ---- dispatch.c ---------------------------------------------------------------------------------------- */

/* Queue a request. Session thread. */
void dispatch_add(struct coordinator *c, struct request *r);
/* Send what may be sent. */
void dispatch_pump(struct coordinator *c);
/* Act on completions; then on requests that have waited too long. */
void dispatch_reap(struct coordinator *c);
void dispatch_expire(struct coordinator *c, int64_t now_ms);
int64_t dispatch_wake_ms(const struct coordinator *c);
/* Answer everything that is queued and bound to a generation that is gone. */
void dispatch_sweep(struct coordinator *c);
/* Stopping: answer everything that is queued (and what the library has given back) with -BROOK_E_CLOSED. */
void dispatch_close(struct coordinator *c);
/* Give the answer, to `done` or to its inbox, and free the request, which is in no list. */
void dispatch_answer(struct coordinator *c, struct request *r);
void dispatch_fail(struct coordinator *c, struct request *r, int err);

/* A request of a machine inside; `path` and `data` are copied. The path is without chroot, but for those that
 * go out `before_ready`: they look after the chroot itself. */
struct internal {
    enum request_op op;
    const char *path;
    const void *data;
    size_t data_bytes;
    int32_t version;
    enum znode_mode mode;
    struct coordinator_multi **multi;
    uint64_t generation;
    uint64_t watch_id;
    bool urgent;
    bool before_ready;
    request_done *done;
    void *arg;
};
void dispatch_internal(struct coordinator *c, const struct internal *i);

/* The chroot (none when `c` is NULL) and `path`, malloc'ed. Any thread. */
char *session_full_path(const struct coordinator *c, const char *path);

/* ---- observe.c ----------------------------------------------------------------------------------------- */

/* A session is up (again): read everything. */
void observe_all(struct coordinator *c);
/* The library's watcher for observations: notes the id in `context`. */
void observe_watcher(zhandle_t *zh, int type, int state, const char *path, void *context);
/* Act on what the watcher noted. */
void observe_reap(struct coordinator *c);
void observe_done(struct coordinator *c);

/* ---- composite.c (machine.h)
 * --------------------------------------------------------------------------------------- */

/* Stopping: answer all calls under way with -BROOK_E_CLOSED. */
void machine_close_all(struct coordinator *c);
#endif
