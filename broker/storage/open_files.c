#include "broker/storage/open_files.h"

#include "broker/storage/file_io.h"
#include "broker/storage/segment.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <time.h>

#define THREADS_MAX 4
/* Closed by one call at most: more than one only after the budget was exceeded. */
#define CLOSED_AT_ONCE_MAX 8

TAILQ_HEAD(segment_queue, segment);

struct open_files {
    _Atomic unsigned refs;
    size_t max;
    pthread_mutex_t lock;
    pthread_cond_t work;           /* to threads: something has to be synced */
    pthread_cond_t room;           /* to those who wait: something was */
    struct segment_queue open;     /* by use, oldest first */
    struct segment_queue unsynced; /* open too, taken out of `open`: to be synced before they can be closed */
    size_t opening;                /* between making room and adding */
    size_t syncing;
    struct open_files_counts counts;
    bool is_stopping;
    int idle_count;
    int threads_count;
    pthread_t threads[THREADS_MAX];
};

int open_files_new(size_t max, struct open_files **ret_files)
{
    struct open_files *f = calloc(1, sizeof *f);
    if (!f)
        return -BROOK_E_NOMEM;
    pthread_condattr_t by_monotonic;
    atomic_init(&f->refs, 1);
    f->max = max < OPEN_FILES_MIN ? OPEN_FILES_MIN : max;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->work, NULL);
    pthread_condattr_init(&by_monotonic);
    pthread_condattr_setclock(&by_monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&f->room, &by_monotonic);
    pthread_condattr_destroy(&by_monotonic);
    TAILQ_INIT(&f->open);
    TAILQ_INIT(&f->unsynced);
    *ret_files = f;
    return 0;
}

struct open_files *open_files_ref(struct open_files *files)
{
    if (files)
        atomic_fetch_add_explicit(&files->refs, 1, memory_order_relaxed);
    return files;
}

