/* What a peer may send instead of a compressed stream: pieces of one, changed ones, ones that lie about their
 * size, and little ones that expand without end. */
#include "tests/support/guard.h"
#include "tests/support/suite.h"

#include "config.h"
#include "proto/base/err.h"
#include "proto/record/big_endian.h"
#include "proto/record/codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define MIB ((size_t)1 << 20)

static const char words[] =
    "{\"id\":1,\"name\":\"brook\",\"name\":\"river\"} {\"id\":2,\"name\":\"brook\"} {\"id\":3}";
#define WORDS_BYTES (sizeof words - 1)

static struct codec *new_codec(void)
{
    struct codec *codec;
    ck_assert_int_eq(codec_new(&codec), 0);
    return codec;
}

static int expand(struct codec *codec, enum codec_id id, const void *from, size_t bytes, size_t bytes_max,
                  const void **data, size_t *n)
{
    int r = codec_expand(codec, id, from, bytes, bytes_max, data, n);
    ck_assert(r == 0 || r == -BROOK_E_CORRUPT_BATCH || r == -BROOK_E_EXPANDS_TOO_FAR);
    return r;
}

static void assert_words(struct codec *codec, enum codec_id id, const void *from, size_t bytes)
{
    const void *data;
    size_t n;
    ck_assert_int_eq(expand(codec, id, from, bytes, MIB, &data, &n), 0);
    ck_assert_uint_eq(n, WORDS_BYTES);
    ck_assert_mem_eq(data, words, n);
}

START_TEST(every_truncation_is_refused)
{
    struct codec *codec = new_codec();
    struct guard from;
    uint8_t packed[512];
    guard_init(&from, sizeof packed);
    for (int i = CODEC_GZIP; i <= CODEC_ZSTD; i++) {
        enum codec_id id = (enum codec_id)i;
        size_t bytes, n;
        const void *data;
        ck_assert_int_eq(codec_compress(codec, id, words, WORDS_BYTES, packed, sizeof packed, &bytes), 0);
        for (size_t cut = 0; cut < bytes; cut++)
            ck_assert_int_eq(expand(codec, id, guard_copy(&from, packed, cut), cut, MIB, &data, &n),
                             -BROOK_E_CORRUPT_BATCH);
        assert_words(codec, id, guard_copy(&from, packed, bytes), bytes);
    }
    guard_done(&from);
    codec_free(codec);
}
END_TEST

/* A changed byte is an error or means nothing; codecs without a checksum may also take it for other data,
 * which the batch's own checksum is there to notice. Nothing may be read or written out of bounds. */
START_TEST(every_changed_byte_stays_within_bounds)
{
    struct codec *codec = new_codec();
    struct guard from, to;
    uint8_t packed[512];
    guard_init(&from, sizeof packed);
    guard_init(&to, 4096);
    for (int i = CODEC_GZIP; i <= CODEC_ZSTD; i++) {
        enum codec_id id = (enum codec_id)i;
        size_t bytes, n;
        const void *data;
        ck_assert_int_eq(codec_compress(codec, id, words, WORDS_BYTES, packed, sizeof packed, &bytes), 0);
        uint8_t *spoilt = guard_copy(&from, packed, bytes);
        for (size_t at = 0; at < bytes; at++)
            for (int change = 1; change < 256; change++) {
                spoilt[at] ^= (uint8_t)change;
                if (expand(codec, id, spoilt, bytes, MIB, &data, &n) == 0 && id == CODEC_GZIP)
                    assert_words(codec, id, spoilt, bytes);
                size_t room = WORDS_BYTES + (size_t)change;
                codec_expand_into(codec, id, spoilt, bytes, guard_room(&to, room), room, &n);
                spoilt[at] ^= (uint8_t)change;
            }
        assert_words(codec, id, spoilt, bytes);
    }
    guard_done(&from);
    guard_done(&to);
    codec_free(codec);
}
END_TEST

