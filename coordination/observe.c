/* Observations: following a node or its children, level-triggered.
 *
 * An observation is shared by its user (the thread that drains the inbox), the session thread and whatever is
 * on the way between them, and goes with the last of these. The library and the requests know it by its id
 * only, so that what comes late finds nothing.
 */
#include "coordination/session.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include <utlist.h>

/* Reading again without a reason, in case a watch was lost on the way. */
#define SLOW_READ_MS 60000
#define RETRY_MS 200

/* A state on its way to the user. */
struct delivery {
    struct inbox_item item;
    struct observation *observation;
    struct answer *answer;
};

/* What was delivered last, for telling whether something is new. */
struct seen {
    uint64_t generation; /* 0: nothing yet */
    int err;
    int64_t czxid;
    int64_t changed; /* mzxid or pzxid */
};

struct observation {
    /* Fixed. */
    uint64_t id;
    enum observation_kind kind;
    char *path;
    int delay_ms;
    struct coordinator_call call;
    _Atomic int holders;

    /* The user's thread. */
    bool is_freed;

    pthread_mutex_t lock;
    struct coordinator *coordinator; /* NULL: closed */
    struct inbox_item item;          /* carries the wishes */
    bool is_posted;
    bool wants_start, wants_poke, wants_free;
    struct delivery *undelivered; /* the newest; may be replaced by a newer state */

    /* The session thread. */
    UT_hash_handle hh;
    bool is_registered;
    bool is_reading;
    bool is_dirty;  /* read again after this */
    bool is_forced; /* deliver even if nothing changed */
    bool is_fired;
    struct observation *next_fired;
    struct timer timer;
    struct seen seen;
};

/* Observations by path, to know when a watch is not needed any more. */
struct watch_path {
    UT_hash_handle hh;
    size_t users[2]; /* by kind */
    char path[];
};

static void unref(struct observation *o)
{
    if (atomic_fetch_sub(&o->holders, 1) != 1)
        return;
    pthread_mutex_destroy(&o->lock);
    free(o->path);
    free(o);
}

static void ref(struct observation *o)
{
    atomic_fetch_add(&o->holders, 1);
}

static struct observation *find(struct coordinator *c, uint64_t id)
{
    struct observation *o;
    HASH_FIND(hh, c->watches.by_id, &id, sizeof id, o);
    return o;
}

/* ---- delivering ---------------------------------------------------------------------------------------- */

static void run_delivery(struct inbox_item *item)
{
    struct delivery *d = CONTAINER_OF(item, struct delivery, item);
    struct observation *o = d->observation;
    pthread_mutex_lock(&o->lock);
    if (o->undelivered == d)
        o->undelivered = NULL;
    pthread_mutex_unlock(&o->lock);
    if (!o->is_freed)
        o->call.callback(o->call.arg, &d->answer->reply);
    answer_free(d->answer);
    free(d);
    unref(o);
}

/* A user that is slow gets the newest state only, but one of every session. */
static void deliver(struct observation *o, struct answer *from)
{
    pthread_mutex_lock(&o->lock);
    struct delivery *d = o->undelivered;
    if (d && d->answer->reply.generation == from->reply.generation) {
        answer_take(d->answer, from);
        pthread_mutex_unlock(&o->lock);
        return;
    }
    d = must_calloc(sizeof *d);
    d->item.run = run_delivery;
    d->observation = o;
    d->answer = answer_new(o->call);
    answer_take(d->answer, from);
    o->undelivered = d;
    pthread_mutex_unlock(&o->lock);
    ref(o);
    inbox_post(o->call.inbox, &d->item);
}

static bool is_new(const struct observation *o, const struct coordinator_reply *reply)
{
    int64_t changed = o->kind == OBSERVE_DATA ? reply->stat.mzxid : reply->stat.pzxid;
    const struct seen *s = &o->seen;
    return o->is_forced || s->generation != reply->generation || s->err != reply->err ||
           s->czxid != reply->stat.czxid || s->changed != changed;
}

