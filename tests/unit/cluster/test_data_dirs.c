/* Several data directories: which one a new partition goes to, and that one which is full or fails leaves the others
 * alone. And hosting as a whole on a disk whose k-th call fails. */
#include "broker/cluster/hosting.h"

#include "broker/partition/partition.h"
#include "broker/storage/data_dir.h"
#include "proto/base/diag.h"
#include "tests/support/faulty_io.h"
#include "tests/unit/storage/fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BROKER 1
#define CLUSTER "wUxlYmA2Qzq9qPEkQJaYsg"
#define DIRS 2
#define PARTITIONS 6
#define ROOM 1000

/* Hosting over the directories "a" and "b", life after life, and a topic; time is what the test says it is. */
struct world {
    struct inbox inbox;
    struct hosting *hosting;
    struct image *image;
    struct image_topic *topic;
    struct diag diag;
    char paths[DIRS][PATH_MAX];
    int dirs_count;
    struct topic_config config;
    int64_t broker_epoch; /* which life it is */
    int64_t noted_epoch;
    int64_t now_ms;
    bool is_opened, is_closed, was_clean;
    int open_code;
    unsigned errors, warnings;
    bool is_distrusted; /* a sync or a directory failed: until the next life */
    char last_error[700], last_warning[700];
    int64_t stored[PARTITIONS]; /* records that were acknowledged */
    int awaited;                /* a partition, or an answer */
};

static void note_line(void *arg, enum diag_level level, const char *subject, const char *message)
{
    struct world *w = arg;
    w->is_distrusted = w->is_distrusted || (level == DIAG_ERROR && (strstr(message, "a sync failed") ||
                                                                    strstr(message, "the data directory")));
    if (level == DIAG_ERROR) {
        w->errors++;
        snprintf(w->last_error, sizeof w->last_error, "%s %s", subject, message);
    } else if (level == DIAG_WARN) {
        w->warnings++;
        snprintf(w->last_warning, sizeof w->last_warning, "%s %s", subject, message);
    }
}

static void opened(void *arg, const struct brook_error *error)
{
    struct world *w = arg;
    w->open_code = error->code;
    w->is_opened = true;
}

static void changed(void *arg, const char *topic, int32_t number)
{
    struct world *w = arg;
    (void)topic;
    hosting_follow_one(w->hosting, w->topic, number);
}

static void closed(void *arg, bool clean)
{
    struct world *w = arg;
    w->is_closed = true;
    w->was_clean = clean;
}

static void put_topic(struct world *w, uint8_t id)
{
    struct znode_topic node = {.topic_id = {{id}}, .partitions_count = PARTITIONS};
    node.replicas = calloc(PARTITIONS, sizeof *node.replicas);
    for (int i = 0; i < PARTITIONS; i++) {
        node.replicas[i] = (struct znode_replicas){calloc(1, sizeof(int32_t)), 1};
        node.replicas[i].brokers[0] = BROKER;
    }
    ck_assert_int_eq(image_put_topic(w->image, "t", &node, id, &w->topic), 0);
}

/* As the controller does: epoch 0 when it was made in this life, a new one after each registration. */
static void put_state(struct world *w, int partition, int32_t epoch)
{
    struct znode_state state = {.leader = BROKER, .leader_epoch = epoch, .isr_count = 1};
    state.isr[0] = BROKER;
    state.isr_epochs[0] = w->broker_epoch;
    ck_assert_int_eq(image_set_state(w->topic, partition, &state, epoch), 0);
    hosting_follow_one(w->hosting, w->topic, partition);
}

/* ---- waiting ---------------------------------------------------------------------------------------- */

static bool is_opened(void *arg)
{
    struct world *w = arg;
    inbox_drain(&w->inbox);
    return w->is_opened;
}

static bool is_closed(void *arg)
{
    struct world *w = arg;
    inbox_drain(&w->inbox);
    return w->is_closed;
}

static bool is_led(void *arg)
{
    struct world *w = arg;
    inbox_drain(&w->inbox);
    return hosting_leads(w->hosting, w->topic, w->awaited);
}

static bool is_hosted(void *arg)
{
    struct world *w = arg;
    inbox_drain(&w->inbox);
    return hosting_find(w->hosting, w->topic, w->awaited) != NULL;
}

static bool is_led_at_last(void *arg)
{
    struct world *w = arg;
    w->now_ms += HOSTING_RETRY_MS + 1;
    hosting_tick(w->hosting, w->now_ms);
    return is_led(arg);
}

