#include "broker/cluster/hosting.h"

#include "broker/partition/partition.h"
#include "broker/storage/data_dir.h"
#include "proto/base/diag.h"
#include "tests/support/faulty_io.h"
#include "tests/support/keyed.h"
#include "tests/unit/storage/fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BROKER 1
#define BROKER_EPOCH 7
#define CLEAN_MS 15000

/* Hosting over one directory, and a topic of one partition; time is what the test says it is. */
struct world {
    struct inbox inbox;
    struct hosting *hosting;
    struct image *image;
    struct image_topic *topic;
    struct diag diag;
    char path[PATH_MAX - 8];
    char log_path[PATH_MAX];
    int64_t now_ms;
    bool is_opened, is_closed;
    _Atomic unsigned errors;
    unsigned refusals; /* of states */
    char last_error[400];
};

static void note_line(void *arg, enum diag_level level, const char *subject, const char *message)
{
    struct world *w = arg;
    if (strstr(message, "not followed"))
        w->refusals++;
    if (level < DIAG_ERROR)
        return;
    snprintf(w->last_error, sizeof w->last_error, "%s %s", subject, message);
    w->errors++; /* behind it: who sees the one reads the other */
}

static void opened(void *arg, const struct brook_error *error)
{
    ck_assert_int_eq(error->code, 0);
    ((struct world *)arg)->is_opened = true;
}

static void changed(void *arg, const char *topic, int32_t number)
{
    struct world *w = arg;
    ck_assert_str_eq(topic, "t");
    hosting_follow_one(w->hosting, w->topic, number);
}

static void closed(void *arg, bool clean)
{
    (void)clean;
    ((struct world *)arg)->is_closed = true;
}

static void set_epoch(struct world *w, int32_t epoch)
{
    struct znode_state state = {.leader = BROKER, .leader_epoch = epoch, .isr_count = 1};
    state.isr[0] = BROKER;
    state.isr_epochs[0] = BROKER_EPOCH;
    ck_assert_int_eq(image_set_state(w->topic, 0, &state, epoch), 0);
    hosting_follow(w->hosting, w->topic);
}

static void put_topic(struct world *w)
{
    struct znode_topic node = {.topic_id = {{1}}, .partitions_count = 1};
    node.replicas = calloc(1, sizeof *node.replicas);
    node.replicas[0] = (struct znode_replicas){calloc(1, sizeof(int32_t)), 1};
    node.replicas[0].brokers[0] = BROKER;
    ck_assert_int_eq(image_put_topic(w->image, "t", &node, 0, &w->topic), 0);
}

static bool pump_until_opened(void *arg)
{
    struct world *w = arg;
    inbox_drain(&w->inbox);
    return w->is_opened;
}

static bool pump_until_led(void *arg)
{
    struct world *w = arg;
    inbox_drain(&w->inbox);
    return hosting_leads(w->hosting, w->topic, 0);
}

static bool pump_until_hosted(void *arg)
{
    struct world *w = arg;
    inbox_drain(&w->inbox);
    return hosting_find(w->hosting, w->topic, 0);
}

/* Whether the partition is tried again: then the timer wants to be called soon, and later the log is there.
 */
static bool tick_until_hosted(void *arg)
{
    struct world *w = arg;
    w->now_ms += HOSTING_RETRY_MS + 1;
    hosting_tick(w->hosting, w->now_ms);
    return pump_until_hosted(arg);
}

static bool pump_until_closed(void *arg)
{
    struct world *w = arg;
    inbox_drain(&w->inbox);
    return w->is_closed;
}

