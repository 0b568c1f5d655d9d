/* DescribeGroups: members, owners, assignment and offsets of groups, as ZooKeeper has them now. */
#include "broker/handlers/handlers.h"

#include "broker/cluster/cluster.h"
#include "coordination/group_view.h"
#include "coordination/offsets.h"
#include "proto/base/names.h"

#include <stdlib.h>
#include <string.h>

#define GROUPS_PER_REQUEST_MAX 100

struct description;

struct group {
    struct description *all;
    char *name;
    struct brook_error error;
    struct group_view view; /* taken over from the read */
    /* One per partition that has an owner, an assignment or an offset: by topic, then number. Text is
     * borrowed from the view, or is the request's. */
    struct group_partition {
        const char *topic;
        int32_t partition;
        const char *owner;
        const char *assigned;
        int64_t offset;
    } * partitions;
    size_t partitions_count;
    size_t partitions_capacity;
};

/* Outlives the request by a moment: its reply borrows from it. */
struct description {
    struct request *request;
    size_t count;
    size_t pending;
    struct group groups[];
};

/* ---- the answer ------------------------------------------------------------------------------------- */

static int add_members(struct request *r, const struct group_view *view, Brook__GroupInfo *info)
{
    info->members = request_reply_alloc(r, (view->members_count + 1) * sizeof info->members[0]);
    if (!info->members)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < view->members_count; i++) {
        const struct group_view_member *from = &view->members[i];
        Brook__GroupMember *to = request_new(r, Brook__GroupMember, brook__group_member__init);
        if (!to ||
            !(to->topics = request_reply_alloc(r, (from->data.topics_count + 1) * sizeof to->topics[0])))
            return -BROOK_E_NOMEM;
        to->has_member = to->has_is_pattern = true;
        to->member = envelope_text(from->id);
        to->is_pattern = from->data.is_pattern;
        to->has_host = from->data.host != NULL;
        if (from->data.host)
            to->host = envelope_text(from->data.host);
        for (size_t k = 0; k < from->data.topics_count; k++)
            to->topics[to->n_topics++] = envelope_text(from->data.topics[k]);
        info->members[info->n_members++] = to;
    }
    return 0;
}

static int add_partitions(struct request *r, const struct group *g, Brook__GroupInfo *info)
{
    info->partitions = request_reply_alloc(r, (g->partitions_count + 1) * sizeof info->partitions[0]);
    if (!info->partitions)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < g->partitions_count; i++) {
        const struct group_partition *from = &g->partitions[i];
        Brook__GroupPartition *to = request_new(r, Brook__GroupPartition, brook__group_partition__init);
        if (!to)
            return -BROOK_E_NOMEM;
        to->has_topic = to->has_partition = to->has_offset = true;
        to->topic = envelope_text(from->topic);
        to->partition = from->partition;
        to->offset = from->offset;
        to->has_owner = from->owner != NULL;
        if (from->owner)
            to->owner = envelope_text(from->owner);
        to->has_assigned = from->assigned != NULL;
        if (from->assigned)
            to->assigned = envelope_text(from->assigned);
        info->partitions[info->n_partitions++] = to;
    }
    return 0;
}

static int fill(struct request *r, const struct group *g, Brook__GroupInfo *info)
{
    info->has_group = g->name != NULL;
    if (g->name)
        info->group = envelope_text(g->name);
    info->status = request_status(r, &g->error);
    if (g->error.code)
        return info->status ? 0 : -BROOK_E_NOMEM;
    if (g->view.has_assignment && g->view.assignment.strategy) {
        info->has_strategy = true;
        info->strategy = envelope_text(g->view.assignment.strategy);
    }
    return add_members(r, &g->view, info) || add_partitions(r, g, info) ? -BROOK_E_NOMEM : 0;
}

static void free_description(struct description *all)
{
    for (size_t i = 0; i < all->count; i++) {
        group_view_done(&all->groups[i].view);
        free(all->groups[i].partitions);
    }
    free(all);
}

/* The reply borrows from the views; it is packed inside of request_reply(). */
static void finish(struct description *all)
{
    struct request *r = all->request;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__DescribeGroupsResponse body = BROOK__DESCRIBE_GROUPS_RESPONSE__INIT;
    body.groups = request_reply_alloc(r, (all->count + 1) * sizeof body.groups[0]);
    for (size_t i = 0; body.groups && i < all->count; i++) {
        body.groups[i] = request_new(r, Brook__GroupInfo, brook__group_info__init);
        if (!body.groups[i] || fill(r, &all->groups[i], body.groups[i]))
            body.groups = NULL;
        body.n_groups++;
    }
    response.body_case = BROOK__RESPONSE__BODY_DESCRIBE_GROUPS;
    response.describe_groups = &body;
    if (body.groups)
        request_reply(r, &response, NULL, 0);
    else
        request_fail(r, BROOK_E_TOO_MANY, "the answer would be too large: ask for fewer groups at once");
    free_description(all);
}

static void one_is_done(struct description *all)
{
    if (--all->pending == 0)
        finish(all);
}

/* ---- putting together ------------------------------------------------------------------------------- */

static int compare_partitions(const void *a, const void *b)
{
    const struct group_partition *left = a, *right = b;
    int by_topic = strcmp(left->topic, right->topic);
    return by_topic ? by_topic : (left->partition > right->partition) - (left->partition < right->partition);
}

