/* Groups against a real ZooKeeper: handing over, committing, and members that restart under their name. */
#include "proto/base/err.h"
#include "tests/unit/client/group_fixture.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static long packets_of_a_death(const char *chroot, int members, int32_t partitions)
{
    struct fixture f;
    struct peer *peers[10];
    fixture_init(&f, chroot);
    fixture_topic(&f, 0, partitions, false);
    for (int i = 0; i < members; i++)
        peers[i] = peer_new(&f, NULL);
    peers_settle(peers, members, 0, partitions, PATIENCE_MS);
    long before = fixture_packets();
    peer_kill(peers[members - 1]);
    peers_settle(peers, members - 1, 0, partitions, PATIENCE_MS);
    long packets = fixture_packets() - before;
    for (int i = 0; i < members - 1; i++)
        ck_assert_int_eq(peer_leave(peers[i], GROUP_LEAVE), 0);
    fixture_done(&f);
    return packets;
}

/* ZS-13: what moves is read by its new owner; nothing is read by everybody for each partition. */
START_TEST(reads_of_a_change_grow_with_members_not_with_members_times_partitions)
{
    enum { MEMBERS = 8 };
    long few = packets_of_a_death("/few", MEMBERS, MEMBERS);
    long many = packets_of_a_death("/many", MEMBERS, 10 * MEMBERS);
    fprintf(stderr, "# %ld requests with 1 partition a member, %ld with 10\n", few, many);
    /* Nine more partitions moved. Each costs its new owner a handful of requests; if every member read every
     * partition, it were 8 * 72 more. */
    ck_assert_int_le(many - few, 9 * 12);
}
END_TEST

static bool offset_is_committed(void *arg)
{
    return fixture_offset(arg, 0, 0) == 42;
}

START_TEST(owner_commits_and_whoever_is_not_is_fenced)
{
    struct fixture f;
    struct peer *peers[2];
    fixture_init(&f, "/commit");
    fixture_topic(&f, 0, 1, false);
    peers[0] = peer_new(&f, NULL);
    peers_settle(peers, 1, 0, 1, PATIENCE_MS);
    ck_assert_int_eq(peer_offset(peers[0], 0, 0), BROOK_OFFSET_NONE);
    ck_assert_int_eq(peer_commit(peers[0], 0, 0, 0), 0);
    ck_assert_int_eq(fixture_offset(&f, 0, 0), 0);
    ck_assert_int_eq(peer_commit(peers[0], 0, 0, 42), 0);
    ck_assert(offset_is_committed(&f));
    ck_assert_int_eq(peer_commit(peers[0], 0, 5, 1), -BROOK_E_FENCED);
    peers[1] = peer_new(&f, NULL);
    /* One partition, two members: the second has nothing, and may commit nothing. */
    peers_settle(peers, 2, 0, 1, PATIENCE_MS);
    ck_assert_int_eq(peer_commit(peers[1], 0, 0, 1), -BROOK_E_FENCED);
    ck_assert_int_eq(peer_leave(peers[0], GROUP_LEAVE), 0);
    peers_settle(peers + 1, 1, 0, 1, PATIENCE_MS);
    ck_assert_int_eq(peer_offset(peers[1], 0, 0), 42);
    ck_assert_int_eq(peer_leave(peers[1], GROUP_LEAVE), 0);
    fixture_done(&f);
}
END_TEST

static bool has_drained(void *arg)
{
    struct peer *p = arg;
    return p->revoked == 1;
}

/* CG-14 */
START_TEST(last_offset_is_committed_before_the_partition_is_handed_over)
{
    struct fixture f;
    struct peer *peers[2];
    struct peer_options slow = {.drain_ms = -1};
    fixture_init(&f, "/handover");
    fixture_topic(&f, 0, 2, false);
    peers[0] = peer_new(&f, &slow);
    peers_settle(peers, 1, 0, 2, PATIENCE_MS);
    peers[1] = peer_new(&f, NULL);
    ck_assert(suite_wait(has_drained, peers[0], PATIENCE_MS));
    int moving = peer_delivers(peers[0], 0, 0) ? 1 : 0;
    /* While it drains it is nobody else's, and may still be committed. */
    ck_assert(!peer_delivers(peers[1], 0, moving));
    ck_assert_int_eq(peer_commit(peers[0], 0, moving, 10), 0);
    peer_let_go(peers[0], 99);
    peers_settle(peers, 2, 0, 2, PATIENCE_MS);
    ck_assert_int_eq(peer_offset(peers[1], 0, moving), 99);
    ck_assert_int_eq(peer_commit(peers[0], 0, moving, 100), -BROOK_E_FENCED);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(peer_leave(peers[i], GROUP_LEAVE), 0);
    fixture_done(&f);
}
END_TEST

/* CG-01, CG-09: the application never lets go; the partition moves all the same, and the claim waits as
 * long. */
START_TEST(application_that_holds_on_delays_its_share_by_the_drain_time_and_no_longer)
{
    struct fixture f;
    struct peer *peers[2];
    struct peer_options stuck = {.drain_ms = -1, .settings = {"rebalance.drain.ms", "1500"}};
    fixture_init(&f, "/stuck");
    fixture_topic(&f, 0, 4, false);
    peers[0] = peer_new(&f, &stuck);
    peers_settle(peers, 1, 0, 4, PATIENCE_MS);
    peers[1] = peer_new(&f, NULL);
    int64_t took = peers_settle(peers, 2, 0, 4, PATIENCE_MS);
    ck_assert_int_le(took, 1500 + 2 * SECOND_MS);
    ck_assert_int_eq(peers[0]->hurried, 2);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(peer_leave(peers[i], GROUP_LEAVE), 0);
    fixture_done(&f);
}
END_TEST

