#include "tests/unit/storage/fixture.h"

#include "proto/base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

const struct log_hint fixture_clean = {.clean = true, .recovery_point = -1, .start_offset = -1};
const struct log_hint fixture_unclean = {.clean = false, .recovery_point = -1, .start_offset = -1};

const char *fixture_log_path(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", suite_directory(), name);
    return path;
}

struct log_settings fixture_settings(void)
{
    struct log_settings s;
    log_settings_default(&s);
    s.segment_bytes = 4096;
    s.index_interval_bytes = 0;
    s.file_delete_delay_ms = 0;
    return s;
}

struct log *fixture_open_reporting(const char *path, const struct log_settings *settings,
                                   const struct log_hint *hint, struct log_recovery *ret_recovery)
{
    struct log *log = NULL;
    struct brook_error error = {0};
    int r = log_open(path, settings, hint, &log, ret_recovery, &error);
    ck_assert_msg(r == 0, "opening %s: %d %s", path, r, error.text);
    return log;
}

struct log *fixture_open(const char *path, const struct log_settings *settings, const struct log_hint *hint)
{
    return fixture_open_reporting(path, settings, hint, NULL);
}

int64_t fixture_append(struct log *log, int records_count, int64_t timestamp, size_t value_bytes)
{
    struct log_batch b =
        batches_make(records_count, timestamp, 0, value_bytes, (uint32_t)log_end_offset(log));
    struct brook_error error = {0};
    int64_t base = -1;
    int r = log_append(log, &b, 1, 0, timestamp, &base, &error);
    ck_assert_msg(r == 0, "append: %d %s", r, error.text);
    batches_free(&b);
    return base;
}

struct batch_header fixture_read_first(struct log *log, int64_t offset)
{
    struct log_range range;
    ck_assert_int_eq(log_read(log, offset, INT64_MAX, 1, true, 1 << 20, &range), 0);
    ck_assert_msg(range.bytes >= BATCH_HEADER_BYTES, "nothing at %lld", (long long)offset);
    uint8_t bytes[BATCH_HEADER_BYTES];
    ck_assert_int_eq(pread(range.fd, bytes, sizeof bytes, range.position), (ssize_t)sizeof bytes);
    struct batch_header h;
    int r = batch_read_header(bytes, sizeof bytes, &h);
    ck_assert(r == 0 || r == -BROOK_E_AGAIN);
    ck_assert_int_ge(batch_last_offset(&h), offset);
    log_range_done(&range);
    return h;
}

/* Check the whole batches of a range; returns the offset to go on with. */
static int64_t check_range(const struct log_range *range, int64_t from, bool gapless, int64_t *records)
{
    AUTO_FREE uint8_t *data = malloc(range->bytes);
    ck_assert_int_eq(pread(range->fd, data, range->bytes, range->position), (ssize_t)range->bytes);
    size_t at = 0;
    int64_t next = from;
    struct batch_header h;
    while (at < range->bytes && batch_read_header(data + at, range->bytes - at, &h) == 0) {
        ck_assert_int_eq(batch_check_crc(data + at, &h), 0);
        if (gapless && at > 0)
            ck_assert_int_eq(h.base_offset, next);
        ck_assert_int_ge(batch_last_offset(&h), next);
        next = batch_last_offset(&h) + 1;
        *records += h.records_count;
        at += h.total_bytes;
    }
    ck_assert_msg(at > 0, "no whole batch at %lld", (long long)from);
    return next;
}

int64_t fixture_read_all(struct log *log, int64_t from, bool gapless)
{
    int64_t records = 0, end = log_end_offset(log);
    while (from < end) {
        struct log_range range;
        ck_assert_int_eq(log_read(log, from, end, 3000, true, 1 << 20, &range), 0);
        if (range.bytes == 0)
            break;
        from = check_range(&range, from, gapless, &records);
        log_range_done(&range);
    }
    ck_assert_int_eq(from, end);
    return records;
}

void fixture_path(char buffer[PATH_MAX], const char *directory, const char *name)
{
    int n = snprintf(buffer, PATH_MAX, "%s/%s", directory, name);
    ck_assert_int_lt(n, PATH_MAX);
}

size_t fixture_load(const char *directory, const char *name, void **ret_data)
{
    char path[PATH_MAX];
    fixture_path(path, directory, name);
    int fd = open(path, O_RDONLY);
    ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
    struct stat st;
    ck_assert_int_eq(fstat(fd, &st), 0);
    *ret_data = malloc((size_t)st.st_size + 1);
    ck_assert_int_eq(read(fd, *ret_data, (size_t)st.st_size), st.st_size);
    close(fd);
    return (size_t)st.st_size;
}

void fixture_store(const char *directory, const char *name, const void *data, size_t bytes)
{
    char path[PATH_MAX];
    fixture_path(path, directory, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
    ck_assert_int_eq(write(fd, data, bytes), (ssize_t)bytes);
    close(fd);
}

void fixture_copy_directory(const char *from, const char *to)
{
    mkdir(to, 0755);
    DIR *dir = opendir(from);
    ck_assert_ptr_nonnull(dir);
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        void *data;
        size_t bytes = fixture_load(from, entry->d_name, &data);
        fixture_store(to, entry->d_name, data, bytes);
        free(data);
    }
    closedir(dir);
}

int fixture_count_files(const char *directory, const char *suffix)
{
    int count = 0;
    size_t s = strlen(suffix);
    DIR *dir = opendir(directory);
    if (!dir)
        return 0;
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        size_t n = strlen(entry->d_name);
        if (n >= s && strcmp(entry->d_name + n - s, suffix) == 0)
            count++;
    }
    closedir(dir);
    return count;
}
