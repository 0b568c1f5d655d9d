#include "client/group_member_private.h"

#include "proto/base/err.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How much longer than a session's timeout its nodes may stay: the server rounds up. */
#define ID_MARGIN_MS 3000

int group_member_new(const struct group_member_settings *settings, struct topic_patterns *patterns,
                     struct group_member **ret_member)
{
    struct group_member *m = calloc(1, sizeof *m);
    if (!m)
        return -BROOK_E_NOMEM;
    m->settings = *settings;
    m->patterns = patterns;
    m->random = settings->seed;
    m->partitions_due_ms = INT64_MAX;
    m->polled_ms = INT64_MAX;
    if (settings->static_id)
        snprintf(m->id, sizeof m->id, "%s", settings->static_id);
    int err = member_reserve(m, 0);
    if (err) {
        group_member_free(m);
        return err;
    }
    *ret_member = m;
    return 0;
}

void group_member_free(struct group_member *m)
{
    if (!m)
        return;
    member_forget_group(m);
    member_clear_subscription(m);
    member_topics_free(m);
    znode_assignment_done(&m->written);
    free(m->effects);
    free(m);
}

/* ---- small helpers ------------------------------------------------------------------------------------ */

uint64_t member_next_op(struct group_member *m)
{
    return ++m->ops;
}

int64_t member_random(struct group_member *m, int64_t bound)
{
    uint64_t z = (m->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return bound > 0 ? (int64_t)(z % (uint64_t)bound) : 0;
}

int64_t member_backoff(struct group_member *m, int *retry_ms)
{
    *retry_ms = *retry_ms == 0 ? RETRY_MS : *retry_ms * 2;
    if (*retry_ms > RETRY_MS_MAX)
        *retry_ms = RETRY_MS_MAX;
    return m->now_ms + *retry_ms / 2 + member_random(m, *retry_ms / 2);
}

bool member_takes_part(const struct group_member *m)
{
    return m->state == MEMBER_REGISTERED && !m->leaving && !m->away;
}

bool member_has_lease(const struct group_member *m)
{
    return m->settings.deliver_without_lease || m->now_ms < m->lease_until_ms;
}

/* ---- effects ------------------------------------------------------------------------------------------ */

int member_reserve(struct group_member *m, size_t more)
{
    /* A partition queues at most UNWATCH, LOST, WATCH, CLAIM and the like in one step, a topic two
     * watches. */
    size_t room = m->effects_count + 64 + 8 * (m->partitions_count + more) + 4 * (m->topics_count + more);
    if (room <= m->effects_capacity)
        return 0;
    size_t capacity = 2 * room;
    struct group_effect *effects = malloc(capacity * sizeof *effects);
    if (!effects)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < m->effects_count; i++)
        effects[i] = m->effects[(m->effects_first + i) % m->effects_capacity];
    free(m->effects);
    m->effects = effects;
    m->effects_capacity = capacity;
    m->effects_first = 0;
    return 0;
}

void member_push(struct group_member *m, struct group_effect effect)
{
    assert(m->effects_count < m->effects_capacity);
    m->effects[(m->effects_first + m->effects_count++) % m->effects_capacity] = effect;
}

void member_report(struct group_member *m, enum group_report report, int err, const char *topic,
                   int32_t partition)
{
    member_push(m, (struct group_effect){.kind = GROUP_EFFECT_REPORT,
                                         .report = report,
                                         .err = err,
                                         .topic = topic,
                                         .partition = partition});
}

bool group_member_effect(struct group_member *m, struct group_effect *ret_effect)
{
    if (m->effects_count == 0)
        return false;
    *ret_effect = m->effects[m->effects_first];
    m->effects_first = (m->effects_first + 1) % m->effects_capacity;
    m->effects_count--;
    return true;
}

/* ---- the session -------------------------------------------------------------------------------------- */

