/* Requests on their way: queued, sent, completed, answered. */
#include "coordination/codes.h"
#include "coordination/multi.h"
#include "coordination/session.h"
#include "proto/base/clock.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

char *session_full_path(const struct coordinator *c, const char *path)
{
    const char *chroot = c ? c->servers.chroot : "";
    bool is_root = path[0] == '/' && !path[1] && *chroot;
    char *full = must_calloc(strlen(chroot) + strlen(path) + 1);
    strcpy(stpcpy(full, chroot), is_root ? "" : path);
    return full;
}

/* ---- answering ----------------------------------------------------------------------------------------- */

void dispatch_answer(struct coordinator *c, struct request *r)
{
    if (r->done) {
        r->done(c, r);
    } else {
        answer_post(r->answer);
        r->answer = NULL;
    }
    request_free(r);
}

void dispatch_fail(struct coordinator *c, struct request *r, int err)
{
    r->answer->reply.err = err;
    r->answer->reply.generation = r->generation;
    r->answer->reply.sent_ns = r->sent_ns;
    dispatch_answer(c, r);
}

/* ---- queueing ------------------------------------------------------------------------------------------ */

void dispatch_add(struct coordinator *c, struct request *r)
{
    if (c->stopping)
        dispatch_fail(c, r, -BROOK_E_CLOSED);
    else if (request_bytes(r) > COORDINATOR_REQUEST_BYTES_MAX || r->data_bytes > COORDINATOR_NODE_BYTES_MAX)
        dispatch_fail(c, r, -BROOK_E_NODE_TOO_LARGE);
    else if (r->before_ready)
        DL_APPEND(c->queue.early, r);
    else if (r->urgent)
        DL_APPEND(c->queue.urgent, r);
    else
        DL_APPEND(c->queue.normal, r);
}

void dispatch_internal(struct coordinator *c, const struct internal *i)
{
    struct coordinator_call nobody = {.urgent = i->urgent, .generation = i->generation};
    struct request *r = request_new(c, i->op, session_full_path(i->before_ready ? NULL : c, i->path), nobody);
    r->done = i->done;
    r->done_arg = i->arg;
    r->version = i->version;
    r->mode = i->mode;
    r->watch_id = i->watch_id;
    r->before_ready = i->before_ready;
    if (i->multi) {
        r->multi = *i->multi;
        *i->multi = NULL;
    }
    if (request_copy_data(r, i->data, i->data_bytes) < 0)
        dispatch_fail(c, r, -BROOK_E_NOMEM);
    else
        dispatch_add(c, r);
}

/* ---- ephemeral nodes are counted ----------------------------------------------------------------------- */

static bool is_ephemeral(enum znode_mode mode)
{
    return (mode & ZNODE_EPHEMERAL) != 0;
}

static bool is_sequential(enum znode_mode mode)
{
    return (mode & ZNODE_SEQUENTIAL) != 0;
}

static int count_ephemeral(struct coordinator *c, const char *path, enum znode_mode mode)
{
    if (!is_ephemeral(mode))
        return 0;
    /* The name of a sequential one is counted when it is known. */
    if (is_sequential(mode))
        return c->ledger.bytes + strlen(path) > c->ledger.bytes_max ? -BROOK_E_TOO_MANY : 0;
    return ledger_add(&c->ledger, path);
}

static int count_ephemerals(struct coordinator *c, const struct request *r)
{
    if (r->op == OP_CREATE)
        return count_ephemeral(c, r->path, r->mode);
    int err = 0;
    for (size_t i = 0; r->op == OP_MULTI && err == 0 && i < r->multi->count; i++)
        if (r->multi->ops[i].type == MULTI_CREATE)
            err = count_ephemeral(c, r->multi->flight.paths[i], r->multi->ops[i].mode);
    return err;
}

