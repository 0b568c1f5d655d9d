/* The session thread: its loop, the states of a session, who is told, and what keeps the lease. */
#include "coordination/session.h"

#include "coordination/closer.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <utlist.h>

/* How often to try again to make a chroot that we are not allowed to make. */
#define PREPARE_RETRY_MS 3000

struct listener {
    struct listener *next;
    struct inbox_item item;
    struct coordinator *coordinator;
    struct inbox *inbox;
    coordinator_session_callback *callback;
    void *arg;
};

struct event {
    struct inbox_item item;
    coordinator_session_callback *callback;
    void *arg;
    struct coordinator_session session;
};

int64_t session_now_ms(void)
{
    return clock_boot_ms();
}

int64_t session_jitter(struct coordinator *c, int64_t ms)
{
    c->seed = c->seed * 6364136223846793005u + 1442695040888963407u;
    return ms / 2 + (int64_t)((c->seed >> 33) % (uint64_t)(ms + 1));
}

int session_timeout(const struct coordinator *c)
{
    int negotiated = atomic_load(&c->timeout_ms);
    return negotiated ? negotiated : c->timeout_asked_ms;
}

/* ---- telling ------------------------------------------------------------------------------------------- */

static void run_event(struct inbox_item *item)
{
    struct event *e = CONTAINER_OF(item, struct event, item);
    e->callback(e->arg, &e->session);
    free(e);
}

static void tell(struct coordinator *c, const struct listener *to, enum coordinator_event event)
{
    struct event *e = must_calloc(sizeof *e);
    e->item.run = run_event;
    e->callback = to->callback;
    e->arg = to->arg;
    e->session = (struct coordinator_session){.event = event,
                                              .generation = c->generation,
                                              .session_id = c->key.id,
                                              .timeout_ms = session_timeout(c),
                                              .resumed = c->resumed};
    inbox_post(to->inbox, &e->item);
}

static void tell_all(struct coordinator *c, enum coordinator_event event)
{
    const struct listener *to;
    LL_FOREACH(c->listeners, to)
    tell(c, to, event);
}

static void start_listening(struct inbox_item *item)
{
    struct listener *l = CONTAINER_OF(item, struct listener, item);
    struct coordinator *c = l->coordinator;
    LL_APPEND(c->listeners, l);
    if (c->generation == 0 || c->stopping)
        return;
    tell(c, l,
         c->is_ready   ? COORDINATOR_CONNECTED
         : c->is_alive ? COORDINATOR_SUSPENDED
                       : COORDINATOR_EXPIRED);
}

int coordinator_listen(struct coordinator *c, struct inbox *inbox, coordinator_session_callback *cb,
                       void *arg)
{
    struct listener *l = calloc(1, sizeof *l);
    if (!l)
        return -BROOK_E_NOMEM;
    l->coordinator = c;
    l->inbox = inbox;
    l->callback = cb;
    l->arg = arg;
    session_post(c, &l->item, start_listening);
    return 0;
}

void session_post(struct coordinator *c, struct inbox_item *item, void (*run)(struct inbox_item *item))
{
    item->run = run;
    inbox_post(&c->inbox, item);
}

void session_note_trouble(struct coordinator *c, int code, const char *text)
{
    pthread_mutex_lock(&c->trouble_lock);
    brook_error_set(&c->trouble, code, "%s", text);
    pthread_mutex_unlock(&c->trouble_lock);
}

/* ---- getting ready: the chroot ------------------------------------------------------------------------- */

static void become_ready(struct coordinator *c)
{
    c->is_ready = true;
    atomic_store(&c->is_connected, true);
    session_note_trouble(c, 0, "");
    diag_log(c->diag, DIAG_INFO, "zookeeper", "session 0x%" PRIx64 " is up%s, timeout %d ms",
             (uint64_t)c->key.id, c->resumed ? " (taken up from an earlier process)" : "",
             session_timeout(c));
    tell_all(c, COORDINATOR_CONNECTED);
    observe_all(c);
}

static void look_for_chroot(struct coordinator *c);

static void prepare_again(struct timer *timer)
{
    struct coordinator *c = CONTAINER_OF(timer, struct coordinator, prepare_timer);
    if (c->link.is_up && !c->is_ready)
        look_for_chroot(c);
}

static void give_up_for_now(struct coordinator *c, int err)
{
    struct brook_error error;
    brook_error_set(&error, -err, "the ZooKeeper path %s does not exist and can not be made: %s",
                    c->servers.chroot, brook_error_text(err));
    session_note_trouble(c, error.code, error.text);
    diag_log(c->diag, DIAG_ERROR, "zookeeper", "%s; trying again", error.text);
    c->prepare_timer.fire = prepare_again;
    timers_set(&c->timers, &c->prepare_timer, session_now_ms() + PREPARE_RETRY_MS);
}

static void made_level(struct coordinator *c, struct request *r);

