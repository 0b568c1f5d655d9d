/* Several cluster threads and a real ZooKeeper: registration, topics, leaders, deletion, restarts. */
#include "tests/cluster/node.h"

#include "broker/partition/partition.h"
#include "proto/base/clock.h"
#include "tests/support/batches.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

static struct zookeeper *zk;

START_TEST(one_broker_starts_makes_a_topic_leads_it_and_stops)
{
    struct world *w = world_begin(zk, "/one");
    struct node *n = world_node(w, 1);
    node_start(w, n);
    node_wait_ready(w, n);
    ck_assert(cluster_is_ready(n->cluster, NULL));
    ck_assert_int_eq(node_create(w, n, "orders", 3), 0);
    /* The answer comes after the view that shows it. */
    for (int32_t i = 0; i < 3; i++)
        ck_assert_int_eq(node_leader(n, "orders", i), 1);
    for (int32_t i = 0; i < 3; i++)
        node_wait_leader(w, n, "orders", i, 1);
    ck_assert_int_eq(node_create(w, n, "orders", 3), BROOK_E_TOPIC_EXISTS);
    ck_assert_int_eq(view_controller(n->view), 1);
    ck_assert(node_has_directory(n, "orders", 2));
    ck_assert_int_eq(n->warnings, 0);
    node_stop(w, n);
    ck_assert(!admin_exists(w, "/brokers/ids/1"));
    ck_assert(!admin_exists(w, "/controller"));
    ck_assert_int_eq(n->warnings, 0);
    world_end(w);
}
END_TEST

/* ---- registration ----------------------------------------------------------------------------------- */

static bool was_told_ready(void *arg)
{
    return ((struct node *)arg)->ready_count > 0;
}

START_TEST(second_broker_with_the_same_id_refuses_and_the_first_does_not_notice)
{
    struct world *w = world_begin(zk, "/clash");
    struct node *first = world_node(w, 1), *second = world_node(w, 2);
    node_start(w, first);
    node_wait_ready(w, first);
    node_start_at(w, second, 1, second->directory);
    world_wait(w, was_told_ready, second);
    ck_assert_int_eq(second->ready_error.code, BROOK_E_NODE_EXISTS);
    ck_assert_ptr_nonnull(strstr(second->ready_error.text, "broker id 1"));
    ck_assert_ptr_nonnull(strstr(second->ready_error.text, "127.0.0.1:9001"));
    ck_assert(!cluster_is_ready(second->cluster, NULL));
    ck_assert(cluster_is_ready(first->cluster, NULL));
    ck_assert_int_eq(first->warnings, 0);
    node_drop(w, second);
    ck_assert_int_eq(node_create(w, first, "t", 1), 0);
    world_end(w);
}
END_TEST

static struct timespec session_file_time(const struct node *n)
{
    char path[600];
    struct stat st;
    snprintf(path, sizeof path, "%s/zookeeper.session", n->directory);
    ck_assert_msg(stat(path, &st) == 0, "%s", path);
    return st.st_mtim;
}

START_TEST(second_process_on_a_data_directory_is_refused)
{
    struct world *w = world_begin(zk, "/lock");
    struct node *first = world_node(w, 1), *second = world_node(w, 2);
    struct brook_error error = {0};
    node_start(w, first);
    node_wait_ready(w, first);
    struct timespec before = session_file_time(first);
    ck_assert_int_eq(node_try_start_at(second, w->connect, 1, first->directory, &error), -BROOK_E_LOCKED);
    ck_assert_msg(strstr(error.text, "is locked by process") != NULL, "%s", error.text);
    struct timespec after = session_file_time(first);
    ck_assert_int_eq(before.tv_sec, after.tv_sec);
    ck_assert_int_eq(before.tv_nsec, after.tv_nsec);
    ck_assert_int_eq(second->warnings, 0);
    ck_assert(cluster_is_ready(first->cluster, NULL));
    ck_assert_int_eq(node_create(w, first, "t", 1), 0);
    ck_assert_int_eq(first->warnings, 0);
    world_end(w);
}
END_TEST

START_TEST(another_brokers_directory_is_refused_and_stays_clean)
{
    struct world *w = world_begin(zk, "/notmine");
    struct node *first = world_node(w, 1), *second = world_node(w, 2);
    node_start(w, first);
    node_wait_ready(w, first);
    ck_assert_int_eq(node_create(w, first, "t", 1), 0);
    node_wait_leader(w, first, "t", 0, 1);
    node_stop(w, first);
    node_start_at(w, second, 2, first->directory);
    world_wait(w, was_told_ready, second);
    ck_assert_int_eq(second->ready_error.code, BROOK_E_CONFIG);
    node_drop(w, second);
    ck_assert_int_eq(second->warnings, 0);
    node_start(w, first);
    node_wait_ready(w, first);
    node_wait_leader(w, first, "t", 0, 1);
    ck_assert_int_eq(first->recovered, 0);
    ck_assert_int_eq(first->warnings, 0);
    world_end(w);
}
END_TEST

START_TEST(the_lock_does_not_wait_for_zookeeper)
{
    struct world *w = world_begin(zk, "/unreached");
    struct node *first = world_node(w, 1), *second = world_node(w, 2);
    struct brook_error error = {0};
    ck_assert_int_eq(node_try_start_at(first, "127.0.0.1:1", 1, first->directory, &error), 0);
    ck_assert_int_eq(node_try_start_at(second, w->connect, 1, first->directory, &error), -BROOK_E_LOCKED);
    /* An address that starting a session would refuse: the lock comes first. */
    ck_assert_int_eq(node_try_start_at(second, "", 1, first->directory, &error), -BROOK_E_LOCKED);
    node_drop(w, first);
    node_start(w, first);
    node_wait_ready(w, first);
    ck_assert_int_eq(first->warnings, 0);
    world_end(w);
}
END_TEST

struct epoch_wish {
    struct node *n;
    const char *topic;
    int32_t above;
};