/* What was dropped is no longer registered as far as we are concerned: begin again. */
static void start_over(struct group_member *m, bool session_lives)
{
    member_drop_all(m, session_lives);
    if (m->group_watched)
        member_push(m, (struct group_effect){.kind = GROUP_EFFECT_UNWATCH_GROUP});
    m->group_watched = false;
    member_forget_group(m);
    member_forget_topics(m);
    m->state = MEMBER_NONE;
    m->state_op = 0;
    m->state_not_before_ms = 0;
    m->list_op = 0;
    m->mark = true;
}

static void session_over(struct group_member *m)
{
    start_over(m, false);
    m->session_up = false;
    m->lease_over = false;
    m->list_owned = false;
}

static void connected_event(struct group_member *m, const struct group_event *e)
{
    if (m->session_up && e->generation == m->generation)
        return;
    if (m->session_up)
        session_over(m);
    m->session_up = true;
    m->reconcile = true;
    m->generation = e->generation;
    m->session_timeout_ms = e->session_timeout_ms;
    m->state_retry_ms = 0;
    m->list_owned = e->resumed;
    if (!m->settings.static_id)
        snprintf(m->id, sizeof m->id, "%.60s-%016" PRIx64, m->settings.host, (uint64_t)e->session_id);
}

static void check_lease(struct group_member *m)
{
    if (m->lease_over && member_has_lease(m)) {
        m->lease_over = false;
        m->reconcile = true;
    }
    if (m->state == MEMBER_NONE || m->state == MEMBER_REGISTERING || member_has_lease(m))
        return;
    m->lease_over = true;
    start_over(m, true);
    member_report(m, GROUP_REPORT_LEASE_OVER, 0, NULL, -1);
}

/* ---- the application ---------------------------------------------------------------------------------- */

static void check_away(struct group_member *m)
{
    bool polls = m->polled_ms == INT64_MAX || m->now_ms - m->polled_ms < m->settings.max_poll_ms;
    if (m->away && (m->polled_ms == INT64_MAX || m->polled_ms > m->away_since_ms)) {
        m->away = false;
        m->mark = true;
    } else if (!m->away && !polls && m->state == MEMBER_REGISTERED && !m->leaving) {
        m->away = true;
        m->away_since_ms = m->now_ms;
        m->mark = true;
        member_report(m, GROUP_REPORT_AWAY, 0, NULL, -1);
    }
}

static int subscribe_event(struct group_member *m, const struct group_event *e)
{
    int err = member_set_subscription(m, e->names, e->names_count, e->is_pattern);
    if (err)
        return err;
    if (m->leaving)
        member_push(m, (struct group_effect){.kind = GROUP_EFFECT_LEFT});
    m->leaving = false;
    m->subscribed = true;
    m->resubscribed = m->state != MEMBER_NONE;
    m->away = false;
    m->mark = true;
    m->watch = true;
    member_unkeep(m);
    return 0;
}

static void leave_event(struct group_member *m, const struct group_event *e)
{
    m->leaving = true;
    m->keep = e->keep && m->settings.static_id;
    m->mark = true;
}

/* ---- the registration --------------------------------------------------------------------------------- */

/* An earlier session of ours may still have it, and ends by itself; after that it is somebody else's. */
static void id_is_taken(struct group_member *m)
{
    if (m->id_taken_since_ms == 0)
        m->id_taken_since_ms = m->now_ms;
    if (m->now_ms < m->id_taken_since_ms ||
        m->now_ms - m->id_taken_since_ms < m->session_timeout_ms + ID_MARGIN_MS)
        return;
    m->id_taken_since_ms = INT64_MAX;
    member_report(m, GROUP_REPORT_ID_IN_USE, -BROOK_E_NODE_EXISTS, NULL, -1);
}

static void registered_event(struct group_member *m, const struct group_event *e)
{
    if (e->op != m->state_op)
        return;
    m->state_op = 0;
    if (e->err) {
        if (e->err == -BROOK_E_NODE_EXISTS)
            id_is_taken(m);
        m->state_not_before_ms = member_backoff(m, &m->state_retry_ms);
        if (m->state == MEMBER_REGISTERING)
            m->state = MEMBER_NONE;
        else
            m->resubscribed = true;
        return;
    }
    m->state_retry_ms = 0;
    m->id_taken_since_ms = 0;
    if (m->state != MEMBER_REGISTERING)
        return;
    m->state = MEMBER_REGISTERED;
    m->mark = true;
    m->watch = true;
    m->group_watched = true;
    member_push(m, (struct group_effect){.kind = GROUP_EFFECT_WATCH_GROUP});
}

