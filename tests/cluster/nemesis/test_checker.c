/* The checker fed with histories that are right, and with each kind of wrong one. */
#include "tests/cluster/nemesis/checker.h"
#include "tests/cluster/nemesis/gaps.h"
#include "tests/cluster/nemesis/nemesis.h"
#include "tests/cluster/nemesis/payload.h"
#include "tests/cluster/nemesis/replicas.h"
#include "tests/cluster/nemesis/rules.h"
#include "tests/cluster/nemesis/schedule.h"
#include "tests/cluster/nemesis/topics.h"
#include "tests/support/suite.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORDS 10

/* Two partitions; in each, producers 0 and 1 take turns: offset n is producer n % 2's record n / 2. */
struct history {
    struct checker *checker;
    struct trail acknowledged, reader, member;
};

static struct trail_entry entry(int32_t partition, int64_t offset)
{
    return (struct trail_entry){partition, (int32_t)(offset % 2), offset / 2, offset};
}

/* `except`: this record of partition 0 is left out of the log. */
static void begin(struct history *h, int64_t except)
{
    *h = (struct history){.checker = checker_new(2)};
    for (int32_t p = 0; p < 2; p++)
        for (int64_t n = 0; n < RECORDS; n++) {
            trail_add(&h->acknowledged, entry(p, n));
            trail_add(&h->reader, entry(p, n));
            trail_add(&h->member, entry(p, n));
            if (p != 0 || n != except)
                checker_log(h->checker, entry(p, n));
        }
}

static struct verdict judge(struct history *h)
{
    checker_acknowledged(h->checker, &h->acknowledged);
    checker_reader(h->checker, &h->reader);
    checker_group(h->checker, &h->member, 1);
    struct verdict v = *checker_judge(h->checker, NULL);
    checker_free(h->checker);
    trail_done(&h->acknowledged);
    trail_done(&h->reader);
    trail_done(&h->member);
    return v;
}

static void remove_entry(struct trail *t, size_t index)
{
    memmove(t->entries + index, t->entries + index + 1, (t->count - index - 1) * sizeof *t->entries);
    t->count--;
}

static int64_t faults(const struct verdict *v)
{
    return v->lost + v->moved + v->duplicated + v->out_of_order + v->acknowledged_out_of_order + v->foreign + v->vanished +
           v->skipped + v->backwards + v->missed + v->dropped + v->undeleted;
}

START_TEST(a_history_that_is_right_has_no_faults)
{
    struct history h;
    begin(&h, -1);
    struct verdict v = judge(&h);
    ck_assert_int_eq(v.acknowledged, 2 * RECORDS);
    ck_assert_int_eq(v.in_log, 2 * RECORDS);
    ck_assert_int_eq(v.seen, 4 * RECORDS);
    ck_assert_int_eq(faults(&v), 0);
}
END_TEST

START_TEST(an_acknowledged_record_that_is_nowhere_is_lost)
{
    struct history h;
    begin(&h, RECORDS - 1);
    h.reader.count = h.member.count = 0;
    for (int64_t n = 0; n < RECORDS; n++) {
        if (n < RECORDS - 1)
            trail_add(&h.reader, entry(0, n)), trail_add(&h.member, entry(0, n));
        trail_add(&h.reader, entry(1, n)), trail_add(&h.member, entry(1, n));
    }
    struct verdict v = judge(&h);
    ck_assert_int_eq(v.lost, 1);
    ck_assert_int_eq(faults(&v), 1);
}
END_TEST

START_TEST(an_unacknowledged_record_may_be_missing_or_there)
{
    struct history h;
    begin(&h, -1);
    remove_entry(&h.acknowledged, 4);
    struct verdict v = judge(&h);
    ck_assert_int_eq(v.acknowledged, 2 * RECORDS - 1);
    ck_assert_int_eq(faults(&v), 0);
}
END_TEST

START_TEST(a_record_that_was_seen_and_is_gone_has_vanished)
{
    struct history h;
    begin(&h, RECORDS - 1);
    remove_entry(&h.acknowledged, RECORDS - 1);
    struct verdict v = judge(&h);
    ck_assert_int_eq(v.lost, 0);
    ck_assert_int_eq(v.vanished, 2); /* of the reader and of the group */
    ck_assert_int_eq(faults(&v), 2);
}
END_TEST

START_TEST(a_record_at_another_offset_than_acknowledged_has_moved)
{
    struct history h;
    begin(&h, -1);
    h.acknowledged.entries[RECORDS - 1].offset = 42;
    struct verdict v = judge(&h);
    ck_assert_int_eq(v.moved, 1);
    ck_assert_int_eq(faults(&v), 1);
}
END_TEST

