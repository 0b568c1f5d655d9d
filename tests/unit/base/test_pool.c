#include "tests/support/suite.h"

#include "proto/base/pool.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static struct pool *new_pool(size_t bytes_max, size_t idle_bytes_max)
{
    struct pool *pool;
    ck_assert_int_eq(pool_new(bytes_max, idle_bytes_max, &pool), 0);
    return pool;
}

static struct slab *take(struct pool *pool, size_t bytes)
{
    struct slab *slab = pool_take(pool, bytes);
    ck_assert_ptr_nonnull(slab);
    return slab;
}

/* Whether the page at `data` is mapped still. */
static bool is_mapped(void *data)
{
    unsigned char resident;
    return mincore(data, 1, &resident) == 0;
}

START_TEST(slabs_are_powers_of_two_and_hold_what_was_asked)
{
    struct pool *pool = new_pool(64 * MIB, 64 * MIB);
    static const size_t asked[] = {0, 1, 16383, 16384, 16385, 32768, 100000, 1 << 20, (1 << 20) + 1};
    static const size_t got[] = {16384, 16384, 16384, 16384, 32768, 32768, 131072, 1 << 20, 2 << 20};
    for (unsigned i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        struct slab *slab = take(pool, asked[i]);
        ck_assert_uint_eq(slab->capacity, got[i]);
        ck_assert_uint_eq(pool_bytes_in_use(pool), got[i]);
        memset(slab->data, 0xaa, slab->capacity);
        slab_unref(slab);
        ck_assert_uint_eq(pool_bytes_in_use(pool), 0);
    }
    pool_unref(pool);
}
END_TEST

START_TEST(budget_counts_whole_slabs_and_is_given_back)
{
    struct pool *pool = new_pool(64 * KIB, 0);
    struct slab *a = take(pool, 30 * KIB), *b = take(pool, 20 * KIB);
    ck_assert_uint_eq(pool_bytes_in_use(pool), 64 * KIB);
    ck_assert_ptr_null(pool_take(pool, 1));
    slab_unref(a);
    struct slab *c = take(pool, 1);
    ck_assert_ptr_null(pool_take(pool, 32 * KIB));
    slab_unref(b);
    slab_unref(c);
    ck_assert_uint_eq(pool_bytes_in_use(pool), 0);
    pool_unref(pool);

    /* 20 KiB would fit, the slab of 32 KiB does not. */
    pool = new_pool(60 * KIB, 0);
    a = take(pool, 32 * KIB);
    ck_assert_ptr_null(pool_take(pool, 20 * KIB));
    slab_unref(a);
    pool_unref(pool);
}
END_TEST

START_TEST(single_request_is_served_even_beyond_the_budget)
{
    struct pool *pool = new_pool(100 * KIB, 0);
    struct slab *slab = take(pool, 100 * KIB);
    ck_assert_uint_eq(slab->capacity, 128 * KIB);
    ck_assert_ptr_null(pool_take(pool, 1));
    slab_unref(slab);
    pool_unref(pool);
}
END_TEST

START_TEST(absurd_requests_are_refused_and_cost_nothing)
{
    struct pool *pool = new_pool(SIZE_MAX / 2, 0);
    ck_assert_ptr_null(pool_take(pool, SIZE_MAX));
    ck_assert_ptr_null(pool_take(pool, SIZE_MAX / 2 + 2));
    ck_assert_uint_eq(pool_bytes_in_use(pool), 0);
    struct slab *slab = take(pool, 1);
    slab_unref(slab);
    pool_unref(pool);
}
END_TEST

START_TEST(idle_slabs_are_used_again)
{
    struct pool *pool = new_pool(MIB, MIB);
    struct slab *a = take(pool, 16 * KIB), *large = take(pool, 64 * KIB);
    uint8_t *data = a->data;
    slab_unref(large);
    slab_unref(a);
    for (int i = 0; i < 5; i++) {
        struct slab *again = take(pool, 10 * KIB);
        ck_assert_ptr_eq(again->data, data);
        ck_assert_uint_eq(atomic_load(&again->refs), 1);
        slab_unref(again);
    }
    pool_unref(pool);
}
END_TEST

START_TEST(more_idle_bytes_than_allowed_go_back_to_the_system)
{
    struct pool *pool = new_pool(MIB, 32 * KIB);
    struct slab *slabs[3];
    uint8_t *data[3];
    for (int i = 0; i < 3; i++) {
        slabs[i] = take(pool, 16 * KIB);
        data[i] = slabs[i]->data;
    }
    for (int i = 0; i < 3; i++)
        slab_unref(slabs[i]);
    ck_assert(is_mapped(data[0]) && is_mapped(data[1]));
    ck_assert(!is_mapped(data[2]));
    pool_unref(pool);
}
END_TEST

