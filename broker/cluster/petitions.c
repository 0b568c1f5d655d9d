#include "broker/cluster/petitions.h"

#include "broker/cluster/reassignment.h"
#include "coordination/paths.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS 20 /* between two looks whether the controller was there */

enum petition_step {
    PETITION_WRITE, /* to be added, or to be added again */
    PETITION_WAIT,  /* for the controller */
    PETITION_READ   /* what became of it is being read */
};

struct petition {
    struct petition *next;
    struct petitions *all;
    enum znode_wish_kind kind;
    struct znode_wishes wishes;
    struct brook_error *errors; /* per wish */
    int64_t throttle; /* -1: as it is */
    bool validate_only;
    int64_t deadline_ms;
    int64_t look_ms;
    struct inbox *inbox;
    cluster_petition_callback *callback;
    void *arg;

    enum petition_step step;
    struct brook_error error;
    bool is_broken;
    bool is_calling;  /* a call is under way that points here */
    bool is_answered; /* the last call frees it */
};

struct petitions {
    struct petitions_settings s;
    struct petition *waiting;
    size_t count;
};

/* ---- life ------------------------------------------------------------------------------------------- */

static void petition_free(struct petition *p)
{
    znode_wishes_done(&p->wishes);
    free(p->errors);
    free(p);
}

static int copy_wish(struct znode_wish *to, const struct znode_wish *from)
{
    size_t bytes = (size_t)from->replicas.count * sizeof(int32_t);
    *to = (struct znode_wish){.topic = strdup(from->topic),
                              .partition = from->partition,
                              .unclean = from->unclean,
                              .replicas = {malloc(bytes + 1), from->replicas.count}};
    if (!to->topic || !to->replicas.brokers)
        return -BROOK_E_NOMEM;
    if (bytes)
        memcpy(to->replicas.brokers, from->replicas.brokers, bytes);
    return 0;
}

static int copy_wishes(struct petition *p, const struct znode_wishes *from)
{
    p->wishes.list = calloc(from->count + 1, sizeof *p->wishes.list);
    p->errors = calloc(from->count + 1, sizeof *p->errors);
    if (!p->wishes.list || !p->errors)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < from->count; i++)
        if (copy_wish(&p->wishes.list[p->wishes.count++], &from->list[i]))
            return -BROOK_E_NOMEM;
    return 0;
}

struct petition *petition_new(const struct cluster_petition *what, int timeout_ms, struct inbox *inbox,
                              cluster_petition_callback *callback, void *arg)
{
    struct petition *p;
    do
        p = calloc(1, sizeof *p);
    while (!p); /* somebody waits for the answer */
    p->kind = what->kind;
    p->throttle = what->throttle;
    p->validate_only = what->validate_only;
    p->deadline_ms = clock_boot_ms() + timeout_ms;
    p->inbox = inbox;
    p->callback = callback;
    p->arg = arg;
    p->is_broken = copy_wishes(p, what->wishes);
    return p;
}

struct answer {
    struct inbox_item item;
    struct brook_error error;
    struct brook_error *errors;
    size_t count;
    cluster_petition_callback *callback;
    void *arg;
};

static void deliver(struct inbox_item *item)
{
    AUTO_FREE struct answer *a = CONTAINER_OF(item, struct answer, item);
    struct cluster_petition_result result = {a->error, a->errors, a->count};
    a->callback(a->arg, &result);
    free(a->errors);
}

static void remove_waiting(struct petition *p)
{
    if (!p->all)
        return;
    struct petition **at = &p->all->waiting;
    while (*at && *at != p)
        at = &(*at)->next;
    if (*at) {
        *at = p->next;
        p->all->count--;
    }
}

/* The only way out. */
static void answer(struct petition *p)
{
    struct answer *a;
    do
        a = calloc(1, sizeof *a);
    while (!a);
    *a = (struct answer){.item.run = deliver,
                         .error = p->error,
                         .errors = TAKE(p->errors),
                         .count = p->is_broken ? 0 : p->wishes.count,
                         .callback = p->callback,
                         .arg = p->arg};
    remove_waiting(p);
    inbox_post(p->inbox, &a->item);
    p->is_answered = true;
    if (!p->is_calling)
        petition_free(p);
}

void petition_refuse(struct petition *p, int code, const char *why)
{
    brook_error_set(&p->error, code, "%s", why);
    answer(p);
}

