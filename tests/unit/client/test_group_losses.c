/* Groups against a real ZooKeeper: what is lost, members, links, leases, sessions and nodes. */
#include "config.h"
#include "coordination/paths.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "tests/support/tcp_proxy.h"
#include "tests/unit/client/group_fixture.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* CG-02, CG-04: answers are lost in the middle of registrations, claims and releases, and sessions end. */
START_TEST(links_that_break_at_any_byte_leave_everything_owned_once)
{
    enum { PARTITIONS = 8, MEMBERS = 3, ROUNDS = 30 };
    struct fixture f;
    struct peer *peers[MEMBERS];
    struct tcp_proxy *links[MEMBERS];
    char connect[MEMBERS][100];
    uint64_t random = suite_seed();
    fixture_init(&f, "/links");
    fixture_topic(&f, 0, PARTITIONS, false);
    for (int i = 0; i < MEMBERS; i++) {
        links[i] = tcp_proxy_start(zookeeper_port(fixture_zk));
        snprintf(connect[i], sizeof connect[i], "127.0.0.1:%d/links", tcp_proxy_port(links[i]));
        struct peer_options options = {
            .settings = {"zookeeper.connect", connect[i], "rebalance.drain.ms", "500", "session.timeout.ms", "1000"}};
        peers[i] = peer_new(&f, &options);
    }
    for (int i = 0; i < ROUNDS; i++) {
        struct tcp_proxy *link = links[suite_random_below(&random, MEMBERS)];
        enum tcp_proxy_direction way = suite_random_below(&random, 2) ? TCP_PROXY_UP : TCP_PROXY_DOWN;
        tcp_proxy_cut_after(link, way, suite_random_below(&random, 2000), 0);
        if (i % 10 == 9) {
            tcp_proxy_set(link, TCP_PROXY_SWALLOW);
            struct timespec outage = {.tv_sec = 1, .tv_nsec = 400000000}; /* longer than the session */
            nanosleep(&outage, NULL);
            tcp_proxy_set(link, TCP_PROXY_PASS);
            tcp_proxy_cut(link);
        }
        /* Something to do for them: one more or one less. */
        struct peer *extra = peer_new(&f, NULL);
        struct timespec pause = {.tv_nsec = (long)suite_random_below(&random, 150) * 1000000};
        nanosleep(&pause, NULL);
        peers_share(peers, MEMBERS, 0, PARTITIONS);
        ck_assert_int_eq(peer_leave(extra, GROUP_LEAVE), 0);
    }
    peers_settle(peers, MEMBERS, 0, PARTITIONS, 2 * PATIENCE_MS);
    for (int i = 0; i < MEMBERS; i++) {
        ck_assert_int_eq(peer_leave(peers[i], GROUP_LEAVE), 0);
        tcp_proxy_stop(links[i]);
    }
    fixture_done(&f);
}
END_TEST

START_TEST(killed_members_partitions_are_read_within_timeout_tick_and_a_second)
{
    enum { PARTITIONS = 8 };
    struct fixture f;
    struct peer *peers[3];
    fixture_init(&f, "/kill");
    fixture_topic(&f, 0, PARTITIONS, false);
    for (int i = 0; i < 3; i++)
        peers[i] = peer_new(&f, NULL);
    peers_settle(peers, 3, 0, PARTITIONS, PATIENCE_MS);
    int64_t begin = clock_boot_ms();
    peer_kill(peers[2]);
    peers_settle(peers, 2, 0, PARTITIONS, PATIENCE_MS);
    int64_t took = clock_boot_ms() - begin;
    fprintf(stderr, "# take-over took %lld ms\n", (long long)took);
    ck_assert_int_le(took, FIXTURE_TIMEOUT_MS + TICK_MS + SECOND_MS);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(peer_leave(peers[i], GROUP_LEAVE), 0);
    fixture_done(&f);
}
END_TEST

