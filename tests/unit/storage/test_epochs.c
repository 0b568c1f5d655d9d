/* Leader epochs: what followers and consumers ask a log, and what is left of them after cuts and restarts. */
#include "broker/storage/epochs.h"
#include "tests/support/epochs_of.h"
#include "tests/unit/storage/fixture.h"

#include <stdio.h>

static void append_at(struct log *log, int32_t epoch, int records_count)
{
    struct log_batch b = batches_make(records_count, T0, 1, 10, 7);
    int64_t base;
    ck_assert_int_eq(log_append(log, &b, 1, epoch, T0, &base, NULL), 0);
    batches_free(&b);
}

static void assert_end(struct log *log, int32_t asked, int32_t epoch, int64_t end)
{
    struct epoch_end found = end_of_epoch(log, asked);
    ck_assert_int_eq(found.epoch, epoch);
    ck_assert_int_eq(found.end, end);
}

/* Epoch 1: 0 to 4; epoch 4: 5 to 6; epoch 6: 7. */
static struct log *log_of_three_epochs(const char *path)
{
    struct log_settings s = fixture_settings();
    struct log *log = fixture_open(path, &s, &fixture_clean);
    append_at(log, 1, 2);
    append_at(log, 1, 3);
    append_at(log, 4, 2);
    append_at(log, 6, 1);
    return log;
}

START_TEST(an_epoch_ends_where_the_next_begins)
{
    struct log *log = log_of_three_epochs(fixture_log_path("ends"));
    assert_end(log, 0, -1, 0);
    assert_end(log, 1, 1, 5);
    assert_end(log, 3, 1, 5);
    assert_end(log, 4, 4, 7);
    assert_end(log, 6, 6, 8);
    assert_end(log, INT32_MAX, 6, 8);
    ck_assert_int_eq(log_last_epoch(log), 6);
    log_close(log);
}
END_TEST

START_TEST(the_epoch_before_an_offset_is_that_of_the_record_before)
{
    struct log *log = log_of_three_epochs(fixture_log_path("before"));
    static const int32_t expected[] = {-1, 1, 1, 1, 1, 1, 4, 4, 6, -1};
    for (int64_t offset = 0; offset < 10; offset++)
        ck_assert_int_eq(epoch_before(log, offset), expected[offset]);
    log_close(log);
}
END_TEST

START_TEST(an_epoch_begins_with_its_first_record)
{
    struct log *log = log_of_three_epochs(fixture_log_path("begins"));
    assert_end(log, 9, 6, 8);
    append_at(log, 9, 2);
    ck_assert_int_eq(log_last_epoch(log), 9);
    assert_end(log, 6, 6, 8);
    assert_end(log, 9, 9, 10);
    log_close(log);
    /* The file was written with the first record. */
    struct log_settings s = fixture_settings();
    log = fixture_open(fixture_log_path("begins"), &s, &fixture_clean);
    assert_end(log, 9, 9, 10);
    log_close(log);
}
END_TEST

START_TEST(a_truncation_forgets_the_epochs_that_it_cut)
{
    struct log *log = log_of_three_epochs(fixture_log_path("cut"));
    ck_assert_int_eq(log_truncate(log, 5, NULL), 0);
    ck_assert_int_eq(log_last_epoch(log), 1);
    assert_end(log, 6, 1, 5);
    log_close(log);
}
END_TEST

START_TEST(followers_learn_epochs_from_the_batches)
{
    struct log_settings s = fixture_settings();
    const char *path = fixture_log_path("follower");
    struct log *log = fixture_open(path, &s, &fixture_clean);
    struct log_batch b[3];
    static const int32_t epochs[] = {2, 2, 5};
    for (int i = 0; i < 3; i++) {
        b[i] = batches_make(2, T0, 1, 10, 7);
        batches_place(&b[i], 10 * i, epochs[i]);
    }
    ck_assert_int_eq(log_append_as_follower(log, b, 3, T0, NULL), 0);
    assert_end(log, 2, 2, 20);
    assert_end(log, 5, 5, 22);
    ck_assert_int_eq(epoch_before(log, 20), 2);
    log_close(log);
    /* Made again from the headers when the file is lost. */
    char file[PATH_MAX];
    fixture_path(file, path, EPOCHS_FILE);
    ck_assert_int_eq(remove(file), 0);
    log = fixture_open(path, &s, &fixture_unclean);
    assert_end(log, 2, 2, 20);
    assert_end(log, 5, 5, 22);
    log_close(log);
    for (int i = 0; i < 3; i++)
        batches_free(&b[i]);
}
END_TEST

SUITE_MAIN("storage/epochs", SUITE_TEST(an_epoch_ends_where_the_next_begins),
           SUITE_TEST(the_epoch_before_an_offset_is_that_of_the_record_before),
           SUITE_TEST(an_epoch_begins_with_its_first_record),
           SUITE_TEST(a_truncation_forgets_the_epochs_that_it_cut),
           SUITE_TEST(followers_learn_epochs_from_the_batches))
