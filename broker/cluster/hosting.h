/* Hosting: the partitions that have their directory on this broker.
 *
 * Opens what the data directories hold, makes what the image assigns to this broker, leads what its state
 * says, and gives up what is not in the image any more. Everything that touches a disk is done on disk
 * threads; the retention and checkpoint timers live here. A log that goes offline is closed and, after
 * HOSTING_RETRY_MS, opened anew as after a crash; until then the partition is not led. One whose sync failed
 * stays as it is, readable and offline, until the process ends; where a sync failed while it was opened, it stays
 * closed.
 * A data directory that fails (it can not be read at the start, its checkpoints can not be written, its file system is
 * gone or read-only) takes its own partitions offline until the process ends, readable where their files are; the others
 * go on. One that has too little room takes no appends and no new partitions until it has more. New partitions go to
 * the directory with the fewest, of those that are well and have room.
 *
 * A partition that is given up is let go by the
 * last holder of a reference: only then its log is removed or set aside. At the end, when nobody uses
 * partitions any more, nobody is waited for.
 *
 * What this does not know: ZooKeeper. What is deleted and what is merely unknown it is told by its caller.
 * The cluster thread's alone.
 */
#ifndef BROOK_CLUSTER_HOSTING_H
#define BROOK_CLUSTER_HOSTING_H

#include "broker/cluster/cleaner_settings.h"
#include "broker/cluster/image.h"
#include "proto/base/inbox.h"

struct diag;
struct hosting;
struct partition;
struct replica;

#define HOSTING_CHECKPOINT_MS 60000
#define HOSTING_CLEAN_RETRY_MS 300000 /* until a log that could not be compacted is tried again */
#define HOSTING_CLEAN_FULL_MS 5000    /* likewise, for want of room: at first, doubled with each time in a row */
#define HOSTING_RETRY_MS 30000        /* until a partition that could not be opened is tried again */
#define HOSTING_ROLES_MS 500          /* between two tries to take roles that could not be taken */
#define HOSTING_OFFLINE_CHECK_MS 1000 /* between two looks for logs that take no appends any more */
#define HOSTING_SPACE_MS 1000         /* between two looks at the room that the data directories have */
#define HOSTING_PROGRESS_MS 5000      /* between two lines about how far recovery is */

/* What replication needs. */
struct hosting_replication {
    int fetchers;                   /* num.replica.fetchers */
    int64_t lag_ms_max;             /* replica.lag.time.max.ms */
    uint32_t fetch_bytes_max;       /* replica.fetch.response.max.bytes */
    uint32_t fetch_partition_bytes; /* replica.fetch.max.bytes */
    uint32_t fetch_wait_ms_max;     /* replica.fetch.wait.max.ms */
    int fetch_timeout_ms;           /* replica.socket.timeout.ms */
    uint32_t frame_bytes_max;
    const char *software; /* borrowed for hosting's life */
};

struct hosting_settings {
    int32_t broker_id;
    const char *const *data_dirs; /* copied */
    size_t data_dirs_count;
    int disk_threads;
    size_t open_files_max; /* segment files open at a time; 0: no limit */
    int64_t retention_check_ms;
    struct cleaner_settings cleaner;
    int64_t free_bytes_min; /* with less room a data directory counts as full; 0: only when a write says so */
    struct hosting_replication replication;
    const struct topic_config *defaults; /* copied: for logs whose topic is not known yet */
    const struct diag *diag;
};

struct hosting_events {
    /* After hosting_open(), once: the directories are locked and every log in them was opened (or could not
     * be, which is that partition's affair). With an error the broker can not start. */
    void (*opened)(void *arg, const struct brook_error *error);
    /* A partition was opened, or has left, or its settings are in force: follow it again. */
    void (*changed)(void *arg, const char *topic, int32_t number);
    /* After hosting_note_registration(): the newest one is noted. Not once the end has begun. NULL: that is never
     * called. */
    void (*noted)(void *arg, int64_t broker_epoch);
    /* After hosting_close(), once: all is closed, and whether cleanly. */
    void (*closed)(void *arg, bool clean);
    void *arg;
    /* The in-sync replicas of a partition that is led here may have to change: replica_propose(), if there is room for a
     * write now; else it is asked again. NULL: nobody cares. */
    void (*look)(void *arg, const char *topic, int32_t number, struct replica *replica);
    /* Other logs than before are offline: hosting_take_offline(). NULL: nobody cares. */
    void (*offline)(void *arg);
};

/* Returns 0, -BROOK_E_NOMEM or -BROOK_E_IO. */
int hosting_new(const struct hosting_settings *settings, struct inbox *inbox,
                const struct hosting_events *events, struct hosting **ret_hosting);
/* After `closed`, or without waiting for it (then the stop is not a clean one): joins the disk threads. NULL
 * is fine. */
void hosting_free(struct hosting *hosting);

