/* A history that random schedules are not known to find, played step by step: nothing is lost, late or random in it but
 * what it says.
 *
 * Why a position counts only when the follower knows that it has reached the epoch. Broker 0 leads at epoch 0, a record is
 * at 0 and 1, uncommitted. 2 is made leader at epoch 1, and nobody else hears of it; then 0 again, at epoch 2. 2 falls
 * behind. A pull of 1 arrives, and its answer, which says where epoch 2 began, does not: the record is committed by 0 and
 * 1. Then 0 loses its disk, and 1, which runs all the time, is registered twice anew, so that nobody counts. The
 * logs are compared: 2 has reached epoch 1, 1 knows of epoch 0 only, and so 2 leads, without the record.
 *
 * So many things have to happen one after the other, with one answer lost in the midst and none after it, that
 * a random schedule of 500 steps would have to be very lucky.
 */
#include "tests/property/cluster_world_private.h"

#include <string.h>

enum { LEADER, FOLLOWER, OTHER };

static void write_state(struct world *w, struct op *op)
{
    zookeeper_apply(w, op);
    zookeeper_answer(w, op);
}

static void write_all(struct world *w)
{
    for (int i = 0; i < OPS_MAX; i++)
        if (w->ops[i].stage != OP_NONE)
            write_state(w, &w->ops[i]);
}

static void read_state(struct world *w, int32_t broker)
{
    w->b[broker].view.is_valid = false;
    broker_look(w, &w->b[broker]);
    broker_take_view(w, &w->b[broker]);
}

static void deliver_all(struct world *w)
{
    for (int i = 0; i < MESSAGES_MAX; i++)
        world_deliver(w, &w->messages[i]);
}

/* Pull, and hear the answer. */
static void pull(struct world *w, int32_t broker)
{
    broker_follow(w, &w->b[broker]);
    for (int rounds = 0; rounds < 2; rounds++)
        deliver_all(w);
}

static void pull_unheard(struct world *w, int32_t broker)
{
    memset(w->messages, 0, sizeof w->messages);
    broker_follow(w, &w->b[broker]);
    world_deliver(w, &w->messages[0]);
    memset(w->messages, 0, sizeof w->messages);
}

static void control(struct world *w)
{
    controller_think(w, &w->b[OTHER]);
    controller_send(w, &w->b[OTHER]);
    write_all(w);
}

/* As when the preferred leader is given back its leadership. */
static void make_leader(struct world *w, int32_t broker)
{
    struct op op = {.stage = OP_SENT,
                    .is_controllers = true,
                    .broker = OTHER,
                    .life = w->b[OTHER].life,
                    .topic = w->topic,
                    .version = w->version,
                    .state = w->state};
    op.state.leader = broker;
    op.state.leader_epoch++;
    write_state(w, &op);
}

static void register_anew(struct world *w, int32_t broker)
{
    zookeeper_expire(w, broker);
    read_state(w, broker);
    broker_register(w, &w->b[broker]);
}

static void commit_early(struct world *w)
{
    controller_seize(w, &w->b[OTHER]);
    control(w);
    for (int32_t i = LEADER; i <= OTHER; i++)
        read_state(w, i);
    pull(w, FOLLOWER);
    pull(w, OTHER);
    broker_produce(w, &w->b[LEADER]);
    pull(w, FOLLOWER);
    make_leader(w, OTHER);
    read_state(w, OTHER);
    make_leader(w, LEADER);
    read_state(w, LEADER);
    read_state(w, FOLLOWER);
    w->now += 2 * LAG_MS_MAX;
    pull_unheard(w, FOLLOWER);
    broker_change_isr(w, &w->b[LEADER]);
    write_all(w);
}

static void elect_by_comparison(struct world *w)
{
    fault_lose_disk(w, &w->b[LEADER]);
    fault_start(w, &w->b[LEADER]);
    broker_register(w, &w->b[LEADER]);
    register_anew(w, FOLLOWER);
    register_anew(w, FOLLOWER);
    control(w);
    for (int32_t i = LEADER; i <= OTHER; i++)
        read_state(w, i);
    controller_think(w, &w->b[OTHER]);
    controller_ask_report(w, &w->b[OTHER]);
    for (int rounds = 0; rounds < 2; rounds++)
        deliver_all(w);
    control(w);
    read_state(w, OTHER);
    check_all(w);
}

const char *cluster_world_play(enum cluster_rule broken, bool trace, struct cluster_counts *counts)
{
    struct world *w = world_make_plain(3, broken, trace, counts);
    commit_early(w);
    elect_by_comparison(w);
    return w->violation;
}
