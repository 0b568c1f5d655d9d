#include "broker/cluster/cluster.h"

#include "broker/cluster/cluster_internal.h"
#include "broker/cluster/isr_writer.h"
#include "coordination/coordinator.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- readiness -------------------------------------------------------------------------------------- */

struct ready_post {
    struct inbox_item item;
    struct cluster_events events;
    struct brook_error error;
};

static void deliver_ready(struct inbox_item *item)
{
    AUTO_FREE struct ready_post *post = CONTAINER_OF(item, struct ready_post, item);
    post->events.ready(post->events.arg, &post->error);
}

/* Posted once. */
static void post_ready(struct cluster *c, const struct brook_error *error)
{
    struct ready_post *post = c->has_said_ready ? NULL : calloc(1, sizeof *post);
    if (!post)
        return;
    c->has_said_ready = true;
    post->item.run = deliver_ready;
    post->events = c->events;
    if (error)
        post->error = *error;
    inbox_post(c->events.inbox, &post->item);
}

static void tell_ready(const struct cluster *c, const char *why_not)
{
    if (!why_not)
        diag_log(c->s.diag, DIAG_INFO, "", "ready again");
    else
        diag_log(c->s.diag, c->is_leaving ? DIAG_INFO : DIAG_WARN, "", "not ready: %s", why_not);
}

void cluster_set_ready(struct cluster *c, const char *why_not)
{
    bool is_news = c->has_said_ready && c->is_ready != !why_not; /* only this thread writes it by then */
    if (is_news)
        tell_ready(c, why_not);
    pthread_mutex_lock(&c->lock);
    c->is_ready = !why_not;
    if (why_not)
        brook_error_set(&c->why_not, BROOK_E_BROKER_NOT_AVAILABLE, "%s", why_not);
    pthread_mutex_unlock(&c->lock);
}

void cluster_say_ready(struct cluster *c)
{
    cluster_set_ready(c, NULL);
    post_ready(c, NULL);
}

void cluster_fail_start(struct cluster *c, const struct brook_error *error)
{
    c->has_failed = true;
    cluster_set_ready(c, error->text);
    post_ready(c, error);
}

bool cluster_is_ready(struct cluster *c, struct brook_error *why)
{
    pthread_mutex_lock(&c->lock);
    bool is_ready = c->is_ready;
    if (!is_ready && why)
        *why = c->why_not;
    pthread_mutex_unlock(&c->lock);
    return is_ready;
}

struct coordinator *cluster_coordinator(struct cluster *c)
{
    return c->coordinator;
}

struct offsets *cluster_offsets(struct cluster *c)
{
    return c->offsets;
}

int64_t cluster_replication_quota(const struct cluster *c)
{
    return quota_bytes(c->quota);
}

int64_t cluster_move_throttle(const struct cluster *c)
{
    return quota_throttle(c->quota);
}

const struct topic_config *cluster_topic_defaults(const struct cluster *c)
{
    return &c->s.topic_defaults;
}

/* ---- the thread ------------------------------------------------------------------------------------- */

/* A call of another thread that is carried out here. */
struct errand {
    struct inbox_item item;
    struct cluster *cluster;
};

static void wait_for_work(struct cluster *c, int64_t until_ms)
{
    struct pollfd fd = {.fd = inbox_fd(&c->inbox), .events = POLLIN};
    int64_t wait = until_ms - clock_boot_ms();
    wait = wait < 0 ? 0 : wait > CLUSTER_HOUSEKEEPING_MS ? CLUSTER_HOUSEKEEPING_MS : wait;
    poll(&fd, 1, (int)wait);
}

static bool is_through(const struct cluster *c, int64_t now_ms)
{
    return c->is_stopping && (c->is_closed || now_ms >= c->stop_ms);
}

static void *run(void *arg)
{
    struct cluster *c = arg;
    for (;;) {
        inbox_drain(&c->inbox);
        int64_t now_ms = clock_boot_ms();
        if (now_ms >= c->housekeeping_ms) {
            cluster_session_tick(c, now_ms);
            c->housekeeping_ms = now_ms + CLUSTER_HOUSEKEEPING_MS;
        }
        int64_t next = cluster_turn(c, now_ms);
        if (is_through(c, now_ms))
            return NULL;
        wait_for_work(c, next < c->housekeeping_ms ? next : c->housekeeping_ms);
    }
}

