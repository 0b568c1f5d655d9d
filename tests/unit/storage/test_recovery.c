#include "tests/support/faulty_io.h"
#include "tests/unit/storage/fixture.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_0 "00000000000000000000.log"

/* A segment of a few batches, as bytes, and where its batches end. */
struct good {
    uint8_t *bytes;
    size_t count;
    size_t batches_count;
    size_t ends[64];
    int64_t next_offsets[64];
};

static struct good make_good(int batches)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 1 << 20;
    const char *path = fixture_log_path("good");
    faulty_reset(); /* thousands of logs are opened: syncs are not carried out */
    suite_remove_tree(path);
    struct log *log = fixture_open(path, &s, &fixture_clean);
    struct good g = {0};
    for (int i = 0; i < batches; i++) {
        fixture_append(log, 1 + i % 3, T0 + i, 10);
        g.ends[g.batches_count] = (size_t)log_bytes(log);
        g.next_offsets[g.batches_count++] = log_end_offset(log);
    }
    ck_assert_int_eq(log_close(log), 0);
    void *data;
    g.count = fixture_load(path, LOG_0, &data);
    g.bytes = data;
    return g;
}

static size_t whole_batches(const struct good *g, size_t cut)
{
    size_t n = 0;
    while (n < g->batches_count && g->ends[n] <= cut)
        n++;
    return n;
}

/* A batch may end in zeros itself: then a tail of zeros completes it. */
static size_t equal_batches(const struct good *g, const uint8_t *bytes, size_t count)
{
    size_t n = 0;
    while (n < g->batches_count && g->ends[n] <= count && memcmp(bytes, g->bytes, g->ends[n]) == 0)
        n++;
    return n;
}

/* A directory with nothing but this `.log`. */
static const char *directory_with(const void *bytes, size_t count)
{
    const char *path = fixture_log_path("victim");
    suite_remove_tree(path);
    mkdir(path, 0755);
    fixture_store(path, LOG_0, bytes, count);
    return path;
}

/* Recovery must leave exactly the first `n` batches, and a log that works. */
static void assert_recovers(const struct good *g, const void *bytes, size_t count, size_t n)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 1 << 20;
    const char *path = directory_with(bytes, count);
    struct log_recovery recovery;
    struct log *log = fixture_open_reporting(path, &s, &fixture_unclean, &recovery);
    int64_t next = n > 0 ? g->next_offsets[n - 1] : 0;
    size_t kept = n > 0 ? g->ends[n - 1] : 0;
    ck_assert_int_eq(log_end_offset(log), next);
    ck_assert_int_eq(log_bytes(log), (int64_t)kept);
    ck_assert_int_eq(recovery.bytes_cut, (int64_t)(count - kept));
    ck_assert_int_eq(fixture_read_all(log, 0, true), next);
    ck_assert_int_eq(fixture_append(log, 2, T0, 10), next);
    ck_assert_int_eq(fixture_read_all(log, 0, true), next + 2);
    ck_assert_int_eq(log_close(log), 0);
    log = fixture_open_reporting(path, &s, &fixture_clean, &recovery);
    ck_assert(!recovery.scanned);
    ck_assert_int_eq(fixture_read_all(log, 0, true), next + 2);
    ck_assert_int_eq(log_close(log), 0);
}

START_TEST(every_cut_leaves_the_whole_batches_before_it)
{
    struct good g = make_good(5);
    for (size_t cut = 0; cut <= g.count; cut++)
        assert_recovers(&g, g.bytes, cut, whole_batches(&g, cut));
    free(g.bytes);
}
END_TEST

START_TEST(a_tail_of_zeros_or_noise_is_cut)
{
    uint64_t random = suite_seed();
    struct good g = make_good(4);
    uint8_t *bytes = calloc(1, g.count + 5000);
    for (size_t cut = 0; cut <= g.count; cut += 7) {
        size_t tail = 1 + suite_random_below(&random, 5000);
        memcpy(bytes, g.bytes, cut);
        memset(bytes + cut, 0, tail);
        assert_recovers(&g, bytes, cut + tail, equal_batches(&g, bytes, cut + tail));
        for (size_t i = 0; i < tail; i++)
            bytes[cut + i] = (uint8_t)suite_random(&random);
        assert_recovers(&g, bytes, cut + tail, equal_batches(&g, bytes, cut + tail));
    }
    free(bytes);
    free(g.bytes);
}
END_TEST

