#include "tests/cluster/nemesis/world.h"

#include "proto/base/clock.h"
#include "tests/support/zookeeper.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STOP_MS 30000
#define STEP_MS 10

/* ---- processes ---------------------------------------------------------------------------------------------------- */

static void kill_broker(struct world *w, int id)
{
    w->is_up[id] = false;
    network_set_pid(w->network, id, 0);
    brokers_kill(w->brokers, id);
}

typedef void broker_deed(struct world *w, int id);

static void each_broker(struct world *w, broker_deed *deed)
{
    for (int id = 1; id <= w->options->brokers; id++)
        deed(w, id);
}

static void stop_broker(struct world *w, int id)
{
    w->is_up[id] = false;
    int code = brokers_stop(w->brokers, id, STOP_MS);
    network_set_pid(w->network, id, 0);
    if (code != 0)
        world_surprise(w, "broker %d did not stop: %d", id, code);
}

static void pause_broker(struct world *w, int id)
{
    w->is_up[id] = false;
    brokers_signal(w->brokers, id, SIGSTOP);
}

static void continue_broker(struct world *w, int id)
{
    brokers_signal(w->brokers, id, SIGCONT);
    w->is_up[id] = true;
}

void deeds_mend(struct world *w)
{
    int code;
    deeds_lift_throttle(w);
    for (int id = 1; id <= w->options->brokers; id++)
        if (!brokers_is_running(w->brokers, id, &code)) {
            world_surprise(w, "broker %d ended by itself: %d", id, code);
            world_start_broker(w, id);
        }
    for (int g = 0; g < w->options->groups; g++)
        if (!w->view.is_member_busy && group_mend(w->groups[g]) > 0)
            world_surprise(w, "a member of group %d ended by itself", g + 1);
}

/* ---- disks -------------------------------------------------------------------------------------------------------- */

/* At the same moment, as far as the disks are concerned. */
static void cut_power(struct world *w, int from, int to)
{
    int ids[NETWORK_BROKERS_MAX];
    for (int id = from; id <= to; id++) {
        w->is_up[id] = false;
        network_set_pid(w->network, id, 0);
        ids[id - from] = id;
    }
    brokers_cut_power(w->brokers, ids, to - from + 1);
}

/* What a broker has may go only while others have it: either no state lists the broker any more, or each that does lists
 * another one that runs, and nothing else is wrong until all is well again. */
static bool may_empty(struct world *w, const struct fault *f)
{
    int64_t until = clock_boot_ms() + 3 * WORLD_SESSION_MS;
    do {
        if (watch_fresh(w->watch, WORLD_SESSION_MS) &&
            (f->quick ? watch_has_others_in_sync(w->watch, f->broker) : !watch_is_in_sync_anywhere(w->watch, f->broker)))
            return true;
    } while (!f->quick && clock_boot_ms() < until);
    return false;
}

static void empty_disk(struct world *w, const struct fault *f)
{
    kill_broker(w, f->broker);
    if (may_empty(w, f))
        brokers_empty_disk(w->brokers, f->broker);
    else
        world_say(w, "  broker %d keeps its disk: nobody else has all of it", f->broker);
    world_start_broker(w, f->broker);
}

/* Of replicated topics a tail goes as a whole disk does, at once. */
static void cut_power_of_one(struct world *w, const struct fault *f)
{
    struct fault at_once = *f;
    at_once.quick = true;
    kill_broker(w, f->broker);
    if (w->schedule.is_all_on_disk || may_empty(w, &at_once))
        cut_power(w, f->broker, f->broker);
    else
        world_say(w, "  broker %d keeps what it has not synced: nobody else has all of it", f->broker);
}

/* ---- network ------------------------------------------------------------------------------------------------------- */

typedef void change(struct world *w, int from, int to, bool reset);

static void cut(struct world *w, int from, int to, bool reset)
{
    network_cut(w->network, from, to);
}

static void heal(struct world *w, int from, int to, bool reset)
{
    network_heal(w->network, from, to, reset);
}

static void both(struct world *w, int a, int b, bool reset, change *deed)
{
    deed(w, a, b, reset);
    deed(w, b, a, reset);
}

