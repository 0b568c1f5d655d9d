/* What is asked of the controller in /admin: plans of reassignment and elections, written by hand or by a broker for
 * a client.
 *
 * A plan is taken over topic by topic: one multi writes the moves into the topic's node and takes them out of the
 * plan, so a controller that dies leaves either. Elections are marked at their partitions, held like all others, and
 * the node goes when they are through (or can not be): a controller that dies leaves the node, and the next one holds
 * those that are left. The throttle of moves is written with the first topic of its plan, and removed after the last
 * move.
 */
#include "broker/cluster/controller_driver_internal.h"
#include "coordination/changes.h"
#include "coordination/paths.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ELECTIONS_MS 10000
#define LOOK_MS 20          /* between two looks whether elections are through */
#define OBSERVE_AGAIN_MS 1000
#define THROTTLE_AGAIN_MS 500 /* after a try to end it */
/* Of a topic's node with its moves: what is left of a request holds the rest of the plan. */
#define NODE_BYTES_MAX (400 << 10)

static const char *path_of(const struct controller_wishes *w)
{
    return w->kind == ZNODE_WISH_REASSIGN ? PATH_REASSIGN : PATH_PREFERRED_ELECTION;
}

/* ---- what is there ---------------------------------------------------------------------------------- */

static struct image_partition *wished(const struct controller_driver *d, const struct znode_wish *wish,
                                      struct image_topic **ret_topic)
{
    struct image_topic *topic = image_find(d->s.image, wish->topic);
    if (!topic || topic->is_being_deleted || wish->partition >= topic->node.partitions_count)
        return NULL;
    *ret_topic = topic;
    return &topic->partitions[wish->partition];
}

static void mark(struct controller_driver *d, struct controller_wishes *w, bool is_wished)
{
    struct image_topic *topic;
    for (size_t i = 0; i < w->wishes.count; i++) {
        struct image_partition *p = wished(d, &w->wishes.list[i], &topic);
        if (p)
            p->wish = !is_wished                  ? IMAGE_WISH_NONE
                      : w->wishes.list[i].unclean ? IMAGE_WISH_UNCLEAN
                                                  : IMAGE_WISH_PREFERRED;
    }
    w->is_marked = is_wished;
}

static void forget(struct controller_driver *d, struct controller_wishes *w)
{
    if (w->is_marked)
        mark(d, w, false);
    znode_wishes_done(&w->wishes);
    w->version = -1;
    w->is_senseless = false;
}

static void take(struct controller_driver *d, struct controller_wishes *w, const struct coordinator_reply *reply)
{
    struct brook_error error;
    forget(d, w);
    if (reply->err)
        return;
    w->version = reply->stat.version;
    w->until_ms = clock_boot_ms() + ELECTIONS_MS;
    if (!znode_decode_wishes(reply->data, reply->data_bytes, w->kind, &w->wishes, &error))
        return;
    w->is_senseless = true;
    diag_log(d->s.diag, DIAG_WARN, "", "%s makes no sense and is removed: %s", path_of(w), error.text);
}

static void plans_observed(void *arg, const struct coordinator_reply *reply)
{
    struct controller_driver *d = arg;
    take(d, &d->plans, reply);
}

static void elections_observed(void *arg, const struct coordinator_reply *reply)
{
    struct controller_driver *d = arg;
    take(d, &d->elections, reply);
}

static bool observe(struct controller_driver *d, struct controller_wishes *w, coordinator_callback *observed)
{
    if (!w->observation)
        w->observation =
            coordinator_observe(d->s.coordinator, OBSERVE_DATA, path_of(w), 0, d->s.inbox, observed, d);
    return w->observation != NULL;
}

void controller_wishes_start(struct controller_driver *d)
{
    observe(d, &d->plans, plans_observed); /* what fails is tried again by run */
    observe(d, &d->elections, elections_observed);
}

void controller_wishes_stop(struct controller_driver *d)
{
    struct controller_wishes *both[] = {&d->plans, &d->elections};
    for (int i = 0; i < 2; i++) {
        observation_free(TAKE(both[i]->observation));
        forget(d, both[i]);
        both[i]->is_busy = false;
    }
}

