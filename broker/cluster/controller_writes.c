/* The controller's writes: states in chunks, with the assignments that end with them, fenced and announced. */
#include "broker/cluster/controller_driver_internal.h"
#include "coordination/changes.h"
#include "coordination/paths.h"
#include "coordination/topic_mark.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_MS 20 /* after a refusal, doubled with each in a row */
#define DOUBLINGS_MAX 7

void controller_chunk_free(struct controller_chunk *chunk)
{
    if (!chunk)
        return;
    coordinator_multi_free(chunk->multi);
    for (size_t i = 0; i < chunk->count; i++)
        free(chunk->items[i].topic);
    free(chunk);
}

static struct image_partition *partition_of(struct controller_driver *d, const struct controller_item *item,
                                            struct image_topic **ret_topic)
{
    struct image_topic *topic = image_find(d->s.image, item->topic);
    if (!topic || !topic_id_equal(&topic->node.topic_id, &item->topic_id) ||
        item->number >= topic->node.partitions_count)
        return NULL;
    *ret_topic = topic;
    return &topic->partitions[item->number];
}

static void clear_busy(struct controller_driver *d, const struct controller_chunk *chunk)
{
    struct image_topic *topic;
    for (size_t i = 0; i < chunk->count; i++) {
        struct image_partition *p = partition_of(d, &chunk->items[i], &topic);
        if (!p)
            continue;
        p->is_busy = false;
        if (chunk->items[i].is_finish)
            topic->is_assigning = false;
    }
}

void controller_drop_chunk(struct controller_driver *d)
{
    if (d->chunk)
        clear_busy(d, d->chunk);
    controller_chunk_free(TAKE(d->chunk));
}

/* ---- the answers ------------------------------------------------------------------------------------ */

/* An election that may have cost records is said loudly. */
static void say_safety(const struct controller_driver *d, const struct controller_item *item, const char *subject)
{
    if (item->safety == CONTROLLER_COMPARED)
        diag_log(d->s.diag, DIAG_WARN, subject,
                 "broker %" PRId32 " leads, with the longest log: all replicas in sync were stopped uncleanly, and "
                 "what none of them had on the disk is lost",
                 item->state.leader);
    else
        diag_log(d->s.diag, DIAG_ERROR, subject,
                 "unclean election: broker %" PRId32 " leads, which was not in sync: acknowledged records may be lost",
                 item->state.leader);
}

static void say_written(const struct controller_driver *d, const struct controller_item *item)
{
    char subject[288];
    snprintf(subject, sizeof subject, "partition=%s/%" PRId32 " epoch=%" PRId32, item->topic, item->number,
             item->state.leader_epoch);
    if (item->state.leader < 0)
        diag_log(d->s.diag, DIAG_WARN, subject, "offline: no replica that may lead is alive");
    else if (item->safety != CONTROLLER_SAFE)
        say_safety(d, item, subject);
    else if (item->verdict == CONTROLLER_CREATE)
        diag_log(d->s.diag, DIAG_INFO, subject, "made: broker %" PRId32 " leads", item->state.leader);
    else if (item->is_finish)
        diag_log(d->s.diag, DIAG_INFO, subject, "moved: broker %" PRId32 " leads (before: %" PRId32 ")",
                 item->state.leader, item->former_leader);
    else if (item->state.leader != item->former_leader)
        diag_log(d->s.diag, DIAG_INFO, subject, "broker %" PRId32 " leads (before: %" PRId32 ")",
                 item->state.leader, item->former_leader);
    else
        diag_log(d->s.diag, DIAG_INFO, subject, "broker %" PRId32 " leads on, %" PRId32 " in sync",
                 item->state.leader, item->state.isr_count);
}

static void written(struct controller_driver *d, const struct controller_chunk *chunk,
                    const struct coordinator_reply *reply)
{
    for (size_t i = 0; i < chunk->count; i++) {
        const struct controller_item *item = &chunk->items[i];
        struct image_topic *topic;
        say_written(d, item);
        if (!partition_of(d, item, &topic))
            continue;
        int32_t version = item->verdict == CONTROLLER_CREATE ? 0 : reply->op_stats[item->op].version;
        if (item->is_finish)
            topic->assigned_version = reply->op_stats[chunk->items[chunk->count - 1].op + 1].version;
        if (image_set_state(topic, item->number, &item->state, version))
            d->all_is_due = true;
    }
}

