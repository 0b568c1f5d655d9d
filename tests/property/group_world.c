#include "tests/property/group_world_private.h"

#include "coordination/topic_pattern.h"
#include "proto/base/err.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const world_topic_names[WORLD_TOPICS] = {"alpha", "beta", "gamma"};

uint64_t world_random(struct world *w, uint64_t bound)
{
    return suite_random_below(&w->random, bound);
}

struct world *world_new(uint64_t seed)
{
    struct world *w = calloc(1, sizeof *w);
    w->random = seed;
    w->now = 1000;
    w->zxid = 100;
    w->patterns = topic_patterns_new();
    w->assignment_version = -1;
    w->ids_pzxid = 1;
    return w;
}

int64_t world_now(const struct world *w)
{
    return w->now;
}

void world_set_faults(struct world *w, bool on)
{
    w->faults = on;
}

int world_writes(const struct world *w)
{
    return w->writes;
}

int world_member_reads(const struct world *w)
{
    return w->reads;
}

int world_drains(const struct world *w, int member)
{
    return w->members[member].drains;
}

int world_reports(const struct world *w, enum group_report report)
{
    return w->reports[report];
}

int64_t world_last_unowned(const struct world *w)
{
    return w->last_unowned;
}

/* ---- the invariants ----------------------------------------------------------------------------------- */

static void check_deliverers(struct world *w)
{
    for (int t = 0; t < WORLD_TOPICS; t++)
        for (int32_t p = 0; p < WORLD_PARTITIONS; p++) {
            int deliverers = 0;
            for (int i = 0; i < WORLD_MEMBERS; i++)
                deliverers += w->members[i].used && world_delivers(w, i, t, p);
            ck_assert_msg(deliverers <= 1, "%d members deliver %s/%d", deliverers, world_topic_names[t], p);
            if (deliverers == 0 && w->topics[t].exists && p < w->topics[t].partitions)
                w->last_unowned = w->now;
        }
}

void world_run(struct world *w, int ms)
{
    int64_t end = w->now + ms;
    while (w->now < end) {
        w->now += 1 + (int64_t)world_random(w, 3);
        for (struct session *s = w->sessions; s; s = s->next)
            if (s->alive && w->now >= s->contact_ms + WORLD_TIMEOUT_MS)
                session_end(w, s);
        for (int i = 0; i < WORLD_MEMBERS; i++)
            if (w->members[i].used)
                process_turn(w, i);
        commits_go_on(w);
        check_deliverers(w);
    }
}

/* ---- what tests do ------------------------------------------------------------------------------------ */

static void subscribe(struct world *w, struct process *m, unsigned mask)
{
    struct znode_member data;
    describe_mask(mask, &data);
    m->mask = mask;
    step(w, m, (struct group_event){.kind = GROUP_EVENT_SUBSCRIBE,
                                    .names = (const char *const *)data.topics,
                                    .names_count = data.topics_count,
                                    .is_pattern = data.is_pattern});
    znode_member_done(&data);
}

void world_start(struct world *w, int member, unsigned mask, bool is_static)
{
    struct process *m = &w->members[member];
    ck_assert(!m->used);
    struct session *old = m->session;
    *m = (struct process){.used = true, .is_static = is_static, .uid = ++w->uids, .generation = 1};
    m->last_poll = w->now;
    snprintf(m->static_id, sizeof m->static_id, "static-%d", member);
    m->resumes = is_static && old && old->alive;
    m->session = m->resumes ? old : session_new(w);
    struct group_member_settings settings = {.static_id = is_static ? m->static_id : NULL,
                                             .host = "host",
                                             .strategy = ASSIGN_STICKY,
                                             .drain_ms = WORLD_DRAIN_MS,
                                             .settle_ms = WORLD_SETTLE_MS,
                                             .max_poll_ms = WORLD_MAX_POLL_MS,
                                             .seed = suite_random(&w->random)};
    ck_assert_int_eq(group_member_new(&settings, w->patterns, &m->machine), 0);
    subscribe(w, m, mask);
}

bool world_is_running(const struct world *w, int member)
{
    return w->members[member].used;
}

void world_kill(struct world *w, int member)
{
    process_end(w, member);
}

void world_leave(struct world *w, int member)
{
    struct process *m = &w->members[member];
    if (m->leaving)
        return;
    m->leaving = true;
    step(w, m, (struct group_event){.kind = GROUP_EVENT_LEAVE});
}