START_TEST(trim_gives_back_all_but_what_may_stay)
{
    struct pool *pool = new_pool(MIB, MIB);
    struct slab *small = take(pool, 16 * KIB), *large = take(pool, 256 * KIB), *used = take(pool, 16 * KIB);
    uint8_t *small_data = small->data, *large_data = large->data;
    slab_unref(small);
    slab_unref(large);
    pool_trim(pool, MIB);
    ck_assert(is_mapped(small_data) && is_mapped(large_data));
    pool_trim(pool, 16 * KIB);
    ck_assert(is_mapped(small_data) && !is_mapped(large_data));
    pool_trim(pool, 0);
    ck_assert(!is_mapped(small_data));
    memset(used->data, 1, used->capacity);
    slab_unref(used);
    pool_unref(pool);
}
END_TEST

START_TEST(slab_lives_until_its_last_reference)
{
    struct pool *pool = new_pool(MIB, 0);
    struct slab *slab = take(pool, 1);
    uint8_t *data = slab->data;
    ck_assert_ptr_eq(slab_ref(slab), slab);
    slab_unref(slab);
    ck_assert(is_mapped(data));
    ck_assert_uint_eq(pool_bytes_in_use(pool), 16 * KIB);
    slab_unref(slab);
    ck_assert(!is_mapped(data));
    slab_unref(NULL);
    pool_unref(pool);
    pool_unref(NULL);
}
END_TEST

START_TEST(slab_outlives_its_pools_owner)
{
    struct pool *pool = new_pool(MIB, MIB);
    struct slab *slab = take(pool, 100), *other = take(pool, 100);
    uint8_t *data = slab->data;
    pool_unref(pool);
    memset(data, 1, 100);
    slab_unref(other);
    memset(data, 2, 100);
    slab_unref(slab);
    ck_assert(!is_mapped(data));
}
END_TEST

/* One thread takes and hands over, another releases. */
struct hand_over {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct slab *slabs[8];
    int count;
};

static void *release(void *arg)
{
    struct hand_over *h = arg;
    for (int released = 0; released < 3000; released++) {
        pthread_mutex_lock(&h->lock);
        while (h->count == 0)
            pthread_cond_wait(&h->changed, &h->lock);
        struct slab *slab = h->slabs[--h->count];
        pthread_cond_broadcast(&h->changed);
        pthread_mutex_unlock(&h->lock);
        slab->data[1] = slab->data[0];
        slab_unref(slab);
    }
    return NULL;
}

START_TEST(slabs_are_released_from_other_threads_and_outlive_the_owner)
{
    struct hand_over h = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct pool *pool = new_pool(4 * MIB, 64 * KIB);
    pthread_t threads[3];
    uint64_t state = suite_seed();
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, release, &h), 0);
    for (int i = 0; i < 9000; i++) {
        struct slab *slab = take(pool, 1 + suite_random_below(&state, 60 * KIB));
        slab->data[0] = (uint8_t)i;
        if (i % 100 == 0)
            pool_trim(pool, 0);
        pthread_mutex_lock(&h.lock);
        while (h.count == 8)
            pthread_cond_wait(&h.changed, &h.lock);
        h.slabs[h.count++] = slab;
        pthread_cond_broadcast(&h.changed);
        pthread_mutex_unlock(&h.lock);
    }
    pool_unref(pool);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}
END_TEST

static void *take_and_release(void *arg)
{
    struct pool *pool = arg;
    uint64_t state = (uint64_t)pthread_self();
    for (int i = 0; i < 3000; i++) {
        struct slab *slab = pool_take(pool, 1 + suite_random_below(&state, 64 * KIB));
        if (slab) {
            slab->data[0] = 1;
            slab_ref(slab);
            slab_unref(slab);
            slab_unref(slab);
        }
    }
    return NULL;
}

START_TEST(threads_together_never_exceed_the_budget)
{
    struct pool *pool = new_pool(128 * KIB, 32 * KIB);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, take_and_release, pool), 0);
    for (int i = 0; i < 1000; i++)
        ck_assert_uint_le(pool_bytes_in_use(pool), 128 * KIB);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(pool_bytes_in_use(pool), 0);
    pool_unref(pool);
}
END_TEST

SUITE_MAIN("base/pool", SUITE_TEST(slabs_are_powers_of_two_and_hold_what_was_asked),
           SUITE_TEST(budget_counts_whole_slabs_and_is_given_back),
           SUITE_TEST(single_request_is_served_even_beyond_the_budget),
           SUITE_TEST(absurd_requests_are_refused_and_cost_nothing), SUITE_TEST(idle_slabs_are_used_again),
           SUITE_TEST(more_idle_bytes_than_allowed_go_back_to_the_system),
           SUITE_TEST(trim_gives_back_all_but_what_may_stay), SUITE_TEST(slab_lives_until_its_last_reference),
           SUITE_TEST(slab_outlives_its_pools_owner),
           SUITE_TEST_SLOW(slabs_are_released_from_other_threads_and_outlive_the_owner, 60),
           SUITE_TEST_SLOW(threads_together_never_exceed_the_budget, 60))
