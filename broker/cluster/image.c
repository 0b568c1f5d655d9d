#include "broker/cluster/image.h"

#include "proto/base/cleanup.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct image {
    struct topic_config defaults;
    struct image_topic *topics; /* table */
    struct image_topic **sorted;
    size_t sorted_count;
    size_t sorted_capacity;
    struct image_topic *changed;
    struct image_gone *gone;
    char **deleting; /* sorted */
    size_t deleting_count;
    bool knows_deleting;
    struct image_broker *brokers;
    struct controller_brokers alive;
    size_t brokers_count;
    bool brokers_changed;
    size_t offline_count; /* topics that any of them names */
    struct unreadable unreadable;
    uint64_t round;
};

int image_new(const struct topic_config *defaults, struct image **ret_image)
{
    struct image *image = calloc(1, sizeof *image);
    if (!image)
        return -BROOK_E_NOMEM;
    image->defaults = *defaults;
    *ret_image = image;
    return 0;
}

static void topic_free(struct image_topic *t)
{
    for (int32_t i = 0; t->partitions && i < t->node.partitions_count; i++)
        free(t->partitions[i].isr_epochs);
    free(t->partitions);
    free(t->ends);
    znode_topic_done(&t->node);
    view_block_unref(t->block);
    free(t->name);
    free(t);
}

static void free_brokers(struct image *image)
{
    for (size_t i = 0; i < image->brokers_count; i++)
        znode_broker_done(&image->brokers[i].node);
    free(image->brokers);
    free((void *)image->alive.brokers);
    image->brokers = NULL;
    image->brokers_count = 0;
    image->alive = (struct controller_brokers){0};
}

static void free_deleting(struct image *image)
{
    for (size_t i = 0; i < image->deleting_count; i++)
        free(image->deleting[i]);
    free(image->deleting);
    image->deleting = NULL;
    image->deleting_count = 0;
}

void image_free(struct image *image)
{
    if (!image)
        return;
    HASH_CLEAR(hh, image->topics);
    for (size_t i = 0; i < image->sorted_count; i++)
        topic_free(image->sorted[i]);
    free(image->sorted);
    for (struct image_gone *gone; (gone = image_take_gone(image)) != NULL;)
        free(gone);
    free_brokers(image);
    free_deleting(image);
    unreadable_done(&image->unreadable);
    free(image);
}

/* ---- topics ----------------------------------------------------------------------------------------- */

struct image_topic *image_find(const struct image *image, const char *name)
{
    struct image_topic *topic;
    HASH_FIND_STR(image->topics, name, topic);
    return topic;
}

size_t image_topics_count(const struct image *image)
{
    return image->sorted_count;
}

struct image_topic *image_topic_at(const struct image *image, size_t index)
{
    assert(index < image->sorted_count);
    return image->sorted[index];
}

