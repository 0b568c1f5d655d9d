#include "broker/net/input.h"
#include "proto/base/err.h"
#include "tests/support/suite.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAME_MAX (4u << 20)

struct pipe_end {
    struct pool *buffers;
    struct pool *frames;
    struct input in;
    int fds[2]; /* we read 0 */
};

static void begin_with_budget(struct pipe_end *p, size_t budget)
{
    int bytes = 4 << 20;
    ck_assert_int_eq(pool_new((size_t)64 << 20, 0, &p->buffers), 0);
    ck_assert_int_eq(pool_new(budget, 0, &p->frames), 0);
    input_init(&p->in, p->buffers, p->frames);
    p->in.buffer_bytes = INPUT_BUFFER_BYTES; /* the peer is known */
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, p->fds), 0);
    setsockopt(p->fds[1], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

static void begin(struct pipe_end *p)
{
    begin_with_budget(p, (size_t)64 << 20);
}

static void end(struct pipe_end *p)
{
    input_done(&p->in);
    ck_assert_uint_eq(pool_bytes_in_use(p->buffers), 0);
    ck_assert_uint_eq(pool_bytes_in_use(p->frames), 0);
    pool_unref(p->buffers);
    pool_unref(p->frames);
    close(p->fds[0]);
    close(p->fds[1]);
}

/* A frame whose every byte follows from `seed`. Returns its bytes. */
static size_t make_frame(uint8_t *to, uint32_t envelope, uint32_t records, uint8_t seed)
{
    frame_write_prefix(to, envelope, records);
    for (uint32_t i = 0; i < envelope + records; i++)
        to[FRAME_PREFIX_BYTES + i] = (uint8_t)(seed + i * 7);
    return FRAME_PREFIX_BYTES + envelope + records;
}

static bool follows(const uint8_t *data, size_t bytes, uint32_t from, uint8_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != (uint8_t)(seed + (from + i) * 7))
            return false;
    return true;
}

static void check_frame(const struct input_frame *f, uint32_t envelope, uint32_t records, uint8_t seed)
{
    ck_assert_uint_eq(f->envelope_bytes, envelope);
    ck_assert_uint_eq(f->records_bytes, records);
    ck_assert(follows(f->envelope, envelope, 0, seed));
    ck_assert(follows(f->records, records, envelope, seed));
}

static int next(struct pipe_end *p, struct input_frame *f)
{
    struct brook_error error;
    return input_next(&p->in, FRAME_MAX, FRAME_MAX, f, &error);
}

static void put(struct pipe_end *p, const uint8_t *data, size_t bytes)
{
    ck_assert_int_eq(write(p->fds[1], data, bytes), (ssize_t)bytes);
}

START_TEST(a_frame_cut_at_each_byte_comes_out_whole)
{
    struct pipe_end p;
    struct input_frame f;
    uint8_t data[256];
    begin(&p);
    size_t bytes = make_frame(data, 20, 30, 5);
    for (size_t cut = 1; cut < bytes; cut++) {
        put(&p, data, cut);
        ck_assert_int_eq(input_read(&p.in, p.fds[0]), (ssize_t)cut);
        ck_assert_int_eq(next(&p, &f), -BROOK_E_AGAIN);
        input_settle(&p.in, p.fds[0]);
        ck_assert(input_is_half(&p.in));
        put(&p, data + cut, bytes - cut);
        ck_assert_int_eq(input_read(&p.in, p.fds[0]), (ssize_t)(bytes - cut));
        ck_assert_int_eq(next(&p, &f), 0);
        check_frame(&f, 20, 30, 5);
        slab_unref(f.slab);
        ck_assert_int_eq(next(&p, &f), -BROOK_E_AGAIN);
        input_settle(&p.in, p.fds[0]);
        ck_assert(!input_is_half(&p.in));
    }
    end(&p);
}
END_TEST

