/* A waiter that another thread has taken off its partition and not yet put into its loop's inbox: whatever the loop
 * does meanwhile, it must still be there when it arrives. The program wraps inbox_post() (module.am) to hold that
 * thread. */
#include "proto/base/inbox.h"
#include "tests/support/rig.h"
#include "tests/support/suite.h"

#include <malloc.h>
#include <sched.h>
#include <stdatomic.h>

#define ROUNDS 20
#define PATIENCE_MS 5000

enum { OFF, ARMED, HELD, LET_GO };
static _Atomic int stage;

void __real_inbox_post(struct inbox *inbox, struct inbox_item *item);
void __wrap_inbox_post(struct inbox *inbox, struct inbox_item *item);

/* The first one that posts when this is armed waits. */
void __wrap_inbox_post(struct inbox *inbox, struct inbox_item *item)
{
    int armed = ARMED;
    if (atomic_compare_exchange_strong(&stage, &armed, HELD))
        while (stage != LET_GO)
            sched_yield();
    __real_inbox_post(inbox, item);
}

static bool is_held(void *arg)
{
    return stage == HELD;
}

/* A long poll on the partition, on a loop; a produce, on the other, which finds somebody to wake and is held. */
static void hold_a_wake(struct rig *rig, const struct topic_id *topic, struct raw_client *reader,
                        struct raw_client *writer, struct raw_client *other)
{
    uint8_t records[256];
    struct raw_pull pull;
    raw_pull_init(&pull, topic, 0, 0);
    pull.entries[0].offset = raw_produce(writer, topic, 0, 10) + 1;
    pull.session_epoch = 0;
    pull.max_wait_ms = 20000;
    raw_open(reader, rig->port);
    raw_open(other, rig->port);
    raw_send_pull(reader, &pull);
    ck_assert(raw_is_silent(reader, 20));
    stage = ARMED;
    raw_send_produce(writer, topic, 0, 1, records, raw_batch(records, sizeof records, 1, 10));
    ck_assert(suite_wait(is_held, NULL, PATIENCE_MS));
}

START_TEST(a_reader_that_leaves_while_it_is_woken_takes_nothing_along)
{
    struct rig rig;
    struct raw_client reader, writer, other; /* loops take connections in turn: the writer's takes the other one */
    mallopt(M_PERTURB, 0xa5); /* memory that was given back is no valid item any more */
    rig_prepare(&rig);
    struct topic_id topic = fake_cluster_add_topic(rig.cluster, "t", 1);
    rig_start(&rig);
    raw_open(&writer, rig.port);
    for (int round = 0; round < ROUNDS; round++) {
        hold_a_wake(&rig, &topic, &reader, &writer, &other);
        raw_close(&reader);
        raw_close(&other);
        ck_assert(rig_wait_connections(&rig, 2, PATIENCE_MS)); /* of the other the held loop hears later */
        stage = LET_GO;
        ck_assert_int_eq(raw_status(raw_receive(&writer)), 0);
        raw_produce(&writer, &topic, 0, 10);
        stage = OFF;
    }
    raw_close(&writer);
    rig_stop(&rig);
}
END_TEST

SUITE_MAIN("broker/late_wakes", SUITE_TEST_SLOW(a_reader_that_leaves_while_it_is_woken_takes_nothing_along, 60))
