#include "broker/storage/throttle.h"

#include "proto/base/err.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define S_NS ((int64_t)1000000000)

struct throttle {
    pthread_mutex_t lock;
    pthread_cond_t stopped;
    int64_t bytes_per_s;
    int64_t free_ns; /* what was taken is paid for then */
    bool is_stopped;
};

int throttle_new(int64_t bytes_per_s, struct throttle **ret_throttle)
{
    struct throttle *t = calloc(1, sizeof *t);
    pthread_condattr_t monotonic;
    if (!t)
        return -BROOK_E_NOMEM;
    t->bytes_per_s = bytes_per_s;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->stopped, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *ret_throttle = t;
    return 0;
}

void throttle_free(struct throttle *t)
{
    if (!t)
        return;
    pthread_cond_destroy(&t->stopped);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static int64_t now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at); /* which condition variables wait by */
    return at.tv_sec * S_NS + at.tv_nsec;
}

/* Under the lock. */
static void charge(struct throttle *t, size_t bytes)
{
    int64_t now = now_ns();
    if (t->free_ns < now)
        t->free_ns = now;
    double ns = (double)bytes * (double)S_NS / (double)t->bytes_per_s;
    t->free_ns += ns < (double)(3600 * S_NS) ? (int64_t)ns : 3600 * S_NS;
}

bool throttle_take(struct throttle *t, size_t bytes)
{
    pthread_mutex_lock(&t->lock);
    if (t->bytes_per_s > 0 && !t->is_stopped && bytes > 0) {
        charge(t, bytes);
        struct timespec until = {.tv_sec = t->free_ns / S_NS, .tv_nsec = t->free_ns % S_NS};
        int64_t mine = t->free_ns;
        while (!t->is_stopped && now_ns() < mine)
            pthread_cond_timedwait(&t->stopped, &t->lock, &until);
    }
    bool go_on = !t->is_stopped;
    pthread_mutex_unlock(&t->lock);
    return go_on;
}

void throttle_stop(struct throttle *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->is_stopped = true;
    pthread_cond_broadcast(&t->stopped);
    pthread_mutex_unlock(&t->lock);
}
