/* The controller with several replicas: moves, elections that were asked for, elections in doubt; and what a
 * controller leaves that dies between its writes. Nobody replicates here: the test plays the leaders, and writes into
 * ZooKeeper who is in sync. */
#include "tests/cluster/node.h"

#include "broker/partition/partition.h"
#include "coordination/changes.h"
#include "coordination/znodes.h"
#include "proto/base/clock.h"
#include "tests/support/batches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct zookeeper *zk;

#define ID "AAAAAAAAAAAAAAAAAAAAAQ"
#define TOPIC(fields) "{\"version\":3,\"topic_id\":\"" ID "\",\"partitions\":{\"0\":" fields "}"

/* ---- znodes ----------------------------------------------------------------------------------------- */

static void start(struct world *w, int32_t count)
{
    for (int32_t id = 1; id <= count; id++)
        node_start(w, world_node(w, id));
    for (int32_t id = 1; id <= count; id++)
        node_wait_ready(w, world_node(w, id));
}

static struct znode_state read_state(struct world *w, const char *topic, int32_t *ret_version)
{
    struct path path;
    struct znode_state state;
    const struct got *got = admin_get(w, path_partition_state(&path, topic, 0));
    ck_assert_int_eq(got->err, 0);
    ck_assert_int_eq(znode_decode_state(got->data, got->data_bytes, &state, NULL), 0);
    if (ret_version)
        *ret_version = got->stat.version;
    return state;
}

static int64_t epoch_of(struct world *w, int32_t broker)
{
    struct path path;
    struct znode_broker entry;
    const struct got *got = admin_get(w, path_broker_id(&path, broker));
    if (got->err)
        return 1;
    ck_assert_int_eq(znode_decode_broker(got->data, got->data_bytes, &entry, NULL), 0);
    int64_t epoch = entry.broker_epoch;
    znode_broker_done(&entry);
    return epoch;
}

static bool is_registered_as_counted(void *arg)
{
    struct path path;
    const struct got *got = admin_get(arg, path_broker_epoch(&path, 3));
    int32_t version = got->err ? -1 : got->stat.version;
    return epoch_of(arg, 3) == version;
}

/* As its leader: the brokers named (digits) are in sync. */
static void set_isr(struct world *w, const char *topic, const char *brokers)
{
    int err;
    do {
        int32_t version, zero = 0;
        struct znode_state state = read_state(w, topic, &version);
        state.isr_count = 0;
        for (const char *b = brokers; *b; b++) {
            state.isr_epochs[state.isr_count] = epoch_of(w, *b - '0');
            state.isr[state.isr_count++] = *b - '0';
        }
        struct path path;
        struct znode_change_partitions named = {
            .topic = (char *)(uintptr_t)topic, .partitions = &zero, .partitions_count = 1};
        struct znode_change change = {.states = &named, .states_count = 1};
        struct coordinator_multi *multi = coordinator_multi_new();
        char *text = znode_encode_state(&state);
        coordinator_multi_set(multi, path_partition_state(&path, topic, 0), text, strlen(text), version);
        ck_assert_int_eq(changes_announce(multi, &change), 0);
        free(text);
        coordinator_multi_send(w->admin, &multi, caller_begin(&w->caller));
        err = caller_end(&w->caller)->err;
    } while (err == -BROOK_E_BAD_VERSION);
    ck_assert_int_eq(err, 0);
}

struct wish {
    struct world *w;
    const char *topic;
    const char *text; /* a part of the topic's node */
    const char *isr;
    int32_t leader;
};

static bool node_says(void *arg)
{
    struct wish *wish = arg;
    struct path path;
    const struct got *got = admin_get(wish->w, path_topic(&path, wish->topic));
    return !got->err && strstr(got->data, wish->text);
}

/* As node_says(); but nodes of these worlds can not be pulled from, so a leader that looked before the other broker had
 * registered has dropped it for good: it is put back, as its pulls would do. */
