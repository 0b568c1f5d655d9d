/* Reading a segment's file from one end to the other, batch by batch, each whole and with its checksum right.
 *
 *     batch_reader_start(&r, fd, position, end);
 *     while ((e = batch_reader_next(&r, &header, &data, &position)) == 0) ...
 *     e == -BROOK_E_AGAIN: the batches led exactly to `end`
 *     batch_reader_done(&r);
 *
 * Holds one buffer, of a MiB or of the largest batch. One thread; blocks on the disk.
 */
#ifndef BROOK_STORAGE_BATCH_READER_H
#define BROOK_STORAGE_BATCH_READER_H

#include "proto/record/batch.h"

#define BATCH_READER_BYTES ((size_t)1 << 20)

struct batch_reader { /* zeroed before the first start */
    int fd;
    int64_t position; /* of the next batch */
    int64_t end;
    uint8_t *buffer;
    size_t capacity;
    int64_t buffer_position;
    size_t buffer_bytes;
};

/* From `position`, where a batch begins. May be called again for another file: the buffer stays. */
void batch_reader_start(struct batch_reader *r, int fd, int64_t position, int64_t end);
void batch_reader_done(struct batch_reader *r);
/* Returns 0 and the next batch, good until the next call; -BROOK_E_AGAIN at the end; -BROOK_E_CORRUPT_BATCH;
 * -BROOK_E_STORAGE_ERROR; -BROOK_E_NOMEM. */
int batch_reader_next(struct batch_reader *r, struct batch_header *ret_header, const uint8_t **ret_data,
                      int64_t *ret_position);
#endif
