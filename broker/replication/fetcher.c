#include "broker/replication/fetcher.h"

#include "broker/replication/fetcher_internal.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"
#include "proto/base/pool.h"

#include <event2/event.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS ((int64_t)1000000)
#define POOL_BYTES_MAX ((size_t)256 << 20)
#define POOL_IDLE_BYTES ((size_t)16 << 20)
#define ARENA_BYTES ((size_t)16 << 20)

/* ---- entries ---------------------------------------------------------------------------------------- */

void fetch_entry_move(struct fetch_entry *e, enum fetch_place place)
{
    struct fetch_link *link = e->link;
    TAILQ_REMOVE(&link->lists[e->place], e, in_place);
    e->place = place;
    TAILQ_INSERT_TAIL(&link->lists[place], e, in_place);
}

/* Doubled with each failure in a row, and a part of it by chance, so that brokers do not come all at once. */
int64_t fetcher_backoff_ns(struct fetch_thread *t, unsigned failures)
{
    int64_t ms = (int64_t)FETCHER_BACKOFF_MS_MIN << (failures < 6 ? failures : 6);
    t->random = t->random * 6364136223846793005u + 1442695040888963407u;
    if (ms > FETCHER_BACKOFF_MS_MAX)
        ms = FETCHER_BACKOFF_MS_MAX;
    return (ms / 2 + (int64_t)((t->random >> 33) % (uint64_t)ms)) * MS;
}

/* While leaders change, one of the two has not read it yet. That passes soon, and acks=all waits for it: many short
 * waits, and all that are due at a time go in one pull. */
static bool is_passing(const struct fetch_entry *e, int code)
{
    return brook_error_advice(code) == BROOK_ADVICE_REFRESH && e->failures < FETCHER_PASSING_FAILURES;
}

void fetch_entry_back_off(struct fetch_entry *e, int code, const char *why)
{
    struct fetch_thread *t = e->link->thread;
    bool passes = is_passing(e, code);
    e->retry_ns = clock_boot_ns() + fetcher_backoff_ns(t, passes ? e->failures % 2 : e->failures);
    e->failures++;
    fetch_entry_move(e, FETCH_WAITING);
    if (e->told == code || passes)
        return;
    char subject[288];
    snprintf(subject, sizeof subject, "partition=%s/%" PRId32 " epoch=%" PRId32, partition_topic(e->partition),
             e->key.number, e->state.leader_epoch);
    diag_log(t->fetchers->s.diag, DIAG_WARN, subject, "can not follow broker %" PRId32 ", trying on: %s",
             e->state.leader, why && why[0] ? why : brook_error_text(code));
    e->told = code;
}

static void bury(struct fetch_entry *e)
{
    replica_unref(e->replica);
    free(e);
}

static void bury_entry(struct inbox_item *item)
{
    bury(CONTAINER_OF(item, struct fetch_entry, grave));
}

static void bury_woken(struct partition_waiter *w)
{
    bury(CONTAINER_OF(w, struct fetch_entry, safe));
}

static void entry_free(struct fetch_entry *e)
{
    struct fetch_link *link = e->link;
    struct fetch_thread *t = link->thread;
    if (e->is_waiting_safe)
        partition_unwait(e->partition, &e->safe);
    fetch_entry_forget_start(e);
    fetch_entry_forget_reached(e);
    HASH_DEL(t->entries, e);
    TAILQ_REMOVE(&link->lists[e->place], e, in_place);
    link->entries_count--;
    /* A waiter that was posted comes round for certain, perhaps later than what is posted here. */
    if (e->safe.posted) {
        e->safe.wake = bury_woken;
        return;
    }
    e->grave.run = bury_entry;
    inbox_post(&t->inbox, &e->grave);
}

