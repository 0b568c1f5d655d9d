/* Brokers that come back: at once and without their page cache, with an empty disk, as the last one in sync, to a topic that
 * is another one by now; controllers that die between their writes; all of them, one by one, in any order. */
#include "tests/cluster/replicated.h"

#include "proto/base/clock.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of each log the last few batches. */
static void cut_tails(struct replicated *r, int id, size_t bytes)
{
    for (int32_t p = 0; p < r->partitions; p++)
        replicated_cut_tail(r, id, "t", p, bytes);
}

START_TEST(a_bounce_within_the_session_is_a_death)
{
    const struct brokers_options options = {.session_timeout_ms = 6000};
    struct replicated *r = replicated_begin(3, &options);
    replicated_topic(r, "t", 3, 3, NULL);
    for (int round = 0; round < 2; round++)
        for (int id = 1; id <= 3; id++) {
            replicated_send(r, 3000);
            replicated_flush(r);
            brokers_kill(r->b, id);
            if (round)
                cut_tails(r, id, 5000);
            brokers_restart(r->b, id);
            replicated_send(r, 3000);
            replicated_flush(r);
            replicated_wait_isr(r, "123");
        }
    replicated_check(r);
    replicated_end(r);
}
END_TEST

START_TEST(a_broker_with_an_empty_disk_gets_all_of_it_again)
{
    struct replicated *r = replicated_begin(3, NULL);
    char directory[PATH_MAX];
    replicated_topic(r, "t", 3, 3, NULL);
    for (int id = 1; id <= 3; id += 2) { /* each leads one partition, and follows two */
        replicated_send(r, 5000);
        replicated_flush(r);
        brokers_kill(r->b, id);
        snprintf(directory, sizeof directory, "%s", brokers_data_directory(r->b, id));
        suite_remove_tree(directory);
        brokers_restart(r->b, id);
        replicated_send(r, 100);
        replicated_flush(r);
        replicated_wait_isr(r, "123");
    }
    replicated_check(r);
    replicated_end(r);
}
END_TEST

START_TEST(a_log_that_begins_inside_a_batch_is_taken_over)
{
    struct replicated *r = replicated_begin(3, NULL);
    struct brook_error error = {0};
    struct brook_position at = {"t", 0, 37};
    replicated_topic(r, "t", 1, 3, NULL);
    replicated_send(r, 100); /* in few batches */
    replicated_flush(r);
    int id = replicated_leader(r, "t", 0) % 3 + 1;
    brokers_kill(r->b, id);
    ck_assert(brokers_wait_registered(r->b, 2, 15000));
    ck_assert_msg(brook_admin_delete_records(r->admin, &at, 1, false, 15000, &error) == 0, "%s", error.text);
    ck_assert_int_eq(at.offset, 37);
    brokers_empty_disk(r->b, id);
    brokers_restart(r->b, id);
    replicated_wait_isr(r, "123");
    replicated_send(r, 100);
    replicated_flush(r);
    replicated_end(r);
}
END_TEST

static bool has_led_again(void *arg)
{
    struct znode_state state;
    struct replicated *r = arg;
    for (int32_t p = 0; p < r->partitions; p++)
        if (!replicated_state(r, "t", p, &state, NULL) || state.leader < 0 || state.leader == 3)
            return false;
    return true;
}

START_TEST(of_a_durable_topic_two_of_three_lead_again_after_all_were_killed)
{
    struct replicated *r = replicated_begin(3, NULL);
    replicated_topic(r, "t", 3, 3, "durability=fsync");
    replicated_send(r, 3000);
    replicated_flush(r);
    replicated_wait_isr(r, "123");
    for (int id = 1; id <= 3; id++)
        brokers_kill(r->b, id);
    brokers_restart(r->b, 1);
    brokers_restart(r->b, 2);
    ck_assert(replicated_wait(r, has_led_again, r, REPLICATED_WAIT_MS));
    replicated_wait_isr(r, "12");
    replicated_send(r, 300);
    replicated_flush(r);
    for (int id = 1; id <= 2; id++)
        ck_assert_int_eq(replicated_count_said(r, id, "longest log"), 0);
    brokers_restart(r->b, 3);
    replicated_wait_isr(r, "123");
    replicated_check(r);
    replicated_end(r);
}
END_TEST