START_TEST(a_record_acknowledged_without_an_offset_must_be_there)
{
    struct history h;
    begin(&h, -1);
    h.acknowledged.entries[4].offset = -1;
    struct verdict v = judge(&h);
    ck_assert_int_eq(faults(&v), 0);
    begin(&h, RECORDS - 1);
    h.acknowledged.entries[RECORDS - 1].offset = -1; /* of the last one of partition 0 */
    v = judge(&h);
    ck_assert_int_eq(v.lost, 1);
    ck_assert_int_eq(v.moved, 0);
}
END_TEST

START_TEST(a_record_in_two_places_is_duplicated)
{
    struct history h;
    begin(&h, -1);
    struct trail_entry again = entry(0, 3);
    again.offset = RECORDS;
    checker_log(h.checker, again);
    trail_add(&h.reader, again);
    trail_add(&h.member, again);
    struct verdict v = judge(&h);
    ck_assert_int_eq(v.duplicated, 1);
    ck_assert_int_eq(faults(&v), 1);
}
END_TEST

START_TEST(a_later_record_in_front_of_an_earlier_one_is_out_of_order)
{
    struct checker *c = checker_new(1);
    struct trail acknowledged = {0};
    const int64_t sequences[] = {0, 2, 1, 3};
    for (int64_t n = 0; n < 4; n++) {
        struct trail_entry e = {.sequence = sequences[n], .offset = n};
        checker_log(c, e);
        trail_add(&acknowledged, e);
    }
    checker_acknowledged(c, &acknowledged);
    const struct verdict *v = checker_judge(c, NULL);
    ck_assert_int_eq(v->out_of_order, 1);
    ck_assert_int_eq(v->acknowledged_out_of_order, 1);
    ck_assert_int_eq(faults(v), 2);
    trail_done(&acknowledged);
    checker_free(c);
}
END_TEST

START_TEST(readers_that_skip_turn_back_or_stop_short_are_told)
{
    struct history h;
    begin(&h, -1);
    remove_entry(&h.reader, 5);
    trail_add(&h.reader, entry(1, 2));
    struct verdict v = judge(&h);
    ck_assert_int_eq(v.skipped, 1);
    ck_assert_int_eq(v.backwards, 1);
    ck_assert_int_eq(faults(&v), 2);
    begin(&h, -1);
    h.reader.count -= 3;
    v = judge(&h);
    ck_assert_int_eq(v.skipped, 3);
    ck_assert_int_eq(faults(&v), 3);
}
END_TEST

START_TEST(groups_may_see_again_but_not_miss)
{
    struct history h;
    begin(&h, -1);
    trail_add(&h.member, entry(1, 2));
    struct verdict v = judge(&h);
    ck_assert_int_eq(v.seen_again, 1);
    ck_assert_int_eq(faults(&v), 0);
    begin(&h, -1);
    remove_entry(&h.member, 7);
    v = judge(&h);
    ck_assert_int_eq(v.missed, 1);
    ck_assert_int_eq(faults(&v), 1);
}
END_TEST

START_TEST(records_go_where_that_was_asked_for_and_stay_gone)
{
    struct history h;
    begin(&h, -1);
    checker_start(h.checker, 0, 4, 5, 4);
    struct verdict v = judge(&h);
    ck_assert_int_eq(v.deleted, 4);
    ck_assert_int_eq(faults(&v), 0);
    begin(&h, -1);
    checker_start(h.checker, 0, 4, 3, 3);
    v = judge(&h);
    ck_assert_int_eq(v.dropped, 1);
    ck_assert_int_eq(faults(&v), 1);
    begin(&h, -1);
    checker_start(h.checker, 0, 4, 6, 5);
    v = judge(&h);
    ck_assert_int_eq(v.undeleted, 1);
    ck_assert_int_eq(faults(&v), 1);
}
END_TEST

START_TEST(bytes_that_no_producer_wrote_are_foreign)
{
    char text[PAYLOAD_BYTES_MAX];
    int32_t producer;
    int64_t sequence;
    size_t bytes = payload_write(text, 3, 12345);
    ck_assert(payload_read(text, bytes, &producer, &sequence));
    ck_assert_int_eq(producer, 3);
    ck_assert_int_eq(sequence, 12345);
    ck_assert(!payload_read(text, bytes - 1, &producer, &sequence));
    text[bytes - 1] ^= 1;
    ck_assert(!payload_read(text, bytes, &producer, &sequence));
    struct checker *c = checker_new(1);
    checker_log(c, (struct trail_entry){.producer = -1});
    ck_assert_int_eq(checker_judge(c, NULL)->foreign, 1);
    checker_free(c);
}
END_TEST

