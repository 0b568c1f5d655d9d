#include "tests/support/faulty_io.h"
#include "tests/unit/storage/fixture.h"

#include "broker/storage/index.h"
#include "broker/storage/time_index.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- searching ----------------------------------------------------------------------------------------- */

START_TEST(a_search_finds_the_last_entry_at_or_below)
{
    uint8_t bytes[3000 * INDEX_ENTRY_BYTES];
    for (int i = 0; i < 3000; i++)
        index_entry_encode(&(struct index_entry){.relative_offset = 10 * i + 5, .position = 100 * i},
                           bytes + i * INDEX_ENTRY_BYTES);
    fixture_store(suite_directory(), "search", bytes, sizeof bytes);
    int fd = open(fixture_log_path("search"), O_RDONLY);
    const uint32_t counts[] = {0, 1, 2, 511, 512, 513, 1024, 2999, 3000};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        for (int64_t key = 0; key < 30100; key += 5) {
            struct index_entry e;
            int64_t place = key < 5 ? -1 : (key - 5) / 10;
            if (place >= (int64_t)counts[c])
                place = (int64_t)counts[c] - 1;
            ck_assert_int_eq(index_search(fd, counts[c], key, &e), place >= 0);
            if (place >= 0)
                ck_assert_int_eq(e.position, 100 * place);
            int64_t below = key <= 5 ? 0 : (key - 6) / 10 + 1;
            ck_assert_int_eq(index_count_below(fd, counts[c], key),
                             below < (int64_t)counts[c] ? below : (int64_t)counts[c]);
        }
    }
    struct index_entry e;
    ck_assert_int_eq(index_search(fd, 3001, 1 << 30, &e), -1); /* the file is shorter than that */
    close(fd);
}
END_TEST

START_TEST(a_time_search_finds_the_last_entry_below)
{
    uint8_t bytes[1000 * TIME_INDEX_ENTRY_BYTES];
    for (int i = 0; i < 1000; i++)
        time_index_entry_encode(&(struct time_index_entry){.timestamp = T0 + 10 * i, .relative_offset = i},
                                bytes + i * TIME_INDEX_ENTRY_BYTES);
    fixture_store(suite_directory(), "time", bytes, sizeof bytes);
    int fd = open(fixture_log_path("time"), O_RDONLY);
    for (int64_t key = -5; key < 10100; key++) {
        struct time_index_entry e;
        int64_t place = key <= 0 ? -1 : (key - 1) / 10;
        ck_assert_int_eq(time_index_search(fd, 1000, T0 + key, &e), place >= 0);
        if (place >= 0)
            ck_assert_int_eq(e.relative_offset, place < 999 ? place : 999);
    }
    ck_assert_int_eq(time_index_count_below(fd, 1000, 500), 500);
    close(fd);
}
END_TEST

/* ---- indexes that are not what they should be -----------------------------------------------------------
 */

#define RECORDS_MAX 500
#define TIMES 280

/* What a log answers for every offset and many times. */
struct answers {
    int64_t end;
    int64_t base_of[RECORDS_MAX];
    int64_t by_time[TIMES];
};

static void ask(struct log *log, struct answers *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->end = log_end_offset(log);
    ck_assert_int_le(ret->end, RECORDS_MAX);
    for (int64_t offset = 0; offset < ret->end; offset++)
        ret->base_of[offset] = fixture_read_first(log, offset).base_offset;
    for (int64_t i = 0; i < TIMES; i++) { /* from before the least to behind the greatest */
        int64_t offset, timestamp;
        int r = log_find_time(log, T0 + i - 70, INT64_MAX, 1 << 20, &offset, &timestamp);
        ck_assert(r == 0 || r == -BROOK_E_NOT_FOUND);
        ret->by_time[i] = r == 0 ? offset : -1;
    }
}

/* Three segments, timestamps that rise, stay and fall back. */
static void make_pristine(const char *path, struct answers *ret)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 8000;
    s.index_interval_bytes = 200;
    faulty_reset(); /* hundreds of logs are opened: syncs are not carried out */
    struct log *log = fixture_open(path, &s, &fixture_clean);
    for (int i = 0; i < 150; i++)
        fixture_append(log, 1 + i % 4, T0 + i + (i % 5 == 0 ? 40 : 0) - (i % 7 == 0 ? 60 : 0), 20);
    ck_assert_uint_eq(log_segments_count(log), 3);
    ask(log, ret);
    ck_assert_int_eq(log_close(log), 0);
}