START_TEST(of_a_durable_topic_an_empty_disk_counts_for_nothing)
{
    struct replicated *r = replicated_begin(3, NULL);
    char directory[PATH_MAX];
    replicated_topic(r, "t", 3, 3, "durability=fsync");
    replicated_send(r, 3000);
    replicated_flush(r);
    replicated_wait_isr(r, "123");
    for (int id = 1; id <= 3; id++)
        brokers_kill(r->b, id);
    snprintf(directory, sizeof directory, "%s", brokers_data_directory(r->b, 1));
    suite_remove_tree(directory);
    brokers_restart(r->b, 1); /* of two of the partitions the first or second choice */
    brokers_restart(r->b, 2);
    ck_assert(replicated_wait(r, has_led_again, r, REPLICATED_WAIT_MS));
    replicated_wait_isr(r, "12");
    brokers_restart(r->b, 3);
    replicated_wait_isr(r, "123");
    replicated_check(r);
    replicated_end(r);
}
END_TEST

/* ---- registrations --------------------------------------------------------------------------------------- */

/* Never empty, only assigned ones, the leader in it. Looked at again and again until the broker is (un)registered. */
static void check_isr(struct replicated *r)
{
    for (int32_t p = 0; p < r->partitions; p++) {
        struct znode_state state;
        ck_assert(replicated_state(r, "t", p, &state, NULL));
        ck_assert_int_ge(state.isr_count, 1);
        bool has_leader = state.leader < 0;
        for (int32_t i = 0; i < state.isr_count; i++) {
            ck_assert(state.isr[i] >= 1 && state.isr[i] <= 3);
            has_leader = has_leader || state.isr[i] == state.leader;
        }
        ck_assert(has_leader);
    }
}

struct registration {
    struct replicated *r;
    int id;
    bool is_there;
};

static bool is_registered(void *arg)
{
    struct registration *g = arg;
    struct path path;
    check_isr(g->r);
    coordinator_exists(g->r->zk, path_broker_id(&path, g->id), caller_begin(&g->r->caller));
    return (caller_end(&g->r->caller)->err == 0) == g->is_there;
}

static void wait_registered(struct replicated *r, int id, bool is_there)
{
    struct registration g = {r, id, is_there};
    ck_assert(replicated_wait(r, is_registered, &g, REPLICATED_WAIT_MS));
}

/* ---- the last one standing ------------------------------------------------------------------------------ */

static bool is_leaderless(void *arg)
{
    struct znode_state state;
    return replicated_state(arg, "t", 0, &state, NULL) && state.leader < 0;
}

START_TEST(the_longest_log_leads_when_the_last_in_sync_lost_its_tail)
{
    struct replicated *r = replicated_begin(3, NULL);
    char last[16];
    replicated_topic(r, "t", 1, 3, NULL);
    replicated_send(r, 3000);
    replicated_flush(r);
    int32_t leader = replicated_leader(r, "t", 0), a = leader % 3 + 1, b = a % 3 + 1;
    snprintf(last, sizeof last, "%d", leader);
    brokers_signal(r->b, a, SIGSTOP);
    brokers_signal(r->b, b, SIGSTOP);
    replicated_wait_isr(r, last);
    brokers_kill(r->b, leader);
    ck_assert_uint_eq(replicated_cut_tail(r, leader, "t", 0, 10000), 10000);
    brokers_restart(r->b, leader);
    ck_assert(replicated_wait(r, is_leaderless, r, REPLICATED_WAIT_MS)); /* it does not know what the others have */
    brokers_signal(r->b, a, SIGCONT);
    brokers_signal(r->b, b, SIGCONT);
    ck_assert_int_ne(replicated_wait_other_leader(r, "t", 0, -1), leader);
    replicated_wait_isr(r, "123");
    replicated_send(r, 100);
    replicated_flush(r);
    int said = 0;
    for (int id = 1; id <= 3; id++)
        said += replicated_count_said(r, id, "longest log");
    if (!said)
        replicated_show(r);
    ck_assert_int_gt(said, 0);
    replicated_check(r);
    replicated_end(r);
}
END_TEST

/* ---- another topic of that name ------------------------------------------------------------------------- */

static int count_directories(struct replicated *r, int id, const char *beginning)
{
    int count = 0;
    DIR *dir = opendir(brokers_data_directory(r->b, id));
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;)
        count += strncmp(e->d_name, beginning, strlen(beginning)) == 0;
    if (dir)
        closedir(dir);
    return count;
}

struct hold {
    struct replicated *r;
    int id;
    int count;
};

static bool holds(void *arg)
{
    struct hold *h = arg;
    return count_directories(h->r, h->id, "t-") == h->count;
}