static bool has_higher_epoch(void *arg)
{
    struct epoch_wish *wish = arg;
    const struct view_topic *t = node_topic(wish->n, wish->topic);
    return t && t->partitions[0].leader == wish->n->id && t->partitions[0].leader_epoch > wish->above &&
           cluster_is_ready(wish->n->cluster, NULL);
}

static void wait_higher_epoch(struct world *w, struct node *n, const char *topic, int32_t above)
{
    struct epoch_wish wish = {n, topic, above};
    world_wait(w, has_higher_epoch, &wish);
    node_wait_leader(w, n, topic, 0, n->id);
}

START_TEST(expired_session_is_followed_by_a_new_registration_in_the_same_process)
{
    struct world *w = world_begin(zk, "/expiry");
    struct node *n = world_node(w, 1);
    node_start(w, n);
    node_wait_ready(w, n);
    ck_assert_int_eq(node_create(w, n, "t", 1), 0);
    node_wait_leader(w, n, "t", 0, 1);
    for (int32_t round = 0; round < 3; round++) {
        int32_t epoch = node_topic(n, "t")->partitions[0].leader_epoch;
        admin_expire(w, n);
        wait_higher_epoch(w, n, "t", epoch);
        const struct got *got = admin_get(w, "/brokers/ids/1");
        struct znode_broker entry;
        ck_assert_int_eq(znode_decode_broker(got->data, got->data_bytes, &entry, NULL), 0);
        ck_assert_int_eq(entry.broker_epoch, round + 2);
        ck_assert_int_eq(entry.clean_from, round + 1); /* nothing was lost: the process went on */
        znode_broker_done(&entry);
    }
    ck_assert_int_eq(node_create(w, n, "u", 2), 0);
    world_end(w);
}
END_TEST

static bool has_entry(void *arg)
{
    return admin_exists(arg, "/brokers/ids/1");
}

START_TEST(entry_removed_by_hand_comes_back)
{
    struct world *w = world_begin(zk, "/vanish");
    struct node *n = world_node(w, 1);
    node_start(w, n);
    node_wait_ready(w, n);
    ck_assert_int_eq(node_create(w, n, "t", 1), 0);
    ck_assert_int_eq(admin_delete(w, "/brokers/ids/1"), 0);
    wait_higher_epoch(w, n, "t", node_topic(n, "t")->partitions[0].leader_epoch);
    ck_assert(has_entry(w));
    world_end(w);
}
END_TEST

START_TEST(killed_broker_registers_again_at_once)
{
    char directory[600];
    snprintf(directory, sizeof directory, "%s/killed", suite_directory());
    fflush(NULL);
    pid_t pid = fork(); /* before there are threads: a world of its own */
    if (pid == 0) {
        struct world *w = world_begin(zk, "/kill");
        struct node *n = world_node(w, 1);
        node_start_at(w, n, 1, directory);
        node_wait_ready(w, n);
        node_create(w, n, "t", 2);
        for (;;)
            pause();
    }
    struct world *w = world_begin(zk, "/kill");
    struct node *n = world_node(w, 1);
    struct caller *k = &w->caller;
    int64_t until = clock_boot_ms() + NODE_TIMEOUT_MS;
    while (!admin_exists(w, "/brokers/topics/t/partitions/1/state") && clock_boot_ms() < until)
        caller_idle(k, 10);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    ck_assert(admin_exists(w, "/brokers/ids/1"));
    int64_t start = clock_boot_ms();
    node_start_at(w, n, 1, directory);
    node_wait_ready(w, n);
    wait_higher_epoch(w, n, "t", 0);
    node_wait_leader(w, n, "t", 1, 1);
    /* The entry of the killed one would live for a session timeout. */
    ck_assert_int_lt(clock_boot_ms() - start, NODE_SESSION_MS);
    world_end(w);
}
END_TEST

/* ---- topics ----------------------------------------------------------------------------------------- */

START_TEST(partitions_are_spread_and_every_view_agrees)
{
    struct world *w = world_begin(zk, "/spread");
    int32_t per_node[NODES_MAX + 1] = {0};
    for (int32_t id = 1; id <= 3; id++)
        node_start(w, world_node(w, id));
    for (int32_t id = 1; id <= 3; id++)
        node_wait_ready(w, world_node(w, id));
    struct node *n = world_node(w, 2);
    /* All three have to be known where the topic is placed. */
    size_t count = 0;
    for (int i = 0; i < 1000 && count < 3; i++) {
        world_idle(w, 5);
        view_brokers(n->view, &count);
    }
    ck_assert_uint_eq(count, 3);
    ck_assert_int_eq(node_create(w, n, "wide", 10), 0);
    for (int32_t i = 0; i < 10; i++) {
        int32_t leader = node_leader(n, "wide", i);
        ck_assert(leader >= 1 && leader <= 3);
        per_node[leader]++;
        for (int32_t id = 1; id <= 3; id++)
            node_wait_leader(w, world_node(w, id), "wide", i, leader);
    }
    for (int32_t id = 1; id <= 3; id++)
        ck_assert(per_node[id] == 3 || per_node[id] == 4);
    world_end(w);
}
END_TEST

START_TEST(requests_that_can_not_be_are_refused_with_a_reason)
{
    struct world *w = world_begin(zk, "/refuse");
    struct node *n = world_node(w, 1);
    node_start(w, n);
    node_wait_ready(w, n);
    ck_assert_int_eq(node_create(w, n, "../x", 1), BROOK_E_ILLEGAL_NAME);
    ck_assert_int_eq(node_create(w, n, "x", -1), BROOK_E_INVALID_PARTITIONS);
    ck_assert_int_eq(node_create(w, n, "x", ZNODE_PARTITIONS_MAX + 1), BROOK_E_INVALID_PARTITIONS);
    ck_assert_int_eq(node_delete(w, n, "x"), BROOK_E_UNKNOWN_TOPIC);
    ck_assert_int_eq(node_grow(w, n, "x", 2), BROOK_E_UNKNOWN_TOPIC);
    ck_assert(!admin_exists(w, "/brokers/topics/x"));
    ck_assert(!admin_exists(w, "/admin/delete_topics/x"));
    ck_assert_int_eq(node_create(w, n, "x", 2), 0);
    ck_assert_int_eq(node_grow(w, n, "x", 2), BROOK_E_INVALID_PARTITIONS);
    ck_assert_int_eq(node_grow(w, n, "x", 5), 0);
    for (int32_t i = 0; i < 5; i++)
        node_wait_leader(w, n, "x", i, 1);
    world_end(w);
}
END_TEST

