#include "coordination/group_view.h"

#include "coordination/reads.h"
#include "coordination/topic_pattern.h"
#include "proto/base/names.h"

#include <stdlib.h>
#include <string.h>

/* A step starts reads and names its successor; an error anywhere ends the whole. */
struct group_view_read {
    struct coordinator *coordinator;
    struct inbox *inbox;
    char *group;
    unsigned flags;
    struct topic_patterns *patterns;
    group_view_callback *callback;
    void *arg;
    bool cancelled;
    struct group_view view;
    char **names; /* of topics: to be read, or whose owners are to be listed */
    size_t names_count;
};

static void names_done(struct group_view_read *read)
{
    for (size_t i = 0; i < read->names_count; i++)
        free(read->names[i]);
    free(read->names);
    read->names = NULL;
    read->names_count = 0;
}

void group_view_done(struct group_view *view)
{
    for (size_t i = 0; i < view->members_count; i++) {
        free(view->members[i].id);
        znode_member_done(&view->members[i].data);
    }
    for (size_t i = 0; i < view->topics_count; i++)
        free(view->topics[i].name);
    for (size_t i = 0; i < view->owners_count; i++) {
        free(view->owners[i].topic);
        free(view->owners[i].member);
    }
    free(view->members);
    free(view->topics);
    free(view->owners);
    znode_assignment_done(&view->assignment);
    memset(view, 0, sizeof *view);
}

static void read_end(struct group_view_read *read, int err)
{
    if (!read->cancelled)
        read->callback(read->arg, err, err ? NULL : &read->view);
    group_view_done(&read->view);
    names_done(read);
    free(read->group);
    free(read);
}

static struct coordinator_call read_call(struct group_view_read *read, coordinator_callback *callback)
{
    return (struct coordinator_call){.inbox = read->inbox, .callback = callback, .arg = read};
}

/* Start reading `count` items, or end with the error. */
static void read_many(struct group_view_read *read, enum reads_kind kind, size_t count,
                      void (*path)(void *, size_t, struct path *),
                      int (*answer)(void *, size_t, const struct coordinator_reply *),
                      void (*end)(void *, int))
{
    struct reads_plan plan = {.coordinator = read->coordinator,
                              .inbox = read->inbox,
                              .kind = kind,
                              .count = count,
                              .path = path,
                              .answer = answer,
                              .end = end,
                              .arg = read};
    int err = reads_start(&plan);
    if (err)
        read_end(read, err);
}

/* ---- names -------------------------------------------------------------------------------------------- */

