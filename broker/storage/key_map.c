#include "broker/storage/key_map.h"

#include "broker/storage/siphash.h"
#include "proto/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct entry {
    struct siphash hash;
    int64_t offset_plus_one; /* 0: free */
};
_Static_assert(sizeof(struct entry) == KEY_MAP_ENTRY_BYTES, "as promised");

struct key_map {
    uint8_t secret[16];
    size_t slots;
    size_t count;
    size_t count_max;
    struct entry *entries;
};

/* A secret that only this process knows, for as long as the map lives. */
static int make_secret(uint8_t secret[16])
{
    ssize_t n;
    do {
        n = getrandom(secret, 16, 0);
    } while (n < 0 && errno == EINTR);
    return n == 16 ? 0 : -1;
}

int key_map_new(size_t bytes_max, uint64_t keys, struct key_map **ret_map)
{
    size_t slots_max = bytes_max / KEY_MAP_ENTRY_BYTES;
    /* Nine of ten slots are filled: beyond that probing takes long. */
    uint64_t slots = keys < UINT64_MAX / 10 ? keys * 10 / 9 + 2 : UINT64_MAX;
    if (slots > slots_max)
        slots = slots_max;
    if (slots < 2)
        slots = 2;
    struct key_map *map = calloc(1, sizeof *map);
    struct entry *entries = calloc((size_t)slots, sizeof *entries);
    if (!map || !entries || make_secret(map->secret) != 0) {
        free(map);
        free(entries);
        return -BROOK_E_NOMEM;
    }
    map->slots = (size_t)slots;
    map->count_max = (size_t)slots - (size_t)slots / 10;
    if (map->count_max == map->slots)
        map->count_max--; /* a search ends at a free slot */
    map->entries = entries;
    *ret_map = map;
    return 0;
}

void key_map_free(struct key_map *map)
{
    if (!map)
        return;
    free(map->entries);
    free(map);
}

void key_map_clear(struct key_map *map)
{
    memset(map->entries, 0, map->slots * sizeof map->entries[0]);
    map->count = 0;
}

/* The key's entry, or the free one where it would go. */
static struct entry *look_up(const struct key_map *map, const void *key, size_t key_bytes,
                             struct siphash *ret_hash)
{
    struct siphash hash = siphash_128(map->secret, key, key_bytes);
    /* The high half of a product spreads a hash over any number of slots, without a division. */
    size_t place = (size_t)(((unsigned __int128)hash.words[0] * map->slots) >> 64);
    *ret_hash = hash;
    for (;;) {
        struct entry *e = &map->entries[place];
        if (!e->offset_plus_one || (e->hash.words[0] == hash.words[0] && e->hash.words[1] == hash.words[1]))
            return e;
        if (++place == map->slots)
            place = 0;
    }
}

int key_map_put(struct key_map *map, const void *key, size_t key_bytes, int64_t offset)
{
    struct siphash hash;
    struct entry *e = look_up(map, key, key_bytes, &hash);
    if (!e->offset_plus_one) {
        if (map->count == map->count_max)
            return -BROOK_E_AGAIN;
        map->count++;
        e->hash = hash;
    }
    e->offset_plus_one = offset + 1;
    return 0;
}

int64_t key_map_find(const struct key_map *map, const void *key, size_t key_bytes)
{
    struct siphash hash;
    return look_up(map, key, key_bytes, &hash)->offset_plus_one - 1;
}

size_t key_map_count(const struct key_map *map)
{
    return map->count;
}

size_t key_map_bytes(const struct key_map *map)
{
    return map->slots * sizeof map->entries[0];
}
