/* The rules of producer_state.h, on headers alone, and a model of it under random appends, failures and cuts. */
#include "broker/storage/producer_state.h"
#include "proto/base/err.h"
#include "tests/support/suite.h"

#include <stdlib.h>

static struct producer_state *s;
static int64_t end_offset;

static struct batch_header header(int64_t id, int epoch, int32_t sequence, int32_t records)
{
    return (struct batch_header){.producer_id = id,
                                 .producer_epoch = (int16_t)epoch,
                                 .base_sequence = sequence,
                                 .last_offset_delta = records - 1,
                                 .records_count = records};
}

static void begin(void)
{
    end_offset = 100;
    ck_assert_int_eq(producer_state_new(&s), 0);
}

static int judge(int64_t id, int epoch, int32_t sequence, int32_t records, struct producer_verdict *v)
{
    struct batch_header h = header(id, epoch, sequence, records);
    return producer_state_check(s, &h, v, NULL);
}

/* Judge, and append what is new. Returns its offset, a duplicate's (with *ret_duplicate), or the refusal. */
static int64_t send(int64_t id, int epoch, int32_t sequence, int32_t records, bool *ret_duplicate)
{
    struct producer_verdict v;
    struct batch_header h = header(id, epoch, sequence, records);
    int r = producer_state_check(s, &h, &v, NULL);
    *ret_duplicate = r == 0 && v.is_duplicate;
    if (r < 0)
        return r;
    if (v.is_duplicate)
        return v.base_offset;
    h.base_offset = end_offset;
    end_offset += records;
    ck_assert_int_eq(producer_state_note(s, &h, end_offset), 0);
    return h.base_offset;
}

#define NEW(id, epoch, sequence, records, offset) \
    do { \
        bool duplicate_; \
        ck_assert_int_eq(send(id, epoch, sequence, records, &duplicate_), offset); \
        ck_assert(!duplicate_); \
    } while (0)
#define REPEATED(id, epoch, sequence, records, offset) \
    do { \
        bool duplicate_; \
        ck_assert_int_eq(send(id, epoch, sequence, records, &duplicate_), offset); \
        ck_assert(duplicate_); \
    } while (0)
#define REFUSED(id, epoch, sequence, records, code) \
    do { \
        struct producer_verdict v_; \
        ck_assert_int_eq(judge(id, epoch, sequence, records, &v_), -(code)); \
    } while (0)

START_TEST(repeated_batches_are_known_and_gaps_refused)
{
    begin();
    NEW(7, 0, 0, 10, 100);
    NEW(7, 0, 10, 1, 110);
    NEW(8, 0, 0, 2, 111);
    REPEATED(7, 0, 0, 10, 100);
    REPEATED(7, 0, 10, 1, 110);
    REPEATED(7, 0, 4, 6, 104); /* the second half of a batch that was cut */
    REFUSED(7, 0, 12, 1, BROOK_E_OUT_OF_SEQUENCE);
    REFUSED(7, 0, 5, 6, BROOK_E_OUT_OF_SEQUENCE); /* lies across two */
    NEW(7, 0, 11, 3, 113);
    producer_state_free(s);
}
END_TEST

START_TEST(five_batches_are_remembered_and_older_ones_still_are_duplicates)
{
    begin();
    for (int i = 0; i < 7; i++)
        NEW(7, 0, i, 1, 100 + i);
    for (int i = 2; i < 7; i++)
        REPEATED(7, 0, i, 1, 100 + i);
    REPEATED(7, 0, 1, 1, -1);
    struct producer_verdict v;
    ck_assert_int_eq(judge(7, 0, 0, 1, &v), 0);
    ck_assert(v.is_duplicate);
    ck_assert_int_eq(v.last_offset, 101); /* an answer has to wait for all that it may be */
    producer_state_free(s);
}
END_TEST

START_TEST(unknown_producer_begins_at_zero_only)
{
    begin();
    REFUSED(7, 0, 5, 1, BROOK_E_UNKNOWN_PRODUCER);
    NEW(7, 3, 0, 1, 100);
    producer_state_clear(s);
    REFUSED(7, 3, 1, 1, BROOK_E_UNKNOWN_PRODUCER);
    NEW(7, 4, 0, 1, 101);
    producer_state_free(s);
}
END_TEST

START_TEST(newer_epoch_begins_at_zero_and_fences_the_older)
{
    begin();
    NEW(7, 0, 0, 5, 100);
    REFUSED(7, 1, 5, 1, BROOK_E_OUT_OF_SEQUENCE);
    NEW(7, 1, 0, 5, 105);
    REFUSED(7, 0, 5, 1, BROOK_E_PRODUCER_FENCED);
    REFUSED(7, 0, 0, 5, BROOK_E_PRODUCER_FENCED);
    REPEATED(7, 1, 0, 5, 105);
    producer_state_free(s);
}
END_TEST

