#include "coordination/offsets_private.h"

#include "coordination/coordinator.h"
#include "coordination/paths.h"
#include "coordination/znodes.h"
#include "proto/base/err.h"
#include "proto/base/names.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Reads of one fetch under way at a time. */
#define READS_MAX 128

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
    size_t topics_read;
    struct fetch_node *nodes;
    size_t nodes_count;
    size_t nodes_capacity;
    size_t nodes_asked;
    size_t open; /* reads under way */
    struct offsets_fetched *fetched;
};

/* A read needs to know its place and its fetch. */
struct fetch_node {
    struct fetch *fetch;
    const char *topic;
    int32_t partition;
    int64_t offset;
    int32_t version;
    int err;
    bool gone;
};

/* One of the topics being listed. */
struct listing {
    struct fetch *fetch;
    const char *topic;
};

static void fetch_free(struct fetch *fetch)
{
    for (size_t i = 0; i < fetch->topics_count; i++)
        free(fetch->topics[i]);
    free(fetch->topics);
    free(fetch->nodes);
    free(fetch->fetched);
    free(fetch->group);
    free(fetch);
}

static void fetch_reply(struct inbox_item *item)
{
    struct fetch *fetch = CONTAINER_OF(item, struct fetch, item);
    struct offsets_fetch_reply reply = {.err = fetch->err, .fetched = fetch->fetched};
    for (size_t i = 0; !reply.err && i < fetch->nodes_count; i++) {
        const struct fetch_node *node = &fetch->nodes[i];
        if (!node->gone)
            fetch->fetched[reply.count++] = (struct offsets_fetched){node->topic, node->partition,
                                                                     node->offset, node->version, node->err};
    }
    fetch->callback(fetch->arg, &reply);
    fetch_free(fetch);
}

static int compare_nodes(const void *a, const void *b)
{
    const struct fetch_node *x = a;
    const struct fetch_node *y = b;
    int order = strcmp(x->topic, y->topic);
    return order ? order : (x->partition > y->partition) - (x->partition < y->partition);
}

static void fetch_end(struct fetch *fetch)
{
    struct offsets *offsets = fetch->offsets;
    if (!fetch->err) {
        if (fetch->nodes_count > 1)
            qsort(fetch->nodes, fetch->nodes_count, sizeof *fetch->nodes, compare_nodes);
        fetch->fetched = malloc((fetch->nodes_count + 1) * sizeof *fetch->fetched);
        if (!fetch->fetched)
            fetch->err = -BROOK_E_NOMEM;
    }
    fetch->item.run = fetch_reply;
    inbox_post(fetch->inbox, &fetch->item);
    offsets_unref(offsets);
}

static struct coordinator_call fetch_call(struct fetch *fetch, coordinator_callback *callback, void *arg)
{
    return (struct coordinator_call){.inbox = fetch->offsets->inbox, .callback = callback, .arg = arg};
}

/* ---- nodes -------------------------------------------------------------------------------------------- */

static void fetch_go_on(struct fetch *fetch);

static void on_node(void *arg, const struct coordinator_reply *reply)
{
    struct fetch_node *node = arg;
    struct fetch *fetch = node->fetch;
    node->err = reply->err;
    node->version = reply->stat.version;
    if (reply->err == -BROOK_E_NO_NODE)
        node->gone = true;
    else if (!reply->err)
        node->err = znode_decode_offset(reply->data, reply->data_bytes, &node->offset, NULL);
    fetch->open--;
    fetch_go_on(fetch);
}

static void ask_nodes(struct fetch *fetch)
{
    while (fetch->nodes_asked < fetch->nodes_count && fetch->open < READS_MAX) {
        struct fetch_node *node = &fetch->nodes[fetch->nodes_asked++];
        struct path path;
        path_offset(&path, fetch->group, node->topic, node->partition);
        fetch->open++;
        coordinator_get(fetch->offsets->coordinator, path.text, fetch_call(fetch, on_node, node));
    }
}

/* ---- partitions of each topic ------------------------------------------------------------------------- */

