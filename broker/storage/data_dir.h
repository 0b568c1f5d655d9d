/* A data directory: lock, identity, clean-stop marker, checkpoints, and the partitions in it.
 *
 * One process per directory (`.lock`, F_OFD_SETLK, naming its owner). The marker is removed, and the removal
 * synced, before any log is touched; it is written last. Side files are replaced atomically; a bad one means
 * "not known", never zero. One thread at a time (the caller's).
 */
#ifndef BROOK_STORAGE_DATA_DIR_H
#define BROOK_STORAGE_DATA_DIR_H

#include "broker/storage/log.h"

#include <limits.h>

#define REACHED_FILE "reached-epoch-checkpoint"

struct data_dir;

/* Found at opening: one per partition directory. */
struct data_dir_partition {
    char topic[256];
    int32_t partition;
    uint8_t topic_id[16]; /* of partition.metadata; zero: the file is not there */
    struct log_hint hint;
    int64_t high_watermark; /* of the checkpoint; -1: not known */
};

/* Make the directory if it is missing, and lock it; nothing else in it is looked at. Before data_dir_load()
 * only data_dir_is_new(), data_dir_leave_unclaimed(), data_dir_was_clean() (which says no) and data_dir_close() (not clean) may be
 * called. Returns 0; -BROOK_E_LOCKED (the sentence names the owner); -BROOK_E_CONFIG (too long a path);
 * -BROOK_E_STORAGE_ERROR. */
int data_dir_lock(const char *path, struct data_dir **ret_dir, struct brook_error *error);
/* Check `broker_id` and `cluster_id` against meta.properties (written if missing), and look what is there.
 * Once; after a failure only what may be called before it. Returns 0; -BROOK_E_CONFIG (another broker's or
 * cluster's directory); -BROOK_E_STORAGE_FULL; -BROOK_E_STORAGE_ERROR. */
int data_dir_load(struct data_dir *dir, int32_t broker_id, const char *cluster_id,
                  struct brook_error *error);
/* Whether it has no meta.properties: nobody used it yet, or it is not the one that was used. Before data_dir_load(). */
bool data_dir_is_new(const struct data_dir *dir);
/* Let data_dir_load() leave such a directory without meta.properties, so that it is new at the next start too;
 * data_dir_claim() writes it later, if it was left out. Returns as data_dir_load(). */
void data_dir_leave_unclaimed(struct data_dir *dir);
int data_dir_claim(struct data_dir *dir, struct brook_error *error);
/* Lock and load. */
int data_dir_open(const char *path, int32_t broker_id, const char *cluster_id, struct data_dir **ret_dir,
                  struct brook_error *error);
/* With `clean` (every log was closed, each close answered 0, and data_dir_checkpoint() told the last
 * positions) write the marker; let go of the lock. Returns 0 or -BROOK_E_STORAGE_ERROR. NULL is fine. */
int data_dir_close(struct data_dir *dir, bool clean);
/* Write that marker while the lock stays; close the directory later, not `clean`, which leaves the marker
 * alone. Returns 0 or -BROOK_E_STORAGE_ERROR. */
int data_dir_mark_clean(struct data_dir *dir);
/* Whether the last stop was clean, and the broker epoch that the marker names (-1: none). */
bool data_dir_was_clean(const struct data_dir *dir, int64_t *ret_broker_epoch);
/* The registration that was noted last, by a broker with `directories` data directories: it is the disk that had all
 * that was synced then. -1: none, or with another number of directories. */
int64_t data_dir_registered(const struct data_dir *dir, size_t directories);
/* Note one, on stable storage when this returns 0; -1: none, what was noted is forgotten. Returns 0 or a storage error:
 * it may or may not be there. */
int data_dir_note_registered(struct data_dir *dir, int64_t broker_epoch, size_t directories);
/* What was odd at opening (side files that made no sense and count as not there), a sentence each, for the
 * log of whoever opened it. Borrowed. */
const char *const *data_dir_warnings(const struct data_dir *dir, size_t *ret_count);
/* To be named by the marker. */
void data_dir_set_broker_epoch(struct data_dir *dir, int64_t broker_epoch);

/* The partitions found; borrowed, good until close. Leftovers of deletions have been swept. */
const struct data_dir_partition *data_dir_partitions(const struct data_dir *dir, size_t *ret_count);
/* Directory of a partition: writes "<path>/<topic>-<partition>". */
void data_dir_partition_path(const struct data_dir *dir, const char *topic, int32_t partition,
                             char buffer[PATH_MAX]);
