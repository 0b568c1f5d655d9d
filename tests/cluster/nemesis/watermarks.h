/* Asks for every partition's high watermark, as a client does, again and again: it may never go back. A thread of its own. */
#ifndef BROOK_TESTS_NEMESIS_WATERMARKS_H
#define BROOK_TESTS_NEMESIS_WATERMARKS_H

#include "tests/cluster/nemesis/topics.h"

#include <brook/brook.h>
#include <stdbool.h>
#include <stdio.h>

#define WATERMARKS_PARTITIONS_MAX 64

struct watermarks;
/* `config` is borrowed during the call, `topics` and `findings` for its life. Never NULL. */
struct watermarks *watermarks_new(const brook_config *config, const struct topics *topics, FILE *findings);
/* The highest that was answered for each partition. After watermarks_stop(), as all below. */
void watermarks_highest(struct watermarks *w, int64_t *ret);
/* Answers; and those below an earlier one. */
int64_t watermarks_answers(struct watermarks *w);
int64_t watermarks_breaches(struct watermarks *w);
/* Ask all once, now; false when one does not answer within `timeout_ms`. */
bool watermarks_ask(struct watermarks *w, int timeout_ms, int64_t *ret);
/* The partitions' first offsets, likewise. */
bool watermarks_ask_starts(struct watermarks *w, int timeout_ms, int64_t *ret);
/* End the thread. */
void watermarks_stop(struct watermarks *w);
void watermarks_free(struct watermarks *w);
#endif
