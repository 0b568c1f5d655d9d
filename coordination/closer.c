#include "coordination/closer.h"

#include "coordination/session.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <utlist.h>

/* Between attempts to connect. */
#define RETRY_MS 50
/* The library gives the server 1500 ms to answer a close and does not say whether it did. */
#define CLOSE_ANSWERED_MS 1400

struct closer {
    struct closer *prev, *next;
    struct session_key key;
    closer_done_fn *done;
    void *arg;
    zhandle_t *zh;
    int fd;
    int64_t wake_ms;
    int64_t retry_at_ms;
    int64_t deadline_ms;
};

static void ignore_events(zhandle_t *zh, int type, int state, const char *path, void *context)
{
}

size_t closer_count(const struct coordinator *c)
{
    const struct closer *k;
    size_t count;
    DL_COUNT(c->closers, k, count);
    return count;
}

int closer_start(struct coordinator *c, const struct session_key *key, closer_done_fn *done, void *arg)
{
    if (closer_count(c) >= CLOSERS_MAX || c->link.addresses.count == 0)
        return -BROOK_E_BUSY;
    struct closer *k = must_calloc(sizeof *k);
    k->zh = link_make_handle(c, ignore_events, key, NULL);
    if (!k->zh) {
        free(k);
        return -BROOK_E_BUSY;
    }
    k->key = *key;
    k->done = done;
    k->arg = arg;
    k->fd = -1;
    k->deadline_ms = session_now_ms() + session_timeout(c);
    DL_APPEND(c->closers, k);
    return 0;
}

static void finish(struct coordinator *c, struct closer *k, int err)
{
    DL_DELETE(c->closers, k);
    if (err == 0)
        session_file_remove(&c->file, k->key.id);
    k->done(k->arg, err);
    free(k);
}

/* Let go of the handle without closing its session. */
static void abandon(struct coordinator *c, struct closer *k)
{
    if (k->fd >= 0) {
        shutdown(k->fd, SHUT_RDWR);
        while (zookeeper_process(k->zh, ZOOKEEPER_READ) == ZOK)
            ;
    }
    zookeeper_close(k->zh);
}

/* Returns whether it is finished. */
static bool look(struct coordinator *c, struct closer *k, int64_t now_ms)
{
    if (is_unrecoverable(k->zh) != ZOK) {
        bool expired = zoo_state(k->zh) == ZOO_EXPIRED_SESSION_STATE;
        zookeeper_close(k->zh);
        finish(c, k, expired ? 0 : -BROOK_E_TIMED_OUT);
        return true;
    }
    if (zoo_state(k->zh) == ZOO_CONNECTED_STATE) {
        link_close_handle(c, k->zh, k->fd);
        bool answered = session_now_ms() - now_ms < CLOSE_ANSWERED_MS && !atomic_load(&c->out_of_time);
        finish(c, k, answered ? 0 : -BROOK_E_TIMED_OUT);
        return true;
    }
    if (now_ms >= k->deadline_ms) {
        abandon(c, k);
        finish(c, k, -BROOK_E_TIMED_OUT);
        return true;
    }
    return false;
}

static void interest(struct closer *k, struct pollfd *fd, int64_t now_ms)
{
    struct timeval tv = {0, 0};
    int wanted = 0;
    k->fd = -1;
    k->wake_ms = k->retry_at_ms;
    if (now_ms >= k->retry_at_ms) {
        if (zookeeper_interest(k->zh, &k->fd, &wanted, &tv) != ZOK) {
            k->fd = -1;
            k->retry_at_ms = now_ms + RETRY_MS;
        }
        k->wake_ms = k->fd < 0 ? now_ms + RETRY_MS : now_ms + tv.tv_sec * 1000 + tv.tv_usec / 1000 + 1;
    }
    *fd = (struct pollfd){.fd = k->fd};
    fd->events = (short)((wanted & ZOOKEEPER_READ ? POLLIN : 0) | (wanted & ZOOKEEPER_WRITE ? POLLOUT : 0));
}

void closer_interest(struct coordinator *c, struct pollfd *fds, int64_t now_ms, int64_t *wake_ms)
{
    struct closer *k;
    size_t i = 0;
    DL_FOREACH(c->closers, k)
    {
        interest(k, &fds[i++], now_ms);
        if (k->wake_ms < *wake_ms)
            *wake_ms = k->wake_ms;
        if (k->deadline_ms < *wake_ms)
            *wake_ms = k->deadline_ms;
    }
}

static void process(struct closer *k, const struct pollfd *fd, int64_t now_ms)
{
    int events = (fd->revents & POLLIN ? ZOOKEEPER_READ : 0) | (fd->revents & POLLOUT ? ZOOKEEPER_WRITE : 0);
    if (fd->revents & (POLLERR | POLLHUP | POLLNVAL))
        events |= ZOOKEEPER_READ | ZOOKEEPER_WRITE;
    if (k->fd < 0 || !events)
        return;
    int rc = zookeeper_process(k->zh, events);
    if (rc != ZOK && rc != ZNOTHING) {
        k->fd = -1;
        k->retry_at_ms = now_ms + RETRY_MS;
    }
}

void closer_process(struct coordinator *c, const struct pollfd *fds, size_t count, int64_t now_ms)
{
    struct closer *k, *next;
    size_t i = 0;
    /* A finished one may let a machine start another, which `fds` knows nothing of. */
    DL_FOREACH_SAFE(c->closers, k, next)
    {
        if (i >= count)
            break;
        process(k, &fds[i++], now_ms);
        look(c, k, now_ms);
    }
}

void closer_close_all(struct coordinator *c)
{
    while (c->closers) {
        abandon(c, c->closers);
        finish(c, c->closers, -BROOK_E_CLOSED);
    }
}