static void settle(struct coordinator *c, struct observation *o, struct answer *a)
{
    if (is_new(o, &a->reply)) {
        o->is_forced = false;
        o->seen = (struct seen){a->reply.generation, a->reply.err, a->reply.stat.czxid,
                                o->kind == OBSERVE_DATA ? a->reply.stat.mzxid : a->reply.stat.pzxid};
        deliver(o, a);
    }
    timers_set(&c->timers, &o->timer, session_now_ms() + session_jitter(c, SLOW_READ_MS));
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static void read_state(struct coordinator *c, struct observation *o);
static void read_done(struct coordinator *c, struct request *r);

static void send_read(struct coordinator *c, struct observation *o, enum request_op op)
{
    o->is_reading = true;
    dispatch_internal(c, &(struct internal){.op = op,
                                            .path = o->path,
                                            .watch_id = o->id,
                                            .urgent = o->call.urgent,
                                            .done = read_done,
                                            .arg = (void *)(uintptr_t)o->id});
}

static void retry_later(struct coordinator *c, struct observation *o)
{
    /* Without a connection there is nothing to do: all are read when it is back. */
    if (c->is_ready)
        timers_set(&c->timers, &o->timer, session_now_ms() + session_jitter(c, RETRY_MS));
}

static void read_done(struct coordinator *c, struct request *r)
{
    struct observation *o = find(c, (uint64_t)(uintptr_t)r->done_arg);
    int err = r->answer->reply.err;
    if (!o)
        return;
    o->is_reading = false;
    if (err == -BROOK_E_NO_NODE && r->op != OP_EXISTS) {
        /* Reading what is not there sets no watch; asking whether it exists does. */
        send_read(c, o, OP_EXISTS);
        return;
    }
    bool came_up = err == 0 && r->op == OP_EXISTS;
    bool failed = err != 0 && err != -BROOK_E_NO_NODE;
    if (failed)
        retry_later(c, o);
    else if (!came_up)
        settle(c, o, r->answer);
    if (came_up || (o->is_dirty && !failed))
        read_state(c, o);
}

static void read_state(struct coordinator *c, struct observation *o)
{
    if (o->is_reading) {
        o->is_dirty = true;
        return;
    }
    if (!c->is_ready)
        return;
    o->is_dirty = false;
    timers_clear(&c->timers, &o->timer);
    send_read(c, o, o->kind == OBSERVE_DATA ? OP_GET : OP_CHILDREN);
}

static void timer_fired(struct timer *timer)
{
    struct observation *o = CONTAINER_OF(timer, struct observation, timer);
    read_state(o->coordinator, o);
}

void observe_all(struct coordinator *c)
{
    struct observation *o, *next;
    HASH_ITER(hh, c->watches.by_id, o, next)
    read_state(c, o);
}

/* ---- watches ------------------------------------------------------------------------------------------- */

void observe_watcher(zhandle_t *zh, int type, int state, const char *path, void *context)
{
    /* Every watcher hears of session events too; those concern the link. */
    if (type == ZOO_SESSION_EVENT)
        return;
    struct coordinator *c = (struct coordinator *)(uintptr_t)zoo_get_context(zh);
    struct observation *o = find(c, (uint64_t)(uintptr_t)context);
    c->queue.progress++;
    if (!o || o->is_fired)
        return;
    o->is_fired = true;
    LL_PREPEND2(c->watches.fired, o, next_fired);
}

void observe_reap(struct coordinator *c)
{
    struct observation *o;
    while ((o = c->watches.fired)) {
        LL_DELETE2(c->watches.fired, o, next_fired);
        o->is_fired = false;
        if (o->delay_ms == 0)
            read_state(c, o);
        else
            timers_set(&c->timers, &o->timer,
                       session_now_ms() + o->delay_ms / 2 + session_jitter(c, o->delay_ms));
    }
}

static void unwatched(struct coordinator *c, struct request *r)
{
    struct watch_path *w;
    HASH_FIND_STR(c->watches.by_path, r->path, w);
    /* What the server did not hear of must not be set again at the next connect. */
    if (r->answer->reply.err != 0 && !w && c->link.zh)
        zoo_aremove_all_watches(c->link.zh, r->path, (ZooWatcherType)r->version, 1, NULL, NULL);
}

/* The last observation of this kind and path has gone. */
static void unwatch(struct coordinator *c, const char *path, const struct watch_path *w,
                    enum observation_kind kind)
{
    bool other_kind = w->users[1 - kind] > 0;
    ZooWatcherType type = kind == OBSERVE_DATA ? ZWATCHTYPE_DATA : ZWATCHTYPE_CHILD;
    if (!other_kind)
        type = ZWATCHTYPE_ANY;
    if (c->is_ready && !c->stopping)
        dispatch_internal(
            c,
            &(struct internal){.op = OP_UNWATCH, .path = path, .version = (int32_t)type, .done = unwatched});
    else if (c->link.zh)
        zoo_aremove_all_watches(c->link.zh, w->path, type, 1, NULL, NULL);
}

static void add_path(struct coordinator *c, const struct observation *o)
{
    char *full = session_full_path(c, o->path);
    struct watch_path *w;
    HASH_FIND_STR(c->watches.by_path, full, w);
    if (!w) {
        w = must_calloc(sizeof *w + strlen(full) + 1);
        strcpy(w->path, full);
        HASH_ADD_STR(c->watches.by_path, path, w);
    }
    w->users[o->kind]++;
    free(full);
}

static void remove_path(struct coordinator *c, const struct observation *o)
{
    char *full = session_full_path(c, o->path);
    struct watch_path *w;
    HASH_FIND_STR(c->watches.by_path, full, w);
    free(full);
    if (!w)
        return;
    if (--w->users[o->kind] == 0)
        unwatch(c, o->path, w, o->kind);
    if (w->users[0] + w->users[1] == 0) {
        HASH_DEL(c->watches.by_path, w);
        free(w);
    }
}

/* ---- coming and going ---------------------------------------------------------------------------------- */

static void enter(struct coordinator *c, struct observation *o)
{
    o->is_registered = true;
    ref(o);
    HASH_ADD(hh, c->watches.by_id, id, sizeof o->id, o);
    add_path(c, o);
    o->timer.fire = timer_fired;
    read_state(c, o);
}

static void leave(struct coordinator *c, struct observation *o)
{
    if (!o->is_registered)
        return;
    o->is_registered = false;
    HASH_DEL(c->watches.by_id, o);
    if (o->is_fired)
        LL_DELETE2(c->watches.fired, o, next_fired);
    o->is_fired = false;
    timers_clear(&c->timers, &o->timer);
    remove_path(c, o);
    atomic_fetch_sub(&c->watches.bytes, strlen(o->path) + strlen(c->servers.chroot));
    unref(o);
}

static void run_wishes(struct inbox_item *item)
{
    struct observation *o = CONTAINER_OF(item, struct observation, item);
    struct coordinator *c = o->coordinator;
    pthread_mutex_lock(&o->lock);
    bool start = o->wants_start, poke = o->wants_poke, free_it = o->wants_free;
    o->wants_start = o->wants_poke = o->wants_free = o->is_posted = false;
    if (c && c->stopping)
        o->coordinator = NULL;
    pthread_mutex_unlock(&o->lock);
    if (c && !c->stopping) {
        if (start)
            enter(c, o);
        if (poke && o->is_registered) {
            o->is_forced = true;
            read_state(c, o);
        }
        if (free_it)
            leave(c, o);
    }
    unref(o);
}

/* Under the lock. */
static void post_wishes(struct observation *o)
{
    if (o->is_posted || !o->coordinator)
        return;
    o->is_posted = true;
    ref(o);
    session_post(o->coordinator, &o->item, run_wishes);
}

static bool take_budget(struct coordinator *c, size_t bytes)
{
    if (atomic_fetch_add(&c->watches.bytes, bytes) + bytes <= COORDINATOR_WATCH_PATH_BYTES_MAX)
        return true;
    atomic_fetch_sub(&c->watches.bytes, bytes);
    return false;
}

struct observation *coordinator_observe(struct coordinator *c, enum observation_kind kind, const char *path,
                                        int delay_ms, struct inbox *inbox, coordinator_callback *cb,
                                        void *arg)
{
    struct observation *o = znode_path_is_legal(path) ? calloc(1, sizeof *o) : NULL;
    char *copy = o ? strdup(path) : NULL;
    if (!copy || !take_budget(c, strlen(path) + strlen(c->servers.chroot))) {
        free(copy);
        free(o);
        return NULL;
    }
    o->id = atomic_fetch_add(&c->watches.last_id, 1) + 1;
    o->kind = kind;
    o->path = copy;
    o->delay_ms = delay_ms;
    o->call = (struct coordinator_call){.inbox = inbox, .callback = cb, .arg = arg};
    atomic_init(&o->holders, 1);
    pthread_mutex_init(&o->lock, NULL);
    o->coordinator = c;
    pthread_mutex_lock(&o->lock);
    o->wants_start = true;
    post_wishes(o);
    pthread_mutex_unlock(&o->lock);
    return o;
}

void observation_poke(struct observation *o)
{
    pthread_mutex_lock(&o->lock);
    o->wants_poke = true;
    post_wishes(o);
    pthread_mutex_unlock(&o->lock);
}

void observation_free(struct observation *o)
{
    if (!o)
        return;
    o->is_freed = true;
    pthread_mutex_lock(&o->lock);
    o->wants_free = true;
    post_wishes(o);
    pthread_mutex_unlock(&o->lock);
    unref(o);
}

void observe_done(struct coordinator *c)
{
    struct observation *o, *next;
    HASH_ITER(hh, c->watches.by_id, o, next)
    {
        pthread_mutex_lock(&o->lock);
        o->coordinator = NULL;
        pthread_mutex_unlock(&o->lock);
        leave(c, o);
    }
}
