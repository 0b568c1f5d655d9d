#include "broker/cluster/isr_writer.h"

#include "broker/cluster/image.h"
#include "broker/partition/partition.h"
#include "broker/replication/replica.h"
#include "coordination/changes.h"
#include "coordination/paths.h"
#include "coordination/topic_mark.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

/* One partition with a write or a read under way, or one that has to wait a little: not for long, since the reference
 * keeps its log open. */
struct isr_item {
    UT_hash_handle hh; /* by replica */
    struct isr_writer *writer;
    struct replica *replica; /* a reference */
    bool is_busy;
    bool is_alone; /* there was trouble: the next write is not to spoil those of others */
    int64_t not_before_ms;
    struct leader_isr_change change;
    size_t set_op;
    int32_t number;
    char topic[];
};

/* One transaction: changes of any partitions, the checks they need, and the notification that names them. */
struct isr_chunk {
    struct isr_writer *writer;
    size_t count;
    struct isr_item *items[ISR_STATES_PER_WRITE];
};

struct isr_writer {
    struct isr_writer_settings s;
    struct isr_item *items;
    struct isr_chunk *chunk; /* being filled */
    int64_t chunk_ms;        /* since then */
    unsigned in_flight;      /* partitions */
    bool is_look_due;        /* looks were turned away, or states were read after a refusal */
};

int isr_writer_new(const struct isr_writer_settings *settings, struct isr_writer **ret_writer)
{
    struct isr_writer *w = calloc(1, sizeof *w);
    if (!w)
        return -BROOK_E_NOMEM;
    w->s = *settings;
    *ret_writer = w;
    return 0;
}

static void item_free(struct isr_item *item)
{
    HASH_DEL(item->writer->items, item);
    replica_unref(item->replica);
    free(item);
}

void isr_writer_free(struct isr_writer *w)
{
    if (!w)
        return;
    free(w->chunk);
    struct isr_item *item, *next;
    HASH_ITER(hh, w->items, item, next)
    item_free(item);
    free(w);
}

static struct isr_item *item_of(struct isr_writer *w, const char *topic, int32_t number, struct replica *replica)
{
    struct isr_item *item;
    HASH_FIND_PTR(w->items, &replica, item);
    if (item)
        return item;
    size_t bytes = strlen(topic) + 1;
    item = calloc(1, sizeof *item + bytes);
    if (!item)
        return NULL;
    item->writer = w;
    item->replica = replica_ref(replica);
    item->number = number;
    memcpy(item->topic, topic, bytes);
    HASH_ADD_PTR(w->items, replica, item);
    return item;
}

static struct coordinator_call call(struct isr_writer *w, coordinator_callback *callback, void *arg)
{
    return (struct coordinator_call){.inbox = w->s.inbox, .callback = callback, .arg = arg, .urgent = true};
}

static void begin(struct isr_item *item)
{
    item->is_busy = true;
    item->writer->in_flight++;
}

/* Let go of the item and look again at what it was about. */
static void look_again(struct isr_item *item, int64_t now_ms)
{
    struct isr_writer *w = item->writer;
    AUTO_FREE char *topic = strdup(item->topic);
    int32_t number = item->number;
    struct replica *replica = replica_ref(item->replica);
    item_free(item);
    if (topic) /* else the slow round does */
        isr_writer_look(w, topic, number, replica, now_ms);
    replica_unref(replica);
}

static void end(struct isr_item *item, bool later)
{
    int64_t now_ms = clock_boot_ms();
    item->is_busy = false;
    item->writer->in_flight--;
    item->is_alone = later;
    item->not_before_ms = now_ms + ISR_RETRY_MS;
    if (!later)
        look_again(item, now_ms);
}

int64_t isr_writer_tick(struct isr_writer *w, int64_t now_ms)
{
    int64_t next = INT64_MAX;
    struct isr_item *item, *after;
    HASH_ITER(hh, w->items, item, after)
    {
        struct replica *replica = item->replica;
        if (item->is_busy)
            continue;
        if (now_ms >= item->not_before_ms)
            isr_writer_look(w, item->topic, item->number, replica, now_ms);
        HASH_FIND_PTR(w->items, &replica, item); /* it may be through */
        if (!item || item->is_busy)
            continue;
        if (now_ms >= item->not_before_ms) /* not now: no connection, or too many under way */
            item->not_before_ms = now_ms + ISR_RETRY_MS;
        next = item->not_before_ms < next ? item->not_before_ms : next;
    }
    return next;
}

/* ---- reading ---------------------------------------------------------------------------------------------- */