static void change_links(struct world *w, const struct fault *f, change *deed)
{
    if (f->kind == FAULT_CUT_ONE_WAY) {
        deed(w, f->broker, f->other, f->reset);
    } else if (f->kind == FAULT_CUT_BOTH) {
        both(w, f->broker, f->other, f->reset, deed);
    } else if (f->kind == FAULT_CUT_ZOOKEEPER) {
        if (f->direction != 2)
            deed(w, f->broker, NETWORK_ZOOKEEPER, f->reset);
        if (f->direction != 1)
            deed(w, NETWORK_ZOOKEEPER, f->broker, f->reset);
    } else {
        both(w, f->broker, NETWORK_ZOOKEEPER, f->reset, deed);
        for (int id = 1; id <= w->options->brokers; id++)
            if (id != f->broker)
                both(w, f->broker, id, f->reset, deed);
    }
}

/* ---- beginning and ending ------------------------------------------------------------------------------------------- */

static void mark_busy(struct world *w, const struct fault *f, bool busy)
{
    switch (f->kind) {
    case FAULT_ZOOKEEPER_KILL:
    case FAULT_ZOOKEEPER_PAUSE: w->view.is_zookeeper_busy = busy; break;
    case FAULT_MEMBER_KILL:
    case FAULT_MEMBER_PAUSE: w->view.is_member_busy = busy; break;
    case FAULT_CUT_ONE_WAY:
    case FAULT_CUT_BOTH: w->view.is_broker_busy[f->other] = w->view.is_broker_busy[f->broker] = busy; break;
    case FAULT_BLACKOUT:
    case FAULT_POWER_CUT_ALL:
        for (int id = 1; id <= w->options->brokers; id++)
            w->view.is_broker_busy[id] = busy;
        break;
    case FAULT_ELECT:
    case FAULT_MOVE:
    case FAULT_MOVE_SLOWLY:
    case FAULT_DELETE:
    case FAULT_CALM: break;
    default: w->view.is_broker_busy[f->broker] = busy;
    }
}

static void do_it(struct world *w, const struct fault *f)
{
    switch (f->kind) {
    case FAULT_KILL: kill_broker(w, f->broker); break;
    case FAULT_BLACKOUT: each_broker(w, kill_broker); break;
    case FAULT_STOP: stop_broker(w, f->broker); break;
    case FAULT_PAUSE:
    case FAULT_PAUSE_LONG: pause_broker(w, f->broker); break;
    case FAULT_EMPTY_DISK: empty_disk(w, f); break;
    case FAULT_POWER_CUT: cut_power_of_one(w, f); break;
    case FAULT_POWER_CUT_ALL: cut_power(w, 1, w->options->brokers); break;
    case FAULT_CUT_ZOOKEEPER:
    case FAULT_CUT_ONE_WAY:
    case FAULT_CUT_BOTH:
    case FAULT_ISOLATE: change_links(w, f, cut); break;
    case FAULT_ZOOKEEPER_KILL: zookeeper_kill(brokers_zookeeper(w->brokers)); break;
    case FAULT_ZOOKEEPER_PAUSE: zookeeper_pause(brokers_zookeeper(w->brokers)); break;
    case FAULT_ELECT:
        if (!wishes_elect(w->wishes, &w->topics))
            world_say(w, "  it can not be asked for now");
        break;
    case FAULT_MOVE: deeds_move(w, f); break;
    case FAULT_MOVE_SLOWLY: deeds_move_slowly(w, f); break;
    case FAULT_DELETE: deeds_delete(w, f); break;
    case FAULT_MEMBER_KILL: group_member_kill(w->groups[f->group], f->member); break;
    case FAULT_MEMBER_PAUSE: group_member_signal(w->groups[f->group], f->member, SIGSTOP); break;
    case FAULT_CALM:
    case FAULT_KINDS: break;
    }
}