/* ---- rules, report ---------------------------------------------------------------------------------------------- */

START_TEST(a_state_that_may_not_be_is_told)
{
    struct state_rule r = {0};
    ck_assert_ptr_null(state_rule_look(&r, 1, 0, 3));
    ck_assert_ptr_null(state_rule_look(&r, 1, 0, 2));
    ck_assert_ptr_null(state_rule_look(&r, -1, 1, 2));
    ck_assert_ptr_null(state_rule_look(&r, 2, 2, 2));
    ck_assert_str_eq(state_rule_look(&r, 3, 2, 2), "two leaders in one epoch");
    ck_assert_str_eq(state_rule_look(&r, 1, 1, 2), "leader epoch went back");
    ck_assert_ptr_null(state_rule_look(&r, 1, 7, 1));
    ck_assert_str_eq(state_rule_look(&r, 1, 7, 0), "no replica in sync");
    state_rule_done(&r);
}
END_TEST

START_TEST(what_only_rises_may_not_go_back)
{
    int64_t highest = 0;
    ck_assert(rises(&highest, 5));
    ck_assert(rises(&highest, 5));
    ck_assert(rises(&highest, -1)); /* no answer */
    ck_assert(!rises(&highest, 4));
    ck_assert(!rises(&highest, 0));
    ck_assert(rises(&highest, 6));
    ck_assert_int_eq(highest, 6);
}
END_TEST

static struct nemesis_report fine_report(bool is_idempotent)
{
    return (struct nemesis_report){.verdict = {.acknowledged = 1}, .idempotent = is_idempotent};
}

START_TEST(a_run_is_fine_only_when_nothing_is_wrong)
{
    struct nemesis_report r = fine_report(true);
    int64_t *const wrong[] = {&r.verdict.lost, &r.verdict.moved, &r.verdict.duplicated, &r.verdict.out_of_order,
                              &r.verdict.acknowledged_out_of_order, &r.verdict.foreign, &r.verdict.vanished,
                              &r.verdict.skipped, &r.verdict.backwards, &r.verdict.missed, &r.verdict.dropped,
                              &r.verdict.undeleted, &r.replicas_different, &r.watermark_breaches, &r.state_breaches,
                              &r.offset_breaches, &r.surprises};
    ck_assert(nemesis_is_fine(&r));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        *wrong[i] = 1;
        ck_assert_msg(!nemesis_is_fine(&r), "the %zu.", i);
        *wrong[i] = 0;
    }
    r.verdict.acknowledged = 0;
    ck_assert(!nemesis_is_fine(&r));
    r = fine_report(false);
    r.verdict.duplicated = r.verdict.out_of_order = 1;
    ck_assert(nemesis_is_fine(&r));
}
END_TEST

static void check_topics(enum topics_kind kind, int count)
{
    struct topics t;
    topics_init(&t, kind, 7);
    ck_assert_int_eq(t.count, count);
    int32_t sum = 0;
    for (int i = 0; i < t.count; i++)
        sum += topics_partitions(&t, i);
    ck_assert_int_eq(sum, 7);
    for (int32_t p = 0; p < 7; p++) {
        const char *name = topics_name(&t, p);
        ck_assert_int_eq(topics_find(&t, name, topics_number(&t, p)), p);
        ck_assert_int_eq(topics_is_durable(&t, p), strstr(name, "fsync") != NULL);
    }
    ck_assert_int_eq(topics_find(&t, t.names[0], topics_partitions(&t, 0)), -1);
    ck_assert_int_eq(topics_find(&t, "other", 0), -1);
}

START_TEST(partitions_are_numbered_through_all_topics)
{
    check_topics(TOPICS_BOTH, 2);
    check_topics(TOPICS_REPLICATED, 1);
    check_topics(TOPICS_FSYNC, 1);
}
END_TEST

/* ---- replicas, gaps, schedule ----------------------------------------------------------------------------------- */

