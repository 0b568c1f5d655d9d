/* Moves and elections of partitions with data, while records flow: by the brook command, and by nodes of ZooKeeper
 * that somebody writes by hand. Nothing that was acknowledged is lost, and the replicas end up alike. */
#include "coordination/coordinator.h"
#include "coordination/paths.h"
#include "proto/base/clock.h"
#include "tests/support/brokers.h"
#include "tests/support/caller.h"
#include "tests/support/suite.h"

#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PARTITIONS 3
#define RECORDS_MAX 400000
#define INITIAL 30000 /* records before anything is moved */
#define VALUE_BYTES 500
#define THROTTLE 2000000
#define WAIT_MS 60000

struct bench {
    struct brokers *b;
    brook_config *config;
    brook_admin *admin;
    struct brook_error error;
    char output[8192];
};

/* ---- the command and what it says ---------------------------------------------------------------------- */

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

struct made {
    struct coordinator *coordinator;
    struct caller *caller;
    const char *path, *text;
};

/* The controller may not have emptied the last one yet. */
static bool is_made(void *arg)
{
    const struct made *m = arg;
    coordinator_create(m->coordinator, m->path, m->text, strlen(m->text), ZNODE_PERSISTENT, caller_begin(m->caller));
    return caller_end(m->caller)->err == 0;
}

static void create_by_hand(struct bench *x, const char *path, const char *text)
{
    struct coordinator_settings settings = {.connect = brokers_connect(x->b), .session_timeout_ms = 4000};
    struct coordinator *coordinator;
    struct caller caller;
    caller_init(&caller);
    ck_assert_msg(coordinator_new(&settings, &coordinator, &x->error) == 0, "%s", x->error.text);
    struct made m = {coordinator, &caller, path, text};
    ck_assert_msg(suite_wait(is_made, &m, WAIT_MS), "%s can not be made", path);
    coordinator_free(coordinator, false, 3000);
    caller_done(&caller);
}

/* ---- the load: numbered records, those that were acknowledged are marked --------------------------------- */

struct load {
    struct bench *x;
    pthread_t thread;
    _Atomic bool is_over;
    _Atomic int sent;
    _Atomic int acknowledged;
    _Atomic bool is_stored[RECORDS_MAX];
};

static void on_report(void *arg, const struct brook_report *report)
{
    struct load *l = arg;
    ck_assert_msg(report->outcome == BROOK_STORED, "%s", report->error.text);
    l->is_stored[(uintptr_t)report->opaque] = true;
    l->acknowledged++;
}

static void send_one(struct load *l, brook_producer *producer, int number)
{
    struct brook_error error;
    char value[VALUE_BYTES];
    memset(value, '.', sizeof value);
    snprintf(value, sizeof value, "%d", number);
    struct brook_record r = {.topic = "t",
                             .partition = number % PARTITIONS,
                             .value = value,
                             .value_bytes = sizeof value,
                             .opaque = (void *)(uintptr_t)number};
    ck_assert_int_eq(brook_producer_send(producer, &r, BROOK_SEND_WAIT, &error), 0);
    l->sent = number + 1;
}

static void pace(brook_producer *producer)
{
    const struct timespec rest = {0, 20000000};
    nanosleep(&rest, NULL);
    brook_producer_poll(producer, 0);
}

static void *load_run(void *arg)
{
    struct load *l = arg;
    brook_producer *producer;
    struct brook_error error;
    ck_assert_int_eq(brook_producer_new(l->x->config, &producer, &error), 0);
    brook_producer_on_report(producer, on_report, l);
    for (int n = 0; !l->is_over && n < RECORDS_MAX; n++) {
        send_one(l, producer, n);
        if (n > INITIAL && n % 10 == 0)
            pace(producer); /* first as much as possible, then far less than the throttle */
    }
    ck_assert_int_eq(brook_producer_flush(producer, WAIT_MS), 0);
    brook_producer_poll(producer, 0);
    brook_producer_close(producer, 1000);
    return NULL;
}

static bool has_much(void *arg)
{
    return ((struct load *)arg)->acknowledged >= INITIAL;
}

static struct load *load_start(struct bench *x)
{
    struct load *l = calloc(1, sizeof *l);
    ck_assert_ptr_nonnull(l);
    l->x = x;
    ck_assert_int_eq(pthread_create(&l->thread, NULL, load_run, l), 0);
    ck_assert(suite_wait(has_much, l, WAIT_MS));
    return l;
}

