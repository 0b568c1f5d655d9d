#include "proto/record/batch.h"

#include "proto/base/err.h"
#include "proto/record/big_endian.h"
#include "proto/record/crc32c.h"

#include <inttypes.h>

/* Where the fields lie; the picture is in batch.h. */
enum field_at {
    AT_BASE_OFFSET = 0,
    AT_LENGTH = 8,
    AT_LEADER_EPOCH = 12,
    AT_MAGIC = 16,
    AT_CRC = 17,
    AT_ATTRIBUTES = 21,
    AT_LAST_OFFSET_DELTA = 23,
    AT_BASE_TIMESTAMP = 27,
    AT_MAX_TIMESTAMP = 35,
    AT_PRODUCER_ID = 43,
    AT_PRODUCER_EPOCH = 51,
    AT_BASE_SEQUENCE = 53,
    AT_RECORDS_COUNT = 57
};

#define LENGTH_MIN (BATCH_HEADER_BYTES - BATCH_PREFIX_BYTES)
/* A message of the formats before v2, empty, takes 14 bytes: whatever claims less is not one of them. */
#define OLD_LENGTH_MIN 14
#define KNOWN_ATTRIBUTES                                                                                     \
    (BATCH_CODEC_MASK | BATCH_LOG_APPEND_TIME | BATCH_TRANSACTIONAL | BATCH_CONTROL | BATCH_DELETE_HORIZON)

static void read_fields(const uint8_t *p, struct batch_header *h)
{
    h->base_offset = (int64_t)be64_read(p + AT_BASE_OFFSET);
    h->total_bytes = BATCH_PREFIX_BYTES + (size_t)be32_read(p + AT_LENGTH);
    h->leader_epoch = (int32_t)be32_read(p + AT_LEADER_EPOCH);
    h->crc = be32_read(p + AT_CRC);
    h->attributes = (int16_t)be16_read(p + AT_ATTRIBUTES);
    h->last_offset_delta = (int32_t)be32_read(p + AT_LAST_OFFSET_DELTA);
    h->base_timestamp = (int64_t)be64_read(p + AT_BASE_TIMESTAMP);
    h->max_timestamp = (int64_t)be64_read(p + AT_MAX_TIMESTAMP);
    h->producer_id = (int64_t)be64_read(p + AT_PRODUCER_ID);
    h->producer_epoch = (int16_t)be16_read(p + AT_PRODUCER_EPOCH);
    h->base_sequence = (int32_t)be32_read(p + AT_BASE_SEQUENCE);
    h->records_count = (int32_t)be32_read(p + AT_RECORDS_COUNT);
}

/* What must be right for the bytes to be a batch at all. */
static int read_frame(const uint8_t *p, size_t bytes, struct batch_header *h)
{
    if (bytes < BATCH_HEADER_BYTES)
        return -BROOK_E_AGAIN;
    int32_t length = (int32_t)be32_read(p + AT_LENGTH);
    if (length < OLD_LENGTH_MIN)
        return -BROOK_E_BAD_BATCH;
    if (p[AT_MAGIC] < BATCH_MAGIC)
        return -BROOK_E_UNSUPPORTED_FORMAT;
    if (p[AT_MAGIC] != BATCH_MAGIC || length < LENGTH_MIN)
        return -BROOK_E_BAD_BATCH;
    read_fields(p, h);
    return 0;
}

static bool offsets_are_good(const struct batch_header *h)
{
    return h->base_offset >= 0 && h->last_offset_delta >= 0 && h->records_count >= 0 &&
           h->base_offset < INT64_MAX - h->last_offset_delta;
}

int batch_read_header(const void *data, size_t bytes, struct batch_header *ret_header)
{
    struct batch_header h;
    int r = read_frame(data, bytes, &h);
    if (r < 0)
        return r;
    if (!offsets_are_good(&h))
        return -BROOK_E_BAD_BATCH;
    *ret_header = h;
    return bytes < h.total_bytes ? -BROOK_E_AGAIN : 0;
}

int batch_check_crc(const void *data, const struct batch_header *h)
{
    const uint8_t *p = data;
    return crc32c(0, p + AT_ATTRIBUTES, h->total_bytes - AT_ATTRIBUTES) == h->crc ? 0
                                                                                  : -BROOK_E_CORRUPT_BATCH;
}

static int check_attributes(const struct batch_header *h, struct brook_error *error)
{
    if (h->attributes & ~KNOWN_ATTRIBUTES)
        return brook_error_set(error, BROOK_E_BAD_BATCH, "the batch has unknown attributes %#x",
                               (unsigned)(uint16_t)h->attributes);
    if (h->attributes & (BATCH_CONTROL | BATCH_TRANSACTIONAL | BATCH_DELETE_HORIZON | BATCH_LOG_APPEND_TIME))
        return brook_error_set(error, BROOK_E_BAD_BATCH, "a producer may not set the batch attributes %#x",
                               (unsigned)(uint16_t)h->attributes);
    if ((h->attributes & BATCH_CODEC_MASK) > CODEC_ZSTD)
        return brook_error_set(error, BROOK_E_UNSUPPORTED_CODEC, "the batch has the unknown codec %d",
                               h->attributes & BATCH_CODEC_MASK);
    return 0;
}