static bool node_says_at_last(void *arg)
{
    struct wish *wish = arg;
    if (node_says(wish))
        return true;
    struct znode_state state = read_state(wish->w, wish->topic, NULL);
    if (state.leader == 1 && state.isr_count == 1 && strcmp(wish->topic, "cancelled") != 0)
        set_isr(wish->w, wish->topic, "12");
    return false;
}

static void wait_node(struct world *w, const char *topic, const char *text)
{
    struct wish wish = {w, topic, text, NULL, 0};
    if (!world_try(w, node_says, &wish, NODE_TIMEOUT_MS)) {
        struct path path;
        ck_abort_msg("%s says %s, not %s", topic, admin_get(w, path_topic(&path, topic))->data, text);
    }
}

static bool state_is(void *arg)
{
    struct wish *wish = arg;
    struct path path;
    if (!admin_exists(wish->w, path_partition_state(&path, wish->topic, 0)))
        return false;
    struct znode_state state = read_state(wish->w, wish->topic, NULL);
    if (state.leader != wish->leader || (size_t)state.isr_count != strlen(wish->isr))
        return false;
    for (int32_t i = 0; i < state.isr_count; i++)
        if (!strchr(wish->isr, '0' + state.isr[i]))
            return false;
    return true;
}

static void wait_state(struct world *w, const char *topic, int32_t leader, const char *isr)
{
    struct wish wish = {w, topic, NULL, isr, leader};
    if (!world_try(w, state_is, &wish, NODE_TIMEOUT_MS)) {
        struct znode_state state = read_state(w, topic, NULL);
        ck_abort_msg("%s: led by %d with %d in sync, not by %d with %s", topic, (int)state.leader,
                     (int)state.isr_count, (int)leader, isr);
    }
}

static bool is_gone(void *arg)
{
    struct wish *wish = arg;
    return !admin_exists(wish->w, wish->text);
}

static void wait_gone(struct world *w, const char *path)
{
    struct wish wish = {.w = w, .text = path};
    world_wait(w, is_gone, &wish);
}

static void put_topic(struct world *w, const char *text)
{
    ck_assert_int_eq(admin_create(w, "/brokers/topics/t", text), 0);
}

static void ask(struct world *w, const char *path, const char *entry)
{
    char text[400];
    snprintf(text, sizeof text, "{\"version\":1,\"partitions\":[%s]}", entry);
    ck_assert_int_eq(admin_create(w, path, text), 0);
}

static void ask_move(struct world *w, const char *replicas)
{
    char entry[200];
    snprintf(entry, sizeof entry, "{\"topic\":\"t\",\"partition\":0,\"replicas\":%s}", replicas);
    ask(w, PATH_REASSIGN, entry);
    wait_gone(w, PATH_REASSIGN);
}

/* ---- moves ------------------------------------------------------------------------------------------ */

START_TEST(partition_is_moved_when_all_of_the_target_are_in_sync)
{
    struct world *w = world_begin(zk, "/move");
    start(w, 3);
    put_topic(w, TOPIC("[1,2]") "}");
    wait_state(w, "t", 1, "12");
    ask_move(w, "[3,2]");
    wait_node(w, "t", "\"adding_replicas\":{\"0\":[3]},\"removing_replicas\":{\"0\":[1]}");
    wait_node(w, "t", "\"partitions\":{\"0\":[1,2,3]}");
    set_isr(w, "t", "13");
    world_idle(w, 100);
    wait_node(w, "t", "\"target_replicas\":{\"0\":[3,2]}"); /* 2 is not there yet */
    int32_t epoch = read_state(w, "t", NULL).leader_epoch;
    set_isr(w, "t", "132");
    wait_node(w, "t", "\"partitions\":{\"0\":[3,2]}");
    wait_state(w, "t", 3, "23");
    ck_assert_int_eq(read_state(w, "t", NULL).leader_epoch, epoch + 1);
    for (int32_t id = 1; id <= 3; id++)
        node_wait_leader(w, world_node(w, id), "t", 0, 3);
    world_end(w);
}
END_TEST

