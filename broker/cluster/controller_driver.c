#include "broker/cluster/controller_driver.h"

#include "broker/cluster/topic_deletion.h"
#include "coordination/changes.h"
#include "coordination/paths.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_MS 20 /* after a refusal, doubled with each in a row */

/* One state that is being written. */
struct item {
    char *topic;
    struct topic_id topic_id;
    int32_t number;
    enum controller_verdict verdict;
    int32_t former_leader;
    struct znode_state state;
    size_t op; /* index of the state's op in the multi */
};

/* One multi: states of any topics, and the notification. */
struct chunk {
    struct controller_driver *driver;
    uint64_t term;
    struct coordinator_multi *multi;
    size_t count;
    struct item items[CONTROLLER_STATES_PER_WRITE];
};

struct controller_driver {
    struct controller_driver_settings s;
    bool is_active;
    uint64_t term; /* counts seats taken and lost: answers of an earlier one are recognised */
    int32_t epoch;
    int32_t epoch_version;
    struct chunk *chunk; /* being filled */
    unsigned in_flight;
    bool all_is_due;
    unsigned refusals; /* in a row */
    int64_t not_before_ms;
    struct topic_deletions *deletions;
};

static void outdated(void *arg)
{
    struct controller_driver *d = arg;
    if (d->is_active)
        d->s.outdated(d->s.arg);
}

int controller_driver_new(const struct controller_driver_settings *settings,
                          struct controller_driver **ret_driver)
{
    struct controller_driver *d = calloc(1, sizeof *d);
    if (!d)
        return -BROOK_E_NOMEM;
    d->s = *settings;
    struct topic_deletions_settings deletions = {
        .coordinator = settings->coordinator,
        .inbox = settings->inbox,
        .diag = settings->diag,
        .outdated = outdated,
        .arg = d,
    };
    if (topic_deletions_new(&deletions, &d->deletions)) {
        free(d);
        return -BROOK_E_NOMEM;
    }
    *ret_driver = d;
    return 0;
}

static void chunk_free(struct chunk *chunk)
{
    if (!chunk)
        return;
    coordinator_multi_free(chunk->multi);
    for (size_t i = 0; i < chunk->count; i++)
        free(chunk->items[i].topic);
    free(chunk);
}

void controller_driver_free(struct controller_driver *d)
{
    if (!d)
        return;
    chunk_free(d->chunk);
    topic_deletions_free(d->deletions);
    free(d);
}

void controller_driver_start(struct controller_driver *d, int32_t epoch, int32_t epoch_version)
{
    d->is_active = true;
    d->term++;
    d->epoch = epoch;
    d->epoch_version = epoch_version;
    d->all_is_due = true;
    topic_deletions_start(d->deletions, epoch_version);
}

static struct image_partition *partition_of(struct controller_driver *d, const struct item *item,
                                            struct image_topic **ret_topic)
{
    struct image_topic *topic = image_find(d->s.image, item->topic);
    if (!topic || !topic_id_equal(&topic->node.topic_id, &item->topic_id) ||
        item->number >= topic->node.partitions_count)
        return NULL;
    *ret_topic = topic;
    return &topic->partitions[item->number];
}

static void clear_busy(struct controller_driver *d, const struct chunk *chunk)
{
    struct image_topic *topic;
    for (size_t i = 0; i < chunk->count; i++) {
        struct image_partition *p = partition_of(d, &chunk->items[i], &topic);
        if (p)
            p->is_busy = false;
    }
}

void controller_driver_stop(struct controller_driver *d)
{
    d->is_active = false;
    d->term++;
    d->all_is_due = false;
    topic_deletions_stop(d->deletions);
    if (d->chunk)
        clear_busy(d, d->chunk);
    chunk_free(TAKE(d->chunk));
}

bool controller_driver_is_active(const struct controller_driver *d)
{
    return d->is_active;
}

/* ---- the answers ------------------------------------------------------------------------------------ */

static void say_written(const struct controller_driver *d, const struct item *item)
{
    char subject[288];
    snprintf(subject, sizeof subject, "partition=%s/%" PRId32 " epoch=%" PRId32, item->topic, item->number,
             item->state.leader_epoch);
    if (item->state.leader < 0)
        diag_log(d->s.diag, DIAG_WARN, subject, "offline: no replica that may lead is alive");
    else if (item->verdict == CONTROLLER_CREATE)
        diag_log(d->s.diag, DIAG_INFO, subject, "made: broker %" PRId32 " leads", item->state.leader);
    else
        diag_log(d->s.diag, DIAG_INFO, subject, "broker %" PRId32 " leads (before: %" PRId32 ")",
                 item->state.leader, item->former_leader);
}

static void written(struct controller_driver *d, const struct chunk *chunk,
                    const struct coordinator_reply *reply)
{
    for (size_t i = 0; i < chunk->count; i++) {
        const struct item *item = &chunk->items[i];
        struct image_topic *topic;
        say_written(d, item);
        if (!partition_of(d, item, &topic))
            continue;
        int32_t version = item->verdict == CONTROLLER_CREATE ? 0 : reply->op_stats[item->op].version;
        if (image_set_state(topic, item->number, &item->state, version))
            d->all_is_due = true;
    }
}

