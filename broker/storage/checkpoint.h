/* Checkpoint files: text, line 1 the version `0`, line 2 the number of entries, then one entry a line.
 * Replaced atomically. FORMAT.md lists them. A file that is empty, short, long or garbled is refused as a
 * whole: it means "not known", never "zero". Not thread safe.
 */
#ifndef BROOK_STORAGE_CHECKPOINT_H
#define BROOK_STORAGE_CHECKPOINT_H

#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- text ------------------------------------------------------------------------------------------- */

#define CHECKPOINT_LINE_BYTES_MAX 512

struct checkpoint_reader {
    const char *at;
    size_t left;
    char line[CHECKPOINT_LINE_BYTES_MAX];
};

/* `text` ends in NUL and is borrowed. Returns 0 or -BROOK_E_INVALID. */
int checkpoint_reader_init(struct checkpoint_reader *r, const char *text);
/* The next entry, good until the next call. Returns 0; -BROOK_E_AGAIN behind the last, when nothing follows;
 * -BROOK_E_INVALID. */
int checkpoint_reader_next(struct checkpoint_reader *r, const char **ret_line);

/* A plain number in [0, max] at *at, which `end` follows; *at goes behind it. -1: there is none. */
int64_t checkpoint_number(const char **at, char end, int64_t max);

struct checkpoint_writer {
    FILE *stream; /* NULL: no memory, which save reports */
    char *text;
    size_t bytes;
};

void checkpoint_writer_init(struct checkpoint_writer *w, size_t count);
/* One entry, without the newline. Exactly `count` of them. */
void checkpoint_writer_add(struct checkpoint_writer *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Replace `path` and free the writer. Returns 0, -BROOK_E_NOMEM, or a storage error. */
int checkpoint_writer_save(struct checkpoint_writer *w, const char *path, bool durable,
                           struct brook_error *error);

/* ---- offsets by partition --------------------------------------------------------------------------- */

/* One line `<topic> <partition> <offset>`. */
struct offset_checkpoint_entry {
    char *topic; /* owned by the table */
    int32_t partition;
    int64_t offset;
};

struct offset_checkpoint {
    struct offset_checkpoint_entry *entries; /* sorted by topic and partition */
    size_t count;
};

/* Returns 0; -BROOK_E_NOT_FOUND; -BROOK_E_INVALID; -BROOK_E_NOMEM; -BROOK_E_STORAGE_ERROR. */
int offset_checkpoint_load(const char *path, struct offset_checkpoint *ret_table);
void offset_checkpoint_done(struct offset_checkpoint *table);
/* The offset of a partition, -1 when it is not there. */
int64_t offset_checkpoint_find(const struct offset_checkpoint *table, const char *topic, int32_t partition);
#endif