/* The session still has it: it has to be told. Without room for that, all begins anew. */
static void forget(struct fetch_entry *e)
{
    struct fetch_link *link = e->link;
    if (e->session != link->session)
        return;
    if (link->forgets_count == link->forgets_capacity) {
        size_t capacity = link->forgets_capacity ? 2 * link->forgets_capacity : 16;
        struct fetch_key *forgets = realloc(link->forgets, capacity * sizeof *forgets);
        if (!forgets) {
            fetch_link_restart_session(link);
            return;
        }
        link->forgets = forgets;
        link->forgets_capacity = capacity;
    }
    link->forgets[link->forgets_count++] = e->key;
}

static void unforget(struct fetch_link *link, const struct fetch_key *key)
{
    for (size_t i = 0; i < link->forgets_count; i++)
        if (memcmp(&link->forgets[i], key, sizeof *key) == 0) {
            link->forgets[i] = link->forgets[--link->forgets_count];
            return;
        }
}

static struct fetch_key key_of(struct replica *replica)
{
    struct partition *p = replica_partition(replica);
    struct fetch_key key = {.number = partition_number(p)};
    memcpy(key.topic_id, partition_topic_id(p), sizeof key.topic_id);
    return key;
}

static void drop_key(struct fetch_thread *t, const struct fetch_key *key)
{
    struct fetch_entry *e;
    HASH_FIND(hh, t->entries, key, sizeof *key, e);
    if (!e)
        return;
    forget(e);
    entry_free(e);
}

/* ---- orders ----------------------------------------------------------------------------------------- */

struct fetch_order {
    struct inbox_item item;
    struct fetch_order *next; /* held */
    struct fetch_thread *thread;
    struct replica *replica;
    bool follow;
    struct fetcher_leader leader;
    int32_t leader_epoch;
    int64_t broker_epoch;
    char host[];
};

/* A session is of one registration: the newest that was told of is that of all, since they live in one process. */
static void take_broker_epoch(struct fetch_link *link, int64_t broker_epoch)
{
    if (broker_epoch <= link->broker_epoch)
        return;
    link->broker_epoch = broker_epoch;
    fetch_link_restart_session(link);
}

static bool follow(struct fetch_thread *t, const struct fetch_order *o)
{
    struct fetch_link *link = fetch_link_of(t, &o->leader);
    struct fetch_entry *e = link ? calloc(1, sizeof *e) : NULL;
    if (!e)
        return false;
    take_broker_epoch(link, o->broker_epoch);
    e->key = key_of(o->replica);
    e->link = link;
    e->replica = replica_ref(o->replica);
    e->partition = replica_partition(o->replica);
    follower_state_init(&e->state);
    follower_state_begin(&e->state, o->leader.broker_id, o->leader_epoch);
    e->epoch_start = -1;
    e->place = FETCH_DUE;
    TAILQ_INSERT_TAIL(&link->lists[FETCH_DUE], e, in_place);
    link->entries_count++;
    unforget(link, &e->key);
    HASH_ADD(hh, t->entries, key, sizeof e->key, e);
    return true;
}

static void order_free(struct fetch_order *o)
{
    replica_unref(o->replica);
    free(o);
}

/* A newer order is there. */
static void drop_held(struct fetch_thread *t, const struct fetch_key *key)
{
    for (struct fetch_order **at = &t->held; *at;) {
        struct fetch_order *o = *at;
        struct fetch_key its = key_of(o->replica);
        if (memcmp(&its, key, sizeof its) != 0) {
            at = &o->next;
            continue;
        }
        *at = o->next;
        order_free(o);
    }
}

static void run_order(struct inbox_item *item)
{
    struct fetch_order *o = CONTAINER_OF(item, struct fetch_order, item);
    struct fetch_thread *t = o->thread;
    struct fetch_key key = key_of(o->replica);
    drop_key(t, &key);
    drop_held(t, &key);
    if (o->follow && !t->is_stopping && !follow(t, o)) {
        o->next = t->held;
        t->held = o;
    } else {
        order_free(o);
    }
}

