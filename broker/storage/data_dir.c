#include "broker/storage/data_dir.h"

#include "broker/storage/checkpoint.h"
#include "broker/storage/directory.h"
#include "broker/storage/file.h"
#include "broker/storage/identity.h"
#include "broker/storage/lock_file.h"
#include "broker/storage/marker.h"
#include "broker/storage/partition_metadata.h"
#include "broker/storage/partition_name.h"
#include "broker/storage/registered.h"
#include "proto/base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define WARNINGS_MAX 64

/* Written in this order: what is not true of a log that lost records goes before its recovery point is lowered. */
enum which_checkpoint {
    REACHED_EPOCHS,
    RECOVERY_POINTS,
    START_OFFSETS,
    HIGH_WATERMARKS,
    CLEANED_OFFSETS,
    CHECKPOINTS_COUNT
};
static const char *const checkpoint_files[CHECKPOINTS_COUNT] = {
    [REACHED_EPOCHS] = REACHED_FILE,
    [RECOVERY_POINTS] = "recovery-point-offset-checkpoint",
    [START_OFFSETS] = "log-start-offset-checkpoint",
    [HIGH_WATERMARKS] = "replication-offset-checkpoint",
    [CLEANED_OFFSETS] = "cleaner-offset-checkpoint",
};

/* What the checkpoints say, or will say, about one partition. -1: not known. */
struct known {
    char *topic;
    int32_t partition;
    int64_t offsets[CHECKPOINTS_COUNT]; /* a leader epoch is none, but as good a number */
};

struct data_dir {
    char *path;
    int lock_fd;
    bool is_left_unclaimed;
    struct identity unclaimed; /* to be written by data_dir_claim() */
    bool was_clean;
    int64_t marker_epoch;                  /* named by the marker that was found */
    int64_t broker_epoch;                  /* to be named by the next */
    struct registered registered;          /* noted last; epoch -1: none */
    struct data_dir_partition *partitions; /* as found */
    size_t count;
    size_t capacity;
    struct known *known; /* sorted by topic and number */
    size_t known_count;
    size_t known_capacity;
    bool has_leftovers; /* checkpoints speak of partitions whose directory is not there */
    bool is_lowering;   /* the recovery points are lower than what is on the disk */
    char *warnings[WARNINGS_MAX];
    size_t warnings_count;
};

