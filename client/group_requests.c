#include "client/group_driver_private.h"

#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "proto/base/names.h"

#include <stdlib.h>
#include <string.h>

/* Partitions of one CommitOffsets. */
#define COMMITS_PER_REQUEST 1000

/* Something of the machine's under way. */
struct pending {
    struct group *group;
    enum group_event_kind kind;
    uint64_t op;
    const char *topic; /* the machine's */
    int32_t partition;
};

static struct pending *pending_new(struct group *g, enum group_event_kind kind, uint64_t op)
{
    struct pending *p = calloc(1, sizeof *p);
    if (!p) {
        group_step(g, (struct group_event){.kind = kind, .op = op, .err = -BROOK_E_NOMEM});
        return NULL;
    }
    *p = (struct pending){.group = g, .kind = kind, .op = op};
    group_ref(g);
    return p;
}

static void pending_end(struct pending *p, struct group_event event)
{
    struct group *g = p->group;
    event.kind = p->kind;
    event.op = p->op;
    event.topic = p->topic;
    event.partition = p->partition;
    free(p);
    group_step(g, event);
    group_unref(g);
}

/* ---- views and assignments ----------------------------------------------------------------------------- */

static void on_view(void *arg, int err, struct group_view *view)
{
    struct group *g = arg;
    g->view_read = NULL;
    group_step(g, (struct group_event){.kind = GROUP_EVENT_VIEW, .op = g->view_op, .err = err, .view = view});
}

void group_read_view(struct group *g, uint64_t op)
{
    group_view_cancel(g->view_read);
    g->view_op = op;
    g->view_read = group_view_read(g->coordinator, client_inbox(g->client), g->name, GROUP_VIEW_TOPICS,
                                   g->patterns, on_view, g);
    if (!g->view_read)
        group_step(g, (struct group_event){.kind = GROUP_EVENT_VIEW, .op = op, .err = -BROOK_E_NOMEM});
}

static void on_written(void *arg, const struct coordinator_reply *reply)
{
    pending_end(arg, (struct group_event){.err = reply->err});
}

void group_write(struct group *g, uint64_t op, const struct znode_assignment *assignment, int32_t version)
{
    struct pending *p = pending_new(g, GROUP_EVENT_WRITTEN, op);
    if (!p)
        return;
    char *data = znode_encode_assignment(assignment);
    size_t bytes = data ? strlen(data) : 0;
    if (!data || bytes > COORDINATOR_NODE_BYTES_MAX) {
        pending_end(p, (struct group_event){.err = data ? -BROOK_E_NODE_TOO_LARGE : -BROOK_E_NOMEM});
        free(data);
        return;
    }
    struct path path;
    struct coordinator_call call = group_call(g, on_written, p);
    path_group_assignment(&path, g->name);
    if (version < 0)
        coordinator_create_path(g->coordinator, path.text, data, bytes, call);
    else
        coordinator_set(g->coordinator, path.text, data, bytes, version, call);
    free(data);
}

/* ---- claims, releases, verifications ------------------------------------------------------------------- */

struct ownership *group_ownership(struct group *g)
{
    if (!g->ownership)
        ownership_new(g->coordinator, client_inbox(g->client), g->name, group_member_get_id(g->machine),
                      atomic_load(&g->generation), &g->ownership);
    return g->ownership;
}

static void answer(struct group *g, enum group_event_kind kind, const struct ownership_reply *reply)
{
    group_step(g, (struct group_event){.kind = kind,
                                       .op = reply->tag,
                                       .topic = reply->topic,
                                       .partition = reply->partition,
                                       .err = reply->err,
                                       .offset = reply->offset,
                                       .version = reply->version,
                                       .ours = reply->ours});
}

static void on_claimed(void *arg, const struct ownership_reply *reply)
{
    answer(arg, GROUP_EVENT_CLAIMED, reply);
}

static void on_released(void *arg, const struct ownership_reply *reply)
{
    answer(arg, GROUP_EVENT_RELEASED, reply);
}

static void on_verified(void *arg, const struct ownership_reply *reply)
{
    answer(arg, GROUP_EVENT_VERIFIED, reply);
}

