#include "tests/property/group_world.h"

#include "coordination/topic_pattern.h"
#include "proto/base/err.h"
#include "proto/base/names.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const topic_names[WORLD_TOPICS] = {"alpha", "beta", "gamma"};

/* ---- ZooKeeper ---------------------------------------------------------------------------------------- */

struct offset_node {
    bool exists;
    int64_t value;
    int32_t version;
    uint64_t claim; /* which claim moved it last: not in ZooKeeper, for the check */
};

struct topic_node {
    bool exists;
    int64_t mzxid;
    struct topic_id id;
    int32_t partitions;
    int64_t owner[WORLD_PARTITIONS]; /* session, 0: none */
    int64_t owner_stamp[WORLD_PARTITIONS];
    struct offset_node offset[WORLD_PARTITIONS];
};

struct id_node {
    struct id_node *next;
    char id[MEMBER_ID_BYTES_MAX + 1];
    int64_t session;
    int64_t czxid;
    unsigned mask;
};

struct session {
    struct session *next;
    int64_t id;
    bool alive;
    int64_t contact_ms;
};

/* ---- processes ---------------------------------------------------------------------------------------- */

struct request {
    struct request *next;
    enum group_effect_kind kind;
    uint64_t op;
    int topic;
    int32_t partition;
    bool replace;
    int phase;
    bool applied;
    bool lost; /* the answer never arrives */
    int64_t apply_ms;
    int64_t answer_ms;
    /* Result, and what was read on the way. */
    int err;
    int64_t offset;
    int32_t version;
    uint64_t claim;
    bool ours;
    struct group_view view;
    char *text; /* assignment to write */
    unsigned held[WORLD_TOPICS];
};

struct watch {
    bool active;
    int64_t seen;    /* stamp of what was delivered last, -1: nothing yet */
    bool pending;
    int64_t deliver_ms;
    /* What was read. */
    int64_t zxid;
    bool exists;
    bool ours;
    struct topic_id id;
    char *text;
    unsigned mask;
    char **names;
    size_t names_count;
};

struct held_partition {
    bool has;       /* between ADD and REMOVE or LOST */
    bool delivers;
    bool draining;
    int64_t drained_ms;
    int32_t version;
    int64_t position;
    uint64_t claim;
    uint64_t claimed; /* by the last answer */
    bool committing;
    uint64_t commit_token;
    bool doubt;
};

struct process {
    bool used;
    bool is_static;
    bool leaving;
    bool resumes;
    uint64_t uid;
    char static_id[16];
    struct group_member *machine;
    struct session *session;
    uint64_t generation;
    bool told_connected;
    int64_t frozen_until;
    int64_t cut_until;
    int64_t no_poll_until;
    int64_t lease_until;
    int64_t last_poll;
    int64_t last_tick;
    int64_t last_answer_ms;
    int64_t last_apply_ms;
    int drain_ms;
    int drains;
    unsigned mask;
    struct request *requests;
    struct watch ids, assignment, topics, topic[WORLD_TOPICS], owner[WORLD_TOPICS][WORLD_PARTITIONS];
    struct held_partition held[WORLD_TOPICS][WORLD_PARTITIONS];
};

/* A commit on its way through a broker: it needs no session of the member's. */
struct commit {
    struct commit *next;
    int member;
    uint64_t uid;
    uint64_t token;
    char id[MEMBER_ID_BYTES_MAX + 1];
    int topic;
    int32_t partition;
    int64_t offset;
    int32_t version;
    uint64_t claim;
    int64_t apply_ms;
    int64_t answer_ms;
    bool applied;
    int err;
    int32_t new_version;
};

struct world {
    uint64_t random;
    int64_t now;
    int64_t zxid;
    uint64_t claims;
    uint64_t uids;
    bool faults;
    struct topic_patterns *patterns;
    struct topic_node topics[WORLD_TOPICS];
    struct id_node *ids;
    int64_t ids_pzxid;
    char *assignment;
    int32_t assignment_version;
    int64_t assignment_stamp;
    int64_t topics_stamp;
    struct session *sessions;
    struct process members[WORLD_MEMBERS];
    struct commit *commits;
    int writes;
    int reads;
    int reports[GROUP_REPORT_LEASE_OVER + 1];
    int64_t last_unowned;
};

uint64_t world_random(struct world *w, uint64_t bound)
{
    return suite_random_below(&w->random, bound);
}

static bool fault(struct world *w, unsigned percent)
{
    return w->faults && world_random(w, 100) < percent;
}

struct world *world_new(uint64_t seed)
{
    struct world *w = calloc(1, sizeof *w);
    w->random = seed;
    w->now = 1000;
    w->zxid = 100;
    w->patterns = topic_patterns_new();
    w->assignment_version = -1;
    w->ids_pzxid = 1;
    return w;
}

int64_t world_now(const struct world *w)
{
    return w->now;
}

void world_set_faults(struct world *w, bool on)
{
    w->faults = on;
}

int world_writes(const struct world *w)
{
    return w->writes;
}

int world_member_reads(const struct world *w)
{
    return w->reads;
}

int world_drains(const struct world *w, int member)
{
    return w->members[member].drains;
}

int world_reports(const struct world *w, enum group_report report)
{
    return w->reports[report];
}

int64_t world_last_unowned(const struct world *w)
{
    return w->last_unowned;
}

/* ---- topics ------------------------------------------------------------------------------------------- */

