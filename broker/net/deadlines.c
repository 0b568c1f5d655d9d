#include "broker/net/deadlines.h"

#include <assert.h>
#include <stdlib.h>

void deadlines_done(struct deadlines *d)
{
    free(d->heap);
    *d = (struct deadlines){0};
}

static void put(struct deadlines *d, size_t index, struct request *r)
{
    d->heap[index] = r;
    r->heap_index = index;
}

static void rise(struct deadlines *d, size_t index, struct request *r)
{
    while (index > 1 && d->heap[index / 2]->deadline_ns > r->deadline_ns) {
        put(d, index, d->heap[index / 2]);
        index /= 2;
    }
    put(d, index, r);
}

static void sink(struct deadlines *d, size_t index, struct request *r)
{
    for (;;) {
        size_t child = 2 * index;
        if (child > d->count)
            break;
        if (child < d->count && d->heap[child + 1]->deadline_ns < d->heap[child]->deadline_ns)
            child++;
        if (d->heap[child]->deadline_ns >= r->deadline_ns)
            break;
        put(d, index, d->heap[child]);
        index = child;
    }
    put(d, index, r);
}

static void take_out(struct deadlines *d, struct request *r)
{
    size_t index = r->heap_index;
    assert(index > 0 && index <= d->count && d->heap[index] == r);
    struct request *last = d->heap[d->count--];
    r->heap_index = 0;
    if (last == r)
        return;
    if (index > 1 && d->heap[index / 2]->deadline_ns > last->deadline_ns)
        rise(d, index, last);
    else
        sink(d, index, last);
}

int deadlines_reserve(struct deadlines *d, size_t count)
{
    if (count < d->capacity)
        return 0;
    size_t capacity = d->capacity ? d->capacity : 64;
    while (capacity <= count)
        capacity *= 2;
    struct request **heap = realloc(d->heap, capacity * sizeof *heap);
    if (!heap)
        return -BROOK_E_NOMEM;
    d->heap = heap;
    d->capacity = capacity;
    return 0;
}

void deadlines_set(struct deadlines *d, struct request *r, int64_t when_ns)
{
    if (r->heap_index)
        take_out(d, r);
    r->deadline_ns = when_ns;
    if (!when_ns)
        return;
    assert(d->count + 1 < d->capacity);
    d->count++;
    rise(d, d->count, r);
}

struct request *deadlines_pop_due(struct deadlines *d, int64_t now_ns)
{
    if (!d->count || d->heap[1]->deadline_ns > now_ns)
        return NULL;
    struct request *r = d->heap[1];
    take_out(d, r);
    r->deadline_ns = 0;
    return r;
}

int64_t deadlines_earliest(const struct deadlines *d)
{
    return d->count ? d->heap[1]->deadline_ns : 0;
}
