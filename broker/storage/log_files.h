/* What lies in a log's directory: finds the segments, sweeps what crashes left behind.
 *
 * Swept: `.deleted` and `.cleaned` files, `.tmp` files of atomic replacements, indexes without a log. A
 * `.swap` log is a finished compaction whose last rename is missing: it becomes the log if there is none of
 * its name. Everything else that is not ours is left alone. One thread, before the log is open.
 */
#ifndef BROOK_STORAGE_LOG_FILES_H
#define BROOK_STORAGE_LOG_FILES_H

#include "broker/storage/directory.h"

#include <stddef.h>

/* The base offsets of the segments, rising; the caller frees *ret_bases (NULL when there are none). Returns
 * 0, -BROOK_E_NOMEM or -BROOK_E_STORAGE_ERROR. */
int log_files_find(const struct directory *d, int64_t **ret_bases, size_t *ret_count,
                   struct brook_error *error);
#endif
