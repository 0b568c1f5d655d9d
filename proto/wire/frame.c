#include "proto/wire/frame.h"

#include "proto/base/err.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

static uint32_t read_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void write_u32(uint8_t *p, uint32_t value)
{
    p[0] = (uint8_t)(value >> 24);
    p[1] = (uint8_t)(value >> 16);
    p[2] = (uint8_t)(value >> 8);
    p[3] = (uint8_t)value;
}

int frame_parse(const void *data, size_t bytes, uint32_t frame_bytes_max, uint32_t envelope_bytes_max,
                struct frame_prefix *ret, struct brook_error *error)
{
    if (bytes < 4)
        return -BROOK_E_AGAIN;
    uint32_t frame_bytes = read_u32(data);
    if (frame_bytes < 4)
        return brook_error_set(error, BROOK_E_BAD_FRAME, "a frame of %" PRIu32 " bytes has no envelope",
                               frame_bytes);
    if (frame_bytes > frame_bytes_max)
        return brook_error_set(error, BROOK_E_FRAME_TOO_LARGE,
                               "a frame of %" PRIu32 " bytes is larger than the limit of %" PRIu32,
                               frame_bytes, frame_bytes_max);
    if (bytes < FRAME_PREFIX_BYTES)
        return -BROOK_E_AGAIN;
    uint32_t envelope_bytes = read_u32((const uint8_t *)data + 4);
    if (envelope_bytes > frame_bytes - 4)
        return brook_error_set(error, BROOK_E_BAD_FRAME,
                               "an envelope of %" PRIu32 " bytes does not fit its frame of %" PRIu32,
                               envelope_bytes, frame_bytes);
    if (envelope_bytes > envelope_bytes_max)
        return brook_error_set(error, BROOK_E_FRAME_TOO_LARGE,
                               "an envelope of %" PRIu32 " bytes is larger than the limit of %" PRIu32,
                               envelope_bytes, envelope_bytes_max);
    ret->frame_bytes = frame_bytes;
    ret->envelope_bytes = envelope_bytes;
    ret->records_bytes = frame_bytes - 4 - envelope_bytes;
    return 0;
}

static bool is_http(const void *data)
{
    static const char words[][5] = {"GET ", "HEAD", "POST", "PUT ", "DELE", "OPTI",
                                    "PATC", "TRAC", "CONN", "PRI ", "HTTP"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (memcmp(data, words[i], 4) == 0)
            return true;
    return false;
}

/* A Kafka request is i32 length, i16 api key, i16 api version, i32 correlation id, i16 client id length. Read
 * as ours, key and version are an envelope that does not fit its frame. */
static bool is_kafka(const uint8_t *p, uint32_t length)
{
    uint32_t second = read_u32(p + 4);
    uint32_t api_key = second >> 16;
    uint32_t api_version = second & 0xffff;
    return length >= 10 && length <= FRAME_BYTES_MAX_FIRST && second > length - 4 && api_key < 128 &&
           api_version < 32;
}

enum frame_foreign frame_recognise(const void *data, size_t bytes)
{
    const uint8_t *p = data;
    if (bytes < 4)
        return FRAME_UNKNOWN;
    if (is_http(data))
        return FRAME_HTTP;
    if (p[0] >= 0x14 && p[0] <= 0x17 && p[1] == 0x03 && p[2] <= 0x04)
        return FRAME_TLS;
    uint32_t length = read_u32(p);
    if (bytes >= FRAME_PREFIX_BYTES && is_kafka(p, length))
        return FRAME_KAFKA;
    return length >= 4 && length <= FRAME_BYTES_MAX_FIRST ? FRAME_BROOK : FRAME_UNKNOWN;
}

void frame_write_prefix(void *to, uint32_t envelope_bytes, uint32_t records_bytes)
{
    write_u32(to, 4 + envelope_bytes + records_bytes);
    write_u32((uint8_t *)to + 4, envelope_bytes);
}
