/* A log: the segments of one partition in one directory. FORMAT.md draws the files.
 *
 * One writer, many readers. Calls marked [writer] change the log and are serialised by the caller (the
 * partition's append lock); all others may run on any thread at the same time as the writer. The log's own
 * lock guards its positions and segment list and is never held across a system call.
 * The log knows no network, no ZooKeeper, no roles; offsets count records, positions count bytes.
 */
#ifndef BROOK_STORAGE_LOG_H
#define BROOK_STORAGE_LOG_H

#include "proto/base/err.h"
#include "proto/record/batch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct diag;
struct log;
struct open_files;
struct segment;

/* What happens to records that are not wanted any more; values are those of the topic setting's table. */
enum cleanup_policy {
    CLEANUP_DELETE,         /* gone by age and size */
    CLEANUP_COMPACT,        /* gone when a later one has the same key (compaction.h) */
    CLEANUP_COMPACT_DELETE, /* both */
    CLEANUP_DELETE_COMPACT  /* the same, said the other way round */
};

enum timestamp_type {
    TIMESTAMP_CREATE,    /* records keep their own */
    TIMESTAMP_LOG_APPEND /* log_append() stamps the batch: its records all have that time */
};

struct log_settings {
    int64_t segment_bytes;       /* roll beyond; at most 2^31 - 1 */
    int64_t segment_ms;          /* roll when the first batch is older */
    int32_t segment_index_bytes; /* roll when an index is full */
    int32_t index_interval_bytes;
    int64_t retention_ms;    /* -1: for ever */
    int64_t retention_bytes; /* -1: without limit */
    int64_t file_delete_delay_ms;
    /* compaction */
    int64_t delete_retention_ms;   /* how long tombstones stay after they were first compacted */
    int64_t min_compaction_lag_ms; /* younger records stay */
    int64_t max_compaction_lag_ms; /* records that have waited longer are not waited for any more */
    int32_t cleanup_policy;        /* enum cleanup_policy */
    int32_t min_dirty_ppm;         /* compacted when more of it, in millionths, is dirty */
    int64_t timestamp_type;        /* enum timestamp_type, of what is appended from now on */
    /* Idempotent producers: how many are remembered, and how long one that is silent. 0: the defaults. */
    int64_t producers_max;
    int64_t producer_expiration_ms;
};
/* The defaults of FORMAT.md. */
void log_settings_default(struct log_settings *settings);

static inline bool log_settings_compact(const struct log_settings *s)
{
    return s->cleanup_policy != CLEANUP_DELETE;
}

static inline bool log_settings_delete(const struct log_settings *s)
{
    return s->cleanup_policy != CLEANUP_COMPACT;
}

/* What is known about the last stop. */
struct log_hint {
    bool clean;             /* the clean-stop marker was there */
    int64_t recovery_point; /* everything below is on stable storage; -1: not known */
    int64_t cleaned_offset; /* compacted below; 0 or -1: not known, all of it is compacted again */
    int64_t start_offset;   /* from the checkpoint; -1: not known. After a crash: at least the end */
    /* The budget of descriptors for its segments (open_files.h), of which it takes a reference. NULL: no limit. */
    struct open_files *files;
    _Atomic int64_t *bytes_scanned; /* counts up as recovery goes on, for who wants to say how far it is. Or NULL */
};

/* What opening found, for the one line in the log of whoever opened it. */
struct log_recovery {
    bool sync_failed; /* also told on failure: as log_sync_failed(), and not to be opened anew either */
    bool scanned;
    int64_t bytes_scanned;
    int64_t bytes_cut; /* torn tail */
    int32_t indexes_rebuilt;
    bool epochs_bad; /* the epoch file made no sense: made anew from the batches */
};

/* Open or create the log in `directory` (created if missing; its parent must exist). `settings` are copied.
 * Returns 0; -BROOK_E_STORAGE_FULL; -BROOK_E_STORAGE_ERROR; -BROOK_E_UNSUPPORTED_FORMAT (messages older than
 * v2); -BROOK_E_CORRUPT_BATCH (a bad batch with good ones behind it: nothing was cut); with a sentence. */
int log_open(const char *directory, const struct log_settings *settings, const struct log_hint *hint,
             struct log **ret_log, struct log_recovery *ret_recovery, struct brook_error *error);
/* [writer] Write the indexes, sync, close. Readers' ranges stay good. NULL is fine. Returns 0 or
 * -BROOK_E_STORAGE_ERROR (the log is closed all the same, but must not count as cleanly stopped). */
int log_close(struct log *log);

