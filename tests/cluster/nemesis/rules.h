/* What may never be seen of a partition, one look after the other: in its state, and of what only rises. Pure. */
#ifndef BROOK_TESTS_NEMESIS_RULES_H
#define BROOK_TESTS_NEMESIS_RULES_H

#include <stdbool.h>
#include <stdint.h>

/* All zero in the beginning. */
struct state_rule {
    bool is_known;
    int32_t epoch;    /* as seen last */
    int32_t *leaders; /* by epoch; -1: not seen */
    int32_t count;
};
/* NULL, or what is wrong with what was seen now. `leader` below 0: none. Aborts when out of memory. */
const char *state_rule_look(struct state_rule *r, int32_t leader, int32_t epoch, int isr_count);
void state_rule_done(struct state_rule *r);

/* High watermarks as answered, offsets of a group as stored. False: it went back. Below 0 is no answer. */
bool rises(int64_t *highest, int64_t value);
#endif