static void unregistered_event(struct group_member *m, const struct group_event *e)
{
    if (e->op != m->state_op)
        return;
    m->state_op = 0;
    if (e->err)
        m->state_not_before_ms = member_backoff(m, &m->state_retry_ms);
    else
        start_over(m, true);
}

static void send_register(struct group_member *m, bool replace)
{
    m->state_op = member_next_op(m);
    m->resubscribed = false;
    member_push(m,
                (struct group_effect){.kind = GROUP_EFFECT_REGISTER, .op = m->state_op, .replace = replace});
}

static void send_unregister(struct group_member *m)
{
    m->state = MEMBER_UNREGISTERING;
    m->state_op = member_next_op(m);
    member_push(m, (struct group_effect){.kind = GROUP_EFFECT_UNREGISTER, .op = m->state_op});
}

/* One request at a time; each state knows what it is waiting for. */
static void go_on_registering(struct group_member *m)
{
    bool stays = m->subscribed && !m->leaving && !m->away;
    if (m->state_op || !m->session_up || m->lease_over || m->now_ms < m->state_not_before_ms)
        return;
    if (m->state == MEMBER_NONE && stays) {
        m->state = MEMBER_REGISTERING;
        send_register(m, false);
    } else if (m->state == MEMBER_REGISTERED && stays && m->resubscribed) {
        send_register(m, true);
    } else if (m->state == MEMBER_REGISTERED && !stays && m->busy == 0 && !(m->leaving && m->keep)) {
        send_unregister(m);
    } else if (m->state == MEMBER_UNREGISTERING) {
        send_unregister(m);
    }
}

/* Not before the assignment is known: what is found is then claimed again or released, as that says. */
static void go_on_listing(struct group_member *m)
{
    if (!m->list_owned || m->list_op || !m->assignment_known || m->now_ms < m->list_not_before_ms)
        return;
    m->list_op = member_next_op(m);
    member_push(m, (struct group_effect){.kind = GROUP_EFFECT_LIST_OWNED, .op = m->list_op});
}

static void listed_event(struct group_member *m, const struct group_event *e)
{
    if (!m->list_op || e->op != m->list_op)
        return;
    m->list_op = 0;
    if (e->err)
        m->list_not_before_ms = member_backoff(m, &m->list_retry_ms);
    else
        m->list_owned = false;
}

/* The ids node was taken away: by hand, or by somebody who thinks we are dead. */
static void check_listed(struct group_member *m)
{
    if (m->state != MEMBER_REGISTERED || !m->ids_known || member_is_listed(m))
        return;
    start_over(m, true);
    member_report(m, GROUP_REPORT_EVICTED, 0, NULL, -1);
}

static void check_left(struct group_member *m)
{
    bool kept = m->keep && m->state == MEMBER_REGISTERED && !m->state_op;
    if (!m->leaving || m->busy > 0 || !(m->state == MEMBER_NONE || kept))
        return;
    if (kept)
        start_over(m, true);
    m->leaving = false;
    m->subscribed = false;
    member_clear_subscription(m);
    member_push(m, (struct group_effect){.kind = GROUP_EFFECT_LEFT});
}

/* ---- the step ----------------------------------------------------------------------------------------- */

