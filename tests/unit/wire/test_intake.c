#include "proto/base/err.h"
#include "proto/base/pool.h"
#include "proto/wire/intake.h"
#include "tests/support/suite.h"

#include <stdlib.h>
#include <string.h>

#define POOL_BYTES ((size_t)64 << 20)

/* A frame whose envelope is `envelope_bytes` of its number and whose records count up. */
static size_t write_frame(uint8_t *to, uint8_t number, size_t envelope_bytes, size_t records_bytes)
{
    frame_write_prefix(to, (uint32_t)envelope_bytes, (uint32_t)records_bytes);
    memset(to + FRAME_PREFIX_BYTES, number, envelope_bytes);
    for (size_t i = 0; i < records_bytes; i++)
        to[FRAME_PREFIX_BYTES + envelope_bytes + i] = (uint8_t)(number + i);
    return FRAME_PREFIX_BYTES + envelope_bytes + records_bytes;
}

static void check_frame(const struct intake_frame *f, uint8_t number, size_t envelope_bytes,
                        size_t records_bytes)
{
    ck_assert_uint_eq(f->envelope_bytes, envelope_bytes);
    ck_assert_uint_eq(f->records_bytes, records_bytes);
    bool right = true;
    for (size_t i = 0; i < envelope_bytes; i++)
        right &= f->envelope[i] == number;
    for (size_t i = 0; i < records_bytes; i++)
        right &= f->slab->data[i] == (uint8_t)(number + i);
    ck_assert(right);
}

/* Feed up to `bytes` where the intake wants them. Returns how many it took. */
static size_t feed(struct intake *in, const uint8_t *data, size_t bytes)
{
    struct iovec iov[INTAKE_IOV_MAX];
    size_t n = intake_room(in, iov), done = 0;
    ck_assert_uint_gt(n, 0);
    for (size_t i = 0; i < n && done < bytes; i++) {
        size_t part = bytes - done < iov[i].iov_len ? bytes - done : iov[i].iov_len;
        memcpy(iov[i].iov_base, data + done, part);
        done += part;
    }
    intake_received(in, done);
    return done;
}

static const size_t sizes[][2] = {{1, 0},     {30, 100},  {30, 0},  {200, 70000},  {5, 65536},
                                  {70000, 0}, {70000, 9}, {0, 1},   {100, 300000}, {65528, 0},
                                  {65529, 0}, {65520, 8}, {10, 10}, {0, 0},        {200000, 200000}};
#define FRAMES (sizeof sizes / sizeof sizes[0])

static void run_all(size_t step_max)
{
    struct pool *pool;
    struct intake in;
    uint64_t seed = suite_seed();
    uint8_t *stream = malloc(2 << 20);
    size_t bytes = 0;
    for (size_t i = 0; i < FRAMES; i++)
        bytes += write_frame(stream + bytes, (uint8_t)(i + 1), sizes[i][0], sizes[i][1]);
    ck_assert_int_eq(pool_new(POOL_BYTES, POOL_BYTES, &pool), 0);
    intake_init(&in, pool, 1 << 20, 1 << 20);
    size_t at = 0, seen = 0;
    while (at < bytes) {
        size_t step = step_max == 1 ? 1 : 1 + suite_random_below(&seed, step_max);
        at += feed(&in, stream + at, step < bytes - at ? step : bytes - at);
        struct intake_frame f;
        while (intake_next(&in, &f, NULL) == 0) {
            check_frame(&f, (uint8_t)(seen + 1), sizes[seen][0], sizes[seen][1]);
            intake_release(&in);
            seen++;
        }
        ck_assert_uint_le(intake_expected(&in), bytes - at);
    }
    ck_assert_uint_eq(seen, FRAMES);
    intake_done(&in);
    ck_assert_uint_eq(pool_bytes_in_use(pool), 0);
    pool_unref(pool);
    free(stream);
}

START_TEST(frames_come_out_whole_whatever_the_pieces)
{
    run_all(1 << 20);
    run_all(100000);
    run_all(1000);
    run_all(7);
    run_all(1);
}
END_TEST

START_TEST(a_dry_pool_holds_the_frame_until_there_is_room)
{
    struct pool *pool;
    struct intake in;
    struct intake_frame f;
    uint8_t *frame = malloc(300000);
    size_t bytes = write_frame(frame, 9, 20, 200000);
    ck_assert_int_eq(pool_new(262144, 0, &pool), 0);
    struct slab *all = pool_take(pool, 262144);
    intake_init(&in, pool, 1 << 20, 1 << 20);
    size_t at = feed(&in, frame, bytes);
    ck_assert_int_eq(intake_next(&in, &f, NULL), -BROOK_E_QUEUE_FULL);
    ck_assert_int_eq(intake_next(&in, &f, NULL), -BROOK_E_QUEUE_FULL);
    slab_unref(all);
    ck_assert_int_eq(intake_next(&in, &f, NULL), -BROOK_E_AGAIN);
    while (at < bytes)
        at += feed(&in, frame + at, bytes - at);
    ck_assert_int_eq(intake_next(&in, &f, NULL), 0);
    check_frame(&f, 9, 20, 200000);
    intake_release(&in);
    intake_done(&in);
    pool_unref(pool);
    free(frame);
}
END_TEST

START_TEST(a_reset_in_mid_frame_gives_the_slab_back)
{
    struct pool *pool;
    struct intake in;
    struct intake_frame f;
    uint8_t *frame = malloc(300000);
    size_t bytes = write_frame(frame, 9, 20, 200000);
    ck_assert_int_eq(pool_new(POOL_BYTES, 0, &pool), 0);
    intake_init(&in, pool, 1 << 20, 1 << 20);
    feed(&in, frame, 100000);
    ck_assert_int_eq(intake_next(&in, &f, NULL), -BROOK_E_AGAIN);
    ck_assert_uint_gt(pool_bytes_in_use(pool), 0);
    intake_reset(&in);
    ck_assert_uint_eq(pool_bytes_in_use(pool), 0);
    bytes = write_frame(frame, 3, 5, 5);
    feed(&in, frame, bytes);
    ck_assert_int_eq(intake_next(&in, &f, NULL), 0);
    check_frame(&f, 3, 5, 5);
    intake_release(&in);
    intake_done(&in);
    pool_unref(pool);
    free(frame);
}
END_TEST

START_TEST(a_wrong_length_is_an_error_before_anything_is_allocated)
{
    struct pool *pool;
    struct intake in;
    struct intake_frame f;
    ck_assert_int_eq(pool_new(POOL_BYTES, 0, &pool), 0);
    intake_init(&in, pool, 1 << 20, 1000);
    feed(&in, (const uint8_t *)"\x7f\xff\xff\xff", 4);
    ck_assert_int_eq(intake_next(&in, &f, NULL), -BROOK_E_FRAME_TOO_LARGE);
    intake_reset(&in);
    feed(&in, (const uint8_t *)"\0\0\x10\0\0\0\x03\xe9", 8);
    ck_assert_int_eq(intake_next(&in, &f, NULL), -BROOK_E_FRAME_TOO_LARGE);
    ck_assert_uint_eq(pool_bytes_in_use(pool), 0);
    intake_done(&in);
    pool_unref(pool);
}
END_TEST

SUITE_MAIN("wire/intake", SUITE_TEST(frames_come_out_whole_whatever_the_pieces),
           SUITE_TEST(a_dry_pool_holds_the_frame_until_there_is_room),
           SUITE_TEST(a_reset_in_mid_frame_gives_the_slab_back),
           SUITE_TEST(a_wrong_length_is_an_error_before_anything_is_allocated))