static void note_result(void *arg, const struct cluster_topic_result *result)
{
    struct node *n = arg;
    n->is_told = true;
    n->result = *result;
}

static bool was_told(void *arg)
{
    return ((struct node *)arg)->is_told;
}

static int create_with(struct world *w, struct node *n, int32_t replicas, char *key, char *value,
                       bool validate_only)
{
    struct znode_config_entry entry = {key, value};
    struct znode_config config = {&entry, key ? 1 : 0};
    struct cluster_new_topic topic = {"x", 1, replicas, &config};
    n->is_told = false;
    cluster_create_topic(n->cluster, &topic, validate_only, 5000, &n->inbox, note_result, n);
    world_wait(w, was_told, n);
    return n->result.error.code;
}

START_TEST(replication_and_settings_are_checked_before_anything_is_written)
{
    struct world *w = world_begin(zk, "/settings");
    struct node *n = world_node(w, 1);
    node_start(w, n);
    node_wait_ready(w, n);
    ck_assert_int_eq(create_with(w, n, 2, NULL, NULL, false), BROOK_E_INVALID_REPLICATION);
    ck_assert_ptr_nonnull(strstr(n->result.error.text, "need as many brokers"));
    ck_assert_int_eq(create_with(w, n, 1, "retention.mss", "1", false), BROOK_E_INVALID_CONFIG);
    ck_assert_ptr_nonnull(strstr(n->result.error.text, "retention.mss"));
    ck_assert_int_eq(create_with(w, n, 1, "durability", "always", false), BROOK_E_INVALID_CONFIG);
    ck_assert_int_eq(create_with(w, n, 1, "retention.ms", "1000", true), 0);
    ck_assert(!admin_exists(w, "/config/topics/x"));
    ck_assert(!admin_exists(w, "/brokers/topics/x"));
    ck_assert_int_eq(create_with(w, n, 1, "retention.ms", "1000", false), 0);
    ck_assert_int_eq(node_topic(n, "x")->config.log.retention_ms, 1000);
    ck_assert_int_eq(create_with(w, n, 1, NULL, NULL, true), BROOK_E_TOPIC_EXISTS);
    world_end(w);
}
END_TEST

static const char *topic_text(const char *id, int partitions, int broker)
{
    static char text[1024];
    int at = snprintf(text, sizeof text, "{\"version\":3,\"topic_id\":\"%s\",\"partitions\":{", id);
    for (int i = 0; i < partitions; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s\"%d\":[%d]", i ? "," : "", i, broker);
    snprintf(text + at, sizeof text - (size_t)at, "}}");
    return text;
}

START_TEST(topic_written_by_hand_is_led_and_can_be_grown_and_deleted)
{
    struct world *w = world_begin(zk, "/hand");
    struct node *n = world_node(w, 1);
    node_start(w, n);
    node_wait_ready(w, n);
    ck_assert_int_eq(admin_create(w, "/brokers/topics/hand", topic_text("AAAAAAAAAAAAAAAAAAAAAQ", 2, 1)), 0);
    node_wait_leader(w, n, "hand", 0, 1);
    node_wait_leader(w, n, "hand", 1, 1);
    ck_assert_int_eq(node_grow(w, n, "hand", 4), 0);
    node_wait_leader(w, n, "hand", 3, 1);
    ck_assert_int_eq(admin_create(w, "/admin/delete_topics/hand", ""), 0);
    node_wait_topic_gone(w, n, "hand");
    ck_assert(!admin_exists(w, "/admin/delete_topics/hand"));
    world_end(w);
}
END_TEST

/* What a creator leaves that dies after each of its writes, and a controller that dies after each of its own.
 */
START_TEST(creation_that_stopped_half_way_is_completed_or_can_be_begun_again)
{
    struct world *w = world_begin(zk, "/half");
    struct node *n = world_node(w, 1);
    const char *state = "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":0,\"isr\":[1]}";
    ck_assert_int_eq(
        admin_create(w, "/config/topics/a", "{\"version\":1,\"config\":{\"retention.ms\":\"5\"}}"), 0);
    ck_assert_int_eq(admin_create(w, "/brokers/topics/b", topic_text("AAAAAAAAAAAAAAAAAAAAAg", 3, 1)), 0);
    ck_assert_int_eq(admin_create(w, "/brokers/topics/c", topic_text("AAAAAAAAAAAAAAAAAAAAAw", 3, 1)), 0);
    ck_assert_int_eq(admin_create(w, "/brokers/topics/c/partitions", ""), 0);
    ck_assert_int_eq(admin_create(w, "/brokers/topics/d", topic_text("AAAAAAAAAAAAAAAAAAAABA", 3, 1)), 0);
    ck_assert_int_eq(admin_create(w, "/brokers/topics/d/partitions/1", ""), 0);
    ck_assert_int_eq(admin_create(w, "/brokers/topics/e", topic_text("AAAAAAAAAAAAAAAAAAAABQ", 3, 1)), 0);
    ck_assert_int_eq(admin_create(w, "/brokers/topics/e/partitions/1/state", state), 0);
    ck_assert_int_eq(admin_create(w, "/brokers/topics/empty", ""), 0);
    node_start(w, n);
    node_wait_ready(w, n);
    for (const char *name = "bcde"; *name; name++)
        for (int32_t i = 0; i < 3; i++) {
            char topic[2] = {*name, 0};
            node_wait_leader(w, n, topic, i, 1);
        }
    ck_assert_ptr_null(node_topic(n, "a"));
    ck_assert_ptr_null(node_topic(n, "empty"));
    ck_assert_int_eq(node_create(w, n, "a", 1), 0);
    ck_assert_int_ne(node_topic(n, "a")->config.log.retention_ms, 5); /* settings of a topic that never was */
    ck_assert_int_eq(node_create(w, n, "b", 3), BROOK_E_TOPIC_EXISTS);
    world_end(w);
}
END_TEST

