#include "tests/cluster/nemesis/watch.h"

#include "coordination/paths.h"
#include "coordination/znodes.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "tests/cluster/nemesis/rules.h"
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

/* A broker's registration; epoch -1: none. */
struct registration {
    int64_t epoch, clean_from, disk_from;
    int64_t before; /* its epoch when its process was started last */
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
    struct registration brokers[WATCH_REPLICAS_MAX + 1];
    struct state_rule rules[WATCH_PARTITIONS_MAX];
    int64_t committed[WATCH_GROUPS_MAX][WATCH_PARTITIONS_MAX];
    int64_t highest[WATCH_GROUPS_MAX][WATCH_PARTITIONS_MAX]; /* that was ever committed */
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

static void take_state(struct watch *w, int32_t partition, const struct znode_state *z)
{
    struct watch_state *s = &w->states[partition];
    /* That the ISR are replicas can not be asked: a move changes them in steps, in another node. */
    const char *wrong = state_rule_look(&w->rules[partition], z->leader, z->leader_epoch, z->isr_count);
    if (wrong)
        breach(w, &w->state_breaches, wrong, partition, s->leader_epoch, z->leader_epoch);
    s->is_known = true;
    s->leader = z->leader;
    s->leader_epoch = z->leader_epoch;
    s->isr_count = z->isr_count < WATCH_REPLICAS_MAX ? z->isr_count : WATCH_REPLICAS_MAX;
    memcpy(s->isr, z->isr, (size_t)s->isr_count * sizeof *s->isr);
    memcpy(s->isr_epochs, z->isr_epochs, (size_t)s->isr_count * sizeof *s->isr_epochs);
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
    const struct topics *t = w->options.topics;
    const struct got *got = get(w, path_partition_state(&path, topics_name(t, partition), topics_number(t, partition)));
    if (got->err < 0 || znode_decode_state(got->data, got->data_bytes, &z, &error) < 0)
        return false;
    pthread_mutex_lock(&w->lock);
    take_state(w, partition, &z);
    pthread_mutex_unlock(&w->lock);
    return true;
}

static bool read_broker(struct watch *w, int id)
{
    struct path path;
    struct znode_broker b;
    struct brook_error error;
    const struct got *got = get(w, path_broker_id(&path, id));
    bool is_there = got->err == 0 && znode_decode_broker(got->data, got->data_bytes, &b, &error) == 0;
    if (!is_there && got->err != -BROOK_E_NO_NODE)
        return false;
    pthread_mutex_lock(&w->lock);
    struct registration *r = &w->brokers[id];
    r->epoch = is_there ? b.broker_epoch : -1;
    r->clean_from = is_there ? b.clean_from : -1;
    r->disk_from = is_there ? b.disk_from : -1;
    pthread_mutex_unlock(&w->lock);
    if (is_there)
        znode_broker_done(&b);
    return true;
}

/* Also while ZooKeeper does not answer: who was named last leads as long as it runs. */
static void tell_leaders(struct watch *w)
{
    int64_t now = clock_boot_ms();
    for (int32_t p = 0; p < w->options.topics->partitions; p++) {
        const struct watch_state *s = &w->states[p];
        bool leads = s->is_known && s->leader >= 0 && w->options.is_up(w->options.is_up_arg, s->leader);
        gaps_tell(w->leaderless, p, !leads, now);
    }
}

/* ---- assignments and offsets ------------------------------------------------------------------------------------- */

static void read_replicas(struct watch *w, int topic)
{
    const struct topics *topics = w->options.topics;
    struct path path;
    struct znode_topic t;
    struct brook_error error;
    const struct got *got = get(w, path_topic(&path, topics->names[topic]));
    if (got->err < 0 || znode_decode_topic(got->data, got->data_bytes, &t, &error) < 0)
        return;
    pthread_mutex_lock(&w->lock);
    for (int32_t i = 0; i < topics_partitions(topics, topic) && i < t.partitions_count; i++) {
        struct watch_state *s = &w->states[topics_find(topics, topics->names[topic], i)];
        const struct znode_replicas *r = &t.replicas[i];
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
    const struct topics *t = w->options.topics;
    const struct got *got = get(w, path_offset(&path, w->options.groups[group], topics_name(t, partition),
                                               topics_number(t, partition)));
    if (got->err < 0 || znode_decode_offset(got->data, got->data_bytes, &offset, &error) < 0 || offset < 0)
        return;
    pthread_mutex_lock(&w->lock);
    int64_t *committed = &w->committed[group][partition];
    if (!rises(&w->highest[group][partition], offset))
        breach(w, &w->offset_breaches, "a group's offset went back", partition, *committed, offset);
    *committed = offset;
    pthread_mutex_unlock(&w->lock);
}

static void read_slow_ones(struct watch *w)
{
    for (int i = 0; i < w->options.topics->count; i++)
        read_replicas(w, i);
    for (int g = 0; g < w->options.groups_count; g++)
        for (int32_t p = 0; p < w->options.topics->partitions; p++)
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
        for (int32_t p = 0; p < w->options.topics->partitions; p++) {
            all = read_state(w, p) && all;
            tell_leaders(w);
        }
        for (int id = 1; id <= w->options.brokers; id++)
            all = read_broker(w, id) && all;
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
    if (!w || options->topics->partitions > WATCH_PARTITIONS_MAX)
        abort();
    w->options = *options;
    pthread_mutex_init(&w->lock, NULL);
    memset(w->committed, 0xff, sizeof w->committed);
    for (int id = 0; id <= WATCH_REPLICAS_MAX; id++)
        w->brokers[id] = (struct registration){-1, -1, -1, -1};
    w->leaderless = gaps_new(options->topics->partitions);
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
        state_rule_done(&w->rules[p]);
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

void watch_started(struct watch *w, int broker)
{
    pthread_mutex_lock(&w->lock);
    struct registration *r = &w->brokers[broker];
    r->before = r->epoch > r->before ? r->epoch : r->before;
    pthread_mutex_unlock(&w->lock);
}

/* Whether the broker that lists itself so is the one that is registered now, with what it had. */
static bool is_present(struct watch *w, int32_t broker, int64_t listed, bool is_durable)
{
    pthread_mutex_lock(&w->lock);
    const struct registration *r = &w->brokers[broker];
    bool has_it = r->epoch == listed || r->clean_from == listed || (is_durable && r->disk_from == listed);
    bool is = r->epoch > r->before && has_it;
    pthread_mutex_unlock(&w->lock);
    return is;
}

static bool are_present(struct watch *w, const struct watch_state *s, bool is_durable)
{
    for (int i = 0; i < s->isr_count; i++)
        if (!is_present(w, s->isr[i], s->isr_epochs[i], is_durable))
            return false;
    return true;
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
    for (int32_t p = 0; p < w->options.topics->partitions; p++) {
        watch_state(w, p, &s);
        if (!is_in_sync(w, &s) || !are_present(w, &s, topics_is_durable(w->options.topics, p)))
            return false;
    }
    return true;
}

bool watch_is_in_sync_anywhere(struct watch *w, int broker)
{
    struct watch_state s;
    for (int32_t p = 0; p < w->options.topics->partitions; p++) {
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
    for (int32_t p = 0; p < w->options.topics->partitions; p++) {
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