/* The others let go of their logs: whoever was counted must not have lost its page cache since. */
START_TEST(a_move_does_not_end_with_a_broker_that_registered_anew)
{
    struct world *w = world_begin(zk, "/anew");
    struct path path;
    start(w, 3);
    put_topic(w, TOPIC("[1,2]") "}");
    wait_state(w, "t", 1, "12");
    ask_move(w, "[3]");
    wait_node(w, "t", "\"partitions\":{\"0\":[1,2,3]}");
    ck_assert_int_eq(admin_set(w, path_broker_epoch(&path, 3), "", -1), 0); /* and nobody has been told */
    set_isr(w, "t", "13");
    world_idle(w, 100);
    wait_node(w, "t", "\"target_replicas\":{\"0\":[3]}");
    ck_assert_int_eq(read_state(w, "t", NULL).leader, 1);
    admin_expire(w, world_node(w, 3));
    node_wait_ready(w, world_node(w, 3));
    world_wait(w, is_registered_as_counted, w);
    set_isr(w, "t", "13");
    wait_node(w, "t", "\"partitions\":{\"0\":[3]}");
    wait_state(w, "t", 3, "3");
    world_end(w);
}
END_TEST

START_TEST(move_is_cancelled_at_any_time_and_waits_for_an_old_replica)
{
    struct world *w = world_begin(zk, "/cancel");
    start(w, 3);
    put_topic(w, TOPIC("[1,2]") "}");
    wait_state(w, "t", 1, "12");
    ask_move(w, "[3]");
    wait_node(w, "t", "\"partitions\":{\"0\":[1,2,3]}");
    ask_move(w, "[]");
    wait_node(w, "t", "\"partitions\":{\"0\":[1,2]},\"adding_replicas\":{}");
    ask_move(w, "[]"); /* nothing runs: refused, and gone */
    ask_move(w, "[3,1]");
    set_isr(w, "t", "1");
    ask_move(w, "[]");
    wait_state(w, "t", 1, "1");
    wait_node(w, "t", "\"partitions\":{\"0\":[1,2]},\"adding_replicas\":{}");
    world_end(w);
}
END_TEST

START_TEST(senseless_plans_are_removed_and_harm_nobody)
{
    struct world *w = world_begin(zk, "/senseless");
    start(w, 1);
    put_topic(w, TOPIC("[1]") "}");
    wait_state(w, "t", 1, "1");
    ck_assert_int_eq(admin_create(w, PATH_REASSIGN, "{\"partitions\":7}"), 0);
    wait_gone(w, PATH_REASSIGN);
    ck_assert_int_eq(admin_create(w, PATH_PREFERRED_ELECTION, "nonsense"), 0);
    wait_gone(w, PATH_PREFERRED_ELECTION);
    ask_move(w, "[9]"); /* not alive */
    ask(w, PATH_REASSIGN, "{\"topic\":\"other\",\"partition\":0,\"replicas\":[1]},"
                          "{\"topic\":\"t\",\"partition\":5,\"replicas\":[1]}");
    wait_gone(w, PATH_REASSIGN);
    ck_assert_int_eq(read_state(w, "t", NULL).leader_epoch, 0);
    wait_node(w, "t", "[1]");
    world_end(w);
}
END_TEST

/* It is not written over, nor does it hold up those that would be written with it. */
START_TEST(state_that_makes_no_sense_is_left_alone_until_it_is_mended)
{
    struct world *w = world_begin(zk, "/bad-state");
    const char *good = "{\"controller_epoch\":0,\"leader\":-1,\"version\":1,\"leader_epoch\":4,\"isr\":[1],"
                       "\"isr_epochs\":[1]}";
    ck_assert_int_eq(admin_create(w, "/brokers/topics/bad",
                                  "{\"version\":3,\"topic_id\":\"BAAAAAAAAAAAAAAAAAAAAQ\",\"partitions\":{\"0\":[1]}}"),
                     0);
    ck_assert_int_eq(admin_create(w, "/brokers/topics/bad/partitions/0/state", "nonsense"), 0);
    put_topic(w, TOPIC("[1]") "}");
    start(w, 1);
    wait_state(w, "t", 1, "1");
    node_wait_leader(w, world_node(w, 1), "t", 0, 1);
    ck_assert_str_eq(admin_get(w, "/brokers/topics/bad/partitions/0/state")->data, "nonsense");
    ck_assert_int_eq(admin_set(w, "/brokers/topics/bad/partitions/0/state", good, -1), 0);
    node_wait_leader(w, world_node(w, 1), "bad", 0, 1);
    world_end(w);
}
END_TEST