/* Write partition.metadata into an existing partition directory. It is synced with the log's first flush that has
 * records: until then nothing is missed where it is gone. */
int data_dir_write_topic_id(const struct data_dir *dir, const char *topic, int32_t partition,
                            const uint8_t topic_id[16]);
/* Whether no record can be in the partition's directory: there is no `.log` with a byte in it (or no directory).
 */
bool data_dir_holds_nothing(const struct data_dir *dir, const char *topic, int32_t partition);
/* Room on the directory's file system. Any thread. Returns 0, or -BROOK_E_STORAGE_ERROR (it can not be looked at, or
 * nothing can be written there any more) with a sentence and errno. */
int data_dir_free_bytes(const struct data_dir *dir, int64_t *ret_bytes, struct brook_error *error);
/* Set a directory aside under a "-stray" name; it is reported, never deleted. */
int data_dir_set_aside(struct data_dir *dir, const char *topic, int32_t partition);

/* Checkpoints: replace reached-epoch-checkpoint, recovery-point-offset-checkpoint, log-start-offset-checkpoint,
 * replication-offset-checkpoint and cleaner-offset-checkpoint. Partitions found at opening that are not among `entries` keep what they had,
 * as long as their directory is there. A negative offset is left out. A start offset that is lower than the one
 * known does not count: it was read before data_dir_raise_start(). Nor does a lower reached epoch. */
struct data_dir_checkpoint {
    const char *topic;
    int32_t partition;
    int64_t recovery_point;
    int64_t start_offset;
    int64_t high_watermark;
    int64_t cleaned_offset; /* 0 is left out as well */
    int32_t reached_epoch;  /* data_dir_keep_reached(); -1: as it was */
};
/* Returns 0; -BROOK_E_NOMEM; -BROOK_E_STORAGE_FULL; -BROOK_E_STORAGE_ERROR, with a sentence and errno. Files that
 * could not be replaced are as they were. */
int data_dir_checkpoint(struct data_dir *dir, const struct data_dir_checkpoint *entries, size_t count,
                        struct brook_error *error);
/* Records below `offset` are deleted: put it into log-start-offset-checkpoint, on stable storage when this returns
 * 0. A lower one than known changes nothing. Returns as data_dir_checkpoint(); after a failure it may or may not be
 * there. */
int data_dir_raise_start(struct data_dir *dir, const char *topic, int32_t partition, int64_t offset);
/* The same for several partitions, with one write. */
struct data_dir_start {
    const char *topic;
    int32_t partition;
    int64_t offset; /* or an epoch */
};
int data_dir_raise_starts(struct data_dir *dir, const struct data_dir_start *starts, size_t count);
/* Logs are about to be cut to these offsets: let their recovery points be at most that, on stable storage when this
 * returns 0, with one write. Nothing is written when they are already. Returns as data_dir_checkpoint(). */
int data_dir_lower_recovery_points(struct data_dir *dir, const struct data_dir_start *points, size_t count);
/* Leader epochs that logs have reached: all that was committed before such an epoch is in its log and synced, and stays
 * true whatever becomes of the log, but for lost disks. Put them into reached-epoch-checkpoint, with one write, on
 * stable storage when this returns 0; lower ones than known change nothing. Returns as data_dir_checkpoint(); after a
 * failure they may or may not be there. */
int data_dir_keep_reached(struct data_dir *dir, const struct data_dir_start *epochs, size_t count);
/* The one that was kept last; -1: none, or not known. */
int32_t data_dir_reached(const struct data_dir *dir, const char *topic, int32_t partition);
/* The log has lost what was synced: nothing of that is true any more. Before its recovery point is written anew. Writes
 * only if there is something to forget. Returns as data_dir_checkpoint(); after a failure nothing is forgotten. */
int data_dir_forget_reached(struct data_dir *dir, const char *topic, int32_t partition);
/* Forget what the checkpoints say about a partition: before a new one of the same name is made, since offsets
 * of the old would be taken for its own after a crash. Writes only if there is something to forget. */
/* Returns as data_dir_checkpoint(). */
int data_dir_forget(struct data_dir *dir, const char *topic, int32_t partition);
#endif
