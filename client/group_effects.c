#include "client/group_driver_private.h"

#include "proto/base/err.h"

#include <stdio.h>

/* ---- to the consumer ----------------------------------------------------------------------------------- */

static void flush(struct group *g)
{
    size_t count = g->batch_count;
    g->batch_count = 0;
    if (count == 0 || g->closed)
        return;
    if (g->batch_kind == GROUP_EFFECT_ADD)
        g->events.assigned(g->events.arg, g->batch, count);
    else if (g->batch_kind == GROUP_EFFECT_DRAIN)
        g->events.revoking(g->events.arg, g->batch, count);
    else
        g->events.lost(g->events.arg, g->batch, count);
}

static void hand_on(struct group *g, const struct group_effect *e, int64_t offset)
{
    if (g->batch_count == GROUP_POSITIONS_MAX || g->batch_kind != e->kind)
        flush(g);
    g->batch_kind = e->kind;
    g->batch[g->batch_count++] = (struct brook_position){e->topic, e->partition, offset};
}

static void add(struct group *g, const struct group_effect *e)
{
    if (group_commits_open(g->commits, e->topic, e->partition, e->offset, e->version) < 0)
        group_log(g, DIAG_ERROR, "out of memory: commits of %s/%d will be refused", e->topic, e->partition);
    hand_on(g, e, e->offset < 0 ? BROOK_OFFSET_NONE : e->offset);
}

static void lose(struct group *g, const struct group_effect *e)
{
    /* One that the consumer has handed back already is no news to it. */
    bool is_handed_back = group_commits_is_finishing(g->commits, e->topic, e->partition);
    group_commits_close(g->commits, e->topic, e->partition, -BROOK_E_FENCED);
    if (!is_handed_back)
        hand_on(g, e, -1);
}

static void hurry(struct group *g, const struct group_effect *e)
{
    if (group_commits_is_finishing(g->commits, e->topic, e->partition))
        return;
    group_log(g, DIAG_WARN, "%s/%d is taken from an application that does not let go of it", e->topic,
              e->partition);
    int64_t offset = g->events.drain_over(g->events.arg, e->topic, e->partition);
    group_drained(g, e->topic, e->partition, offset);
}

/* ---- what people should know --------------------------------------------------------------------------- */

static void fail(struct group *g, int code, const char *text)
{
    struct brook_error error;
    brook_error_set(&error, code, "%s", text);
    group_log(g, DIAG_ERROR, "%s", text);
    g->events.failed(g->events.arg, &error);
}

static void report(struct group *g, const struct group_effect *e)
{
    char text[200];
    switch (e->report) {
    case GROUP_REPORT_ID_IN_USE:
        snprintf(text, sizeof text, "group %s: member %s is a live session's already", g->name,
                 group_member_get_id(g->machine));
        fail(g, BROOK_E_LOCKED, text);
        break;
    case GROUP_REPORT_UNREADABLE:
        snprintf(text, sizeof text, "group %s: the stored offset of %.80s/%d makes no sense", g->name,
                 e->topic, e->partition);
        fail(g, BROOK_E_BAD_ZNODE, text);
        break;
    case GROUP_REPORT_BLOCKED:
        snprintf(text, sizeof text,
                 "group %s: %.80s/%d is assigned here, but its owner does not let go of it", g->name,
                 e->topic, e->partition);
        fail(g, BROOK_E_OWNED, text);
        break;
    case GROUP_REPORT_TOO_LARGE:
        snprintf(text, sizeof text, "group %s: the assignment is larger than a znode may be", g->name);
        fail(g, BROOK_E_NODE_TOO_LARGE, text);
        break;
    case GROUP_REPORT_STRATEGY:
        group_log(g, DIAG_WARN,
                  "the oldest member asks for a strategy that is not known here: others must assign");
        break;
    case GROUP_REPORT_AWAY:
        group_log(g, DIAG_WARN, "no poll within max.poll.interval.ms: leaving until the next one");
        break;
    case GROUP_REPORT_EVICTED:
        group_log(g, DIAG_WARN, "the registration was taken away: joining again");
        break;
    case GROUP_REPORT_LEASE_OVER:
        group_log(g, DIAG_WARN,
                  "ZooKeeper was not heard of for a session timeout: all partitions are given up");
        break;
    }
}

/* ---- all of them --------------------------------------------------------------------------------------- */

static void reset(struct group *g)
{
    ownership_free(g->ownership);
    g->ownership = NULL;
    group_unwatch_owners(g);
}