enum fault {
    ABSENT,
    EMPTY,
    ZEROS,
    ZERO_TAIL,
    SHORT_BY_A_BYTE,
    SHORT_BY_HALF,
    REVERSED,
    BEYOND_END,
    FROM_ANOTHER,
    NOISE,
    MIDDLE_TOO_LATE, /* all but the first and the last point to where the next one should */
    MIDDLE_ODD,      /* all but the first and the last point one off */
    READ_ONLY,
    FAULTS_COUNT
};

static void damage(const char *path, const char *name, const char *another, size_t entry, enum fault fault)
{
    char file[PATH_MAX];
    fixture_path(file, path, name);
    void *loaded;
    size_t bytes = fixture_load(path, name, &loaded);
    uint8_t *data = loaded;
    uint64_t random = 7;
    ck_assert_uint_ge(bytes, 4 * entry);
    if (fault == ABSENT)
        ck_assert_int_eq(unlink(file), 0);
    if (fault == EMPTY)
        bytes = 0;
    if (fault == ZEROS)
        memset(data, 0, bytes);
    if (fault == ZERO_TAIL)
        memset(data + bytes / entry / 2 * entry, 0, bytes - bytes / entry / 2 * entry);
    if (fault == SHORT_BY_A_BYTE)
        bytes--;
    if (fault == SHORT_BY_HALF)
        bytes = bytes / entry / 2 * entry;
    for (size_t i = 0; fault == REVERSED && i < bytes / entry / 2; i++) {
        uint8_t swap[16];
        uint8_t *x = data + i * entry, *y = data + bytes - (i + 1) * entry;
        memcpy(swap, x, entry);
        memcpy(x, y, entry);
        memcpy(y, swap, entry);
    }
    /* The last four bytes of an entry say where: a position, or an offset. */
    for (size_t at = 2 * entry - 4; fault == MIDDLE_TOO_LATE && at + 2 * entry < bytes; at += entry)
        memcpy(data + at, data + at + entry, 4);
    for (size_t at = 2 * entry - 1; fault == MIDDLE_ODD && at + entry < bytes; at += entry)
        data[at]++;
    if (fault == BEYOND_END)
        memset(data + bytes - 4, 0x7f, 4);
    for (size_t i = 0; fault == NOISE && i < bytes; i++)
        data[i] = (uint8_t)suite_random(&random);
    if (fault == FROM_ANOTHER) {
        free(loaded);
        bytes = fixture_load(path, another, &loaded);
        data = loaded;
    }
    if (fault != ABSENT)
        fixture_store(path, name, data, bytes);
    if (fault == READ_ONLY)
        ck_assert_int_eq(chmod(file, 0444), 0);
    free(loaded);
}

static void assert_same_answers(const char *path, const struct log_hint *hint, const struct answers *expected,
                                const char *name, int fault)
{
    struct log_settings s = fixture_settings();
    static struct answers got;
    s.segment_bytes = 8000;
    s.index_interval_bytes = 200;
    for (int again = 0; again < 2; again++) { /* the second time with what the first one left behind */
        struct log *log = fixture_open(path, &s, hint);
        ask(log, &got);
        ck_assert_msg(memcmp(&got, expected, sizeof got) == 0, "%s fault %d: answers differ", name, fault);
        ck_assert_int_eq(log_retain(log, T0), 0); /* repairs what was found wanting */
        ask(log, &got);
        ck_assert_msg(memcmp(&got, expected, sizeof got) == 0, "%s fault %d: differ after repair", name,
                      fault);
        ck_assert_int_eq(log_close(log), 0);
    }
}

/* The names of the indexes of the three segments. */
static void index_names(const char *path, const char *suffix, char names[3][64])
{
    int n = 0;
    for (int64_t base = 0; base < RECORDS_MAX && n < 3; base++) {
        char file[PATH_MAX];
        snprintf(names[n], 64, "%020lld%s", (long long)base, suffix);
        fixture_path(file, path, names[n]);
        n += access(file, F_OK) == 0;
    }
    ck_assert_int_eq(n, 3);
}

START_TEST(no_fault_of_an_index_changes_an_answer)
{
    static struct answers expected;
    static const char *const suffixes[] = {".index", ".timeindex"};
    static const size_t entries[] = {INDEX_ENTRY_BYTES, TIME_INDEX_ENTRY_BYTES};
    char pristine[PATH_MAX], victim[PATH_MAX];
    strcpy(pristine, fixture_log_path("pristine"));
    strcpy(victim, fixture_log_path("victim"));
    make_pristine(pristine, &expected);
    for (int which = 0; which < 2; which++) {
        char names[3][64];
        index_names(pristine, suffixes[which], names);
        for (int segment = 0; segment < 3; segment++) {
            for (int fault = 0; fault < FAULTS_COUNT; fault++) {
                for (int clean = 0; clean < 2; clean++) {
                    suite_remove_tree(victim);
                    fixture_copy_directory(pristine, victim);
                    damage(victim, names[segment], names[(segment + 1) % 3], entries[which],
                           (enum fault)fault);
                    assert_same_answers(victim, clean ? &fixture_clean : &fixture_unclean, &expected,
                                        names[segment], fault);
                }
            }
        }
    }
}
END_TEST