/* Each is there, in its partition, as often as it is read. */
static void check_read(struct load *l)
{
    brook_consumer *consumer;
    struct brook_position from[PARTITIONS], to[PARTITIONS];
    int64_t left = 0;
    int *seen = calloc(RECORDS_MAX, sizeof *seen);
    ck_assert_ptr_nonnull(seen);
    for (int32_t p = 0; p < PARTITIONS; p++) {
        from[p] = (struct brook_position){"t", p, 0};
        to[p] = (struct brook_position){"t", p, BROOK_OFFSET_LATEST};
    }
    ck_assert_int_eq(brook_admin_list_offsets(l->x->admin, to, NULL, PARTITIONS, WAIT_MS, &l->x->error), 0);
    for (int32_t p = 0; p < PARTITIONS; p++)
        left += to[p].offset;
    ck_assert_int_eq(brook_consumer_new(l->x->config, &consumer, &l->x->error), 0);
    ck_assert_int_eq(brook_consumer_assign(consumer, from, PARTITIONS, &l->x->error), 0);
    while (left > 0) {
        brook_batch *batch;
        struct brook_message m;
        int r = brook_consumer_poll(consumer, WAIT_MS, &batch, &l->x->error);
        ck_assert_msg(r == 0, "%s", l->x->error.text);
        while (brook_batch_next(batch, &m) == 0) {
            int number = atoi(m.value);
            ck_assert(number >= 0 && number < RECORDS_MAX && m.value_bytes == VALUE_BYTES);
            seen[number]++;
            left--;
        }
        brook_batch_release(batch);
    }
    brook_consumer_close(consumer, 1000);
    for (int n = 0; n < l->sent; n++)
        ck_assert_msg(l->is_stored[n] && seen[n] == 1, "record %d: acknowledged %d, read %d times", n, l->is_stored[n],
                      seen[n]);
    free(seen);
}

static void load_end(struct load *l)
{
    l->is_over = true;
    pthread_join(l->thread, NULL);
    ck_assert_int_eq(l->acknowledged, l->sent);
    check_read(l);
    free(l);
}

/* ---- what is waited for ------------------------------------------------------------------------------------ */

struct wish {
    struct bench *x;
    int32_t partition;
    const char *replicas; /* digits, in any order */
    int32_t leader;       /* 0: any */
};

/* The list is so, all of it in sync and nothing on its way. */
static bool is_placed(void *arg)
{
    const struct wish *w = arg;
    struct brook_cluster *cluster;
    const char *topic = "t";
    if (brook_admin_describe_cluster(w->x->admin, &topic, 1, WAIT_MS, &cluster, &w->x->error) < 0)
        return false;
    const struct brook_partition *p = &cluster->topics[0].partitions[w->partition];
    bool is_so = p->replicas_count == strlen(w->replicas) && p->isr_count == p->replicas_count && p->leader >= 0 &&
                 (!w->leader || p->leader == w->leader);
    for (size_t i = 0; is_so && i < p->replicas_count; i++)
        is_so = strchr(w->replicas, '0' + p->replicas[i]) != NULL;
    brook_cluster_free(cluster);
    return is_so;
}

static void wait_placed(struct bench *x, int32_t partition, const char *replicas, int32_t leader)
{
    struct wish w = {x, partition, replicas, leader};
    if (!suite_wait(is_placed, &w, WAIT_MS)) {
        brook(x, "topic describe t");
        ck_abort_msg("t/%d is not on %s, led by %d:\n%s", partition, replicas, leader, x->output);
    }
}

static size_t running(struct bench *x)
{
    struct brook_reassignments *all;
    ck_assert_int_eq(brook_admin_list_reassignments(x->admin, WAIT_MS, &all, &x->error), 0);
    size_t n = all->count;
    brook_reassignments_free(all);
    return n;
}

struct throttled {
    struct bench *x;
    int64_t bytes;
};

static bool is_throttled(void *arg)
{
    const struct throttled *w = arg;
    struct brook_reassignments *all;
    if (brook_admin_list_reassignments(w->x->admin, WAIT_MS, &all, &w->x->error) < 0)
        return false;
    int64_t bytes = all->throttle_bytes;
    brook_reassignments_free(all);
    return bytes == w->bytes;
}

static void wait_throttle(struct bench *x, int64_t bytes)
{
    struct throttled w = {x, bytes};
    ck_assert_msg(suite_wait(is_throttled, &w, WAIT_MS), "the throttle is not %lld", (long long)bytes);
}

static bool is_gone(void *arg)
{
    return access(arg, F_OK) != 0;
}

/* Removed for good, and not set aside. */
static void wait_directory_gone(struct bench *x, int broker, int32_t partition)
{
    char path[600];
    snprintf(path, sizeof path, "%s/t-%d", brokers_data_directory(x->b, broker), partition);
    ck_assert_msg(suite_wait(is_gone, path, WAIT_MS), "%s is still there", path);
    glob_t found;
    snprintf(path, sizeof path, "%s/t-%d.*-stray", brokers_data_directory(x->b, broker), partition);
    ck_assert_msg(glob(path, 0, NULL, &found) == GLOB_NOMATCH, "%s is there", path);
}