/* Where the name is, or belongs. */
static size_t sorted_position(const struct image *image, const char *name)
{
    size_t low = 0, high = image->sorted_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(image->sorted[middle]->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int insert(struct image *image, struct image_topic *topic)
{
    if (image->sorted_count == image->sorted_capacity) {
        size_t capacity = image->sorted_capacity ? 2 * image->sorted_capacity : 16;
        struct image_topic **sorted = realloc(image->sorted, capacity * sizeof *sorted);
        if (!sorted)
            return -BROOK_E_NOMEM;
        image->sorted = sorted;
        image->sorted_capacity = capacity;
    }
    size_t at = sorted_position(image, topic->name);
    memmove(image->sorted + at + 1, image->sorted + at, (image->sorted_count - at) * sizeof *image->sorted);
    image->sorted[at] = topic;
    image->sorted_count++;
    HASH_ADD_KEYPTR(hh, image->topics, topic->name, strlen(topic->name), topic);
    return 0;
}

void image_touch(struct image_topic *topic)
{
    view_block_unref(topic->block);
    topic->block = NULL;
}

void image_mark(struct image_topic *topic)
{
    image_touch(topic);
    if (topic->is_changed)
        return;
    topic->is_changed = true;
    topic->next_changed = topic->image->changed;
    topic->image->changed = topic;
}

struct image_topic *image_take_changed(struct image *image)
{
    struct image_topic *topic = image->changed;
    if (topic) {
        image->changed = topic->next_changed;
        topic->next_changed = NULL;
        topic->is_changed = false;
    }
    return topic;
}

static void unlink_changed(struct image_topic *topic)
{
    struct image_topic **at = &topic->image->changed;
    while (*at && *at != topic)
        at = &(*at)->next_changed;
    if (*at)
        *at = topic->next_changed;
}

struct image_gone *image_take_gone(struct image *image)
{
    struct image_gone *gone = image->gone;
    if (gone)
        image->gone = gone->next;
    return gone;
}

static void add_gone(struct image *image, const struct image_topic *topic)
{
    size_t bytes = strlen(topic->name) + 1;
    struct image_gone *gone = malloc(sizeof *gone + bytes);
    if (!gone)
        return; /* what is hosted is compared with the image again after the next full read */
    gone->topic_id = topic->node.topic_id;
    memcpy(gone->name, topic->name, bytes);
    gone->next = image->gone;
    image->gone = gone;
}

void image_remove_topic(struct image *image, const char *name)
{
    struct image_topic *topic = image_find(image, name);
    if (!topic)
        return;
    add_gone(image, topic);
    unlink_changed(topic);
    unreadable_forget_topic(&image->unreadable, name);
    HASH_DEL(image->topics, topic);
    size_t at = sorted_position(image, topic->name);
    image->sorted_count--;
    memmove(image->sorted + at, image->sorted + at + 1, (image->sorted_count - at) * sizeof *image->sorted);
    topic_free(topic);
}

static struct image_topic *topic_new(struct image *image, const char *name)
{
    struct image_topic *topic = calloc(1, sizeof *topic);
    if (!topic)
        return NULL;
    topic->image = image;
    topic->name = strdup(name);
    topic->config = image->defaults;
    topic->config_zxid = -1;
    topic->is_being_deleted = image_is_deleting(image, name);
    if (!topic->name || insert(image, topic)) {
        topic_free(topic);
        return NULL;
    }
    return topic;
}

/* Keep what is known of the partitions when their number changes. */
static int resize(struct image_topic *topic, int32_t count)
{
    int32_t before = topic->node.partitions_count;
    for (int32_t i = count; i < before; i++)
        free(topic->partitions[i].isr_epochs);
    struct image_partition *partitions = realloc(topic->partitions, ((size_t)count + 1) * sizeof *partitions);
    if (!partitions)
        return -BROOK_E_NOMEM;
    topic->partitions = partitions;
    for (int32_t i = before; i < count; i++)
        partitions[i] = (struct image_partition){.version = -1, .leader = -1};
    return 0;
}

static bool same_list(const struct znode_replicas *a, const struct znode_replicas *b)
{
    return a->count == b->count &&
           (!a->count || !memcmp(a->brokers, b->brokers, (size_t)a->count * sizeof(int32_t)));
}

static bool same_moves(const struct znode_topic *a, const struct znode_topic *b)
{
    if (a->moves_count != b->moves_count)
        return false;
    for (size_t i = 0; i < a->moves_count; i++)
        if (a->moves[i].partition != b->moves[i].partition ||
            !same_list(&a->moves[i].adding, &b->moves[i].adding) ||
            !same_list(&a->moves[i].removing, &b->moves[i].removing) ||
            !same_list(&a->moves[i].target, &b->moves[i].target))
            return false;
    return true;
}

static bool same_node(const struct znode_topic *a, const struct znode_topic *b)
{
    if (a->partitions_count != b->partitions_count || !topic_id_equal(&a->topic_id, &b->topic_id))
        return false;
    for (int32_t i = 0; i < a->partitions_count; i++)
        if (!same_list(&a->replicas[i], &b->replicas[i]))
            return false;
    return same_moves(a, b);
}

int image_put_topic(struct image *image, const char *name, struct znode_topic *node, int32_t version,
                    struct image_topic **ret_topic)
{
    struct image_topic *topic = image_find(image, name);
    if (topic && !topic_id_equal(&topic->node.topic_id, &node->topic_id)) {
        image_remove_topic(image, name);
        topic = NULL;
    }
    bool is_new = !topic;
    if (is_new)
        topic = topic_new(image, name);
    if (!topic || resize(topic, node->partitions_count)) {
        znode_topic_done(node);
        return -BROOK_E_NOMEM;
    }
    if (is_new || !same_node(&topic->node, node))
        image_mark(topic);
    znode_topic_done(&topic->node);
    topic->node = *node;
    *node = (struct znode_topic){0};
    topic->node_version = version;
    topic->round = image->round;
    *ret_topic = topic;
    return 0;
}

size_t image_set_config(struct image_topic *topic, const struct znode_config *config,
                        struct brook_error *error)
{
    struct topic_config applied;
    memset(&applied, 0, sizeof applied);
    size_t refused = topic_config_apply_usable(&topic->image->defaults, config, &applied, error);
    if (memcmp(&applied, &topic->config, sizeof applied) != 0) {
        topic->config = applied;
        image_mark(topic);
    }
    return refused;
}

void image_judge_config(struct image_topic *topic, const struct znode_config *config, int32_t version, int64_t czxid)
{
    topic->is_made_fsync = false;
    for (size_t i = 0; version == 0 && czxid <= topic->made_zxid && i < config->count; i++)
        if (!strcmp(config->entries[i].key, "durability"))
            topic->is_made_fsync = topic->config.durability.mode == DURABILITY_FSYNC;
}

static bool same_state(const struct image_partition *p, const struct znode_state *state, int32_t version)
{
    return p->version == version && p->leader == state->leader && p->leader_epoch == state->leader_epoch &&
           p->controller_epoch == state->controller_epoch && p->isr_count == state->isr_count &&
           (!p->isr_count ||
            (!memcmp(p->isr, state->isr, (size_t)p->isr_count * sizeof *p->isr) &&
             !memcmp(p->isr_epochs, state->isr_epochs, (size_t)p->isr_count * sizeof *p->isr_epochs)));
}

int image_set_state(struct image_topic *topic, int32_t partition, const struct znode_state *state,
                    int32_t version)
{
    assert(partition >= 0 && partition < topic->node.partitions_count);
    struct image_partition *p = &topic->partitions[partition];
    const struct image_partition before = *p;
    if (!state) {
        if (p->version >= 0) {
            free(p->isr_epochs);
            *p = (struct image_partition){.version = -1, .leader = -1, .is_busy = before.is_busy};
            image_mark(topic);
        }
        return 0;
    }
    if (same_state(p, state, version))
        return 0;
    size_t count = (size_t)state->isr_count;
    int64_t *numbers = malloc(count * (sizeof(int64_t) + sizeof(int32_t)) + 1);
    if (!numbers)
        return -BROOK_E_NOMEM;
    free(p->isr_epochs);
    *p = (struct image_partition){.version = version,
                                  .controller_epoch = state->controller_epoch,
                                  .leader = state->leader,
                                  .leader_epoch = state->leader_epoch,
                                  .isr_count = state->isr_count,
                                  .isr_epochs = numbers,
                                  .isr = (int32_t *)(numbers + count),
                                  .is_busy = before.is_busy,
                                  .wish = before.wish,
                                  .doubt_ms = before.doubt_ms};
    memcpy(p->isr_epochs, state->isr_epochs, count * sizeof *p->isr_epochs);
    memcpy(p->isr, state->isr, count * sizeof *p->isr);
    image_mark(topic);
    return 0;
}

bool image_partition_state(const struct image_partition *p, struct znode_state *ret)
{
    if (p->version < 0)
        return false;
    memset(ret, 0, sizeof *ret);
    ret->controller_epoch = p->controller_epoch;
    ret->leader = p->leader;
    ret->leader_epoch = p->leader_epoch;
    ret->isr_count = p->isr_count;
    memcpy(ret->isr, p->isr, (size_t)p->isr_count * sizeof *p->isr);
    memcpy(ret->isr_epochs, p->isr_epochs, (size_t)p->isr_count * sizeof *p->isr_epochs);
    return true;
}

/* ---- ends of logs ----------------------------------------------------------------------------------- */

int image_set_ends(struct image_topic *topic, int32_t broker_id, const struct znode_ends *ends)
{
    size_t kept = 0, more = ends ? ends->count : 0;
    for (size_t i = 0; i < topic->ends_count; i++)
        if (topic->ends[i].end.broker_id != broker_id)
            topic->ends[kept++] = topic->ends[i];
    topic->ends_count = kept;
    struct image_end *list = realloc(topic->ends, (kept + more + 1) * sizeof *list);
    if (!list)
        return -BROOK_E_NOMEM;
    topic->ends = list;
    for (size_t i = 0; i < more; i++)
        list[kept + i] = (struct image_end){.partition = ends->list[i].partition,
                                            .end = {.broker_id = broker_id,
                                                    .broker_epoch = ends->broker_epoch,
                                                    .leader_epoch = ends->list[i].leader_epoch,
                                                    .last_epoch = ends->list[i].last_epoch,
                                                    .end = ends->list[i].end}};
    topic->ends_count = kept + more;
    image_mark(topic);
    return 0;
}

size_t image_ends_of(const struct image_topic *topic, int32_t partition, struct controller_end *ret, size_t max)
{
    size_t count = 0;
    for (size_t i = 0; i < topic->ends_count && count < max; i++)
        if (topic->ends[i].partition == partition)
            ret[count++] = topic->ends[i].end;
    return count;
}

/* ---- deletion intents ------------------------------------------------------------------------------- */

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool image_is_deleting(const struct image *image, const char *name)
{
    return image->deleting_count > 0 && bsearch(&name, image->deleting, image->deleting_count,
                                                sizeof *image->deleting, compare_text) != NULL;
}

int image_set_deleting(struct image *image, const char *const *names, size_t count)
{
    free_deleting(image);
    image->deleting = calloc(count + 1, sizeof *image->deleting);
    if (!image->deleting)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        image->deleting[i] = strdup(names[i]);
        if (!image->deleting[i])
            return -BROOK_E_NOMEM;
        image->deleting_count++;
    }
    qsort(image->deleting, count, sizeof *image->deleting, compare_text);
    image->knows_deleting = true;
    for (size_t i = 0; i < image->sorted_count; i++) {
        struct image_topic *topic = image->sorted[i];
        bool is_being_deleted = image_is_deleting(image, topic->name);
        if (is_being_deleted != topic->is_being_deleted)
            image_mark(topic);
        topic->is_being_deleted = is_being_deleted;
    }
    return 0;
}

bool image_knows_deleting(const struct image *image)
{
    return image->knows_deleting;
}

size_t image_deleting_count(const struct image *image)
{
    return image->deleting_count;
}

const char *image_deleting_at(const struct image *image, size_t index)
{
    assert(index < image->deleting_count);
    return image->deleting[index];
}

/* ---- what makes no sense ---------------------------------------------------------------------------- */

struct unreadable *image_unreadable(struct image *image)
{
    return &image->unreadable;
}

void image_keep_topic(struct image *image, const char *name)
{
    struct image_topic *topic = image_find(image, name);
    if (topic)
        topic->round = image->round;
}

/* ---- full reads ------------------------------------------------------------------------------------- */

void image_begin_round(struct image *image)
{
    image->round++;
}

void image_end_round(struct image *image)
{
    for (size_t i = image->sorted_count; i-- > 0;)
        if (image->sorted[i]->round != image->round)
            image_remove_topic(image, image->sorted[i]->name);
}

/* ---- brokers ---------------------------------------------------------------------------------------- */

static int compare_broker(const void *a, const void *b)
{
    int32_t left = ((const struct image_broker *)a)->broker_id;
    int32_t right = ((const struct image_broker *)b)->broker_id;
    return (left > right) - (left < right);
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

static bool same_offline(const struct znode_broker *a, const struct znode_broker *b)
{
    if (a->offline_count != b->offline_count)
        return false;
    for (size_t i = 0; i < a->offline_count; i++) {
        const struct znode_change_partitions *x = &a->offline[i], *y = &b->offline[i];
        if (strcmp(x->topic, y->topic) != 0 || x->partitions_count != y->partitions_count ||
            (x->partitions_count && memcmp(x->partitions, y->partitions, x->partitions_count * sizeof *x->partitions) != 0))
            return false;
    }
    return true;
}

static bool same_brokers(const struct image *image, const struct image_broker *brokers, size_t count)
{
    if (count != image->brokers_count)
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct znode_broker *a = &image->brokers[i].node, *b = &brokers[i].node;
        if (image->brokers[i].broker_id != brokers[i].broker_id || a->broker_epoch != b->broker_epoch ||
            a->draining != b->draining || a->port != b->port || !same_text(a->host, b->host) ||
            !same_text(a->rack, b->rack) || !same_offline(a, b))
            return false;
    }
    return true;
}

/* Views say which replicas are offline, and leaders and the controller act on it. */
static void mark_offline(struct image *image, const struct image_broker *brokers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < brokers[i].node.offline_count; k++) {
            struct image_topic *topic = image_find(image, brokers[i].node.offline[k].topic);
            if (topic)
                image_mark(topic);
        }
}

