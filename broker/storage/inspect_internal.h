/* What the parts of inspect.h share. */
#ifndef BROOK_STORAGE_INSPECT_INTERNAL_H
#define BROOK_STORAGE_INSPECT_INTERNAL_H

#include "broker/storage/inspect.h"

/* Count a finding and tell it. */
void inspect_say(struct inspect *in, enum inspect_kind kind, const char *path, int64_t position,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));

/* What the segments of a log are compared with, one after the other. */
struct inspect_log {
    struct inspect *in;
    struct epochs epochs;
    const char *epochs_path; /* NULL: there is no file, or it was told already that it is bad */
    int64_t start_offset;    /* the log's */
    int64_t next_offset;     /* behind the last valid batch so far */
};

/* Read one segment and compare its indexes with it. `next_base` is the following segment's base, INT64_MAX
 * for the last; with `has_more` a segment with bytes in it follows, so that a torn tail is damage.
 * -BROOK_E_NOT_FOUND: the file is not there. */
int inspect_segment(struct inspect_log *log, const char *path, int64_t next_base, bool has_more,
                    struct brook_error *error);

/* One side file of a partition or a data directory, chosen by its name. -BROOK_E_INVALID: none that is known.
 */
int inspect_side_file(struct inspect *in, const char *path, struct brook_error *error);

/* The base offset in a segment file's path; false: no 20 digits in front of `suffix`. */
bool inspect_parse_base(const char *path, const char *suffix, int64_t *ret_base);
/* Split "<topic>-<partition>" off the end of a path. */
bool inspect_parse_partition(const char *path, char topic[256], int32_t *ret_partition);
/* Base offsets of the `.log` files in a directory, rising; the caller frees. */
int inspect_find_segments(const char *directory, int64_t **ret_bases, size_t *ret_count,
                          struct brook_error *error);
/* The log start offset that the checkpoint beside the partition's directory names; -1: none. */
int64_t inspect_start_offset(const char *directory);
void inspect_segment_path(const char *directory, int64_t base, const char *suffix, char buffer[PATH_MAX]);
#endif