static void warn(struct data_dir *dir, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void warn(struct data_dir *dir, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (dir->warnings_count < WARNINGS_MAX &&
        vasprintf(&dir->warnings[dir->warnings_count], format, args) >= 0)
        dir->warnings_count++;
    va_end(args);
}

static void file_path(const struct data_dir *dir, const char *name, char buffer[PATH_MAX])
{
    snprintf(buffer, PATH_MAX, "%s/%s", dir->path, name);
}

/* ---- marker and identity ----------------------------------------------------------------------------- */

/* Read the marker and remove it, synced, before anything else is touched. One that makes no sense promises
 * nothing: the logs are scanned. */
static int take_marker(struct data_dir *dir, struct brook_error *error)
{
    char path[PATH_MAX];
    file_path(dir, MARKER_FILE, path);
    int r = marker_load(path, &dir->marker_epoch);
    if (r == -BROOK_E_NOT_FOUND)
        return 0;
    if (r != 0)
        warn(dir, "%s can not be read or makes no sense: the last stop does not count as clean", path);
    if (io_unlink(path) != 0 || io_sync_directory(dir->path) != 0)
        return storage_error(error, "removing %s", path);
    dir->was_clean = r == 0;
    return 0;
}

static int write_marker(struct data_dir *dir)
{
    char path[PATH_MAX];
    file_path(dir, MARKER_FILE, path);
    return marker_save(path, dir->broker_epoch);
}

static void read_registered(struct data_dir *dir)
{
    char path[PATH_MAX];
    file_path(dir, REGISTERED_FILE, path);
    if (registered_load(path, &dir->registered) == -BROOK_E_INVALID)
        warn(dir, "%s can not be read or makes no sense: it proves nothing in elections", path);
}

static int refuse(const char *path, struct brook_error *error, const char *what, const char *theirs,
                  const char *ours)
{
    return brook_error_set(error, BROOK_E_CONFIG, "%s belongs to %s %s, not to %s", path, what, theirs, ours);
}

static int check_identity(struct data_dir *dir, int32_t broker_id, const char *cluster_id,
                          struct brook_error *error)
{
    char path[PATH_MAX], theirs[16], ours[16];
    struct identity found;
    file_path(dir, IDENTITY_FILE, path);
    int r = identity_load(path, &found);
    if (r == -BROOK_E_STORAGE_ERROR)
        return storage_error(error, "reading %s", path);
    if (r == -BROOK_E_UNSUPPORTED_VERSION)
        return brook_error_set(error, BROOK_E_CONFIG, "%s is of a later version than 0 and 1, the ones known here",
                               path);
    if (r == -BROOK_E_INVALID)
        warn(dir, "%s makes no sense and was written anew", path);
    if (r == 0 && found.broker_id >= 0 && found.broker_id != broker_id) {
        snprintf(theirs, sizeof theirs, "%" PRId32, found.broker_id);
        snprintf(ours, sizeof ours, "%" PRId32, broker_id);
        return refuse(dir->path, error, "broker", theirs, ours);
    }
    if (r == 0 && found.cluster_id[0] != '\0' && strcmp(found.cluster_id, cluster_id) != 0)
        return refuse(dir->path, error, "cluster", found.cluster_id, cluster_id);
    if (r == 0 && found.broker_id >= 0 && found.cluster_id[0] != '\0') {
        dir->is_left_unclaimed = false;
        return 0;
    }
    struct identity mine = {.broker_id = broker_id};
    if (snprintf(mine.cluster_id, sizeof mine.cluster_id, "%s", cluster_id) > CLUSTER_ID_BYTES_MAX)
        return brook_error_set(error, BROOK_E_CONFIG, "the cluster id %s is too long", cluster_id);
    if (dir->is_left_unclaimed && r == -BROOK_E_NOT_FOUND) {
        dir->unclaimed = mine;
        return 0;
    }
    dir->is_left_unclaimed = false;
    return identity_save(path, &mine, error);
}

bool data_dir_is_new(const struct data_dir *dir)
{
    char path[PATH_MAX];
    struct stat st;
    file_path(dir, IDENTITY_FILE, path);
    return stat(path, &st) != 0 && errno == ENOENT;
}

void data_dir_leave_unclaimed(struct data_dir *dir)
{
    dir->is_left_unclaimed = true;
}

int data_dir_claim(struct data_dir *dir, struct brook_error *error)
{
    char path[PATH_MAX];
    if (!dir->is_left_unclaimed)
        return 0;
    file_path(dir, IDENTITY_FILE, path);
    int err = identity_save(path, &dir->unclaimed, error);
    dir->is_left_unclaimed = err != 0;
    return err;
}

/* ---- partitions -------------------------------------------------------------------------------------- */

static bool ends_in(const char *name, const char *suffix)
{
    size_t n = strlen(name), s = strlen(suffix);
    return n >= s && strcmp(name + n - s, suffix) == 0;
}

static bool is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static void read_topic_id(struct data_dir *dir, const char *partition_path, struct data_dir_partition *p)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/" PARTITION_METADATA_FILE, partition_path) >= sizeof path)
        return;
    if (partition_metadata_load(path, p->topic_id) == -BROOK_E_INVALID)
        warn(dir, "%s makes no sense: the topic's id is not known", path);
}

static int add_partition(struct data_dir *dir, const struct data_dir_partition *p)
{
    if (dir->count == dir->capacity) {
        size_t capacity = dir->capacity ? 2 * dir->capacity : 64;
        void *grown = realloc(dir->partitions, capacity * sizeof *dir->partitions);
        if (!grown)
            return -1;
        dir->partitions = grown;
        dir->capacity = capacity;
    }
    dir->partitions[dir->count++] = *p;
    return 0;
}

static int take_entry(struct data_dir *dir, const char *name)
{
    char path[PATH_MAX];
    struct data_dir_partition p = {.hint = {.clean = dir->was_clean}};
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir->path, name) >= sizeof path)
        return 0;
    if (ends_in(name, SUFFIX_DELETED_DIRECTORY)) {
        if (is_directory(path) && directory_remove(path) != 0)
            warn(dir, "%s is left of a deletion and can not be removed: %s", path, strerror(errno));
        return 0;
    }
    if (!partition_name_parse(name, p.topic, &p.partition) || !is_directory(path))
        return 0;
    read_topic_id(dir, path, &p);
    return add_partition(dir, &p);
}

