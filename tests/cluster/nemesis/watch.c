#include "tests/cluster/nemesis/watch.h"

#include "coordination/paths.h"
#include "coordination/znodes.h"
#include "proto/base/clock.h"
#include "tests/support/caller.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SESSION_MS 4000
#define ROUND_MS 20
/* Offsets and assignments are looked at in every n-th round. */
#define SLOW_ROUNDS 10

/* Who led in which epoch, by epoch. */
struct leaders {
    int32_t *list; /* -1: not seen */
    int32_t count;
};

struct watch {
    struct watch_options options;
    pthread_t thread;
    pthread_mutex_t lock;
    _Atomic bool is_over;
    struct caller caller;
    struct coordinator *coordinator;
    struct gaps *leaderless;
    uint64_t started, finished; /* rounds; `finished`: the last one in which all states were read */
    struct watch_state states[WATCH_PARTITIONS_MAX];
    struct leaders leaders[WATCH_PARTITIONS_MAX];
    int64_t committed[WATCH_GROUPS_MAX][WATCH_PARTITIONS_MAX];
    int64_t state_breaches, offset_breaches;
};

static void breach(struct watch *w, int64_t *count, const char *what, int32_t partition, int64_t from, int64_t to)
{
    ++*count;
    if (w->options.findings)
        fprintf(w->options.findings, "%s: partition %" PRId32 ": %" PRId64 ", then %" PRId64 "\n", what, partition, from,
                to);
}

/* ---- states ----------------------------------------------------------------------------------------------------- */

static bool contains(const int32_t *list, int count, int32_t id)
{
    for (int i = 0; i < count; i++)
        if (list[i] == id)
            return true;
    return false;
}

static void check_leader(struct watch *w, int32_t partition, const struct znode_state *z)
{
    struct leaders *l = &w->leaders[partition];
    if (z->leader_epoch < 0 || z->leader < 0)
        return;
    if (z->leader_epoch >= l->count) {
        l->list = realloc(l->list, (size_t)(z->leader_epoch + 1) * sizeof *l->list);
        if (!l->list)
            abort();
        for (int32_t i = l->count; i <= z->leader_epoch; i++)
            l->list[i] = -1;
        l->count = z->leader_epoch + 1;
    }
    int32_t *leader = &l->list[z->leader_epoch];
    if (*leader >= 0 && *leader != z->leader)
        breach(w, &w->state_breaches, "two leaders in one epoch", partition, *leader, z->leader);
    *leader = z->leader;
}

/* Replicas may be those of a moment before or after: a move changes them in steps, in another node. */
static void check_state(struct watch *w, int32_t partition, const struct znode_state *z)
{
    const struct watch_state *old = &w->states[partition];
    if (old->is_known && z->leader_epoch < old->leader_epoch)
        breach(w, &w->state_breaches, "leader epoch went back", partition, old->leader_epoch, z->leader_epoch);
    if (z->isr_count < 1)
        breach(w, &w->state_breaches, "no replica in sync", partition, old->isr_count, z->isr_count);
    check_leader(w, partition, z);
}

static void take_state(struct watch *w, int32_t partition, const struct znode_state *z)
{
    check_state(w, partition, z);
    struct watch_state *s = &w->states[partition];
    s->is_known = true;
    s->leader = z->leader;
    s->leader_epoch = z->leader_epoch;
    s->isr_count = z->isr_count < WATCH_REPLICAS_MAX ? z->isr_count : WATCH_REPLICAS_MAX;
    memcpy(s->isr, z->isr, (size_t)s->isr_count * sizeof *s->isr);
}

static const struct got *get(struct watch *w, const char *path)
{
    coordinator_get(w->coordinator, path, caller_begin(&w->caller));
    return caller_end(&w->caller);
}

static bool read_state(struct watch *w, int32_t partition)
{
    struct path path;
    struct znode_state z;
    struct brook_error error;
    const struct got *got = get(w, path_partition_state(&path, w->options.topic, partition));
    if (got->err < 0 || znode_decode_state(got->data, got->data_bytes, &z, &error) < 0)
        return false;
    pthread_mutex_lock(&w->lock);
    take_state(w, partition, &z);
    pthread_mutex_unlock(&w->lock);
    return true;
}

/* Also while ZooKeeper does not answer: who was named last leads as long as it runs. */
static void tell_leaders(struct watch *w)
{
    int64_t now = clock_boot_ms();
    for (int32_t p = 0; p < w->options.partitions; p++) {
        const struct watch_state *s = &w->states[p];
        bool leads = s->is_known && s->leader >= 0 && w->options.is_up(w->options.is_up_arg, s->leader);
        gaps_tell(w->leaderless, p, !leads, now);
    }
}

/* ---- assignments and offsets ------------------------------------------------------------------------------------- */

static void read_replicas(struct watch *w)
{
    struct path path;
    struct znode_topic t;
    struct brook_error error;
    const struct got *got = get(w, path_topic(&path, w->options.topic));
    if (got->err < 0 || znode_decode_topic(got->data, got->data_bytes, &t, &error) < 0)
        return;
    pthread_mutex_lock(&w->lock);
    for (int32_t p = 0; p < w->options.partitions && p < t.partitions_count; p++) {
        struct watch_state *s = &w->states[p];
        const struct znode_replicas *r = &t.replicas[p];
        s->replicas_count = r->count < WATCH_REPLICAS_MAX ? r->count : WATCH_REPLICAS_MAX;
        memcpy(s->replicas, r->brokers, (size_t)s->replicas_count * sizeof *s->replicas);
    }
    pthread_mutex_unlock(&w->lock);
    znode_topic_done(&t);
}

