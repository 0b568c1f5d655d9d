#include "client/consumer_fetcher.h"

#include "client/consumer_find.h"
#include "client/consumer_pull.h"
#include "proto/base/cleanup.h"
#include "proto/base/err.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define REQUEST_ARENA_BYTES ((size_t)8 << 20)
/* Answers in a row before a topic counts as not there: a broker may learn of a new one late. */
#define TIMES_UNKNOWN 2

void fetcher_ref(struct consumer_fetcher *f)
{
    f->refs++;
}

void fetcher_unref(struct consumer_fetcher *f)
{
    if (--f->refs > 0)
        return;
    pullers_free(f);
    finds_free(f);
    arena_free(f->arena);
    set_lock(f->set);
    set_unref_unlock(f->set);
    free(f);
}

/* ---- timers and wake-ups ---- */

void fetcher_wake_at(struct consumer_fetcher *f, int64_t at_ms)
{
    if (f->is_closed || at_ms >= f->timer_at_ms)
        return;
    int64_t delay_ms = at_ms - set_now_ms();
    f->timer_at_ms = at_ms;
    client_timer_set(f->timer, delay_ms < 1 ? 1 : delay_ms > INT_MAX ? INT_MAX : (int)delay_ms);
}

static void on_timer(void *arg)
{
    struct consumer_fetcher *f = arg;
    f->timer_at_ms = INT64_MAX;
    fetcher_run(f, true);
}

static void run_again(struct inbox_item *item)
{
    struct consumer_fetcher *f = CONTAINER_OF(item, struct consumer_fetcher, again);
    f->is_again_posted = false;
    if (!f->is_closed)
        fetcher_run(f, true);
    fetcher_unref(f);
}

void fetcher_again(struct consumer_fetcher *f)
{
    if (f->is_again_posted || f->is_closed)
        return;
    f->is_again_posted = true;
    fetcher_ref(f);
    inbox_post(client_inbox(f->client), &f->again);
}

static void on_ready(void *arg, int32_t broker_id, enum client_lane lane)
{
    fetcher_again(arg);
}

static void on_lost(void *arg, int32_t broker_id, enum client_lane lane, const struct brook_error *why)
{
    struct consumer_fetcher *f = arg;
    if (lane == CLIENT_LANE_PULLS) {
        set_lock(f->set);
        pullers_lost(f, broker_id);
        set_unlock(f->set);
    }
    f->needs_refresh = true;
    fetcher_again(f);
}

static void on_metadata(void *arg)
{
    fetcher_again(arg);
}

/* ---- one partition ---- */

/* Records may be passed over or come again: worth a warning. To begin where nothing is stored is not. */
static void log_reset(const struct consumer_fetcher *f, const struct consumer_partition *p)
{
    const struct diag *diag = client_diag(f->client);
    const struct consumer_position *at = &p->position;
    const char *to = at->query == BROOK_OFFSET_LATEST ? "latest" : "earliest";
    if (at->offset < 0)
        diag_log(diag, DIAG_INFO, "", "partition %s/%d: no offset is stored, beginning at the %s", p->topic,
                 p->partition, to);
    else if (p->range_first >= 0)
        diag_log(diag, DIAG_WARN, "",
                 "partition %s/%d: offset %" PRId64 " is out of range: the log goes from %" PRId64
                 " to %" PRId64 "; going to the %s (auto.offset.reset)",
                 p->topic, p->partition, at->offset, p->range_first, p->range_end, to);
    else
        diag_log(diag, DIAG_WARN, "", "partition %s/%d: the offset %" PRId64 " is not there, going to the %s",
                 p->topic, p->partition, at->offset, to);
}

void fetcher_apply(struct consumer_fetcher *f, struct consumer_partition *p, struct position_effects effects)
{
    f->needs_refresh |= effects.refresh;
    if (effects.report != 0)
        set_put_event(f->set, p, effects.report, p->position.offset);
    if (!effects.was_reset)
        return;
    f->set->counters.resets++;
    log_reset(f, p);
    p->range_first = p->range_end = -1;
}

