#include "broker/storage/log_files.h"

#include "broker/storage/file.h"
#include "broker/storage/header_cursor.h"
#include "proto/base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define OFFSET_DIGITS 20

struct bases {
    int64_t *list;
    size_t count;
    size_t capacity;
};

struct found {
    struct bases logs;
    struct bases indexes; /* of any kind */
    struct bases snapshots;
    bool left_over;       /* something is there that a crash left behind */
    int64_t cleaned;      /* base offset of the first `.cleaned` log; -1: none */
    int err;              /* a `.swap` log that makes no sense */
};

static int add(struct bases *b, int64_t base)
{
    if (b->count == b->capacity) {
        size_t capacity = b->capacity ? 2 * b->capacity : 16;
        int64_t *list = realloc(b->list, capacity * sizeof *list);
        if (!list)
            return -1;
        b->list = list;
        b->capacity = capacity;
    }
    b->list[b->count++] = base;
    return 0;
}

/* "<20 digits><suffix>": the offset, and what follows it; NULL for any other name. */
static const char *parse_name(const char *name, int64_t *ret_base)
{
    int64_t base = 0;
    for (int i = 0; i < OFFSET_DIGITS; i++) {
        if (name[i] < '0' || name[i] > '9' || __builtin_mul_overflow(base, 10, &base) ||
            __builtin_add_overflow(base, name[i] - '0', &base))
            return NULL;
    }
    *ret_base = base;
    return name + OFFSET_DIGITS;
}

static bool ends_in(const char *name, const char *suffix)
{
    size_t n = strlen(name), s = strlen(suffix);
    return n >= s && strcmp(name + n - s, suffix) == 0;
}