/* ---- writes of the nodes ---------------------------------------------------------------------------- */

struct taking {
    struct controller_driver *driver;
    struct controller_wishes *wishes;
    uint64_t term;
    struct topic_id topic_id;
    size_t node_op; /* of the topic's node; 0: none is written */
    bool has_throttle; /* and the throttle with it */
    char topic[];
};

static void note_assigned(struct controller_driver *d, const struct taking *t, const struct coordinator_reply *reply)
{
    struct image_topic *topic = t->node_op ? image_find(d->s.image, t->topic) : NULL;
    if (!topic || !topic_id_equal(&topic->node.topic_id, &t->topic_id))
        return;
    topic->is_assigning = false;
    if (!reply->err)
        topic->assigned_version = reply->op_stats[t->node_op].version;
}

/* In any case the node is read again: what is there decides. */
static void taken(void *arg, const struct coordinator_reply *reply)
{
    AUTO_FREE struct taking *t = arg;
    struct controller_driver *d = t->driver;
    note_assigned(d, t, reply);
    if (!d->is_active || t->term != d->term)
        return;
    t->wishes->is_busy = false;
    forget(d, t->wishes);
    if (reply->err == -BROOK_E_BAD_VERSION && reply->failed_op == 0) {
        d->s.outdated(d->s.arg);
        return;
    }
    if (reply->err)
        controller_back_off(d);
    if (reply->err && t->node_op)
        state_reader_read_topic(d->s.reader, t->topic);
    if (t->has_throttle)
        quota_look(d->s.quota);
    observation_poke(t->wishes->observation);
}

static struct coordinator_multi *fenced(const struct controller_driver *d)
{
    struct coordinator_multi *multi = coordinator_multi_new();
    if (multi)
        coordinator_multi_check(multi, PATH_CONTROLLER_EPOCH, d->epoch_version);
    return multi;
}

/* Takes *multi. */
static void send(struct controller_driver *d, struct controller_wishes *w, struct coordinator_multi **multi,
                 const struct image_topic *topic, size_t node_op, bool has_throttle)
{
    size_t bytes = topic ? strlen(topic->name) + 1 : 1;
    struct taking *t = calloc(1, sizeof *t + bytes);
    if (!t) {
        coordinator_multi_free(TAKE(*multi));
        return;
    }
    t->driver = d;
    t->wishes = w;
    t->term = d->term;
    t->node_op = node_op;
    t->has_throttle = has_throttle;
    if (topic) {
        t->topic_id = topic->node.topic_id;
        memcpy(t->topic, topic->name, bytes);
    }
    w->is_busy = true;
    coordinator_multi_send(d->s.coordinator, multi,
                           (struct coordinator_call){.inbox = d->s.inbox,
                                                     .callback = taken,
                                                     .arg = t,
                                                     .urgent = true,
                                                     .generation = coordinator_generation(d->s.coordinator)});
}

static void remove_node(struct controller_driver *d, struct controller_wishes *w)
{
    struct coordinator_multi *multi = fenced(d);
    if (!multi)
        return;
    coordinator_multi_delete(multi, path_of(w), w->version);
    send(d, w, &multi, NULL, 0, false);
}

/* ---- the throttle of moves -------------------------------------------------------------------------- */

/* It is the controller's alone to write, so that it comes and goes with the moves. */
static int add_throttle(struct controller_driver *d, struct coordinator_multi *multi)
{
    int32_t version = quota_throttle_version(d->s.quota);
    int64_t bytes = d->plans.wishes.throttle;
    AUTO_FREE char *text = znode_encode_throttle(bytes);
    if (!text)
        return -BROOK_E_NOMEM;
    if (bytes && version < 0)
        coordinator_multi_create(multi, PATH_REASSIGN_THROTTLE, text, strlen(text), ZNODE_PERSISTENT);
    else if (bytes)
        coordinator_multi_set(multi, PATH_REASSIGN_THROTTLE, text, strlen(text), version);
    else if (version >= 0)
        coordinator_multi_delete(multi, PATH_REASSIGN_THROTTLE, version);
    return 0;
}