/* What the metadata says about the partition is no leader: not a word about positions. */
static void fail(struct consumer_fetcher *f, struct consumer_partition *p, int code)
{
    struct position_effects effects = p->position.phase == POSITION_ASK_LOG
                                          ? position_on_log(&p->position, code, -1, set_now_ms())
                                          : position_on_pull_error(&p->position, code, false, set_now_ms());
    fetcher_apply(f, p, effects);
}

/* The partition's metadata, if it has a leader; its failures are noted. NULL: not now. */
static const struct metadata_partition *find_leader(struct consumer_fetcher *f, struct consumer_partition *p)
{
    const struct metadata_topic *topic = metadata_topic(client_metadata(f->client), p->topic);
    if (!topic || (topic->error == BROOK_E_UNKNOWN_TOPIC && topic->times_unknown < TIMES_UNKNOWN))
        return NULL;
    bool is_due = position_is_due(&p->position, set_now_ms());
    if (topic->error != 0 || p->partition >= topic->partitions_count) {
        if (is_due)
            fail(f, p, topic->error != 0 ? topic->error : BROOK_E_UNKNOWN_PARTITION);
        return NULL;
    }
    if (p->has_id && memcmp(p->id.topic_id, topic->topic_id, TOPIC_ID_BYTES) != 0) {
        diag_log(client_diag(f->client), DIAG_WARN, "", "topic %s was made anew", p->topic);
        fetcher_apply(f, p, set_topic_anew(f->set, p));
        p->leader_epoch = -1;
        puller_leave(f, p);
    }
    set_identify(f->set, p, topic->topic_id);
    const struct metadata_partition *m = &topic->partitions[p->partition];
    if (m->leader_epoch != p->leader_epoch) {
        /* Somebody else leads now: whatever failed before may work there. */
        p->leader_epoch = m->leader_epoch;
        p->nearest = -1;
        p->position.not_before_ms = 0;
    }
    return m->leader >= 0 ? m : NULL;
}

/* Whom to pull from: the leader, or the replica in our rack that it named. */
static int32_t choose_broker(struct consumer_fetcher *f, struct consumer_partition *p, int32_t leader)
{
    int64_t now_ms = set_now_ms();
    if (now_ms < p->stay_ms)
        fetcher_wake_at(f, p->stay_ms);
    if (p->nearest >= 0 && (now_ms >= p->nearest_ms || !metadata_broker(client_metadata(f->client), p->nearest)))
        p->nearest = -1;
    if (p->nearest < 0)
        return leader;
    fetcher_wake_at(f, p->nearest_ms);
    return p->nearest;
}

static void attend_live(struct consumer_fetcher *f, struct consumer_partition *p)
{
    struct consumer_position *position = &p->position;
    const struct metadata_partition *m = find_leader(f, p);
    bool is_due = position_is_due(position, set_now_ms());
    if (!is_due && position->phase != POSITION_STUCK)
        fetcher_wake_at(f, position->not_before_ms);
    if (position->phase == POSITION_ASK_STORED) {
        if (is_due)
            find_stored(f, p);
        if (position->phase == POSITION_ASK_STORED)
            return;
    }
    if (!m) {
        puller_leave(f, p);
        return;
    }
    if (position->phase == POSITION_ASK_LOG && is_due)
        find_log(f, p, m->leader);
    puller_join(f, p, choose_broker(f, p, m->leader), is_due && position->phase == POSITION_KNOWN && set_is_hungry(f->set, p));
}

/* A topic that is no more need not be asked for ever again. Who still reads it asks for it anew. */
static void forget_topic(struct consumer_fetcher *f, const char *name)
{
    const struct metadata_topic *topic = metadata_topic(client_metadata(f->client), name);
    if (topic && topic->error != 0)
        metadata_unwant(client_metadata(f->client), name);
}

