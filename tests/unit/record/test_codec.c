#include "tests/support/guard.h"
#include "tests/support/suite.h"

#include "proto/base/err.h"
#include "proto/record/codec.h"

#include <lz4frame.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#define DATA_BYTES ((size_t)300000)

/* Text that shrinks with every codec. */
static uint8_t *text(void)
{
    static uint8_t data[DATA_BYTES];
    if (data[0] == 0) {
        uint64_t state = 4711;
        static const char *const words[] = {"offset",  "leader", "record", "batch ",
                                            "\"id\":", "000000", "\n"};
        for (size_t n = 0; n < sizeof data;) {
            const char *word = words[suite_random_below(&state, 7)];
            for (; *word && n < sizeof data; word++)
                data[n++] = (uint8_t)*word;
        }
    }
    return data;
}

static uint8_t *noise(void)
{
    static uint8_t data[DATA_BYTES];
    uint64_t state = 1;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)suite_random(&state);
    return data;
}

static struct codec *new_codec(void)
{
    struct codec *codec;
    ck_assert_int_eq(codec_new(&codec), 0);
    return codec;
}

static void assert_expands(struct codec *codec, enum codec_id id, const void *packed, size_t packed_bytes,
                           const void *wanted, size_t wanted_bytes)
{
    const void *data;
    size_t n;
    ck_assert_int_eq(codec_expand(codec, id, packed, packed_bytes, wanted_bytes, &data, &n), 0);
    ck_assert_uint_eq(n, wanted_bytes);
    if (n > 0)
        ck_assert_mem_eq(data, wanted, n);
}

START_TEST(names_and_numbers_are_kafkas)
{
    static const char *const names[] = {"none", "gzip", "snappy", "lz4", "zstd"};
    enum codec_id id = CODEC_ZSTD;
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(codec_parse(names[i], &id), 0);
        ck_assert_int_eq((int)id, i);
        ck_assert_str_eq(codec_name(id), names[i]);
    }
    ck_assert_int_eq(codec_parse("brotli", &id), -BROOK_E_UNSUPPORTED_CODEC);
    ck_assert_int_eq((int)id, CODEC_ZSTD);
    ck_assert_str_eq(codec_name((enum codec_id)7), "unknown");
}
END_TEST

START_TEST(unknown_codecs_are_refused)
{
    struct codec *codec = new_codec();
    const void *data;
    size_t n;
    char to[8];
    for (int id = 5; id < 9; id++) {
        enum codec_id unknown = (enum codec_id)id;
        ck_assert_int_eq(codec_compress(codec, unknown, "x", 1, to, 8, &n), -BROOK_E_UNSUPPORTED_CODEC);
        ck_assert_int_eq(codec_expand(codec, unknown, "x", 1, 8, &data, &n), -BROOK_E_UNSUPPORTED_CODEC);
        ck_assert_int_eq(codec_expand_into(codec, unknown, "x", 1, to, 8, &n), -BROOK_E_UNSUPPORTED_CODEC);
    }
    codec_free(codec);
    codec_free(NULL);
}
END_TEST

/* Both ends of every buffer lie at unmapped pages in turn, and the bound is just enough. */
static void round_trip(struct codec *codec, enum codec_id id, const uint8_t *data, size_t bytes)
{
    struct guard from, to;
    size_t bound = codec_bound(id, bytes), n = 0, out = 0;
    guard_init(&from, bytes);
    guard_init(&to, bound);
    uint8_t *packed = guard_room(&to, bound);
    ck_assert_int_eq(codec_compress(codec, id, guard_copy(&from, data, bytes), bytes, packed, bound, &n), 0);
    ck_assert_uint_le(n, bound);
    memmove(to.end - n, packed, n);
    assert_expands(codec, id, to.end - n, n, data, bytes);

    uint8_t *room = guard_room(&from, bytes);
    memset(room, 0x55, bytes);
    ck_assert_int_eq(codec_expand_into(codec, id, to.end - n, n, room, bytes, &out), 0);
    ck_assert_uint_eq(out, bytes);
    if (bytes > 0)
        ck_assert_mem_eq(room, data, bytes);
    guard_done(&from);
    guard_done(&to);
}

START_TEST(data_of_every_size_comes_back)
{
    static const size_t sizes[] = {0,     1,     2,     3,     61,    1000,   4095,   4096,   32767, 32768,
                                   32769, 65535, 65536, 65537, 98304, 131072, 131073, 262144, 300000};
    struct codec *codec = new_codec();
    for (int id = CODEC_NONE; id <= CODEC_ZSTD; id++)
        for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            round_trip(codec, (enum codec_id)id, text(), sizes[i]);
            round_trip(codec, (enum codec_id)id, noise(), sizes[i]);
        }
    codec_free(codec);
}
END_TEST

