/* A broker whose data directory is a small file system of its own (tmpfs in a mount namespace of this program, which
 * ends with it): filled by records, filled to the last byte, and started in that state. */
#include "tests/support/brokers.h"
#include "tests/support/suite.h"
#include "tests/support/zookeeper.h"

#include "proto/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define DISK_BYTES (48 << 20)
#define VALUE_BYTES 65536
#define RECORDS_MAX 4096
#define PATIENCE_MS 20000

struct world {
    struct brokers *b;
    brook_config *config;
    brook_admin *admin;
    brook_producer *producer;
    char disk[PATH_MAX];
    int code;                            /* of the last report */
    int64_t stored[2];                   /* by topic: acknowledged */
    uint8_t is_stored[2][RECORDS_MAX];   /* likewise, by number */
    int64_t sent[2];
};
static const char *const topics[] = {"keep", "fill"};
enum { KEEP, FILL };

static int64_t free_bytes(const struct world *w)
{
    struct statvfs st;
    ck_assert_int_eq(statvfs(w->disk, &st), 0);
    return (int64_t)(st.f_bavail * st.f_frsize);
}

/* ---- producing and reading -------------------------------------------------------------------------- */

static void on_report(void *arg, const struct brook_report *report)
{
    ((struct world *)arg)->code = report->outcome == BROOK_STORED ? 0 : report->error.code;
}

/* One record, its answer awaited. Returns the code. */
static int produce(struct world *w, int topic)
{
    static uint8_t value[VALUE_BYTES];
    struct brook_error error = {0};
    int64_t number = w->sent[topic]++;
    ck_assert_int_lt(number, RECORDS_MAX);
    memcpy(value, &number, sizeof number);
    struct brook_record r = {.topic = topics[topic], .value = value, .value_bytes = sizeof value};
    w->code = -1;
    ck_assert_msg(brook_producer_send(w->producer, &r, BROOK_SEND_WAIT, &error) == 0, "%s", error.text);
    ck_assert_int_eq(brook_producer_flush(w->producer, PATIENCE_MS), 0);
    if (w->code == 0) {
        w->stored[topic]++;
        w->is_stored[topic][number] = 1;
    }
    return w->code;
}

/* All that was acknowledged is there, nothing is there twice, and offsets have no gap. */
static void check_records(struct world *w, int topic)
{
    struct brook_error error = {0};
    brook_consumer *consumer;
    brook_batch *batch;
    struct brook_message m;
    struct brook_position at = {topics[topic], 0, BROOK_OFFSET_EARLIEST}, end = {topics[topic], 0, BROOK_OFFSET_LATEST};
    static uint8_t seen[RECORDS_MAX];
    int64_t number, next = 0;
    memset(seen, 0, sizeof seen);
    ck_assert_int_eq(brook_admin_list_offsets(w->admin, &end, NULL, 1, PATIENCE_MS, &error), 0);
    ck_assert_int_ge(end.offset, w->stored[topic]);
    ck_assert_int_eq(brook_consumer_new(w->config, &consumer, &error), 0);
    ck_assert_int_eq(brook_consumer_assign(consumer, &at, 1, &error), 0);
    while (next < end.offset) {
        ck_assert_msg(brook_consumer_poll(consumer, PATIENCE_MS, &batch, &error) == 0, "%s", error.text);
        while (brook_batch_next(batch, &m) == 0) {
            ck_assert_int_eq(m.offset, next++);
            memcpy(&number, m.value, sizeof number);
            ck_assert(number >= 0 && number < w->sent[topic] && !seen[number]);
            seen[number] = 1;
        }
        brook_batch_release(batch);
    }
    brook_consumer_close(consumer, 1000);
    for (int64_t i = 0; i < w->sent[topic]; i++)
        ck_assert_msg(seen[i] || !w->is_stored[topic][i], "record %lld was acknowledged and is gone", (long long)i);
}