static void read_offset(struct watch *w, int group, int32_t partition)
{
    struct path path;
    struct brook_error error;
    int64_t offset;
    const struct got *got = get(w, path_offset(&path, w->options.groups[group], w->options.topic, partition));
    if (got->err < 0 || znode_decode_offset(got->data, got->data_bytes, &offset, &error) < 0 || offset < 0)
        return;
    pthread_mutex_lock(&w->lock);
    int64_t *committed = &w->committed[group][partition];
    if (offset < *committed)
        breach(w, &w->offset_breaches, "a group's offset went back", partition, *committed, offset);
    *committed = offset;
    pthread_mutex_unlock(&w->lock);
}

static void read_slow_ones(struct watch *w)
{
    read_replicas(w);
    for (int g = 0; g < w->options.groups_count; g++)
        for (int32_t p = 0; p < w->options.partitions; p++)
            read_offset(w, g, p);
}

static void *run(void *arg)
{
    struct watch *w = arg;
    for (uint64_t round = 1; !w->is_over; round++) {
        bool all = true;
        pthread_mutex_lock(&w->lock);
        w->started = round;
        pthread_mutex_unlock(&w->lock);
        for (int32_t p = 0; p < w->options.partitions; p++) {
            all = read_state(w, p) && all;
            tell_leaders(w);
        }
        if (round % SLOW_ROUNDS == 1)
            read_slow_ones(w);
        pthread_mutex_lock(&w->lock);
        if (all)
            w->finished = round;
        pthread_mutex_unlock(&w->lock);
        caller_idle(&w->caller, ROUND_MS);
    }
    return NULL;
}

/* ---- asking ------------------------------------------------------------------------------------------------------- */

struct watch *watch_new(const struct watch_options *options)
{
    struct watch *w = calloc(1, sizeof *w);
    if (!w || options->partitions > WATCH_PARTITIONS_MAX)
        abort();
    w->options = *options;
    pthread_mutex_init(&w->lock, NULL);
    memset(w->committed, 0xff, sizeof w->committed);
    w->leaderless = gaps_new(options->partitions);
    caller_init(&w->caller);
    w->coordinator = caller_connect(&w->caller, options->connect, SESSION_MS, NULL);
    if (pthread_create(&w->thread, NULL, run, w) != 0)
        abort();
    return w;
}

void watch_free(struct watch *w)
{
    if (!w)
        return;
    w->is_over = true;
    pthread_join(w->thread, NULL);
    coordinator_free(w->coordinator, false, 1000);
    caller_done(&w->caller);
    for (int p = 0; p < WATCH_PARTITIONS_MAX; p++)
        free(w->leaders[p].list);
    gaps_free(w->leaderless);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

bool watch_fresh(struct watch *w, int timeout_ms)
{
    int64_t until = clock_boot_ms() + timeout_ms;
    pthread_mutex_lock(&w->lock);
    uint64_t asked = w->started;
    pthread_mutex_unlock(&w->lock);
    for (;;) {
        pthread_mutex_lock(&w->lock);
        bool fresh = w->finished > asked;
        pthread_mutex_unlock(&w->lock);
        if (fresh || clock_boot_ms() >= until)
            return fresh;
        usleep(2000);
    }
}

void watch_state(struct watch *w, int32_t partition, struct watch_state *ret)
{
    pthread_mutex_lock(&w->lock);
    *ret = w->states[partition];
    pthread_mutex_unlock(&w->lock);
}

int64_t watch_committed(struct watch *w, int group, int32_t partition)
{
    pthread_mutex_lock(&w->lock);
    int64_t offset = w->committed[group][partition];
    pthread_mutex_unlock(&w->lock);
    return offset;
}

static bool is_up(struct watch *w, int32_t broker)
{
    return w->options.is_up(w->options.is_up_arg, broker);
}

static bool is_in_sync(struct watch *w, const struct watch_state *s)
{
    if (!s->is_known || s->leader < 0 || s->isr_count != s->replicas_count || !is_up(w, s->leader))
        return false;
    for (int i = 0; i < s->replicas_count; i++)
        if (!contains(s->isr, s->isr_count, s->replicas[i]) || !is_up(w, s->replicas[i]))
            return false;
    return true;
}

bool watch_all_in_sync(struct watch *w)
{
    struct watch_state s;
    for (int32_t p = 0; p < w->options.partitions; p++) {
        watch_state(w, p, &s);
        if (!is_in_sync(w, &s))
            return false;
    }
    return true;
}

bool watch_is_in_sync_anywhere(struct watch *w, int broker)
{
    struct watch_state s;
    for (int32_t p = 0; p < w->options.partitions; p++) {
        watch_state(w, p, &s);
        if (!s.is_known || contains(s.isr, s.isr_count, broker))
            return true;
    }
    return false;
}

static bool has_other_up(struct watch *w, const struct watch_state *s, int broker)
{
    for (int i = 0; i < s->isr_count; i++)
        if (s->isr[i] != broker && is_up(w, s->isr[i]))
            return true;
    return false;
}

bool watch_has_others_in_sync(struct watch *w, int broker)
{
    struct watch_state s;
    for (int32_t p = 0; p < w->options.partitions; p++) {
        watch_state(w, p, &s);
        if (!s.is_known || (contains(s.isr, s.isr_count, broker) && !has_other_up(w, &s, broker)))
            return false;
    }
    return true;
}

int64_t watch_state_breaches(struct watch *w)
{
    pthread_mutex_lock(&w->lock);
    int64_t n = w->state_breaches;
    pthread_mutex_unlock(&w->lock);
    return n;
}

int64_t watch_offset_breaches(struct watch *w)
{
    pthread_mutex_lock(&w->lock);
    int64_t n = w->offset_breaches;
    pthread_mutex_unlock(&w->lock);
    return n;
}

struct gaps *watch_leaderless(struct watch *w)
{
    return w->leaderless;
}