/* Returns when to try again. */
static int64_t try_held(struct fetch_thread *t, int64_t now_ns)
{
    struct fetch_order *held = t->held;
    t->held = NULL;
    while (held) {
        struct fetch_order *o = held;
        held = o->next;
        run_order(&o->item);
    }
    return t->held ? now_ns + FETCHER_BACKOFF_MS_MAX * MS : INT64_MAX;
}

static struct fetch_thread *thread_of(struct fetchers *f, struct replica *replica)
{
    struct partition *p = replica_partition(replica);
    const uint8_t *id = partition_topic_id(p);
    uint32_t hash = (uint32_t)partition_number(p) * 2654435761u;
    for (int i = 0; i < 16; i++)
        hash = (hash ^ id[i]) * 16777619u;
    return &f->threads[hash % (uint32_t)f->threads_count];
}

static int order(struct fetchers *f, struct replica *replica, const struct fetcher_leader *leader,
                 int32_t leader_epoch, int64_t broker_epoch)
{
    size_t host_bytes = leader ? strlen(leader->host) + 1 : 1;
    struct fetch_order *o;
    do
        o = calloc(1, sizeof *o + host_bytes);
    while (!o && !leader); /* what is not let go of would keep the log from being closed */
    if (!o)
        return -BROOK_E_NOMEM;
    o->thread = thread_of(f, replica);
    o->replica = replica_ref(replica);
    o->leader_epoch = leader_epoch;
    o->broker_epoch = broker_epoch;
    if (leader) {
        o->follow = true;
        memcpy(o->host, leader->host, host_bytes);
        o->leader = (struct fetcher_leader){leader->broker_id, o->host, leader->port};
    }
    o->item.run = run_order;
    inbox_post(&o->thread->inbox, &o->item);
    return 0;
}

int fetchers_follow(struct fetchers *f, struct replica *replica, const struct fetcher_leader *leader,
                    int32_t leader_epoch, int64_t broker_epoch)
{
    return order(f, replica, leader, leader_epoch, broker_epoch);
}

void fetchers_stop(struct fetchers *f, struct replica *replica)
{
    (void)order(f, replica, NULL, -1, -1);
}

void fetchers_set_quota(struct fetchers *f, int64_t bytes_per_s, int64_t moved_bytes_per_s)
{
    atomic_store_explicit(&f->quota_bytes_per_s, bytes_per_s, memory_order_relaxed);
    atomic_store_explicit(&f->throttle_bytes_per_s, moved_bytes_per_s, memory_order_relaxed);
}

/* ---- the thread ------------------------------------------------------------------------------------- */

static void on_mail(evutil_socket_t fd, short what, void *arg)
{
    struct fetch_thread *t = arg;
    (void)fd;
    (void)what;
    inbox_drain(&t->inbox);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
}

static void set_timer(struct fetch_thread *t, int64_t due_ns)
{
    int64_t wait_ns = due_ns - clock_boot_ns();
    if (wait_ns < MS)
        wait_ns = MS;
    struct timeval tv = {.tv_sec = wait_ns / (1000 * MS), .tv_usec = wait_ns % (1000 * MS) / 1000};
    evtimer_add(t->timer, &tv);
}

/* One round after each batch of events: what became due is done once. */
static void run_links(struct fetch_thread *t)
{
    int64_t now_ns = clock_boot_ns(), due_ns = try_held(t, now_ns), starts_ns = fetch_thread_raise_starts(t, now_ns);
    int64_t reached_ns = fetch_thread_keep_reached(t, now_ns);
    if (starts_ns < due_ns)
        due_ns = starts_ns;
    if (reached_ns < due_ns)
        due_ns = reached_ns;
    for (struct fetch_link **at = &t->links; *at;) {
        struct fetch_link *link = *at;
        if (!link->entries_count && !link->pulls_in_flight) {
            *at = link->next;
            fetch_link_free(link);
            continue;
        }
        int64_t next_ns = fetch_link_run(link, now_ns);
        if (next_ns < due_ns)
            due_ns = next_ns;
        at = &link->next;
    }
    if (due_ns < INT64_MAX)
        set_timer(t, due_ns);
    else
        evtimer_del(t->timer);
}

