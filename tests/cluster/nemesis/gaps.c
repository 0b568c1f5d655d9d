#include "tests/cluster/nemesis/gaps.h"

#include <pthread.h>
#include <stdlib.h>

/* Shorter ones are nobody's concern. */
#define GAP_MS_MIN 20

struct gaps {
    pthread_mutex_t lock;
    int32_t partitions;
    int64_t *since; /* per partition; -1: nothing is missing */
    struct gap *list;
    size_t count, room;
};

struct gaps *gaps_new(int32_t partitions)
{
    struct gaps *g = calloc(1, sizeof *g);
    if (!g || !(g->since = calloc((size_t)partitions, sizeof *g->since)))
        abort();
    g->partitions = partitions;
    pthread_mutex_init(&g->lock, NULL);
    for (int32_t p = 0; p < partitions; p++)
        g->since[p] = -1;
    return g;
}

void gaps_free(struct gaps *g)
{
    if (!g)
        return;
    pthread_mutex_destroy(&g->lock);
    free(g->since);
    free(g->list);
    free(g);
}

static void keep(struct gaps *g, int32_t partition, int64_t from, int64_t to)
{
    if (to - from < GAP_MS_MIN)
        return;
    if (g->count == g->room) {
        g->room = g->room ? 2 * g->room : 256;
        g->list = realloc(g->list, g->room * sizeof *g->list);
        if (!g->list)
            abort();
    }
    g->list[g->count++] = (struct gap){partition, from, to};
}

void gaps_tell(struct gaps *g, int32_t partition, bool missing, int64_t now_ms)
{
    pthread_mutex_lock(&g->lock);
    int64_t *since = &g->since[partition];
    if (missing && *since < 0) {
        *since = now_ms;
    } else if (!missing && *since >= 0) {
        keep(g, partition, *since, now_ms);
        *since = -1;
    }
    pthread_mutex_unlock(&g->lock);
}

void gaps_seen(struct gaps *g, int32_t partition, int64_t now_ms)
{
    pthread_mutex_lock(&g->lock);
    if (g->since[partition] >= 0)
        keep(g, partition, g->since[partition], now_ms);
    g->since[partition] = now_ms;
    pthread_mutex_unlock(&g->lock);
}

static void take_longer(struct gap *longest, struct gap other)
{
    if (other.to_ms - other.from_ms > longest->to_ms - longest->from_ms)
        *longest = other;
}

struct gap gaps_longest(struct gaps *g, int64_t from_ms, int64_t to_ms)
{
    struct gap longest = {.partition = -1};
    pthread_mutex_lock(&g->lock);
    for (size_t i = 0; i < g->count; i++)
        if (g->list[i].from_ms <= to_ms && g->list[i].to_ms >= from_ms)
            take_longer(&longest, g->list[i]);
    for (int32_t p = 0; p < g->partitions; p++)
        if (g->since[p] >= 0)
            take_longer(&longest, (struct gap){p, g->since[p], to_ms});
    pthread_mutex_unlock(&g->lock);
    return longest;
}
