#include "broker/net/deadlines.h"
#include "tests/support/suite.h"

#include <stdlib.h>
#include <string.h>

#define COUNT 200

/* Against the obvious way: a scan over all. */
START_TEST(requests_come_out_in_order_of_time)
{
    uint64_t random = suite_seed();
    struct deadlines d = {0};
    struct request *requests = calloc(COUNT, sizeof *requests);
    ck_assert_int_eq(deadlines_reserve(&d, COUNT), 0);
    for (int round = 0; round < 2000; round++) {
        struct request *r = &requests[suite_random_below(&random, COUNT)];
        deadlines_set(&d, r, (int64_t)suite_random_below(&random, 1000));
        int64_t earliest = 0;
        for (int i = 0; i < COUNT; i++)
            if (requests[i].heap_index && (!earliest || requests[i].deadline_ns < earliest))
                earliest = requests[i].deadline_ns;
        ck_assert_int_eq(deadlines_earliest(&d), earliest);
    }
    int64_t previous = 0;
    struct request *r;
    ck_assert_ptr_null(deadlines_pop_due(&d, deadlines_earliest(&d) - 1));
    for (int64_t due; (due = deadlines_earliest(&d)) != 0; previous = due) {
        ck_assert_int_ge(due, previous);
        r = deadlines_pop_due(&d, due);
        ck_assert_ptr_nonnull(r);
        ck_assert_uint_eq(r->heap_index, 0);
    }
    ck_assert_ptr_null(deadlines_pop_due(&d, INT64_MAX));
    deadlines_done(&d);
    free(requests);
}
END_TEST

SUITE_MAIN("broker/net/deadlines", SUITE_TEST(requests_come_out_in_order_of_time))
