/* The ZooKeeper handle: made with numeric addresses, driven by poll(), cut, closed, and made again for ever.
 */
#include "coordination/session.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A link that does not last this long counts as a failed attempt: the server, or its limit of connections,
 * did not want it. */
#define LINK_LASTS_MS 1000
/* After so many in a row the handle is made anew, without the watches that the old one may choke on. */
#define LINK_FLAPS_MAX 5
#define RETRY_MS_FIRST 30
#define RETRY_MS_MAX 1000
#define RESOLVE_RETRY_MS_MAX 5000
/* An address that says nothing gets its share of half the timeout, so that all are tried before the session
 * is lost; the library would give it two thirds. */
#define ATTEMPT_MS_MIN 100
/* How often to say that there is still no connection. */
#define COMPLAIN_MS 60000
/* What the library may want to be called again after when it fails without saying when. */
#define INTEREST_RETRY_MS 50
/* Messages taken from one readable socket before others get their turn. */
#define PROCESS_BATCH 128

static void be_quiet(void)
{
    /* Its log goes to stderr and has no handle to tell whose it is: what matters is logged here. */
    zoo_set_debug_level((ZooLogLevel)0);
}

void link_init(struct coordinator *c)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, be_quiet);
    c->link.fd = -1;
    c->link.since_ms = session_now_ms();
}

/* ---- back-off ------------------------------------------------------------------------------------------ */

static int64_t backoff(struct coordinator *c, int64_t first_ms, unsigned rounds, int64_t max_ms)
{
    int64_t ms = first_ms << (rounds < 10 ? rounds : 10);
    return session_jitter(c, ms < max_ms ? ms : max_ms);
}

/* Every address gets its try before the delay doubles. */
static void note_failure(struct coordinator *c)
{
    struct link *l = &c->link;
    unsigned addresses = l->addresses.count ? (unsigned)l->addresses.count : 1;
    int64_t max_ms = session_timeout(c) / 6;
    unsigned rounds = l->failures++ / addresses;
    l->retry_at_ms =
        session_now_ms() + backoff(c, RETRY_MS_FIRST, rounds, max_ms < RETRY_MS_MAX ? max_ms : RETRY_MS_MAX);
}

/* ---- addresses ----------------------------------------------------------------------------------------- */

void link_resolved(struct coordinator *c, int err, const struct addresses *addresses,
                   const struct brook_error *error)
{
    struct link *l = &c->link;
    if (err < 0) {
        if (l->addresses.count == 0)
            session_note_trouble(c, BROOK_E_COORDINATION_LOST, error->text);
        if (l->resolve_failures++ == 0)
            diag_log(c->diag, DIAG_WARN, "zookeeper", "%s; asking the resolver again until it knows",
                     error->text);
        l->resolve_at_ms = session_now_ms() + backoff(c, 100, l->resolve_failures, RESOLVE_RETRY_MS_MAX);
        return;
    }
    if (l->addresses.count == 0)
        session_note_trouble(c, 0, "");
    l->resolve_failures = 0;
    l->resolve_at_ms = INT64_MAX;
    if (addresses_equal(addresses, &l->addresses))
        return;
    l->addresses = *addresses;
    l->is_stale = l->zh != NULL;
}

static void resolve(struct coordinator *c, int64_t now_ms)
{
    struct link *l = &c->link;
    struct addresses found;
    struct brook_error error = {0};
    /* Names are looked up again while there is no connection; what is written in numbers does not change. */
    if (l->resolve_at_ms == INT64_MAX && !l->is_up && c->servers.has_names)
        l->resolve_at_ms = now_ms + session_timeout(c) / 3;
    if (l->is_up && l->addresses.count)
        l->resolve_at_ms = INT64_MAX;
    if (l->resolver || now_ms < l->resolve_at_ms)
        return;
    if (!c->servers.has_names) {
        int r = servers_resolve(&c->servers, &found, &error);
        link_resolved(c, r, &found, &error);
    } else if (resolver_start(c, &l->resolver) < 0) {
        l->resolve_at_ms = now_ms + RETRY_MS_MAX;
    }
}

/* ---- the handle's life --------------------------------------------------------------------------------- */

static void watch_session(zhandle_t *zh, int type, int state, const char *path, void *context)
{
    struct coordinator *c = context;
    if (type == ZOO_SESSION_EVENT && state == ZOO_CONNECTED_STATE)
        c->link.reconnected = true;
    c->queue.progress++;
}

/* The library aborts the process when it runs out of descriptors while a handle is made. */
static bool has_descriptors(void)
{
    int probe = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    if (probe < 0)
        return errno == EBADF;
    close(probe);
    return true;
}

