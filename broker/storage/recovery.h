/* Recovery of one segment's file: which of its bytes are whole batches, and what to think of the rest.
 *
 * Reads once, in blocks, at the speed of the checksum. Changes nothing: whoever asked cuts, or does not.
 *
 *   whole     the batches lead exactly to the file's end
 *   torn      what follows the last whole batch holds no valid batch: an append that did not finish
 *   damaged   a bad batch with a valid one somewhere behind it: not an unfinished append. Nothing may be cut.
 *
 * One thread; blocks on the disk.
 */
#ifndef BROOK_STORAGE_RECOVERY_H
#define BROOK_STORAGE_RECOVERY_H

#include "proto/base/err.h"
#include "proto/record/batch.h"

#include <stdbool.h>
#include <stdint.h>

enum recovery_verdict { RECOVERY_WHOLE, RECOVERY_TORN, RECOVERY_DAMAGED };

struct recovery_scan {
    /* the question */
    int fd;
    int64_t base_offset;   /* of the segment */
    int64_t bytes;         /* of the file */
    int64_t trusted_below; /* batches that end below this offset are on stable storage: only their headers are
                              read */
    void (*seen)(void *arg, const struct batch_header *header,
                 int64_t position); /* each whole batch, in order */
    void *arg;
    int64_t start_position; /* where a batch begins: 0, or a `found_position` to go on behind damage */
    _Atomic int64_t *counter; /* counts the bytes up as they are scanned; or NULL */
    /* the answer */
    enum recovery_verdict verdict;
    int64_t valid_bytes;
    int64_t next_offset;
    int64_t bytes_scanned;  /* with checksum */
    int64_t found_position; /* damaged: where the valid batch behind the bad place begins */
};

/* Returns 0 and the answer; -BROOK_E_UNSUPPORTED_FORMAT (a message older than v2, with a right checksum of
 * its own); -BROOK_E_NOMEM; -BROOK_E_STORAGE_ERROR. */
int recovery_scan(struct recovery_scan *scan);
#endif
