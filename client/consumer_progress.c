#include "client/consumer_progress.h"

#include "proto/base/err.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY_FIRST 8

void progress_init(struct consumer_progress *p)
{
    *p = (struct consumer_progress){
        .first_ticket = PROGRESS_TICKET_NONE + 1, .next_ticket = PROGRESS_TICKET_NONE + 1, .processed = -1};
}

void progress_done(struct consumer_progress *p)
{
    free(p->runs);
    progress_init(p);
}

static struct progress_run *run_at(const struct consumer_progress *p, size_t index)
{
    return &p->runs[(p->head + index) & (p->capacity - 1)];
}

void progress_start(struct consumer_progress *p, int64_t offset)
{
    p->first_ticket = p->next_ticket;
    p->head = 0;
    p->count = 0;
    p->is_blocked = false;
    p->processed = offset;
}

static int grow(struct consumer_progress *p)
{
    size_t capacity = p->capacity ? 2 * p->capacity : CAPACITY_FIRST;
    struct progress_run *runs = calloc(capacity, sizeof *runs);
    if (!runs)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < p->count; i++)
        runs[i] = *run_at(p, i);
    free(p->runs);
    p->runs = runs;
    p->head = 0;
    p->capacity = capacity;
    return 0;
}

int progress_hand_out(struct consumer_progress *p, int64_t next, _Atomic int64_t *partial,
                      uint64_t *ret_ticket)
{
    if (p->is_blocked) {
        *ret_ticket = PROGRESS_TICKET_NONE;
        return 0;
    }
    if (p->count == p->capacity) {
        int r = grow(p);
        if (r < 0)
            return r;
    }
    *run_at(p, p->count) = (struct progress_run){.next = next, .released = -1, .partial = partial};
    *ret_ticket = p->next_ticket++;
    p->count++;
    return 0;
}

/* Take finished runs off the front. */
static void advance(struct consumer_progress *p)
{
    while (p->count > 0) {
        struct progress_run *run = run_at(p, 0);
        if (run->released < 0)
            return;
        if (run->released > p->processed)
            p->processed = run->released;
        if (run->released < run->next)
            return;
        p->head = (p->head + 1) & (p->capacity - 1);
        p->count--;
        p->first_ticket++;
    }
}

void progress_release(struct consumer_progress *p, uint64_t ticket, int64_t next)
{
    if (ticket < p->first_ticket || ticket - p->first_ticket >= p->count)
        return;
    size_t index = (size_t)(ticket - p->first_ticket);
    struct progress_run *run = run_at(p, index);
    if (run->released >= 0)
        return;
    run->partial = NULL;
    run->released = next < 0 ? 0 : next < run->next ? next : run->next;
    if (run->released < run->next) {
        /* Whatever lies behind can not join the prefix any more: forget it, so that the ring stays small. */
        p->count = index + 1;
        p->is_blocked = true;
    }
    advance(p);
}

int64_t progress_processed(const struct consumer_progress *p)
{
    if (p->count > 0) {
        const struct progress_run *run = run_at(p, 0);
        if (run->released < 0 && run->partial) {
            int64_t partial = atomic_load_explicit(run->partial, memory_order_relaxed);
            if (partial > p->processed)
                return partial;
        }
    }
    return p->processed;
}