zhandle_t *link_make_handle(struct coordinator *c, watcher_fn watcher, const struct session_key *key,
                            void *context)
{
    clientid_t id = {0};
    zhandle_t *zh = NULL;
    char *list = has_descriptors() ? addresses_to_list(&c->link.addresses) : NULL;
    if (key) {
        id.client_id = key->id;
        memcpy(id.passwd, key->password, sizeof id.passwd);
    }
    if (list)
        zh = zookeeper_init(list, watcher, c->timeout_asked_ms, key ? &id : NULL, context,
                            ZOO_NO_LOG_CLIENTENV);
    free(list);
    if (zh)
        zoo_set_servers_resolution_delay(zh, -1);
    return zh;
}

static void make_handle(struct coordinator *c, int64_t now_ms)
{
    struct link *l = &c->link;
    if (l->addresses.count == 0 || now_ms < l->retry_at_ms)
        return;
    l->zh = link_make_handle(c, watch_session, c->key.id ? &c->key : NULL, c);
    if (!l->zh) {
        note_failure(c);
        return;
    }
    l->is_stale = false;
    l->reconnected = false;
    l->handles_made++;
}

void link_close_handle(struct coordinator *c, zhandle_t *zh, int fd)
{
    pthread_mutex_lock(&c->close_lock);
    c->closing_fd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    pthread_mutex_unlock(&c->close_lock);
    /* Looked at after the copy is there: either we see the flag, or coordinator_free() sees the copy. */
    if (atomic_load(&c->out_of_time) && fd >= 0)
        shutdown(fd, SHUT_RDWR);
    zookeeper_close(zh);
    pthread_mutex_lock(&c->close_lock);
    if (c->closing_fd >= 0)
        close(c->closing_fd);
    c->closing_fd = -1;
    pthread_mutex_unlock(&c->close_lock);
}

static void note_down(struct coordinator *c)
{
    struct link *l = &c->link;
    int64_t now_ms = session_now_ms();
    bool lasted = now_ms - l->since_ms >= LINK_LASTS_MS;
    l->is_up = false;
    l->flaps = lasted ? 0 : l->flaps + 1;
    if (lasted)
        l->failures = 0;
    l->since_ms = now_ms;
    note_failure(c);
    session_link_down(c);
}

/* The socket, unless the library has closed it since it told us (its number may be somebody else's now). */
static int live_fd(const struct link *l)
{
    int state = zoo_state(l->zh);
    bool open =
        state == ZOO_CONNECTED_STATE || state == ZOO_CONNECTING_STATE || state == ZOO_ASSOCIATING_STATE;
    return open ? l->fd : -1;
}

void link_drop(struct coordinator *c)
{
    struct link *l = &c->link;
    if (!l->zh)
        return;
    if (live_fd(l) >= 0) {
        shutdown(l->fd, SHUT_RDWR);
        /* What had arrived is still read, message by message, before the end is seen. */
        while (zookeeper_process(l->zh, ZOOKEEPER_READ) == ZOK)
            ;
        l->fd = -1;
    }
}

void link_destroy(struct coordinator *c, bool close_session)
{
    struct link *l = &c->link;
    if (!l->zh)
        return;
    if (!close_session)
        link_drop(c);
    link_close_handle(c, l->zh, live_fd(l));
    l->zh = NULL;
    l->fd = -1;
    if (l->is_up)
        note_down(c);
}

static void bury(struct coordinator *c)
{
    int state = zoo_state(c->link.zh);
    link_destroy(c, false);
    if (state == ZOO_EXPIRED_SESSION_STATE) {
        /* The server is well and has said so: no reason to wait. */
        c->link.failures = 0;
        session_expired(c);
        return;
    }
    session_note_trouble(c, BROOK_E_ZOOKEEPER_AUTH, "the ZooKeeper server refused the credentials");
    diag_log(c->diag, DIAG_ERROR, "zookeeper", "the server refused the credentials; trying again");
    c->link.failures += (unsigned)c->link.addresses.count;
    note_failure(c);
}

/* See in which state the handle is: what it calls back about is not all. */
static void check_state(struct coordinator *c)
{
    struct link *l = &c->link;
    if (!l->zh)
        return;
    if (is_unrecoverable(l->zh) != ZOK) {
        bury(c);
        return;
    }
    int state = zoo_state(l->zh);
    bool up = state == ZOO_CONNECTED_STATE;
    if (l->is_up && (!up || l->reconnected))
        note_down(c);
    l->reconnected = false;
    /* A send failed and the library closed the socket without a word, its requests still in its list: they
     * would be taken for the next connection's. */
    if (state == ZOO_NOTCONNECTED_STATE && c->queue.flying_count) {
        link_destroy(c, false);
        return;
    }
    if (up && !l->is_up) {
        l->is_up = true;
        l->since_ms = session_now_ms();
        session_link_up(c);
    }
}

