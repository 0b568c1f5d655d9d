#include "proto/base/pool.h"

#include "proto/base/err.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#define CLASS_COUNT 32
#define HUGE_BYTES ((size_t)2 << 20)

struct pool {
    pthread_mutex_t lock;
    size_t bytes_max;
    size_t idle_bytes_max;
    size_t bytes_in_use;
    size_t bytes_idle;
    size_t refs; /* owners plus slabs in use */
    struct slab *idle[CLASS_COUNT];
};

int pool_new(size_t bytes_max, size_t idle_bytes_max, struct pool **ret_pool)
{
    struct pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return -BROOK_E_NOMEM;
    pthread_mutex_init(&pool->lock, NULL);
    pool->bytes_max = bytes_max;
    pool->idle_bytes_max = idle_bytes_max;
    pool->refs = 1;
    *ret_pool = pool;
    return 0;
}

static unsigned class_of(size_t bytes)
{
    if (bytes <= POOL_SLAB_BYTES_MIN)
        return 0;
    return (unsigned)(64 - __builtin_clzl(bytes - 1)) - (unsigned)__builtin_ctzl(POOL_SLAB_BYTES_MIN);
}

static void slab_destroy(struct slab *slab)
{
    munmap(slab->data, slab->capacity);
    free(slab);
}

static struct slab *slab_create(size_t capacity)
{
    struct slab *slab = calloc(1, sizeof *slab);
    if (!slab)
        return NULL;
    void *data = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        free(slab);
        return NULL;
    }
    if (capacity >= HUGE_BYTES)
        madvise(data, capacity, MADV_HUGEPAGE);
    slab->data = data;
    slab->capacity = capacity;
    return slab;
}

struct slab *pool_take(struct pool *pool, size_t bytes)
{
    unsigned class = class_of(bytes);
    if (class >= CLASS_COUNT)
        return NULL;
    size_t capacity = POOL_SLAB_BYTES_MIN << class;

    pthread_mutex_lock(&pool->lock);
    if (pool->bytes_in_use > 0 && pool->bytes_in_use + capacity > pool->bytes_max) {
        pthread_mutex_unlock(&pool->lock);
        return NULL;
    }
    struct slab *slab = pool->idle[class];
    if (slab) {
        pool->idle[class] = slab->next;
        pool->bytes_idle -= capacity;
    }
    pool->bytes_in_use += capacity;
    pool->refs++;
    pthread_mutex_unlock(&pool->lock);

    if (!slab && !(slab = slab_create(capacity))) {
        pthread_mutex_lock(&pool->lock);
        pool->bytes_in_use -= capacity;
        pthread_mutex_unlock(&pool->lock);
        pool_unref(pool);
        return NULL;
    }
    slab->pool = pool;
    slab->next = NULL;
    atomic_store_explicit(&slab->refs, 1, memory_order_relaxed);
    return slab;
}

static void pool_destroy(struct pool *pool)
{
    assert(pool->bytes_in_use == 0);
    for (unsigned i = 0; i < CLASS_COUNT; i++)
        while (pool->idle[i]) {
            struct slab *slab = pool->idle[i];
            pool->idle[i] = slab->next;
            slab_destroy(slab);
        }
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void pool_unref(struct pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    assert(pool->refs > 0);
    bool last = --pool->refs == 0;
    pthread_mutex_unlock(&pool->lock);
    if (last)
        pool_destroy(pool);
}

size_t pool_bytes_in_use(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    size_t bytes = pool->bytes_in_use;
    pthread_mutex_unlock(&pool->lock);
    return bytes;
}

void pool_trim(struct pool *pool, size_t keep_bytes)
{
    struct slab *doomed = NULL;
    pthread_mutex_lock(&pool->lock);
    for (unsigned i = CLASS_COUNT; i-- > 0 && pool->bytes_idle > keep_bytes;)
        while (pool->idle[i] && pool->bytes_idle > keep_bytes) {
            struct slab *slab = pool->idle[i];
            pool->idle[i] = slab->next;
            pool->bytes_idle -= slab->capacity;
            slab->next = doomed;
            doomed = slab;
        }
    pthread_mutex_unlock(&pool->lock);
    while (doomed) {
        struct slab *next = doomed->next;
        slab_destroy(doomed);
        doomed = next;
    }
}

struct slab *slab_ref(struct slab *slab)
{
    atomic_fetch_add_explicit(&slab->refs, 1, memory_order_relaxed);
    return slab;
}

void slab_unref(struct slab *slab)
{
    if (!slab)
        return;
    assert(atomic_load_explicit(&slab->refs, memory_order_relaxed) > 0);
    if (atomic_fetch_sub_explicit(&slab->refs, 1, memory_order_acq_rel) != 1)
        return;
    struct pool *pool = slab->pool;
    bool keep;
    pthread_mutex_lock(&pool->lock);
    pool->bytes_in_use -= slab->capacity;
    keep = pool->bytes_idle + slab->capacity <= pool->idle_bytes_max;
    if (keep) {
        unsigned class = class_of(slab->capacity);
        slab->next = pool->idle[class];
        pool->idle[class] = slab;
        pool->bytes_idle += slab->capacity;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!keep)
        slab_destroy(slab);
    pool_unref(pool);
}
