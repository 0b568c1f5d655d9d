#include "tests/support/suite.h"

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"

#include <fcntl.h>
#include <string.h>

START_TEST(taken_pointer_outlives_its_scope)
{
    char *kept;
    {
        AUTO_FREE char *text = strdup("kept");
        AUTO_FREE char *nothing = NULL;
        ck_assert_ptr_null(nothing);
        kept = TAKE(text);
        ck_assert_ptr_null(text);
    }
    ck_assert_str_eq(kept, "kept");
    free(kept);
}
END_TEST

START_TEST(descriptor_is_closed_at_scope_end_unless_taken)
{
    int closed, kept;
    {
        AUTO_CLOSE int a = open("/dev/null", O_RDONLY);
        AUTO_CLOSE int b = open("/dev/null", O_RDONLY);
        AUTO_CLOSE int none = -1;
        ck_assert_int_lt(none, 0);
        closed = a;
        kept = TAKE_FD(b);
        ck_assert_int_eq(b, -1);
    }
    ck_assert_int_eq(fcntl(closed, F_GETFD), -1);
    ck_assert_int_ge(fcntl(kept, F_GETFD), 0);
    close(kept);
}
END_TEST

START_TEST(clocks_agree_on_their_units_and_never_go_back)
{
    int64_t ns = clock_boot_ns(), ms = clock_boot_ms();
    ck_assert_int_ge(ms, ns / 1000000);
    ck_assert_int_le(ms - ns / 1000000, 10000);
    for (int i = 0; i < 1000; i++) {
        int64_t next = clock_boot_ns();
        ck_assert_int_ge(next, ns);
        ns = next;
    }
    ck_assert_int_gt(clock_wall_ms(), INT64_C(1600000000000));
    ck_assert_int_gt(clock_cpu_ns(), 0);
}
END_TEST

SUITE_MAIN("base/cleanup", SUITE_TEST(taken_pointer_outlives_its_scope),
           SUITE_TEST(descriptor_is_closed_at_scope_end_unless_taken),
           SUITE_TEST(clocks_agree_on_their_units_and_never_go_back))
