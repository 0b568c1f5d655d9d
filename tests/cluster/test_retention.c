/* Records that go before the topic does: deleted by request, by the brook command, by age. */
#include "tests/support/brokers.h"
#include "tests/support/suite.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

struct bench {
    struct brokers *b;
    brook_config *config;
    brook_admin *admin;
    struct brook_error error;
};

static void begin(struct bench *x, int brokers, const struct brokers_options *options)
{
    memset(x, 0, sizeof *x);
    x->b = brokers_start(brokers, options);
    x->config = brokers_config(x->b);
    ck_assert_int_eq(brook_config_set(x->config, "acks", "all", NULL), 0);
    ck_assert_int_eq(brook_admin_new(x->config, &x->admin, &x->error), 0);
}

static void end(struct bench *x)
{
    brook_admin_free(x->admin);
    brook_config_free(x->config);
    brokers_free(x->b);
}

/* With a handle of its own: brokers come back on other ports. */
static void wait_restarted(struct bench *x, int count)
{
    ck_assert(brokers_wait_registered(x->b, count, 30000));
    brook_admin_free(x->admin);
    ck_assert_int_eq(brook_admin_new(x->config, &x->admin, &x->error), 0);
}

static void count_failure(void *arg, const struct brook_report *report)
{
    *(int *)arg += report->outcome != BROOK_STORED;
}

static void produce(struct bench *x, const char *topic, int32_t partition, int records, int64_t timestamp)
{
    brook_producer *producer;
    int failures = 0;
    ck_assert_int_eq(brook_producer_new(x->config, &producer, &x->error), 0);
    brook_producer_on_report(producer, count_failure, &failures);
    for (int i = 0; i < records; i++) {
        struct brook_record r = {
            .topic = topic, .partition = partition, .value = "0123456789", .value_bytes = 10, .timestamp = timestamp};
        ck_assert_int_eq(brook_producer_send(producer, &r, BROOK_SEND_WAIT, &x->error), 0);
    }
    ck_assert_int_eq(brook_producer_flush(producer, 20000), 0);
    brook_producer_poll(producer, 0);
    ck_assert_int_eq(failures, 0);
    brook_producer_close(producer, 1000);
}

static int64_t offset_of(struct bench *x, const char *topic, int32_t partition, int64_t which)
{
    struct brook_position at = {topic, partition, which};
    int r = brook_admin_list_offsets(x->admin, &at, NULL, 1, 20000, &x->error);
    ck_assert_msg(r == 0, "%s", x->error.text);
    return at.offset;
}

/* The first offset that a reader who begins at `from` is given; or its failure's code. */
static int64_t first_read(struct bench *x, const char *topic, int32_t partition, int64_t from, const char *reset)
{
    brook_consumer *consumer;
    brook_batch *batch;
    struct brook_message m;
    brook_config *config = brook_config_copy(x->config);
    ck_assert_int_eq(brook_config_set(config, "auto.offset.reset", reset, NULL), 0);
    struct brook_position at = {topic, partition, from};
    ck_assert_int_eq(brook_consumer_new(config, &consumer, &x->error), 0);
    ck_assert_int_eq(brook_consumer_assign(consumer, &at, 1, &x->error), 0);
    int64_t r = brook_consumer_poll(consumer, 20000, &batch, &x->error);
    if (r == 0) {
        ck_assert_int_eq(brook_batch_next(batch, &m), 0);
        r = m.offset;
        brook_batch_release(batch);
    }
    brook_consumer_close(consumer, 1000);
    brook_config_free(config);
    return r;
}

