/* The cluster thread's turn: from what was read to partitions, states and views. */
#include "broker/cluster/cluster_internal.h"
#include "broker/cluster/isr_writer.h"
#include "broker/cluster/leaderless.h"
#include "broker/cluster/quota.h"
#include "broker/partition/partition.h"
#include "coordination/changes.h"
#include "coordination/tombstones.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---------------------------------------------------------------------------------------- */

void cluster_read_all(struct cluster *c)
{
    c->compare_is_due = true;
    c->reread_ms = clock_boot_ms() + CLUSTER_REREAD_MS;
    state_reader_read_all(c->reader);
}

static void reader_settled(void *arg, int err)
{
    struct cluster *c = arg;
    if (err) {
        c->reread_ms = clock_boot_ms() + CLUSTER_RETRY_MS;
        return;
    }
    if (!state_reader_is_complete(c->reader))
        return;
    if (c->topics_are_due && c->topics_watch)
        observation_poke(c->topics_watch);
    c->topics_are_due = false;
}

/* Leaders and followers change over as their state is read: what else was announced may be thousands of states. */
static void state_was_read(void *arg, struct image_topic *topic, int32_t number)
{
    struct cluster *c = arg;
    hosting_follow_one(c->hosting, topic, number);
    c->view_is_due = true;
}

/* Nobody has announced it, so that only whoever came across it knows. Not in a full read, which others make, too. */
static void announce_odd(struct cluster *c, const struct unreadable_node *node)
{
    if (!node || !node->topic || state_reader_is_reading_all(c->reader) || !c->is_registered)
        return;
    int32_t number = node->partition;
    struct znode_change_partitions one = {.topic = node->topic, .partitions = &number, .partitions_count = 1};
    struct znode_change change = {.states = &one, .states_count = number >= 0, .topics = (char **)(uintptr_t)&node->topic,
                                  .topics_count = number < 0};
    struct coordinator_multi *multi = coordinator_multi_new();
    if (!multi || changes_announce(multi, &change)) {
        coordinator_multi_free(multi);
        return;
    }
    coordinator_multi_send(c->coordinator, &multi,
                           (struct coordinator_call){.inbox = &c->inbox,
                                                     .generation = coordinator_generation(c->coordinator)});
}

static void reader_met_odd(void *arg, const char *path, const struct brook_error *error)
{
    struct cluster *c = arg;
    c->view_is_due = true;
    diag_log(c->s.diag, DIAG_WARN, "", "%s makes no sense and is passed over, until it is mended: %s", path,
             error->text);
    announce_odd(c, unreadable_find(image_unreadable(c->image), path));
}

/* A leader met it: read by the reader, which remembers such nodes. */
static void leader_met_odd(void *arg, const char *topic, int32_t number)
{
    struct cluster *c = arg;
    const struct image_topic *found = image_find(c->image, topic);
    struct znode_change_partitions one = {
        .topic = (char *)(uintptr_t)topic, .partitions = &number, .partitions_count = 1};
    struct znode_change change = {.states = &one, .states_count = 1};
    if (found && number < found->node.partitions_count && !found->partitions[number].is_unreadable)
        state_reader_read_change(c->reader, &change);
}

static void reader_met_mended(void *arg, const char *path)
{
    struct cluster *c = arg;
    c->view_is_due = true;
    diag_log(c->s.diag, DIAG_INFO, "", "%s: what made no sense there was mended, or is gone", path);
}

static void quota_node_read(void *arg, const char *path, const struct brook_error *error)
{
    struct cluster *c = arg;
    struct unreadable *all = image_unreadable(c->image);
    if (error && unreadable_put(all, path, NULL, -1, error->text))
        reader_met_odd(c, path, error);
    else if (!error && unreadable_clear(all, path))
        reader_met_mended(c, path);
}

static void controller_outdated(void *arg)
{
    struct cluster *c = arg;
    diag_log(c->s.diag, DIAG_INFO, "", "a write as controller was refused: another one was elected");
    controller_seat_outdated(c->seat);
}