/* Lock the data directories (and make them, if missing), in the calling thread: from here to hosting_free()
 * no other process writes in them. Before hosting_open(), which does it if this was not called. Returns 0
 * or an error of data_dir_lock(); a storage error only when no directory is left. */
int hosting_lock(struct hosting *hosting, struct brook_error *error);
/* The first directory that was locked: for what else is to be kept there. Borrowed. */
const char *hosting_first_dir(const struct hosting *hosting);
/* Open the data directories of this cluster, then the logs in them. Once. */
void hosting_open(struct hosting *hosting, const char *cluster_id);
/* Nobody uses a partition any more: close the logs, write checkpoints and, when all went well, the clean-stop
 * marker. */
void hosting_close(struct hosting *hosting);

/* The broker epoch that stopped cleanly before this start, if all directories say so; else -1. Once opened.
 */
int64_t hosting_clean_from(const struct hosting *hosting);
/* The broker epoch that the data directories were last registered with, if all of them say the same and what was synced
 * is there; else -1. Once opened. */
int64_t hosting_disk_from(const struct hosting *hosting);
/* Note a new registration in all data directories, on stable storage; `noted` tells when that is done (or could not
 * be, which is said). Before hosting_set_broker_epoch(), so before anything is led or followed under it. */
void hosting_note_registration(struct hosting *hosting, int64_t broker_epoch);
/* The present registration: to be named by the clean-stop marker, and needed to begin to lead. */
void hosting_set_broker_epoch(struct hosting *hosting, int64_t broker_epoch);

/* Make the hosted partitions of the topic what the image says: open, create, configure, lead, follow, stop; mark those that
 * are not assigned to this broker (any more) as not wanted. */
void hosting_follow(struct hosting *hosting, const struct image_topic *topic);
/* The same for one of them; `number` may be one that the topic does not have. */
void hosting_follow_one(struct hosting *hosting, const struct image_topic *topic, int32_t number);
/* The partition if it is hosted here and open; borrowed. NULL: not (yet). */
struct partition *hosting_find(struct hosting *hosting, const struct image_topic *topic, int32_t number);
/* Its part in replication, likewise. */
struct replica *hosting_find_replica(struct hosting *hosting, const struct image_topic *topic, int32_t number);
/* The replicas here whose logs are offline, or can not be opened: by topic, numbers rising, as many as a registration can
 * name. `offline` is called when it is time for another list. The caller owns it (hosting_free_offline()). */
void hosting_take_offline(struct hosting *hosting, struct znode_change_partitions **ret_list, size_t *ret_count);
void hosting_free_offline(struct znode_change_partitions *list, size_t count);
/* Why that replica's log is offline; borrowed until hosting is called again. NULL: it is not. */
const char *hosting_offline_reason(struct hosting *hosting, const struct image_topic *topic, int32_t number);
/* Bytes per second that replicas here may take in while they catch up, and those that a move adds beside that; 0: no
 * limit. */
void hosting_set_quota(struct hosting *hosting, int64_t bytes_per_s, int64_t moved_bytes_per_s);
/* Look at the in-sync replicas of everything led here, in a few milliseconds. */
void hosting_look_soon(struct hosting *hosting, int64_t now_ms);
/* Brokers came, went or moved. */
void hosting_take_brokers(struct hosting *hosting, const struct image *image);
/* Try again what could not be done when a state was followed. Returns when to call again. */
int64_t hosting_retry_roles(struct hosting *hosting, const struct image *image, int64_t now_ms);
/* Whether it is followed here. */
bool hosting_follows(struct hosting *hosting, const struct image_topic *topic, int32_t number);
/* How far the log of a partition without a leader goes, once the state that says so is in force here, in this
 * registration (replica_epoch_end()): the epoch of the last record and the log end offset, -1 and -1 when it can not be read. Returns
 * false while that is not known yet; `changed` tells when it may be. */
bool hosting_end(struct hosting *hosting, const struct image_topic *topic, int32_t number, int32_t *ret_last_epoch,
                 int64_t *ret_end);
/* Whether it is led here. */
bool hosting_leads(struct hosting *hosting, const struct image_topic *topic, int32_t number);

/* Stop leading the topic's partitions at once and mark them as not wanted. */
void hosting_unwant(struct hosting *hosting, const char *topic, const struct topic_id *topic_id);
/* Mark what the (complete) image does not assign to this broker. */
void hosting_compare(struct hosting *hosting, const struct image *image);
/* Whether something is marked, and hosting_give_up() was not called for it yet. */
bool hosting_has_unwanted(const struct hosting *hosting);
/* What is marked goes: removed if `is_deleted` says that its topic was deleted, or if other brokers have led and held it
 * since a later leader epoch than the log here knows (it was moved); else set aside and reported. */
void hosting_give_up(struct hosting *hosting, bool (*is_deleted)(void *arg, const struct topic_id *topic_id),
                     void *arg);

/* Timers. Returns when to call again. */
int64_t hosting_tick(struct hosting *hosting, int64_t now_ms);
#endif