/* ---- a world ---------------------------------------------------------------------------------------- */

static void open_clients(struct world *w)
{
    struct brook_error error = {0};
    w->config = brokers_config(w->b);
    ck_assert_int_eq(brook_config_set(w->config, "retries", "0", &error), 0);
    ck_assert_msg(brook_producer_new(w->config, &w->producer, &error) == 0, "%s", error.text);
    brook_producer_on_report(w->producer, on_report, w);
    ck_assert_msg(brook_admin_new(w->config, &w->admin, &error) == 0, "%s", error.text);
}

static void begin(struct world *w, const char *least)
{
    static char least_setting[64];
    static const char *settings[] = {least_setting, "log.segment.bytes=1048576", "message.max.bytes=524288",
                                     "log.segment.delete.delay.ms=0", NULL};
    const struct brokers_options options = {.settings = settings};
    char size[64];
    *w = (struct world){0};
    snprintf(least_setting, sizeof least_setting, "log.dir.min.free.bytes=%s", least);
    snprintf(w->disk, sizeof w->disk, "%.3000s/data-1", suite_directory());
    snprintf(size, sizeof size, "size=%d", DISK_BYTES);
    ck_assert_int_eq(mkdir(w->disk, 0755), 0);
    ck_assert_int_eq(mount("brook-test", w->disk, "tmpfs", 0, size), 0);
    w->b = brokers_start(1, &options);
    for (int i = 0; i < 2; i++)
        brokers_create_topic(w->b, topics[i], 1);
    open_clients(w);
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(produce(w, KEEP), 0);
}

static void end(struct world *w)
{
    brook_producer_close(w->producer, 1000);
    brook_admin_free(w->admin);
    brook_config_free(w->config);
    brokers_free(w->b);
    ck_assert_int_eq(umount2(w->disk, MNT_DETACH), 0);
}

/* Until the broker says that it is full. Not too fast: it looks once a second. */
static void fill(struct world *w)
{
    int code;
    while ((code = produce(w, FILL)) == 0)
        usleep(5000);
    ck_assert_int_eq(code, BROOK_E_STORAGE_FULL);
}

/* And another program takes what is left. */
static void fill_to_the_last_byte(struct world *w)
{
    static const char block[65536];
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/another-program", w->disk);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    size_t bytes = sizeof block;
    ck_assert_int_ge(fd, 0);
    while (bytes > 0) {
        ssize_t n = write(fd, block, bytes);
        if (n <= 0)
            bytes /= 2;
    }
    close(fd);
    ck_assert_int_eq(free_bytes(w), 0);
}

static void remove_filler(struct world *w)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/another-program", w->disk);
    ck_assert_int_eq(unlink(path), 0);
}

static bool takes_records(void *arg)
{
    return produce(arg, KEEP) == 0;
}

static bool has_room(void *arg)
{
    return free_bytes(arg) > DISK_BYTES / 2;
}

/* Deletion frees the room, and service returns in the same process. */
static void delete_and_resume(struct world *w)
{
    struct brook_error error = {0};
    pid_t pid = brokers_pid(w->b, 1);
    ck_assert_msg(brook_admin_delete_topic(w->admin, "fill", PATIENCE_MS, &error) == 0, "%s", error.text);
    ck_assert(suite_wait(takes_records, w, PATIENCE_MS));
    ck_assert_int_eq(kill(pid, 0), 0);
    ck_assert_int_eq(pid, brokers_pid(w->b, 1));
    ck_assert(suite_wait(has_room, w, PATIENCE_MS)); /* files are removed one after the other */
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(produce(w, KEEP), 0);
    check_records(w, KEEP);
}

static void check_while_full(struct world *w)
{
    for (int i = 0; i < 5; i++)
        for (int topic = 0; topic < 2; topic++)
            ck_assert_int_eq(produce(w, topic), BROOK_E_STORAGE_FULL);
    check_records(w, KEEP);
    check_records(w, FILL);
}

