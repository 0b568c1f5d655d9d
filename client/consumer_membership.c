/* Subscribing and assigning, and what the group driver tells the consumer. */
#include "client/consumer.h"
#include "proto/base/cleanup.h"
#include "proto/base/err.h"

#include <stdlib.h>
#include <string.h>

/* unsubscribe has no time-out of its own: rebalance.drain.ms bounds the hand-over, this the rest. */
#define LEAVE_MS 60000

/* ---- what the group driver calls, on the loop ---- */

static void on_assigned(void *arg, const struct brook_position *positions, size_t count)
{
    struct brook_consumer *c = arg;
    uint64_t generation = group_generation(atomic_load(&c->group));
    set_lock(c->set);
    for (size_t i = 0; i < count; i++) {
        struct consumer_partition *old = set_find(c->set, positions[i].topic, positions[i].partition);
        if (old)
            set_remove(c->set, old, true);
        int r = set_add(c->set, &positions[i], generation);
        if (r < 0) {
            struct brook_error error;
            brook_error_set(&error, r, "partition %s/%d can not be read: %s", positions[i].topic,
                            positions[i].partition, brook_error_text(r));
            set_put_failure(c->set, &error);
        }
    }
    set_unlock(c->set);
}

static void on_revoking(void *arg, const struct brook_position *positions, size_t count)
{
    struct brook_consumer *c = arg;
    set_lock(c->set);
    for (size_t i = 0; i < count; i++) {
        struct consumer_partition *p = set_find(c->set, positions[i].topic, positions[i].partition);
        if (p)
            set_begin_drain(c->set, p);
    }
    set_unlock(c->set);
}

static void on_lost(void *arg, const struct brook_position *positions, size_t count)
{
    struct brook_consumer *c = arg;
    set_lock(c->set);
    for (size_t i = 0; i < count; i++) {
        struct consumer_partition *p = set_find(c->set, positions[i].topic, positions[i].partition);
        if (p)
            set_remove(c->set, p, true);
    }
    set_unlock(c->set);
}

/* The last value for the group to commit; -1: none. [locked] */
static int64_t last_value(const struct brook_consumer *c, const struct consumer_partition *p)
{
    return c->set->settings.auto_commit ? progress_processed(&p->progress) : -1;
}

static int64_t on_drain_over(void *arg, const char *topic, int32_t partition)
{
    struct brook_consumer *c = arg;
    int64_t offset = -1;
    set_lock(c->set);
    struct consumer_partition *p = set_find(c->set, topic, partition);
    if (p) {
        offset = last_value(c, p);
        set_remove(c->set, p, true);
    }
    set_unlock(c->set);
    return offset;
}

static void on_failed(void *arg, const struct brook_error *error)
{
    struct brook_consumer *c = arg;
    set_lock(c->set);
    set_put_failure(c->set, error);
    set_unlock(c->set);
}

const struct group_events consumer_group_events = {.assigned = on_assigned,
                                                   .revoking = on_revoking,
                                                   .lost = on_lost,
                                                   .drain_over = on_drain_over,
                                                   .failed = on_failed};

void consumer_on_drained(void *arg, struct consumer_partition *p)
{
    struct brook_consumer *c = arg;
    set_lock(c->set);
    int64_t offset = last_value(c, p);
    set_remove(c->set, p, false);
    set_unlock(c->set);
    group_drained(atomic_load(&c->group), p->topic, p->partition, offset);
}

/* ---- subscribing ---- */

struct subscription {
    struct brook_consumer *c;
    const char *const *topics;
    size_t count;
    const char *pattern;
    struct brook_error *error;
    int r;
};

static void subscribe_on_loop(void *arg)
{
    struct subscription *s = arg;
    struct brook_consumer *c = s->c;
    if (!atomic_load(&c->group)) {
        struct group_events events = consumer_group_events;
        struct group *group;
        events.arg = c;
        s->r = group_new(c->client, &events, &group, s->error);
        if (s->r < 0)
            return;
        atomic_store(&c->group, group);
    }
    s->r = group_subscribe(atomic_load(&c->group), s->topics, s->count, s->pattern, s->error);
}

/* Returns whether the consumer may go over to `mode`; it has then. */
static bool enter_mode(struct brook_consumer *c, enum consumer_mode mode)
{
    set_lock(c->set);
    bool may = c->mode == CONSUMER_IDLE || c->mode == mode;
    if (may)
        c->mode = mode;
    set_unlock(c->set);
    return may;
}