static bool is_told(void *arg)
{
    struct world *w = arg;
    w->now_ms += HOSTING_SPACE_MS;
    hosting_tick(w->hosting, w->now_ms);
    inbox_drain(&w->inbox);
    return (int)(w->errors + w->warnings) >= w->awaited;
}

static bool is_led_or_told(void *arg)
{
    struct world *w = arg;
    return is_led(arg) || w->errors > 0;
}

static void wait_led(struct world *w, int partition)
{
    w->awaited = partition;
    ck_assert_msg(suite_wait(is_led, w, 5000), "partition %d is not led: %s", partition, w->last_error);
}

/* Until there were so many lines that warn. */
static void wait_told(struct world *w, int lines)
{
    w->awaited = lines;
    ck_assert(suite_wait(is_told, w, 5000));
}

/* ---- a life ----------------------------------------------------------------------------------------- */

static void init(struct world *w, const char *name, int dirs_count)
{
    faulty_reset();
    faulty_free_bytes("", -1);
    *w = (struct world){.now_ms = 1000, .dirs_count = dirs_count};
    w->diag = (struct diag){.level_min = DIAG_INFO, .sink = note_line, .sink_arg = w};
    w->config = (struct topic_config){.log = fixture_settings(), .message_bytes_max = 1 << 20};
    w->config.log.retention_ms = -1;
    for (int i = 0; i < DIRS; i++) {
        snprintf(w->paths[i], sizeof w->paths[i], "%.3000s-%c", fixture_log_path(name), 'a' + i);
        suite_remove_tree(w->paths[i]);
    }
    ck_assert_int_eq(inbox_init(&w->inbox), 0);
    ck_assert_int_eq(image_new(&w->config, &w->image), 0);
    put_topic(w, 1);
}

static void noted(void *arg, int64_t broker_epoch)
{
    struct world *w = arg;
    w->noted_epoch = broker_epoch;
}

static bool is_noted(void *arg)
{
    struct world *w = arg;
    inbox_drain(&w->inbox);
    return w->noted_epoch == w->broker_epoch;
}

/* Begin a life. Returns the code that the broker could not start with. */
static int start(struct world *w)
{
    const char *dirs[DIRS] = {w->paths[0], w->paths[1]};
    struct hosting_settings settings = {.broker_id = BROKER,
                                        .data_dirs = dirs,
                                        .data_dirs_count = (size_t)w->dirs_count,
                                        .disk_threads = 1,
                                        .retention_check_ms = HOSTING_CHECKPOINT_MS,
                                        .free_bytes_min = ROOM,
                                        .defaults = &w->config,
                                        .diag = &w->diag};
    struct hosting_events events = {opened, changed, noted, closed, w, NULL, NULL};
    struct brook_error error = {0};
    w->is_opened = w->is_closed = false;
    w->broker_epoch++;
    ck_assert_int_eq(hosting_new(&settings, &w->inbox, &events, &w->hosting), 0);
    w->open_code = -hosting_lock(w->hosting, &error);
    if (w->open_code) {
        snprintf(w->last_error, sizeof w->last_error, "%s", error.text);
        return w->open_code;
    }
    hosting_open(w->hosting, CLUSTER);
    ck_assert(suite_wait(is_opened, w, 5000));
    if (!w->open_code)
        hosting_set_broker_epoch(w->hosting, w->broker_epoch);
    return w->open_code;
}

static void stop(struct world *w)
{
    hosting_close(w->hosting);
    ck_assert(suite_wait(is_closed, w, 10000));
    hosting_free(w->hosting);
    w->hosting = NULL;
}

static void done(struct world *w)
{
    image_free(w->image);
    inbox_done(&w->inbox);
}

static bool is_there(const struct world *w, int dir, const char *name)
{
    char path[PATH_MAX + 64];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", w->paths[dir], name);
    return stat(path, &st) == 0;
}

static bool has_partition(const struct world *w, int dir, int partition)
{
    char name[32];
    snprintf(name, sizeof name, "t-%d", partition);
    return is_there(w, dir, name);
}

static int dir_of(const struct world *w, int partition)
{
    ck_assert_int_ne(has_partition(w, 0, partition), has_partition(w, 1, partition));
    return has_partition(w, 0, partition) ? 0 : 1;
}

struct asked {
    struct world *world;
    struct partition_append append;
    bool is_answered;
};

