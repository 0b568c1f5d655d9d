/* ST-15: every side file empty, cut at each byte, garbled, with lines too many, with an old .tmp beside it. Opening
 * succeeds, what a bad file says counts as not known, and a sentence or a flag tells of it. */
#include "broker/storage/data_dir.h"
#include "broker/storage/epochs.h"
#include "broker/storage/marker.h"

#include "tests/unit/storage/fixture.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLUSTER "abcdefghijklmnopqrstuv"

static char root[PATH_MAX], partition[PATH_MAX];

/* A data directory with partition a-0 of 30 batches, stopped cleanly. */
static void make(void)
{
    strcpy(root, fixture_log_path("side"));
    suite_remove_tree(root);
    struct data_dir *dir = NULL;
    ck_assert_int_eq(data_dir_open(root, 1, CLUSTER, &dir, NULL), 0);
    data_dir_partition_path(dir, "a", 0, partition);
    struct log_settings s = fixture_settings();
    struct log *log = fixture_open(partition, &s, &fixture_unclean);
    for (int i = 0; i < 30; i++)
        fixture_append(log, 1, T0 + i, 200);
    ck_assert_int_eq(log_close(log), 0);
    struct data_dir_checkpoint all = {"a", 0, 30, 2, 25, 12, 6};
    ck_assert_int_eq(data_dir_checkpoint(dir, &all, 1, NULL), 0);
    ck_assert_int_eq(data_dir_write_topic_id(dir, "a", 0, (const uint8_t[16]){1, 2, 3}), 0);
    ck_assert_int_eq(data_dir_close(dir, true), 0);
}

/* What a start knew. */
struct start {
    size_t warnings;
    bool was_clean;
    struct data_dir_partition found;
    struct log_recovery recovery;
    int64_t start_offset;
    int64_t end_offset;
    int32_t reached_epoch;
};

static struct start start(void)
{
    struct start t = {0};
    struct data_dir *dir = NULL;
    struct brook_error error = {0};
    size_t count;
    ck_assert_msg(data_dir_open(root, 1, CLUSTER, &dir, &error) == 0, "%s", error.text);
    data_dir_warnings(dir, &t.warnings);
    t.was_clean = data_dir_was_clean(dir, NULL);
    const struct data_dir_partition *p = data_dir_partitions(dir, &count);
    ck_assert_uint_eq(count, 1);
    t.found = *p;
    t.reached_epoch = data_dir_reached(dir, "a", 0);
    struct log_settings s = fixture_settings();
    struct log *log = fixture_open_reporting(partition, &s, &p->hint, &t.recovery);
    t.start_offset = log_start_offset(log);
    t.end_offset = log_end_offset(log);
    fixture_read_all(log, t.start_offset, true);
    ck_assert_int_eq(log_close(log), 0);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    return t;
}

/* Put `text` in the place of `file`, with an older half of it as .tmp, and start. */
static struct start start_with(const char *directory, const char *file, const void *text, size_t bytes)
{
    char temporary[NAME_MAX];
    snprintf(temporary, sizeof temporary, "%s.tmp", file);
    fixture_store(directory, file, text, bytes);
    fixture_store(directory, temporary, "0\n1\na 0 7\n", 6);
    struct start t = start();
    ck_assert_int_eq(t.end_offset, 30); /* no side file costs a record */
    return t;
}

/* Call `check` with every bad form of the file: cut at each byte, zeros, noise, a line too many. */
static void each_bad_form(const char *directory, const char *file, void (*check)(const struct start *t))
{
    void *whole;
    size_t bytes = fixture_load(directory, file, &whole);
    static const char line_more[] = "one more\n", noise[] = "\xff\x00\x13garbage\n";
    for (size_t cut = 0; cut < bytes; cut++) {
        struct start t = start_with(directory, file, whole, cut);
        check(&t);
    }
    struct start t = start_with(directory, file, noise, sizeof noise - 1);
    check(&t);
    char *longer = calloc(1, bytes + sizeof line_more);
    t = start_with(directory, file, longer, bytes); /* zeros, as a power cut leaves them */
    check(&t);
    memcpy(longer, whole, bytes);
    memcpy(longer + bytes, line_more, sizeof line_more);
    t = start_with(directory, file, longer, bytes + sizeof line_more - 1);
    check(&t);
    free(longer);
    free(whole);
}

static void recovery_point_is_unknown(const struct start *t)
{
    ck_assert_int_eq(t->found.hint.recovery_point, -1);
    ck_assert(t->recovery.scanned); /* everything, as nothing is known to be safe */
    ck_assert_uint_eq(t->warnings, 1);
}