static void fail(struct petition *p, int err)
{
    petition_refuse(p, abs(err), brook_error_text(err));
}

int petitions_new(const struct petitions_settings *settings, struct petitions **ret_petitions)
{
    struct petitions *all = calloc(1, sizeof *all);
    if (!all)
        return -BROOK_E_NOMEM;
    all->s = *settings;
    *ret_petitions = all;
    return 0;
}

void petitions_free(struct petitions *all)
{
    if (!all)
        return;
    while (all->waiting)
        fail(all->waiting, BROOK_E_STOPPING);
    free(all);
}

/* ---- calls ------------------------------------------------------------------------------------------ */

static struct coordinator_call begin(struct petition *p, coordinator_callback *callback)
{
    p->is_calling = true;
    return (struct coordinator_call){.inbox = p->all->s.inbox, .callback = callback, .arg = p};
}

/* NULL: answered meanwhile. */
static struct petition *end(void *arg)
{
    struct petition *p = arg;
    p->is_calling = false;
    if (!p->is_answered)
        return p;
    petition_free(p);
    return NULL;
}

static const char *path_of(const struct petition *p)
{
    return p->kind == ZNODE_WISH_REASSIGN ? PATH_REASSIGN : PATH_PREFERRED_ELECTION;
}

/* What may pass is tried again until the deadline. */
static bool may_pass(int err)
{
    return err == -BROOK_E_BAD_VERSION || err == -BROOK_E_NODE_EXISTS || err == -BROOK_E_NO_NODE ||
           err == -BROOK_E_OUTCOME_UNKNOWN || err == -BROOK_E_SESSION_EXPIRED ||
           err == -BROOK_E_COORDINATION_LOST;
}

static void later(struct petition *p, int err)
{
    if (!may_pass(err))
        return fail(p, err);
    p->step = PETITION_WRITE;
    p->look_ms = clock_boot_ms() + LOOK_MS;
}

/* ---- checks ----------------------------------------------------------------------------------------- */

static const struct image_topic *topic_of(const struct petition *p, const struct znode_wish *wish,
                                          struct brook_error *error)
{
    const struct image_topic *topic = image_find(p->all->s.image, wish->topic);
    if (!topic)
        brook_error_set(error, BROOK_E_UNKNOWN_TOPIC, "there is no topic %.200s", wish->topic);
    else if (topic->is_being_deleted)
        brook_error_set(error, BROOK_E_TOPIC_BEING_DELETED, "topic %s is being deleted", wish->topic);
    else if (wish->partition < 0 || wish->partition >= topic->node.partitions_count)
        brook_error_set(error, BROOK_E_UNKNOWN_PARTITION, "topic %s has no partition %" PRId32, wish->topic,
                        wish->partition);
    else
        return topic;
    return NULL;
}

static void check_target(const struct petition *p, const struct image_topic *topic, const struct znode_wish *wish,
                         struct brook_error *error)
{
    const struct znode_replicas *now = &topic->node.replicas[wish->partition], *target = &wish->replicas;
    if (target->count && p->all->s.replicas_max == 1) {
        brook_error_set(error, BROOK_E_UNSUPPORTED, "where one replica is kept, no partition is moved");
        return;
    }
    if (target->count > p->all->s.replicas_max) {
        brook_error_set(error, BROOK_E_INVALID_REPLICAS, "%" PRId32 " replicas; at most %" PRId32 " are kept",
                        target->count, p->all->s.replicas_max);
        return;
    }
    if (target->count && target->count < topic->config.min_insync_replicas)
        brook_error_set(error, BROOK_E_INVALID_REPLICAS,
                        "%s/%" PRId32 ": %" PRId32 " replicas are less than the topic's min.insync.replicas, %" PRId32,
                        wish->topic, wish->partition, target->count, topic->config.min_insync_replicas);
    for (int32_t i = 0; i < target->count && !error->code; i++) {
        struct znode_replicas before = {target->brokers, i};
        if (controller_is_assigned(&before, target->brokers[i]))
            brook_error_set(error, BROOK_E_INVALID_REPLICAS, "broker %" PRId32 " is named twice", target->brokers[i]);
        else if (!controller_is_assigned(now, target->brokers[i]) &&
                 !controller_find_broker(image_alive(p->all->s.image), target->brokers[i]))
            brook_error_set(error, BROOK_E_BROKER_NOT_AVAILABLE, "broker %" PRId32 " is not alive",
                            target->brokers[i]);
    }
    if (!target->count && !znode_topic_move(&topic->node, wish->partition))
        brook_error_set(error, BROOK_E_NO_REASSIGNMENT, "%s/%" PRId32 " is not being moved", wish->topic,
                        wish->partition);
}

