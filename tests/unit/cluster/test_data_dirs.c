/* Several data directories: which one a new partition goes to, and that one which is full or fails leaves the others
 * alone. */
#include "broker/storage/data_dir.h"
#include "tests/unit/cluster/dirs_world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- choosing --------------------------------------------------------------------------------------- */

START_TEST(new_partitions_go_to_the_emptiest_directory)
{
    struct world w;
    int count[DIRS] = {0};
    world_begin(&w, "emptiest");
    for (int i = 0; i < PARTITIONS; i++)
        count[world_dir_of(&w, i)]++;
    ck_assert_int_eq(count[0], PARTITIONS / 2);
    ck_assert_int_eq(count[1], PARTITIONS / 2);
    world_stop(&w);
    ck_assert(w.was_clean && world_is_there(&w, 0, ".kafka_cleanshutdown") && world_is_there(&w, 1, ".kafka_cleanshutdown"));
    world_begin_again(&w);
    world_stop(&w);
    world_done(&w);
}
END_TEST

START_TEST(a_partition_that_one_directory_can_not_take_goes_to_another)
{
    struct world w;
    world_init(&w, "elsewhere", DIRS);
    ck_assert_int_eq(world_start(&w), 0);
    faulty_fail(FAULTY_PWRITEV, 1, 1 << 30, EIO);
    faulty_only("elsewhere-a/t-0");
    world_put_state(&w, 0, 0); /* the directory is made, and its topic id can not be written */
    w.awaited = 0;
    ck_assert(suite_wait(world_is_led_at_last, &w, 5000));
    ck_assert(world_has_partition(&w, 0, 0) && world_has_partition(&w, 1, 0));
    ck_assert_int_eq(world_append(&w, 0), 0);
    faulty_reset();
    world_stop(&w);
    w.warnings = 0;
    ck_assert_int_eq(world_start(&w), 0);
    ck_assert_uint_ge(w.warnings, 1);
    ck_assert_ptr_nonnull(strstr(w.last_warning, "holds nothing, and was set aside"));
    world_put_state(&w, 0, 1);
    world_wait_led(&w, 0);
    world_check_records(&w, 0);
    ck_assert(!world_has_partition(&w, 0, 0) && world_has_partition(&w, 1, 0));
    world_stop(&w);
    world_done(&w);
}
END_TEST

/* ---- full ------------------------------------------------------------------------------------------- */

START_TEST(a_directory_without_room_takes_nothing_until_it_has_some)
{
    struct world w;
    world_init(&w, "full", DIRS);
    ck_assert_int_eq(world_start(&w), 0);
    for (int i = 0; i < 2; i++) {
        world_put_state(&w, i, 0);
        world_wait_led(&w, i);
        ck_assert_int_eq(world_append(&w, i), 0);
    }
    int full = world_dir_of(&w, 0);
    char part[16];
    snprintf(part, sizeof part, "full-%c", 'a' + full);
    faulty_free_bytes(part, ROOM - 1);
    world_wait_told(&w, 1);
    ck_assert_ptr_nonnull(strstr(w.last_warning, part));
    ck_assert_int_eq(world_append(&w, 0), BROOK_E_STORAGE_FULL);
    ck_assert_int_eq(world_append(&w, 1), 0);
    world_check_records(&w, 0); /* reading goes on */
    for (int i = 2; i < PARTITIONS; i++) {
        world_put_state(&w, i, 0);
        world_wait_led(&w, i);
        ck_assert_int_eq(world_dir_of(&w, i), 1 - full);
    }
    faulty_free_bytes(part, ROOM); /* a little more is wanted, or it would turn round at each record */
    for (int i = 0; i < 5; i++) {
        w.awaited = 0;
        world_is_told(&w);
        ck_assert_int_eq(world_append(&w, 0), BROOK_E_STORAGE_FULL);
    }
    faulty_free_bytes(part, 2 * ROOM);
    w.awaited = 0;
    for (int i = 0; i < 1000 && world_append(&w, 0) != 0; i++) {
        world_is_told(&w);
        usleep(1000);
    }
    ck_assert_int_eq(w.stored[0], 4);
    ck_assert_uint_eq(w.warnings, 1);
    ck_assert_uint_eq(w.errors, 0);
    world_stop(&w);
    ck_assert(w.was_clean);
    world_done(&w);
}
END_TEST

