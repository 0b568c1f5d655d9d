/* The budget of open segment files: a process has so many descriptors, logs may have more segments.
 *
 * Segments whose file is open are kept in the order of their last use; when one more is to be opened and the
 * budget is used up, the file that was not used for the longest is closed (a clock: used since it was looked
 * at last, or not). A pinned segment keeps its descriptor. So does one with writes that were not synced, since
 * closing can lose the news of a failed write: threads of this budget sync it first. Whoever opens a file
 * while all that could be closed waits for a sync waits too, for OPEN_FILES_WAIT_MS at most; where
 * everything is pinned nothing is waited for. Then the budget is exceeded rather than a request refused.
 *
 * Index files are open only during one look or one write, by as many threads as do that. Any thread;
 * references are counted. Knows segments, and nothing of logs.
 */
#ifndef BROOK_STORAGE_OPEN_FILES_H
#define BROOK_STORAGE_OPEN_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct open_files;
struct segment;

/* The least budget: smaller ones count as this. And none. */
#define OPEN_FILES_MIN 4
#define OPEN_FILES_UNLIMITED SIZE_MAX
#define OPEN_FILES_WAIT_MS 1000

/* One reference; its threads start when they are first needed. Returns 0 or -BROOK_E_NOMEM. */
int open_files_new(size_t max, struct open_files **ret_files);
struct open_files *open_files_ref(struct open_files *files); /* NULL is fine */
/* The last reference joins the threads. NULL is fine. */
void open_files_unref(struct open_files *files);

struct open_files_counts {
    size_t open;
    size_t most;     /* ever at the same time */
    uint64_t opened; /* ever */
    uint64_t synced; /* because they had to be closed */
    uint64_t waited; /* for that */
};
void open_files_counts(struct open_files *files, struct open_files_counts *ret_counts);

/* ---- for segment.c ---------------------------------------------------------------------------------- */

/* A file is about to be opened: make room for it. Then open_files_add() or open_files_give_up(). Returns false, with
 * nothing to give up, where it would have to wait and may not. */
bool open_files_make_room(struct open_files *files, bool may_wait);
/* It is open, as `fd`, for `segment`, which is pinned by the caller. When another thread was quicker its
 * descriptor stays and `fd` is closed. */
void open_files_add(struct open_files *files, struct segment *segment, int fd);
void open_files_give_up(struct open_files *files);
/* Close it if it was not used since it was looked at last, is not pinned, and has nothing to be synced. */
void open_files_close_unused(struct open_files *files, struct segment *segment);
/* The segment goes (nobody else knows it): close its descriptor, if it has one. Waits for a sync under way. */
void open_files_remove(struct open_files *files, struct segment *segment);
#endif
