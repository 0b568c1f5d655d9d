/* What an operator is told: why partitions have no leader, which logs are offline and that others lead then, which nodes of
 * ZooKeeper make no sense. By the brook command, against real brokers. */
#include "coordination/coordinator.h"
#include "proto/base/clock.h"
#include "tests/support/brokers.h"
#include "tests/support/caller.h"
#include "tests/support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_MS 60000

struct bench {
    struct brokers *b;
    brook_config *config;
    brook_admin *admin;
    struct brook_error error;
    struct coordinator *coordinator;
    struct caller caller;
    char output[16384];
};

static void begin(struct bench *x, const char *const *settings)
{
    memset(x, 0, sizeof *x);
    x->b = brokers_start(3, &(struct brokers_options){.settings = settings});
    x->config = brokers_config(x->b);
    ck_assert_int_eq(brook_config_set(x->config, "acks", "all", NULL), 0);
    ck_assert_int_eq(brook_admin_new(x->config, &x->admin, &x->error), 0);
    struct coordinator_settings c = {.connect = brokers_connect(x->b), .session_timeout_ms = 4000};
    caller_init(&x->caller);
    ck_assert_msg(coordinator_new(&c, &x->coordinator, &x->error) == 0, "%s", x->error.text);
}

static void end(struct bench *x)
{
    coordinator_free(x->coordinator, false, 3000);
    caller_done(&x->caller);
    brook_admin_free(x->admin);
    brook_config_free(x->config);
    brokers_free(x->b);
}

/* ---- the command ------------------------------------------------------------------------------------------ */

static int brook(struct bench *x, const char *args)
{
    char command[2048];
    const char *top = getenv("abs_top_builddir");
    snprintf(command, sizeof command, "%s/client/cli/brook --zookeeper %s %s 2>&1", top ? top : ".",
             brokers_connect(x->b), args);
    FILE *f = popen(command, "re");
    ck_assert_ptr_nonnull(f);
    x->output[fread(x->output, 1, sizeof x->output - 1, f)] = '\0';
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void run(struct bench *x, const char *args)
{
    int code = brook(x, args);
    ck_assert_msg(code == 0, "brook %s: %d, %s", args, code, x->output);
}

struct saying {
    struct bench *x;
    const char *args, *text;
    bool is_there;
};

static bool is_said(void *arg)
{
    const struct saying *s = arg;
    brook(s->x, s->args);
    return (strstr(s->x->output, s->text) != NULL) == s->is_there;
}

/* Until the command says so, or says so no more. */
static void wait_said(struct bench *x, const char *args, const char *text, bool is_there)
{
    struct saying s = {x, args, text, is_there};
    ck_assert_msg(suite_wait(is_said, &s, WAIT_MS), "brook %s %s \"%s\":\n%s", args,
                  is_there ? "does not say" : "still says", text, x->output);
}

static int32_t leader_of(struct bench *x, const char *topic)
{
    struct brook_cluster *cluster;
    ck_assert_int_eq(brook_admin_describe_cluster(x->admin, &topic, 1, WAIT_MS, &cluster, &x->error), 0);
    int32_t leader = cluster->topics[0].partitions_count ? cluster->topics[0].partitions[0].leader : -1;
    brook_cluster_free(cluster);
    return leader;
}

struct led {
    struct bench *x;
    const char *topic;
    int32_t not_by;
};

static bool is_led_by_another(void *arg)
{
    const struct led *l = arg;
    int32_t leader = leader_of(l->x, l->topic);
    return leader >= 0 && leader != l->not_by;
}

static void wait_led(struct bench *x, const char *topic, int32_t not_by)
{
    struct led l = {x, topic, not_by};
    ck_assert_msg(suite_wait(is_led_by_another, &l, WAIT_MS), "%s is led by nobody but %d", topic, (int)not_by);
}

/* How many lines of the broker's log have the text. */
static int count_said(struct bench *x, int broker, const char *text)
{
    int n = 0;
    char line[2000];
    FILE *f = fopen(brokers_log(x->b, broker), "re");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f))
        n += strstr(line, text) != NULL;
    fclose(f);
    return n;
}

struct line {
    struct bench *x;
    int broker;
    const char *text;
};

static bool is_logged(void *arg)
{
    const struct line *l = arg;
    return count_said(l->x, l->broker, l->text) > 0;
}

static void wait_logged(struct bench *x, int broker, const char *text)
{
    struct line l = {x, broker, text};
    ck_assert_msg(suite_wait(is_logged, &l, WAIT_MS), "broker %d does not say \"%s\"", broker, text);
}

