#include "tests/support/faulty_io.h"

#include "broker/storage/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define HISTORY_MAX 8192
#define KINDS_COUNT 13

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;

static struct {
    int counts[KINDS_COUNT];
    unsigned kinds; /* of the failing rule */
    int first, count, error;
    int seen;
    int shorten_at; /* 0: no such rule */
    size_t shorten_bytes;
    int shorten_error;
    int writes;
    bool struck;
    unsigned stall_kinds;
    bool tearing;
    int stalled;
    bool recording;
    struct faulty_call history[HISTORY_MAX];
    size_t history_count;
    char only[128]; /* "": anywhere */
} state;
static int64_t free_bytes = -1;
static char free_part[128];

static int place(enum faulty_kind kind)
{
    return __builtin_ctz((unsigned)kind);
}

void faulty_reset(void)
{
    pthread_mutex_lock(&lock);
    int stalled = state.stalled;
    memset(&state, 0, sizeof state);
    state.stalled = stalled;
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&lock);
}

void faulty_fail(unsigned kinds, int k, int count, int error)
{
    faulty_reset();
    pthread_mutex_lock(&lock);
    state.kinds = kinds;
    state.first = k;
    state.count = count;
    state.error = error;
    pthread_mutex_unlock(&lock);
}

void faulty_shorten(int k, size_t bytes, int error)
{
    faulty_reset();
    pthread_mutex_lock(&lock);
    state.shorten_at = k;
    state.shorten_bytes = bytes;
    state.shorten_error = error;
    pthread_mutex_unlock(&lock);
}

void faulty_only(const char *part)
{
    pthread_mutex_lock(&lock);
    snprintf(state.only, sizeof state.only, "%s", part);
    pthread_mutex_unlock(&lock);
}

void faulty_free_bytes(const char *part, int64_t bytes)
{
    pthread_mutex_lock(&lock);
    snprintf(free_part, sizeof free_part, "%s", part);
    free_bytes = bytes;
    pthread_mutex_unlock(&lock);
}

int faulty_calls(unsigned kinds)
{
    int n = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < KINDS_COUNT; i++)
        if (kinds & 1u << i)
            n += state.counts[i];
    pthread_mutex_unlock(&lock);
    return n;
}

bool faulty_struck(void)
{
    pthread_mutex_lock(&lock);
    bool struck = state.struck;
    pthread_mutex_unlock(&lock);
    return struck;
}

void faulty_stall(unsigned kinds)
{
    pthread_mutex_lock(&lock);
    state.stall_kinds = kinds;
    pthread_mutex_unlock(&lock);
}

void faulty_tear(void)
{
    pthread_mutex_lock(&lock);
    state.tearing = true;
    pthread_mutex_unlock(&lock);
}

void faulty_release(void)
{
    pthread_mutex_lock(&lock);
    state.stall_kinds = 0;
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&lock);
}

int faulty_stalled(void)
{
    pthread_mutex_lock(&lock);
    int n = state.stalled;
    pthread_mutex_unlock(&lock);
    return n;
}

void faulty_record(void)
{
    pthread_mutex_lock(&lock);
    state.recording = true;
    pthread_mutex_unlock(&lock);
}

const struct faulty_call *faulty_history(size_t *ret_count)
{
    pthread_mutex_lock(&lock);
    *ret_count = state.history_count;
    pthread_mutex_unlock(&lock);
    return state.history;
}

static void remember(enum faulty_kind kind, const char *path)
{
    if (!state.recording || state.history_count == HISTORY_MAX)
        return;
    const char *slash = strrchr(path, '/');
    struct faulty_call *c = &state.history[state.history_count++];
    c->kind = kind;
    snprintf(c->name, sizeof c->name, "%s", slash ? slash + 1 : path);
}

