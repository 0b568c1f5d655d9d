#include "tests/property/group_world_private.h"

#include "coordination/topic_pattern.h"
#include "proto/base/err.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool fault(struct world *w, unsigned percent)
{
    return w->faults && world_random(w, 100) < percent;
}


/* ---- the process: effects ----------------------------------------------------------------------------- */

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
        request_drop(r);
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

/* When the lease is over everything is lost, in the very step that hears of it. */
static void check_lease(const struct world *w, const struct process *m)
{
    for (int t = 0; t < WORLD_TOPICS && w->now >= m->lease_until; t++)
        for (int32_t p = 0; p < WORLD_PARTITIONS; p++)
            ck_assert_msg(!m->held[t][p].has, "%s/%d is kept without a lease", world_topic_names[t], p);
}

void step(struct world *w, struct process *m, struct group_event e)
{
    e.now_ms = w->now;
    e.lease_until_ms = m->lease_until;
    e.polled_ms = m->last_poll;
    ck_assert_int_eq(group_member_step(m->machine, &e), 0);
    struct group_effect effect;
    while (group_member_effect(m->machine, &effect))
        carry_out(w, m, &effect);
    check_lease(w, m);
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
                               .kind = GROUP_EVENT_HELD, .topic = world_topic_names[t], .partition = p});
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
                            .topic = r->topic >= 0 ? world_topic_names[r->topic] : NULL,
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
        request_drop(r);
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
        request_drop(r);
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
            names[count++] = world_topic_names[t];
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
                                            .topic = world_topic_names[t],
                                            .exists = x->exists,
                                            .zxid = x->zxid,
                                            .topic_id = x->id});
        for (int32_t p = 0; p < WORLD_PARTITIONS; p++) {
            x = &m->owner[t][p];
            if (watch_due(w, x))
                step(w, m, (struct group_event){.kind = GROUP_EVENT_OWNER,
                                                .topic = world_topic_names[t],
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
        ck_assert_msg(o->claim == c->claim, "a former owner committed %s/%d", world_topic_names[c->topic],
                      c->partition);
        ck_assert_msg(c->offset >= o->value, "the offset of %s/%d went back", world_topic_names[c->topic],
                      c->partition);
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
                                    .topic = world_topic_names[c->topic],
                                    .partition = c->partition,
                                    .err = c->err});
}

void commits_go_on(struct world *w)
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
                               .kind = GROUP_EVENT_DRAINED, .topic = world_topic_names[t], .partition = p});
            }
        }
}

void process_end(struct world *w, int member)
{
    struct process *m = &w->members[member];
    while (m->requests) {
        struct request *r = m->requests;
        m->requests = r->next;
        request_drop(r);
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

void process_turn(struct world *w, int member)
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