static void note_answer(struct partition_append *a)
{
    CONTAINER_OF(a, struct asked, append)->is_answered = true;
}

static bool is_answered(void *arg)
{
    struct asked *asked = arg;
    inbox_drain(&asked->world->inbox);
    return asked->is_answered;
}

/* Returns the code; what is acknowledged is counted, and must have the next offset. */
static int append(struct world *w, int partition)
{
    struct partition *p = hosting_find(w->hosting, w->topic, partition);
    if (!p)
        return BROOK_E_NOT_LEADER;
    struct log_batch batch = batches_make(2, T0, 0, 100, (uint32_t)w->stored[partition]);
    struct asked asked = {.world = w,
                          .append = {.batches = &batch, .batches_count = 1, .inbox = &w->inbox, .done = note_answer}};
    partition_enqueue(p, &asked.append);
    partition_drain(p, &w->inbox);
    ck_assert(suite_wait(is_answered, &asked, 5000)); /* retention may have the append lock */
    if (asked.append.error.code == 0) {
        ck_assert_int_eq(asked.append.base_offset, w->stored[partition]);
        w->stored[partition] += 2;
    }
    batches_free(&batch);
    return asked.append.error.code;
}

static void check_records(struct world *w, int partition)
{
    struct log *log = partition_log(hosting_find(w->hosting, w->topic, partition));
    ck_assert_int_eq(log_end_offset(log), w->stored[partition]);
    ck_assert_int_eq(fixture_read_all(log, 0, true), w->stored[partition]);
}

/* All partitions made in this life, with records. */
static void begin(struct world *w, const char *name)
{
    init(w, name, DIRS);
    ck_assert_int_eq(start(w), 0);
    for (int i = 0; i < PARTITIONS; i++) {
        put_state(w, i, 0);
        wait_led(w, i);
        for (int k = 0; k < 3; k++)
            ck_assert_int_eq(append(w, i), 0);
    }
}

static void begin_again(struct world *w)
{
    ck_assert_int_eq(start(w), 0);
    for (int i = 0; i < PARTITIONS; i++) {
        put_state(w, i, (int32_t)w->broker_epoch);
        wait_led(w, i);
        check_records(w, i);
        ck_assert_int_eq(append(w, i), 0);
    }
}

/* ---- choosing --------------------------------------------------------------------------------------- */

START_TEST(new_partitions_go_to_the_emptiest_directory)
{
    struct world w;
    int count[DIRS] = {0};
    begin(&w, "emptiest");
    for (int i = 0; i < PARTITIONS; i++)
        count[dir_of(&w, i)]++;
    ck_assert_int_eq(count[0], PARTITIONS / 2);
    ck_assert_int_eq(count[1], PARTITIONS / 2);
    stop(&w);
    ck_assert(w.was_clean && is_there(&w, 0, ".kafka_cleanshutdown") && is_there(&w, 1, ".kafka_cleanshutdown"));
    begin_again(&w);
    stop(&w);
    done(&w);
}
END_TEST

START_TEST(a_partition_that_one_directory_can_not_take_goes_to_another)
{
    struct world w;
    init(&w, "elsewhere", DIRS);
    ck_assert_int_eq(start(&w), 0);
    faulty_fail(FAULTY_PWRITEV, 1, 1 << 30, EIO);
    faulty_only("elsewhere-a/t-0");
    put_state(&w, 0, 0); /* the directory is made, and its topic id can not be written */
    w.awaited = 0;
    ck_assert(suite_wait(is_led_at_last, &w, 5000));
    ck_assert(has_partition(&w, 0, 0) && has_partition(&w, 1, 0));
    ck_assert_int_eq(append(&w, 0), 0);
    faulty_reset();
    stop(&w);
    w.warnings = 0;
    ck_assert_int_eq(start(&w), 0);
    ck_assert_uint_ge(w.warnings, 1);
    ck_assert_ptr_nonnull(strstr(w.last_warning, "holds nothing, and was set aside"));
    put_state(&w, 0, 1);
    wait_led(&w, 0);
    check_records(&w, 0);
    ck_assert(!has_partition(&w, 0, 0) && has_partition(&w, 1, 0));
    stop(&w);
    done(&w);
}
END_TEST

/* ---- full ------------------------------------------------------------------------------------------- */

