/* What lies in a log's directory: finds the segments, sweeps what crashes left behind.
 *
 * Swept: `.deleted` and `.cleaned` files, `.tmp` files of atomic replacements, indexes without a log. A
 * `.swap` log is a finished compaction whose last rename is missing: it takes the place of the logs that begin
 * in its range of offsets. Everything else that is not ours is left alone. One thread, before the log is open.
 */
#ifndef BROOK_STORAGE_LOG_FILES_H
#define BROOK_STORAGE_LOG_FILES_H

#include "broker/storage/directory.h"

#include <stddef.h>

/* Both lists rise, are the caller's to free, and NULL when there are none. */
struct log_files {
    int64_t *bases; /* of the segments */
    size_t bases_count;
    int64_t *snapshots; /* offsets of `.snapshot` files */
    size_t snapshots_count;
};
/* Returns 0, -BROOK_E_STORAGE_FULL, -BROOK_E_STORAGE_ERROR, or -BROOK_E_CORRUPT_BATCH (a `.swap` that is damaged). */
int log_files_find(const struct directory *d, struct log_files *ret_files, struct brook_error *error);
#endif
