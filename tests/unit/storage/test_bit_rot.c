/* One bit of a log that was whole is another one. Whatever file it is in: opening does not crash and takes nothing away, and
 * no reader is given a batch that is not the one that was written, without its checksum saying so. */
#include "tests/support/faulty_io.h"
#include "tests/unit/storage/fixture.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BATCHES 60
#define FLIPS 40

struct written {
    int64_t base_offset, end;
    uint32_t crc;
};

struct original {
    char path[PATH_MAX];
    struct written batches[BATCHES];
    int64_t end;
};

static struct original make_original(void)
{
    struct original o;
    struct log_settings s = fixture_settings();
    faulty_reset();
    strcpy(o.path, fixture_log_path("original"));
    suite_remove_tree(o.path);
    struct log *log = fixture_open(o.path, &s, &fixture_clean);
    for (int i = 0; i < BATCHES; i++) {
        struct log_batch b = batches_make(1 + i % 3, T0 + i, 1, 200, (uint32_t)i);
        int64_t base;
        ck_assert_int_eq(log_append(log, &b, 1, i / 25, T0 + i, &base, NULL), 0);
        o.batches[i] = (struct written){base, log_end_offset(log), b.header.crc};
        batches_free(&b);
    }
    ck_assert_uint_gt(log_segments_count(log), 3);
    o.end = log_end_offset(log);
    ck_assert_int_eq(log_close(log), 0);
    return o;
}

static bool was_written(const struct original *o, const struct batch_header *h)
{
    for (int i = 0; i < BATCHES; i++)
        if (o->batches[i].base_offset == h->base_offset)
            return o->batches[i].end == batch_last_offset(h) + 1 && o->batches[i].crc == h->crc;
    return false;
}

/* Where the batch ends that holds `offset`. */
static int64_t end_of_batch(const struct original *o, int64_t offset)
{
    int i = 0;
    while (o->batches[i].end <= offset)
        i++;
    return o->batches[i].end;
}

/* What a client sees that asks for `offset`. Returns whether it saw that something is wrong. `is_behind_damage`: it was
 * told so at the beginning of this batch; how far that one reaches is not known any more, so what follows may be the next. */
static bool read_one(const struct original *o, struct log *log, int64_t offset, bool is_behind_damage)
{
    static uint8_t data[65536];
    struct log_range range;
    struct batch_header h;
    int r = log_read(log, offset, o->end, 1, true, sizeof data, &range);
    if (r != 0)
        return true;
    ck_assert_uint_gt(range.bytes, 0);
    size_t bytes = range.bytes < sizeof data ? range.bytes : sizeof data;
    ck_assert_int_eq(pread(range.fd, data, bytes, range.position), (ssize_t)bytes);
    log_range_done(&range);
    if (batch_read_header(data, bytes, &h) != 0 || h.total_bytes > bytes || batch_check_crc(data, &h) != 0)
        return true;
    bool is_it = h.base_offset <= offset && offset <= batch_last_offset(&h);
    bool is_next = is_behind_damage && h.base_offset == end_of_batch(o, offset);
    ck_assert_msg(was_written(o, &h) && (is_it || is_next),
                  "asked for %lld and got the batch at %lld", (long long)offset, (long long)h.base_offset);
    return false;
}

/* Nothing but what a log may make anew is another one than before. */
static void assert_same_segments(const char *before, const char *after)
{
    DIR *dir = opendir(before);
    struct dirent *entry;
    ck_assert_ptr_nonnull(dir);
    while ((entry = readdir(dir))) {
        void *a, *b;
        if (!strstr(entry->d_name, ".log"))
            continue;
        size_t bytes = fixture_load(before, entry->d_name, &a);
        ck_assert_msg(fixture_load(after, entry->d_name, &b) == bytes && memcmp(a, b, bytes) == 0, "%s has changed",
                      entry->d_name);
        free(a);
        free(b);
    }
    closedir(dir);
}

/* `is_log`: else every record must be found as with good files. Returns whether something was seen to be wrong. */
static bool open_and_read(const struct original *o, const char *path, const struct log_hint *hint, bool is_log)
{
    struct log_settings s = fixture_settings();
    struct brook_error error = {0};
    struct log *log = NULL;
    int r = log_open(path, &s, hint, &log, NULL, &error);
    if (r != 0) {
        ck_assert_msg(is_log && r == -BROOK_E_CORRUPT_BATCH, "%d %s", r, error.text);
        ck_assert_ptr_nonnull(strstr(error.text, "nothing was cut"));
        return true;
    }
    bool any = false;
    int64_t damaged_end = 0;
    ck_assert_int_eq(log_end_offset(log), o->end);
    ck_assert_int_eq(log_start_offset(log), 0);
    for (int64_t offset = 0; offset < o->end; offset++)
        if (read_one(o, log, offset, offset < damaged_end)) {
            any = true;
            damaged_end = end_of_batch(o, offset);
        }
    log_close(log);
    return any;
}

/* Where it begins. */
static size_t last_batch(const void *data, size_t bytes)
{
    struct batch_header h;
    size_t last = 0;
    for (size_t at = 0; batch_read_header((const uint8_t *)data + at, bytes - at, &h) == 0; at += h.total_bytes)
        last = at;
    return last;
}

/* No checksum covers it. A scan finds one that falls back (test_recovery); a reader takes it as it is. */
static bool is_base_offset(const void *data, size_t bytes, size_t at)
{
    struct batch_header h;
    for (size_t start = 0; batch_read_header((const uint8_t *)data + start, bytes - start, &h) == 0;
         start += h.total_bytes)
        if (at >= start && at < start + 8)
            return true;
    return false;
}