/* Or is about to be: the image may be behind what this controller has written. */
static bool is_anything_moved(const struct controller_driver *d)
{
    for (size_t i = 0; i < image_topics_count(d->s.image); i++) {
        const struct image_topic *topic = image_topic_at(d->s.image, i);
        if (topic->node.moves_count || topic->is_assigning || topic->node_version < topic->assigned_version)
            return true;
    }
    return false;
}

struct throttle_end {
    struct controller_driver *driver;
    uint64_t term;
};

static void throttle_ended(void *arg, const struct coordinator_reply *reply)
{
    AUTO_FREE struct throttle_end *end = arg;
    struct controller_driver *d = end->driver;
    if (end->term != d->term)
        return;
    d->is_ending_throttle = false;
    d->throttle_ms = clock_boot_ms() + THROTTLE_AGAIN_MS;
    quota_look(d->s.quota);
    if (!reply->err)
        diag_log(d->s.diag, DIAG_INFO, "", "nothing is being moved any more: the throttle of moves has ended");
    else if (reply->err == -BROOK_E_BAD_VERSION && reply->failed_op == 0)
        d->s.outdated(d->s.arg);
}

/* With the last move. Returns when to look again. */
static int64_t end_throttle(struct controller_driver *d, int64_t now_ms)
{
    int32_t version = quota_throttle_version(d->s.quota);
    if (version < 0 || d->is_ending_throttle || d->plans.version >= 0 || d->plans.is_busy || is_anything_moved(d))
        return INT64_MAX;
    if (now_ms < d->throttle_ms)
        return d->throttle_ms;
    struct throttle_end *end = malloc(sizeof *end);
    struct coordinator_multi *multi = end ? fenced(d) : NULL;
    if (!multi) {
        free(end);
        return now_ms + THROTTLE_AGAIN_MS;
    }
    *end = (struct throttle_end){d, d->term};
    d->is_ending_throttle = true;
    coordinator_multi_delete(multi, PATH_REASSIGN_THROTTLE, version);
    coordinator_multi_send(d->s.coordinator, &multi,
                           (struct coordinator_call){.inbox = d->s.inbox,
                                                     .callback = throttle_ended,
                                                     .arg = end,
                                                     .generation = coordinator_generation(d->s.coordinator)});
    return INT64_MAX;
}

/* A plan that names no partition is for the throttle of what runs already. */
static void take_throttle(struct controller_driver *d)
{
    struct controller_wishes *w = &d->plans;
    struct coordinator_multi *multi = fenced(d);
    if (!multi)
        return;
    bool is_for_something = is_anything_moved(d) || !w->wishes.throttle;
    if (is_for_something && add_throttle(d, multi)) {
        coordinator_multi_free(multi);
        return;
    }
    if (!is_for_something)
        diag_log(d->s.diag, DIAG_WARN, "", "a throttle without moves is dropped: it lasts as long as they do");
    coordinator_multi_delete(multi, PATH_REASSIGN, w->version);
    send(d, w, &multi, NULL, 0, true);
}

/* ---- plans ------------------------------------------------------------------------------------------ */

static void say_refused(const struct controller_driver *d, const struct znode_wish *wish, const char *why)
{
    diag_log(d->s.diag, DIAG_WARN, "", "reassignment of %s/%" PRId32 " is refused: %s", wish->topic,
             wish->partition, why);
}

/* Whoever holds the partition already may be away; others have to be there. */
static bool all_known(const struct controller_driver *d, const struct reassignment *now,
                      const struct reassignment_list *target, struct brook_error *error)
{
    struct znode_replicas replicas = {(int32_t *)(uintptr_t)now->replicas.brokers, now->replicas.count};
    for (int32_t i = 0; i < target->count; i++)
        if (!controller_is_assigned(&replicas, target->brokers[i]) &&
            !controller_find_broker(image_alive(d->s.image), target->brokers[i])) {
            brook_error_set(error, BROOK_E_BROKER_NOT_AVAILABLE, "broker %" PRId32 " is not alive",
                            target->brokers[i]);
            return false;
        }
    return true;
}