/* Somebody else changed something: read the topics again, and decide again when that is done. */
static void refused(struct controller_driver *d, const struct chunk *chunk,
                    const struct coordinator_reply *reply)
{
    const char *last = "";
    unsigned doublings = d->refusals < 7 ? d->refusals : 7;
    d->all_is_due = true;
    d->refusals++;
    d->not_before_ms = clock_boot_ms() + (RETRY_MS << doublings);
    for (size_t i = 0; i < chunk->count; i++) {
        const struct item *item = &chunk->items[i];
        struct image_topic *topic;
        bool is_culprit =
            reply->failed_op <= item->op && (i == 0 || reply->failed_op > chunk->items[i - 1].op);
        if (is_culprit && item->verdict == CONTROLLER_CREATE && partition_of(d, item, &topic)) {
            topic->has_odd_directories = true;
            topic->is_mended = false;
        }
        if (strcmp(last, item->topic) != 0)
            state_reader_read_topic(d->s.reader, item->topic);
        last = item->topic;
    }
}

static void chunk_done(void *arg, const struct coordinator_reply *reply)
{
    struct chunk *chunk = arg;
    struct controller_driver *d = chunk->driver;
    bool is_current = d->is_active && chunk->term == d->term;
    d->in_flight--;
    clear_busy(d, chunk);
    if (!reply->err) {
        d->refusals = 0;
        written(d, chunk, reply);
    } else if (reply->err == -BROOK_E_BAD_VERSION && reply->failed_op == 0) {
        if (is_current)
            outdated(d);
    } else if (is_current && (reply->err == -BROOK_E_BAD_VERSION || reply->err == -BROOK_E_NO_NODE ||
                              reply->err == -BROOK_E_NODE_EXISTS)) {
        refused(d, chunk, reply);
    } else if (is_current) {
        /* Not known whether it happened: after the reconnect everything is read again. */
        d->all_is_due = true;
        state_reader_read_all(d->s.reader);
    }
    chunk_free(chunk);
}

/* ---- writing ---------------------------------------------------------------------------------------- */

/* The items' partitions by topic. They were added topic by topic, so equal names stand together. */
static int announce(struct chunk *chunk)
{
    struct znode_change_partitions states[CONTROLLER_STATES_PER_WRITE];
    int32_t numbers[CONTROLLER_STATES_PER_WRITE];
    struct znode_change change = {.states = states};
    for (size_t i = 0; i < chunk->count; i++) {
        numbers[i] = chunk->items[i].number;
        if (!change.states_count || strcmp(states[change.states_count - 1].topic, chunk->items[i].topic) != 0)
            states[change.states_count++] =
                (struct znode_change_partitions){.topic = chunk->items[i].topic, .partitions = &numbers[i]};
        states[change.states_count - 1].partitions_count++;
    }
    return changes_announce(chunk->multi, &change);
}

static void send(struct controller_driver *d)
{
    struct chunk *chunk = TAKE(d->chunk);
    if (!chunk || !chunk->count || announce(chunk)) {
        if (chunk)
            clear_busy(d, chunk);
        chunk_free(chunk);
        return;
    }
    d->in_flight++;
    coordinator_multi_send(d->s.coordinator, &chunk->multi,
                           (struct coordinator_call){.inbox = d->s.inbox,
                                                     .callback = chunk_done,
                                                     .arg = chunk,
                                                     .urgent = true,
                                                     .generation = coordinator_generation(d->s.coordinator)});
}

/* NULL: no room, or no memory. */
static struct chunk *open_chunk(struct controller_driver *d)
{
    if (d->chunk || d->in_flight >= CONTROLLER_WRITES_IN_FLIGHT_MAX)
        return d->chunk;
    struct chunk *chunk = calloc(1, sizeof *chunk);
    if (!chunk)
        return NULL;
    chunk->driver = d;
    chunk->term = d->term;
    chunk->multi = coordinator_multi_new();
    if (!chunk->multi) {
        chunk_free(chunk);
        return NULL;
    }
    coordinator_multi_check(chunk->multi, PATH_CONTROLLER_EPOCH, d->epoch_version);
    return d->chunk = chunk;
}

/* The directories above a partition's first state, and for the topic's first those that all share. */
static void add_directories(struct coordinator_multi *multi, struct image_topic *topic, int32_t number)
{
    struct path path;
    if (!topic->has_directory) {
        coordinator_multi_create(multi, path_topic_brokers(&path, topic->name), NULL, 0, ZNODE_PERSISTENT);
        coordinator_multi_create(multi, path_partitions(&path, topic->name), NULL, 0, ZNODE_PERSISTENT);
    }
    topic->has_directory = true;
    coordinator_multi_create(multi, path_partition(&path, topic->name, number), NULL, 0, ZNODE_PERSISTENT);
}

