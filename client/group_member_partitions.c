#include "client/group_member_private.h"

#include "proto/base/err.h"

#include <assert.h>

/* Added to drain and session timeout before "assigned to us, owned by another" is an alarm. */
#define ALARM_MARGIN_MS 1000

static void set_state(struct group_member *m, struct member_partition *p, enum partition_state state)
{
    bool was_busy = p->state != PARTITION_FREE && p->state != PARTITION_KEPT;
    bool is_busy = state != PARTITION_FREE && state != PARTITION_KEPT;
    m->busy = m->busy + is_busy - was_busy;
    p->state = state;
}

static void due(struct group_member *m, int64_t at_ms)
{
    if (at_ms < m->partitions_due_ms)
        m->partitions_due_ms = at_ms;
}

static bool is_delivered(const struct member_partition *p)
{
    return p->state == PARTITION_OWNED || p->state == PARTITION_DRAINING;
}

static void push(struct group_member *m, enum group_effect_kind kind, const struct member_topic *t,
                 const struct member_partition *p, uint64_t op)
{
    member_push(m, (struct group_effect){
                       .kind = kind, .topic = t->name, .partition = (int32_t)(p - t->partitions), .op = op});
}

static void settle(struct group_member *m, struct member_partition *p, enum partition_state state)
{
    p->op = 0;
    p->verify_op = 0;
    p->doubt = false;
    set_state(m, p, state);
}

/* ---- moves -------------------------------------------------------------------------------------------- */

static void claim(struct group_member *m, struct member_topic *t, struct member_partition *p)
{
    settle(m, p, PARTITION_CLAIMING);
    p->op = member_next_op(m);
    push(m, GROUP_EFFECT_CLAIM, t, p, p->op);
}

static void release(struct group_member *m, struct member_topic *t, struct member_partition *p)
{
    settle(m, p, PARTITION_RELEASING);
    p->op = member_next_op(m);
    push(m, GROUP_EFFECT_RELEASE, t, p, p->op);
}

static void begin_drain(struct group_member *m, struct member_topic *t, struct member_partition *p)
{
    set_state(m, p, PARTITION_DRAINING);
    p->hurried = false;
    p->deadline_ms = m->now_ms + m->settings.drain_ms - m->settings.drain_ms / 4;
    due(m, p->deadline_ms);
    push(m, GROUP_EFFECT_DRAIN, t, p, 0);
}

/* The application is done with it, or had its time. */
static void give_up(struct group_member *m, struct member_topic *t, struct member_partition *p)
{
    push(m, GROUP_EFFECT_REMOVE, t, p, 0);
    push(m, GROUP_EFFECT_UNWATCH_OWNER, t, p, 0);
    if (m->leaving && m->keep)
        settle(m, p, PARTITION_KEPT);
    else
        release(m, t, p);
}

/* `then`: FREE when the node is certainly not ours. */
static void lose(struct group_member *m, struct member_topic *t, struct member_partition *p,
                 enum partition_state then)
{
    push(m, GROUP_EFFECT_UNWATCH_OWNER, t, p, 0);
    push(m, GROUP_EFFECT_LOST, t, p, 0);
    settle(m, p, then);
    p->not_before_ms = 0;
    m->reconcile = true;
}

static void block(struct group_member *m, struct member_topic *t, struct member_partition *p)
{
    settle(m, p, PARTITION_BLOCKED);
    p->deadline_ms = m->now_ms + m->settings.drain_ms + m->session_timeout_ms + ALARM_MARGIN_MS;
    due(m, p->deadline_ms);
    push(m, GROUP_EFFECT_WATCH_OWNER, t, p, 0);
}

static void unblock(struct group_member *m, struct member_topic *t, struct member_partition *p,
                    enum partition_state then)
{
    push(m, GROUP_EFFECT_UNWATCH_OWNER, t, p, 0);
    settle(m, p, then);
    p->not_before_ms = 0;
}

static void hold(struct group_member *m, struct member_partition *p)
{
    settle(m, p, PARTITION_HELD);
    p->not_before_ms = member_backoff(m, &p->retry_ms);
    due(m, p->not_before_ms);
}

/* ---- the level-triggered look at one partition -------------------------------------------------------- */

static void look_at_idle(struct group_member *m, struct member_topic *t, struct member_partition *p)
{
    bool wants_something = p->desired || p->state == PARTITION_HELD;
    if (!wants_something || !m->session_up || m->lease_over)
        return;
    if (m->now_ms < p->not_before_ms)
        due(m, p->not_before_ms);
    else if (p->desired)
        claim(m, t, p);
    else
        release(m, t, p);
}

