/* Inside of hosting, shared by hosting.c (the table: what is to be done), hosting_disk.c (opening, leaving:
 * what runs on disk threads) and hosting_duties.c (retention and checkpoints), and by nobody else.
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
#include "broker/storage/data_dir.h"
#include "broker/storage/flusher.h"

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
    struct disk_job job;
    int err;
    struct brook_error error;
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
    bool is_unwanted;
    bool is_configuring;
    bool is_told_offline; /* the log is offline for good, and that was said: never opened anew */
    enum hosted_end end;
    int32_t led_epoch;           /* -1: not led here */
    int32_t barred_epoch;        /* not to be led at this one or a lower: records of it were lost. -1: none */
    int64_t end_before;          /* where the log ended that went offline; 0: none did */
    int32_t epoch_before;        /* the last one it was led at */
    struct partition *partition; /* OPEN: our reference */
    struct log_settings log_settings; /* in force */
    struct durability durability;     /* likewise, once `is_durability_set` */
    bool is_durability_set;
    struct log_hint hint;
    int64_t high_watermark;
    int64_t retry_ms;

    struct disk_job job;
    struct inbox_item released;
    struct log *log; /* between job and table */
    bool has_sync_failed; /* from the leave job: while the last readers held the log */
    struct log_recovery recovery;
    int err;
    struct brook_error error;
    char name[];
};

struct hosting {
    int32_t broker_id;
    char *cluster_id;
    struct host_dir *dirs;
    size_t dirs_count;
    struct topic_config defaults;
    int64_t retention_check_ms;
    const struct diag *diag;
    struct inbox *inbox;
    struct hosting_events events;
    struct disk_pool *pool;
    struct flusher *flusher;
    struct hosted *table;
    int64_t broker_epoch;
    int64_t clean_from;

    size_t opening; /* entries with an open job under way */
    size_t leaving;
    size_t failed;
    size_t dirs_pending;
    size_t found;    /* by hosting_open() */
    size_t bad_ends; /* logs that did not close well */
    bool is_loaded;  /* the table holds everything that the directories do */
    bool is_opened;
    bool has_unwanted;
    bool is_closing;
    bool is_closed;
    _Atomic bool stop_duties;
    unsigned duties; /* under way */
    bool is_retaining;
    int64_t next_offline_ms;
    int64_t next_retention_ms;
    int64_t next_checkpoint_ms;
    int64_t next_progress_ms;
};

/* hosting.c */
struct hosted *hosted_add(struct hosting *hosting, struct host_dir *dir, const char *topic, int32_t number);
void hosted_remove(struct hosted *h); /* out of the table, and freed */
const char *hosted_subject(const struct hosted *h, int32_t epoch, char buffer[HOSTED_SUBJECT_BYTES]);
/* Say that the log is not opened anew, and see to that. */
void hosted_tell_offline(struct hosted *h, const char *reason);
void hosting_check_closed(struct hosting *hosting);

/* hosting_disk.c */
void hosted_start_open(struct hosted *h);
/* Drop our reference; when the last one is gone, `end` is carried out. (To close does not wait for that.) */
void hosted_leave(struct hosted *h, enum hosted_end end);
void hosting_open_dirs(struct hosting *hosting);
void hosting_close_dirs(struct hosting *hosting);

/* hosting_duties.c */
void hosting_start_retention(struct hosting *hosting);
void hosting_start_checkpoint(struct hosting *hosting, struct host_dir *dir);
void hosted_configure(struct hosted *h, const struct log_settings *settings);
/* Write the last checkpoints of a directory whose logs are all closed. On a disk thread, while the cluster
 * thread leaves the table alone. Returns 0 or an error. */
int hosting_write_last_checkpoint(struct host_dir *dir);
#endif