static void was_read(void *arg, const struct coordinator_reply *reply)
{
    struct isr_item *item = arg;
    struct isr_writer *w = item->writer;
    struct znode_state state;
    struct topic_id topic_id;
    memcpy(topic_id.bytes, partition_topic_id(replica_partition(item->replica)), sizeof topic_id.bytes);
    bool is_read = !reply->err && znode_decode_state(reply->data, reply->data_bytes, &state, NULL) == 0;
    if (is_read)
        w->s.news(w->s.arg, item->topic, &topic_id, item->number, &state, reply->stat.version);
    else if (!reply->err && w->s.odd)
        w->s.odd(w->s.arg, item->topic, item->number);
    w->is_look_due |= is_read;
    end(item, !is_read || replica_wants_read(item->replica));
}

static void was_synced(void *arg, const struct coordinator_reply *reply)
{
    struct isr_item *item = arg;
    struct path path;
    if (reply->err) {
        end(item, true);
        return;
    }
    coordinator_get(item->writer->s.coordinator, path_partition_state(&path, item->topic, item->number),
                    call(item->writer, was_read, item));
}

static void read_state(struct isr_item *item)
{
    struct path path;
    begin(item);
    coordinator_sync(item->writer->s.coordinator, path_partition_state(&path, item->topic, item->number),
                     call(item->writer, was_synced, item));
}

/* ---- writing ---------------------------------------------------------------------------------------------- */

static void tell(const struct isr_item *item)
{
    char subject[288], list[ZNODE_REPLICAS_MAX * 12] = "";
    size_t at = 0;
    const struct znode_state *state = &item->change.state;
    snprintf(subject, sizeof subject, "partition=%s/%" PRId32 " epoch=%" PRId32, item->topic, item->number,
             state->leader_epoch);
    for (int32_t i = 0; i < state->isr_count && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, i ? ",%" PRId32 : "%" PRId32, state->isr[i]);
    diag_log(item->writer->s.diag, DIAG_INFO, subject, "in sync: %s", list);
}

static enum leader_outcome outcome_of(const struct coordinator_reply *reply)
{
    switch (-reply->err) {
    case 0:
        return LEADER_APPLIED;
    case BROOK_E_OUTCOME_UNKNOWN:
    case BROOK_E_SESSION_EXPIRED:
        return LEADER_UNKNOWN;
    default: /* certain that it was not applied */
        return LEADER_REFUSED;
    }
}

static void take_outcome(struct isr_item *item, enum leader_outcome outcome, const struct coordinator_reply *reply)
{
    int32_t version = outcome == LEADER_APPLIED ? reply->op_stats[item->set_op].version : -1;
    if (outcome == LEADER_APPLIED)
        tell(item);
    replica_take_outcome(item->replica, item->change.state.leader_epoch, outcome, version);
    end(item, outcome != LEADER_APPLIED); /* paced: what is refused now may be refused again */
}

static void was_written(void *arg, const struct coordinator_reply *reply)
{
    AUTO_FREE struct isr_chunk *chunk = arg;
    enum leader_outcome outcome = outcome_of(reply);
    for (size_t i = 0; i < chunk->count; i++)
        take_outcome(chunk->items[i], outcome, reply);
}

static bool is_checked(const struct isr_chunk *chunk, size_t count, int32_t broker_id, int64_t broker_epoch)
{
    for (size_t i = 0; i < count; i++) {
        const struct leader_isr_change *change = &chunk->items[i]->change;
        for (int32_t k = 0; k < change->checks_count; k++)
            if (change->checks[k].broker_id == broker_id && change->checks[k].broker_epoch == broker_epoch)
                return true;
    }
    return false;
}

/* The topic of that name is still the one that is led here. One check does for partitions that stand together. */
static void check_topic(const struct isr_chunk *chunk, size_t at, struct coordinator_multi *multi)
{
    const struct isr_item *item = chunk->items[at];
    const struct image_topic *topic = image_find(chunk->writer->s.image, item->topic);
    struct topic_id id;
    memcpy(id.bytes, partition_topic_id(replica_partition(item->replica)), sizeof id.bytes);
    bool is_another = !topic || !topic_id_equal(&topic->node.topic_id, &id);
    if (is_another || (topic->node.is_marked && (!at || strcmp(chunk->items[at - 1]->topic, item->topic) != 0)))
        topic_mark_check(multi, item->topic, &id);
}

static int add_change(struct isr_chunk *chunk, size_t at, struct coordinator_multi *multi)
{
    struct isr_item *item = chunk->items[at];
    const struct leader_isr_change *change = &item->change;
    AUTO_FREE char *text = znode_encode_state(&change->state);
    struct path path;
    if (!text)
        return -BROOK_E_NOMEM;
    check_topic(chunk, at, multi);
    for (int32_t i = 0; i < change->checks_count; i++)
        if (!is_checked(chunk, at, change->checks[i].broker_id, change->checks[i].broker_epoch))
            coordinator_multi_check(multi, path_broker_epoch(&path, change->checks[i].broker_id),
                                    (int32_t)change->checks[i].broker_epoch);
    coordinator_multi_set(multi, path_partition_state(&path, item->topic, item->number), text, strlen(text),
                          change->version);
    item->set_op = coordinator_multi_count(multi) - 1;
    return 0;
}

