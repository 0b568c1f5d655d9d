/* What may be subscribed to. */
#include "client/group_driver.h"

#include "coordination/topic_pattern.h"
#include "proto/base/names.h"

#include <string.h>

/* Of one subscription: it has to fit the member's node. */
#define TOPICS_MAX 1000

int group_check_topics(const char *const *topics, size_t count, struct brook_error *error)
{
    if (count == 0)
        return brook_error_set(error, BROOK_E_INVALID, "no topics to subscribe to");
    if (count > TOPICS_MAX)
        return brook_error_set(error, BROOK_E_TOO_MANY, "%zu topics in one subscription, %d are allowed",
                               count, TOPICS_MAX);
    for (size_t i = 0; i < count; i++)
        if (!topics[i] || !name_is_legal_topic(topics[i], strlen(topics[i])))
            return brook_error_set(error, BROOK_E_ILLEGAL_NAME, "\"%.200s\" is not a legal topic name",
                                   topics[i] ? topics[i] : "");
    return 0;
}

int group_check_pattern(const char *pattern, struct brook_error *error)
{
    if (!pattern || !pattern[0])
        return brook_error_set(error, BROOK_E_INVALID, "the expression is empty");
    return topic_pattern_check(pattern, error);
}
