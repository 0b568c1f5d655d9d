/* Random brokers for the controller's pure cores. */
#ifndef BROOK_TESTS_CONTROLLER_MODEL_H
#define BROOK_TESTS_CONTROLLER_MODEL_H

#include "broker/cluster/controller.h"
#include "tests/support/suite.h"

#include <string.h>

#define BROKERS_MAX 8

struct cluster_model {
    bool is_alive[BROKERS_MAX];
    struct controller_broker brokers[BROKERS_MAX];
    struct controller_broker list[BROKERS_MAX];
    struct controller_brokers alive;
};

static inline void refresh(struct cluster_model *m)
{
    m->alive = (struct controller_brokers){m->list, 0};
    for (int i = 0; i < BROKERS_MAX; i++)
        if (m->is_alive[i])
            m->list[m->alive.count++] = m->brokers[i];
}

static inline void begin(struct cluster_model *m)
{
    memset(m, 0, sizeof *m);
    for (int i = 0; i < BROKERS_MAX; i++)
        m->brokers[i] = (struct controller_broker){
            .broker_id = i, .broker_epoch = 1, .clean_from = -1, .disk_from = -1};
    refresh(m);
}

/* A broker dies, comes (cleanly or not), bounces, or begins to drain. */
static inline void stir(struct cluster_model *m, uint64_t *seed)
{
    int i = (int)suite_random_below(seed, BROKERS_MAX);
    struct controller_broker *b = &m->brokers[i];
    switch (suite_random_below(seed, 4)) {
    case 0:
        m->is_alive[i] = false;
        break;
    case 1:
    case 2: {
        bool clean = suite_random_below(seed, 2);
        b->clean_from = clean ? b->broker_epoch : -1;
        b->broker_epoch++;
        b->draining = false;
        m->is_alive[i] = true;
        break;
    }
    case 3:
        b->draining = m->is_alive[i];
        break;
    }
    refresh(m);
}

/* What is decided when no replica has told the end of its log. */
static inline enum controller_verdict elect_untold(const struct znode_replicas *replicas, const struct znode_state *state,
                                                   const struct controller_brokers *alive, bool unclean,
                                                   struct znode_state *ret)
{
    static const struct controller_ends none;
    struct controller_case c = {
        .replicas = replicas, .state = state, .alive = alive, .unclean = unclean, .ends = &none};
    struct controller_decision d;
    controller_elect(&c, &d);
    if (d.verdict != CONTROLLER_KEEP)
        *ret = d.state;
    return d.verdict;
}

static inline bool contains(const int32_t *list, int32_t count, int32_t broker)
{
    for (int32_t i = 0; i < count; i++)
        if (list[i] == broker)
            return true;
    return false;
}

static inline int64_t epoch_in(const struct znode_state *s, int32_t broker)
{
    for (int32_t i = 0; i < s->isr_count; i++)
        if (s->isr[i] == broker)
            return s->isr_epochs[i];
    return -2;
}

/* What holds of every state that the controller writes. */
static inline void check_state(const struct znode_replicas *replicas, const struct znode_state *s,
                               const struct cluster_model *m)
{
    ck_assert_int_ge(s->isr_count, 1);
    for (int32_t i = 0; i < s->isr_count; i++) {
        ck_assert(contains(replicas->brokers, replicas->count, s->isr[i]));
        ck_assert(!contains(s->isr, i, s->isr[i]));
    }
    if (s->leader < 0)
        return;
    ck_assert(m->is_alive[s->leader]);
    ck_assert_int_eq(epoch_in(s, s->leader), m->brokers[s->leader].broker_epoch);
}
#endif
