/* Calls that take several requests: a machine each, on the session thread. */
#include "coordination/machine.h"

#include "coordination/session.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* ---- the common part ----------------------------------------------------------------------------------- */

static void machine_free(struct machine *m)
{
    if (m->release)
        m->release(m);
    answer_free(m->answer);
    free(m);
}

static void start_machine(struct inbox_item *item)
{
    struct machine *m = CONTAINER_OF(item, struct machine, item);
    struct coordinator *c = m->coordinator;
    DL_APPEND(c->machines, m);
    if (c->stopping)
        machine_finish(m, -BROOK_E_CLOSED);
    else
        m->start(m);
}

void *machine_new(struct coordinator *c, size_t bytes, struct coordinator_call call,
                  void (*start)(struct machine *))
{
    struct machine *m = must_calloc(bytes);
    m->coordinator = c;
    m->answer = answer_new(call);
    m->generation = call.generation;
    m->urgent = call.urgent;
    m->start = start;
    return m;
}

void machine_launch(struct machine *m)
{
    session_post(m->coordinator, &m->item, start_machine);
}

void machine_finish(struct machine *m, int err)
{
    struct coordinator *c = m->coordinator;
    m->answer->reply.err = err;
    answer_post(m->answer);
    m->answer = NULL;
    timers_clear(&c->timers, &m->timer);
    DL_DELETE(c->machines, m);
    m->is_over = true;
    if (!m->is_waiting)
        machine_free(m);
}

static void request_done_(struct coordinator *c, struct request *r)
{
    struct machine *m = r->done_arg;
    m->is_waiting = false;
    if (m->is_over)
        machine_free(m);
    else if (r->answer->reply.err == -BROOK_E_CLOSED)
        machine_finish(m, -BROOK_E_CLOSED);
    else
        m->step(m, r);
}

void machine_send(struct machine *m, struct internal request, machine_step *step)
{
    request.generation = m->generation;
    request.urgent = m->urgent;
    request.done = request_done_;
    request.arg = m;
    m->is_waiting = true;
    m->step = step;
    dispatch_internal(m->coordinator, &request);
}

static void timer_fired(struct timer *timer)
{
    struct machine *m = CONTAINER_OF(timer, struct machine, timer);
    m->wake(m);
}

void machine_sleep(struct machine *m, int64_t ms, void (*wake)(struct machine *m))
{
    m->timer.fire = timer_fired;
    m->wake = wake;
    timers_set(&m->coordinator->timers, &m->timer, session_now_ms() + ms);
}

void machine_close_all(struct coordinator *c)
{
    struct machine *m, *next;
    DL_FOREACH_SAFE(c->machines, m, next)
    machine_finish(m, -BROOK_E_CLOSED);
}

/* Answer without a machine having been started: the arguments are wrong. */
static void refuse(struct coordinator_call call, int err)
{
    struct answer *a = answer_new(call);
    a->reply.err = err;
    answer_post(a);
}

/* ---- create a path ------------------------------------------------------------------------------------- */

struct create_path {
    struct machine machine;
    char *path;
    size_t level; /* bytes of `path` that are being created now */
    char *data;
    size_t data_bytes;
};

static void create_level(struct create_path *p);

static void created_level(struct machine *m, struct request *r)
{
    struct create_path *p = (struct create_path *)m;
    int err = r->answer->reply.err;
    bool is_last = p->path[p->level] == '\0';
    if (err == -BROOK_E_NO_NODE && p->level > 0) {
        /* One up. */
        do
            p->level--;
        while (p->level > 0 && p->path[p->level] != '/');
        if (p->level > 0) {
            create_level(p);
            return;
        }
    }
    if (!is_last && (err == 0 || err == -BROOK_E_NODE_EXISTS)) {
        /* One down. */
        do
            p->level++;
        while (p->path[p->level] && p->path[p->level] != '/');
        create_level(p);
        return;
    }
    /* As long as only its parents were tried, the node itself is certainly not made. */
    if (!is_last && err == -BROOK_E_OUTCOME_UNKNOWN)
        err = -BROOK_E_COORDINATION_LOST;
    answer_take(m->answer, r->answer);
    machine_finish(m, err);
}

