#include "broker/cluster/placement.h"

#include "proto/base/cleanup.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Looks at another partition's replica in search of a better second one: bounds the work for huge topics. */
#define SECOND_LOOKS_MAX (32 * 1000 * 1000)

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
    size_t replicas;
    int32_t chosen; /* for the partition at hand */
};

/* Until placement_make is at its end, lists of replicas hold indices of targets. */
struct placement {
    struct target *targets;
    size_t count;
    int32_t *seconds; /* count * count: how many partitions the one leads and the other is second of */
    struct rack *racks; /* as many as targets, at most */
    size_t racks_count;
    size_t turn;  /* of equals the next from here */
    size_t shift; /* so much further from a first choice: topics of few partitions differ in their seconds */
};

static void placement_done(struct placement *p)
{
    free(p->targets);
    free(p->seconds);
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

static int32_t *seconds_of(const struct placement *p, int32_t leader, int32_t second)
{
    return &p->seconds[(size_t)leader * p->count + (size_t)second];
}

static void count_second(struct placement *p, const struct znode_replicas *list)
{
    const struct target *leader = list->count > 1 ? find_target(p, list->brokers[0]) : NULL;
    const struct target *second = leader ? find_target(p, list->brokers[1]) : NULL;
    if (second)
        ++*seconds_of(p, (int32_t)(leader - p->targets), (int32_t)(second - p->targets));
}

static void count_existing(struct placement *p, const struct znode_replicas *existing, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        count_second(p, &existing[i]);
        for (int32_t k = 0; k < existing[i].count; k++) {
            struct target *t = find_target(p, existing[i].brokers[k]);
            if (!t)
                continue;
            t->replicas++;
            t->leads += k == 0;
            p->racks[t->rack].replicas++;
        }
    }
}

/* ---- one partition ---------------------------------------------------------------------------------- */

/* `first`: the partition's first choice, or -1 while there is none. */
static bool is_better(const struct placement *p, int32_t first, int32_t a, int32_t b)
{
    const struct target *to_a = &p->targets[a], *to_b = &p->targets[b];
    const struct rack *rack_a = &p->racks[to_a->rack], *rack_b = &p->racks[to_b->rack];
    if (rack_a->chosen != rack_b->chosen)
        return rack_a->chosen < rack_b->chosen;
    if (to_a->replicas != to_b->replicas)
        return to_a->replicas < to_b->replicas;
    size_t load_a = rack_a->replicas * rack_b->brokers, load_b = rack_b->replicas * rack_a->brokers;
    if (load_a != load_b)
        return load_a < load_b;
    return first < 0 ? to_a->leads < to_b->leads : *seconds_of(p, first, a) < *seconds_of(p, first, b);
}

static int32_t next_replica(struct placement *p, int32_t first)
{
    int32_t best = -1;
    for (size_t i = 0; i < p->count; i++) {
        int32_t t = (int32_t)((p->turn + i) % p->count);
        if (!p->targets[t].is_chosen && (best < 0 || is_better(p, first, t, best)))
            best = t;
    }
    assert(best >= 0);
    p->targets[best].is_chosen = true;
    p->targets[best].replicas++;
    p->racks[p->targets[best].rack].replicas++;
    p->racks[p->targets[best].rack].chosen++;
    p->turn = ((size_t)best + 1 + (first < 0 ? p->shift : 0)) % p->count;
    return best;
}

static void swap(int32_t *a, int32_t *b)
{
    int32_t former = *a;
    *a = *b;
    *b = former;
}

/* Of the followers in `list`, the one that is the leader's second most seldom, to the second place. */
static void choose_second(const struct placement *p, int32_t replicas, int32_t *list)
{
    for (int32_t k = 2; k < replicas; k++)
        if (*seconds_of(p, list[0], list[k]) < *seconds_of(p, list[0], list[1]))
            swap(&list[1], &list[k]);
}

static void place_one(struct placement *p, int32_t replicas, int32_t *list)
{
    for (size_t i = 0; i < p->count; i++)
        p->targets[i].is_chosen = false;
    for (size_t i = 0; i < p->racks_count; i++)
        p->racks[i].chosen = 0;
    for (int32_t k = 0; k < replicas; k++)
        list[k] = next_replica(p, k ? list[0] : -1);
    for (int32_t k = 1; k < replicas; k++)
        if (p->targets[list[k]].leads < p->targets[list[0]].leads)
            swap(&list[0], &list[k]);
    p->targets[list[0]].leads++;
    if (replicas < 2)
        return;
    choose_second(p, replicas, list);
    ++*seconds_of(p, list[0], list[1]);
}

/* ---- leaders evenly --------------------------------------------------------------------------------- */

