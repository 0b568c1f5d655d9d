#include "broker/storage/inspect_internal.h"

#include "broker/storage/checkpoint.h"
#include "broker/storage/directory.h"
#include "broker/storage/file.h"
#include "broker/storage/header_cursor.h"
#include "broker/storage/identity.h"
#include "broker/storage/lock_file.h"
#include "broker/storage/partition_name.h"
#include "proto/base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define OFFSET_DIGITS 20
#define START_OFFSETS_FILE "log-start-offset-checkpoint"

const char *inspect_kind_name(enum inspect_kind kind)
{
    static const char *const names[INSPECT_KINDS_COUNT] = {
        [INSPECT_NOTE] = "note",
        [INSPECT_SIDE_FILE] = "side file",
        [INSPECT_INDEX] = "index",
        [INSPECT_TORN] = "torn tail",
        [INSPECT_DAMAGE] = "damage",
        [INSPECT_UNREADABLE] = "unreadable",
    };
    return names[kind];
}

void inspect_say(struct inspect *in, enum inspect_kind kind, const char *path, int64_t position,
                 const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    in->findings[kind]++;
    in->found(in->arg, &(struct inspect_finding){.kind = kind, .path = path, .position = position, .text = text});
}

/* ---- names ------------------------------------------------------------------------------------------- */

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool inspect_parse_base(const char *path, const char *suffix, int64_t *ret_base)
{
    const char *name = name_of(path);
    int64_t base = 0;
    for (int i = 0; i < OFFSET_DIGITS; i++)
        if (name[i] < '0' || name[i] > '9' || __builtin_mul_overflow(base, 10, &base) ||
            __builtin_add_overflow(base, name[i] - '0', &base))
            return false;
    if (strcmp(name + OFFSET_DIGITS, suffix) != 0)
        return false;
    *ret_base = base;
    return true;
}

bool inspect_parse_partition(const char *path, char topic[256], int32_t *ret_partition)
{
    char resolved[PATH_MAX];
    return realpath(path, resolved) && partition_name_parse(name_of(resolved), topic, ret_partition);
}

void inspect_segment_path(const char *directory, int64_t base, const char *suffix, char buffer[PATH_MAX])
{
    snprintf(buffer, PATH_MAX, "%s/%020" PRId64 "%s", directory, base, suffix);
}

static void free_names(struct dirent **names, int count)
{
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

static int visible(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

/* Call `visit` with the path of each entry, in the order of their names, until one answers non-zero. */
static int each_entry(const char *directory, int (*visit)(void *arg, const char *path), void *arg,
                      struct brook_error *error)
{
    struct dirent **names;
    int count = scandir(directory, &names, visible, alphasort), r = 0;
    if (count < 0)
        return storage_error(error, "looking into %s", directory);
    for (int i = 0; i < count && r == 0; i++) {
        char path[PATH_MAX];
        if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, names[i]->d_name) < sizeof path)
            r = visit(arg, path);
    }
    free_names(names, count);
    return r;
}

struct bases {
    int64_t *list;
    size_t count;
    size_t capacity;
};

static int collect_base(void *arg, const char *path)
{
    struct bases *b = arg;
    int64_t base;
    if (!inspect_parse_base(path, SUFFIX_LOG, &base))
        return 0;
    if (b->count == b->capacity) {
        size_t capacity = b->capacity ? 2 * b->capacity : 16;
        int64_t *list = realloc(b->list, capacity * sizeof *list);
        if (!list)
            return -BROOK_E_NOMEM;
        b->list = list;
        b->capacity = capacity;
    }
    b->list[b->count++] = base; /* 20 digits each: names in order are numbers in order */
    return 0;
}

int inspect_find_segments(const char *directory, int64_t **ret_bases, size_t *ret_count,
                          struct brook_error *error)
{
    struct bases b = {0};
    int r = each_entry(directory, collect_base, &b, error);
    if (r != 0) {
        free(b.list);
        return r;
    }
    *ret_bases = b.list;
    *ret_count = b.count;
    return 0;
}