/* One record; returns the exit status. */
static int produce(struct bench *x, const char *topic, const char *value, const char *more)
{
    char command[2048];
    const char *top = getenv("abs_top_builddir");
    snprintf(command, sizeof command, "echo %s | %s/client/cli/brook --zookeeper %s produce %s -q --acks all %s 2>&1", value,
             top ? top : ".", brokers_connect(x->b), topic, more);
    FILE *f = popen(command, "re");
    ck_assert_ptr_nonnull(f);
    x->output[fread(x->output, 1, sizeof x->output - 1, f)] = '\0';
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void store(struct bench *x, const char *topic, const char *value)
{
    int code = produce(x, topic, value, "");
    ck_assert_msg(code == 0, "produce %s: %d, %s", topic, code, x->output);
}

/* ---- nodes ------------------------------------------------------------------------------------------------- */

static void set_node(struct bench *x, const char *path, const char *text)
{
    coordinator_set(x->coordinator, path, text, strlen(text), -1, caller_begin(&x->caller));
    ck_assert_int_eq(caller_end(&x->caller)->err, 0);
}

static void make_node(struct bench *x, const char *path, const char *text)
{
    coordinator_create_path(x->coordinator, path, text, strlen(text), caller_begin(&x->caller));
    ck_assert_int_eq(caller_end(&x->caller)->err, 0);
}

static void remove_node(struct bench *x, const char *path)
{
    coordinator_delete(x->coordinator, path, -1, caller_begin(&x->caller));
    ck_assert_int_eq(caller_end(&x->caller)->err, 0);
}

static void get_node(struct bench *x, const char *path, char *text, size_t room)
{
    coordinator_get(x->coordinator, path, caller_begin(&x->caller));
    const struct got *reply = caller_end(&x->caller);
    ck_assert_int_eq(reply->err, 0);
    ck_assert_uint_lt(reply->data_bytes, room);
    memcpy(text, reply->data, reply->data_bytes);
    text[reply->data_bytes] = '\0';
}

/* ---- tests ------------------------------------------------------------------------------------------------- */

START_TEST(a_partition_without_leader_says_who_is_waited_for)
{
    struct bench x;
    char text[200], describe[200];
    begin(&x, NULL);
    run(&x, "topic create one --partitions 1 --replicas 1");
    run(&x, "topic create two --partitions 1 --replicas 2");
    int32_t leader = leader_of(&x, "one");
    brokers_kill(x.b, leader);
    snprintf(text, sizeof text, "without leader: one/0: waits for broker %d (in sync, not running)", (int)leader);
    wait_said(&x, "cluster", text, true);
    snprintf(describe, sizeof describe, "partition 0: no leader: waits for broker %d (in sync, not running)", (int)leader);
    wait_said(&x, "topic describe one", describe, true);
    snprintf(text, sizeof text, "\"reason\": \"waits for broker %d (in sync, not running)\"", (int)leader);
    brook(&x, "cluster --json");
    ck_assert_msg(strstr(x.output, "\"leaderless_partitions\""), "%s", x.output);
    ck_assert_msg(strstr(x.output, "waits for broker"), "%s", x.output);
    brook(&x, "topic describe one --json");
    ck_assert_msg(strstr(x.output, "waits for broker"), "%s", x.output);
    brokers_restart(x.b, leader);
    wait_said(&x, "cluster", "without leader:", false);
    end(&x);
}
END_TEST

/* The disk of the leader goes while it runs: another one that is in sync leads, and what has no other says why. */
START_TEST(a_broker_whose_directory_fails_hands_over_and_says_why)
{
    struct bench x;
    char text[400], gone[700], said[300];
    begin(&x, NULL);
    run(&x, "topic create t --partitions 1 --replicas 3 --set min.insync.replicas=2");
    int32_t leader = leader_of(&x, "t");
    for (int i = 0; i < 8; i++) { /* one that only this broker has */
        snprintf(text, sizeof text, "topic create s%d --partitions 1 --replicas 1", i);
        run(&x, text);
    }
    char sole[8] = "";
    for (int i = 0; i < 8; i++) {
        snprintf(said, sizeof said, "s%d", i);
        if (leader_of(&x, said) == leader)
            memcpy(sole, said, 3);
    }
    ck_assert_msg(*sole, "broker %d has none of 8 topics", (int)leader);
    store(&x, "t", "first");
    store(&x, sole, "first");
    const char *directory = brokers_data_directory(x.b, leader);
    snprintf(gone, sizeof gone, "%s.gone", directory);
    ck_assert_int_eq(rename(directory, gone), 0);

    wait_led(&x, "t", leader);
    store(&x, "t", "second");
    snprintf(said, sizeof said, "log offline: %s/0 on broker %d, which leads it in name", sole, (int)leader);
    wait_said(&x, "cluster", said, true);
    snprintf(text, sizeof text, "topic describe %s", sole);
    snprintf(said, sizeof said, "the log is offline on broker %d", (int)leader);
    wait_said(&x, text, said, true);
    ck_assert_int_ne(produce(&x, sole, "lost", "-X delivery.timeout.ms=3000"), 0);
    ck_assert_msg(strstr(x.output, "the data directory"), "%s", x.output);

    ck_assert_int_eq(rename(gone, directory), 0);
    brokers_kill(x.b, leader);
    brokers_restart(x.b, leader);
    wait_said(&x, "cluster", "log offline", false);
    wait_said(&x, "cluster", "0 without leader, 0 under-replicated", true);
    store(&x, sole, "again");
    end(&x);
}
END_TEST

/* Damage in the middle of a log: it can not be opened, and producers and consumers are told so. */
START_TEST(a_log_that_can_not_be_opened_is_not_about_to_be_led)
{
    struct bench x;
    char text[1000];
    begin(&x, NULL);
    run(&x, "topic create s --partitions 1 --replicas 1");
    int32_t leader = leader_of(&x, "s");
    for (int i = 0; i < 4; i++)
        store(&x, "s", "a-value-that-is-long-enough-to-be-found");
    brokers_kill(x.b, leader);
    snprintf(text, sizeof text, "%s/s-0/00000000000000000000.log", brokers_data_directory(x.b, leader));
    FILE *f = fopen(text, "r+e");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fseek(f, 80, SEEK_SET), 0);
    ck_assert_int_eq((int)fwrite("XXXXXXXX", 1, 8, f), 8);
    ck_assert_int_eq(fclose(f), 0);
    brokers_restart(x.b, leader);
    wait_said(&x, "topic describe s", "its log on broker", true);
    ck_assert_msg(strstr(x.output, "is offline: "), "%s", x.output);
    ck_assert_int_ne(produce(&x, "s", "more", "-X delivery.timeout.ms=3000"), 0);
    ck_assert_msg(strstr(x.output, "is offline: "), "%s", x.output);
    end(&x);
}
END_TEST

