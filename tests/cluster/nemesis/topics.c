#include "tests/cluster/nemesis/topics.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

static const char *const kinds[TOPICS_KINDS] = {"both", "replicated", "fsync"};

const char *topics_kind_name(enum topics_kind kind)
{
    return kinds[kind];
}

enum topics_kind topics_kind_by_name(const char *name)
{
    int kind = 0;
    while (kind < TOPICS_KINDS && strcmp(kinds[kind], name) != 0)
        kind++;
    return (enum topics_kind)kind;
}

void topics_init(struct topics *t, enum topics_kind kind, int32_t partitions)
{
    *t = (struct topics){.partitions = partitions};
    if (kind != TOPICS_FSYNC) {
        t->names[t->count] = "nemesis-replicated";
        t->durability[t->count++] = "replicated";
    }
    if (kind != TOPICS_REPLICATED) {
        t->names[t->count] = "nemesis-fsync";
        t->durability[t->count++] = "fsync";
    }
    assert(partitions >= t->count);
}

int32_t topics_partitions(const struct topics *t, int topic)
{
    return (t->partitions - topic + t->count - 1) / t->count;
}

const char *topics_name(const struct topics *t, int32_t partition)
{
    return t->names[partition % t->count];
}

int32_t topics_number(const struct topics *t, int32_t partition)
{
    return partition / t->count;
}

bool topics_is_durable(const struct topics *t, int32_t partition)
{
    return strcmp(t->durability[partition % t->count], kinds[TOPICS_FSYNC]) == 0;
}

int32_t topics_find(const struct topics *t, const char *name, int32_t number)
{
    for (int i = 0; i < t->count; i++)
        if (strcmp(name, t->names[i]) == 0 && number >= 0 && number < topics_partitions(t, i))
            return number * t->count + i;
    return -1;
}