static void add(struct group *g, struct group_partition partition)
{
    if (g->partitions_count == g->partitions_capacity) {
        size_t capacity = g->partitions_capacity ? 2 * g->partitions_capacity : 64;
        struct group_partition *partitions = realloc(g->partitions, capacity * sizeof *partitions);
        if (!partitions) {
            brook_error_set(&g->error, BROOK_E_NOMEM, "out of memory for group %s", g->name);
            return;
        }
        g->partitions = partitions;
        g->partitions_capacity = capacity;
    }
    g->partitions[g->partitions_count++] = partition;
}

static void add_view(struct group *g)
{
    const struct group_view *view = &g->view;
    for (size_t i = 0; i < view->owners_count; i++)
        add(g, (struct group_partition){view->owners[i].topic, view->owners[i].partition,
                                        view->owners[i].member, NULL, -1});
    const struct znode_assignment *a = &view->assignment;
    for (size_t t = 0; view->has_assignment && t < a->topics_count; t++)
        for (int32_t p = 0; p < a->topics[t].partitions_count; p++) {
            int32_t owner = a->topics[t].owner[p];
            if (owner >= 0 && (size_t)owner < a->members_count)
                add(g, (struct group_partition){a->topics[t].name, p, NULL, a->members[owner], -1});
        }
}

/* One entry per partition of what was added in any order. */
static void merge(struct group *g)
{
    size_t kept = 0;
    if (g->partitions_count)
        qsort(g->partitions, g->partitions_count, sizeof *g->partitions, compare_partitions);
    for (size_t i = 0; i < g->partitions_count; i++) {
        const struct group_partition *from = &g->partitions[i];
        struct group_partition *to = kept ? &g->partitions[kept - 1] : NULL;
        if (!to || compare_partitions(to, from)) {
            g->partitions[kept++] = *from;
            continue;
        }
        to->owner = from->owner ? from->owner : to->owner;
        to->assigned = from->assigned ? from->assigned : to->assigned;
        to->offset = from->offset >= 0 ? from->offset : to->offset;
    }
    g->partitions_count = kept;
}

static char *keep_text(struct request *r, const char *text)
{
    char *copy = request_alloc(r, strlen(text) + 1);
    if (copy)
        memcpy(copy, text, strlen(text) + 1);
    return copy;
}

static void offsets_known(void *arg, const struct offsets_fetch_reply *reply)
{
    struct group *g = arg;
    const char *topic = NULL;
    if (reply->err)
        brook_error_set(&g->error, -reply->err, "offsets of group %s: %s", g->name,
                        brook_error_text(reply->err));
    for (size_t i = 0; !g->error.code && i < reply->count; i++) {
        const struct offsets_fetched *f = &reply->fetched[i];
        if (!topic || strcmp(topic, f->topic) != 0)
            topic = keep_text(g->all->request, f->topic);
        if (!topic)
            brook_error_set(&g->error, BROOK_E_NOMEM, "out of memory for group %s", g->name);
        else if (f->offset >= 0)
            add(g, (struct group_partition){topic, f->partition, NULL, NULL, f->offset});
    }
    if (!g->error.code && !g->view.ids_pzxid && !g->view.has_assignment && !reply->count)
        brook_error_set(&g->error, BROOK_E_UNKNOWN_GROUP, "there is no group %s", g->name);
    merge(g);
    one_is_done(g->all);
}

static void view_known(void *arg, int err, struct group_view *view)
{
    struct group *g = arg;
    struct request_loop *loop = g->all->request->loop;
    if (err) {
        brook_error_set(&g->error, -err, "group %s: %s", g->name, brook_error_text(err));
        return one_is_done(g->all);
    }
    g->view = *view;
    memset(view, 0, sizeof *view);
    add_view(g);
    err = offsets_fetch(cluster_offsets(loop->cluster), g->name, NULL, 0, loop->inbox, offsets_known, g);
    if (err) {
        brook_error_set(&g->error, -err, "offsets of group %s: %s", g->name, brook_error_text(err));
        one_is_done(g->all);
    }
}

/* ---- the request ------------------------------------------------------------------------------------ */

static void start(struct group *g, const ProtobufCBinaryData *name)
{
    struct request *r = g->all->request;
    g->name = request_text(r, name);
    if (!g->name || !name_is_legal_group(name->data, name->len)) {
        brook_error_set(&g->error, BROOK_E_ILLEGAL_NAME,
                        "a group name has 1 to %d characters of A-Z a-z 0-9 . _ -", GROUP_NAME_BYTES_MAX);
        return;
    }
    g->all->pending++;
    if (!group_view_read(cluster_coordinator(r->loop->cluster), r->loop->inbox, g->name, GROUP_VIEW_OWNERS,
                         NULL, view_known, g)) {
        brook_error_set(&g->error, BROOK_E_NOMEM, "out of memory for group %s", g->name);
        g->all->pending--;
    }
}

void handle_describe_groups(struct request *r)
{
    const Brook__DescribeGroupsRequest *asked = r->message->describe_groups;
    if (asked->n_groups > GROUPS_PER_REQUEST_MAX) {
        request_fail(r, BROOK_E_TOO_MANY, "%zu groups in one request, at most %d are allowed",
                     asked->n_groups, GROUPS_PER_REQUEST_MAX);
        return;
    }
    struct description *all = calloc(1, sizeof *all + asked->n_groups * sizeof all->groups[0]);
    if (!all) {
        request_fail(r, BROOK_E_NOMEM, "out of memory for %zu groups", asked->n_groups);
        return;
    }
    all->request = r;
    all->count = asked->n_groups;
    all->pending = 1; /* our own, so that the end comes once */
    for (size_t i = 0; i < all->count; i++) {
        all->groups[i].all = all;
        start(&all->groups[i], &asked->groups[i]);
    }
    one_is_done(all);
}