static void topic_changed(struct world *w, int topic)
{
    w->topics[topic].mzxid = ++w->zxid;
    w->topics_stamp = w->zxid;
}

void world_topic_make(struct world *w, int topic, int32_t partitions)
{
    struct topic_node *t = &w->topics[topic];
    t->exists = true;
    t->partitions = partitions;
    for (size_t i = 0; i < sizeof t->id.bytes; i++)
        t->id.bytes[i] = (uint8_t)world_random(w, 256);
    /* As the controller does it: offsets of the topic before are emptied in place. */
    for (int32_t p = 0; p < WORLD_PARTITIONS; p++)
        if (t->offset[p].exists && t->offset[p].value >= 0) {
            t->offset[p].value = -1;
            t->offset[p].version++;
        }
    topic_changed(w, topic);
}

void world_topic_grow(struct world *w, int topic, int32_t partitions)
{
    struct topic_node *t = &w->topics[topic];
    if (!t->exists || partitions <= t->partitions)
        return;
    t->partitions = partitions;
    topic_changed(w, topic);
}

void world_topic_delete(struct world *w, int topic)
{
    w->topics[topic].exists = false;
    topic_changed(w, topic);
}

static int topic_index(const char *name)
{
    for (int t = 0; t < WORLD_TOPICS; t++)
        if (strcmp(topic_names[t], name) == 0)
            return t;
    ck_abort_msg("topic %s", name);
    return -1;
}

/* ---- the registry ------------------------------------------------------------------------------------- */

static struct id_node *id_find(struct world *w, const char *id)
{
    for (struct id_node *n = w->ids; n; n = n->next)
        if (strcmp(n->id, id) == 0)
            return n;
    return NULL;
}

static void id_delete(struct world *w, const char *id)
{
    for (struct id_node **at = &w->ids; *at; at = &(*at)->next)
        if (strcmp((*at)->id, id) == 0) {
            struct id_node *gone = *at;
            *at = gone->next;
            free(gone);
            w->ids_pzxid = ++w->zxid;
            return;
        }
}

static void id_create(struct world *w, const char *id, int64_t session, unsigned mask)
{
    struct id_node *n = calloc(1, sizeof *n);
    snprintf(n->id, sizeof n->id, "%s", id);
    n->session = session;
    n->mask = mask;
    n->czxid = w->ids_pzxid = ++w->zxid;
    n->next = w->ids;
    w->ids = n;
}

static void owner_set(struct world *w, int topic, int32_t partition, int64_t session)
{
    w->topics[topic].owner[partition] = session;
    w->topics[topic].owner_stamp[partition] = ++w->zxid;
}

static void session_end(struct world *w, struct session *s)
{
    s->alive = false;
    for (struct id_node *n = w->ids, *next; n; n = next) {
        next = n->next;
        if (n->session == s->id)
            id_delete(w, n->id);
    }
    for (int t = 0; t < WORLD_TOPICS; t++)
        for (int32_t p = 0; p < WORLD_PARTITIONS; p++)
            if (w->topics[t].owner[p] == s->id)
                owner_set(w, t, p, 0);
}

static struct session *session_new(struct world *w)
{
    struct session *s = calloc(1, sizeof *s);
    s->id = ++w->zxid;
    s->alive = true;
    s->contact_ms = w->now;
    s->next = w->sessions;
    w->sessions = s;
    return s;
}

/* ---- carrying out requests ---------------------------------------------------------------------------- */

static struct request *request_add(struct world *w, struct process *m, const struct group_effect *e)
{
    struct request *r = calloc(1, sizeof *r);
    r->kind = e->kind;
    r->op = e->op;
    r->partition = e->partition;
    r->topic = e->topic ? topic_index(e->topic) : -1;
    r->replace = e->replace;
    r->version = e->version;
    r->apply_ms = w->now + 1 + (int64_t)world_random(w, 6);
    if (r->apply_ms < m->last_apply_ms)
        r->apply_ms = m->last_apply_ms;
    m->last_apply_ms = r->apply_ms;
    r->lost = fault(w, 3);
    struct request **at = &m->requests;
    while (*at)
        at = &(*at)->next;
    *at = r;
    return r;
}

static void request_free(struct request *r)
{
    group_view_done(&r->view);
    free(r->text);
    free(r);
}

static void describe_mask(unsigned mask, struct znode_member *ret)
{
    *ret = (struct znode_member){.strategy = strdup("sticky"), .algorithm_version = ASSIGN_ALGORITHM_VERSION};
    ret->topics = calloc(WORLD_TOPICS, sizeof *ret->topics);
    ret->is_pattern = mask == 0;
    if (mask == 0)
        ret->topics[ret->topics_count++] = strdup("[a-z]+");
    for (int t = 0; t < WORLD_TOPICS; t++)
        if (mask & (1u << t))
            ret->topics[ret->topics_count++] = strdup(topic_names[t]);
}

static int compare_ids(const void *a, const void *b)
{
    return strcmp(((const struct group_view_member *)a)->id, ((const struct group_view_member *)b)->id);
}

static void view_read_ids(struct world *w, struct group_view *view)
{
    size_t count = 0;
    for (struct id_node *n = w->ids; n; n = n->next)
        count++;
    view->ids_pzxid = w->ids_pzxid;
    view->members = calloc(count + 1, sizeof *view->members);
    for (struct id_node *n = w->ids; n; n = n->next) {
        struct group_view_member *m = &view->members[view->members_count++];
        m->id = strdup(n->id);
        m->czxid = n->czxid;
        describe_mask(n->mask, &m->data);
    }
    qsort(view->members, view->members_count, sizeof *view->members, compare_ids);
}