/* ---- beginning -------------------------------------------------------------------------------------- */

static int copy_text(const char *from, const char **ret)
{
    if (!from) {
        *ret = NULL;
        return 0;
    }
    *ret = strdup(from);
    return *ret ? 0 : -BROOK_E_NOMEM;
}

static int copy_settings(struct cluster *c, const struct cluster_settings *settings)
{
    c->s = *settings;
    c->s.advertised_host = c->s.rack = c->s.zookeeper_connect = NULL;
    c->s.data_dirs_count = 0;
    c->s.data_dirs = calloc(settings->data_dirs_count, sizeof *c->s.data_dirs);
    if (!c->s.data_dirs || copy_text(settings->advertised_host, &c->s.advertised_host) ||
        copy_text(settings->rack, &c->s.rack) ||
        copy_text(settings->zookeeper_connect, &c->s.zookeeper_connect))
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < settings->data_dirs_count; i++) {
        if (copy_text(settings->data_dirs[i], (const char **)&c->s.data_dirs[i]))
            return -BROOK_E_NOMEM;
        c->s.data_dirs_count++;
    }
    return 0;
}

/* The session's id is kept where the logs are, so that the next process on them can close it: the
 * directories are locked by now. */
static int start_coordinator(struct cluster *c, struct brook_error *error)
{
    char session_file[PATH_MAX];
    snprintf(session_file, sizeof session_file, "%s/zookeeper.session", hosting_first_dir(c->hosting));
    struct coordinator_settings settings = {
        .connect = c->s.zookeeper_connect,
        .session_timeout_ms = c->s.zookeeper_session_timeout_ms,
        .session_file = session_file,
        .diag = c->s.diag,
    };
    return coordinator_new(&settings, &c->coordinator, error);
}

static void hosting_was_closed(void *arg, bool clean)
{
    struct cluster *c = arg;
    c->is_closed = true;
    if (!clean)
        diag_log(c->s.diag, DIAG_WARN, "",
                 "not everything closed cleanly: the next start will check the logs");
}

static int start_hosting(struct cluster *c)
{
    struct hosting_settings settings = {
        .broker_id = c->s.broker_id,
        .data_dirs = c->s.data_dirs,
        .data_dirs_count = c->s.data_dirs_count,
        .disk_threads = c->s.disk_threads_count,
        .open_files_max = c->s.open_files_max,
        .retention_check_ms = c->s.retention_check_ms,
        .cleaner = c->s.cleaner,
        .free_bytes_min = c->s.free_bytes_min,
        .replication = c->s.replication,
        .defaults = &c->s.topic_defaults,
        .diag = c->s.diag,
    };
    struct hosting_events events = {.opened = cluster_hosting_opened,
                                    .noted = cluster_registration_noted,
                                    .changed = cluster_hosting_changed,
                                    .look = cluster_hosting_look,
                                    .offline = cluster_hosting_offline,
                                    .closed = hosting_was_closed,
                                    .arg = c};
    return hosting_new(&settings, &c->inbox, &events, &c->hosting);
}

static int start_thread(struct cluster *c)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the main thread's */
    int failed = pthread_create(&c->thread, NULL, run, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    c->has_thread = !failed;
    return failed ? -BROOK_E_IO : 0;
}

static int start_parts(struct cluster *c, struct brook_error *error)
{
    int err = inbox_init(&c->inbox);
    if (!err)
        err = start_hosting(c);
    if (!err)
        err = hosting_lock(c->hosting, error);
    if (!err)
        err = start_coordinator(c, error);
    if (!err)
        err = cluster_turn_new(c);
    if (!err)
        err = cluster_session_new(c);
    if (!err)
        err = start_thread(c);
    return err;
}

static void free_all(struct cluster *c);