static int open_fails(const char *path, const struct log_hint *hint, struct brook_error *error)
{
    struct log_settings s = fixture_settings();
    struct log *log = NULL;
    int r = log_open(path, &s, hint, &log, NULL, error);
    ck_assert_int_ne(r, 0);
    ck_assert_ptr_null(log);
    return r;
}

START_TEST(a_bad_batch_in_front_of_good_ones_is_damage_and_nothing_is_cut)
{
    struct good g = make_good(4);
    struct log_settings s = fixture_settings();
    uint8_t *bytes = malloc(g.count);
    for (size_t at = 0; at < g.count; at++) {
        /* Base offset and leader epoch lie outside the checksum; the epoch can not be checked at all. */
        size_t batch = whole_batches(&g, at), start = batch > 0 ? g.ends[batch - 1] : 0;
        if (at - start >= 12 && at - start < 16)
            continue;
        memcpy(bytes, g.bytes, g.count);
        bytes[at] ^= 0x40;
        const char *path = directory_with(bytes, g.count);
        struct brook_error error = {0};
        if (batch + 1 < g.batches_count) {
            ck_assert_msg(open_fails(path, &fixture_unclean, &error) == -BROOK_E_CORRUPT_BATCH,
                          "byte %zu: %s", at, error.text);
            ck_assert_ptr_nonnull(strstr(error.text, "nothing was cut"));
            void *after;
            ck_assert_uint_eq(fixture_load(path, LOG_0, &after), g.count);
            ck_assert_mem_eq(after, bytes, g.count);
            free(after);
        } else if (at - start >= 8) { /* the last one: as good as torn */
            struct log *log = fixture_open(path, &s, &fixture_unclean);
            ck_assert_int_eq(log_end_offset(log), g.next_offsets[g.batches_count - 2]);
            ck_assert_int_eq(log_close(log), 0);
        }
    }
    free(bytes);
    free(g.bytes);
}
END_TEST

START_TEST(offsets_that_fall_back_are_damage)
{
    struct good g = make_good(4);
    batch_patch(g.bytes + g.ends[0], 0, 0); /* the second batch says it begins where the first does */
    struct brook_error error = {0};
    const char *path = directory_with(g.bytes, g.count);
    ck_assert_int_eq(open_fails(path, &fixture_unclean, &error), -BROOK_E_CORRUPT_BATCH);
    free(g.bytes);
}
END_TEST

START_TEST(gaps_between_offsets_are_legal)
{
    struct good g = make_good(3);
    batch_patch(g.bytes + g.ends[1], 1000, 0);
    struct log_settings s = fixture_settings();
    struct log *log = fixture_open(directory_with(g.bytes, g.count), &s, &fixture_unclean);
    ck_assert_int_eq(log_end_offset(log), 1003);
    ck_assert_int_eq(fixture_read_first(log, 500).base_offset, 1000);
    ck_assert_int_eq(log_close(log), 0);
    free(g.bytes);
}
END_TEST

/* ---- content that looks like something else ------------------------------------------------------------ */

/* Patch the last four value bytes of a batch (`room` bytes before its end) so that its checksum is zero:
 * CRC-32C is linear, so the four bytes follow from a table run backwards; brute force over 2^32 would do too.
 */
static void make_crc_zero(struct log_batch *b, size_t room)
{
    uint8_t *data = b->data;
    size_t bytes = b->header.total_bytes, at = bytes - room;
    uint32_t table[256];
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
        table[i] = c;
    }
    uint32_t forward = 0xffffffffu;
    for (size_t i = 21; i < at; i++)
        forward = table[(forward ^ data[i]) & 0xff] ^ forward >> 8;
    uint32_t backward = 0xffffffffu; /* the register that ends in a sum of zero */
    for (size_t i = bytes; i-- > at;) {
        uint32_t k = 0;
        while (table[k] >> 24 != backward >> 24)
            k++;
        backward = (backward ^ table[k]) << 8 | (k ^ (i >= at + 4 ? data[i] : 0u));
    }
    uint32_t patch = backward ^ forward;
    for (int i = 0; i < 4; i++)
        data[at + (size_t)i] = (uint8_t)(patch >> (8 * i));
    memset(data + 17, 0, 4);
    b->header.crc = 0;
    ck_assert_int_eq(batch_check_crc(data, &b->header), 0);
}

