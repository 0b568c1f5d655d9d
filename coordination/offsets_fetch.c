#include "coordination/offsets_private.h"

#include "coordination/coordinator.h"
#include "coordination/paths.h"
#include "coordination/reads.h"
#include "coordination/znodes.h"
#include "proto/base/err.h"
#include "proto/base/names.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* sync, then the topics (unless they were named), then each topic's partitions, then each node. */
struct fetch {
    struct inbox_item item; /* on its way in, later on its way out */
    struct offsets *offsets;
    struct inbox *inbox;
    offsets_fetch_callback *callback;
    void *arg;
    char *group;
    int err;
    char **topics;
    size_t topics_count;
    struct offsets_fetched *fetched; /* topics are those above */
    size_t count;
    size_t capacity;
};

/* Not there any more: to be left out. */
#define VANISHED (-1)

static void fetch_free(struct fetch *fetch)
{
    for (size_t i = 0; i < fetch->topics_count; i++)
        free(fetch->topics[i]);
    free(fetch->topics);
    free(fetch->fetched);
    free(fetch->group);
    free(fetch);
}

static int compare_fetched(const void *a, const void *b)
{
    const struct offsets_fetched *x = a;
    const struct offsets_fetched *y = b;
    int order = strcmp(x->topic, y->topic);
    return order ? order : (x->partition > y->partition) - (x->partition < y->partition);
}

static void fetch_reply(struct inbox_item *item)
{
    struct fetch *fetch = CONTAINER_OF(item, struct fetch, item);
    struct offsets_fetch_reply reply = {.err = fetch->err, .fetched = fetch->fetched};
    reply.count = fetch->err ? 0 : fetch->count;
    fetch->callback(fetch->arg, &reply);
    fetch_free(fetch);
}

static void fetch_end(void *arg, int err)
{
    struct fetch *fetch = arg;
    struct offsets *offsets = fetch->offsets;
    size_t kept = 0;
    for (size_t i = 0; i < fetch->count; i++)
        if (fetch->fetched[i].partition != VANISHED)
            fetch->fetched[kept++] = fetch->fetched[i];
    fetch->count = kept;
    if (kept > 1)
        qsort(fetch->fetched, kept, sizeof *fetch->fetched, compare_fetched);
    fetch->err = err;
    fetch->item.run = fetch_reply;
    inbox_post(fetch->inbox, &fetch->item);
    offsets_unref(offsets);
}

static void read_many(struct fetch *fetch, enum reads_kind kind, size_t count,
                      void (*path)(void *, size_t, struct path *),
                      int (*answer)(void *, size_t, const struct coordinator_reply *),
                      void (*end)(void *, int))
{
    struct reads_plan plan = {.coordinator = fetch->offsets->coordinator,
                              .inbox = fetch->offsets->inbox,
                              .kind = kind,
                              .count = count,
                              .path = path,
                              .answer = answer,
                              .end = end,
                              .arg = fetch};
    int err = reads_start(&plan);
    if (err)
        fetch_end(fetch, err);
}

static struct coordinator_call fetch_call(struct fetch *fetch, coordinator_callback *callback)
{
    return (struct coordinator_call){.inbox = fetch->offsets->inbox, .callback = callback, .arg = fetch};
}

/* ---- nodes -------------------------------------------------------------------------------------------- */

static void node_path(void *arg, size_t item, struct path *path)
{
    struct fetch *fetch = arg;
    path_offset(path, fetch->group, fetch->fetched[item].topic, fetch->fetched[item].partition);
}

static int on_node(void *arg, size_t item, const struct coordinator_reply *reply)
{
    struct offsets_fetched *f = &((struct fetch *)arg)->fetched[item];
    f->err = reply->err;
    if (reply->err == -BROOK_E_NO_NODE)
        f->partition = VANISHED;
    if (reply->err)
        return 0;
    f->version = reply->stat.version;
    f->err = znode_decode_offset(reply->data, reply->data_bytes, &f->offset, NULL);
    return 0;
}

/* ---- partitions of each topic ------------------------------------------------------------------------- */

static int add_partition(struct fetch *fetch, const char *topic, int32_t partition)
{
    if (fetch->count == OFFSETS_FETCHED_MAX)
        return -BROOK_E_TOO_MANY;
    if (fetch->count == fetch->capacity) {
        size_t capacity = fetch->capacity ? 2 * fetch->capacity : 64;
        struct offsets_fetched *fetched = realloc(fetch->fetched, capacity * sizeof *fetched);
        if (!fetched)
            return -BROOK_E_NOMEM;
        fetch->fetched = fetched;
        fetch->capacity = capacity;
    }
    fetch->fetched[fetch->count++] =
        (struct offsets_fetched){.topic = topic, .partition = partition, .offset = -1, .version = -1};
    return 0;
}