/* Everything that a controller leaves behind its writes, found by one that comes: the plan not taken over; the plan
 * taken over in part; moves that are complete; moves that were cancelled; elections asked for. */
START_TEST(new_controller_goes_on_where_the_last_one_stopped)
{
    struct world *w = world_begin(zk, "/resume");
    const char *state = "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":4,\"isr\":[1,2],"
                        "\"isr_epochs\":[1,1]}";
    static const struct {
        const char *topic, *node, *after;
        int32_t leader;
    } topics[] = {
        {"planned", TOPIC("[1]") "}", "\"partitions\":{\"0\":[2,1]}", 1},
        {"complete", TOPIC("[1,2]") ",\"adding_replicas\":{\"0\":[2]},\"removing_replicas\":{\"0\":[1]}}",
         "\"partitions\":{\"0\":[2]}", 2},
        {"cancelled", TOPIC("[1,2]") ",\"adding_replicas\":{\"0\":[2]},\"removing_replicas\":{\"0\":[2]}}",
         "\"partitions\":{\"0\":[1]}", 1},
        {"preferred", TOPIC("[2,1]") "}", "\"partitions\":{\"0\":[2,1]}", 2},
    };
    for (size_t i = 0; i < 4; i++) {
        char path[100], node[400];
        snprintf(path, sizeof path, "/brokers/topics/%s", topics[i].topic);
        snprintf(node, sizeof node, "%s", topics[i].node);
        node[strlen("{\"version\":3,\"topic_id\":\"")] = (char)('B' + (int)i); /* an id each */
        ck_assert_int_eq(admin_create(w, path, node), 0);
        snprintf(path, sizeof path, "/brokers/topics/%s/partitions/0/state", topics[i].topic);
        ck_assert_int_eq(admin_create(w, path, state), 0);
    }
    ask(w, PATH_REASSIGN, "{\"topic\":\"planned\",\"partition\":0,\"replicas\":[2,1]}");
    ask(w, PATH_PREFERRED_ELECTION, "{\"topic\":\"preferred\",\"partition\":0}");
    /* Nobody controls before both are there. */
    ck_assert_int_eq(admin_create(w, PATH_CONTROLLER, "{\"version\":1,\"brokerid\":9,\"timestamp\":\"1\"}"), 0);
    start(w, 2);
    ck_assert_int_eq(admin_delete(w, PATH_CONTROLLER), 0);
    wait_gone(w, PATH_REASSIGN);
    wait_gone(w, PATH_PREFERRED_ELECTION);
    for (size_t i = 0; i < 4; i++) {
        struct wish wish = {w, topics[i].topic, topics[i].after, NULL, 0};
        ck_assert(world_try(w, node_says_at_last, &wish, NODE_TIMEOUT_MS));
        if (topics[i].leader == 2 && read_state(w, topics[i].topic, NULL).leader == 1)
            set_isr(w, topics[i].topic, "12");
        node_wait_leader(w, world_node(w, 1), topics[i].topic, 0, topics[i].leader);
    }
    world_end(w);
}
END_TEST

START_TEST(move_outlives_its_controllers)
{
    struct world *w = world_begin(zk, "/outlive");
    start(w, 3);
    put_topic(w, TOPIC("[2,3]") "}");
    wait_state(w, "t", 2, "23");
    ask_move(w, "[3,2,1]");
    wait_node(w, "t", "\"adding_replicas\":{\"0\":[1]}");
    int32_t former = admin_controller(w);
    for (int round = 0; round < 3; round++) {
        node_drop(w, world_node(w, former));
        node_start(w, world_node(w, former));
        node_wait_ready(w, world_node(w, former));
        former = admin_controller(w);
        ck_assert_int_ge(former, 1);
    }
    wait_node(w, "t", "\"adding_replicas\":{\"0\":[1]}");
    struct znode_state state = read_state(w, "t", NULL);
    ck_assert_int_ge(state.leader, 2);
    set_isr(w, "t", "231");
    wait_node(w, "t", "\"partitions\":{\"0\":[3,2,1]}");
    world_end(w);
}
END_TEST

