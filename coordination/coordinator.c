/* The verbs: they check, copy, and post to the session thread. */
#include "coordination/coordinator.h"

#include "coordination/multi.h"
#include "coordination/session.h"
#include "proto/base/clock.h"

#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define SESSION_TIMEOUT_MS_MIN 100
#define SESSION_TIMEOUT_MS_MAX 3600000

int coordinator_check_connect(const char *connect, struct brook_error *error)
{
    struct servers servers;
    return servers_parse(connect, &servers, error);
}

/* ---- life ---------------------------------------------------------------------------------------------- */

static void destroy(struct coordinator *c)
{
    session_done(c);
    inbox_done(&c->inbox);
    if (c->done_fd >= 0)
        close(c->done_fd);
    pthread_mutex_destroy(&c->close_lock);
    pthread_mutex_destroy(&c->trouble_lock);
    free(c);
}

static int set_up(struct coordinator *c, const struct coordinator_settings *settings)
{
    int r = inbox_init(&c->inbox);
    if (r < 0)
        return r;
    c->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->done_fd < 0)
        return -BROOK_E_IO;
    if ((r = session_file_open(&c->file, settings->session_file)) < 0)
        return r;
    if (settings->resume_session && c->file.count) {
        c->key = c->file.keys[0];
        c->resuming_id = c->key.id;
    }
    c->timeout_asked_ms = settings->session_timeout_ms;
    c->diag = settings->diag;
    c->ledger.bytes_max = COORDINATOR_EPHEMERAL_PATH_BYTES_MAX;
    c->not_ready_since_ms = clock_boot_ms();
    if (getrandom(&c->seed, sizeof c->seed, 0) != (ssize_t)sizeof c->seed)
        c->seed = (uint64_t)clock_boot_ns();
    link_init(c);
    return thread_start(&c->thread, session_run, c);
}

int coordinator_new(const struct coordinator_settings *settings, struct coordinator **ret,
                    struct brook_error *error)
{
    struct coordinator *c = calloc(1, sizeof *c);
    if (!c)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    pthread_mutex_init(&c->close_lock, NULL);
    pthread_mutex_init(&c->trouble_lock, NULL);
    c->closing_fd = c->done_fd = c->inbox.fd = -1;
    int r = servers_parse(settings->connect, &c->servers, error);
    if (r == 0 && (settings->session_timeout_ms < SESSION_TIMEOUT_MS_MIN ||
                   settings->session_timeout_ms > SESSION_TIMEOUT_MS_MAX))
        r = brook_error_set(error, BROOK_E_CONFIG,
                            "a ZooKeeper session timeout of %d ms, allowed are %d to %d",
                            settings->session_timeout_ms, SESSION_TIMEOUT_MS_MIN, SESSION_TIMEOUT_MS_MAX);
    else if (r == 0 && (r = set_up(c, settings)) < 0)
        brook_error_set(error, -r, "starting the ZooKeeper thread: %s", brook_error_text(r));
    if (r < 0) {
        destroy(c);
        return r;
    }
    *ret = c;
    return 0;
}

struct stop {
    struct inbox_item item;
    struct coordinator *coordinator;
    bool keep_session;
    int64_t until_ms;
};

static void run_stop(struct inbox_item *item)
{
    struct stop *stop = CONTAINER_OF(item, struct stop, item);
    struct coordinator *c = stop->coordinator;
    c->keep_session = stop->keep_session;
    c->stop_until_ms = stop->until_ms;
    c->stopping = true;
}

void coordinator_stop(struct coordinator *c, bool keep_session, int timeout_ms)
{
    if (!c)
        return;
    struct stop stop = {.coordinator = c, .keep_session = keep_session, .until_ms = clock_boot_ms() + timeout_ms};
    session_post(c, &stop.item, run_stop);
    struct pollfd done = {.fd = c->done_fd, .events = POLLIN};
    if (poll(&done, 1, timeout_ms) == 0) {
        /* Most likely it waits for a server that does not answer the close: cut that connection. */
        atomic_store(&c->out_of_time, true);
        pthread_mutex_lock(&c->close_lock);
        if (c->closing_fd >= 0)
            shutdown(c->closing_fd, SHUT_RDWR);
        pthread_mutex_unlock(&c->close_lock);
    }
    pthread_join(c->thread, NULL);
    c->is_joined = true;
}

void coordinator_free(struct coordinator *c, bool keep_session, int timeout_ms)
{
    if (!c)
        return;
    if (!c->is_joined)
        coordinator_stop(c, keep_session, timeout_ms);
    /* What came in after the thread had stopped looking is answered here. */
    inbox_drain(&c->inbox);
    destroy(c);
}

int64_t coordinator_lease_until_ns(const struct coordinator *c)
{
    return atomic_load(&c->lease_until_ns);
}

int coordinator_timeout_ms(const struct coordinator *c)
{
    return atomic_load(&c->timeout_ms);
}