/* A leader read the state of its partition; also when it is as known, it is an answer to a question. */
static void state_news(void *arg, const char *topic, const struct topic_id *topic_id, int32_t number,
                       const struct znode_state *state, int32_t version)
{
    struct cluster *c = arg;
    struct image_topic *found = image_find(c->image, topic);
    if (!found || !topic_id_equal(&found->node.topic_id, topic_id) || number >= found->node.partitions_count ||
        version < found->partitions[number].version || image_set_state(found, number, state, version))
        return;
    hosting_follow_one(c->hosting, found, number);
    image_mark(found);
}

int cluster_turn_new(struct cluster *c)
{
    int err = image_new(&c->s.topic_defaults, &c->image);
    if (err)
        return err;
    struct state_reader_events reader_events = {reader_settled, state_was_read, reader_met_odd, reader_met_mended, c};
    err = state_reader_new(c->coordinator, &c->inbox, c->image, &reader_events, &c->reader);
    if (!err)
        err = quota_new(c->s.replication_quota_bytes, c->s.diag, quota_node_read, c, &c->quota);
    if (err)
        return err;
    struct controller_driver_settings controller = {
        .coordinator = c->coordinator,
        .inbox = &c->inbox,
        .image = c->image,
        .reader = c->reader,
        .quota = c->quota,
        .diag = c->s.diag,
        .rebalance_leaders = c->s.rebalance_leaders,
        .rebalance_interval_ms = c->s.rebalance_interval_ms,
        .absent_wait_ms = c->s.absent_wait_ms,
        .outdated = controller_outdated,
        .arg = c,
    };
    struct intents_settings intents = {
        .coordinator = c->coordinator,
        .inbox = &c->inbox,
        .image = c->image,
        .reader = c->reader,
        .defaults = &c->s.topic_defaults,
        .partitions_default = c->s.partitions_default,
        .replicas_default = c->s.replicas_default,
        .replicas_max = c->s.replicas_max,
    };
    struct isr_writer_settings isr = {
        .coordinator = c->coordinator,
        .inbox = &c->inbox,
        .image = c->image,
        .broker_id = c->s.broker_id,
        .diag = c->s.diag,
        .news = state_news,
        .odd = leader_met_odd,
        .arg = c,
    };
    struct ends_settings ends = {c->coordinator, &c->inbox, c->image, c->hosting, c->s.broker_id};
    struct petitions_settings petitions = {c->coordinator, &c->inbox, c->image, c->reader, c->s.replicas_max};
    err = controller_driver_new(&controller, &c->controller);
    if (!err)
        err = petitions_new(&petitions, &c->petitions);
    if (!err)
        err = ends_new(&ends, &c->ends);
    if (!err)
        err = isr_writer_new(&isr, &c->isr_writer);
    if (!err)
        err = intents_new(&intents, &c->intents);
    if (!err)
        err = offsets_new(c->coordinator, &c->inbox, &c->offsets);
    if (!err)
        err = producer_ids_new(c->coordinator, &c->inbox, c->s.broker_id, &c->producer_ids);
    if (!err)
        err = served_new(c->coordinator, &c->inbox, c->s.broker_id, c->s.diag, &c->served);
    return err;
}

static void served_may_differ(struct cluster *c, struct image_topic *topic)
{
    topic->is_served_due = true;
    c->served_is_due = true;
}

void cluster_hosting_changed(void *arg, const char *topic, int32_t number)
{
    struct cluster *c = arg;
    struct image_topic *found = image_find(c->image, topic);
    c->view_is_due = true;
    if (!found)
        return;
    hosting_follow_one(c->hosting, found, number);
    image_touch(found);
    ends_consider(c->ends, found);
    served_may_differ(c, found);
}

/* Others are to lead what is offline here. */
void cluster_hosting_offline(void *arg)
{
    struct cluster *c = arg;
    struct znode_change_partitions *list;
    size_t count;
    hosting_take_offline(c->hosting, &list, &count);
    registry_set_offline(c->registry, list, count);
}