static void create_level(struct create_path *p)
{
    bool is_last = p->path[p->level] == '\0';
    char *level = strndup(p->path, p->level);
    if (!level) {
        machine_finish(&p->machine, -BROOK_E_NOMEM);
        return;
    }
    machine_send(&p->machine,
                 (struct internal){.op = OP_CREATE,
                                   .path = level,
                                   .data = is_last ? p->data : NULL,
                                   .data_bytes = is_last ? p->data_bytes : 0},
                 created_level);
    free(level);
}

static void start_create_path(struct machine *m)
{
    create_level((struct create_path *)m);
}

static void release_create_path(struct machine *m)
{
    struct create_path *p = (struct create_path *)m;
    free(p->path);
    free(p->data);
}

void coordinator_create_path(struct coordinator *c, const char *path, const void *data, size_t data_bytes,
                             struct coordinator_call call)
{
    if (!znode_path_is_legal(path) || data_bytes > COORDINATOR_NODE_BYTES_MAX) {
        refuse(call, znode_path_is_legal(path) ? -BROOK_E_NODE_TOO_LARGE : -BROOK_E_INVALID);
        return;
    }
    struct create_path *p = machine_new(c, sizeof *p, call, start_create_path);
    p->machine.release = release_create_path;
    p->path = must_calloc(strlen(path) + 1);
    strcpy(p->path, path);
    p->level = strlen(path);
    p->data = must_calloc(data_bytes + 1);
    if (data_bytes)
        memcpy(p->data, data, data_bytes);
    p->data_bytes = data_bytes;
    machine_launch(&p->machine);
}

/* ---- delete our own ephemeral -------------------------------------------------------------------------- */

struct delete_own {
    struct machine machine;
    char *path;
};

static void look_at_own(struct machine *m);

static void deleted_own(struct machine *m, struct request *r)
{
    int err = r->answer->reply.err;
    if (err == -BROOK_E_BAD_VERSION) {
        look_at_own(m);
        return;
    }
    machine_finish(m, err == -BROOK_E_NO_NODE ? 0 : err);
}

static void looked_at_own(struct machine *m, struct request *r)
{
    struct delete_own *d = (struct delete_own *)m;
    int err = r->answer->reply.err;
    bool ours = err == 0 && r->answer->reply.stat.ephemeral_owner == m->coordinator->key.id &&
                m->coordinator->is_alive;
    m->answer->reply.generation = r->generation;
    /* The session that owns it must be the one that deletes it, so from here on only in this one. */
    m->generation = r->generation;
    if (err != 0 || !ours) {
        machine_finish(m, err == -BROOK_E_NO_NODE ? 0 : err);
        return;
    }
    machine_send(
        m, (struct internal){.op = OP_DELETE, .path = d->path, .version = r->answer->reply.stat.version},
        deleted_own);
}

static void look_at_own(struct machine *m)
{
    machine_send(m, (struct internal){.op = OP_EXISTS, .path = ((struct delete_own *)m)->path},
                 looked_at_own);
}

static void release_delete_own(struct machine *m)
{
    free(((struct delete_own *)m)->path);
}

void coordinator_delete_own(struct coordinator *c, const char *path, struct coordinator_call call)
{
    if (!znode_path_is_legal(path)) {
        refuse(call, -BROOK_E_INVALID);
        return;
    }
    struct delete_own *d = machine_new(c, sizeof *d, call, look_at_own);
    d->machine.release = release_delete_own;
    d->path = must_calloc(strlen(path) + 1);
    strcpy(d->path, path);
    machine_launch(&d->machine);
}
