#include "broker/storage/flusher.h"

#include "broker/storage/log.h"
#include "proto/base/clock.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

TAILQ_HEAD(flusher_queue, flusher_entry);

struct flusher {
    pthread_mutex_t lock;
    pthread_cond_t ready_came; /* to threads that wait for work */
    pthread_cond_t time_moved; /* to the one among them that also watches the time */
    struct flusher_queue ready;
    struct flusher_queue waiting; /* for their time; in no order */
    int64_t next_due_ns;          /* the least of `waiting`; INT64_MAX: none */
    bool is_timed;                /* one of the threads watches the time ... */
    int64_t watched_ns;           /* ... until then */
    bool is_stopping;
    int idle_count; /* threads at `ready_came` */
    int threads_count;
    int threads_max;
    pthread_t threads[];
};

/* ---- the queues, under the lock ------------------------------------------------------------------------ */

static void leave_waiting(struct flusher *f, struct flusher_entry *entry)
{
    TAILQ_REMOVE(&f->waiting, entry, link);
    entry->is_waiting = false;
}

/* What is due becomes ready; remembers when to look again. */
static void look_at_time(struct flusher *f)
{
    int64_t now_ns = clock_boot_ns();
    if (f->next_due_ns > now_ns)
        return;
    f->next_due_ns = INT64_MAX;
    struct flusher_entry *next;
    for (struct flusher_entry *e = TAILQ_FIRST(&f->waiting); e; e = next) {
        next = TAILQ_NEXT(e, link);
        if (e->due_ns <= now_ns) {
            leave_waiting(f, e);
            TAILQ_INSERT_TAIL(&f->ready, e, link);
        } else if (e->due_ns < f->next_due_ns) {
            f->next_due_ns = e->due_ns;
        }
    }
}

static void wait_until(struct flusher *f, int64_t due_ns)
{
    struct timespec at;
    int64_t wait_ns = due_ns - clock_boot_ns();
    clock_gettime(CLOCK_MONOTONIC, &at);
    wait_ns += at.tv_nsec;
    at.tv_sec += wait_ns / 1000000000;
    at.tv_nsec = wait_ns % 1000000000;
    if (wait_ns > 0)
        pthread_cond_timedwait(&f->time_moved, &f->lock, &at);
}

static void wait_for_something(struct flusher *f)
{
    if (f->is_timed) {
        f->idle_count++;
        pthread_cond_wait(&f->ready_came, &f->lock);
        f->idle_count--;
        return;
    }
    f->is_timed = true;
    f->watched_ns = f->next_due_ns;
    if (f->next_due_ns == INT64_MAX)
        pthread_cond_wait(&f->time_moved, &f->lock);
    else
        wait_until(f, f->next_due_ns);
    f->is_timed = false;
}

/* ---- threads ------------------------------------------------------------------------------------------- */

static void *work(void *arg);

