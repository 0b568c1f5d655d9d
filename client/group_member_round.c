#include "client/group_member_private.h"

#include "proto/base/err.h"

#include <stdlib.h>
#include <string.h>

/* Ranks beyond this do not wait longer: those in front may all be frozen. */
#define RANK_MAX 8

/* ---- what is known of the group ----------------------------------------------------------------------- */

static void forget_ids(struct group_member *m)
{
    for (size_t i = 0; i < m->ids_count; i++)
        free(m->ids[i]);
    free(m->ids);
    m->ids = NULL;
    m->ids_count = 0;
    m->ids_known = false;
}

void member_forget_group(struct group_member *m)
{
    forget_ids(m);
    znode_assignment_done(&m->assignment);
    m->has_assignment = false;
    m->assignment_known = false;
    m->round_due_ms = 0;
    m->round_op = 0;
    m->round_retry_ms = 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_listed(const struct group_member *m, const char *id)
{
    return m->ids_count > 0 && bsearch(&id, m->ids, m->ids_count, sizeof *m->ids, compare_names) != NULL;
}

bool member_is_listed(const struct group_member *m)
{
    return is_listed(m, m->id);
}

int member_ids_event(struct group_member *m, const struct group_event *e)
{
    if (!m->group_watched)
        return 0;
    size_t count = e->err ? 0 : e->names_count;
    char **ids = calloc(count + 1, sizeof *ids);
    if (!ids)
        return -BROOK_E_NOMEM;
    forget_ids(m);
    m->ids = ids;
    for (size_t i = 0; i < count; i++) {
        if (!(ids[m->ids_count] = strdup(e->names[i])))
            return -BROOK_E_NOMEM;
        m->ids_count++;
    }
    if (count > 1)
        qsort(ids, count, sizeof *ids, compare_names);
    m->ids_pzxid = e->err ? 0 : e->zxid;
    m->ids_known = true;
    return 0;
}

int member_assignment_event(struct group_member *m, const struct group_event *e)
{
    if (!m->group_watched)
        return 0;
    znode_assignment_done(&m->assignment);
    m->has_assignment = e->assignment != NULL;
    if (e->assignment) {
        m->assignment = *e->assignment;
        memset(e->assignment, 0, sizeof *e->assignment);
    }
    m->assignment_known = true;
    m->mark = true;
    return 0;
}

/* ---- what is ours ------------------------------------------------------------------------------------- */

static int32_t our_index(const struct group_member *m)
{
    for (size_t i = 0; i < m->assignment.members_count; i++)
        if (strcmp(m->assignment.members[i], m->id) == 0)
            return (int32_t)i;
    return -1;
}

/* Everything that needs memory, before anything is changed. */
static int make_room(struct group_member *m)
{
    for (size_t i = 0; i < m->assignment.topics_count; i++) {
        const struct znode_assignment_topic *a = &m->assignment.topics[i];
        struct member_topic *t = member_topic_get(m, a->name);
        if (!t || (t->subscribed && member_topic_grow(m, t, a->partitions_count) != 0))
            return -BROOK_E_NOMEM;
    }
    return 0;
}

static void mark_topic(struct member_topic *t, const struct znode_assignment_topic *a, int32_t us)
{
    t->agreed_zxid = a->zxid;
    if (!t->subscribed || us < 0)
        return;
    for (int32_t p = 0; p < a->partitions_count; p++)
        if (a->owner[p] == us) {
            t->partitions[p].desired = true;
            t->assigned_count++;
        }
}

int member_mark_desired(struct group_member *m)
{
    int err = m->has_assignment ? make_room(m) : 0;
    if (err)
        return err;
    for (struct member_topic *t = m->topics; t; t = t->hh.next) {
        t->agreed_zxid = 0;
        t->assigned_count = 0;
        for (int32_t p = 0; p < t->partitions_count; p++)
            t->partitions[p].desired = false;
    }
    int32_t us = member_takes_part(m) ? our_index(m) : -1;
    for (size_t i = 0; i < m->assignment.topics_count; i++)
        mark_topic(member_topic_find(m, m->assignment.topics[i].name), &m->assignment.topics[i], us);
    m->mark = false;
    m->watch = true;
    m->reconcile = true;
    return 0;
}

/* ---- is there a newer view? --------------------------------------------------------------------------- */

static bool topic_is_stale(const struct group_member *m, const struct member_topic *t)
{
    if (t->watched && t->known)
        return t->exists ? t->zxid != t->agreed_zxid : t->agreed_zxid != 0;
    return m->is_pattern && m->topics_known && t->subscribed && !t->listed && t->agreed_zxid != 0;
}

bool member_view_is_stale(const struct group_member *m)
{
    if (!m->has_assignment || m->assignment.ids_pzxid != m->ids_pzxid)
        return true;
    for (const struct member_topic *t = m->topics; t; t = t->hh.next)
        if (topic_is_stale(m, t))
            return true;
    return false;
}

/* How many others are to go first: those of the assignment, the oldest in front, then the new ones by
 * name. */
static size_t our_rank(const struct group_member *m)
{
    size_t rank = 0;
    for (size_t i = 0; i < m->assignment.members_count; i++) {
        if (strcmp(m->assignment.members[i], m->id) == 0)
            return rank;
        rank += is_listed(m, m->assignment.members[i]);
    }
    for (size_t i = 0; i < m->ids_count && strcmp(m->ids[i], m->id) != 0; i++)
        rank++;
    return rank;
}

/* Changes come together, and the first in line normally writes before anybody else would: that is what keeps
 * the reads of a change linear in the members. */
static int64_t settle_delay(struct group_member *m)
{
    int64_t unit = m->settings.settle_ms / 4;
    size_t rank = our_rank(m);
    int64_t turns = (int64_t)(rank < RANK_MAX ? rank : RANK_MAX);
    return unit + turns * (unit + 10) + member_random(m, unit + 1);
}

void member_round(struct group_member *m)
{
    if (m->round_op)
        return;
    if (!member_takes_part(m) || !m->ids_known || !m->assignment_known || !member_view_is_stale(m)) {
        m->round_due_ms = 0;
        m->round_retry_ms = 0;
        return;
    }
    if (!m->round_due_ms)
        m->round_due_ms = m->now_ms + settle_delay(m);
    if (m->now_ms < m->round_due_ms)
        return;
    m->round_op = member_next_op(m);
    member_push(m, (struct group_effect){.kind = GROUP_EFFECT_READ_VIEW, .op = m->round_op});
}

/* ---- the round ---------------------------------------------------------------------------------------- */

static void try_again(struct group_member *m)
{
    m->round_due_ms = member_backoff(m, &m->round_retry_ms);
}

static bool view_has_us(const struct group_member *m, const struct group_view *view)
{
    for (size_t i = 0; i < view->members_count; i++)
        if (strcmp(view->members[i].id, m->id) == 0)
            return true;
    return false;
}

static void write_next(struct group_member *m, const struct group_view *view)
{
    struct znode_assignment next = {0};
    int err = group_compute(view, m->patterns, &next);
    if (err) {
        if (err == -BROOK_E_UNSUPPORTED && m->round_retry_ms == 0)
            member_report(m, GROUP_REPORT_STRATEGY, err, NULL, -1);
        try_again(m);
        return;
    }
    znode_assignment_done(&m->written);
    m->written = next;
    m->round_op = member_next_op(m);
    member_push(m, (struct group_effect){.kind = GROUP_EFFECT_WRITE,
                                         .op = m->round_op,
                                         .assignment = &m->written,
                                         .version = view->assignment_version});
}

int member_view_event(struct group_member *m, const struct group_event *e)
{
    if (!m->round_op || e->op != m->round_op)
        return 0;
    m->round_op = 0;
    if (e->err || !view_has_us(m, e->view)) {
        try_again(m);
    } else if (group_view_is_current(e->view)) {
        /* Somebody was faster; what we watch has not caught up yet. */
        member_push(m, (struct group_effect){.kind = GROUP_EFFECT_CHECK_GROUP});
        try_again(m);
    } else {
        write_next(m, e->view);
    }
    return 0;
}

void member_written_event(struct group_member *m, const struct group_event *e)
{
    if (!m->round_op || e->op != m->round_op)
        return;
    m->round_op = 0;
    m->round_due_ms = 0;
    if (!e->err)
        return;
    if (e->err == -BROOK_E_NODE_TOO_LARGE)
        member_report(m, GROUP_REPORT_TOO_LARGE, e->err, NULL, -1);
    bool lost_race = e->err == -BROOK_E_BAD_VERSION || e->err == -BROOK_E_NODE_EXISTS;
    if (!lost_race)
        try_again(m);
    member_push(m, (struct group_effect){.kind = GROUP_EFFECT_CHECK_GROUP});
}