static int64_t retry_after_ms(unsigned failures)
{
    return RETRY_MS << (failures < DOUBLINGS_MAX ? failures : DOUBLINGS_MAX);
}

void controller_back_off(struct controller_driver *d)
{
    d->all_is_due = true;
    d->not_before_ms = clock_boot_ms() + retry_after_ms(d->refusals++);
}

/* Whether the op is the item's: its state, or a directory above it. Op 0 is the check of the epoch. */
static bool is_culprit(const struct controller_chunk *chunk, size_t i, size_t op)
{
    return op && op <= chunk->items[i].op && (i == 0 || op > chunk->items[i - 1].op);
}

/* They are written alone, after a while: others are not held up until it is seen that the topic is another, or none. */
static void set_topic_apart(struct controller_driver *d, const struct controller_chunk *chunk, const char *name)
{
    for (size_t i = 0; i < chunk->count; i++) {
        struct image_topic *topic;
        struct image_partition *p =
            strcmp(chunk->items[i].topic, name) ? NULL : partition_of(d, &chunk->items[i], &topic);
        if (p)
            p->not_before_ms = clock_boot_ms() + retry_after_ms(p->failures++);
    }
}

/* Directories are missing, or there already. Or the state is gone, or the topic's mark: returns true, and the topic
 * waits by itself. */
static bool take_culprit(struct controller_driver *d, const struct controller_chunk *chunk, size_t i, int err)
{
    const struct controller_item *item = &chunk->items[i];
    struct image_topic *topic;
    if (item->verdict == CONTROLLER_CREATE && partition_of(d, item, &topic)) {
        topic->has_odd_directories = true;
        topic->is_mended = false;
    }
    bool is_gone = item->verdict != CONTROLLER_CREATE && err == -BROOK_E_NO_NODE;
    if (is_gone)
        set_topic_apart(d, chunk, item->topic);
    return is_gone;
}

/* Somebody else changed something: read the topics again, and decide again when that is done. */
static void refused(struct controller_driver *d, const struct controller_chunk *chunk,
                    const struct coordinator_reply *reply)
{
    const char *last = "";
    bool is_apart = false;
    for (size_t i = 0; i < chunk->count; i++) {
        const struct controller_item *item = &chunk->items[i];
        if (is_culprit(chunk, i, reply->failed_op))
            is_apart = take_culprit(d, chunk, i, reply->err);
        if (strcmp(last, item->topic) != 0)
            state_reader_read_topic(d->s.reader, item->topic);
        last = item->topic;
    }
    d->all_is_due = true;
    if (!is_apart)
        controller_back_off(d);
}

/* The others go on at once; this one waits, and is written alone then. */
static void set_apart(struct controller_driver *d, const struct controller_item *item, const char *path, int err)
{
    char subject[288];
    struct image_topic *topic;
    struct image_partition *p = partition_of(d, item, &topic);
    if (!p)
        return;
    p->not_before_ms = clock_boot_ms() + retry_after_ms(p->failures);
    if (p->failures++)
        return;
    snprintf(subject, sizeof subject, "partition=%s/%" PRId32, item->topic, item->number);
    diag_log(d->s.diag, DIAG_WARN, subject, "%s can not be written: %s; tried again from time to time", path,
             brook_error_text(err));
}

static bool is_unknown(int err)
{
    return err == -BROOK_E_OUTCOME_UNKNOWN || err == -BROOK_E_SESSION_EXPIRED ||
           err == -BROOK_E_COORDINATION_LOST || err == -BROOK_E_CLOSED;
}

/* Nothing was applied, and what is known is not old: ZooKeeper does not let us (an ACL, say). Without a partition at
 * fault, that holds for everything. */
static void failed(struct controller_driver *d, const struct controller_chunk *chunk,
                   const struct coordinator_reply *reply)
{
    bool is_found = false;
    struct path path;
    for (size_t i = 0; i < chunk->count; i++) {
        const struct controller_item *item = &chunk->items[i];
        bool is_node = item->is_finish && reply->failed_op == chunk->items[chunk->count - 1].op + 1;
        if (!is_node && !is_culprit(chunk, i, reply->failed_op))
            continue;
        set_apart(d, item,
                  is_node ? path_topic(&path, item->topic) : path_partition_state(&path, item->topic, item->number),
                  reply->err);
        is_found = true;
    }
    d->all_is_due = true;
    if (is_found)
        return;
    if (!d->refusals)
        diag_log(d->s.diag, DIAG_WARN, "controller",
                 "states can not be written: %s (%s); tried again from time to time", brook_error_text(reply->err), reply->failed_op ? "the announcement" : "the controller's epoch");
    controller_back_off(d);
}