START_TEST(sequence_goes_on_at_zero_after_the_largest)
{
    begin();
    struct batch_header h = header(7, 0, INT32_MAX - 2, 2);
    h.base_offset = 90;
    ck_assert_int_eq(producer_state_note(s, &h, 1), 0);
    NEW(7, 0, INT32_MAX, 4, 100); /* 2^31-1, 0, 1, 2 */
    REPEATED(7, 0, INT32_MAX, 4, 100);
    REPEATED(7, 0, INT32_MAX - 2, 2, 90);
    REPEATED(7, 0, 0, 3, 101);
    REFUSED(7, 0, 4, 1, BROOK_E_OUT_OF_SEQUENCE);
    NEW(7, 0, 3, 1, 104);
    /* And over a snapshot. */
    void *data;
    size_t bytes, count;
    ck_assert_int_eq(producer_state_save(s, &data, &bytes), 0);
    producer_state_clear(s);
    ck_assert_int_eq(producer_snapshot_check(data, bytes, &count), 0);
    ck_assert_uint_eq(count, 3); /* batches */
    ck_assert_int_eq(producer_state_load(s, data, count, 500), 0);
    free(data);
    REPEATED(7, 0, 3, 1, 104);
    REPEATED(7, 0, INT32_MAX - 2, 2, 90);
    NEW(7, 0, 4, 1, 105);
    producer_state_free(s);
}
END_TEST

START_TEST(undone_transaction_leaves_nothing_behind)
{
    begin();
    NEW(7, 0, 0, 1, 100);
    producer_state_begin(s);
    for (int i = 1; i < 9; i++)
        NEW(7, 0, i, 1, 100 + i);
    NEW(9, 0, 0, 1, 109);
    REPEATED(7, 0, 8, 1, 108);
    producer_state_undo(s);
    ck_assert_uint_eq(producer_state_count(s), 1);
    REFUSED(9, 0, 1, 1, BROOK_E_UNKNOWN_PRODUCER);
    REFUSED(7, 0, 9, 1, BROOK_E_OUT_OF_SEQUENCE);
    REPEATED(7, 0, 0, 1, 100);
    end_offset = 101;
    NEW(7, 0, 1, 1, 101);
    producer_state_free(s);
}
END_TEST

START_TEST(limit_and_expiry_forget_those_silent_longest)
{
    begin();
    for (int i = 0; i < 10; i++)
        NEW(i, 0, 0, 1, 100 + i);
    NEW(0, 0, 1, 1, 110); /* seen again: not the oldest any more */
    producer_state_begin(s);
    producer_state_keep(s, 8);
    ck_assert_uint_eq(producer_state_count(s), 8);
    REFUSED(1, 0, 1, 1, BROOK_E_UNKNOWN_PRODUCER);
    REFUSED(2, 0, 1, 1, BROOK_E_UNKNOWN_PRODUCER);
    REPEATED(0, 0, 1, 1, 110);
    producer_state_expire(s, 110); /* seen_ms is the end offset after the append */
    ck_assert_uint_eq(producer_state_count(s), 2);
    REPEATED(9, 0, 0, 1, 109);
    producer_state_free(s);
}
END_TEST

START_TEST(cut_is_exact_or_says_that_it_is_not)
{
    begin();
    NEW(7, 0, 0, 1, 100);
    NEW(8, 0, 0, 1, 101);
    for (int i = 1; i < 4; i++)
        NEW(7, 0, i, 1, 101 + i);
    ck_assert(producer_state_cut(s, 103)); /* 8 stays, 7 loses two */
    end_offset = 103;
    REPEATED(7, 0, 1, 1, 102);
    NEW(7, 0, 2, 1, 103);
    ck_assert(producer_state_cut(s, 101)); /* 8 began there: it was not known before */
    REFUSED(8, 0, 1, 1, BROOK_E_UNKNOWN_PRODUCER);
    end_offset = 101;
    for (int i = 1; i < 9; i++)
        NEW(7, 0, i, 1, 100 + i);
    ck_assert(!producer_state_cut(s, 103)); /* what it had sent before is remembered no more */
    producer_state_free(s);
}
END_TEST

/* ---- a model ---------------------------------------------------------------------------------------- */

#define MODEL_PRODUCERS 4
#define MODEL_STEPS 400

static uint64_t dice;

static size_t roll(size_t sides)
{
    return (size_t)suite_random_below(&dice, sides);
}

