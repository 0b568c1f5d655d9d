#include "broker/storage/data_dir.h"

#include "tests/unit/storage/fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLUSTER "abcdefghijklmnopqrstuv"

static struct data_dir *open_dir(const char *path)
{
    struct data_dir *dir = NULL;
    struct brook_error error = {0};
    int r = data_dir_open(path, 1, CLUSTER, &dir, &error);
    ck_assert_msg(r == 0, "%d %s", r, error.text);
    return dir;
}

static const char *fresh(const char *name)
{
    static char path[PATH_MAX];
    strcpy(path, fixture_log_path(name));
    suite_remove_tree(path);
    return path;
}

static void add_partition(struct data_dir *dir, const char *topic, int32_t number)
{
    char path[PATH_MAX];
    data_dir_partition_path(dir, topic, number, path);
    ck_assert_int_eq(mkdir(path, 0755), 0);
}

static const struct data_dir_partition *find(const struct data_dir *dir, const char *topic, int32_t number)
{
    size_t count;
    const struct data_dir_partition *p = data_dir_partitions(dir, &count);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(p[i].topic, topic) && p[i].partition == number)
            return &p[i];
    return NULL;
}

static size_t warnings(const struct data_dir *dir)
{
    size_t count;
    data_dir_warnings(dir, &count);
    return count;
}

/* ---- lock ---------------------------------------------------------------------------------------------- */

START_TEST(a_second_process_is_refused_and_told_who_is_there)
{
    const char *path = fresh("locked");
    struct data_dir *dir = open_dir(path), *second = NULL;
    struct brook_error error = {0};
    char pid[32];
    snprintf(pid, sizeof pid, "process %ld", (long)getpid());
    ck_assert_int_eq(data_dir_open(path, 1, CLUSTER, &second, &error), -BROOK_E_LOCKED);
    ck_assert_ptr_null(second);
    ck_assert_msg(strstr(error.text, pid) != NULL, "%s", error.text);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    dir = open_dir(path);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
}
END_TEST

