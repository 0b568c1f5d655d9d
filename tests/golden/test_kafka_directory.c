/* A data directory as Apache Kafka leaves it: opened, served, and everything in it that is not Brook's left alone. */
#include "broker/storage/data_dir.h"
#include "broker/storage/inspect.h"

#include "proto/record/big_endian.h"
#include "tests/golden/vectors.h"
#include "tests/unit/storage/fixture.h"

#include <isa-l/crc.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLUSTER "abcdefghijklmnopqrstuv"
#define FIRST "00000000000000000000"
#define HEX "0123456789abcdef0123456789abcdef"

static char root[PATH_MAX];

static void folder(const char *name, char path[PATH_MAX])
{
    fixture_path(path, root, name);
    ck_assert_int_eq(mkdir(path, 0755), 0);
}

static void store_hex(const char *directory, const char *file, const char *const *hex, size_t count)
{
    uint8_t all[4 * GOLDEN_BYTES_MAX];
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += golden_bytes(hex[i], all + bytes);
    fixture_store(directory, file, all, bytes);
}

static void store_text(const char *directory, const char *file, const char *text)
{
    fixture_store(directory, file, text, strlen(text));
}

static void copy_golden(const char *to)
{
    char from[PATH_MAX];
    const char *top = getenv("top_srcdir");
    fixture_path(from, top ? top : ".", "tests/golden/segment");
    fixture_copy_directory(from, to);
    store_text(to, "leader-epoch-checkpoint", "0\n1\n0 0\n");
    store_text(to, "partition.metadata", "version: 0\ntopic_id: AQIDBAUGBwgJCgsMDQ4PEA");
}

/* Offsets 0 and 10: a batch of a transaction and the marker that ends it; compaction took what was between. */
static void make_transactions(void)
{
    char path[PATH_MAX];
    folder("a-b-7", path);
    store_hex(path, FIRST ".log", (const char *const[]){GOLDEN_TRANSACTIONAL, GOLDEN_COMMIT_MARKER}, 2);
    store_hex(path, FIRST ".txnindex",
              (const char *const[]){"00000000000000000fa00000000000000000000000000000000a000000000000000b"}, 1);
    store_hex(path, "00000000000000000011.snapshot",
              (const char *const[]){"00019b94fd78000000010000000000000fa0000300000007000000000000000000000000"
                                    "0000018bcfe56800ffffffffffffffffffffffff"},
              1);
    store_text(path, "leader-epoch-checkpoint", "0\n1\n0 0\n");
}

/* A message of format v1: offset 0, key "k", value "v", with its own checksum. */
static size_t old_message(uint8_t message[64])
{
    static const uint8_t body[] = {1, 0, 0, 0, 1, 0x8b, 0xcf, 0xe5, 0x68, 0, 0, 0, 0, 1, 'k', 0, 0, 0, 1, 'v'};
    memset(message, 0, 64);
    be32_write(message + 8, 4 + sizeof body);
    be32_write(message + 12, crc32_gzip_refl(0, body, sizeof body));
    memcpy(message + 16, body, sizeof body);
    return 16 + sizeof body;
}

static void make(bool clean)
{
    char path[PATH_MAX];
    uint8_t message[64];
    strcpy(root, fixture_log_path("kafka"));
    suite_remove_tree(root);
    ck_assert_int_eq(mkdir(root, 0755), 0);
    store_text(root, "meta.properties",
               "#\n#Tue Nov 14 22:13:20 UTC 2023\nnode.id=1\ndirectory.id=AQIDBAUGBwgJCgsMDQ4PEA\nversion=1\n"
               "cluster.id=" CLUSTER "\n");
    store_text(root, "bootstrap.checkpoint", "anything");
    store_text(root, "recovery-point-offset-checkpoint", "0\n2\norders 0 3\na-b 7 11\n");
    store_text(root, "replication-offset-checkpoint", "0\n2\norders 0 3\na-b 7 11\n");
    store_text(root, "log-start-offset-checkpoint", "0\n0\n");
    store_text(root, "cleaner-offset-checkpoint", "0\n1\na-b 7 11\n");
    if (clean)
        store_text(root, ".kafka_cleanshutdown", "{\"version\":0,\"brokerEpoch\":7}");
    folder("orders-0", path);
    copy_golden(path);
    make_transactions();
    folder("old-0", path);
    fixture_store(path, FIRST ".log", message, old_message(message));
    folder("gone-0." HEX "-delete", path);
    store_text(path, FIRST ".log", "x");
    folder("lost-3." HEX "-stray", path);
    copy_golden(path);
    folder("move-1." HEX "-future", path);
    copy_golden(path);
}