static void no_memory(struct group *g, enum group_event_kind kind, const struct group_effect *e)
{
    struct ownership_reply reply = {
        .tag = e->op, .topic = e->topic, .partition = e->partition, .err = -BROOK_E_NOMEM};
    answer(g, kind, &reply);
}

void group_claim(struct group *g, const struct group_effect *e)
{
    struct ownership *ownership = group_ownership(g);
    if (ownership)
        ownership_claim(ownership, e->topic, e->partition, e->op, on_claimed, g);
    else
        no_memory(g, GROUP_EVENT_CLAIMED, e);
}

void group_release(struct group *g, const struct group_effect *e)
{
    struct ownership *ownership = group_ownership(g);
    if (ownership)
        ownership_release(ownership, e->topic, e->partition, e->op, on_released, g);
    else
        no_memory(g, GROUP_EVENT_RELEASED, e);
}

void group_verify(struct group *g, const struct group_effect *e)
{
    struct ownership *ownership = group_ownership(g);
    if (ownership)
        ownership_verify(ownership, e->topic, e->partition, e->op, on_verified, g);
    else
        no_memory(g, GROUP_EVENT_VERIFIED, e);
}

/* ---- what a session that was taken up owns
 * ------------------------------------------------------------------ */

struct listing {
    struct group *group;
    uint64_t op;
    uint64_t generation;
    int err;
    size_t open; /* topics whose owner nodes are being looked at */
};

struct topic_listing {
    struct listing *listing;
    struct ownership *ownership; /* its own: it outlives resets, and is harmless then */
    char topic[TOPIC_NAME_BYTES_MAX + 1];
};

static void listing_unref(struct listing *l)
{
    if (--l->open > 0)
        return;
    struct group *g = l->group;
    group_step(g, (struct group_event){.kind = GROUP_EVENT_LISTED, .op = l->op, .err = l->err});
    free(l);
    group_unref(g);
}

static void on_topic_listed(void *arg, int err, const int32_t *partitions, size_t count)
{
    struct topic_listing *t = arg;
    struct listing *l = t->listing;
    bool same_session = atomic_load(&l->group->generation) == l->generation;
    l->err = err ? err : l->err;
    for (size_t i = 0; i < count && same_session; i++)
        group_step(l->group, (struct group_event){
                                 .kind = GROUP_EVENT_HELD, .topic = t->topic, .partition = partitions[i]});
    ownership_free(t->ownership);
    free(t);
    listing_unref(l);
}

static int list_topic(struct listing *l, const char *topic)
{
    struct group *g = l->group;
    struct topic_listing *t = calloc(1, sizeof *t);
    if (!t)
        return -BROOK_E_NOMEM;
    t->listing = l;
    memcpy(t->topic, topic, strlen(topic) + 1);
    int err = ownership_new(g->coordinator, client_inbox(g->client), g->name, group_member_get_id(g->machine),
                            l->generation, &t->ownership);
    if (err) {
        free(t);
        return err;
    }
    l->open++;
    ownership_list(t->ownership, t->topic, on_topic_listed, t);
    return 0;
}

static void on_owner_topics(void *arg, const struct coordinator_reply *reply)
{
    struct listing *l = arg;
    if (reply->err && reply->err != -BROOK_E_NO_NODE)
        l->err = reply->err;
    for (size_t i = 0; !reply->err && i < reply->children_count && !l->err; i++)
        if (name_is_legal_topic(reply->children[i], strlen(reply->children[i])))
            l->err = list_topic(l, reply->children[i]);
    listing_unref(l);
}

void group_list_owned(struct group *g, uint64_t op)
{
    struct listing *l = calloc(1, sizeof *l);
    if (!l) {
        group_step(g, (struct group_event){.kind = GROUP_EVENT_LISTED, .op = op, .err = -BROOK_E_NOMEM});
        return;
    }
    *l = (struct listing){.group = g, .op = op, .generation = atomic_load(&g->generation), .open = 1};
    group_ref(g);
    struct path path;
    coordinator_children(g->coordinator, path_group_owners(&path, g->name, NULL),
                         group_call(g, on_owner_topics, l));
}

