#include "proto/base/err.h"
#include "proto/wire/outbox.h"
#include "proto/wire/pending.h"
#include "tests/support/suite.h"

#include <stdlib.h>
#include <string.h>

static void put(struct outbox *o, const char *text)
{
    uint8_t *to = outbox_reserve(o, strlen(text), 1);
    ck_assert_ptr_nonnull(to);
    memcpy(to, text, strlen(text));
    outbox_commit(o, strlen(text));
}

/* All that is queued below `until`, `step` bytes at a time. */
static char *take(struct outbox *o, uint64_t until, size_t step)
{
    static char text[4096];
    size_t used = 0;
    struct iovec iov[3];
    for (size_t n; (n = outbox_gather(o, until, iov, 3)) > 0;) {
        size_t bytes = iov[0].iov_len < step ? iov[0].iov_len : step;
        memcpy(text + used, iov[0].iov_base, bytes);
        used += bytes;
        outbox_consume(o, bytes);
    }
    text[used] = '\0';
    return text;
}

START_TEST(bytes_leave_in_the_order_queued_however_they_are_taken)
{
    struct outbox o = {0};
    for (size_t step = 1; step < 12; step++) {
        put(&o, "one ");
        put(&o, "two ");
        outbox_reserve(&o, 0, 1);
        outbox_borrow(&o, "borrowed ", 9);
        put(&o, "three");
        ck_assert_uint_eq(o.bytes, 22);
        ck_assert_str_eq(take(&o, UINT64_MAX, step), "one two borrowed three");
        ck_assert_uint_eq(o.bytes, 0);
        ck_assert_uint_eq(outbox_head(&o), outbox_tail(&o));
    }
    outbox_done(&o);
}
END_TEST

START_TEST(neighbours_in_memory_are_gathered_into_one)
{
    struct outbox o = {0};
    struct iovec iov[4];
    for (int i = 0; i < 50; i++)
        put(&o, "0123456789");
    ck_assert_uint_eq(outbox_gather(&o, UINT64_MAX, iov, 4), 1);
    ck_assert_uint_eq(iov[0].iov_len, 500);
    outbox_done(&o);
}
END_TEST

START_TEST(nothing_leaves_beyond_the_piece_named)
{
    struct outbox o = {0};
    put(&o, "hello");
    uint64_t until = outbox_tail(&o);
    put(&o, "request");
    ck_assert_str_eq(take(&o, until, 100), "hello");
    ck_assert_str_eq(take(&o, until, 100), "");
    ck_assert_str_eq(take(&o, UINT64_MAX, 100), "request");
    outbox_done(&o);
}
END_TEST

START_TEST(a_dropped_piece_leaves_the_others_in_order)
{
    for (uint64_t dropped = 0; dropped < 4; dropped++) {
        struct outbox o = {0};
        const char *texts[] = {"aa", "bb", "cc", "dd"};
        char expected[16] = "";
        for (uint64_t i = 0; i < 4; i++) {
            put(&o, texts[i]);
            if (i != dropped)
                strcat(expected, texts[i]);
        }
        outbox_drop(&o, dropped, dropped + 1);
        ck_assert_uint_eq(o.bytes, 6);
        ck_assert_str_eq(take(&o, UINT64_MAX, 1), expected);
        outbox_consume(&o, 0);
        ck_assert_uint_eq(outbox_head(&o), outbox_tail(&o));
        outbox_done(&o);
    }
}
END_TEST

START_TEST(a_piece_is_whole_until_its_first_byte_has_left)
{
    struct outbox o = {0};
    put(&o, "abc");
    put(&o, "def");
    ck_assert(outbox_is_whole(&o, 0));
    outbox_consume(&o, 1);
    ck_assert(!outbox_is_whole(&o, 0));
    ck_assert(outbox_is_whole(&o, 1));
    outbox_consume(&o, 2);
    ck_assert(outbox_is_whole(&o, 1));
    outbox_consume(&o, 1);
    ck_assert(!outbox_is_whole(&o, 1));
    outbox_done(&o);
}
END_TEST

