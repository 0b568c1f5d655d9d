#include "broker/storage/segment.h"

#include "broker/storage/file.h"
#include "broker/storage/open_files.h"

#include <assert.h>
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
    atomic_init(&s->pins, SEGMENT_CLOSED);
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

int segment_create_file(struct segment *s)
{
    struct open_files *files = directory_files(s->directory);
    open_files_make_room(files, true);
    int fd = segment_open_index(s, SUFFIX_LOG, O_RDWR | O_CREAT | O_EXCL);
    if (fd < 0) {
        int saved = errno;
        open_files_give_up(files);
        errno = saved;
        return -1;
    }
    open_files_add(files, s, fd);
    return 0;
}

int segment_create(struct directory *directory, int64_t base_offset, struct segment **ret_segment,
                   struct brook_error *error)
{
    struct segment *s;
    if (segment_new(directory, base_offset, &s) != 0)
        return brook_error_set(error, BROOK_E_NOMEM, "a segment at %s", directory_path(directory));
    if (segment_create_file(s) != 0) {
        int r = storage_error(error, "creating the segment at %lld of %s", (long long)base_offset,
                              directory_path(directory));
        segment_unref(s);
        return r;
    }
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
    open_files_remove(directory_files(s->directory), s);
    directory_unref(s->directory);
    free(s);
}

/* By the name it has now: it may be renamed between two looks. */
static int open_log_file(const struct segment *s, bool cached_only)
{
    static const char *const names[] = {SUFFIX_LOG, SUFFIX_LOG SUFFIX_DELETED};
    int fd = -1;
    for (int i = 0; i < 2 && fd < 0; i++) {
        char path[PATH_MAX];
        directory_segment_path(s->directory, s->base_offset, names[i], path);
        fd = (cached_only ? io_open_cached : io_open)(path, O_RDWR);
        if (fd < 0 && errno != ENOENT)
            return -1;
    }
    return fd;
}

/* Pinned, so that the descriptor stays once there is one. */
static int open_pinned(struct segment *s, bool cached_only)
{
    struct open_files *files = directory_files(s->directory);
    if (!open_files_make_room(files, !cached_only)) {
        errno = EAGAIN;
        return -1;
    }
    int fd = open_log_file(s, cached_only);
    if (fd < 0) {
        int saved = errno;
        open_files_give_up(files);
        errno = saved;
        return -1;
    }
    open_files_add(files, s, fd);
    return 0;
}

static int pin(struct segment *s, bool cached_only)
{
    uint32_t before = atomic_fetch_add(&s->pins, 1);
    if ((before & SEGMENT_CLOSED) && open_pinned(s, cached_only) != 0) {
        segment_unpin(s);
        return -1;
    }
    if (!atomic_load_explicit(&s->used, memory_order_relaxed))
        atomic_store_explicit(&s->used, true, memory_order_relaxed);
    return atomic_load(&s->fd);
}

int segment_pin(struct segment *s)
{
    return pin(s, false);
}

int segment_pin_cached(struct segment *s)
{
    return pin(s, true);
}

int segment_pin_scoped(struct segment *s, struct segment **ret_pinned)
{
    int fd = segment_pin(s);
    if (fd >= 0)
        *ret_pinned = s;
    return fd;
}

void segment_unpin(struct segment *s)
{
    atomic_fetch_sub(&s->pins, 1);
}

void segment_wrote(struct segment *s)
{
    atomic_store(&s->dirty, true);
}

int segment_truncate(struct segment *s, int64_t bytes)
{
    AUTO_UNPIN struct segment *pinned = NULL;
    int fd = segment_pin_scoped(s, &pinned);
    if (fd < 0)
        return -1;
    segment_wrote(s);
    return io_truncate(fd, bytes);
}

int segment_sync(struct segment *s)
{
    directory_lock_sync(s->directory);
    int r = directory_sync_error(s->directory) ? -1 : 0;
    if (r != 0) {
        errno = directory_sync_error(s->directory);
    } else if (atomic_exchange(&s->dirty, false)) {
        int fd = atomic_load(&s->fd);
        assert(fd >= 0);
        r = io_datasync(fd);
        if (r != 0)
            directory_set_sync_error(s->directory, errno);
    }
    directory_unlock_sync(s->directory);
    return r;
}

void segment_close_unused(struct segment *s)
{
    if (atomic_load_explicit(&s->fd, memory_order_relaxed) >= 0)
        open_files_close_unused(directory_files(s->directory), s);
}

int segment_unlink_soon(struct segment *s)
{
    atomic_store(&s->unlinked, true); /* first: from here on nobody closes it */
    return segment_pin(s) < 0 ? -1 : 0; /* until the end */
}

void segment_rest(struct segment *s)
{
    if (!atomic_load(&s->unlinked))
        open_files_remove(directory_files(s->directory), s);
}

static void index_path(const struct segment *s, const char *suffix, char path[PATH_MAX])
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", suffix, s->aside ? s->aside : "");
    directory_segment_path(s->directory, s->base_offset, name, path);
}

int segment_open_index(const struct segment *s, const char *suffix, int flags)
{
    char path[PATH_MAX];
    index_path(s, suffix, path);
    return io_open(path, flags);
}

int segment_open_index_to_read(const struct segment *s, const char *suffix, bool cached_only)
{
    char path[PATH_MAX];
    index_path(s, suffix, path);
    return (cached_only ? io_open_cached : io_open)(path, O_RDONLY);
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
