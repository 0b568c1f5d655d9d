/* Hosting as a whole on a disk whose k-th call fails, for every k. */
#include "tests/unit/cluster/dirs_world.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

/* Two partitions of one directory; their segments are small and few are kept. */
static void begin_small(struct world *w, const char *name)
{
    world_init(w, name, 1);
    w->config.log.segment_bytes = 3000;
    w->config.log.retention_bytes = 6000;
}

/* A life: world_start, two partitions, records over many rolls, retention, checkpoints. `is_one_shot`: what fails is well the next
 * time. */
static void live(struct world *w, bool is_one_shot)
{
    for (int i = 0; i < 2; i++)
        world_put_state(w, i, 0);
    for (int i = 0; i < 2; i++) {
        w->awaited = i;
        suite_wait(is_one_shot ? world_is_led_at_last : world_is_led_or_told, w, 5000);
    }
    for (int round = 0; round < 2; round++) {
        for (int k = 0; k < 30; k++)
            world_append(w, k % 2);
        w->now_ms += HOSTING_CHECKPOINT_MS;
        for (int i = 0; i < 4; i++) {
            w->awaited = 0;
            world_is_told(w);
            usleep(300);
        }
    }
}

static bool takes_records_again(void *arg)
{
    struct world *w = arg;
    return w->is_distrusted || (world_is_led_at_last(w) && world_append(w, w->awaited) == 0);
}

/* The disk is well again, and so is service, without a restart: unless the log or the directory is one that this life
 * does not trust any more. */
static void check_healed(struct world *w)
{
    for (int i = 0; i < 2; i++) {
        w->awaited = i;
        bool is_well = suite_wait(takes_records_again, w, 5000);
        ck_assert_msg(is_well, "%s", w->last_error);
    }
}

/* Whatever was acknowledged is there, nothing else is, and the next record goes behind it. */
static void check_next_life(struct world *w)
{
    ck_assert_int_eq(world_start(w), 0);
    for (int i = 0; i < 2; i++) {
        world_put_state(w, i, (int32_t)w->broker_epoch);
        world_wait_led(w, i);
        struct log *log = partition_log(hosting_find(w->hosting, w->topic, i));
        int64_t first = log_start_offset(log);
        ck_assert_int_eq(log_end_offset(log), w->stored[i]);
        ck_assert_int_eq(fixture_read_all(log, first, true), w->stored[i] - first);
        ck_assert_int_eq(world_append(w, i), 0);
    }
    world_stop(w);
    ck_assert(w->was_clean);
    world_done(w);
}

/* `in_a_row` calls fail, from the k-th on, for every k. */
static void fail_everywhere(const char *name, int error, int in_a_row)
{
    bool struck = true;
    /* In a hurry every fourth, another one each time. */
    int step = suite_is_quick() ? 4 : 1;
    uint64_t random = step > 1 ? suite_seed() : 0;
    int k;
    for (k = 1 + (int)suite_random_below(&random, (uint64_t)step); struck; k += step) {
        struct world w;
        begin_small(&w, name);
        faulty_fail(FAULTY_CHANGES, k, in_a_row, error);
        bool is_started = world_start(&w) == 0;
        if (is_started)
            live(&w, in_a_row == 1);
        struck = faulty_struck();
        if (k % 3 == 0)
            faulty_reset();
        if (is_started && k % 3 == 0)
            check_healed(&w);
        if (w.is_opened || is_started)
            world_stop(&w);
        else
            hosting_free(w.hosting);
        faulty_reset();
        check_next_life(&w);
    }
    fprintf(stderr, "# %d calls\n", k - step - 1);
    ck_assert_int_gt(k, 60);
}

START_TEST(a_disk_that_fails_once_loses_nothing_wherever_that_is)
{
    fail_everywhere("once", EIO, 1);
}
END_TEST

START_TEST(a_disk_that_fails_for_good_loses_nothing_wherever_that_is)
{
    fail_everywhere("forever", EIO, 1 << 30);
}
END_TEST

START_TEST(a_disk_that_is_full_from_any_call_on_loses_nothing)
{
    fail_everywhere("fullfrom", ENOSPC, 1 << 30);
}
END_TEST

SUITE_MAIN("unit/cluster/disk_faults", SUITE_TEST_SLOW(a_disk_that_fails_once_loses_nothing_wherever_that_is, 120),
           SUITE_TEST_SLOW(a_disk_that_fails_for_good_loses_nothing_wherever_that_is, 120),
           SUITE_TEST_SLOW(a_disk_that_is_full_from_any_call_on_loses_nothing, 120))
