#include "broker/cluster/view.h"

#include "broker/cluster/view_builder.h"
#include "broker/partition/partition.h"
#include "broker/replication/replica.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct view {
    _Atomic unsigned refs;
    uint64_t version;
    char *cluster_id;
    int32_t controller;
    struct view_broker *brokers;
    size_t brokers_count;
    struct view_block **blocks; /* by name */
    size_t blocks_count;
    /* Open addressing, a power of two and at most half full: index + 1 into blocks, 0: free. */
    uint32_t *by_name;
    uint32_t *by_id;
    uint32_t mask;
    struct view_unreadable *unreadable;
    size_t unreadable_count;
};

/* FNV-1a: names come from clients, but a name that is not in the table costs a short probe only. */
static uint32_t hash_bytes(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 16777619u;
    return hash ^ (hash >> 15);
}

/* ---- blocks ----------------------------------------------------------------------------------------- */

static void block_free(struct view_block *block)
{
    for (int32_t i = 0; block->topic.partitions && i < block->topic.partitions_count; i++) {
        replica_unref(block->topic.partitions[i].replica);
        partition_unref(block->topic.partitions[i].local);
        free((char *)(uintptr_t)block->topic.partitions[i].why_leaderless);
        free((char *)(uintptr_t)block->topic.partitions[i].offline_here);
    }
    free(block->topic.partitions);
    free(block->topic.name);
    free(block->numbers);
    free(block);
}

struct view_block *view_block_ref(struct view_block *block)
{
    atomic_fetch_add_explicit(&block->refs, 1, memory_order_relaxed);
    return block;
}

void view_block_unref(struct view_block *block)
{
    if (block && atomic_fetch_sub_explicit(&block->refs, 1, memory_order_acq_rel) == 1)
        block_free(block);
}

static size_t count_numbers(const struct view_block_source *source)
{
    size_t count = 0;
    for (int32_t i = 0; i < source->partitions_count; i++) {
        struct view_partition p = {0};
        source->partition(source->arg, i, &p);
        count += (size_t)p.replicas_count + (size_t)p.isr_count + (size_t)p.adding_count +
                 (size_t)p.removing_count + (size_t)p.target_count + (size_t)p.offline_count;
    }
    return count;
}

/* Copies to *at and moves it on. */
static const int32_t *append_numbers(int32_t **at, const int32_t *numbers, int32_t count)
{
    int32_t *copy = *at;
    if (count > 0)
        memcpy(copy, numbers, (size_t)count * sizeof *numbers);
    *at += count;
    return copy;
}

static void fill_partitions(struct view_block *block, const struct view_block_source *source)
{
    int32_t *at = block->numbers;
    for (int32_t i = 0; i < source->partitions_count; i++) {
        struct view_partition *p = &block->topic.partitions[i];
        source->partition(source->arg, i, p);
        p->replicas = append_numbers(&at, p->replicas, p->replicas_count);
        p->isr = append_numbers(&at, p->isr, p->isr_count);
        p->adding = append_numbers(&at, p->adding, p->adding_count);
        p->removing = append_numbers(&at, p->removing, p->removing_count);
        p->target = append_numbers(&at, p->target, p->target_count);
        p->offline = append_numbers(&at, p->offline, p->offline_count);
        /* Without memory they are left out: words for people. */
        p->why_leaderless = p->why_leaderless ? strdup(p->why_leaderless) : NULL;
        p->offline_here = p->offline_here ? strdup(p->offline_here) : NULL;
        if (p->local)
            partition_ref(p->local);
        if (p->replica)
            replica_ref(p->replica);
    }
}

int32_t view_topic_replicas(const struct view_topic *topic)
{
    int32_t least = INT32_MAX;
    for (int32_t i = 0; i < topic->partitions_count; i++)
        if (topic->partitions[i].replicas_count < least)
            least = topic->partitions[i].replicas_count;
    return topic->partitions_count && least > 1 ? least : 1;
}

struct view_block *view_block_new(const struct view_block_source *source)
{
    struct view_block *block = calloc(1, sizeof *block);
    if (!block)
        return NULL;
    block->refs = 1;
    block->topic.topic_id = source->topic_id;
    block->topic.config = *source->config;
    block->topic.being_deleted = source->being_deleted;
    block->topic.name = strdup(source->name);
    size_t count = (size_t)source->partitions_count;
    block->topic.partitions = calloc(count ? count : 1, sizeof *block->topic.partitions);
    block->numbers = calloc(count_numbers(source) + 1, sizeof *block->numbers);
    if (!block->topic.name || !block->topic.partitions || !block->numbers) {
        block_free(block);
        return NULL;
    }
    block->topic.partitions_count = source->partitions_count;
    fill_partitions(block, source);
    topic_config_resolve(&block->topic.config, view_topic_replicas(&block->topic));
    block->name_hash = hash_bytes(source->name, strlen(source->name));
    block->id_hash = hash_bytes(source->topic_id.bytes, sizeof source->topic_id.bytes);
    return block;
}

/* ---- building --------------------------------------------------------------------------------------- */

static int copy_brokers(struct view *view, const struct view_source *source)
{
    view->brokers = calloc(source->brokers_count + 1, sizeof *view->brokers);
    if (!view->brokers)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < source->brokers_count; i++) {
        const struct view_broker *from = &source->brokers[i];
        struct view_broker *to = &view->brokers[view->brokers_count++];
        assert(i == 0 || from[-1].broker_id < from->broker_id);
        to->broker_id = from->broker_id;
        to->port = from->port;
        to->host = strdup(from->host);
        to->rack = from->rack ? strdup(from->rack) : NULL;
        if (!to->host || (from->rack && !to->rack))
            return -BROOK_E_NOMEM;
    }
    return 0;
}