static void begin_at_rate(struct world *w, const char *name, int64_t bytes_per_s)
{
    faulty_reset();
    *w = (struct world){.now_ms = 1000};
    w->diag = (struct diag){.level_min = DIAG_WARN, .sink = note_line, .sink_arg = w};
    snprintf(w->path, sizeof w->path, "%s", fixture_log_path(name));
    snprintf(w->log_path, sizeof w->log_path, "%s/t-0", w->path);
    const char *dirs[] = {w->path};
    struct topic_config defaults = {.log = fixture_settings(), .message_bytes_max = 1 << 20};
    struct hosting_settings settings = {.broker_id = BROKER,
                                        .data_dirs = dirs,
                                        .data_dirs_count = 1,
                                        .disk_threads = 1,
                                        .retention_check_ms = INT32_MAX,
                                        .cleaner = {.threads = 2,
                                                    .map_bytes = 1 << 20,
                                                    .backoff_ms = CLEAN_MS,
                                                    .bytes_per_s = bytes_per_s,
                                                    .expanded_bytes_max = 1 << 20},
                                        .defaults = &defaults,
                                        .diag = &w->diag};
    struct hosting_events events = {opened, changed, NULL, closed, w, NULL, NULL};
    ck_assert_int_eq(inbox_init(&w->inbox), 0);
    ck_assert_int_eq(image_new(&defaults, &w->image), 0);
    put_topic(w);
    ck_assert_int_eq(hosting_new(&settings, &w->inbox, &events, &w->hosting), 0);
    hosting_open(w->hosting, "wUxlYmA2Qzq9qPEkQJaYsg");
    ck_assert(suite_wait(pump_until_opened, w, 5000));
    hosting_set_broker_epoch(w->hosting, BROKER_EPOCH);
    set_epoch(w, 5);
    ck_assert(suite_wait(pump_until_led, w, 5000));
}

static void begin(struct world *w, const char *name)
{
    begin_at_rate(w, name, -1);
}

static void end(struct world *w)
{
    hosting_close(w->hosting);
    ck_assert(suite_wait(pump_until_closed, w, 5000));
    struct data_dir *dir = NULL; /* the lock is let go of at the very end */
    ck_assert_int_eq(data_dir_lock(w->path, &dir, NULL), -BROOK_E_LOCKED);
    hosting_free(w->hosting);
    ck_assert_int_eq(data_dir_lock(w->path, &dir, NULL), 0);
    data_dir_close(dir, false);
    image_free(w->image);
    inbox_done(&w->inbox);
}

static void count_answer(struct partition_append *a)
{
    (void)a;
}

static int append_one(struct world *w, int64_t *ret_offset)
{
    struct log_batch batch = batches_make(1, T0, 0, 100, 1);
    struct partition_append a = {
        .batches = &batch, .batches_count = 1, .inbox = &w->inbox, .done = count_answer};
    partition_enqueue(hosting_find(w->hosting, w->topic, 0), &a);
    partition_drain(hosting_find(w->hosting, w->topic, 0), &w->inbox);
    *ret_offset = a.base_offset;
    batches_free(&batch);
    return a.error.code;
}

static void append_three(struct world *w)
{
    int64_t offset;
    for (int64_t i = 0; i < 3; i++) {
        ck_assert_int_eq(append_one(w, &offset), 0);
        ck_assert_int_eq(offset, i);
    }
}

/* Three records; then the disk refuses a write, and to take it back. */
static void go_offline(struct world *w)
{
    int64_t offset;
    append_three(w);
    faulty_fail(FAULTY_PWRITEV | FAULTY_TRUNCATE, 1, 2, EIO);
    ck_assert_int_eq(append_one(w, &offset), BROOK_E_STORAGE_ERROR);
    ck_assert_int_eq(append_one(w, &offset), BROOK_E_LOG_OFFLINE);
    w->now_ms += HOSTING_OFFLINE_CHECK_MS;
    hosting_tick(w->hosting, w->now_ms);
}