static void wait_holds(struct replicated *r, int id, int count)
{
    struct hold h = {r, id, count};
    ck_assert_msg(replicated_wait(r, holds, &h, REPLICATED_WAIT_MS), "broker %d has %d directories of t, not %d", id,
                  count_directories(r, id, "t-"), count);
}

static void move(struct replicated *r, const int32_t *replicas, size_t count)
{
    struct brook_error error = {0};
    const struct brook_partition_plan plan = {"t", 0, replicas, count};
    int e = brook_admin_reassign(r->admin, &plan, 1, -1, false, 15000, NULL, &error);
    ck_assert_msg(e == 0, "%s", error.text);
}

START_TEST(a_topic_made_again_is_never_mixed_with_the_one_before)
{
    static const int32_t all[] = {1, 2, 3}, two[] = {1, 2};
    struct replicated *r = replicated_begin(3, NULL);
    struct brook_error error = {0};
    replicated_topic(r, "t", 1, 3, NULL);
    replicated_send(r, 2000);
    replicated_flush(r);
    brokers_kill(r->b, 3);
    ck_assert(brokers_wait_registered(r->b, 2, 15000));
    ck_assert_msg(brook_admin_delete_topic(r->admin, "t", 15000, &error) == 0, "%s", error.text);
    replicated_topic(r, "t", 1, 2, NULL);
    memset(r->acknowledged, 0, (size_t)r->sent);
    replicated_send(r, 500);
    replicated_flush(r);
    brokers_restart(r->b, 3);
    ck_assert(brokers_wait_registered(r->b, 3, 15000));
    wait_holds(r, 3, 0);
    move(r, all, 3);
    replicated_wait_isr(r, "123");
    replicated_send(r, 500);
    replicated_flush(r);
    replicated_check(r);
    move(r, two, 2); /* away again: it stops at once */
    replicated_wait_isr(r, "12");
    wait_holds(r, 3, 0);
    replicated_send(r, 100);
    replicated_flush(r);
    replicated_check(r);
    replicated_end(r);
}
END_TEST

/* ---- controllers die ------------------------------------------------------------------------------------ */

/* Topics "x0" ..: made, and every second one deleted again, until it is over. */
struct wisher {
    brook_config *config;
    _Atomic bool is_over;
    int made;
    bool is_deleted[200];
    pthread_t thread;
};

/* Returns whether it is over with the topic: once asked for, it is asked for until it is answered. */
static bool delete(struct wisher *w, brook_admin *admin, const char *name)
{
    struct brook_error error;
    int e;
    if (w->is_over)
        return false;
    do
        e = brook_admin_delete_topic(admin, name, 1000, &error);
    while (e && e != -BROOK_E_UNKNOWN_TOPIC);
    return true;
}

static void *run_wisher(void *arg)
{
    struct wisher *w = arg;
    struct brook_error error;
    brook_admin *admin;
    if (brook_admin_new(w->config, &admin, &error) < 0)
        return NULL;
    while (!w->is_over && w->made < 200) {
        char name[16];
        snprintf(name, sizeof name, "x%d", w->made);
        int e = brook_admin_create_topic(admin, name, 4, 3, NULL, 0, false, 1000, &error);
        if (e && e != -BROOK_E_TOPIC_EXISTS)
            continue; /* whoever was asked may have died */
        w->is_deleted[w->made] = w->made % 2 && delete(w, admin, name);
        w->made++;
    }
    brook_admin_free(admin);
    return NULL;
}

struct outcome {
    struct replicated *r;
    const struct wisher *w;
    char text[64];
};

static bool is_as_asked(void *arg)
{
    struct outcome *o = arg;
    struct znode_state state;
    for (int i = 0; i < o->w->made; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        for (int32_t p = 0; p < 4; p++) {
            bool is_there = replicated_state(o->r, name, p, &state, NULL);
            bool is_well = o->w->is_deleted[i] ? !is_there : is_there && state.leader >= 0 && state.isr_count == 3;
            snprintf(o->text, sizeof o->text, "%s/%d is %s", name, p, is_there ? "there, not in sync" : "not there");
            if (!is_well)
                return false;
        }
    }
    return true;
}