static int copy_unreadable(struct view *view, const struct view_source *source)
{
    size_t count = source->unreadable_count < VIEW_UNREADABLE_MAX ? source->unreadable_count : VIEW_UNREADABLE_MAX;
    view->unreadable = calloc(count + 1, sizeof *view->unreadable);
    if (!view->unreadable)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        const struct view_unreadable *from = &source->unreadable[i];
        struct view_unreadable *to = &view->unreadable[view->unreadable_count++];
        *to = (struct view_unreadable){strdup(from->path), from->topic ? strdup(from->topic) : NULL, from->partition,
                                       strdup(from->reason)};
        if (!to->path || !to->reason || (from->topic && !to->topic))
            return -BROOK_E_NOMEM;
    }
    return 0;
}

static void insert(uint32_t *table, uint32_t mask, uint32_t hash, uint32_t index)
{
    uint32_t at = hash & mask;
    while (table[at])
        at = (at + 1) & mask;
    table[at] = index + 1;
}

static int index_blocks(struct view *view, const struct view_source *source)
{
    uint32_t size = 8;
    while (size < 2 * source->blocks_count)
        size *= 2;
    view->mask = size - 1;
    view->by_name = calloc(size, sizeof *view->by_name);
    view->by_id = calloc(size, sizeof *view->by_id);
    view->blocks = malloc((source->blocks_count + 1) * sizeof(struct view_block *));
    if (!view->by_name || !view->by_id || !view->blocks)
        return -BROOK_E_NOMEM;
    for (uint32_t i = 0; i < source->blocks_count; i++) {
        struct view_block *block = view_block_ref(source->blocks[i]);
        view->blocks[view->blocks_count++] = block;
        insert(view->by_name, view->mask, block->name_hash, i);
        insert(view->by_id, view->mask, block->id_hash, i);
    }
    return 0;
}

struct view *view_new(const struct view_source *source)
{
    struct view *view = calloc(1, sizeof *view);
    if (!view)
        return NULL;
    view->refs = 1;
    view->version = source->version;
    view->controller = source->controller;
    view->cluster_id = strdup(source->cluster_id ? source->cluster_id : "");
    if (!view->cluster_id || copy_brokers(view, source) || copy_unreadable(view, source) ||
        index_blocks(view, source)) {
        view_unref(view);
        return NULL;
    }
    return view;
}

struct view *view_ref(struct view *view)
{
    atomic_fetch_add_explicit(&view->refs, 1, memory_order_relaxed);
    return view;
}

void view_unref(struct view *view)
{
    if (!view || atomic_fetch_sub_explicit(&view->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < view->blocks_count; i++)
        view_block_unref(view->blocks[i]);
    for (size_t i = 0; i < view->brokers_count; i++) {
        free(view->brokers[i].host);
        free(view->brokers[i].rack);
    }
    for (size_t i = 0; i < view->unreadable_count; i++) {
        free(view->unreadable[i].path);
        free(view->unreadable[i].topic);
        free(view->unreadable[i].reason);
    }
    free(view->unreadable);
    free(view->brokers);
    free(view->blocks);
    free(view->by_name);
    free(view->by_id);
    free(view->cluster_id);
    free(view);
}

/* ---- reading ---------------------------------------------------------------------------------------- */

uint64_t view_version(const struct view *view)
{
    return view->version;
}

const char *view_cluster_id(const struct view *view)
{
    return view->cluster_id;
}

int32_t view_controller(const struct view *view)
{
    return view->controller;
}

const struct view_broker *view_brokers(const struct view *view, size_t *ret_count)
{
    *ret_count = view->brokers_count;
    return view->brokers;
}

const struct view_unreadable *view_unreadable(const struct view *view, size_t *ret_count)
{
    *ret_count = view->unreadable_count;
    return view->unreadable;
}

static int compare_broker(const void *key, const void *entry)
{
    int32_t a = *(const int32_t *)key;
    int32_t b = ((const struct view_broker *)entry)->broker_id;
    return (a > b) - (a < b);
}

const struct view_broker *view_broker(const struct view *view, int32_t broker_id)
{
    return bsearch(&broker_id, view->brokers, view->brokers_count, sizeof *view->brokers, compare_broker);
}

size_t view_topics_count(const struct view *view)
{
    return view->blocks_count;
}

const struct view_topic *view_topic_at(const struct view *view, size_t index)
{
    assert(index < view->blocks_count);
    return &view->blocks[index]->topic;
}

const struct view_topic *view_topic(const struct view *view, const void *name, size_t name_bytes)
{
    uint32_t hash = hash_bytes(name, name_bytes);
    for (uint32_t at = hash & view->mask; view->by_name[at]; at = (at + 1) & view->mask) {
        const struct view_block *block = view->blocks[view->by_name[at] - 1];
        if (block->name_hash == hash && strlen(block->topic.name) == name_bytes &&
            !memcmp(block->topic.name, name, name_bytes))
            return &block->topic;
    }
    return NULL;
}

const struct view_topic *view_topic_by_id(const struct view *view, const void *topic_id)
{
    uint32_t hash = hash_bytes(topic_id, sizeof(struct topic_id));
    for (uint32_t at = hash & view->mask; view->by_id[at]; at = (at + 1) & view->mask) {
        const struct view_block *block = view->blocks[view->by_id[at] - 1];
        if (block->id_hash == hash && !memcmp(block->topic.topic_id.bytes, topic_id, sizeof(struct topic_id)))
            return &block->topic;
    }
    return NULL;
}
