/* The schedule: what kind of cluster a seed makes, and one random step after the other. */
#include "tests/property/cluster_world_private.h"

#include "tests/support/suite.h"

#include <stdarg.h>
#include <string.h>

#define STEPS 500
#define HEAL_ROUNDS 120
#define KIND_SALT 0x5eed

static const char *const rule_names[] = {
#define X(name, seed, text) #name,
    CLUSTER_RULES(X)
#undef X
};
static const char *const rule_texts[] = {
#define X(name, seed, text) text,
    CLUSTER_RULES(X)
#undef X
};

static const uint64_t rule_seeds[] = {
#define X(name, seed, text) seed,
    CLUSTER_RULES(X)
#undef X
};

const char *cluster_rule_name(enum cluster_rule rule)
{
    return rule_names[rule];
}

const char *cluster_rule_text(enum cluster_rule rule)
{
    return rule_texts[rule];
}

uint64_t cluster_rule_seed(enum cluster_rule rule)
{
    return rule_seeds[rule];
}

void world_say(struct world *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "# %4d  ", w->step);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

void world_fail(struct world *w, const char *what)
{
    if (!w->violation)
        w->violation = what;
    TRACE(w, "VIOLATION: %s", what);
}

uint32_t world_below(struct world *w, uint32_t bound)
{
    return (uint32_t)(((suite_random(&w->random) >> 32) * bound) >> 32);
}

bool world_chance(struct world *w, uint32_t of_256)
{
    return world_below(w, 256) < of_256;
}

int32_t broker_id(const struct world *w, const struct broker *b)
{
    return (int32_t)(b - w->b);
}

bool list_holds(const struct list *list, int32_t broker)
{
    for (int32_t i = 0; i < list->count; i++)
        if (list->brokers[i] == broker)
            return true;
    return false;
}

/* ---- the kind of schedule --------------------------------------------------------------------------- */

static void make_brokers(struct world *w)
{
    for (int32_t i = 0; i < BROKERS_MAX; i++) {
        struct broker *b = &w->b[i];
        b->clean_on_disk = b->epoch_on_disk = b->reached_on_disk = -1;
        w->ids[i] = (struct registration){.clean_from = -1, .disk_from = -1};
        w->mark_epoch[i] = -1;
        if (i >= w->brokers)
            continue;
        fault_start(w, b);
        w->is_healing = true; /* all come up well */
        broker_register(w, b);
        w->is_healing = false;
    }
}

/* What administrators do in this schedule: of a sequence of its own, so that most schedules stay as they were. */
static void make_administrators(struct world *w, uint64_t seed)
{
    uint64_t kind = seed ^ KIND_SALT;
    if (seed & CLUSTER_QUIET_SEED)
        return;
    w->is_unclean = suite_random_below(&kind, 16) == 0;
    w->is_moved = suite_random_below(&kind, 6) == 0;
    w->is_remade = suite_random_below(&kind, 10) == 0;
}

static void place(struct world *w, int32_t first, int32_t count)
{
    struct list *replicas = &w->placement.replicas;
    for (int32_t i = 0; i < count; i++)
        replicas->brokers[i] = (int8_t)((first + i) % w->brokers);
    replicas->count = (int8_t)count;
    w->placement.target = *replicas;
}

static void make(struct world *w, uint64_t seed)
{
    make_administrators(w, seed);
    w->random = seed & ~CLUSTER_QUIET_SEED;
    w->brokers = 2 + (int32_t)world_below(w, BROKERS_MAX - 1);
    int32_t count = w->brokers < 3 ? w->brokers : 2 + (int32_t)world_below(w, (uint32_t)w->brokers - 1);
    int32_t first = (int32_t)world_below(w, (uint32_t)w->brokers);
    place(w, first, count);
    w->min_in_sync = 1 + (int32_t)world_below(w, count > 1 ? 2 : 1);
    w->is_fsync = w->was_fsync = world_chance(w, 96);
    w->may_leave_out = world_chance(w, 32);
    w->loss = world_chance(w, 128) ? 16 : 64;
    w->faults = 1u << world_below(w, 4);
    w->ticks = 2u << world_below(w, 3);
    w->is_gentle = world_chance(w, 80);
    w->moves = world_chance(w, 128) ? 3 : 48;
    w->unnoted = world_chance(w, 200) ? 8 : 80;
    w->is_quiet = world_chance(w, 64);
    w->is_restless = world_chance(w, 64);
    w->version = -1;
    w->controller = -1;
    w->state.leader = -1;
    w->next_value = 1;
    memset(w->leader_of, -1, sizeof w->leader_of);
    make_brokers(w);
}

