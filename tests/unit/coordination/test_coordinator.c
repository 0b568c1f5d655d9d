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
        SUITE_TEST(lease_counts_from_sending),
    };
    zk = zookeeper_start(NULL);
    int r = suite_run("coordination/coordinator", tests, sizeof tests / sizeof tests[0]);
    zookeeper_stop(zk);
    return r;
}