START_TEST(a_batch_whose_checksum_is_zero_is_a_batch)
{
    struct log_settings s = fixture_settings();
    const char *path = fixture_log_path("crc-zero");
    struct log *log = fixture_open(path, &s, &fixture_clean);
    fixture_append(log, 1, T0, 50);
    struct log_batch b = batches_make(1, T0, 0, 50, 1);
    int64_t base;
    make_crc_zero(&b, 20);
    ck_assert_int_eq(log_append(log, &b, 1, 0, T0, &base, NULL), 0);
    fixture_append(log, 1, T0, 50);
    ck_assert_int_eq(log_close(log), 0);
    struct log_recovery recovery;
    log = fixture_open_reporting(path, &s, &fixture_unclean, &recovery);
    ck_assert_int_eq(recovery.bytes_cut, 0);
    ck_assert_int_eq(fixture_read_all(log, 0, true), 3);
    ck_assert_int_eq(log_close(log), 0);
    batches_free(&b);
}
END_TEST

/* Message format v1: offset, size, CRC-32, magic 1, attributes, timestamp, key -1, value of 2 bytes. */
static const uint8_t old_message[] = {0,    0,    0,    0,    0,    0,    0, 0, 0, 0,    0,    24,
                                      0x00, 0x00, 0x00, 0x00, 1,    0,    0, 0, 1, 0x8b, 0xcf, 0xe5,
                                      0x68, 0,    0xff, 0xff, 0xff, 0xff, 0, 0, 0, 2,    'h',  'i'};

START_TEST(messages_older_than_v2_are_refused_and_left_alone)
{
    uint8_t bytes[sizeof old_message];
    memcpy(bytes, old_message, sizeof bytes);
    uint32_t crc = 0xffffffffu;
    for (size_t i = 16; i < sizeof bytes; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++)
            crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    }
    crc = ~crc;
    for (int i = 0; i < 4; i++)
        bytes[12 + i] = (uint8_t)(crc >> (24 - 8 * i));
    struct brook_error error = {0};
    const char *path = directory_with(bytes, sizeof bytes);
    ck_assert_int_eq(open_fails(path, &fixture_unclean, &error), -BROOK_E_UNSUPPORTED_FORMAT);
    ck_assert_int_eq(open_fails(path, &fixture_clean, &error), -BROOK_E_UNSUPPORTED_FORMAT);
    void *after;
    ck_assert_uint_eq(fixture_load(path, LOG_0, &after), sizeof bytes);
    free(after);
    bytes[12] ^= 1; /* no checksum, no message: a torn tail like any other */
    struct log_settings s = fixture_settings();
    struct log *log = fixture_open(directory_with(bytes, sizeof bytes), &s, &fixture_unclean);
    ck_assert_int_eq(log_end_offset(log), 0);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

/* ---- several segments ---------------------------------------------------------------------------------- */

static void cut_file(const char *path, const char *name, size_t keep)
{
    char file[PATH_MAX];
    fixture_path(file, path, name);
    ck_assert_int_eq(truncate(file, (off_t)keep), 0);
}

static int64_t fill(const char *path, int batches)
{
    struct log_settings s = fixture_settings();
    struct log *log = fixture_open(path, &s, &fixture_clean);
    for (int i = 0; i < batches; i++)
        fixture_append(log, 1, T0 + i, 100);
    int64_t end = log_end_offset(log);
    ck_assert_int_eq(log_close(log), 0);
    return end;
}

