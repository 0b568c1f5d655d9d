/* Claims, and the sessions of earlier processes, against a real ZooKeeper. */
#include "coordination/ephemeral.h"
#include "proto/base/clock.h"
#include "tests/support/caller.h"
#include "tests/support/fake_zookeeper.h"
#include "tests/support/suite.h"
#include "tests/support/zookeeper.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT_MS 4000

static struct zookeeper *zk;

static const char *in_directory(const char *name)
{
    static char path[4][PATH_MAX + 32];
    static unsigned turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", suite_directory(), name);
    return p;
}

static const struct got *claim(struct caller *k, struct coordinator *c, const char *path, int wait_ms)
{
    ephemeral_claim_node(c, path, "{\"host\":\"me\"}", 13, wait_ms, caller_begin(k));
    return caller_end(k);
}

static const struct got *look(struct caller *k, struct coordinator *c, const char *path)
{
    coordinator_get(c, path, caller_begin(k));
    return caller_end(k);
}

/* A process with our session file that claims `path` and is then killed. */
static void claim_and_be_killed(const char *chroot, const char *session_file, const char *path)
{
    int ready[2];
    char byte = 0;
    ck_assert_int_eq(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct caller k;
        caller_init(&k);
        struct coordinator *c = caller_connect(&k, zookeeper_connect(zk, chroot), TIMEOUT_MS, session_file);
        byte = claim(&k, c, path, 0)->err == 0 ? 'y' : 'n';
        if (write(ready[1], &byte, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    ck_assert_int_eq(byte, 'y');
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(ready[0]);
    close(ready[1]);
}

START_TEST(a_killed_process_is_registered_again_at_once)
{
    struct caller k;
    const char *file = in_directory("session");
    struct stat st;
    claim_and_be_killed("/killed", file, "/id");
    ck_assert_int_eq(stat(file, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    caller_init(&k);
    int64_t before = clock_boot_ms();
    struct coordinator *c = caller_connect(&k, zookeeper_connect(zk, "/killed"), TIMEOUT_MS, file);
    ck_assert_int_eq(claim(&k, c, "/id", -1)->err, 0);
    ck_assert_msg(clock_boot_ms() - before < TIMEOUT_MS / 2, "waited for the old session");
    ck_assert_int_eq(look(&k, c, "/id")->err, 0);
    ck_assert(k.got.stat.ephemeral_owner == coordinator_session_id(c));
    coordinator_free(c, false, 3000);
    caller_done(&k);
}
END_TEST

START_TEST(an_earlier_session_is_remembered_until_it_is_gone)
{
    struct caller k;
    const char *file = in_directory("session");
    claim_and_be_killed("/chain", file, "/one");
    claim_and_be_killed("/chain", file, "/two");
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, zookeeper_connect(zk, "/chain"), TIMEOUT_MS, file);
    int64_t before = clock_boot_ms();
    ck_assert_int_eq(look(&k, c, "/one")->err, 0);
    int64_t first = k.got.stat.ephemeral_owner;
    ck_assert_int_eq(claim(&k, c, "/one", -1)->err, 0);
    ck_assert_int_eq(claim(&k, c, "/two", -1)->err, 0);
    ck_assert(clock_boot_ms() - before < TIMEOUT_MS / 2);
    coordinator_close_earlier_session(c, first, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_NOT_FOUND);
    coordinator_close_earlier_session(c, coordinator_session_id(c), caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_INVALID);
    coordinator_free(c, false, 3000);
    caller_done(&k);
}
END_TEST

START_TEST(an_earlier_session_that_expired_counts_as_closed)
{
    struct caller k;
    const char *file = in_directory("session");
    FILE *f = fopen(file, "w");
    fprintf(f, "nonsense\nsession 123456789abcdef 00112233445566778899aabbccddeeff\nsession 12\n");
    fclose(f);
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, zookeeper_connect(zk, "/gone"), TIMEOUT_MS, file);
    coordinator_close_earlier_session(c, 0x123456789abcdef, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    coordinator_close_earlier_session(c, 0x123456789abcdef, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_NOT_FOUND);
    coordinator_free(c, false, 3000);
    caller_done(&k);
}
END_TEST

START_TEST(a_session_is_resumed_with_its_ephemerals)
{
    struct caller k;
    const char *file = in_directory("session");
    claim_and_be_killed("/resume", file, "/member");
    caller_init(&k);
    struct coordinator_settings settings = {.connect = zookeeper_connect(zk, "/resume"),
                                            .session_timeout_ms = TIMEOUT_MS,
                                            .session_file = file,
                                            .resume_session = true};
    for (int round = 0; round < 3; round++) {
        struct coordinator *c = NULL;
        ck_assert_int_eq(coordinator_new(&settings, &c, NULL), 0);
        caller_listen(&k, c);
        size_t at = caller_wait_event(&k, COORDINATOR_CONNECTED, k.events_count);
        ck_assert(k.events[at].resumed);
        ck_assert_uint_eq(k.events[at].generation, 1);
        ck_assert_int_eq(look(&k, c, "/member")->err, 0);
        ck_assert(k.got.stat.ephemeral_owner == k.events[at].session_id);
        /* Claiming it finds that it is ours. */
        ck_assert_int_eq(claim(&k, c, "/member", 0)->err, 0);
        ck_assert(!k.got.has_op_stats);
        coordinator_free(c, true, 3000);
    }
    /* Once more, and now it is closed. */
    struct coordinator *c = NULL;
    ck_assert_int_eq(coordinator_new(&settings, &c, NULL), 0);
    caller_listen(&k, c);
    caller_wait_event(&k, COORDINATOR_CONNECTED, k.events_count);
    coordinator_free(c, false, 3000);
    ck_assert_int_eq(coordinator_new(&settings, &c, NULL), 0);
    caller_listen(&k, c);
    size_t at = caller_wait_event(&k, COORDINATOR_CONNECTED, k.events_count);
    ck_assert(!k.events[at].resumed);
    ck_assert_int_eq(look(&k, c, "/member")->err, -BROOK_E_NO_NODE);
    coordinator_free(c, false, 3000);
    caller_done(&k);
}
END_TEST

START_TEST(a_claim_whose_reply_is_lost_finds_that_it_won)
{
    for (int apply = 0; apply < 2; apply++) {
        struct caller k;
        struct fake_zookeeper *fake = fake_zookeeper_start();
        fake_zookeeper_put(fake, "/epoch", "");
        caller_init(&k);
        struct coordinator *c = caller_connect(&k, fake_zookeeper_connect(fake, ""), 2000, NULL);
        fake_zookeeper_script(fake,
                              (struct fake_rule){.op = FAKE_MULTI, .apply = apply, .answer = FAKE_CLOSE});
        struct coordinator_multi *m = coordinator_multi_new();
        coordinator_multi_set(m, "/epoch", "", 0, 0);
        coordinator_multi_create(m, "/id", "me", 2, ZNODE_EPHEMERAL);
        ephemeral_claim(c, "/id", &m, 0, caller_begin(&k));
        ck_assert_ptr_null(m);
        ck_assert_int_eq(caller_end(&k)->err, 0);
        ck_assert_int_eq(k.got.has_op_stats, !apply);
        ck_assert_int_eq(fake_zookeeper_version(fake, "/epoch"), 1);
        ck_assert_int_eq(look(&k, c, "/id")->err, 0);
        ck_assert(k.got.stat.ephemeral_owner == coordinator_session_id(c));
        coordinator_free(c, false, 3000);
        caller_done(&k);
        fake_zookeeper_stop(fake);
    }
}
END_TEST

START_TEST(a_claim_with_a_stale_condition_says_which)
{
    struct caller k;
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, zookeeper_connect(zk, "/stale"), TIMEOUT_MS, NULL);
    coordinator_create(c, "/epoch", NULL, 0, ZNODE_PERSISTENT, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    struct coordinator_multi *m = coordinator_multi_new();
    coordinator_multi_set(m, "/epoch", NULL, 0, 9);
    coordinator_multi_create(m, "/id", NULL, 0, ZNODE_EPHEMERAL);
    ephemeral_claim(c, "/id", &m, 0, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_BAD_VERSION);
    ck_assert_uint_eq(k.got.failed_op, 0);
    m = coordinator_multi_new();
    coordinator_multi_set(m, "/epoch", NULL, 0, 0);
    ephemeral_claim(c, "/id", &m, 0, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_INVALID);
    coordinator_free(c, false, 3000);
    caller_done(&k);
}
END_TEST

static void explain(void *arg, const struct coordinator_reply *reply)
{
    struct got *g = arg;
    struct brook_error error = {0};
    got_copy(g, reply);
    ck_assert_int_eq(ephemeral_explain(reply, "broker id 3", &error), reply->err);
    snprintf(g->path, sizeof g->path, "%s", error.text);
}

START_TEST(a_living_stranger_is_waited_for_and_then_named)
{
    struct caller k, stranger;
    char id[32];
    caller_init(&k);
    caller_init(&stranger);
    struct coordinator *other =
        caller_connect(&stranger, zookeeper_connect(zk, "/stranger"), TIMEOUT_MS, NULL);
    struct coordinator *c = caller_connect(&k, zookeeper_connect(zk, "/stranger"), TIMEOUT_MS, NULL);
    ck_assert_int_eq(claim(&stranger, other, "/id", 0)->err, 0);
    int64_t before = clock_boot_ms();
    struct coordinator_call call = caller_begin(&k);
    call.callback = explain;
    ephemeral_claim_node(c, "/id", "x", 1, 500, call);
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_NODE_EXISTS);
    ck_assert(clock_boot_ms() - before >= 500);
    snprintf(id, sizeof id, "0x%llx", (unsigned long long)coordinator_session_id(other));
    ck_assert_msg(strstr(k.got.path, "broker id 3") && strstr(k.got.path, id) && strstr(k.got.path, "\"me\""),
                  "%s", k.got.path);
    coordinator_wait_gone(c, "/id", 300, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_NODE_EXISTS);
    ck_assert_str_eq(k.got.data, "{\"host\":\"me\"}");
    /* He leaves while we wait. */
    ephemeral_claim_node(c, "/id", "x", 1, 5000, caller_begin(&k));
    caller_idle(&stranger, 250);
    coordinator_free(other, false, 3000);
    ck_assert_int_eq(caller_end(&k)->err, 0);
    coordinator_wait_gone(c, "/nothing", 0, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    coordinator_free(c, false, 3000);
    caller_done(&k);
    caller_done(&stranger);
}
END_TEST

START_TEST(only_our_own_ephemeral_is_deleted)
{
    struct caller k, stranger;
    caller_init(&k);
    caller_init(&stranger);
    struct coordinator *other = caller_connect(&stranger, zookeeper_connect(zk, "/own"), TIMEOUT_MS, NULL);
    struct coordinator *c = caller_connect(&k, zookeeper_connect(zk, "/own"), TIMEOUT_MS, NULL);
    ck_assert_int_eq(claim(&stranger, other, "/theirs", 0)->err, 0);
    ck_assert_int_eq(claim(&k, c, "/ours", 0)->err, 0);
    coordinator_delete_own(c, "/theirs", caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    coordinator_delete_own(c, "/absent", caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    ck_assert_int_eq(look(&k, c, "/theirs")->err, 0);
    coordinator_delete_own(c, "/ours", caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    ck_assert_int_eq(look(&k, c, "/ours")->err, -BROOK_E_NO_NODE);
    coordinator_free(other, false, 3000);
    coordinator_free(c, false, 3000);
    caller_done(&k);
    caller_done(&stranger);
}
END_TEST

START_TEST(ephemeral_bytes_of_a_session_have_a_budget)
{
    struct caller k;
    char path[300];
    int count = 0, err = 0;
    struct fake_zookeeper *fake = fake_zookeeper_start();
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, fake_zookeeper_connect(fake, ""), 20000, NULL);
    for (; err == 0 && count < 5000; count++) {
        snprintf(path, sizeof path, "/%0249d", count);
        coordinator_create(c, path, NULL, 0, ZNODE_EPHEMERAL, caller_begin(&k));
        err = caller_end(&k)->err;
    }
    ck_assert_int_eq(err, -BROOK_E_TOO_MANY);
    ck_assert_int_eq(count - 1, COORDINATOR_EPHEMERAL_PATH_BYTES_MAX / 250);
    coordinator_delete(c,
                       "/"
                       "x",
                       -1, caller_begin(&k));
    caller_end(&k);
    snprintf(path, sizeof path, "/%0249d", 0);
    coordinator_delete(c, path, -1, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    coordinator_create(c, path, NULL, 0, ZNODE_EPHEMERAL, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    coordinator_create(c, "/persistent", NULL, 0, ZNODE_PERSISTENT, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    coordinator_free(c, true, 3000);
    caller_done(&k);
    fake_zookeeper_stop(fake);
}
END_TEST

int main(void)
{
    const struct suite_test tests[] = {
        SUITE_TEST(a_killed_process_is_registered_again_at_once),
        SUITE_TEST(an_earlier_session_is_remembered_until_it_is_gone),
        SUITE_TEST(an_earlier_session_that_expired_counts_as_closed),
        SUITE_TEST(a_session_is_resumed_with_its_ephemerals),
        SUITE_TEST(a_claim_whose_reply_is_lost_finds_that_it_won),
        SUITE_TEST(a_claim_with_a_stale_condition_says_which),
        SUITE_TEST(a_living_stranger_is_waited_for_and_then_named),
        SUITE_TEST(only_our_own_ephemeral_is_deleted),
        SUITE_TEST_SLOW(ephemeral_bytes_of_a_session_have_a_budget, 60),
    };
    zk = zookeeper_start(NULL);
    int r = suite_run("coordination/ephemeral", tests, sizeof tests / sizeof tests[0]);
    zookeeper_stop(zk);
    return r;
}
