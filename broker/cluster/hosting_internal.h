/* Inside of hosting, shared by hosting.c (the table: what is to be done), hosting_disk.c (opening, leaving:
 * what runs on disk threads), hosting_dirs.c (data directories that fill up or fail),
 * hosting_offline.c (logs that are offline) and hosting_duties.c (retention
 * and checkpoints), and by nobody else.
 *
 *               open job ok                release of the last reference        leave job
 *                                          (at the end of all: at once)
 *   OPENING ----------------> OPEN ---> LEAVING ------------------------> LEAVING ---------> (gone)
 *      |  ^
 *      v  | retry
 *    FAILED -----------------------------------------------------------> LEAVING
 *
 * A log that went offline is let go of in the same way, and is FAILED once it was closed: OPEN, LEAVING (with
 * HOSTED_END_REOPEN), FAILED. One whose sync failed stays OPEN.
 */
#ifndef BROOK_CLUSTER_HOSTING_INTERNAL_H
#define BROOK_CLUSTER_HOSTING_INTERNAL_H

#include "broker/cluster/disk_pool.h"
#include "broker/cluster/hosting.h"
#include "broker/partition/partition.h"
#include "broker/replication/fetcher.h"
#include "broker/replication/replica.h"
#include "broker/storage/data_dir.h"
#include "broker/storage/flusher.h"
#include "broker/storage/open_files.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#define HOSTED_SUBJECT_BYTES 256

struct host_dir {
    struct hosting *hosting;
    char *path;
    struct data_dir *dir;
    pthread_mutex_t lock; /* a data_dir takes one thread at a time */
    size_t partitions_count;
    size_t bad_ends; /* logs in it that did not close well */
    bool is_failed;  /* and stays so */
    bool is_missing; /* it failed before it was known what is in it */
    bool is_suspect; /* it has no meta.properties and another one has: what was in it may be elsewhere */
    bool is_explained; /* it was suspect, and nothing is missed */
    bool is_full;
    bool is_looking; /* at its room */
    int64_t free_bytes;
    _Atomic int64_t free_seen; /* the same, for other threads */
    struct disk_job space_job;
    int space_err;
    struct brook_error space_error;
    struct reached_job *reached; /* under way; NULL */
    struct disk_job job;
    int err;
    struct brook_error error;
    char failure[512]; /* written once, before `is_failed`; loops read it */
};

enum hosted_status { HOSTED_OPENING, HOSTED_OPEN, HOSTED_FAILED, HOSTED_LEAVING };
enum hosted_end { HOSTED_END_CLOSE, HOSTED_END_DELETE, HOSTED_END_SET_ASIDE, HOSTED_END_REOPEN };

struct hosted {
    UT_hash_handle hh; /* by name: "<topic>-<number>", the directory's */
    struct hosting *hosting;
    struct host_dir *dir;
    enum hosted_status status;
    struct topic_id topic_id;
    char *topic;
    int32_t number;
    bool is_new;       /* the directory is made by us */
    bool is_dropped;   /* a directory without a topic id: it was removed (empty) or set aside at opening */
    bool is_cancelled; /* the broker stops: the log was not opened */
    bool is_made; /* in this life, and was not followed since: it holds nothing of earlier ones */
    bool is_missed; /* it is found nowhere, and may be in a directory that is not seen: not made anew */
    bool is_unwanted;
    bool has_moved; /* unwanted because other brokers have it now, and all that was committed here */
    bool is_configuring;
    bool is_told_offline; /* the log is offline for good, and that was said: never opened anew */
    enum hosted_end end;
    int32_t led_epoch;           /* -1: not led here */
    int32_t barred_epoch;        /* not to be led at this one or a lower: records of it were lost. -1: none */
    int64_t end_before;          /* where the log ended that went offline; 0: none did */
    int32_t epoch_before;        /* the last one it was led at */
    struct partition *partition; /* OPEN: our reference */
    struct replica *replica;     /* OPEN: its part in replication */
    int32_t refused_version;     /* of the state that was last said not to be followed; -1: none */
    int32_t followed;            /* the leader that the fetcher was told; -1: none */
    int64_t followed_as;         /* with this broker epoch */
    bool is_epoch_due; /* the epoch that it is led at is to be kept */
    int32_t reached_epoch; /* while it is not open: replica_reached_epoch() as it was last; -1 */
    bool is_role_due;            /* the role could not be taken, the leader's address is not known yet, or the fetcher
                                  * was not told */
    struct log_settings log_settings; /* in force */
    struct durability durability;     /* likewise, once `is_durability_set` */
    bool is_durability_set;
    struct log_hint hint;
    struct log_hint hint_left; /* the disk thread's, while the log is closed: `hint` when it is */
    int64_t high_watermark;
    int64_t retry_ms;