static int apply(const struct controller_driver *d, const struct znode_wish *wish, struct reassignment *move,
                 struct brook_error *error)
{
    struct reassignment next;
    int err;
    if (wish->replicas.count) {
        struct reassignment_list target = {.count = wish->replicas.count};
        memcpy(target.brokers, wish->replicas.brokers, (size_t)target.count * sizeof(int32_t));
        if (!all_known(d, move, &target, error))
            return -error->code;
        err = reassignment_begin(move, &target, &next, error);
    } else {
        err = reassignment_cancel(move, &next);
        if (err)
            brook_error_set(error, -err, "%s", brook_error_text(err));
    }
    if (!err)
        *move = next;
    return err;
}

/* Moves of one topic as they are to be, by partition. */
struct moved {
    int32_t *numbers;
    struct reassignment *moves;
    size_t count;
};

static void moved_done(struct moved *m)
{
    free(m->numbers);
    free(m->moves);
}
#define AUTO_MOVED __attribute__((cleanup(moved_done)))

/* The place of the partition's move; made from the topic's node if it has none yet. */
static struct reassignment *find_move(struct moved *m, const struct image_topic *topic, int32_t number)
{
    size_t at = 0;
    while (at < m->count && m->numbers[at] < number)
        at++;
    if (at < m->count && m->numbers[at] == number)
        return &m->moves[at];
    memmove(m->numbers + at + 1, m->numbers + at, (m->count - at) * sizeof *m->numbers);
    memmove(m->moves + at + 1, m->moves + at, (m->count - at) * sizeof *m->moves);
    m->count++;
    m->numbers[at] = number;
    controller_move_of(&topic->node, number, &m->moves[at]);
    return &m->moves[at];
}

/* All wishes for the topic, later ones over earlier ones. `rest` gets those for other topics (borrowed). */
static int sort_out(struct controller_driver *d, const struct image_topic *topic, const char *name,
                    struct moved *moved, struct znode_wishes *rest)
{
    const struct znode_wishes *all = &d->plans.wishes;
    struct brook_error error;
    moved->numbers = malloc((all->count + 1) * sizeof *moved->numbers);
    moved->moves = malloc((all->count + 1) * sizeof *moved->moves);
    rest->list = malloc((all->count + 1) * sizeof *rest->list);
    if (!moved->numbers || !moved->moves || !rest->list)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < all->count; i++) {
        const struct znode_wish *wish = &all->list[i];
        struct image_topic *unused;
        if (strcmp(wish->topic, name) != 0)
            rest->list[rest->count++] = *wish;
        else if (!topic || !wished(d, wish, &unused))
            say_refused(d, wish, "there is no such partition");
        else if (apply(d, wish, find_move(moved, topic, wish->partition), &error))
            say_refused(d, wish, error.text);
    }
    return 0;
}

static int add_rest(struct controller_driver *d, struct coordinator_multi *multi, const struct znode_wishes *rest)
{
    if (!rest->count) {
        coordinator_multi_delete(multi, PATH_REASSIGN, d->plans.version);
        return 0;
    }
    AUTO_FREE char *text = znode_encode_wishes(rest, ZNODE_WISH_REASSIGN);
    if (!text)
        return -BROOK_E_NOMEM;
    coordinator_multi_set(multi, PATH_REASSIGN, text, strlen(text), d->plans.version);
    return 0;
}

/* Returns the op of the topic's node, 0 when there is none to write, or an error. */
static int add_node(struct controller_driver *d, struct coordinator_multi *multi, struct image_topic *topic,
                    const struct moved *moved)
{
    struct path path;
    if (!moved->count)
        return 0;
    AUTO_FREE char *text = controller_encode_moved(&topic->node, moved->numbers, moved->moves, moved->count);
    if (!text)
        return -BROOK_E_NOMEM;
    if (strlen(text) > NODE_BYTES_MAX) {
        diag_log(d->s.diag, DIAG_WARN, "",
                 "the plan for topic %s is dropped: its node would be too large; move fewer partitions at a time",
                 topic->name);
        return 0;
    }
    struct znode_change change = {.assigned = &topic->name, .assigned_count = 1};
    coordinator_multi_set(multi, path_topic(&path, topic->name), text, strlen(text), topic->node_version);
    int op = (int)coordinator_multi_count(multi) - 1;
    return changes_announce(multi, &change) ? -BROOK_E_NOMEM : op;
}