/* Create the next level of the chroot. */
static void make_level(struct coordinator *c)
{
    const char *chroot = c->servers.chroot;
    const char *slash = strchr(chroot + c->chroot_level + 1, '/');
    char level[sizeof c->servers.chroot];
    c->chroot_level = slash ? (size_t)(slash - chroot) : strlen(chroot);
    memcpy(level, chroot, c->chroot_level);
    level[c->chroot_level] = '\0';
    dispatch_internal(c, &(struct internal){.op = OP_CREATE,
                                            .path = level,
                                            .before_ready = true,
                                            .done = made_level,
                                            .arg = (void *)c->preparing});
}

static void made_level(struct coordinator *c, struct request *r)
{
    int err = r->answer->reply.err;
    bool is_last = c->chroot_level == strlen(c->servers.chroot);
    if ((uintptr_t)r->done_arg != c->preparing || c->stopping)
        return;
    /* Without the right to create above, the level may be there all the same: the next one tells. */
    if (err == 0 || err == -BROOK_E_NODE_EXISTS || (err == -BROOK_E_ZOOKEEPER_AUTH && !is_last)) {
        if (!is_last) {
            make_level(c);
            return;
        }
        c->chroot_exists = true;
        become_ready(c);
    } else {
        give_up_for_now(c, err);
    }
}

static void found_chroot(struct coordinator *c, struct request *r)
{
    int err = r->answer->reply.err;
    if ((uintptr_t)r->done_arg != c->preparing || c->stopping)
        return;
    if (err == 0) {
        c->chroot_exists = true;
        become_ready(c);
    } else if (err == -BROOK_E_NO_NODE) {
        c->chroot_level = 0;
        make_level(c);
    } else {
        give_up_for_now(c, err);
    }
}

static void look_for_chroot(struct coordinator *c)
{
    dispatch_internal(c, &(struct internal){.op = OP_EXISTS,
                                            .path = c->servers.chroot,
                                            .before_ready = true,
                                            .done = found_chroot,
                                            .arg = (void *)c->preparing});
}

/* ---- the states of a session --------------------------------------------------------------------------- */

static void keep_key(struct coordinator *c)
{
    if (session_file_add(&c->file, &c->key) < 0)
        diag_log(c->diag, DIAG_WARN, "zookeeper", "%s: %s; the next process can not take over from this one",
                 c->file.path, strerror(errno));
}

static void begin_session(struct coordinator *c, const clientid_t *id)
{
    c->resumed = c->resuming_id && c->resuming_id == id->client_id;
    c->resuming_id = 0;
    c->key.id = id->client_id;
    memcpy(c->key.password, id->passwd, sizeof c->key.password);
    c->is_alive = true;
    c->chroot_exists = false;
    ledger_clear(&c->ledger);
    lease_start(&c->lease, session_timeout(c));
    atomic_store(&c->lease_until_ns, 0);
    atomic_store(&c->session_id, c->key.id);
    atomic_fetch_add(&c->generation, 1);
    keep_key(c);
}

void session_link_up(struct coordinator *c)
{
    const clientid_t *id = zoo_client_id(c->link.zh);
    int timeout_ms = zoo_recv_timeout(c->link.zh);
    atomic_store(&c->timeout_ms, timeout_ms);
    if (c->is_alive && id->client_id == c->key.id)
        lease_set_timeout(&c->lease, timeout_ms);
    else
        begin_session(c, id);
    c->preparing++;
    if (!*c->servers.chroot || c->chroot_exists)
        become_ready(c);
    else
        look_for_chroot(c);
}

void session_link_down(struct coordinator *c)
{
    c->preparing++;
    timers_clear(&c->timers, &c->prepare_timer);
    if (!c->is_ready)
        return;
    c->is_ready = false;
    c->not_ready_since_ms = session_now_ms();
    atomic_store(&c->is_connected, false);
    if (c->stopping)
        return;
    diag_log(c->diag, DIAG_WARN, "zookeeper", "connection lost, session 0x%" PRIx64 "; connecting again",
             (uint64_t)c->key.id);
    tell_all(c, COORDINATOR_SUSPENDED);
}

void session_expired(struct coordinator *c)
{
    bool was_ours = c->is_alive;
    int64_t id = c->key.id;
    /* What was in flight is answered before anybody hears of the expiry. */
    dispatch_reap(c);
    c->is_alive = false;
    lease_end(&c->lease);
    atomic_store(&c->lease_until_ns, 0);
    ledger_clear(&c->ledger);
    dispatch_sweep(c);
    session_file_remove(&c->file, id);
    if (was_ours) {
        diag_log(c->diag, DIAG_WARN, "zookeeper", "session 0x%" PRIx64 " has expired; beginning a new one",
                 (uint64_t)id);
        tell_all(c, COORDINATOR_EXPIRED);
    }
    c->resuming_id = 0;
    memset(&c->key, 0, sizeof c->key);
}

