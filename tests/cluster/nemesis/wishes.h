/* What an operator asks of the controller by hand: nodes under /admin. One thread; waits. */
#ifndef BROOK_TESTS_NEMESIS_WISHES_H
#define BROOK_TESTS_NEMESIS_WISHES_H

#include "tests/cluster/nemesis/topics.h"

struct wishes;
/* Never NULL. */
struct wishes *wishes_new(const char *connect);
void wishes_free(struct wishes *w);
/* Preferred leaders for all partitions. False: ZooKeeper does not answer, or a wish of this kind waits there already.
 */
bool wishes_elect(struct wishes *w, const struct topics *topics);
/* Other replicas for a partition. */
bool wishes_move(struct wishes *w, const struct topics *topics, int32_t partition, const int32_t *replicas,
                 int32_t count);
#endif