/* Who gave leadership to whom on the way from the broker with the most: `by` is the partition. */
struct hop {
    bool is_reached;
    size_t from;
    int32_t by;
};

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
            size_t leader = (size_t)list[0];
            for (int32_t k = 1; hops[leader].is_reached && k < replicas; k++) {
                size_t other = (size_t)list[k];
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
        while (list[k] != (int32_t)at)
            k++;
        --*seconds_of(p, list[0], list[1]);
        swap(&list[0], &list[k]);
        ++*seconds_of(p, list[0], list[1]);
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

/* ---- seconds evenly --------------------------------------------------------------------------------- */

/* What is led by one broker, and falls to the seconds when it dies, is to be spread over all that may be
 * second. Partitions exchange followers for that: leaders, numbers of replicas and racks stay as they are. */

struct seconds {
    struct placement *p;
    int32_t *brokers;
    int32_t count;
    int32_t replicas;
    int64_t looks; /* that are left */
};

/* May `in` take the place of `out`, one of the list, so far as the others of the list go? */
static bool may_replace(const struct seconds *s, const int32_t *list, int32_t out, int32_t in)
{
    const struct target *targets = s->p->targets;
    bool same_rack = targets[out].rack == targets[in].rack;
    for (int32_t k = 0; k < s->replicas; k++)
        if (list[k] == in || (!same_rack && targets[list[k]].rack == targets[in].rack))
            return false;
    return true;
}

/* Exchange the second of `list` for the k-th of `other`, if seconds are more even then. */
static bool exchange(const struct seconds *s, int32_t *list, int32_t *other, int32_t k)
{
    const struct placement *p = s->p;
    int32_t out = list[1], in = other[k];
    int32_t gain = *seconds_of(p, list[0], out) - *seconds_of(p, list[0], in) - 1;
    if (k == 1)
        gain += *seconds_of(p, other[0], in) - *seconds_of(p, other[0], out) - 1;
    if (gain <= 0 || (k == 1 && list[0] == other[0]) || !may_replace(s, list, out, in) ||
        !may_replace(s, other, in, out))
        return false;
    --*seconds_of(p, list[0], out);
    ++*seconds_of(p, list[0], in);
    if (k == 1) {
        --*seconds_of(p, other[0], in);
        ++*seconds_of(p, other[0], out);
    }
    swap(&list[1], &other[k]);
    return true;
}

/* Is the second of `list` that of its leader twice more than another that may be? */
static bool is_too_often(const struct seconds *s, const int32_t *list)
{
    const struct placement *p = s->p;
    for (int32_t i = 0; i < (int32_t)p->count; i++) {
        bool may_be = i != list[0] && (p->targets[i].rack != p->targets[list[0]].rack ||
                                       (size_t)s->replicas > p->racks_count);
        if (may_be && *seconds_of(p, list[0], list[1]) - *seconds_of(p, list[0], i) > 1)
            return true;
    }
    return false;
}

static bool better_second(struct seconds *s, int32_t *list)
{
    --*seconds_of(s->p, list[0], list[1]);
    int32_t before = list[1];
    choose_second(s->p, s->replicas, list);
    ++*seconds_of(s->p, list[0], list[1]);
    if (list[1] != before)
        return true;
    if (!is_too_often(s, list))
        return false;
    for (int32_t i = 0; i < s->count && s->looks > 0; i++) {
        int32_t *other = s->brokers + (size_t)i * (size_t)s->replicas;
        s->looks -= s->replicas - 1;
        for (int32_t k = 1; other != list && k < s->replicas; k++)
            if (exchange(s, list, other, k))
                return true;
    }
    return false;
}

/* Ends because each exchange makes the sum of the squares of all seconds smaller. */
static void even_seconds(struct placement *p, int32_t count, int32_t replicas, int32_t *brokers)
{
    struct seconds s = {p, brokers, count, replicas, SECOND_LOOKS_MAX};
    for (bool more = true; more;) {
        more = false;
        for (int32_t i = 0; i < count; i++)
            more |= better_second(&s, brokers + (size_t)i * (size_t)replicas);
    }
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
    if (choose_targets(&p, alive, replicas) || !(p.seconds = calloc(p.count * p.count, sizeof *p.seconds)))
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    count_existing(&p, existing, existing_count);
    p.turn = (size_t)(start % p.count);
    p.shift = p.count > 1 && replicas > 1 ? (size_t)(start / p.count % (p.count - 1)) : 0;
    for (int32_t i = 0; i < count; i++)
        place_one(&p, replicas, brokers + (size_t)i * (size_t)replicas);
    if (replicas > 1 && even_leaders(&p, count, replicas, brokers))
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    if (replicas > 1)
        even_seconds(&p, count, replicas, brokers);
    for (size_t i = 0; i < (size_t)count * (size_t)replicas; i++)
        brokers[i] = p.targets[brokers[i]].broker_id;
    return 0;
}