/* Under the lock. */
static int start_thread(struct flusher *f)
{
    sigset_t all, before;
    sigfillset(&all); /* signals are the main thread's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(&f->threads[f->threads_count], NULL, work, f);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0)
        return -BROOK_E_IO;
    f->threads_count++;
    return 0;
}

/* There is something to do or to watch, and somebody who is free should look: what to signal once the lock is
 * let go of (who is woken would only run into it before), or NULL. Under the lock. */
static pthread_cond_t *whom_to_call(struct flusher *f)
{
    if (f->idle_count > 0)
        return &f->ready_came;
    if (f->is_timed)
        return &f->time_moved;
    if (f->threads_count < f->threads_max)
        start_thread(f); /* without it whoever is through first looks */
    return NULL;
}

/* The same, when the time to look at has moved to an earlier one. */
static pthread_cond_t *whom_to_tell_time(struct flusher *f)
{
    if (f->is_timed)
        return f->next_due_ns < f->watched_ns ? &f->time_moved : NULL;
    return whom_to_call(f);
}

static void unlock_and_call(struct flusher *f, pthread_cond_t *whom)
{
    pthread_mutex_unlock(&f->lock);
    if (whom)
        pthread_cond_signal(whom);
}

/* Under the lock, without calling anybody. */
static void queue(struct flusher *f, struct flusher_entry *entry, int64_t due_ns)
{
    if (due_ns == 0 || entry->is_hurried) {
        TAILQ_INSERT_TAIL(&f->ready, entry, link);
        return;
    }
    /* In steps of a tick, so that many which are due about now are looked at together. */
    entry->due_ns = (due_ns / FLUSHER_TICK_NS + 1) * FLUSHER_TICK_NS;
    entry->is_waiting = true;
    TAILQ_INSERT_TAIL(&f->waiting, entry, link);
    if (entry->due_ns < f->next_due_ns)
        f->next_due_ns = entry->due_ns;
}

/* The next entry to flush; NULL: the flusher stops. Whoever takes one sees to it that somebody is left who
 * takes the next, and who watches the time. Lets go of the lock, unless it returns NULL. */
static struct flusher_entry *take(struct flusher *f)
{
    struct flusher_entry *entry = NULL;
    pthread_cond_t *whom = NULL;
    while (!f->is_stopping) {
        look_at_time(f);
        if ((entry = TAILQ_FIRST(&f->ready)))
            break;
        wait_for_something(f);
    }
    if (!entry || f->is_stopping)
        return NULL;
    TAILQ_REMOVE(&f->ready, entry, link);
    entry->is_hurried = false;
    if (!TAILQ_EMPTY(&f->ready) || (!f->is_timed && f->next_due_ns != INT64_MAX))
        whom = whom_to_call(f);
    unlock_and_call(f, whom);
    return entry;
}

static void *work(void *arg)
{
    struct flusher *f = arg;
    struct flusher_entry *entry;
    pthread_mutex_lock(&f->lock);
    while ((entry = take(f))) {
        int64_t due_ns = entry->flushed(entry, log_flush(entry->log));
        pthread_mutex_lock(&f->lock);
        if (due_ns != FLUSHER_NEVER)
            queue(f, entry, due_ns);
        if (f->is_timed && f->next_due_ns < f->watched_ns)
            pthread_cond_signal(&f->time_moved);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---- the face ------------------------------------------------------------------------------------------ */

int flusher_new(int threads_max, struct flusher **ret_flusher)
{
    assert(threads_max > 0);
    struct flusher *f = calloc(1, sizeof *f + (size_t)threads_max * sizeof f->threads[0]);
    if (!f)
        return -BROOK_E_NOMEM;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->ready_came, NULL);
    pthread_cond_init(&f->time_moved, &monotonic);
    pthread_condattr_destroy(&monotonic);
    TAILQ_INIT(&f->ready);
    TAILQ_INIT(&f->waiting);
    f->next_due_ns = INT64_MAX;
    f->threads_max = threads_max;
    pthread_mutex_lock(&f->lock);
    int r = start_thread(f);
    pthread_mutex_unlock(&f->lock);
    if (r != 0) {
        flusher_free(f);
        return r;
    }
    *ret_flusher = f;
    return 0;
}

static void give_back(struct flusher *f, struct flusher_queue *from)
{
    struct flusher_entry *entry;
    pthread_mutex_lock(&f->lock);
    while ((entry = TAILQ_FIRST(from))) {
        TAILQ_REMOVE(from, entry, link);
        entry->is_waiting = false;
        pthread_mutex_unlock(&f->lock);
        entry->flushed(entry, -BROOK_E_CLOSED);
        pthread_mutex_lock(&f->lock);
    }
    pthread_mutex_unlock(&f->lock);
}

void flusher_stop(struct flusher *f)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    f->is_stopping = true;
    pthread_cond_broadcast(&f->ready_came);
    pthread_cond_broadcast(&f->time_moved);
    int count = f->threads_count; /* none is started any more */
    f->threads_count = 0;
    pthread_mutex_unlock(&f->lock);
    for (int i = 0; i < count; i++)
        pthread_join(f->threads[i], NULL);
    give_back(f, &f->ready);
    give_back(f, &f->waiting);
}

void flusher_free(struct flusher *f)
{
    if (!f)
        return;
    flusher_stop(f);
    pthread_cond_destroy(&f->ready_came);
    pthread_cond_destroy(&f->time_moved);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

bool flusher_submit(struct flusher *f, struct flusher_entry *entry, int64_t due_ns)
{
    pthread_cond_t *whom = NULL;
    pthread_mutex_lock(&f->lock);
    bool taken = !f->is_stopping;
    if (taken) {
        int64_t before_ns = f->next_due_ns;
        entry->is_hurried = false;
        queue(f, entry, due_ns);
        if (due_ns == 0)
            whom = whom_to_call(f);
        else if (f->next_due_ns < before_ns)
            whom = whom_to_tell_time(f);
    }
    unlock_and_call(f, whom);
    return taken;
}

void flusher_hurry(struct flusher *f, struct flusher_entry *entry)
{
    pthread_cond_t *whom = NULL;
    pthread_mutex_lock(&f->lock);
    entry->is_hurried = true;
    if (entry->is_waiting && !f->is_stopping) {
        leave_waiting(f, entry);
        TAILQ_INSERT_TAIL(&f->ready, entry, link);
        whom = whom_to_call(f);
    }
    unlock_and_call(f, whom);
}