static int64_t attempt_until_ms(const struct coordinator *c)
{
    int64_t share_ms =
        session_timeout(c) / 2 / (int64_t)(c->link.addresses.count ? c->link.addresses.count : 1);
    return c->link.attempt_at_ms + (share_ms > ATTEMPT_MS_MIN ? share_ms : ATTEMPT_MS_MIN);
}

static void complain(struct coordinator *c, int64_t now_ms)
{
    struct link *l = &c->link;
    if (l->is_up || l->addresses.count == 0)
        return;
    if (!l->complain_at_ms || l->complain_at_ms < l->since_ms)
        l->complain_at_ms = l->since_ms + session_timeout(c);
    if (now_ms < l->complain_at_ms)
        return;
    diag_log(c->diag, DIAG_WARN, "zookeeper",
             "no connection for %d s: no server answers, or none wants us; trying on",
             (int)((now_ms - l->since_ms) / 1000));
    l->complain_at_ms = now_ms + COMPLAIN_MS;
}

/* ---- the loop's side ----------------------------------------------------------------------------------- */

void link_turn(struct coordinator *c, int64_t now_ms)
{
    struct link *l = &c->link;
    check_state(c);
    resolve(c, now_ms);
    if (l->zh && !l->is_up && (l->is_stale || l->flaps >= LINK_FLAPS_MAX)) {
        l->flaps = 0;
        link_destroy(c, false);
    }
    if (!l->zh)
        make_handle(c, now_ms);
    if (l->zh && !l->is_up && live_fd(l) >= 0 && now_ms >= attempt_until_ms(c)) {
        link_drop(c);
        note_failure(c);
    }
    complain(c, now_ms);
}

void link_interest(struct coordinator *c, int64_t now_ms)
{
    struct link *l = &c->link;
    struct timeval tv = {0, 0};
    int fd = -1, interest = 0;
    check_state(c);
    int fd_before = l->zh ? live_fd(l) : -1;
    l->fd = -1;
    l->interest = 0;
    if (!l->zh || (!l->is_up && now_ms < l->retry_at_ms)) {
        l->wake_ms = l->retry_at_ms;
        return;
    }
    int rc = zookeeper_interest(l->zh, &fd, &interest, &tv);
    if (rc != ZOK) {
        note_failure(c);
        l->wake_ms =
            now_ms + INTEREST_RETRY_MS < l->retry_at_ms ? now_ms + INTEREST_RETRY_MS : l->retry_at_ms;
        return;
    }
    l->fd = fd;
    l->interest = interest;
    l->wake_ms = now_ms + tv.tv_sec * 1000 + tv.tv_usec / 1000 + 1;
    if (fd_before < 0)
        l->attempt_at_ms = now_ms;
    if (!l->is_up && fd >= 0 && attempt_until_ms(c) < l->wake_ms)
        l->wake_ms = attempt_until_ms(c);
}

void link_process(struct coordinator *c, int poll_events)
{
    struct link *l = &c->link;
    int events = 0;
    if (!l->zh || l->fd < 0)
        return;
    if (poll_events & POLLIN)
        events |= ZOOKEEPER_READ;
    if (poll_events & POLLOUT)
        events |= ZOOKEEPER_WRITE;
    if (poll_events & (POLLERR | POLLHUP | POLLNVAL))
        events |= l->interest;
    int rc = ZOK;
    uint64_t before = c->queue.progress - 1;
    for (int i = 0; events && rc == ZOK && i < PROCESS_BATCH && c->queue.progress != before; i++) {
        before = c->queue.progress;
        rc = zookeeper_process(l->zh, events);
        events = l->is_up ? ZOOKEEPER_READ : 0;
    }
    if (rc != ZOK && rc != ZNOTHING) {
        l->fd = -1;
        if (!l->is_up)
            note_failure(c);
    }
}

int64_t link_wake_ms(const struct coordinator *c)
{
    const struct link *l = &c->link;
    int64_t wake_ms = l->zh || l->addresses.count ? l->wake_ms : INT64_MAX;
    return l->resolve_at_ms < wake_ms && !l->resolver ? l->resolve_at_ms : wake_ms;
}

void link_done(struct coordinator *c)
{
    resolver_abandon(c->link.resolver);
    c->link.resolver = NULL;
}