int64_t inspect_start_offset(const char *directory)
{
    char topic[256], path[PATH_MAX];
    int32_t partition;
    struct offset_checkpoint table;
    if (!inspect_parse_partition(directory, topic, &partition) ||
        (size_t)snprintf(path, sizeof path, "%s/../" START_OFFSETS_FILE, directory) >= sizeof path ||
        offset_checkpoint_load(path, &table) != 0)
        return -1;
    int64_t offset = offset_checkpoint_find(&table, topic, partition);
    offset_checkpoint_done(&table);
    return offset;
}

/* ---- a partition ------------------------------------------------------------------------------------- */

static bool holds_bytes(const char *directory, int64_t base)
{
    char path[PATH_MAX];
    struct stat st;
    inspect_segment_path(directory, base, SUFFIX_LOG, path);
    return stat(path, &st) == 0 && st.st_size > 0;
}

/* Check those from `from` on, until one is gone: -BROOK_E_NOT_FOUND and its base then. */
static int check_listed(struct inspect_log *log, const char *directory, const int64_t *bases, size_t count,
                        int64_t from, int64_t *ret_gone, struct brook_error *error)
{
    size_t more = count; /* the last segment that holds anything */
    while (more > 0 && !holds_bytes(directory, bases[more - 1]))
        more--;
    for (size_t i = 0; i < count; i++) {
        char path[PATH_MAX];
        if (bases[i] < from)
            continue;
        inspect_segment_path(directory, bases[i], SUFFIX_LOG, path);
        int r = inspect_segment(log, path, i + 1 < count ? bases[i + 1] : INT64_MAX, i + 1 < more, error);
        *ret_gone = bases[i];
        if (r != 0)
            return r;
    }
    return 0;
}

static bool is_listed(const int64_t *bases, size_t count, int64_t base)
{
    size_t i = 0;
    while (i < count && bases[i] != base)
        i++;
    return i < count;
}

/* Retention, compaction and truncation take segments away while the others are read: each time one is gone the
 * directory is listed again, and what lies behind it is compared by the new list. */
static int check_segments(struct inspect_log *log, const char *directory, int64_t **bases, size_t *count,
                          struct brook_error *error)
{
    int64_t gone, from = 0;
    int r;
    while ((r = check_listed(log, directory, *bases, *count, from, &gone, error)) == -BROOK_E_NOT_FOUND) {
        struct brook_error again;
        int64_t *list;
        r = inspect_find_segments(directory, &list, count, &again);
        if (r != 0) {
            *error = again;
            return r;
        }
        free(*bases);
        *bases = list;
        if (is_listed(list, *count, gone)) /* it is there and can not be opened: a link to nothing */
            return -BROOK_E_STORAGE_ERROR;
        from = gone + 1;
    }
    return r;
}

static void check_last_epoch(struct inspect_log *log, const char *path)
{
    const struct epochs *e = &log->epochs;
    if (log->epochs_path && e->count > 0 && e->entries[e->count - 1].start_offset > log->next_offset)
        inspect_say(log->in, INSPECT_SIDE_FILE, path, -1,
                    "epoch %" PRId32 " begins at offset %" PRId64 ", behind the log's end %" PRId64,
                    e->entries[e->count - 1].epoch, e->entries[e->count - 1].start_offset, log->next_offset);
}

static int check_log(struct inspect *in, const char *directory, struct brook_error *error)
{
    char path[PATH_MAX];
    AUTO_FREE int64_t *bases = NULL;
    size_t count;
    int r = inspect_find_segments(directory, &bases, &count, error);
    if (r != 0)
        return r;
    if (count == 0)
        inspect_say(in, INSPECT_NOTE, directory, -1, "holds no segment");
    struct inspect_log log = {.in = in, .start_offset = inspect_start_offset(directory)};
    if (count > 0 && log.start_offset < bases[0])
        log.start_offset = bases[0];
    log.next_offset = count > 0 ? bases[0] : 0;
    snprintf(path, sizeof path, "%s/" EPOCHS_FILE, directory);
    if (epochs_load(&log.epochs, path) == 0)
        log.epochs_path = path;
    r = check_segments(&log, directory, &bases, &count, error);
    if (r == 0)
        check_last_epoch(&log, path);
    epochs_done(&log.epochs);
    return r;
}

static bool is_gone(const char *path)
{
    struct stat st;
    return lstat(path, &st) != 0 && errno == ENOENT;
}

struct side_pass {
    struct inspect *in;
    struct brook_error *error;
};

