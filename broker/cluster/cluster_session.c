/* The cluster thread and ZooKeeper: sessions, registration, the controller's seat. */
#include "broker/cluster/cluster_internal.h"
#include "coordination/bootstrap.h"
#include "coordination/paths.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- from a session to a registration --------------------------------------------------------------- */

static void start_bootstrap(struct cluster *c);

static void register_broker(struct cluster *c)
{
    bool may = c->is_opened && c->is_connected && !c->is_foreign && !c->is_draining && !c->has_failed;
    if (may && !c->is_registered && registry_broker_epoch(c->registry) < 0)
        registry_register(c->registry, hosting_clean_from(c->hosting), hosting_disk_from(c->hosting));
}

/* The same process never serves two clusters: what is in ZooKeeper now says nothing about our directories. */
static void refuse_cluster(struct cluster *c, const char *cluster_id)
{
    if (!c->is_foreign)
        diag_log(c->s.diag, DIAG_ERROR, "",
                 "ZooKeeper holds cluster %s now, this broker belongs to %s: not registering",
                 cluster_id ? cluster_id : "(no id)", c->cluster_id);
    c->is_foreign = true;
    c->bootstrap_due = true; /* whoever restores the right one finds us here */
}

static void bootstrapped(void *arg, int err, const char *cluster_id)
{
    struct cluster *c = arg;
    c->is_bootstrapping = false;
    if (c->is_draining || c->has_failed)
        return;
    if (err && err != -BROOK_E_NO_NODE) {
        c->bootstrap_due = true;
        return;
    }
    if (!c->cluster_id)
        c->cluster_id = strdup(cluster_id);
    if (!c->cluster_id) {
        c->bootstrap_due = true;
        return;
    }
    if (err || strcmp(c->cluster_id, cluster_id) != 0)
        return refuse_cluster(c, err ? NULL : cluster_id);
    c->is_foreign = false;
    if (!c->is_opening) {
        c->is_opening = true;
        hosting_open(c->hosting, cluster_id);
    }
    register_broker(c);
}

static void start_bootstrap(struct cluster *c)
{
    c->bootstrap_due = false;
    if (c->is_bootstrapping) {
        c->bootstrap_due = true;
        return;
    }
    c->is_bootstrapping = true;
    bootstrap_cluster(c->coordinator, !c->cluster_id, &c->inbox, bootstrapped, c);
}

void cluster_hosting_opened(void *arg, const struct brook_error *error)
{
    struct cluster *c = arg;
    if (error->code)
        return cluster_fail_start(c, error);
    c->is_opened = true;
    cluster_hosting_offline(c); /* so that it is not elected for what it can not lead */
    register_broker(c);
}

/* ---- what is watched -------------------------------------------------------------------------------- */

static void change_announced(void *arg, const struct znode_change *change)
{
    struct cluster *c = arg;
    state_reader_read_change(c->reader, change);
    for (size_t i = 0; i < change->ends_count; i++)
        controller_driver_read_ends(c->controller, change->ends[i]);
}

static void changes_lost(void *arg)
{
    cluster_read_all(arg);
}

static void brokers_observed(void *arg, const struct coordinator_reply *reply)
{
    struct cluster *c = arg;
    state_reader_read_brokers(c->reader);
}

static void deletions_observed(void *arg, const struct coordinator_reply *reply)
{
    struct cluster *c = arg;
    image_set_deleting(c->image, reply->children, reply->err ? 0 : reply->children_count);
    c->view_is_due = true;
}

/* After the registration, so that no read of this session is older than it. */
static int start_watching(struct cluster *c)
{
    struct changes_events events = {change_announced, changes_lost, c};
    c->brokers_watch = coordinator_observe(c->coordinator, OBSERVE_CHILDREN, PATH_BROKER_IDS, 0, &c->inbox,
                                           brokers_observed, c);
    c->deletions_watch = coordinator_observe(c->coordinator, OBSERVE_CHILDREN, PATH_DELETE_TOPICS, 0,
                                             &c->inbox, deletions_observed, c);
    if (!c->brokers_watch || !c->deletions_watch ||
        quota_watch(c->quota, c->coordinator, &c->inbox, c->s.broker_id))
        return -BROOK_E_NOMEM;
    return changes_new(c->coordinator, &c->inbox, &events, &c->changes);
}

/* ---- registration ----------------------------------------------------------------------------------- */

/* The disks know it before anything is done under it. */
static void registered(void *arg, int64_t broker_epoch)
{
    struct cluster *c = arg;
    c->was_registered = true;
    hosting_note_registration(c->hosting, broker_epoch);
}