START_TEST(a_broker_starts_full_and_new_partitions_wait_for_room)
{
    struct world w;
    world_begin(&w, "fullstart");
    world_stop(&w);
    faulty_free_bytes("", 0);
    ck_assert_int_eq(world_start(&w), 0);
    for (int i = 0; i < PARTITIONS; i++) {
        world_put_state(&w, i, 1);
        world_wait_led(&w, i);
        world_check_records(&w, i);
        ck_assert_int_eq(world_append(&w, i), BROOK_E_STORAGE_FULL); /* from the first moment on */
    }
    w.errors = 0;
    world_put_topic(&w, 2); /* the old one is gone */
    hosting_unwant(w.hosting, "t", &(struct topic_id){{1}});
    world_stop(&w);
    world_done(&w);

    world_init(&w, "fullnew", DIRS);
    faulty_free_bytes("", 0);
    ck_assert_int_eq(world_start(&w), 0);
    world_put_state(&w, 0, 0);
    ck_assert_uint_eq(w.errors, 1);
    ck_assert_ptr_nonnull(strstr(w.last_error, "every data directory is full or has failed"));
    hosting_follow(w.hosting, w.topic);
    ck_assert_uint_eq(w.errors, PARTITIONS); /* once each */
    faulty_free_bytes("", -1);
    w.awaited = 0;
    ck_assert(suite_wait(world_is_led_at_last, &w, 5000));
    ck_assert_int_eq(world_append(&w, 0), 0);
    world_stop(&w);
    ck_assert(w.was_clean);
    world_done(&w);
}
END_TEST

/* ---- failing ---------------------------------------------------------------------------------------- */

/* Partitions of directory `failed` are offline and can be read, the others go on; the next start finds everything. */
static void check_only_one_failed(struct world *w, int failed)
{
    for (int i = 0; i < PARTITIONS; i++) {
        ck_assert_int_eq(world_append(w, i), world_dir_of(w, i) == failed ? BROOK_E_LOG_OFFLINE : 0);
        world_check_records(w, i);
    }
    for (int i = 0; i < 3; i++) {
        w->awaited = 0;
        world_is_told(w);
    }
    ck_assert_uint_eq(w->errors, 1);
    ck_assert_ptr_nonnull(strstr(w->last_error, w->paths[failed]));
    ck_assert_ptr_nonnull(strstr(w->last_error, "3 partitions in it are offline"));
    ck_assert_ptr_nonnull(strstr(w->last_error, "1 other directories go on"));
    faulty_reset(); /* the disk may be well again: this life does not trust it any more */
    for (int i = 0; i < PARTITIONS; i++)
        ck_assert_int_eq(world_append(w, i), world_dir_of(w, i) == failed ? BROOK_E_LOG_OFFLINE : 0);
    world_stop(w);
    ck_assert(!w->was_clean);
    ck_assert(!world_is_there(w, failed, ".kafka_cleanshutdown"));
    ck_assert(world_is_there(w, 1 - failed, ".kafka_cleanshutdown"));
    world_begin_again(w);
    world_stop(w);
    world_done(w);
}

START_TEST(a_directory_whose_checkpoint_fails_takes_only_its_partitions_offline)
{
    struct world w;
    world_begin(&w, "checkpoint");
    hosting_tick(w.hosting, w.now_ms);
    faulty_fail(FAULTY_CHANGES, 1, 1 << 30, EIO);
    faulty_only("checkpoint-a/recovery-point");
    w.now_ms += HOSTING_CHECKPOINT_MS;
    world_wait_told(&w, 1);
    ck_assert_ptr_nonnull(strstr(w.last_error, "Input/output error"));
    check_only_one_failed(&w, 0);
}
END_TEST

START_TEST(a_directory_whose_file_system_is_gone_or_read_only_is_one_that_failed)
{
    const int errors[] = {EIO, EROFS};
    for (int i = 0; i < 2; i++) {
        struct world w;
        world_begin(&w, i ? "readonly" : "gone");
        faulty_fail(FAULTY_FREE_BYTES, 1, 1 << 30, errors[i]);
        faulty_only("-b");
        world_wait_told(&w, 1);
        check_only_one_failed(&w, 1);
    }
}
END_TEST