/* Returns how many wishes are left to be asked for. */
static size_t check(struct petition *p)
{
    size_t good = 0;
    for (size_t i = 0; i < p->wishes.count; i++) {
        const struct znode_wish *wish = &p->wishes.list[i];
        const struct image_topic *topic = topic_of(p, wish, &p->errors[i]);
        if (topic && p->kind == ZNODE_WISH_REASSIGN)
            check_target(p, topic, wish, &p->errors[i]);
        good += !p->errors[i].code;
    }
    return good;
}

/* ---- what became of it ------------------------------------------------------------------------------ */

static bool same_list(const struct znode_replicas *a, const struct znode_replicas *b)
{
    return a->count == b->count && !memcmp(a->brokers, b->brokers, (size_t)a->count * sizeof(int32_t));
}

static void judge_move(const struct image_topic *topic, const struct znode_wish *wish, struct brook_error *error)
{
    const struct znode_move *move = znode_topic_move(&topic->node, wish->partition);
    const struct znode_replicas *target = move ? &move->target : &topic->node.replicas[wish->partition];
    if (wish->replicas.count && !same_list(target, &wish->replicas))
        brook_error_set(error, BROOK_E_INVALID_REPLICAS,
                        "the controller has not taken the plan for %s/%" PRId32 " over; its log says why", wish->topic,
                        wish->partition);
}

static void judge_election(const struct image_topic *topic, const struct znode_wish *wish, struct brook_error *error)
{
    int32_t leader = topic->partitions[wish->partition].leader;
    int32_t preferred = topic->node.replicas[wish->partition].brokers[0];
    if (leader < 0)
        brook_error_set(error, BROOK_E_NO_LEADER, "%s/%" PRId32 " has no replica that can lead", wish->topic,
                        wish->partition);
    else if (!wish->unclean && leader != preferred)
        brook_error_set(error, BROOK_E_PREFERRED_NOT_AVAILABLE,
                        "%s/%" PRId32 ": broker %" PRId32 ", which is preferred, is not in sync", wish->topic,
                        wish->partition, preferred);
}

static void judge(struct petition *p)
{
    for (size_t i = 0; i < p->wishes.count; i++) {
        const struct znode_wish *wish = &p->wishes.list[i];
        const struct image_topic *topic = p->errors[i].code ? NULL : topic_of(p, wish, &p->errors[i]);
        if (topic && p->kind == ZNODE_WISH_REASSIGN)
            judge_move(topic, wish, &p->errors[i]);
        else if (topic)
            judge_election(topic, wish, &p->errors[i]);
    }
    answer(p);
}

static void node_seen(void *arg, const struct coordinator_reply *reply)
{
    struct petition *p = end(arg);
    const char *last = "";
    if (!p)
        return;
    p->look_ms = clock_boot_ms() + LOOK_MS;
    if (reply->err != -BROOK_E_NO_NODE)
        return;
    p->step = PETITION_READ;
    for (size_t i = 0; i < p->wishes.count; i++) {
        if (!p->errors[i].code && strcmp(last, p->wishes.list[i].topic) != 0)
            state_reader_read_topic(p->all->s.reader, p->wishes.list[i].topic);
        last = p->wishes.list[i].topic;
    }
}

/* ---- writing ---------------------------------------------------------------------------------------- */

static void written(void *arg, const struct coordinator_reply *reply)
{
    struct petition *p = end(arg);
    if (!p)
        return;
    if (reply->err)
        return later(p, reply->err);
    p->step = PETITION_WAIT;
    p->look_ms = clock_boot_ms() + LOOK_MS;
}

