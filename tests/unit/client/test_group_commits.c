#include "client/group_commits.h"
#include "proto/base/err.h"
#include "tests/support/suite.h"

#include <stdio.h>
#include <string.h>

struct world {
    struct group_commits *commits;
    int doubts;
    int finished;
    int ended;
    int err;
    char topic[8]; /* what the last error was about */
    int64_t offset;
};

static void on_doubt(void *arg, const char *topic, int32_t partition, int err)
{
    ((struct world *)arg)->doubts++;
}

static void on_finished(void *arg, const char *topic, int32_t partition)
{
    ((struct world *)arg)->finished++;
}

static void on_done(void *arg, int err, const struct brook_position *which)
{
    struct world *w = arg;
    w->ended++;
    w->err = err;
    if (which) {
        snprintf(w->topic, sizeof w->topic, "%s", which->topic);
        w->offset = which->offset;
    }
}

static void world_init(struct world *w)
{
    memset(w, 0, sizeof *w);
    struct group_commits_events events = {on_doubt, on_finished, w};
    ck_assert_int_eq(group_commits_new(&events, &w->commits), 0);
    ck_assert_int_eq(group_commits_open(w->commits, "t", 0, 5, 1), 0);
}

static void add(struct world *w, int64_t offset, int64_t deadline_ms)
{
    struct brook_position position = {"t", 0, offset};
    group_commits_add(w->commits, &position, 1, deadline_ms, on_done, w);
}

/* The one entry that is to be sent, or fails. */
static struct group_commits_entry take(struct world *w, int64_t now_ms)
{
    struct group_commits_entry entries[4];
    ck_assert_uint_eq(group_commits_take(w->commits, entries, 4, now_ms), 1);
    return entries[0];
}

static void take_nothing(struct world *w, int64_t now_ms)
{
    struct group_commits_entry entries[4];
    ck_assert_uint_eq(group_commits_take(w->commits, entries, 4, now_ms), 0);
}

START_TEST(one_commit_is_under_way_and_the_newest_value_waits)
{
    struct world w;
    world_init(&w);
    add(&w, 6, 0);
    struct group_commits_entry first = take(&w, 0);
    ck_assert_int_eq(first.offset, 6);
    ck_assert_int_eq(first.version, 1);
    add(&w, 7, 0);
    add(&w, 8, 0);
    take_nothing(&w, 0);
    group_commits_answer(w.commits, first.lane, 0, 2, 0);
    ck_assert_int_eq(w.ended, 1);
    ck_assert_int_eq(group_commits_stored(w.commits, "t", 0), 6);
    struct group_commits_entry second = take(&w, 0);
    ck_assert_int_eq(second.offset, 8);
    ck_assert_int_eq(second.version, 2);
    group_commits_answer(w.commits, second.lane, 0, 3, 0);
    ck_assert_int_eq(w.ended, 3);
    ck_assert_int_eq(w.err, 0);
    group_commits_free(w.commits);
}
END_TEST

START_TEST(what_is_stored_is_not_written_again_and_a_rewind_is)
{
    struct world w;
    world_init(&w);
    add(&w, 5, 0);
    ck_assert_int_eq(w.ended, 1);
    take_nothing(&w, 0);
    add(&w, 3, 0);
    ck_assert_int_eq(take(&w, 0).offset, 3);
    /* Back to what will be stored then. */
    add(&w, 3, 0);
    ck_assert_int_eq(w.ended, 1);
    group_commits_free(w.commits);
    ck_assert_int_eq(w.ended, 3);
    ck_assert_int_eq(w.err, -BROOK_E_CLOSED);
}
END_TEST

START_TEST(doubt_stops_the_lane_until_it_is_resolved)
{
    static const int doubtful[] = {-BROOK_E_OUTCOME_UNKNOWN, -BROOK_E_TIMED_OUT,       -BROOK_E_DISCONNECTED,
                                   -BROOK_E_FENCED,          -BROOK_E_STALE_MEMBER,    -BROOK_E_BAD_VERSION,
                                   -BROOK_E_SESSION_EXPIRED};
    for (size_t i = 0; i < sizeof doubtful / sizeof doubtful[0]; i++) {
        struct world w;
        world_init(&w);
        add(&w, 6, 0);
        group_commits_answer(w.commits, take(&w, 0).lane, doubtful[i], -1, 0);
        ck_assert_int_eq(w.doubts, 1);
        add(&w, 7, 0);
        take_nothing(&w, 1000000);
        if (i % 2) {
            /* It was carried out after all. */
            group_commits_resolved(w.commits, "t", 0, 6, 2);
            ck_assert_int_eq(w.ended, 1);
            ck_assert_int_eq(w.err, 0);
        } else {
            group_commits_resolved(w.commits, "t", 0, 5, 9);
            ck_assert_int_eq(w.ended, 0);
        }
        struct group_commits_entry e = take(&w, 1000000);
        ck_assert_int_eq(e.offset, 7);
        ck_assert_int_eq(e.version, i % 2 ? 2 : 9);
        group_commits_answer(w.commits, e.lane, 0, 10, 0);
        ck_assert_int_eq(w.ended, 2);
        ck_assert_int_eq(w.err, 0);
        group_commits_free(w.commits);
    }
}
END_TEST