void open_files_unref(struct open_files *files)
{
    if (!files || atomic_fetch_sub_explicit(&files->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_lock(&files->lock);
    files->is_stopping = true;
    pthread_cond_broadcast(&files->work);
    pthread_mutex_unlock(&files->lock);
    for (int i = 0; i < files->threads_count; i++)
        pthread_join(files->threads[i], NULL);
    assert(files->counts.open == 0); /* a segment's directory holds a reference */
    pthread_cond_destroy(&files->work);
    pthread_cond_destroy(&files->room);
    pthread_mutex_destroy(&files->lock);
    free(files);
}

void open_files_counts(struct open_files *files, struct open_files_counts *ret_counts)
{
    pthread_mutex_lock(&files->lock);
    *ret_counts = files->counts;
    pthread_mutex_unlock(&files->lock);
}

/* ---- syncing what is to be closed ------------------------------------------------------------------- */

/* Out of both queues while it is synced, so nobody closes it; open_files_remove() waits. */
static void sync_one(struct open_files *f, struct segment *s)
{
    TAILQ_REMOVE(&f->unsynced, s, open_link);
    s->open_state = SEGMENT_SYNCING;
    f->syncing++;
    pthread_mutex_unlock(&f->lock);
    segment_sync(s); /* a failure is remembered for the log */
    pthread_mutex_lock(&f->lock);
    f->syncing--;
    f->counts.synced++;
    s->open_state = SEGMENT_OPEN;
    TAILQ_INSERT_HEAD(&f->open, s, open_link);
    pthread_cond_broadcast(&f->room);
}

static void *work(void *arg)
{
    struct open_files *f = arg;
    pthread_mutex_lock(&f->lock);
    while (!f->is_stopping) {
        struct segment *s = TAILQ_FIRST(&f->unsynced);
        if (s) {
            sync_one(f, s);
            continue;
        }
        f->idle_count++;
        pthread_cond_wait(&f->work, &f->lock);
        f->idle_count--;
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* Under the lock. Without a thread the file just stays open. */
static void call_thread(struct open_files *f)
{
    if (f->idle_count > 0) {
        pthread_cond_signal(&f->work);
        return;
    }
    if (f->threads_count == THREADS_MAX)
        return;
    sigset_t all, before;
    sigfillset(&all); /* signals are the main thread's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&f->threads[f->threads_count], NULL, work, f) == 0)
        f->threads_count++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- closing ---------------------------------------------------------------------------------------- */

/* Take the descriptor from a segment that is not in use and has nothing to be synced. -1: it has to keep it. */
static int take_descriptor(struct open_files *f, struct segment *s)
{
    uint32_t unpinned = 0;
    if (!atomic_compare_exchange_strong(&s->pins, &unpinned, SEGMENT_CLOSED)) {
        TAILQ_INSERT_TAIL(&f->open, s, open_link);
        return -1;
    }
    /* Nobody writes any more; whoever pins it now comes to open_files_add() and finds it as it is then. */
    if (atomic_load(&s->dirty)) {
        atomic_fetch_and(&s->pins, ~SEGMENT_CLOSED);
        s->open_state = SEGMENT_UNSYNCED;
        TAILQ_INSERT_TAIL(&f->unsynced, s, open_link);
        call_thread(f);
        return -1;
    }
    s->open_state = SEGMENT_NOT_OPEN;
    f->counts.open--;
    return atomic_exchange(&s->fd, -1);
}

/* The descriptor of the one that was not used for the longest, for the caller to close; -1: none can be had now. Twice
 * round at most: the first time may only find them used. */
static int evict(struct open_files *f)
{
    int fd = -1;
    for (size_t left = 2 * f->counts.open; fd < 0 && left > 0 && !TAILQ_EMPTY(&f->open); left--) {
        struct segment *s = TAILQ_FIRST(&f->open);
        TAILQ_REMOVE(&f->open, s, open_link);
        if (atomic_exchange_explicit(&s->used, false, memory_order_relaxed))
            TAILQ_INSERT_TAIL(&f->open, s, open_link);
        else
            fd = take_descriptor(f, s);
    }
    return fd;
}

/* Returns false when the time is over. */
static bool wait_for_room(struct open_files *f, int64_t until_ns)
{
    struct timespec at;
    int64_t wait_ns = until_ns - clock_boot_ns();
    if (wait_ns <= 0)
        return false;
    clock_gettime(CLOCK_MONOTONIC, &at);
    wait_ns += at.tv_nsec;
    at.tv_sec += wait_ns / 1000000000;
    at.tv_nsec = wait_ns % 1000000000;
    pthread_cond_timedwait(&f->room, &f->lock, &at);
    return true;
}

/* Under the lock. Collects descriptors to close; returns false where it would have to wait and may not. */
static bool find_room(struct open_files *f, bool may_wait, int *closing, size_t *ret_count)
{
    int64_t until_ns = 0;
    while (f->counts.open + f->opening >= f->max && *ret_count < CLOSED_AT_ONCE_MAX) {
        int fd = evict(f);
        if (fd >= 0) {
            closing[(*ret_count)++] = fd;
            continue;
        }
        if (f->threads_count == 0 || (TAILQ_EMPTY(&f->unsynced) && f->syncing == 0))
            break; /* all are pinned */
        if (!may_wait)
            return false;
        if (!until_ns) {
            until_ns = clock_boot_ns() + OPEN_FILES_WAIT_MS * (int64_t)1000000;
            f->counts.waited++;
        }
        if (!wait_for_room(f, until_ns))
            break;
    }
    return true;
}

bool open_files_make_room(struct open_files *files, bool may_wait)
{
    int closing[CLOSED_AT_ONCE_MAX];
    size_t count = 0;
    pthread_mutex_lock(&files->lock);
    bool has_room = find_room(files, may_wait, closing, &count);
    files->opening += has_room;
    pthread_mutex_unlock(&files->lock);
    while (count > 0)
        io_close(closing[--count]);
    return has_room;
}

void open_files_add(struct open_files *files, struct segment *segment, int fd)
{
    pthread_mutex_lock(&files->lock);
    files->opening--;
    if (atomic_load(&segment->pins) & SEGMENT_CLOSED) {
        atomic_store(&segment->fd, fd);
        segment->open_state = SEGMENT_OPEN;
        TAILQ_INSERT_TAIL(&files->open, segment, open_link);
        files->counts.opened++;
        if (++files->counts.open > files->counts.most)
            files->counts.most = files->counts.open;
        atomic_fetch_and(&segment->pins, ~SEGMENT_CLOSED);
        fd = -1;
    }
    pthread_mutex_unlock(&files->lock);
    if (fd >= 0)
        io_close(fd);
}

void open_files_give_up(struct open_files *files)
{
    pthread_mutex_lock(&files->lock);
    files->opening--;
    pthread_mutex_unlock(&files->lock);
}

void open_files_close_unused(struct open_files *files, struct segment *segment)
{
    int fd = -1;
    if (atomic_exchange_explicit(&segment->used, false, memory_order_relaxed) || atomic_load(&segment->dirty))
        return;
    pthread_mutex_lock(&files->lock);
    if (segment->open_state == SEGMENT_OPEN) {
        TAILQ_REMOVE(&files->open, segment, open_link);
        fd = take_descriptor(files, segment);
    }
    pthread_mutex_unlock(&files->lock);
    if (fd >= 0)
        io_close(fd);
}

void open_files_remove(struct open_files *files, struct segment *segment)
{
    int fd = -1;
    pthread_mutex_lock(&files->lock);
    while (segment->open_state == SEGMENT_SYNCING)
        pthread_cond_wait(&files->room, &files->lock);
    if (segment->open_state != SEGMENT_NOT_OPEN) {
        TAILQ_REMOVE(segment->open_state == SEGMENT_OPEN ? &files->open : &files->unsynced, segment, open_link);
        segment->open_state = SEGMENT_NOT_OPEN;
        files->counts.open--;
        fd = atomic_exchange(&segment->fd, -1);
        atomic_fetch_or(&segment->pins, SEGMENT_CLOSED);
        pthread_cond_broadcast(&files->room);
    }
    pthread_mutex_unlock(&files->lock);
    if (fd >= 0)
        io_close(fd);
}