START_TEST(a_log_that_goes_offline_is_told_of_once_and_opened_anew)
{
    struct world w;
    int64_t offset;
    begin(&w, "offline");
    hosting_tick(w.hosting, w.now_ms);
    go_offline(&w);
    ck_assert(!hosting_leads(w.hosting, w.topic, 0));
    ck_assert_ptr_null(hosting_find(w.hosting, w.topic, 0));
    for (int i = 0; i < 3; i++)
        ck_assert_int_le(hosting_tick(w.hosting, ++w.now_ms), w.now_ms + HOSTING_OFFLINE_CHECK_MS);
    ck_assert_uint_eq(w.errors, 1);
    ck_assert_ptr_nonnull(strstr(w.last_error, "t/0"));
    ck_assert_ptr_nonnull(strstr(w.last_error, "could not be cut back"));
    ck_assert(suite_wait(tick_until_hosted, &w, 5000));
    ck_assert(hosting_leads(w.hosting, w.topic, 0));
    ck_assert_int_eq(append_one(&w, &offset), 0);
    ck_assert_int_eq(offset, 3);
    ck_assert_int_eq(fixture_read_all(partition_log(hosting_find(w.hosting, w.topic, 0)), 0, true), 4);
    ck_assert_uint_eq(w.errors, 1);
    end(&w);
}
END_TEST

/* The page cache may hold, as written, what never reached the disk. */
START_TEST(a_log_whose_sync_failed_is_told_of_once_and_never_opened_anew)
{
    struct world w;
    int64_t offset;
    begin(&w, "unsynced");
    hosting_tick(w.hosting, w.now_ms);
    append_three(&w);
    struct partition *p = hosting_find(w.hosting, w.topic, 0);
    faulty_fail(FAULTY_DATASYNC, 1, 1, EIO);
    ck_assert_int_eq(log_flush(partition_log(p)), -BROOK_E_STORAGE_ERROR);
    for (int i = 0; i < 5; i++) {
        const struct timespec moment = {.tv_nsec = 1000000};
        tick_until_hosted(&w);
        nanosleep(&moment, NULL);
    }
    ck_assert_ptr_eq(hosting_find(w.hosting, w.topic, 0), p);
    ck_assert_uint_eq(w.errors, 1);
    ck_assert_ptr_nonnull(strstr(w.last_error, "t/0"));
    ck_assert_ptr_nonnull(strstr(w.last_error, "a sync failed"));
    ck_assert_int_eq(append_one(&w, &offset), BROOK_E_LOG_OFFLINE);
    set_epoch(&w, 6);
    ck_assert_int_eq(append_one(&w, &offset), BROOK_E_LOG_OFFLINE);
    ck_assert_int_eq(fixture_read_all(partition_log(p), 0, true), 3);
    end(&w);
}
END_TEST

/* In small steps: the checkpoint, which syncs too, is not due before. */
static bool tick_until_struck(void *arg)
{
    struct world *w = arg;
    w->now_ms += 700;
    ck_assert_int_lt(w->now_ms, HOSTING_CHECKPOINT_MS);
    hosting_tick(w->hosting, w->now_ms);
    inbox_drain(&w->inbox);
    return faulty_struck();
}

/* Recovery found the bytes in the page cache and could not sync them: the next sync would say that all is well. */
START_TEST(a_log_whose_recovery_could_not_sync_is_never_opened_anew)
{
    struct world w;
    begin(&w, "unsynced-recovery");
    hosting_tick(w.hosting, w.now_ms);
    go_offline(&w);
    faulty_fail(FAULTY_DATASYNC, 1, 1, EIO);
    ck_assert(suite_wait(tick_until_struck, &w, 10000));
    for (int i = 0; i < 20; i++) {
        const struct timespec moment = {.tv_nsec = 1000000};
        ck_assert(!tick_until_hosted(&w));
        nanosleep(&moment, NULL);
    }
    ck_assert_uint_eq(w.errors, 3); /* offline; not opened; and never */
    ck_assert_ptr_nonnull(strstr(w.last_error, "t/0"));
    ck_assert_ptr_nonnull(strstr(w.last_error, "until the broker is started again"));
    end(&w);
}
END_TEST