/* Each node that an operator can write badly is named and harms nobody else; mended it is as if nothing had been. */
START_TEST(nodes_that_make_no_sense_are_named_and_hold_up_nobody)
{
    struct bench x;
    char state[400], topic[800], config[400], text[100];
    begin(&x, NULL);
    run(&x, "topic create a --partitions 2 --replicas 2");
    run(&x, "topic create b --partitions 1 --replicas 1");
    store(&x, "b", "kept");
    get_node(&x, "/brokers/topics/a/partitions/0/state", state, sizeof state);
    get_node(&x, "/brokers/topics/b", topic, sizeof topic);
    set_node(&x, "/brokers/topics/a/partitions/0/state", "nonsense");
    set_node(&x, "/brokers/topics/b", "{\"partitions\":7}");
    make_node(&x, "/brokers/topics/no topic", "x");
    make_node(&x, "/brokers/ids/somebody", "x");
    make_node(&x, "/brokers/ids/77", "x");
    get_node(&x, "/config/topics/a", config, sizeof config);
    set_node(&x, "/config/topics/a", "[]");
    make_node(&x, "/config/brokers/<default>", "{\"version\":1,\"config\":{\"replication.quota.bytes\":\"much\"}}");
    make_node(&x, "/admin/reassign_partitions", "nonsense");
    make_node(&x, "/admin/preferred_replica_election", "nonsense");
    make_node(&x, "/admin/reassign_throttle", "{\"version\":1,\"bytes_per_second\":-1}");

    /* What is announced makes brokers look; and a death is an election for all the others. */
    run(&x, "topic create c --partitions 3 --replicas 2");
    int32_t leader = leader_of(&x, "c");
    brokers_kill(x.b, leader);
    wait_led(&x, "c", leader);
    brokers_restart(x.b, leader);
    wait_said(&x, "cluster", ": 3 brokers", true);
    run(&x, "topic create d --partitions 3 --replicas 3");
    static const char *const named[] = {
        "unreadable in ZooKeeper: /brokers/topics/a/partitions/0/state: ",
        "unreadable in ZooKeeper: /brokers/topics/b: ",
        "unreadable in ZooKeeper: /brokers/topics/no topic: not the name of a topic",
        "unreadable in ZooKeeper: /brokers/ids/somebody: not the number of a broker",
        "unreadable in ZooKeeper: /brokers/ids/77: ",
        "unreadable in ZooKeeper: /config/topics/a: ",
        "unreadable in ZooKeeper: /config/brokers/<default>: replication.quota.bytes: \"much\" is not a number of bytes",
    };
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
        wait_said(&x, "cluster", named[i], true);
    wait_said(&x, "topic describe a", "partition 0: its state in ZooKeeper is unreadable", true);
    wait_said(&x, "cluster --json", "\"path\"", true);
    for (int id = 1; id <= 3; id++) /* all of them, whoever met it first */
        wait_logged(&x, id, "/brokers/topics/a/partitions/0/state makes no sense");

    set_node(&x, "/brokers/topics/a/partitions/0/state", state);
    set_node(&x, "/brokers/topics/b", topic);
    remove_node(&x, "/brokers/topics/no topic");
    remove_node(&x, "/brokers/ids/somebody");
    remove_node(&x, "/brokers/ids/77");
    set_node(&x, "/config/topics/a", config);
    remove_node(&x, "/config/brokers/<default>");
    wait_said(&x, "cluster", "unreadable", false);
    wait_said(&x, "cluster", "0 without leader, 0 under-replicated", true);
    wait_said(&x, "consume b --from earliest --max 1 --idle 20", "kept", true);
    for (int id = 1; id <= 3; id++) {
        snprintf(text, sizeof text, "/brokers/topics/a/partitions/0/state makes no sense");
        ck_assert_int_le(count_said(&x, id, text), id == leader ? 2 : 1);
        ck_assert_int_eq(count_said(&x, id, "set aside"), 0);
    }
    end(&x);
}
END_TEST