void cluster_hosting_look(void *arg, const char *topic, int32_t number, struct replica *replica)
{
    struct cluster *c = arg;
    if (c->is_registered && !c->has_failed)
        isr_writer_look(c->isr_writer, topic, number, replica, clock_boot_ms());
}

/* ---- what changed ----------------------------------------------------------------------------------- */

static void give_up_gone(struct cluster *c)
{
    for (struct image_gone *gone; (gone = image_take_gone(c->image)) != NULL; free(gone)) {
        hosting_unwant(c->hosting, gone->name, &gone->topic_id);
        if (!image_find(c->image, gone->name))
            served_forget(c->served, gone->name);
        c->view_is_due = true;
    }
}

/* Written for people, when the dust has settled. */
static void update_served(struct cluster *c, const struct image_topic *topic)
{
    size_t count = (size_t)topic->node.partitions_count;
    AUTO_FREE int32_t *leads = malloc((count + 1) * sizeof *leads);
    AUTO_FREE int32_t *follows = malloc((count + 1) * sizeof *follows);
    size_t leads_count = 0, follows_count = 0;
    if (!leads || !follows || topic->is_being_deleted)
        return;
    for (int32_t i = 0; i < topic->node.partitions_count; i++) {
        if (hosting_leads(c->hosting, topic, i))
            leads[leads_count++] = i;
        else if (hosting_follows(c->hosting, topic, i))
            follows[follows_count++] = i;
    }
    served_set(c->served, topic->name, leads, leads_count, follows, follows_count);
}

static void update_all_served(struct cluster *c, int64_t now_ms)
{
    if (!c->served_is_due || now_ms < c->served_ms)
        return;
    c->served_ms = now_ms + SERVED_INTERVAL_MS;
    c->served_is_due = false;
    for (size_t i = 0; i < image_topics_count(c->image); i++) {
        struct image_topic *topic = image_topic_at(c->image, i);
        if (topic->is_served_due)
            update_served(c, topic);
        topic->is_served_due = false;
    }
}

/* Half-read topics are left alone until the reader is through: they would look leaderless. */
static void follow_changed(struct cluster *c)
{
    if (!state_reader_is_idle(c->reader))
        return;
    for (struct image_topic *topic; (topic = image_take_changed(c->image)) != NULL;) {
        hosting_follow(c->hosting, topic);
        controller_driver_consider(c->controller, topic);
        ends_consider(c->ends, topic);
        served_may_differ(c, topic);
        c->view_is_due = true;
    }
    if (c->compare_is_due && c->is_registered && state_reader_is_complete(c->reader)) {
        c->compare_is_due = false;
        hosting_compare(c->hosting, c->image);
    }
}

/* ---- giving up directories -------------------------------------------------------------------------- */

struct tombstone_set {
    const struct topic_id *ids;
    size_t count;
};

static bool is_deleted(void *arg, const struct topic_id *topic_id)
{
    const struct tombstone_set *set = arg;
    for (size_t i = 0; i < set->count; i++)
        if (topic_id_equal(&set->ids[i], topic_id))
            return true;
    return false;
}

static void tombstones_known(void *arg, int err, const struct topic_id *ids, size_t count)
{
    struct cluster *c = arg;
    struct tombstone_set set = {ids, count};
    c->is_reading_tombstones = false;
    c->tombstones_ms = clock_boot_ms() + CLUSTER_TOMBSTONES_MS;
    if (!err && c->is_registered)
        hosting_give_up(c->hosting, is_deleted, &set);
}

static int64_t give_up_unwanted(struct cluster *c, int64_t now_ms)
{
    if (!hosting_has_unwanted(c->hosting) || c->is_reading_tombstones || !c->is_registered ||
        !state_reader_is_complete(c->reader))
        return INT64_MAX;
    if (now_ms < c->tombstones_ms)
        return c->tombstones_ms;
    c->is_reading_tombstones = true;
    tombstones_read(c->coordinator, controller_driver_is_active(c->controller), &c->inbox, tombstones_known,
                    c);
    return INT64_MAX;
}

/* ---- views ------------------------------------------------------------------------------------------ */