START_TEST(a_directory_without_room_takes_nothing_until_it_has_some)
{
    struct world w;
    init(&w, "full", DIRS);
    ck_assert_int_eq(start(&w), 0);
    for (int i = 0; i < 2; i++) {
        put_state(&w, i, 0);
        wait_led(&w, i);
        ck_assert_int_eq(append(&w, i), 0);
    }
    int full = dir_of(&w, 0);
    char part[16];
    snprintf(part, sizeof part, "full-%c", 'a' + full);
    faulty_free_bytes(part, ROOM - 1);
    wait_told(&w, 1);
    ck_assert_ptr_nonnull(strstr(w.last_warning, part));
    ck_assert_int_eq(append(&w, 0), BROOK_E_STORAGE_FULL);
    ck_assert_int_eq(append(&w, 1), 0);
    check_records(&w, 0); /* reading goes on */
    for (int i = 2; i < PARTITIONS; i++) {
        put_state(&w, i, 0);
        wait_led(&w, i);
        ck_assert_int_eq(dir_of(&w, i), 1 - full);
    }
    faulty_free_bytes(part, ROOM); /* a little more is wanted, or it would turn round at each record */
    for (int i = 0; i < 5; i++) {
        w.awaited = 0;
        is_told(&w);
        ck_assert_int_eq(append(&w, 0), BROOK_E_STORAGE_FULL);
    }
    faulty_free_bytes(part, 2 * ROOM);
    w.awaited = 0;
    for (int i = 0; i < 1000 && append(&w, 0) != 0; i++) {
        is_told(&w);
        usleep(1000);
    }
    ck_assert_int_eq(w.stored[0], 4);
    ck_assert_uint_eq(w.warnings, 1);
    ck_assert_uint_eq(w.errors, 0);
    stop(&w);
    ck_assert(w.was_clean);
    done(&w);
}
END_TEST

START_TEST(a_broker_starts_full_and_new_partitions_wait_for_room)
{
    struct world w;
    begin(&w, "fullstart");
    stop(&w);
    faulty_free_bytes("", 0);
    ck_assert_int_eq(start(&w), 0);
    for (int i = 0; i < PARTITIONS; i++) {
        put_state(&w, i, 1);
        wait_led(&w, i);
        check_records(&w, i);
        ck_assert_int_eq(append(&w, i), BROOK_E_STORAGE_FULL); /* from the first moment on */
    }
    w.errors = 0;
    put_topic(&w, 2); /* the old one is gone */
    hosting_unwant(w.hosting, "t", &(struct topic_id){{1}});
    stop(&w);
    done(&w);

    init(&w, "fullnew", DIRS);
    faulty_free_bytes("", 0);
    ck_assert_int_eq(start(&w), 0);
    put_state(&w, 0, 0);
    ck_assert_uint_eq(w.errors, 1);
    ck_assert_ptr_nonnull(strstr(w.last_error, "every data directory is full or has failed"));
    hosting_follow(w.hosting, w.topic);
    ck_assert_uint_eq(w.errors, PARTITIONS); /* once each */
    faulty_free_bytes("", -1);
    w.awaited = 0;
    ck_assert(suite_wait(is_led_at_last, &w, 5000));
    ck_assert_int_eq(append(&w, 0), 0);
    stop(&w);
    ck_assert(w.was_clean);
    done(&w);
}
END_TEST

/* ---- failing ---------------------------------------------------------------------------------------- */

/* Partitions of directory `failed` are offline and can be read, the others go on; the next start finds everything. */
static void check_only_one_failed(struct world *w, int failed)
{
    for (int i = 0; i < PARTITIONS; i++) {
        ck_assert_int_eq(append(w, i), dir_of(w, i) == failed ? BROOK_E_LOG_OFFLINE : 0);
        check_records(w, i);
    }
    for (int i = 0; i < 3; i++) {
        w->awaited = 0;
        is_told(w);
    }
    ck_assert_uint_eq(w->errors, 1);
    ck_assert_ptr_nonnull(strstr(w->last_error, w->paths[failed]));
    ck_assert_ptr_nonnull(strstr(w->last_error, "3 partitions in it are offline"));
    ck_assert_ptr_nonnull(strstr(w->last_error, "1 other directories go on"));
    faulty_reset(); /* the disk may be well again: this life does not trust it any more */
    for (int i = 0; i < PARTITIONS; i++)
        ck_assert_int_eq(append(w, i), dir_of(w, i) == failed ? BROOK_E_LOG_OFFLINE : 0);
    stop(w);
    ck_assert(!w->was_clean);
    ck_assert(!is_there(w, failed, ".kafka_cleanshutdown"));
    ck_assert(is_there(w, 1 - failed, ".kafka_cleanshutdown"));
    begin_again(w);
    stop(w);
    done(w);
}

