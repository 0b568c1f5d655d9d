#include "coordination/timers.h"

#include "proto/base/err.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void timers_done(struct timers *t)
{
    free(t->heap);
    memset(t, 0, sizeof *t);
}

static void put(struct timers *t, size_t place, struct timer *timer)
{
    t->heap[place - 1] = timer;
    timer->place = place;
}

static void sift_up(struct timers *t, struct timer *timer)
{
    size_t at = timer->place;
    for (; at > 1 && t->heap[at / 2 - 1]->due_ms > timer->due_ms; at /= 2)
        put(t, at, t->heap[at / 2 - 1]);
    put(t, at, timer);
}

static void sift_down(struct timers *t, struct timer *timer)
{
    size_t at = timer->place;
    for (;;) {
        size_t child = at * 2;
        if (child > t->count)
            break;
        if (child < t->count && t->heap[child]->due_ms < t->heap[child - 1]->due_ms)
            child++;
        if (t->heap[child - 1]->due_ms >= timer->due_ms)
            break;
        put(t, at, t->heap[child - 1]);
        at = child;
    }
    put(t, at, timer);
}

static int reserve(struct timers *t)
{
    if (t->count < t->capacity)
        return 0;
    size_t capacity = t->capacity ? t->capacity * 2 : 16;
    struct timer **heap = realloc(t->heap, capacity * sizeof(struct timer *));
    if (!heap)
        return -BROOK_E_NOMEM;
    t->heap = heap;
    t->capacity = capacity;
    return 0;
}

int timers_set(struct timers *t, struct timer *timer, int64_t due_ms)
{
    if (timer->place == 0) {
        int r = reserve(t);
        if (r < 0)
            return r;
        put(t, ++t->count, timer);
    }
    timer->due_ms = due_ms;
    sift_up(t, timer);
    sift_down(t, timer);
    return 0;
}

void timers_clear(struct timers *t, struct timer *timer)
{
    if (timer->place == 0)
        return;
    assert(t->heap[timer->place - 1] == timer);
    struct timer *last = t->heap[--t->count];
    size_t place = timer->place;
    timer->place = 0;
    if (last == timer)
        return;
    put(t, place, last);
    sift_up(t, last);
    sift_down(t, last);
}

int64_t timers_next_ms(const struct timers *t)
{
    return t->count ? t->heap[0]->due_ms : INT64_MAX;
}

void timers_run(struct timers *t, int64_t now_ms)
{
    while (t->count && t->heap[0]->due_ms <= now_ms) {
        struct timer *timer = t->heap[0];
        timers_clear(t, timer);
        timer->fire(timer);
    }
}