int cluster_new(const struct cluster_settings *settings, const struct cluster_events *events,
                struct cluster **ret_cluster, struct brook_error *error)
{
    assert(settings->data_dirs_count > 0);
    struct brook_error reason = {0};
    struct cluster *c = calloc(1, sizeof *c);
    if (!c)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    c->inbox.fd = -1;
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->drained, &attr);
    pthread_condattr_destroy(&attr);
    c->events = *events;
    c->controller_id = -1;
    c->complain_ms = clock_boot_ms() + 3 * CLUSTER_HOUSEKEEPING_MS;
    cluster_set_ready(c, "waiting for ZooKeeper");
    int err = copy_settings(c, settings);
    if (!err)
        err = start_parts(c, &reason);
    if (err) {
        free_all(c);
        return brook_error_set(error, -err, "%s", reason.code ? reason.text : brook_error_text(err));
    }
    *ret_cluster = c;
    return 0;
}

/* ---- end -------------------------------------------------------------------------------------------- */

static void start_drain(struct inbox_item *item)
{
    AUTO_FREE struct errand *errand = CONTAINER_OF(item, struct errand, item);
    cluster_start_drain(errand->cluster);
}

static void start_stop(struct inbox_item *item)
{
    AUTO_FREE struct errand *errand = CONTAINER_OF(item, struct errand, item);
    struct cluster *c = errand->cluster;
    c->is_draining = c->is_stopping = true;
    c->stop_ms = clock_boot_ms() + CLUSTER_CLOSE_MS;
    cluster_drop_views(c);
    hosting_close(c->hosting);
}

static void send_errand(struct cluster *c, void (*what)(struct inbox_item *item))
{
    struct errand *errand;
    do
        errand = malloc(sizeof *errand);
    while (!errand);
    errand->item.run = what;
    errand->cluster = c;
    inbox_post(&c->inbox, &errand->item);
}

void cluster_drain(struct cluster *c)
{
    struct timespec until;
    int64_t wait_ms = c->s.controlled_shutdown_ms_max;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(wait_ms / 1000);
    until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    send_errand(c, start_drain);
    pthread_mutex_lock(&c->lock);
    while (!c->is_drained && !pthread_cond_timedwait(&c->drained, &c->lock, &until))
        ;
    bool is_drained = c->is_drained;
    pthread_mutex_unlock(&c->lock);
    if (!is_drained)
        diag_log(c->s.diag, DIAG_WARN, "",
                 "ZooKeeper did not confirm in time that this broker has left: stopping all the same");
}

static void free_settings(struct cluster *c)
{
    free((void *)c->s.advertised_host);
    free((void *)c->s.rack);
    free((void *)c->s.zookeeper_connect);
    for (size_t i = 0; i < c->s.data_dirs_count; i++)
        free((void *)c->s.data_dirs[i]);
    free((void *)c->s.data_dirs);
}

static void drain_inbox(struct cluster *c)
{
    while (c->inbox.fd >= 0 && inbox_drain(&c->inbox))
        ;
}

/* Answers may make further calls, so the coordinator is stopped, everything it answered is looked at, and
 * only then it is freed, with one more round for the calls of that round. */
static void end_coordination(struct cluster *c)
{
    c->is_draining = true;
    if (c->controller)
        controller_driver_stop(c->controller);
    if (c->coordinator)
        coordinator_stop(c->coordinator, false, CLUSTER_SESSION_CLOSE_MS);
    drain_inbox(c);
    observation_free(c->brokers_watch);
    observation_free(c->deletions_watch);
    observation_free(c->topics_watch);
    quota_stop(c->quota);
    changes_free(c->changes);
    controller_seat_free(c->seat);
    registry_free(c->registry);
    isr_writer_free(c->isr_writer);
    served_free(c->served);
    offsets_free(c->offsets);
    coordinator_free(c->coordinator, false, 0);
    drain_inbox(c);
}