START_TEST(less_room_than_needed_is_said_and_nothing_is_written_beyond)
{
    struct codec *codec = new_codec();
    struct guard to;
    guard_init(&to, 16384);
    for (int id = CODEC_NONE; id <= CODEC_ZSTD; id++) {
        size_t needed;
        uint8_t *room = guard_room(&to, 16384);
        ck_assert_int_eq(codec_compress(codec, (enum codec_id)id, noise(), 10000, room, 16384, &needed), 0);
        for (size_t n = 0; n < needed; n += n < 100 ? 1 : 37) {
            size_t unused = 42;
            int r = codec_compress(codec, (enum codec_id)id, noise(), 10000, guard_room(&to, n), n, &unused);
            ck_assert_int_eq(r, -BROOK_E_AGAIN);
            ck_assert_uint_eq(unused, 42);
        }
        round_trip(codec, (enum codec_id)id, text(), 1000);
    }
    guard_done(&to);
    codec_free(codec);
}
END_TEST

START_TEST(limit_is_exact)
{
    struct codec *codec = new_codec();
    static uint8_t packed[200000], room[100000];
    for (int id = CODEC_NONE; id <= CODEC_ZSTD; id++)
        for (size_t bytes = 1; bytes <= sizeof room; bytes += bytes < 20 ? 1 : 24980) {
            size_t n, out = 42;
            const void *data = "untouched";
            enum codec_id codec_id = (enum codec_id)id;
            ck_assert_int_eq(codec_compress(codec, codec_id, text(), bytes, packed, sizeof packed, &n), 0);
            ck_assert_int_eq(codec_expand(codec, codec_id, packed, n, bytes - 1, &data, &out),
                             -BROOK_E_EXPANDS_TOO_FAR);
            ck_assert_int_eq(codec_expand_into(codec, codec_id, packed, n, room, bytes - 1, &out),
                             -BROOK_E_EXPANDS_TOO_FAR);
            ck_assert_uint_eq(out, 42);
            ck_assert_str_eq(data, "untouched");
            assert_expands(codec, codec_id, packed, n, text(), bytes);
        }
    codec_free(codec);
}
END_TEST

START_TEST(streams_one_behind_the_other_are_one)
{
    struct codec *codec = new_codec();
    static uint8_t packed[400000];
    for (int id = CODEC_GZIP; id <= CODEC_ZSTD; id++) {
        enum codec_id codec_id = (enum codec_id)id;
        static const size_t cuts[] = {0, 1, 2, 70000, 70000, 200000, DATA_BYTES};
        size_t total = 0, n;
        for (unsigned i = 1; i < sizeof cuts / sizeof cuts[0]; i++) {
            ck_assert_int_eq(codec_compress(codec, codec_id, text() + cuts[i - 1], cuts[i] - cuts[i - 1],
                                            packed + total, sizeof packed - total, &n),
                             0);
            total += n;
        }
        assert_expands(codec, codec_id, packed, total, text(), DATA_BYTES);
        const void *data;
        ck_assert_int_eq(codec_expand(codec, codec_id, packed, total, DATA_BYTES - 1, &data, &n),
                         -BROOK_E_EXPANDS_TOO_FAR);
        /* Junk behind a whole stream is no stream. */
        memcpy(packed + total, "junk", 4);
        ck_assert_int_eq(codec_expand(codec, codec_id, packed, total + 4, DATA_BYTES, &data, &n),
                         -BROOK_E_CORRUPT_BATCH);
    }
    codec_free(codec);
}
END_TEST

START_TEST(results_lie_in_the_same_memory_from_call_to_call)
{
    struct codec *codec = new_codec();
    static uint8_t packed[400000];
    const void *first = NULL;
    for (int round = 0; round < 20; round++)
        for (int id = CODEC_NONE; id <= CODEC_ZSTD; id++) {
            size_t n, out;
            const void *data;
            ck_assert_int_eq(
                codec_compress(codec, (enum codec_id)id, text(), DATA_BYTES, packed, sizeof packed, &n), 0);
            ck_assert_int_eq(codec_expand(codec, (enum codec_id)id, packed, n, 1 << 20, &data, &out), 0);
            if (round == 1)
                first = data;
            if (round > 1)
                ck_assert_ptr_eq(data, first);
        }
    codec_free(codec);
}
END_TEST

/* zlib is the second opinion: it must read our gzip, and we its. */
START_TEST(gzip_is_zlibs)
{
    struct codec *codec = new_codec();
    static uint8_t packed[400000], plain[DATA_BYTES];
    size_t n;
    z_stream z = {0};
    ck_assert_int_eq(codec_compress(codec, CODEC_GZIP, text(), DATA_BYTES, packed, sizeof packed, &n), 0);
    ck_assert_int_eq(inflateInit2(&z, 16 + 15), Z_OK);
    z.next_in = packed;
    z.avail_in = (unsigned)n;
    z.next_out = plain;
    z.avail_out = sizeof plain;
    ck_assert_int_eq(inflate(&z, Z_FINISH), Z_STREAM_END);
    ck_assert_uint_eq(z.avail_in, 0);
    ck_assert_uint_eq(z.total_out, DATA_BYTES);
    ck_assert_mem_eq(plain, text(), DATA_BYTES);
    inflateEnd(&z);

    for (int level = 0; level <= 9; level++) {
        z = (z_stream){0};
        gz_header header = {.name = (Bytef *)"name", .comment = (Bytef *)"comment", .hcrc = 1};
        ck_assert_int_eq(deflateInit2(&z, level, Z_DEFLATED, 16 + 15, 9, Z_DEFAULT_STRATEGY), Z_OK);
        ck_assert_int_eq(deflateSetHeader(&z, &header), Z_OK);
        z.next_in = text();
        z.avail_in = DATA_BYTES;
        z.next_out = packed;
        z.avail_out = sizeof packed;
        ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
        assert_expands(codec, CODEC_GZIP, packed, z.total_out, text(), DATA_BYTES);
        deflateEnd(&z);
    }
    codec_free(codec);
}
END_TEST