    _Atomic bool stop_cleaning;     /* the partition is wanted back */
    _Atomic int64_t clean_after_ms; /* clock_boot_ms(): not compacted before */
    _Atomic int clean_full;         /* how often in a row there was no room for it */
    _Atomic int64_t clean_free_before; /* in its directory, when there was none the last time */

    struct disk_job job;
    struct inbox_item released;
    struct log *log; /* between job and table */
    bool has_sync_failed; /* from the leave job: while the last readers held the log */
    struct log_recovery recovery;
    int err;
    struct brook_error error;
    char name[];
};

/* Noting a registration, one at a time. */
struct note {
    struct disk_job job;
    int64_t registration; /* the newest */
    int64_t epoch;        /* what is written: it, or -1 */
    bool is_running;
    bool is_due;     /* once more */
    bool is_awaited; /* `noted` is owed */
    int err;
};

struct hosting {
    int32_t broker_id;
    char *cluster_id;
    struct host_dir *dirs;
    size_t dirs_count;
    struct topic_config defaults;
    int64_t retention_check_ms;
    int64_t free_bytes_min;
    const struct diag *diag;
    struct inbox *inbox;
    struct hosting_events events;
    struct disk_pool *pool;
    struct flusher *flusher;
    struct replica_settings replica;
    struct fetchers *fetchers;
    struct cleaner_settings cleaner;
    struct disk_pool *cleaners; /* NULL: nothing is compacted */
    struct throttle *throttle;  /* of theirs */
    struct open_files *files;
    struct hosted *table;
    int64_t broker_epoch;
    int64_t clean_from;
    int64_t disk_from;
    struct note note;
    bool has_lost_records; /* a log of this process came back shorter than it was */

    size_t opening; /* entries with an open job under way */
    size_t leaving;
    size_t failed;
    size_t dirs_pending;
    size_t found;    /* by hosting_open() */
    bool is_loaded;  /* the table holds everything that the directories do */
    bool is_opened;
    bool has_unwanted;
    bool is_closing;
    bool is_closed;
    _Atomic bool stop_duties;
    unsigned duties; /* under way */
    bool is_retaining;
    bool is_cleaning;
    int64_t next_offline_ms;
    uint64_t offline_told; /* which logs others were told to be offline; 0: none */
    int64_t next_space_ms;
    int64_t next_retention_ms;
    int64_t next_checkpoint_ms;
    int64_t next_cleaning_ms;
    int64_t next_progress_ms;
    int64_t next_lag_ms;
    int64_t next_roles_ms;
    bool has_roles_due; /* of some partition */
    bool has_epochs_due;
    int64_t next_epochs_ms; /* not before */
    int64_t began_ms;              /* to open what was found */
    _Atomic int64_t bytes_scanned; /* by recovery, since then */
};

/* hosting.c */
struct hosted *hosted_add(struct hosting *hosting, struct host_dir *dir, const char *topic, int32_t number);
void hosted_remove(struct hosted *h); /* out of the table, and freed */
const char *hosted_subject(const struct hosted *h, int32_t epoch, char buffer[HOSTED_SUBJECT_BYTES]);
struct hosted *hosted_find(struct hosting *hosting, const char *topic, int32_t number); /* NULL: none */
void hosting_check_closed(struct hosting *hosting);
/* What recovery had to read so far and how fast; "" when nothing. */
#define HOSTING_SCANNED_BYTES 96
const char *hosting_say_scanned(const struct hosting *hosting, char buffer[HOSTING_SCANNED_BYTES]);

