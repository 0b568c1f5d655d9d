/* Subscriptions by regular expression: one dialect (PCRE2), matched against whole topic names.
 *
 * Compiled once and kept; a match is bounded, so that an expression which explodes matches nothing instead of
 * standing still. Pure; one thread at a time per set.
 */
#ifndef BROOK_COORDINATION_TOPIC_PATTERN_H
#define BROOK_COORDINATION_TOPIC_PATTERN_H

#include <stdbool.h>

struct brook_error;
struct topic_patterns;

#define TOPIC_PATTERN_BYTES_MAX 1000

/* Returns 0 or -BROOK_E_INVALID: too long, or not an expression; the sentence says what is wrong and
 * where. */
int topic_pattern_check(const char *pattern, struct brook_error *error);

/* A set of compiled expressions, filled as they are used. NULL: out of memory. */
struct topic_patterns *topic_patterns_new(void);
void topic_patterns_free(struct topic_patterns *patterns);
/* Whether the whole of `topic` matches. False also for what is no expression. */
bool topic_patterns_match(struct topic_patterns *patterns, const char *pattern, const char *topic);
#endif
