/* What is said of partitions without a leader, and of znodes that make no sense. */
#include "broker/cluster/leaderless.h"
#include "broker/cluster/unreadable.h"
#include "tests/support/suite.h"

#include <stdio.h>
#include <string.h>

static char text[LEADERLESS_TEXT_BYTES];

/* Brokers `alive` (digits), each of broker epoch 5, of a partition on 1,2,3. */
static const char *explain(const struct znode_state *state, const char *alive, const char *offline, bool is_durable)
{
    static int32_t brokers[] = {1, 2, 3};
    struct znode_replicas replicas = {brokers, 3};
    struct controller_broker list[3];
    struct controller_brokers all = {list, 0};
    int32_t down[3];
    struct controller_case c = {.replicas = &replicas, .state = state, .alive = &all, .is_durable = is_durable,
                                .offline = down};
    for (; *alive; alive++)
        list[all.count++] = (struct controller_broker){
            .broker_id = *alive - '0', .broker_epoch = 5, .clean_from = -1, .disk_from = 4};
    for (; *offline; offline++)
        down[c.offline_count++] = *offline - '0';
    return leaderless_explain(&c, text);
}

START_TEST(who_is_waited_for_is_named)
{
    struct znode_state state = {.leader = -1, .leader_epoch = 3, .isr_count = 1, .isr = {2}, .isr_epochs = {4}};
    ck_assert_str_eq(explain(&state, "13", "", false), "waits for broker 2 (in sync, not running)");
    ck_assert_str_eq(explain(&state, "13", "3", false),
                     "waits for broker 2 (in sync, not running); the log is offline on broker 3");
    ck_assert_str_eq(explain(&state, "2", "", false),
                     "broker 2 compares logs: all that were in sync were stopped uncleanly; brokers 1,3, not running, may "
                     "have more and are waited for for a while");
    ck_assert_str_eq(explain(&state, "123", "", true), "waits for the controller"); /* its disk is the one that was there */
    state.isr_count = 2;
    state.isr[1] = 3;
    state.isr_epochs[1] = 4;
    ck_assert_str_eq(explain(&state, "1", "", false), "waits for brokers 2,3 (in sync, not running)");
    ck_assert_str_eq(explain(&state, "13", "", false),
                     "waits for broker 2 (in sync, not running); broker 3, in sync before, was stopped uncleanly and may lack "
                     "records");
    ck_assert_str_eq(explain(&state, "23", "", false),
                     "brokers 2,3 compare their logs: all that were in sync were stopped uncleanly; broker 1, not running, may "
                     "have more and is waited for for a while");
    ck_assert_str_eq(explain(&state, "123", "", false),
                     "brokers 1,2,3 compare their logs: all that were in sync were stopped uncleanly");
    ck_assert_str_eq(explain(NULL, "", "", false), "not made yet: waits for brokers 1,2,3 (not running)");
    ck_assert_str_eq(explain(NULL, "1", "", false), "not made yet: waits for the controller");
    state.leader = 2;
    ck_assert_str_eq(explain(&state, "123", "", false), "");
}
END_TEST

START_TEST(however_much_there_is_to_say_it_fits)
{
    int32_t brokers[ZNODE_REPLICAS_MAX];
    struct znode_replicas replicas = {brokers, ZNODE_REPLICAS_MAX};
    struct controller_brokers none = {0};
    struct znode_state state = {.leader = -1, .isr_count = ZNODE_REPLICAS_MAX};
    for (int32_t i = 0; i < ZNODE_REPLICAS_MAX; i++)
        state.isr[i] = brokers[i] = 2147483000 + i;
    struct controller_case c = {.replicas = &replicas, .state = &state, .alive = &none, .offline = brokers,
                                .offline_count = ZNODE_REPLICAS_MAX};
    memset(text, 'x', sizeof text);
    leaderless_explain(&c, text);
    ck_assert_uint_lt(strnlen(text, sizeof text), sizeof text);
}
END_TEST

START_TEST(a_node_is_said_once_and_again_when_the_reason_changes)
{
    struct unreadable all = {0};
    ck_assert(unreadable_put(&all, "/brokers/topics/t/partitions/0/state", "t", 0, "no JSON"));
    ck_assert(!unreadable_put(&all, "/brokers/topics/t/partitions/0/state", "t", 0, "no JSON"));
    ck_assert(unreadable_put(&all, "/brokers/topics/t/partitions/0/state", "t", 0, "no leader"));
    ck_assert(unreadable_put(&all, "/brokers/ids/7", NULL, -1, "no host"));
    ck_assert_uint_eq(all.count, 2);
    ck_assert_str_eq(all.list[0].path, "/brokers/ids/7");
    ck_assert_str_eq(all.list[1].reason, "no leader");
    ck_assert(!unreadable_has_topic(&all, "t"));
    ck_assert(unreadable_put(&all, "/brokers/topics/t", "t", -1, "no partitions"));
    ck_assert(unreadable_has_topic(&all, "t"));
    ck_assert(unreadable_clear(&all, "/brokers/topics/t"));
    ck_assert(!unreadable_clear(&all, "/brokers/topics/t"));
    ck_assert_uint_eq(unreadable_forget_topic(&all, "t"), 1);
    ck_assert_uint_eq(all.count, 1);
    unreadable_done(&all);
}
END_TEST

START_TEST(nodes_that_are_gone_are_forgotten_with_the_list_of_children)
{
    struct unreadable all = {0};
    const char *children[] = {"1", "x"};
    unreadable_put(&all, "/brokers/ids/x", NULL, -1, "not a number");
    unreadable_put(&all, "/brokers/ids/7", NULL, -1, "no host");
    unreadable_put(&all, "/brokers/ids/7/deep", NULL, -1, "not a child");
    unreadable_put(&all, "/brokers/idsx", NULL, -1, "nor this");
    ck_assert_uint_eq(unreadable_keep_children(&all, "/brokers/ids", children, 2), 1);
    ck_assert_uint_eq(all.count, 3);
    ck_assert(!unreadable_clear(&all, "/brokers/ids/7"));
    for (int i = 0; i < UNREADABLE_MAX + 5; i++) {
        char path[40];
        snprintf(path, sizeof path, "/many/%d", i);
        unreadable_put(&all, path, NULL, -1, "bad");
    }
    ck_assert_uint_eq(all.count, UNREADABLE_MAX);
    unreadable_done(&all);
}
END_TEST

SUITE_MAIN("unit/cluster/explain", SUITE_TEST(who_is_waited_for_is_named),
           SUITE_TEST(however_much_there_is_to_say_it_fits),
           SUITE_TEST(a_node_is_said_once_and_again_when_the_reason_changes),
           SUITE_TEST(nodes_that_are_gone_are_forgotten_with_the_list_of_children))
