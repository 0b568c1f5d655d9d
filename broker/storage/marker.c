#include "broker/storage/marker.h"

#include "broker/storage/file.h"
#include "proto/base/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FILE_BYTES_MAX 4096
#define EPOCH_KEY "\"brokerEpoch\""

/* The number behind a key. `-1` is what a broker without an epoch writes. */
static int parse_epoch(const char *text, int64_t *ret_epoch)
{
    const char *at = strstr(text, EPOCH_KEY);
    if (!at)
        return -BROOK_E_INVALID;
    at += strlen(EPOCH_KEY);
    at += strspn(at, " \t\r\n");
    if (*at++ != ':')
        return -BROOK_E_INVALID;
    char *end;
    errno = 0;
    long long epoch = strtoll(at, &end, 10);
    if (end == at || errno != 0 || epoch < -1)
        return -BROOK_E_INVALID;
    end += strspn(end, " \t\r\n");
    if (*end != ',' && *end != '}')
        return -BROOK_E_INVALID;
    *ret_epoch = epoch;
    return 0;
}

int marker_load(const char *path, int64_t *ret_broker_epoch)
{
    AUTO_FREE char *text = NULL;
    size_t bytes;
    int r = file_load(path, FILE_BYTES_MAX, &text, &bytes);
    if (r != 0)
        return r == -BROOK_E_NOT_FOUND ? r : -BROOK_E_INVALID;
    if (bytes == 0) {
        *ret_broker_epoch = -1;
        return 0;
    }
    while (bytes > 0 && strchr(" \t\r\n", text[bytes - 1]))
        text[--bytes] = '\0';
    if (strlen(text) != bytes || bytes == 0 || text[0] != '{' || text[bytes - 1] != '}')
        return -BROOK_E_INVALID;
    return parse_epoch(text, ret_broker_epoch);
}

int marker_save(const char *path, int64_t broker_epoch)
{
    char text[64];
    int n = snprintf(text, sizeof text, "{\"version\":0,\"brokerEpoch\":%" PRId64 "}", broker_epoch);
    return file_replace(path, text, (size_t)n, true, NULL);
}
