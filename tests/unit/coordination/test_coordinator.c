/* The verbs, against a real ZooKeeper. */
#include "tests/support/caller.h"
#include "tests/support/suite.h"
#include "tests/support/zookeeper.h"

#include "proto/base/clock.h"

#include <stdlib.h>
#include <string.h>

static struct zookeeper *zk;

/* A coordinator of its own chroot, and its caller. */
static struct coordinator *begin(struct caller *k, const char *chroot)
{
    caller_init(k);
    return caller_connect(k, zookeeper_connect(zk, chroot), 4000, NULL);
}

static void end(struct caller *k, struct coordinator *c)
{
    coordinator_free(c, false, 5000);
    caller_done(k);
}

static const struct got *create(struct caller *k, struct coordinator *c, const char *path, const char *data,
                                enum znode_mode mode)
{
    coordinator_create(c, path, data, strlen(data), mode, caller_begin(k));
    return caller_end(k);
}

START_TEST(verbs_do_what_they_say)
{
    struct caller k;
    struct coordinator *c = begin(&k, "/verbs");
    ck_assert_int_eq(create(&k, c, "/a", "one", ZNODE_PERSISTENT)->err, 0);
    ck_assert_str_eq(k.got.path, "/a");
    ck_assert_int_eq(create(&k, c, "/a", "", ZNODE_PERSISTENT)->err, -BROOK_E_NODE_EXISTS);
    ck_assert_int_eq(create(&k, c, "/b/c", "", ZNODE_PERSISTENT)->err, -BROOK_E_NO_NODE);

    coordinator_get(c, "/a", caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    ck_assert_str_eq(k.got.data, "one");
    ck_assert_int_eq(k.got.stat.version, 0);
    ck_assert(k.got.stat.ephemeral_owner == 0);

    coordinator_set(c, "/a", "two", 3, 0, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    ck_assert_int_eq(k.got.stat.version, 1);
    coordinator_set(c, "/a", "three", 5, 0, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_BAD_VERSION);
    coordinator_set(c, "/a", NULL, 0, -1, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    coordinator_get(c, "/a", caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    ck_assert_uint_eq(k.got.data_bytes, 0);

    ck_assert_int_eq(create(&k, c, "/a/x", "", ZNODE_PERSISTENT)->err, 0);
    ck_assert_int_eq(create(&k, c, "/a/y", "", ZNODE_EPHEMERAL)->err, 0);
    ck_assert(k.got.stat.ephemeral_owner == coordinator_session_id(c));
    coordinator_children(c, "/a", caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    ck_assert_uint_eq(k.got.children_count, 2);
    ck_assert_str_eq(k.got.children[0], "x");
    ck_assert_str_eq(k.got.children[1], "y");
    ck_assert_int_eq(k.got.stat.children_count, 2);

    coordinator_delete(c, "/a", -1, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_NOT_EMPTY);
    coordinator_exists(c, "/a/y", caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    ck_assert(k.got.stat.ephemeral_owner == coordinator_session_id(c));
    coordinator_delete(c, "/a/y", 5, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_BAD_VERSION);
    coordinator_delete(c, "/a/y", 0, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    coordinator_exists(c, "/a/y", caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_NO_NODE);
    coordinator_sync(c, "/", caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    end(&k, c);
}
END_TEST

START_TEST(sequential_nodes_tell_their_name_without_chroot)
{
    struct caller k;
    struct coordinator *c = begin(&k, "/seq/deep");
    ck_assert_int_eq(create(&k, c, "/n_", "", ZNODE_SEQUENTIAL)->err, 0);
    ck_assert_str_eq(k.got.path, "/n_0000000000");
    ck_assert_int_eq(create(&k, c, "/n_", "", ZNODE_EPHEMERAL_SEQUENTIAL)->err, 0);
    ck_assert_str_eq(k.got.path, "/n_0000000001");
    end(&k, c);
}
END_TEST

START_TEST(create_path_makes_what_is_missing_above)
{
    struct caller k;
    struct coordinator *c = begin(&k, "/paths");
    coordinator_create_path(c, "/a/b/c/d", "leaf", 4, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    ck_assert_str_eq(k.got.path, "/a/b/c/d");
    coordinator_create_path(c, "/a/b/c/d", "", 0, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_NODE_EXISTS);
    coordinator_get(c, "/a/b/c/d", caller_begin(&k));
    ck_assert_str_eq(caller_end(&k)->data, "leaf");
    coordinator_get(c, "/a/b/c", caller_begin(&k));
    ck_assert_str_eq(caller_end(&k)->data, "");
    coordinator_create_path(c, "/a/b/e/f", NULL, 0, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    end(&k, c);
}
END_TEST

START_TEST(multi_is_all_or_nothing)
{
    struct caller k;
    struct coordinator *c = begin(&k, "/multi");
    ck_assert_int_eq(create(&k, c, "/s", "", ZNODE_PERSISTENT)->err, 0);
    struct coordinator_multi *m = coordinator_multi_new();
    coordinator_multi_check(m, "/s", 0);
    coordinator_multi_create(m, "/t", "t", 1, ZNODE_EPHEMERAL);
    coordinator_multi_set(m, "/s", "new", 3, 0);
    ck_assert_uint_eq(coordinator_multi_count(m), 3);
    struct coordinator_call call = caller_begin(&k);
    k.got.op_stats_max = 3;
    coordinator_multi_send(c, &m, call);
    ck_assert_ptr_null(m);
    ck_assert_int_eq(caller_end(&k)->err, 0);
    ck_assert(k.got.has_op_stats);
    ck_assert_int_eq(k.got.op_stats[2].version, 1);

    m = coordinator_multi_new();
    coordinator_multi_create(m, "/u", "", 0, ZNODE_PERSISTENT);
    coordinator_multi_set(m, "/s", "newer", 5, 7);
    coordinator_multi_delete(m, "/t", -1);
    coordinator_multi_send(c, &m, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_BAD_VERSION);
    ck_assert_uint_eq(k.got.failed_op, 1);
    coordinator_exists(c, "/u", caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_NO_NODE);
    end(&k, c);
}
END_TEST

START_TEST(a_request_that_is_too_large_fails_alone)
{
    static const size_t sizes[] = {COORDINATOR_NODE_BYTES_MAX + 1, (1 << 20) - 1024, 1 << 20, 2 << 20};
    struct caller k;
    struct got before = {0}, after = {0};
    struct coordinator *c = begin(&k, "/large");
    char *data = calloc(1, 2 << 20);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct coordinator_call call = {.inbox = &k.inbox, .callback = got_copy, .arg = &before};
        before.count = after.count = 0;
        coordinator_create(c, "/n", "x", 1, ZNODE_PERSISTENT, call);
        coordinator_create(c, "/big", data, sizes[i], ZNODE_PERSISTENT, caller_begin(&k));
        call.arg = &after;
        coordinator_delete(c, "/n", -1, call);
        ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_NODE_TOO_LARGE);
        coordinator_sync(c, "/", caller_begin(&k));
        ck_assert_int_eq(caller_end(&k)->err, 0);
        ck_assert_int_eq(before.err, 0);
        ck_assert_int_eq(after.err, 0);
        ck_assert_uint_eq(after.count, 1);
    }
    /* Two that are fine alone are too much in one. */
    struct coordinator_multi *m = coordinator_multi_new();
    coordinator_multi_create(m, "/a", data, COORDINATOR_NODE_BYTES_MAX, ZNODE_PERSISTENT);
    coordinator_multi_create(m, "/b", data, COORDINATOR_NODE_BYTES_MAX, ZNODE_PERSISTENT);
    coordinator_multi_send(c, &m, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_NODE_TOO_LARGE);
    coordinator_create(c, "/largest", data, COORDINATOR_NODE_BYTES_MAX, ZNODE_PERSISTENT, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    ck_assert_uint_eq(k.events_count, 1);
    free(data);
    end(&k, c);
}
END_TEST

START_TEST(a_bad_op_at_any_place_of_a_multi_is_answered_once)
{
    struct caller k;
    struct coordinator *c = begin(&k, "/badop");
    coordinator_create(c, "/s", NULL, 0, ZNODE_PERSISTENT, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    for (int place = 0; place < 4; place++)
        for (int kind = 0; kind < 3; kind++) {
            struct coordinator_multi *m = coordinator_multi_new();
            for (int i = 0; i < 4; i++)
                if (i != place)
                    coordinator_multi_set(m, "/s", "x", 1, -1);
                else if (kind == 0)
                    coordinator_multi_set(m, "no/path", "x", 1, -1);
                else if (kind == 1)
                    coordinator_multi_check(m, "/s", 1000000);
                else
                    coordinator_multi_delete(m, "/absent", -1);
            coordinator_multi_send(c, &m, caller_begin(&k));
            static const int errors[] = {-BROOK_E_INVALID, -BROOK_E_BAD_VERSION, -BROOK_E_NO_NODE};
            ck_assert_int_eq(caller_end(&k)->err, errors[kind]);
            ck_assert_uint_eq(k.got.failed_op, kind == 0 ? 0 : (size_t)place);
            coordinator_sync(c, "/", caller_begin(&k));
            caller_end(&k);
            ck_assert_uint_eq(k.got.count, 1);
        }
    struct coordinator_multi *empty = coordinator_multi_new();
    coordinator_multi_send(c, &empty, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_INVALID);
    coordinator_get(c, "bad//path", caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_INVALID);
    coordinator_create_path(c, "/bad/", NULL, 0, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_INVALID);
    end(&k, c);
}
END_TEST

/* Many more than may be in flight, among them urgent ones, which overtake. */
START_TEST(a_burst_is_queued_and_the_urgent_overtake)
{
    enum { BURST = 20000 };
    struct caller k;
    struct coordinator *c = begin(&k, "/many");
    struct got *got = calloc(1, sizeof *got), *urgent = calloc(1, sizeof *urgent);
    struct coordinator_call call = {.inbox = &k.inbox, .callback = got_copy, .arg = got};
    for (int i = 0; i < BURST; i++)
        coordinator_exists(c, "/", call);
    call.arg = urgent;
    call.urgent = true;
    coordinator_exists(c, "/", call);
    while (!urgent->count)
        caller_idle(&k, 1);
    ck_assert_uint_lt(got->count, BURST);
    while (got->count < BURST)
        caller_idle(&k, 5);
    ck_assert_int_eq(got->err, 0);
    ck_assert_uint_eq(k.events_count, 1);
    free(got);
    free(urgent);
    end(&k, c);
}
END_TEST

START_TEST(calls_after_a_stop_are_answered_too)
{
    struct caller k;
    struct got late = {0}, stat = {0};
    struct coordinator *c = begin(&k, "/stop");
    struct coordinator_call call = {.inbox = &k.inbox, .callback = got_copy, .arg = &late};
    coordinator_stop(c, false, 3000);
    coordinator_get(c, "/", call);
    struct observation *o = coordinator_observe(c, OBSERVE_DATA, "/", 0, &k.inbox, got_copy, &stat);
    coordinator_create_path(c, "/a/b", NULL, 0, caller_begin(&k));
    ck_assert_uint_eq(late.count, 0);
    coordinator_free(c, false, 3000);
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_CLOSED);
    ck_assert_int_eq(late.err, -BROOK_E_CLOSED);
    observation_free(o);
    caller_done(&k);
}
END_TEST

START_TEST(lease_counts_from_sending)
{
    struct caller k;
    int64_t before = clock_boot_ns();
    struct coordinator *c = begin(&k, "/lease");
    coordinator_sync(c, "/", caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    int64_t until = coordinator_lease_until_ns(c);
    int64_t timeout_ns = (int64_t)coordinator_timeout_ms(c) * 1000000;
    ck_assert(until >= before + timeout_ns);
    ck_assert(until <= clock_boot_ns() + timeout_ns);
    /* Renewed by itself within a quarter and something. */
    caller_idle(&k, coordinator_timeout_ms(c) / 4 + 300);
    ck_assert(coordinator_lease_until_ns(c) > until);
    end(&k, c);
}
END_TEST

int main(void)
{
    const struct suite_test tests[] = {
        SUITE_TEST(verbs_do_what_they_say),
        SUITE_TEST(sequential_nodes_tell_their_name_without_chroot),
        SUITE_TEST(create_path_makes_what_is_missing_above),
        SUITE_TEST(multi_is_all_or_nothing),
        SUITE_TEST(a_request_that_is_too_large_fails_alone),
        SUITE_TEST(a_bad_op_at_any_place_of_a_multi_is_answered_once),
        SUITE_TEST(a_burst_is_queued_and_the_urgent_overtake),
        SUITE_TEST(calls_after_a_stop_are_answered_too),
        SUITE_TEST(lease_counts_from_sending),
    };
    zk = zookeeper_start(NULL);
    int r = suite_run("coordination/coordinator", tests, sizeof tests / sizeof tests[0]);
    zookeeper_stop(zk);
    return r;
}