/* A view or a pull still holds the old one. */
START_TEST(an_offline_log_is_opened_anew_only_when_nobody_holds_the_old_one)
{
    struct world w;
    begin(&w, "held");
    struct partition *held = partition_ref(hosting_find(w.hosting, w.topic, 0));
    go_offline(&w);
    for (int i = 0; i < 20; i++) {
        const struct timespec moment = {.tv_nsec = 1000000};
        ck_assert(!tick_until_hosted(&w));
        nanosleep(&moment, NULL);
    }
    ck_assert_int_eq(fixture_read_all(partition_log(held), 0, true), 3);
    partition_unref(held);
    ck_assert(suite_wait(tick_until_hosted, &w, 5000));
    ck_assert(hosting_leads(w.hosting, w.topic, 0));
    end(&w);
}
END_TEST

static void *flush(void *log)
{
    log_flush(log);
    return NULL;
}

static bool is_syncing(void *arg)
{
    (void)arg;
    return faulty_stalled() == 1;
}

START_TEST(a_sync_that_fails_after_the_log_went_offline_counts_too)
{
    struct world w;
    pthread_t thread;
    int64_t offset;
    begin(&w, "late");
    ck_assert_int_eq(append_one(&w, &offset), 0);
    struct partition *held = partition_ref(hosting_find(w.hosting, w.topic, 0));
    /* The write, taking it back, and then the sync, which was begun first. */
    faulty_fail(FAULTY_PWRITEV | FAULTY_TRUNCATE | FAULTY_DATASYNC, 1, 3, EIO);
    faulty_stall(FAULTY_DATASYNC);
    ck_assert_int_eq(pthread_create(&thread, NULL, flush, partition_log(held)), 0);
    ck_assert(suite_wait(is_syncing, NULL, 5000));
    ck_assert_int_eq(append_one(&w, &offset), BROOK_E_STORAGE_ERROR);
    w.now_ms += HOSTING_OFFLINE_CHECK_MS;
    hosting_tick(w.hosting, w.now_ms);
    ck_assert_uint_eq(w.errors, 1);
    faulty_release();
    pthread_join(thread, NULL);
    partition_unref(held);
    for (int i = 0; i < 20; i++) {
        const struct timespec moment = {.tv_nsec = 1000000};
        ck_assert(!tick_until_hosted(&w));
        nanosleep(&moment, NULL);
    }
    ck_assert_uint_eq(w.errors, 2);
    ck_assert_ptr_nonnull(strstr(w.last_error, "a sync failed"));
    end(&w);
}
END_TEST

START_TEST(an_epoch_whose_records_were_lost_is_not_led_again)
{
    struct world w;
    struct stat st;
    char segment[PATH_MAX + 64];
    int64_t offset;
    begin(&w, "lost");
    struct partition *held = partition_ref(hosting_find(w.hosting, w.topic, 0));
    go_offline(&w);
    snprintf(segment, sizeof segment, "%s/t-0/00000000000000000000.log", w.path);
    ck_assert_int_eq(stat(segment, &st), 0);
    ck_assert_int_eq(truncate(segment, st.st_size - 1), 0);
    partition_unref(held);
    ck_assert(suite_wait(tick_until_hosted, &w, 5000));
    hosting_follow(w.hosting, w.topic);
    ck_assert(!hosting_leads(w.hosting, w.topic, 0));
    ck_assert_uint_eq(w.errors, 2);
    ck_assert_ptr_nonnull(strstr(w.last_error, "1 records from offset 2 on were lost"));
    set_epoch(&w, 6);
    ck_assert(hosting_leads(w.hosting, w.topic, 0));
    ck_assert_int_eq(append_one(&w, &offset), 0);
    ck_assert_int_eq(offset, 2);
    end(&w);
}
END_TEST

