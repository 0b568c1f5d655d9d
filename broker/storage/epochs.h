/* Leader epochs of a log: which epoch began at which offset. The file `leader-epoch-checkpoint` of a
 * partition.
 *
 * Entries rise in both. The file can be made again from the batch headers, so it is replaced without a sync
 * while the log runs and with one when it is closed; a bad file means "not known". Not thread safe.
 */
#ifndef BROOK_STORAGE_EPOCHS_H
#define BROOK_STORAGE_EPOCHS_H

#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EPOCHS_FILE "leader-epoch-checkpoint"

struct epoch_entry {
    int32_t epoch;
    int64_t start_offset;
};

struct epochs {
    struct epoch_entry *entries;
    size_t count;
    size_t capacity;
    bool dirty; /* the file does not say this yet */
};

void epochs_done(struct epochs *e);
/* The newest epoch, -1 for none. */
int32_t epochs_last(const struct epochs *e);
/* How many of `count` entries have at most `epoch`; how many begin below `offset`. */
size_t epochs_count_up_to(const struct epoch_entry *entries, size_t count, int32_t epoch);
size_t epochs_count_below(const struct epoch_entry *entries, size_t count, int64_t offset);
/* A batch of `epoch` begins at `start_offset`: remembered if the epoch is newer than the last (else nothing).
 * Returns 0 or -BROOK_E_NOMEM. */
int epochs_assign(struct epochs *e, int32_t epoch, int64_t start_offset);
/* The log ends at `end_offset` now: forget what begins there or above. */
void epochs_cut_end(struct epochs *e, int64_t end_offset);
/* The log begins at `start_offset` now: forget what ended below, let the rest begin there. */
void epochs_cut_start(struct epochs *e, int64_t start_offset);

/* Returns 0; -BROOK_E_NOT_FOUND; -BROOK_E_INVALID (the content makes no sense); a storage error. */
int epochs_load(struct epochs *e, const char *path);
int epochs_save(struct epochs *e, const char *path, bool durable, struct brook_error *error);
#endif
