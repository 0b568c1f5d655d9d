/* Readers of a nemesis run: threads that read all partitions from their first records, without a group, and note what
 * they are given. Also the last reader, whose trail is the log. */
#ifndef BROOK_TESTS_NEMESIS_READERS_H
#define BROOK_TESTS_NEMESIS_READERS_H

#include "tests/cluster/nemesis/topics.h"
#include "tests/cluster/nemesis/trail.h"

#include <brook/brook.h>
#include <stdbool.h>

struct reader;
/* `config`, `topics` are borrowed: the former during the call. Never NULL. */
struct reader *reader_new(const brook_config *config, const struct topics *topics);
/* The offset behind the last record that it was given; 0: none. Any thread. */
int64_t reader_next(struct reader *r, int32_t partition);
/* Whether it has been given all below these ends. Any thread. */
bool reader_has_reached(struct reader *r, const int64_t *ends);
/* End the thread; then reader_trail() may be looked at. */
void reader_stop(struct reader *r);
const struct trail *reader_trail(const struct reader *r);
/* Errors that poll reported about partitions, beside what it gets over by itself. */
int64_t reader_errors(const struct reader *r);
void reader_free(struct reader *r);
#endif
