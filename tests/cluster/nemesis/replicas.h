/* Whether the replicas of a partition are the same bytes: their segment files, one behind the other. Reads the files by
 * itself, not with the broker's code. To be called when nothing is written any more. */
#ifndef BROOK_TESTS_NEMESIS_REPLICAS_H
#define BROOK_TESTS_NEMESIS_REPLICAS_H

#include <stddef.h>
#include <stdint.h>

struct replica {
    uint8_t *bytes;
    size_t count;
};
/* All of `directory`'s *.log, by name. A directory that is not there is empty. Aborts when out of memory. */
void replica_load(struct replica *r, const char *directory);
/* Without the batches below an offset: of deleted records each replica drops whole files, in its own time. */
void replica_begin_at(struct replica *r, int64_t offset);
void replica_done(struct replica *r);
/* The base offset of the first batch that differs or that one of them lacks; -1: they are equal. */
int64_t replica_first_difference(const struct replica *a, const struct replica *b);
/* Offset behind the last batch; 0: there is none. */
int64_t replica_end(const struct replica *r);
#endif