void cluster_registration_noted(void *arg, int64_t broker_epoch)
{
    struct cluster *c = arg;
    if (registry_broker_epoch(c->registry) != broker_epoch || c->is_draining || c->has_failed)
        return; /* it is gone already */
    c->is_registered = true;
    hosting_set_broker_epoch(c->hosting, broker_epoch);
    diag_log(c->s.diag, DIAG_INFO, "",
             "registered as broker %" PRId32 " with epoch %" PRId64 " in cluster %s", c->s.broker_id,
             broker_epoch, c->cluster_id);
    for (size_t i = 0; i < image_topics_count(c->image); i++)
        image_mark(image_topic_at(c->image, i)); /* what waited for this epoch may be led now */
    if (c->changes)
        cluster_read_all(c);
    else if (start_watching(c)) {
        struct brook_error error;
        brook_error_set(&error, BROOK_E_NOMEM, "out of memory");
        return cluster_fail_start(c, &error);
    }
    if (!c->is_leaving)
        controller_seat_stand(c->seat);
}

static void refused(void *arg, const struct brook_error *error)
{
    struct cluster *c = arg;
    if (!c->was_registered)
        return cluster_fail_start(c, error);
    cluster_set_ready(c, error->text);
    diag_log(c->s.diag, DIAG_ERROR, "", "not registered: %s; trying again", error->text);
}

static void vanished(void *arg)
{
    struct cluster *c = arg;
    c->is_registered = false;
    diag_log(c->s.diag, DIAG_WARN, "",
             "somebody removed this broker's entry in ZooKeeper: registering again");
}

/* ---- controller's seat ------------------------------------------------------------------------------ */

static void controller_changed(void *arg, int32_t broker_id)
{
    struct cluster *c = arg;
    c->controller_id = broker_id;
    c->view_is_due = true;
}

/* Topics that were made or removed by hand, without a notification. */
static void topics_observed(void *arg, const struct coordinator_reply *reply)
{
    struct cluster *c = arg;
    if (!state_reader_is_complete(c->reader)) {
        c->topics_are_due = true;
        return;
    }
    for (size_t i = 0; !reply->err && i < reply->children_count; i++)
        if (!image_find(c->image, reply->children[i]))
            state_reader_read_topic(c->reader, reply->children[i]);
    if (!reply->err && reply->children_count < image_topics_count(c->image))
        cluster_read_all(c);
}

static void elected(void *arg, int32_t epoch, int32_t epoch_version)
{
    struct cluster *c = arg;
    char subject[32];
    snprintf(subject, sizeof subject, "epoch=%" PRId32, epoch);
    diag_log(c->s.diag, DIAG_INFO, subject, "this broker is the controller");
    changes_sweep(c->changes, true);
    controller_driver_start(c->controller, epoch, epoch_version);
    if (!c->topics_watch)
        c->topics_watch = coordinator_observe(c->coordinator, OBSERVE_CHILDREN, PATH_TOPICS, 50, &c->inbox,
                                              topics_observed, c);
    cluster_read_all(c);
}

static void seat_lost(void *arg)
{
    struct cluster *c = arg;
    diag_log(c->s.diag, DIAG_INFO, "", "this broker is not the controller any more");
    controller_driver_stop(c->controller);
    if (c->changes)
        changes_sweep(c->changes, false);
    observation_free(TAKE(c->topics_watch));
}

int cluster_session_new(struct cluster *c)
{
    struct registry_settings settings = {c->s.broker_id, c->s.advertised_host, c->s.advertised_port,
                                         c->s.rack};
    struct registry_events registry_events = {registered, refused, vanished, c};
    struct controller_seat_events seat_events = {controller_changed, elected, seat_lost, c};
    int err = registry_new(c->coordinator, &c->inbox, &settings, &registry_events, &c->registry);
    if (!err)
        err = controller_seat_new(c->coordinator, &c->inbox, c->s.broker_id, &seat_events, &c->seat);
    if (!err)
        err = coordinator_listen(c->coordinator, &c->inbox, cluster_session_changed, c);
    return err;
}

/* ---- sessions --------------------------------------------------------------------------------------- */

static void session_expired(struct cluster *c)
{
    c->is_registered = false;
    registry_expired(c->registry);
    controller_seat_expired(c->seat);
    state_reader_forget(c->reader);
    served_expired(c->served);
}

void cluster_session_changed(void *arg, const struct coordinator_session *session)
{
    struct cluster *c = arg;
    switch (session->event) {
    case COORDINATOR_CONNECTED:
        c->is_connected = true;
        if (session->generation != c->generation) {
            if (c->generation)
                diag_log(c->s.diag, DIAG_INFO, "", "a new ZooKeeper session is up");
            c->generation = session->generation;
            if (!c->is_draining && !c->has_failed)
                start_bootstrap(c);
        } else if (c->is_registered) {
            cluster_read_all(c);
        }
        break;
    case COORDINATOR_SUSPENDED:
        if (c->is_connected && !c->is_draining)
            diag_log(c->s.diag, DIAG_WARN, "",
                     "the connection to ZooKeeper is lost; what is led here goes on being served");
        c->is_connected = false;
        c->complain_ms = clock_boot_ms() + CLUSTER_COMPLAIN_MS;
        break;
    case COORDINATOR_EXPIRED:
        if (!c->is_draining)
            diag_log(c->s.diag, DIAG_WARN, "",
                     "the ZooKeeper session has expired: registering again in a new one");
        c->is_connected = false;
        session_expired(c);
        break;
    }
}