/* What a bad stream leaves behind in the libraries' contexts must not spoil the next one. */
START_TEST(good_stream_is_read_after_any_bad_one)
{
    /* A frame that says it holds 9 bytes, cut within its only block. */
    static const uint8_t lz4_with_content_size[] = {0x04, 0x22, 0x4d, 0x18, 0x68, 0x40, 9, 0,    0,   0,  0,
                                                    0,    0,    0,    0x6d, 9,    0,    0, 0x80, 'a', 'b'};
    struct codec *codec = new_codec();
    uint8_t packed[512], spoilt[1024];
    const void *data;
    size_t n;
    for (int i = CODEC_GZIP; i <= CODEC_ZSTD; i++) {
        enum codec_id id = (enum codec_id)i;
        size_t bytes;
        ck_assert_int_eq(codec_compress(codec, id, words, WORDS_BYTES, packed, sizeof packed, &bytes), 0);
        for (size_t cut = 0; cut < bytes; cut++) {
            memcpy(spoilt, packed, cut);
            memcpy(spoilt + cut, packed, bytes);
            expand(codec, id, spoilt, cut + bytes, MIB, &data, &n);
            expand(codec, id, packed, cut, MIB, &data, &n);
            assert_words(codec, id, packed, bytes);
            expand(codec, id, packed, bytes, cut % WORDS_BYTES, &data, &n);
            assert_words(codec, id, packed, bytes);
        }
        if (id == CODEC_LZ4)
            ck_assert_int_lt(
                expand(codec, id, lz4_with_content_size, sizeof lz4_with_content_size, MIB, &data, &n), 0);
        assert_words(codec, id, packed, bytes);
    }
    codec_free(codec);
}
END_TEST

START_TEST(random_bytes_behind_a_good_header_stay_within_bounds)
{
    struct codec *codec = new_codec();
    struct guard from, to;
    uint64_t state = suite_seed();
    guard_init(&from, 4096);
    guard_init(&to, 8192);
    for (int round = 0; round < 20000; round++) {
        enum codec_id id = (enum codec_id)(1 + round % 4);
        static const char *const starts[] = {"", "\x1f\x8b\x08\0\0\0\0\0\0\xff",
                                             "\x82SNAPPY\0\0\0\0\1\0\0\0\1\0\0",
                                             "\x04\x22\x4d\x18\x40\x40\xc0", "\x28\xb5\x2f\xfd\x00\x58"};
        static const size_t start_bytes[] = {0, 10, 18, 7, 6};
        size_t bytes = start_bytes[id] + suite_random_below(&state, 300), n;
        uint8_t *data = guard_room(&from, bytes);
        for (size_t i = 0; i < bytes; i++)
            data[i] = (uint8_t)(suite_random(&state) >> suite_random_below(&state, 64));
        memcpy(data, starts[id], start_bytes[id]);
        const void *out;
        expand(codec, id, data, bytes, 8192, &out, &n);
        size_t room = suite_random_below(&state, 8192);
        codec_expand_into(codec, id, data, bytes, guard_room(&to, room), room, &n);
    }
    guard_done(&from);
    guard_done(&to);
    codec_free(codec);
}
END_TEST

/* ---- bombs --------------------------------------------------------------------------------------------- */

/* A line of /proc/self/status: "VmRSS:", or "VmHWM:", its peak. */
static long status_kib(const char *name)
{
    char line[256];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0)
            kib = strtol(line + strlen(name), NULL, 10);
    if (f)
        fclose(f);
    return kib;
}

/* Begin to watch the peak; returns what is used now. */
static long rss_watch(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (f) {
        fputs("5", f);
        fclose(f);
    }
    return status_kib("VmRSS:");
}

static void assert_rss_grew_less(long before, size_t bytes_max)
{
    long grown = status_kib("VmHWM:") - before;
    fprintf(stderr, "# %ld KiB more\n", grown);
#ifndef BROOK_SANITIZED
    ck_assert_int_lt(grown, (long)(bytes_max / 1024));
#endif
}