struct block_partition {
    struct cluster *cluster;
    const struct image_topic *topic;
    int32_t *offline; /* of ZNODE_REPLICAS_MAX, both to be filled */
    char *why;        /* of LEADERLESS_TEXT_BYTES */
};

static int32_t list_offline(const struct block_partition *at, int32_t number)
{
    const struct image *image = at->topic->image;
    const struct znode_replicas *replicas = &at->topic->node.replicas[number];
    int32_t count = 0;
    for (int32_t i = 0; image_has_offline(image) && i < replicas->count && count < ZNODE_REPLICAS_MAX; i++)
        if (image_is_offline(image, replicas->brokers[i], at->topic->name, number))
            at->offline[count++] = replicas->brokers[i];
    return count;
}

static const char *explain(const struct block_partition *at, int32_t number, int32_t offline_count)
{
    struct znode_state state;
    const struct image_partition *p = &at->topic->partitions[number];
    if (p->leader >= 0)
        return NULL;
    if (p->is_unreadable && p->version < 0)
        return "its state in ZooKeeper makes no sense";
    bool has_state = image_partition_state(p, &state);
    struct controller_case judged = {.replicas = &at->topic->node.replicas[number],
                                     .state = has_state ? &state : NULL,
                                     .alive = image_alive(at->topic->image),
                                     .is_durable = at->topic->is_made_fsync,
                                     .offline = at->offline,
                                     .offline_count = offline_count};
    return leaderless_explain(&judged, at->why);
}

static void fill_partition(const void *arg, int32_t number, struct view_partition *ret)
{
    const struct block_partition *at = arg;
    const struct image_partition *p = &at->topic->partitions[number];
    const struct znode_replicas *replicas = &at->topic->node.replicas[number];
    *ret = (struct view_partition){
        .leader = p->leader,
        .leader_epoch = p->leader_epoch,
        .replicas_count = replicas->count,
        .isr_count = p->isr_count,
        .replicas = replicas->brokers,
        .isr = p->isr,
        .local = hosting_find(at->cluster->hosting, at->topic, number),
        .replica = hosting_find_replica(at->cluster->hosting, at->topic, number),
    };
    ret->offline_count = list_offline(at, number);
    ret->offline = at->offline;
    ret->why_leaderless = explain(at, number, ret->offline_count);
    ret->offline_here = hosting_offline_reason(at->cluster->hosting, at->topic, number);
    const struct znode_move *move = znode_topic_move(&at->topic->node, number);
    if (!move)
        return;
    ret->adding_count = move->adding.count;
    ret->adding = move->adding.brokers;
    ret->removing_count = move->removing.count;
    ret->removing = move->removing.brokers;
    ret->target_count = move->target.count;
    ret->target = move->target.brokers;
}

static struct view_block *make_block(struct cluster *c, const struct image_topic *topic)
{
    int32_t offline[ZNODE_REPLICAS_MAX];
    char why[LEADERLESS_TEXT_BYTES];
    struct block_partition at = {c, topic, offline, why};
    struct view_block_source source = {
        .name = topic->name,
        .topic_id = topic->node.topic_id,
        .config = &topic->config,
        .being_deleted = topic->is_being_deleted,
        .partitions_count = topic->node.partitions_count,
        .partition = fill_partition,
        .arg = &at,
    };
    return view_block_new(&source);
}

static struct view *make_view(struct cluster *c)
{
    size_t brokers_count, topics_count = image_topics_count(c->image);
    const struct image_broker *from = image_brokers(c->image, &brokers_count);
    AUTO_FREE struct view_broker *brokers = calloc(brokers_count + 1, sizeof *brokers);
    AUTO_FREE struct view_block **blocks = calloc(topics_count + 1, sizeof(struct view_block *));
    if (!brokers || !blocks)
        return NULL;
    for (size_t i = 0; i < brokers_count; i++)
        brokers[i] =
            (struct view_broker){from[i].broker_id, from[i].node.host, from[i].node.port, from[i].node.rack};
    for (size_t i = 0; i < topics_count; i++) {
        struct image_topic *topic = image_topic_at(c->image, i);
        if (!topic->block)
            topic->block = make_block(c, topic);
        if (!topic->block)
            return NULL;
        blocks[i] = topic->block;
    }
    const struct unreadable *odd = image_unreadable(c->image);
    size_t odd_count = odd->count < VIEW_UNREADABLE_MAX ? odd->count : VIEW_UNREADABLE_MAX;
    struct view_unreadable shown[VIEW_UNREADABLE_MAX];
    for (size_t i = 0; i < odd_count; i++)
        shown[i] = (struct view_unreadable){odd->list[i].path, odd->list[i].topic, odd->list[i].partition,
                                            odd->list[i].reason};
    struct view_source source = {c->views + 1, c->cluster_id, c->controller_id, brokers, brokers_count,
                                 blocks,       topics_count,  shown,            odd_count};
    return view_new(&source);
}