START_TEST(many_small_frames_come_out_of_one_receive)
{
    struct pipe_end p;
    struct input_frame f;
    static uint8_t data[60000];
    size_t bytes = 0;
    begin(&p);
    for (uint8_t i = 0; i < 200; i++)
        bytes += make_frame(data + bytes, 10, 200, i);
    put(&p, data, bytes);
    ck_assert_int_eq(input_read(&p.in, p.fds[0]), (ssize_t)bytes);
    for (uint8_t i = 0; i < 200; i++) {
        ck_assert_int_eq(next(&p, &f), 0);
        check_frame(&f, 10, 200, i);
        slab_unref(f.slab);
    }
    ck_assert_int_eq(next(&p, &f), -BROOK_E_AGAIN);
    end(&p);
}
END_TEST

/* The buffer that hello came in is too small for what follows it at once. */
START_TEST(the_first_buffer_grows_when_it_has_to)
{
    struct pipe_end p;
    struct input_frame f;
    static uint8_t data[40000];
    begin(&p);
    p.in.buffer_bytes = POOL_SLAB_BYTES_MIN;
    size_t first = make_frame(data, 10, 20, 1), bytes = first + make_frame(data + first, 10, 30000, 2);
    put(&p, data, bytes);
    ck_assert_int_eq(input_read(&p.in, p.fds[0]), (ssize_t)POOL_SLAB_BYTES_MIN);
    ck_assert_int_eq(next(&p, &f), 0);
    check_frame(&f, 10, 20, 1);
    slab_unref(f.slab);
    while (next(&p, &f) == -BROOK_E_AGAIN)
        ck_assert_int_gt(input_read(&p.in, p.fds[0]), 0);
    check_frame(&f, 10, 30000, 2);
    slab_unref(f.slab);
    end(&p);
}
END_TEST

START_TEST(bytes_of_a_frame_stay_put_while_it_is_held)
{
    struct pipe_end p;
    struct input_frame held[40], f;
    static uint8_t data[20000];
    begin(&p);
    for (uint8_t i = 0; i < 40; i++) {
        size_t bytes = make_frame(data, 10, 9000, i);
        put(&p, data, bytes);
        while (next(&p, &held[i]) == -BROOK_E_AGAIN)
            ck_assert_int_gt(input_read(&p.in, p.fds[0]), 0);
    }
    for (uint8_t i = 0; i < 40; i++) {
        check_frame(&held[i], 10, 9000, i);
        held[i].records[0] = 0xee; /* writable: the log patches batches in place */
        slab_unref(held[i].slab);
    }
    ck_assert_int_eq(next(&p, &f), -BROOK_E_AGAIN);
    input_settle(&p.in, p.fds[0]);
    ck_assert_uint_eq(pool_bytes_in_use(p.buffers), 0);
    end(&p);
}
END_TEST

static uint32_t records_of(uint8_t frame)
{
    uint64_t random = suite_seed() + frame;
    return (uint32_t)suite_random_below(&random, frame % 3 ? 3000 : 900000);
}

static void *feed(void *arg)
{
    struct pipe_end *p = arg;
    uint64_t random = suite_seed();
    uint8_t *data = malloc(1 << 20);
    for (uint8_t i = 0; i < 60; i++) {
        uint32_t records = records_of(i);
        size_t bytes = make_frame(data, 17, records, i), at = 0;
        while (at < bytes) {
            size_t piece = 1 + (size_t)suite_random_below(&random, 100000);
            if (piece > bytes - at)
                piece = bytes - at;
            put(p, data + at, piece);
            at += piece;
        }
    }
    free(data);
    shutdown(p->fds[1], SHUT_WR);
    return NULL;
}

START_TEST(small_and_large_frames_mix_in_any_pieces)
{
    struct pipe_end p;
    struct input_frame f;
    pthread_t thread;
    suite_seed();
    begin(&p);
    pthread_create(&thread, NULL, feed, &p);
    for (uint8_t i = 0; i < 60; i++) {
        uint32_t records = records_of(i);
        int r;
        while ((r = next(&p, &f)) == -BROOK_E_AGAIN) {
            input_settle(&p.in, p.fds[0]);
            ssize_t n = input_read(&p.in, p.fds[0]);
            ck_assert(n > 0 || n == -BROOK_E_AGAIN);
        }
        ck_assert_int_eq(r, 0);
        check_frame(&f, 17, records, i);
        slab_unref(f.slab);
    }
    pthread_join(thread, NULL);
    end(&p);
}
END_TEST