static int find_partitions(struct data_dir *dir)
{
    DIR *d = opendir(dir->path);
    if (!d)
        return -1;
    int r = 0;
    struct dirent *entry;
    while (r == 0 && (entry = readdir(d)))
        r = entry->d_name[0] == '.' ? 0 : take_entry(dir, entry->d_name);
    closedir(d);
    return r;
}

/* ---- checkpoints ------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const struct known *x = a, *y = b;
    int r = strcmp(x->topic, y->topic);
    return r != 0 ? r : (x->partition > y->partition) - (x->partition < y->partition);
}

static void sort_known(struct data_dir *dir)
{
    if (dir->known_count > 0)
        qsort(dir->known, dir->known_count, sizeof *dir->known, compare);
}

/* Among the first `count`. */
static struct known *find_known(const struct data_dir *dir, size_t count, const char *topic,
                                int32_t partition)
{
    struct known key = {.topic = (char *)(uintptr_t)topic, .partition = partition};
    return count > 0 ? bsearch(&key, dir->known, count, sizeof key, compare) : NULL;
}

/* At the end: whoever adds sorts. */
static struct known *add_known(struct data_dir *dir, const char *topic, int32_t partition)
{
    if (dir->known_count == dir->known_capacity) {
        size_t capacity = dir->known_capacity ? 2 * dir->known_capacity : 64;
        void *grown = realloc(dir->known, capacity * sizeof *dir->known);
        if (!grown)
            return NULL;
        dir->known = grown;
        dir->known_capacity = capacity;
    }
    struct known k = {.topic = strdup(topic), .partition = partition, .offsets = {-1, -1, -1, -1, -1}};
    if (!k.topic)
        return NULL;
    dir->known[dir->known_count] = k;
    return &dir->known[dir->known_count++];
}

static void load_checkpoint(struct data_dir *dir, enum which_checkpoint which)
{
    char path[PATH_MAX];
    struct offset_checkpoint table = {0};
    file_path(dir, checkpoint_files[which], path);
    int r = offset_checkpoint_load(path, &table);
    if (r != 0 && r != -BROOK_E_NOT_FOUND)
        warn(dir, "%s makes no sense and counts as not there", path);
    for (size_t i = 0; i < dir->known_count; i++)
        dir->known[i].offsets[which] =
            offset_checkpoint_find(&table, dir->known[i].topic, dir->known[i].partition);
    for (size_t i = 0; i < table.count && !dir->has_leftovers; i++)
        dir->has_leftovers =
            !find_known(dir, dir->known_count, table.entries[i].topic, table.entries[i].partition);
    offset_checkpoint_done(&table);
}

/* Epochs that are none are of somebody who means something else by that name: nothing in it counts. */
static void check_reached(struct data_dir *dir)
{
    bool is_foreign = false;
    for (size_t i = 0; i < dir->known_count; i++)
        is_foreign = is_foreign || dir->known[i].offsets[REACHED_EPOCHS] > INT32_MAX;
    if (!is_foreign)
        return;
    warn(dir, "%s/%s holds what are no leader epochs, and counts as not there", dir->path,
         checkpoint_files[REACHED_EPOCHS]);
    for (size_t i = 0; i < dir->known_count; i++)
        dir->known[i].offsets[REACHED_EPOCHS] = -1;
}

/* Only for partitions whose directory is there: what is said of others is about logs that are gone. */
static int load_checkpoints(struct data_dir *dir)
{
    for (size_t i = 0; i < dir->count; i++)
        if (!add_known(dir, dir->partitions[i].topic, dir->partitions[i].partition))
            return -1;
    sort_known(dir);
    for (int which = 0; which < CHECKPOINTS_COUNT; which++)
        load_checkpoint(dir, which);
    check_reached(dir);
    for (size_t i = 0; i < dir->count; i++) {
        struct data_dir_partition *p = &dir->partitions[i];
        const struct known *k = find_known(dir, dir->known_count, p->topic, p->partition);
        p->hint.recovery_point = k->offsets[RECOVERY_POINTS];
        p->hint.start_offset = k->offsets[START_OFFSETS];
        p->high_watermark = k->offsets[HIGH_WATERMARKS];
        p->hint.cleaned_offset = k->offsets[CLEANED_OFFSETS];
    }
    return 0;
}