/* The bytes of all segments. */
static void checksum(struct bench *x, int broker, int32_t partition, char sum[80])
{
    char command[700];
    snprintf(command, sizeof command, "cat %s/t-%d/*.log | cksum", brokers_data_directory(x->b, broker), partition);
    FILE *f = popen(command, "re");
    ck_assert(f && fgets(sum, 80, f));
    pclose(f);
}

static void check_alike(struct bench *x, int32_t partition, const char *brokers)
{
    char first[80], other[80];
    checksum(x, brokers[0] - '0', partition, first);
    for (const char *b = brokers + 1; *b; b++) {
        checksum(x, *b - '0', partition, other);
        ck_assert_msg(!strcmp(first, other), "t/%d: brokers %c and %c differ", partition, brokers[0], *b);
    }
}

/* ---- tests ------------------------------------------------------------------------------------------------- */

static void begin(struct bench *x)
{
    memset(x, 0, sizeof *x);
    x->b = brokers_start(4, NULL);
    x->config = brokers_config(x->b);
    ck_assert_int_eq(brook_config_set(x->config, "acks", "all", NULL), 0);
    ck_assert_int_eq(brook_config_set(x->config, "delivery.timeout.ms", "60000", NULL), 0);
    ck_assert_int_eq(brook_admin_new(x->config, &x->admin, &x->error), 0);
    run(x, "topic create t --partitions 3 --replicas 3 --set min.insync.replicas=2");
    run(x, "cluster reassign t --brokers 1,2,3 --watch");
    for (int32_t p = 0; p < PARTITIONS; p++) {
        char text[128];
        snprintf(text, sizeof text, "{\"partitions\":[{\"topic\":\"t\",\"partition\":%d,\"replicas\":[1,2,3]}]}", p);
        create_by_hand(x, PATH_REASSIGN, text);
        wait_placed(x, p, "123", 0);
    }
}

static void end(struct bench *x)
{
    brook_admin_free(x->admin);
    brook_config_free(x->config);
    brokers_free(x->b);
}

START_TEST(partitions_move_under_load_and_nothing_is_lost)
{
    struct bench x;
    begin(&x);
    struct load *load = load_start(&x);
    int64_t begun_ms = clock_boot_ms();
    run(&x, "cluster reassign t --brokers 2,3,4 --throttle 2M");
    ck_assert_msg(strstr(x.output, "3 partitions are being moved"), "%s", x.output);
    ck_assert_uint_eq(running(&x), PARTITIONS);
    run(&x, "cluster");
    ck_assert_msg(strstr(x.output, "0 under-replicated, 3 being moved (at most 2000000 bytes/s per broker)"), "%s",
                  x.output);
    ck_assert_int_eq(brook(&x, "topic alter t --set min.insync.replicas=4"), 1);

    const struct brook_partition_plan back = {.topic = "t", .partition = 2};
    ck_assert_msg(brook_admin_reassign(x.admin, &back, 1, -1, false, WAIT_MS, NULL, &x.error) == 0, "%s", x.error.text);
    wait_placed(&x, 2, "123", 0);
    wait_directory_gone(&x, 4, 2);
    run(&x, "cluster reassign t --watch");
    /* Two thirds of what was there before. */
    ck_assert_int_ge(clock_boot_ms() - begun_ms, 1000LL * (INITIAL / 3 * 2) * VALUE_BYTES / THROTTLE / 2);
    ck_assert_msg(strstr(x.output, "being moved") && strstr(x.output, "records to copy, throttled to 2000000 bytes/s"),
                  "%s", x.output);
    for (int32_t p = 0; p < 2; p++) {
        wait_directory_gone(&x, 1, p);
        run(&x, "topic describe t");
        ck_assert_msg(strstr(x.output, "4:"), "%s", x.output);
    }
    wait_throttle(&x, 0);
    load_end(load);
    wait_placed(&x, 0, "234", 0);
    wait_placed(&x, 1, "234", 0);
    check_alike(&x, 0, "234");
    check_alike(&x, 1, "234");
    check_alike(&x, 2, "123");
    end(&x);
}
END_TEST

/* A move that would take minutes, and a broker that comes back beside it: it is in sync long before. The throttle ends with
 * the move that it was given for. */
