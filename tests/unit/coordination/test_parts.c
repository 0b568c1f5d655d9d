/* The pure parts: paths, servers, codes, the lease, timers, the ledger, the session file. */
#include "coordination/codes.h"
#include "coordination/lease.h"
#include "coordination/ledger.h"
#include "coordination/paths.h"
#include "coordination/servers.h"
#include "coordination/session_file.h"
#include "coordination/timers.h"
#include "proto/base/names.h"
#include "tests/support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

/* ---- paths --------------------------------------------------------------------------------------------- */

START_TEST(paths_are_those_of_the_layout)
{
    struct path p;
    ck_assert_str_eq(path_broker_id(&p, 7), "/brokers/ids/7");
    ck_assert_str_eq(path_broker_epoch(&p, 7), "/brokers/epochs/7");
    ck_assert_str_eq(path_topic(&p, "t"), "/brokers/topics/t");
    ck_assert_str_eq(path_partitions(&p, "t"), "/brokers/topics/t/partitions");
    ck_assert_str_eq(path_partition(&p, "t", 3), "/brokers/topics/t/partitions/3");
    ck_assert_str_eq(path_partition_state(&p, "t", 3), "/brokers/topics/t/partitions/3/state");
    ck_assert_str_eq(path_topic_brokers(&p, "t"), "/brokers/topics/t/brokers");
    ck_assert_str_eq(path_topic_broker(&p, "t", 3), "/brokers/topics/t/brokers/3");
    ck_assert_str_eq(path_change(&p, "change_0000000001"), "/brokers/changes/change_0000000001");
    ck_assert_str_eq(path_topic_config(&p, "t"), "/config/topics/t");
    ck_assert_str_eq(path_delete_topic(&p, "t"), "/admin/delete_topics/t");
    ck_assert_str_eq(path_group(&p, "g"), "/consumers/g");
    ck_assert_str_eq(path_group_ids(&p, "g"), "/consumers/g/ids");
    ck_assert_str_eq(path_group_member(&p, "g", "m"), "/consumers/g/ids/m");
    ck_assert_str_eq(path_group_assignment(&p, "g"), "/consumers/g/assignment");
    ck_assert_str_eq(path_group_owners(&p, "g", NULL), "/consumers/g/owners");
    ck_assert_str_eq(path_group_owners(&p, "g", "t"), "/consumers/g/owners/t");
    ck_assert_str_eq(path_owner(&p, "g", "t", 0), "/consumers/g/owners/t/0");
    ck_assert_str_eq(path_group_offsets(&p, "g", NULL), "/consumers/g/offsets");
    ck_assert_str_eq(path_offset(&p, "g", "t", 12), "/consumers/g/offsets/t/12");
}
END_TEST

START_TEST(the_longest_legal_names_fit)
{
    struct path p;
    char topic[TOPIC_NAME_BYTES_MAX + 1], group[GROUP_NAME_BYTES_MAX + 1], member[MEMBER_ID_BYTES_MAX + 1];
    memset(topic, 't', sizeof topic - 1);
    memset(group, 'g', sizeof group - 1);
    memset(member, 'm', sizeof member - 1);
    topic[sizeof topic - 1] = group[sizeof group - 1] = member[sizeof member - 1] = '\0';
    path_offset(&p, group, topic, INT32_MAX);
    path_group_member(&p, group, member);
    path_partition_state(&p, topic, INT32_MAX);
    ck_assert(znode_path_is_legal(p.text));
}
END_TEST