/* Run `brook --zookeeper ... ARGS`; returns its exit code and what it said. */
static int brook(struct bench *x, const char *args, char *output, size_t room)
{
    char command[2048];
    const char *top = getenv("abs_top_builddir");
    snprintf(command, sizeof command, "%s/client/cli/brook --zookeeper %s %s 2>&1", top ? top : ".",
             brokers_connect(x->b), args);
    FILE *f = popen(command, "re");
    ck_assert_ptr_nonnull(f);
    size_t n = fread(output, 1, room - 1, f);
    output[n] = '\0';
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

START_TEST(deleted_records_stay_deleted_after_a_kill)
{
    struct bench x;
    char output[4096];
    begin(&x, 2, NULL);
    brokers_create_topic(x.b, "t", 2);
    for (int32_t p = 0; p < 2; p++)
        produce(&x, "t", p, 100, 0);
    struct brook_position at[2] = {{"t", 0, 60}, {"t", 1, BROOK_OFFSET_LATEST}};
    ck_assert_msg(brook_admin_delete_records(x.admin, at, 2, false, 20000, &x.error) == 0, "%s", x.error.text);
    ck_assert_int_eq(at[0].offset, 60);
    ck_assert_int_eq(at[1].offset, 100);
    for (int id = 1; id <= 2; id++)
        brokers_kill(x.b, id);
    for (int id = 1; id <= 2; id++)
        brokers_restart(x.b, id);
    wait_restarted(&x, 2);
    ck_assert_int_eq(offset_of(&x, "t", 0, BROOK_OFFSET_EARLIEST), 60);
    ck_assert_int_eq(offset_of(&x, "t", 0, BROOK_OFFSET_LATEST), 100);
    ck_assert_int_eq(offset_of(&x, "t", 1, BROOK_OFFSET_EARLIEST), 100);
    ck_assert_int_eq(offset_of(&x, "t", 1, BROOK_OFFSET_LATEST), 100);
    ck_assert_int_eq(first_read(&x, "t", 0, 10, "earliest"), 60);
    ck_assert_int_eq(first_read(&x, "t", 0, 10, "none"), -BROOK_E_OFFSET_OUT_OF_RANGE);
    ck_assert_int_eq(first_read(&x, "t", 0, 70, "none"), 70);
    produce(&x, "t", 1, 1, 0);
    ck_assert_int_eq(first_read(&x, "t", 1, 0, "earliest"), 100);

    ck_assert_int_eq(brook(&x, "topic delete-records t --partition 0 --before 80 --dry-run", output, sizeof output), 0);
    ck_assert_str_eq(output, "t/0 would begin at offset 80\n");
    ck_assert_int_eq(brook(&x, "topic delete-records t --partition 0 --before 80", output, sizeof output), 0);
    ck_assert_str_eq(output, "t/0 begins at offset 80\n");
    ck_assert_int_eq(brook(&x, "topic delete-records t --partition 0 --before 101", output, sizeof output), 1);
    ck_assert_ptr_nonnull(strstr(output, "high watermark is 100"));
    ck_assert_int_eq(brook(&x, "topic delete-records t --partition 0", output, sizeof output), 2);
    ck_assert_int_eq(brook(&x, "topic delete-records t --before end", output, sizeof output), 2);
    ck_assert_int_eq(brook(&x, "topic delete-records u --all-partitions --before end", output, sizeof output), 1);
    ck_assert_int_eq(brook(&x, "topic delete-records t --all-partitions --before-time -1h --json", output,
                           sizeof output),
                     0);
    ck_assert_ptr_nonnull(strstr(output, "\"start\":80"));
    ck_assert_int_eq(brook(&x, "topic delete-records t --all-partitions --before end", output, sizeof output), 0);
    ck_assert_str_eq(output, "t/0 begins at offset 100\nt/1 begins at offset 101\n");
    /* A clean stop keeps it as well. */
    for (int id = 1; id <= 2; id++)
        ck_assert_int_eq(brokers_stop(x.b, id, 20000), 0);
    for (int id = 1; id <= 2; id++)
        brokers_restart(x.b, id);
    wait_restarted(&x, 2);
    ck_assert_int_eq(offset_of(&x, "t", 1, BROOK_OFFSET_EARLIEST), 101);
    end(&x);
}
END_TEST

/* ---- settings --------------------------------------------------------------------------------------- */

static bool has_begun_later(void *arg)
{
    return offset_of(arg, "t", 0, BROOK_OFFSET_EARLIEST) > 0;
}

START_TEST(altered_settings_are_followed_by_every_broker)
{
    static const char *const often[] = {"log.retention.check.interval.ms=50", NULL};
    struct brokers_options options = {.settings = often};
    struct bench x;
    char output[4096];
    begin(&x, 2, &options);
    brokers_create_topic(x.b, "t", 2);
    for (int32_t p = 0; p < 2; p++)
        produce(&x, "t", p, 100, 0);
    ck_assert_int_eq(brook(&x, "topic alter t --set retention.ms=1 --dry-run", output, sizeof output), 0);
    ck_assert_str_eq(output, "t could be altered\n");
    ck_assert_int_eq(offset_of(&x, "t", 0, BROOK_OFFSET_EARLIEST), 0);
    ck_assert_int_eq(brook(&x, "topic alter t --set retention.ms=1 --set max.message.bytes=4096 --set segment.bytes=4096", output, sizeof output),
                     0);
    ck_assert_str_eq(output, "t altered\n");
    ck_assert(suite_wait(has_begun_later, &x, 20000));
    for (int32_t p = 0; p < 2; p++)
        ck_assert_int_eq(offset_of(&x, "t", p, BROOK_OFFSET_LATEST), 100);
    ck_assert_int_eq(brook(&x, "topic alter t --unset retention.ms --json", output, sizeof output), 0);
    ck_assert_str_eq(output, "{\"topic\":\"t\",\"altered\":true}\n");
    ck_assert_int_eq(brook(&x, "topic describe t", output, sizeof output), 0);
    ck_assert_ptr_nonnull(strstr(output, "segment.bytes=4096"));
    ck_assert_ptr_null(strstr(output, "retention.ms"));
    ck_assert_int_eq(brook(&x, "topic alter t --set retention.ms=soon", output, sizeof output), 1);
    ck_assert_ptr_nonnull(strstr(output, "retention.ms: \"soon\""));
    ck_assert_int_eq(brook(&x, "topic alter u --unset retention.ms", output, sizeof output), 1);
    ck_assert_int_eq(brook(&x, "topic alter t", output, sizeof output), 2);
    end(&x);
}
END_TEST

BROKERS_MAIN("cluster/retention", SUITE_TEST_SLOW(altered_settings_are_followed_by_every_broker, 120),
            SUITE_TEST_SLOW(deleted_records_stay_deleted_after_a_kill, 120))