static void left(struct group *g)
{
    flush(g);
    if (g->leave_mode == GROUP_LEAVE_FOR_RESTART && g->left) {
        g->keeps_session = true;
        client_keep_session(g->client);
    }
    group_end_leave(g, 0);
}

/* What a person who looks into a group's history wants to see. */
static void note(const struct group *g, const struct group_effect *e)
{
    static const char *const names[] = {
        [GROUP_EFFECT_REGISTER] = "registering",
        [GROUP_EFFECT_UNREGISTER] = "unregistering",
        [GROUP_EFFECT_READ_VIEW] = "looking at the whole group",
        [GROUP_EFFECT_WRITE] = "writing an assignment",
        [GROUP_EFFECT_CLAIM] = "claiming",
        [GROUP_EFFECT_RELEASE] = "releasing",
        [GROUP_EFFECT_VERIFY] = "verifying the owner of",
        [GROUP_EFFECT_ADD] = "reading",
        [GROUP_EFFECT_DRAIN] = "draining",
        [GROUP_EFFECT_LOST] = "lost",
        [GROUP_EFFECT_LEFT] = "left",
    };
    const char *name = e->kind < sizeof names / sizeof names[0] ? names[e->kind] : NULL;
    if (name && e->topic)
        group_log(g, DIAG_DEBUG, "%s %s/%d", name, e->topic, e->partition);
    else if (name)
        group_log(g, DIAG_DEBUG, "%s", name);
}

static void carry_out(struct group *g, const struct group_effect *e)
{
    note(g, e);
    switch (e->kind) {
    case GROUP_EFFECT_RESET: reset(g); break;
    case GROUP_EFFECT_REGISTER: group_register(g, e->op, e->replace); break;
    case GROUP_EFFECT_UNREGISTER: group_unregister(g, e->op); break;
    case GROUP_EFFECT_WATCH_GROUP: group_watch_group(g); break;
    case GROUP_EFFECT_UNWATCH_GROUP: group_unwatch_group(g); break;
    case GROUP_EFFECT_CHECK_GROUP: group_check_group(g); break;
    case GROUP_EFFECT_WATCH_TOPICS: group_watch_topics(g); break;
    case GROUP_EFFECT_WATCH_TOPIC: group_watch_topic(g, e->topic); break;
    case GROUP_EFFECT_UNWATCH_TOPIC: group_unwatch_topic(g, e->topic); break;
    case GROUP_EFFECT_READ_VIEW: group_read_view(g, e->op); break;
    case GROUP_EFFECT_WRITE: group_write(g, e->op, e->assignment, e->version); break;
    case GROUP_EFFECT_LIST_OWNED: group_list_owned(g, e->op); break;
    case GROUP_EFFECT_CLAIM: group_claim(g, e); break;
    case GROUP_EFFECT_RELEASE: group_release(g, e); break;
    case GROUP_EFFECT_VERIFY: group_verify(g, e); break;
    case GROUP_EFFECT_WATCH_OWNER: group_watch_owner(g, e->topic, e->partition); break;
    case GROUP_EFFECT_UNWATCH_OWNER: group_unwatch_owner(g, e->topic, e->partition); break;
    case GROUP_EFFECT_ADD: add(g, e); break;
    case GROUP_EFFECT_DRAIN: hand_on(g, e, -1); break;
    case GROUP_EFFECT_HURRY:
        flush(g);
        hurry(g, e);
        break;
    case GROUP_EFFECT_REMOVE: group_commits_close(g->commits, e->topic, e->partition, -BROOK_E_FENCED); break;
    case GROUP_EFFECT_LOST: lose(g, e); break;
    case GROUP_EFFECT_RESOLVED:
        group_commits_resolved(g->commits, e->topic, e->partition, e->offset, e->version);
        break;
    case GROUP_EFFECT_REPORT: report(g, e); break;
    case GROUP_EFFECT_LEFT: left(g); break;
    }
}

void group_carry_out(struct group *g)
{
    if (g->running)
        return;
    g->running = true;
    group_ref(g);
    struct group_effect effect;
    do {
        while (!g->closed && group_member_effect(g->machine, &effect))
            carry_out(g, &effect);
        flush(g);
        /* The consumer may have called back in. */
    } while (!g->closed && group_member_effect(g->machine, &effect) && (carry_out(g, &effect), true));
    g->running = false;
    group_unref(g);
}