static void view_read_topics(struct world *w, struct group_view *view)
{
    view->topics = calloc(WORLD_TOPICS, sizeof *view->topics);
    for (int t = 0; t < WORLD_TOPICS; t++) {
        bool wanted = false;
        for (size_t i = 0; i < view->members_count; i++)
            wanted = wanted || group_view_subscribes(&view->members[i], topic_names[t], w->patterns);
        if (wanted && w->topics[t].exists)
            view->topics[view->topics_count++] = (struct group_view_topic){
                strdup(topic_names[t]), w->topics[t].mzxid, w->topics[t].partitions};
    }
}

/* In three parts, with time in between. Returns whether it is complete. */
static bool apply_view(struct world *w, struct request *r)
{
    if (r->phase == 0) {
        r->view.assignment_version = w->assignment_version;
        r->view.has_assignment =
            w->assignment &&
            znode_decode_assignment(w->assignment, strlen(w->assignment), &r->view.assignment, NULL) == 0;
    } else if (r->phase == 1) {
        view_read_ids(w, &r->view);
        w->reads++;
    } else {
        view_read_topics(w, &r->view);
        return true;
    }
    return false;
}

static void apply_write(struct world *w, struct request *r)
{
    if (r->version != w->assignment_version) {
        r->err = r->version < 0 ? -BROOK_E_NODE_EXISTS : -BROOK_E_BAD_VERSION;
        return;
    }
    free(w->assignment);
    w->assignment = r->text;
    r->text = NULL;
    w->assignment_version++;
    w->assignment_stamp = ++w->zxid;
    w->writes++;
}

static void apply_register(struct world *w, struct process *m, struct request *r)
{
    const char *id = group_member_get_id(m->machine);
    struct id_node *n = id_find(w, id);
    if (n && n->session != m->session->id) {
        r->err = -BROOK_E_NODE_EXISTS;
        return;
    }
    if (n && !r->replace && n->mask == m->mask)
        return;
    if (n)
        id_delete(w, id);
    id_create(w, id, m->session->id, m->mask);
}

/* Read the offset node, then the multi, as coordination/ownership_claim.c does it. */
static bool apply_claim(struct world *w, struct process *m, struct request *r)
{
    struct topic_node *t = &w->topics[r->topic];
    struct offset_node *o = &t->offset[r->partition];
    if (r->phase == 0) {
        if (!o->exists)
            *o = (struct offset_node){.exists = true, .value = -1};
        r->offset = o->value;
        r->version = o->version;
        return false;
    }
    if (t->owner[r->partition] != 0 && t->owner[r->partition] != m->session->id) {
        r->err = -BROOK_E_NODE_EXISTS;
        return true;
    }
    if (o->version != r->version) {
        r->phase = -1;
        return false;
    }
    o->version++;
    o->claim = r->claim = ++w->claims;
    r->version = o->version;
    owner_set(w, r->topic, r->partition, m->session->id);
    return true;
}

static void apply_verify(struct world *w, struct process *m, struct request *r)
{
    struct topic_node *t = &w->topics[r->topic];
    r->offset = t->offset[r->partition].value;
    r->version = t->offset[r->partition].version;
    r->claim = t->offset[r->partition].claim;
    r->ours = t->owner[r->partition] == m->session->id;
}

static void apply_list(struct world *w, struct process *m, struct request *r)
{
    for (int t = 0; t < WORLD_TOPICS; t++)
        for (int32_t p = 0; p < WORLD_PARTITIONS; p++)
            if (w->topics[t].owner[p] == m->session->id)
                r->held[t] |= 1u << p;
}

static bool apply_once(struct world *w, struct process *m, struct request *r)
{
    switch (r->kind) {
    case GROUP_EFFECT_READ_VIEW: return apply_view(w, r);
    case GROUP_EFFECT_WRITE: apply_write(w, r); return true;
    case GROUP_EFFECT_REGISTER: apply_register(w, m, r); return true;
    case GROUP_EFFECT_UNREGISTER: id_delete(w, group_member_get_id(m->machine)); return true;
    case GROUP_EFFECT_CLAIM: return apply_claim(w, m, r);
    case GROUP_EFFECT_RELEASE:
        if (w->topics[r->topic].owner[r->partition] == m->session->id)
            owner_set(w, r->topic, r->partition, 0);
        return true;
    case GROUP_EFFECT_VERIFY: apply_verify(w, m, r); return true;
    case GROUP_EFFECT_LIST_OWNED: apply_list(w, m, r); return true;
    default: ck_abort_msg("request %d", (int)r->kind); return true;
    }
}

static bool is_read(const struct request *r)
{
    return r->kind == GROUP_EFFECT_READ_VIEW || r->kind == GROUP_EFFECT_VERIFY || r->kind == GROUP_EFFECT_LIST_OWNED;
}

