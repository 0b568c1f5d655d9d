/* Claims: machines that make an ephemeral node ours, whoever had it. */
#include "coordination/ephemeral.h"

#include "coordination/closer.h"
#include "coordination/machine.h"
#include "coordination/multi.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* How often a node is looked at while waiting for it to go. */
#define LOOK_MS 100

static char *copy_text(const char *text)
{
    return strcpy(must_calloc(strlen(text) + 1), text);
}

static void refuse(struct coordinator_call call, int err)
{
    struct answer *a = answer_new(call);
    a->reply.err = err;
    answer_post(a);
}

/* ---- closing an earlier session ------------------------------------------------------------------------ */

struct close_earlier {
    struct machine machine;
    int64_t session_id;
};

static void closed_earlier(void *arg, int err)
{
    machine_finish(arg, err);
}

static void start_close_earlier(struct machine *m)
{
    const struct close_earlier *e = (const struct close_earlier *)m;
    struct coordinator *c = m->coordinator;
    const struct session_key *key = session_file_find(&c->file, e->session_id);
    if (c->is_alive && e->session_id == c->key.id)
        machine_finish(m, -BROOK_E_INVALID);
    else if (!key)
        machine_finish(m, -BROOK_E_NOT_FOUND);
    else if (closer_start(c, key, closed_earlier, m) < 0)
        machine_sleep(m, LOOK_MS, start_close_earlier);
}

void coordinator_close_earlier_session(struct coordinator *c, int64_t session_id,
                                       struct coordinator_call call)
{
    struct close_earlier *e = machine_new(c, sizeof *e, call, start_close_earlier);
    e->session_id = session_id;
    machine_launch(&e->machine);
}

/* ---- waiting for a node to go -------------------------------------------------------------------------- */

struct wait_gone {
    struct machine machine;
    char *path;
    int timeout_ms;
    int64_t until_ms;
};

static void look_whether_gone(struct machine *m);

static void looked_whether_gone(struct machine *m, struct request *r)
{
    const struct wait_gone *w = (const struct wait_gone *)m;
    int err = r->answer->reply.err;
    answer_take(m->answer, r->answer);
    if (err == -BROOK_E_NO_NODE)
        machine_finish(m, 0);
    else if (err != 0)
        machine_finish(m, err);
    else if (session_now_ms() >= w->until_ms)
        machine_finish(m, -BROOK_E_NODE_EXISTS);
    else
        machine_sleep(m, LOOK_MS, look_whether_gone);
}

static void look_whether_gone(struct machine *m)
{
    machine_send(m, (struct internal){.op = OP_GET, .path = ((struct wait_gone *)m)->path},
                 looked_whether_gone);
}

static void start_wait_gone(struct machine *m)
{
    struct wait_gone *w = (struct wait_gone *)m;
    w->until_ms = session_now_ms() + w->timeout_ms;
    look_whether_gone(m);
}

static void release_wait_gone(struct machine *m)
{
    free(((struct wait_gone *)m)->path);
}

void coordinator_wait_gone(struct coordinator *c, const char *path, int timeout_ms,
                           struct coordinator_call call)
{
    if (!znode_path_is_legal(path)) {
        refuse(call, -BROOK_E_INVALID);
        return;
    }
    struct wait_gone *w = machine_new(c, sizeof *w, call, start_wait_gone);
    w->machine.release = release_wait_gone;
    w->path = copy_text(path);
    w->timeout_ms = timeout_ms;
    machine_launch(&w->machine);
}

/* ---- claiming ------------------------------------------------------------------------------------------ */

struct claim {
    struct machine machine;
    char *path;
    struct coordinator_multi *multi;
    size_t create_op; /* which op creates `path` */
    int wait_ms;
    int64_t until_ms; /* 0: not waiting yet */
    bool is_unknown;  /* an attempt is open: reading must tell */
};

static void attempt(struct machine *m);
static void look(struct machine *m);

static void closed_predecessor(void *arg, int err)
{
    struct machine *m = arg;
    if (err == -BROOK_E_CLOSED)
        machine_finish(m, err);
    else
        look(m);
}

static bool is_ours(const struct machine *m, const struct coordinator_reply *reply)
{
    return m->coordinator->is_alive && reply->generation == m->coordinator->generation &&
           reply->stat.ephemeral_owner == m->coordinator->key.id;
}

/* Somebody has the node: get rid of them, wait, or give up. */
static void face_owner(struct machine *m, struct answer *found)
{
    struct claim *k = (struct claim *)m;
    struct coordinator *c = m->coordinator;
    int64_t now_ms = session_now_ms();
    int64_t owner = found->reply.stat.ephemeral_owner;
    const struct session_key *earlier = owner != c->key.id ? session_file_find(&c->file, owner) : NULL;
    if (!k->until_ms)
        k->until_ms = now_ms + (k->wait_ms >= 0 ? k->wait_ms : session_timeout(c) + EPHEMERAL_WAIT_MARGIN_MS);
    if (earlier && closer_start(c, earlier, closed_predecessor, m) == 0)
        return;
    if (now_ms < k->until_ms) {
        machine_sleep(m, LOOK_MS, look);
        return;
    }
    answer_take(m->answer, found);
    machine_finish(m, -BROOK_E_NODE_EXISTS);
}