/* The topic may be deleted meanwhile, or the broker stopped. */
START_TEST(an_offline_log_can_be_given_up_and_closed)
{
    struct world w;
    begin(&w, "given_up");
    go_offline(&w);
    hosting_unwant(w.hosting, "t", &w.topic->node.topic_id);
    ck_assert(hosting_has_unwanted(w.hosting));
    ck_assert(!tick_until_hosted(&w));
    end(&w);
}
END_TEST

START_TEST(a_state_that_is_too_old_is_told_of_once)
{
    struct world w;
    begin(&w, "too_old");
    for (int i = 0; i < 5; i++)
        set_epoch(&w, 4);
    ck_assert_uint_eq(w.refusals, 1);
    for (int i = 0; i < 5; i++)
        set_epoch(&w, 3); /* another version */
    ck_assert_uint_eq(w.refusals, 2);
    end(&w);
}
END_TEST

/* ---- compaction ---------------------------------------------------------------------------------------- */

static void append_keyed(struct world *w, int key, int value)
{
    struct keyed k = keyed_record(key, value, T0);
    struct log_batch batch = keyed_batch(CODEC_NONE, &k, 1, -1, -1);
    struct partition *p = hosting_find(w->hosting, w->topic, 0);
    struct partition_append a = {
        .batches = &batch, .batches_count = 1, .inbox = &w->inbox, .done = count_answer};
    partition_enqueue(p, &a);
    partition_drain(p, &w->inbox);
    ck_assert_int_eq(a.error.code, 0);
    batches_free(&batch);
}

static void set_policy(struct world *w, const char *policy)
{
    struct znode_config_entry entry = {(char *)(uintptr_t)"cleanup.policy", (char *)(uintptr_t)policy};
    struct znode_config config = {&entry, 1};
    ck_assert_uint_eq(image_set_config(w->topic, &config, NULL), 0);
    hosting_follow(w->hosting, w->topic);
}

static bool tick_until_cleaned(void *arg)
{
    struct world *w = arg;
    w->now_ms += CLEAN_MS;
    hosting_tick(w->hosting, w->now_ms);
    inbox_drain(&w->inbox);
    return log_cleaned_offset(partition_log(hosting_find(w->hosting, w->topic, 0))) > 0;
}

START_TEST(a_topic_with_that_policy_is_compacted_and_remembered)
{
    struct world w;
    struct keyed *list;
    void *data;
    char expected[64];
    begin(&w, "cleaned");
    for (int i = 0; i < 200; i++)
        append_keyed(&w, i % 3, i);
    hosting_tick(w.hosting, w.now_ms);
    for (int i = 0; i < 3; i++) /* not asked for: nothing happens */
        ck_assert(!tick_until_cleaned(&w));
    set_policy(&w, "compact");
    ck_assert(suite_wait(tick_until_cleaned, &w, 10000));
    struct log *log = partition_log(hosting_find(w.hosting, w.topic, 0));
    int64_t cleaned = log_cleaned_offset(log);
    size_t count = keyed_read_all(log, &list, NULL, NULL);
    ck_assert_uint_lt(count, 200 - (size_t)cleaned + 4);
    ck_assert_int_eq(list[count - 1].offset, 199);
    free(list);
    ck_assert_uint_eq(w.errors, 0);
    end(&w);
    size_t bytes = fixture_load(w.path, "cleaner-offset-checkpoint", &data);
    snprintf(expected, sizeof expected, "0\n1\nt 0 %lld\n", (long long)cleaned);
    ck_assert_uint_eq(bytes, strlen(expected));
    ck_assert_mem_eq(data, expected, bytes);
    free(data);
}
END_TEST

static bool tick_until_refused(void *arg)
{
    struct world *w = arg;
    tick_until_cleaned(w);
    return w->errors > 0;
}

static bool tick_until_second_refusal(void *arg)
{
    struct world *w = arg;
    tick_until_cleaned(w);
    return w->errors > 1;
}

