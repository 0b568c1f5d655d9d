/* Cluster threads while ZooKeeper comes and goes, that stop in the middle of something, and a disk or a node that refuses. */
#include "tests/cluster/node.h"

#include "broker/partition/partition.h"
#include "proto/base/clock.h"
#include "tests/support/batches.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

static struct zookeeper *zk;

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
    ck_assert_int_eq(node_create_with(w, n, &topic, false), 0);
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
        SUITE_TEST(clean_stop_is_named_at_the_next_registration),
        SUITE_TEST_SLOW(zookeeper_away_for_less_than_a_session_changes_nothing, 60),
        SUITE_TEST_SLOW(zookeeper_away_for_longer_than_a_session_stops_change_only, 60),
        SUITE_TEST_SLOW(stop_is_bounded_and_clean_while_zookeeper_hangs, 60),
        SUITE_TEST_SLOW(another_cluster_behind_the_same_address_is_not_joined, 60),
        SUITE_TEST_SLOW(start_waits_for_a_zookeeper_that_is_not_there_yet, 60),
        SUITE_TEST_SLOW(stop_in_the_middle_of_retention_is_clean, 60),
        SUITE_TEST_SLOW(state_that_can_not_be_written_does_not_hold_up_others, 60),
    };
    int r = suite_run("cluster/cluster_away", tests, sizeof tests / sizeof tests[0]);
    zookeeper_stop(zk);
    return r;
}
