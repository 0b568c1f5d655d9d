/* Is a segment's pair of indexes fit to be used, and if not, make it anew from the log.
 *
 * The check is cheap (sizes, last entries) and catches what crashes leave: missing, short, zero-filled,
 * beyond the file's end, far too sparse. What it lets pass is caught where an entry is used
 * (log_view_find()). Writer's thread, while opening or under the append lock; blocks on the disk.
 */
#ifndef BROOK_STORAGE_SEGMENT_INDEX_H
#define BROOK_STORAGE_SEGMENT_INDEX_H

#include "broker/storage/indexer.h"

/* Set the segment's counts from the files. Whether both can be used. `next_base`: of the following segment,
 * or INT64_MAX. */
bool segment_index_check(struct segment *s, int64_t next_base, int32_t interval);

/* Walk the headers of the segment and write both indexes. Stops where the headers end to make sense: entries
 * for what is before are right. Returns 0 or -BROOK_E_STORAGE_ERROR (also -BROOK_E_NOMEM). */
int segment_index_rebuild(struct segment *s, int32_t interval, pthread_mutex_t *lock);

/* The indexes could not be written (a full disk, say): go on without any until they can. */
void segment_index_forget(struct segment *s);

/* The greatest timestamp of a sealed segment, learned at the first call. Any thread; `lock` is the log's.
 * Returns 0 or -BROOK_E_STORAGE_ERROR. */
int segment_index_max_timestamp(struct segment *s, pthread_mutex_t *lock, int64_t *ret_timestamp);
#endif
