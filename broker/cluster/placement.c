#include "broker/cluster/placement.h"

#include "proto/base/cleanup.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A broker that takes replicas. */
struct target {
    int32_t broker_id;
    size_t rack; /* index */
    int32_t replicas;
    int32_t leads;
    bool is_chosen; /* for the partition at hand */
};

struct rack {
    size_t brokers;
    int32_t chosen; /* for the partition at hand */
};

struct placement {
    struct target *targets;
    size_t count;
    struct rack *racks; /* as many as targets, at most */
    size_t racks_count;
    size_t turn; /* of equals the next from here */
};

static void placement_done(struct placement *p)
{
    free(p->targets);
    free(p->racks);
}
#define AUTO_PLACEMENT __attribute__((cleanup(placement_done)))

static bool same_rack(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

static bool any_rack(const struct controller_brokers *alive)
{
    for (size_t i = 0; i < alive->count; i++)
        if (alive->brokers[i].rack)
            return true;
    return false;
}

static int compare_target(const void *key, const void *entry)
{
    int32_t a = *(const int32_t *)key, b = ((const struct target *)entry)->broker_id;
    return (a > b) - (a < b);
}

static struct target *find_target(const struct placement *p, int32_t broker_id)
{
    return bsearch(&broker_id, p->targets, p->count, sizeof *p->targets, compare_target);
}

static void add_target(struct placement *p, const struct controller_broker **rack_of,
                       const struct controller_broker *broker, bool by_rack)
{
    size_t rack = 0;
    while (by_rack && rack < p->racks_count && !same_rack(rack_of[rack]->rack, broker->rack))
        rack++;
    if (!by_rack)
        rack = p->racks_count;
    if (rack == p->racks_count) {
        rack_of[p->racks_count++] = broker;
        p->racks[rack] = (struct rack){0};
    }
    p->racks[rack].brokers++;
    p->targets[p->count++] = (struct target){.broker_id = broker->broker_id, .rack = rack};
}

/* Those that take replicas: all that do not drain, or all if those are too few. */
static int choose_targets(struct placement *p, const struct controller_brokers *alive, int32_t replicas)
{
    AUTO_FREE const struct controller_broker **rack_of = calloc(alive->count + 1, sizeof(void *));
    p->targets = calloc(alive->count + 1, sizeof *p->targets);
    p->racks = calloc(alive->count + 1, sizeof *p->racks);
    if (!rack_of || !p->targets || !p->racks)
        return -BROOK_E_NOMEM;
    size_t staying = 0;
    for (size_t i = 0; i < alive->count; i++)
        staying += !alive->brokers[i].draining;
    bool by_rack = any_rack(alive);
    for (size_t i = 0; i < alive->count; i++)
        if (!alive->brokers[i].draining || staying < (size_t)replicas)
            add_target(p, rack_of, &alive->brokers[i], by_rack);
    return 0;
}

static void count_existing(struct placement *p, const struct znode_replicas *existing, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        for (int32_t k = 0; k < existing[i].count; k++) {
            struct target *t = find_target(p, existing[i].brokers[k]);
            if (!t)
                continue;
            t->replicas++;
            t->leads += k == 0;
        }
}

/* ---- one partition ---------------------------------------------------------------------------------- */

static bool is_better(const struct placement *p, const struct target *a, const struct target *b)
{
    int32_t in_a = p->racks[a->rack].chosen, in_b = p->racks[b->rack].chosen;
    return in_a != in_b ? in_a < in_b : a->replicas < b->replicas;
}

static struct target *next_replica(struct placement *p)
{
    struct target *best = NULL;
    for (size_t i = 0; i < p->count; i++) {
        struct target *t = &p->targets[(p->turn + i) % p->count];
        if (!t->is_chosen && (!best || is_better(p, t, best)))
            best = t;
    }
    assert(best);
    best->is_chosen = true;
    best->replicas++;
    p->racks[best->rack].chosen++;
    p->turn = ((size_t)(best - p->targets) + 1) % p->count;
    return best;
}

static void place_one(struct placement *p, int32_t replicas, int32_t *brokers)
{
    for (size_t i = 0; i < p->count; i++)
        p->targets[i].is_chosen = false;
    for (size_t i = 0; i < p->racks_count; i++)
        p->racks[i].chosen = 0;
    int32_t first = 0;
    struct target *leader = NULL;
    for (int32_t k = 0; k < replicas; k++) {
        struct target *t = next_replica(p);
        brokers[k] = t->broker_id;
        if (!leader || t->leads < leader->leads) {
            leader = t;
            first = k;
        }
    }
    leader->leads++;
    /* The leader to the front, the others after it in their order. */
    memmove(brokers + 1, brokers, (size_t)first * sizeof *brokers);
    brokers[0] = leader->broker_id;
}

/* ---- leaders evenly --------------------------------------------------------------------------------- */

/* Who gave leadership to whom on the way from the broker with the most: `by` is the partition. */
struct hop {
    bool is_reached;
    size_t from;
    int32_t by;
};

static size_t index_of(const struct placement *p, int32_t broker_id)
{
    return (size_t)(find_target(p, broker_id) - p->targets);
}

/* Breadth first from `top` over "leads a partition that the other has a replica of". Returns one that leads
 * at least two less, or p->count. */
static size_t find_relief(const struct placement *p, size_t top, int32_t count, int32_t replicas,
                          const int32_t *brokers, struct hop *hops)
{
    memset(hops, 0, p->count * sizeof *hops);
    hops[top].is_reached = true;
    for (bool more = true; more;) {
        more = false;
        for (int32_t i = 0; i < count; i++) {
            const int32_t *list = brokers + (size_t)i * (size_t)replicas;
            size_t leader = index_of(p, list[0]);
            for (int32_t k = 1; hops[leader].is_reached && k < replicas; k++) {
                size_t other = index_of(p, list[k]);
                if (hops[other].is_reached)
                    continue;
                hops[other] = (struct hop){true, leader, i};
                if (p->targets[other].leads < p->targets[top].leads - 1)
                    return other;
                more = true;
            }
        }
    }
    return p->count;
}

static void pass_leadership(struct placement *p, size_t top, size_t to, int32_t replicas, int32_t *brokers,
                            const struct hop *hops)
{
    p->targets[top].leads--;
    p->targets[to].leads++;
    for (size_t at = to; at != top; at = hops[at].from) {
        int32_t *list = brokers + (size_t)hops[at].by * (size_t)replicas;
        int32_t k = 1;
        while (list[k] != p->targets[at].broker_id)
            k++;
        int32_t former = list[0];
        list[0] = list[k];
        list[k] = former;
    }
}

static int32_t least_leads(const struct placement *p)
{
    int32_t least = INT32_MAX;
    for (size_t i = 0; i < p->count; i++)
        least = p->targets[i].leads < least ? p->targets[i].leads : least;
    return least;
}

/* Choosing partition by partition leaves few odd ones: each relief evens one of them out. */
static int even_leaders(struct placement *p, int32_t count, int32_t replicas, int32_t *brokers)
{
    AUTO_FREE struct hop *hops = calloc(p->count, sizeof *hops);
    if (!hops)
        return -BROOK_E_NOMEM;
    for (size_t top = 0; top < p->count;) {
        bool is_even = p->targets[top].leads - least_leads(p) < 2;
        size_t to = is_even ? p->count : find_relief(p, top, count, replicas, brokers, hops);
        if (to == p->count) {
            top++;
            continue;
        }
        pass_leadership(p, top, to, replicas, brokers, hops);
        top = 0;
    }
    return 0;
}

int placement_make(const struct controller_brokers *alive, const struct znode_replicas *existing,
                   int32_t existing_count, uint64_t start, int32_t count, int32_t replicas, int32_t *brokers,
                   struct brook_error *error)
{
    AUTO_PLACEMENT struct placement p = {0};
    assert(replicas > 0);
    if (!alive->count)
        return brook_error_set(error, BROOK_E_BROKER_NOT_AVAILABLE, "no broker is alive");
    if ((size_t)replicas > alive->count)
        return brook_error_set(error, BROOK_E_INVALID_REPLICATION,
                               "%" PRId32 " replicas need as many brokers, and %zu are alive", replicas,
                               alive->count);
    if (choose_targets(&p, alive, replicas))
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    count_existing(&p, existing, existing_count);
    p.turn = (size_t)(start % p.count);
    for (int32_t i = 0; i < count; i++)
        place_one(&p, replicas, brokers + (size_t)i * (size_t)replicas);
    if (replicas > 1 && even_leaders(&p, count, replicas, brokers))
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    return 0;
}
