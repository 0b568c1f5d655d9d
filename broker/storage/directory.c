#include "broker/storage/directory.h"

#include "broker/storage/file.h"
#include "broker/storage/open_files.h"
#include "proto/base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* Kafka caps a directory's name at the file system's 255 bytes. */
#define NAME_BYTES_MAX 255
/* Room that a segment's name takes behind the directory's path, with the longest suffixes. */
#define SEGMENT_NAME_BYTES 64

struct directory {
    _Atomic unsigned refs;
    _Atomic int sync_error;
    pthread_mutex_t sync;
    struct open_files *files;
    char *_Atomic path;
    char *retired; /* NULL: still where it was */
    char original[];
};

int directory_new(const char *path, struct open_files *files, struct directory **ret_directory)
{
    if (strlen(path) + NAME_BYTES_MAX + SEGMENT_NAME_BYTES >= PATH_MAX)
        return -BROOK_E_INVALID;
    struct directory *d = calloc(1, sizeof *d + strlen(path) + 1);
    if (!d)
        return -BROOK_E_NOMEM;
    d->files = open_files_ref(files);
    if (!files && open_files_new(OPEN_FILES_UNLIMITED, &d->files) != 0) {
        free(d);
        return -BROOK_E_NOMEM;
    }
    strcpy(d->original, path);
    pthread_mutex_init(&d->sync, NULL);
    atomic_init(&d->refs, 1);
    atomic_init(&d->path, d->original);
    *ret_directory = d;
    return 0;
}

struct directory *directory_ref(struct directory *d)
{
    atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
    return d;
}

void directory_unref(struct directory *d)
{
    if (!d || atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (d->retired)
        directory_remove(d->retired); /* what stays is swept at the next start */
    open_files_unref(d->files);
    pthread_mutex_destroy(&d->sync);
    free(d->retired);
    free(d);
}

struct open_files *directory_files(const struct directory *d)
{
    return d->files;
}

void directory_lock_sync(struct directory *d)
{
    pthread_mutex_lock(&d->sync);
}

void directory_unlock_sync(struct directory *d)
{
    pthread_mutex_unlock(&d->sync);
}

int directory_sync_error(const struct directory *d)
{
    return d->sync_error;
}

void directory_set_sync_error(struct directory *d, int error)
{
    int none = 0;
    atomic_compare_exchange_strong(&d->sync_error, &none, error);
}

const char *directory_path(const struct directory *d)
{
    return atomic_load_explicit(&d->path, memory_order_acquire);
}

void directory_segment_path(const struct directory *d, int64_t base_offset, const char *suffix,
                            char buffer[PATH_MAX])
{
    snprintf(buffer, PATH_MAX, "%s/%020" PRId64 "%s", directory_path(d), base_offset, suffix);
}

void directory_file_path(const struct directory *d, const char *name, char buffer[PATH_MAX])
{
    snprintf(buffer, PATH_MAX, "%s/%s", directory_path(d), name);
}

char *directory_name_aside(const char *path, const char *suffix)
{
    uint64_t id[2] = {0};
    getrandom(id, sizeof id, 0);
    char tail[64];
    snprintf(tail, sizeof tail, ".%016" PRIx64 "%016" PRIx64 "%s", id[0], id[1], suffix);

    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t kept = strlen(name);
    if (kept + strlen(tail) > NAME_BYTES_MAX)
        kept = NAME_BYTES_MAX - strlen(tail);
    char *result = NULL;
    if (asprintf(&result, "%.*s%.*s%s", (int)(name - path), path, (int)kept, name, tail) < 0)
        return NULL;
    return result;
}

int directory_retire(struct directory *d, struct brook_error *error)
{
    AUTO_FREE char *retired = directory_name_aside(d->original, SUFFIX_DELETED_DIRECTORY);
    if (!retired)
        return brook_error_set(error, BROOK_E_NOMEM, "deleting %s", d->original);
    if (io_rename(d->original, retired) != 0)
        return storage_error(error, "renaming %s", d->original);
    d->retired = TAKE(retired);
    atomic_store_explicit(&d->path, d->retired, memory_order_release);
    if (file_sync_parent(d->original) != 0)
        return storage_error(error, "syncing the directory of %s", d->original);
    return 0;
}

int directory_remove(const char *path)
{
    DIR *dir = opendir(path);
    if (!dir)
        return -1;
    struct dirent *entry;
    char file[PATH_MAX];
    while ((entry = readdir(dir))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if ((size_t)snprintf(file, sizeof file, "%s/%s", path, entry->d_name) < sizeof file)
            io_unlink(file);
    }
    closedir(dir);
    return io_rmdir(path);
}