uint64_t coordinator_generation(const struct coordinator *c)
{
    return atomic_load(&c->generation);
}

int64_t coordinator_session_id(const struct coordinator *c)
{
    return atomic_load(&c->session_id);
}

bool coordinator_is_connected(const struct coordinator *c)
{
    return atomic_load(&c->is_connected);
}

static void name_servers(const struct servers *servers, char *to, size_t room)
{
    size_t n = 0;
    to[0] = '\0';
    for (size_t i = 0; i < servers->count && n < room; i++) {
        const struct server *s = &servers->list[i];
        bool is_v6 = strchr(s->host, ':') != NULL;
        n += (size_t)snprintf(to + n, room - n, "%s%s%s%s:%s", i ? "," : "", is_v6 ? "[" : "", s->host,
                              is_v6 ? "]" : "", s->port);
    }
}

int coordinator_trouble(struct coordinator *c, struct brook_error *error)
{
    char names[160];
    name_servers(&c->servers, names, sizeof names);
    pthread_mutex_lock(&c->trouble_lock);
    bool is_known = c->trouble.code != 0;
    if (is_known)
        *error = c->trouble;
    pthread_mutex_unlock(&c->trouble_lock);
    if (is_known)
        return -error->code;
    return brook_error_set(error, BROOK_E_COORDINATION_LOST, "ZooKeeper %s does not answer", names);
}

/* ---- verbs --------------------------------------------------------------------------------------------- */

static void run_request(struct inbox_item *item)
{
    struct request *r = CONTAINER_OF(item, struct request, item);
    dispatch_add(r->coordinator, r);
}

static void refuse(struct coordinator_call call, int err)
{
    struct answer *a = answer_new(call);
    a->reply.err = err;
    answer_post(a);
}

/* A request that may be posted, or NULL when it has been refused. */
static struct request *prepare(struct coordinator *c, enum request_op op, const char *path, const void *data,
                               size_t data_bytes, struct coordinator_call call)
{
    if (!path || !znode_path_is_legal(path)) {
        refuse(call, -BROOK_E_INVALID);
        return NULL;
    }
    /* Before it is copied. */
    if (data_bytes > COORDINATOR_NODE_BYTES_MAX) {
        refuse(call, -BROOK_E_NODE_TOO_LARGE);
        return NULL;
    }
    struct request *r = request_new(c, op, session_full_path(c, path), call);
    if (request_copy_data(r, data, data_bytes) < 0) {
        request_free(r);
        refuse(call, -BROOK_E_NOMEM);
        return NULL;
    }
    return r;
}

static void post(struct request *r)
{
    session_post(r->coordinator, &r->item, run_request);
}

static void post_plain(struct coordinator *c, enum request_op op, const char *path,
                       struct coordinator_call call)
{
    struct request *r = prepare(c, op, path, NULL, 0, call);
    if (r)
        post(r);
}

void coordinator_get(struct coordinator *c, const char *path, struct coordinator_call call)
{
    post_plain(c, OP_GET, path, call);
}

void coordinator_exists(struct coordinator *c, const char *path, struct coordinator_call call)
{
    post_plain(c, OP_EXISTS, path, call);
}

void coordinator_children(struct coordinator *c, const char *path, struct coordinator_call call)
{
    post_plain(c, OP_CHILDREN, path, call);
}

void coordinator_sync(struct coordinator *c, const char *path, struct coordinator_call call)
{
    post_plain(c, OP_SYNC, path, call);
}

void coordinator_create(struct coordinator *c, const char *path, const void *data, size_t data_bytes,
                        enum znode_mode mode, struct coordinator_call call)
{
    struct request *r = prepare(c, OP_CREATE, path, data, data_bytes, call);
    if (!r)
        return;
    r->mode = mode;
    post(r);
}

void coordinator_set(struct coordinator *c, const char *path, const void *data, size_t data_bytes,
                     int32_t version, struct coordinator_call call)
{
    struct request *r = prepare(c, OP_SET, path, data, data_bytes, call);
    if (!r)
        return;
    r->version = version;
    post(r);
}

void coordinator_delete(struct coordinator *c, const char *path, int32_t version,
                        struct coordinator_call call)
{
    struct request *r = prepare(c, OP_DELETE, path, NULL, 0, call);
    if (!r)
        return;
    r->version = version;
    post(r);
}

void coordinator_multi_send(struct coordinator *c, struct coordinator_multi **multi,
                            struct coordinator_call call)
{
    struct coordinator_multi *m = *multi;
    *multi = NULL;
    int err = m->err ? m->err : m->count == 0 ? -BROOK_E_INVALID : 0;
    struct request *r = err ? NULL : prepare(c, OP_MULTI, "/", NULL, 0, call);
    if (err)
        refuse(call, err);
    if (!r) {
        coordinator_multi_free(m);
        return;
    }
    r->multi = m;
    post(r);
}