START_TEST(a_shortage_of_the_process_or_of_room_is_not_the_directorys_failure)
{
    const int errors[] = {ENOSPC, EMFILE, ENOMEM};
    struct world w;
    world_begin(&w, "shortage");
    hosting_tick(w.hosting, w.now_ms);
    for (unsigned i = 0; i < 3; i++) {
        faulty_fail(FAULTY_OPEN, 1, 1 << 30, errors[i]);
        faulty_only("-checkpoint");
        w.now_ms += HOSTING_CHECKPOINT_MS;
        world_wait_told(&w, (int)(i + 1) * DIRS);
        ck_assert_ptr_nonnull(strstr(w.last_warning, "checkpoints not written"));
    }
    faulty_reset();
    ck_assert_uint_eq(w.errors, 0);
    for (int i = 0; i < PARTITIONS; i++)
        ck_assert_int_eq(world_append(&w, i), 0);
    world_stop(&w);
    ck_assert(w.was_clean);
    world_done(&w);
}
END_TEST

START_TEST(a_directory_that_can_not_be_read_at_the_start_is_done_without)
{
    struct world w;
    const unsigned kinds[] = {FAULTY_OPEN, FAULTY_UNLINK, FAULTY_SYNC_DIRECTORY};
    world_begin(&w, "missing");
    world_stop(&w);
    for (int k = 0; k < 3; k++) {
        int32_t epoch = (int32_t)w.broker_epoch + 1;
        faulty_fail(kinds[k], 1, 1 << 30, EIO);
        faulty_only("missing-a");
        w.errors = 0;
        ck_assert_int_eq(world_start(&w), 0);
        ck_assert_uint_eq(w.errors, 1);
        ck_assert_ptr_nonnull(strstr(w.last_error, "missing-a failed"));
        ck_assert_ptr_nonnull(strstr(w.last_error, "Input/output error"));
        if (k == 0)
            ck_assert_str_eq(hosting_first_dir(w.hosting), w.paths[1]);
        for (int i = 0; i < PARTITIONS; i++) {
            world_put_state(&w, i, epoch);
            if (world_has_partition(&w, 0, i))
                continue;
            world_wait_led(&w, i);
            world_check_records(&w, i);
            ck_assert_int_eq(world_append(&w, i), 0);
        }
        for (int i = 0; i < 3; i++) { /* the others are not made anew elsewhere, and that is said once each */
            hosting_follow(w.hosting, w.topic);
            w.awaited = 0;
            ck_assert(!world_is_led_at_last(&w) || !world_has_partition(&w, 0, 0));
        }
        for (int i = 0; i < PARTITIONS; i++)
            world_dir_of(&w, i);
        ck_assert_uint_eq(w.errors, 1 + PARTITIONS / 2);
        faulty_reset();
        world_stop(&w);
        ck_assert(!w.was_clean);
        ck_assert(world_is_there(&w, 1, ".kafka_cleanshutdown"));
    }
    world_begin_again(&w);
    world_stop(&w);
    world_done(&w);
}
END_TEST

/* Partitions that were in directory 0 are offline, said so once each, those of 1 go on. */
static void check_missed(struct world *w, const bool *was_in_a)
{
    for (int i = 0; i < PARTITIONS; i++) {
        world_put_state(w, i, (int32_t)w->broker_epoch);
        if (was_in_a[i])
            continue;
        world_wait_led(w, i);
        world_check_records(w, i);
        ck_assert_int_eq(world_append(w, i), 0);
    }
    for (int i = 0; i < 3; i++) {
        hosting_follow(w->hosting, w->topic);
        for (int k = 0; k < PARTITIONS; k++) {
            w->awaited = k;
            ck_assert(world_is_led_at_last(w) != was_in_a[k]);
        }
    }
    ck_assert_uint_eq(w->errors, PARTITIONS / 2);
    ck_assert_ptr_nonnull(strstr(w->last_error, "is found nowhere"));
}