START_TEST(a_directory_whose_checkpoint_fails_takes_only_its_partitions_offline)
{
    struct world w;
    begin(&w, "checkpoint");
    hosting_tick(w.hosting, w.now_ms);
    faulty_fail(FAULTY_CHANGES, 1, 1 << 30, EIO);
    faulty_only("checkpoint-a/recovery-point");
    w.now_ms += HOSTING_CHECKPOINT_MS;
    wait_told(&w, 1);
    ck_assert_ptr_nonnull(strstr(w.last_error, "Input/output error"));
    check_only_one_failed(&w, 0);
}
END_TEST

START_TEST(a_directory_whose_file_system_is_gone_or_read_only_is_one_that_failed)
{
    const int errors[] = {EIO, EROFS};
    for (int i = 0; i < 2; i++) {
        struct world w;
        begin(&w, i ? "readonly" : "gone");
        faulty_fail(FAULTY_FREE_BYTES, 1, 1 << 30, errors[i]);
        faulty_only("-b");
        wait_told(&w, 1);
        check_only_one_failed(&w, 1);
    }
}
END_TEST

START_TEST(a_shortage_of_the_process_or_of_room_is_not_the_directorys_failure)
{
    const int errors[] = {ENOSPC, EMFILE, ENOMEM};
    struct world w;
    begin(&w, "shortage");
    hosting_tick(w.hosting, w.now_ms);
    for (unsigned i = 0; i < 3; i++) {
        faulty_fail(FAULTY_OPEN, 1, 1 << 30, errors[i]);
        faulty_only("-checkpoint");
        w.now_ms += HOSTING_CHECKPOINT_MS;
        wait_told(&w, (int)(i + 1) * DIRS);
        ck_assert_ptr_nonnull(strstr(w.last_warning, "checkpoints not written"));
    }
    faulty_reset();
    ck_assert_uint_eq(w.errors, 0);
    for (int i = 0; i < PARTITIONS; i++)
        ck_assert_int_eq(append(&w, i), 0);
    stop(&w);
    ck_assert(w.was_clean);
    done(&w);
}
END_TEST

START_TEST(a_directory_that_can_not_be_read_at_the_start_is_done_without)
{
    struct world w;
    const unsigned kinds[] = {FAULTY_OPEN, FAULTY_UNLINK, FAULTY_SYNC_DIRECTORY};
    begin(&w, "missing");
    stop(&w);
    for (int k = 0; k < 3; k++) {
        int32_t epoch = (int32_t)w.broker_epoch + 1;
        faulty_fail(kinds[k], 1, 1 << 30, EIO);
        faulty_only("missing-a");
        w.errors = 0;
        ck_assert_int_eq(start(&w), 0);
        ck_assert_uint_eq(w.errors, 1);
        ck_assert_ptr_nonnull(strstr(w.last_error, "missing-a failed"));
        ck_assert_ptr_nonnull(strstr(w.last_error, "Input/output error"));
        if (k == 0)
            ck_assert_str_eq(hosting_first_dir(w.hosting), w.paths[1]);
        for (int i = 0; i < PARTITIONS; i++) {
            put_state(&w, i, epoch);
            if (has_partition(&w, 0, i))
                continue;
            wait_led(&w, i);
            check_records(&w, i);
            ck_assert_int_eq(append(&w, i), 0);
        }
        for (int i = 0; i < 3; i++) { /* the others are not made anew elsewhere, and that is said once each */
            hosting_follow(w.hosting, w.topic);
            w.awaited = 0;
            ck_assert(!is_led_at_last(&w) || !has_partition(&w, 0, 0));
        }
        for (int i = 0; i < PARTITIONS; i++)
            dir_of(&w, i);
        ck_assert_uint_eq(w.errors, 1 + PARTITIONS / 2);
        faulty_reset();
        stop(&w);
        ck_assert(!w.was_clean);
        ck_assert(is_there(&w, 1, ".kafka_cleanshutdown"));
    }
    begin_again(&w);
    stop(&w);
    done(&w);
}
END_TEST

