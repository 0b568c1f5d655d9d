#include "tests/cluster/nemesis/schedule.h"

#include "tests/support/suite.h"

#include <string.h>

static const struct {
    const char *name;
    int weight;
    int sessions_min, sessions_max; /* how long, in hundredths of a session timeout */
} kinds[FAULT_KINDS] = {
    [FAULT_KILL] = {"kill", 14, 0, 250},
    [FAULT_BLACKOUT] = {"blackout", 4, 0, 200},
    [FAULT_STOP] = {"stop", 8, 0, 200},
    [FAULT_PAUSE] = {"pause", 8, 10, 80},
    [FAULT_PAUSE_LONG] = {"pause-long", 9, 120, 300},
    [FAULT_POWER_CUT] = {"power-cut", 7, 0, 200},
    [FAULT_POWER_CUT_ALL] = {"power-cut-all", 6, 0, 200},
    [FAULT_EMPTY_DISK] = {"empty-disk", 7, 0, 100},
    [FAULT_CUT_ZOOKEEPER] = {"cut-zookeeper", 9, 20, 300},
    [FAULT_CUT_ONE_WAY] = {"cut-one-way", 9, 20, 300},
    [FAULT_CUT_BOTH] = {"cut-both", 7, 20, 300},
    [FAULT_ISOLATE] = {"isolate", 8, 50, 300},
    [FAULT_ZOOKEEPER_KILL] = {"zookeeper-kill", 4, 10, 300},
    [FAULT_ZOOKEEPER_PAUSE] = {"zookeeper-pause", 4, 20, 300},
    [FAULT_ELECT] = {"elect", 5, 0, 0},
    [FAULT_MOVE] = {"move", 5, 0, 0},
    [FAULT_MOVE_SLOWLY] = {"move-slowly", 5, 50, 300},
    [FAULT_DELETE] = {"delete", 7, 0, 0},
    [FAULT_MEMBER_KILL] = {"member-kill", 4, 0, 200},
    [FAULT_MEMBER_PAUSE] = {"member-pause", 4, 50, 250},
    [FAULT_CALM] = {"calm", 5, 0, 0},
};

const char *fault_name(enum fault_kind kind)
{
    return kinds[kind].name;
}

enum fault_kind fault_by_name(const char *name)
{
    int kind = 0;
    while (kind < FAULT_KINDS && strcmp(kinds[kind].name, name) != 0)
        kind++;
    return (enum fault_kind)kind;
}

bool fault_wants_calm(const struct schedule *s, enum fault_kind kind)
{
    return kind == FAULT_EMPTY_DISK || kind == FAULT_CALM || (kind == FAULT_POWER_CUT && !s->is_all_on_disk);
}

static int below(struct schedule *s, int bound)
{
    return (int)suite_random_below(&s->random, (uint64_t)(bound > 0 ? bound : 1));
}

struct fault schedule_draw(struct schedule *s, enum fault_kind kind)
{
    struct fault f = {.kind = kind};
    int range = kinds[kind].sessions_max - kinds[kind].sessions_min;
    f.broker = 1 + below(s, s->brokers);
    f.other = 1 + (f.broker + below(s, s->brokers - 1)) % s->brokers;
    f.partition = below(s, s->partitions);
    f.group = below(s, s->groups);
    f.member = below(s, s->members);
    f.direction = below(s, 3);
    f.quick = below(s, 2);
    f.reset = below(s, 2);
    f.lasts_ms = (kinds[kind].sessions_min + below(s, range + 1)) * s->session_ms / 100;
    /* Every other one while the one before still lasts. */
    f.pause_ms = below(s, 2) ? below(s, s->session_ms) : f.lasts_ms + below(s, 2 * s->session_ms);
    return f;
}

static enum fault_kind draw_kind(struct schedule *s)
{
    int sum = 0, kind = 0;
    for (int i = 0; i < FAULT_KINDS; i++)
        sum += kinds[i].weight;
    for (int left = below(s, sum); left >= kinds[kind].weight; kind++)
        left -= kinds[kind].weight;
    return (enum fault_kind)kind;
}

static bool is_anybody_busy(const struct schedule *s, const struct schedule_view *v)
{
    for (int id = 1; id <= s->brokers; id++)
        if (v->is_broker_busy[id])
            return true;
    return false;
}

static bool is_possible(const struct schedule *s, const struct schedule_view *v, const struct fault *f)
{
    switch (f->kind) {
    case FAULT_EMPTY_DISK: return s->may_lose_disk;
    case FAULT_POWER_CUT:
        return s->may_cut_power && (s->is_all_on_disk ? !v->is_broker_busy[f->broker] : s->may_lose_disk);
    case FAULT_POWER_CUT_ALL: return s->may_cut_power && s->is_all_on_disk && !is_anybody_busy(s, v);
    case FAULT_MOVE: return s->may_move && !v->is_zookeeper_busy;
    case FAULT_MOVE_SLOWLY: return s->may_move && !v->is_zookeeper_busy && !v->is_move_slow;
    case FAULT_DELETE:
    case FAULT_CALM: return true;
    case FAULT_BLACKOUT: return !is_anybody_busy(s, v);
    case FAULT_ELECT:
    case FAULT_ZOOKEEPER_KILL:
    case FAULT_ZOOKEEPER_PAUSE: return !v->is_zookeeper_busy;
    case FAULT_MEMBER_KILL:
    case FAULT_MEMBER_PAUSE: return s->groups > 0 && !v->is_member_busy;
    case FAULT_CUT_ONE_WAY:
    case FAULT_CUT_BOTH:
        return s->brokers > 1 && !v->is_broker_busy[f->broker] && !v->is_broker_busy[f->other];
    default: return !v->is_broker_busy[f->broker];
    }
}

struct fault schedule_next(struct schedule *s, const struct schedule_view *view)
{
    for (;;) {
        struct fault f = schedule_draw(s, draw_kind(s));
        if (is_possible(s, view, &f))
            return f;
    }
}