static void look_at_blocked(struct group_member *m, struct member_topic *t, struct member_partition *p)
{
    if (!p->desired) {
        unblock(m, t, p, PARTITION_FREE);
    } else if (m->now_ms < p->deadline_ms) {
        due(m, p->deadline_ms);
    } else {
        /* A claim besides the alarm: no single watch is relied on. */
        member_report(m, GROUP_REPORT_BLOCKED, -BROOK_E_OWNED, t->name, (int32_t)(p - t->partitions));
        unblock(m, t, p, PARTITION_FREE);
        claim(m, t, p);
    }
}

/* The last quarter of the time is for the last commit. */
static void look_at_draining(struct group_member *m, struct member_topic *t, struct member_partition *p)
{
    if (m->now_ms >= p->deadline_ms && p->hurried) {
        give_up(m, t, p);
        return;
    }
    if (m->now_ms >= p->deadline_ms) {
        p->hurried = true;
        p->deadline_ms += m->settings.drain_ms / 4;
        push(m, GROUP_EFFECT_HURRY, t, p, 0);
    }
    due(m, p->deadline_ms);
}

static void look_at_doubt(struct group_member *m, struct member_topic *t, struct member_partition *p)
{
    if (!p->doubt || p->verify_op || !is_delivered(p))
        return;
    if (m->now_ms < p->verify_not_before_ms) {
        due(m, p->verify_not_before_ms);
        return;
    }
    p->verify_op = member_next_op(m);
    push(m, GROUP_EFFECT_VERIFY, t, p, p->verify_op);
}

static void look_at(struct group_member *m, struct member_topic *t, struct member_partition *p)
{
    switch (p->state) {
    case PARTITION_FREE:
    case PARTITION_HELD: look_at_idle(m, t, p); break;
    case PARTITION_BLOCKED: look_at_blocked(m, t, p); break;
    case PARTITION_OWNED:
        if (!p->desired)
            begin_drain(m, t, p);
        break;
    case PARTITION_DRAINING: look_at_draining(m, t, p); break;
    case PARTITION_CLAIMING:
    case PARTITION_RELEASING:
    case PARTITION_KEPT: break;
    }
    look_at_doubt(m, t, p);
}

void member_reconcile(struct group_member *m)
{
    m->reconcile = false;
    m->partitions_due_ms = INT64_MAX;
    for (struct member_topic *t = m->topics; t; t = t->hh.next)
        for (int32_t p = 0; p < t->partitions_count; p++)
            look_at(m, t, &t->partitions[p]);
}

/* ---- events ------------------------------------------------------------------------------------------- */

static void on_claimed(struct group_member *m, struct member_topic *t, struct member_partition *p,
                       const struct group_event *e)
{
    if (p->state != PARTITION_CLAIMING || e->op != p->op)
        return;
    if (e->err == -BROOK_E_NODE_EXISTS) {
        block(m, t, p);
        return;
    }
    if (e->err) {
        /* Perhaps it is ours all the same: held, until a claim or release says what is. */
        if (e->err == -BROOK_E_BAD_ZNODE && p->retry_ms == 0)
            member_report(m, GROUP_REPORT_UNREADABLE, e->err, t->name, e->partition);
        hold(m, p);
        return;
    }
    p->retry_ms = 0;
    if (!p->desired || !member_has_lease(m)) {
        settle(m, p, PARTITION_HELD);
        p->not_before_ms = 0;
        return;
    }
    settle(m, p, PARTITION_OWNED);
    push(m, GROUP_EFFECT_WATCH_OWNER, t, p, 0);
    member_push(m, (struct group_effect){.kind = GROUP_EFFECT_ADD,
                                         .topic = t->name,
                                         .partition = e->partition,
                                         .offset = e->offset,
                                         .version = e->version});
}

static void on_released(struct group_member *m, struct member_partition *p, const struct group_event *e)
{
    if (p->state != PARTITION_RELEASING || e->op != p->op)
        return;
    if (e->err && e->err != -BROOK_E_SESSION_EXPIRED) {
        hold(m, p);
        return;
    }
    settle(m, p, PARTITION_FREE);
    p->retry_ms = 0;
    p->not_before_ms = 0;
}

static void on_owner(struct group_member *m, struct member_topic *t, struct member_partition *p,
                     const struct group_event *e)
{
    bool ours = e->exists && e->ours;
    if (p->state == PARTITION_BLOCKED && (ours || !e->exists))
        unblock(m, t, p, ours ? PARTITION_HELD : PARTITION_FREE);
    else if (is_delivered(p) && !ours)
        lose(m, t, p, PARTITION_FREE);
}