/* ---- the lease ----------------------------------------------------------------------------------------- */

void session_renew_lease(struct coordinator *c, const struct request *r)
{
    if (!c->is_alive || r->generation != c->generation)
        return;
    lease_renew(&c->lease, r->sent_ns);
    atomic_store(&c->lease_until_ns, lease_until_ns(&c->lease));
}

static void ignore(struct coordinator *c, struct request *r)
{
}

static void ask_for_lease(struct coordinator *c)
{
    int64_t now_ns = clock_boot_ns();
    if (!c->is_ready || now_ns < lease_due_ns(&c->lease))
        return;
    lease_asked(&c->lease, now_ns);
    dispatch_internal(
        c, &(struct internal){
               .op = OP_SYNC, .path = "/", .urgent = true, .generation = c->generation, .done = ignore});
}

/* ---- the loop ------------------------------------------------------------------------------------------ */

static int64_t wake_ms(const struct coordinator *c)
{
    int64_t wake = link_wake_ms(c);
    int64_t timer = timers_next_ms(&c->timers);
    int64_t lease = c->is_ready && lease_due_ns(&c->lease) != INT64_MAX
                        ? lease_due_ns(&c->lease) / 1000000 + 1
                        : INT64_MAX;
    int64_t queued = dispatch_wake_ms(c);
    wake = timer < wake ? timer : wake;
    wake = lease < wake ? lease : wake;
    return queued < wake ? queued : wake;
}

static void wait_and_process(struct coordinator *c)
{
    size_t closers = closer_count(c);
    struct pollfd fds[2 + CLOSERS_MAX];
    int64_t now_ms = session_now_ms();
    link_interest(c, now_ms);
    int64_t wake = wake_ms(c);
    fds[0] = (struct pollfd){.fd = inbox_fd(&c->inbox), .events = POLLIN};
    fds[1] = (struct pollfd){.fd = c->link.fd};
    fds[1].events = (short)((c->link.interest & ZOOKEEPER_READ ? POLLIN : 0) |
                            (c->link.interest & ZOOKEEPER_WRITE ? POLLOUT : 0));
    closer_interest(c, fds + 2, now_ms, &wake);
    /* Completions of a handle that died just now are acted on at once. */
    if (c->queue.completed || wake < now_ms)
        wake = now_ms;
    int64_t timeout_ms = wake - now_ms < 60000 ? wake - now_ms : 60000;
    int n = poll(fds, (nfds_t)(2 + closers), (int)timeout_ms);
    link_process(c, n > 0 ? fds[1].revents : 0);
    closer_process(c, fds + 2, closers, session_now_ms());
}

static void act(struct coordinator *c)
{
    do {
        dispatch_reap(c);
        observe_reap(c);
        dispatch_pump(c);
    } while (c->queue.completed || c->watches.fired);
}

/* Wait for what is in flight, as closing under arriving replies may lose the message that says so. */
static void drain(struct coordinator *c)
{
    int64_t now_ms = session_now_ms();
    int64_t until_ms = now_ms + (c->stop_until_ms - now_ms) / 2;
    while (c->queue.flying && c->link.is_up && session_now_ms() < until_ms) {
        link_interest(c, session_now_ms());
        struct pollfd fd = {.fd = c->link.fd,
                            .events = POLLIN | (c->link.interest & ZOOKEEPER_WRITE ? POLLOUT : 0)};
        int64_t left_ms = until_ms - session_now_ms();
        if (poll(&fd, 1, left_ms > 0 ? (int)left_ms : 0) > 0)
            link_process(c, fd.revents);
        dispatch_reap(c);
    }
}

static void stop(struct coordinator *c)
{
    dispatch_close(c);
    if (!c->keep_session && c->link.is_up)
        drain(c);
    bool close_session = !c->keep_session && c->link.is_up && !c->queue.flying;
    int64_t id = c->key.id;
    link_destroy(c, close_session);
    if (close_session && !atomic_load(&c->out_of_time))
        session_file_remove(&c->file, id);
    closer_close_all(c);
    dispatch_reap(c);
    dispatch_close(c);
    observe_done(c);
    machine_close_all(c);
    link_done(c);
}

void *session_run(void *arg)
{
    struct coordinator *c = arg;
    while (inbox_drain(&c->inbox), !c->stopping) {
        int64_t now_ms = session_now_ms();
        link_turn(c, now_ms);
        timers_run(&c->timers, now_ms);
        ask_for_lease(c);
        dispatch_expire(c, now_ms);
        act(c);
        wait_and_process(c);
    }
    stop(c);
    eventfd_write(c->done_fd, 1);
    return NULL;
}

void session_done(struct coordinator *c)
{
    struct listener *l, *next;
    LL_FOREACH_SAFE(c->listeners, l, next)
    free(l);
    timers_done(&c->timers);
    ledger_clear(&c->ledger);
    session_file_done(&c->file);
}
