#include "client/group_member_private.h"

#include "proto/base/err.h"

#include <stdlib.h>
#include <string.h>

/* Work space of one computation. Members are in order of age here, the oldest first. */
struct compute {
    const struct group_view *view;
    struct topic_patterns *patterns;
    const struct group_view_member **members;
    size_t members_count;
    int32_t *first_alike; /* per member: the first one with the same subscription */
    bool *takes;          /* per member, of the topic at hand */
    int32_t *subscribers; /* topics_count runs of members_count */
    int32_t *now_index;   /* per member of the old assignment: index here, or -1 */
    struct assign_topic *plans;
};

static int compare_age(const void *a, const void *b)
{
    const struct group_view_member *x = *(const struct group_view_member *const *)a;
    const struct group_view_member *y = *(const struct group_view_member *const *)b;
    return x->czxid != y->czxid ? (x->czxid > y->czxid) - (x->czxid < y->czxid) : strcmp(x->id, y->id);
}

static bool subscribe_alike(const struct group_view_member *a, const struct group_view_member *b)
{
    if (a->data.is_pattern != b->data.is_pattern || a->data.topics_count != b->data.topics_count)
        return false;
    for (size_t i = 0; i < a->data.topics_count; i++)
        if (strcmp(a->data.topics[i], b->data.topics[i]) != 0)
            return false;
    return true;
}

static void compute_done(struct compute *c)
{
    free(c->members);
    free(c->first_alike);
    free(c->takes);
    free(c->subscribers);
    free(c->now_index);
    free(c->plans);
}

static void find_alike(struct compute *c)
{
    for (size_t i = 0; i < c->members_count; i++) {
        size_t first = 0;
        while (first < i && (c->first_alike[first] != (int32_t)first ||
                             !subscribe_alike(c->members[first], c->members[i])))
            first++;
        c->first_alike[i] = (int32_t)first;
    }
}

static void find_old_members(struct compute *c)
{
    const struct znode_assignment *old = &c->view->assignment;
    for (size_t i = 0; i < old->members_count; i++) {
        c->now_index[i] = -1;
        for (size_t m = 0; m < c->members_count && c->now_index[i] < 0; m++)
            if (strcmp(old->members[i], c->members[m]->id) == 0)
                c->now_index[i] = (int32_t)m;
    }
}

static int compute_init(struct compute *c, const struct group_view *view, struct topic_patterns *patterns)
{
    size_t members = view->members_count;
    *c = (struct compute){
        .view = view,
        .patterns = patterns,
        .members = malloc((members + 1) * sizeof(struct group_view_member *)),
        .members_count = members,
        .first_alike = malloc((members + 1) * sizeof(int32_t)),
        .takes = malloc((members + 1) * sizeof(bool)),
        .subscribers = malloc((members * view->topics_count + 1) * sizeof(int32_t)),
        .now_index = malloc((view->assignment.members_count + 1) * sizeof(int32_t)),
        .plans = calloc(view->topics_count + 1, sizeof(struct assign_topic)),
    };
    if (!c->members || !c->first_alike || !c->takes || !c->subscribers || !c->now_index || !c->plans)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < members; i++)
        c->members[i] = &view->members[i];
    if (members > 1)
        qsort(c->members, members, sizeof *c->members, compare_age);
    find_alike(c);
    find_old_members(c);
    return 0;
}

/* The oldest member whose node says something. */
static int choose_strategy(const struct compute *c, enum assign_strategy *ret_strategy)
{
    for (size_t i = 0; i < c->members_count; i++) {
        const struct znode_member *data = &c->members[i]->data;
        if (!data->strategy)
            continue;
        bool known = data->algorithm_version == ASSIGN_ALGORITHM_VERSION &&
                     assign_strategy_parse(data->strategy, ret_strategy) == 0;
        return known ? 0 : -BROOK_E_UNSUPPORTED;
    }
    return -BROOK_E_UNSUPPORTED;
}