static void apply_due(struct world *w, struct process *m)
{
    bool linked = m->session->alive && w->now >= m->cut_until;
    for (struct request *r = m->requests; r && linked; r = r->next) {
        if (r->applied || r->apply_ms > w->now)
            continue;
        if (!apply_once(w, m, r)) {
            r->phase++;
            r->apply_ms = w->now + 1 + (int64_t)world_random(w, 4);
            continue;
        }
        r->applied = true;
        if (r->lost)
            r->err = is_read(r) ? -BROOK_E_COORDINATION_LOST : -BROOK_E_OUTCOME_UNKNOWN;
        r->answer_ms = w->now + (int64_t)world_random(w, 6);
        if (r->answer_ms < m->last_answer_ms)
            r->answer_ms = m->last_answer_ms;
        m->last_answer_ms = r->answer_ms;
    }
}

/* ---- the process: effects ----------------------------------------------------------------------------- */

static void step(struct world *w, struct process *m, struct group_event e);

static void watch_off(struct watch *x)
{
    free(x->text);
    for (size_t i = 0; i < x->names_count; i++)
        free(x->names[i]);
    free(x->names);
    memset(x, 0, sizeof *x);
}

static void watch_on(struct watch *x)
{
    watch_off(x);
    x->active = true;
    x->seen = -1;
}

static void all_topic_watches_off(struct process *m)
{
    watch_off(&m->topics);
    for (int t = 0; t < WORLD_TOPICS; t++)
        watch_off(&m->topic[t]);
}

static bool is_of_partition(const struct request *r)
{
    return r->kind == GROUP_EFFECT_CLAIM || r->kind == GROUP_EFFECT_RELEASE || r->kind == GROUP_EFFECT_VERIFY;
}

/* Requests that were sent may still be carried out, but before anything that is sent from now on. */
static void reset(struct world *w, struct process *m)
{
    for (struct request **at = &m->requests; *at;) {
        struct request *r = *at;
        if (!is_of_partition(r)) {
            at = &r->next;
            continue;
        }
        if (!r->applied && m->session->alive && world_random(w, 2))
            apply_once(w, m, r);
        *at = r->next;
        request_free(r);
    }
    for (int t = 0; t < WORLD_TOPICS; t++)
        for (int32_t p = 0; p < WORLD_PARTITIONS; p++)
            watch_off(&m->owner[t][p]);
}

static void write_text(struct request *r, const struct group_effect *e)
{
    r->text = znode_encode_assignment(e->assignment);
}

static void to_consumer(struct world *w, struct process *m, const struct group_effect *e)
{
    struct held_partition *h = &m->held[topic_index(e->topic)][e->partition];
    uint64_t claimed = h->claimed;
    switch (e->kind) {
    case GROUP_EFFECT_ADD:
        ck_assert(!h->has);
        *h = (struct held_partition){.has = true,
                                     .delivers = true,
                                     .version = e->version,
                                     .position = e->offset < 0 ? 0 : e->offset,
                                     .claim = claimed,
                                     .claimed = claimed,
                                     .commit_token = h->commit_token + 1};
        break;
    case GROUP_EFFECT_DRAIN:
        ck_assert(h->has && h->delivers);
        m->drains++;
        h->delivers = false;
        h->draining = true;
        h->drained_ms = w->now + (m->drain_ms ? m->drain_ms : (int64_t)world_random(w, 20));
        break;
    case GROUP_EFFECT_HURRY:
        ck_assert(h->has && !h->delivers);
        if (world_random(w, 2))
            h->drained_ms = w->now;
        break;
    case GROUP_EFFECT_REMOVE:
    case GROUP_EFFECT_LOST:
        ck_assert(h->has);
        *h = (struct held_partition){.commit_token = h->commit_token + 1};
        break;
    default:
        if (h->doubt) {
            h->version = e->version;
            h->doubt = false;
        }
        break;
    }
}

static void carry_out(struct world *w, struct process *m, const struct group_effect *e)
{
    switch (e->kind) {
    case GROUP_EFFECT_RESET: reset(w, m); break;
    case GROUP_EFFECT_WATCH_GROUP: watch_on(&m->ids); watch_on(&m->assignment); break;
    case GROUP_EFFECT_UNWATCH_GROUP:
        watch_off(&m->ids);
        watch_off(&m->assignment);
        all_topic_watches_off(m);
        break;
    case GROUP_EFFECT_CHECK_GROUP: m->ids.seen = m->assignment.seen = -1; break;
    case GROUP_EFFECT_WATCH_TOPICS: watch_on(&m->topics); break;
    case GROUP_EFFECT_WATCH_TOPIC: watch_on(&m->topic[topic_index(e->topic)]); break;
    case GROUP_EFFECT_UNWATCH_TOPIC: watch_off(&m->topic[topic_index(e->topic)]); break;
    case GROUP_EFFECT_WATCH_OWNER: watch_on(&m->owner[topic_index(e->topic)][e->partition]); break;
    case GROUP_EFFECT_UNWATCH_OWNER: watch_off(&m->owner[topic_index(e->topic)][e->partition]); break;
    case GROUP_EFFECT_WRITE: write_text(request_add(w, m, e), e); break;
    case GROUP_EFFECT_REGISTER:
    case GROUP_EFFECT_UNREGISTER:
    case GROUP_EFFECT_READ_VIEW:
    case GROUP_EFFECT_LIST_OWNED:
    case GROUP_EFFECT_CLAIM:
    case GROUP_EFFECT_RELEASE:
    case GROUP_EFFECT_VERIFY: request_add(w, m, e); break;
    case GROUP_EFFECT_ADD:
    case GROUP_EFFECT_DRAIN:
    case GROUP_EFFECT_HURRY:
    case GROUP_EFFECT_REMOVE:
    case GROUP_EFFECT_LOST:
    case GROUP_EFFECT_RESOLVED: to_consumer(w, m, e); break;
    case GROUP_EFFECT_REPORT: w->reports[e->report]++; break;
    case GROUP_EFFECT_LEFT: m->leaving = true; m->mask = UINT32_MAX; break;
    }
}