static const struct data_dir_partition *find(struct data_dir *dir, const char *topic)
{
    size_t count;
    const struct data_dir_partition *p = data_dir_partitions(dir, &count);
    ck_assert_uint_eq(count, 3); /* not what is going, set aside, or coming */
    while (strcmp(p->topic, topic) != 0)
        p++;
    return p;
}

static struct data_dir *open_root(void)
{
    struct data_dir *dir = NULL;
    struct brook_error error = {0};
    size_t warnings;
    ck_assert_msg(data_dir_open(root, 1, CLUSTER, &dir, &error) == 0, "%s", error.text);
    data_dir_warnings(dir, &warnings);
    ck_assert_uint_eq(warnings, 0);
    return dir;
}

static struct log *open_log(struct data_dir *dir, const char *topic)
{
    char path[PATH_MAX];
    struct log_settings s;
    const struct data_dir_partition *p = find(dir, topic);
    log_settings_default(&s);
    data_dir_partition_path(dir, topic, p->partition, path);
    return fixture_open(path, &s, &p->hint);
}

static void expect_all(bool clean)
{
    make(clean);
    struct data_dir *dir = open_root();
    ck_assert_int_eq(data_dir_was_clean(dir, NULL), clean);
    ck_assert_int_eq(find(dir, "orders")->topic_id[0], 1);
    ck_assert_int_eq(find(dir, "a-b")->high_watermark, 11);
    struct log *log = open_log(dir, "orders");
    ck_assert_int_eq(log_end_offset(log), 3);
    ck_assert_int_eq(fixture_read_all(log, 0, true), 3);
    ck_assert_int_eq(fixture_append(log, 2, GOLDEN_T0, 10), 3); /* and on it goes */
    ck_assert_int_eq(fixture_read_all(log, 0, true), 5);
    ck_assert_int_eq(log_close(log), 0);
    ck_assert_int_eq(data_dir_close(dir, true), 0);
    ck_assert_int_eq(fixture_count_files(root, "-delete"), 0);
    ck_assert_int_eq(fixture_count_files(root, "-stray"), 1);
    ck_assert_int_eq(fixture_count_files(root, "-future"), 1);
    ck_assert_int_eq(fixture_count_files(root, "bootstrap.checkpoint"), 1);
    ck_assert_int_eq(fixture_count_files(root, "cleaner-offset-checkpoint"), 1);
}

START_TEST(a_directory_of_kafkas_opens_after_a_clean_stop)
{
    expect_all(true);
}
END_TEST

START_TEST(a_directory_of_kafkas_opens_after_a_crash)
{
    expect_all(false);
}
END_TEST

START_TEST(control_batches_take_an_offset_and_transactions_files_stay)
{
    for (int clean = 0; clean < 2; clean++) {
        make(clean);
        struct data_dir *dir = open_root();
        struct log *log = open_log(dir, "a-b");
        ck_assert_int_eq(log_end_offset(log), 11);
        struct batch_header h = fixture_read_first(log, 5); /* in the gap: what follows it */
        ck_assert_int_eq(h.base_offset, 10);
        ck_assert_int_eq(h.attributes & BATCH_CONTROL, BATCH_CONTROL);
        ck_assert_int_eq(fixture_append(log, 1, GOLDEN_T0, 10), 11);
        ck_assert_int_eq(log_close(log), 0);
        ck_assert_int_eq(data_dir_close(dir, false), 0);
        char path[PATH_MAX];
        fixture_path(path, root, "a-b-7");
        /* Kafka's is read and kept; ours for the log's end comes beside it. */
        char snapshot[PATH_MAX];
        fixture_path(snapshot, path, "00000000000000000011.snapshot");
        ck_assert_int_eq(access(snapshot, R_OK), 0);
        ck_assert_int_eq(fixture_count_files(path, ".txnindex"), 1);
    }
}
END_TEST

static void expect_refused(struct data_dir *dir, const char *topic)
{
    char path[PATH_MAX];
    struct log_settings s;
    struct log *log = NULL;
    struct brook_error error = {0};
    const struct data_dir_partition *p = find(dir, topic);
    log_settings_default(&s);
    data_dir_partition_path(dir, topic, p->partition, path);
    ck_assert_int_eq(log_open(path, &s, &p->hint, &log, NULL, &error), -BROOK_E_UNSUPPORTED_FORMAT);
    ck_assert_msg(strstr(error.text, "holds messages older than format v2") != NULL, "%s", error.text);
    ck_assert_msg(strstr(error.text, topic) != NULL, "%s", error.text);
}

