/* One segment: a `.log` file and its two indexes, counted by references.
 *
 * The log holds one reference, every range that a reader was given holds another. A segment that the log gave
 * up (retention, truncation, deletion of the log) stays readable until the last of them goes, which closes
 * the descriptor and, where the files were renamed to `.deleted`, unlinks them. The descriptor is opened when first
 * needed, is good while the segment is pinned, and may be closed at any other time (open_files.h): whoever reads,
 * writes or hands out a range pins it for as long as that takes. The plain fields belong to the log's writer and are
 * changed under the log's lock; the reference count and the descriptor are anybody's. Knows files; knows nothing of
 * offsets given out, rolling or retention.
 */
#ifndef BROOK_STORAGE_SEGMENT_H
#define BROOK_STORAGE_SEGMENT_H

#include "broker/storage/directory.h"
#include "proto/base/cleanup.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

/* Offsets in a segment are base offset + at most this; positions are at most this as well. */
#define SEGMENT_RELATIVE_MAX INT32_MAX
/* No record had a timestamp yet. */
#define TIMESTAMP_NONE (-1)

/* In `pins`, beside their number: there is no descriptor. */
#define SEGMENT_CLOSED (UINT32_C(1) << 31)

enum segment_open_state { SEGMENT_NOT_OPEN, SEGMENT_OPEN, SEGMENT_UNSYNCED, SEGMENT_SYNCING };

struct segment {
    _Atomic unsigned refs;
    _Atomic uint32_t pins;
    _Atomic int fd;
    _Atomic bool used;    /* pinned since open_files looked at it last */
    _Atomic bool dirty;   /* written to since the last sync; then it is open */
    _Atomic bool removed; /* the files are named `.deleted` now */
    _Atomic bool unlinked; /* the names are another segment's: the descriptor stays open, it is the only way */
    const char *aside;     /* what is hung behind the names while the segment is being made; NULL: nothing */
    uint8_t open_state;   /* enum segment_open_state; this and the link are open_files' */
    TAILQ_ENTRY(segment) open_link;
    struct directory *directory;
    int64_t base_offset;

    int64_t bytes;               /* whole batches in the file */
    uint32_t index_entries;      /* in the file */
    uint32_t time_entries;       /* in the file */
    _Atomic bool index_doubtful; /* does not fit the log: searched no more, rebuilt when there is time */
    bool max_timestamp_known;    /* sealed segments learn it when asked */
    int64_t max_timestamp;
    int64_t max_timestamp_offset; /* last offset of the batch that holds it */
    int64_t first_ms;             /* broker's clock: first batch appended; 0: empty */
    int64_t last_ms;              /* broker's clock: last batch appended */
};

/* A handle for the segment in `directory` (a reference is taken), nothing is opened. Returns 0 or
 * -BROOK_E_NOMEM. */
int segment_new(struct directory *directory, int64_t base_offset, struct segment **ret_segment);
/* Create the `.log` file, which must not exist, and open it. Returns 0, -BROOK_E_STORAGE_FULL,
 * -BROOK_E_STORAGE_ERROR or -BROOK_E_NOMEM. */
int segment_create(struct directory *directory, int64_t base_offset, struct segment **ret_segment,
                   struct brook_error *error);
/* Create the `.log` file of a segment that nobody else knows, and open it. Returns 0, or -1 and errno. */
int segment_create_file(struct segment *s);
struct segment *segment_ref(struct segment *s);
void segment_unref(struct segment *s);

/* The descriptor, for reading and writing at explicit positions until segment_unpin(); opened now if need be, which
 * may wait. -1 and errno on failure (nothing is pinned then). Any thread that holds a reference. */
int segment_pin(struct segment *s);
/* The same without waiting for a disk: -1 and EAGAIN where the file's name is not in memory, or where room in the
 * budget would have to be waited for. */
int segment_pin_cached(struct segment *s);
void segment_unpin(struct segment *s);
/* For a scope: AUTO_UNPIN struct segment *pinned = NULL; int fd = segment_pin_scoped(s, &pinned); */
int segment_pin_scoped(struct segment *s, struct segment **ret_pinned);
#define AUTO_UNPIN AUTO(segment_unpin_scoped)
static inline void segment_unpin_scoped(struct segment **pinned)
{
    if (*pinned)
        segment_unpin(*pinned);
}
/* Cut the file to `bytes`. Returns 0, or -1 and errno. */
int segment_truncate(struct segment *s, int64_t bytes);
/* Something was written through the descriptor, or may have been: to be called while it is still pinned. The
 * descriptor stays open until segment_sync(). */
void segment_wrote(struct segment *s);
/* Sync what was written, if anything. One at a time for the segments of a directory. Returns 0, or -1 and errno: then
 * and from then on, for all segments of the directory (directory_sync_error()), since what the kernel could not
 * write it has dropped. */
int segment_sync(struct segment *s);
/* Close the descriptor if nobody pinned the segment since this was called last, and nothing written waits for a sync.
 * Any thread that holds a reference. */
void segment_close_unused(struct segment *s);
/* Close the descriptor until it is wanted again, now and not when room is needed. Only while no other thread knows the
 * segment, and nothing written through it waits for a sync. */
void segment_rest(struct segment *s);
/* The files' names are about to be gone, or another segment's: have the descriptor open, for as long as anybody
 * refers to the segment. Returns 0, or -1 and errno. */
int segment_unlink_soon(struct segment *s);
/* Open an index file (`suffix`) for the caller to close. -1 and errno on failure; with `cached_only` EAGAIN where its
 * name is not in memory. */
int segment_open_index(const struct segment *s, const char *suffix, int flags);
int segment_open_index_to_read(const struct segment *s, const char *suffix, bool cached_only);

/* Rename the files to `.deleted`, the log first, so that a crash in between leaves lone indexes, which are
 * swept. Returns 0, or an error when the log's file could not be renamed. */
int segment_remove(struct segment *s, struct brook_error *error);
/* Unlink the files of a segment that nobody has read (a roll that is taken back). Returns 0 or -1 and errno.
 */
int segment_discard(struct segment *s);
#endif