/* ---- leaders ---------------------------------------------------------------------------------------- */

static void start_two(struct world *w)
{
    for (int32_t id = 1; id <= 2; id++) {
        node_start(w, world_node(w, id));
        node_wait_ready(w, world_node(w, id));
    }
}

START_TEST(dead_brokers_partitions_wait_for_it_and_others_are_not_touched)
{
    struct world *w = world_begin(zk, "/dead");
    struct node *one = world_node(w, 1), *two = world_node(w, 2);
    start_two(w);
    ck_assert_int_eq(admin_create(w, "/brokers/topics/a", topic_text("AAAAAAAAAAAAAAAAAAAAAQ", 1, 1)), 0);
    ck_assert_int_eq(admin_create(w, "/brokers/topics/b", topic_text("AAAAAAAAAAAAAAAAAAAAAg", 1, 2)), 0);
    node_wait_leader(w, one, "a", 0, 1);
    node_wait_leader(w, one, "b", 0, 2);
    node_wait_leader(w, two, "b", 0, 2);
    node_stop(w, two);
    node_wait_leader(w, one, "b", 0, -1);
    ck_assert_int_eq(node_topic(one, "b")->partitions[0].isr_count, 1);
    ck_assert_int_eq(node_topic(one, "b")->partitions[0].isr[0], 2);
    int32_t epoch = node_topic(one, "b")->partitions[0].leader_epoch;
    node_start(w, two);
    node_wait_leader(w, one, "b", 0, 2);
    node_wait_leader(w, two, "b", 0, 2);
    ck_assert_int_eq(node_topic(one, "b")->partitions[0].leader_epoch, epoch + 1);
    ck_assert_int_eq(node_topic(one, "a")->partitions[0].leader_epoch, 0);
    ck_assert_int_eq(admin_get(w, "/brokers/topics/a/partitions/0/state")->stat.version, 0);
    world_end(w);
}
END_TEST

START_TEST(epoch_of_an_earlier_life_is_not_led_again)
{
    struct world *w = world_begin(zk, "/life");
    struct node *n = world_node(w, 1);
    node_start(w, n);
    node_wait_ready(w, n);
    ck_assert_int_eq(node_create(w, n, "t", 1), 0);
    node_wait_leader(w, n, "t", 0, 1);
    node_stop(w, n);
    /* Nobody becomes controller while this is there, so the state stays as the earlier life left it. */
    ck_assert_int_eq(admin_create(w, PATH_CONTROLLER, "{\"version\":1,\"brokerid\":99}"), 0);
    node_start(w, n);
    node_wait_ready(w, n);
    world_idle(w, 100);
    ck_assert_int_eq(node_leader(n, "t", 0), 1);
    ck_assert_ptr_nonnull(node_topic(n, "t")->partitions[0].local);
    ck_assert(!partition_is_leader(node_topic(n, "t")->partitions[0].local, NULL));
    ck_assert_int_eq(admin_delete(w, PATH_CONTROLLER), 0);
    wait_higher_epoch(w, n, "t", 0);
    world_end(w);
}
END_TEST

START_TEST(stale_controllers_write_is_refused_and_it_resigns)
{
    struct world *w = world_begin(zk, "/stale");
    struct node *n = world_node(w, 1);
    node_start(w, n);
    node_wait_ready(w, n);
    ck_assert_int_eq(node_create(w, n, "a", 1), 0);
    int64_t before, after;
    const struct got *got = admin_get(w, PATH_CONTROLLER_EPOCH);
    ck_assert_int_eq(znode_decode_number(got->data, got->data_bytes, &before, NULL), 0);
    /* As if another controller had been elected while this one was asleep. */
    char text[32];
    snprintf(text, sizeof text, "%d", (int)before + 10);
    ck_assert_int_eq(admin_set(w, PATH_CONTROLLER_EPOCH, text, -1), 0);
    ck_assert_int_eq(node_create(w, n, "b", 1), 0);
    got = admin_get(w, PATH_CONTROLLER_EPOCH);
    ck_assert_int_eq(znode_decode_number(got->data, got->data_bytes, &after, NULL), 0);
    ck_assert_int_eq(after, before + 11);
    struct znode_state state;
    got = admin_get(w, "/brokers/topics/b/partitions/0/state");
    ck_assert_int_eq(znode_decode_state(got->data, got->data_bytes, &state, NULL), 0);
    ck_assert_int_eq(state.controller_epoch, after); /* never the epoch that was outdated */
    world_end(w);
}
END_TEST

/* ---- deletion --------------------------------------------------------------------------------------- */

static bool second_directory_is_gone(void *arg)
{
    return !node_has_directory(arg, "t", 1);
}