/* hosting_offline.c */
/* Say that the log is not opened anew, and see to that. */
void hosted_tell_offline(struct hosted *h, const char *reason);
void hosting_look_for_offline(struct hosting *hosting);

/* hosting_roles.c */
/* Do what the partition's state asks for: lead, follow, neither. */
void hosted_follow_role(struct hosted *h, const struct image_topic *topic);
/* No role any more: the partition is given up. `why` is said of one that led. */
void hosted_resign(struct hosted *h, const char *why);
int hosting_start_replication(struct hosting *hosting, const struct hosting_settings *settings);
/* Look at the in-sync replicas of everything led here. Returns when to do it again. */
int64_t hosting_check_lag(struct hosting *hosting, int64_t now_ms);

/* hosting_dirs.c */
/* Say so, once, and take the partitions in it offline. */
void host_dir_fail(struct host_dir *dir, const char *why);
/* Whether it counts as full with so many bytes free. */
bool host_dir_lacks_room(const struct host_dir *dir, int64_t free_bytes);
/* Let the (open) partition take appends or not, as its directory is. */
void hosted_heed_dir(struct hosted *h);
/* The directory for a new partition: the fewest partitions, of those that are well and have room; another one than
 * `rather_not` (NULL: any) if there is one. NULL: none. */
struct host_dir *hosting_choose_dir(struct hosting *hosting, const struct host_dir *rather_not);
/* The same for a new one that could not be made. Returns false when no directory takes it. */
bool hosted_move_new(struct hosted *h);
/* A directory of which it is not known what is in it: one that is missing, else one that is suspect. NULL: there is none. */
struct host_dir *hosting_missing_dir(struct hosting *hosting);
void hosting_look_at_space(struct hosting *hosting);

/* hosting_disk.c */
/* The log is not open; say why (`error`, or `err`). */
void hosted_fail(struct hosted *h);
void hosted_start_open(struct hosted *h);
/* Drop our reference; when the last one is gone, `end` is carried out. (To close does not wait for that.) */
void hosted_leave(struct hosted *h, enum hosted_end end);
void hosting_open_dirs(struct hosting *hosting);
void hosting_close_dirs(struct hosting *hosting);

/* hosting_registration.c */
/* What all directories say, as they were found. */
int64_t hosting_find_disk_from(const struct hosting *hosting);
/* Records of this life or an earlier one were lost: the directories are to prove nothing. */
void hosting_forget_registration(struct hosting *hosting);

/* hosting_reached.c */
/* What is known of the epoch that its log has reached, to its new replica. */
void hosted_start_epochs(struct hosted *h);
/* On a disk thread: the log was opened; what it has lost it does not have reached. Returns 0 or a storage error. */
int hosted_check_epochs(struct hosted *h);
/* It leads, or follows, or does not: the epoch it leads at may have to be kept. */
void hosted_heed_epoch(struct hosted *h);
/* Keep what is due. Returns when to call again. */
int64_t hosting_keep_epochs(struct hosting *hosting, int64_t now_ms);
/* fetcher_settings. */
int hosting_keep_reached(void *arg, struct partition *const *partitions, const int32_t *epochs, size_t count);

/* hosting_cleaner.c */
void hosting_start_cleaning(struct hosting *hosting);

/* hosting_duties.c */
void hosting_start_retention(struct hosting *hosting);
void hosting_start_checkpoint(struct hosting *hosting, struct host_dir *dir);
void hosted_configure(struct hosted *h, const struct log_settings *settings);
/* Write the last checkpoints of a directory whose logs are all closed. On a disk thread, while the cluster
 * thread leaves the table alone. Returns 0 or an error. */
int hosting_write_last_checkpoint(struct host_dir *dir);
#endif