START_TEST(lease_stops_delivery_at_half_and_takes_everything_at_its_end)
{
    struct fixture f;
    fixture_init(&f, "/lease");
    fixture_topic(&f, 0, 3, false);
    struct peer *peer = peer_new(&f, NULL);
    struct peer_gone gone = {peer, 3};
    peers_settle(&peer, 1, 0, 3, PATIENCE_MS);
    int64_t begin = clock_boot_ms();
    zookeeper_pause(fixture_zk);
    bool stopped = suite_wait(peer_delivers_nothing, &gone, FIXTURE_TIMEOUT_MS);
    int64_t half = clock_boot_ms() - begin;
    int lost_at_half = peer->lost;
    bool lost = suite_wait(peer_has_lost, &gone, FIXTURE_TIMEOUT_MS);
    int64_t whole = clock_boot_ms() - begin;
    zookeeper_continue(fixture_zk);
    fprintf(stderr, "# delivery stopped after %lld ms, all was lost after %lld ms\n", (long long)half,
            (long long)whole);
    ck_assert(stopped);
    ck_assert_int_eq(lost_at_half, 0);
    ck_assert_int_le(half, FIXTURE_TIMEOUT_MS / 2 + SECOND_MS / 4);
    ck_assert(lost);
    ck_assert_int_le(whole, FIXTURE_TIMEOUT_MS + SECOND_MS / 4);
    peers_settle(&peer, 1, 0, 3, PATIENCE_MS);
    ck_assert_int_eq(peer_leave(peer, GROUP_LEAVE), 0);
    fixture_done(&f);
}
END_TEST

START_TEST(continue_keeps_delivering_through_a_short_loss_of_the_lease)
{
    struct peer_options options = {.settings = {"group.on.lease.loss", "continue"}};
    struct fixture f;
    fixture_init(&f, "/continue");
    fixture_topic(&f, 0, 1, false);
    struct peer *peer = peer_new(&f, &options);
    struct peer_gone gone = {peer, 1};
    peers_settle(&peer, 1, 0, 1, PATIENCE_MS);
    zookeeper_pause(fixture_zk);
    bool stopped = suite_wait(peer_delivers_nothing, &gone, FIXTURE_TIMEOUT_MS + 300);
    zookeeper_continue(fixture_zk);
    ck_assert(!stopped);
    ck_assert_int_eq(peer_leave(peer, GROUP_LEAVE), 0);
    fixture_done(&f);
}
END_TEST

struct node {
    struct fixture *f;
    const char *path;
};

static bool node_exists(void *arg)
{
    const struct node *n = arg;
    return fixture_exists(n->f, n->path);
}

/* CG-04, CG-17 */
START_TEST(member_whose_registration_is_taken_away_is_back_within_two_seconds)
{
    struct fixture f;
    struct path path;
    struct peer *peers[2];
    char id[160];
    fixture_init(&f, "/evicted");
    fixture_topic(&f, 0, 4, false);
    for (int i = 0; i < 2; i++)
        peers[i] = peer_new(&f, NULL);
    peers_settle(peers, 2, 0, 4, PATIENCE_MS);
    peer_member_id(peers[0], id, sizeof id);
    for (int i = 0; i < 3; i++) {
        struct node node = {&f, path_group_member(&path, "g", id)};
        int64_t begin = clock_boot_ms();
        fixture_delete(&f, node.path);
        ck_assert(suite_wait(node_exists, &node, PATIENCE_MS));
        peers_settle(peers, 2, 0, 4, PATIENCE_MS);
        ck_assert_int_le(clock_boot_ms() - begin, 2 * SECOND_MS);
    }
    ck_assert_int_ge(peers[0]->lost, 2);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(peer_leave(peers[i], GROUP_LEAVE), 0);
    fixture_done(&f);
}
END_TEST

/* CG-13 */
START_TEST(owner_node_that_became_somebody_elses_is_noticed_and_left_alone)
{
    struct fixture f;
    struct path path;
    fixture_init(&f, "/replaced");
    fixture_topic(&f, 0, 2, false);
    struct peer *peer = peer_new(&f, NULL);
    struct peer_gone gone = {peer, 1};
    peers_settle(&peer, 1, 0, 2, PATIENCE_MS);
    fixture_replace(&f, path_owner(&path, "g", "alpha", 1), "somebody");
    ck_assert(suite_wait(peer_has_lost, &gone, PATIENCE_MS));
    ck_assert(peer_delivers(peer, 0, 0));
    ck_assert_int_eq(peer_commit(peer, 0, 1, 1), -BROOK_E_FENCED);
    ck_assert_int_eq(peer_leave(peer, GROUP_LEAVE), 0);
    ck_assert(fixture_exists(&f, path.text));
    fixture_done(&f);
}
END_TEST

/* CG-01: no claim gives up, and what stays blocked is said. */
static bool has_failed(void *arg)
{
    struct peer *p = arg;
    pthread_mutex_lock(&p->lock);
    bool failed = p->failure.code == BROOK_E_OWNED;
    pthread_mutex_unlock(&p->lock);
    return failed;
}