static void on_doubt(struct group_member *m, struct member_partition *p, const struct group_event *e)
{
    if (!is_delivered(p))
        return;
    p->doubt = true;
    p->verify_not_before_ms = 0;
    if (e->err == -BROOK_E_STALE_MEMBER)
        member_push(m, (struct group_effect){.kind = GROUP_EFFECT_CHECK_GROUP});
}

static void on_verified(struct group_member *m, struct member_topic *t, struct member_partition *p,
                        const struct group_event *e)
{
    if (e->op != p->verify_op || !p->verify_op)
        return;
    p->verify_op = 0;
    if (e->err) {
        p->verify_not_before_ms = m->now_ms + RETRY_MS;
    } else if (!e->ours) {
        lose(m, t, p, PARTITION_FREE);
    } else {
        p->doubt = false;
        member_push(m, (struct group_effect){.kind = GROUP_EFFECT_RESOLVED,
                                             .topic = t->name,
                                             .partition = e->partition,
                                             .offset = e->offset,
                                             .version = e->version});
    }
}

static void on_held(struct group_member *m, struct member_partition *p)
{
    if (p->state != PARTITION_FREE && p->state != PARTITION_KEPT)
        return;
    settle(m, p, PARTITION_HELD);
    p->not_before_ms = 0;
}

/* A partition that is not in the table can still turn up as held. */
static struct member_partition *find(struct group_member *m, const struct group_event *e,
                                     struct member_topic **ret_topic)
{
    bool make = e->kind == GROUP_EVENT_HELD;
    struct member_topic *t = make ? member_topic_get(m, e->topic) : member_topic_find(m, e->topic);
    if (!t || e->partition < 0 || e->partition >= ZNODE_PARTITIONS_MAX)
        return NULL;
    if (make && member_topic_grow(m, t, e->partition + 1) != 0)
        return NULL;
    *ret_topic = t;
    return e->partition < t->partitions_count ? &t->partitions[e->partition] : NULL;
}

void member_partition_event(struct group_member *m, const struct group_event *e)
{
    struct member_topic *t;
    struct member_partition *p = find(m, e, &t);
    if (!p)
        return;
    switch (e->kind) {
    case GROUP_EVENT_CLAIMED: on_claimed(m, t, p, e); break;
    case GROUP_EVENT_RELEASED: on_released(m, p, e); break;
    case GROUP_EVENT_OWNER: on_owner(m, t, p, e); break;
    case GROUP_EVENT_HELD: on_held(m, p); break;
    case GROUP_EVENT_DRAINED:
        if (p->state == PARTITION_DRAINING)
            give_up(m, t, p);
        break;
    case GROUP_EVENT_DOUBT: on_doubt(m, p, e); break;
    case GROUP_EVENT_VERIFIED: on_verified(m, t, p, e); break;
    default: assert(!"an event of a partition"); break;
    }
    look_at(m, t, p);
}

/* ---- dropping ----------------------------------------------------------------------------------------- */

static void drop(struct group_member *m, struct member_topic *t, struct member_partition *p,
                 bool session_lives)
{
    bool maybe_ours = session_lives && p->state != PARTITION_FREE && p->state != PARTITION_BLOCKED;
    if (is_delivered(p))
        push(m, GROUP_EFFECT_LOST, t, p, 0);
    p->desired = false;
    p->retry_ms = 0;
    p->not_before_ms = 0;
    if (p->state == PARTITION_KEPT && session_lives)
        return;
    settle(m, p, maybe_ours ? PARTITION_HELD : PARTITION_FREE);
}

void member_drop_all(struct group_member *m, bool session_lives)
{
    member_push(m, (struct group_effect){.kind = GROUP_EFFECT_RESET});
    for (struct member_topic *t = m->topics; t; t = t->hh.next) {
        for (int32_t p = 0; p < t->partitions_count; p++)
            drop(m, t, &t->partitions[p], session_lives);
        t->assigned_count = 0;
    }
    m->reconcile = true;
}

void member_drop_topic(struct group_member *m, struct member_topic *t)
{
    for (int32_t p = 0; p < t->partitions_count; p++)
        if (is_delivered(&t->partitions[p]))
            lose(m, t, &t->partitions[p], PARTITION_HELD);
}

void member_unkeep(struct group_member *m)
{
    for (struct member_topic *t = m->topics; t; t = t->hh.next)
        for (int32_t p = 0; p < t->partitions_count; p++)
            if (t->partitions[p].state == PARTITION_KEPT) {
                settle(m, &t->partitions[p], PARTITION_HELD);
                m->reconcile = true;
            }
}