START_TEST(deleted_topic_leaves_nothing_and_its_name_can_be_used_again)
{
    struct world *w = world_begin(zk, "/delete");
    struct node *n = world_node(w, 1);
    node_start(w, n);
    node_wait_ready(w, n);
    ck_assert_int_eq(node_create(w, n, "t", 3), 0);
    struct topic_id first = node_topic(n, "t")->topic_id;
    ck_assert_int_eq(admin_create(w, "/consumers/g/offsets/t/0", "42"), 0);
    ck_assert_int_eq(admin_create(w, "/consumers/g/offsets/t/1", "7"), 0);
    ck_assert_int_eq(admin_create(w, "/consumers/g/offsets/other/0", "5"), 0);
    ck_assert_int_eq(admin_create(w, "/consumers/g/owners/t/0", "member"), 0);
    ck_assert_int_eq(node_delete(w, n, "t"), 0);
    ck_assert_ptr_null(node_topic(n, "t"));
    ck_assert(!admin_exists(w, "/brokers/topics/t"));
    ck_assert(!admin_exists(w, "/config/topics/t"));
    ck_assert(!admin_exists(w, "/admin/delete_topics/t"));
    ck_assert_uint_eq(admin_get(w, "/consumers/g/offsets/t/0")->data_bytes, 0);
    ck_assert_uint_eq(admin_get(w, "/consumers/g/offsets/t/1")->data_bytes, 0);
    ck_assert_str_eq(admin_get(w, "/consumers/g/offsets/other/0")->data, "5");
    ck_assert_str_eq(admin_get(w, "/consumers/g/owners/t/0")->data, "member");
    ck_assert_int_eq(node_delete(w, n, "t"), BROOK_E_UNKNOWN_TOPIC);
    ck_assert_int_eq(node_create(w, n, "t", 1), 0);
    ck_assert(!topic_id_equal(&first, &node_topic(n, "t")->topic_id));
    node_wait_leader(w, n, "t", 0, 1);
    world_wait(w, second_directory_is_gone, n);
    world_end(w);
}
END_TEST

static bool old_directories_are_gone(void *arg)
{
    return !node_has_directory(arg, "old", 0) && !node_has_directory(arg, "again", 1);
}

START_TEST(topic_deleted_while_a_broker_is_down_is_removed_when_it_comes_back)
{
    struct world *w = world_begin(zk, "/down");
    struct node *one = world_node(w, 1), *two = world_node(w, 2);
    start_two(w);
    ck_assert_int_eq(admin_create(w, "/brokers/topics/old", topic_text("AAAAAAAAAAAAAAAAAAAAAQ", 1, 2)), 0);
    ck_assert_int_eq(admin_create(w, "/brokers/topics/again", topic_text("AAAAAAAAAAAAAAAAAAAAAg", 2, 2)), 0);
    node_wait_leader(w, two, "old", 0, 2);
    node_wait_leader(w, two, "again", 0, 2);
    node_wait_leader(w, two, "again", 1, 2);
    node_stop(w, two);
    ck_assert(node_has_directory(two, "old", 0));
    ck_assert_int_eq(node_delete(w, one, "old"), 0);
    ck_assert_int_eq(node_delete(w, one, "again"), 0);
    ck_assert_int_eq(admin_create(w, "/brokers/topics/again", topic_text("AAAAAAAAAAAAAAAAAAAAAw", 1, 2)), 0);
    node_start(w, two);
    node_wait_leader(w, two, "again", 0, 2);
    world_wait(w, old_directories_are_gone, two);
    ck_assert(node_has_directory(two, "again", 0));
    char stray[600];
    snprintf(stray, sizeof stray, "ls %s | grep -c -e stray", two->directory);
    FILE *listing = popen(stray, "r");
    int count = -1;
    ck_assert_int_eq(fscanf(listing, "%d", &count), 1);
    pclose(listing);
    ck_assert_int_eq(count, 0); /* removed, not set aside */
    world_end(w);
}
END_TEST

static bool is_set_aside(void *arg)
{
    struct node *n = arg;
    return !node_has_directory(n, "lost", 0) && !node_has_directory(n, "lost", 1);
}

START_TEST(directory_that_nobody_deleted_is_set_aside)
{
    struct world *w = world_begin(zk, "/stray");
    struct node *n = world_node(w, 1);
    node_start(w, n);
    node_wait_ready(w, n);
    ck_assert_int_eq(node_create(w, n, "lost", 2), 0);
    node_wait_leader(w, n, "lost", 1, 1);
    ck_assert_int_eq(node_create(w, n, "other", 1), 0);
    ck_assert_int_eq(node_delete(w, n, "other"), 0);
    node_stop(w, n);
    /* Whoever restores an older ZooKeeper has topics missing. */
    for (int32_t i = 0; i < 2; i++) {
        struct path path;
        ck_assert_int_eq(admin_delete(w, path_partition_state(&path, "lost", i)), 0);
        ck_assert_int_eq(admin_delete(w, path_partition(&path, "lost", i)), 0);
    }
    admin_delete(w, "/brokers/topics/lost/partitions");
    admin_delete(w, "/brokers/topics/lost/brokers");
    ck_assert_int_eq(admin_delete(w, "/brokers/topics/lost"), 0);
    node_start(w, n);
    node_wait_ready(w, n);
    world_wait(w, is_set_aside, n);
    char command[600];
    snprintf(command, sizeof command, "ls -d %s/lost-*stray | wc -l", n->directory);
    FILE *listing = popen(command, "r");
    int count = -1;
    ck_assert_int_eq(fscanf(listing, "%d", &count), 1);
    pclose(listing);
    ck_assert_int_eq(count, 2);
    ck_assert_int_ge(n->warnings, 2);
    world_end(w);
}
END_TEST

/* ---- controllers come and go ------------------------------------------------------------------------ */

static bool is_quiet(void *arg)
{
    struct world *w = arg;
    if (admin_children(w, "/admin/delete_topics")->children_count)
        return false;
    for (int32_t id = 1; id <= 3; id++)
        if (!cluster_is_ready(world_node(w, id)->cluster, NULL))
            return false;
    return true;
}

struct topic_wish {
    struct world *w;
    char name[32];
    bool wanted;
};

/* All partitions led by a live broker, in every view; or gone from ZooKeeper and every view. */
static bool is_as_wished(void *arg)
{
    struct topic_wish *wish = arg;
    struct path path;
    if (admin_exists(wish->w, path_topic(&path, wish->name)) != wish->wanted)
        return false;
    for (int32_t id = 1; id <= 3; id++) {
        struct node *n = world_node(wish->w, id);
        if (!wish->wanted && node_topic(n, wish->name))
            return false;
        for (int32_t i = 0; wish->wanted && i < 3; i++)
            if (node_leader(n, wish->name, i) < 1)
                return false;
    }
    return true;
}

