/* The shell around the cores, with a real log. */
#include "broker/replication/replica.h"

#include "broker/partition/partition.h"
#include "tests/unit/storage/fixture.h"

static const uint8_t topic_id[16] = {1};

static void look_away(void *arg, struct replica *replica)
{
}

static struct partition *make(void)
{
    struct log_settings s = fixture_settings();
    struct log *log = fixture_open(fixture_log_path("replica"), &s, &fixture_clean);
    struct partition *p = NULL;
    ck_assert_int_eq(partition_new("orders", 3, topic_id, &log, &p), 0);
    return p;
}

static enum replica_verdict take(struct replica *r, int32_t leader, int32_t leader_epoch, int64_t broker_epoch)
{
    int32_t brokers[] = {1, 2};
    struct znode_state state = {
        .leader = leader, .leader_epoch = leader_epoch, .isr_count = 1, .isr = {1}, .isr_epochs = {4}};
    struct znode_replicas assigned = {brokers, 2};
    struct replica_news news = {.state = &state,
                                .version = leader_epoch,
                                .replicas = &assigned,
                                .broker_epoch = broker_epoch,
                                .is_assigned = true,
                                .min_in_sync = 1};
    struct replica_step step;
    return replica_take_news(r, &news, &step);
}

static int64_t vouched_by(struct replica *r, int32_t leader_epoch)
{
    struct epoch_end end;
    int64_t broker_epoch;
    ck_assert_int_eq(replica_epoch_end(r, leader_epoch, INT32_MAX, &end, &broker_epoch), 0);
    return broker_epoch;
}

START_TEST(a_report_is_vouched_for_by_the_present_registration)
{
    struct partition *p = make();
    struct inbox inbox;
    ck_assert_int_eq(inbox_init(&inbox), 0);
    struct replica_settings rs = {.broker_id = 2, .lag_ms_max = 10000, .inbox = &inbox, .wants_look = look_away};
    struct replica *r;
    ck_assert_int_eq(replica_new(&rs, p, &r), 0);
    ck_assert_int_eq(take(r, -1, 2, -1), REPLICA_CHANGE);
    ck_assert_int_eq(take(r, -1, 2, 5), REPLICA_KEEP);
    ck_assert_int_eq(vouched_by(r, 2), 5);
    ck_assert_int_eq(take(r, -1, 2, 6), REPLICA_KEEP);
    ck_assert_int_eq(vouched_by(r, 2), 6);
    replica_unref(r);
    partition_unref(p);
    inbox_done(&inbox);
}
END_TEST

/* A replica with its log and inbox; broker 1. */
struct case_ {
    struct partition *p;
    struct inbox inbox;
    struct replica_settings settings;
    struct replica *r;
    unsigned looks;
};

static void count_look(void *arg, struct replica *replica)
{
    struct case_ *x = arg;
    x->looks++;
}

static void begin(struct case_ *x)
{
    *x = (struct case_){.p = make()};
    ck_assert_int_eq(inbox_init(&x->inbox), 0);
    x->settings = (struct replica_settings){
        .broker_id = 1, .lag_ms_max = 10000, .inbox = &x->inbox, .wants_look = count_look, .arg = x};
    ck_assert_int_eq(replica_new(&x->settings, x->p, &x->r), 0);
}

static void end(struct case_ *x)
{
    while (inbox_drain(&x->inbox)) /* looks that were asked for hold the replica */
        ;
    replica_unref(x->r);
    partition_unref(x->p);
    inbox_done(&x->inbox);
}

static int pull(struct replica *r, int64_t broker_epoch, int64_t offset)
{
    const struct leader_pull pull = {.broker_id = 2,
                                     .broker_epoch = broker_epoch,
                                     .current_epoch = 2,
                                     .offset = offset,
                                     .last_epoch = -1,
                                     .safe_end = offset,
                                     .reached_epoch = 2,
                                     .log_start = 0};
    return replica_pull(r, &pull, 1);
}

static struct partition_marks marks_of(struct partition *p)
{
    struct partition_marks marks;
    partition_marks(p, &marks);
    return marks;
}

START_TEST(a_role_that_was_not_taken_wholly_is_taken_again)
{
    struct case_ x;
    begin(&x);
    ck_assert_int_eq(partition_follow(x.p, 5), 0); /* refuses to lead at 3 */
    ck_assert_int_eq(take(x.r, 1, 3, 4), REPLICA_CHANGE);
    ck_assert(!marks_of(x.p).is_leader);
    ck_assert_int_eq(take(x.r, 1, 3, 4), REPLICA_CHANGE); /* not remembered as done */
    ck_assert_int_eq(take(x.r, 1, 2, 4), REPLICA_REFUSE); /* begun is begun: no way back */
    ck_assert_int_eq(take(x.r, 1, 5, 4), REPLICA_CHANGE);
    ck_assert(marks_of(x.p).is_leader);
    ck_assert_int_eq(take(x.r, 1, 5, 4), REPLICA_KEEP);
    ck_assert_int_eq(take(x.r, 2, 4, 4), REPLICA_REFUSE);
    ck_assert(marks_of(x.p).is_leader);
    end(&x);
}
END_TEST

