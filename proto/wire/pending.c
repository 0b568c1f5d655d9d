#include "proto/wire/pending.h"

#include <assert.h>
#include <stdlib.h>

#define CAPACITY_MIN 64

void pending_init(struct pending *p)
{
    *p = (struct pending){.free = PENDING_NONE, .first = PENDING_NONE, .last = PENDING_NONE};
}

void pending_done(struct pending *p)
{
    free(p->table);
    pending_init(p);
}

static uint32_t place_of(const struct pending *p, const struct pending_request *request)
{
    return (uint32_t)(request - p->table);
}

static int grow(struct pending *p)
{
    if (p->used < p->capacity)
        return 0;
    if (p->used >= PENDING_MAX)
        return -1;
    uint32_t capacity = p->capacity ? p->capacity * 2 : CAPACITY_MIN;
    if (capacity > PENDING_MAX)
        capacity = PENDING_MAX;
    struct pending_request *wider = realloc(p->table, capacity * sizeof *wider);
    if (!wider)
        return -1;
    p->table = wider;
    p->capacity = capacity;
    return 0;
}

struct pending_request *pending_add(struct pending *p)
{
    uint32_t place = p->free;
    if (place != PENDING_NONE)
        p->free = p->table[place].next;
    else if (grow(p) < 0)
        return NULL;
    else
        place = p->used++;

    struct pending_request *request = &p->table[place];
    *request = (struct pending_request){.correlation_id = ++p->serial << CHANNEL_PLACE_BITS | place,
                                        .previous = p->last,
                                        .next = PENDING_NONE,
                                        .live = true};
    if (p->last != PENDING_NONE)
        p->table[p->last].next = place;
    else
        p->first = place;
    p->last = place;
    p->live_count++;
    return request;
}

struct pending_request *pending_find(struct pending *p, uint64_t correlation_id)
{
    uint64_t place = correlation_id & ((1u << CHANNEL_PLACE_BITS) - 1);
    if (place >= p->used)
        return NULL;
    struct pending_request *request = &p->table[place];
    bool is = (request->live || request->late) && request->correlation_id == correlation_id;
    return is ? request : NULL;
}

struct pending_request *pending_first(struct pending *p)
{
    return p->first == PENDING_NONE ? NULL : &p->table[p->first];
}

struct pending_request *pending_next(struct pending *p, const struct pending_request *request)
{
    return request->next == PENDING_NONE ? NULL : &p->table[request->next];
}

static void unlink_live(struct pending *p, struct pending_request *request)
{
    assert(request->live);
    if (request->previous != PENDING_NONE)
        p->table[request->previous].next = request->next;
    else
        p->first = request->next;
    if (request->next != PENDING_NONE)
        p->table[request->next].previous = request->previous;
    else
        p->last = request->previous;
    request->live = false;
    p->live_count--;
}

void pending_remove(struct pending *p, struct pending_request *request)
{
    if (request->live)
        unlink_live(p, request);
    else if (request->late)
        p->late_count--;
    request->late = false;
    request->next = p->free;
    p->free = place_of(p, request);
}

void pending_give_up(struct pending *p, struct pending_request *request)
{
    unlink_live(p, request);
    request->late = true;
    p->late_count++;
}

void pending_forget_late(struct pending *p)
{
    for (uint32_t i = 0; i < p->used && p->late_count > 0; i++)
        if (p->table[i].late)
            pending_remove(p, &p->table[i]);
}