static int save_checkpoint(struct data_dir *dir, enum which_checkpoint which, const struct known *const *list,
                           size_t count, struct brook_error *error)
{
    char path[PATH_MAX];
    struct checkpoint_writer w;
    size_t said = 0;
    for (size_t i = 0; i < count; i++)
        said += list[i]->offsets[which] >= 0;
    checkpoint_writer_init(&w, said);
    for (size_t i = 0; i < count; i++)
        if (list[i]->offsets[which] >= 0)
            checkpoint_writer_add(&w, "%s %" PRId32 " %" PRId64, list[i]->topic, list[i]->partition,
                                  list[i]->offsets[which]);
    file_path(dir, checkpoint_files[which], path);
    return checkpoint_writer_save(&w, path, true, error);
}

/* CHECKPOINTS_COUNT: all of them. */
static int save_some(struct data_dir *dir, enum which_checkpoint only, struct brook_error *error)
{
    AUTO_FREE const struct known **list = calloc(dir->known_count + 1, sizeof *list);
    size_t count = 0;
    int r = list ? 0 : -BROOK_E_NOMEM;
    for (size_t i = 0; r == 0 && i < dir->known_count; i++) {
        char path[PATH_MAX];
        data_dir_partition_path(dir, dir->known[i].topic, dir->known[i].partition, path);
        if (is_directory(path))
            list[count++] = &dir->known[i];
    }
    for (enum which_checkpoint which = 0; r == 0 && which < CHECKPOINTS_COUNT; which++)
        if (which == only || only == CHECKPOINTS_COUNT)
            r = save_checkpoint(dir, which, list, count, error);
    if (r == 0 && only == CHECKPOINTS_COUNT)
        dir->has_leftovers = false;
    return r == -BROOK_E_NOMEM ? brook_error_set(error, BROOK_E_NOMEM, "out of memory") : r;
}

static int save_checkpoints(struct data_dir *dir, struct brook_error *error)
{
    return save_some(dir, CHECKPOINTS_COUNT, error);
}

int data_dir_checkpoint(struct data_dir *dir, const struct data_dir_checkpoint *entries, size_t count,
                        struct brook_error *error)
{
    size_t sorted = dir->known_count;
    for (size_t i = 0; i < count; i++) {
        const struct data_dir_checkpoint *e = &entries[i];
        struct known *k = find_known(dir, sorted, e->topic, e->partition);
        if (!k && !(k = add_known(dir, e->topic, e->partition)))
            return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
        if (e->reached_epoch > k->offsets[REACHED_EPOCHS])
            k->offsets[REACHED_EPOCHS] = e->reached_epoch;
        k->offsets[RECOVERY_POINTS] = e->recovery_point;
        if (e->start_offset > k->offsets[START_OFFSETS])
            k->offsets[START_OFFSETS] = e->start_offset;
        k->offsets[HIGH_WATERMARKS] = e->high_watermark;
        k->offsets[CLEANED_OFFSETS] = e->cleaned_offset > 0 ? e->cleaned_offset : -1;
    }
    sort_known(dir);
    return save_checkpoints(dir, error);
}

/* Only rises. Written even if it is not news: an attempt before this one may have failed. */
static int raise_all(struct data_dir *dir, enum which_checkpoint which, const struct data_dir_start *list, size_t count)
{
    size_t sorted = dir->known_count;
    for (size_t i = 0; i < count; i++) {
        struct known *k = find_known(dir, sorted, list[i].topic, list[i].partition);
        if (!k && !(k = add_known(dir, list[i].topic, list[i].partition))) {
            sort_known(dir);
            return -BROOK_E_NOMEM;
        }
        if (list[i].offset > k->offsets[which])
            k->offsets[which] = list[i].offset;
    }
    if (dir->known_count > sorted)
        sort_known(dir);
    return save_some(dir, which, NULL);
}

int data_dir_raise_starts(struct data_dir *dir, const struct data_dir_start *starts, size_t count)
{
    return raise_all(dir, START_OFFSETS, starts, count);
}

int data_dir_raise_start(struct data_dir *dir, const char *topic, int32_t partition, int64_t offset)
{
    const struct data_dir_start start = {topic, partition, offset};
    return data_dir_raise_starts(dir, &start, 1);
}

int data_dir_lower_recovery_points(struct data_dir *dir, const struct data_dir_start *points, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct known *k = find_known(dir, dir->known_count, points[i].topic, points[i].partition);
        if (!k || k->offsets[RECOVERY_POINTS] <= points[i].offset)
            continue;
        k->offsets[RECOVERY_POINTS] = points[i].offset;
        dir->is_lowering = true;
    }
    /* An attempt before this one may have failed. */
    int err = dir->is_lowering ? save_some(dir, RECOVERY_POINTS, NULL) : 0;
    dir->is_lowering = dir->is_lowering && err;
    return err;
}

