/* Compaction of a log: of each key the last record stays, offsets do not change.
 *
 * Sealed segments only, and only below a bound (the high watermark). What is dirty (not compacted yet) is read
 * into a map of bounded size that knows the last offset of each key; then the segments from the first on are
 * written anew without what the map replaces, small neighbours into one, and swapped for the old ones, a group
 * at a time; a segment of which nothing goes is read and left as it is. When the map is full before all of the dirty part is in it, that is done in several passes.
 * batch_compact.h says what stays of a batch, FORMAT.md what a crash leaves.
 *
 * Appends, reads and everything else of the log go on meanwhile; the append lock is needed for the swap alone,
 * which is a few renames and syncs of the directory. Not twice for a log at one time. Blocks on the disk for
 * long: on a thread that nobody waits for.
 */
#ifndef BROOK_STORAGE_COMPACTION_H
#define BROOK_STORAGE_COMPACTION_H

#include "broker/storage/compaction_plan.h"
#include "broker/storage/log.h"

struct compaction_settings {
    size_t map_bytes_max; /* for the map of keys; a few times the largest batch comes on top */
    size_t expanded_bytes_max;
    /* So many more bytes were read or written: wait as long as the disk is to be left to others. false: stop.
     */
    bool (*go_on)(void *arg, size_t bytes);
    /* Call work(work_arg) under the append lock. */
    void (*exclusively)(void *arg, void (*work)(void *work_arg), void *work_arg);
    void *arg;
};

/* What was done, also when it ended early. */
struct compaction_result {
    int64_t bytes_before; /* of the segments looked at; those seen in two passes count twice */
    int64_t bytes_after;
    int64_t records_removed;
    int64_t cleaned_offset; /* reached */
    int32_t passes;
    int32_t segments_before;
    int32_t segments_after;
    int32_t segments_left; /* of these, not written: nothing of them goes */
    size_t map_bytes; /* the largest map */
    size_t keys;      /* most in a map */
};

struct compaction_need {
    struct compaction_dirt dirt;
    int32_t ppm; /* dirty of all, in millionths */
    bool is_due; /* by the topic's settings */
};

/* How much there is to compact below `bound`. Any thread; may read a few headers from the disk. Returns 0,
 * -BROOK_E_NOMEM or -BROOK_E_STORAGE_ERROR. */
int log_compaction_need(struct log *log, int64_t bound, int64_t now_ms, struct compaction_need *ret);

/* Compact what is below `bound`, whether it is due or not. Returns 0; -BROOK_E_CLOSED (told to stop);
 * -BROOK_E_AGAIN (the log was cut, or lost segments to retention, meanwhile: what was done is good, the rest
 * waits for the next time); -BROOK_E_LOG_OFFLINE; -BROOK_E_CORRUPT_BATCH, -BROOK_E_STORAGE_FULL,
 * -BROOK_E_STORAGE_ERROR or -BROOK_E_NOMEM with a sentence. */
int log_compact(struct log *log, int64_t bound, int64_t now_ms, const struct compaction_settings *settings,
                struct compaction_result *ret_result, struct brook_error *error);
#endif