/* A segment file of batches of one record each, with this byte in the last place of batch 3. */
static void write_segment(const char *directory, int64_t base, int batches, uint8_t byte)
{
    char path[PATH_MAX];
    mkdir(directory, 0755);
    snprintf(path, sizeof path, "%s/%020lld.log", directory, (long long)base);
    FILE *f = fopen(path, "we");
    ck_assert_ptr_nonnull(f);
    for (int i = 0; i < batches; i++) {
        uint8_t batch[70] = {0};
        batch[7] = (uint8_t)(base + i);
        batch[11] = sizeof batch - 12;
        batch[69] = base + i == 3 ? byte : 7;
        fwrite(batch, 1, sizeof batch, f);
    }
    fclose(f);
}

static int64_t difference(const char *a, const char *b)
{
    struct replica x, y;
    replica_load(&x, a);
    replica_load(&y, b);
    int64_t at = replica_first_difference(&x, &y);
    ck_assert_int_eq(at, replica_first_difference(&y, &x));
    replica_done(&x);
    replica_done(&y);
    return at;
}

START_TEST(replicas_are_equal_or_the_first_difference_is_told)
{
    char a[PATH_MAX], b[PATH_MAX], c[PATH_MAX], d[PATH_MAX];
    const char *top = suite_directory();
    snprintf(a, sizeof a, "%.200s/a", top), snprintf(b, sizeof b, "%.200s/b", top);
    snprintf(c, sizeof c, "%.200s/c", top), snprintf(d, sizeof d, "%.200s/d", top);
    write_segment(a, 0, 6, 1);
    write_segment(b, 0, 2, 1), write_segment(b, 2, 4, 1); /* segments may part elsewhere */
    write_segment(c, 0, 6, 2);
    write_segment(d, 0, 5, 1);
    ck_assert_int_eq(difference(a, b), -1);
    ck_assert_int_eq(difference(a, c), 3);
    ck_assert_int_eq(difference(a, d), 5);
    ck_assert_int_eq(difference(a, "/nowhere"), 0);
    ck_assert_int_eq(difference("/nowhere", "/nowhere"), -1);
}
END_TEST

START_TEST(deleted_files_are_no_difference)
{
    char a[PATH_MAX], b[PATH_MAX];
    struct replica x, y;
    const char *top = suite_directory();
    snprintf(a, sizeof a, "%.200s/a", top), snprintf(b, sizeof b, "%.200s/b", top);
    write_segment(a, 0, 2, 1), write_segment(a, 2, 4, 1);
    write_segment(b, 2, 4, 1);
    replica_load(&x, a), replica_load(&y, b);
    ck_assert_int_eq(replica_first_difference(&x, &y), 0);
    replica_begin_at(&x, 3), replica_begin_at(&y, 3);
    ck_assert_int_eq(replica_first_difference(&x, &y), -1);
    ck_assert_int_eq(replica_end(&x), 6);
    replica_begin_at(&x, 6);
    ck_assert_uint_eq(x.count, 0);
    replica_done(&x), replica_done(&y);
}
END_TEST

static int64_t longest(struct gaps *g, int64_t from_ms, int64_t to_ms)
{
    struct gap gap = gaps_longest(g, from_ms, to_ms);
    return gap.to_ms - gap.from_ms;
}

START_TEST(the_longest_gap_that_meets_a_fault_is_told)
{
    struct gaps *g = gaps_new(2);
    gaps_tell(g, 0, true, 1000), gaps_tell(g, 0, true, 1100), gaps_tell(g, 0, false, 1400);
    gaps_tell(g, 1, true, 3000), gaps_tell(g, 1, false, 3100);
    ck_assert_int_eq(longest(g, 900, 1200), 400);
    ck_assert_int_eq(longest(g, 1500, 2000), 0);
    ck_assert_int_eq(longest(g, 0, 9000), 400);
    gaps_tell(g, 1, true, 5000);
    ck_assert_int_eq(longest(g, 5500, 6000), 1000);
    ck_assert_int_eq(gaps_longest(g, 900, 1200).partition, 0);
    gaps_free(g);
    g = gaps_new(1);
    gaps_seen(g, 0, 100), gaps_seen(g, 0, 110), gaps_seen(g, 0, 700);
    ck_assert_int_eq(longest(g, 300, 400), 590);
    gaps_free(g);
}
END_TEST