bool image_has_offline(const struct image *image)
{
    return image->offline_count > 0;
}

bool image_is_offline(const struct image *image, int32_t broker_id, const char *topic, int32_t partition)
{
    for (size_t i = 0; image->offline_count && i < image->brokers_count; i++)
        if (image->brokers[i].broker_id == broker_id)
            return znode_broker_is_offline(&image->brokers[i].node, topic, partition);
    return false;
}

void image_set_brokers(struct image *image, struct image_broker *brokers, size_t count)
{
    if (count)
        qsort(brokers, count, sizeof *brokers, compare_broker);
    struct controller_broker *alive = calloc(count + 1, sizeof *alive);
    if (!alive || same_brokers(image, brokers, count)) {
        for (size_t i = 0; i < count; i++)
            znode_broker_done(&brokers[i].node);
        free(brokers);
        free(alive);
        return;
    }
    mark_offline(image, image->brokers, image->brokers_count);
    mark_offline(image, brokers, count);
    free_brokers(image);
    image->offline_count = 0;
    for (size_t i = 0; i < count; i++)
        image->offline_count += brokers[i].node.offline_count;
    for (size_t i = 0; i < count; i++)
        alive[i] = (struct controller_broker){.broker_id = brokers[i].broker_id,
                                              .broker_epoch = brokers[i].node.broker_epoch,
                                              .clean_from = brokers[i].node.clean_from,
                                              .disk_from = brokers[i].node.disk_from,
                                              .draining = brokers[i].node.draining,
                                              .rack = brokers[i].node.rack};
    image->brokers = brokers;
    image->brokers_count = count;
    image->alive = (struct controller_brokers){alive, count};
    image->brokers_changed = true;
}

const struct image_broker *image_brokers(const struct image *image, size_t *ret_count)
{
    *ret_count = image->brokers_count;
    return image->brokers;
}

const struct controller_brokers *image_alive(const struct image *image)
{
    return &image->alive;
}

bool image_take_brokers_changed(struct image *image)
{
    bool changed = image->brokers_changed;
    image->brokers_changed = false;
    return changed;
}
