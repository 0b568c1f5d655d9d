#include "broker/storage/partition_name.h"

#include "proto/base/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool partition_name_parse(const char *name, char ret_topic[256], int32_t *ret_partition)
{
    const char *dash = strrchr(name, '-');
    if (!dash || dash[1] == '\0' || strlen(dash + 1) > 10 ||
        strspn(dash + 1, "0123456789") != strlen(dash + 1) ||
        !name_is_legal_topic(name, (size_t)(dash - name)))
        return false;
    long long number = strtoll(dash + 1, NULL, 10);
    if (number > INT32_MAX || (dash[1] == '0' && dash[2] != '\0'))
        return false;
    snprintf(ret_topic, 256, "%.*s", (int)(dash - name), name);
    *ret_partition = (int32_t)number;
    return true;
}