static void step(struct world *w, struct process *m, struct group_event e)
{
    e.now_ms = w->now;
    e.lease_until_ms = m->lease_until;
    e.polled_ms = m->last_poll;
    ck_assert_int_eq(group_member_step(m->machine, &e), 0);
    struct group_effect effect;
    while (group_member_effect(m->machine, &effect))
        carry_out(w, m, &effect);
}

/* ---- the process: answers ----------------------------------------------------------------------------- */

static enum group_event_kind answer_kind(enum group_effect_kind kind)
{
    switch (kind) {
    case GROUP_EFFECT_READ_VIEW: return GROUP_EVENT_VIEW;
    case GROUP_EFFECT_WRITE: return GROUP_EVENT_WRITTEN;
    case GROUP_EFFECT_REGISTER: return GROUP_EVENT_REGISTERED;
    case GROUP_EFFECT_UNREGISTER: return GROUP_EVENT_UNREGISTERED;
    case GROUP_EFFECT_CLAIM: return GROUP_EVENT_CLAIMED;
    case GROUP_EFFECT_RELEASE: return GROUP_EVENT_RELEASED;
    default: return GROUP_EVENT_VERIFIED;
    }
}

static void answer_list(struct world *w, struct process *m, const struct request *r)
{
    for (int t = 0; t < WORLD_TOPICS; t++)
        for (int32_t p = 0; p < WORLD_PARTITIONS; p++)
            if (r->held[t] & (1u << p))
                step(w, m, (struct group_event){
                               .kind = GROUP_EVENT_HELD, .topic = topic_names[t], .partition = p});
    step(w, m, (struct group_event){.kind = GROUP_EVENT_LISTED, .op = r->op, .err = r->err});
}

static void answer(struct world *w, struct process *m, struct request *r)
{
    if (r->kind == GROUP_EFFECT_LIST_OWNED) {
        answer_list(w, m, r);
        return;
    }
    struct group_event e = {.kind = answer_kind(r->kind),
                            .op = r->op,
                            .err = r->err,
                            .topic = r->topic >= 0 ? topic_names[r->topic] : NULL,
                            .partition = r->partition,
                            .offset = r->offset,
                            .version = r->version,
                            .ours = r->ours,
                            .view = &r->view};
    if (r->kind == GROUP_EFFECT_CLAIM && !r->err)
        m->held[r->topic][r->partition].claimed = r->claim;
    step(w, m, e);
}

static void answer_due(struct world *w, struct process *m)
{
    while (m->requests && m->requests->applied && m->requests->answer_ms <= w->now) {
        struct request *r = m->requests;
        m->requests = r->next;
        answer(w, m, r);
        request_free(r);
    }
}

/* The link is gone: what was on its way may or may not have been carried out. */
static void requests_fail(struct world *w, struct process *m, int err)
{
    while (m->requests) {
        struct request *r = m->requests;
        m->requests = r->next;
        if (!r->applied && m->session->alive && !is_read(r) && world_random(w, 2))
            apply_once(w, m, r);
        r->err = err ? err : is_read(r) ? -BROOK_E_COORDINATION_LOST : -BROOK_E_OUTCOME_UNKNOWN;
        answer(w, m, r);
        request_free(r);
    }
}

/* ---- the process: watches ----------------------------------------------------------------------------- */

static void read_names(struct world *w, struct watch *x)
{
    size_t count = 0;
    for (struct id_node *n = w->ids; n; n = n->next)
        count++;
    x->names = calloc(count + 1, sizeof *x->names);
    for (struct id_node *n = w->ids; n; n = n->next)
        x->names[x->names_count++] = strdup(n->id);
}

/* Read now what has changed, to be delivered a little later. */
static bool watch_read(struct world *w, struct watch *x, int64_t stamp, int delay_ms)
{
    if (!x->active || x->pending || x->seen == stamp)
        return false;
    x->pending = true;
    x->seen = stamp;
    x->deliver_ms = w->now + 1 + (int64_t)world_random(w, (uint64_t)delay_ms);
    return true;
}

static void watches_read(struct world *w, struct process *m)
{
    if (watch_read(w, &m->ids, w->ids_pzxid, 40)) {
        m->ids.zxid = w->ids_pzxid;
        read_names(w, &m->ids);
    }
    if (watch_read(w, &m->assignment, w->assignment_stamp, 6))
        m->assignment.text = w->assignment ? strdup(w->assignment) : NULL;
    if (watch_read(w, &m->topics, w->topics_stamp, 40)) {
        m->topics.mask = 0;
        for (int t = 0; t < WORLD_TOPICS; t++)
            if (w->topics[t].exists)
                m->topics.mask |= 1u << t;
    }
    for (int t = 0; t < WORLD_TOPICS; t++) {
        struct watch *x = &m->topic[t];
        if (watch_read(w, x, w->topics[t].mzxid, 40)) {
            x->exists = w->topics[t].exists;
            x->zxid = w->topics[t].mzxid;
            x->id = w->topics[t].id;
        }
        for (int32_t p = 0; p < WORLD_PARTITIONS; p++) {
            x = &m->owner[t][p];
            if (watch_read(w, x, w->topics[t].owner_stamp[p], 6)) {
                x->exists = w->topics[t].owner[p] != 0;
                x->ours = w->topics[t].owner[p] == m->session->id;
            }
        }
    }
}

