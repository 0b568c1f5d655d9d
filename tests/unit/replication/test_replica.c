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

SUITE_MAIN("replication/replica", SUITE_TEST(a_report_is_vouched_for_by_the_present_registration))