static void free_all(struct cluster *c)
{
    end_coordination(c);
    intents_free(c->intents);
    petitions_free(c->petitions);
    controller_driver_free(c->controller);
    ends_free(c->ends);
    quota_free(c->quota);
    state_reader_free(c->reader);
    view_unref(c->view);
    image_free(c->image);
    hosting_free(c->hosting);
    inbox_done(&c->inbox);
    for (struct subscriber *s = c->subscribers, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    producer_ids_free(c->producer_ids);
    free(c->cluster_id);
    free_settings(c);
    pthread_cond_destroy(&c->drained);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

void cluster_free(struct cluster *c)
{
    if (!c)
        return;
    if (c->has_thread) {
        send_errand(c, start_stop);
        pthread_join(c->thread, NULL);
        if (!c->is_closed)
            diag_log(c->s.diag, DIAG_ERROR, "",
                     "the logs did not close in time: stopping without a clean mark");
    }
    free_all(c);
}

/* ---- intents ---------------------------------------------------------------------------------------- */

struct submission {
    struct inbox_item item;
    struct cluster *cluster;
    struct intent *intent;
};

static void submit(struct inbox_item *item)
{
    AUTO_FREE struct submission *submission = CONTAINER_OF(item, struct submission, item);
    struct cluster *c = submission->cluster;
    if (c->is_stopping || c->has_failed)
        intent_refuse(submission->intent, BROOK_E_STOPPING, "the broker is stopping");
    else
        intents_submit(c->intents, submission->intent);
}

static void pass_on(struct cluster *c, struct intent *intent)
{
    struct submission *submission;
    do
        submission = malloc(sizeof *submission);
    while (!submission);
    *submission = (struct submission){.item.run = submit, .cluster = c, .intent = intent};
    inbox_post(&c->inbox, &submission->item);
}

void cluster_create_topic(struct cluster *c, const struct cluster_new_topic *topic, bool validate_only,
                          int timeout_ms, struct inbox *inbox, cluster_topic_callback *cb, void *arg)
{
    pass_on(c, intent_new(INTENT_CREATE, topic->name, topic->partitions, topic->replicas, topic->config,
                          validate_only, timeout_ms, inbox, cb, arg));
}

void cluster_delete_topic(struct cluster *c, const char *name, bool validate_only, int timeout_ms,
                          struct inbox *inbox, cluster_topic_callback *cb, void *arg)
{
    pass_on(c, intent_new(INTENT_DELETE, name, 0, 0, NULL, validate_only, timeout_ms, inbox, cb, arg));
}

void cluster_alter_config(struct cluster *c, const char *name, const struct znode_config *changes,
                          bool validate_only, int timeout_ms, struct inbox *inbox, cluster_topic_callback *cb,
                          void *arg)
{
    pass_on(c, intent_new(INTENT_ALTER, name, 0, 0, changes, validate_only, timeout_ms, inbox, cb, arg));
}

void cluster_add_partitions(struct cluster *c, const char *name, int32_t partitions, bool validate_only,
                            int timeout_ms, struct inbox *inbox, cluster_topic_callback *cb, void *arg)
{
    pass_on(c, intent_new(INTENT_ADD_PARTITIONS, name, partitions, 0, NULL, validate_only, timeout_ms, inbox,
                          cb, arg));
}

/* ---- petitions -------------------------------------------------------------------------------------- */

struct petition_post {
    struct inbox_item item;
    struct cluster *cluster;
    struct petition *petition;
};

static void submit_petition(struct inbox_item *item)
{
    AUTO_FREE struct petition_post *post = CONTAINER_OF(item, struct petition_post, item);
    struct cluster *c = post->cluster;
    if (c->is_stopping || c->has_failed)
        petition_refuse(post->petition, BROOK_E_STOPPING, "the broker is stopping");
    else
        petitions_submit(c->petitions, post->petition);
}

void cluster_petition(struct cluster *c, const struct cluster_petition *what, int timeout_ms, struct inbox *inbox,
                      cluster_petition_callback *cb, void *arg)
{
    struct petition_post *post;
    do
        post = malloc(sizeof *post);
    while (!post);
    *post = (struct petition_post){.item.run = submit_petition,
                                   .cluster = c,
                                   .petition = petition_new(what, timeout_ms, inbox, cb, arg)};
    inbox_post(&c->inbox, &post->item);
}
