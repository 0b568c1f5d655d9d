#include "client/group_driver_private.h"

#include "proto/base/err.h"

#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/* ---- ids and assignment -------------------------------------------------------------------------------- */

static void on_ids(void *arg, const struct coordinator_reply *reply)
{
    group_step(arg, (struct group_event){.kind = GROUP_EVENT_IDS,
                                         .err = reply->err,
                                         .zxid = reply->stat.pzxid,
                                         .names = reply->children,
                                         .names_count = reply->err ? 0 : reply->children_count});
}

static void on_assignment(void *arg, const struct coordinator_reply *reply)
{
    struct group *g = arg;
    struct znode_assignment assignment = {0};
    struct brook_error error = {0};
    int err = reply->err;
    if (!err) {
        err = znode_decode_assignment(reply->data, reply->data_bytes, &assignment, &error);
        if (err)
            group_log(g, DIAG_WARN, "the assignment makes no sense (%s): it is made anew", error.text);
    }
    group_step(g,
               (struct group_event){.kind = GROUP_EVENT_ASSIGNMENT, .assignment = err ? NULL : &assignment});
    znode_assignment_done(&assignment);
}

static struct observation *observe(struct group *g, enum observation_kind kind, const char *path,
                                   int delay_ms, coordinator_callback *callback, void *arg)
{
    struct observation *o =
        coordinator_observe(g->coordinator, kind, path, delay_ms, client_inbox(g->client), callback, arg);
    if (!o)
        group_log(g, DIAG_ERROR, "%s can not be watched: no room for another watch", path);
    return o;
}

void group_watch_group(struct group *g)
{
    struct path path;
    group_unwatch_group(g);
    g->ids = observe(g, OBSERVE_CHILDREN, path_group_ids(&path, g->name), g->settle_ms / 4, on_ids, g);
    g->assignment = observe(g, OBSERVE_DATA, path_group_assignment(&path, g->name), 0, on_assignment, g);
}

void group_check_group(struct group *g)
{
    if (g->ids)
        observation_poke(g->ids);
    if (g->assignment)
        observation_poke(g->assignment);
}

/* ---- topics -------------------------------------------------------------------------------------------- */

struct topic_watch {
    UT_hash_handle hh;
    struct group *group;
    struct observation *observation;
    bool has_id;
    struct topic_id id;
    char name[];
};

static void on_topics(void *arg, const struct coordinator_reply *reply)
{
    group_step(arg, (struct group_event){.kind = GROUP_EVENT_TOPICS,
                                         .names = reply->children,
                                         .names_count = reply->err ? 0 : reply->children_count});
}

void group_watch_topics(struct group *g)
{
    observation_free(g->topics);
    g->topics = observe(g, OBSERVE_CHILDREN, PATH_TOPICS, g->settle_ms / 4, on_topics, g);
}

/* A topic whose node can not be read does not exist yet: it is written last. */
static void on_topic(void *arg, const struct coordinator_reply *reply)
{
    struct topic_watch *w = arg;
    struct znode_topic topic = {0};
    bool exists = !reply->err && znode_decode_topic(reply->data, reply->data_bytes, &topic, NULL) == 0;
    w->has_id = exists;
    w->id = topic.topic_id;
    znode_topic_done(&topic);
    group_step(w->group, (struct group_event){.kind = GROUP_EVENT_TOPIC,
                                              .topic = w->name,
                                              .exists = exists,
                                              .zxid = reply->stat.mzxid,
                                              .topic_id = w->id});
}

static void topic_unwatch(struct group *g, struct topic_watch *w)
{
    HASH_DEL(g->topic_watches, w);
    observation_free(w->observation);
    free(w);
}

void group_watch_topic(struct group *g, const char *topic)
{
    group_unwatch_topic(g, topic);
    size_t bytes = strlen(topic);
    struct topic_watch *w = calloc(1, sizeof *w + bytes + 1);
    if (!w)
        return;
    memcpy(w->name, topic, bytes + 1);
    w->group = g;
    HASH_ADD_STR(g->topic_watches, name, w);
    if (!w->hh.tbl) {
        free(w);
        return;
    }
    struct path path;
    w->observation = observe(g, OBSERVE_DATA, path_topic(&path, topic), g->settle_ms / 4, on_topic, w);
}

void group_unwatch_topic(struct group *g, const char *topic)
{
    struct topic_watch *w = NULL;
    HASH_FIND_STR(g->topic_watches, topic, w);
    if (w)
        topic_unwatch(g, w);
}

const struct topic_id *group_topic_id(const struct group *g, const char *topic)
{
    struct topic_watch *w = NULL;
    HASH_FIND_STR(g->topic_watches, topic, w);
    return w && w->has_id ? &w->id : NULL;
}

void group_unwatch_group(struct group *g)
{
    observation_free(g->ids);
    observation_free(g->assignment);
    observation_free(g->topics);
    g->ids = g->assignment = g->topics = NULL;
    struct topic_watch *w, *next;
    HASH_ITER(hh, g->topic_watches, w, next)
        topic_unwatch(g, w);
}

/* ---- owner nodes --------------------------------------------------------------------------------------- */

struct owner_watch {
    UT_hash_handle hh;
    struct group *group;
    struct ownership_watch *watch;
    struct owner_key {
        const char *topic; /* the machine's, the same for all partitions of a topic */
        intptr_t partition;
    } key;
};

static struct owner_watch *owner_find(struct group *g, const char *topic, int32_t partition)
{
    struct owner_key key = {topic, partition};
    struct owner_watch *w = NULL;
    HASH_FIND(hh, g->owner_watches, &key, sizeof key, w);
    return w;
}

static void on_owner(void *arg, bool exists, bool ours)
{
    struct owner_watch *w = arg;
    group_step(w->group, (struct group_event){.kind = GROUP_EVENT_OWNER,
                                              .topic = w->key.topic,
                                              .partition = (int32_t)w->key.partition,
                                              .exists = exists,
                                              .ours = ours});
}

static void owner_unwatch(struct group *g, struct owner_watch *w)
{
    HASH_DEL(g->owner_watches, w);
    ownership_watch_free(w->watch);
    free(w);
}

/* Without a watch the machine still looks at a blocked partition from time to time. */
void group_watch_owner(struct group *g, const char *topic, int32_t partition)
{
    group_unwatch_owner(g, topic, partition);
    struct ownership *ownership = group_ownership(g);
    struct owner_watch *w = ownership ? calloc(1, sizeof *w) : NULL;
    if (!w)
        return;
    w->group = g;
    w->key = (struct owner_key){topic, partition};
    HASH_ADD(hh, g->owner_watches, key, sizeof w->key, w);
    if (!w->hh.tbl) {
        free(w);
        return;
    }
    w->watch = ownership_watch_new(ownership, topic, partition, on_owner, w);
    if (!w->watch) {
        group_log(g, DIAG_WARN, "the owner of %s/%d can not be watched", topic, partition);
        owner_unwatch(g, w);
    }
}

void group_unwatch_owner(struct group *g, const char *topic, int32_t partition)
{
    struct owner_watch *w = owner_find(g, topic, partition);
    if (w)
        owner_unwatch(g, w);
}

void group_unwatch_owners(struct group *g)
{
    struct owner_watch *w, *next;
    HASH_ITER(hh, g->owner_watches, w, next)
        owner_unwatch(g, w);
}