static int check_counts(const struct batch_header *h, struct brook_error *error)
{
    if (h->records_count < 1 || h->records_count > BATCH_RECORDS_MAX)
        return brook_error_set(error, BROOK_E_BAD_BATCH, "the batch has %" PRId32 " records",
                               h->records_count);
    if (!offsets_are_good(h) || h->last_offset_delta != h->records_count - 1)
        return brook_error_set(error, BROOK_E_BAD_BATCH,
                               "the batch has %" PRId32 " records from offset %" PRId64
                               ", but last offset delta %" PRId32,
                               h->records_count, h->base_offset, h->last_offset_delta);
    if ((h->attributes & BATCH_CODEC_MASK) == CODEC_NONE &&
        (size_t)h->records_count > (h->total_bytes - BATCH_HEADER_BYTES) / RECORD_BYTES_MIN)
        return brook_error_set(error, BROOK_E_BAD_BATCH,
                               "the batch has %zu bytes, too few for %" PRId32 " records", h->total_bytes,
                               h->records_count);
    return 0;
}

/* A producer id comes with an epoch and a sequence number, or none of the three is there. */
static int check_producer(const struct batch_header *h, struct brook_error *error)
{
    bool none = h->producer_id == -1 && h->producer_epoch == -1 && h->base_sequence == -1;
    bool all = h->producer_id >= 0 && h->producer_epoch >= 0 && h->base_sequence >= 0;
    if (none || all)
        return 0;
    return brook_error_set(error, BROOK_E_BAD_BATCH,
                           "producer id %" PRId64 ", epoch %d and sequence %" PRId32 " do not go together",
                           h->producer_id, h->producer_epoch, h->base_sequence);
}

/* Format, size and checksum come first: bytes that were spoilt on their way are worth another try, while what
 * is wrong under a right checksum stays wrong. */
static int check_frame(const uint8_t *p, size_t bytes, size_t message_bytes_max, struct batch_header *h,
                       struct brook_error *error)
{
    /* A message of an old format may be shorter than a v2 header. */
    bool is_old = bytes > AT_MAGIC && bytes < BATCH_HEADER_BYTES && p[AT_MAGIC] < BATCH_MAGIC;
    int r = is_old ? -BROOK_E_UNSUPPORTED_FORMAT : read_frame(p, bytes, h);
    if (r == -BROOK_E_UNSUPPORTED_FORMAT)
        return brook_error_set(error, BROOK_E_UNSUPPORTED_FORMAT, "message format v%d; v2 is needed",
                               p[AT_MAGIC]);
    if (r == -BROOK_E_AGAIN)
        return brook_error_set(error, BROOK_E_BAD_BATCH, "%zu bytes are too few for a batch", bytes);
    if (r < 0)
        return brook_error_set(error, BROOK_E_BAD_BATCH, "the batch's length or magic makes no sense");
    if (h->total_bytes > message_bytes_max)
        return brook_error_set(error, BROOK_E_MESSAGE_TOO_LARGE, "the batch has %zu bytes, %zu are allowed",
                               h->total_bytes, message_bytes_max);
    if (bytes < h->total_bytes)
        return brook_error_set(error, BROOK_E_BAD_BATCH, "the batch has %zu bytes, only %zu came",
                               h->total_bytes, bytes);
    if (batch_check_crc(p, h) < 0)
        return brook_error_set(error, BROOK_E_CORRUPT_BATCH, "the batch's checksum is wrong");
    return 0;
}

int batch_check_produced(const void *data, size_t bytes, size_t message_bytes_max,
                         struct batch_header *ret_header, struct brook_error *error)
{
    struct batch_header h;
    int r = check_frame(data, bytes, message_bytes_max, &h, error);
    if (r == 0)
        r = check_attributes(&h, error);
    if (r == 0)
        r = check_counts(&h, error);
    if (r == 0)
        r = check_producer(&h, error);
    if (r == 0)
        *ret_header = h;
    return r;
}

void batch_patch(void *data, int64_t base_offset, int32_t leader_epoch)
{
    uint8_t *p = data;
    be64_write(p + AT_BASE_OFFSET, (uint64_t)base_offset);
    be32_write(p + AT_LEADER_EPOCH, (uint32_t)leader_epoch);
}

void batch_stamp(void *data, struct batch_header *h, int64_t now_ms)
{
    uint8_t *p = data;
    h->attributes = (int16_t)(h->attributes | BATCH_LOG_APPEND_TIME);
    h->max_timestamp = now_ms;
    be16_write(p + AT_ATTRIBUTES, (uint16_t)h->attributes);
    be64_write(p + AT_MAX_TIMESTAMP, (uint64_t)now_ms);
    h->crc = crc32c(0, p + AT_ATTRIBUTES, h->total_bytes - AT_ATTRIBUTES);
    be32_write(p + AT_CRC, h->crc);
}

void batch_write_header(void *data, const struct batch_header *h)
{
    uint8_t *p = data;
    be64_write(p + AT_BASE_OFFSET, (uint64_t)h->base_offset);
    be32_write(p + AT_LENGTH, (uint32_t)(h->total_bytes - BATCH_PREFIX_BYTES));
    be32_write(p + AT_LEADER_EPOCH, (uint32_t)h->leader_epoch);
    p[AT_MAGIC] = BATCH_MAGIC;
    be16_write(p + AT_ATTRIBUTES, (uint16_t)h->attributes);
    be32_write(p + AT_LAST_OFFSET_DELTA, (uint32_t)h->last_offset_delta);
    be64_write(p + AT_BASE_TIMESTAMP, (uint64_t)h->base_timestamp);
    be64_write(p + AT_MAX_TIMESTAMP, (uint64_t)h->max_timestamp);
    be64_write(p + AT_PRODUCER_ID, (uint64_t)h->producer_id);
    be16_write(p + AT_PRODUCER_EPOCH, (uint16_t)h->producer_epoch);
    be32_write(p + AT_BASE_SEQUENCE, (uint32_t)h->base_sequence);
    be32_write(p + AT_RECORDS_COUNT, (uint32_t)h->records_count);
    be32_write(p + AT_CRC, crc32c(0, p + AT_ATTRIBUTES, h->total_bytes - AT_ATTRIBUTES));
}
