#include "broker/storage/partition_metadata.h"

#include "broker/storage/file.h"
#include "proto/base/cleanup.h"

#include <stdio.h>
#include <string.h>

#define FILE_BYTES_MAX 1024
#define HEAD "version: 0\ntopic_id: "

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void partition_metadata_encode(const uint8_t id[TOPIC_ID_BYTES], char text[TOPIC_ID_TEXT_BYTES + 1])
{
    for (int i = 0; i < TOPIC_ID_TEXT_BYTES; i++) {
        int bit = 6 * i;
        unsigned two = (unsigned)id[bit / 8] << 8 | (bit / 8 + 1 < TOPIC_ID_BYTES ? id[bit / 8 + 1] : 0u);
        text[i] = digits[two >> (10 - bit % 8) & 63];
    }
    text[TOPIC_ID_TEXT_BYTES] = '\0';
}

static int decode(const char *text, uint8_t ret_id[TOPIC_ID_BYTES])
{
    unsigned bits = 0, have = 0, at = 0;
    for (int i = 0; i < TOPIC_ID_TEXT_BYTES; i++) {
        const char *digit = memchr(digits, text[i], sizeof digits - 1);
        if (!digit)
            return -BROOK_E_INVALID;
        bits = bits << 6 | (unsigned)(digit - digits);
        have += 6;
        if (have >= 8) {
            have -= 8;
            ret_id[at++] = (uint8_t)(bits >> have);
        }
    }
    return (bits & ((1u << have) - 1)) == 0 ? 0 : -BROOK_E_INVALID;
}

static bool is_zero(const uint8_t id[TOPIC_ID_BYTES])
{
    static const uint8_t zero[TOPIC_ID_BYTES];
    return memcmp(id, zero, sizeof zero) == 0;
}

int partition_metadata_load(const char *path, uint8_t ret_topic_id[TOPIC_ID_BYTES])
{
    AUTO_FREE char *text = NULL;
    size_t bytes;
    uint8_t id[TOPIC_ID_BYTES];
    int r = file_load(path, FILE_BYTES_MAX, &text, &bytes);
    if (r != 0)
        return r == -BROOK_E_NOT_FOUND ? r : -BROOK_E_INVALID;
    while (bytes > 0 && text[bytes - 1] == '\n')
        text[--bytes] = '\0';
    if (bytes != strlen(HEAD) + TOPIC_ID_TEXT_BYTES || strncmp(text, HEAD, strlen(HEAD)) != 0 ||
        decode(text + strlen(HEAD), id) != 0 || is_zero(id))
        return -BROOK_E_INVALID;
    memcpy(ret_topic_id, id, sizeof id);
    return 0;
}

int partition_metadata_save(const char *path, const uint8_t topic_id[TOPIC_ID_BYTES], bool durable,
                            struct brook_error *error)
{
    char text[TOPIC_ID_TEXT_BYTES + 1], file[sizeof HEAD + TOPIC_ID_TEXT_BYTES];
    if (is_zero(topic_id))
        return brook_error_set(error, BROOK_E_INVALID, "%s: the zero topic id", path);
    partition_metadata_encode(topic_id, text);
    int n = snprintf(file, sizeof file, HEAD "%s", text);
    return file_replace(path, file, (size_t)n, durable, error);
}
