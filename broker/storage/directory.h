/* The directory of one log: its path, shared by the log and by the segments that may outlive it.
 *
 * A log that is deleted renames its directory to "<name>.<id>-delete"; whoever drops the last reference then
 * removes what is in it. A path read before the rename names nothing any more, which is what is wanted.
 * Any thread; references are counted.
 */
#ifndef BROOK_STORAGE_DIRECTORY_H
#define BROOK_STORAGE_DIRECTORY_H

#include "proto/base/err.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct directory;
struct open_files;

/* Suffixes of segment files; the base offset in 20 digits stands before them. */
#define SUFFIX_LOG ".log"
#define SUFFIX_INDEX ".index"
#define SUFFIX_TIME_INDEX ".timeindex"
/* What producers had sent up to the offset that stands before it. */
#define SUFFIX_SNAPSHOT ".snapshot"
/* Hung behind these: what is on its way out, and what compaction leaves half done. */
#define SUFFIX_DELETED ".deleted"
#define SUFFIX_CLEANED ".cleaned"
#define SUFFIX_SWAP ".swap"
/* Of directories: being deleted; not known to the cluster. */
#define SUFFIX_DELETED_DIRECTORY "-delete"
#define SUFFIX_STRAY_DIRECTORY "-stray"

/* One reference. `files` is the budget of the segments' descriptors, a reference to it is taken; NULL: one of its own,
 * without limit. Returns 0, -BROOK_E_INVALID (too long), or -BROOK_E_NOMEM. */
int directory_new(const char *path, struct open_files *files, struct directory **ret_directory);
struct directory *directory_ref(struct directory *d);
/* The last reference removes a directory that was renamed away, and its files. NULL is fine. */
void directory_unref(struct directory *d);

/* Borrowed. */
struct open_files *directory_files(const struct directory *d);
/* One sync of a segment at a time, so that the one that fails is known to the next: the kernel tells of a failure
 * once. */
void directory_lock_sync(struct directory *d);
void directory_unlock_sync(struct directory *d);
/* 0, or the errno of the first sync that failed, of a segment or of the directory itself. */
int directory_sync_error(const struct directory *d);
void directory_set_sync_error(struct directory *d, int error);

/* Good as long as the reference is. */
const char *directory_path(const struct directory *d);
/* "<path>/<base offset in 20 digits><suffix>" */
void directory_segment_path(const struct directory *d, int64_t base_offset, const char *suffix,
                            char buffer[PATH_MAX]);
/* "<path>/<name>" */
void directory_file_path(const struct directory *d, const char *name, char buffer[PATH_MAX]);

/* Rename to the "-delete" form. Once. Returns 0 or -BROOK_E_STORAGE_ERROR. */
int directory_retire(struct directory *d, struct brook_error *error);

/* A free name beside `path` for what is on its way out: "<name>.<32 hex digits><suffix>", cut to what a file
 * system takes. The caller frees it. NULL: no memory. */
char *directory_name_aside(const char *path, const char *suffix);
/* Remove `path` and the files in it (a log directory has no folders in it). Returns 0, or -1 and errno. */
int directory_remove(const char *path);
#endif