static bool watch_due(const struct world *w, struct watch *x)
{
    if (!x->active || !x->pending || x->deliver_ms > w->now)
        return false;
    x->pending = false;
    return true;
}

static void deliver_ids(struct world *w, struct process *m)
{
    char **names = m->ids.names;
    size_t count = m->ids.names_count;
    m->ids.names = NULL;
    m->ids.names_count = 0;
    step(w, m, (struct group_event){.kind = GROUP_EVENT_IDS,
                                    .zxid = m->ids.zxid,
                                    .names = (const char *const *)names,
                                    .names_count = count});
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

static void deliver_assignment(struct world *w, struct process *m)
{
    struct znode_assignment decoded = {0};
    char *text = m->assignment.text;
    m->assignment.text = NULL;
    bool has = text && znode_decode_assignment(text, strlen(text), &decoded, NULL) == 0;
    free(text);
    step(w, m, (struct group_event){.kind = GROUP_EVENT_ASSIGNMENT, .assignment = has ? &decoded : NULL});
    znode_assignment_done(&decoded);
}

static void deliver_topics(struct world *w, struct process *m)
{
    const char *names[WORLD_TOPICS];
    size_t count = 0;
    for (int t = 0; t < WORLD_TOPICS; t++)
        if (m->topics.mask & (1u << t))
            names[count++] = topic_names[t];
    step(w, m, (struct group_event){.kind = GROUP_EVENT_TOPICS, .names = names, .names_count = count});
}

static void watches_deliver(struct world *w, struct process *m)
{
    if (watch_due(w, &m->ids))
        deliver_ids(w, m);
    if (watch_due(w, &m->assignment))
        deliver_assignment(w, m);
    if (watch_due(w, &m->topics))
        deliver_topics(w, m);
    for (int t = 0; t < WORLD_TOPICS; t++) {
        struct watch *x = &m->topic[t];
        if (watch_due(w, x))
            step(w, m, (struct group_event){.kind = GROUP_EVENT_TOPIC,
                                            .topic = topic_names[t],
                                            .exists = x->exists,
                                            .zxid = x->zxid,
                                            .topic_id = x->id});
        for (int32_t p = 0; p < WORLD_PARTITIONS; p++) {
            x = &m->owner[t][p];
            if (watch_due(w, x))
                step(w, m, (struct group_event){.kind = GROUP_EVENT_OWNER,
                                                .topic = topic_names[t],
                                                .partition = p,
                                                .exists = x->exists,
                                                .ours = x->ours});
        }
    }
}

/* ---- commits ------------------------------------------------------------------------------------------ */

static void commit_send(struct world *w, int member, int topic, int32_t partition)
{
    struct process *m = &w->members[member];
    struct held_partition *h = &m->held[topic][partition];
    struct commit *c = calloc(1, sizeof *c);
    *c = (struct commit){.next = w->commits,
                         .member = member,
                         .uid = m->uid,
                         .token = h->commit_token,
                         .topic = topic,
                         .partition = partition,
                         .offset = h->position,
                         .version = h->version,
                         .claim = h->claim,
                         .apply_ms = w->now + 1 + (int64_t)world_random(w, fault(w, 10) ? 4000 : 10)};
    snprintf(c->id, sizeof c->id, "%s", group_member_get_id(m->machine));
    c->answer_ms = c->apply_ms + (int64_t)world_random(w, 5);
    w->commits = c;
    h->committing = true;
}

static void commit_apply(struct world *w, struct commit *c)
{
    struct offset_node *o = &w->topics[c->topic].offset[c->partition];
    c->applied = true;
    if (!id_find(w, c->id)) {
        c->err = -BROOK_E_STALE_MEMBER;
    } else if (o->version != c->version) {
        c->err = -BROOK_E_FENCED;
    } else {
        ck_assert_msg(o->claim == c->claim, "a former owner committed %s/%d", topic_names[c->topic], c->partition);
        ck_assert_msg(c->offset >= o->value, "the offset of %s/%d went back", topic_names[c->topic], c->partition);
        o->value = c->offset;
        c->new_version = ++o->version;
    }
    if (fault(w, 10))
        c->err = -BROOK_E_OUTCOME_UNKNOWN;
}

static void commit_answer(struct world *w, const struct commit *c)
{
    struct process *m = &w->members[c->member];
    struct held_partition *h = &m->held[c->topic][c->partition];
    if (!m->used || m->uid != c->uid || h->commit_token != c->token || !h->has)
        return;
    h->committing = false;
    if (!c->err) {
        h->version = c->new_version;
        return;
    }
    h->doubt = true;
    step(w, m, (struct group_event){.kind = GROUP_EVENT_DOUBT,
                                    .topic = topic_names[c->topic],
                                    .partition = c->partition,
                                    .err = c->err});
}

static void commits_go_on(struct world *w)
{
    for (struct commit **at = &w->commits; *at;) {
        struct commit *c = *at;
        if (!c->applied && c->apply_ms <= w->now)
            commit_apply(w, c);
        struct process *m = &w->members[c->member];
        bool hears = m->uid != c->uid || w->now >= m->frozen_until;
        if (!c->applied || c->answer_ms > w->now || !hears) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        commit_answer(w, c);
        free(c);
    }
}

/* ---- the process: its turn ---------------------------------------------------------------------------- */

static void consume(struct world *w, int member)
{
    struct process *m = &w->members[member];
    for (int t = 0; t < WORLD_TOPICS; t++)
        for (int32_t p = 0; p < WORLD_PARTITIONS; p++) {
            struct held_partition *h = &m->held[t][p];
            if (h->has && h->delivers && w->now < m->lease_until)
                h->position++;
            if (h->has && !h->committing && !h->doubt && world_random(w, 40) == 0)
                commit_send(w, member, t, p);
            if (h->has && h->draining && w->now >= h->drained_ms && !h->committing) {
                h->draining = false;
                step(w, m, (struct group_event){
                               .kind = GROUP_EVENT_DRAINED, .topic = topic_names[t], .partition = p});
            }
        }
}

static void process_end(struct world *w, int member)
{
    struct process *m = &w->members[member];
    while (m->requests) {
        struct request *r = m->requests;
        m->requests = r->next;
        request_free(r);
    }
    reset(w, m);
    watch_off(&m->ids);
    watch_off(&m->assignment);
    all_topic_watches_off(m);
    group_member_free(m->machine);
    m->machine = NULL;
    m->used = false;
    memset(m->held, 0, sizeof m->held);
}

static void rejoin_session(struct world *w, struct process *m)
{
    if (m->session->alive)
        return;
    if (m->told_connected) {
        requests_fail(w, m, -BROOK_E_SESSION_EXPIRED);
        m->lease_until = 0;
        m->told_connected = false;
        step(w, m, (struct group_event){.kind = GROUP_EVENT_EXPIRED});
        requests_fail(w, m, -BROOK_E_SESSION_EXPIRED);
    }
    m->session = session_new(w);
    m->generation++;
    m->resumes = false;
}

static void process_turn(struct world *w, int member)
{
    struct process *m = &w->members[member];
    bool frozen = w->now < m->frozen_until;
    bool cut = w->now < m->cut_until;
    if (!frozen && w->now >= m->no_poll_until)
        m->last_poll = w->now;
    if (!frozen && !cut) {
        rejoin_session(w, m);
        m->session->contact_ms = w->now;
        /* Pings keep the session alive at every turn; the lease is renewed every quarter. */
        if (m->lease_until < w->now + WORLD_TIMEOUT_MS - WORLD_TIMEOUT_MS / 4)
            m->lease_until = w->now + WORLD_TIMEOUT_MS;
        if (!m->told_connected) {
            m->told_connected = true;
            step(w, m, (struct group_event){.kind = GROUP_EVENT_CONNECTED,
                                            .generation = m->generation,
                                            .session_id = m->session->id,
                                            .resumed = m->resumes,
                                            .session_timeout_ms = WORLD_TIMEOUT_MS});
        }
        watches_read(w, m);
    }
    apply_due(w, m);
    if (frozen)
        return;
    if (cut && m->requests)
        requests_fail(w, m, 0);
    if (!cut)
        watches_deliver(w, m);
    answer_due(w, m);
    if (w->now >= group_member_next_ms(m->machine) || w->now - m->last_tick > 100) {
        m->last_tick = w->now;
        step(w, m, (struct group_event){.kind = GROUP_EVENT_TICK});
    }
    consume(w, member);
    if (m->mask == UINT32_MAX) {
        if (m->session->alive)
            session_end(w, m->session);
        process_end(w, member);
    }
}

/* ---- the invariants ----------------------------------------------------------------------------------- */

static void check_deliverers(struct world *w)
{
    for (int t = 0; t < WORLD_TOPICS; t++)
        for (int32_t p = 0; p < WORLD_PARTITIONS; p++) {
            int deliverers = 0;
            for (int i = 0; i < WORLD_MEMBERS; i++)
                deliverers += w->members[i].used && world_delivers(w, i, t, p);
            ck_assert_msg(deliverers <= 1, "%d members deliver %s/%d", deliverers, topic_names[t], p);
            if (deliverers == 0 && w->topics[t].exists && p < w->topics[t].partitions)
                w->last_unowned = w->now;
        }
}

void world_run(struct world *w, int ms)
{
    int64_t end = w->now + ms;
    while (w->now < end) {
        w->now += 1 + (int64_t)world_random(w, 3);
        for (struct session *s = w->sessions; s; s = s->next)
            if (s->alive && w->now >= s->contact_ms + WORLD_TIMEOUT_MS)
                session_end(w, s);
        for (int i = 0; i < WORLD_MEMBERS; i++)
            if (w->members[i].used)
                process_turn(w, i);
        commits_go_on(w);
        check_deliverers(w);
    }
}

/* ---- what tests do ------------------------------------------------------------------------------------ */

static void subscribe(struct world *w, struct process *m, unsigned mask)
{
    struct znode_member data;
    describe_mask(mask, &data);
    m->mask = mask;
    step(w, m, (struct group_event){.kind = GROUP_EVENT_SUBSCRIBE,
                                    .names = (const char *const *)data.topics,
                                    .names_count = data.topics_count,
                                    .is_pattern = data.is_pattern});
    znode_member_done(&data);
}

void world_start(struct world *w, int member, unsigned mask, bool is_static)
{
    struct process *m = &w->members[member];
    ck_assert(!m->used);
    struct session *old = m->session;
    *m = (struct process){.used = true, .is_static = is_static, .uid = ++w->uids, .generation = 1};
    m->last_poll = w->now;
    snprintf(m->static_id, sizeof m->static_id, "static-%d", member);
    m->resumes = is_static && old && old->alive;
    m->session = m->resumes ? old : session_new(w);
    struct group_member_settings settings = {.static_id = is_static ? m->static_id : NULL,
                                             .host = "host",
                                             .strategy = ASSIGN_STICKY,
                                             .drain_ms = WORLD_DRAIN_MS,
                                             .settle_ms = WORLD_SETTLE_MS,
                                             .max_poll_ms = WORLD_MAX_POLL_MS,
                                             .seed = suite_random(&w->random)};
    ck_assert_int_eq(group_member_new(&settings, w->patterns, &m->machine), 0);
    subscribe(w, m, mask);
}

bool world_is_running(const struct world *w, int member)
{
    return w->members[member].used;
}

void world_kill(struct world *w, int member)
{
    process_end(w, member);
}

void world_leave(struct world *w, int member)
{
    struct process *m = &w->members[member];
    if (m->leaving)
        return;
    m->leaving = true;
    step(w, m, (struct group_event){.kind = GROUP_EVENT_LEAVE});
}

void world_resubscribe(struct world *w, int member, unsigned mask)
{
    if (!w->members[member].leaving)
        subscribe(w, &w->members[member], mask);
}

void world_freeze(struct world *w, int member, int ms)
{
    w->members[member].frozen_until = w->now + ms;
}

void world_cut(struct world *w, int member, int ms)
{
    w->members[member].cut_until = w->now + ms;
}

void world_stop_polling(struct world *w, int member, int ms)
{
    w->members[member].no_poll_until = w->now + ms;
}

void world_take_id(struct world *w, int member)
{
    id_delete(w, group_member_get_id(w->members[member].machine));
}

void world_slow(struct world *w, int member, int drain_ms)
{
    w->members[member].drain_ms = drain_ms;
}

bool world_delivers(const struct world *w, int member, int topic, int32_t partition)
{
    const struct process *m = &w->members[member];
    return m->used && m->held[topic][partition].delivers && w->now < m->lease_until;
}

int world_owner(const struct world *w, int topic, int32_t partition)
{
    for (int i = 0; i < WORLD_MEMBERS; i++)
        if (w->members[i].used && w->topics[topic].owner[partition] == w->members[i].session->id)
            return i;
    return -1;
}

/* For a failure: who is not where it should be. */
static void explain(const struct world *w)
{
    for (int i = 0; i < WORLD_MEMBERS; i++) {
        const struct process *m = &w->members[i];
        if (m->used)
            fprintf(stderr, "# member %d %s: %s, %s, subscribes to %x\n", i, group_member_get_id(m->machine),
                    group_member_is_registered(m->machine) ? "registered" : "not registered",
                    group_member_is_quiet(m->machine) ? "quiet" : "busy", m->mask);
    }
    for (int t = 0; t < WORLD_TOPICS; t++)
        for (int32_t p = 0; p < WORLD_PARTITIONS; p++)
            fprintf(stderr, "# %s/%d%s: owner %d%s\n", topic_names[t], p,
                    w->topics[t].exists && p < w->topics[t].partitions ? "" : " (does not exist)",
                    world_owner(w, t, p), w->topics[t].owner[p] ? "" : " (no node)");
    fprintf(stderr, "# ids at %lld, assignment: %s\n", (long long)w->ids_pzxid, w->assignment);
}

/* Owned in ZooKeeper = delivered, and everything that somebody subscribes to is. */
static bool adds_up(const struct world *w)
{
    for (int i = 0; i < WORLD_MEMBERS; i++)
        if (w->members[i].used && !group_member_is_quiet(w->members[i].machine))
            return false;
    for (int t = 0; t < WORLD_TOPICS; t++)
        for (int32_t p = 0; p < WORLD_PARTITIONS; p++) {
            int owner = world_owner(w, t, p);
            bool wanted = false;
            for (int i = 0; i < WORLD_MEMBERS; i++) {
                unsigned mask = w->members[i].mask;
                wanted = wanted || (w->members[i].used && (mask == 0 || (mask & (1u << t))));
                if (w->members[i].used && world_delivers(w, i, t, p) != (i == owner))
                    return false;
            }
            wanted = wanted && w->topics[t].exists && p < w->topics[t].partitions;
            if (wanted != (owner >= 0))
                return false;
        }
    return true;
}

bool world_settles(struct world *w, int ms)
{
    w->faults = false;
    for (int i = 0; i < WORLD_MEMBERS; i++)
        w->members[i].frozen_until = w->members[i].cut_until = w->members[i].no_poll_until = 0;
    /* It has to stay that way: sessions of killed processes may still be ending. */
    int good = 0;
    for (int waited = 0; waited < ms + 500 && good < 500; waited += 50) {
        world_run(w, 50);
        good = adds_up(w) ? good + 50 : 0;
    }
    if (good >= 500)
        return true;
    explain(w);
    return false;
}

void world_free(struct world *w)
{
    for (int i = 0; i < WORLD_MEMBERS; i++)
        if (w->members[i].used)
            process_end(w, i);
    while (w->ids)
        id_delete(w, w->ids->id);
    for (struct session *s = w->sessions, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    for (struct commit *c = w->commits, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(w->assignment);
    topic_patterns_free(w->patterns);
    free(w);
}