/* Alternately: its session ends, or it is stopped and started again. */
static void depose(struct world *w, int round)
{
    int32_t id = admin_controller(w);
    if (id < 1)
        return;
    struct node *n = world_node(w, id);
    if (round % 4) {
        admin_expire(w, n);
    } else {
        node_stop(w, n);
        node_start(w, n);
    }
}

START_TEST(twenty_controllers_later_everything_is_as_requested)
{
    struct world *w = world_begin(zk, "/failover");
    enum { ROUNDS = 20 };
    bool is_deleted[ROUNDS] = {false};
    for (int32_t id = 1; id <= 3; id++) {
        node_start(w, world_node(w, id));
        node_wait_ready(w, world_node(w, id));
    }
    for (int round = 0; round < ROUNDS; round++) {
        /* Through the broker that is controller now or another: the intent must outlive both. */
        struct node *n = world_node(w, round % 3 + 1);
        char name[32];
        snprintf(name, sizeof name, "made%d", round);
        node_begin_create(n, name, 3, 100);
        world_idle(w, round % 5);
        depose(w, round);
        if (round >= 3 && round % 2) {
            struct path path;
            snprintf(name, sizeof name, "made%d", round - 3);
            is_deleted[round - 3] = admin_exists(w, path_topic(&path, name)) &&
                                    admin_create(w, path_delete_topic(&path, name), "") == 0;
        }
        world_idle(w, 60);
    }
    int made = 0, deleted = 0;
    world_wait(w, is_quiet, w);
    for (int round = 0; round < ROUNDS; round++) {
        struct topic_wish wish = {.w = w};
        struct path path;
        snprintf(wish.name, sizeof wish.name, "made%d", round);
        wish.wanted = !is_deleted[round] && admin_exists(w, path_topic(&path, wish.name));
        made += wish.wanted;
        deleted += is_deleted[round];
        if (!world_try(w, is_as_wished, &wish, NODE_TIMEOUT_MS))
            ck_abort_msg("topic %s is not %s", wish.name, wish.wanted ? "there and led" : "gone");
    }
    ck_assert_int_ge(admin_controller(w), 1);
    ck_assert_int_ge(made, ROUNDS / 4);
    ck_assert_int_ge(deleted, ROUNDS / 8);
    world_end(w);
}
END_TEST

/* ---- ZooKeeper comes and goes ----------------------------------------------------------------------- */

static bool is_not_ready(void *arg)
{
    return !cluster_is_ready(((struct node *)arg)->cluster, NULL);
}

static bool is_ready(void *arg)
{
    return cluster_is_ready(((struct node *)arg)->cluster, NULL);
}

START_TEST(zookeeper_away_for_less_than_a_session_changes_nothing)
{
    struct zookeeper *own = zookeeper_start(NULL);
    struct world *w = world_begin(own, "");
    struct node *n = world_node(w, 1);
    node_start(w, n);
    node_wait_ready(w, n);
    ck_assert_int_eq(node_create(w, n, "t", 1), 0);
    node_wait_leader(w, n, "t", 0, 1);
    struct partition *p = node_topic(n, "t")->partitions[0].local;
    zookeeper_pause(own);
    world_idle(w, NODE_SESSION_MS / 4);
    ck_assert(partition_is_leader(p, NULL));
    zookeeper_continue(own);
    ck_assert_int_eq(node_create(w, n, "u", 1), 0);
    ck_assert_int_eq(node_topic(n, "t")->partitions[0].leader_epoch, 0);
    world_end(w);
    zookeeper_stop(own);
}
END_TEST

START_TEST(zookeeper_away_for_longer_than_a_session_stops_change_only)
{
    struct zookeeper *own = zookeeper_start(NULL);
    struct world *w = world_begin(own, "");
    struct node *n = world_node(w, 1);
    node_start(w, n);
    node_wait_ready(w, n);
    ck_assert_int_eq(node_create(w, n, "t", 1), 0);
    node_wait_leader(w, n, "t", 0, 1);
    zookeeper_kill(own);
    world_wait(w, is_not_ready, n);
    struct brook_error why = {0};
    ck_assert(!cluster_is_ready(n->cluster, &why));
    ck_assert_ptr_nonnull(strstr(why.text, "ZooKeeper"));
    world_idle(w, 2 * NODE_SESSION_MS);
    ck_assert(partition_is_leader(node_topic(n, "t")->partitions[0].local, NULL));
    zookeeper_restart(own);
    world_wait(w, is_ready, n);
    node_wait_leader(w, n, "t", 0, 1);
    ck_assert_int_eq(node_create(w, n, "u", 2), 0);
    world_end(w);
    zookeeper_stop(own);
}
END_TEST

START_TEST(stop_is_bounded_and_clean_while_zookeeper_hangs)
{
    struct zookeeper *own = zookeeper_start(NULL);
    struct world *w = world_begin(own, "");
    struct node *n = world_node(w, 1);
    node_start(w, n);
    node_wait_ready(w, n);
    ck_assert_int_eq(node_create(w, n, "t", 3), 0);
    node_wait_leader(w, n, "t", 2, 1);
    zookeeper_pause(own);
    int64_t start = clock_boot_ms();
    node_stop(w, n);
    ck_assert_int_lt(clock_boot_ms() - start, 8000);
    char marker[600];
    snprintf(marker, sizeof marker, "%s/.kafka_cleanshutdown", n->directory);
    ck_assert_int_eq(access(marker, F_OK), 0);
    zookeeper_continue(own);
    world_end(w);
    zookeeper_stop(own);
}
END_TEST

static bool knows_the_other_cluster(void *arg)
{
    struct brook_error why = {0};
    return !cluster_is_ready(((struct node *)arg)->cluster, &why) && strstr(why.text, "another cluster");
}