START_TEST(lz4_frames_of_every_make_are_read)
{
    struct codec *codec = new_codec();
    static uint8_t packed[400000];
    for (unsigned i = 0; i < 64; i++) {
        LZ4F_preferences_t p = {
            .frameInfo = {.blockSizeID = (LZ4F_blockSizeID_t)(4 + i % 4),
                          .blockMode = i & 4 ? LZ4F_blockIndependent : LZ4F_blockLinked,
                          .contentChecksumFlag = i & 8 ? LZ4F_contentChecksumEnabled : LZ4F_noContentChecksum,
                          .blockChecksumFlag = i & 16 ? LZ4F_blockChecksumEnabled : LZ4F_noBlockChecksum,
                          .contentSize = i & 32 ? DATA_BYTES : 0}};
        size_t n = LZ4F_compressFrame(packed, sizeof packed, text(), DATA_BYTES, &p);
        ck_assert(!LZ4F_isError(n));
        assert_expands(codec, CODEC_LZ4, packed, n, text(), DATA_BYTES);
    }
    codec_free(codec);
}
END_TEST

START_TEST(zstd_frames_of_every_make_are_read)
{
    struct codec *codec = new_codec();
    static uint8_t packed[400000];
    for (int i = 0; i < 40; i++) {
        ZSTD_CCtx *z = ZSTD_createCCtx();
        ZSTD_CCtx_setParameter(z, ZSTD_c_compressionLevel, i / 4 * 2 + 1);
        ZSTD_CCtx_setParameter(z, ZSTD_c_contentSizeFlag, i & 1);
        ZSTD_CCtx_setParameter(z, ZSTD_c_checksumFlag, i >> 1 & 1);
        /* In two steps, so that the window is chosen without knowing the size. */
        ZSTD_inBuffer in = {text(), DATA_BYTES / 2, 0};
        ZSTD_outBuffer to = {packed, sizeof packed, 0};
        ck_assert(!ZSTD_isError(ZSTD_compressStream2(z, &to, &in, ZSTD_e_flush)));
        in.size = DATA_BYTES;
        ck_assert_uint_eq(ZSTD_compressStream2(z, &to, &in, ZSTD_e_end), 0);
        assert_expands(codec, CODEC_ZSTD, packed, to.pos, text(), DATA_BYTES);
        ZSTD_freeCCtx(z);
    }
    codec_free(codec);
}
END_TEST

static void *round_trips(void *arg)
{
    struct codec *codec;
    uint8_t *packed = malloc(400000);
    *(int *)arg = codec_new(&codec);
    for (int i = 0; i < 20 && *(int *)arg == 0; i++) {
        enum codec_id id = (enum codec_id)(i % 5);
        size_t n, out;
        const void *data;
        int r = codec_compress(codec, id, text(), DATA_BYTES, packed, 400000, &n);
        if (r == 0)
            r = codec_expand(codec, id, packed, n, DATA_BYTES, &data, &out);
        if (r < 0 || out != DATA_BYTES || memcmp(data, text(), out) != 0)
            *(int *)arg = -1;
    }
    codec_free(codec);
    free(packed);
    return NULL;
}

START_TEST(eight_threads_do_not_disturb_each_other)
{
    pthread_t threads[8];
    int results[8];
    text();
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, round_trips, &results[i]), 0);
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(results[i], 0);
    }
}
END_TEST

SUITE_MAIN("record/codec", SUITE_TEST(names_and_numbers_are_kafkas), SUITE_TEST(unknown_codecs_are_refused),
           SUITE_TEST(data_of_every_size_comes_back),
           SUITE_TEST(less_room_than_needed_is_said_and_nothing_is_written_beyond),
           SUITE_TEST(limit_is_exact), SUITE_TEST(streams_one_behind_the_other_are_one),
           SUITE_TEST(results_lie_in_the_same_memory_from_call_to_call), SUITE_TEST(gzip_is_zlibs),
           SUITE_TEST(lz4_frames_of_every_make_are_read), SUITE_TEST(zstd_frames_of_every_make_are_read),
           SUITE_TEST(eight_threads_do_not_disturb_each_other))
