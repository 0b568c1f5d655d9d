/* Groups against a real ZooKeeper. */
#include "config.h"
#include "coordination/paths.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "tests/support/tcp_proxy.h"
#include "tests/unit/client/group_fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* The promises about time; sanitizers slow everything down. */
#ifdef BROOK_SANITIZED
#define SECOND_MS 3000
#else
#define SECOND_MS 1000
#endif
#define TICK_MS 200
#define PATIENCE_MS 10000

/* ---- joining and leaving ------------------------------------------------------------------------------ */

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
            .settings = {"zookeeper.connect", connect[i], "rebalance.drain.ms", "500"}};
        peers[i] = peer_new(&f, &options);
    }
    for (int i = 0; i < ROUNDS; i++) {
        struct tcp_proxy *link = links[suite_random_below(&random, MEMBERS)];
        enum tcp_proxy_direction way = suite_random_below(&random, 2) ? TCP_PROXY_UP : TCP_PROXY_DOWN;
        tcp_proxy_cut_after(link, way, suite_random_below(&random, 2000), 0);
        if (i % 10 == 9) {
            tcp_proxy_set(link, TCP_PROXY_SWALLOW);
            struct timespec outage = {.tv_sec = FIXTURE_TIMEOUT_MS / 1000, .tv_nsec = 500000000};
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

/* ---- commits ------------------------------------------------------------------------------------------ */

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

/* ---- sessions ----------------------------------------------------------------------------------------- */

struct gone {
    struct peer *p;
    int lost;
};

static bool delivers_nothing(void *arg)
{
    return peer_count(((struct gone *)arg)->p, 0) == 0;
}

static bool has_lost(void *arg)
{
    const struct gone *g = arg;
    return g->p->lost >= g->lost;
}

START_TEST(lease_stops_delivery_at_half_and_takes_everything_at_its_end)
{
    struct fixture f;
    fixture_init(&f, "/lease");
    fixture_topic(&f, 0, 3, false);
    struct peer *peer = peer_new(&f, NULL);
    struct gone gone = {peer, 3};
    peers_settle(&peer, 1, 0, 3, PATIENCE_MS);
    int64_t begin = clock_boot_ms();
    zookeeper_pause(fixture_zk);
    bool stopped = suite_wait(delivers_nothing, &gone, FIXTURE_TIMEOUT_MS);
    int64_t half = clock_boot_ms() - begin;
    int lost_at_half = peer->lost;
    bool lost = suite_wait(has_lost, &gone, FIXTURE_TIMEOUT_MS);
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
    struct gone gone = {peer, 1};
    peers_settle(&peer, 1, 0, 1, PATIENCE_MS);
    zookeeper_pause(fixture_zk);
    bool stopped = suite_wait(delivers_nothing, &gone, FIXTURE_TIMEOUT_MS + 300);
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
    struct gone gone = {peer, 1};
    peers_settle(&peer, 1, 0, 2, PATIENCE_MS);
    fixture_replace(&f, path_owner(&path, "g", "alpha", 1), "somebody");
    ck_assert(suite_wait(has_lost, &gone, PATIENCE_MS));
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
    struct gone gone = {peer, 1};
    peers_settle(&peer, 1, 0, 2, PATIENCE_MS);
    fixture_replace(&f, path_owner(&path, "g", "alpha", 1), "somebody");
    ck_assert(suite_wait(has_lost, &gone, PATIENCE_MS));
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

/* ---- the application ---------------------------------------------------------------------------------- */

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

/* ---- topics ------------------------------------------------------------------------------------------- */

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
    struct gone gone;
    for (int i = 0; i < 2; i++) {
        gone = (struct gone){peers[i], 1};
        ck_assert(suite_wait(has_lost, &gone, PATIENCE_MS));
    }
    peers_settle(peers, 2, 0, 7, PATIENCE_MS);
    ck_assert_int_eq(peers[0]->assigned + peers[1]->assigned, assigned + 7);
    fixture_delete(&f, path_topic(&path, "alpha"));
    for (int i = 0; i < 2; i++) {
        gone.p = peers[i];
        ck_assert(suite_wait(delivers_nothing, &gone, PATIENCE_MS));
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

/* ---- static members ----------------------------------------------------------------------------------- */

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

int main(void)
{
    const struct suite_test all[] = {
        SUITE_TEST(joins_and_polite_leaves_take_less_than_a_second_and_pause_nothing_that_stays),
        SUITE_TEST(killed_members_partitions_are_read_within_timeout_tick_and_a_second),
        SUITE_TEST(leaving_takes_registration_and_owner_nodes_away),
        SUITE_TEST_SLOW(churn_of_subscriptions_and_members_ends_with_everything_owned_once, 60),
        SUITE_TEST_SLOW(links_that_break_at_any_byte_leave_everything_owned_once, 120),
        SUITE_TEST_SLOW(members_that_start_together_agree_in_few_rounds, 40),
        SUITE_TEST_SLOW(reads_of_a_change_grow_with_members_not_with_members_times_partitions, 60),
        SUITE_TEST(owner_commits_and_whoever_is_not_is_fenced),
        SUITE_TEST(last_offset_is_committed_before_the_partition_is_handed_over),
        SUITE_TEST(application_that_holds_on_delays_its_share_by_the_drain_time_and_no_longer),
        SUITE_TEST(lease_stops_delivery_at_half_and_takes_everything_at_its_end),
        SUITE_TEST(continue_keeps_delivering_through_a_short_loss_of_the_lease),
        SUITE_TEST_SLOW(member_whose_registration_is_taken_away_is_back_within_two_seconds, 40),
        SUITE_TEST(owner_node_that_became_somebody_elses_is_noticed_and_left_alone),
        SUITE_TEST(partition_that_somebody_keeps_is_reported_and_claimed_when_it_goes),
        SUITE_TEST_SLOW(stopped_process_delivers_nothing_more_of_what_it_lost, 40),
        SUITE_TEST(member_that_does_not_poll_gives_up_its_share_and_comes_back_with_the_next_poll),
        SUITE_TEST(named_topic_that_appears_grows_is_remade_and_vanishes_is_followed),
        SUITE_TEST(topics_of_an_expression_are_followed_and_others_are_not),
        SUITE_TEST(subscriptions_are_checked_at_once),
        SUITE_TEST(static_member_that_is_killed_and_restarts_in_time_moves_nobody),
        SUITE_TEST(static_member_that_stops_to_resume_moves_nobody),
        SUITE_TEST(state_dir_serves_one_process_at_a_time),
    };
    fixture_zk = zookeeper_start(NULL);
    int failed = suite_run("client/group_driver", all, sizeof all / sizeof all[0]);
    zookeeper_stop(fixture_zk);
    return failed;
}
