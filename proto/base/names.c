#include "proto/base/names.h"

#include <stdint.h>
#include <string.h>

static bool is_legal(const char *name, size_t bytes, size_t bytes_max, const char *extra)
{
    if (bytes == 0 || bytes > bytes_max)
        return false;
    if (name[0] == '.' && (bytes == 1 || (bytes == 2 && name[1] == '.')))
        return false;
    for (size_t i = 0; i < bytes; i++) {
        char c = name[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!word && (c == '\0' || !strchr(extra, c)))
            return false;
    }
    return true;
}

bool name_is_legal_topic(const void *name, size_t bytes)
{
    return is_legal(name, bytes, TOPIC_NAME_BYTES_MAX, "._-");
}

bool name_is_legal_group(const void *name, size_t bytes)
{
    return is_legal(name, bytes, GROUP_NAME_BYTES_MAX, "._-");
}

bool name_is_legal_member(const void *name, size_t bytes)
{
    return is_legal(name, bytes, MEMBER_ID_BYTES_MAX, "._-:");
}