/* What others asked for, and this. The caller frees the text; the list's contents are borrowed. */
static char *join(const struct petition *p, const struct znode_wishes *others)
{
    bool has_throttle = p->throttle >= 0;
    struct znode_wishes both = {.list = malloc((others->count + p->wishes.count + 1) * sizeof *both.list),
                                .has_throttle = has_throttle || others->has_throttle,
                                .throttle = has_throttle ? p->throttle : others->throttle};
    if (!both.list)
        return NULL;
    for (size_t i = 0; i < others->count; i++)
        both.list[both.count++] = others->list[i];
    for (size_t i = 0; i < p->wishes.count; i++)
        if (!p->errors[i].code)
            both.list[both.count++] = p->wishes.list[i];
    char *text = znode_encode_wishes(&both, p->kind);
    free(both.list);
    return text;
}

static void node_read(void *arg, const struct coordinator_reply *reply)
{
    struct petition *p = end(arg);
    struct znode_wishes others = {0};
    if (!p)
        return;
    bool is_there = !reply->err;
    if (!is_there && reply->err != -BROOK_E_NO_NODE)
        return later(p, reply->err);
    if (is_there && znode_decode_wishes(reply->data, reply->data_bytes, p->kind, &others, NULL))
        return later(p, -BROOK_E_NODE_EXISTS); /* the controller removes what makes no sense */
    AUTO_FREE char *text = join(p, &others);
    bool is_alone = !others.count;
    znode_wishes_done(&others);
    if (!text)
        return fail(p, BROOK_E_NOMEM);
    if (strlen(text) > PETITION_NODE_BYTES_MAX)
        return is_alone ? petition_refuse(p, BROOK_E_TOO_MANY, "too many partitions at a time")
                        : later(p, -BROOK_E_NODE_EXISTS);
    if (is_there)
        coordinator_set(p->all->s.coordinator, path_of(p), text, strlen(text), reply->stat.version, begin(p, written));
    else
        coordinator_create_path(p->all->s.coordinator, path_of(p), text, strlen(text), begin(p, written));
}

static void write_next(struct petition *p)
{
    size_t left = 0;
    for (size_t i = 0; i < p->wishes.count; i++)
        left += !p->errors[i].code;
    if (left || p->throttle >= 0)
        coordinator_get(p->all->s.coordinator, path_of(p), begin(p, node_read));
    else
        answer(p);
}

static bool is_anything_moved(const struct petitions *all)
{
    for (size_t i = 0; i < image_topics_count(all->s.image); i++)
        if (image_topic_at(all->s.image, i)->node.moves_count)
            return true;
    return false;
}

void petitions_submit(struct petitions *all, struct petition *p)
{
    if (p->is_broken)
        return petition_refuse(p, BROOK_E_NOMEM, "out of memory");
    if (all->count >= PETITIONS_WAITING_MAX)
        return fail(p, BROOK_E_BUSY);
    p->all = all;
    p->next = all->waiting;
    all->waiting = p;
    all->count++;
    size_t good = check(p);
    if (!p->wishes.count && p->kind == ZNODE_WISH_REASSIGN && p->throttle > 0 && !is_anything_moved(all))
        return petition_refuse(p, BROOK_E_NO_REASSIGNMENT,
                               "nothing is being moved, and a throttle lasts as long as moves do; replication.quota.bytes is the "
                               "limit that stands");
    if (p->validate_only || (!good && p->wishes.count))
        answer(p);
    else
        write_next(p);
}

int64_t petitions_tick(struct petitions *all, int64_t now_ms, bool is_idle)
{
    int64_t due = INT64_MAX;
    for (struct petition *p = all->waiting, *next; p; p = next) {
        next = p->next;
        if (now_ms >= p->deadline_ms) {
            petition_refuse(p, BROOK_E_TIMED_OUT,
                            p->step == PETITION_WRITE ? "not written in time; it may be carried out"
                                                      : "the controller was not there in time; it will be carried out");
            continue;
        }
        due = p->deadline_ms < due ? p->deadline_ms : due;
        if (p->is_calling)
            continue;
        if (p->step == PETITION_READ && is_idle) {
            judge(p);
            continue;
        }
        if (p->step != PETITION_READ && now_ms >= p->look_ms) {
            if (p->step == PETITION_WRITE)
                write_next(p);
            else
                coordinator_exists(all->s.coordinator, path_of(p), begin(p, node_seen));
        } else if (p->step != PETITION_READ) {
            due = p->look_ms < due ? p->look_ms : due;
        }
    }
    return due;
}