static void *run_thread(void *arg)
{
    struct fetch_thread *t = arg;
    while (!t->is_stopping) {
        run_links(t);
        event_base_loop(t->base, EVLOOP_ONCE);
    }
    struct fetch_entry *e, *next;
    HASH_ITER(hh, t->entries, e, next)
    entry_free(e);
    while (t->held) {
        struct fetch_order *o = t->held;
        t->held = o->next;
        order_free(o);
    }
    while (t->links) {
        struct fetch_link *link = t->links;
        t->links = link->next;
        fetch_link_free(link);
    }
    event_base_loop(t->base, EVLOOP_NONBLOCK); /* channels go at the end of a turn */
    return NULL;
}

static int thread_init(struct fetch_thread *t, struct fetchers *f)
{
    t->fetchers = f;
    TAILQ_INIT(&t->behind);
    TAILQ_INIT(&t->reaching);
    t->random = (uint64_t)clock_boot_ns() ^ (uint64_t)(uintptr_t)t;
    if (inbox_init(&t->inbox) < 0)
        return -BROOK_E_IO;
    struct event_config *config = event_config_new();
    if (config) {
        event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
        t->base = event_base_new_with_config(config);
        event_config_free(config);
    }
    if (!t->base || pool_new(POOL_BYTES_MAX, POOL_IDLE_BYTES, &t->pool) || arena_new(ARENA_BYTES, &t->arena))
        return -BROOK_E_NOMEM;
    t->mail = event_new(t->base, inbox_fd(&t->inbox), EV_READ | EV_PERSIST, on_mail, t);
    t->timer = evtimer_new(t->base, on_timer, t);
    if (!t->mail || !t->timer || event_add(t->mail, NULL) < 0)
        return -BROOK_E_NOMEM;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    t->is_started = pthread_create(&t->thread, NULL, run_thread, t) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return t->is_started ? 0 : -BROOK_E_IO;
}

struct stop_order {
    struct inbox_item item;
    struct fetch_thread *thread;
};

static void run_stop(struct inbox_item *item)
{
    struct stop_order *o = CONTAINER_OF(item, struct stop_order, item);
    o->thread->is_stopping = true;
}

static void thread_done(struct fetch_thread *t)
{
    struct stop_order stop = {.item.run = run_stop, .thread = t};
    if (t->is_started) {
        inbox_post(&t->inbox, &stop.item);
        pthread_join(t->thread, NULL);
    }
    while (inbox_drain(&t->inbox))
        ; /* graves, and orders that came too late */
    if (t->mail)
        event_free(t->mail);
    if (t->timer)
        event_free(t->timer);
    if (t->base)
        event_base_free(t->base);
    if (t->arena)
        arena_free(t->arena);
    if (t->pool)
        pool_unref(t->pool);
    inbox_done(&t->inbox);
}

int fetchers_new(const struct fetcher_settings *settings, struct fetchers **ret_fetchers)
{
    struct fetchers *f = calloc(1, sizeof *f + (size_t)settings->threads * sizeof f->threads[0]);
    if (!f)
        return -BROOK_E_NOMEM;
    f->s = *settings;
    for (int i = 0; i < settings->threads; i++) {
        f->threads_count++;
        int err = thread_init(&f->threads[i], f);
        if (err) {
            fetchers_free(f);
            return err;
        }
    }
    *ret_fetchers = f;
    return 0;
}

void fetchers_free(struct fetchers *f)
{
    if (!f)
        return;
    for (int i = 0; i < f->threads_count; i++)
        thread_done(&f->threads[i]);
    free(f);
}