static void flip(const struct original *o, const char *name, uint64_t *random, int seen[2])
{
    char victim[PATH_MAX], spoilt[PATH_MAX];
    const struct log_hint hints[] = {{.clean = true, .recovery_point = o->end, .start_offset = 0},
                                     {.clean = false, .recovery_point = o->end, .start_offset = 0},
                                     {.clean = false, .recovery_point = o->end / 2, .start_offset = -1}};
    void *data;
    size_t bytes = fixture_load(o->path, name, &data);
    bool is_log = strstr(name, ".log") != NULL;
    strcpy(victim, fixture_log_path("victim"));
    strcpy(spoilt, fixture_log_path("spoilt"));
    for (int i = 0; i < suite_rounds(FLIPS) && bytes > 0; i++) {
        size_t bit = suite_random_below(random, 8 * bytes);
        if (is_log && is_base_offset(data, bytes, bit / 8))
            continue;
        ((uint8_t *)data)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        suite_remove_tree(spoilt);
        fixture_copy_directory(o->path, spoilt);
        fixture_store(spoilt, name, data, bytes);
        for (int h = 0; h < 3; h++) {
            /* What lies at the very end, above the recovery point, can not be told from a torn tail. */
            if (h == 2 && is_log)
                continue;
            suite_remove_tree(victim);
            fixture_copy_directory(spoilt, victim);
            bool any = open_and_read(o, victim, &hints[h], is_log);
            ck_assert_msg(is_log || !any, "bit %zu of %s", bit, name);
            seen[h > 0] += any;
            assert_same_segments(spoilt, victim);
        }
        ((uint8_t *)data)[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    free(data);
}

START_TEST(a_flipped_bit_is_seen_and_takes_nothing_away)
{
    uint64_t random = suite_seed();
    struct original o = make_original();
    int seen[2] = {0}, files = 0;
    DIR *dir = opendir(o.path);
    struct dirent *entry;
    ck_assert_ptr_nonnull(dir);
    while ((entry = readdir(dir)))
        if (entry->d_name[0] != '.') {
            flip(&o, entry->d_name, &random, seen);
            files++;
        }
    closedir(dir);
    ck_assert_int_gt(files, 9);
    ck_assert_int_gt(seen[0], suite_rounds(FLIPS));
    ck_assert_int_gt(seen[1], suite_rounds(FLIPS));
}
END_TEST

/* It would be waited for for ever. */
START_TEST(a_batch_outside_of_its_segment_is_not_nothing_yet)
{
    struct original o = make_original();
    struct log_settings s = fixture_settings();
    struct log_range range;
    void *data;
    size_t bytes = fixture_load(o.path, "00000000000000000000.log", &data);
    ((uint8_t *)data)[2] ^= 0x10;
    fixture_store(o.path, "00000000000000000000.log", data, bytes);
    struct log *log = fixture_open(o.path, &s, &fixture_clean);
    ck_assert_int_eq(log_read(log, 0, o.end, 1000, true, 1 << 20, &range), -BROOK_E_STORAGE_ERROR);
    log_close(log);
    free(data);
}
END_TEST

/* The last batch, too, when it was on stable storage: a torn tail is what was not. */
START_TEST(rot_below_the_recovery_point_is_no_torn_tail)
{
    struct original o = make_original();
    struct log_settings s = fixture_settings();
    struct brook_error error = {0};
    struct log *log = NULL;
    char name[32];
    void *data;
    snprintf(name, sizeof name, "%020d.log", 0);
    for (int i = 0; i < BATCHES; i++) {
        char candidate[32], path[PATH_MAX];
        snprintf(candidate, sizeof candidate, "%020lld.log", (long long)o.batches[i].base_offset);
        fixture_path(path, o.path, candidate);
        if (access(path, F_OK) == 0)
            strcpy(name, candidate);
    }
    size_t bytes = fixture_load(o.path, name, &data);
    uint8_t *last = (uint8_t *)data + last_batch(data, bytes);
    last[10] ^= 0x10; /* its length */
    fixture_store(o.path, name, data, bytes);
    const struct log_hint synced = {.recovery_point = o.end, .start_offset = -1};
    ck_assert_int_eq(log_open(o.path, &s, &synced, &log, NULL, &error), -BROOK_E_CORRUPT_BATCH);
    ck_assert_ptr_nonnull(strstr(error.text, "was on stable storage"));
    const struct log_hint marked = {.clean = true, .recovery_point = o.end, .start_offset = -1};
    ck_assert_int_eq(log_open(o.path, &s, &marked, &log, NULL, &error), -BROOK_E_CORRUPT_BATCH);
    void *after;
    ck_assert_uint_eq(fixture_load(o.path, name, &after), bytes);
    ck_assert_mem_eq(after, data, bytes);
    free(after);
    /* Not synced, it is one. */
    const struct log_hint unsynced = {.recovery_point = o.batches[BATCHES - 1].base_offset, .start_offset = -1};
    log = fixture_open(o.path, &s, &unsynced);
    ck_assert_int_eq(log_end_offset(log), o.batches[BATCHES - 1].base_offset);
    ck_assert_int_eq(log_close(log), 0);
    free(data);
}
END_TEST

SUITE_MAIN("storage/bit_rot", SUITE_TEST_SLOW(a_flipped_bit_is_seen_and_takes_nothing_away, 120),
           SUITE_TEST(a_batch_outside_of_its_segment_is_not_nothing_yet),
           SUITE_TEST(rot_below_the_recovery_point_is_no_torn_tail))