static void start_offset_is_unknown(const struct start *t)
{
    ck_assert_int_eq(t->found.hint.start_offset, -1);
    ck_assert_int_eq(t->start_offset, 0);
    ck_assert_uint_eq(t->warnings, 1);
}

static void high_watermark_is_unknown(const struct start *t)
{
    ck_assert_int_eq(t->found.high_watermark, -1);
    ck_assert_uint_eq(t->warnings, 1);
}

static void cleaned_offset_is_unknown(const struct start *t)
{
    ck_assert_int_eq(t->found.hint.cleaned_offset, -1);
    ck_assert_uint_eq(t->warnings, 1);
}

static void reached_epoch_is_unknown(const struct start *t)
{
    ck_assert_int_eq(t->reached_epoch, -1);
    ck_assert_uint_eq(t->warnings, 1);
}

START_TEST(bad_offset_checkpoints_mean_not_known)
{
    make();
    struct start t = start();
    ck_assert_int_eq(t.found.hint.recovery_point, 30);
    ck_assert_int_eq(t.found.hint.start_offset, 2);
    ck_assert_int_eq(t.found.high_watermark, 25);
    ck_assert_int_eq(t.start_offset, 2);
    ck_assert_uint_eq(t.warnings, 0);
    each_bad_form(root, "recovery-point-offset-checkpoint", recovery_point_is_unknown);
    make();
    each_bad_form(root, "log-start-offset-checkpoint", start_offset_is_unknown);
    make();
    each_bad_form(root, "replication-offset-checkpoint", high_watermark_is_unknown);
    make();
    each_bad_form(root, "cleaner-offset-checkpoint", cleaned_offset_is_unknown);
    make();
    ck_assert_int_eq(start().reached_epoch, 6);
    each_bad_form(root, "reached-epoch-checkpoint", reached_epoch_is_unknown);
}
END_TEST

START_TEST(numbers_that_do_not_fit_are_no_numbers)
{
    static const char *const bad[] = {"0\n1\na 4294967296 9\n", "0\n1\na 0 9223372036854775808\n",
                                      "0\n1\na 0 +9\n", "0\n1\na  0 9\n", "0\n1\n a 0 9\n", "0\n1\na 0  9\n"};
    make();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct start t = start_with(root, "recovery-point-offset-checkpoint", bad[i], strlen(bad[i]));
        ck_assert_msg(t.found.hint.recovery_point == -1, "%s was believed", bad[i]);
    }
    static const char *const bad_epochs[] = {"0\n1\n4294967296 0\n", "0\n1\n0 99999999999999999999\n",
                                             "0\n2\n1 5\n0 9\n", "0\n2\n0 5\n1 5\n", "0\n1\n-1 0\n"};
    for (size_t i = 0; i < sizeof bad_epochs / sizeof bad_epochs[0]; i++) {
        struct start t = start_with(partition, EPOCHS_FILE, bad_epochs[i], strlen(bad_epochs[i]));
        ck_assert_msg(t.recovery.epochs_bad, "%s was believed", bad_epochs[i]);
    }
}
END_TEST

static void epochs_are_made_anew(const struct start *t)
{
    ck_assert(t->recovery.epochs_bad);
    struct epochs e = {0};
    char path[PATH_MAX];
    fixture_path(path, partition, EPOCHS_FILE);
    ck_assert_int_eq(epochs_load(&e, path), 0); /* written by the close */
    ck_assert_uint_eq(e.count, 1);
    ck_assert_int_eq(e.entries[0].epoch, 0);
    ck_assert_int_eq(e.entries[0].start_offset, t->start_offset);
    epochs_done(&e);
}

START_TEST(a_bad_epoch_file_is_made_anew_from_the_batches)
{
    make();
    each_bad_form(partition, EPOCHS_FILE, epochs_are_made_anew);
    struct start t = start();
    ck_assert(!t.recovery.epochs_bad);
}
END_TEST

static void topic_id_is_unknown(const struct start *t)
{
    static const uint8_t zero[16];
    ck_assert_mem_eq(t->found.topic_id, zero, sizeof zero);
    ck_assert_uint_eq(t->warnings, 1);
}

START_TEST(a_bad_partition_metadata_means_not_known)
{
    make();
    struct start t = start();
    ck_assert_mem_eq(t.found.topic_id, ((const uint8_t[16]){1, 2, 3}), 16);
    each_bad_form(partition, "partition.metadata", topic_id_is_unknown);
}
END_TEST