static void looked(struct machine *m, struct request *r)
{
    struct claim *k = (struct claim *)m;
    struct answer *found = r->answer;
    int err = found->reply.err;
    if (err == -BROOK_E_NO_NODE) {
        k->is_unknown = false;
        attempt(m);
    } else if (err != 0) {
        bool open = k->is_unknown && err != -BROOK_E_SESSION_EXPIRED;
        answer_take(m->answer, found);
        machine_finish(m, open ? -BROOK_E_OUTCOME_UNKNOWN : err);
    } else if (is_ours(m, &found->reply)) {
        answer_take(m->answer, found);
        machine_finish(m, 0);
    } else {
        k->is_unknown = false;
        face_owner(m, found);
    }
}

static void look(struct machine *m)
{
    machine_send(m, (struct internal){.op = OP_GET, .path = ((struct claim *)m)->path}, looked);
}

static void synced(struct machine *m, struct request *r)
{
    int err = r->answer->reply.err;
    if (err == 0)
        look(m);
    else
        machine_finish(m, err == -BROOK_E_SESSION_EXPIRED ? err : -BROOK_E_OUTCOME_UNKNOWN);
}

static void attempted(struct machine *m, struct request *r)
{
    struct claim *k = (struct claim *)m;
    const struct coordinator_reply *reply = &r->answer->reply;
    k->multi = r->multi;
    r->multi = NULL;
    /* From the first answer on the claim belongs to that session. */
    if (reply->generation)
        m->generation = reply->generation;
    if (reply->err == -BROOK_E_OUTCOME_UNKNOWN) {
        k->is_unknown = true;
        machine_send(m, (struct internal){.op = OP_SYNC, .path = k->path}, synced);
    } else if (reply->err == -BROOK_E_NODE_EXISTS && reply->failed_op == k->create_op) {
        look(m);
    } else {
        answer_take(m->answer, r->answer);
        machine_finish(m, m->answer->reply.err);
    }
}

static void attempt(struct machine *m)
{
    struct claim *k = (struct claim *)m;
    machine_send(m, (struct internal){.op = OP_MULTI, .path = "/", .multi = &k->multi}, attempted);
}

static void release_claim(struct machine *m)
{
    free(((struct claim *)m)->path);
    coordinator_multi_free(((struct claim *)m)->multi);
}

/* Returns whether one of the ops creates `path` as an ephemeral. */
static bool find_create(const struct coordinator_multi *multi, const char *path, size_t *ret_index)
{
    for (size_t i = 0; i < multi->count; i++)
        if (multi->ops[i].type == MULTI_CREATE && multi->ops[i].mode == ZNODE_EPHEMERAL &&
            strcmp(multi->ops[i].path, path) == 0) {
            *ret_index = i;
            return true;
        }
    return false;
}

void ephemeral_claim(struct coordinator *c, const char *path, struct coordinator_multi **multi, int wait_ms,
                     struct coordinator_call call)
{
    struct coordinator_multi *taken = *multi;
    size_t create_op = 0;
    *multi = NULL;
    if (taken->err || !find_create(taken, path, &create_op)) {
        refuse(call, taken->err ? taken->err : -BROOK_E_INVALID);
        coordinator_multi_free(taken);
        return;
    }
    struct claim *k = machine_new(c, sizeof *k, call, attempt);
    k->machine.release = release_claim;
    k->path = copy_text(path);
    k->multi = taken;
    k->create_op = create_op;
    k->wait_ms = wait_ms;
    machine_launch(&k->machine);
}

void ephemeral_claim_node(struct coordinator *c, const char *path, const void *data, size_t data_bytes,
                          int wait_ms, struct coordinator_call call)
{
    struct coordinator_multi *multi = coordinator_multi_new();
    if (!multi) {
        refuse(call, -BROOK_E_NOMEM);
        return;
    }
    coordinator_multi_create(multi, path, data, data_bytes, ZNODE_EPHEMERAL);
    ephemeral_claim(c, path, &multi, wait_ms, call);
}

int ephemeral_explain(const struct coordinator_reply *reply, const char *what, struct brook_error *error)
{
    if (reply->err != -BROOK_E_NODE_EXISTS)
        return reply->err ? brook_error_set(error, -reply->err, "%s: %s", what, brook_error_text(reply->err))
                          : 0;
    if (reply->stat.ephemeral_owner == 0)
        return brook_error_set(error, BROOK_E_NODE_EXISTS, "%s: the znode was made by hand and stays: %.120s",
                               what, reply->data ? reply->data : "");
    return brook_error_set(error, BROOK_E_NODE_EXISTS,
                           "%s is taken by another process (ZooKeeper session 0x%" PRIx64 "): %.120s", what,
                           (uint64_t)reply->stat.ephemeral_owner, reply->data ? reply->data : "");
}