/* As after a wrong DNS change, or when somebody wiped ZooKeeper: nothing of ours may be given up. */
START_TEST(another_cluster_behind_the_same_address_is_not_joined)
{
    struct world *w = world_begin(zk, "/foreign");
    struct node *n = world_node(w, 1);
    char id[4096];
    node_start(w, n);
    node_wait_ready(w, n);
    ck_assert_int_eq(node_create(w, n, "t", 1), 0);
    node_wait_leader(w, n, "t", 0, 1);
    snprintf(id, sizeof id, "%s", admin_get(w, PATH_CLUSTER_ID)->data);
    for (int round = 0; round < 2; round++) {
        if (round)
            ck_assert_int_eq(admin_delete(w, PATH_CLUSTER_ID), 0);
        else
            ck_assert_int_eq(admin_set(w, PATH_CLUSTER_ID, "{\"version\":\"1\",\"id\":\"other\"}", -1), 0);
        admin_expire(w, n);
        world_wait(w, knows_the_other_cluster, n);
        ck_assert(!admin_exists(w, "/brokers/ids/1"));
        ck_assert(node_has_directory(n, "t", 0));
        ck_assert(partition_is_leader(node_topic(n, "t")->partitions[0].local, NULL));
        admin_create(w, PATH_CLUSTER_ID, id);
        admin_set(w, PATH_CLUSTER_ID, id, -1);
        world_wait(w, is_ready, n);
    }
    node_wait_leader(w, n, "t", 0, 1);
    world_end(w);
}
END_TEST

START_TEST(start_waits_for_a_zookeeper_that_is_not_there_yet)
{
    struct zookeeper *own = zookeeper_start(NULL);
    struct world *w = world_begin(own, "");
    struct node *n = world_node(w, 1);
    zookeeper_kill(own);
    node_start(w, n);
    world_idle(w, 300);
    ck_assert_uint_eq(n->ready_count, 0);
    ck_assert(!cluster_is_ready(n->cluster, NULL));
    zookeeper_restart(own);
    node_wait_ready(w, n);
    world_end(w);
    zookeeper_stop(own);
}
END_TEST

START_TEST(clean_stop_is_named_at_the_next_registration)
{
    struct world *w = world_begin(zk, "/clean");
    struct node *n = world_node(w, 1);
    struct znode_broker entry;
    node_start(w, n);
    node_wait_ready(w, n);
    ck_assert_int_eq(node_create(w, n, "t", 1), 0);
    node_wait_leader(w, n, "t", 0, 1);
    node_stop(w, n);
    node_start(w, n);
    node_wait_ready(w, n);
    const struct got *got = admin_get(w, "/brokers/ids/1");
    ck_assert_int_eq(znode_decode_broker(got->data, got->data_bytes, &entry, NULL), 0);
    ck_assert_int_eq(entry.broker_epoch, 2);
    ck_assert_int_eq(entry.clean_from, 1);
    znode_broker_done(&entry);
    ck_assert_int_eq(n->warnings, 0);
    world_end(w);
}
END_TEST

/* ---- disks ------------------------------------------------------------------------------------------ */

struct append {
    struct partition_append append;
    bool is_done;
};

static void note_appended(struct partition_append *a)
{
    CONTAINER_OF(a, struct append, append)->is_done = true;
}

/* Records of the distant past, so that retention has something to do at once. */
static void produce(struct node *n, const char *topic, int32_t partition, int batches)
{
    struct partition *p = node_topic(n, topic)->partitions[partition].local;
    for (int i = 0; i < batches; i++) {
        struct log_batch batch = batches_make(10, 1000, 1, 50, (uint32_t)i);
        struct append a = {
            .append = {.batches = &batch, .batches_count = 1, .inbox = &n->inbox, .done = note_appended}};
        partition_enqueue(p, &a.append);
        partition_drain(p, &n->inbox);
        while (!a.is_done)
            inbox_drain(&n->inbox);
        ck_assert_int_eq(a.append.error.code, 0);
        batches_free(&batch);
    }
}

START_TEST(stop_in_the_middle_of_retention_is_clean)
{
    uint64_t seed = suite_seed();
    struct world *w = world_begin(zk, "/retention");
    struct node *n = world_node(w, 1);
    n->retention_check_ms = 2;
    node_start(w, n);
    node_wait_ready(w, n);
    struct znode_config_entry entries[] = {
        {"file.delete.delay.ms", "0"}, {"max.message.bytes", "1024"}, {"retention.ms", "1"}, {"segment.bytes", "1024"}};
    struct znode_config config = {entries, 4};
    struct cluster_new_topic topic = {"t", 3, 1, &config};
    n->is_told = false;
    cluster_create_topic(n->cluster, &topic, false, 5000, &n->inbox, note_result, n);
    world_wait(w, was_told, n);
    for (int round = 0; round < 15; round++) {
        int64_t ends[3];
        for (int32_t i = 0; i < 3; i++) {
            node_wait_leader(w, n, "t", i, 1);
            produce(n, "t", i, 1 + (int)suite_random_below(&seed, 20));
            ends[i] = log_end_offset(partition_log(node_topic(n, "t")->partitions[i].local));
        }
        world_idle(w, (int)suite_random_below(&seed, 6));
        node_stop(w, n);
        node_start(w, n);
        node_wait_ready(w, n);
        ck_assert_uint_eq(n->recovered, 0);
        ck_assert_uint_eq(n->warnings, 0);
        for (int32_t i = 0; i < 3; i++) {
            node_wait_leader(w, n, "t", i, 1);
            ck_assert_int_eq(log_end_offset(partition_log(node_topic(n, "t")->partitions[i].local)), ends[i]);
        }
    }
    ck_assert_int_gt(log_start_offset(partition_log(node_topic(n, "t")->partitions[0].local)), 0);
    world_end(w);
}
END_TEST

static void acl_is_set(int rc, const void *data)
{
    *(int *)(uintptr_t)data = rc;
}