START_TEST(what_was_asked_for_is_done_though_controllers_die)
{
    struct replicated *r = replicated_begin(3, NULL);
    uint64_t seed = suite_seed();
    struct wisher w = {.config = r->config};
    replicated_topic(r, "t", 3, 3, NULL);
    ck_assert_int_eq(pthread_create(&w.thread, NULL, run_wisher, &w), 0);
    for (int round = 0; round < 3; round++) {
        usleep((useconds_t)suite_random_below(&seed, 300000));
        int32_t controller = replicated_wait_controller(r, -1);
        replicated_send(r, 100);
        brokers_kill(r->b, controller);
        replicated_wait_controller(r, controller);
        brokers_restart(r->b, controller);
        replicated_wait_isr(r, "123");
    }
    w.is_over = true;
    pthread_join(w.thread, NULL);
    ck_assert_int_gt(w.made, 3);
    struct outcome o = {.r = r, .w = &w};
    ck_assert_msg(replicated_wait(r, is_as_asked, &o, REPLICATED_WAIT_MS), "%s", o.text);
    replicated_flush(r);
    replicated_check(r);
    replicated_end(r);
}
END_TEST

/* ---- to zero and back ----------------------------------------------------------------------------------- */

static const int orders[6][3] = {{1, 2, 3}, {1, 3, 2}, {2, 1, 3}, {2, 3, 1}, {3, 1, 2}, {3, 2, 1}};

START_TEST(brokers_go_one_by_one_to_none_and_come_back_in_any_order)
{
    struct replicated *r = replicated_begin(3, NULL);
    uint64_t seed = suite_seed();
    replicated_topic(r, "t", 3, 3, NULL);
    for (int round = 0; round < 2; round++) {
        const int *down = orders[suite_random_below(&seed, 6)], *up = orders[suite_random_below(&seed, 6)];
        fprintf(stderr, "# down %d %d %d, up %d %d %d\n", down[0], down[1], down[2], up[0], up[1], up[2]);
        replicated_send(r, 500);
        replicated_flush(r);
        for (int i = 0; i < 3; i++) {
            if (suite_random_below(&seed, 3) == 0)
                brokers_kill(r->b, down[i]);
            else
                ck_assert_int_eq(brokers_stop(r->b, down[i], 15000), 0);
            wait_registered(r, down[i], false);
            if (i < 2)
                replicated_send(r, 50);
        }
        for (int i = 0; i < 3; i++) {
            brokers_restart(r->b, up[i]);
            wait_registered(r, up[i], true);
        }
        replicated_wait_isr(r, "123");
        replicated_flush(r);
    }
    replicated_check(r);
    replicated_end(r);
}
END_TEST

/* ---- unclean elections ---------------------------------------------------------------------------------- */

START_TEST(a_stale_replica_leads_only_where_that_is_allowed)
{
    struct replicated *r = replicated_begin(2, NULL);
    replicated_topic(r, "t", 1, 2, NULL);
    replicated_topic(r, "u", 1, 2, "unclean.leader.election.enable=true");
    int32_t leader = replicated_leader(r, "t", 0), stale = 3 - leader;
    char last[16];
    snprintf(last, sizeof last, "%d", leader);
    brokers_kill(r->b, stale);
    replicated_wait_isr(r, last);
    replicated_wait_other_leader(r, "u", 0, stale);
    replicated_send(r, 100);
    replicated_flush(r);
    brokers_kill(r->b, leader);
    brokers_restart(r->b, stale);
    ck_assert(replicated_wait_other_leader(r, "u", 0, leader) == stale);
    ck_assert_int_ne(replicated_leader(r, "t", 0), stale);
    replicated_wait_said(r, stale, "unclean election", 1);
    brokers_restart(r->b, leader);
    ck_assert_int_eq(replicated_wait_other_leader(r, "t", 0, stale), leader);
    replicated_wait_isr(r, "12");
    replicated_check(r);
    replicated_end(r);
}
END_TEST

BROKERS_MAIN("cluster/returns", SUITE_TEST_SLOW(a_bounce_within_the_session_is_a_death, 60),
           SUITE_TEST_SLOW(a_broker_with_an_empty_disk_gets_all_of_it_again, 60),
           SUITE_TEST_SLOW(a_log_that_begins_inside_a_batch_is_taken_over, 60),
           SUITE_TEST_SLOW(of_a_durable_topic_two_of_three_lead_again_after_all_were_killed, 60),
           SUITE_TEST_SLOW(of_a_durable_topic_an_empty_disk_counts_for_nothing, 60),
           SUITE_TEST_SLOW(the_longest_log_leads_when_the_last_in_sync_lost_its_tail, 60),
           SUITE_TEST_SLOW(a_topic_made_again_is_never_mixed_with_the_one_before, 60),
           SUITE_TEST_SLOW(what_was_asked_for_is_done_though_controllers_die, 120),
           SUITE_TEST_SLOW(brokers_go_one_by_one_to_none_and_come_back_in_any_order, 120),
           SUITE_TEST_SLOW(a_stale_replica_leads_only_where_that_is_allowed, 60))