/* All batches of the log, for comparison. */
struct model {
    struct batch_header log[MODEL_STEPS * 4];
    size_t count;
};

/* What a state made from nothing would say of the next sequence: -1: unknown. */
static int32_t model_next(const struct model *m, int64_t id, int *ret_epoch)
{
    for (size_t i = m->count; i-- > 0;)
        if (m->log[i].producer_id == id) {
            *ret_epoch = m->log[i].producer_epoch;
            return sequence_after(m->log[i].base_sequence, m->log[i].last_offset_delta + 1);
        }
    return -1;
}

static void model_compare(const struct model *m)
{
    for (int64_t id = 0; id < MODEL_PRODUCERS; id++) {
        struct producer_verdict v;
        int epoch = 0;
        int32_t next = model_next(m, id, &epoch);
        if (next < 0) {
            ck_assert_int_eq(judge(id, 0, 1, 1, &v), -BROOK_E_UNKNOWN_PRODUCER);
            continue;
        }
        ck_assert_int_eq(judge(id, epoch, next, 1, &v), 0);
        ck_assert(!v.is_duplicate);
        ck_assert_int_eq(judge(id, epoch, sequence_after(next, 1), 1, &v), -BROOK_E_OUT_OF_SEQUENCE);
        for (size_t i = m->count, seen = 0; i-- > 0 && seen < PRODUCER_BATCHES_MAX;) {
            const struct batch_header *h = &m->log[i];
            if (h->producer_id != id || h->producer_epoch != epoch)
                continue;
            seen++;
            ck_assert_int_eq(producer_state_check(s, h, &v, NULL), 0);
            ck_assert(v.is_duplicate);
            if (v.base_offset >= 0)
                ck_assert_int_eq(v.base_offset, h->base_offset);
            else
                ck_assert_int_ge(v.last_offset, h->base_offset + h->last_offset_delta);
        }
    }
}

static void model_rebuild(const struct model *m)
{
    producer_state_clear(s);
    for (size_t i = 0; i < m->count; i++)
        ck_assert_int_eq(producer_state_note(s, &m->log[i], 1), 0);
}

static void model_append(struct model *m, bool fails)
{
    size_t before = m->count;
    int64_t end_before = end_offset;
    producer_state_begin(s);
    for (size_t n = 1 + roll(4); n > 0; n--) {
        int64_t id = (int64_t)roll(MODEL_PRODUCERS);
        int epoch = 0;
        int32_t next = model_next(m, id, &epoch);
        if (next < 0 || roll(10) == 0) {
            epoch += next >= 0;
            next = 0;
        }
        struct batch_header h = header(id, epoch, next, 1 + (int32_t)roll(3));
        h.base_offset = end_offset;
        end_offset += h.last_offset_delta + 1;
        ck_assert_int_eq(producer_state_note(s, &h, 1), 0);
        m->log[m->count++] = h;
    }
    if (!fails) {
        producer_state_keep(s, 1000);
        return;
    }
    producer_state_undo(s);
    m->count = before;
    end_offset = end_before;
}

static void model_cut(struct model *m)
{
    size_t keep = m->count - roll(m->count < 20 ? m->count + 1 : 20);
    end_offset = keep < m->count ? m->log[keep].base_offset : end_offset;
    m->count = keep;
    if (!producer_state_cut(s, end_offset))
        model_rebuild(m);
}

START_TEST(state_is_what_the_log_tells_whatever_happens)
{
    dice = suite_seed();
    for (int round = 0; round < (suite_is_quick() ? 20 : 100); round++) {
        struct model m = {.count = 0};
        begin();
        for (int step = 0; step < MODEL_STEPS; step++) {
            if (roll(12) == 0)
                model_cut(&m);
            else
                model_append(&m, roll(5) == 0);
            model_compare(&m);
        }
        producer_state_free(s);
    }
}
END_TEST

SUITE_MAIN("storage/producer_state", SUITE_TEST(repeated_batches_are_known_and_gaps_refused),
           SUITE_TEST(five_batches_are_remembered_and_older_ones_still_are_duplicates),
           SUITE_TEST(unknown_producer_begins_at_zero_only),
           SUITE_TEST(newer_epoch_begins_at_zero_and_fences_the_older),
           SUITE_TEST(sequence_goes_on_at_zero_after_the_largest),
           SUITE_TEST(undone_transaction_leaves_nothing_behind),
           SUITE_TEST(limit_and_expiry_forget_those_silent_longest),
           SUITE_TEST(cut_is_exact_or_says_that_it_is_not),
           SUITE_TEST(state_is_what_the_log_tells_whatever_happens))