static void undo(struct world *w, const struct fault *f)
{
    switch (f->kind) {
    case FAULT_KILL:
    case FAULT_POWER_CUT:
    case FAULT_STOP: world_start_broker(w, f->broker); break;
    case FAULT_BLACKOUT:
    case FAULT_POWER_CUT_ALL: each_broker(w, world_start_broker); break;
    case FAULT_PAUSE:
    case FAULT_PAUSE_LONG: continue_broker(w, f->broker); break;
    case FAULT_CUT_ZOOKEEPER:
    case FAULT_CUT_ONE_WAY:
    case FAULT_CUT_BOTH:
    case FAULT_ISOLATE: change_links(w, f, heal); break;
    case FAULT_ZOOKEEPER_KILL: zookeeper_restart(brokers_zookeeper(w->brokers)); break;
    case FAULT_ZOOKEEPER_PAUSE: zookeeper_continue(brokers_zookeeper(w->brokers)); break;
    case FAULT_MEMBER_KILL: group_member_start(w->groups[f->group], f->member); break;
    case FAULT_MEMBER_PAUSE: group_member_signal(w->groups[f->group], f->member, SIGCONT); break;
    case FAULT_MOVE_SLOWLY: w->is_throttle_to_go = true; break;
    case FAULT_EMPTY_DISK:
    case FAULT_ELECT:
    case FAULT_MOVE:
    case FAULT_DELETE:
    case FAULT_CALM:
    case FAULT_KINDS: break;
    }
}

static void describe(const struct world *w, const struct fault *f, char *text, size_t room)
{
    static const char *const direction[] = {"both ways", "to it", "from it"};
    const char *name = fault_name(f->kind);
    switch (f->kind) {
    case FAULT_CUT_ONE_WAY:
    case FAULT_CUT_BOTH: snprintf(text, room, "%s: brokers %d, %d", name, f->broker, f->other); break;
    case FAULT_CUT_ZOOKEEPER: snprintf(text, room, "%s: broker %d, %s", name, f->broker, direction[f->direction]); break;
    case FAULT_ZOOKEEPER_KILL:
    case FAULT_ZOOKEEPER_PAUSE:
    case FAULT_ELECT:
    case FAULT_BLACKOUT:
    case FAULT_POWER_CUT_ALL:
    case FAULT_CALM: snprintf(text, room, "%s", name); break;
    case FAULT_MOVE:
    case FAULT_MOVE_SLOWLY:
    case FAULT_DELETE: snprintf(text, room, "%s: partition %d", name, f->partition); break;
    case FAULT_MEMBER_KILL:
    case FAULT_MEMBER_PAUSE: snprintf(text, room, "%s: member %d of group %d", name, f->member + 1, f->group + 1); break;
    default: snprintf(text, room, "%s: broker %d", name, f->broker);
    }
}

void deeds_begin(struct world *w, const struct fault *f)
{
    char text[128];
    struct nemesis_report *r = w->report;
    if (r->faults_count == NEMESIS_FAULTS_MAX || w->active_count == WORLD_ACTIVE_MAX)
        return;
    describe(w, f, text, sizeof text);
    world_say(w, "%s, %d ms", text, f->lasts_ms);
    struct active a = {.index = r->faults_count++, .until_ms = world_now(w) + f->lasts_ms};
    r->faults[a.index] = (struct nemesis_fault){.fault = *f, .from_ms = world_now(w)};
    mark_busy(w, f, true);
    do_it(w, f);
    w->active[w->active_count++] = a;
}

void deeds_end(struct world *w, const struct active *a)
{
    struct nemesis_fault *f = &w->report->faults[a->index];
    undo(w, &f->fault);
    mark_busy(w, &f->fault, false);
    f->to_ms = world_now(w);
}

void deeds_expire(struct world *w, bool all)
{
    for (int i = 0; i < w->active_count;) {
        if (!all && w->active[i].until_ms > world_now(w)) {
            i++;
            continue;
        }
        struct active over = w->active[i];
        w->active[i] = w->active[--w->active_count];
        deeds_end(w, &over);
    }
}

bool deeds_wait_calm(struct world *w)
{
    int64_t until = clock_boot_ms() + WORLD_RECOVERY_MS;
    int64_t began = world_now(w);
    do {
        deeds_mend(w);
        if (watch_fresh(w->watch, STEP_MS * 100) && watch_all_in_sync(w->watch)) {
            world_say(w, "  all in sync after %lld ms", (long long)(world_now(w) - began));
            return true;
        }
        usleep(STEP_MS * 1000);
    } while (clock_boot_ms() < until);
    world_surprise(w, "not all replicas were in sync again after %d ms", WORLD_RECOVERY_MS);
    return false;
}
