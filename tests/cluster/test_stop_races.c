/* A broker that is stopped, or killed, at a random moment while records are written, files roll every few records and
 * retention removes them as fast. BROOK_ROUNDS: how often; BROOK_SEED replays the moments. */
#include "tests/support/brokers.h"
#include "tests/support/suite.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PARTITIONS 4
#define STOP_MS 10000
#define PATIENCE_MS 20000

static const char *const settings[] = {"log.segment.bytes=16384",
                                       "message.max.bytes=16384",
                                       "log.retention.ms=1000",
                                       "log.retention.check.interval.ms=10",
                                       "log.segment.delete.delay.ms=0",
                                       NULL};

struct writer {
    pthread_t thread;
    brook_producer *producer;
    brook_config *config;
    _Atomic bool is_stopping;
    _Atomic int64_t stored;
    _Atomic int64_t ends[PARTITIONS]; /* behind the last one that was acknowledged */
};

static void on_report(void *arg, const struct brook_report *report)
{
    struct writer *w = arg;
    if (report->outcome != BROOK_STORED)
        return;
    w->stored++;
    if (report->offset >= w->ends[report->partition])
        w->ends[report->partition] = report->offset + 1;
}

static void *write_all_the_time(void *arg)
{
    struct writer *w = arg;
    static const char value[1000];
    struct brook_error error;
    for (int i = 0; !w->is_stopping; i++) {
        struct brook_record r = {
            .topic = "t", .partition = i % PARTITIONS, .value = value, .value_bytes = sizeof value};
        if (brook_producer_send(w->producer, &r, 0, &error) != 0 || i % 64 == 0)
            brook_producer_poll(w->producer, 2);
    }
    return NULL;
}

static void writer_start(struct writer *w, struct brokers *b)
{
    struct brook_error error = {0};
    memset(w, 0, sizeof *w);
    w->config = brokers_config(b);
    ck_assert_int_eq(brook_config_set(w->config, "buffer.memory", "1048576", &error), 0);
    ck_assert_int_eq(brook_config_set(w->config, "batch.size", "8192", &error), 0);
    ck_assert_msg(brook_producer_new(w->config, &w->producer, &error) == 0, "%s", error.text);
    brook_producer_on_report(w->producer, on_report, w);
    ck_assert_int_eq(pthread_create(&w->thread, NULL, write_all_the_time, w), 0);
}

static void writer_stop(struct writer *w)
{
    w->is_stopping = true;
    pthread_join(w->thread, NULL);
    brook_producer_close(w->producer, 0);
    brook_config_free(w->config);
}

struct mark {
    struct writer *writer;
    int64_t stored;
};

static bool goes_on(void *arg)
{
    struct mark *mark = arg;
    return mark->writer->stored > mark->stored;
}

/* Records of this life are stored. */
static void wait_going_on(struct writer *w)
{
    struct mark mark = {w, w->stored + 50};
    ck_assert(suite_wait(goes_on, &mark, PATIENCE_MS));
}

static int rounds(int standard)
{
    const char *given = getenv("BROOK_ROUNDS");
    return given ? atoi(given) : standard;
}

static bool has_marker(struct brokers *b)
{
    char path[PATH_MAX + 128];
    snprintf(path, sizeof path, "%s/.kafka_cleanshutdown", brokers_data_directory(b, 1));
    return access(path, F_OK) == 0;
}

/* Lines of the broker's log that say `what`. */
static int said(struct brokers *b, const char *what)
{
    char path[PATH_MAX + 128], line[4096];
    int count = 0;
    snprintf(path, sizeof path, "%s/../1.log", brokers_data_directory(b, 1));
    FILE *f = fopen(path, "re");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f))
        count += strstr(line, what) != NULL;
    fclose(f);
    return count;
}