START_TEST(an_index_is_found_wanting_before_it_is_used)
{
    static struct answers expected;
    char pristine[PATH_MAX], names[3][64];
    strcpy(pristine, fixture_log_path("wanting"));
    make_pristine(pristine, &expected);
    index_names(pristine, ".index", names);
    const enum fault seen_at_once[] = {ABSENT, EMPTY, ZEROS, ZERO_TAIL, SHORT_BY_A_BYTE, BEYOND_END};
    struct log_settings s = fixture_settings();
    s.segment_bytes = 8000;
    s.index_interval_bytes = 200;
    for (size_t i = 0; i < sizeof seen_at_once / sizeof seen_at_once[0]; i++) {
        damage(pristine, names[0], names[1], INDEX_ENTRY_BYTES, seen_at_once[i]);
        struct log_recovery recovery;
        struct log *log = fixture_open_reporting(pristine, &s, &fixture_clean, &recovery);
        ck_assert_msg(recovery.indexes_rebuilt == 1, "fault %d: %d rebuilt", seen_at_once[i],
                      recovery.indexes_rebuilt);
        ck_assert_int_eq(log_close(log), 0);
        log = fixture_open_reporting(pristine, &s, &fixture_clean, &recovery);
        ck_assert_int_eq(recovery.indexes_rebuilt, 0);
        ck_assert_int_eq(log_close(log), 0);
    }
}
END_TEST

START_TEST(a_last_time_entry_that_lies_keeps_no_segment)
{
    static struct answers expected;
    char path[PATH_MAX], names[3][64];
    strcpy(path, fixture_log_path("lying"));
    make_pristine(path, &expected);
    index_names(path, ".timeindex", names);
    void *loaded;
    size_t bytes = fixture_load(path, names[0], &loaded);
    uint8_t *data = loaded;
    data[bytes - 9] ^= 0x10; /* a million milliseconds later */
    fixture_store(path, names[0], data, bytes);
    free(loaded);
    struct log_settings s = fixture_settings();
    s.segment_bytes = 8000;
    s.index_interval_bytes = 200;
    s.retention_ms = 1000;
    struct log *log = fixture_open(path, &s, &fixture_clean);
    ck_assert_int_eq(log_retain(log, T0 + 1000 + 110), 1);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(a_rebuilt_index_is_the_one_that_was_written)
{
    static struct answers expected;
    char pristine[PATH_MAX], victim[PATH_MAX], names[2][3][64];
    strcpy(pristine, fixture_log_path("written"));
    strcpy(victim, fixture_log_path("rebuilt"));
    make_pristine(pristine, &expected);
    fixture_copy_directory(pristine, victim);
    for (int which = 0; which < 2; which++) {
        index_names(pristine, which ? ".timeindex" : ".index", names[which]);
        for (int i = 0; i < 3; i++) {
            char file[PATH_MAX];
            fixture_path(file, victim, names[which][i]);
            unlink(file);
        }
    }
    struct log_settings s = fixture_settings();
    s.segment_bytes = 8000;
    s.index_interval_bytes = 200;
    struct log *log = fixture_open(victim, &s, &fixture_clean);
    ck_assert_int_eq(log_close(log), 0);
    for (int i = 0; i < 6; i++) {
        void *x, *y;
        const char *name = names[i / 3][i % 3];
        size_t n = fixture_load(pristine, name, &x);
        ck_assert_msg(fixture_load(victim, name, &y) == n, "%s", name);
        ck_assert_mem_eq(x, y, n);
        free(x);
        free(y);
    }
}
END_TEST

SUITE_MAIN("storage/index", SUITE_TEST(a_search_finds_the_last_entry_at_or_below),
           SUITE_TEST(a_time_search_finds_the_last_entry_below),
           SUITE_TEST_SLOW(no_fault_of_an_index_changes_an_answer, 120),
           SUITE_TEST(an_index_is_found_wanting_before_it_is_used),
           SUITE_TEST(a_last_time_entry_that_lies_keeps_no_segment),
           SUITE_TEST(a_rebuilt_index_is_the_one_that_was_written))