static void stop_was_not_clean(const struct start *t)
{
    ck_assert(!t->was_clean);
    ck_assert(!t->found.hint.clean);
    ck_assert_uint_eq(t->warnings, 1);
}

START_TEST(a_bad_marker_is_not_believed)
{
    make();
    void *whole;
    size_t bytes = fixture_load(root, MARKER_FILE, &whole);
    ck_assert_msg(bytes == strlen("{\"version\":0,\"brokerEpoch\":-1}"), "%.*s", (int)bytes, (char *)whole);
    for (size_t cut = 1; cut < bytes; cut++) { /* an empty one is of an older Kafka, and is believed */
        struct start t = start_with(root, MARKER_FILE, whole, cut);
        stop_was_not_clean(&t);
    }
    static const char *const bad[] = {"{}", "{\"brokerEpoch\":}", "{\"brokerEpoch\":x}", "yes", "{\"brokerEpoch\":7}x",
                                      "{\"brokerEpoch\":99999999999999999999}", "{\"brokerEpoch\":-2}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct start t = start_with(root, MARKER_FILE, bad[i], strlen(bad[i]));
        stop_was_not_clean(&t);
    }
    static const char *const good[] = {"", "{\"version\":0,\"brokerEpoch\":7}", "{ \"brokerEpoch\" : 7, \"version\" : 0 }\n"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct start t = start_with(root, MARKER_FILE, good[i], strlen(good[i]));
        ck_assert_msg(t.was_clean, "%s was not believed", good[i]);
    }
    free(whole);
}
END_TEST

/* ---- meta.properties --------------------------------------------------------------------------------- */

static int open_with(const char *text, struct brook_error *error)
{
    struct data_dir *dir = NULL;
    fixture_store(root, "meta.properties", text, strlen(text));
    int r = data_dir_open(root, 1, CLUSTER, &dir, error);
    data_dir_close(dir, false);
    return r;
}

START_TEST(both_versions_of_meta_properties_are_read)
{
    static const char zookeeper[] = "#\n#Tue Nov 14 22:13:20 UTC 2023\nbroker.id=1\nversion=0\ncluster.id=" CLUSTER "\n";
    static const char kraft[] = "#\n#Tue Nov 14 22:13:20 UTC 2023\nnode.id=1\ndirectory.id=AQIDBAUGBwgJCgsMDQ4PEA\n"
                                "version=1\ncluster.id=" CLUSTER "\n";
    const char *const both[] = {zookeeper, kraft};
    struct brook_error error = {0};
    make();
    for (size_t i = 0; i < 2; i++) {
        void *after;
        ck_assert_msg(open_with(both[i], &error) == 0, "%s", error.text);
        size_t bytes = fixture_load(root, "meta.properties", &after);
        ck_assert_uint_eq(bytes, strlen(both[i])); /* Kafka finds what it left */
        ck_assert_mem_eq(after, both[i], bytes);
        free(after);
    }
    ck_assert_int_eq(open_with("version=1\nnode.id=2\ncluster.id=" CLUSTER "\n", &error), -BROOK_E_CONFIG);
    ck_assert_msg(strstr(error.text, "belongs to broker 2, not to 1") != NULL, "%s", error.text);
    ck_assert_int_eq(open_with("version=1\nnode.id=1\ncluster.id=foreign\n", &error), -BROOK_E_CONFIG);
    ck_assert_msg(strstr(error.text, "belongs to cluster foreign, not to " CLUSTER) != NULL, "%s", error.text);
    /* Version 1 must have both ids: without one it is not known whose it is, as any file cut short. */
    ck_assert_int_eq(open_with("version=1\nnode.id=1\n", &error), 0);
    ck_assert_int_eq(open_with("version=1\ncluster.id=" CLUSTER "\n", &error), 0);
    ck_assert_int_eq(open_with("broker.id=99999999999\nversion=0\n", &error), 0);
}
END_TEST

SUITE_MAIN("storage/side_files", SUITE_TEST_SLOW(bad_offset_checkpoints_mean_not_known, 60),
           SUITE_TEST(numbers_that_do_not_fit_are_no_numbers),
           SUITE_TEST_SLOW(a_bad_epoch_file_is_made_anew_from_the_batches, 60),
           SUITE_TEST_SLOW(a_bad_partition_metadata_means_not_known, 60), SUITE_TEST_SLOW(a_bad_marker_is_not_believed, 60),
           SUITE_TEST(both_versions_of_meta_properties_are_read))