/* Partitions that were in directory 0 are offline, said so once each, those of 1 go on. */
static void check_missed(struct world *w, const bool *was_in_a)
{
    for (int i = 0; i < PARTITIONS; i++) {
        put_state(w, i, (int32_t)w->broker_epoch);
        if (was_in_a[i])
            continue;
        wait_led(w, i);
        check_records(w, i);
        ck_assert_int_eq(append(w, i), 0);
    }
    for (int i = 0; i < 3; i++) {
        hosting_follow(w->hosting, w->topic);
        for (int k = 0; k < PARTITIONS; k++) {
            w->awaited = k;
            ck_assert(is_led_at_last(w) != was_in_a[k]);
        }
    }
    ck_assert_uint_eq(w->errors, PARTITIONS / 2);
    ck_assert_ptr_nonnull(strstr(w->last_error, "is found nowhere"));
}

START_TEST(a_directory_that_is_empty_now_is_not_taken_for_new)
{
    struct world w;
    bool was_in_a[PARTITIONS];
    char away[PATH_MAX + 8];
    begin(&w, "unmounted");
    for (int i = 0; i < PARTITIONS; i++)
        was_in_a[i] = dir_of(&w, i) == 0;
    stop(&w);
    snprintf(away, sizeof away, "%s.away", w.paths[0]);
    suite_remove_tree(away);
    ck_assert_int_eq(rename(w.paths[0], away), 0);
    for (int life = 0; life < 2; life++) { /* the second start knows too */
        w.errors = w.warnings = 0;
        ck_assert_int_eq(start(&w), 0);
        ck_assert_uint_eq(w.warnings, 1);
        ck_assert_ptr_nonnull(strstr(w.last_warning, "unmounted-a has no meta.properties"));
        check_missed(&w, was_in_a);
        hosting_compare(w.hosting, w.image);
        for (int i = 0; i < PARTITIONS; i++)
            ck_assert(!was_in_a[i] || !has_partition(&w, 0, i));
        stop(&w);
        ck_assert(!is_there(&w, 0, "meta.properties"));
    }
    suite_remove_tree(w.paths[0]);
    ck_assert_int_eq(rename(away, w.paths[0]), 0); /* mounted again: all is there */
    begin_again(&w);
    stop(&w);
    done(&w);
}
END_TEST

START_TEST(what_was_in_an_empty_directory_is_fetched_anew_from_others)
{
    struct world w;
    begin(&w, "refilled");
    stop(&w);
    int lost = dir_of(&w, 0);
    suite_remove_tree(w.paths[lost]);
    ck_assert_int_eq(start(&w), 0);
    put_state(&w, 0, 2);
    ck_assert_ptr_null(hosting_find(w.hosting, w.topic, 0));
    struct znode_state state = {.leader = BROKER + 1, .leader_epoch = 3, .isr_count = 1};
    state.isr[0] = BROKER + 1;
    ck_assert_int_eq(image_set_state(w.topic, 0, &state, 3), 0);
    hosting_follow_one(w.hosting, w.topic, 0);
    w.awaited = 0;
    ck_assert(suite_wait(is_hosted, &w, 5000));
    ck_assert(has_partition(&w, lost, 0));
    stop(&w);
    done(&w);
}
END_TEST

START_TEST(a_directory_that_was_added_takes_new_partitions)
{
    struct world w;
    init(&w, "added", 1);
    ck_assert_int_eq(start(&w), 0);
    for (int i = 0; i < PARTITIONS - 1; i++) {
        put_state(&w, i, 0);
        wait_led(&w, i);
        ck_assert_int_eq(append(&w, i), 0);
    }
    stop(&w);
    w.dirs_count = 2;
    ck_assert_int_eq(start(&w), 0);
    ck_assert_uint_eq(w.warnings, 1);
    for (int i = 0; i < PARTITIONS; i++) {
        put_state(&w, i, i < PARTITIONS - 1 ? 1 : 0);
        wait_led(&w, i);
        check_records(&w, i);
        ck_assert_int_eq(append(&w, i), 0);
    }
    ck_assert_int_eq(dir_of(&w, PARTITIONS - 1), 1);
    hosting_compare(w.hosting, w.image);
    ck_assert_uint_eq(w.errors, 0);
    stop(&w);
    ck_assert(w.was_clean && is_there(&w, 1, "meta.properties"));
    begin_again(&w);
    ck_assert_uint_eq(w.warnings, 1);
    stop(&w);
    done(&w);
}
END_TEST