/* Returns whether the group has to be told that it is drained. */
static bool attend(struct consumer_fetcher *f, struct consumer_partition *p)
{
    if (p->life == PARTITION_LIVE) {
        attend_live(f, p);
        return false;
    }
    puller_leave(f, p);
    if (p->life == PARTITION_GONE)
        forget_topic(f, p->topic);
    if (p->was_drained || !set_is_drained(p))
        return false;
    p->was_drained = true;
    return true;
}

/* ---- the pass ---- */

static void mark_all(struct consumer_set *set)
{
    struct consumer_partition *p, *next;
    HASH_ITER (hh_name, set->by_name, p, next)
        set_mark(set, p);
}

/* Returns those that are drained, by drained_next, with a reference each. */
static struct consumer_partition *attend_marked(struct consumer_fetcher *f, bool all)
{
    struct consumer_partition *drained = NULL, *next;
    set_lock(f->set);
    if (all)
        mark_all(f->set);
    for (struct consumer_partition *p = set_take_marked(f->set); p; p = next) {
        next = p->marked_next;
        if (attend(f, p))
            LL_PREPEND2(drained, p, drained_next);
        else
            consumer_partition_unref(p);
    }
    set_unlock(f->set);
    return drained;
}

static void tell_drained(struct consumer_fetcher *f, struct consumer_partition *drained)
{
    struct consumer_partition *next;
    for (struct consumer_partition *p = drained; p; p = next) {
        next = p->drained_next;
        if (f->events.drained)
            f->events.drained(f->events.arg, p);
        set_lock(f->set);
        consumer_partition_unref(p);
        set_unlock(f->set);
    }
}

void fetcher_run(struct consumer_fetcher *f, bool all)
{
    fetcher_ref(f);
    struct consumer_partition *drained = attend_marked(f, all);
    finds_send(f);
    pullers_send(f);
    if (TAKE(f->needs_refresh))
        metadata_refresh(client_metadata(f->client));
    tell_drained(f, drained);
    fetcher_unref(f);
}

/* ---- life ---- */

int fetcher_new(struct client *client, struct consumer_set *set, const char *group_id,
                const struct fetcher_events *events, struct consumer_fetcher **ret_fetcher)
{
    struct consumer_fetcher *f = calloc(1, sizeof *f);
    if (!f)
        return -BROOK_E_NOMEM;
    set_lock(set);
    f->set = set_ref(set);
    set->fetcher = f;
    set_unlock(set);
    f->client = client;
    f->group_id = group_id;
    f->events = *events;
    f->refs = 1;
    f->timer_at_ms = INT64_MAX;
    f->again.run = run_again;
    f->timer = client_timer_new(client, on_timer, f);
    if (!f->timer || arena_new(REQUEST_ARENA_BYTES, &f->arena) < 0) {
        client_timer_free(f->timer);
        set->fetcher = NULL;
        fetcher_unref(f);
        return -BROOK_E_NOMEM;
    }
    f->listener = (struct client_listener){
        .channel_ready = on_ready, .channel_lost = on_lost, .metadata_changed = on_metadata, .arg = f};
    client_listen(client, &f->listener);
    *ret_fetcher = f;
    return 0;
}

void fetcher_close(struct consumer_fetcher *f)
{
    if (!f)
        return;
    f->is_closed = true;
    client_unlisten(f->client, &f->listener);
    client_timer_free(TAKE(f->timer));
    questions_close(f);
    struct consumer_partition *next;
    set_lock(f->set);
    f->set->fetcher = NULL;
    for (struct consumer_partition *p = set_take_marked(f->set); p; p = next) {
        next = p->marked_next;
        puller_leave(f, p);
        consumer_partition_unref(p);
    }
    set_unlock(f->set);
    fetcher_unref(f);
}