/* ---- elections -------------------------------------------------------------------------------------- */

START_TEST(preferred_replica_leads_again_when_asked_or_when_it_is_time)
{
    struct world *w = world_begin(zk, "/prefer");
    for (int32_t id = 1; id <= 2; id++)
        world_node(w, id)->rebalance_interval_ms = 0;
    start(w, 2);
    put_topic(w, TOPIC("[2,1]") "}");
    wait_state(w, "t", 2, "12");
    node_wait_leader(w, world_node(w, 2), "t", 0, 2);
    node_stop(w, world_node(w, 2));
    wait_state(w, "t", 1, "1");
    node_start(w, world_node(w, 2));
    node_wait_ready(w, world_node(w, 2));
    ask(w, PATH_PREFERRED_ELECTION, "{\"topic\":\"t\",\"partition\":0}");
    wait_gone(w, PATH_PREFERRED_ELECTION); /* it is not in sync: nothing to be done */
    wait_state(w, "t", 1, "1");
    set_isr(w, "t", "12");
    world_idle(w, 100);
    wait_state(w, "t", 1, "12"); /* not by itself: that is switched off */
    ask(w, PATH_PREFERRED_ELECTION, "{\"topic\":\"t\",\"partition\":0}");
    wait_gone(w, PATH_PREFERRED_ELECTION);
    wait_state(w, "t", 2, "12");
    world_end(w);
}
END_TEST

START_TEST(leaders_are_given_back_when_it_is_time)
{
    struct world *w = world_begin(zk, "/rebalance");
    for (int32_t id = 1; id <= 2; id++)
        world_node(w, id)->rebalance_interval_ms = 200;
    const char *state = "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":4,\"isr\":[1],"
                        "\"isr_epochs\":[1]}";
    put_topic(w, TOPIC("[2,1]") "}");
    ck_assert_int_eq(admin_create(w, "/brokers/topics/t/partitions/0/state", state), 0);
    start(w, 2);
    world_idle(w, 500);
    wait_state(w, "t", 1, "1");
    set_isr(w, "t", "12");
    wait_state(w, "t", 2, "12");
    world_end(w);
}
END_TEST

START_TEST(unclean_election_is_held_only_when_asked_for)
{
    struct world *w = world_begin(zk, "/unclean");
    const char *state = "{\"controller_epoch\":1,\"leader\":3,\"version\":1,\"leader_epoch\":4,\"isr\":[3],"
                        "\"isr_epochs\":[7]}";
    put_topic(w, TOPIC("[3,1,2]") "}");
    ck_assert_int_eq(admin_create(w, "/brokers/topics/t/partitions/0/state", state), 0);
    start(w, 2);
    wait_state(w, "t", -1, "3");
    ask(w, PATH_PREFERRED_ELECTION, "{\"topic\":\"t\",\"partition\":0}");
    wait_gone(w, PATH_PREFERRED_ELECTION);
    wait_state(w, "t", -1, "3");
    unsigned warnings = world_node(w, 1)->warnings + world_node(w, 2)->warnings;
    ask(w, PATH_PREFERRED_ELECTION, "{\"topic\":\"t\",\"partition\":0,\"election\":\"unclean\"}");
    wait_gone(w, PATH_PREFERRED_ELECTION);
    wait_state(w, "t", 1, "1");
    ck_assert_uint_gt(world_node(w, 1)->warnings + world_node(w, 2)->warnings, warnings); /* loudly */
    world_end(w);
}
END_TEST

/* Nothing waits for a death: whoever leads next does so before the broker has gone, which leaves the ISR, where a dead
 * one would stay until its leader drops it. */
