/* What a consumer knows of the epochs that it has read, and where it finds that another log parts from that. */
#include "client/consumer_epochs.h"
#include "tests/support/suite.h"

/* Epoch 1 from 0, 3 from 100, 4 from 150; read up to 200. */
static struct read_epochs read_some(void)
{
    struct read_epochs e = {0};
    read_epochs_note(&e, 1, 0);
    read_epochs_note(&e, 1, 50);
    read_epochs_note(&e, 3, 100);
    read_epochs_note(&e, 4, 150);
    return e;
}

START_TEST(the_epoch_of_the_record_before_is_known)
{
    struct read_epochs e = read_some();
    ck_assert_int_eq(read_epochs_before(&e, 0), -1);
    ck_assert_int_eq(read_epochs_before(&e, 1), 1);
    ck_assert_int_eq(read_epochs_before(&e, 100), 1);
    ck_assert_int_eq(read_epochs_before(&e, 101), 3);
    ck_assert_int_eq(read_epochs_before(&e, 200), 4);
    read_epochs_clear(&e);
    ck_assert_int_eq(read_epochs_before(&e, 200), -1);
}
END_TEST

START_TEST(what_is_read_again_is_no_other_log)
{
    struct read_epochs e = read_some();
    read_epochs_note(&e, 1, 60);
    ck_assert_int_eq(read_epochs_before(&e, 200), 1);
    read_epochs_note(&e, 3, 100);
    read_epochs_note(&e, 4, 150);
    ck_assert_int_eq(read_epochs_before(&e, 200), 4);
    ck_assert_int_eq(read_epochs_before(&e, 30), 1);
    read_epochs_note(&e, -1, 160); /* not known */
    ck_assert_int_eq(read_epochs_before(&e, 200), 4);
    read_epochs_note(&e, 2, 170); /* goes back: nothing is known any more */
    ck_assert_int_eq(read_epochs_before(&e, 160), -1);
    ck_assert_int_eq(read_epochs_before(&e, 200), 2);
}
END_TEST

START_TEST(only_the_newest_are_kept)
{
    struct read_epochs e = {0};
    for (int i = 0; i < 3 * READ_EPOCHS_MAX; i++)
        read_epochs_note(&e, i, 10 * i);
    ck_assert_int_eq(e.count, READ_EPOCHS_MAX);
    ck_assert_int_eq(read_epochs_before(&e, 1000), 3 * READ_EPOCHS_MAX - 1);
    ck_assert_int_eq(read_epochs_before(&e, 10), -1);
}
END_TEST

START_TEST(a_shorter_log_of_the_same_epoch_parts_at_its_end)
{
    struct read_epochs e = read_some();
    ck_assert_int_eq(read_epochs_cut(&e, 200, 4, 180), 180);
    ck_assert_int_eq(read_epochs_before(&e, 180), 4);
}
END_TEST

START_TEST(a_log_without_the_last_epoch_parts_where_that_began_or_before)
{
    struct read_epochs e = read_some();
    ck_assert_int_eq(read_epochs_cut(&e, 200, 3, 120), 120); /* shorter than ours */
    ck_assert_int_eq(read_epochs_before(&e, 120), 3);
    e = read_some();
    ck_assert_int_eq(read_epochs_cut(&e, 200, 3, 170), 150); /* it went on with 3 where ours is of 4 */
    e = read_some();
    ck_assert_int_eq(read_epochs_cut(&e, 200, 2, 170), 100);
    ck_assert_int_eq(read_epochs_before(&e, 100), 1);
    e = read_some();
    ck_assert_int_eq(read_epochs_cut(&e, 200, -1, 0), 0);
    ck_assert_int_eq(e.count, 0);
}
END_TEST

START_TEST(an_answer_that_makes_no_sense_goes_back_all_the_same)
{
    struct read_epochs e = read_some();
    ck_assert_int_eq(read_epochs_cut(&e, 200, 4, 200), 150);
    ck_assert_int_eq(read_epochs_before(&e, 150), 3);
    ck_assert_int_eq(read_epochs_cut(&e, 150, 9, 1000), 100);
    ck_assert_int_eq(read_epochs_cut(&e, 100, 9, 1000), 0);
    read_epochs_clear(&e);
    ck_assert_int_eq(read_epochs_cut(&e, 7, 9, 1000), 6);
    ck_assert_int_eq(read_epochs_cut(&e, 7, 9, -5), 0);
}
END_TEST

SUITE_MAIN("client/consumer_epochs", SUITE_TEST(the_epoch_of_the_record_before_is_known),
           SUITE_TEST(what_is_read_again_is_no_other_log), SUITE_TEST(only_the_newest_are_kept),
           SUITE_TEST(a_shorter_log_of_the_same_epoch_parts_at_its_end),
           SUITE_TEST(a_log_without_the_last_epoch_parts_where_that_began_or_before),
           SUITE_TEST(an_answer_that_makes_no_sense_goes_back_all_the_same))
