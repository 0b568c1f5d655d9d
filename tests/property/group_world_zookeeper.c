#include "tests/property/group_world_private.h"

#include "coordination/topic_pattern.h"
#include "proto/base/err.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int topic_index(const char *name)
{
    for (int t = 0; t < WORLD_TOPICS; t++)
        if (strcmp(world_topic_names[t], name) == 0)
            return t;
    ck_abort_msg("topic %s", name);
    return -1;
}

/* ---- the registry ------------------------------------------------------------------------------------- */

struct id_node *id_find(struct world *w, const char *id)
{
    for (struct id_node *n = w->ids; n; n = n->next)
        if (strcmp(n->id, id) == 0)
            return n;
    return NULL;
}

void id_delete(struct world *w, const char *id)
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

void session_end(struct world *w, struct session *s)
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

struct session *session_new(struct world *w)
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

struct request *request_add(struct world *w, struct process *m, const struct group_effect *e)
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

void request_drop(struct request *r)
{
    group_view_done(&r->view);
    free(r->text);
    free(r);
}

void describe_mask(unsigned mask, struct znode_member *ret)
{
    *ret = (struct znode_member){.strategy = strdup("sticky"), .algorithm_version = ASSIGN_ALGORITHM_VERSION};
    ret->topics = calloc(WORLD_TOPICS, sizeof *ret->topics);
    ret->is_pattern = mask == 0;
    if (mask == 0)
        ret->topics[ret->topics_count++] = strdup("[a-z]+");
    for (int t = 0; t < WORLD_TOPICS; t++)
        if (mask & (1u << t))
            ret->topics[ret->topics_count++] = strdup(world_topic_names[t]);
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
            wanted = wanted || group_view_subscribes(&view->members[i], world_topic_names[t], w->patterns);
        if (wanted && w->topics[t].exists)
            view->topics[view->topics_count++] = (struct group_view_topic){
                strdup(world_topic_names[t]), w->topics[t].mzxid, w->topics[t].partitions};
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

bool apply_once(struct world *w, struct process *m, struct request *r)
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

bool is_read(const struct request *r)
{
    return r->kind == GROUP_EFFECT_READ_VIEW || r->kind == GROUP_EFFECT_VERIFY ||
           r->kind == GROUP_EFFECT_LIST_OWNED;
}

void apply_due(struct world *w, struct process *m)
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