static bool is_serving(void *arg)
{
    struct world *w = arg;
    struct brook_error error;
    struct brook_position ends[] = {{"keep", 0, BROOK_OFFSET_LATEST}, {"fill", 0, BROOK_OFFSET_LATEST}};
    return brook_admin_list_offsets(w->admin, ends, NULL, 2, 1000, &error) == 0 && ends[0].offset >= 0 &&
           ends[1].offset >= 0;
}

static void restart(struct world *w)
{
    brokers_restart(w->b, 1);
    ck_assert(suite_wait(is_serving, w, PATIENCE_MS));
}

/* ---- tests ------------------------------------------------------------------------------------------ */

START_TEST(records_are_refused_before_the_disk_is_full_and_taken_again_when_there_is_room)
{
    struct world w;
    begin(&w, "16777216");
    fill(&w);
    ck_assert_int_gt(free_bytes(&w), 1 << 20);
    check_while_full(&w);
    ck_assert_int_gt(free_bytes(&w), 1 << 20);
    delete_and_resume(&w);
    ck_assert_int_eq(brokers_stop(w.b, 1, 10000), 0);
    end(&w);
}
END_TEST

START_TEST(a_disk_filled_to_its_last_byte_loses_nothing_and_serves_again_without_a_restart)
{
    struct world w;
    begin(&w, "0"); /* only what a failed write says counts */
    fill(&w);
    fill_to_the_last_byte(&w);
    check_while_full(&w);
    remove_filler(&w);
    delete_and_resume(&w);
    ck_assert_int_eq(brokers_stop(w.b, 1, 10000), 0);
    end(&w);
}
END_TEST

static void restart_while_full(const char *least, bool is_killed)
{
    struct world w;
    begin(&w, least);
    fill(&w);
    fill_to_the_last_byte(&w);
    if (is_killed)
        brokers_kill(w.b, 1);
    else
        ck_assert_int_eq(brokers_stop(w.b, 1, 10000), 0);
    restart(&w);
    check_while_full(&w);
    remove_filler(&w);
    delete_and_resume(&w);
    ck_assert_int_eq(brokers_stop(w.b, 1, 10000), 0);
    end(&w);
}

START_TEST(a_broker_stops_and_starts_while_its_disk_is_full)
{
    restart_while_full("8388608", false);
}
END_TEST

START_TEST(a_broker_killed_while_its_disk_is_full_recovers_there)
{
    restart_while_full("0", true);
}
END_TEST

/* Alone with its mounts. Returns what keeps it from that. */
static const char *unshare_mounts(void)
{
    if (geteuid() != 0)
        return "only root may mount a small file system";
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return "no mount namespace of its own";
    if (mkdir("/tmp/brook-test-mount", 0700) != 0 && errno != EEXIST)
        return "no place to mount at";
    bool can = mount("brook-test", "/tmp/brook-test-mount", "tmpfs", 0, "size=65536") == 0;
    if (can)
        umount("/tmp/brook-test-mount");
    rmdir("/tmp/brook-test-mount");
    return can ? NULL : "mounting is not allowed here";
}

int main(void)
{
    const char *why = unshare_mounts();
    if (why) {
        printf("1..0 # SKIP %s\n", why);
        return 0;
    }
    const struct suite_test tests[] = {
        SUITE_TEST_SLOW(records_are_refused_before_the_disk_is_full_and_taken_again_when_there_is_room, 120),
        SUITE_TEST_SLOW(a_disk_filled_to_its_last_byte_loses_nothing_and_serves_again_without_a_restart, 120),
        SUITE_TEST_SLOW(a_broker_stops_and_starts_while_its_disk_is_full, 120),
        SUITE_TEST_SLOW(a_broker_killed_while_its_disk_is_full_recovers_there, 120)};
    return suite_run("cluster/full_disk", tests, sizeof tests / sizeof tests[0]);
}
