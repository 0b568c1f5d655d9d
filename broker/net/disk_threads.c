#include "broker/net/disk_threads.h"

#include <pthread.h>
#include <stdlib.h>

struct disk_threads {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct disk_work *first;
    struct disk_work **last;
    bool is_stopping;
    int count;
    pthread_t threads[];
};

static void post_done(struct inbox_item *item)
{
    struct disk_work *work = CONTAINER_OF(item, struct disk_work, item);
    work->done(work);
}

static struct disk_work *take(struct disk_threads *t)
{
    pthread_mutex_lock(&t->lock);
    while (!t->first && !t->is_stopping)
        pthread_cond_wait(&t->wake, &t->lock);
    struct disk_work *work = t->first;
    if (work && !(t->first = work->next))
        t->last = &t->first;
    pthread_mutex_unlock(&t->lock);
    return work;
}

static void *work_on(void *arg)
{
    struct disk_threads *t = arg;
    struct disk_work *work;
    while ((work = take(t))) {
        work->run(work);
        work->item.run = post_done;
        inbox_post(work->inbox, &work->item);
    }
    return NULL;
}

int disk_threads_new(int count, struct disk_threads **ret_threads)
{
    struct disk_threads *t = calloc(1, sizeof *t + (size_t)count * sizeof t->threads[0]);
    if (!t)
        return -BROOK_E_NOMEM;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    t->last = &t->first;
    for (; t->count < count; t->count++)
        if (pthread_create(&t->threads[t->count], NULL, work_on, t) != 0) {
            disk_threads_free(t);
            return -BROOK_E_IO;
        }
    *ret_threads = t;
    return 0;
}

void disk_threads_free(struct disk_threads *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->is_stopping = true;
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->count; i++)
        pthread_join(t->threads[i], NULL);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void disk_threads_submit(struct disk_threads *t, struct disk_work *work)
{
    work->next = NULL;
    pthread_mutex_lock(&t->lock);
    *t->last = work;
    t->last = &work->next;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
}
