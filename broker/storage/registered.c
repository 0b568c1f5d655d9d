#include "broker/storage/registered.h"

#include "broker/storage/file.h"
#include "proto/base/cleanup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FILE_BYTES_MAX 128
#define FORMAT(number, count) "{\"version\":0,\"brokerEpoch\":%" number ",\"directories\":%" count "}\n"

static size_t format(const struct registered *registered, char text[FILE_BYTES_MAX])
{
    return (size_t)snprintf(text, FILE_BYTES_MAX, FORMAT(PRId64, PRId32), registered->broker_epoch,
                            registered->directories);
}

/* Only what is written here, to the byte: it is a proof. */
int registered_load(const char *path, struct registered *ret)
{
    AUTO_FREE char *text = NULL;
    char again[FILE_BYTES_MAX];
    struct registered found;
    size_t bytes;
    int r = file_load(path, FILE_BYTES_MAX, &text, &bytes);
    if (r != 0)
        return r == -BROOK_E_NOT_FOUND ? r : -BROOK_E_INVALID;
    if (sscanf(text, FORMAT(SCNd64, SCNd32), &found.broker_epoch, &found.directories) != 2 || found.broker_epoch < 0 ||
        found.directories < 1 || format(&found, again) != bytes || memcmp(text, again, bytes) != 0)
        return -BROOK_E_INVALID;
    *ret = found;
    return 0;
}

int registered_save(const char *path, const struct registered *registered)
{
    char text[FILE_BYTES_MAX];
    return file_replace(path, text, format(registered, text), true, NULL);
}