START_TEST(an_only_directory_that_is_empty_begins_anew_loudly)
{
    struct world w;
    init(&w, "blank", 1);
    ck_assert_int_eq(start(&w), 0);
    put_state(&w, 0, 0);
    wait_led(&w, 0);
    ck_assert_uint_eq(w.warnings, 0);
    stop(&w);
    suite_remove_tree(w.paths[0]);
    ck_assert_int_eq(start(&w), 0);
    put_state(&w, 0, 1);
    wait_led(&w, 0);
    ck_assert_uint_eq(w.warnings, 1);
    ck_assert_ptr_nonnull(strstr(w.last_warning, "its log is not here: it begins anew"));
    stop(&w);
    done(&w);
}
END_TEST

START_TEST(what_is_made_while_a_directory_is_missing_goes_to_another)
{
    struct world w;
    init(&w, "newwhile", DIRS);
    faulty_fail(FAULTY_OPEN, 1, 1 << 30, EIO);
    faulty_only("newwhile-a");
    ck_assert_int_eq(start(&w), 0);
    put_state(&w, 0, 0); /* of this life */
    wait_led(&w, 0);
    ck_assert_int_eq(append(&w, 0), 0);
    ck_assert_int_eq(dir_of(&w, 0), 1);
    faulty_reset();
    stop(&w);
    done(&w);
}
END_TEST

START_TEST(without_any_directory_a_broker_does_not_start)
{
    struct world w;
    begin(&w, "none");
    stop(&w);
    faulty_fail(FAULTY_OPEN, 1, 1 << 30, EIO);
    faulty_only("none-");
    ck_assert_int_eq(start(&w), BROOK_E_STORAGE_ERROR);
    ck_assert_ptr_nonnull(strstr(w.last_error, "Input/output error"));
    hosting_free(w.hosting);
    faulty_fail(FAULTY_OPEN, 1, 1 << 30, EIO);
    faulty_only("meta.properties");
    ck_assert_int_eq(start(&w), BROOK_E_STORAGE_ERROR);
    stop(&w);
    faulty_reset();
    begin_again(&w);
    stop(&w);
    done(&w);
}
END_TEST

/* ---- the k-th call ---------------------------------------------------------------------------------- */

/* Two partitions of one directory; their segments are small and few are kept. */
static void begin_small(struct world *w, const char *name)
{
    init(w, name, 1);
    w->config.log.segment_bytes = 3000;
    w->config.log.retention_bytes = 6000;
}

/* A life: start, two partitions, records over many rolls, retention, checkpoints. `is_one_shot`: what fails is well the next
 * time. */
static void live(struct world *w, bool is_one_shot)
{
    for (int i = 0; i < 2; i++)
        put_state(w, i, 0);
    for (int i = 0; i < 2; i++) {
        w->awaited = i;
        suite_wait(is_one_shot ? is_led_at_last : is_led_or_told, w, 5000);
    }
    for (int round = 0; round < 2; round++) {
        for (int k = 0; k < 30; k++)
            append(w, k % 2);
        w->now_ms += HOSTING_CHECKPOINT_MS;
        for (int i = 0; i < 4; i++) {
            w->awaited = 0;
            is_told(w);
            usleep(300);
        }
    }
}

static bool takes_records_again(void *arg)
{
    struct world *w = arg;
    return w->is_distrusted || (is_led_at_last(w) && append(w, w->awaited) == 0);
}

/* The disk is well again, and so is service, without a restart: unless the log or the directory is one that this life
 * does not trust any more. */
static void check_healed(struct world *w)
{
    for (int i = 0; i < 2; i++) {
        w->awaited = i;
        bool is_well = suite_wait(takes_records_again, w, 5000);
        ck_assert_msg(is_well, "%s", w->last_error);
    }
}

/* Whatever was acknowledged is there, nothing else is, and the next record goes behind it. */
static void check_next_life(struct world *w)
{
    ck_assert_int_eq(start(w), 0);
    for (int i = 0; i < 2; i++) {
        put_state(w, i, (int32_t)w->broker_epoch);
        wait_led(w, i);
        struct log *log = partition_log(hosting_find(w->hosting, w->topic, i));
        int64_t first = log_start_offset(log);
        ck_assert_int_eq(log_end_offset(log), w->stored[i]);
        ck_assert_int_eq(fixture_read_all(log, first, true), w->stored[i] - first);
        ck_assert_int_eq(append(w, i), 0);
    }
    stop(w);
    ck_assert(w->was_clean);
    done(w);
}

