/* Compaction: what stays and what goes, at the edges; and a disk that fails on its way. */
#include "broker/storage/compaction.h"
#include "broker/storage/directory.h"
#include "broker/storage/key_map.h"
#include "broker/storage/siphash.h"
#include "broker/storage/throttle.h"
#include "tests/support/faulty_io.h"
#include "tests/support/keyed.h"
#include "tests/unit/storage/fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- parts ---------------------------------------------------------------------------------------------- */

START_TEST(siphash_gives_the_values_of_its_authors)
{
    /* The first, second and last of the authors' vectors: secret 00 01 .. 0f, data 00 01 .. */
    static const struct {
        size_t bytes;
        uint8_t hash[16];
    } vectors[] = {
        {0, {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93}},
        {1, {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45}},
        {63, {0x51, 0x50, 0xd1, 0x77, 0x2f, 0x50, 0x83, 0x4a, 0x50, 0x3e, 0x06, 0x9a, 0x97, 0x3f, 0xbd, 0x7c}},
    };
    uint8_t secret[16], data[64];
    for (int i = 0; i < 64; i++)
        data[i] = (uint8_t)i;
    memcpy(secret, data, sizeof secret);
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        struct siphash h = siphash_128(secret, data, vectors[i].bytes);
        for (int k = 0; k < 16; k++)
            ck_assert_uint_eq((uint8_t)(h.words[k / 8] >> (k % 8 * 8)), vectors[i].hash[k]);
    }
}
END_TEST

START_TEST(a_key_map_holds_as_much_as_its_memory_and_no_more)
{
    struct key_map *map;
    int key = 0;
    ck_assert_int_eq(key_map_new(100 * KEY_MAP_ENTRY_BYTES, UINT64_MAX, &map), 0);
    ck_assert_uint_eq(key_map_bytes(map), 100 * KEY_MAP_ENTRY_BYTES);
    while (key_map_put(map, &key, sizeof key, 1000 + key) == 0)
        key++;
    ck_assert_int_eq(key, 90);
    ck_assert_uint_eq(key_map_count(map), 90);
    for (int i = 0; i < 200; i++)
        ck_assert_int_eq(key_map_find(map, &i, sizeof i), i < 90 ? 1000 + i : -1);
    int known = 5; /* a key that is in it has room */
    ck_assert_int_eq(key_map_put(map, &known, sizeof known, 7777), 0);
    ck_assert_int_eq(key_map_find(map, &known, sizeof known), 7777);
    ck_assert_int_eq(key_map_put(map, "", 0, 1), -BROOK_E_AGAIN);
    key_map_free(map);
}
END_TEST

START_TEST(a_key_map_is_no_larger_than_its_keys_ask_for)
{
    struct key_map *map;
    ck_assert_int_eq(key_map_new((size_t)1 << 40, 10, &map), 0);
    ck_assert_uint_lt(key_map_bytes(map), 20 * KEY_MAP_ENTRY_BYTES);
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(key_map_put(map, &i, sizeof i, i), 0);
    key_map_clear(map);
    ck_assert_uint_eq(key_map_count(map), 0);
    key_map_free(map);
    ck_assert_int_eq(key_map_new(0, 0, &map), 0); /* one key always has room: each pass gets on */
    ck_assert_int_eq(key_map_put(map, "k", 1, 3), 0);
    ck_assert_int_eq(key_map_find(map, "k", 1), 3);
    key_map_free(map);
}
END_TEST

START_TEST(segments_are_grouped_within_the_limits_of_one)
{
    struct compaction_segment s[] = {{0, 10, 400, 0, 5}, {10, 20, 400, 0, 5}, {20, 30, 400, 0, 5}};
    ck_assert_uint_eq(compaction_group(s, 3, 1200, 100), 3);
    ck_assert_uint_eq(compaction_group(s, 3, 1199, 100), 2);
    ck_assert_uint_eq(compaction_group(s, 3, 1200, 14), 2);
    ck_assert_uint_eq(compaction_group(s, 3, 10, 100), 1);
    s[1].next_base = s[2].base_offset = INT64_C(1) + INT32_MAX; /* its last offset is just within 31 bits */
    s[2].next_base = s[2].base_offset + 1;
    ck_assert_uint_eq(compaction_group(s, 3, 1200, 100), 2);
}
END_TEST