START_TEST(a_stop_at_any_moment_is_clean_and_the_next_start_recovers_nothing)
{
    const struct brokers_options options = {.settings = settings};
    struct brokers *b = brokers_start(1, &options);
    struct writer w;
    uint64_t random = suite_seed();
    brokers_create_topic(b, "t", PARTITIONS);
    writer_start(&w, b);
    for (int i = 0; i < rounds(20); i++) {
        wait_going_on(&w);
        usleep((useconds_t)suite_random_below(&random, 300000)); /* the moment of the stop */
        ck_assert_int_eq(brokers_stop(b, 1, STOP_MS), 0);
        ck_assert(has_marker(b));
        brokers_restart(b, 1);
    }
    wait_going_on(&w);
    ck_assert_int_eq(said(b, "recovered:"), 0);
    ck_assert_int_eq(said(b, "can not be opened"), 0);
    ck_assert_int_gt(said(b, "retention removed"), 0);
    writer_stop(&w);
    brokers_free(b);
}
END_TEST

/* What a checkpoint says of a partition; -1: nothing. */
static int64_t checkpointed(struct brokers *b, const char *file, int partition)
{
    char path[PATH_MAX + 128], line[512];
    int64_t found = -1;
    int number;
    long long offset;
    snprintf(path, sizeof path, "%s/%s", brokers_data_directory(b, 1), file);
    FILE *f = fopen(path, "re");
    if (!f)
        return -1;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "t %d %lld", &number, &offset) == 2 && number == partition)
            found = offset;
    fclose(f);
    return found;
}

START_TEST(kills_in_the_first_second_reset_no_checkpoint_and_lose_nothing)
{
    static const char *const files[] = {"recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
                                        "replication-offset-checkpoint"};
    const struct brokers_options options = {.settings = settings};
    struct brokers *b = brokers_start(1, &options);
    struct writer w;
    uint64_t random = suite_seed();
    int64_t known[3][PARTITIONS];
    struct brook_error error = {0};
    brokers_create_topic(b, "t", PARTITIONS);
    writer_start(&w, b);
    wait_going_on(&w);
    ck_assert_int_eq(brokers_stop(b, 1, STOP_MS), 0); /* so that there are checkpoints */
    for (int f = 0; f < 3; f++)
        for (int p = 0; p < PARTITIONS; p++)
            known[f][p] = checkpointed(b, files[f], p);
    for (int i = 0; i < rounds(20); i++) {
        brokers_restart(b, 1);
        usleep((useconds_t)suite_random_below(&random, 1000000)); /* the moment of the kill */
        brokers_kill(b, 1);
        for (int f = 0; f < 3; f++)
            for (int p = 0; p < PARTITIONS; p++) {
                int64_t now = checkpointed(b, files[f], p);
                ck_assert_msg(now >= known[f][p], "%s of %d was %lld and is %lld", files[f], p, (long long)known[f][p],
                              (long long)now);
                known[f][p] = now;
            }
    }
    brokers_restart(b, 1);
    wait_going_on(&w);
    brook_admin *admin;
    struct brook_position ends[PARTITIONS];
    int64_t least[PARTITIONS];
    for (int p = 0; p < PARTITIONS; p++) {
        least[p] = w.ends[p];
        ends[p] = (struct brook_position){"t", p, BROOK_OFFSET_LATEST};
    }
    ck_assert_int_eq(brook_admin_new(w.config, &admin, &error), 0);
    ck_assert_msg(brook_admin_list_offsets(admin, ends, NULL, PARTITIONS, PATIENCE_MS, &error) == 0, "%s", error.text);
    for (int p = 0; p < PARTITIONS; p++)
        ck_assert_int_ge(ends[p].offset, least[p]);
    brook_admin_free(admin);
    ck_assert_int_eq(said(b, "can not be opened"), 0);
    writer_stop(&w);
    brokers_free(b);
}
END_TEST

BROKERS_MAIN("cluster/stop_races",
           SUITE_TEST_SLOW(a_stop_at_any_moment_is_clean_and_the_next_start_recovers_nothing, 600),
           SUITE_TEST_SLOW(kills_in_the_first_second_reset_no_checkpoint_and_lose_nothing, 600))