static void turn(zhandle_t *zh)
{
    int fd = -1, interest = 0, events = 0;
    struct timeval patience;
    zookeeper_interest(zh, &fd, &interest, &patience);
    struct pollfd p = {.fd = fd};
    p.events = (short)((interest & ZOOKEEPER_READ ? POLLIN : 0) | (interest & ZOOKEEPER_WRITE ? POLLOUT : 0));
    if (poll(&p, 1, 10) > 0)
        events = (p.revents & POLLOUT ? ZOOKEEPER_WRITE : 0) | (p.revents & ~POLLOUT ? ZOOKEEPER_READ : 0);
    zookeeper_process(zh, events);
}

/* In a session of its own: the product sets no ACLs. */
static void set_acl(struct world *w, const char *path, const struct ACL_vector *acl)
{
    int rc = 1;
    int64_t end_ms = clock_boot_ms() + NODE_TIMEOUT_MS;
    zhandle_t *zh = zookeeper_init(w->connect, NULL, NODE_TIMEOUT_MS, NULL, NULL, 0);
    ck_assert_ptr_nonnull(zh);
    while (zoo_state(zh) != ZOO_CONNECTED_STATE && clock_boot_ms() < end_ms)
        turn(zh);
    ck_assert_int_eq(zoo_aset_acl(zh, path, -1, (struct ACL_vector *)(uintptr_t)acl, acl_is_set, &rc), ZOK);
    while (rc == 1 && clock_boot_ms() < end_ms)
        turn(zh);
    ck_assert_int_eq(rc, ZOK);
    zookeeper_close(zh);
}

/* The shared write is refused as a whole, and only one of its states is at fault. */
START_TEST(state_that_can_not_be_written_does_not_hold_up_others)
{
    struct world *w = world_begin(zk, "/sealed");
    struct node *n = world_node(w, 1);
    struct path path;
    struct ACL all = {ZOO_PERM_READ | ZOO_PERM_ADMIN, ZOO_ANYONE_ID_UNSAFE};
    const struct ACL_vector read_only = {1, &all};
    node_start(w, n);
    node_wait_ready(w, n);
    ck_assert_int_eq(node_create(w, n, "t", 4), 0);
    for (int32_t i = 0; i < 4; i++)
        node_wait_leader(w, n, "t", i, 1);
    node_stop(w, n);
    set_acl(w, path_partition_state(&path, "t", 1), &read_only);
    unsigned before = n->warnings;
    node_start(w, n);
    node_wait_ready(w, n);
    node_wait_leader(w, n, "t", 0, 1);
    node_wait_leader(w, n, "t", 2, 1);
    node_wait_leader(w, n, "t", 3, 1);
    world_idle(w, 500); /* several more refusals, which are not said */
    unsigned said = n->warnings - before;
    ck_assert_uint_ge(said, 1);
    ck_assert_uint_le(said, 3);
    set_acl(w, path.text, &ZOO_OPEN_ACL_UNSAFE);
    node_wait_leader(w, n, "t", 1, 1);
    world_end(w);
}
END_TEST

int main(void)
{
    zk = zookeeper_start(NULL);
    const struct suite_test tests[] = {
        SUITE_TEST(one_broker_starts_makes_a_topic_leads_it_and_stops),
        SUITE_TEST(second_broker_with_the_same_id_refuses_and_the_first_does_not_notice),
        SUITE_TEST(second_process_on_a_data_directory_is_refused),
        SUITE_TEST(another_brokers_directory_is_refused_and_stays_clean),
        SUITE_TEST(the_lock_does_not_wait_for_zookeeper),
        SUITE_TEST_SLOW(expired_session_is_followed_by_a_new_registration_in_the_same_process, 60),
        SUITE_TEST(entry_removed_by_hand_comes_back),
        SUITE_TEST(killed_broker_registers_again_at_once),
        SUITE_TEST(partitions_are_spread_and_every_view_agrees),
        SUITE_TEST(requests_that_can_not_be_are_refused_with_a_reason),
        SUITE_TEST(replication_and_settings_are_checked_before_anything_is_written),
        SUITE_TEST(topic_written_by_hand_is_led_and_can_be_grown_and_deleted),
        SUITE_TEST(creation_that_stopped_half_way_is_completed_or_can_be_begun_again),
        SUITE_TEST(dead_brokers_partitions_wait_for_it_and_others_are_not_touched),
        SUITE_TEST(epoch_of_an_earlier_life_is_not_led_again),
        SUITE_TEST(stale_controllers_write_is_refused_and_it_resigns),
        SUITE_TEST(deleted_topic_leaves_nothing_and_its_name_can_be_used_again),
        SUITE_TEST(topic_deleted_while_a_broker_is_down_is_removed_when_it_comes_back),
        SUITE_TEST(directory_that_nobody_deleted_is_set_aside),
        SUITE_TEST_SLOW(twenty_controllers_later_everything_is_as_requested, 120),
        SUITE_TEST_SLOW(zookeeper_away_for_less_than_a_session_changes_nothing, 60),
        SUITE_TEST_SLOW(zookeeper_away_for_longer_than_a_session_stops_change_only, 60),
        SUITE_TEST_SLOW(stop_is_bounded_and_clean_while_zookeeper_hangs, 60),
        SUITE_TEST_SLOW(another_cluster_behind_the_same_address_is_not_joined, 60),
        SUITE_TEST_SLOW(start_waits_for_a_zookeeper_that_is_not_there_yet, 60),
        SUITE_TEST_SLOW(stop_in_the_middle_of_retention_is_clean, 60),
        SUITE_TEST_SLOW(state_that_can_not_be_written_does_not_hold_up_others, 60),
        SUITE_TEST(clean_stop_is_named_at_the_next_registration),
    };
    int r = suite_run("cluster/cluster_thread", tests, sizeof tests / sizeof tests[0]);
    zookeeper_stop(zk);
    return r;
}
