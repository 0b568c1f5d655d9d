#include "client/consumer_progress.h"
#include "tests/support/suite.h"

#include <stdlib.h>

static uint64_t hand_out(struct consumer_progress *p, int64_t next)
{
    uint64_t ticket;
    ck_assert_int_eq(progress_hand_out(p, next, NULL, &ticket), 0);
    return ticket;
}

START_TEST(what_is_released_out_of_order_counts_when_the_gap_closes)
{
    struct consumer_progress p;
    progress_init(&p);
    progress_start(&p, 0);
    uint64_t a = hand_out(&p, 10), b = hand_out(&p, 20), c = hand_out(&p, 30);
    progress_release(&p, c, 30);
    progress_release(&p, b, 20);
    ck_assert_int_eq(progress_processed(&p), 0);
    progress_release(&p, a, 10);
    ck_assert_int_eq(progress_processed(&p), 30);
    progress_done(&p);
}
END_TEST

START_TEST(a_batch_given_back_unfinished_stops_the_count_until_a_new_start)
{
    struct consumer_progress p;
    progress_init(&p);
    progress_start(&p, 5);
    uint64_t a = hand_out(&p, 10), b = hand_out(&p, 20);
    progress_release(&p, b, 20);
    progress_release(&p, a, 7);
    ck_assert_int_eq(progress_processed(&p), 7);
    uint64_t c = hand_out(&p, 30);
    ck_assert_uint_eq(c, PROGRESS_TICKET_NONE);
    progress_release(&p, c, 30);
    ck_assert_int_eq(progress_processed(&p), 7);
    progress_start(&p, 7);
    uint64_t d = hand_out(&p, 12);
    progress_release(&p, b, 20); /* from before */
    progress_release(&p, a, 10);
    ck_assert_int_eq(progress_processed(&p), 7);
    progress_release(&p, d, 12);
    ck_assert_int_eq(progress_processed(&p), 12);
    progress_done(&p);
}
END_TEST

START_TEST(a_batch_that_is_out_counts_as_far_as_it_says)
{
    struct consumer_progress p;
    _Atomic int64_t partial = 0;
    uint64_t ticket;
    progress_init(&p);
    progress_start(&p, 0);
    ck_assert_int_eq(progress_hand_out(&p, 10, &partial, &ticket), 0);
    ck_assert_int_eq(progress_processed(&p), 0);
    atomic_store(&partial, 4);
    ck_assert_int_eq(progress_processed(&p), 4);
    progress_release(&p, ticket, 10);
    ck_assert_int_eq(progress_processed(&p), 10);
    progress_done(&p);
}
END_TEST

START_TEST(an_unknown_start_stays_unknown)
{
    struct consumer_progress p;
    progress_init(&p);
    progress_start(&p, -1);
    ck_assert_int_eq(progress_processed(&p), -1);
    progress_done(&p);
}
END_TEST

/* The model: a plain list of all runs handed out since the last start, walked from its front. */
#define RUNS 4000
struct model {
    int64_t start;
    size_t count;
    int64_t next[RUNS];
    int64_t released[RUNS];
    uint64_t ticket[RUNS];
};

static int64_t model_processed(const struct model *m)
{
    int64_t at = m->start;
    for (size_t i = 0; i < m->count && m->released[i] >= 0; i++) {
        at = m->released[i] > at ? m->released[i] : at;
        if (m->released[i] < m->next[i])
            break;
    }
    return at;
}

START_TEST(the_prefix_is_that_of_a_plain_list)
{
    static struct model m;
    static uint64_t old[RUNS];
    size_t old_count = 0;
    uint64_t random = suite_seed();
    struct consumer_progress p;
    progress_init(&p);
    progress_start(&p, 0);
    m = (struct model){0};
    int64_t at = 0;
    for (int step = 0; step < 20000; step++) {
        uint64_t what = suite_random_below(&random, 1000);
        if (what < 3 || m.count == RUNS) {
            for (size_t i = 0; i < m.count && old_count < RUNS; i++)
                if (m.released[i] < 0)
                    old[old_count++] = m.ticket[i];
            at = (int64_t)suite_random_below(&random, 1000);
            m = (struct model){.start = at};
            progress_start(&p, at);
        } else if (what < 450) {
            at += 1 + (int64_t)suite_random_below(&random, 9);
            m.next[m.count] = at;
            m.released[m.count] = -1;
            m.ticket[m.count++] = hand_out(&p, at);
        } else if (what < 480 && old_count > 0) {
            progress_release(&p, old[suite_random_below(&random, old_count)], 1 << 30);
        } else if (m.count > 0) {
            size_t low = m.count > 12 ? m.count - 12 : 0;
            size_t i = low + suite_random_below(&random, m.count - low);
            if (m.released[i] >= 0)
                continue;
            int64_t less = what > 997 ? 1 + (int64_t)suite_random_below(&random, 3) : 0;
            m.released[i] = m.next[i] - less;
            progress_release(&p, m.ticket[i], m.released[i]);
        }
        ck_assert_int_eq(progress_processed(&p), model_processed(&m));
    }
    progress_done(&p);
}
END_TEST

SUITE_MAIN("client/consumer_progress", SUITE_TEST(what_is_released_out_of_order_counts_when_the_gap_closes),
           SUITE_TEST(a_batch_given_back_unfinished_stops_the_count_until_a_new_start),
           SUITE_TEST(a_batch_that_is_out_counts_as_far_as_it_says),
           SUITE_TEST(an_unknown_start_stays_unknown), SUITE_TEST(the_prefix_is_that_of_a_plain_list))