/* Partitions of a topic mostly stand together. */
static int announce(const struct isr_chunk *chunk, struct coordinator_multi *multi)
{
    struct znode_change_partitions named[ISR_STATES_PER_WRITE];
    int32_t numbers[ISR_STATES_PER_WRITE];
    AUTO_FREE struct znode_quote *quotes = calloc(chunk->count, sizeof *quotes);
    struct znode_change notice = {.states = named};
    if (!quotes)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < chunk->count; i++) {
        struct isr_item *item = chunk->items[i];
        numbers[i] = item->number;
        quotes[i] = (struct znode_quote){item->change.version + 1, item->change.state};
        if (!notice.states_count || strcmp(named[notice.states_count - 1].topic, item->topic) != 0) {
            named[notice.states_count] = (struct znode_change_partitions){
                .topic = item->topic, .partitions = &numbers[i], .quotes = &quotes[i]};
            memcpy(named[notice.states_count++].topic_id.bytes, partition_topic_id(replica_partition(item->replica)),
                   sizeof named->topic_id.bytes);
        }
        named[notice.states_count - 1].partitions_count++;
    }
    return changes_announce(multi, &notice);
}

static int fill(struct isr_chunk *chunk, struct coordinator_multi *multi)
{
    for (size_t i = 0; i < chunk->count; i++)
        if (add_change(chunk, i, multi))
            return -BROOK_E_NOMEM;
    return announce(chunk, multi);
}

/* Takes the chunk. */
static void send(struct isr_chunk *chunk)
{
    struct coordinator_multi *multi = coordinator_multi_new();
    if (multi && fill(chunk, multi) == 0) {
        coordinator_multi_send(chunk->writer->s.coordinator, &multi, call(chunk->writer, was_written, chunk));
        return;
    }
    coordinator_multi_free(multi);
    for (size_t i = 0; i < chunk->count; i++) {
        struct isr_item *item = chunk->items[i];
        replica_take_outcome(item->replica, item->change.state.leader_epoch, LEADER_REFUSED, -1);
        end(item, true);
    }
    free(chunk);
}

static void send_chunk(struct isr_writer *w)
{
    struct isr_chunk *chunk = TAKE(w->chunk);
    if (chunk)
        send(chunk);
}

int64_t isr_writer_send(struct isr_writer *w, int64_t now_ms)
{
    if (!w->chunk)
        return INT64_MAX;
    if (now_ms < w->chunk_ms + ISR_GATHER_MS)
        return w->chunk_ms + ISR_GATHER_MS;
    send_chunk(w);
    return INT64_MAX;
}

static struct isr_chunk *open_chunk(struct isr_writer *w, int64_t now_ms)
{
    if (w->chunk || !(w->chunk = calloc(1, sizeof *w->chunk)))
        return w->chunk;
    w->chunk->writer = w;
    w->chunk_ms = now_ms;
    return w->chunk;
}

static void add(struct isr_item *item)
{
    struct isr_writer *w = item->writer;
    begin(item);
    w->chunk->items[w->chunk->count++] = item;
    if (w->chunk->count == ISR_STATES_PER_WRITE || item->is_alone)
        send_chunk(w);
}

/* ---- looking ---------------------------------------------------------------------------------------------- */

bool isr_writer_take_look(struct isr_writer *w)
{
    bool is_due = w->is_look_due && w->in_flight < ISR_CHANGES_IN_FLIGHT_MAX / 2;
    if (is_due)
        w->is_look_due = false;
    return is_due;
}

void isr_writer_look(struct isr_writer *w, const char *topic, int32_t number, struct replica *replica, int64_t now_ms)
{
    struct isr_item *item;
    HASH_FIND_PTR(w->items, &replica, item);
    bool has_to_wait = item && (item->is_busy || now_ms < item->not_before_ms);
    if (has_to_wait || !coordinator_is_connected(w->s.coordinator))
        return;
    if (w->in_flight >= ISR_CHANGES_IN_FLIGHT_MAX) {
        w->is_look_due = true;
        return;
    }
    if (replica_wants_read(replica)) {
        if ((item = item_of(w, topic, number, replica)))
            read_state(item);
        return;
    }
    struct leader_isr_change change;
    if (!replica_propose(replica, now_ms, &change)) {
        if (item)
            item_free(item);
        return;
    }
    if (item && item->is_alone)
        send_chunk(w);
    item = open_chunk(w, now_ms) ? item_of(w, topic, number, replica) : NULL;
    if (!item) {
        replica_take_outcome(replica, change.state.leader_epoch, LEADER_REFUSED, -1);
        return;
    }
    item->change = change;
    add(item);
}