START_TEST(a_pull_of_an_earlier_life_counts_for_nothing)
{
    struct case_ x;
    struct leader_isr_change change;
    begin(&x);
    ck_assert_int_eq(take(x.r, 1, 2, 4), REPLICA_CHANGE);
    ck_assert_int_eq(pull(x.r, 8, 0), 0);
    while (inbox_drain(&x.inbox))
        ;
    ck_assert_uint_eq(x.looks, 1); /* it may join */
    replica_take_broker(x.r, 2, 9, false);
    ck_assert_int_eq(pull(x.r, 8, 0), -BROOK_E_STALE_BROKER_EPOCH);
    ck_assert(!replica_propose(x.r, 1, &change));
    ck_assert_int_eq(pull(x.r, 9, 0), 0);
    ck_assert_int_eq(pull(x.r, 8, 0), -BROOK_E_STALE_BROKER_EPOCH);
    ck_assert(replica_propose(x.r, 1, &change));
    ck_assert_int_eq(change.checks_count, 1);
    ck_assert_int_eq(change.checks[0].broker_epoch, 9);
    ck_assert_int_eq(pull(x.r, 10, 0), 0); /* yet another life, while the change is under way */
    replica_take_outcome(x.r, 1, LEADER_APPLIED, 3); /* of another epoch: nothing */
    ck_assert(!replica_propose(x.r, 1, &change));
    replica_take_outcome(x.r, 2, LEADER_REFUSED, -1);
    ck_assert(replica_wants_read(x.r));
    ck_assert_int_eq(take(x.r, 1, 2, 4), REPLICA_KEEP); /* as read */
    ck_assert(!replica_wants_read(x.r));
    end(&x);
}
END_TEST

/* Whoever is let go of while a look is posted is looked at once more, and then gone. */
START_TEST(a_leader_commits_when_its_epoch_is_kept_where_disks_count)
{
    struct case_ x;
    begin(&x);
    fixture_append(partition_log(x.p), 3, T0, 100);
    replica_set_counts_by_disk(x.r, true);
    replica_epoch_kept(x.r, 1); /* as its disk says */
    ck_assert_int_eq(replica_reached_epoch(x.r), 1);
    ck_assert_int_eq(replica_awaited_epoch(x.r), -1);
    ck_assert_int_eq(take(x.r, 1, 2, 4), REPLICA_CHANGE);
    ck_assert_int_eq(replica_awaited_epoch(x.r), 2);
    ck_assert_int_eq(replica_reached_epoch(x.r), 2);
    ck_assert_int_eq(marks_of(x.p).high_watermark, 0);
    replica_epoch_kept(x.r, 1); /* late, of another */
    ck_assert_int_eq(marks_of(x.p).high_watermark, 0);
    replica_epoch_kept(x.r, 2);
    ck_assert_int_eq(replica_awaited_epoch(x.r), -1);
    ck_assert_int_eq(marks_of(x.p).high_watermark, 3);
    ck_assert_int_eq(take(x.r, 1, 3, 4), REPLICA_CHANGE); /* the next one anew */
    ck_assert_int_eq(replica_awaited_epoch(x.r), 3);
    end(&x);
}
END_TEST

static struct epoch_end report(struct replica *r, int32_t leader_epoch)
{
    struct epoch_end end;
    int64_t broker_epoch;
    ck_assert_int_eq(replica_epoch_end(r, leader_epoch, INT32_MAX, &end, &broker_epoch), 0);
    return end;
}

/* Whoever counts by its disk after a power cut must not have been elected for what that took. */
START_TEST(where_disks_count_a_report_is_of_what_is_on_the_disk)
{
    struct case_ x;
    const struct durability fsync_ = {.mode = DURABILITY_FSYNC};
    begin(&x);
    partition_set_durability(x.p, &fsync_); /* without a flusher */
    fixture_append(partition_log(x.p), 3, T0, 100);
    ck_assert_int_eq(partition_flush(x.p), 0);
    fixture_append(partition_log(x.p), 4, T0, 100);
    ck_assert_int_eq(take(x.r, -1, 2, 4), REPLICA_CHANGE);
    ck_assert_int_eq(report(x.r, 2).end, 7);
    replica_set_counts_by_disk(x.r, true);
    ck_assert_int_eq(report(x.r, 2).end, 3);
    replica_reach_epoch(x.r, 1);
    ck_assert_int_eq(report(x.r, 2).epoch, 1);
    end(&x);
}
END_TEST

START_TEST(a_replica_that_is_let_go_of_stays_until_its_look_has_run)
{
    struct case_ x;
    begin(&x);
    ck_assert_int_eq(take(x.r, 1, 2, 4), REPLICA_CHANGE);
    ck_assert_int_eq(pull(x.r, 8, 0), 0);
    replica_resign(x.r);
    ck_assert_int_eq(pull(x.r, 8, 0), -BROOK_E_NOT_LEADER);
    replica_unref(x.r);
    x.r = NULL;
    while (inbox_drain(&x.inbox))
        ;
    ck_assert_uint_eq(x.looks, 1);
    end(&x);
}
END_TEST

SUITE_MAIN("replication/replica", SUITE_TEST(a_role_that_was_not_taken_wholly_is_taken_again),
           SUITE_TEST(a_pull_of_an_earlier_life_counts_for_nothing),
           SUITE_TEST(a_leader_commits_when_its_epoch_is_kept_where_disks_count),
           SUITE_TEST(where_disks_count_a_report_is_of_what_is_on_the_disk),
           SUITE_TEST(a_replica_that_is_let_go_of_stays_until_its_look_has_run),
           SUITE_TEST(a_report_is_vouched_for_by_the_present_registration))