START_TEST(names_with_numbers_are_read_strictly)
{
    ck_assert_int_eq(path_sequence("change_0000000012"), 12);
    ck_assert_int_eq(path_sequence("change_2147483647"), 2147483647);
    ck_assert_int_eq(path_sequence("change_12"), -1);
    ck_assert_int_eq(path_sequence("change_-000000012"), -1);
    ck_assert_int_eq(path_sequence("change_9999999999"), -1);
    ck_assert_int_eq(path_sequence(""), -1);
    ck_assert_int_eq(path_partition_number("0"), 0);
    ck_assert_int_eq(path_partition_number("17"), 17);
    ck_assert_int_eq(path_partition_number("2147483647"), 2147483647);
    static const char *const bad[] = {"", "01", "-1", "+1", "1 ", "x", "2147483648", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(path_partition_number(bad[i]) == -1, "\"%s\"", bad[i]);
}
END_TEST

START_TEST(znode_paths_are_checked_before_the_server_sees_them)
{
    static const char *const good[] = {"/", "/a", "/a/b", "/a.b/..c/.d", "/ü"};
    static const char *const bad[] = {"",   "a",     "//",   "/a/",   "/a//b",
                                      "/.", "/a/..", "/./a", "/a\nb", "/a\x7f"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        ck_assert_msg(znode_path_is_legal(good[i]), "\"%s\"", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(!znode_path_is_legal(bad[i]), "\"%s\"", bad[i]);
}
END_TEST

/* ---- servers ------------------------------------------------------------------------------------------- */

START_TEST(connect_strings_are_understood)
{
    struct servers s;
    ck_assert_int_eq(servers_parse("a:1,b:2/x/y", &s, NULL), 0);
    ck_assert_uint_eq(s.count, 2);
    ck_assert_str_eq(s.list[0].host, "a");
    ck_assert_str_eq(s.list[1].port, "2");
    ck_assert_str_eq(s.chroot, "/x/y");
    ck_assert(s.has_names);
    ck_assert_int_eq(servers_parse("127.0.0.1:2181,[::1]:2182,[fe80::1]:3", &s, NULL), 0);
    ck_assert(!s.has_names);
    ck_assert_str_eq(s.list[1].host, "::1");
    ck_assert_str_eq(s.list[1].port, "2182");
    ck_assert_str_eq(s.list[2].port, "3");
    ck_assert_str_eq(s.chroot, "");
    ck_assert_int_eq(servers_parse("zk:1/", &s, NULL), 0);
    ck_assert_str_eq(s.chroot, "");
    ck_assert_int_eq(servers_parse("zk:1/a/", &s, NULL), 0);
    ck_assert_str_eq(s.chroot, "/a");
}
END_TEST

START_TEST(bad_connect_strings_are_refused_with_a_sentence)
{
    static const char *const bad[] = {
        "",         ",",     "a,",          "a:1,,b:2",   ":2181",   "a:",       "a:0",
        "a:65536",  "a:x",   "a:1/x,b:2/x", "a/x,b",      "[::1",    "[::1]x:1", "[]:1",
        "::1:2181", "a b:1", "a:1//x",      "a:1/x/../y", "[abc]:1", "a:123456", "/x",
        "garbage",  "[::1]", "a/x",         "a:1,b"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct servers s;
        struct brook_error error = {0};
        ck_assert_msg(servers_parse(bad[i], &s, &error) == -BROOK_E_CONFIG, "\"%s\" was taken", bad[i]);
        ck_assert_int_eq(error.code, BROOK_E_CONFIG);
        ck_assert_uint_gt(strlen(error.text), 10);
    }
    char many[SERVERS_MAX * 4 + 8] = "a:1";
    for (int i = 0; i < SERVERS_MAX; i++)
        strcat(many, ",a:1");
    struct servers s;
    ck_assert_int_eq(servers_parse(many, &s, NULL), -BROOK_E_CONFIG);
}
END_TEST

START_TEST(the_librarys_list_is_numeric_odd_and_without_brackets)
{
    struct servers s;
    struct addresses a, b;
    ck_assert_int_eq(servers_parse("127.0.0.2:7,[::1]:5,127.0.0.1:7,127.0.0.2:7,127.0.0.3:7", &s, NULL), 0);
    ck_assert_int_eq(servers_resolve(&s, &a, NULL), 0);
    ck_assert_uint_eq(a.count, 4);
    char *list = addresses_to_list(&a);
    ck_assert_str_eq(list, "127.0.0.1:7,127.0.0.2:7,127.0.0.3:7,::1:5,127.0.0.1:7");
    free(list);
    ck_assert_int_eq(servers_parse("127.0.0.1:7,127.0.0.2:7,[::1]:5,127.0.0.3:7", &s, NULL), 0);
    ck_assert_int_eq(servers_resolve(&s, &b, NULL), 0);
    ck_assert(addresses_equal(&a, &b));
    b.count--;
    ck_assert(!addresses_equal(&a, &b));
}
END_TEST

/* ---- codes --------------------------------------------------------------------------------------------- */

START_TEST(seven_codes_leave_the_outcome_open)
{
    static const int open[] = {ZCONNECTIONLOSS,   ZOPERATIONTIMEOUT, ZRUNTIMEINCONSISTENCY,
                               ZMARSHALLINGERROR, ZCLOSING,          ZSESSIONEXPIRED,
                               ZAUTHFAILED};
    int count = 0;
    for (int rc = -130; rc <= 0; rc++) {
        bool listed = false;
        for (size_t i = 0; i < 7; i++)
            listed = listed || open[i] == rc;
        enum code_class class = code_classify(rc);
        bool is_open = class == CODE_UNKNOWN || class == CODE_STEP_DOWN;
        int err = code_to_error(rc);
        if (listed)
            ck_assert_msg(is_open, "code %d", rc);
        ck_assert_int_eq(is_open, err == -BROOK_E_OUTCOME_UNKNOWN || err == -BROOK_E_SESSION_EXPIRED);
        ck_assert_int_eq(class == CODE_DONE, rc == 0);
        count += listed;
    }
    ck_assert_int_eq(count, 7);
    /* What nobody knows is open, too. */
    ck_assert_int_eq(code_classify(-12345), CODE_UNKNOWN);
    ck_assert_int_eq(code_classify(ZNODEEXISTS), CODE_ANSWERED);
    ck_assert_int_eq(code_classify(ZTHROTTLEDOP), CODE_RETRY);
    ck_assert_int_eq(code_classify(ZNOAUTH), CODE_OURS);
    ck_assert_int_eq(code_classify_refusal(ZOK), CODE_DONE);
    ck_assert_int_eq(code_classify_refusal(ZINVALIDSTATE), CODE_RETRY);
    ck_assert_int_eq(code_classify_refusal(ZBADARGUMENTS), CODE_OURS);
}
END_TEST

/* ---- lease --------------------------------------------------------------------------------------------- */

#define MS ((int64_t)1000000)

START_TEST(the_lease_runs_from_the_newest_send_time_that_was_answered)
{
    struct lease l = {0};
    ck_assert(lease_until_ns(&l) == 0);
    ck_assert(lease_due_ns(&l) == INT64_MAX);
    lease_renew(&l, 5 * MS);
    ck_assert(lease_until_ns(&l) == 0);
    lease_start(&l, 400);
    ck_assert(lease_until_ns(&l) == 0);
    ck_assert(lease_due_ns(&l) == 0);
    lease_asked(&l, 1000 * MS);
    ck_assert(lease_due_ns(&l) == 1100 * MS);
    lease_renew(&l, 1000 * MS);
    ck_assert(lease_until_ns(&l) == 1400 * MS);
    lease_renew(&l, 900 * MS);
    ck_assert(lease_until_ns(&l) == 1400 * MS);
    lease_renew(&l, 1050 * MS);
    ck_assert(lease_until_ns(&l) == 1450 * MS);
    ck_assert(lease_due_ns(&l) == 1150 * MS);
    lease_set_timeout(&l, 800);
    ck_assert(lease_until_ns(&l) == 1850 * MS);
    lease_end(&l);
    ck_assert(lease_until_ns(&l) == 0);
    lease_renew(&l, 1100 * MS);
    ck_assert(lease_until_ns(&l) == 0);
}
END_TEST

/* ---- timers -------------------------------------------------------------------------------------------- */

struct ticking {
    struct timer timer;
    int64_t wanted;
    bool set;
    unsigned fired;
};

static int64_t virtual_now;

static void tick(struct timer *timer)
{
    struct ticking *t = (struct ticking *)timer;
    ck_assert(t->set && t->wanted <= virtual_now);
    t->set = false;
    t->fired++;
}

START_TEST(timers_fire_once_and_when_due_against_a_model)
{
    enum { COUNT = 200 };
    static struct ticking timers[COUNT];
    struct timers heap = {0};
    uint64_t seed = suite_seed();
    for (int i = 0; i < COUNT; i++)
        timers[i].timer.fire = tick;
    for (int step = 0; step < 20000; step++) {
        struct ticking *t = &timers[suite_random_below(&seed, COUNT)];
        switch (suite_random_below(&seed, 4)) {
        case 0:
        case 1:
            t->wanted = virtual_now + (int64_t)suite_random_below(&seed, 1000);
            t->set = true;
            ck_assert_int_eq(timers_set(&heap, &t->timer, t->wanted), 0);
            break;
        case 2:
            t->set = false;
            timers_clear(&heap, &t->timer);
            break;
        default:
            virtual_now += (int64_t)suite_random_below(&seed, 20);
            timers_run(&heap, virtual_now);
            break;
        }
        int64_t next = INT64_MAX;
        for (int i = 0; i < COUNT; i++)
            if (timers[i].set && timers[i].wanted < next)
                next = timers[i].wanted;
        ck_assert(timers_next_ms(&heap) == next);
    }
    timers_done(&heap);
}
END_TEST

/* ---- ledger -------------------------------------------------------------------------------------------- */

START_TEST(the_ledger_counts_each_path_once)
{
    struct ledger l = {.bytes_max = 10};
    ck_assert_int_eq(ledger_add(&l, "/abcd"), 0);
    ck_assert_int_eq(ledger_add(&l, "/abcd"), 0);
    ck_assert_uint_eq(l.bytes, 5);
    ck_assert_int_eq(ledger_add(&l, "/efgh"), 0);
    ck_assert_int_eq(ledger_add(&l, "/"), -BROOK_E_TOO_MANY);
    ledger_remove(&l, "/unknown");
    ledger_remove(&l, "/abcd");
    ck_assert_int_eq(ledger_add(&l, "/"), 0);
    ck_assert_uint_eq(l.bytes, 6);
    ledger_clear(&l);
    ck_assert_uint_eq(l.bytes, 0);
}
END_TEST

/* ---- session file -------------------------------------------------------------------------------------- */

static struct session_key key_of(int64_t id)
{
    struct session_key key = {.id = id};
    for (int i = 0; i < SESSION_PASSWORD_BYTES; i++)
        key.password[i] = (char)(id * 31 + i * 17);
    return key;
}

START_TEST(the_session_file_keeps_the_newest_sessions)
{
    char path[PATH_MAX + 16];
    struct session_file f, g;
    struct stat st;
    snprintf(path, sizeof path, "%s/session", suite_directory());
    ck_assert_int_eq(session_file_open(&f, path), 0);
    ck_assert_uint_eq(f.count, 0);
    for (int64_t id = 1; id <= SESSION_FILE_ENTRIES_MAX + 2; id++) {
        struct session_key key = key_of(-id);
        ck_assert_int_eq(session_file_add(&f, &key), 0);
    }
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    ck_assert_int_eq(session_file_open(&g, path), 0);
    ck_assert_uint_eq(g.count, SESSION_FILE_ENTRIES_MAX);
    ck_assert_int_eq(g.keys[0].id, -(SESSION_FILE_ENTRIES_MAX + 2));
    ck_assert_ptr_null(session_file_find(&g, -2));
    struct session_key three = key_of(-3);
    ck_assert_mem_eq(session_file_find(&g, -3)->password, three.password, SESSION_PASSWORD_BYTES);
    ck_assert_int_eq(session_file_remove(&g, -3), 0);
    ck_assert_ptr_null(session_file_find(&g, -3));
    session_file_done(&f);
    session_file_done(&g);
    ck_assert_int_eq(session_file_open(&g, path), 0);
    ck_assert_uint_eq(g.count, SESSION_FILE_ENTRIES_MAX - 1);
    session_file_done(&g);
}
END_TEST

START_TEST(a_damaged_session_file_counts_as_empty)
{
    char path[PATH_MAX + 16];
    struct session_file f;
    uint64_t seed = suite_seed();
    snprintf(path, sizeof path, "%s/session", suite_directory());
    for (int round = 0; round < 300; round++) {
        char text[400];
        size_t n = (size_t)snprintf(text, sizeof text, "session 1f 00112233445566778899aabbccddeeff\n");
        for (int i = 0; i < 3; i++)
            text[suite_random_below(&seed, n)] = (char)suite_random(&seed);
        FILE *out = fopen(path, "w");
        fwrite(text, 1, suite_random_below(&seed, n), out);
        fclose(out);
        ck_assert_int_eq(session_file_open(&f, path), 0);
        ck_assert_uint_le(f.count, 1);
        session_file_done(&f);
    }
    /* Where nothing can be written, the change still holds in memory. */
    ck_assert_int_eq(session_file_open(&f, "/nonexistent/session"), 0);
    struct session_key key = key_of(5);
    ck_assert_int_eq(session_file_add(&f, &key), -BROOK_E_IO);
    ck_assert_ptr_nonnull(session_file_find(&f, 5));
    session_file_done(&f);
}
END_TEST

SUITE_MAIN("coordination/parts", SUITE_TEST(paths_are_those_of_the_layout),
           SUITE_TEST(the_longest_legal_names_fit), SUITE_TEST(names_with_numbers_are_read_strictly),
           SUITE_TEST(znode_paths_are_checked_before_the_server_sees_them),
           SUITE_TEST(connect_strings_are_understood),
           SUITE_TEST(bad_connect_strings_are_refused_with_a_sentence),
           SUITE_TEST(the_librarys_list_is_numeric_odd_and_without_brackets),
           SUITE_TEST(seven_codes_leave_the_outcome_open),
           SUITE_TEST(the_lease_runs_from_the_newest_send_time_that_was_answered),
           SUITE_TEST(timers_fire_once_and_when_due_against_a_model),
           SUITE_TEST(the_ledger_counts_each_path_once),
           SUITE_TEST(the_session_file_keeps_the_newest_sessions),
           SUITE_TEST(a_damaged_session_file_counts_as_empty))
