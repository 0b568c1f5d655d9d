/* What a compacted topic asks of a batch: that each record has a key. Any thread. */
#ifndef BROOK_HANDLERS_PRODUCE_KEYS_H
#define BROOK_HANDLERS_PRODUCE_KEYS_H

#include "proto/record/batch.h"

struct brook_error;

/* Look at all records of a batch that is whole and checked (batch_check_produced()). `codec` is made when it is
 * needed first, and then the caller's to free. Returns 0; -BROOK_E_INVALID_RECORD (no key);
 * -BROOK_E_EXPANDS_TOO_FAR, -BROOK_E_CORRUPT_BATCH or -BROOK_E_BAD_BATCH (the records make no sense);
 * -BROOK_E_NOMEM; with a sentence. */
int produce_check_keys(const void *batch, const struct batch_header *h, struct codec **codec,
                       size_t expanded_bytes_max, struct brook_error *error);
#endif
