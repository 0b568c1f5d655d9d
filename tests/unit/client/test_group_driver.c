/* Groups against a real ZooKeeper: joining, leaving, topics, polling. */
#include "config.h"
#include "coordination/paths.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "tests/unit/client/group_fixture.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static int sum_revoked(struct peer **peers, int count)
{
    int sum = 0;
    for (int i = 0; i < count; i++)
        sum += peers[i]->revoked;
    return sum;
}

START_TEST(joins_and_polite_leaves_take_less_than_a_second_and_pause_nothing_that_stays)
{
    enum { PARTITIONS = 12 };
    struct fixture f;
    struct peer *peers[4];
    fixture_init(&f, "/join");
    fixture_topic(&f, 0, PARTITIONS, false);
    for (int i = 0; i < 4; i++) {
        peers[i] = peer_new(&f, NULL);
        int64_t took = peers_settle(peers, i + 1, 0, PARTITIONS, PATIENCE_MS);
        fprintf(stderr, "# join %d took %lld ms\n", i, (long long)took);
        ck_assert_int_le(took, SECOND_MS);
    }
    /* 12, 6 + 6, 4 + 4 + 4, 3 + 3 + 3 + 3: the fewest moves, and nothing else was touched. */
    ck_assert_int_eq(sum_revoked(peers, 4), 6 + 4 + 3);
    int before = sum_revoked(peers, 3);
    int64_t begin = clock_boot_ms();
    ck_assert_int_eq(peer_leave(peers[3], GROUP_LEAVE), 0);
    peers_settle(peers, 3, 0, PARTITIONS, PATIENCE_MS);
    int64_t took = clock_boot_ms() - begin;
    fprintf(stderr, "# leave took %lld ms\n", (long long)took);
    ck_assert_int_le(took, SECOND_MS);
    ck_assert_int_eq(sum_revoked(peers, 3), before);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(peer_leave(peers[i], GROUP_LEAVE), 0);
    fixture_done(&f);
}
END_TEST

START_TEST(leaving_takes_registration_and_owner_nodes_away)
{
    struct fixture f;
    struct path path;
    char id[160];
    fixture_init(&f, "/leave");
    fixture_topic(&f, 0, 2, false);
    struct peer *peer = peer_new(&f, NULL);
    peers_settle(&peer, 1, 0, 2, PATIENCE_MS);
    peer_member_id(peer, id, sizeof id);
    ck_assert(fixture_exists(&f, path_group_member(&path, "g", id)));
    ck_assert(fixture_exists(&f, path_owner(&path, "g", "alpha", 1)));
    ck_assert_int_eq(peer_leave(peer, GROUP_LEAVE), 0);
    ck_assert(!fixture_exists(&f, path_group_member(&path, "g", id)));
    ck_assert(!fixture_exists(&f, path_owner(&path, "g", "alpha", 0)));
    ck_assert(!fixture_exists(&f, path_owner(&path, "g", "alpha", 1)));
    fixture_done(&f);
}
END_TEST

/* CG-08, and CG-02: whatever the churn, at the end everything is owned once. */
START_TEST(churn_of_subscriptions_and_members_ends_with_everything_owned_once)
{
    enum { PARTITIONS = 6, ROUNDS = 40 };
    static const struct peer_options options[] = {{.topics = {"alpha"}},
                                                  {.topics = {"beta"}},
                                                  {.topics = {"alpha", "beta"}},
                                                  {.pattern = "[ab].*"}};
    struct fixture f;
    struct peer *peers[3];
    uint64_t random = suite_seed();
    fixture_init(&f, "/churn");
    fixture_topic(&f, 0, PARTITIONS, false);
    fixture_topic(&f, 1, PARTITIONS, false);
    for (int i = 0; i < 3; i++)
        peers[i] = peer_new(&f, &options[2]);
    for (int i = 0; i < ROUNDS; i++) {
        struct peer **p = &peers[suite_random_below(&random, 3)];
        if (suite_random_below(&random, 4) == 0) {
            ck_assert_int_eq(peer_leave(*p, GROUP_LEAVE), 0);
            *p = peer_new(&f, &options[2]);
        } else {
            peer_subscribe(*p, &options[suite_random_below(&random, 4)]);
        }
        struct timespec pause = {.tv_nsec = (long)suite_random_below(&random, 40) * 1000000};
        nanosleep(&pause, NULL);
    }
    for (int i = 0; i < 3; i++)
        peer_subscribe(peers[i], &options[2]);
    peers_settle(peers, 3, 0, PARTITIONS, PATIENCE_MS);
    peers_settle(peers, 3, 1, PARTITIONS, PATIENCE_MS);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(peer_leave(peers[i], GROUP_LEAVE), 0);
    fixture_done(&f);
}
END_TEST

/* CG-10 */
START_TEST(members_that_start_together_agree_in_few_rounds)
{
    enum { MEMBERS = 10, PARTITIONS = 20 };
    struct fixture f;
    struct peer *peers[MEMBERS];
    fixture_init(&f, "/storm");
    fixture_topic(&f, 0, PARTITIONS, false);
    for (int i = 0; i < MEMBERS; i++)
        peers[i] = peer_new(&f, NULL);
    peers_settle(peers, MEMBERS, 0, PARTITIONS, PATIENCE_MS);
    fprintf(stderr, "# %d assignments for %d members\n", fixture_assignment_version(&f) + 1, MEMBERS);
    ck_assert_int_le(fixture_assignment_version(&f) + 1, MEMBERS);
    for (int i = 0; i < MEMBERS; i++)
        ck_assert_int_eq(peer_leave(peers[i], GROUP_LEAVE), 0);
    fixture_done(&f);
}
END_TEST