START_TEST(the_kernel_is_asked_to_wait_only_inside_a_large_frame)
{
    struct pipe_end p;
    struct input_frame f;
    static uint8_t data[1 << 20];
    begin(&p);
    size_t bytes = make_frame(data, 10, 600000, 1);
    put(&p, data, 100);
    ck_assert_int_eq(input_read(&p.in, p.fds[0]), 100);
    ck_assert_int_eq(next(&p, &f), -BROOK_E_AGAIN);
    input_settle(&p.in, p.fds[0]);
    ck_assert_int_eq(p.in.lowat, (int)INPUT_LOWAT_BYTES_MAX);
    ck_assert_uint_gt(pool_bytes_in_use(p.frames), 600000);
    put(&p, data + 100, bytes - 100);
    while (next(&p, &f) == -BROOK_E_AGAIN)
        ck_assert_int_gt(input_read(&p.in, p.fds[0]), 0);
    input_settle(&p.in, p.fds[0]);
    ck_assert_int_eq(p.in.lowat, 1);
    slab_unref(f.slab);
    end(&p);
}
END_TEST

START_TEST(a_large_frame_waits_for_the_budget)
{
    struct pipe_end p;
    struct input_frame f;
    static uint8_t data[1 << 20];
    begin_with_budget(&p, 1 << 20);
    struct slab *others = pool_take(p.frames, 1 << 20);
    size_t bytes = make_frame(data, 10, 200000, 9);
    put(&p, data, 50);
    ck_assert_int_eq(input_read(&p.in, p.fds[0]), 50);
    ck_assert_int_eq(next(&p, &f), -BROOK_E_BUSY);
    ck_assert_int_eq(next(&p, &f), -BROOK_E_BUSY);
    slab_unref(others);
    p.in.hold = true; /* somebody else was first */
    ck_assert_int_eq(next(&p, &f), -BROOK_E_BUSY);
    input_grant(&p.in, pool_take(p.frames, p.in.wanted));
    put(&p, data + 50, bytes - 50);
    while (next(&p, &f) == -BROOK_E_AGAIN)
        ck_assert_int_gt(input_read(&p.in, p.fds[0]), 0);
    check_frame(&f, 10, 200000, 9);
    slab_unref(f.slab);
    end(&p);
}
END_TEST

START_TEST(lengths_that_lie_are_refused_without_memory)
{
    static const uint32_t lengths[] = {0, 1, 3, FRAME_MAX + 1, 0x7fffffff, 0xffffffff, 0x47455420};
    struct input_frame f;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct pipe_end p;
        uint8_t bytes[4] = {(uint8_t)(lengths[i] >> 24), (uint8_t)(lengths[i] >> 16),
                            (uint8_t)(lengths[i] >> 8), (uint8_t)lengths[i]};
        begin(&p);
        put(&p, bytes, 4);
        ck_assert_int_eq(input_read(&p.in, p.fds[0]), 4);
        int r = next(&p, &f);
        ck_assert(r == -BROOK_E_BAD_FRAME || r == -BROOK_E_FRAME_TOO_LARGE);
        ck_assert_uint_eq(pool_bytes_in_use(p.frames), 0);
        end(&p);
    }
}
END_TEST

SUITE_MAIN("broker/net/input", SUITE_TEST(a_frame_cut_at_each_byte_comes_out_whole),
           SUITE_TEST(many_small_frames_come_out_of_one_receive),
           SUITE_TEST(the_first_buffer_grows_when_it_has_to),
           SUITE_TEST(bytes_of_a_frame_stay_put_while_it_is_held),
           SUITE_TEST(small_and_large_frames_mix_in_any_pieces),
           SUITE_TEST(the_kernel_is_asked_to_wait_only_inside_a_large_frame),
           SUITE_TEST(a_large_frame_waits_for_the_budget),
           SUITE_TEST(lengths_that_lie_are_refused_without_memory))