static void chunk_done(void *arg, const struct coordinator_reply *reply)
{
    struct controller_chunk *chunk = arg;
    struct controller_driver *d = chunk->driver;
    bool is_current = d->is_active && chunk->term == d->term;
    d->in_flight--;
    clear_busy(d, chunk);
    if (!reply->err) {
        d->refusals = 0;
        written(d, chunk, reply);
    } else if (reply->err == -BROOK_E_BAD_VERSION && reply->failed_op == 0) {
        if (is_current)
            d->s.outdated(d->s.arg);
    } else if (is_current && (reply->err == -BROOK_E_BAD_VERSION || reply->err == -BROOK_E_NO_NODE ||
                              reply->err == -BROOK_E_NODE_EXISTS)) {
        refused(d, chunk, reply);
    } else if (is_current && !is_unknown(reply->err)) {
        failed(d, chunk, reply);
    } else if (is_current) {
        /* Not known whether it happened: after the reconnect everything is read again. */
        controller_back_off(d);
        state_reader_read_all(d->s.reader);
    }
    controller_chunk_free(chunk);
}

/* ---- writing ---------------------------------------------------------------------------------------- */

/* The items' partitions by topic. They were added topic by topic, so equal names mostly stand together. */
static int announce(struct controller_chunk *chunk, char *assigned)
{
    struct znode_change_partitions states[CONTROLLER_STATES_PER_WRITE];
    int32_t numbers[CONTROLLER_STATES_PER_WRITE];
    AUTO_FREE struct znode_quote *quotes = calloc(chunk->count, sizeof *quotes);
    struct znode_change change = {.states = states, .assigned = &assigned, .assigned_count = assigned != NULL};
    if (!quotes)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < chunk->count; i++) {
        struct controller_item *item = &chunk->items[i];
        numbers[i] = item->number;
        quotes[i] = (struct znode_quote){item->version, item->state};
        if (!change.states_count || strcmp(states[change.states_count - 1].topic, item->topic) != 0)
            states[change.states_count++] = (struct znode_change_partitions){
                .topic = item->topic, .partitions = &numbers[i], .topic_id = item->topic_id, .quotes = &quotes[i]};
        states[change.states_count - 1].partitions_count++;
    }
    return changes_announce(chunk->multi, &change);
}

/* The topic whose moves end in this chunk, if any; there is at most one. */
static struct image_topic *finished_topic(struct controller_driver *d, const struct controller_chunk *chunk)
{
    struct image_topic *topic;
    for (size_t i = 0; i < chunk->count; i++)
        if (chunk->items[i].is_finish && partition_of(d, &chunk->items[i], &topic))
            return topic;
    return NULL;
}

/* Behind the states: the node that says where the finished partitions are now. */
static int add_assignment(struct controller_driver *d, struct controller_chunk *chunk, struct image_topic *topic)
{
    AUTO_FREE struct reassignment *moves = calloc(chunk->count, sizeof *moves);
    int32_t numbers[CONTROLLER_STATES_PER_WRITE];
    size_t count = 0;
    struct path path;
    if (!moves)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < chunk->count; i++) {
        if (!chunk->items[i].is_finish)
            continue;
        numbers[count] = chunk->items[i].number;
        controller_move_of(&topic->node, numbers[count], &moves[count]);
        reassignment_finish(&moves[count++]);
    }
    AUTO_FREE char *text = controller_encode_moved(&topic->node, numbers, moves, count);
    if (!text)
        return -BROOK_E_NOMEM;
    coordinator_multi_set(chunk->multi, path_topic(&path, topic->name), text, strlen(text), topic->node_version);
    return 0;
}

static int complete(struct controller_driver *d, struct controller_chunk *chunk)
{
    struct image_topic *topic = finished_topic(d, chunk);
    if (topic && add_assignment(d, chunk, topic))
        return -BROOK_E_NOMEM;
    return announce(chunk, topic ? topic->name : NULL);
}

