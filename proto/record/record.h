/* Walking the records of a batch: views into the batch's bytes (or into the expanded bytes), no copies.
 *
 *     struct record_walker w;
 *     int r = record_walker_init(&w, &header, records, records_bytes);   // plain bytes
 *     while (r == 0 && (r = record_walker_next(&w, &record)) == 0) ...
 *     r == -BROOK_E_AGAIN: all were seen, and the walk ended exactly at the end
 *
 * Pure, any thread.
 */
#ifndef BROOK_RECORD_RECORD_H
#define BROOK_RECORD_RECORD_H

#include "proto/record/batch.h"

/* One record seen by the walker. Pointers stay good as long as the bytes walked do. */
struct record {
    int64_t offset;
    int64_t timestamp; /* ms; of the batch when it has LogAppendTime */
    const void *key;   /* NULL: null */
    const void *value; /* NULL: null */
    const uint8_t *headers; /* encoded; record_next_header() */
    const uint8_t *headers_end;
    int32_t key_bytes;
    int32_t value_bytes;
    int32_t headers_count;
};

struct record_walker {
    const uint8_t *at;
    const uint8_t *end;
    int64_t base_offset;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int32_t last_offset_delta;
    int32_t previous_delta;
    int32_t left;
    bool log_append_time;
};

/* `data`: the uncompressed records of the batch (behind its header, or from codec_expand()).
 * Returns 0, or -BROOK_E_BAD_BATCH when the count can not be right for that many bytes. */
int record_walker_init(struct record_walker *w, const struct batch_header *h, const void *data, size_t bytes);

/* Returns 0 and the next record; -BROOK_E_AGAIN behind the last one, when nothing is left over;
 * -BROOK_E_BAD_BATCH for anything else (lengths beyond the end, offsets that do not rise or leave the
 * batch's range, bytes behind the last record). */
int record_walker_next(struct record_walker *w, struct record *ret_record);

/* The next header of a record. Start with *at = record->headers. Returns 0; -BROOK_E_AGAIN at the end.
 * (The walker has checked them: it does not fail otherwise.) */
int record_next_header(const struct record *record, const uint8_t **at, struct record_header *ret_header);

/* The records of a batch in the clear: a pointer into the batch where it is not compressed, else into the
 * codec's buffer (good until its next use). Returns 0 or an error of codec_expand(). */
int batch_records(const void *batch, const struct batch_header *h, struct codec *codec,
                  size_t expanded_bytes_max, const void **ret_data, size_t *ret_bytes);
#endif