struct view_post {
    struct inbox_item item;
    struct view *view;
    cluster_view_callback *changed;
    void *arg;
};

static void deliver_view(struct inbox_item *item)
{
    AUTO_FREE struct view_post *post = CONTAINER_OF(item, struct view_post, item);
    post->changed(post->arg, post->view);
}

static void post_view(const struct subscriber *to, struct view *view)
{
    struct view_post *post = malloc(sizeof *post);
    if (!post)
        return; /* the next view makes up for it */
    *post = (struct view_post){
        .item.run = deliver_view, .view = view_ref(view), .changed = to->changed, .arg = to->arg};
    inbox_post(to->inbox, &post->item);
}

/* While something is read all the time, clients still learn of new leaders. */
static int64_t late_view_ms(struct cluster *c, int64_t now_ms)
{
    if (!c->views)
        return INT64_MAX;
    if (!c->late_view_ms)
        c->late_view_ms = now_ms + CLUSTER_VIEW_LATE_MS;
    return c->late_view_ms;
}

/* Not before everything was read once: an empty view would deny topics that exist. Not while stopping: the
 * loops that would take it come to their end. */
static int64_t publish(struct cluster *c, int64_t now_ms)
{
    if (!c->view_is_due || (!c->views && !state_reader_is_complete(c->reader)) || c->is_draining)
        return INT64_MAX;
    if (!state_reader_is_idle(c->reader)) {
        int64_t late_ms = late_view_ms(c, now_ms);
        if (now_ms < late_ms)
            return late_ms;
    }
    if (now_ms < c->view_ms)
        return c->view_ms;
    struct view *view = make_view(c);
    if (!view)
        return now_ms + CLUSTER_RETRY_MS;
    c->view_is_due = false;
    c->late_view_ms = 0;
    /* What is expensive is done less often. */
    int64_t took_ms = clock_boot_ms() - now_ms;
    c->view_ms = now_ms + CLUSTER_VIEW_MS + (took_ms > 0 ? CLUSTER_VIEW_SHARE * took_ms : 0);
    c->views++;
    pthread_mutex_lock(&c->lock);
    struct view *before = c->view;
    c->view = view;
    for (struct subscriber *to = c->subscribers; to; to = to->next)
        post_view(to, view);
    pthread_mutex_unlock(&c->lock);
    view_unref(before);
    return INT64_MAX;
}

int cluster_subscribe(struct cluster *c, struct inbox *inbox, cluster_view_callback *changed, void *arg)
{
    struct subscriber *subscriber = malloc(sizeof *subscriber);
    if (!subscriber)
        return -BROOK_E_NOMEM;
    pthread_mutex_lock(&c->lock);
    *subscriber = (struct subscriber){c->subscribers, inbox, changed, arg};
    c->subscribers = subscriber;
    if (c->view)
        post_view(subscriber, c->view);
    pthread_mutex_unlock(&c->lock);
    return 0;
}

void cluster_drop_views(struct cluster *c)
{
    pthread_mutex_lock(&c->lock);
    struct view *view = TAKE(c->view);
    pthread_mutex_unlock(&c->lock);
    view_unref(view);
    for (size_t i = 0; i < image_topics_count(c->image); i++)
        image_mark(image_topic_at(c->image, i));
}

