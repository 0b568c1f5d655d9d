/* Roles: hosting's part in replication. What a partition's state asks for is replica's to decide and to carry out; here the
 * fetchers are told, and people.
 */
#include "broker/cluster/hosting_internal.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_SOON_MS 20

static void tell_role(const struct hosted *h, int32_t epoch, const char *what, int32_t broker_id)
{
    char subject[HOSTED_SUBJECT_BYTES];
    int64_t end = log_end_offset(partition_log(h->partition));
    hosted_subject(h, epoch, subject);
    if (broker_id >= 0)
        diag_log(h->hosting->diag, DIAG_INFO, subject, "%s broker %" PRId32 " from offset %" PRId64, what, broker_id,
                 end);
    else
        diag_log(h->hosting->diag, DIAG_INFO, subject, "%s from offset %" PRId64, what, end);
}

static void ended_leading(struct hosted *h, const char *why)
{
    char subject[HOSTED_SUBJECT_BYTES];
    if (h->led_epoch >= 0)
        diag_log(h->hosting->diag, DIAG_INFO, hosted_subject(h, h->led_epoch, subject), "stopped leading: %s", why);
    h->led_epoch = -1;
}

static void stop_fetching(struct hosted *h)
{
    h->is_role_due = false;
    if (h->followed < 0)
        return;
    h->followed = -1;
    if (h->hosting->fetchers) /* none are left when all is closed */
        fetchers_stop(h->hosting->fetchers, h->replica);
}

void hosted_resign(struct hosted *h, const char *why)
{
    stop_fetching(h);
    replica_resign(h->replica);
    ended_leading(h, why);
}

/* ---- following ---------------------------------------------------------------------------------------- */

static const struct image_broker *find_broker(const struct image *image, int32_t broker_id)
{
    size_t count;
    const struct image_broker *brokers = image_brokers(image, &count);
    for (size_t i = 0; i < count; i++)
        if (brokers[i].broker_id == broker_id)
            return &brokers[i];
    return NULL;
}

/* What could not be done now is tried again, a little later. */
static void try_again(struct hosted *h)
{
    h->is_role_due = h->hosting->has_roles_due = true;
}

/* The leader may not be registered at this moment: its address comes with it. */
static void start_fetching(struct hosted *h, const struct image *image, int32_t leader, int32_t leader_epoch)
{
    struct hosting *hosting = h->hosting;
    const struct image_broker *broker = find_broker(image, leader);
    if (!broker)
        return try_again(h);
    struct fetcher_leader at = {leader, broker->node.host, (uint16_t)broker->node.port};
    if (fetchers_follow(hosting->fetchers, h->replica, &at, leader_epoch, hosting->broker_epoch) < 0)
        return try_again(h);
    h->is_role_due = false;
    h->followed = leader;
    h->followed_as = hosting->broker_epoch;
}

/* ---- what the state asks for -------------------------------------------------------------------------- */

static void take_brokers(struct hosted *h, const struct image *image, const struct znode_replicas *replicas)
{
    for (int32_t i = 0; i < replicas->count; i++) {
        const struct image_broker *broker = find_broker(image, replicas->brokers[i]);
        replica_take_broker(h->replica, replicas->brokers[i], broker ? broker->node.broker_epoch : -1,
                            broker && (broker->node.draining ||
                                       image_is_offline(image, replicas->brokers[i], h->topic, h->number)));
    }
}

/* Nobody else has what an earlier life of this broker may have held. */
static void tell_if_begun_anew(struct hosted *h, const struct image_partition *p)
{
    char subject[HOSTED_SUBJECT_BYTES];
    if (h->is_made && h->led_epoch > 0 && p->isr_count == 1)
        diag_log(h->hosting->diag, DIAG_WARN, hosted_subject(h, h->led_epoch, subject),
                 "an earlier life of this broker was the only replica in sync, and its log is not here: it begins anew at "
                 "offset 0, and records that there were are lost");
    h->is_made = false;
}

static void change(struct hosted *h, const struct image_topic *topic, const struct replica_step *step)
{
    struct partition_marks marks;
    partition_marks(h->partition, &marks);
    if (step->duty != REPLICA_LEAD)
        ended_leading(h, "ZooKeeper names another leader, or none");
    if (step->duty != REPLICA_FOLLOW)
        stop_fetching(h);
    if (step->duty == REPLICA_LEAD && marks.is_leader) {
        h->epoch_before = h->led_epoch = step->leader_epoch;
        tell_role(h, step->leader_epoch, "leading", -1);
        tell_if_begun_anew(h, &topic->partitions[h->number]);
    } else if (step->duty == REPLICA_FOLLOW && marks.is_follower) {
        h->is_made = false;
        tell_role(h, step->leader_epoch, "following", step->leader);
        start_fetching(h, topic->image, step->leader, step->leader_epoch);
    } else if (step->duty == REPLICA_LEAD || step->duty == REPLICA_FOLLOW) {
        try_again(h);
    }
}