START_TEST(partition_that_somebody_keeps_is_reported_and_claimed_when_it_goes)
{
    struct peer_options options = {.settings = {"rebalance.drain.ms", "100"}};
    struct fixture f;
    struct path path;
    fixture_init(&f, "/kept");
    fixture_topic(&f, 0, 2, false);
    struct peer *peer = peer_new(&f, &options);
    struct peer_gone gone = {peer, 1};
    peers_settle(&peer, 1, 0, 2, PATIENCE_MS);
    fixture_replace(&f, path_owner(&path, "g", "alpha", 1), "somebody");
    ck_assert(suite_wait(peer_has_lost, &gone, PATIENCE_MS));
    ck_assert(suite_wait(has_failed, peer, FIXTURE_TIMEOUT_MS + 100 + 3000));
    fixture_delete(&f, path.text);
    ck_assert_int_le(peers_settle(&peer, 1, 0, 2, PATIENCE_MS), 2 * SECOND_MS);
    ck_assert_int_eq(peer_leave(peer, GROUP_LEAVE), 0);
    fixture_done(&f);
}
END_TEST

/* A process of its own, whose poll hands out records as long as it may; counters are shared. */
struct victim {
    _Atomic int owned;
    _Atomic bool commits;
    _Atomic int commit_result;
    _Atomic int64_t delivered_ms[8]; /* when last, by partition */
    _Atomic bool stop;
};

static void run_victim(const char *connect, struct victim *v)
{
    struct fixture f;
    fixture_init(&f, connect);
    struct peer *peer = peer_new(&f, NULL);
    while (!atomic_load(&v->stop)) {
        int owned = 0;
        for (int32_t p = 0; p < 8; p++)
            if (peer_delivers(peer, 0, p)) {
                owned++;
                atomic_store(&v->delivered_ms[p], clock_boot_ms());
            }
        atomic_store(&v->owned, owned);
        struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
    }
    _exit(0);
}

static bool victim_owns_all(void *arg)
{
    return atomic_load(&((struct victim *)arg)->owned) == 8;
}

static bool victim_owns_half(void *arg)
{
    return atomic_load(&((struct victim *)arg)->owned) == 4;
}

/* CG-03 */
START_TEST(stopped_process_delivers_nothing_more_of_what_it_lost)
{
    struct victim *v = mmap(NULL, sizeof *v, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid = fork();
    if (pid == 0)
        run_victim("/stopped", v);
    struct fixture f;
    fixture_init(&f, "/stopped");
    fixture_topic(&f, 0, 8, false);
    ck_assert(suite_wait(victim_owns_all, v, PATIENCE_MS));
    struct peer *peer = peer_new(&f, NULL);
    ck_assert(suite_wait(victim_owns_half, v, PATIENCE_MS));
    kill(pid, SIGSTOP);
    /* Until the other member has everything: a session timeout and some. */
    peers_settle(&peer, 1, 0, 8, PATIENCE_MS);
    int64_t taken_over = clock_boot_ms();
    struct timespec pause = {.tv_nsec = 500000000};
    nanosleep(&pause, NULL);
    kill(pid, SIGCONT);
    ck_assert(suite_wait(victim_owns_half, v, PATIENCE_MS));
    /* It has rejoined by now and been given a fair share: what it lost and did not get back it must not have
     * touched after the other member had it. */
    for (int32_t p = 0; p < 8; p++)
        if (peer_delivers(peer, 0, p))
            ck_assert_int_lt(atomic_load(&v->delivered_ms[p]), taken_over);
    atomic_store(&v->stop, true);
    waitpid(pid, NULL, 0);
    ck_assert_int_eq(peer_leave(peer, GROUP_LEAVE), 0);
    fixture_done(&f);
    munmap(v, sizeof *v);
}
END_TEST

int main(void)
{
    const struct suite_test all[] = {
        SUITE_TEST_SLOW(links_that_break_at_any_byte_leave_everything_owned_once, 120),
        SUITE_TEST(killed_members_partitions_are_read_within_timeout_tick_and_a_second),
        SUITE_TEST(lease_stops_delivery_at_half_and_takes_everything_at_its_end),
        SUITE_TEST(continue_keeps_delivering_through_a_short_loss_of_the_lease),
        SUITE_TEST_SLOW(member_whose_registration_is_taken_away_is_back_within_two_seconds, 40),
        SUITE_TEST(owner_node_that_became_somebody_elses_is_noticed_and_left_alone),
        SUITE_TEST(partition_that_somebody_keeps_is_reported_and_claimed_when_it_goes),
        SUITE_TEST_SLOW(stopped_process_delivers_nothing_more_of_what_it_lost, 40),
    };
    fixture_zk = zookeeper_start(NULL);
    int failed = suite_run("client/group_losses", all, sizeof all / sizeof all[0]);
    zookeeper_stop(fixture_zk);
    return failed;
}