static int subscribe(struct subscription *s)
{
    struct brook_consumer *c = s->c;
    if (!c->group_id[0])
        return brook_error_set(s->error, BROOK_E_CONFIG, "group.id is not set");
    if (!enter_mode(c, CONSUMER_SUBSCRIBED))
        return brook_error_set(s->error, BROOK_E_INVALID, "partitions are assigned by hand: end that first");
    client_call(c->client, subscribe_on_loop, s);
    if (s->r < 0 && !atomic_load(&c->group)) {
        set_lock(c->set);
        c->mode = CONSUMER_IDLE;
        set_unlock(c->set);
    }
    return s->r;
}

int brook_consumer_subscribe(brook_consumer *c, const char *const *topics, size_t count,
                             struct brook_error *error)
{
    int r = group_check_topics(topics, count, error);
    if (r < 0)
        return r;
    struct subscription s = {.c = c, .topics = topics, .count = count, .error = error};
    return subscribe(&s);
}

int brook_consumer_subscribe_pattern(brook_consumer *c, const char *pattern, struct brook_error *error)
{
    int r = group_check_pattern(pattern, error);
    if (r < 0)
        return r;
    struct subscription s = {.c = c, .pattern = pattern, .error = error};
    return subscribe(&s);
}

static void unsubscribe_on_loop(void *arg)
{
    struct brook_consumer *c = arg;
    group_leave(atomic_load(&c->group), GROUP_LEAVE, LEAVE_MS, NULL, NULL);
}

int brook_consumer_unsubscribe(brook_consumer *c, struct brook_error *error)
{
    set_lock(c->set);
    bool was_subscribed = c->mode == CONSUMER_SUBSCRIBED;
    if (was_subscribed)
        c->mode = CONSUMER_IDLE;
    set_unlock(c->set);
    if (was_subscribed && atomic_load(&c->group))
        client_call(c->client, unsubscribe_on_loop, c);
    return 0;
}

/* ---- assigning by hand ---- */

static bool is_start(int64_t offset)
{
    return offset >= 0 || (offset <= BROOK_OFFSET_NONE && offset >= BROOK_OFFSET_STORED);
}

static int check_positions(const struct brook_position *positions, size_t count, struct brook_error *error)
{
    for (size_t i = 0; i < count; i++) {
        const struct brook_position *p = &positions[i];
        if (!p->topic || !name_is_legal_topic(p->topic, strlen(p->topic)))
            return brook_error_set(error, BROOK_E_ILLEGAL_NAME, "\"%.200s\" is not a legal topic name",
                                   p->topic ? p->topic : "");
        if (p->partition < 0 || !is_start(p->offset))
            return brook_error_set(error, BROOK_E_INVALID, "partition %s/%d, offset %lld: no such place",
                                   p->topic, p->partition, (long long)p->offset);
    }
    return 0;
}

/* [locked] */
static int replace_all(struct consumer_set *set, const struct brook_position *positions, size_t count,
                       struct brook_error *error)
{
    struct consumer_partition *p, *next;
    HASH_ITER (hh_name, set->by_name, p, next)
        set_remove(set, p, false);
    for (size_t i = 0; i < count; i++) {
        int r = set_add(set, &positions[i], 0);
        if (r == -BROOK_E_EXISTS)
            return brook_error_set(error, BROOK_E_INVALID, "partition %s/%d is there twice",
                                   positions[i].topic, positions[i].partition);
        if (r < 0)
            return brook_error_set(error, -r, "partition %s/%d can not be read: %s", positions[i].topic,
                                   positions[i].partition, brook_error_text(r));
    }
    return 0;
}

int brook_consumer_assign(brook_consumer *c, const struct brook_position *positions, size_t count,
                          struct brook_error *error)
{
    int r = check_positions(positions, count, error);
    if (r < 0)
        return r;
    if (!enter_mode(c, CONSUMER_ASSIGNED))
        return brook_error_set(error, BROOK_E_INVALID, "the consumer is subscribed: unsubscribe first");
    set_lock(c->set);
    r = replace_all(c->set, positions, count, error);
    if (r < 0)
        replace_all(c->set, NULL, 0, NULL);
    if (r < 0 || count == 0)
        c->mode = CONSUMER_IDLE;
    set_unlock(c->set);
    return r;
}
