/* Inside of a log, shared by the files log*.c of this folder and by nobody else.
 *
 * The writer (one at a time, by contract) changes everything here; what readers look at is changed under
 * `lock`, so the writer itself reads without it. `lock` is never held across a system call.
 *
 *   segments[0] ... segments[n-2]   sealed: their bytes never change (but for a truncation)
 *   segments[n-1]                   active: the writer appends to it
 *
 * An append that rolls on its way writes into several segments before any of it may be seen:
 * `visible_segment` and `visible_bytes` say where what readers may see ends; segments behind it are not
 * theirs yet.
 */
#ifndef BROOK_STORAGE_LOG_STATE_H
#define BROOK_STORAGE_LOG_STATE_H

#include "broker/storage/epochs.h"
#include "broker/storage/indexer.h"
#include "broker/storage/log.h"
#include "broker/storage/producer_state.h"
#include "broker/storage/segment.h"
#include "broker/storage/tail.h"

#include <pthread.h>

struct doomed_segment; /* removed, kept until file_delete_delay_ms have passed */

/* What is known of idempotent producers; the writer's. */
struct log_producers {
    struct producer_state *state; /* NULL: nobody is known */
    int64_t from_offset;          /* nothing is known of the batches below that no snapshot tells */
    int64_t *snapshots;           /* offsets of the files, rising */
    size_t snapshots_count;
    bool snapshot_is_due; /* a segment was sealed since the last one */
    bool is_changing;     /* a transaction of the state is open */
    bool is_judging;      /* by log_judge_begin() */
    int64_t next_offset;  /* of the next batch that log_judge() lets pass */
};

struct log {
    struct directory *directory;
    pthread_mutex_t lock;
    pthread_mutex_t flush_lock; /* one flush at a time; may be held across fdatasync */

    /* under `lock` */
    struct log_settings settings;
    struct segment **segments;
    size_t segments_count;
    size_t segments_capacity;
    int64_t start_offset;
    int64_t end_offset;
    int64_t durable_end;
    int64_t cleaned_offset; /* compacted below */
    struct segment *visible_segment; /* borrowed from `segments` */
    int64_t visible_bytes;
    uint64_t generation;  /* counts truncations: a reader that saw another one looks again */
    bool directory_dirty; /* names changed since the directory was synced */
    /* No record was ever durable here, so nothing was synced that leads to one: the directory's own name, the topic id
     * in it, the first segment's name. The first flush that has records does all of it. */
    bool is_unnamed;
    struct tail *tail;    /* of the active segment; allocated by the first append, given up when the log rests */
    bool retired;
    struct epochs epochs;

    /* the writer's */
    struct indexer indexer; /* of the active segment */
    int64_t next_offset;    /* >= end_offset, ahead of it during an append */
    struct doomed_segment *doomed;
    struct log_producers producers;
    int64_t future_ms; /* how far ahead of its append the first stamp was that retention did not believe; 0: none was */
    bool is_future_told;

    _Atomic bool offline;
    char *offline_reason; /* written once, before `offline` */
};

static inline struct segment *log_active(const struct log *log)
{
    return log->segments[log->segments_count - 1];
}

/* Nothing was ever in it, as far as its files tell. */
static inline bool log_is_blank(const struct log *log)
{
    return log->segments_count == 1 && log->segments[0]->base_offset == 0 && log->segments[0]->bytes == 0;
}

/* Make the names in a log's directory durable; with `is_first` the topic id and the directory's own name too. Returns
 * 0, or -1 and errno. */
