#include "broker/cluster/isr_writer.h"

#include "broker/partition/partition.h"
#include "broker/replication/replica.h"
#include "coordination/changes.h"
#include "coordination/paths.h"
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
    int64_t not_before_ms;
    struct leader_isr_change change;
    size_t set_op;
    int32_t number;
    char topic[];
};

struct isr_writer {
    struct isr_writer_settings s;
    struct isr_item *items;
    unsigned in_flight;
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

static struct coordinator_call call(struct isr_item *item, coordinator_callback *callback)
{
    return (struct coordinator_call){.inbox = item->writer->s.inbox, .callback = callback, .arg = item, .urgent = true};
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
    item->not_before_ms = now_ms + ISR_RETRY_MS;
    if (!later)
        look_again(item, now_ms);
}

int64_t isr_writer_tick(struct isr_writer *w, int64_t now_ms)
{
    int64_t next = INT64_MAX;
    struct isr_item *item, *after;
    HASH_ITER(hh, w->items, item, after)
    if (!item->is_busy) {
        if (now_ms >= item->not_before_ms)
            look_again(item, now_ms);
        else if (item->not_before_ms < next)
            next = item->not_before_ms;
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
                    call(item, was_read));
}

static void read_state(struct isr_item *item)
{
    struct path path;
    begin(item);
    coordinator_sync(item->writer->s.coordinator, path_partition_state(&path, item->topic, item->number),
                     call(item, was_synced));
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

static void was_written(void *arg, const struct coordinator_reply *reply)
{
    struct isr_item *item = arg;
    enum leader_outcome outcome = outcome_of(reply);
    int32_t version = outcome == LEADER_APPLIED ? reply->op_stats[item->set_op].version : -1;
    if (outcome == LEADER_APPLIED)
        tell(item);
    replica_take_outcome(item->replica, item->change.state.leader_epoch, outcome, version);
    end(item, outcome != LEADER_APPLIED); /* paced: what is refused now may be refused again */
}

static void write_change(struct isr_item *item)
{
    const struct leader_isr_change *change = &item->change;
    struct coordinator_multi *multi = coordinator_multi_new();
    AUTO_FREE char *text = znode_encode_state(&change->state);
    struct path path;
    struct znode_change_partitions named = {.topic = item->topic, .partitions = &item->number, .partitions_count = 1};
    struct znode_change notice = {.states = &named, .states_count = 1};
    for (int32_t i = 0; multi && i < change->checks_count; i++)
        coordinator_multi_check(multi, path_broker_epoch(&path, change->checks[i].broker_id),
                                (int32_t)change->checks[i].broker_epoch);
    if (multi && text) {
        coordinator_multi_set(multi, path_partition_state(&path, item->topic, item->number), text, strlen(text),
                              change->version);
        item->set_op = coordinator_multi_count(multi) - 1;
    }
    begin(item);
    if (!multi || !text || changes_announce(multi, &notice)) {
        coordinator_multi_free(multi);
        replica_take_outcome(item->replica, change->state.leader_epoch, LEADER_REFUSED, -1);
        end(item, true);
        return;
    }
    coordinator_multi_send(item->writer->s.coordinator, &multi, call(item, was_written));
}

void isr_writer_look(struct isr_writer *w, const char *topic, int32_t number, struct replica *replica, int64_t now_ms)
{
    struct isr_item *item;
    HASH_FIND_PTR(w->items, &replica, item);
    bool has_to_wait = item && (item->is_busy || now_ms < item->not_before_ms);
    if (has_to_wait || w->in_flight >= ISR_WRITES_IN_FLIGHT_MAX || !coordinator_is_connected(w->s.coordinator))
        return;
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
    item = item_of(w, topic, number, replica);
    if (!item) {
        replica_take_outcome(replica, change.state.leader_epoch, LEADER_REFUSED, -1);
        return;
    }
    item->change = change;
    write_change(item);
}