static struct world world;

struct world *world_make_plain(int32_t brokers, enum cluster_rule broken, bool trace, struct cluster_counts *counts)
{
    struct world *w = &world;
    memset(w, 0, sizeof *w);
    w->broken = broken;
    w->trace = trace;
    w->counts = counts;
    w->brokers = brokers;
    place(w, 0, brokers);
    w->min_in_sync = 1;
    w->version = w->controller = w->state.leader = -1;
    w->next_value = 1;
    memset(w->leader_of, -1, sizeof w->leader_of);
    make_brokers(w);
    w->is_healing = true; /* nothing fails by chance */
    return w;
}

/* ---- faults ----------------------------------------------------------------------------------------- */

static void part(struct world *w, int32_t a)
{
    int32_t b = (int32_t)world_below(w, (uint32_t)w->brokers);
    TRACE(w, "broker %d %s %d", a, w->parted[a] & bit(b) ? "reaches again" : "does not reach", b);
    if (a == b)
        memset(w->parted, 0, sizeof w->parted);
    else
        w->parted[a] ^= bit(b);
}

static void pause_or_go_on(struct world *w, struct broker *b)
{
    w->counts->pauses += b->is_up && !b->is_paused;
    b->is_paused = b->is_up && !b->is_paused;
    TRACE(w, "broker %d %s", broker_id(w, b), b->is_paused ? "is paused" : "is not paused");
}

/* Killed, and back before anybody notices, perhaps without its page cache. */
static void bounce(struct world *w, struct broker *b)
{
    if (world_chance(w, 128))
        fault_cut_power(w, b);
    else
        fault_end_process(w, b, false);
    fault_start(w, b);
    broker_register(w, b);
}

static void change_durability(struct world *w)
{
    w->is_fsync = !w->is_fsync;
    w->was_fsync = false;
    for (int32_t i = 0; i < w->committed_end; i++)
        if (w->committed[i].is_durable) {
            w->committed[i].is_durable = false;
            for (int32_t k = 0; k < w->brokers; k++)
                w->committed[i].generation[k] =
                    w->committed[i].generation[k] == w->b[k].disk_generation ? w->b[k].generation : -1;
        }
    TRACE(w, "durability is %s now", w->is_fsync ? "fsync" : "replicated");
}

/* The brokers of the ISR, all at once. */
static void power_cut_of_all(struct world *w)
{
    for (int32_t i = 0; i < w->brokers; i++)
        if (world_chance(w, 224))
            fault_cut_power(w, &w->b[i]);
}

static void fault(struct world *w, struct broker *b)
{
    switch (w->is_gentle ? 9 + world_below(w, 9) : world_below(w, 20)) {
    case 0:
    case 1:
        fault_end_process(w, b, false);
        break;
    case 2:
    case 3:
        fault_cut_power(w, b);
        break;
    case 4:
        if (world_chance(w, 96))
            fault_lose_disk(w, b);
        break;
    case 5:
    case 6:
        fault_end_process(w, b, true);
        break;
    case 7:
    case 8:
        bounce(w, b);
        break;
    case 9:
    case 10:
    case 11:
        pause_or_go_on(w, b);
        break;
    case 12:
    case 13:
        b->is_cut = !b->is_cut;
        break;
    case 14:
    case 15:
        part(w, broker_id(w, b));
        break;
    case 16:
    case 17:
        if (b->is_paused || b->is_cut || world_chance(w, 64))
            zookeeper_expire(w, broker_id(w, b));
        break;
    case 18:
        if (w->ids[broker_id(w, b)].life == b->life && b->is_up)
            w->ids[broker_id(w, b)].is_draining = true;
        break;
    default:
        if (world_chance(w, 24))
            power_cut_of_all(w);
        else if (world_chance(w, 24))
            change_durability(w);
    }
}