START_TEST(only_what_lies_above_the_recovery_point_is_read)
{
    const char *path = fixture_log_path("point");
    struct log_settings s = fixture_settings();
    int64_t end = fill(path, 300);
    struct log_hint hint = fixture_unclean;
    struct log_recovery recovery;
    hint.recovery_point = end - 10;
    struct log *log = fixture_open_reporting(path, &s, &hint, &recovery);
    struct batch_header h = fixture_read_first(log, 0);
    ck_assert_int_eq(recovery.bytes_scanned, (int64_t)(10 * h.total_bytes));
    ck_assert_int_eq(fixture_read_all(log, 0, true), end);
    ck_assert_int_eq(log_durable_end(log), end);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(a_recovery_point_beyond_the_log_is_not_believed)
{
    const char *path = fixture_log_path("beyond");
    struct log_settings s = fixture_settings();
    int64_t end = fill(path, 100);
    struct log_hint hint = fixture_unclean;
    struct log_recovery recovery;
    hint.recovery_point = end + 1000;
    struct log *log = fixture_open_reporting(path, &s, &hint, &recovery);
    ck_assert_int_eq(recovery.bytes_scanned, log_bytes(log));
    ck_assert_int_eq(log_end_offset(log), end);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(a_torn_segment_with_an_empty_one_behind_it_is_the_end)
{
    const char *path = fixture_log_path("torn-roll");
    struct log_settings s = fixture_settings();
    fill(path, 10);
    cut_file(path, LOG_0, 1000);
    fixture_store(path, "00000000000000000010.log", "", 0);
    struct log *log = fixture_open(path, &s, &fixture_unclean);
    int64_t end = log_end_offset(log);
    ck_assert_int_gt(end, 2);
    ck_assert_int_lt(end, 10);
    ck_assert_int_eq(fixture_count_files(path, ".log"), 1);
    ck_assert_int_eq(fixture_append(log, 1, T0, 10), end);
    ck_assert_int_eq(fixture_read_all(log, 0, true), end + 1);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

/* Files grow by whole batches, so that is how a power cut often leaves them. Below the recovery point it is a gap. */
START_TEST(a_segment_that_ends_early_with_only_a_name_behind_it_is_the_end)
{
    const char *path = fixture_log_path("edge-roll");
    struct log_settings s = fixture_settings();
    struct log_hint known = fixture_unclean;
    fill(path, 10);
    fixture_store(path, "00000000000000000500.log", "", 0);
    struct log *log = fixture_open(path, &s, &fixture_unclean);
    ck_assert_int_eq(log_end_offset(log), 10);
    ck_assert_int_eq(fixture_count_files(path, ".log"), 1);
    ck_assert_int_eq(fixture_append(log, 1, T0, 10), 10);
    ck_assert_int_eq(fixture_read_all(log, 0, true), 11);
    ck_assert_int_eq(log_close(log), 0);
    fixture_store(path, "00000000000000000500.log", "", 0);
    known.recovery_point = 11;
    log = fixture_open(path, &s, &known);
    ck_assert_int_eq(log_end_offset(log), 500);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

static int is_segment(const struct dirent *e)
{
    return strlen(e->d_name) == 24 && strcmp(e->d_name + 20, ".log") == 0;
}

/* Of the n-th segment, from 0. */
static int64_t segment_base(const char *path, int n)
{
    struct dirent **names;
    int count = scandir(path, &names, is_segment, alphasort);
    ck_assert_int_gt(count, n);
    int64_t base = strtoll(names[n]->d_name, NULL, 10);
    while (count > 0)
        free(names[--count]);
    free(names);
    return base;
}

/* What a power cut leaves of a log that was not synced: names, and the bytes of some files. */
static void leave_empty(const char *path, int64_t base)
{
    char name[64];
    snprintf(name, sizeof name, "%020lld.log", (long long)base);
    fixture_store(path, name, "", 0);
}

START_TEST(behind_an_empty_segment_that_was_not_synced_nothing_counts)
{
    const char *path = fixture_log_path("lost-middle");
    struct log_settings s = fixture_settings();
    int64_t end = fill(path, 100);
    struct log *log = fixture_open(path, &s, &fixture_clean);
    size_t segments = log_segments_count(log);
    ck_assert_int_eq(log_close(log), 0);
    ck_assert_uint_gt(segments, 2);
    int64_t base = segment_base(path, 1);
    leave_empty(path, base);
    struct log_recovery recovery;
    log = fixture_open_reporting(path, &s, &fixture_unclean, &recovery);
    ck_assert_int_gt(recovery.bytes_cut, 0);
    ck_assert_int_eq(log_end_offset(log), base);
    ck_assert_int_eq(fixture_count_files(path, ".log"), 2);
    ck_assert_int_eq(fixture_read_all(log, 0, true), base);
    ck_assert_int_eq(fixture_append(log, 1, T0, 10), base);
    ck_assert_int_lt(log_end_offset(log), end);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(two_empty_segments_are_the_end_at_the_first)
{
    const char *path = fixture_log_path("lost-both");
    struct log_settings s = fixture_settings();
    int64_t end = fill(path, 10);
    leave_empty(path, end);
    leave_empty(path, end + 7);
    struct log *log = fixture_open(path, &s, &fixture_unclean);
    ck_assert_int_eq(log_end_offset(log), end);
    ck_assert_int_eq(fixture_append(log, 1, T0, 10), end);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(what_is_known_to_be_safe_stays_behind_an_empty_segment)
{
    struct log_settings s = fixture_settings();
    for (int known = 0; known < 2; known++) {
        const char *path = fixture_log_path(known ? "kept-synced" : "kept-start");
        int64_t end = fill(path, 100);
        int64_t base = segment_base(path, 1), next = segment_base(path, 2);
        leave_empty(path, base);
        struct log_hint hint = fixture_unclean;
        if (known)
            hint.recovery_point = next;
        else
            hint.start_offset = next;
        struct log *log = fixture_open(path, &s, &hint);
        ck_assert_int_eq(log_end_offset(log), end);
        ck_assert_int_eq(fixture_read_all(log, next, true), end - next);
        ck_assert_int_eq(log_close(log), 0);
    }
}
END_TEST

START_TEST(a_torn_segment_with_good_ones_behind_it_is_damage)
{
    const char *path = fixture_log_path("torn-middle");
    fill(path, 100);
    cut_file(path, LOG_0, 1000);
    struct brook_error error = {0};
    ck_assert_int_eq(open_fails(path, &fixture_unclean, &error), -BROOK_E_CORRUPT_BATCH);
    ck_assert_int_gt(fixture_count_files(path, ".log"), 2);
}
END_TEST

START_TEST(a_marker_that_lies_about_the_last_segment_is_found_out)
{
    const char *path = fixture_log_path("lie");
    struct log_settings s = fixture_settings();
    fill(path, 20);
    cut_file(path, LOG_0, 3000);
    struct log_recovery recovery;
    struct log *log = fixture_open_reporting(path, &s, &fixture_clean, &recovery);
    ck_assert(recovery.scanned);
    ck_assert_int_gt(recovery.bytes_cut, 0);
    int64_t end = log_end_offset(log);
    ck_assert_int_eq(fixture_read_all(log, 0, true), end);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(what_a_crash_left_behind_is_swept)
{
    const char *path = fixture_log_path("sweep");
    struct log_settings s = fixture_settings();
    int64_t end = fill(path, 20);
    const char *const left[] = {"00000000000000000099.index",         "00000000000000000099.timeindex",
                                "00000000000000000099.txnindex",      "00000000000000000099.log.deleted",
                                "00000000000000000099.index.deleted", "00000000000000000000.log.cleaned",
                                "00000000000000000000.log.swap",      "00000000000000000000.index.swap",
                                "leader-epoch-checkpoint.tmp"};
    const size_t count = sizeof left / sizeof left[0];
    for (size_t i = 0; i < count; i++)
        fixture_store(path, left[i], "noise", 5);
    fixture_store(path, "partition.metadata", "keep", 4);
    fixture_store(path, "00000000000000000000.snapshot", "keep", 4);
    struct log *log = fixture_open(path, &s, &fixture_unclean);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(fixture_count_files(path, left[i]) == 0, "%s is still there", left[i]);
    ck_assert_int_eq(fixture_count_files(path, "partition.metadata"), 1);
    ck_assert_int_eq(fixture_count_files(path, ".snapshot"), 1);
    ck_assert_int_eq(log_end_offset(log), end);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(a_finished_compaction_whose_last_rename_is_missing_is_the_log)
{
    char path[PATH_MAX], from[PATH_MAX], to[PATH_MAX];
    strcpy(path, fixture_log_path("swap"));
    struct log_settings s = fixture_settings();
    int64_t end = fill(path, 20);
    fixture_path(from, path, LOG_0);
    fixture_path(to, path, LOG_0 ".swap");
    ck_assert_int_eq(rename(from, to), 0);
    struct log *log = fixture_open(path, &s, &fixture_unclean);
    ck_assert_int_eq(log_end_offset(log), end);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(a_log_whose_files_are_gone_goes_on_at_its_recovery_point)
{
    struct log_settings s = fixture_settings();
    struct log_hint hint = fixture_unclean;
    hint.recovery_point = 500;
    hint.start_offset = 400;
    struct log *log = fixture_open(fixture_log_path("lost"), &s, &hint);
    ck_assert_int_eq(log_end_offset(log), 500);
    ck_assert_int_eq(log_start_offset(log), 500);
    ck_assert_int_eq(fixture_append(log, 1, T0, 10), 500);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(the_start_offset_of_the_checkpoint_hides_what_is_below)
{
    const char *path = fixture_log_path("start");
    struct log_settings s = fixture_settings();
    int64_t end = fill(path, 20);
    struct log_hint hint = fixture_clean;
    hint.start_offset = 7;
    struct log *log = fixture_open(path, &s, &hint);
    ck_assert_int_eq(log_start_offset(log), 7);
    struct log_range range;
    ck_assert_int_eq(log_read(log, 6, INT64_MAX, 100, true, 1000, &range), -BROOK_E_OFFSET_OUT_OF_RANGE);
    ck_assert_int_eq(fixture_read_first(log, 7).base_offset, 7);
    ck_assert_int_eq(log_close(log), 0);
    hint.start_offset = end + 50;
    log = fixture_open(path, &s, &hint);
    ck_assert_int_eq(log_start_offset(log), end);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

/* ---- epochs -------------------------------------------------------------------------------------------- */

static void append_in_epoch(struct log *log, int32_t epoch)
{
    struct log_batch b = batches_make(1, T0, 0, 10, 0);
    int64_t base;
    ck_assert_int_eq(log_append(log, &b, 1, epoch, T0, &base, NULL), 0);
    batches_free(&b);
}

static void assert_epochs(const char *path, const char *expected)
{
    void *data;
    size_t bytes = fixture_load(path, "leader-epoch-checkpoint", &data);
    ck_assert_uint_eq(bytes, strlen(expected));
    ck_assert_mem_eq(data, expected, bytes);
    free(data);
}

START_TEST(epochs_are_written_when_they_rise_and_made_anew_when_lost)
{
    const char *path = fixture_log_path("epochs");
    struct log_settings s = fixture_settings();
    struct log *log = fixture_open(path, &s, &fixture_clean);
    append_in_epoch(log, 0);
    append_in_epoch(log, 0);
    append_in_epoch(log, 3);
    assert_epochs(path, "0\n2\n0 0\n3 2\n");
    append_in_epoch(log, 4);
    assert_epochs(path, "0\n3\n0 0\n3 2\n4 3\n");
    ck_assert_int_eq(log_truncate(log, 3, NULL), 0);
    ck_assert_int_eq(log_close(log), 0);
    assert_epochs(path, "0\n2\n0 0\n3 2\n");
    const char *const bad[] = {"", "0\n", "0\n3\n0 0\n3 2\n", "0\n2\n3 2\n0 0\n", "1\n0\n", "junk"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fixture_store(path, "leader-epoch-checkpoint", bad[i], strlen(bad[i]));
        log = fixture_open(path, &s, i % 2 ? &fixture_clean : &fixture_unclean);
        ck_assert_int_eq(log_close(log), 0);
        assert_epochs(path, "0\n2\n0 0\n3 2\n");
    }
}
END_TEST

SUITE_MAIN("storage/recovery", SUITE_TEST_SLOW(every_cut_leaves_the_whole_batches_before_it, 60),
           SUITE_TEST_SLOW(a_tail_of_zeros_or_noise_is_cut, 60),
           SUITE_TEST_SLOW(a_bad_batch_in_front_of_good_ones_is_damage_and_nothing_is_cut, 60),
           SUITE_TEST(offsets_that_fall_back_are_damage), SUITE_TEST(gaps_between_offsets_are_legal),
           SUITE_TEST(a_batch_whose_checksum_is_zero_is_a_batch),
           SUITE_TEST(messages_older_than_v2_are_refused_and_left_alone),
           SUITE_TEST(only_what_lies_above_the_recovery_point_is_read),
           SUITE_TEST(a_recovery_point_beyond_the_log_is_not_believed),
           SUITE_TEST(a_torn_segment_with_an_empty_one_behind_it_is_the_end),
           SUITE_TEST(a_segment_that_ends_early_with_only_a_name_behind_it_is_the_end),
           SUITE_TEST(behind_an_empty_segment_that_was_not_synced_nothing_counts),
           SUITE_TEST(two_empty_segments_are_the_end_at_the_first),
           SUITE_TEST(what_is_known_to_be_safe_stays_behind_an_empty_segment),
           SUITE_TEST(a_torn_segment_with_good_ones_behind_it_is_damage),
           SUITE_TEST(a_marker_that_lies_about_the_last_segment_is_found_out),
           SUITE_TEST(what_a_crash_left_behind_is_swept),
           SUITE_TEST(a_finished_compaction_whose_last_rename_is_missing_is_the_log),
           SUITE_TEST(a_log_whose_files_are_gone_goes_on_at_its_recovery_point),
           SUITE_TEST(the_start_offset_of_the_checkpoint_hides_what_is_below),
           SUITE_TEST(epochs_are_written_when_they_rise_and_made_anew_when_lost))