/* ---- commits on the wire
 * ------------------------------------------------------------------------------------ */

struct commit_request {
    struct group *group;
    size_t count;
    uint64_t lanes[COMMITS_PER_REQUEST];
};

static void on_committed(void *arg, const struct channel_reply *reply)
{
    struct commit_request *r = arg;
    struct group *g = r->group;
    int64_t now = clock_boot_ms();
    int err = reply->err ? reply->err : -envelope_status_code(reply->response->status);
    const Brook__CommitOffsetsResponse *body = NULL;
    if (!err && reply->response->body_case == BROOK__RESPONSE__BODY_COMMIT_OFFSETS)
        body = reply->response->commit_offsets;
    for (size_t i = 0; i < r->count && !g->closed; i++) {
        const Brook__CommittedOffset *o = body && i < body->n_offsets ? body->offsets[i] : NULL;
        /* An answer without our entry says nothing about it. */
        int own = err ? err : o ? -envelope_status_code(o->status) : -BROOK_E_OUTCOME_UNKNOWN;
        group_commits_answer(g->commits, r->lanes[i], own, own == 0 ? o->version : -1, now);
    }
    free(r);
    group_send_commits(g);
    group_unref(g);
}

/* What one request is made of, while it is being packed. */
struct packing {
    struct group_commits_entry entries[COMMITS_PER_REQUEST];
    Brook__CommitOffset offsets[COMMITS_PER_REQUEST];
    Brook__CommitOffset *pointers[COMMITS_PER_REQUEST];
};

static void pack_entry(const struct group *g, const struct group_commits_entry *e, Brook__CommitOffset *to)
{
    const struct topic_id *id = group_topic_id(g, e->topic);
    brook__commit_offset__init(to);
    to->has_topic = to->has_partition = to->has_offset = to->has_expected_version = 1;
    to->topic = envelope_text(e->topic);
    to->partition = e->partition;
    to->offset = e->offset;
    to->expected_version = e->version;
    if (id) {
        to->has_topic_id = 1;
        to->topic_id = envelope_bytes(id->bytes, sizeof id->bytes);
    }
}

static int send_request(struct group *g, struct channel *channel, struct packing *p, size_t count)
{
    struct commit_request *r = malloc(sizeof *r);
    if (!r)
        return -BROOK_E_NOMEM;
    Brook__CommitOffsetsRequest body = BROOK__COMMIT_OFFSETS_REQUEST__INIT;
    Brook__Request request = BROOK__REQUEST__INIT;
    *r = (struct commit_request){.group = g, .count = count};
    for (size_t i = 0; i < count; i++) {
        pack_entry(g, &p->entries[i], &p->offsets[i]);
        p->pointers[i] = &p->offsets[i];
        r->lanes[i] = p->entries[i].lane;
    }
    body.has_group = body.has_member = 1;
    body.group = envelope_text(g->name);
    body.member = envelope_text(group_member_get_id(g->machine));
    body.n_offsets = count;
    body.offsets = p->pointers;
    request.body_case = BROOK__REQUEST__BODY_COMMIT_OFFSETS;
    request.commit_offsets = &body;
    int err = channel_send(channel, &request, NULL, 0, g->request_timeout_ms, on_committed, r);
    if (err)
        free(r);
    else
        group_ref(g);
    return err;
}

void group_send_commits(struct group *g)
{
    if (g->closed || group_commits_next_ms(g->commits) > clock_boot_ms())
        return;
    struct channel *channel = client_any_channel(g->client);
    struct packing *p = channel ? malloc(sizeof *p) : NULL;
    if (!p)
        return;
    size_t count;
    while ((count = group_commits_take(g->commits, p->entries, COMMITS_PER_REQUEST, clock_boot_ms())) > 0) {
        int err = send_request(g, channel, p, count);
        if (!err)
            continue;
        /* Not sent: as good as a connection that could not be made. */
        for (size_t i = 0; i < count; i++)
            group_commits_answer(g->commits, p->entries[i].lane,
                                 err == -BROOK_E_DISCONNECTED ? -BROOK_E_CONNECT_FAILED : err, -1,
                                 clock_boot_ms());
        break;
    }
    free(p);
}