/* `created`: it is there now; otherwise it is certainly not there by this request. */
static void settle_ephemerals(struct coordinator *c, const struct request *r, bool done)
{
    if (r->op == OP_CREATE && is_ephemeral(r->mode)) {
        if (!done && r->rc != ZNODEEXISTS && !is_sequential(r->mode))
            ledger_remove(&c->ledger, r->path);
        else if (done && is_sequential(r->mode))
            ledger_add(&c->ledger, r->answer->path);
    } else if (r->op == OP_DELETE && done) {
        ledger_remove(&c->ledger, r->path);
    }
    for (size_t i = 0; r->op == OP_MULTI && i < r->multi->count; i++) {
        const struct multi_op *op = &r->multi->ops[i];
        if ((op->type == MULTI_DELETE && done) ||
            (op->type == MULTI_CREATE && is_ephemeral(op->mode) && !done && r->rc != ZNODEEXISTS))
            ledger_remove(&c->ledger, r->multi->flight.paths[i]);
    }
}

/* ---- what the library calls ---------------------------------------------------------------------------- */

static struct answer *completed(const void *data, int rc)
{
    struct request *r = (struct request *)(uintptr_t)data;
    struct queue *q = &r->coordinator->queue;
    DL_DELETE(q->flying, r);
    q->flying_count--;
    q->flying_bytes -= request_bytes(r);
    q->progress++;
    DL_APPEND(q->completed, r);
    r->rc = rc;
    r->answer->reply.err = code_to_error(rc);
    return r->answer;
}

static void complete_void(int rc, const void *data)
{
    completed(data, rc);
}

static void complete_stat(int rc, const struct Stat *stat, const void *data)
{
    struct answer *a = completed(data, rc);
    if (rc == ZOK && stat)
        stat_from_zookeeper(&a->reply.stat, stat);
}

static void complete_data(int rc, const char *value, int value_len, const struct Stat *stat, const void *data)
{
    struct answer *a = completed(data, rc);
    if (rc != ZOK)
        return;
    stat_from_zookeeper(&a->reply.stat, stat);
    answer_copy_data(a, value, value && value_len > 0 ? (size_t)value_len : 0);
}

static void complete_children(int rc, const struct String_vector *strings, const struct Stat *stat,
                              const void *data)
{
    struct answer *a = completed(data, rc);
    if (rc != ZOK)
        return;
    stat_from_zookeeper(&a->reply.stat, stat);
    answer_copy_children(a, strings->data, (size_t)strings->count);
}

static void complete_string(int rc, const char *value, const void *data)
{
    struct answer *a = completed(data, rc);
    if (rc == ZOK && value && !(a->path = strdup(value)))
        a->reply.err = -BROOK_E_NOMEM;
}

/* ---- sending ------------------------------------------------------------------------------------------- */

static int send_read(zhandle_t *zh, struct request *r)
{
    watcher_fn watcher = r->watch_id ? observe_watcher : NULL;
    void *id = (void *)(uintptr_t)r->watch_id;
    if (r->op == OP_GET)
        return zoo_awget(zh, r->path, watcher, id, complete_data, r);
    if (r->op == OP_EXISTS)
        return zoo_awexists(zh, r->path, watcher, id, complete_stat, r);
    return zoo_awget_children2(zh, r->path, watcher, id, complete_children, r);
}

static int send_request(zhandle_t *zh, struct request *r)
{
    switch (r->op) {
    case OP_GET:
    case OP_EXISTS:
    case OP_CHILDREN:
        return send_read(zh, r);
    case OP_CREATE:
        return zoo_acreate(zh, r->path, r->data, (int)r->data_bytes, &ZOO_OPEN_ACL_UNSAFE, (int)r->mode,
                           complete_string, r);
    case OP_SET:
        return zoo_aset(zh, r->path, r->data, (int)r->data_bytes, r->version, complete_stat, r);
    case OP_DELETE:
        return zoo_adelete(zh, r->path, r->version, complete_void, r);
    case OP_SYNC:
        return zoo_async(zh, r->path, complete_string, r);
    case OP_MULTI:
        return zoo_amulti(zh, (int)r->multi->count, r->multi->flight.ops, r->multi->flight.results,
                          complete_void, r);
    case OP_UNWATCH:
        /* The declared type is a pointer to the function type; the library casts it back. */
        return zoo_aremove_all_watches(zh, r->path, (ZooWatcherType)r->version, 0,
                                       (void_completion_t *)(uintptr_t)complete_void, r);
    }
    return ZBADARGUMENTS;
}