START_TEST(throttle_is_for_what_is_added_and_ends_with_the_last_move)
{
    struct bench x;
    begin(&x);
    brokers_kill(x.b, 3);
    ck_assert(brokers_wait_registered(x.b, 3, WAIT_MS));
    struct load *load = load_start(&x);
    run(&x, "cluster reassign --throttle 0");
    ck_assert_int_eq(brook(&x, "cluster reassign --throttle 20k"), 1);
    ck_assert_msg(strstr(x.output, "nothing is being moved, and a throttle lasts as long as moves do"), "%s", x.output);
    create_by_hand(&x, PATH_REASSIGN, "{\"version\":1,\"throttle\":50000,\"partitions\":[{\"topic\":\"t\",\"partition\":0,"
                                      "\"replicas\":[1,2,3,4]}]}");
    wait_throttle(&x, 50000);
    run(&x, "cluster reassign --throttle 20k");
    wait_throttle(&x, 20000);
    run(&x, "cluster reassign");
    ck_assert_msg(strstr(x.output, "throttle: 20000 bytes per second and broker, until"), "%s", x.output);
    brokers_restart(x.b, 3);
    wait_placed(&x, 1, "123", 0);
    wait_placed(&x, 2, "123", 0);
    ck_assert_uint_eq(running(&x), 1);
    ck_assert(is_throttled(&(struct throttled){&x, 20000}));
    run(&x, "cluster reassign --cancel");
    wait_throttle(&x, 0);
    ck_assert_uint_eq(running(&x), 0);

    run(&x, "cluster reassign t --brokers 1,2,4 --throttle 50M --watch");
    wait_throttle(&x, 0);
    load_end(load);
    end(&x);
}
END_TEST

START_TEST(replicas_that_can_not_be_are_refused_with_a_reason)
{
    struct bench x;
    memset(&x, 0, sizeof x);
    x.b = brokers_start(2, NULL);
    static const struct {
        const char *args, *says;
    } refused[] = {
        {"topic create u --replicas 3", "topic u: 3 replicas need as many brokers, and 2 are alive"},
        {"topic create u --replicas 1 --set min.insync.replicas=2", "min.insync.replicas=2: more than the 1 replica of"},
        {"topic create u --replicas 2 --set min.insync.replicas=3 --dry-run", "more than the 2 replicas of each partition"},
        {"topic alter t --set min.insync.replicas=3", "topic t: min.insync.replicas=3: more than the 2 replicas"},
        {"cluster reassign t --brokers 1 --replicas 1", "1 replicas are less than the topic's min.insync.replicas, 2"},
        {"cluster reassign t --brokers 1,2,3", "broker 3"},
    };
    run(&x, "topic create t --partitions 2 --replicas 2 --set min.insync.replicas=2");
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        ck_assert_msg(brook(&x, refused[i].args) == 1, "brook %s was not refused", refused[i].args);
        ck_assert_msg(strstr(x.output, refused[i].says), "brook %s says: %s", refused[i].args, x.output);
    }
    run(&x, "topic alter t --set min.insync.replicas=1");
    run(&x, "topic list");
    ck_assert_ptr_null(strstr(x.output, "u  "));
    brokers_free(x.b);
}
END_TEST

START_TEST(nodes_written_by_hand_move_and_elect)
{
    struct bench x;
    begin(&x);
    struct load *load = load_start(&x);
    create_by_hand(&x, PATH_REASSIGN,
                   "{\"version\":1,\"partitions\":[{\"topic\":\"t\",\"partition\":0,\"replicas\":[4,2,3]}]}");
    wait_placed(&x, 0, "423", 0);
    wait_directory_gone(&x, 1, 0);
    create_by_hand(&x, PATH_PREFERRED_ELECTION, "{\"version\":1,\"partitions\":[{\"topic\":\"t\",\"partition\":0}]}");
    wait_placed(&x, 0, "423", 4);

    brokers_kill(x.b, 4); /* which leads */
    ck_assert(brokers_wait_registered(x.b, 3, WAIT_MS));
    run(&x, "topic describe t");
    ck_assert_msg(strstr(x.output, "away)"), "%s", x.output);
    run(&x, "cluster");
    ck_assert_msg(strstr(x.output, "under-replicated: t/0 (2 of 3 in sync)"), "%s", x.output);
    brokers_restart(x.b, 4);
    ck_assert(brokers_wait_registered(x.b, 4, WAIT_MS));
    wait_placed(&x, 0, "423", 0);
    run(&x, "cluster elect t");
    wait_placed(&x, 0, "423", 4);
    load_end(load);
    wait_placed(&x, 0, "423", 4);
    check_alike(&x, 0, "423");
    check_alike(&x, 1, "123");
    end(&x);
}
END_TEST

BROKERS_MAIN("cluster/reassign", SUITE_TEST_SLOW(partitions_move_under_load_and_nothing_is_lost, 180),
           SUITE_TEST_SLOW(throttle_is_for_what_is_added_and_ends_with_the_last_move, 240),
           SUITE_TEST_SLOW(replicas_that_can_not_be_are_refused_with_a_reason, 120),
           SUITE_TEST_SLOW(nodes_written_by_hand_move_and_elect, 180))
