/* What it costs to take a broker that died out of those in sync, when it was in sync in hundreds of partitions: a few
 * transactions and notifications, each of which every broker has to read, and not one for each partition. */
#include "tests/cluster/node.h"

#include "coordination/znodes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTITIONS 300
#define DEAD 3

static struct zookeeper *zk;

#define MARK "/brokers/topics/t/id_AAAAAAAAAAAAAAAAAAAAAQ"

/* Node, replicas in turn: each broker leads a third. */
static void make_topic(struct world *w)
{
    char text[PARTITIONS * 24 + 200];
    size_t at = (size_t)snprintf(text, sizeof text,
                                 "{\"version\":3,\"topic_id\":\"AAAAAAAAAAAAAAAAAAAAAQ\",\"marked\":true,\"partitions\":{");
    for (int i = 0; i < PARTITIONS; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s\"%d\":[%d,%d,%d]", i ? "," : "", i, i % 3 + 1,
                               (i + 1) % 3 + 1, (i + 2) % 3 + 1);
    snprintf(text + at, sizeof text - at, "}}");
    ck_assert_int_eq(admin_create(w, "/brokers/topics/t", text), 0);
    ck_assert_int_eq(admin_create(w, MARK, ""), 0);
}

static bool has(const struct view_partition *p, int32_t broker_id)
{
    for (int32_t i = 0; i < p->isr_count; i++)
        if (p->isr[i] == broker_id)
            return true;
    return false;
}

static int count_in_sync(const struct node *n, int32_t broker_id)
{
    const struct view_topic *t = node_topic(n, "t");
    int count = 0;
    for (int32_t i = 0; t && i < t->partitions_count; i++)
        count += t->partitions[i].leader >= 0 && has(&t->partitions[i], broker_id);
    return count;
}

static int count_led(const struct node *n, int32_t broker_id)
{
    const struct view_topic *t = node_topic(n, "t");
    int count = 0;
    for (int32_t i = 0; t && i < t->partitions_count; i++)
        count += t->partitions[i].leader == broker_id;
    return count;
}

/* Whoever opens its log looks at once what is due, and another little later. */
static bool all_are_open(const struct node *n)
{
    const struct view_topic *t = node_topic(n, "t");
    for (int32_t i = 0; t && i < t->partitions_count; i++)
        if (!t->partitions[i].local)
            return false;
    return t;
}

static bool all_are_in_sync(void *arg)
{
    struct world *w = arg;
    for (int32_t id = 1; id <= 3; id++)
        if (!all_are_open(world_node(w, id)))
            return false;
    for (int32_t id = 1; id <= 3; id++)
        for (int32_t of = 1; of <= 3; of++)
            if (count_in_sync(world_node(w, id), of) != PARTITIONS)
                return false;
    return true;
}

static bool dead_one_is_in_sync_nowhere(void *arg)
{
    struct world *w = arg;
    return count_in_sync(world_node(w, 1), DEAD) == 0 && count_in_sync(world_node(w, 2), DEAD) == 0 &&
           count_in_sync(world_node(w, 1), 2) == PARTITIONS;
}

static int64_t newest_change(struct world *w)
{
    const struct got *got = admin_children(w, PATH_CHANGES);
    ck_assert_int_eq(got->err, 0);
    if (got->children_count > CALLER_CHILDREN_MAX)
        ck_abort_msg("%zu notifications are there", got->children_count);
    return got->children_count ? path_sequence(got->children[got->children_count - 1]) : -1;
}

/* Requests and pings that ZooKeeper has received. */
static long packets_received(void)
{
    char answer[8192];
    ck_assert_int_gt(zookeeper_ask(zk, "mntr", answer, sizeof answer, 5000), 0);
    const char *at = strstr(answer, "zk_packets_received\t");
    ck_assert_ptr_nonnull(at);
    return strtol(strchr(at, '\t'), NULL, 10);
}

static void start(struct world *w)
{
    for (int32_t id = 1; id <= 3; id++) {
        node_start(w, world_node(w, id));
        node_wait_ready(w, world_node(w, id));
    }
    make_topic(w);
    world_wait(w, all_are_in_sync, w);
}