/* The old segment alone, and in front of newer ones whose clean stop says that it need not be scanned. */
START_TEST(older_formats_take_only_their_partition_offline)
{
    char path[PATH_MAX];
    uint8_t messages[8192];
    size_t bytes = 0;
    for (int clean = 0; clean < 2; clean++) {
        make(clean);
        fixture_path(path, root, "old-0");
        struct data_dir *dir = open_root();
        expect_refused(dir, "old");
        for (bytes = 0; bytes + 64 < sizeof messages;)
            bytes += old_message(messages + bytes);
        fixture_store(path, FIRST ".log", messages, bytes);
        store_hex(path, "00000000000000000002.log", (const char *const[]){GOLDEN_SECOND}, 1);
        expect_refused(dir, "old");
        void *after;
        ck_assert_uint_eq(fixture_load(path, FIRST ".log", &after), bytes);
        ck_assert_mem_eq(after, messages, bytes);
        free(after);
        struct log *log = open_log(dir, "orders");
        ck_assert_int_eq(fixture_read_all(log, 0, true), 3);
        ck_assert_int_eq(log_close(log), 0);
        ck_assert_int_eq(data_dir_close(dir, false), 0);
    }
}
END_TEST

/* ---- the offline tools -------------------------------------------------------------------------------- */

static void count_finding(void *arg, const struct inspect_finding *f)
{
    (void)arg;
    if (f->kind != INSPECT_NOTE)
        fprintf(stderr, "# %s: %s: %s\n", inspect_kind_name(f->kind), f->path, f->text);
}

START_TEST(what_brook_leaves_is_verified)
{
    expect_all(true);
    char path[PATH_MAX];
    fixture_path(path, root, "old-0");
    suite_remove_tree(path);
    struct inspect in = {.found = count_finding};
    struct brook_error error = {0};
    ck_assert_msg(inspect_data_dir(&in, root, &error) == 0, "%s", error.text);
    for (int kind = INSPECT_NOTE + 1; kind < INSPECT_KINDS_COUNT; kind++)
        ck_assert_int_eq(in.findings[kind], 0);
    ck_assert_int_eq(in.partitions, 4);
    ck_assert_int_eq(in.records, 5 + 2 + 3 + 3);
}
END_TEST

/* Many segments, records of several timestamps in each batch: every time is found where a look at each record says. */
START_TEST(times_are_found_exactly)
{
    char path[PATH_MAX];
    strcpy(root, fixture_log_path("times"));
    suite_remove_tree(root);
    ck_assert_int_eq(mkdir(root, 0755), 0);
    fixture_path(path, root, "t-0");
    struct log_settings s = fixture_settings();
    struct log *log = fixture_open(path, &s, &fixture_unclean);
    for (int i = 0; i < 100; i++) {
        struct log_batch b = batches_make_compressed(i % 5, 5, T0 + 100 * i, 7, 100, (uint32_t)i);
        int64_t base;
        ck_assert_int_eq(log_append(log, &b, 1, 0, T0, &base, NULL), 0);
        batches_free(&b);
    }
    ck_assert_uint_gt(log_segments_count(log), 3);
    ck_assert_int_eq(log_close(log), 0);
    struct inspect_record found;
    struct brook_error error = {0};
    for (int i = 0; i < 100; i++)
        for (int k = 0; k < 5; k++) {
            int64_t at = T0 + 100 * i + 7 * k;
            ck_assert_int_eq(inspect_find_time(path, at, &found, &error), 0);
            ck_assert_int_eq(found.offset, 5 * i + k);
            ck_assert_int_eq(found.timestamp, at);
            ck_assert_int_eq(inspect_find_time(path, at - 6, &found, &error), 0);
            ck_assert_int_eq(found.offset, 5 * i + k);
        }
    ck_assert_int_eq(inspect_find_time(path, T0 + 100 * 99 + 29, &found, &error), -BROOK_E_NOT_FOUND);
    store_text(root, "log-start-offset-checkpoint", "0\n1\nt 0 123\n");
    ck_assert_int_eq(inspect_find_time(path, T0, &found, &error), 0);
    ck_assert_int_eq(found.offset, 123);
}
END_TEST

SUITE_MAIN("golden/kafka_directory", SUITE_TEST(a_directory_of_kafkas_opens_after_a_clean_stop),
           SUITE_TEST(a_directory_of_kafkas_opens_after_a_crash),
           SUITE_TEST(control_batches_take_an_offset_and_transactions_files_stay),
           SUITE_TEST(older_formats_take_only_their_partition_offline), SUITE_TEST(what_brook_leaves_is_verified),
           SUITE_TEST(times_are_found_exactly))