/* `in_a_row` calls fail, from the k-th on, for every k. */
static void fail_everywhere(const char *name, int error, int in_a_row)
{
    bool struck = true;
    int k;
    for (k = 1; struck; k++) {
        struct world w;
        begin_small(&w, name);
        faulty_fail(FAULTY_CHANGES, k, in_a_row, error);
        bool is_started = start(&w) == 0;
        if (is_started)
            live(&w, in_a_row == 1);
        struck = faulty_struck();
        if (k % 3 == 0)
            faulty_reset();
        if (is_started && k % 3 == 0)
            check_healed(&w);
        if (w.is_opened || is_started)
            stop(&w);
        else
            hosting_free(w.hosting);
        faulty_reset();
        check_next_life(&w);
    }
    fprintf(stderr, "# %d calls\n", k - 2);
    ck_assert_int_gt(k, 60);
}

START_TEST(a_disk_that_fails_once_loses_nothing_wherever_that_is)
{
    fail_everywhere("once", EIO, 1);
}
END_TEST

START_TEST(a_disk_that_fails_for_good_loses_nothing_wherever_that_is)
{
    fail_everywhere("forever", EIO, 1 << 30);
}
END_TEST

START_TEST(a_disk_that_is_full_from_any_call_on_loses_nothing)
{
    fail_everywhere("fullfrom", ENOSPC, 1 << 30);
}
END_TEST

/* ---- registrations ---------------------------------------------------------------------------------- */

static void note(struct world *w)
{
    hosting_note_registration(w->hosting, w->broker_epoch - 1);
    hosting_note_registration(w->hosting, w->broker_epoch); /* the newest counts */
    ck_assert(suite_wait(is_noted, w, 5000));
    ck_assert_int_eq(hosting_disk_from(w->hosting), w->broker_epoch);
}

static void crash(struct world *w)
{
    hosting_free(w->hosting);
    w->hosting = NULL;
}

START_TEST(the_disks_name_a_registration_only_when_all_of_them_do)
{
    struct world w;
    init(&w, "registration", 2);
    ck_assert_int_eq(start(&w), 0);
    ck_assert_int_eq(hosting_disk_from(w.hosting), -1);
    note(&w);
    crash(&w);
    ck_assert_int_eq(start(&w), 0);
    ck_assert_int_eq(hosting_disk_from(w.hosting), w.broker_epoch - 1);
    note(&w);
    crash(&w);
    suite_remove_tree(w.paths[1]); /* another disk: an empty one */
    ck_assert_int_eq(start(&w), 0);
    ck_assert_int_eq(hosting_disk_from(w.hosting), -1);
    note(&w);
    crash(&w);
    w.dirs_count = 1; /* taken away */
    ck_assert_int_eq(start(&w), 0);
    ck_assert_int_eq(hosting_disk_from(w.hosting), -1);
    stop(&w);
    done(&w);
}
END_TEST

SUITE_MAIN("cluster/data_dirs", SUITE_TEST(the_disks_name_a_registration_only_when_all_of_them_do),
           SUITE_TEST(new_partitions_go_to_the_emptiest_directory),
           SUITE_TEST(a_partition_that_one_directory_can_not_take_goes_to_another),
           SUITE_TEST(a_directory_without_room_takes_nothing_until_it_has_some),
           SUITE_TEST(a_broker_starts_full_and_new_partitions_wait_for_room),
           SUITE_TEST(a_directory_whose_checkpoint_fails_takes_only_its_partitions_offline),
           SUITE_TEST(a_directory_whose_file_system_is_gone_or_read_only_is_one_that_failed),
           SUITE_TEST(a_shortage_of_the_process_or_of_room_is_not_the_directorys_failure),
           SUITE_TEST(a_directory_that_can_not_be_read_at_the_start_is_done_without),
           SUITE_TEST(a_directory_that_is_empty_now_is_not_taken_for_new),
           SUITE_TEST(what_was_in_an_empty_directory_is_fetched_anew_from_others),
           SUITE_TEST(a_directory_that_was_added_takes_new_partitions),
           SUITE_TEST(an_only_directory_that_is_empty_begins_anew_loudly),
           SUITE_TEST(what_is_made_while_a_directory_is_missing_goes_to_another),
           SUITE_TEST(without_any_directory_a_broker_does_not_start),
           SUITE_TEST_SLOW(a_disk_that_fails_once_loses_nothing_wherever_that_is, 120),
           SUITE_TEST_SLOW(a_disk_that_fails_for_good_loses_nothing_wherever_that_is, 120),
           SUITE_TEST_SLOW(a_disk_that_is_full_from_any_call_on_loses_nothing, 120))