static bool add_item(struct controller_driver *d, struct image_topic *topic, int32_t number,
                     enum controller_verdict verdict, const struct znode_state *state)
{
    struct image_partition *p = &topic->partitions[number];
    struct chunk *chunk = open_chunk(d);
    AUTO_FREE char *text = znode_encode_state(state);
    AUTO_FREE char *name = strdup(topic->name);
    struct path path;
    if (!chunk || !text || !name)
        return false;
    path_partition_state(&path, topic->name, number);
    if (verdict == CONTROLLER_CREATE) {
        if (!topic->has_odd_directories)
            add_directories(chunk->multi, topic, number);
        coordinator_multi_create(chunk->multi, path.text, text, strlen(text), ZNODE_PERSISTENT);
    } else {
        coordinator_multi_set(chunk->multi, path.text, text, strlen(text), p->version);
    }
    struct item *item = &chunk->items[chunk->count++];
    *item = (struct item){.topic = TAKE(name),
                          .topic_id = topic->node.topic_id,
                          .number = number,
                          .verdict = verdict,
                          .former_leader = p->leader,
                          .state = *state,
                          .op = coordinator_multi_count(chunk->multi) - 1};
    p->is_busy = true;
    if (chunk->count == CONTROLLER_STATES_PER_WRITE)
        send(d);
    return true;
}

/* ---- directories that somebody else made, wholly or in part ----------------------------------------- */

struct mending {
    struct controller_driver *driver;
    size_t waiting;
    char topic[];
};

static void directory_made(void *arg, const struct coordinator_reply *reply)
{
    struct mending *m = arg;
    if (--m->waiting)
        return;
    struct image_topic *topic = image_find(m->driver->s.image, m->topic);
    if (topic) {
        topic->is_mending = false;
        topic->is_mended = true;
        image_mark(topic);
    }
    free(m);
}

/* Make what is missing, one by one, before the states are written without their directories. */
static void mend(struct controller_driver *d, struct image_topic *topic)
{
    struct mending *m = calloc(1, sizeof *m + strlen(topic->name) + 1);
    struct path path;
    if (!m || topic->is_mending) {
        free(m);
        return;
    }
    m->driver = d;
    memcpy(m->topic, topic->name, strlen(topic->name) + 1);
    topic->is_mending = true;
    m->waiting = 1;
    for (int32_t i = 0; i < topic->node.partitions_count; i++) {
        if (topic->partitions[i].version >= 0)
            continue;
        m->waiting++;
        coordinator_create_path(
            d->s.coordinator, path_partition(&path, topic->name, i), NULL, 0,
            (struct coordinator_call){.inbox = d->s.inbox, .callback = directory_made, .arg = m});
    }
    directory_made(m, NULL);
}

/* ---- deciding --------------------------------------------------------------------------------------- */

/* Returns false when there is no room for another decision now. */
static bool consider_partition(struct controller_driver *d, struct image_topic *topic, int32_t number)
{
    struct image_partition *p = &topic->partitions[number];
    struct znode_state state, next = {0};
    if (p->is_busy)
        return true;
    bool has_state = image_partition_state(p, &state);
    enum controller_verdict verdict = controller_decide(
        &topic->node.replicas[number], has_state ? &state : NULL, image_alive(d->s.image), false, &next);
    if (verdict == CONTROLLER_KEEP)
        return true;
    if (verdict == CONTROLLER_CREATE && topic->has_odd_directories && !topic->is_mended) {
        mend(d, topic);
        return true;
    }
    next.controller_epoch = d->epoch;
    return add_item(d, topic, number, verdict, &next);
}

void controller_driver_consider(struct controller_driver *d, struct image_topic *topic)
{
    if (!d->is_active || d->all_is_due || topic->is_being_deleted)
        return;
    topic->has_directory = false;
    for (int32_t i = 0; i < topic->node.partitions_count && !topic->has_directory; i++)
        topic->has_directory = topic->partitions[i].version >= 0 || topic->partitions[i].is_busy;
    for (int32_t i = 0; i < topic->node.partitions_count; i++)
        if (!consider_partition(d, topic, i)) {
            d->all_is_due = true;
            return;
        }
}

void controller_driver_consider_all(struct controller_driver *d)
{
    d->all_is_due = d->is_active;
}

int64_t controller_driver_run(struct controller_driver *d, int64_t now_ms)
{
    if (!d->is_active || !state_reader_is_complete(d->s.reader) || !image_knows_deleting(d->s.image))
        return INT64_MAX;
    bool may_look = state_reader_is_idle(d->s.reader) && d->in_flight < CONTROLLER_WRITES_IN_FLIGHT_MAX;
    if (d->all_is_due && may_look && now_ms >= d->not_before_ms) {
        d->all_is_due = false;
        for (size_t i = 0; i < image_topics_count(d->s.image) && !d->all_is_due; i++)
            controller_driver_consider(d, image_topic_at(d->s.image, i));
    }
    send(d);
    for (size_t i = 0; i < image_deleting_count(d->s.image); i++)
        topic_deletions_want(d->deletions, image_deleting_at(d->s.image, i));
    if (d->all_is_due && now_ms < d->not_before_ms)
        return d->not_before_ms;
    return image_deleting_count(d->s.image) ? now_ms + TOPIC_DELETION_RETRY_MS : INT64_MAX;
}