/* The broker's clock counts, not the producer's; lookups by time go by it. */
START_TEST(records_of_a_topic_with_append_time_have_the_brokers_time)
{
    struct bench x;
    brook_producer *producer;
    begin(&x, NULL);
    ck_assert_int_eq(brook(&x, "topic create u --set segment.bytes=4096 --replicas 1"), 1);
    ck_assert_msg(strstr(x.output, "segment.bytes=4096 is less than max.message.bytes="), "%s", x.output);
    run(&x, "topic create t --partitions 1 --replicas 3 --set message.timestamp.type=LogAppendTime");
    ck_assert_int_eq(brook(&x, "topic alter t --set segment.bytes=4096"), 1);
    ck_assert_int_eq(brook_producer_new(x.config, &producer, &x.error), 0);
    int64_t before_ms = clock_wall_ms();
    for (int64_t stamp = 1000; stamp <= 5000; stamp += 1000) {
        struct brook_record r = {.topic = "t", .partition = 0, .value = "x", .value_bytes = 1, .timestamp = stamp};
        ck_assert_int_eq(brook_producer_send(producer, &r, BROOK_SEND_WAIT, &x.error), 0);
        ck_assert_int_eq(brook_producer_flush(producer, WAIT_MS), 0);
    }
    brook_producer_close(producer, 1000);
    run(&x, "consume t --until-end --format '%T\\n'");
    int n = 0;
    for (char *at = strtok(x.output, "\n"); at; at = strtok(NULL, "\n"))
        if (at[0] >= '0' && at[0] <= '9') {
            ck_assert_msg(strtoll(at, NULL, 10) >= before_ms, "%s is before %lld", at, (long long)before_ms);
            n++;
        }
    ck_assert_int_eq(n, 5);
    struct brook_position position = {"t", 0, 0};
    ck_assert_int_eq(brook_admin_list_offsets(x.admin, &position, &before_ms, 1, WAIT_MS, &x.error), 0);
    ck_assert_int_eq(position.offset, 0);
    end(&x);
}
END_TEST

SUITE_MAIN("cluster/operator", SUITE_TEST_SLOW(a_partition_without_leader_says_who_is_waited_for, 120),
           SUITE_TEST_SLOW(a_broker_whose_directory_fails_hands_over_and_says_why, 180),
           SUITE_TEST_SLOW(a_log_that_can_not_be_opened_is_not_about_to_be_led, 120),
           SUITE_TEST_SLOW(records_of_a_topic_with_append_time_have_the_brokers_time, 120),
           SUITE_TEST_SLOW(nodes_that_make_no_sense_are_named_and_hold_up_nobody, 240))
