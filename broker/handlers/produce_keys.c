#include "broker/handlers/produce_keys.h"

#include "proto/base/err.h"
#include "proto/record/record.h"

#include <inttypes.h>

static int walk(const struct batch_header *h, const void *records, size_t bytes, struct brook_error *error)
{
    struct record_walker w;
    struct record record;
    int r = record_walker_init(&w, h, records, bytes);
    for (int32_t i = 0; r == 0 && (r = record_walker_next(&w, &record)) == 0; i++)
        if (!record.key)
            return brook_error_set(error, BROOK_E_INVALID_RECORD,
                                   "record %" PRId32 " of a batch has no key, and the topic is compacted", i);
    return r == -BROOK_E_AGAIN ? 0
                               : brook_error_set(error, -r, "the records of a batch: %s", brook_error_text(r));
}

int produce_check_keys(const void *batch, const struct batch_header *h, struct codec **codec,
                       size_t expanded_bytes_max, struct brook_error *error)
{
    const void *records;
    size_t bytes;
    if (!*codec && codec_new(codec) != 0)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory for a batch");
    int r = batch_records(batch, h, *codec, expanded_bytes_max, &records, &bytes);
    if (r != 0)
        return brook_error_set(error, -r, "the records of a batch: %s", brook_error_text(r));
    return walk(h, records, bytes, error);
}