int data_dir_keep_reached(struct data_dir *dir, const struct data_dir_start *epochs, size_t count)
{
    return raise_all(dir, REACHED_EPOCHS, epochs, count);
}

int32_t data_dir_reached(const struct data_dir *dir, const char *topic, int32_t partition)
{
    const struct known *k = find_known(dir, dir->known_count, topic, partition);
    return k ? (int32_t)k->offsets[REACHED_EPOCHS] : -1;
}

int data_dir_forget_reached(struct data_dir *dir, const char *topic, int32_t partition)
{
    struct known *k = find_known(dir, dir->known_count, topic, partition);
    if (!k || k->offsets[REACHED_EPOCHS] < 0)
        return 0;
    int64_t before = k->offsets[REACHED_EPOCHS];
    k->offsets[REACHED_EPOCHS] = -1;
    int err = save_some(dir, REACHED_EPOCHS, NULL);
    if (err)
        k->offsets[REACHED_EPOCHS] = before; /* to be tried again */
    return err;
}

int data_dir_forget(struct data_dir *dir, const char *topic, int32_t partition)
{
    struct known *k = find_known(dir, dir->known_count, topic, partition);
    bool anything = dir->has_leftovers; /* it may be among them */
    for (int which = 0; k && which < CHECKPOINTS_COUNT; which++) {
        anything = anything || k->offsets[which] >= 0;
        k->offsets[which] = -1;
    }
    return anything ? save_checkpoints(dir, NULL) : 0;
}

/* ---- the directory ----------------------------------------------------------------------------------- */

static void free_data_dir(struct data_dir *dir)
{
    for (size_t i = 0; i < dir->warnings_count; i++)
        free(dir->warnings[i]);
    if (dir->lock_fd >= 0)
        io_close(dir->lock_fd);
    for (size_t i = 0; i < dir->known_count; i++)
        free(dir->known[i].topic);
    free(dir->known);
    free(dir->partitions);
    free(dir->path);
    free(dir);
}

static int take_lock(struct data_dir *dir, struct brook_error *error)
{
    char path[PATH_MAX];
    bool is_made = io_mkdir(dir->path) == 0;
    if (!is_made && errno != EEXIST)
        return storage_error(error, "creating %s", dir->path);
    /* All that is synced in it hangs on its own name. One that was there may be of a process that was killed in
     * between; above it there may be nothing for us to read. */
    if (file_sync_parent(dir->path) != 0 && is_made)
        return storage_error(error, "syncing the parent of %s", dir->path);
    file_path(dir, LOCK_FILE, path);
    return lock_file_take(path, &dir->lock_fd, error);
}

int data_dir_lock(const char *path, struct data_dir **ret_dir, struct brook_error *error)
{
    if (strlen(path) + 2 * 256 >= PATH_MAX)
        return brook_error_set(error, BROOK_E_CONFIG, "the path %.100s... is too long", path);
    struct data_dir *dir = calloc(1, sizeof *dir);
    if (!dir || !(dir->path = strdup(path))) {
        free(dir);
        return brook_error_set(error, BROOK_E_STORAGE_ERROR, "out of memory opening %s", path);
    }
    dir->lock_fd = -1;
    dir->marker_epoch = -1;
    dir->broker_epoch = -1;
    dir->registered.broker_epoch = -1;
    int r = take_lock(dir, error);
    if (r != 0) {
        free_data_dir(dir);
        return r;
    }
    *ret_dir = dir;
    return 0;
}

int data_dir_load(struct data_dir *dir, int32_t broker_id, const char *cluster_id, struct brook_error *error)
{
    int r = check_identity(dir, broker_id, cluster_id, error);
    if (r == 0)
        r = take_marker(dir, error);
    if (r != 0)
        return r;
    read_registered(dir);
    return find_partitions(dir) == 0 && load_checkpoints(dir) == 0
               ? 0
               : storage_error(error, "looking into %s", dir->path);
}