START_TEST(a_directory_that_is_empty_now_is_not_taken_for_new)
{
    struct world w;
    bool was_in_a[PARTITIONS];
    char away[PATH_MAX + 8];
    world_begin(&w, "unmounted");
    for (int i = 0; i < PARTITIONS; i++)
        was_in_a[i] = world_dir_of(&w, i) == 0;
    world_stop(&w);
    snprintf(away, sizeof away, "%s.away", w.paths[0]);
    suite_remove_tree(away);
    ck_assert_int_eq(rename(w.paths[0], away), 0);
    for (int life = 0; life < 2; life++) { /* the second start knows too */
        w.errors = w.warnings = 0;
        ck_assert_int_eq(world_start(&w), 0);
        ck_assert_uint_eq(w.warnings, 1);
        ck_assert_ptr_nonnull(strstr(w.last_warning, "unmounted-a has no meta.properties"));
        check_missed(&w, was_in_a);
        hosting_compare(w.hosting, w.image);
        for (int i = 0; i < PARTITIONS; i++)
            ck_assert(!was_in_a[i] || !world_has_partition(&w, 0, i));
        world_stop(&w);
        ck_assert(!world_is_there(&w, 0, "meta.properties"));
    }
    suite_remove_tree(w.paths[0]);
    ck_assert_int_eq(rename(away, w.paths[0]), 0); /* mounted again: all is there */
    world_begin_again(&w);
    world_stop(&w);
    world_done(&w);
}
END_TEST

START_TEST(what_was_in_an_empty_directory_is_fetched_anew_from_others)
{
    struct world w;
    world_begin(&w, "refilled");
    world_stop(&w);
    int lost = world_dir_of(&w, 0);
    suite_remove_tree(w.paths[lost]);
    ck_assert_int_eq(world_start(&w), 0);
    world_put_state(&w, 0, 2);
    ck_assert_ptr_null(hosting_find(w.hosting, w.topic, 0));
    struct znode_state state = {.leader = BROKER + 1, .leader_epoch = 3, .isr_count = 1};
    state.isr[0] = BROKER + 1;
    ck_assert_int_eq(image_set_state(w.topic, 0, &state, 3), 0);
    hosting_follow_one(w.hosting, w.topic, 0);
    w.awaited = 0;
    ck_assert(suite_wait(world_is_hosted, &w, 5000));
    ck_assert(world_has_partition(&w, lost, 0));
    world_stop(&w);
    world_done(&w);
}
END_TEST

START_TEST(a_directory_that_was_added_takes_new_partitions)
{
    struct world w;
    world_init(&w, "added", 1);
    ck_assert_int_eq(world_start(&w), 0);
    for (int i = 0; i < PARTITIONS - 1; i++) {
        world_put_state(&w, i, 0);
        world_wait_led(&w, i);
        ck_assert_int_eq(world_append(&w, i), 0);
    }
    world_stop(&w);
    w.dirs_count = 2;
    ck_assert_int_eq(world_start(&w), 0);
    ck_assert_uint_eq(w.warnings, 1);
    for (int i = 0; i < PARTITIONS; i++) {
        world_put_state(&w, i, i < PARTITIONS - 1 ? 1 : 0);
        world_wait_led(&w, i);
        world_check_records(&w, i);
        ck_assert_int_eq(world_append(&w, i), 0);
    }
    ck_assert_int_eq(world_dir_of(&w, PARTITIONS - 1), 1);
    hosting_compare(w.hosting, w.image);
    ck_assert_uint_eq(w.errors, 0);
    world_stop(&w);
    ck_assert(w.was_clean && world_is_there(&w, 1, "meta.properties"));
    world_begin_again(&w);
    ck_assert_uint_eq(w.warnings, 1);
    world_stop(&w);
    world_done(&w);
}
END_TEST

START_TEST(an_only_directory_that_is_empty_begins_anew_loudly)
{
    struct world w;
    world_init(&w, "blank", 1);
    ck_assert_int_eq(world_start(&w), 0);
    world_put_state(&w, 0, 0);
    world_wait_led(&w, 0);
    ck_assert_uint_eq(w.warnings, 0);
    world_stop(&w);
    suite_remove_tree(w.paths[0]);
    ck_assert_int_eq(world_start(&w), 0);
    world_put_state(&w, 0, 1);
    world_wait_led(&w, 0);
    ck_assert_uint_eq(w.warnings, 1);
    ck_assert_ptr_nonnull(strstr(w.last_warning, "its log is not here: it begins anew"));
    world_stop(&w);
    world_done(&w);
}
END_TEST

