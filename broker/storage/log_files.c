#include "broker/storage/log_files.h"

#include "broker/storage/file.h"
#include "proto/base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define OFFSET_DIGITS 20

struct bases {
    int64_t *list;
    size_t count;
    size_t capacity;
};

struct found {
    struct bases logs;
    struct bases indexes; /* of any kind */
    bool left_over;       /* something is there that a crash left behind */
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
    if (r != 0)
        errno = ENOMEM;
    return r;
}

/* A `.swap` log without a log of its name becomes it. */
static int finish_swaps(const struct directory *d, struct found *f, const char *name)
{
    int64_t base;
    const char *suffix = parse_name(name, &base);
    if (!suffix || strcmp(suffix, SUFFIX_LOG SUFFIX_SWAP) != 0 || has(&f->logs, base))
        return 0;
    char from[PATH_MAX], to[PATH_MAX];
    directory_file_path(d, name, from);
    directory_segment_path(d, base, SUFFIX_LOG, to);
    if (add(&f->logs, base) != 0) {
        errno = ENOMEM;
        return -1;
    }
    sort(&f->logs);
    return io_rename(from, to);
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
    bool lone_index = false;
    for (size_t i = 0; i < f->indexes.count && !lone_index; i++)
        lone_index = !has(&f->logs, f->indexes.list[i]);
    if (!f->left_over && !lone_index)
        return 0;
    return each_entry(d, finish_swaps, f) != 0 || each_entry(d, sweep, f) != 0 ? -1 : 0;
}

int log_files_find(const struct directory *d, int64_t **ret_bases, size_t *ret_count,
                   struct brook_error *error)
{
    struct found f = {0};
    int r = look(d, &f);
    free(f.indexes.list);
    if (r != 0) {
        free(f.logs.list);
        return storage_error(error, "looking into %s", directory_path(d));
    }
    *ret_bases = f.logs.list;
    *ret_count = f.logs.count;
    return 0;
}