int data_dir_open(const char *path, int32_t broker_id, const char *cluster_id, struct data_dir **ret_dir,
                  struct brook_error *error)
{
    struct data_dir *dir;
    int r = data_dir_lock(path, &dir, error);
    if (r != 0)
        return r;
    r = data_dir_load(dir, broker_id, cluster_id, error);
    if (r != 0) {
        free_data_dir(dir);
        return r;
    }
    *ret_dir = dir;
    return 0;
}

int data_dir_mark_clean(struct data_dir *dir)
{
    return write_marker(dir) == 0 ? 0 : -BROOK_E_STORAGE_ERROR;
}

int data_dir_close(struct data_dir *dir, bool clean)
{
    if (!dir)
        return 0;
    int r = clean ? data_dir_mark_clean(dir) : 0;
    free_data_dir(dir);
    return r;
}

bool data_dir_was_clean(const struct data_dir *dir, int64_t *ret_broker_epoch)
{
    if (ret_broker_epoch)
        *ret_broker_epoch = dir->marker_epoch;
    return dir->was_clean;
}

int64_t data_dir_registered(const struct data_dir *dir, size_t directories)
{
    return (size_t)dir->registered.directories == directories ? dir->registered.broker_epoch : -1;
}

int data_dir_note_registered(struct data_dir *dir, int64_t broker_epoch, size_t directories)
{
    char path[PATH_MAX];
    file_path(dir, REGISTERED_FILE, path);
    struct registered next = {broker_epoch, (int32_t)directories};
    if (broker_epoch < 0 && io_unlink(path) != 0)
        return errno == ENOENT ? 0 : -BROOK_E_STORAGE_ERROR;
    int err = broker_epoch < 0 ? io_sync_directory(dir->path) : registered_save(path, &next);
    if (!err)
        dir->registered = next;
    return broker_epoch < 0 && err ? -BROOK_E_STORAGE_ERROR : err;
}

const char *const *data_dir_warnings(const struct data_dir *dir, size_t *ret_count)
{
    *ret_count = dir->warnings_count;
    return (const char *const *)dir->warnings;
}

void data_dir_set_broker_epoch(struct data_dir *dir, int64_t broker_epoch)
{
    dir->broker_epoch = broker_epoch;
}

const struct data_dir_partition *data_dir_partitions(const struct data_dir *dir, size_t *ret_count)
{
    *ret_count = dir->count;
    return dir->partitions;
}

void data_dir_partition_path(const struct data_dir *dir, const char *topic, int32_t partition,
                             char buffer[PATH_MAX])
{
    snprintf(buffer, PATH_MAX, "%s/%s-%" PRId32, dir->path, topic, partition);
}

int data_dir_write_topic_id(const struct data_dir *dir, const char *topic, int32_t partition,
                            const uint8_t topic_id[16])
{
    char directory[PATH_MAX], path[PATH_MAX];
    data_dir_partition_path(dir, topic, partition, directory);
    if ((size_t)snprintf(path, sizeof path, "%s/" PARTITION_METADATA_FILE, directory) >= sizeof path)
        return -BROOK_E_INVALID;
    return partition_metadata_save(path, topic_id, false, NULL);
}

bool data_dir_holds_nothing(const struct data_dir *dir, const char *topic, int32_t partition)
{
    char path[PATH_MAX];
    data_dir_partition_path(dir, topic, partition, path);
    DIR *d = opendir(path);
    if (!d)
        return errno == ENOENT;
    bool nothing = true;
    struct dirent *entry;
    struct stat st;
    while (nothing && (errno = 0, entry = readdir(d)))
        nothing = !ends_in(entry->d_name, SUFFIX_LOG) ||
                  (fstatat(dirfd(d), entry->d_name, &st, 0) == 0 && st.st_size == 0);
    nothing = nothing && errno == 0;
    closedir(d);
    return nothing;
}

int data_dir_free_bytes(const struct data_dir *dir, int64_t *ret_bytes, struct brook_error *error)
{
    return io_free_bytes(dir->path, ret_bytes) == 0 ? 0 : storage_error(error, "looking at %s", dir->path);
}

int data_dir_set_aside(struct data_dir *dir, const char *topic, int32_t partition)
{
    char path[PATH_MAX];
    data_dir_partition_path(dir, topic, partition, path);
    AUTO_FREE char *aside = directory_name_aside(path, SUFFIX_STRAY_DIRECTORY);
    if (!aside || io_rename(path, aside) != 0 || io_sync_directory(dir->path) != 0)
        return -BROOK_E_STORAGE_ERROR;
    return 0;
}