void controller_send(struct controller_driver *d)
{
    struct controller_chunk *chunk = TAKE(d->chunk);
    if (!chunk || !chunk->count || complete(d, chunk)) {
        if (chunk) {
            clear_busy(d, chunk);
            d->all_is_due = d->all_is_due || chunk->count;
        }
        controller_chunk_free(chunk);
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
static struct controller_chunk *open_chunk(struct controller_driver *d)
{
    if (d->chunk || d->in_flight >= CONTROLLER_WRITES_IN_FLIGHT_MAX)
        return d->chunk;
    struct controller_chunk *chunk = calloc(1, sizeof *chunk);
    if (!chunk)
        return NULL;
    chunk->driver = d;
    chunk->term = d->term;
    chunk->multi = coordinator_multi_new();
    if (!chunk->multi) {
        controller_chunk_free(chunk);
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

/* Moves that end are written with their topic's node, and only one such node fits a multi for certain. A topic
 * whose node is being written waits. */
static bool may_finish_here(struct controller_driver *d, const struct image_topic *topic)
{
    struct image_topic *in_chunk = d->chunk ? finished_topic(d, d->chunk) : NULL;
    if (in_chunk == topic)
        return true;
    if (in_chunk)
        controller_send(d);
    return !topic->is_assigning;
}

/* The topic of that name is still the one that was decided about. Its states stand together: one check does for all. */
static void check_topic(struct controller_chunk *chunk, const struct image_topic *topic)
{
    const char *last = chunk->count ? chunk->items[chunk->count - 1].topic : "";
    if (topic->node.is_marked && strcmp(last, topic->name) != 0)
        topic_mark_check(chunk->multi, topic->name, &topic->node.topic_id);
}

/* The end of a move is the end of other replicas' logs: those who stay must be in the life that was counted. */
static void check_lives(struct controller_driver *d, struct controller_chunk *chunk, const struct znode_state *state)
{
    struct path path;
    for (int32_t i = 0; i < state->isr_count; i++)
        if (controller_find_broker(image_alive(d->s.image), state->isr[i]))
            coordinator_multi_check(chunk->multi, path_broker_epoch(&path, state->isr[i]),
                                    (int32_t)state->isr_epochs[i]);
}

bool controller_add_state(struct controller_driver *d, struct image_topic *topic, int32_t number,
                          const struct controller_decision *decision, bool is_finish)
{
    struct image_partition *p = &topic->partitions[number];
    if (p->failures)
        controller_send(d); /* not with those */
    if (is_finish && !may_finish_here(d, topic))
        return true; /* its turn comes when the node was read again */
    struct controller_chunk *chunk = open_chunk(d);
    AUTO_FREE char *text = znode_encode_state(&decision->state);
    AUTO_FREE char *name = strdup(topic->name);
    struct path path;
    if (!chunk || !text || !name)
        return false;
    path_partition_state(&path, topic->name, number);
    check_topic(chunk, topic);
    if (is_finish)
        check_lives(d, chunk, &decision->state);
    if (decision->verdict == CONTROLLER_CREATE) {
        if (!topic->has_odd_directories)
            add_directories(chunk->multi, topic, number);
        coordinator_multi_create(chunk->multi, path.text, text, strlen(text), ZNODE_PERSISTENT);
    } else {
        coordinator_multi_set(chunk->multi, path.text, text, strlen(text), p->version);
    }
    struct controller_item *item = &chunk->items[chunk->count++];
    *item = (struct controller_item){.topic = TAKE(name),
                                     .topic_id = topic->node.topic_id,
                                     .number = number,
                                     .verdict = decision->verdict,
                                     .safety = decision->safety,
                                     .is_finish = is_finish,
                                     .former_leader = p->leader,
                                     .state = decision->state,
                                     .version = decision->verdict == CONTROLLER_CREATE ? 0 : p->version + 1,
                                     .op = coordinator_multi_count(chunk->multi) - 1};
    p->is_busy = true;
    topic->is_assigning = topic->is_assigning || is_finish;
    if (chunk->count == CONTROLLER_STATES_PER_WRITE || p->failures)
        controller_send(d);
    return true;
}

/* ---- moves in the topic's node ---------------------------------------------------------------------- */

static void fill_list(struct reassignment_list *to, const struct znode_replicas *from)
{
    to->count = from->count < ZNODE_REPLICAS_MAX ? from->count : ZNODE_REPLICAS_MAX;
    if (to->count)
        memcpy(to->brokers, from->brokers, (size_t)to->count * sizeof *to->brokers);
}

void controller_move_of(const struct znode_topic *node, int32_t number, struct reassignment *ret)
{
    const struct znode_move *move = znode_topic_move(node, number);
    memset(ret, 0, sizeof *ret);
    fill_list(&ret->replicas, &node->replicas[number]);
    if (move) {
        fill_list(&ret->adding, &move->adding);
        fill_list(&ret->removing, &move->removing);
        fill_list(&ret->target, &move->target);
    } else {
        ret->target = ret->replicas;
    }
}

static struct znode_replicas borrow_list(const struct reassignment_list *list)
{
    return (struct znode_replicas){(int32_t *)(uintptr_t)list->brokers, list->count};
}

char *controller_encode_moved(const struct znode_topic *node, const int32_t *numbers,
                              const struct reassignment *moves, size_t count)
{
    AUTO_FREE struct znode_replicas *replicas = malloc((size_t)node->partitions_count * sizeof *replicas);
    AUTO_FREE struct znode_move *list = calloc(node->moves_count + count + 1, sizeof *list);
    struct znode_topic next = *node;
    if (!replicas || !list)
        return NULL;
    memcpy(replicas, node->replicas, (size_t)node->partitions_count * sizeof *replicas);
    next.replicas = replicas;
    next.moves = list;
    next.moves_count = 0;
    for (size_t i = 0, k = 0; i < count || k < node->moves_count;) {
        bool is_old = i == count || (k < node->moves_count && node->moves[k].partition < numbers[i]);
        if (is_old) {
            list[next.moves_count++] = node->moves[k++];
            continue;
        }
        if (k < node->moves_count && node->moves[k].partition == numbers[i])
            k++;
        replicas[numbers[i]] = borrow_list(&moves[i].replicas);
        if (reassignment_is_running(&moves[i]))
            list[next.moves_count++] =
                (struct znode_move){numbers[i], borrow_list(&moves[i].adding), borrow_list(&moves[i].removing),
                                    borrow_list(&moves[i].target)};
        i++;
    }
    return znode_encode_topic(&next);
}

/* ---- directories that somebody else made, wholly or in part ----------------------------------------- */

struct mending {
    struct controller_driver *driver;
    uint64_t term;
    size_t waiting;
    char topic[];
};

static void mended(struct mending *m)
{
    struct image_topic *topic = image_find(m->driver->s.image, m->topic);
    if (topic) {
        topic->is_mending = false;
        topic->is_mended = true;
        image_mark(topic);
    }
    free(m);
}

static void directory_made(void *arg, const struct coordinator_reply *reply)
{
    struct mending *m = arg;
    struct controller_driver *d = m->driver;
    if (reply->err == -BROOK_E_BAD_VERSION && reply->failed_op == 0 && d->is_active && m->term == d->term)
        d->s.outdated(d->s.arg);
    if (--m->waiting == 0)
        mended(m);
}

/* Only below the topic's node: one that was removed meanwhile does not come back as its own directories. */
static void make_directory(struct mending *m, const char *path)
{
    const struct controller_driver *d = m->driver;
    struct path topic;
    struct coordinator_multi *multi = coordinator_multi_new();
    if (!multi)
        return; /* the states are refused once more */
    coordinator_multi_check(multi, PATH_CONTROLLER_EPOCH, d->epoch_version);
    coordinator_multi_check(multi, path_topic(&topic, m->topic), -1);
    coordinator_multi_create(multi, path, NULL, 0, ZNODE_PERSISTENT);
    m->waiting++;
    coordinator_multi_send(d->s.coordinator, &multi,
                           (struct coordinator_call){.inbox = d->s.inbox,
                                                     .callback = directory_made,
                                                     .arg = m,
                                                     .generation = coordinator_generation(d->s.coordinator)});
}

/* Make what is missing, one by one, before the states are written without their directories. */
void controller_mend(struct controller_driver *d, struct image_topic *topic)
{
    struct path path;
    if (topic->is_mending)
        return;
    struct mending *m = calloc(1, sizeof *m + strlen(topic->name) + 1);
    if (!m)
        return;
    m->driver = d;
    m->term = d->term;
    memcpy(m->topic, topic->name, strlen(topic->name) + 1);
    topic->is_mending = true;
    make_directory(m, path_topic_brokers(&path, topic->name));
    make_directory(m, path_partitions(&path, topic->name));
    for (int32_t i = 0; i < topic->node.partitions_count; i++)
        if (topic->partitions[i].version < 0)
            make_directory(m, path_partition(&path, topic->name, i));
    if (!m->waiting)
        mended(m);
}