START_TEST(the_lock_goes_with_a_killed_process)
{
    const char *path = fresh("killed");
    int ready[2];
    ck_assert_int_eq(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        struct data_dir *dir = NULL;
        if (data_dir_open(path, 1, CLUSTER, &dir, NULL) == 0 && write(ready[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    char byte;
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    struct data_dir *dir = NULL;
    ck_assert_int_eq(data_dir_open(path, 1, CLUSTER, &dir, NULL), -BROOK_E_LOCKED);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    dir = open_dir(path);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
}
END_TEST

START_TEST(a_posix_lock_of_another_program_counts)
{
    const char *path = fresh("kafka-lock");
    data_dir_close(open_dir(path), false);
    char file[PATH_MAX];
    fixture_path(file, path, ".lock");
    int ready[2];
    ck_assert_int_eq(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = open(file, O_RDWR);
        struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET}; /* as Java's FileChannel.lock() */
        if (fd >= 0 && fcntl(fd, F_SETLK, &whole) == 0 && write(ready[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    char byte;
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    struct data_dir *dir = NULL;
    struct brook_error error = {0};
    char owner[64];
    ck_assert_int_eq(data_dir_open(path, 1, CLUSTER, &dir, &error), -BROOK_E_LOCKED);
    /* Java writes nothing into the file, where an older owner's pid still stands: the kernel knows better. */
    snprintf(owner, sizeof owner, "locked by process %ld", (long)child);
    ck_assert_msg(strstr(error.text, owner) != NULL, "%s", error.text);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}
END_TEST

START_TEST(to_lock_writes_nothing_but_the_lock)
{
    const char *path = fresh("only-locked");
    char marker[PATH_MAX];
    fixture_path(marker, path, ".kafka_cleanshutdown");
    ck_assert_int_eq(data_dir_close(open_dir(path), true), 0);
    struct data_dir *dir = NULL, *second = NULL;
    ck_assert_int_eq(data_dir_lock(path, &dir, NULL), 0);
    ck_assert_int_eq(data_dir_lock(path, &second, NULL), -BROOK_E_LOCKED);
    ck_assert_int_eq(access(marker, F_OK), 0);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    ck_assert_int_eq(access(marker, F_OK), 0);
    ck_assert_int_eq(data_dir_lock(path, &dir, NULL), 0);
    ck_assert_int_eq(data_dir_load(dir, 2, CLUSTER, NULL), -BROOK_E_CONFIG);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    ck_assert_int_eq(data_dir_lock(path, &dir, NULL), 0);
    ck_assert_int_eq(data_dir_load(dir, 1, CLUSTER, NULL), 0);
    ck_assert(data_dir_was_clean(dir, NULL));
    ck_assert_int_eq(access(marker, F_OK), -1);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
}
END_TEST

START_TEST(the_clean_mark_does_not_let_go_of_the_lock)
{
    const char *path = fresh("marked");
    struct data_dir *dir = open_dir(path), *second = NULL;
    ck_assert_int_eq(data_dir_mark_clean(dir), 0);
    ck_assert_int_eq(data_dir_lock(path, &second, NULL), -BROOK_E_LOCKED);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    dir = open_dir(path);
    ck_assert(data_dir_was_clean(dir, NULL));
    ck_assert_int_eq(data_dir_close(dir, false), 0);
}
END_TEST

/* ---- identity ------------------------------------------------------------------------------------------ */

START_TEST(another_brokers_or_clusters_directory_is_refused)
{
    const char *path = fresh("identity");
    struct data_dir *dir = open_dir(path);
    ck_assert_int_eq(data_dir_close(dir, true), 0);
    struct brook_error error = {0};
    ck_assert_int_eq(data_dir_open(path, 2, CLUSTER, &dir, &error), -BROOK_E_CONFIG);
    ck_assert_msg(strstr(error.text, "broker 1") != NULL, "%s", error.text);
    ck_assert_int_eq(data_dir_open(path, 1, "other", &dir, &error), -BROOK_E_CONFIG);
    ck_assert_msg(strstr(error.text, CLUSTER) != NULL, "%s", error.text);
    dir = open_dir(path);
    ck_assert(data_dir_was_clean(dir, NULL)); /* who is refused touches nothing */
    ck_assert_int_eq(data_dir_close(dir, false), 0);
}
END_TEST

static int open_with_identity(const char *path, const char *text, size_t bytes, size_t *ret_warnings)
{
    mkdir(path, 0755);
    fixture_store(path, "meta.properties", text, bytes);
    struct data_dir *dir = NULL;
    int r = data_dir_open(path, 1, CLUSTER, &dir, NULL);
    *ret_warnings = r == 0 ? warnings(dir) : 0;
    data_dir_close(dir, false);
    return r;
}

START_TEST(an_identity_that_was_not_written_to_its_end_is_written_anew)
{
    static const char whole[] =
        "#\n#Tue Nov 14 22:13:20 UTC 2023\nbroker.id=1\ncluster.id=" CLUSTER "\nversion=0\n";
    const char *path = fresh("torn-identity");
    size_t warned;
    for (size_t cut = 0; cut < strlen(whole); cut++) {
        ck_assert_int_eq(open_with_identity(path, whole, cut, &warned), 0);
        ck_assert_uint_eq(warned, 1);
        data_dir_close(open_dir(path), false); /* it is whole now */
    }
    ck_assert_int_eq(open_with_identity(path, whole, strlen(whole), &warned), 0);
    ck_assert_uint_eq(warned, 0);
    static const char java[] = "#\n#date\nversion = 0\r\n cluster.id=" CLUSTER "\nsome.key=x\nbroker.id=1\n";
    ck_assert_int_eq(open_with_identity(path, java, strlen(java), &warned), 0);
    ck_assert_uint_eq(warned, 0);
    static const char later[] = "version=2\nnode.id=1\ncluster.id=" CLUSTER "\n";
    ck_assert_int_eq(open_with_identity(path, later, strlen(later), &warned), -BROOK_E_CONFIG);
}
END_TEST

/* ---- marker -------------------------------------------------------------------------------------------- */

START_TEST(the_marker_is_believed_once)
{
    const char *path = fresh("marker");
    int64_t epoch;
    struct data_dir *dir = open_dir(path);
    ck_assert(!data_dir_was_clean(dir, &epoch));
    ck_assert_int_eq(epoch, -1);
    data_dir_set_broker_epoch(dir, 42);
    ck_assert_int_eq(data_dir_close(dir, true), 0);
    ck_assert_int_eq(fixture_count_files(path, ".kafka_cleanshutdown"), 1);
    dir = open_dir(path);
    ck_assert(data_dir_was_clean(dir, &epoch));
    ck_assert_int_eq(epoch, 42);
    ck_assert_int_eq(fixture_count_files(path, ".kafka_cleanshutdown"), 0);
    /* "Killed": nothing is written, the marker of the run before must not come back. */
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    dir = open_dir(path);
    ck_assert(!data_dir_was_clean(dir, NULL));
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    fixture_store(path, ".kafka_cleanshutdown", "", 0); /* as older Kafkas write it */
    dir = open_dir(path);
    ck_assert(data_dir_was_clean(dir, &epoch));
    ck_assert_int_eq(epoch, -1);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
}
END_TEST

START_TEST(a_directory_names_the_registration_it_was_noted_with)
{
    static const char *const bad[] = {"", "{\"version\":0,\"brokerEpoch\":43,\"direct",
                                      "{\"version\":0,\"brokerEpoch\":43,\"directories\":2}",
                                      "{\"version\":0,\"brokerEpoch\":-1,\"directories\":2}\n",
                                      "{\"version\":0,\"brokerEpoch\":043,\"directories\":2}\n"};
    const char *path = fresh("registered");
    struct data_dir *dir = open_dir(path);
    ck_assert_int_eq(data_dir_registered(dir, 2), -1);
    ck_assert_int_eq(data_dir_note_registered(dir, 42, 2), 0);
    ck_assert_int_eq(data_dir_note_registered(dir, 43, 2), 0);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    dir = open_dir(path);
    ck_assert_int_eq(data_dir_registered(dir, 2), 43);
    ck_assert_int_eq(data_dir_registered(dir, 1), -1); /* one was taken away */
    ck_assert_int_eq(data_dir_note_registered(dir, -1, 2), 0);
    ck_assert_int_eq(data_dir_note_registered(dir, -1, 2), 0);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        dir = open_dir(path);
        ck_assert_int_eq(data_dir_registered(dir, 2), -1);
        ck_assert_uint_eq(warnings(dir), i > 0);
        ck_assert_int_eq(data_dir_close(dir, false), 0);
        fixture_store(path, ".brook_registered", bad[i], strlen(bad[i]));
    }
}
END_TEST

static void expect_unclean_and_warned(const char *path)
{
    int64_t epoch;
    struct data_dir *dir = open_dir(path);
    ck_assert(!data_dir_was_clean(dir, &epoch));
    ck_assert_int_eq(epoch, -1);
    ck_assert_uint_eq(warnings(dir), 1);
    ck_assert_int_eq(fixture_count_files(path, ".kafka_cleanshutdown"), 0);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    dir = open_dir(path);
    ck_assert_uint_eq(warnings(dir), 0);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
}

START_TEST(a_marker_that_can_not_be_read_is_not_believed)
{
    static char large[4097];
    const char *path = fresh("bad_marker");
    char marker[PATH_MAX];
    ck_assert_int_eq(data_dir_close(open_dir(path), false), 0);
    memset(large, ' ', sizeof large);
    fixture_store(path, ".kafka_cleanshutdown", large, sizeof large);
    expect_unclean_and_warned(path);
    snprintf(marker, sizeof marker, "%s/.kafka_cleanshutdown", path);
    ck_assert_int_eq(symlink(".", marker), 0); /* not a file */
    expect_unclean_and_warned(path);
}
END_TEST

START_TEST(logs_are_recovered_after_a_crash_during_loading)
{
    const char *path = fresh("stale");
    struct data_dir *dir = open_dir(path);
    char log_path[PATH_MAX];
    struct log_settings s = fixture_settings();
    data_dir_partition_path(dir, "orders", 0, log_path);
    struct log *log = fixture_open(log_path, &s, &fixture_clean);
    fixture_append(log, 1, T0, 10);
    ck_assert_int_eq(log_close(log), 0);
    ck_assert_int_eq(data_dir_close(dir, true), 0);

    dir = open_dir(path); /* dies here, with a tail torn */
    ck_assert(find(dir, "orders", 0)->hint.clean);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    void *data;
    size_t bytes = fixture_load(log_path, "00000000000000000000.log", &data);
    fixture_store(log_path, "00000000000000000000.log", data, bytes - 1);
    free(data);

    dir = open_dir(path);
    struct log_recovery recovery;
    log = fixture_open_reporting(log_path, &s, &find(dir, "orders", 0)->hint, &recovery);
    ck_assert(recovery.scanned);
    ck_assert_int_eq(log_end_offset(log), 0);
    ck_assert_int_eq(log_close(log), 0);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
}
END_TEST

/* ---- partitions ---------------------------------------------------------------------------------------- */

START_TEST(partitions_are_found_by_their_names)
{
    const char *path = fresh("names");
    struct data_dir *dir = open_dir(path);
    const char *const good[] = {"orders", "a-b", "a-b-7", "-", "x.y_z"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        add_partition(dir, good[i], (int32_t)i);
    const char *const other[] = {"nodash",
                                 "orders-",
                                 "orders-01",
                                 "orders-1x",
                                 "bad name-0",
                                 "orders-99999999999",
                                 "orders-5.0123456789abcdef-stray",
                                 "orders-5.0123-future"};
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
        char file[PATH_MAX];
        fixture_path(file, path, other[i]);
        ck_assert_int_eq(mkdir(file, 0755), 0);
    }
    fixture_store(path, "file-3", "x", 1);
    uint8_t id[16] = {9, 8, 7};
    ck_assert_int_eq(data_dir_write_topic_id(dir, "a-b", 1, id), 0);
    ck_assert_int_eq(data_dir_close(dir, false), 0);

    dir = open_dir(path);
    size_t count;
    data_dir_partitions(dir, &count);
    ck_assert_uint_eq(count, sizeof good / sizeof good[0]);
    for (size_t i = 0; i < count; i++)
        ck_assert_ptr_nonnull(find(dir, good[i], (int32_t)i));
    ck_assert_mem_eq(find(dir, "a-b", 1)->topic_id, id, 16);
    static const uint8_t zero[16];
    ck_assert_mem_eq(find(dir, "orders", 0)->topic_id, zero, 16);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
}
END_TEST

START_TEST(deletions_are_finished_and_strays_are_kept)
{
    const char *path = fresh("leftovers");
    struct data_dir *dir = open_dir(path);
    add_partition(dir, "orders", 0);
    add_partition(dir, "stray", 3);
    char file[PATH_MAX];
    fixture_path(file, path, "orders-1.0123456789abcdef-delete");
    ck_assert_int_eq(mkdir(file, 0755), 0);
    fixture_store(file, "00000000000000000000.log", "x", 1);
    ck_assert_int_eq(data_dir_set_aside(dir, "stray", 3), 0);
    ck_assert_int_eq(data_dir_set_aside(dir, "nobody", 3), -BROOK_E_STORAGE_ERROR);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    dir = open_dir(path);
    size_t count;
    data_dir_partitions(dir, &count);
    ck_assert_uint_eq(count, 1);
    ck_assert_int_eq(fixture_count_files(path, "-delete"), 0);
    ck_assert_int_eq(fixture_count_files(path, "-stray"), 1);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
}
END_TEST

START_TEST(a_topic_id_is_written_as_kafka_writes_it)
{
    const char *path = fresh("topic-id");
    struct data_dir *dir = open_dir(path);
    char partition[PATH_MAX];
    uint8_t id[16];
    static const char expected[] = "version: 0\ntopic_id: AQIDBAUGBwgJCgsMDQ4PEA";
    for (int i = 0; i < 16; i++)
        id[i] = (uint8_t)(i + 1);
    add_partition(dir, "t", 0);
    data_dir_partition_path(dir, "t", 0, partition);
    ck_assert_int_eq(data_dir_write_topic_id(dir, "t", 0, id), 0);
    static const uint8_t zero[16];
    ck_assert_int_eq(data_dir_write_topic_id(dir, "t", 0, zero), -BROOK_E_INVALID);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    void *data;
    size_t bytes = fixture_load(partition, "partition.metadata", &data);
    ck_assert_uint_eq(bytes, strlen(expected));
    ck_assert_mem_eq(data, expected, bytes);
    free(data);
    for (size_t cut = 0; cut < bytes; cut++) {
        fixture_store(partition, "partition.metadata", expected, cut);
        dir = open_dir(path);
        ck_assert_mem_eq(find(dir, "t", 0)->topic_id, zero, 16);
        ck_assert_uint_eq(warnings(dir), 1);
        ck_assert_int_eq(data_dir_close(dir, false), 0);
    }
}
END_TEST

/* ---- checkpoints --------------------------------------------------------------------------------------- */

START_TEST(checkpoints_are_merged_and_forgotten)
{
    const char *path = fresh("checkpoints");
    struct data_dir *dir = open_dir(path);
    add_partition(dir, "a", 0);
    add_partition(dir, "b", 1);
    struct data_dir_checkpoint both[] = {
        {"b", 1, 20, 2, 15, 12, -1}, {"a", 0, 10, -1, 8, 0, -1}, {"gone", 5, 1, 1, 1, 1, 1}};
    ck_assert_int_eq(data_dir_checkpoint(dir, both, 3, NULL), 0);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    void *data;
    size_t bytes = fixture_load(path, "recovery-point-offset-checkpoint", &data);
    ck_assert_uint_eq(bytes, strlen("0\n2\na 0 10\nb 1 20\n"));
    ck_assert_mem_eq(data, "0\n2\na 0 10\nb 1 20\n", bytes);
    free(data);

    bytes = fixture_load(path, "cleaner-offset-checkpoint", &data); /* without those never compacted */
    ck_assert_uint_eq(bytes, strlen("0\n1\nb 1 12\n"));
    ck_assert_mem_eq(data, "0\n1\nb 1 12\n", bytes);
    free(data);

    dir = open_dir(path);
    ck_assert_int_eq(find(dir, "a", 0)->hint.recovery_point, 10);
    ck_assert_int_eq(find(dir, "a", 0)->hint.cleaned_offset, -1);
    ck_assert_int_eq(find(dir, "b", 1)->hint.cleaned_offset, 12);
    ck_assert_int_eq(find(dir, "a", 0)->hint.start_offset, -1);
    ck_assert_int_eq(find(dir, "b", 1)->hint.start_offset, 2);
    ck_assert_int_eq(find(dir, "b", 1)->high_watermark, 15);
    struct data_dir_checkpoint one[] = {
        {"a", 0, 11, 3, 9, 7, -1}}; /* b was not opened in this run: it keeps its own */
    ck_assert_int_eq(data_dir_checkpoint(dir, one, 1, NULL), 0);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    dir = open_dir(path);
    ck_assert_int_eq(find(dir, "a", 0)->hint.recovery_point, 11);
    ck_assert_int_eq(find(dir, "a", 0)->hint.cleaned_offset, 7);
    ck_assert_int_eq(find(dir, "b", 1)->hint.recovery_point, 20);
    const struct data_dir_start cuts[] = {{"a", 0, 10}, {"never", 0, 1}, {"b", 1, 21}, {"b", 1, 5}};
    ck_assert_int_eq(data_dir_lower_recovery_points(dir, cuts, 4), 0);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    dir = open_dir(path);
    ck_assert_int_eq(find(dir, "a", 0)->hint.recovery_point, 10);
    ck_assert_int_eq(find(dir, "b", 1)->hint.recovery_point, 5);
    ck_assert_int_eq(data_dir_forget(dir, "b", 1), 0);
    ck_assert_int_eq(data_dir_forget(dir, "never", 1), 0);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    dir = open_dir(path);
    ck_assert_int_eq(find(dir, "b", 1)->hint.recovery_point, -1);
    ck_assert_int_eq(find(dir, "a", 0)->high_watermark, 9);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
}
END_TEST

/* It was deleted, and the power went before the next checkpoint. A new one of its name is not what they speak of. */
START_TEST(what_checkpoints_say_of_one_that_is_gone_is_forgotten_too)
{
    const char *path = fresh("leftovers");
    struct data_dir *dir = open_dir(path);
    char partition[PATH_MAX];
    add_partition(dir, "a", 0);
    struct data_dir_checkpoint entry = {"a", 0, 26, 20, 26, -1, 4};
    ck_assert_int_eq(data_dir_checkpoint(dir, &entry, 1, NULL), 0);
    data_dir_partition_path(dir, "a", 0, partition);
    ck_assert_int_eq(rmdir(partition), 0);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    dir = open_dir(path);
    ck_assert_ptr_null(find(dir, "a", 0));
    ck_assert_int_eq(data_dir_forget(dir, "a", 0), 0);
    add_partition(dir, "a", 0);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    dir = open_dir(path);
    ck_assert_int_eq(find(dir, "a", 0)->hint.recovery_point, -1);
    ck_assert_int_eq(find(dir, "a", 0)->hint.start_offset, -1);
    ck_assert_int_eq(data_dir_reached(dir, "a", 0), -1);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
}
END_TEST

static bool holds(const char *path, const char *file, const char *expected)
{
    void *data;
    size_t bytes = fixture_load(path, file, &data);
    bool is_equal = bytes == strlen(expected) && memcmp(data, expected, bytes) == 0;
    free(data);
    return is_equal;
}

START_TEST(reached_epochs_rise_and_are_forgotten)
{
    static const char file[] = "reached-epoch-checkpoint";
    const char *path = fresh("reached");
    struct data_dir *dir = open_dir(path);
    add_partition(dir, "a", 0);
    add_partition(dir, "b", 1);
    ck_assert_int_eq(data_dir_reached(dir, "a", 0), -1);
    const struct data_dir_start both[] = {{"b", 1, 7}, {"a", 0, 0}};
    ck_assert_int_eq(data_dir_keep_reached(dir, both, 2), 0);
    ck_assert(holds(path, file, "0\n2\na 0 0\nb 1 7\n")); /* at once */
    const struct data_dir_start lower = {"b", 1, 6};
    ck_assert_int_eq(data_dir_keep_reached(dir, &lower, 1), 0);
    ck_assert_int_eq(data_dir_reached(dir, "b", 1), 7);
    struct data_dir_checkpoint all[] = {{"a", 0, 10, -1, 8, 0, 3}, {"b", 1, 20, 2, 15, 0, -1}};
    ck_assert_int_eq(data_dir_checkpoint(dir, all, 2, NULL), 0);
    ck_assert_int_eq(data_dir_close(dir, false), 0);

    dir = open_dir(path);
    ck_assert_uint_eq(warnings(dir), 0);
    ck_assert_int_eq(data_dir_reached(dir, "a", 0), 3);
    ck_assert_int_eq(data_dir_reached(dir, "b", 1), 7);
    ck_assert_int_eq(data_dir_reached(dir, "c", 1), -1);
    ck_assert_int_eq(data_dir_forget_reached(dir, "b", 1), 0); /* it has lost records: nothing else is forgotten */
    ck_assert_int_eq(find(dir, "b", 1)->hint.recovery_point, 20);
    ck_assert(holds(path, file, "0\n1\na 0 3\n"));
    ck_assert_int_eq(data_dir_forget(dir, "a", 0), 0); /* it is made anew */
    ck_assert(holds(path, file, "0\n0\n"));
    ck_assert_int_eq(data_dir_close(dir, false), 0);
}
END_TEST

/* Somebody else's file of that name, or a log's offsets in the place of its epochs. */
START_TEST(reached_epochs_that_are_none_count_as_not_there)
{
    static const char file[] = "reached-epoch-checkpoint";
    static const char *const bad[] = {"0\n2\na 0 2147483648\nb 1 3\n", "0\n1\na 0 -1\n", "0\n1\na 0 1 0\n", "", "1\n1\na 0 1\n"};
    const char *path = fresh("reached-bad");
    struct data_dir *dir = open_dir(path);
    add_partition(dir, "a", 0);
    add_partition(dir, "b", 1);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fixture_store(path, file, bad[i], strlen(bad[i]));
        dir = open_dir(path);
        ck_assert_int_eq(data_dir_reached(dir, "a", 0), -1);
        ck_assert_int_eq(data_dir_reached(dir, "b", 1), -1);
        ck_assert_uint_eq(warnings(dir), 1);
        ck_assert_int_eq(data_dir_close(dir, false), 0);
    }
    /* Of logs that are not here, it says nothing about those that are. */
    static const char foreign[] = "0\n2\nother 0 9\na 0 2\n";
    fixture_store(path, file, foreign, strlen(foreign));
    dir = open_dir(path);
    ck_assert_uint_eq(warnings(dir), 0);
    ck_assert_int_eq(data_dir_reached(dir, "a", 0), 2);
    ck_assert_int_eq(data_dir_reached(dir, "other", 0), -1);
    ck_assert_int_eq(data_dir_forget(dir, "other", 0), 0); /* it is about to be made */
    add_partition(dir, "other", 0);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    dir = open_dir(path);
    ck_assert_int_eq(data_dir_reached(dir, "other", 0), -1);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
}
END_TEST

static void assert_not_known(const char *path, const char *file, const char *text, size_t bytes)
{
    fixture_store(path, file, text, bytes);
    fixture_store(path, "recovery-point-offset-checkpoint.tmp", "0\n1\na 0 999\n", 12);
    struct data_dir *dir = open_dir(path);
    ck_assert_msg(find(dir, "a", 0)->hint.recovery_point == -1, "%s was believed: \"%.*s\"", file, (int)bytes,
                  text);
    ck_assert_uint_eq(warnings(dir), 1);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
}

START_TEST(a_bad_checkpoint_means_not_known_and_never_zero)
{
    static const char whole[] = "0\n2\na 0 10\nb 1 20\n";
    static const char file[] = "recovery-point-offset-checkpoint";
    const char *path = fresh("bad-checkpoints");
    struct data_dir *dir = open_dir(path);
    add_partition(dir, "a", 0);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    for (size_t cut = 0; cut < strlen(whole); cut++)
        assert_not_known(path, file, whole, cut);
    const char *const bad[] = {"0\n1\na 0 10\nb 1 20\n",
                               "1\n1\na 0 10\n",
                               "0\n1\na 0 -5\n",
                               "0\n1\na 0 10 7\n",
                               "0\n1\na zero 10\n",
                               "0\n99999999999\na 0 10\n",
                               "0\n-1\n",
                               "0\n1\n\n",
                               "0\n1\na 0\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_not_known(path, file, bad[i], strlen(bad[i]));
    fixture_store(path, file, whole, strlen(whole));
    dir = open_dir(path);
    ck_assert_int_eq(find(dir, "a", 0)->hint.recovery_point, 10);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
}
END_TEST

SUITE_MAIN("storage/data_dir", SUITE_TEST(a_second_process_is_refused_and_told_who_is_there),
           SUITE_TEST(the_lock_goes_with_a_killed_process),
           SUITE_TEST(a_posix_lock_of_another_program_counts),
           SUITE_TEST(to_lock_writes_nothing_but_the_lock),
           SUITE_TEST(the_clean_mark_does_not_let_go_of_the_lock),
           SUITE_TEST(another_brokers_or_clusters_directory_is_refused),
           SUITE_TEST_SLOW(an_identity_that_was_not_written_to_its_end_is_written_anew, 60),
           SUITE_TEST(the_marker_is_believed_once),
           SUITE_TEST(a_directory_names_the_registration_it_was_noted_with),
           SUITE_TEST(a_marker_that_can_not_be_read_is_not_believed),
           SUITE_TEST(logs_are_recovered_after_a_crash_during_loading),
           SUITE_TEST(partitions_are_found_by_their_names),
           SUITE_TEST(deletions_are_finished_and_strays_are_kept),
           SUITE_TEST(a_topic_id_is_written_as_kafka_writes_it),
           SUITE_TEST(checkpoints_are_merged_and_forgotten),
           SUITE_TEST(what_checkpoints_say_of_one_that_is_gone_is_forgotten_too),
           SUITE_TEST(reached_epochs_rise_and_are_forgotten),
           SUITE_TEST(reached_epochs_that_are_none_count_as_not_there),
           SUITE_TEST(a_bad_checkpoint_means_not_known_and_never_zero))