/* Offset of the first record kept; of the next one to be appended; end of what is on stable storage. */
int64_t log_start_offset(struct log *log);
int64_t log_end_offset(struct log *log);
int64_t log_durable_end(struct log *log);
/* What is below has been compacted; 0: nothing, as far as is known. */
int64_t log_cleaned_offset(struct log *log);
int64_t log_bytes(struct log *log);
size_t log_segments_count(struct log *log);
/* NULL while all is well, else why the log takes no appends any more. */
const char *log_offline_reason(struct log *log);
/* A sync has failed. What it was to write may be in the page cache only and count as written there: opened
 * again without a restart of the machine, the log would seem whole and be synced in vain. */
bool log_sync_failed(const struct log *log);

/* One batch to append: whole, checked (batch_check_produced), in memory that is the caller's and writable.
 * Base offset and leader epoch are patched into it. */
struct log_batch {
    void *data;
    struct batch_header header; /* as read; base_offset is set on success */
};

/* [writer] Append `count` (at least 1) batches in order with consecutive offsets, in as few pwritev calls as
 * the system allows, rolling where needed. All or nothing: on failure the file is cut back, offsets are as
 * before, and the answer is -BROOK_E_STORAGE_FULL or -BROOK_E_STORAGE_ERROR; when even the cut fails the log
 * is offline (-BROOK_E_LOG_OFFLINE from then on). `now_ms`: wall clock, for rolling by age.
 * On success *ret_base is the first offset given. */
int log_append(struct log *log, struct log_batch *batches, size_t count, int32_t leader_epoch, int64_t now_ms,
               int64_t *ret_base, struct brook_error *error);
/* [writer] Before log_append(): tell new batches of idempotent producers from repeated ones (producer_state.h). Several
 * appends that are to be written in one go are judged one after the other,
 *
 *     log_judge_begin(log);
 *     log_judge(log, batches, count, now_ms, &judgement, &error) ... for each
 *     log_append(log, all that are new, in this order, ...)   or   log_judge_end(log): nothing is written
 *
 * and whatever happens then, what is known of producers is what lies in the log. Batches that nobody judged are taken
 * up by log_append() as they are. */
void log_judge_begin(struct log *log);
struct log_judgement {
    size_t duplicates;   /* so many batches at the beginning are there already: header.base_offset says where (-1: not
                            known any more). The others are to be appended; header.base_offset is set there, too */
    int64_t last_offset; /* the highest of all; what lies below a duplicate that is not known any more: above it */
};
/* The batches of one append are those of one producer and epoch, in sequence, or of none. Returns 0, or a refusal:
 * -BROOK_E_OUT_OF_SEQUENCE, -BROOK_E_UNKNOWN_PRODUCER, -BROOK_E_PRODUCER_FENCED, -BROOK_E_BAD_BATCH (several
 * producers), with nothing changed; -BROOK_E_NOMEM: nothing that was judged may be appended, call log_judge_end(). */
int log_judge(struct log *log, struct log_batch *batches, size_t count, int64_t now_ms,
              struct log_judgement *ret_judgement, struct brook_error *error);
void log_judge_end(struct log *log);

/* [writer] Append batches that carry their offsets (rising, each base >= the end), as a follower has to. A log
 * without a record may begin with a batch that begins below its start and goes beyond it: records are deleted inside
 * batches, too. */
int log_append_as_follower(struct log *log, struct log_batch *batches, size_t count, int64_t now_ms,
                           struct brook_error *error);

/* A piece of a segment, good until log_range_done() whatever happens to the log: for sendfile or pread. */
struct log_range {
    struct segment *segment; /* counted reference, pinned; NULL: empty range */
    int fd;                  /* the segment's, for reading at explicit positions only */
    off_t position;
    size_t bytes;
    bool is_fresh; /* written within LOG_FRESH_MS: nobody needs to ask whether it is in the page cache */
};
/* Far below the age at which the kernel may drop what was written: it has to be on the disk before. */
#define LOG_FRESH_MS 5000
void log_range_done(struct log_range *range);

/* The batches from the one that contains `offset` on, below `end_offset` (a batch that holds it or higher is
 * not included), at most `bytes_max` bytes of one segment: whole batches where a cheap look says so, else a
 * trailing partial one is possible. The first batch is included whole even beyond `bytes_max` when
 * `whole_first`, as long as it has at most `first_bytes_max`.
 * Returns 0 (ret->bytes may be 0: nothing there yet, or without `whole_first` nothing that fits);
 * -BROOK_E_OFFSET_OUT_OF_RANGE (below start or above end); -BROOK_E_MESSAGE_TOO_LARGE (the first batch has
 * more than `first_bytes_max`); -BROOK_E_STORAGE_ERROR (also where headers on the way
 * make no sense; what the checksums cover is for the reader to check). */