void world_resubscribe(struct world *w, int member, unsigned mask)
{
    if (!w->members[member].leaving)
        subscribe(w, &w->members[member], mask);
}

void world_freeze(struct world *w, int member, int ms)
{
    w->members[member].frozen_until = w->now + ms;
}

void world_cut(struct world *w, int member, int ms)
{
    w->members[member].cut_until = w->now + ms;
}

void world_stop_polling(struct world *w, int member, int ms)
{
    w->members[member].no_poll_until = w->now + ms;
}

void world_take_id(struct world *w, int member)
{
    id_delete(w, group_member_get_id(w->members[member].machine));
}

void world_slow(struct world *w, int member, int drain_ms)
{
    w->members[member].drain_ms = drain_ms;
}

bool world_delivers(const struct world *w, int member, int topic, int32_t partition)
{
    const struct process *m = &w->members[member];
    return m->used && m->held[topic][partition].delivers && w->now < m->lease_until;
}

int world_owner(const struct world *w, int topic, int32_t partition)
{
    for (int i = 0; i < WORLD_MEMBERS; i++)
        if (w->members[i].used && w->topics[topic].owner[partition] == w->members[i].session->id)
            return i;
    return -1;
}

/* For a failure: who is not where it should be. */
static void explain(const struct world *w)
{
    for (int i = 0; i < WORLD_MEMBERS; i++) {
        const struct process *m = &w->members[i];
        if (m->used)
            fprintf(stderr, "# member %d %s: %s, %s, subscribes to %x\n", i, group_member_get_id(m->machine),
                    group_member_is_registered(m->machine) ? "registered" : "not registered",
                    group_member_is_quiet(m->machine) ? "quiet" : "busy", m->mask);
    }
    for (int t = 0; t < WORLD_TOPICS; t++)
        for (int32_t p = 0; p < WORLD_PARTITIONS; p++)
            fprintf(stderr, "# %s/%d%s: owner %d%s\n", world_topic_names[t], p,
                    w->topics[t].exists && p < w->topics[t].partitions ? "" : " (does not exist)",
                    world_owner(w, t, p), w->topics[t].owner[p] ? "" : " (no node)");
    fprintf(stderr, "# ids at %lld, assignment: %s\n", (long long)w->ids_pzxid, w->assignment);
}

/* Owned in ZooKeeper = delivered, and everything that somebody subscribes to is. */
static bool adds_up(const struct world *w)
{
    for (int i = 0; i < WORLD_MEMBERS; i++)
        if (w->members[i].used && !group_member_is_quiet(w->members[i].machine))
            return false;
    for (int t = 0; t < WORLD_TOPICS; t++)
        for (int32_t p = 0; p < WORLD_PARTITIONS; p++) {
            int owner = world_owner(w, t, p);
            bool wanted = false;
            for (int i = 0; i < WORLD_MEMBERS; i++) {
                unsigned mask = w->members[i].mask;
                wanted = wanted || (w->members[i].used && (mask == 0 || (mask & (1u << t))));
                if (w->members[i].used && world_delivers(w, i, t, p) != (i == owner))
                    return false;
            }
            wanted = wanted && w->topics[t].exists && p < w->topics[t].partitions;
            if (wanted != (owner >= 0))
                return false;
        }
    return true;
}

bool world_settles(struct world *w, int ms)
{
    w->faults = false;
    for (int i = 0; i < WORLD_MEMBERS; i++)
        w->members[i].frozen_until = w->members[i].cut_until = w->members[i].no_poll_until = 0;
    /* It has to stay that way: sessions of killed processes may still be ending. */
    int good = 0;
    for (int waited = 0; waited < ms + 500 && good < 500; waited += 50) {
        world_run(w, 50);
        good = adds_up(w) ? good + 50 : 0;
    }
    if (good >= 500)
        return true;
    explain(w);
    return false;
}

void world_free(struct world *w)
{
    for (int i = 0; i < WORLD_MEMBERS; i++)
        if (w->members[i].used)
            process_end(w, i);
    while (w->ids)
        id_delete(w, w->ids->id);
    for (struct session *s = w->sessions, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    for (struct commit *c = w->commits, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(w->assignment);
    topic_patterns_free(w->patterns);
    free(w);
}
