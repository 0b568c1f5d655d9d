#include "tests/support/batches.h"

#include "proto/record/codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "batches: %s\n", what);
        abort();
    }
}

static struct log_batch finished(void *data, size_t bytes)
{
    struct log_batch b = {.data = data};
    must(batch_read_header(data, bytes, &b.header) == 0, "header");
    return b;
}

static void fill(struct batch_writer *w, int records_count, int64_t timestamp, int64_t step,
                 size_t value_bytes, uint32_t tag)
{
    char *value = malloc(value_bytes + 1);
    for (int i = 0; i < records_count; i++) {
        for (size_t k = 0; k < value_bytes; k++)
            value[k] = (char)('a' + (tag + (uint32_t)i + k % 7) % 26);
        struct record_view r = {
            .value = value, .value_bytes = (int32_t)value_bytes, .timestamp = timestamp + step * i};
        must(batch_writer_add(w, &r) == 0, "add");
    }
    free(value);
}

static size_t room(int records_count, size_t value_bytes)
{
    return BATCH_HEADER_BYTES + (size_t)records_count * (value_bytes + 64);
}

struct log_batch batches_make(int records_count, int64_t timestamp, int64_t step, size_t value_bytes,
                              uint32_t tag)
{
    size_t capacity = room(records_count, value_bytes);
    void *data = malloc(capacity);
    struct batch_writer w;
    batch_writer_init(&w, data, capacity);
    fill(&w, records_count, timestamp, step, value_bytes, tag);
    size_t bytes = batch_writer_finish(&w, -1, -1, -1);
    return finished(data, bytes);
}

struct log_batch batches_make_compressed(enum codec_id id, int records_count, int64_t timestamp, int64_t step,
                                         size_t value_bytes, uint32_t tag)
{
    size_t capacity = room(records_count, value_bytes), bytes = 0;
    void *plain = malloc(capacity);
    size_t to_capacity = codec_bound(id, capacity) + BATCH_HEADER_BYTES;
    void *to = malloc(to_capacity);
    struct codec *codec = NULL;
    must(codec_new(&codec) == 0, "codec");
    struct batch_writer w;
    batch_writer_init(&w, plain, capacity);
    fill(&w, records_count, timestamp, step, value_bytes, tag);
    must(batch_writer_finish_compressed(&w, codec, id, -1, -1, -1, to, to_capacity, &bytes) == 0, "compress");
    codec_free(codec);
    free(plain);
    return finished(to, bytes);
}

struct log_batch batches_from_hex(const char *hex)
{
    size_t bytes = strlen(hex) / 2;
    uint8_t *data = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) {
        unsigned byte = 0;
        must(sscanf(hex + 2 * i, "%2x", &byte) == 1, "hex");
        data[i] = (uint8_t)byte;
    }
    return finished(data, bytes);
}

void batches_place(struct log_batch *b, int64_t base_offset, int32_t leader_epoch)
{
    batch_patch(b->data, base_offset, leader_epoch);
    b->header.base_offset = base_offset;
    b->header.leader_epoch = leader_epoch;
}

void batches_free(struct log_batch *b)
{
    free(b->data);
    b->data = NULL;
}

void batches_sign(struct log_batch *b, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence)
{
    b->header.producer_id = producer_id;
    b->header.producer_epoch = producer_epoch;
    b->header.base_sequence = base_sequence;
    batch_write_header(b->data, &b->header);
    must(batch_read_header(b->data, b->header.total_bytes, &b->header) == 0, "signed header");
}