START_TEST(large_and_many_pieces_stay_right)
{
    struct outbox o = {0};
    uint64_t seed = suite_seed();
    uint8_t next_in = 0, next_out = 0;
    size_t queued = 0;
    for (int i = 0; i < 20000; i++) {
        size_t bytes = 1 + suite_random_below(&seed, i % 100 == 0 ? 200000 : 300);
        if (queued < 1000000) {
            uint8_t *to = outbox_reserve(&o, bytes, 1);
            ck_assert_ptr_nonnull(to);
            for (size_t j = 0; j < bytes; j++)
                to[j] = next_in++;
            outbox_commit(&o, bytes);
            queued += bytes;
        }
        struct iovec iov[2];
        size_t n = outbox_gather(&o, UINT64_MAX, iov, 2);
        size_t take_bytes = n ? 1 + suite_random_below(&seed, iov[0].iov_len) : 0;
        bool right = true;
        for (size_t j = 0; j < take_bytes; j++)
            right &= ((uint8_t *)iov[0].iov_base)[j] == next_out++;
        ck_assert(right);
        outbox_consume(&o, take_bytes);
        queued -= take_bytes;
        ck_assert_uint_eq(o.bytes, queued);
    }
    outbox_done(&o);
}
END_TEST

START_TEST(a_correlation_id_never_returns)
{
    struct pending p;
    pending_init(&p);
    struct pending_request *a = pending_add(&p);
    uint64_t first = a->correlation_id;
    ck_assert_uint_ne(first, 0);
    pending_remove(&p, a);
    ck_assert_ptr_null(pending_find(&p, first));
    struct pending_request *b = pending_add(&p);
    ck_assert_uint_ne(b->correlation_id, first);
    ck_assert_ptr_null(pending_find(&p, first));
    ck_assert_ptr_eq(pending_find(&p, b->correlation_id), b);
    ck_assert_ptr_null(pending_find(&p, 0));
    ck_assert_ptr_null(pending_find(&p, UINT64_MAX));
    pending_done(&p);
}
END_TEST

START_TEST(a_request_given_up_is_still_recognised)
{
    struct pending p;
    pending_init(&p);
    uint64_t id = pending_add(&p)->correlation_id;
    pending_give_up(&p, pending_find(&p, id));
    ck_assert_uint_eq(p.live_count, 0);
    ck_assert_uint_eq(p.late_count, 1);
    ck_assert_ptr_null(pending_first(&p));
    ck_assert_ptr_nonnull(pending_find(&p, id));
    ck_assert(!pending_find(&p, id)->live);
    pending_forget_late(&p);
    ck_assert_ptr_null(pending_find(&p, id));
    ck_assert_uint_eq(p.late_count, 0);
    pending_done(&p);
}
END_TEST

START_TEST(requests_are_walked_in_the_order_sent)
{
    struct pending p;
    pending_init(&p);
    uint64_t seed = suite_seed();
    uint64_t ids[1000];
    size_t count = 0;
    for (int i = 0; i < 20000; i++) {
        if (count < 1000 && (count == 0 || suite_random_below(&seed, 2))) {
            ids[count++] = pending_add(&p)->correlation_id;
        } else {
            size_t at = suite_random_below(&seed, count);
            pending_remove(&p, pending_find(&p, ids[at]));
            memmove(&ids[at], &ids[at + 1], (--count - at) * sizeof ids[0]);
        }
        ck_assert_uint_eq(p.live_count, count);
    }
    size_t seen = 0;
    for (struct pending_request *q = pending_first(&p); q; q = pending_next(&p, q))
        ck_assert_uint_eq(q->correlation_id, ids[seen++]);
    ck_assert_uint_eq(seen, count);
    pending_done(&p);
}
END_TEST

START_TEST(the_table_has_a_limit)
{
    struct pending p;
    pending_init(&p);
    for (size_t i = 0; i < PENDING_MAX; i++)
        ck_assert_ptr_nonnull(pending_add(&p));
    ck_assert_ptr_null(pending_add(&p));
    pending_done(&p);
}
END_TEST

SUITE_MAIN("wire/outbox", SUITE_TEST(bytes_leave_in_the_order_queued_however_they_are_taken),
           SUITE_TEST(neighbours_in_memory_are_gathered_into_one),
           SUITE_TEST(nothing_leaves_beyond_the_piece_named),
           SUITE_TEST(a_dropped_piece_leaves_the_others_in_order),
           SUITE_TEST(a_piece_is_whole_until_its_first_byte_has_left),
           SUITE_TEST(large_and_many_pieces_stay_right), SUITE_TEST(a_correlation_id_never_returns),
           SUITE_TEST(a_request_given_up_is_still_recognised),
           SUITE_TEST(requests_are_walked_in_the_order_sent), SUITE_TEST(the_table_has_a_limit))
