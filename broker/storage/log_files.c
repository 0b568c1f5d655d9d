#include "broker/storage/log_files.h"

#include "broker/storage/file.h"
#include "proto/base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define OFFSET_DIGITS 20

struct found {
    int64_t *bases;
    size_t count;
    size_t capacity;
};

static int add(struct found *f, int64_t base)
{
    if (f->count == f->capacity) {
        size_t capacity = f->capacity ? 2 * f->capacity : 16;
        int64_t *bases = realloc(f->bases, capacity * sizeof *bases);
        if (!bases)
            return -BROOK_E_NOMEM;
        f->bases = bases;
        f->capacity = capacity;
    }
    f->bases[f->count++] = base;
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

static bool has(const struct found *f, int64_t base)
{
    return f->count > 0 && bsearch(&base, f->bases, f->count, sizeof base, compare) != NULL;
}

static void sort(struct found *f)
{
    if (f->count > 0)
        qsort(f->bases, f->count, sizeof *f->bases, compare);
}

/* Call `visit` for each entry. */
static int each_entry(const struct directory *d, int (*visit)(const struct directory *d, struct found *f,
                                                              const char *name),
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

static int collect_logs(const struct directory *d, struct found *f, const char *name)
{
    int64_t base;
    const char *suffix = parse_name(name, &base);
    if (!suffix || strcmp(suffix, SUFFIX_LOG) != 0)
        return 0;
    if (add(f, base) == 0)
        return 0;
    errno = ENOMEM;
    return -1;
}

static int finish_swaps(const struct directory *d, struct found *f, const char *name)
{
    int64_t base;
    const char *suffix = parse_name(name, &base);
    if (!suffix || strcmp(suffix, SUFFIX_LOG SUFFIX_SWAP) != 0 || has(f, base))
        return 0;
    char from[PATH_MAX], to[PATH_MAX];
    directory_file_path(d, name, from);
    directory_segment_path(d, base, SUFFIX_LOG, to);
    return io_rename(from, to);
}

static int sweep(const struct directory *d, struct found *f, const char *name)
{
    int64_t base;
    const char *suffix = parse_name(name, &base);
    if (!suffix)
        return ends_in(name, ".tmp") ? unlink_in(d, name) : 0;
    bool left_over = ends_in(suffix, SUFFIX_DELETED) || ends_in(suffix, SUFFIX_CLEANED) ||
                     ends_in(suffix, SUFFIX_SWAP);
    bool index = !strcmp(suffix, SUFFIX_INDEX) || !strcmp(suffix, SUFFIX_TIME_INDEX) ||
                 !strcmp(suffix, ".txnindex");
    return left_over || (index && !has(f, base)) ? unlink_in(d, name) : 0;
}

int log_files_find(const struct directory *d, int64_t **ret_bases, size_t *ret_count, struct brook_error *error)
{
    struct found f = {0};
    int r = each_entry(d, collect_logs, &f);
    sort(&f);
    if (r == 0)
        r = each_entry(d, finish_swaps, &f);
    f.count = 0;
    if (r == 0)
        r = each_entry(d, collect_logs, &f);
    sort(&f);
    if (r == 0)
        r = each_entry(d, sweep, &f);
    if (r != 0) {
        free(f.bases);
        return storage_error(error, "looking into %s", directory_path(d));
    }
    *ret_bases = f.bases;
    *ret_count = f.count;
    return 0;
}
