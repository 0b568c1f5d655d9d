/* Slabs: large buffers with a reference count, recycled, under one budget.
 *
 * Page faults are the dearest thing that a buffer can cost, so slabs are mapped once, kept in a free list by
 * size class (powers of two from POOL_SLAB_BYTES_MIN) and given back to the system only by pool_trim().
 * Memory comes from mmap, never from malloc: an embedding program may not have tuned its allocator.
 * Any thread; a slab may be released from another thread than the one that took it, and may outlive
 * pool_unref() of its owner (the pool lives until its last slab is gone).
 */
#ifndef BROOK_BASE_POOL_H
#define BROOK_BASE_POOL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define POOL_SLAB_BYTES_MIN ((size_t)16 << 10)

struct pool;

struct slab {
    uint8_t *data;
    size_t capacity; /* bytes, a power of two */
    _Atomic unsigned refs;
    struct pool *pool;
    struct slab *next; /* free list; the holder may use it while it holds the only reference */
};

/* `bytes_max`: what all slabs in use may add up to; `idle_bytes_max`: what the free lists keep at most.
 * Returns 0 or -BROOK_E_NOMEM. */
int pool_new(size_t bytes_max, size_t idle_bytes_max, struct pool **ret_pool);
void pool_unref(struct pool *pool);

/* A slab of at least `bytes` with one reference, contents undefined; NULL when the budget is used up (and at
 * least one slab is out: a single request within the budget never fails for fragmentation) or mmap failed. */
struct slab *pool_take(struct pool *pool, size_t bytes);
/* Bytes of all slabs in use, capacity counted. */
size_t pool_bytes_in_use(struct pool *pool);
/* Give idle slabs back to the system until at most `keep_bytes` are idle. */
void pool_trim(struct pool *pool, size_t keep_bytes);

struct slab *slab_ref(struct slab *slab);
/* NULL is fine. */
void slab_unref(struct slab *slab);
#endif
