/* The topics of a nemesis run, one for each durability. Partitions are numbered through all of them, taking turns, so
 * that whoever counts by partition needs not know that there are several. Pure. */
#ifndef BROOK_TESTS_NEMESIS_TOPICS_H
#define BROOK_TESTS_NEMESIS_TOPICS_H

#include <stdbool.h>
#include <stdint.h>

#define TOPICS_MAX 2

enum topics_kind { TOPICS_BOTH, TOPICS_REPLICATED, TOPICS_FSYNC, TOPICS_KINDS };
/* "both", "replicated", "fsync"; TOPICS_KINDS: there is none of that name. */
const char *topics_kind_name(enum topics_kind kind);
enum topics_kind topics_kind_by_name(const char *name);

struct topics {
    int count;
    const char *names[TOPICS_MAX];
    const char *durability[TOPICS_MAX];
    int32_t partitions; /* of all */
};
/* `partitions`: at least as many as topics. */
void topics_init(struct topics *t, enum topics_kind kind, int32_t partitions);
/* Of one topic. */
int32_t topics_partitions(const struct topics *t, int topic);
/* Where a partition is: which topic, and its number there. */
const char *topics_name(const struct topics *t, int32_t partition);
int32_t topics_number(const struct topics *t, int32_t partition);
/* Whether an acknowledgement means that the record is on disk. */
bool topics_is_durable(const struct topics *t, int32_t partition);
/* The reverse; -1: none of ours. */
int32_t topics_find(const struct topics *t, const char *name, int32_t number);
#endif