/* ---- the turn --------------------------------------------------------------------------------------- */

static void judge_readiness(struct cluster *c)
{
    if (c->is_leaving || c->is_draining || c->has_failed)
        return;
    if (!c->is_connected)
        cluster_set_ready(c, c->was_registered ? "the connection to ZooKeeper is lost"
                                               : "waiting for ZooKeeper");
    else if (!c->is_opened)
        cluster_set_ready(c, "opening the logs");
    else if (c->is_foreign)
        cluster_set_ready(c, "ZooKeeper holds another cluster than the one this broker belongs to");
    else if (!c->is_registered)
        cluster_set_ready(c, "not registered in ZooKeeper");
    else if (!c->views || !state_reader_is_complete(c->reader))
        cluster_set_ready(c, "reading the cluster's state");
    else if (c->has_said_ready || !c->view_is_due)
        cluster_say_ready(c);
}

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The last view posted shows the image as it is. */
static bool view_is_current(const struct cluster *c)
{
    return c->views && !c->view_is_due && state_reader_is_idle(c->reader);
}

static int64_t reread(struct cluster *c, int64_t now_ms)
{
    if (!c->is_registered || !c->is_connected)
        return INT64_MAX;
    if (now_ms >= c->reread_ms)
        cluster_read_all(c);
    if (!image_unreadable(c->image)->count)
        c->unreadable_ms = now_ms + CLUSTER_UNREADABLE_MS;
    else if (now_ms >= c->unreadable_ms && state_reader_is_idle(c->reader)) {
        c->unreadable_ms = now_ms + CLUSTER_UNREADABLE_MS;
        state_reader_read_unreadable(c->reader);
    }
    return c->reread_ms < c->unreadable_ms ? c->reread_ms : c->unreadable_ms;
}

/* Who is waited for depends on who lives. */
static void touch_leaderless(struct cluster *c)
{
    for (size_t i = 0; i < image_topics_count(c->image); i++) {
        struct image_topic *topic = image_topic_at(c->image, i);
        bool is_led = true;
        for (int32_t p = 0; p < topic->node.partitions_count && is_led; p++)
            is_led = topic->partitions[p].leader >= 0;
        if (!is_led)
            image_touch(topic);
    }
}

int64_t cluster_turn(struct cluster *c, int64_t now_ms)
{
    int64_t next = INT64_MAX;
    give_up_gone(c);
    hosting_set_quota(c->hosting, quota_bytes(c->quota), quota_throttle(c->quota));
    if (image_take_brokers_changed(c->image)) {
        touch_leaderless(c);
        controller_driver_consider_all(c->controller);
        hosting_take_brokers(c->hosting, c->image);
        c->view_is_due = true;
    }
    follow_changed(c);
    next = sooner(next, hosting_retry_roles(c->hosting, c->image, now_ms));
    if (!c->is_draining && !c->has_failed) {
        next = sooner(next, isr_writer_tick(c->isr_writer, now_ms));
        next = sooner(next, give_up_unwanted(c, now_ms));
        next = sooner(next, controller_driver_run(c->controller, now_ms));
        if (c->is_registered && state_reader_is_idle(c->reader))
            next = sooner(next, ends_tick(c->ends, registry_broker_epoch(c->registry), now_ms));
        update_all_served(c, now_ms);
        next = sooner(next, c->served_is_due ? c->served_ms : INT64_MAX);
        next = sooner(next, served_tick(c->served, now_ms));
        next = sooner(next, reread(c, now_ms));
    }
    next = sooner(next, cluster_leave(c, now_ms));
    next = sooner(next, publish(c, now_ms));
    next = sooner(next, petitions_tick(c->petitions, now_ms, state_reader_is_idle(c->reader)));
    next = sooner(next, intents_tick(c->intents, now_ms, view_is_current(c)));
    if (isr_writer_take_look(c->isr_writer))
        hosting_look_soon(c->hosting, now_ms);
    next = sooner(next, hosting_tick(c->hosting, now_ms));
    next = sooner(next, isr_writer_send(c->isr_writer, now_ms));
    judge_readiness(c);
    return next;
}
