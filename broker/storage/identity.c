#include "broker/storage/identity.h"

#include "broker/storage/file.h"
#include "proto/base/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FILE_BYTES_MAX 65536

static char *trim(char *text)
{
    text += strspn(text, " \t\r\f");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r\f", text[n - 1]))
        text[--n] = '\0';
    return text;
}

/* From 0 to 2^31 - 1. *ret_end names what is left over, which is nothing if all is well. */
static int32_t take_number(const char *text, char **ret_end)
{
    errno = 0;
    long number = strtol(text, ret_end, 10);
    if (errno != 0 || number < 0 || number > INT32_MAX)
        *ret_end = (char *)(uintptr_t)text;
    return (int32_t)number;
}

/* One `key=value`. -1: garbled. */
static int take_line(char *line, struct identity *id, int *version)
{
    line = trim(line);
    if (line[0] == '\0' || line[0] == '#' || line[0] == '!')
        return 0;
    char *equals = strchr(line, '=');
    if (!equals)
        return -1;
    *equals = '\0';
    const char *key = trim(line), *value = trim(equals + 1);
    char *end = "";
    if (!strcmp(key, "version")) {
        *version = take_number(value, &end);
    } else if (!strcmp(key, "broker.id") || !strcmp(key, "node.id")) {
        id->broker_id = take_number(value, &end);
    } else if (!strcmp(key, "cluster.id")) {
        if (strlen(value) > CLUSTER_ID_BYTES_MAX)
            return -1;
        strcpy(id->cluster_id, value);
    }
    return *value == '\0' || *end != '\0' ? -1 : 0;
}

int identity_load(const char *path, struct identity *ret_identity)
{
    AUTO_FREE char *text = NULL;
    size_t bytes;
    int r = file_load(path, FILE_BYTES_MAX, &text, &bytes);
    if (r == -BROOK_E_TOO_MANY)
        return -BROOK_E_INVALID;
    if (r != 0)
        return r;
    if (bytes == 0 || text[bytes - 1] != '\n' || strlen(text) != bytes)
        return -BROOK_E_INVALID;
    struct identity id = {.broker_id = -1};
    int version = -1;
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")))
        if (take_line(line, &id, &version) != 0)
            return -BROOK_E_INVALID;
    if (version > 1)
        return -BROOK_E_UNSUPPORTED_VERSION;
    if (version < 0 || (version == 1 && (id.broker_id < 0 || id.cluster_id[0] == '\0')))
        return -BROOK_E_INVALID;
    *ret_identity = id;
    return 0;
}

int identity_save(const char *path, const struct identity *identity, struct brook_error *error)
{
    char text[512], date[64];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%a %b %d %H:%M:%S UTC %Y", &utc);
    int n = snprintf(text, sizeof text, "#\n#%s\nbroker.id=%" PRId32 "\ncluster.id=%s\nversion=0\n", date,
                     identity->broker_id, identity->cluster_id);
    return file_replace(path, text, (size_t)n, true, error);
}