START_TEST(what_may_be_compacted_ends_at_the_bound_and_at_what_is_young)
{
    struct compaction_segment s[] = {{0, 10, 400, 100, 5}, {10, 20, 300, 200, 5}, {20, 30, 200, 150, 5}};
    ck_assert_uint_eq(compaction_count(s, 3, 30, 0, 1000), 3);
    ck_assert_uint_eq(compaction_count(s, 3, 29, 0, 1000), 2);
    ck_assert_uint_eq(compaction_count(s, 3, 30, 850, 1000), 1); /* the third is older, but lies behind */
    struct compaction_dirt d = compaction_measure(s, 3, 20);
    ck_assert_int_eq(d.clean_bytes, 700);
    ck_assert_int_eq(d.dirty_bytes, 200);
    ck_assert_int_eq(compaction_ppm(&d), 222222);
    d = compaction_measure(s, 3, 15);
    ck_assert_int_eq(d.dirty_bytes, 500);
}
END_TEST

static void *take_for_ever(void *arg)
{
    throttle_take(arg, 3600); /* an hour's worth */
    return throttle_take(arg, 1) ? arg : NULL;
}

START_TEST(a_throttle_keeps_its_rate_and_lets_go_when_stopped)
{
    struct throttle *t;
    struct timespec before, after;
    ck_assert_int_eq(throttle_new(-1, &t), 0);
    ck_assert(throttle_take(t, SIZE_MAX));
    throttle_free(t);

    ck_assert_int_eq(throttle_new(1000000, &t), 0);
    clock_gettime(CLOCK_MONOTONIC, &before);
    for (int i = 0; i < 10; i++)
        ck_assert(throttle_take(t, 10000));
    clock_gettime(CLOCK_MONOTONIC, &after);
    int64_t ms = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
    ck_assert_int_ge(ms, 99); /* never faster; how much slower is the machine's affair */
    throttle_free(t);

    pthread_t thread;
    void *got;
    ck_assert_int_eq(throttle_new(1, &t), 0);
    ck_assert(throttle_take(t, 0));
    pthread_create(&thread, NULL, take_for_ever, t);
    throttle_stop(t);
    pthread_join(thread, &got);
    ck_assert_ptr_null(got);
    ck_assert(!throttle_take(t, 1));
    throttle_free(t);
}
END_TEST

/* ---- a log ---------------------------------------------------------------------------------------------- */

static bool go_on(void *arg, size_t bytes)
{
    (void)arg;
    (void)bytes;
    return true;
}

static void exclusively(void *arg, void (*work)(void *work_arg), void *work_arg)
{
    (void)arg;
    work(work_arg);
}

static struct compaction_settings settings_with(size_t keys)
{
    return (struct compaction_settings){.map_bytes_max = keys * KEY_MAP_ENTRY_BYTES,
                                        .expanded_bytes_max = 1 << 20,
                                        .go_on = go_on,
                                        .exclusively = exclusively};
}

static struct compaction_result compact(struct log *log, int64_t now_ms, size_t keys)
{
    struct compaction_settings s = settings_with(keys);
    struct compaction_result result;
    struct brook_error error;
    int r = log_compact(log, log_end_offset(log), now_ms, &s, &result, &error);
    ck_assert_msg(r == 0, "%d: %s", r, error.text);
    return result;
}

static struct log *open_new(const char *name, struct log_settings *ret)
{
    *ret = fixture_settings();
    ret->cleanup_policy = CLEANUP_COMPACT;
    ret->segment_bytes = 1000;
    faulty_reset();
    return fixture_open(fixture_log_path(name), ret, &fixture_clean);
}

static int64_t put(struct log *log, int key, int value, int64_t timestamp)
{
    struct keyed k = keyed_record(key, value, timestamp);
    struct log_batch b = keyed_batch(CODEC_NONE, &k, 1, -1, -1);
    int64_t base;
    ck_assert_int_eq(log_append(log, &b, 1, 0, T0, &base, NULL), 0);
    batches_free(&b);
    return base;
}

/* Records without a key, until a new segment has begun. */
static void seal(struct log *log)
{
    size_t before = log_segments_count(log);
    while (log_segments_count(log) == before)
        put(log, -1, 1, T0);
}

