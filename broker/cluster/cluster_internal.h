/* Inside of the cluster thread, shared by cluster.c (face, thread, stop), cluster_session.c (ZooKeeper
 * session, registration, controller's seat) and cluster_turn.c (from the image to partitions, states and
 * views), and by nobody else.
 *
 * The order of a start: data directories locked -> connected -> cluster id agreed -> logs opened ->
 * registered -> everything read -> partitions made and led, view published -> ready. Each new session goes
 * through it again, without the disk.
 */
#ifndef BROOK_CLUSTER_CLUSTER_INTERNAL_H
#define BROOK_CLUSTER_CLUSTER_INTERNAL_H

#include "broker/cluster/cluster.h"
#include "broker/cluster/controller_driver.h"
#include "broker/cluster/ends.h"
#include "broker/cluster/hosting.h"
#include "broker/cluster/image.h"
#include "broker/cluster/intents.h"
#include "broker/cluster/petitions.h"
#include "broker/cluster/quota.h"
#include "broker/cluster/state_reader.h"
#include "coordination/changes.h"
#include "coordination/controller_seat.h"
#include "coordination/offsets.h"
#include "coordination/producer_ids.h"
#include "coordination/registry.h"
#include "coordination/served.h"

#include <pthread.h>

#define CLUSTER_HOUSEKEEPING_MS 1000
#define CLUSTER_REREAD_MS 600000   /* everything is read again, whatever was announced */
#define CLUSTER_UNREADABLE_MS 2000 /* between two looks at what made no sense */
#define CLUSTER_RETRY_MS 500       /* after a read that failed */
#define CLUSTER_VIEW_MS 5          /* between two views at least */
#define CLUSTER_VIEW_SHARE 8       /* ... and so many times as long as it takes to make one */
#define CLUSTER_VIEW_LATE_MS 200   /* a view waits for reads under way no longer than this */
#define CLUSTER_TOMBSTONES_MS 100  /* between two looks at them */
#define CLUSTER_CLOSE_MS 60000     /* until logs that do not close are left behind */
#define CLUSTER_SESSION_CLOSE_MS 2000
#define CLUSTER_PRODUCER_IDS_MS 5000 /* between two looks whether there are producer ids ahead */
#define CLUSTER_COMPLAIN_MS 60000 /* between two lines about ZooKeeper being away */

struct subscriber {
    struct subscriber *next;
    struct inbox *inbox;
    cluster_view_callback *changed;
    void *arg;
};

struct cluster {
    struct cluster_settings s; /* strings are ours */
    struct cluster_events events;
    struct inbox inbox;
    pthread_t thread;
    bool has_thread;

    /* shared, under `lock` */
    pthread_mutex_t lock;
    pthread_cond_t drained;
    struct view *view; /* NULL: none yet */
    struct subscriber *subscribers;
    bool is_ready;
    struct brook_error why_not;
    bool is_drained;

    /* the cluster thread's */
    struct coordinator *coordinator;
    struct image *image;
    struct state_reader *reader;
    struct hosting *hosting;
    struct registry *registry;
    struct controller_seat *seat;
    struct controller_driver *controller;
    struct isr_writer *isr_writer;
    struct ends *ends;
    struct petitions *petitions;
    struct quota *quota;
    struct served *served;
    struct offsets *offsets;
    struct producer_ids *producer_ids;
    struct intents *intents;
    struct changes *changes;             /* from the first registration on */
    struct observation *brokers_watch;   /* likewise */
    struct observation *deletions_watch; /* likewise */
    struct observation *topics_watch;    /* while controller */

    char *cluster_id; /* NULL: not agreed on yet */
    uint64_t generation;
    bool is_connected;
    bool is_bootstrapping;
    bool bootstrap_due;
    bool is_opening; /* hosting_open() was called */
    bool is_opened;
    bool is_foreign;     /* ZooKeeper holds another cluster than ours, or none */
    bool was_registered; /* once in this process */
    bool is_registered;
    bool has_failed; /* the start: nothing more is tried */
    bool has_said_ready;
    bool is_leaving; /* stopping: leaders are moved away first */
    bool is_draining;
    bool is_stopping;
    bool is_closed; /* hosting is */
    unsigned drain_calls;
    int32_t controller_id;
    uint64_t views;
    bool view_is_due;
    bool compare_is_due;
    bool topics_are_due; /* the list of topics came while everything was being read */
    bool is_reading_tombstones;
    bool served_is_due;
    int64_t view_ms; /* no view before */
    int64_t late_view_ms; /* a view that is due comes by then, whatever is being read; 0: none is waited for */
    int64_t served_ms;
    int64_t tombstones_ms;
    int64_t reread_ms;
    int64_t unreadable_ms;
    int64_t housekeeping_ms;
    int64_t complain_ms;
    int64_t producer_ids_ms; /* no look before */
    int64_t stop_ms;
    int64_t leave_ms; /* until when leaders may be moved away */
};

/* cluster.c */
void cluster_fail_start(struct cluster *c, const struct brook_error *error);
void cluster_say_ready(struct cluster *c);
/* Why the broker is not ready, or NULL. */
void cluster_set_ready(struct cluster *c, const char *why_not);

/* cluster_session.c */
void cluster_session_changed(void *arg, const struct coordinator_session *session);
int cluster_session_new(struct cluster *c); /* registry and seat */
void cluster_start_drain(struct cluster *c);
/* While leaving: go on with the drain when nothing is left to be moved, or it is time. Returns when to call again. */
int64_t cluster_leave(struct cluster *c, int64_t now_ms);
int64_t cluster_session_tick(struct cluster *c, int64_t now_ms);
void cluster_hosting_opened(void *arg, const struct brook_error *error);
void cluster_registration_noted(void *arg, int64_t broker_epoch);

/* cluster_turn.c */
void cluster_read_all(struct cluster *c);
int cluster_turn_new(struct cluster *c); /* image, reader, controller, intents, served */
void cluster_hosting_changed(void *arg, const char *topic, int32_t number);
void cluster_hosting_offline(void *arg);
void cluster_hosting_look(void *arg, const char *topic, int32_t number, struct replica *replica);
void cluster_drop_views(struct cluster *c);
/* Returns when the next turn is due if nothing comes in. */
int64_t cluster_turn(struct cluster *c, int64_t now_ms);
#endif
