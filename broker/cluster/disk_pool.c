#include "broker/cluster/disk_pool.h"

#include "proto/base/err.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>

struct disk_pool {
    struct inbox *inbox;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct disk_job *head;
    struct disk_job **tail;
    bool is_stopping;
    int threads_count;
    pthread_t threads[];
};

static void deliver(struct inbox_item *item)
{
    struct disk_job *job = CONTAINER_OF(item, struct disk_job, item);
    job->done(job);
}

static struct disk_job *take(struct disk_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    while (!pool->head && !pool->is_stopping)
        pthread_cond_wait(&pool->wake, &pool->lock);
    struct disk_job *job = pool->head;
    if (job) {
        pool->head = job->next;
        if (!pool->head)
            pool->tail = &pool->head;
    }
    pthread_mutex_unlock(&pool->lock);
    return job;
}

static void *work(void *arg)
{
    struct disk_pool *pool = arg;
    struct disk_job *job;
    while ((job = take(pool)) != NULL) {
        job->run(job);
        job->item.run = deliver;
        inbox_post(pool->inbox, &job->item);
    }
    return NULL;
}

int disk_pool_new(int threads, struct inbox *inbox, struct disk_pool **ret_pool)
{
    threads = threads < 1 ? 1 : threads;
    struct disk_pool *pool = calloc(1, sizeof *pool + (size_t)threads * sizeof pool->threads[0]);
    if (!pool)
        return -BROOK_E_NOMEM;
    pool->inbox = inbox;
    pool->tail = &pool->head;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    /* Signals are the main thread's. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool->threads_count < threads &&
           !pthread_create(&pool->threads[pool->threads_count], NULL, work, pool))
        pool->threads_count++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!pool->threads_count) {
        disk_pool_free(pool);
        return -BROOK_E_IO;
    }
    *ret_pool = pool;
    return 0;
}

void disk_pool_free(struct disk_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->is_stopping = true;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->threads_count; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void disk_pool_submit(struct disk_pool *pool, struct disk_job *job)
{
    job->pool = pool;
    job->next = NULL;
    pthread_mutex_lock(&pool->lock);
    *pool->tail = job;
    pool->tail = &job->next;
    pthread_cond_signal(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}