/* `count` streams, each of `each` zero bytes, one behind the other. The caller frees. */
static uint8_t *zeros(enum codec_id id, size_t each, size_t count, size_t *ret_bytes)
{
    struct codec *codec = new_codec();
    uint8_t *plain = calloc(1, each);
    uint8_t *packed = malloc(codec_bound(id, each));
    size_t n;
    ck_assert_int_eq(codec_compress(codec, id, plain, each, packed, codec_bound(id, each), &n), 0);
    free(plain);
    uint8_t *all = malloc(n * count);
    for (size_t i = 0; i < count; i++)
        memcpy(all + i * n, packed, n);
    free(packed);
    codec_free(codec);
    *ret_bytes = n * count;
    return all;
}

static void assert_bomb_is_stopped(enum codec_id id, size_t each, size_t count)
{
    const size_t cap = 4 * MIB;
    size_t bytes, n;
    const void *data;
    uint8_t *bomb = zeros(id, each, count, &bytes);
    struct codec *codec = new_codec();
    long before = rss_watch();
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(codec_expand(codec, id, bomb, bytes, cap, &data, &n), -BROOK_E_EXPANDS_TOO_FAR);
    fprintf(stderr, "# %s: %zu bytes for %zu MiB\n", codec_name(id), bytes, each * count / MIB);
    assert_rss_grew_less(before, 2 * cap);

    uint8_t *room = malloc(cap);
    ck_assert_int_eq(codec_expand_into(codec, id, bomb, bytes, room, cap, &n), -BROOK_E_EXPANDS_TOO_FAR);
    free(room);
    codec_free(codec);
    free(bomb);
}

START_TEST(zeros_in_one_stream_is_stopped_at_the_limit)
{
    for (int id = CODEC_GZIP; id <= CODEC_ZSTD; id++)
        assert_bomb_is_stopped((enum codec_id)id, 64 * MIB, 1);
}
END_TEST

START_TEST(gigabyte_of_zeros_in_many_streams_is_stopped_at_the_limit)
{
    for (int id = CODEC_GZIP; id <= CODEC_ZSTD; id++)
        assert_bomb_is_stopped((enum codec_id)id, 2 * MIB, 512);
}
END_TEST

/* A codec in a codec is data to us: one layer is taken off, and no more. */
START_TEST(nested_streams_are_data)
{
    struct codec *codec = new_codec();
    for (int id = CODEC_GZIP; id <= CODEC_ZSTD; id++) {
        size_t inner_bytes, bytes, n;
        uint8_t *inner = zeros((enum codec_id)id, MIB, 1, &inner_bytes);
        uint8_t *outer = malloc(codec_bound((enum codec_id)id, inner_bytes));
        const void *data;
        ck_assert_int_eq(codec_compress(codec, (enum codec_id)id, inner, inner_bytes, outer,
                                        codec_bound((enum codec_id)id, inner_bytes), &bytes),
                         0);
        ck_assert_int_eq(codec_expand(codec, (enum codec_id)id, outer, bytes, inner_bytes, &data, &n), 0);
        ck_assert_uint_eq(n, inner_bytes);
        ck_assert_mem_eq(data, inner, n);
        free(inner);
        free(outer);
    }
    codec_free(codec);
}
END_TEST

/* ---- lies ---------------------------------------------------------------------------------------------- */

static void assert_lie(enum codec_id id, const void *from, size_t bytes, int wanted)
{
    struct codec *codec = new_codec();
    const void *data;
    size_t n;
    long before = rss_watch();
    ck_assert_int_eq(codec_expand(codec, id, from, bytes, (size_t)1 << 40, &data, &n), wanted);
    assert_rss_grew_less(before, 2 * MIB);
#ifndef BROOK_SANITIZED
    /* Nor is there address space taken, but for zstd's window. */
    ck_assert_int_lt(status_kib("VmPeak:"), 512 * 1024);
#endif
    codec_free(codec);
}

