/* One segment: a `.log` file and its two indexes, counted by references.
 *
 * The log holds one reference, every range that a reader was given holds another. A segment that the log gave
 * up (retention, truncation, deletion of the log) stays readable until the last of them goes, which closes
 * the descriptor and, where the files were renamed to `.deleted`, unlinks them. Descriptors of sealed
 * segments are opened when first needed. The plain fields belong to the log's writer and are changed under
 * the log's lock; the reference count and the descriptor are anybody's. Knows files; knows nothing of offsets
 * given out, rolling or retention.
 */
#ifndef BROOK_STORAGE_SEGMENT_H
#define BROOK_STORAGE_SEGMENT_H

#include "broker/storage/directory.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Offsets in a segment are base offset + at most this; positions are at most this as well. */
#define SEGMENT_RELATIVE_MAX INT32_MAX
/* No record had a timestamp yet. */
#define TIMESTAMP_NONE (-1)

struct segment {
    _Atomic unsigned refs;
    _Atomic int fd;
    _Atomic bool removed; /* the files are named `.deleted` now */
    _Atomic bool unlinked; /* the names are another segment's: the descriptor stays open, it is the only way */
    const char *aside;     /* what is hung behind the names while the segment is being made; NULL: nothing */
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
struct segment *segment_ref(struct segment *s);
void segment_unref(struct segment *s);

/* The descriptor for reading and writing at explicit positions, opened now if need be; the segment's. -1 and
 * errno on failure. Any thread. */
int segment_fd(struct segment *s);
/* Close the descriptor until it is wanted again. Only while no other thread knows the segment, and while
 * nothing written through it waits for a sync: closing can lose the news of a failed write. */
void segment_rest(struct segment *s);
/* The files' names are about to be gone, or another segment's: have the descriptor open, for as long as anybody
 * refers to the segment. Returns 0, or -1 and errno. */
int segment_unlink_soon(struct segment *s);
/* Open an index file (`suffix`) for the caller to close. -1 and errno on failure. */
int segment_open_index(const struct segment *s, const char *suffix, int flags);

/* Rename the files to `.deleted`, the log first, so that a crash in between leaves lone indexes, which are
 * swept. Returns 0, or an error when the log's file could not be renamed. */
int segment_remove(struct segment *s, struct brook_error *error);
/* Unlink the files of a segment that nobody has read (a roll that is taken back). Returns 0 or -1 and errno.
 */
int segment_discard(struct segment *s);
#endif