/* ---- steps ------------------------------------------------------------------------------------------ */

static bool is_in_touch(const struct world *w, int32_t broker)
{
    const struct broker *b = &w->b[broker];
    return b->is_up && !b->is_paused && !b->is_cut && w->ids[broker].life == b->life;
}

static void zookeeper_step(struct world *w)
{
    struct op *op = &w->ops[world_below(w, OPS_MAX)];
    for (int i = 0; i < OPS_MAX && op->stage == OP_NONE; i++)
        op = &w->ops[(op - w->ops + 1) % OPS_MAX];
    uint32_t die = world_below(w, 16);
    if (op->stage == OP_GHOST ? die < 2 : die < 9)
        zookeeper_apply(w, op);
    else if (die < 14)
        zookeeper_answer(w, op);
    else if (world_chance(w, w->loss * 2))
        zookeeper_forget(w, op);
    for (int32_t i = 0; i < w->brokers; i++) /* whoever is gone expires in the end */
        if (w->ids[i].is_live && !is_in_touch(w, i) && world_chance(w, 16))
            zookeeper_expire(w, i);
}

static void deliver_step(struct world *w)
{
    if (world_chance(w, 40))
        world_deliver_late(w);
    uint32_t at = world_below(w, MESSAGES_MAX);
    for (uint32_t i = 0; i < MESSAGES_MAX; i++, at++)
        if (w->messages[at % MESSAGES_MAX].kind != MESSAGE_NONE) {
            world_deliver(w, &w->messages[at % MESSAGES_MAX]);
            return;
        }
}

static void controller_step(struct world *w, struct broker *b)
{
    if (!b->controller.is_active) {
        controller_seize(w, b);
        return;
    }
    switch (world_below(w, 6)) {
    case 0:
        controller_seize(w, b);
        break;
    case 1:
    case 2:
        controller_think(w, b);
        break;
    case 3:
    case 4:
        controller_send(w, b);
        break;
    default:
        controller_ask_report(w, b);
    }
}

static void other_step(struct world *w, struct broker *b)
{
    switch (world_below(w, 8)) {
    case 0:
    case 1:
        if (b->is_fsync || world_chance(w, 32))
            broker_sync(w, b);
        broker_keep_reach(w, b);
        break;
    case 2:
    case 3:
        broker_change_isr(w, b);
        break;
    case 4:
    case 5:
        if (b->broker_epoch < 0 || world_chance(w, 128))
            broker_register(w, b);
        if (world_chance(w, 192))
            broker_note(w, b);
        break;
    case 6:
        broker_ask_latest(w, b);
        b->mark_on_disk = b->is_up ? (int32_t)b->high_watermark : b->mark_on_disk;
        break;
    default:
        broker_configure(w, b);
    }
}

static void broker_step(struct world *w, struct broker *b)
{
    uint32_t die = world_below(w, 32);
    bool is_told = b->is_up && b->broker_epoch >= 0 && b->seen_version != w->version;
    if (is_told && world_chance(w, 112)) /* a state was announced */
        b->view.is_valid ? broker_take_view(w, b) : broker_look(w, b);
    else if (b->controller.is_active && world_chance(w, 112))
        controller_step(w, b);
    else if (die < 3 && (!w->is_quiet || world_chance(w, 32)))
        broker_produce(w, b);
    else if (die < 14)
        broker_follow(w, b);
    else if (die < 17)
        broker_look(w, b);
    else if (die < 20)
        broker_take_view(w, b);
    else if (die < 24)
        controller_step(w, b);
    else
        other_step(w, b);
}

static void step(struct world *w)
{
    struct broker *b = &w->b[world_below(w, (uint32_t)w->brokers)];
    uint32_t die = world_below(w, 256);
    w->now += world_below(w, w->ticks);
    if (w->is_moved && world_chance(w, 4))
        admin_move(w);
    if (w->is_remade && world_chance(w, 2))
        admin_remake_topic(w);
    if (die < w->faults)
        fault(w, b);
    else if (die < 72)
        deliver_step(w);
    else if (die < 112)
        zookeeper_step(w);
    else if (!b->is_up && world_chance(w, 128))
        fault_start(w, b);
    else if (b->is_paused || b->is_cut) {
        if (world_chance(w, 12))
            b->is_paused = b->is_cut = false;
    }
    if (die >= 112 && !b->is_paused)
        broker_step(w, b);
}