/* The same topic in the assignment: most often at the same place. */
static const struct znode_assignment_topic *old_topic(const struct group_view *view, size_t topic)
{
    const struct znode_assignment *old = &view->assignment;
    const char *name = view->topics[topic].name;
    if (topic < old->topics_count && strcmp(old->topics[topic].name, name) == 0)
        return &old->topics[topic];
    for (size_t i = 0; i < old->topics_count; i++)
        if (strcmp(old->topics[i].name, name) == 0)
            return &old->topics[i];
    return NULL;
}

static void find_subscribers(struct compute *c, size_t topic)
{
    struct assign_topic *plan = &c->plans[topic];
    int32_t *subscribers = c->subscribers + topic * c->members_count;
    for (size_t i = 0; i < c->members_count; i++) {
        size_t first = (size_t)c->first_alike[i];
        c->takes[i] = first < i
                          ? c->takes[first]
                          : group_view_subscribes(c->members[i], c->view->topics[topic].name, c->patterns);
        if (c->takes[i])
            subscribers[plan->subscribers_count++] = (int32_t)i;
    }
    plan->subscribers = subscribers;
}

static int plan_topic(struct compute *c, size_t topic, struct znode_assignment_topic *ret)
{
    const struct group_view_topic *t = &c->view->topics[topic];
    const struct znode_assignment_topic *old = old_topic(c->view, topic);
    *ret = (struct znode_assignment_topic){
        .name = strdup(t->name),
        .zxid = t->zxid,
        .partitions_count = t->partitions_count,
        .owner = malloc((size_t)(t->partitions_count + 1) * sizeof *ret->owner)};
    if (!ret->name || !ret->owner)
        return -BROOK_E_NOMEM;
    for (int32_t p = 0; p < t->partitions_count; p++) {
        int32_t owner = old && p < old->partitions_count ? old->owner[p] : -1;
        ret->owner[p] = owner >= 0 ? c->now_index[owner] : -1;
    }
    find_subscribers(c, topic);
    c->plans[topic].owner = ret->owner;
    c->plans[topic].partitions_count = t->partitions_count;
    return 0;
}

static int fill(struct compute *c, enum assign_strategy strategy, struct znode_assignment *ret)
{
    const struct group_view *view = c->view;
    ret->strategy = strdup(assign_strategy_name(strategy));
    ret->algorithm_version = ASSIGN_ALGORITHM_VERSION;
    ret->ids_pzxid = view->ids_pzxid;
    ret->members = calloc(c->members_count + 1, sizeof *ret->members);
    ret->topics = calloc(view->topics_count + 1, sizeof *ret->topics);
    if (!ret->strategy || !ret->members || !ret->topics)
        return -BROOK_E_NOMEM;
    for (; ret->members_count < c->members_count; ret->members_count++)
        if (!(ret->members[ret->members_count] = strdup(c->members[ret->members_count]->id)))
            return -BROOK_E_NOMEM;
    for (size_t t = 0; t < view->topics_count; t++) {
        ret->topics_count = t + 1;
        if (plan_topic(c, t, &ret->topics[t]) != 0)
            return -BROOK_E_NOMEM;
    }
    return assign_compute(strategy, c->plans, view->topics_count, c->members_count);
}

int group_compute(const struct group_view *view, struct topic_patterns *patterns,
                  struct znode_assignment *ret)
{
    struct compute c;
    enum assign_strategy strategy;
    struct znode_assignment next = {0};
    int err = compute_init(&c, view, patterns);
    if (!err)
        err = choose_strategy(&c, &strategy);
    if (!err)
        err = fill(&c, strategy, &next);
    if (err)
        znode_assignment_done(&next);
    else
        *ret = next;
    compute_done(&c);
    return err;
}

bool group_view_is_current(const struct group_view *view)
{
    const struct znode_assignment *a = &view->assignment;
    if (!view->has_assignment || a->ids_pzxid != view->ids_pzxid || a->topics_count != view->topics_count)
        return false;
    for (size_t i = 0; i < view->topics_count; i++) {
        const struct group_view_topic *t = &view->topics[i];
        const struct znode_assignment_topic *old = old_topic(view, i);
        if (!old || old->zxid != t->zxid || old->partitions_count != t->partitions_count)
            return false;
    }
    return true;
}