/* The first topic that the plan names. */
static void take_over(struct controller_driver *d)
{
    const char *name = d->plans.wishes.list[0].topic;
    struct image_topic *topic = image_find(d->s.image, name);
    AUTO_MOVED struct moved moved = {0};
    struct znode_wishes rest = {0};
    if (topic && (topic->is_assigning || topic->node_version < topic->assigned_version))
        return;
    struct coordinator_multi *multi = fenced(d);
    int op = -BROOK_E_NOMEM;
    bool has_throttle = d->plans.wishes.has_throttle;
    if (multi && !sort_out(d, topic, name, &moved, &rest)) {
        /* It goes with the first topic that is moved. */
        rest.has_throttle = has_throttle && !moved.count && rest.count;
        rest.throttle = d->plans.wishes.throttle;
        has_throttle = has_throttle && moved.count;
        if (!add_rest(d, multi, &rest) && !(has_throttle && add_throttle(d, multi)))
            op = add_node(d, multi, topic, &moved);
    }
    free(rest.list);
    if (op < 0) {
        coordinator_multi_free(multi);
        return;
    }
    if (op > 0) {
        topic->is_assigning = true;
        diag_log(d->s.diag, DIAG_INFO, "", "topic %s: %zu partitions are moved as asked for", name, moved.count);
    }
    send(d, &d->plans, &multi, topic, (size_t)op, has_throttle);
}

/* ---- elections -------------------------------------------------------------------------------------- */

static bool any_alive(const struct controller_driver *d, const struct znode_replicas *replicas)
{
    for (int32_t i = 0; i < replicas->count; i++)
        if (controller_find_broker(image_alive(d->s.image), replicas->brokers[i]))
            return true;
    return false;
}

/* Whether something can still come of it. */
static bool is_outstanding(const struct controller_driver *d, const struct znode_wish *wish)
{
    struct image_topic *topic;
    struct znode_state unused;
    struct controller_look look;
    const struct image_partition *p = wished(d, wish, &topic);
    if (!p)
        return false;
    if (p->is_busy)
        return true;
    if (wish->unclean)
        return p->leader < 0 && any_alive(d, &topic->node.replicas[wish->partition]);
    controller_look_at(d, topic, wish->partition, &look);
    return controller_prefer(&look.partition, &unused);
}

static bool all_held(struct controller_driver *d)
{
    for (size_t i = 0; i < d->elections.wishes.count; i++)
        if (is_outstanding(d, &d->elections.wishes.list[i]))
            return false;
    return true;
}

static void hold_elections(struct controller_driver *d, int64_t now_ms)
{
    struct controller_wishes *w = &d->elections;
    if (!w->is_marked) {
        mark(d, w, true);
        d->all_is_due = true;
        return;
    }
    bool is_settled = !d->all_is_due && !d->in_flight;
    if ((is_settled && all_held(d)) || now_ms >= w->until_ms)
        remove_node(d, w);
}

int64_t controller_wishes_run(struct controller_driver *d, int64_t now_ms)
{
    if (!observe(d, &d->plans, plans_observed) || !observe(d, &d->elections, elections_observed))
        return now_ms + OBSERVE_AGAIN_MS;
    bool has_plan = d->plans.version >= 0, has_elections = d->elections.version >= 0;
    if (!state_reader_is_idle(d->s.reader))
        return INT64_MAX;
    if (!has_plan && !has_elections)
        return end_throttle(d, now_ms);
    if (now_ms < d->not_before_ms)
        return d->not_before_ms;
    if (has_plan && !d->plans.is_busy) {
        if (d->plans.is_senseless || (!d->plans.wishes.count && !d->plans.wishes.has_throttle))
            remove_node(d, &d->plans);
        else if (d->plans.wishes.has_throttle && quota_throttle_version(d->s.quota) == QUOTA_NOT_READ)
            return now_ms + LOOK_MS;
        else if (!d->plans.wishes.count)
            take_throttle(d);
        else
            take_over(d);
    }
    if (has_elections && !d->elections.is_busy) {
        if (d->elections.is_senseless)
            remove_node(d, &d->elections);
        else
            hold_elections(d, now_ms);
    }
    return now_ms + LOOK_MS;
}