START_TEST(member_that_does_not_poll_gives_up_its_share_and_comes_back_with_the_next_poll)
{
    struct peer_options options = {.settings = {"max.poll.interval.ms", "1000", "rebalance.drain.ms", "400"}};
    struct fixture f;
    struct peer *peers[2];
    fixture_init(&f, "/away");
    fixture_topic(&f, 0, 4, false);
    peers[0] = peer_new(&f, &options);
    peers[1] = peer_new(&f, NULL);
    peers_settle(peers, 2, 0, 4, PATIENCE_MS);
    group_poll_end(peers[0]->group);
    peers_settle(peers + 1, 1, 0, 4, PATIENCE_MS);
    ck_assert_int_eq(peer_count(peers[0], 0), 0);
    group_poll_begin(peers[0]->group);
    peers_settle(peers, 2, 0, 4, PATIENCE_MS);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(peer_leave(peers[i], GROUP_LEAVE), 0);
    fixture_done(&f);
}
END_TEST

static void follow_topics(const char *chroot, const struct peer_options *options)
{
    struct fixture f;
    struct peer *peers[2];
    struct path path;
    fixture_init(&f, chroot);
    for (int i = 0; i < 2; i++)
        peers[i] = peer_new(&f, options);
    fixture_topic(&f, 0, 2, false);
    peers_settle(peers, 2, 0, 2, PATIENCE_MS);
    fixture_topic(&f, 0, 7, false);
    peers_settle(peers, 2, 0, 7, PATIENCE_MS);
    /* Another topic of the same name: everything is claimed anew. */
    int assigned = peers[0]->assigned + peers[1]->assigned;
    fixture_topic(&f, 0, 7, true);
    struct peer_gone gone;
    for (int i = 0; i < 2; i++) {
        gone = (struct peer_gone){peers[i], 1};
        ck_assert(suite_wait(peer_has_lost, &gone, PATIENCE_MS));
    }
    peers_settle(peers, 2, 0, 7, PATIENCE_MS);
    ck_assert_int_eq(peers[0]->assigned + peers[1]->assigned, assigned + 7);
    fixture_delete(&f, path_topic(&path, "alpha"));
    for (int i = 0; i < 2; i++) {
        gone.p = peers[i];
        ck_assert(suite_wait(peer_delivers_nothing, &gone, PATIENCE_MS));
    }
    fixture_topic(&f, 0, 3, true);
    peers_settle(peers, 2, 0, 3, PATIENCE_MS);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(peer_leave(peers[i], GROUP_LEAVE), 0);
    fixture_done(&f);
}

START_TEST(named_topic_that_appears_grows_is_remade_and_vanishes_is_followed)
{
    follow_topics("/names", NULL);
}
END_TEST

START_TEST(topics_of_an_expression_are_followed_and_others_are_not)
{
    struct peer_options options = {.pattern = "al.*|gamma"};
    struct fixture f;
    follow_topics("/pattern", &options);
    fixture_init(&f, "/pattern2");
    struct peer *peer = peer_new(&f, &options);
    fixture_topic(&f, 1, 1, false);
    fixture_topic(&f, 2, 1, false);
    peers_settle(&peer, 1, 2, 1, PATIENCE_MS);
    ck_assert_int_eq(peer_count(peer, 1), 0);
    ck_assert_int_eq(peer_leave(peer, GROUP_LEAVE), 0);
    fixture_done(&f);
}
END_TEST

START_TEST(subscriptions_are_checked_at_once)
{
    struct brook_error error;
    const char *bad[] = {"alpha", "no/topic"};
    ck_assert_int_eq(group_check_topics(bad, 2, &error), -BROOK_E_ILLEGAL_NAME);
    ck_assert_int_eq(group_check_topics(bad, 1, &error), 0);
    ck_assert_int_eq(group_check_topics(bad, 0, &error), -BROOK_E_INVALID);
    ck_assert_int_eq(group_check_pattern("a(b", &error), -BROOK_E_INVALID);
    ck_assert_ptr_nonnull(strstr(error.text, "character"));
    ck_assert_int_eq(group_check_pattern("", &error), -BROOK_E_INVALID);
    ck_assert_int_eq(group_check_pattern("orders-(?!test).*", &error), 0);
}
END_TEST

int main(void)
{
    const struct suite_test all[] = {
        SUITE_TEST(leaving_takes_registration_and_owner_nodes_away),
        SUITE_TEST_SLOW(churn_of_subscriptions_and_members_ends_with_everything_owned_once, 60),
        SUITE_TEST_SLOW(members_that_start_together_agree_in_few_rounds, 40),
        SUITE_TEST(member_that_does_not_poll_gives_up_its_share_and_comes_back_with_the_next_poll),
        SUITE_TEST(named_topic_that_appears_grows_is_remade_and_vanishes_is_followed),
        SUITE_TEST(topics_of_an_expression_are_followed_and_others_are_not),
        SUITE_TEST(subscriptions_are_checked_at_once),
        /* It is about time: when ZooKeeper is warm. */
        SUITE_TEST(joins_and_polite_leaves_take_less_than_a_second_and_pause_nothing_that_stays),
    };
    fixture_zk = zookeeper_start(NULL);
    int failed = suite_run("client/group_driver", all, sizeof all / sizeof all[0]);
    zookeeper_stop(fixture_zk);
    return failed;
}