/* What must hold before a request may go out. Returns 0 or the error to answer. */
static int check_before_send(struct coordinator *c, struct request *r)
{
    if (r->generation_wanted && (!c->is_alive || r->generation_wanted != c->generation))
        return -BROOK_E_SESSION_EXPIRED;
    if (r->op == OP_MULTI && multi_prepare(r->multi, c->servers.chroot) < 0)
        return -BROOK_E_NOMEM;
    return count_ephemerals(c, r);
}

/* Returns false when nothing more can be sent now. */
static bool launch(struct coordinator *c, struct request *r)
{
    struct queue *q = &c->queue;
    int err = check_before_send(c, r);
    if (err < 0) {
        dispatch_fail(c, r, err);
        return true;
    }
    r->generation = c->generation;
    r->sent_ns = clock_boot_ns();
    r->sends++;
    DL_APPEND(q->flying, r);
    q->flying_count++;
    q->flying_bytes += request_bytes(r);
    int rc = send_request(c->link.zh, r);
    if (rc == ZOK)
        return true;

    /* The return value is the only answer: the completion will not be called. */
    DL_DELETE(q->flying, r);
    q->flying_count--;
    q->flying_bytes -= request_bytes(r);
    r->rc = rc;
    settle_ephemerals(c, r, false);
    bool ours = code_classify_refusal(rc) == CODE_OURS || r->op == OP_UNWATCH;
    dispatch_fail(c, r, ours ? -BROOK_E_INVALID : -BROOK_E_COORDINATION_LOST);
    return ours;
}

static struct request *take_next(struct coordinator *c)
{
    struct queue *q = &c->queue;
    struct request **from = NULL;
    if (q->flying_count >= COORDINATOR_REQUESTS_IN_FLIGHT_MAX || q->flying_bytes >= SESSION_SEND_BYTES_MAX)
        return NULL;
    if (q->early)
        from = &q->early;
    else if (c->is_ready && q->urgent)
        from = &q->urgent;
    else if (c->is_ready && q->normal &&
             q->flying_count < COORDINATOR_REQUESTS_IN_FLIGHT_MAX - COORDINATOR_REQUESTS_RESERVED)
        from = &q->normal;
    struct request *r = from ? *from : NULL;
    if (r)
        DL_DELETE(*from, r);
    return r;
}

void dispatch_pump(struct coordinator *c)
{
    struct request *r;
    while (c->link.zh && c->link.is_up && (r = take_next(c)))
        if (!launch(c, r))
            return;
}

/* ---- completing ---------------------------------------------------------------------------------------- */

/* Whether to send `r` again without telling anybody. */
static bool may_repeat(const struct coordinator *c, const struct request *r, enum code_class class)
{
    bool lost_read = request_is_read(r) && (class == CODE_UNKNOWN || class == CODE_STEP_DOWN);
    return (lost_read || class == CODE_RETRY) && !c->stopping && r->sends < SESSION_READ_SENDS_MAX &&
           !r->before_ready;
}

static void fill_multi(struct request *r, struct answer *a)
{
    a->op_stats = calloc(r->multi->count, sizeof *a->op_stats);
    if (!a->op_stats) {
        a->reply.err = -BROOK_E_NOMEM;
        return;
    }
    for (size_t i = 0; i < r->multi->count; i++)
        if (r->multi->ops[i].type == MULTI_SET)
            stat_from_zookeeper(&a->op_stats[i], &r->multi->flight.stats[i]);
    a->reply.op_stats = a->op_stats;
}

static void fill_reply(struct coordinator *c, struct request *r, bool done)
{
    struct answer *a = r->answer;
    a->reply.generation = r->generation;
    a->reply.sent_ns = r->sent_ns;
    if (!done)
        return;
    if (r->op == OP_CREATE && a->path) {
        a->reply.path = a->path + strlen(c->servers.chroot);
        a->reply.stat.ephemeral_owner = is_ephemeral(r->mode) ? c->key.id : 0;
    } else if (r->op == OP_MULTI) {
        fill_multi(r, a);
    }
}