static void path_of(int fd, char path[PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = '\0';
}

/* Whether the rule is about this call. */
static bool is_meant(const char *path, int fd)
{
    char name[PATH_MAX];
    if (!state.only[0])
        return true;
    if (!path)
        path_of(fd, name);
    return strstr(path ? path : name, state.only) != NULL;
}

static void remember_fd(enum faulty_kind kind, int fd)
{
    char path[PATH_MAX];
    if (!state.recording)
        return;
    path_of(fd, path);
    remember(kind, path);
}

/* Count the call; 0 to let it through, else the errno it fails with. `path` or `fd` names it. */
static int enter(enum faulty_kind kind, const char *path, int fd)
{
    int error = 0;
    pthread_mutex_lock(&lock);
    if ((state.stall_kinds & kind) && is_meant(path, fd)) {
        state.stalled++;
        while (state.stall_kinds & kind)
            pthread_cond_wait(&released, &lock);
        state.stalled--;
    }
    state.counts[place(kind)]++;
    if ((state.kinds & kind) && is_meant(path, fd)) {
        state.seen++;
        if (state.seen >= state.first && state.seen < state.first + state.count) {
            error = state.error;
            state.struck = true;
        }
    }
    if (path)
        remember(kind, path);
    else
        remember_fd(kind, fd);
    pthread_mutex_unlock(&lock);
    return error;
}

#define ENTER(kind, path, fd)                                                                                \
    do {                                                                                                     \
        int error_ = enter(kind, path, fd);                                                                  \
        if (error_ != 0) {                                                                                   \
            errno = error_;                                                                                  \
            return -1;                                                                                       \
        }                                                                                                    \
    } while (0)

int io_open(const char *path, int flags)
{
    ENTER(FAULTY_OPEN, path, -1);
    return open(path, flags | O_CLOEXEC, 0644);
}

int io_open_cached(const char *path, int flags)
{
    ENTER(FAULTY_OPEN_CACHED, path, -1);
    return open(path, flags | O_CLOEXEC, 0644);
}

int io_close(int fd)
{
    return close(fd);
}

ssize_t io_pread(int fd, void *buffer, size_t bytes, off_t position)
{
    ENTER(FAULTY_PREAD, NULL, fd);
    return pread(fd, buffer, bytes, position);
}

ssize_t io_pread_cached(int fd, void *buffer, size_t bytes, off_t position)
{
    ENTER(FAULTY_PREAD_CACHED, NULL, fd);
    struct iovec part = {.iov_base = buffer, .iov_len = bytes};
    return preadv2(fd, &part, 1, position, RWF_NOWAIT);
}

/* How many bytes the shortening rule allows; SIZE_MAX: all. */
static size_t allowed(int *ret_error)
{
    size_t bytes = (size_t)-1;
    pthread_mutex_lock(&lock);
    state.writes++;
    if (state.shorten_at > 0 && state.writes == state.shorten_at) {
        bytes = state.shorten_bytes;
        state.struck = true;
    } else if (state.shorten_at > 0 && state.writes == state.shorten_at + 1) {
        *ret_error = state.shorten_error;
    }
    pthread_mutex_unlock(&lock);
    return bytes;
}

/* The later half of each part, then the earlier one. */
static ssize_t write_torn(int fd, const struct iovec *parts, int count, off_t position)
{
    ssize_t all = 0;
    for (int half = 0; half < 2; half++) {
        off_t at = position;
        for (int i = 0; i < count; at += (off_t)parts[i].iov_len, i++) {
            size_t middle = parts[i].iov_len / 2;
            size_t from = half ? 0 : middle, bytes = half ? middle : parts[i].iov_len - middle;
            if (pwrite(fd, (char *)parts[i].iov_base + from, bytes, at + (off_t)from) != (ssize_t)bytes)
                return -1;
            all += (ssize_t)bytes;
        }
        for (int i = 0; i < 20; i++)
            sched_yield();
    }
    return all;
}

ssize_t io_pwritev(int fd, const struct iovec *parts, int count, off_t position)
{
    ENTER(FAULTY_PWRITEV, NULL, fd);
    int error = 0;
    size_t left = allowed(&error);
    if (error != 0) {
        errno = error;
        return -1;
    }
    if (left == (size_t)-1)
        return state.tearing ? write_torn(fd, parts, count, position) : pwritev(fd, parts, count, position);
    ssize_t written = 0;
    for (int i = 0; i < count && left > 0; i++) {
        size_t n = parts[i].iov_len < left ? parts[i].iov_len : left;
        if (pwrite(fd, parts[i].iov_base, n, position + written) != (ssize_t)n)
            return -1;
        written += (ssize_t)n;
        left -= n;
    }
    if (written == 0) {
        errno = ENOSPC;
        return -1;
    }
    return written;
}

int io_truncate(int fd, off_t bytes)
{
    ENTER(FAULTY_TRUNCATE, NULL, fd);
    return ftruncate(fd, bytes);
}

int io_datasync(int fd)
{
    ENTER(FAULTY_DATASYNC, NULL, fd);
    return 0;
}

int io_rename(const char *from, const char *to)
{
    ENTER(FAULTY_RENAME, to, -1);
    return rename(from, to);
}

int io_unlink(const char *path)
{
    ENTER(FAULTY_UNLINK, path, -1);
    return unlink(path);
}

int io_mkdir(const char *path)
{
    ENTER(FAULTY_MKDIR, path, -1);
    return mkdir(path, 0755);
}

int io_rmdir(const char *path)
{
    ENTER(FAULTY_RMDIR, path, -1);
    return rmdir(path);
}

int io_sync_directory(const char *path)
{
    ENTER(FAULTY_SYNC_DIRECTORY, path, -1);
    return 0;
}

int io_free_bytes(const char *path, int64_t *ret_bytes)
{
    ENTER(FAULTY_FREE_BYTES, path, -1);
    struct statvfs st;
    int r = statvfs(path, &st);
    pthread_mutex_lock(&lock);
    *ret_bytes = free_bytes >= 0 && strstr(path, free_part) ? free_bytes : (int64_t)(st.f_bavail * st.f_frsize);
    pthread_mutex_unlock(&lock);
    return r;
}