static int take_in(struct group_member *m, const struct group_event *e)
{
    switch (e->kind) {
    case GROUP_EVENT_TICK: return 0;
    case GROUP_EVENT_SUBSCRIBE: return subscribe_event(m, e);
    case GROUP_EVENT_LEAVE: leave_event(m, e); return 0;
    case GROUP_EVENT_CONNECTED: connected_event(m, e); return 0;
    case GROUP_EVENT_EXPIRED: session_over(m); return 0;
    case GROUP_EVENT_REGISTERED: registered_event(m, e); return 0;
    case GROUP_EVENT_UNREGISTERED: unregistered_event(m, e); return 0;
    case GROUP_EVENT_IDS: return member_ids_event(m, e);
    case GROUP_EVENT_ASSIGNMENT: return member_assignment_event(m, e);
    case GROUP_EVENT_TOPICS: return member_topics_event(m, e);
    case GROUP_EVENT_TOPIC: member_topic_event(m, e); return 0;
    case GROUP_EVENT_VIEW: return member_view_event(m, e);
    case GROUP_EVENT_WRITTEN: member_written_event(m, e); return 0;
    case GROUP_EVENT_LISTED: listed_event(m, e); return 0;
    default: member_partition_event(m, e); return 0;
    }
}

static int follow_up(struct group_member *m)
{
    int err = 0;
    check_lease(m);
    check_listed(m);
    check_away(m);
    if (m->mark)
        err = member_mark_desired(m);
    if (m->watch && !err)
        err = member_watch_topics(m);
    if (m->reconcile || m->now_ms >= m->partitions_due_ms)
        member_reconcile(m);
    go_on_registering(m);
    go_on_listing(m);
    member_round(m);
    check_left(m);
    return err;
}

int group_member_step(struct group_member *m, const struct group_event *e)
{
    int err = member_reserve(m, 0);
    if (err)
        return err;
    assert(e->now_ms >= m->now_ms);
    m->now_ms = e->now_ms;
    m->lease_until_ms = e->lease_until_ms;
    m->polled_ms = e->polled_ms;
    err = take_in(m, e);
    int err_after = member_reserve(m, 0);
    if (!err_after)
        err_after = follow_up(m);
    return err ? err : err_after;
}

static void earliest(int64_t *at, int64_t other)
{
    if (other < *at)
        *at = other;
}

int64_t group_member_next_ms(const struct group_member *m)
{
    int64_t at = m->partitions_due_ms;
    bool registered = m->state == MEMBER_REGISTERED;
    if (m->round_due_ms)
        earliest(&at, m->round_due_ms);
    if (m->list_owned && !m->list_op && m->assignment_known)
        earliest(&at, m->list_not_before_ms);
    if (!m->state_op && m->session_up && m->state_not_before_ms > m->now_ms)
        earliest(&at, m->state_not_before_ms);
    if (registered && !m->settings.deliver_without_lease)
        earliest(&at, m->lease_until_ms);
    if (registered && !m->away && m->polled_ms != INT64_MAX)
        earliest(&at, m->polled_ms + m->settings.max_poll_ms);
    return at;
}

/* ---- looking in --------------------------------------------------------------------------------------- */

const char *group_member_get_id(const struct group_member *m)
{
    return m->id;
}

bool group_member_is_registered(const struct group_member *m)
{
    return m->state == MEMBER_REGISTERED;
}

void group_member_describe(const struct group_member *m, struct znode_member *ret_member)
{
    *ret_member = (struct znode_member){
        .topics = m->subscription,
        .topics_count = m->subscription_count,
        .is_pattern = m->is_pattern,
        .strategy = (char *)(uintptr_t)assign_strategy_name(m->settings.strategy),
        .algorithm_version = ASSIGN_ALGORITHM_VERSION,
    };
}

bool group_member_is_quiet(const struct group_member *m)
{
    if (m->state != MEMBER_REGISTERED || m->state_op || m->resubscribed || m->leaving || m->away || m->mark ||
        m->reconcile || m->list_owned || m->round_op || m->round_due_ms || !m->has_assignment ||
        member_view_is_stale(m))
        return false;
    for (const struct member_topic *t = m->topics; t; t = t->hh.next)
        for (int32_t p = 0; p < t->partitions_count; p++)
            if (t->partitions[p].state != (t->partitions[p].desired ? PARTITION_OWNED : PARTITION_FREE))
                return false;
    return true;
}