START_TEST(broker_that_stops_hands_over_first)
{
    struct world *w = world_begin(zk, "/drain");
    start(w, 3);
    put_topic(w, TOPIC("[1,2,3]") "}");
    wait_state(w, "t", 1, "123");
    for (int32_t id = 1; id <= 3; id++)
        node_wait_leader(w, world_node(w, id), "t", 0, 1);
    node_stop(w, world_node(w, 1));
    struct znode_state state = read_state(w, "t", NULL);
    ck_assert_int_eq(state.leader, 2);
    ck_assert_int_eq(state.isr_count, 2);
    ck_assert_int_eq(state.leader_epoch, 1);
    node_wait_leader(w, world_node(w, 3), "t", 0, 2);
    node_stop(w, world_node(w, 3));
    wait_state(w, "t", 2, "2");
    node_stop(w, world_node(w, 2)); /* there is nobody to hand over to */
    wait_state(w, "t", 2, "2");
    for (int32_t id = 1; id <= 3; id++)
        ck_assert_int_eq(world_node(w, id)->warnings, 0);
    world_end(w);
}
END_TEST

/* ---- in doubt --------------------------------------------------------------------------------------- */

struct appending {
    struct partition_append append;
    bool is_done;
};

static void note_appended(struct partition_append *a)
{
    ((struct appending *)a)->is_done = true;
}

static void append_records(struct node *n, const char *topic)
{
    struct log_batch batch = batches_make(10, 1000, 1, 50, 1);
    struct appending a = {
        .append = {.batches = &batch, .batches_count = 1, .inbox = &n->inbox, .done = note_appended}};
    struct partition *p = node_topic(n, topic)->partitions[0].local;
    partition_enqueue(p, &a.append);
    partition_drain(p, &n->inbox);
    ck_assert(a.is_done && !a.append.error.code);
    batches_free(&batch);
}

/* Nobody leads; all in sync (2) had a power cut. 1 has records, 2 and 3 have none. */
static void doubt(struct world *w, const char *replicas)
{
    char text[400];
    start(w, 3);
    put_topic(w, TOPIC("[1]") "}");
    node_wait_leader(w, world_node(w, 1), "t", 0, 1);
    append_records(world_node(w, 1), "t");
    for (int32_t id = 1; id <= 3; id++)
        node_stop(w, world_node(w, id));
    snprintf(text, sizeof text, TOPIC("%s") "}", replicas);
    ck_assert_int_eq(admin_set(w, "/brokers/topics/t", text, -1), 0);
    ck_assert_int_eq(admin_set(w, "/brokers/topics/t/partitions/0/state",
                               "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":4,"
                               "\"isr\":[2],\"isr_epochs\":[77]}",
                               -1),
                     0);
}

START_TEST(longest_log_leads_after_a_power_cut_of_all_in_sync)
{
    struct world *w = world_begin(zk, "/doubt");
    doubt(w, "[2,1,3]");
    for (int32_t id = 2; id <= 3; id++)
        world_node(w, id)->absent_wait_ms = 60000;
    node_start(w, world_node(w, 2));
    node_start(w, world_node(w, 3));
    wait_state(w, "t", -1, "2");
    world_idle(w, 300);
    wait_state(w, "t", -1, "2"); /* 1 may have more, and is waited for */
    node_start(w, world_node(w, 1));
    wait_state(w, "t", 1, "1");
    node_wait_leader(w, world_node(w, 1), "t", 0, 1);
    struct path path;
    ck_assert_ptr_nonnull(strstr(admin_get(w, path_topic_end(&path, "t", 1))->data, "[5,0,10]"));
    ck_assert_ptr_nonnull(strstr(admin_get(w, path_topic_end(&path, "t", 2))->data, "[5,-1,0]"));
    world_end(w);
}
END_TEST

START_TEST(replica_that_stays_away_is_not_waited_for_for_ever)
{
    struct world *w = world_begin(zk, "/absent");
    doubt(w, "[2,1,3]");
    for (int32_t id = 2; id <= 3; id++)
        world_node(w, id)->absent_wait_ms = 300;
    node_start(w, world_node(w, 2));
    node_start(w, world_node(w, 3));
    wait_state(w, "t", 2, "2");
    world_end(w);
}
END_TEST