/* How many records have this key; the offset of the last one. */
static int find(struct log *log, const char *key, int64_t *ret_last)
{
    struct keyed *list;
    int found = 0;
    size_t count = keyed_read_all(log, &list, NULL, NULL);
    for (size_t i = 0; i < count; i++)
        if (list[i].has_key && !strcmp(list[i].key, key)) {
            found++;
            *ret_last = list[i].offset;
        }
    free(list);
    return found;
}

START_TEST(the_last_of_a_key_stays_where_it_was)
{
    struct log_settings s;
    struct log *log = open_new("last", &s);
    int64_t last = -1, got = -1;
    for (int i = 0; i < 50; i++)
        last = put(log, 7, i, T0 + i);
    seal(log);
    int64_t end = log_end_offset(log), bytes = log_bytes(log);
    struct compaction_result result = compact(log, T0, 100);
    ck_assert_int_eq(find(log, "k7", &got), 1);
    ck_assert_int_eq(got, last);
    ck_assert_int_eq(result.records_removed, 49);
    ck_assert_int_eq(result.passes, 1);
    ck_assert_int_lt(result.bytes_after, result.bytes_before);
    ck_assert_int_lt(log_bytes(log), bytes);
    ck_assert_int_eq(log_end_offset(log), end);
    ck_assert_int_eq(log_start_offset(log), 0);
    ck_assert_int_eq(fixture_count_files(fixture_log_path("last"), ".cleaned"), 0);
    ck_assert_int_eq(fixture_count_files(fixture_log_path("last"), ".swap"), 0);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(the_active_segment_and_what_is_above_the_bound_stay)
{
    struct log_settings s;
    struct log *log = open_new("bound", &s);
    struct compaction_settings c = settings_with(100);
    struct compaction_result result;
    int64_t got;
    put(log, 1, 1, T0);
    put(log, 1, 2, T0);
    ck_assert_int_eq(log_compact(log, INT64_MAX, T0, &c, &result, NULL), 0);
    ck_assert_int_eq(find(log, "k1", &got), 2); /* both in the active one */
    seal(log);
    int64_t bound = log_end_offset(log) - 2; /* inside the sealed one */
    ck_assert_int_eq(log_compact(log, bound, T0, &c, &result, NULL), 0);
    ck_assert_int_eq(find(log, "k1", &got), 2);
    ck_assert_int_eq(log_compact(log, log_end_offset(log), T0, &c, &result, NULL), 0);
    ck_assert_int_eq(find(log, "k1", &got), 1);
    ck_assert_int_eq(got, 1);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(a_tombstone_stays_for_its_time_and_then_goes)
{
    struct log_settings s;
    struct log *log = open_new("tombstone", &s);
    const int64_t first = T0 + 5000;
    int64_t got;
    s.delete_retention_ms = 1000;
    log_configure(log, &s);
    put(log, 1, 1, T0);
    int64_t tombstone = put(log, 1, -1, T0 + 3);
    seal(log);
    compact(log, first, 100);
    ck_assert_int_eq(find(log, "k1", &got), 1);
    ck_assert_int_eq(got, tombstone);
    struct batch_header h = fixture_read_first(log, tombstone);
    ck_assert(h.attributes & BATCH_DELETE_HORIZON);
    ck_assert_int_eq(h.base_timestamp, first + 1000);
    ck_assert_int_eq(h.max_timestamp, T0 + 3);
    /* One moment too early (with something new to compact, or nothing is done) ... */
    seal(log);
    compact(log, first + 999, 100);
    ck_assert_int_eq(find(log, "k1", &got), 1);
    seal(log);
    compact(log, first + 1000, 100);
    ck_assert_int_eq(find(log, "k1", &got), 0);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(duplicates_in_one_batch_leave_the_last_in_every_codec)
{
    struct log_settings s;
    struct log *log = open_new("codecs", &s);
    for (int codec = CODEC_NONE; codec <= CODEC_ZSTD; codec++) {
        struct keyed list[6];
        int64_t base;
        for (int i = 0; i < 6; i++)
            list[i] = keyed_record(codec * 10 + i % 2, i, T0 + 6 - i);
        struct log_batch b = keyed_batch((enum codec_id)codec, list, 6, -1, -1);
        ck_assert_int_eq(log_append(log, &b, 1, 0, T0, &base, NULL), 0);
        batches_free(&b);
    }
    seal(log);
    compact(log, T0, 100);
    for (int codec = CODEC_NONE; codec <= CODEC_ZSTD; codec++) {
        struct batch_header h = fixture_read_first(log, codec * 6);
        ck_assert_int_eq(h.attributes & BATCH_CODEC_MASK, codec);
        ck_assert_int_eq(h.base_offset, codec * 6);
        ck_assert_int_eq(batch_last_offset(&h), codec * 6 + 5);
        ck_assert_int_eq(h.records_count, 2);
        ck_assert_int_eq(h.max_timestamp, T0 + 2);
        for (int i = 0; i < 2; i++) {
            char key[16];
            int64_t got = -1;
            snprintf(key, sizeof key, "k%d", codec * 10 + i);
            ck_assert_int_eq(find(log, key, &got), 1);
            ck_assert_int_eq(got, codec * 6 + 4 + i);
        }
    }
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

/* What is clean and stays so is read, and not written again. */
START_TEST(segments_of_which_nothing_goes_are_not_written)
{
    struct log_settings s;
    struct log *log = open_new("untouched", &s);
    int64_t got;
    for (int key = 0; key < 120; key++)
        put(log, key, key, T0);
    seal(log);
    struct compaction_result first = compact(log, T0, 1000);
    ck_assert_int_gt(first.segments_after, 8);
    ck_assert_int_eq(first.records_removed, 0);
    ck_assert_int_eq(first.segments_left, first.segments_before); /* they are dirty, and yet all of them stay */
    int before = first.segments_after;

    put(log, 60, 1000, T0); /* in the middle of them */
    seal(log);
    faulty_reset();
    struct compaction_result r = compact(log, T0, 1000);
    ck_assert_int_eq(r.records_removed, 1);
    ck_assert_int_eq(find(log, "k60", &got), 1);
    ck_assert_int_ge(r.segments_left, before - 2);
    ck_assert_int_le(faulty_calls(FAULTY_RENAME | FAULTY_PWRITEV), 20);
    for (int key = 0; key < 120; key++) {
        char name[16];
        snprintf(name, sizeof name, "k%d", key);
        ck_assert_int_eq(find(log, name, &got), 1);
    }
    /* Nothing new: nothing to do, as before. */
    ck_assert_int_eq(compact(log, T0, 1000).passes, 0);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

/* A tombstone that is due goes from a segment that is clean otherwise, and one that is not costs no write. */
START_TEST(a_tombstone_that_is_due_is_looked_for_in_the_clean_part)
{
    struct log_settings s;
    struct log *log = open_new("due", &s);
    int64_t got;
    put(log, 7, 1, T0);
    seal(log);
    put(log, 7, -1, T0);
    seal(log);
    compact(log, T0, 1000); /* the value goes, the tombstone's time begins */
    ck_assert_int_eq(find(log, "k7", &got), 1);
    put(log, 8, 1, T0);
    seal(log);
    compact(log, T0 + s.delete_retention_ms - 1, 1000);
    ck_assert_int_eq(find(log, "k7", &got), 1);
    put(log, 9, 1, T0);
    seal(log);
    compact(log, T0 + s.delete_retention_ms + 1, 1000);
    ck_assert_int_eq(find(log, "k7", &got), 0);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(a_key_set_larger_than_the_map_takes_several_passes)
{
    struct log_settings s;
    struct log *log = open_new("passes", &s);
    for (int round = 0; round < 3; round++)
        for (int key = 0; key < 40; key++)
            put(log, key, round * 100 + key, T0);
    seal(log);
    struct compaction_result result = compact(log, T0, 10);
    ck_assert_int_gt(result.passes, 4);
    ck_assert_uint_le(result.map_bytes, 10 * KEY_MAP_ENTRY_BYTES);
    for (int key = 0; key < 40; key++) {
        char text[16];
        int64_t got = -1;
        snprintf(text, sizeof text, "k%d", key);
        ck_assert_int_eq(find(log, text, &got), 1);
        ck_assert_int_eq(got, 80 + key);
    }
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(a_batch_with_more_keys_than_the_map_is_got_through)
{
    struct log_settings s;
    struct log *log = open_new("wide", &s);
    struct keyed list[100];
    int64_t base, got;
    for (int twice = 0; twice < 2; twice++) {
        for (int i = 0; i < 100; i++)
            list[i] = keyed_record(i, i % 7 ? i : -1, T0);
        struct log_batch b = keyed_batch(CODEC_ZSTD, list, 100, -1, -1);
        ck_assert_int_eq(log_append(log, &b, 1, 0, T0, &base, NULL), 0);
        batches_free(&b);
    }
    seal(log);
    compact(log, T0, 8);
    for (int i = 0; i < 100; i++) {
        char text[16];
        snprintf(text, sizeof text, "k%d", i);
        ck_assert_int_eq(find(log, text, &got), 1);
        ck_assert_int_eq(got, 100 + i);
    }
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(small_segments_become_one_that_survives_a_restart)
{
    struct log_settings s;
    struct log *log = open_new("group", &s);
    for (int i = 0; i < 200; i++)
        put(log, i % 3, i, T0 + i);
    size_t before = log_segments_count(log);
    s.segment_bytes = 1 << 20;
    log_configure(log, &s);
    compact(log, T0, 100);
    ck_assert_uint_gt(before, 5);
    ck_assert_uint_eq(log_segments_count(log), 2);
    ck_assert_int_eq(fixture_count_files(fixture_log_path("group"), ".log"), 2);
    int64_t end = log_end_offset(log), cleaned = log_cleaned_offset(log);
    ck_assert_int_gt(cleaned, 0);
    ck_assert_int_eq(log_close(log), 0);
    for (int clean = 0; clean < 2; clean++) {
        struct log_recovery recovery;
        struct log_hint hint = {
            .clean = clean, .recovery_point = -1, .start_offset = -1, .cleaned_offset = cleaned};
        log = fixture_open_reporting(fixture_log_path("group"), &s, &hint, &recovery);
        if (clean)
            ck_assert_int_eq(recovery.indexes_rebuilt, 0); /* the compacted segment's are good */
        ck_assert_int_eq(log_end_offset(log), end);
        ck_assert_int_eq(log_cleaned_offset(log), cleaned);
        fixture_read_all(log, 0, false);
        ck_assert_int_eq(log_close(log), 0);
    }
}
END_TEST

START_TEST(headers_stay_that_tell_what_nothing_else_does)
{
    struct log_settings s;
    struct log *log = open_new("headers", &s);
    int64_t base;
    for (int i = 0; i < 9; i++) { /* producers 0, 1, 2 in turn; a new epoch at the sixth */
        struct keyed k = keyed_record(1, i, T0);
        struct log_batch b = keyed_batch(CODEC_GZIP, &k, 1, i % 3, i);
        ck_assert_int_eq(log_append(log, &b, 1, i < 5 ? 4 : 8, T0, &base, NULL), 0);
        batches_free(&b);
    }
    put(log, 1, 99, T0);
    seal(log);
    compact(log, T0, 100);
    static const int64_t kept[] = {0, 5, 6, 7, 8}; /* first of epochs 4 and 8; last of producers 0, 1, 2 */
    int64_t at = 0;
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        struct batch_header h = fixture_read_first(log, at);
        ck_assert_int_eq(h.base_offset, kept[i]);
        ck_assert_int_eq(h.records_count, 0);
        ck_assert_uint_eq(h.total_bytes, BATCH_HEADER_BYTES);
        ck_assert_int_eq(h.producer_id, kept[i] % 3);
        ck_assert_int_eq(h.base_sequence, kept[i]);
        ck_assert_int_eq(h.leader_epoch, kept[i] < 5 ? 4 : 8);
        ck_assert_int_eq(h.max_timestamp, T0);
        at = kept[i] + 1;
    }
    /* A producer that has been silent for long is forgotten. */
    seal(log);
    compact(log, T0 + 25 * 3600 * 1000, 100);
    ck_assert_int_eq(fixture_read_first(log, 1).base_offset, 5);
    ck_assert_int_eq(fixture_read_first(log, 6).base_offset, 9);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(readers_of_the_old_segment_read_on)
{
    struct log_settings s;
    struct log *log = open_new("readers", &s);
    for (int i = 0; i < 30; i++)
        put(log, 1, i, T0);
    seal(log);
    struct log_range range;
    ck_assert_int_eq(log_read(log, 0, INT64_MAX, 500, true, 1 << 20, &range), 0);
    uint8_t *before = malloc(range.bytes), *after = malloc(range.bytes);
    ck_assert_int_eq(pread(range.fd, before, range.bytes, range.position), (ssize_t)range.bytes);
    compact(log, T0, 100);
    seal(log);
    compact(log, T0, 100);
    ck_assert_int_eq(pread(range.fd, after, range.bytes, range.position), (ssize_t)range.bytes);
    ck_assert_mem_eq(before, after, range.bytes);
    log_range_done(&range);
    free(before);
    free(after);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

/* With one byte of the first segment changed. */
static void compact_damaged(const char *name, long position)
{
    struct log_settings s;
    struct log *log = open_new(name, &s);
    struct compaction_settings c = settings_with(100);
    struct compaction_result result;
    struct brook_error error;
    for (int i = 0; i < 30; i++)
        put(log, 1, i, T0);
    seal(log);
    int64_t bytes = log_bytes(log);
    char path[PATH_MAX];
    fixture_path(path, fixture_log_path(name), "00000000000000000000.log");
    FILE *f = fopen(path, "r+b");
    fseek(f, position, SEEK_SET);
    fputc(0x5a, f);
    fclose(f);
    ck_assert_int_eq(log_compact(log, INT64_MAX, T0, &c, &result, &error), -BROOK_E_CORRUPT_BATCH);
    ck_assert_ptr_nonnull(strstr(error.text, "segment 0"));
    ck_assert_int_eq(log_bytes(log), bytes);
    ck_assert_int_eq(log_cleaned_offset(log), 0);
    ck_assert_ptr_null(log_offline_reason(log));
    ck_assert_int_eq(fixture_count_files(fixture_log_path(name), ".cleaned"), 0);
    log_close(log);
}

START_TEST(an_unreadable_batch_stops_it_and_nothing_is_lost)
{
    compact_damaged("damaged-key", BATCH_HEADER_BYTES + 5);
    compact_damaged("damaged-offset", 1); /* which the checksum does not cover */
    compact_damaged("damaged-length", 10);
}
END_TEST

START_TEST(it_is_due_by_ratio_and_by_lag)
{
    struct log_settings s;
    struct log *log = open_new("due", &s);
    struct compaction_need need;
    for (int i = 0; i < 60; i++)
        put(log, i, i, T0);
    seal(log);
    ck_assert_int_eq(log_compaction_need(log, INT64_MAX, T0, &need), 0);
    ck_assert(need.is_due);
    ck_assert_int_eq(need.ppm, 1000000);
    compact(log, T0, 1000);
    seal(log);
    ck_assert_int_eq(log_compaction_need(log, INT64_MAX, T0, &need), 0);
    ck_assert(!need.is_due);
    ck_assert_int_gt(need.dirt.dirty_bytes, 0);
    s.max_compaction_lag_ms = 1000;
    log_configure(log, &s);
    ck_assert_int_eq(log_compaction_need(log, INT64_MAX, T0 + 1000, &need), 0);
    ck_assert(!need.is_due);
    ck_assert_int_eq(log_compaction_need(log, INT64_MAX, T0 + 1001, &need), 0);
    ck_assert(need.is_due);
    s.min_compaction_lag_ms = 5000;
    log_configure(log, &s);
    ck_assert_int_eq(log_compaction_need(log, INT64_MAX, T0 + 1001, &need), 0);
    ck_assert(!need.is_due);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(retention_leaves_a_compacted_log_alone_unless_told)
{
    struct log_settings s;
    struct log *log = open_new("retention", &s);
    for (int i = 0; i < 100; i++)
        put(log, i, i, T0);
    s.retention_ms = 1000;
    s.retention_bytes = 0;
    log_configure(log, &s);
    ck_assert_int_eq(log_retain(log, T0 + 100000), 0);
    s.cleanup_policy = CLEANUP_COMPACT_DELETE;
    log_configure(log, &s);
    ck_assert_int_gt(log_retain(log, T0 + 100000), 0);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

/* ---- shutdown, and things that happen meanwhile ---------------------------------------------------------- */

struct meddling {
    struct log *log;
    int calls;
    int at;
    void (*meddle)(struct meddling *m);
    bool stops;
};

static bool meddle_go_on(void *arg, size_t bytes)
{
    struct meddling *m = arg;
    (void)bytes;
    if (++m->calls != m->at)
        return true;
    if (m->meddle)
        m->meddle(m);
    return !m->stops;
}

static void cut_log(struct meddling *m)
{
    ck_assert_int_eq(log_truncate(m->log, 2, NULL), 0);
}

static void drop_segment(struct meddling *m)
{
    struct log_settings s = fixture_settings();
    s.retention_bytes = 0;
    log_configure(m->log, &s);
    ck_assert_int_gt(log_retain(m->log, T0), 0);
}

static void append_more(struct meddling *m)
{
    put(m->log, 5, 5, T0);
}

static int run_with(const char *name, struct meddling *m, struct log **ret_log)
{
    struct log_settings s;
    struct log *log = open_new(name, &s);
    struct compaction_settings c = settings_with(100);
    struct compaction_result result;
    for (int i = 0; i < 60; i++)
        put(log, i % 4, i, T0);
    c.go_on = meddle_go_on;
    c.arg = m;
    m->log = log;
    *ret_log = log;
    return log_compact(log, INT64_MAX, T0, &c, &result, NULL);
}

START_TEST(it_stops_when_told_and_bears_changes_meanwhile)
{
    struct log *log;
    struct meddling stop = {.at = 50, .stops = true};
    ck_assert_int_eq(run_with("stop", &stop, &log), -BROOK_E_CLOSED);
    ck_assert_int_eq(stop.calls, 50);
    ck_assert_int_eq(fixture_count_files(fixture_log_path("stop"), ".cleaned"), 0);
    ck_assert_int_eq(log_close(log), 0);

    struct meddling cut = {.at = 100, .meddle = cut_log};
    ck_assert_int_eq(run_with("cut", &cut, &log), -BROOK_E_AGAIN);
    ck_assert_int_eq(log_end_offset(log), 2);
    ck_assert_int_eq(log_cleaned_offset(log), 0);
    ck_assert_int_eq(fixture_count_files(fixture_log_path("cut"), ".cleaned"), 0);
    ck_assert_int_eq(log_close(log), 0);

    struct meddling drop = {.at = 100, .meddle = drop_segment};
    ck_assert_int_eq(run_with("drop", &drop, &log), -BROOK_E_AGAIN);
    ck_assert_int_eq(log_close(log), 0);

    struct meddling append = {.at = 100, .meddle = append_more};
    ck_assert_int_eq(run_with("append", &append, &log), 0);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

/* ---- a failing disk -------------------------------------------------------------------------------------- */

static void check_values(struct log *log, int keys, int records)
{
    for (int key = 0; key < keys; key++) {
        char text[16];
        int64_t got = -1;
        snprintf(text, sizeof text, "k%d", key);
        ck_assert_int_ge(find(log, text, &got), 1);
        ck_assert_int_eq(got, records - keys + key);
    }
}

/* Returns whether the fault struck. */
static bool fail_at(unsigned kinds, int k, int error)
{
    struct log_settings s;
    char name[64];
    snprintf(name, sizeof name, "fault-%d-%d", (int)kinds, k);
    struct log *log = open_new(name, &s);
    struct compaction_settings c = settings_with(100);
    struct compaction_result result;
    for (int i = 0; i < 60; i++)
        put(log, i % 5, i, T0);
    seal(log);
    s.segment_bytes = 2500; /* groups of several */
    log_configure(log, &s);
    int64_t end = log_end_offset(log);
    faulty_fail(kinds, k, 1, error);
    int r = log_compact(log, INT64_MAX, T0, &c, &result, NULL);
    bool struck = faulty_struck();
    faulty_reset();
    bool is_offline = log_offline_reason(log) != NULL;
    ck_assert(r == 0 || struck);
    check_values(log, 5, 60);
    ck_assert_int_eq(log_end_offset(log), end);
    if (!is_offline) { /* all is as before or as after: it takes appends, and is compacted the next time */
        put(log, 6, 6, T0);
        end++;
        ck_assert_int_eq(log_compact(log, INT64_MAX, T0, &c, &result, NULL), 0);
        check_values(log, 5, 60);
    }
    ck_assert_int_eq(log_close(log) == 0, !is_offline);
    log = fixture_open(fixture_log_path(name), &s, &fixture_unclean);
    ck_assert_int_eq(log_end_offset(log), end);
    check_values(log, 5, 60);
    ck_assert_int_eq(fixture_count_files(fixture_log_path(name), ".cleaned"), 0);
    ck_assert_int_eq(fixture_count_files(fixture_log_path(name), ".swap"), 0);
    ck_assert_int_eq(log_close(log), 0);
    suite_remove_tree(fixture_log_path(name));
    return struck;
}

START_TEST(every_call_may_fail_and_no_value_is_lost)
{
    static const unsigned kinds[] = {FAULTY_OPEN,   FAULTY_PWRITEV, FAULTY_DATASYNC,
                                     FAULTY_RENAME, FAULTY_UNLINK,  FAULTY_SYNC_DIRECTORY,
                                     FAULTY_PREAD,  FAULTY_TRUNCATE};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        int k = 1;
        while (fail_at(kinds[i], k, k % 2 ? ENOSPC : EIO))
            k++;
        ck_assert_int_gt(k, 2);
    }
}
END_TEST

START_TEST(a_damaged_swap_is_told_and_nothing_is_touched)
{
    struct log_settings s;
    struct log *log = open_new("badswap", &s), *again = NULL;
    for (int i = 0; i < 60; i++)
        put(log, i % 5, i, T0);
    ck_assert_int_eq(log_close(log), 0);
    const char *path = fixture_log_path("badswap");
    void *data;
    size_t bytes = fixture_load(path, "00000000000000000000.log", &data);
    fixture_store(path, "00000000000000000000.log.swap", data, bytes - 10);
    free(data);
    int logs = fixture_count_files(path, ".log");
    struct brook_error error = {0};
    ck_assert_int_eq(log_open(path, &s, &fixture_unclean, &again, NULL, &error), -BROOK_E_CORRUPT_BATCH);
    ck_assert_ptr_nonnull(strstr(error.text, "swap"));
    ck_assert_int_eq(fixture_count_files(path, ".log"), logs);
    ck_assert_int_eq(fixture_count_files(path, ".swap"), 1);
}
END_TEST

START_TEST(half_named_splits_of_kafka_do_not_count)
{
    struct log_settings s;
    struct log *log = open_new("split", &s);
    for (int i = 0; i < 60; i++)
        put(log, i, i, T0);
    int64_t end = log_end_offset(log);
    ck_assert_int_eq(log_close(log), 0);
    const char *path = fixture_log_path("split");
    void *data;
    size_t bytes = fixture_load(path, "00000000000000000000.log", &data);
    fixture_store(path, "00000000000000000000.log.cleaned", data, 0);
    fixture_store(path, "00000000000000000005.log.swap", data, 0);
    free(data);
    ck_assert_uint_gt(bytes, 0);
    log = fixture_open(path, &s, &fixture_unclean);
    ck_assert_int_eq(log_end_offset(log), end);
    ck_assert_int_eq(fixture_read_all(log, 0, true), end);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

SUITE_MAIN("storage/compaction", SUITE_TEST(siphash_gives_the_values_of_its_authors),
           SUITE_TEST(a_key_map_holds_as_much_as_its_memory_and_no_more),
           SUITE_TEST(a_key_map_is_no_larger_than_its_keys_ask_for),
           SUITE_TEST(segments_are_grouped_within_the_limits_of_one),
           SUITE_TEST(a_throttle_keeps_its_rate_and_lets_go_when_stopped),
           SUITE_TEST(what_may_be_compacted_ends_at_the_bound_and_at_what_is_young),
           SUITE_TEST(the_last_of_a_key_stays_where_it_was),
           SUITE_TEST(the_active_segment_and_what_is_above_the_bound_stay),
           SUITE_TEST(a_tombstone_stays_for_its_time_and_then_goes),
           SUITE_TEST(duplicates_in_one_batch_leave_the_last_in_every_codec),
           SUITE_TEST(segments_of_which_nothing_goes_are_not_written),
           SUITE_TEST(a_tombstone_that_is_due_is_looked_for_in_the_clean_part),
           SUITE_TEST(a_key_set_larger_than_the_map_takes_several_passes),
           SUITE_TEST(a_batch_with_more_keys_than_the_map_is_got_through),
           SUITE_TEST(small_segments_become_one_that_survives_a_restart),
           SUITE_TEST(headers_stay_that_tell_what_nothing_else_does),
           SUITE_TEST(readers_of_the_old_segment_read_on),
           SUITE_TEST(an_unreadable_batch_stops_it_and_nothing_is_lost), SUITE_TEST(it_is_due_by_ratio_and_by_lag),
           SUITE_TEST(retention_leaves_a_compacted_log_alone_unless_told),
           SUITE_TEST(it_stops_when_told_and_bears_changes_meanwhile),
           SUITE_TEST_SLOW(every_call_may_fail_and_no_value_is_lost, 120),
           SUITE_TEST(a_damaged_swap_is_told_and_nothing_is_touched),
           SUITE_TEST(half_named_splits_of_kafka_do_not_count))