static int name_add(struct group_view_read *read, size_t room, const char *name)
{
    if (!read->names) {
        read->names = calloc(room + 1, sizeof *read->names);
        if (!read->names)
            return -BROOK_E_NOMEM;
    }
    char *copy = strdup(name);
    if (!copy)
        return -BROOK_E_NOMEM;
    read->names[read->names_count++] = copy;
    return 0;
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void names_sort(struct group_view_read *read)
{
    size_t kept = 0;
    if (read->names_count > 1)
        qsort(read->names, read->names_count, sizeof *read->names, compare_text);
    for (size_t i = 0; i < read->names_count; i++) {
        if (kept > 0 && strcmp(read->names[kept - 1], read->names[i]) == 0)
            free(read->names[i]);
        else
            read->names[kept++] = read->names[i];
    }
    read->names_count = kept;
}

/* ---- owners (the last step, when asked for) ------------------------------------------------------------ */

static int compare_owners(const void *a, const void *b)
{
    const struct group_view_owner *x = a;
    const struct group_view_owner *y = b;
    int order = strcmp(x->topic, y->topic);
    return order ? order : (x->partition > y->partition) - (x->partition < y->partition);
}

static void on_owners_end(void *arg, int err)
{
    struct group_view_read *read = arg;
    struct group_view *view = &read->view;
    size_t kept = 0;
    for (size_t i = 0; i < view->owners_count; i++) {
        if (view->owners[i].member)
            view->owners[kept++] = view->owners[i];
        else
            free(view->owners[i].topic);
    }
    view->owners_count = kept;
    if (kept > 1)
        qsort(view->owners, kept, sizeof *view->owners, compare_owners);
    read_end(read, err);
}

static int on_owner(void *arg, size_t item, const struct coordinator_reply *reply)
{
    struct group_view_read *read = arg;
    if (reply->err)
        return reply->err == -BROOK_E_NO_NODE ? 0 : reply->err;
    read->view.owners[item].member = strdup(reply->data);
    return read->view.owners[item].member ? 0 : -BROOK_E_NOMEM;
}

static void owner_path(void *arg, size_t item, struct path *path)
{
    struct group_view_read *read = arg;
    path_owner(path, read->group, read->view.owners[item].topic, read->view.owners[item].partition);
}

static void on_owned_end(void *arg, int err)
{
    struct group_view_read *read = arg;
    if (err)
        read_end(read, err);
    else
        read_many(read, READS_GET, read->view.owners_count, owner_path, on_owner, on_owners_end);
}

static int on_owned(void *arg, size_t item, const struct coordinator_reply *reply)
{
    struct group_view_read *read = arg;
    struct group_view *view = &read->view;
    if (reply->err)
        return reply->err == -BROOK_E_NO_NODE ? 0 : reply->err;
    struct group_view_owner *owners =
        realloc(view->owners, (view->owners_count + reply->children_count + 1) * sizeof *owners);
    if (!owners)
        return -BROOK_E_NOMEM;
    view->owners = owners;
    for (size_t i = 0; i < reply->children_count; i++) {
        int32_t partition = path_partition_number(reply->children[i]);
        if (partition < 0)
            continue;
        char *topic = strdup(read->names[item]);
        if (!topic)
            return -BROOK_E_NOMEM;
        owners[view->owners_count++] = (struct group_view_owner){.topic = topic, .partition = partition};
    }
    return 0;
}

static void owned_path(void *arg, size_t item, struct path *path)
{
    struct group_view_read *read = arg;
    path_group_owners(path, read->group, read->names[item]);
}

static void on_owner_topics(void *arg, const struct coordinator_reply *reply)
{
    struct group_view_read *read = arg;
    int err = reply->err == -BROOK_E_NO_NODE ? 0 : reply->err;
    size_t count = reply->err ? 0 : reply->children_count;
    for (size_t i = 0; i < count && !err; i++)
        if (name_is_legal_topic(reply->children[i], strlen(reply->children[i])))
            err = name_add(read, count, reply->children[i]);
    if (err)
        read_end(read, err);
    else
        read_many(read, READS_CHILDREN, read->names_count, owned_path, on_owned, on_owned_end);
}

static void owners_step(struct group_view_read *read)
{
    names_done(read);
    if (read->cancelled || !(read->flags & GROUP_VIEW_OWNERS)) {
        read_end(read, 0);
        return;
    }
    struct path path;
    path_group_owners(&path, read->group, NULL);
    coordinator_children(read->coordinator, path.text, read_call(read, on_owner_topics));
}

/* ---- topics -------------------------------------------------------------------------------------------- */

/* A topic whose node is not there, or not written yet, does not exist. */
static int on_topic(void *arg, size_t item, const struct coordinator_reply *reply)
{
    struct group_view_read *read = arg;
    if (reply->err)
        return reply->err == -BROOK_E_NO_NODE ? 0 : reply->err;
    struct znode_topic topic = {0};
    if (znode_decode_topic(reply->data, reply->data_bytes, &topic, NULL) != 0)
        return 0;
    char *name = read->names[item];
    read->names[item] = NULL;
    read->view.topics[read->view.topics_count++] =
        (struct group_view_topic){name, reply->stat.mzxid, topic.partitions_count};
    znode_topic_done(&topic);
    return 0;
}

static void topic_path(void *arg, size_t item, struct path *path)
{
    struct group_view_read *read = arg;
    path_topic(path, read->names[item]);
}

static int compare_topics(const void *a, const void *b)
{
    return strcmp(((const struct group_view_topic *)a)->name, ((const struct group_view_topic *)b)->name);
}

static void on_topics_end(void *arg, int err)
{
    struct group_view_read *read = arg;
    if (read->view.topics_count > 1)
        qsort(read->view.topics, read->view.topics_count, sizeof *read->view.topics, compare_topics);
    if (err)
        read_end(read, err);
    else
        owners_step(read);
}

static void topics_read(struct group_view_read *read)
{
    names_sort(read);
    read->view.topics = calloc(read->names_count + 1, sizeof *read->view.topics);
    if (!read->view.topics)
        read_end(read, -BROOK_E_NOMEM);
    else
        read_many(read, READS_GET, read->names_count, topic_path, on_topic, on_topics_end);
}

bool group_view_subscribes(const struct group_view_member *member, const char *topic,
                           struct topic_patterns *patterns)
{
    for (size_t i = 0; i < member->data.topics_count; i++) {
        const char *wanted = member->data.topics[i];
        if (member->data.is_pattern ? topic_patterns_match(patterns, wanted, topic)
                                    : strcmp(wanted, topic) == 0)
            return true;
    }
    return false;
}

static size_t names_wanted(const struct group_view *view)
{
    size_t count = 0;
    for (size_t m = 0; m < view->members_count; m++)
        count += view->members[m].data.topics_count;
    return count;
}

/* Names of plain subscriptions. `room`: what the whole may come to. */
static int add_plain_names(struct group_view_read *read, size_t room)
{
    int err = 0;
    for (size_t m = 0; m < read->view.members_count && !err; m++) {
        const struct znode_member *data = &read->view.members[m].data;
        for (size_t i = 0; i < data->topics_count && !data->is_pattern && !err; i++)
            if (name_is_legal_topic(data->topics[i], strlen(data->topics[i])))
                err = name_add(read, room, data->topics[i]);
    }
    return err;
}

static bool wanted_by_pattern(const struct group_view_read *read, const char *topic)
{
    for (size_t m = 0; m < read->view.members_count; m++) {
        const struct group_view_member *member = &read->view.members[m];
        if (member->data.is_pattern && group_view_subscribes(member, topic, read->patterns))
            return true;
    }
    return false;
}

static void on_all_topics(void *arg, const struct coordinator_reply *reply)
{
    struct group_view_read *read = arg;
    int err = reply->err == -BROOK_E_NO_NODE ? 0 : reply->err;
    size_t count = reply->err ? 0 : reply->children_count;
    size_t room = names_wanted(&read->view) + count;
    if (!err)
        err = add_plain_names(read, room);
    for (size_t i = 0; i < count && !err; i++)
        if (name_is_legal_topic(reply->children[i], strlen(reply->children[i])) &&
            wanted_by_pattern(read, reply->children[i]))
            err = name_add(read, room, reply->children[i]);
    if (err)
        read_end(read, err);
    else
        topics_read(read);
}

static void topics_step(struct group_view_read *read)
{
    bool patterns = false;
    for (size_t m = 0; m < read->view.members_count; m++)
        patterns = patterns || read->view.members[m].data.is_pattern;
    if (!(read->flags & GROUP_VIEW_TOPICS)) {
        owners_step(read);
        return;
    }
    if (patterns) {
        coordinator_children(read->coordinator, PATH_TOPICS, read_call(read, on_all_topics));
        return;
    }
    int err = add_plain_names(read, names_wanted(&read->view));
    if (err)
        read_end(read, err);
    else
        topics_read(read);
}

/* ---- members ------------------------------------------------------------------------------------------- */

static int compare_members(const void *a, const void *b)
{
    return strcmp(((const struct group_view_member *)a)->id, ((const struct group_view_member *)b)->id);
}

static void on_members_end(void *arg, int err)
{
    struct group_view_read *read = arg;
    struct group_view *view = &read->view;
    size_t kept = 0;
    for (size_t i = 0; i < view->members_count; i++) {
        if (view->members[i].czxid != 0)
            view->members[kept++] = view->members[i];
        else
            free(view->members[i].id);
    }
    view->members_count = kept;
    if (kept > 1)
        qsort(view->members, kept, sizeof *view->members, compare_members);
    if (err || read->cancelled)
        read_end(read, err);
    else
        topics_step(read);
}

static int on_member(void *arg, size_t item, const struct coordinator_reply *reply)
{
    struct group_view_read *read = arg;
    struct group_view_member *member = &read->view.members[item];
    if (reply->err)
        return reply->err == -BROOK_E_NO_NODE ? 0 : reply->err;
    member->czxid = reply->stat.czxid;
    member->ephemeral_owner = reply->stat.ephemeral_owner;
    int err = znode_decode_member(reply->data, reply->data_bytes, &member->data, NULL);
    return err == -BROOK_E_NOMEM ? err : 0;
}

static void member_path(void *arg, size_t item, struct path *path)
{
    struct group_view_read *read = arg;
    path_group_member(path, read->group, read->view.members[item].id);
}

static void on_ids(void *arg, const struct coordinator_reply *reply)
{
    struct group_view_read *read = arg;
    struct group_view *view = &read->view;
    int err = reply->err == -BROOK_E_NO_NODE ? 0 : reply->err;
    size_t count = reply->err ? 0 : reply->children_count;
    view->ids_pzxid = reply->err ? 0 : reply->stat.pzxid;
    view->members = calloc(count + 1, sizeof *view->members);
    if (!view->members)
        err = -BROOK_E_NOMEM;
    for (size_t i = 0; i < count && !err; i++) {
        if (!name_is_legal_member(reply->children[i], strlen(reply->children[i])))
            continue;
        if (!(view->members[view->members_count].id = strdup(reply->children[i])))
            err = -BROOK_E_NOMEM;
        else
            view->members_count++;
    }
    if (err)
        read_end(read, err);
    else
        read_many(read, READS_GET, view->members_count, member_path, on_member, on_members_end);
}

/* ---- the beginning: sync, assignment ------------------------------------------------------------------- */

static void on_assignment(void *arg, const struct coordinator_reply *reply)
{
    struct group_view_read *read = arg;
    struct group_view *view = &read->view;
    if (reply->err && reply->err != -BROOK_E_NO_NODE) {
        read_end(read, reply->err);
        return;
    }
    view->assignment_version = reply->err ? -1 : reply->stat.version;
    view->has_assignment =
        !reply->err && znode_decode_assignment(reply->data, reply->data_bytes, &view->assignment, NULL) == 0;
    struct path path;
    path_group_ids(&path, read->group);
    coordinator_children(read->coordinator, path.text, read_call(read, on_ids));
}

static void on_sync(void *arg, const struct coordinator_reply *reply)
{
    struct group_view_read *read = arg;
    if (reply->err || read->cancelled) {
        read_end(read, reply->err);
        return;
    }
    struct path path;
    path_group_assignment(&path, read->group);
    coordinator_get(read->coordinator, path.text, read_call(read, on_assignment));
}

struct group_view_read *group_view_read(struct coordinator *coordinator, struct inbox *inbox,
                                        const char *group, unsigned flags, struct topic_patterns *patterns,
                                        group_view_callback *callback, void *arg)
{
    struct group_view_read *read = calloc(1, sizeof *read);
    if (!read)
        return NULL;
    *read = (struct group_view_read){.coordinator = coordinator,
                                     .inbox = inbox,
                                     .group = strdup(group),
                                     .flags = flags,
                                     .patterns = patterns,
                                     .callback = callback,
                                     .arg = arg};
    if (!read->group) {
        free(read);
        return NULL;
    }
    struct path path;
    path_group_ids(&path, group);
    coordinator_sync(coordinator, path.text, read_call(read, on_sync));
    return read;
}

void group_view_cancel(struct group_view_read *read)
{
    if (read)
        read->cancelled = true;
}