static void finish(struct coordinator *c, struct request *r)
{
    if (r->op == OP_MULTI)
        r->rc = multi_result(r->multi, r->rc, &r->answer->reply.failed_op);
    enum code_class class = code_classify(r->rc);
    bool done = class == CODE_DONE;
    bool open = class == CODE_UNKNOWN || class == CODE_STEP_DOWN;
    if (may_repeat(c, r, class)) {
        dispatch_add(c, r);
        return;
    }
    if (r->answer->reply.err != -BROOK_E_NOMEM)
        r->answer->reply.err = code_to_error(r->rc);
    if (open && request_is_read(r) && r->answer->reply.err == -BROOK_E_OUTCOME_UNKNOWN)
        r->answer->reply.err = -BROOK_E_COORDINATION_LOST;
    if (open && c->stopping)
        r->answer->reply.err = -BROOK_E_CLOSED;
    if (done && (!request_is_read(r) || r->op == OP_SYNC) && r->op != OP_UNWATCH)
        session_renew_lease(c, r);
    if (!open)
        settle_ephemerals(c, r, done);
    fill_reply(c, r, done);
    dispatch_answer(c, r);
}

void dispatch_reap(struct coordinator *c)
{
    struct request *r;
    while ((r = c->queue.completed)) {
        DL_DELETE(c->queue.completed, r);
        finish(c, r);
    }
}

/* ---- waiting too long ---------------------------------------------------------------------------------- */

static int64_t queued_until_ms(const struct coordinator *c, const struct request *r)
{
    int64_t from = r->accepted_ms > c->not_ready_since_ms ? r->accepted_ms : c->not_ready_since_ms;
    return from + session_timeout(c);
}

static void expire_queued(struct coordinator *c, struct request **list, int64_t now_ms)
{
    struct request *r;
    while ((r = *list) && queued_until_ms(c, r) <= now_ms) {
        DL_DELETE(*list, r);
        dispatch_fail(c, r, -BROOK_E_COORDINATION_LOST);
    }
}

static int64_t flying_until_ms(const struct coordinator *c)
{
    const struct request *oldest = c->queue.flying;
    return oldest ? oldest->sent_ns / 1000000 + session_timeout(c) : INT64_MAX;
}

void dispatch_expire(struct coordinator *c, int64_t now_ms)
{
    /* Replies come in order: nothing behind the oldest can be answered either. Whether the library has lost
     * it or the server, a new connection settles it. */
    if (flying_until_ms(c) <= now_ms) {
        link_drop(c);
        if (c->queue.flying)
            link_destroy(c, false);
    }
    if (!c->is_ready) {
        expire_queued(c, &c->queue.urgent, now_ms);
        expire_queued(c, &c->queue.normal, now_ms);
    }
}

int64_t dispatch_wake_ms(const struct coordinator *c)
{
    int64_t wake_ms = flying_until_ms(c);
    const struct request *heads[] = {c->queue.urgent, c->queue.normal};
    for (size_t i = 0; i < 2 && !c->is_ready; i++)
        if (heads[i] && queued_until_ms(c, heads[i]) < wake_ms)
            wake_ms = queued_until_ms(c, heads[i]);
    return wake_ms;
}

static void sweep(struct coordinator *c, struct request **list)
{
    struct request *r, *next;
    DL_FOREACH_SAFE(*list, r, next)
    if (r->generation_wanted) {
        DL_DELETE(*list, r);
        dispatch_fail(c, r, -BROOK_E_SESSION_EXPIRED);
    }
}

void dispatch_sweep(struct coordinator *c)
{
    sweep(c, &c->queue.urgent);
    sweep(c, &c->queue.normal);
}

static void close_list(struct coordinator *c, struct request **list)
{
    struct request *r;
    while ((r = *list)) {
        DL_DELETE(*list, r);
        dispatch_fail(c, r, -BROOK_E_CLOSED);
    }
}

void dispatch_close(struct coordinator *c)
{
    assert(c->stopping);
    close_list(c, &c->queue.early);
    close_list(c, &c->queue.urgent);
    close_list(c, &c->queue.normal);
}