int log_sync_names(const struct directory *directory, bool is_first);
/* Let go of everything, without writing anything. Also of a log that was opened half way. */
void log_free(struct log *log);
/* Take no appends any more. The first reason stays. */
void log_go_offline(struct log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* -BROOK_E_LOG_OFFLINE with the reason, or 0. */
int log_check_online(struct log *log, struct brook_error *error);

/* [writer] Seal the active segment and open a new one at `base_offset`. An active one that is empty is
 * replaced. Nothing has changed on failure. */
int log_roll(struct log *log, int64_t base_offset, struct brook_error *error);
/* [writer] Put `segment` (taken over) behind the others. */
int log_add_segment(struct log *log, struct segment *segment);
/* [writer] Let readers see all that was written. */
void log_publish(struct log *log);

/* [writer] Remove the segments from `keep` on (at least one is kept), cut the last one kept to `bytes`, drop
 * the index entries of what is gone, and let `end_offset` be the next offset. Returns 0 or an error: the log
 * must go offline then. */
int log_cut(struct log *log, size_t keep, int64_t bytes, int64_t end_offset, struct brook_error *error);
/* [writer] Look at the end of the active segment, whose bytes and index counts are right, and go on from
 * there: starts the indexer. Returns 0 and the next offset; -BROOK_E_CORRUPT_BATCH when index and log
 * disagree or the headers do not lead to the end; -BROOK_E_STORAGE_ERROR. */
int log_resume(struct log *log, int64_t *ret_next_offset);

/* [writer] Change what is known of the leader epochs (epochs.h), under the log's lock. */
int log_epochs_assign(struct log *log, int32_t epoch, int64_t start_offset);
void log_epochs_cut_end(struct log *log, int64_t end_offset);
void log_epochs_cut_start(struct log *log, int64_t start_offset);
/* [writer] Write the file, if it does not say what is known yet. It can be made again from the log, so its
 * failure fails nothing: it is tried again with the next change, and at the close. */
void log_epochs_save(struct log *log);

/* [writer] log_producers.c. At the open: from the newest snapshot and the batches behind it; where there is none, from
 * the segments that were scanned, which begin at `scanned_from` (-1: none was). Returns 0 or a storage error. */
int log_producers_open(struct log *log, int64_t scanned_from, struct brook_error *error);
/* [writer] Before the write: take up the batches, unless they were judged, so that failing leaves all as it was. */
int log_producers_note(struct log *log, const struct log_batch *batches, size_t count, int64_t now_ms,
                       struct brook_error *error);
/* [writer] After it, whether the batches were written or not. */
void log_producers_settle(struct log *log, bool is_written);
/* [writer] Write a snapshot for what lies below `next_offset`, if a segment was sealed since the last one, or `always`;
 * nothing where nobody is known. Old ones go. Returns 0 or a storage error: it is tried again with the next one. */
int log_producers_save(struct log *log, bool always);
/* [writer] The log was cut to `end_offset`. Returns 0 or an error: the log must go offline then. */
int log_producers_cut(struct log *log, int64_t end_offset, struct brook_error *error);
/* [writer] The log starts over at `offset`. */
int log_producers_start_over(struct log *log, int64_t offset, struct brook_error *error);
/* [writer] Forget who has been silent for too long. */
void log_producers_expire(struct log *log, int64_t now_ms);
void log_producers_done(struct log *log);

/* [writer] Remove the oldest `count` segments (never the last). */
int log_drop_oldest(struct log *log, size_t count, int64_t now_ms, struct brook_error *error);
/* [writer] Put `made`, whose files are complete and synced under their `.cleaned` names, in the place of the
 * `count` segments of `old`, whose range of offsets it covers to the last one. Readers go on in either. On
 * success a reference to `made` is taken. Returns 0; -BROOK_E_AGAIN when those segments are not all there any
 * more, or the log was cut since it had that `generation`; -BROOK_E_LOG_OFFLINE; a storage error: nothing has
 * changed then, or the log is offline and will be whole when it is opened again. */
int log_replace(struct log *log, struct segment *const *old, size_t count, uint64_t generation,
                struct segment *made, struct brook_error *error);

/* [writer] Unlink what was removed `file_delete_delay_ms` ago; all of it with `all`. */
void log_bury(struct log *log, int64_t now_ms, bool all);

/* The segment that holds `offset` (or the first one behind it): place in `segments`. Under `lock`. */
size_t log_segment_of(const struct log *log, int64_t offset);

/* What a reader took from the log in one look. Owns a reference to `segment`. */
struct log_view {
    struct segment *segment;
    int64_t end;       /* bytes of the segment that may be seen */
    int64_t next_base; /* of the following segment; INT64_MAX: none that may be seen */
    uint32_t index_entries;
    uint32_t time_entries;
    struct index_entry start; /* best entry known in memory, position 0 and offset -1 if none */
    bool start_is_best;       /* the file has no better one */
    bool index_usable;
    bool cached_only; /* set by who takes it: -BROOK_E_LOCKED instead of waiting for the disk */
    uint64_t generation;
};
/* Take a view of the segment at `place` for finding `offset`. Under `lock`. */
void log_view_take(struct log *log, size_t place, int64_t offset, struct log_view *ret_view);
void log_view_done(struct log_view *v);
/* Position of the first batch that ends at or above `offset`, below v->end; its header too. Returns 0;
 * -BROOK_E_AGAIN when there is none (*ret_position is v->end then); -BROOK_E_CORRUPT_BATCH;
 * -BROOK_E_STORAGE_ERROR; -BROOK_E_LOCKED. Blocks on the disk (unless v->cached_only), without the lock. */
int log_view_find(struct log_view *v, int64_t offset, int64_t *ret_position, struct batch_header *ret_header);
#endif