/* So that new producers find some when ZooKeeper is away. */
static void prepare_producer_ids(struct cluster *c, int64_t now_ms)
{
    if (!c->is_registered || !c->is_connected || now_ms < c->producer_ids_ms)
        return;
    c->producer_ids_ms = now_ms + CLUSTER_PRODUCER_IDS_MS;
    producer_ids_prepare(c->producer_ids);
}

int64_t cluster_session_tick(struct cluster *c, int64_t now_ms)
{
    if (c->is_draining || c->has_failed)
        return INT64_MAX;
    if (!c->is_connected && now_ms >= c->complain_ms) {
        diag_log(c->s.diag, DIAG_WARN, "", "waiting for ZooKeeper at %s", c->s.zookeeper_connect);
        c->complain_ms = now_ms + CLUSTER_COMPLAIN_MS;
    }
    if (c->is_connected && c->bootstrap_due)
        start_bootstrap(c);
    if (c->was_registered && c->cluster_id && !c->is_bootstrapping && !c->bootstrap_due)
        register_broker(c);
    prepare_producer_ids(c, now_ms);
    registry_tick(c->registry);
    controller_seat_tick(c->seat);
    return now_ms + CLUSTER_HOUSEKEEPING_MS;
}

/* ---- stop ------------------------------------------------------------------------------------------- */

static void drain_ended(struct cluster *c)
{
    pthread_mutex_lock(&c->lock);
    c->is_drained = true;
    pthread_cond_broadcast(&c->drained);
    pthread_mutex_unlock(&c->lock);
}

static void given_up(void *arg, const struct coordinator_reply *reply)
{
    struct cluster *c = arg;
    if (--c->drain_calls == 0)
        drain_ended(c);
}

/* The seat first, so that the next controller sees this broker leave. */
static void drain(struct cluster *c)
{
    c->is_draining = true;
    if (!c->is_connected || !c->was_registered) {
        controller_seat_expired(c->seat);
        registry_expired(c->registry);
        return drain_ended(c);
    }
    struct coordinator_call call = {.inbox = &c->inbox, .callback = given_up, .arg = c, .urgent = true};
    c->drain_calls = 2;
    c->is_registered = false;
    controller_seat_release(c->seat, call);
    registry_unregister(c->registry, call);
}

static bool is_staying(const struct cluster *c, int32_t broker_id)
{
    const struct controller_broker *broker = controller_find_broker(image_alive(c->image), broker_id);
    return broker_id != c->s.broker_id && broker && !broker->draining;
}

/* In sync here, with another that is and stays: the controller is about to move leadership there, and to take this
 * broker out of those in sync. */
static bool can_be_left(const struct cluster *c, const struct image_partition *p)
{
    bool is_member = false, has_other = false;
    for (int32_t i = 0; i < p->isr_count; i++) {
        is_member = is_member || p->isr[i] == c->s.broker_id;
        has_other = has_other || is_staying(c, p->isr[i]);
    }
    return is_member && has_other;
}

static bool has_to_leave(const struct cluster *c)
{
    for (size_t i = 0; i < image_topics_count(c->image); i++) {
        const struct image_topic *topic = image_topic_at(c->image, i);
        for (int32_t p = 0; p < topic->node.partitions_count && !topic->is_being_deleted; p++)
            if (can_be_left(c, &topic->partitions[p]))
                return true;
    }
    return false;
}

/* Three quarters of the time for moving leaders away, the rest for leaving ZooKeeper. */
void cluster_start_drain(struct cluster *c)
{
    c->is_leaving = true;
    c->leave_ms = clock_boot_ms() + c->s.controlled_shutdown_ms_max / 4 * 3;
    cluster_set_ready(c, "the broker is stopping");
    controller_seat_leave_to_others(c->seat);
    if (c->is_connected && c->is_registered && has_to_leave(c))
        registry_drain(c->registry);
}

int64_t cluster_leave(struct cluster *c, int64_t now_ms)
{
    if (!c->is_leaving || c->is_draining)
        return INT64_MAX;
    if (now_ms < c->leave_ms && c->is_connected && c->is_registered && has_to_leave(c))
        return c->leave_ms;
    drain(c);
    return INT64_MAX;
}