static int check_side_file(void *arg, const char *path)
{
    struct side_pass *pass = arg;
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return 0;
    int r = inspect_side_file(pass->in, path, pass->error);
    return r == -BROOK_E_INVALID || is_gone(path) ? 0 : r; /* whatever else lies there is nobody's business */
}

int inspect_partition(struct inspect *in, const char *directory, struct brook_error *error)
{
    struct side_pass pass = {.in = in, .error = error};
    in->partitions++;
    int r = check_log(in, directory, error);
    return r == 0 ? each_entry(directory, check_side_file, &pass, error) : r;
}

/* ---- a data directory -------------------------------------------------------------------------------- */

static bool ends_in(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

static bool is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_partition(const char *path)
{
    char topic[256];
    int32_t partition;
    return is_directory(path) && partition_name_parse(name_of(path), topic, &partition);
}

static int check_known(struct side_pass *pass, const char *path)
{
    if (!is_directory(path))
        return check_side_file(pass, path);
    bool aside = ends_in(path, SUFFIX_STRAY_DIRECTORY);
    if (aside)
        inspect_say(pass->in, INSPECT_NOTE, path, -1, "set aside: the cluster did not know it");
    else if (ends_in(path, SUFFIX_DELETED_DIRECTORY))
        inspect_say(pass->in, INSPECT_NOTE, path, -1, "being deleted: removed at the next start");
    return aside || is_partition(path) || ends_in(path, "-future") ? inspect_partition(pass->in, path, pass->error)
                                                                  : 0;
}

/* One that can not be read is told; the others are checked all the same. */
static int check_entry(void *arg, const char *path)
{
    struct side_pass *pass = arg;
    int r = check_known(pass, path);
    if (r == 0 || r == -BROOK_E_NOMEM)
        return r;
    if (!is_gone(path))
        inspect_say(pass->in, INSPECT_UNREADABLE, path, -1, "%s", pass->error->text);
    return 0;
}

static void note_owner(struct inspect *in, const char *directory)
{
    char path[PATH_MAX];
    long owner;
    if ((size_t)snprintf(path, sizeof path, "%s/" LOCK_FILE, directory) < sizeof path &&
        lock_file_is_taken(path, &owner))
        inspect_say(in, INSPECT_NOTE, path, -1,
                    "process %ld has the directory open: the ends of its logs may be in the making", owner);
}

int inspect_data_dir(struct inspect *in, const char *directory, struct brook_error *error)
{
    struct side_pass pass = {.in = in, .error = error};
    note_owner(in, directory);
    return each_entry(directory, check_entry, &pass, error);
}

static int says_data_dir(void *arg, const char *path)
{
    (void)arg;
    return is_partition(path) ? 1 : 0;
}

bool inspect_is_data_dir(const char *directory)
{
    char path[PATH_MAX];
    return ((size_t)snprintf(path, sizeof path, "%s/" IDENTITY_FILE, directory) < sizeof path &&
            access(path, F_OK) == 0) ||
           each_entry(directory, says_data_dir, NULL, NULL) == 1;
}

/* ---- one file ---------------------------------------------------------------------------------------- */

static int check_one_segment(struct inspect *in, const char *path, struct brook_error *error)
{
    struct inspect_log log = {.in = in};
    return inspect_segment(&log, path, INT64_MAX, false, error);
}

int inspect_file(struct inspect *in, const char *path, struct brook_error *error)
{
    static const char *const indexes[] = {SUFFIX_TIME_INDEX, SUFFIX_INDEX};
    char log_path[PATH_MAX];
    if (ends_in(path, SUFFIX_LOG))
        return check_one_segment(in, path, error);
    for (size_t i = 0; i < sizeof indexes / sizeof indexes[0]; i++) {
        if (!ends_in(path, indexes[i]))
            continue;
        int stem = (int)(strlen(path) - strlen(indexes[i]));
        if ((size_t)snprintf(log_path, sizeof log_path, "%.*s" SUFFIX_LOG, stem, path) >= sizeof log_path)
            return brook_error_set(error, BROOK_E_STORAGE_ERROR, "%.100s...: too long a path", path);
        return check_one_segment(in, log_path, error);
    }
    int r = inspect_side_file(in, path, error);
    return r == -BROOK_E_INVALID
               ? brook_error_set(error, BROOK_E_INVALID, "%s is no file of a log or of a data directory", path)
               : r;
}