static int unlink_in(const struct directory *d, const char *name)
{
    char path[PATH_MAX];
    directory_file_path(d, name, path);
    return io_unlink(path) == 0 || errno == ENOENT ? 0 : -1;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool has(const struct bases *b, int64_t base)
{
    return b->count > 0 && bsearch(&base, b->list, b->count, sizeof base, compare) != NULL;
}

static void sort(struct bases *b)
{
    if (b->count > 0)
        qsort(b->list, b->count, sizeof *b->list, compare);
}

static bool is_index(const char *suffix)
{
    return !strcmp(suffix, SUFFIX_INDEX) || !strcmp(suffix, SUFFIX_TIME_INDEX) ||
           !strcmp(suffix, ".txnindex");
}

static bool is_left_over(const char *suffix)
{
    return ends_in(suffix, SUFFIX_DELETED) || ends_in(suffix, SUFFIX_CLEANED) ||
           ends_in(suffix, SUFFIX_SWAP) || ends_in(suffix, ".tmp");
}

/* Call `visit` for each entry. */
static int each_entry(const struct directory *d,
                      int (*visit)(const struct directory *d, struct found *f, const char *name),
                      struct found *f)
{
    DIR *dir = opendir(directory_path(d));
    if (!dir)
        return -1;
    int r = 0;
    struct dirent *entry;
    while (r == 0 && (errno = 0, entry = readdir(dir)))
        r = visit(d, f, entry->d_name);
    int saved = errno;
    closedir(dir);
    errno = saved;
    return r != 0 || saved != 0 ? -1 : 0;
}

static int collect(const struct directory *d, struct found *f, const char *name)
{
    int64_t base;
    const char *suffix = parse_name(name, &base);
    f->left_over = f->left_over || is_left_over(name);
    int r = 0;
    if (suffix && strcmp(suffix, SUFFIX_LOG) == 0)
        r = add(&f->logs, base);
    else if (suffix && is_index(suffix))
        r = add(&f->indexes, base);
    else if (suffix && strcmp(suffix, SUFFIX_SNAPSHOT) == 0)
        r = add(&f->snapshots, base);
    if (r != 0)
        errno = ENOMEM;
    return r;
}

/* ---- finished compactions ------------------------------------------------------------------------------ */

/* Where the offsets of a `.swap` log end; its headers must lead to the file's end. Returns 0, or
 * -BROOK_E_CORRUPT_BATCH or -BROOK_E_STORAGE_ERROR. */
static int find_end(const char *path, int64_t base, int64_t *ret_end)
{
    struct header_cursor c;
    struct batch_header h;
    struct stat st;
    int64_t position, end = base;
    int fd = io_open(path, O_RDONLY);
    if (fd < 0)
        return -BROOK_E_STORAGE_ERROR;
    int r = fstat(fd, &st) == 0 ? 0 : -BROOK_E_STORAGE_ERROR;
    bool has_batch = r == 0 && st.st_size >= BATCH_HEADER_BYTES;
    header_cursor_init(&c, fd, 0, has_batch ? st.st_size : 0);
    while (r == 0 && (r = header_cursor_next(&c, &h, &position)) == 0) {
        if (h.base_offset < end)
            r = -BROOK_E_CORRUPT_BATCH;
        end = batch_last_offset(&h) + 1;
    }
    io_close(fd);
    *ret_end = end;
    return r == -BROOK_E_AGAIN ? 0 : r;
}

/* Remove the logs that begin behind `base` and before `end`, the newest first. */
static int remove_covered(const struct directory *d, struct found *f, int64_t base, int64_t end)
{
    char path[PATH_MAX];
    size_t kept = 0;
    for (size_t i = f->logs.count; i-- > 0;) {
        if (f->logs.list[i] <= base || f->logs.list[i] >= end)
            continue;
        directory_segment_path(d, f->logs.list[i], SUFFIX_LOG, path); /* its indexes are swept */
        if (io_unlink(path) != 0)
            return -1;
    }
    for (size_t i = 0; i < f->logs.count; i++)
        if (f->logs.list[i] <= base || f->logs.list[i] >= end)
            f->logs.list[kept++] = f->logs.list[i];
    f->logs.count = kept;
    return 0;
}

/* What it covers is durably gone before the name that tells so; the log of its own name goes by the renaming.
 * Indexes of that name are the old one's. */
static int take_place(const struct directory *d, struct found *f, const char *name, int64_t base, int64_t end)
{
    static const char *const indexes[] = {SUFFIX_INDEX, SUFFIX_TIME_INDEX};
    char from[PATH_MAX], to[PATH_MAX];
    if (remove_covered(d, f, base, end) != 0)
        return -1;
    for (size_t i = 0; i < 2; i++) {
        directory_segment_path(d, base, indexes[i], to);
        if (io_unlink(to) != 0 && errno != ENOENT)
            return -1;
    }
    if (!has(&f->logs, base)) {
        if (add(&f->logs, base) != 0)
            return -1;
        sort(&f->logs);
    }
    if (io_sync_directory(directory_path(d)) != 0)
        return -1;
    directory_file_path(d, name, from);
    directory_segment_path(d, base, SUFFIX_LOG, to);
    return io_rename(from, to);
}

/* The first segment that a compaction had begun to write. Apache Kafka splits a segment into several `.cleaned`
 * ones and names them `.swap` from the last on: as long as one in front is not named so, none counts. */
static int note_cleaned(const struct directory *d, struct found *f, const char *name)
{
    int64_t base;
    const char *suffix = parse_name(name, &base);
    if (suffix && strcmp(suffix, SUFFIX_LOG SUFFIX_CLEANED) == 0 && (f->cleaned < 0 || base < f->cleaned))
        f->cleaned = base;
    return 0;
}

/* A `.swap` log is whole and on stable storage: it takes the place of all that it covers. One without a batch
 * covers nothing; it is only good where there is nothing else. */
static int finish_swaps(const struct directory *d, struct found *f, const char *name)
{
    int64_t base, end;
    char path[PATH_MAX];
    const char *suffix = parse_name(name, &base);
    if (!suffix || strcmp(suffix, SUFFIX_LOG SUFFIX_SWAP) != 0 || (f->cleaned >= 0 && f->cleaned < base))
        return 0;
    directory_file_path(d, name, path);
    f->err = find_end(path, base, &end);
    if (f->err != 0)
        return -1;
    if (end == base && has(&f->logs, base))
        return 0;
    return take_place(d, f, name, base, end);
}

static int sweep(const struct directory *d, struct found *f, const char *name)
{
    int64_t base;
    const char *suffix = parse_name(name, &base);
    bool lone_index = suffix && is_index(suffix) && !has(&f->logs, base);
    return lone_index || is_left_over(name) ? unlink_in(d, name) : 0;
}

/* One pass over the names where all is well, three where a crash left something. */
static int look(const struct directory *d, struct found *f)
{
    if (each_entry(d, collect, f) != 0)
        return -1;
    sort(&f->logs);
    sort(&f->snapshots);
    bool lone_index = false;
    for (size_t i = 0; i < f->indexes.count && !lone_index; i++)
        lone_index = !has(&f->logs, f->indexes.list[i]);
    if (!f->left_over && !lone_index)
        return 0;
    if (each_entry(d, note_cleaned, f) != 0 || each_entry(d, finish_swaps, f) != 0)
        return -1;
    return each_entry(d, sweep, f);
}

int log_files_find(const struct directory *d, struct log_files *ret_files, struct brook_error *error)
{
    struct found f = {.cleaned = -1};
    int r = look(d, &f);
    free(f.indexes.list);
    if (r != 0) {
        free(f.logs.list);
        free(f.snapshots.list);
        if (f.err == -BROOK_E_CORRUPT_BATCH || f.err == -BROOK_E_UNSUPPORTED_FORMAT)
            return brook_error_set(error, BROOK_E_CORRUPT_BATCH,
                                   "%s: a compacted segment (.swap) is damaged; nothing was changed",
                                   directory_path(d));
        return storage_error(error, "looking into %s", directory_path(d));
    }
    *ret_files = (struct log_files){.bases = f.logs.list,
                                    .bases_count = f.logs.count,
                                    .snapshots = f.snapshots.list,
                                    .snapshots_count = f.snapshots.count};
    return 0;
}