/* Long before the time that other failures wait, though it was tried in vain. */
START_TEST(a_compaction_without_room_is_tried_again_soon_and_when_there_is_some)
{
    struct world w;
    begin(&w, "no-room");
    for (int i = 0; i < 200; i++)
        append_keyed(&w, i % 3, i);
    faulty_free_bytes(w.path, 0);
    hosting_tick(w.hosting, w.now_ms);
    faulty_only(".cleaned");
    faulty_fail(FAULTY_PWRITEV, 1, 1000000, ENOSPC);
    set_policy(&w, "compact");
    ck_assert(suite_wait(tick_until_refused, &w, 10000));
    ck_assert_msg(strstr(w.last_error, "not compacted, tried again in 5 s, or when there is room"), "%s", w.last_error);
    faulty_free_bytes(w.path, 1 << 30); /* so it seems */
    ck_assert(suite_wait(tick_until_second_refusal, &w, 30000));
    ck_assert_msg(strstr(w.last_error, "tried again in 10 s"), "%s", w.last_error);
    faulty_reset();
    ck_assert(suite_wait(tick_until_cleaned, &w, HOSTING_CLEAN_RETRY_MS / 5));
    ck_assert_uint_eq(w.errors, 2);
    faulty_free_bytes("", -1);
    end(&w);
}
END_TEST

static bool pump_until_begun(void *arg)
{
    struct world *w = arg;
    w->now_ms += CLEAN_MS;
    hosting_tick(w->hosting, w->now_ms);
    inbox_drain(&w->inbox);
    return faulty_calls(FAULTY_PREAD) > 0; /* nobody else reads */
}

static bool pump_until_gone(void *arg)
{
    struct world *w = arg;
    inbox_drain(&w->inbox);
    return fixture_count_files(w->log_path, ".log") == 0;
}

static bool is_deleted(void *arg, const struct topic_id *topic_id)
{
    (void)arg;
    (void)topic_id;
    return true;
}

/* With a rate at which it would take days. */
static void begin_slowly(struct world *w, const char *name)
{
    begin_at_rate(w, name, 1000);
    for (int i = 0; i < 2500; i++)
        append_keyed(w, i % 50, i);
    hosting_tick(w->hosting, w->now_ms);
    faulty_reset();
    set_policy(w, "compact");
    ck_assert(suite_wait(pump_until_begun, w, 10000));
}

START_TEST(neither_the_end_nor_a_deletion_waits_for_a_compaction)
{
    struct world w;
    begin_slowly(&w, "stopped");
    end(&w); /* bounded */
    ck_assert_int_eq(fixture_count_files(w.log_path, ".cleaned"), 0);

    begin_slowly(&w, "deleted");
    hosting_unwant(w.hosting, "t", &w.topic->node.topic_id);
    hosting_give_up(w.hosting, is_deleted, NULL);
    ck_assert(suite_wait(pump_until_gone, &w, 10000));
    end(&w);
}
END_TEST

SUITE_MAIN("unit/cluster/hosting", SUITE_TEST(a_topic_with_that_policy_is_compacted_and_remembered),
           SUITE_TEST_SLOW(a_compaction_without_room_is_tried_again_soon_and_when_there_is_some, 90),
           SUITE_TEST_SLOW(neither_the_end_nor_a_deletion_waits_for_a_compaction, 60),
           SUITE_TEST(a_log_that_goes_offline_is_told_of_once_and_opened_anew),
           SUITE_TEST(a_log_whose_sync_failed_is_told_of_once_and_never_opened_anew),
           SUITE_TEST(a_log_whose_recovery_could_not_sync_is_never_opened_anew),
           SUITE_TEST(an_offline_log_is_opened_anew_only_when_nobody_holds_the_old_one),
           SUITE_TEST(a_sync_that_fails_after_the_log_went_offline_counts_too),
           SUITE_TEST(an_epoch_whose_records_were_lost_is_not_led_again),
           SUITE_TEST(an_offline_log_can_be_given_up_and_closed),
           SUITE_TEST(a_state_that_is_too_old_is_told_of_once))