/* What was told at another epoch, or in another life, proves nothing; a new controller reads what is there. */
START_TEST(new_controller_compares_what_was_told)
{
    struct world *w = world_begin(zk, "/told");
    doubt(w, "[2,1,3]");
    ck_assert_int_eq(admin_create(w, "/brokers/topics/t/ends/3",
                                  "{\"version\":1,\"broker_epoch\":1,\"ends\":{\"0\":[5,9,9999]}}"),
                     0);
    for (int32_t id = 1; id <= 3; id++)
        world_node(w, id)->absent_wait_ms = 60000;
    node_start(w, world_node(w, 2));
    wait_state(w, "t", -1, "2");
    node_start(w, world_node(w, 3));
    node_wait_ready(w, world_node(w, 3));
    node_drop(w, world_node(w, 2)); /* the controller */
    node_start(w, world_node(w, 1));
    node_start(w, world_node(w, 2));
    wait_state(w, "t", 1, "1");
    world_end(w);
}
END_TEST

static bool both_have_told(void *arg)
{
    struct path path;
    return strstr(admin_get(arg, path_topic_end(&path, "t", 2))->data, "[5,-1,0]") &&
           strstr(admin_get(arg, path_topic_end(&path, "t", 3))->data, "[5,-1,0]");
}

/* Nobody tells again for its sake. */
START_TEST(new_controller_reads_what_was_told_before_it_came)
{
    struct world *w = world_begin(zk, "/before");
    doubt(w, "[2,1,3]");
    world_node(w, 4)->absent_wait_ms = 60000;
    node_start(w, world_node(w, 4));
    node_wait_ready(w, world_node(w, 4));
    ck_assert_int_eq(admin_controller(w), 4);
    for (int32_t id = 2; id <= 3; id++) {
        world_node(w, id)->absent_wait_ms = 300;
        node_start(w, world_node(w, id));
    }
    world_wait(w, both_have_told, w);
    wait_state(w, "t", -1, "2");
    node_stop(w, world_node(w, 4));
    wait_state(w, "t", 2, "2");
    world_end(w);
}
END_TEST

int main(void)
{
    const struct suite_test tests[] = {
        SUITE_TEST_SLOW(partition_is_moved_when_all_of_the_target_are_in_sync, 60),
        SUITE_TEST_SLOW(a_move_does_not_end_with_a_broker_that_registered_anew, 60),
        SUITE_TEST_SLOW(move_is_cancelled_at_any_time_and_waits_for_an_old_replica, 60),
        SUITE_TEST_SLOW(senseless_plans_are_removed_and_harm_nobody, 60),
        SUITE_TEST_SLOW(state_that_makes_no_sense_is_left_alone_until_it_is_mended, 60),
        SUITE_TEST_SLOW(new_controller_goes_on_where_the_last_one_stopped, 60),
        SUITE_TEST_SLOW(move_outlives_its_controllers, 60),
        SUITE_TEST_SLOW(preferred_replica_leads_again_when_asked_or_when_it_is_time, 60),
        SUITE_TEST_SLOW(leaders_are_given_back_when_it_is_time, 60),
        SUITE_TEST_SLOW(unclean_election_is_held_only_when_asked_for, 60),
        SUITE_TEST_SLOW(broker_that_stops_hands_over_first, 60),
        SUITE_TEST_SLOW(longest_log_leads_after_a_power_cut_of_all_in_sync, 60),
        SUITE_TEST_SLOW(replica_that_stays_away_is_not_waited_for_for_ever, 60),
        SUITE_TEST_SLOW(new_controller_compares_what_was_told, 60),
        SUITE_TEST_SLOW(new_controller_reads_what_was_told_before_it_came, 60),
    };
    zk = zookeeper_start(NULL);
    int r = suite_run("cluster/moves", tests, sizeof tests / sizeof tests[0]);
    zookeeper_stop(zk);
    return r;
}
