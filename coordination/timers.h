/* A heap of timers, for thousands of observations that each have one. Intrusive: a timer lives inside of what
 * it wakes. No thread of its own; one thread uses it. Times are milliseconds of the caller's clock.
 */
#ifndef BROOK_COORDINATION_TIMERS_H
#define BROOK_COORDINATION_TIMERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct timer {
    int64_t due_ms;
    size_t place; /* 1-based in the heap; 0: not set */
    void (*fire)(struct timer *timer);
};

struct timers {
    struct timer **heap;
    size_t count;
    size_t capacity;
};

/* Frees the heap, not the timers. */
void timers_done(struct timers *t);
/* Set or move. Returns 0, or -BROOK_E_NOMEM with the timer not set. */
int timers_set(struct timers *t, struct timer *timer, int64_t due_ms);
/* Fine when it is not set. */
void timers_clear(struct timers *t, struct timer *timer);
/* INT64_MAX when none is set. */
int64_t timers_next_ms(const struct timers *t);
/* Take those that are due off and fire them; they may set themselves again. */
void timers_run(struct timers *t, int64_t now_ms);
#endif
