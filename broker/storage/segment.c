#include "broker/storage/segment.h"

#include "broker/storage/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const suffixes[] = {SUFFIX_LOG, SUFFIX_INDEX, SUFFIX_TIME_INDEX};
#define SUFFIXES_COUNT (sizeof suffixes / sizeof suffixes[0])

int segment_new(struct directory *directory, int64_t base_offset, struct segment **ret_segment)
{
    struct segment *s = calloc(1, sizeof *s);
    if (!s)
        return -BROOK_E_NOMEM;
    atomic_init(&s->refs, 1);
    atomic_init(&s->fd, -1);
    atomic_init(&s->removed, false);
    atomic_init(&s->unlinked, false);
    s->directory = directory_ref(directory);
    s->base_offset = base_offset;
    s->max_timestamp = TIMESTAMP_NONE;
    s->max_timestamp_offset = base_offset;
    *ret_segment = s;
    return 0;
}

int segment_create(struct directory *directory, int64_t base_offset, struct segment **ret_segment,
                   struct brook_error *error)
{
    struct segment *s;
    if (segment_new(directory, base_offset, &s) != 0)
        return brook_error_set(error, BROOK_E_NOMEM, "a segment at %s", directory_path(directory));
    char path[PATH_MAX];
    directory_segment_path(directory, base_offset, SUFFIX_LOG, path);
    int fd = io_open(path, O_RDWR | O_CREAT | O_EXCL);
    if (fd < 0) {
        int r = storage_error(error, "creating %s", path);
        segment_unref(s);
        return r;
    }
    atomic_store(&s->fd, fd);
    s->max_timestamp_known = true;
    *ret_segment = s;
    return 0;
}

struct segment *segment_ref(struct segment *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

static void unlink_deleted(const struct segment *s)
{
    for (size_t i = 0; i < SUFFIXES_COUNT; i++) {
        char path[PATH_MAX], suffix[32] = "";
        strcat(strcat(suffix, suffixes[i]), SUFFIX_DELETED);
        directory_segment_path(s->directory, s->base_offset, suffix, path);
        io_unlink(path); /* what stays is swept when the log is opened again */
    }
}

void segment_unref(struct segment *s)
{
    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (atomic_load(&s->removed))
        unlink_deleted(s);
    int fd = atomic_load(&s->fd);
    if (fd >= 0)
        io_close(fd);
    directory_unref(s->directory);
    free(s);
}

/* By the name it has now: it may be renamed between two looks. */
static int open_log_file(const struct segment *s)
{
    static const char *const names[] = {SUFFIX_LOG, SUFFIX_LOG SUFFIX_DELETED};
    int fd = -1;
    for (int i = 0; i < 2 && fd < 0; i++) {
        char path[PATH_MAX];
        directory_segment_path(s->directory, s->base_offset, names[i], path);
        fd = io_open(path, O_RDWR);
        if (fd < 0 && errno != ENOENT)
            return -1;
    }
    return fd;
}

int segment_fd(struct segment *s)
{
    int fd = atomic_load_explicit(&s->fd, memory_order_acquire);
    if (fd >= 0)
        return fd;
    int opened = open_log_file(s);
    if (opened < 0)
        return -1;
    int expected = -1;
    if (atomic_compare_exchange_strong(&s->fd, &expected, opened))
        return opened;
    io_close(opened); /* another thread was quicker */
    return expected;
}

int segment_unlink_soon(struct segment *s)
{
    atomic_store(&s->unlinked, true); /* first: from here on nobody closes it */
    return segment_fd(s) < 0 ? -1 : 0;
}

void segment_rest(struct segment *s)
{
    if (atomic_load(&s->unlinked))
        return;
    int fd = atomic_exchange(&s->fd, -1);
    if (fd >= 0)
        io_close(fd);
}

int segment_open_index(const struct segment *s, const char *suffix, int flags)
{
    char path[PATH_MAX], name[64];
    snprintf(name, sizeof name, "%s%s", suffix, s->aside ? s->aside : "");
    directory_segment_path(s->directory, s->base_offset, name, path);
    return io_open(path, flags);
}

int segment_remove(struct segment *s, struct brook_error *error)
{
    for (size_t i = 0; i < SUFFIXES_COUNT; i++) {
        char from[PATH_MAX], to[PATH_MAX], suffix[32] = "";
        strcat(strcat(suffix, suffixes[i]), SUFFIX_DELETED);
        directory_segment_path(s->directory, s->base_offset, suffixes[i], from);
        directory_segment_path(s->directory, s->base_offset, suffix, to);
        if (io_rename(from, to) != 0 && i == 0)
            return storage_error(error, "renaming %s", from);
    }
    atomic_store(&s->removed, true);
    return 0;
}

int segment_discard(struct segment *s)
{
    int r = 0;
    for (size_t i = 0; i < SUFFIXES_COUNT; i++) {
        char path[PATH_MAX];
        directory_segment_path(s->directory, s->base_offset, suffixes[i], path);
        if (io_unlink(path) != 0 && errno != ENOENT && i == 0)
            r = -1;
    }
    return r;
}