START_TEST(what_is_made_while_a_directory_is_missing_goes_to_another)
{
    struct world w;
    world_init(&w, "newwhile", DIRS);
    faulty_fail(FAULTY_OPEN, 1, 1 << 30, EIO);
    faulty_only("newwhile-a");
    ck_assert_int_eq(world_start(&w), 0);
    world_put_state(&w, 0, 0); /* of this life */
    world_wait_led(&w, 0);
    ck_assert_int_eq(world_append(&w, 0), 0);
    ck_assert_int_eq(world_dir_of(&w, 0), 1);
    faulty_reset();
    world_stop(&w);
    world_done(&w);
}
END_TEST

START_TEST(without_any_directory_a_broker_does_not_start)
{
    struct world w;
    world_begin(&w, "none");
    world_stop(&w);
    faulty_fail(FAULTY_OPEN, 1, 1 << 30, EIO);
    faulty_only("none-");
    ck_assert_int_eq(world_start(&w), BROOK_E_STORAGE_ERROR);
    ck_assert_ptr_nonnull(strstr(w.last_error, "Input/output error"));
    hosting_free(w.hosting);
    faulty_fail(FAULTY_OPEN, 1, 1 << 30, EIO);
    faulty_only("meta.properties");
    ck_assert_int_eq(world_start(&w), BROOK_E_STORAGE_ERROR);
    world_stop(&w);
    faulty_reset();
    world_begin_again(&w);
    world_stop(&w);
    world_done(&w);
}
END_TEST

/* ---- registrations ---------------------------------------------------------------------------------- */

static void note(struct world *w)
{
    hosting_note_registration(w->hosting, w->broker_epoch - 1);
    hosting_note_registration(w->hosting, w->broker_epoch); /* the newest counts */
    ck_assert(suite_wait(world_is_noted, w, 5000));
    ck_assert_int_eq(hosting_disk_from(w->hosting), w->broker_epoch);
}

static void crash(struct world *w)
{
    hosting_free(w->hosting);
    w->hosting = NULL;
}

START_TEST(the_disks_name_a_registration_only_when_all_of_them_do)
{
    struct world w;
    world_init(&w, "registration", 2);
    ck_assert_int_eq(world_start(&w), 0);
    ck_assert_int_eq(hosting_disk_from(w.hosting), -1);
    note(&w);
    crash(&w);
    ck_assert_int_eq(world_start(&w), 0);
    ck_assert_int_eq(hosting_disk_from(w.hosting), w.broker_epoch - 1);
    note(&w);
    crash(&w);
    suite_remove_tree(w.paths[1]); /* another disk: an empty one */
    ck_assert_int_eq(world_start(&w), 0);
    ck_assert_int_eq(hosting_disk_from(w.hosting), -1);
    note(&w);
    crash(&w);
    w.dirs_count = 1; /* taken away */
    ck_assert_int_eq(world_start(&w), 0);
    ck_assert_int_eq(hosting_disk_from(w.hosting), -1);
    world_stop(&w);
    world_done(&w);
}
END_TEST

SUITE_MAIN("unit/cluster/data_dirs", SUITE_TEST(the_disks_name_a_registration_only_when_all_of_them_do),
           SUITE_TEST(new_partitions_go_to_the_emptiest_directory),
           SUITE_TEST(a_partition_that_one_directory_can_not_take_goes_to_another),
           SUITE_TEST(a_directory_without_room_takes_nothing_until_it_has_some),
           SUITE_TEST(a_broker_starts_full_and_new_partitions_wait_for_room),
           SUITE_TEST(a_directory_whose_checkpoint_fails_takes_only_its_partitions_offline),
           SUITE_TEST(a_directory_whose_file_system_is_gone_or_read_only_is_one_that_failed),
           SUITE_TEST(a_shortage_of_the_process_or_of_room_is_not_the_directorys_failure),
           SUITE_TEST(a_directory_that_can_not_be_read_at_the_start_is_done_without),
           SUITE_TEST(a_directory_that_is_empty_now_is_not_taken_for_new),
           SUITE_TEST(what_was_in_an_empty_directory_is_fetched_anew_from_others),
           SUITE_TEST(a_directory_that_was_added_takes_new_partitions),
           SUITE_TEST(an_only_directory_that_is_empty_begins_anew_loudly),
           SUITE_TEST(what_is_made_while_a_directory_is_missing_goes_to_another),
           SUITE_TEST(without_any_directory_a_broker_does_not_start))