START_TEST(failure_for_the_moment_is_tried_again_and_a_lasting_one_ends_the_call)
{
    struct world w;
    world_init(&w);
    add(&w, 6, 0);
    group_commits_answer(w.commits, take(&w, 100).lane, -BROOK_E_CONNECT_FAILED, -1, 100);
    take_nothing(&w, 101);
    ck_assert_int_gt(group_commits_next_ms(w.commits), 101);
    struct group_commits_entry e = take(&w, group_commits_next_ms(w.commits));
    ck_assert_int_eq(e.offset, 6);
    ck_assert_int_eq(w.ended, 0);
    group_commits_answer(w.commits, e.lane, -BROOK_E_ACCESS_DENIED, -1, 200);
    ck_assert_int_eq(w.ended, 1);
    ck_assert_int_eq(w.err, -BROOK_E_ACCESS_DENIED);
    ck_assert_int_eq(w.offset, 6);
    ck_assert_int_eq(group_commits_stored(w.commits, "t", 0), 5);
    group_commits_free(w.commits);
}
END_TEST

START_TEST(lost_partition_fences_what_is_under_way_and_what_comes)
{
    struct world w;
    world_init(&w);
    add(&w, 6, 0);
    struct group_commits_entry e = take(&w, 0);
    group_commits_close(w.commits, "t", 0, -BROOK_E_FENCED);
    ck_assert_int_eq(w.ended, 1);
    ck_assert_int_eq(w.err, -BROOK_E_FENCED);
    /* The answer comes too late, also for the next life of the partition. */
    ck_assert_int_eq(group_commits_open(w.commits, "t", 0, 5, 20), 0);
    add(&w, 7, 0);
    group_commits_answer(w.commits, e.lane, 0, 2, 0);
    ck_assert_int_eq(take(&w, 0).version, 20);
    group_commits_close_all(w.commits, -BROOK_E_FENCED);
    add(&w, 8, 0);
    ck_assert_int_eq(w.ended, 3);
    ck_assert_int_eq(w.err, -BROOK_E_FENCED);
    group_commits_free(w.commits);
}
END_TEST

START_TEST(finish_waits_for_the_last_commit_and_lets_no_other_in)
{
    struct world w;
    world_init(&w);
    add(&w, 6, 0);
    struct group_commits_entry e = take(&w, 0);
    add(&w, 7, 0);
    group_commits_finish(w.commits, "t", 0);
    add(&w, 8, 0);
    ck_assert_int_eq(w.ended, 1);
    ck_assert_int_eq(w.err, -BROOK_E_FENCED);
    group_commits_answer(w.commits, e.lane, 0, 2, 0);
    ck_assert_int_eq(w.finished, 0);
    e = take(&w, 0);
    ck_assert_int_eq(e.offset, 7);
    group_commits_answer(w.commits, e.lane, 0, 3, 0);
    ck_assert_int_eq(w.finished, 1);
    group_commits_free(w.commits);
}
END_TEST

START_TEST(finish_of_an_idle_lane_is_at_once)
{
    struct world w;
    world_init(&w);
    group_commits_finish(w.commits, "t", 0);
    group_commits_finish(w.commits, "t", 0);
    ck_assert_int_eq(w.finished, 1);
    group_commits_free(w.commits);
}
END_TEST

START_TEST(call_ends_at_its_deadline_and_only_once)
{
    struct world w;
    world_init(&w);
    add(&w, 6, 100);
    struct group_commits_entry e = take(&w, 0);
    group_commits_tick(w.commits, 99);
    ck_assert_int_eq(w.ended, 0);
    ck_assert_int_eq(group_commits_next_ms(w.commits), 100);
    group_commits_tick(w.commits, 100);
    ck_assert_int_eq(w.ended, 1);
    ck_assert_int_eq(w.err, -BROOK_E_TIMED_OUT);
    group_commits_answer(w.commits, e.lane, 0, 2, 0);
    ck_assert_int_eq(w.ended, 1);
    ck_assert_int_eq(group_commits_stored(w.commits, "t", 0), 6);
    group_commits_free(w.commits);
}
END_TEST

START_TEST(call_for_many_ends_once_with_its_first_error)
{
    struct world w;
    world_init(&w);
    ck_assert_int_eq(group_commits_open(w.commits, "t", 1, -1, 1), 0);
    struct brook_position positions[] = {{"t", 0, 6}, {"t", 1, 7}, {"u", 0, 8}};
    group_commits_add(w.commits, positions, 3, 0, on_done, &w);
    struct group_commits_entry entries[4];
    ck_assert_uint_eq(group_commits_take(w.commits, entries, 4, 0), 2);
    group_commits_answer(w.commits, entries[0].lane, 0, 2, 0);
    ck_assert_int_eq(w.ended, 0);
    group_commits_answer(w.commits, entries[1].lane, 0, 2, 0);
    ck_assert_int_eq(w.ended, 1);
    ck_assert_int_eq(w.err, -BROOK_E_FENCED);
    ck_assert_str_eq(w.topic, "u");
    group_commits_free(w.commits);
}
END_TEST

SUITE_MAIN("client/group_commits", SUITE_TEST(one_commit_is_under_way_and_the_newest_value_waits),
           SUITE_TEST(what_is_stored_is_not_written_again_and_a_rewind_is),
           SUITE_TEST(doubt_stops_the_lane_until_it_is_resolved),
           SUITE_TEST(failure_for_the_moment_is_tried_again_and_a_lasting_one_ends_the_call),
           SUITE_TEST(lost_partition_fences_what_is_under_way_and_what_comes),
           SUITE_TEST(finish_waits_for_the_last_commit_and_lets_no_other_in),
           SUITE_TEST(finish_of_an_idle_lane_is_at_once), SUITE_TEST(call_ends_at_its_deadline_and_only_once),
           SUITE_TEST(call_for_many_ends_once_with_its_first_error))
