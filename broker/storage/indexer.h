/* Writing both indexes of one segment: notes batches as they are appended (or found by a scan), keeps the
 * newest entries in memory and writes them in blocks, when the segment is sealed, and when the log is closed.
 *
 * Indexes are disposable: a failure to write them fails no append, it makes them sparser. Nothing is synced.
 * Fields are the writer's, changed under the log's lock where readers look (the pending entries and the
 * segment's counts); calls that do I/O are marked and must be made without the lock.
 */
#ifndef BROOK_STORAGE_INDEXER_H
#define BROOK_STORAGE_INDEXER_H

#include "broker/storage/index.h"
#include "broker/storage/segment.h"
#include "broker/storage/time_index.h"
#include "proto/record/batch.h"

#include <pthread.h>

/* One block of pending entries: 4 KiB of the offset index, two MiB of log at the default interval. */
#define INDEXER_PENDING_MAX 512

struct indexer_pending {
    uint32_t index_count;
    uint32_t time_count;
    struct index_entry index[INDEXER_PENDING_MAX];
    struct time_index_entry time[INDEXER_PENDING_MAX];
};

struct indexer {
    struct segment *segment;         /* borrowed */
    struct indexer_pending *pending; /* allocated with the first entry, kept until the log rests */
    int64_t bytes_since_entry;
    int64_t last_time; /* timestamp of the last time index entry */
};

/* Go on with `segment`, whose counts say what its files hold; nothing is pending. `last_time` is the
 * timestamp of its last time entry, TIMESTAMP_NONE for none. */
void indexer_start(struct indexer *ix, struct segment *segment, int64_t bytes_since_entry, int64_t last_time);
void indexer_done(struct indexer *ix);

/* A batch was written at `position` of the segment: keep the greatest timestamp, add an entry when more than
 * `interval` bytes have passed since the last one. An entry for which there is no room is left out. */
void indexer_note(struct indexer *ix, const struct batch_header *header, int64_t position, int32_t interval);
/* Whether `more` batches may find no room. */
bool indexer_is_full(const struct indexer *ix, size_t more);
/* Entries of both indexes, pending ones included. */
uint32_t indexer_index_entries(const struct indexer *ix);
uint32_t indexer_time_entries(const struct indexer *ix);
/* The last pending entry at or below `relative_offset`. Under the log's lock. */
bool indexer_find(const struct indexer *ix, int64_t relative_offset, struct index_entry *ret_entry);
/* The last pending entry with a timestamp below `timestamp`. Under the log's lock. */
bool indexer_find_time(const struct indexer *ix, int64_t timestamp, struct time_index_entry *ret_entry);

/* I/O: write what is pending; `lock` is taken to publish the new counts. Returns 0 or -1 and errno (what is
 * pending stays so). */
int indexer_flush(struct indexer *ix, pthread_mutex_t *lock);
/* I/O: the segment is sealed or closed: add the last time entry, write, cut the files to their entries. */
int indexer_finish(struct indexer *ix, pthread_mutex_t *lock);
/* I/O: the segment is cut before `end_offset`: drop the entries at or above it. The caller starts the indexer
 * anew after looking at what is left (log_tail.h). A failure drops all entries and returns -1 and errno. */
int indexer_cut(struct indexer *ix, int64_t end_offset, pthread_mutex_t *lock);
/* I/O: remove both files of `segment` and start anew with it, for a rebuild. Only while nobody reads. Returns
 * 0 or -1 and errno. */
int indexer_reset(struct indexer *ix, struct segment *segment);
#endif