static int add_node(struct fetch *fetch, const char *topic, int32_t partition)
{
    if (fetch->nodes_count == OFFSETS_FETCHED_MAX)
        return -BROOK_E_TOO_MANY;
    if (fetch->nodes_count == fetch->nodes_capacity) {
        size_t capacity = fetch->nodes_capacity ? 2 * fetch->nodes_capacity : 64;
        struct fetch_node *nodes = realloc(fetch->nodes, capacity * sizeof *nodes);
        if (!nodes)
            return -BROOK_E_NOMEM;
        fetch->nodes = nodes;
        fetch->nodes_capacity = capacity;
    }
    fetch->nodes[fetch->nodes_count++] = (struct fetch_node){
        .fetch = fetch, .topic = topic, .partition = partition, .offset = -1, .version = -1};
    return 0;
}

static void on_partitions(void *arg, const struct coordinator_reply *reply)
{
    struct listing *listing = arg;
    struct fetch *fetch = listing->fetch;
    if (reply->err && reply->err != -BROOK_E_NO_NODE)
        fetch->err = reply->err;
    for (size_t i = 0; !reply->err && i < reply->children_count && !fetch->err; i++) {
        int32_t partition = path_partition_number(reply->children[i]);
        if (partition >= 0)
            fetch->err = add_node(fetch, listing->topic, partition);
    }
    free(listing);
    fetch->open--;
    fetch_go_on(fetch);
}

static void ask_partitions(struct fetch *fetch)
{
    while (fetch->topics_read < fetch->topics_count && fetch->open < READS_MAX && !fetch->err) {
        struct listing *listing = malloc(sizeof *listing);
        if (!listing) {
            fetch->err = -BROOK_E_NOMEM;
            return;
        }
        *listing = (struct listing){fetch, fetch->topics[fetch->topics_read++]};
        struct path path;
        path_group_offsets(&path, fetch->group, listing->topic);
        fetch->open++;
        coordinator_children(fetch->offsets->coordinator, path.text,
                             fetch_call(fetch, on_partitions, listing));
    }
}

/* The array of nodes is complete, and stays where it is, before the first of them is asked for. */
static void fetch_go_on(struct fetch *fetch)
{
    if (!fetch->err)
        ask_partitions(fetch);
    if (!fetch->err && fetch->topics_read == fetch->topics_count &&
        (fetch->open == 0 || fetch->nodes_asked > 0))
        ask_nodes(fetch);
    if (fetch->open == 0)
        fetch_end(fetch);
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

static void on_topics(void *arg, const struct coordinator_reply *reply)
{
    struct fetch *fetch = arg;
    if (reply->err && reply->err != -BROOK_E_NO_NODE)
        fetch->err = reply->err;
    size_t count = reply->err ? 0 : reply->children_count;
    if (count > 0) {
        fetch->topics = calloc(count, sizeof *fetch->topics);
        if (!fetch->topics)
            fetch->err = -BROOK_E_NOMEM;
    }
    for (size_t i = 0; i < count && !fetch->err; i++)
        if (name_is_legal_topic(reply->children[i], strlen(reply->children[i])))
            fetch->err = add_topic(fetch, reply->children[i]);
    fetch_go_on(fetch);
}

static void on_sync(void *arg, const struct coordinator_reply *reply)
{
    struct fetch *fetch = arg;
    if (reply->err || fetch->topics) {
        fetch->err = reply->err;
        fetch_go_on(fetch);
        return;
    }
    struct path path;
    path_group_offsets(&path, fetch->group, NULL);
    coordinator_children(fetch->offsets->coordinator, path.text, fetch_call(fetch, on_topics, fetch));
}

static void fetch_start(struct inbox_item *item)
{
    struct fetch *fetch = CONTAINER_OF(item, struct fetch, item);
    if (fetch->offsets->closed) {
        fetch->err = -BROOK_E_CLOSED;
        fetch_end(fetch);
        return;
    }
    struct path path;
    path_group_offsets(&path, fetch->group, NULL);
    coordinator_sync(fetch->offsets->coordinator, path.text, fetch_call(fetch, on_sync, fetch));
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