START_TEST(dead_broker_is_taken_out_of_hundreds_of_partitions_at_once)
{
    struct world *w = world_begin(zk, "/dead");
    start(w);
    int64_t before = newest_change(w);
    long packets = packets_received();
    node_drop(w, world_node(w, DEAD));
    world_wait(w, dead_one_is_in_sync_nowhere, w);
    packets = packets_received() - packets;
    int64_t changes = newest_change(w) - before;
    /* At best: one of the controller, and two of each leader. A turn may come with less than all. */
    ck_assert_msg(changes <= 40, "%" PRId64 " notifications for %d partitions", changes, PARTITIONS);
    /* Nobody reads what the notifications quote: that would be a request for each partition, broker and change. */
    ck_assert_msg(packets < PARTITIONS, "%ld requests for %d partitions", packets, PARTITIONS);
    world_end(w);
}
END_TEST

/* A partition whose state somebody else wrote, unannounced, in the midst of the others. */
START_TEST(one_stale_version_holds_up_no_other_partition)
{
    struct world *w = world_begin(zk, "/stale");
    start(w);
    for (int i = 0; i < PARTITIONS; i += 60) {
        struct path path;
        char text[sizeof((struct got *)0)->data];
        const struct got *got = admin_get(w, path_partition_state(&path, "t", i));
        ck_assert_int_eq(got->err, 0);
        snprintf(text, sizeof text, "%s", got->data);
        ck_assert_int_eq(admin_set(w, path.text, text, -1), 0);
    }
    node_drop(w, world_node(w, DEAD));
    world_wait(w, dead_one_is_in_sync_nowhere, w);
    world_end(w);
}
END_TEST

static bool dead_one_is_gone(void *arg)
{
    struct world *w = arg;
    struct path path;
    return admin_get(w, path_broker_id(&path, DEAD))->err == -BROOK_E_NO_NODE;
}

static bool other_topic_is_led(void *arg)
{
    const struct view_topic *t = node_topic(world_node(arg, 1), "u");
    return t && t->partitions[0].leader >= 0;
}

/* Versions begin anew with a topic of the same name: what a leader, or the controller, meant for the one before must not
 * be written. Here the mark of the topic is another's, and nobody has been told. */
START_TEST(nothing_is_written_into_another_topic_of_the_same_name)
{
    struct world *w = world_begin(zk, "/marks");
    start(w);
    ck_assert_int_eq(admin_delete(w, MARK), 0);
    node_drop(w, world_node(w, DEAD));
    world_wait(w, dead_one_is_gone, w);
    /* The controller does what else there is to do. */
    ck_assert_int_eq(admin_create(w, "/brokers/topics/u",
                                  "{\"version\":3,\"topic_id\":\"AAAAAAAAAAAAAAAAAAAAAg\",\"partitions\":{\"0\":[1,2]}}"),
                     0);
    world_wait(w, other_topic_is_led, w);
    ck_assert_int_eq(count_in_sync(world_node(w, 1), DEAD), PARTITIONS); /* no leader's change */
    ck_assert_int_eq(count_led(world_node(w, 1), DEAD), PARTITIONS / 3); /* and no election */
    ck_assert_int_eq(admin_create(w, MARK, ""), 0);
    world_wait(w, dead_one_is_in_sync_nowhere, w);
    world_end(w);
}
END_TEST

int main(void)
{
    const struct suite_test tests[] = {
        SUITE_TEST_SLOW(dead_broker_is_taken_out_of_hundreds_of_partitions_at_once, 60),
        SUITE_TEST_SLOW(one_stale_version_holds_up_no_other_partition, 60),
        SUITE_TEST_SLOW(nothing_is_written_into_another_topic_of_the_same_name, 120),
    };
    zk = zookeeper_start(NULL);
    int r = suite_run("cluster/isr_writes", tests, sizeof tests / sizeof tests[0]);
    zookeeper_stop(zk);
    return r;
}