/* ---- the end ---------------------------------------------------------------------------------------- */

static void heal_broker(struct world *w, struct broker *b)
{
    if (w->ids[broker_id(w, b)].is_draining)
        fault_end_process(w, b, true); /* as it was about to */
    fault_start(w, b);
    b->is_paused = b->is_cut = false;
    broker_configure(w, b);
    broker_register(w, b);
    broker_note(w, b);
    broker_look(w, b);
    broker_take_view(w, b);
    broker_follow(w, b);
    broker_sync(w, b);
    broker_keep_reach(w, b);
    broker_change_isr(w, b);
    controller_seize(w, b);
    controller_ask_report(w, b);
    controller_send(w, b);
    controller_think(w, b);
}

static void heal_round(struct world *w)
{
    memset(w->parted, 0, sizeof w->parted);
    w->now += 3;
    for (int32_t i = 0; i < w->brokers; i++)
        heal_broker(w, &w->b[i]);
    for (int i = 0; i < MESSAGES_MAX; i++)
        world_deliver(w, &w->messages[i]);
    for (int i = 0; i < OPS_MAX; i++) {
        zookeeper_apply(w, &w->ops[i]);
        zookeeper_answer(w, &w->ops[i]);
    }
    check_all(w);
}

static bool is_well(const struct world *w)
{
    const struct list *replicas = &w->placement.replicas;
    bool is_moving = w->placement.adding.count || w->placement.removing.count;
    if (w->state.leader < 0 || is_moving || __builtin_popcount(w->state.isr) != replicas->count)
        return false;
    const struct broker *leader = &w->b[w->state.leader];
    for (int32_t i = 0; i < replicas->count; i++) {
        const struct broker *b = &w->b[replicas->brokers[i]];
        bool is_equal = b->topic == w->topic && b->log_end == leader->log_end &&
                        memcmp(b->log, leader->log, (size_t)b->log_end * sizeof b->log[0]) == 0;
        if (!is_equal || w->state.isr_epochs[replicas->brokers[i]] != b->broker_epoch)
            return false;
    }
    bool is_enough = replicas->count >= w->min_in_sync; /* moved to fewer, it waits for ever */
    return broker_leads(leader) && (!is_enough || leader->high_watermark == leader->log_end);
}

/* Once nothing fails any more all comes right by itself. */
static void heal(struct world *w)
{
    w->is_healing = true;
    if (w->state.leader_epoch > EPOCHS_MAX - 12)
        return;
    TRACE(w, "from here on nothing fails");
    for (int i = 0; i < HEAL_ROUNDS && !w->violation; i++) {
        heal_round(w);
        w->step++;
        if (is_well(w)) {
            w->counts->settled++;
            return;
        }
    }
    world_fail(w, "the cluster does not come right when nothing fails any more");
}

/* Mostly there is a cluster that works, when things begin to fail. */
static void begin(struct world *w)
{
    uint32_t rounds = 2 + world_below(w, 8);
    w->is_healing = true;
    for (uint32_t i = 0; i < rounds; i++) {
        heal_round(w);
        broker_produce(w, &w->b[world_below(w, (uint32_t)w->brokers)]);
    }
    w->is_healing = false;
}

const char *cluster_world_run(uint64_t seed, enum cluster_rule broken, bool trace, struct cluster_counts *counts)
{
    struct world *w = &world;
    memset(w, 0, sizeof *w);
    w->broken = broken;
    w->trace = trace;
    w->counts = counts;
    make(w, seed);
    begin(w);
    for (; w->step < STEPS && !w->violation; w->step++) {
        step(w);
        check_all(w);
    }
    counts->schedules++;
    counts->steps += (uint64_t)w->step;
    if (!w->violation && seed % 4 == 0)
        heal(w);
    counts->excused += w->is_excused;
    return w->violation;
}