static bool is_in_sync(const struct hosting *hosting, const struct znode_state *state)
{
    for (int32_t i = 0; i < state->isr_count; i++)
        if (state->isr[i] == hosting->broker_id)
            return true;
    return false;
}

/* Said once for each version of the state: it is looked at again and again. */
static void refuse(struct hosted *h, const struct znode_state *state, int32_t version)
{
    if (h->refused_version == version)
        return;
    h->refused_version = version;
    char subject[HOSTED_SUBJECT_BYTES];
    diag_log(h->hosting->diag, DIAG_WARN, hosted_subject(h, state->leader_epoch, subject),
             "the state in ZooKeeper is older than what this broker or its log has seen: not followed");
}

static void look(struct hosted *h)
{
    if (h->hosting->events.look)
        h->hosting->events.look(h->hosting->events.arg, h->topic, h->number, h->replica);
}

void hosted_follow_role(struct hosted *h, const struct image_topic *topic)
{
    struct hosting *hosting = h->hosting;
    const struct image_partition *p = &topic->partitions[h->number];
    struct znode_state state;
    struct replica_step step;
    if (!image_partition_state(p, &state))
        return hosted_resign(h, "the partition has no state");
    bool is_barred = state.leader == hosting->broker_id && state.leader_epoch <= h->barred_epoch;
    if (is_barred)
        return hosted_resign(h, "records of this epoch were lost here");
    const struct replica_news news = {.state = &state,
                                      .version = p->version,
                                      .replicas = &topic->node.replicas[h->number],
                                      .broker_epoch = hosting->broker_epoch,
                                      .is_assigned = true,
                                      .is_again = h->epoch_before >= state.leader_epoch,
                                      .min_in_sync = topic->config.min_insync_replicas,
                                      .now_ms = clock_boot_ms()};
    replica_set_counts_by_disk(h->replica, topic->is_made_fsync);
    const struct znode_move *move = znode_topic_move(&topic->node, h->number);
    replica_set_catching_up(h->replica, !is_in_sync(hosting, &state),
                            move && controller_is_assigned(&move->adding, hosting->broker_id));
    enum replica_verdict verdict = replica_take_news(h->replica, &news, &step);
    if (verdict == REPLICA_REFUSE)
        return refuse(h, &state, p->version);
    if (verdict == REPLICA_CHANGE)
        change(h, topic, &step);
    else if (step.duty == REPLICA_FOLLOW && (h->is_role_due || h->followed_as != hosting->broker_epoch))
        start_fetching(h, topic->image, step.leader, step.leader_epoch);
    if (step.duty == REPLICA_LEAD) {
        hosted_heed_epoch(h);
        take_brokers(h, topic->image, news.replicas);
        look(h);
    }
}

/* The topic in the image that the partition is of, if it is open and wanted. */
static const struct image_topic *topic_of(const struct hosted *h, const struct image *image)
{
    if (h->status != HOSTED_OPEN || h->is_unwanted)
        return NULL;
    const struct image_topic *topic = image_find(image, h->topic);
    bool is_it = topic && topic_id_equal(&topic->node.topic_id, &h->topic_id) &&
                 h->number < topic->node.partitions_count;
    return is_it ? topic : NULL;
}

static void follow_roles(struct hosting *hosting, const struct image *image, bool only_due)
{
    if (hosting->is_closing)
        return;
    hosting->has_roles_due = false;
    for (struct hosted *h = hosting->table; h; h = h->hh.next) {
        bool has_role = h->led_epoch >= 0 || h->followed >= 0;
        const struct image_topic *topic = h->is_role_due || (has_role && !only_due) ? topic_of(h, image) : NULL;
        if (topic)
            hosted_follow_role(h, topic);
    }
}

void hosting_take_brokers(struct hosting *hosting, const struct image *image)
{
    follow_roles(hosting, image, false);
}

int64_t hosting_retry_roles(struct hosting *hosting, const struct image *image, int64_t now_ms)
{
    if (!hosting->has_roles_due)
        return INT64_MAX;
    if (now_ms < hosting->next_roles_ms)
        return hosting->next_roles_ms;
    hosting->next_roles_ms = now_ms + HOSTING_ROLES_MS;
    follow_roles(hosting, image, true);
    return hosting->has_roles_due ? hosting->next_roles_ms : INT64_MAX;
}

/* ---- the in-sync replicas ------------------------------------------------------------------------------- */

static void on_wants_look(void *arg, struct replica *replica)
{
    struct hosting *hosting = arg;
    struct partition *p = replica_partition(replica);
    if (hosting->events.look)
        hosting->events.look(hosting->events.arg, partition_topic(p), partition_number(p), replica);
}

int64_t hosting_check_lag(struct hosting *hosting, int64_t now_ms)
{
    if (now_ms < hosting->next_lag_ms)
        return hosting->next_lag_ms;
    int64_t every_ms = hosting->replica.lag_ms_max / 4;
    hosting->next_lag_ms = now_ms + (every_ms < 50 ? 50 : every_ms > 1000 ? 1000 : every_ms);
    for (struct hosted *h = hosting->table; h; h = h->hh.next)
        if (h->status == HOSTED_OPEN && h->led_epoch >= 0)
            look(h);
    return hosting->next_lag_ms;
}