int log_read(struct log *log, int64_t offset, int64_t end_offset, size_t bytes_max, bool whole_first,
             size_t first_bytes_max, struct log_range *ret_range);

/* log_read() for threads that must not wait for a disk: -BROOK_E_LOCKED where an index or a header is not in
 * the page cache, or a file that has to be opened is not known to the kernel; log_read() on another thread brings it
 * in. What the range itself holds is not looked at. */
int log_read_cached(struct log *log, int64_t offset, int64_t end_offset, size_t bytes_max, bool whole_first,
                    size_t first_bytes_max, struct log_range *ret_range);

/* The first offset whose record has timestamp >= `timestamp`, exact to the record, below `end_offset`.
 * Reads and may expand a batch: not for an I/O loop when it may hit the disk.
 * Returns 0, -BROOK_E_NOT_FOUND, or a storage or batch error. */
int log_find_time(struct log *log, int64_t timestamp, int64_t end_offset, size_t expanded_bytes_max,
                  int64_t *ret_offset, int64_t *ret_timestamp);

/* [writer] Remove whole segments that are past retention at `now_ms`; the active one is rolled first when all
 * its records are. Returns the number removed, or a negative error. */
int log_retain(struct log *log, int64_t now_ms);
/* [writer] After log_retain(), once in the life of a log: by how many ms records are stamped ahead of the broker's clock,
 * more than a day, so that their age is counted from their append. 0: none that retention has met, or told already. */
int64_t log_take_future_stamp(struct log *log);
/* [writer] Nothing below `offset` is kept any more (at most up to the end; a lower one than the start changes
 * nothing): the start offset rises at once, inside a segment too, and whole segments below it are removed, the
 * active one as well when nothing of it is left. The caller has put the new start on stable storage before
 * (data_dir_raise_start()), since log_open() knows it from there only. Returns the number of segments removed,
 * or a negative error; the start has risen all the same, unless the log is offline. */
int log_trim(struct log *log, int64_t offset, int64_t now_ms);
/* [writer] Cut so that the next offset is max(offset, start); an offset inside a batch takes the whole batch
 * with it, and the next offset is the batch's base, or the start if that is higher. Above the end: nothing. Whoever keeps a recovery point
 * lowers it, synced, before this. */
int log_truncate(struct log *log, int64_t offset, struct brook_error *error);
/* [writer] Give up all there is and begin at `offset`, empty: for a follower whose leader has nothing below `offset` any
 * more, or nothing of what is here. Whoever keeps a recovery point lowers it before, as for log_truncate(). A crash on the
 * way leaves the old records or an empty log. */
int log_start_over(struct log *log, int64_t offset, int64_t now_ms, struct brook_error *error);

/* ---- leader epochs: which began at which offset, as far as the log reaches ---------------------------- */

/* Of the newest record; -1: none. */
int32_t log_last_epoch(struct log *log);
/* Look at the epochs and where the log begins and ends, at one moment; broker/replication/epoch_history.h has the
 * questions. `look` runs inside this call, under the log's
 * lock: it must be short and call nothing of the log. */
struct epochs;
void log_look_at_epochs(struct log *log,
                        void (*look)(void *arg, const struct epochs *epochs, int64_t start_offset, int64_t end_offset),
                        void *arg);

/* [writer] New settings from now on. */
void log_configure(struct log *log, const struct log_settings *settings);

/* Whether nothing was appended since `since_ms` (wall clock) and there is something that log_rest() would give up. */
bool log_can_rest(struct log *log, int64_t since_ms);
/* [writer] Give up what only a log in use needs: its part in memory of the index, which is written, the last batches
 * in memory, descriptors of segments that were not read either since this was called last. */
void log_rest(struct log *log);

/* Any thread (the flusher): fdatasync what was appended before the call; then log_durable_end() says how far.
 * A failure takes the log offline: nothing is retried. */
int log_flush(struct log *log);

/* [writer] Rename the directory to its "-delete" form, so that its name is free, and take no appends any
 * more; reading goes on where files are open. log_close() and the last range then remove what is left.
 * Returns 0 or -BROOK_E_STORAGE_ERROR. */
int log_retire(struct log *log, struct brook_error *error);
/* log_retire() and log_close() in one. Takes *log. */
int log_delete(struct log **log);
#endif