static void topic_path(void *arg, size_t item, struct path *path)
{
    struct fetch *fetch = arg;
    path_group_offsets(path, fetch->group, fetch->topics[item]);
}

static int on_partitions(void *arg, size_t item, const struct coordinator_reply *reply)
{
    struct fetch *fetch = arg;
    int err = reply->err == -BROOK_E_NO_NODE ? 0 : reply->err;
    for (size_t i = 0; !reply->err && i < reply->children_count && !err; i++) {
        int32_t partition = path_partition_number(reply->children[i]);
        if (partition >= 0)
            err = add_partition(fetch, fetch->topics[item], partition);
    }
    return err;
}

static void on_partitions_end(void *arg, int err)
{
    struct fetch *fetch = arg;
    if (err)
        fetch_end(fetch, err);
    else
        read_many(fetch, READS_GET, fetch->count, node_path, on_node, fetch_end);
}

static void read_partitions(struct fetch *fetch)
{
    read_many(fetch, READS_CHILDREN, fetch->topics_count, topic_path, on_partitions, on_partitions_end);
}

/* ---- the beginning ------------------------------------------------------------------------------------ */

static int add_topic(struct fetch *fetch, const char *topic)
{
    char *copy = strdup(topic);
    if (!copy)
        return -BROOK_E_NOMEM;
    fetch->topics[fetch->topics_count++] = copy;
    return 0;
}

static int take_topics(struct fetch *fetch, const struct coordinator_reply *reply)
{
    size_t count = reply->err ? 0 : reply->children_count;
    int err = reply->err == -BROOK_E_NO_NODE ? 0 : reply->err;
    fetch->topics = calloc(count + 1, sizeof *fetch->topics);
    if (!fetch->topics)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < count && !err; i++)
        if (name_is_legal_topic(reply->children[i], strlen(reply->children[i])))
            err = add_topic(fetch, reply->children[i]);
    return err;
}

static void on_topics(void *arg, const struct coordinator_reply *reply)
{
    struct fetch *fetch = arg;
    int err = take_topics(fetch, reply);
    if (err)
        fetch_end(fetch, err);
    else
        read_partitions(fetch);
}

static void on_sync(void *arg, const struct coordinator_reply *reply)
{
    struct fetch *fetch = arg;
    struct path path;
    path_group_offsets(&path, fetch->group, NULL);
    if (reply->err)
        fetch_end(fetch, reply->err);
    else if (fetch->topics)
        read_partitions(fetch);
    else
        coordinator_children(fetch->offsets->coordinator, path.text, fetch_call(fetch, on_topics));
}

static void fetch_start(struct inbox_item *item)
{
    struct fetch *fetch = CONTAINER_OF(item, struct fetch, item);
    struct path path;
    path_group_offsets(&path, fetch->group, NULL);
    if (fetch->offsets->closed)
        fetch_end(fetch, -BROOK_E_CLOSED);
    else
        coordinator_sync(fetch->offsets->coordinator, path.text, fetch_call(fetch, on_sync));
}

static int check_names(const char *group, const char *const *topics, size_t topics_count)
{
    if (!name_is_legal_group(group, strlen(group)))
        return -BROOK_E_ILLEGAL_NAME;
    for (size_t i = 0; i < topics_count; i++)
        if (!name_is_legal_topic(topics[i], strlen(topics[i])))
            return -BROOK_E_ILLEGAL_NAME;
    return 0;
}

static struct fetch *fetch_new(const char *group, const char *const *topics, size_t topics_count)
{
    struct fetch *fetch = calloc(1, sizeof *fetch);
    if (!fetch)
        return NULL;
    fetch->group = strdup(group);
    if (topics_count > 0)
        fetch->topics = calloc(topics_count, sizeof *fetch->topics);
    bool complete = fetch->group && (topics_count == 0 || fetch->topics);
    for (size_t i = 0; complete && i < topics_count; i++)
        complete = add_topic(fetch, topics[i]) == 0;
    if (complete)
        return fetch;
    fetch_free(fetch);
    return NULL;
}

int offsets_fetch(struct offsets *offsets, const char *group, const char *const *topics, size_t topics_count,
                  struct inbox *inbox, offsets_fetch_callback *callback, void *arg)
{
    if (topics_count > OFFSETS_ENTRIES_MAX)
        return -BROOK_E_TOO_MANY;
    int err = check_names(group, topics, topics_count);
    if (err)
        return err;
    struct fetch *fetch = fetch_new(group, topics, topics_count);
    if (!fetch)
        return -BROOK_E_NOMEM;
    fetch->offsets = offsets;
    fetch->inbox = inbox;
    fetch->callback = callback;
    fetch->arg = arg;
    fetch->item.run = fetch_start;
    offsets_ref(offsets);
    inbox_post(offsets->inbox, &fetch->item);
    return 0;
}