static void restart_static(struct fixture *f, bool killed)
{
    char directory[512];
    snprintf(directory, sizeof directory, "%s", suite_directory());
    struct peer_options options = {.settings = {"group.instance.id", "one", "state.dir", directory}};
    struct peer *peers[2];
    fixture_topic(f, 0, 4, false);
    peers[0] = peer_new(f, &options);
    peers[1] = peer_new(f, NULL);
    peers_settle(peers, 2, 0, 4, PATIENCE_MS);
    int32_t version = fixture_assignment_version(f);
    int32_t mine = peer_delivers(peers[0], 0, 0) ? 0 : peer_delivers(peers[0], 0, 1) ? 1 : 2;
    ck_assert_int_eq(peer_commit(peers[0], 0, mine, 5), 0);
    int assigned = peers[1]->assigned;
    if (killed)
        peer_kill(peers[0]);
    else
        ck_assert_int_eq(peer_leave(peers[0], GROUP_LEAVE_FOR_RESTART), 0);
    peers[0] = peer_new(f, &options);
    peers_settle(peers, 2, 0, 4, FIXTURE_TIMEOUT_MS - 500);
    ck_assert(peer_delivers(peers[0], 0, mine));
    ck_assert_int_eq(peer_offset(peers[0], 0, mine), 5);
    ck_assert_int_eq(peer_commit(peers[0], 0, mine, 6), 0);
    ck_assert_int_eq(peers[1]->assigned, assigned);
    ck_assert_int_eq(peers[1]->revoked, 0);
    ck_assert_int_eq(fixture_assignment_version(f), version);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(peer_leave(peers[i], GROUP_LEAVE), 0);
}

START_TEST(static_member_that_is_killed_and_restarts_in_time_moves_nobody)
{
    struct fixture f;
    fixture_init(&f, "/static1");
    restart_static(&f, true);
    fixture_done(&f);
}
END_TEST

START_TEST(static_member_that_stops_to_resume_moves_nobody)
{
    struct fixture f;
    fixture_init(&f, "/static2");
    restart_static(&f, false);
    fixture_done(&f);
}
END_TEST

static void try_group(void *arg)
{
    struct brook_error error = {0};
    struct group *group;
    struct group_events events = {0};
    int err = group_new(*(struct client **)arg, &events, &group, &error);
    ck_assert_int_eq(err, -BROOK_E_LOCKED);
}

START_TEST(state_dir_serves_one_process_at_a_time)
{
    struct fixture f;
    fixture_init(&f, "/locked");
    fixture_topic(&f, 0, 1, false);
    struct peer_options options = {.settings = {"group.instance.id", "one", "state.dir", suite_directory()}};
    struct peer *peer = peer_new(&f, &options);
    peers_settle(&peer, 1, 0, 1, PATIENCE_MS);
    struct client *client;
    ck_assert_int_eq(client_new(client_config(peer->client), 1 << 20, &client, NULL), 0);
    client_call(client, try_group, &client);
    client_free(client);
    ck_assert_int_eq(peer_leave(peer, GROUP_LEAVE), 0);
    fixture_done(&f);
}
END_TEST

static bool is_locked_out(void *arg)
{
    struct peer *p = arg;
    pthread_mutex_lock(&p->lock);
    bool failed = p->failure.code == BROOK_E_LOCKED && strstr(p->failure.text, "session 0x");
    pthread_mutex_unlock(&p->lock);
    return failed;
}

START_TEST(second_member_of_one_instance_id_waits_says_whose_it_is_and_takes_over_later)
{
    struct fixture f;
    struct peer *peers[2];
    char directory[512];
    fixture_init(&f, "/rival");
    fixture_topic(&f, 0, 1, false);
    struct peer_options first = {.settings = {"group.instance.id", "one", "state.dir", suite_directory()}};
    peers[0] = peer_new(&f, &first);
    peers_settle(peers, 1, 0, 1, PATIENCE_MS);
    snprintf(directory, sizeof directory, "%s/other", suite_directory());
    ck_assert_int_eq(mkdir(directory, 0700), 0);
    struct peer_options second = {.settings = {"group.instance.id", "one", "state.dir", directory}};
    peers[1] = peer_new(&f, &second);
    ck_assert(suite_wait(is_locked_out, peers[1], FIXTURE_TIMEOUT_MS + 8000));
    ck_assert(peer_delivers(peers[0], 0, 0));
    ck_assert_int_eq(peer_leave(peers[0], GROUP_LEAVE), 0);
    peers_settle(peers + 1, 1, 0, 1, PATIENCE_MS);
    ck_assert_int_eq(peer_leave(peers[1], GROUP_LEAVE), 0);
    fixture_done(&f);
}
END_TEST

int main(void)
{
    const struct suite_test all[] = {
        SUITE_TEST_SLOW(reads_of_a_change_grow_with_members_not_with_members_times_partitions, 60),
        SUITE_TEST(owner_commits_and_whoever_is_not_is_fenced),
        SUITE_TEST(last_offset_is_committed_before_the_partition_is_handed_over),
        SUITE_TEST(application_that_holds_on_delays_its_share_by_the_drain_time_and_no_longer),
        SUITE_TEST(static_member_that_is_killed_and_restarts_in_time_moves_nobody),
        SUITE_TEST(static_member_that_stops_to_resume_moves_nobody),
        SUITE_TEST(state_dir_serves_one_process_at_a_time),
        SUITE_TEST_SLOW(second_member_of_one_instance_id_waits_says_whose_it_is_and_takes_over_later, 40),
    };
    fixture_zk = zookeeper_start(NULL);
    int failed = suite_run("client/group_handover", all, sizeof all / sizeof all[0]);
    zookeeper_stop(fixture_zk);
    return failed;
}