START_TEST(claimed_sizes_cost_nothing)
{
    uint8_t snappy[] = "\x82SNAPPY\0\0\0\0\1\0\0\0\1\0\0\0\x08\xff\xff\xff\xff\x0f\x04"
                       "ab";
    assert_lie(CODEC_SNAPPY, snappy, sizeof snappy - 1, -BROOK_E_CORRUPT_BATCH);
    be32_write(snappy + 16, INT32_MAX);
    assert_lie(CODEC_SNAPPY, snappy, sizeof snappy - 1, -BROOK_E_CORRUPT_BATCH);
    be32_write(snappy + 16, 0x80000008);
    assert_lie(CODEC_SNAPPY, snappy, sizeof snappy - 1, -BROOK_E_CORRUPT_BATCH);
    be32_write(snappy + 16, 0);
    assert_lie(CODEC_SNAPPY, snappy, sizeof snappy - 1, -BROOK_E_CORRUPT_BATCH);
    assert_lie(CODEC_SNAPPY, snappy, 16, -BROOK_E_CORRUPT_BATCH);
    assert_lie(CODEC_SNAPPY, "ab", 2, -BROOK_E_CORRUPT_BATCH);

    /* Content size 2^40, window 2^27, one raw block of 1 byte that is the last. */
    static const uint8_t zstd_size[] = {0x28, 0xb5, 0x2f, 0xfd, 0xc0, 0x88, 0, 0, 0,
                                        0,    0,    1,    0,    0,    9,    0, 0, 'x'};
    assert_lie(CODEC_ZSTD, zstd_size, sizeof zstd_size, -BROOK_E_CORRUPT_BATCH);
    /* A window of 2^27 with little in it is no lie, and costs only what is in it. */
    static const uint8_t zstd_window[] = {0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x88, 9, 0, 0, 'x'};
    assert_lie(CODEC_ZSTD, zstd_window, sizeof zstd_window, 0);
    static const uint8_t zstd_too_wide[] = {0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x90, 9, 0, 0, 'x'};
    assert_lie(CODEC_ZSTD, zstd_too_wide, sizeof zstd_too_wide, -BROOK_E_CORRUPT_BATCH);
}
END_TEST

START_TEST(empty_streams_do_not_hang)
{
    for (int id = CODEC_GZIP; id <= CODEC_ZSTD; id++) {
        size_t bytes, n;
        const void *data;
        struct codec *codec = new_codec();
        uint8_t *empty = zeros((enum codec_id)id, 0, 10000, &bytes);
        ck_assert_int_eq(codec_expand(codec, (enum codec_id)id, empty, bytes, 0, &data, &n), 0);
        ck_assert_uint_eq(n, 0);
        ck_assert_int_eq(codec_expand(codec, (enum codec_id)id, empty, 0, 0, &data, &n),
                         -BROOK_E_CORRUPT_BATCH);
        free(empty);
        codec_free(codec);
    }
}
END_TEST

SUITE_MAIN("record/codec_hostile", SUITE_TEST(every_truncation_is_refused),
           SUITE_TEST(every_changed_byte_stays_within_bounds),
           SUITE_TEST(good_stream_is_read_after_any_bad_one),
           SUITE_TEST_SLOW(random_bytes_behind_a_good_header_stay_within_bounds, 60),
           SUITE_TEST_SLOW(zeros_in_one_stream_is_stopped_at_the_limit, 60),
           SUITE_TEST_SLOW(gigabyte_of_zeros_in_many_streams_is_stopped_at_the_limit, 60),
           SUITE_TEST(nested_streams_are_data), SUITE_TEST(claimed_sizes_cost_nothing),
           SUITE_TEST(empty_streams_do_not_hang))