START_TEST(the_same_seed_gives_the_same_faults)
{
    struct schedule a = {.random = 42, .brokers = 3, .partitions = 6, .groups = 2, .members = 2, .session_ms = 2000,
                         .may_lose_disk = true, .may_move = true,
                         .may_cut_power = true, .is_all_on_disk = true}, b = a;
    struct schedule_view busy = {.is_broker_busy = {[2] = true}}, free_view = {0};
    int seen[FAULT_KINDS] = {0};
    for (int i = 0; i < 2000; i++) {
        const struct schedule_view *view = i % 2 ? &free_view : &busy;
        struct fault f = schedule_next(&a, view), g = schedule_next(&b, view);
        ck_assert_int_eq(memcmp(&f, &g, sizeof f), 0);
        ck_assert_int_ne(f.broker, f.other);
        ck_assert(fault_wants_calm(&a, f.kind) || f.kind == FAULT_MOVE || f.kind == FAULT_MOVE_SLOWLY ||
                  f.kind == FAULT_DELETE || f.kind == FAULT_ELECT ||
                  f.kind == FAULT_ZOOKEEPER_KILL || f.kind == FAULT_ZOOKEEPER_PAUSE || f.kind == FAULT_MEMBER_KILL ||
                  f.kind == FAULT_MEMBER_PAUSE || i % 2 || f.broker != 2);
        ck_assert((f.kind != FAULT_BLACKOUT && f.kind != FAULT_POWER_CUT_ALL) || i % 2);
        seen[f.kind]++;
    }
    for (int kind = 0; kind < FAULT_KINDS; kind++)
        ck_assert_int_gt(seen[kind], 0);
    a.may_lose_disk = a.is_all_on_disk = false;
    for (int i = 0; i < 2000; i++) {
        enum fault_kind kind = schedule_next(&a, &busy).kind;
        ck_assert(kind != FAULT_EMPTY_DISK && kind != FAULT_POWER_CUT && kind != FAULT_POWER_CUT_ALL);
    }
}
END_TEST

START_TEST(power_is_cut_where_that_is_survived)
{
    struct schedule s = {.random = 7, .brokers = 3, .partitions = 6, .session_ms = 2000, .may_lose_disk = true};
    struct schedule_view busy = {.is_broker_busy = {[2] = true}}, free_view = {0};
    for (int i = 0; i < 2000; i++) {
        enum fault_kind kind = schedule_next(&s, &free_view).kind;
        ck_assert(kind != FAULT_POWER_CUT && kind != FAULT_POWER_CUT_ALL);
    }
    s.may_cut_power = true;
    ck_assert(fault_wants_calm(&s, FAULT_POWER_CUT));
    for (int i = 0; i < 2000; i++)
        ck_assert_int_ne(schedule_next(&s, &free_view).kind, FAULT_POWER_CUT_ALL);
    s.is_all_on_disk = true;
    ck_assert(!fault_wants_calm(&s, FAULT_POWER_CUT));
    for (int i = 0; i < 2000; i++) {
        struct fault f = schedule_next(&s, &busy);
        ck_assert(f.kind != FAULT_POWER_CUT_ALL && (f.kind != FAULT_POWER_CUT || f.broker != 2));
    }
}
END_TEST

SUITE_MAIN("nemesis/checker", SUITE_TEST(a_history_that_is_right_has_no_faults),
           SUITE_TEST(an_acknowledged_record_that_is_nowhere_is_lost),
           SUITE_TEST(an_unacknowledged_record_may_be_missing_or_there),
           SUITE_TEST(a_record_that_was_seen_and_is_gone_has_vanished),
           SUITE_TEST(a_record_at_another_offset_than_acknowledged_has_moved),
           SUITE_TEST(a_record_acknowledged_without_an_offset_must_be_there),
           SUITE_TEST(a_record_in_two_places_is_duplicated),
           SUITE_TEST(a_later_record_in_front_of_an_earlier_one_is_out_of_order),
           SUITE_TEST(readers_that_skip_turn_back_or_stop_short_are_told), SUITE_TEST(groups_may_see_again_but_not_miss),
           SUITE_TEST(bytes_that_no_producer_wrote_are_foreign),
           SUITE_TEST(records_go_where_that_was_asked_for_and_stay_gone), SUITE_TEST(a_state_that_may_not_be_is_told),
           SUITE_TEST(what_only_rises_may_not_go_back), SUITE_TEST(a_run_is_fine_only_when_nothing_is_wrong),
           SUITE_TEST(partitions_are_numbered_through_all_topics), SUITE_TEST(deleted_files_are_no_difference),
           SUITE_TEST(replicas_are_equal_or_the_first_difference_is_told),
           SUITE_TEST(the_longest_gap_that_meets_a_fault_is_told), SUITE_TEST(the_same_seed_gives_the_same_faults),
           SUITE_TEST(power_is_cut_where_that_is_survived))
