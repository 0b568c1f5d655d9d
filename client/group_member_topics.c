#include "client/group_member_private.h"

#include "coordination/topic_pattern.h"
#include "proto/base/err.h"

#include <stdlib.h>
#include <string.h>

/* ---- the subscription --------------------------------------------------------------------------------- */

static bool subscribes(const struct group_member *m, const char *topic)
{
    for (size_t i = 0; i < m->subscription_count; i++)
        if (m->is_pattern ? topic_patterns_match(m->patterns, m->subscription[i], topic)
                          : strcmp(m->subscription[i], topic) == 0)
            return true;
    return false;
}

static void free_names(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

void member_clear_subscription(struct group_member *m)
{
    free_names(m->subscription, m->subscription_count);
    m->subscription = NULL;
    m->subscription_count = 0;
    for (struct member_topic *t = m->topics; t; t = t->hh.next)
        t->subscribed = false;
}

int member_set_subscription(struct group_member *m, const char *const *topics, size_t count, bool is_pattern)
{
    char **names = calloc(count + 1, sizeof *names);
    if (!names)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < count; i++)
        if (!(names[i] = strdup(topics[i]))) {
            free_names(names, i);
            return -BROOK_E_NOMEM;
        }
    member_clear_subscription(m);
    m->subscription = names;
    m->subscription_count = count;
    m->is_pattern = is_pattern;
    for (struct member_topic *t = m->topics; t; t = t->hh.next)
        t->subscribed = subscribes(m, t->name);
    return 0;
}

/* ---- the table ---------------------------------------------------------------------------------------- */

struct member_topic *member_topic_find(const struct group_member *m, const char *name)
{
    struct member_topic *t = NULL;
    HASH_FIND_STR(m->topics, name, t);
    return t;
}

struct member_topic *member_topic_get(struct group_member *m, const char *name)
{
    struct member_topic *t = member_topic_find(m, name);
    if (t)
        return t;
    size_t bytes = strlen(name);
    if (member_reserve(m, 1) != 0 || !(t = calloc(1, sizeof *t + bytes + 1)))
        return NULL;
    memcpy(t->name, name, bytes + 1);
    HASH_ADD_STR(m->topics, name, t);
    if (!t->hh.tbl) {
        free(t);
        return NULL;
    }
    t->subscribed = subscribes(m, name);
    m->topics_count++;
    return t;
}

int member_topic_grow(struct group_member *m, struct member_topic *t, int32_t partitions_count)
{
    if (partitions_count <= t->partitions_count)
        return 0;
    size_t more = (size_t)(partitions_count - t->partitions_count);
    if (member_reserve(m, more) != 0)
        return -BROOK_E_NOMEM;
    struct member_partition *partitions =
        realloc(t->partitions, (size_t)partitions_count * sizeof *partitions);
    if (!partitions)
        return -BROOK_E_NOMEM;
    memset(partitions + t->partitions_count, 0, more * sizeof *partitions);
    t->partitions = partitions;
    t->partitions_count = partitions_count;
    m->partitions_count += more;
    return 0;
}

void member_topics_free(struct group_member *m)
{
    struct member_topic *t, *next;
    HASH_ITER(hh, m->topics, t, next)
    {
        HASH_DEL(m->topics, t);
        free(t->partitions);
        free(t);
    }
}

/* ---- watches ------------------------------------------------------------------------------------------ */

/* Named topics are all watched, so that their creation is seen. Of those that an expression takes in, the
 * owners of partitions watch their own topics and everybody those that nobody was given yet: a group must not
 * watch every topic with every member. */
static bool wants_watch(const struct group_member *m, const struct member_topic *t)
{
    if (!m->group_watched || !t->subscribed)
        return false;
    return !m->is_pattern || t->assigned_count > 0 || (t->listed && t->agreed_zxid == 0);
}

static void set_watch(struct group_member *m, struct member_topic *t, bool watched)
{
    if (t->watched == watched)
        return;
    t->watched = watched;
    t->known = false;
    member_push(m,
                (struct group_effect){.kind = watched ? GROUP_EFFECT_WATCH_TOPIC : GROUP_EFFECT_UNWATCH_TOPIC,
                                      .topic = t->name});
}

int member_watch_topics(struct group_member *m)
{
    for (size_t i = 0; i < m->subscription_count && !m->is_pattern; i++)
        if (!member_topic_get(m, m->subscription[i]))
            return -BROOK_E_NOMEM;
    m->watch = false;
    if (m->group_watched && m->is_pattern && !m->topics_watched) {
        m->topics_watched = true;
        member_push(m, (struct group_effect){.kind = GROUP_EFFECT_WATCH_TOPICS});
    }
    for (struct member_topic *t = m->topics; t; t = t->hh.next)
        set_watch(m, t, wants_watch(m, t));
    return 0;
}

void member_forget_topics(struct group_member *m)
{
    m->topics_watched = false;
    m->topics_known = false;
    for (struct member_topic *t = m->topics; t; t = t->hh.next) {
        t->watched = false;
        t->known = false;
        t->listed = false;
        t->agreed_zxid = 0;
    }
}

/* ---- events ------------------------------------------------------------------------------------------- */

int member_topics_event(struct group_member *m, const struct group_event *e)
{
    if (!m->topics_watched)
        return 0;
    for (struct member_topic *t = m->topics; t; t = t->hh.next)
        t->listed = false;
    int err = 0;
    for (size_t i = 0; i < e->names_count; i++) {
        if (!name_is_legal_topic(e->names[i], strlen(e->names[i])))
            continue;
        struct member_topic *t = member_topic_find(m, e->names[i]);
        if (!t && subscribes(m, e->names[i])) {
            t = member_topic_get(m, e->names[i]);
            err = t ? err : -BROOK_E_NOMEM;
        }
        if (t)
            t->listed = true;
    }
    m->topics_known = true;
    m->watch = true;
    return err;
}

void member_topic_event(struct group_member *m, const struct group_event *e)
{
    struct member_topic *t = member_topic_find(m, e->topic);
    if (!t || !t->watched)
        return;
    bool anew = e->exists && !topic_id_is_zero(&t->topic_id) && !topic_id_equal(&t->topic_id, &e->topic_id);
    t->known = true;
    t->exists = e->exists;
    t->zxid = e->zxid;
    if (e->exists)
        t->topic_id = e->topic_id;
    if (anew)
        member_drop_topic(m, t);
}