void hosting_look_soon(struct hosting *hosting, int64_t now_ms)
{
    if (now_ms + LOOK_SOON_MS < hosting->next_lag_ms)
        hosting->next_lag_ms = now_ms + LOOK_SOON_MS;
}

void hosting_set_quota(struct hosting *hosting, int64_t bytes_per_s, int64_t moved_bytes_per_s)
{
    if (hosting->fetchers)
        fetchers_set_quota(hosting->fetchers, bytes_per_s, moved_bytes_per_s);
}

/* ---- cuts ------------------------------------------------------------------------------------------------- */

typedef int keep_offsets(struct data_dir *dir, const struct data_dir_start *list, size_t count);

/* All of the list that lie in that directory, whose lock is held. `list` is room for them. */
static int keep_in(struct host_dir *dir, keep_offsets *keep, struct data_dir_start *list,
                   struct partition *const *partitions, const int64_t *offsets, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (partition_owner(partitions[i]) == dir)
            list[n++] =
                (struct data_dir_start){partition_topic(partitions[i]), partition_number(partitions[i]), offsets[i]};
    return n ? keep(dir->dir, list, n) : 0;
}

static bool has_any(struct host_dir *dir, struct partition *const *partitions, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (partition_owner(partitions[i]) == dir)
            return true;
    return false;
}

static void unlock_dirs(struct hosting *hosting, size_t dirs_count, struct partition *const *partitions, size_t count)
{
    for (size_t i = 0; i < dirs_count; i++)
        if (has_any(&hosting->dirs[i], partitions, count))
            pthread_mutex_unlock(&hosting->dirs[i].lock);
}

/* Nobody writes a checkpoint of these directories meanwhile. They are locked in their order. */
static int begin_cuts(void *arg, struct partition *const *partitions, const int64_t *offsets, size_t count)
{
    struct hosting *hosting = arg;
    AUTO_FREE struct data_dir_start *list = calloc(count, sizeof *list);
    int err = list ? 0 : -BROOK_E_NOMEM;
    size_t at = 0;
    for (; at < hosting->dirs_count && !err; at++) {
        struct host_dir *dir = &hosting->dirs[at];
        if (!has_any(dir, partitions, count))
            continue;
        pthread_mutex_lock(&dir->lock);
        err = keep_in(dir, data_dir_lower_recovery_points, list, partitions, offsets, count);
    }
    if (err)
        unlock_dirs(hosting, at, partitions, count);
    return err;
}

static void end_cuts(void *arg, struct partition *const *partitions, size_t count)
{
    struct hosting *hosting = arg;
    unlock_dirs(hosting, hosting->dirs_count, partitions, count);
}

static int keep_starts_in(struct host_dir *dir, struct data_dir_start *list, struct partition *const *partitions,
                          const int64_t *starts, size_t count)
{
    if (!has_any(dir, partitions, count))
        return 0;
    pthread_mutex_lock(&dir->lock);
    int err = keep_in(dir, data_dir_raise_starts, list, partitions, starts, count);
    pthread_mutex_unlock(&dir->lock);
    return err;
}

static int keep_starts(void *arg, struct partition *const *partitions, const int64_t *starts, size_t count)
{
    struct hosting *hosting = arg;
    AUTO_FREE struct data_dir_start *list = calloc(count, sizeof *list);
    int err = list ? 0 : -BROOK_E_NOMEM;
    for (size_t i = 0; i < hosting->dirs_count && !err; i++)
        err = keep_starts_in(&hosting->dirs[i], list, partitions, starts, count);
    return err;
}

int hosting_start_replication(struct hosting *hosting, const struct hosting_settings *settings)
{
    const struct hosting_replication *r = &settings->replication;
    hosting->replica = (struct replica_settings){.broker_id = settings->broker_id,
                                                 .lag_ms_max = r->lag_ms_max,
                                                 .inbox = hosting->inbox,
                                                 .wants_look = on_wants_look,
                                                 .arg = hosting};
    const struct fetcher_settings fetchers = {.broker_id = settings->broker_id,
                                              .threads = r->fetchers < 1 ? 1 : r->fetchers,
                                              .bytes_max = r->fetch_bytes_max,
                                              .partition_bytes_max = r->fetch_partition_bytes,
                                              .wait_ms_max = r->fetch_wait_ms_max,
                                              .request_timeout_ms = r->fetch_timeout_ms,
                                              .frame_bytes_max = r->frame_bytes_max,
                                              .software = r->software,
                                              .diag = settings->diag,
                                              .begin_cuts = begin_cuts,
                                              .end_cuts = end_cuts,
                                              .keep_starts = keep_starts,
                                              .keep_reached = hosting_keep_reached,
                                              .arg = hosting};
    return fetchers_new(&fetchers, &hosting->fetchers);
}
