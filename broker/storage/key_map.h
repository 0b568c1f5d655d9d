/* Where each key was seen last: a table of fixed size from keys to offsets, for compaction.
 *
 * A key is kept as its 128-bit SipHash under a secret of the map's own, so that an entry takes 24 bytes
 * however long the key is. Two keys with one hash would lose a value. By chance that is one in 10^20 for a
 * billion keys, less than what a disk or memory loses unseen; and nobody can prepare such keys, since the
 * secret is made anew for each map. One thread.
 */
#ifndef BROOK_STORAGE_KEY_MAP_H
#define BROOK_STORAGE_KEY_MAP_H

#include <stddef.h>
#include <stdint.h>

#define KEY_MAP_ENTRY_BYTES 24

struct key_map;

/* A map for `keys` keys, or for as many as `bytes_max` bytes hold (at least one). The memory is touched as it
 * fills. Returns 0 or -BROOK_E_NOMEM. */
int key_map_new(size_t bytes_max, uint64_t keys, struct key_map **ret_map);
/* NULL is fine. */
void key_map_free(struct key_map *map);
void key_map_clear(struct key_map *map);

/* The key was seen at `offset`, which is not lower than any before. Returns 0, or -BROOK_E_AGAIN when the key
 * is new and the map is full. */
int key_map_put(struct key_map *map, const void *key, size_t key_bytes, int64_t offset);
/* The last offset of the key; -1: never seen. */
int64_t key_map_find(const struct key_map *map, const void *key, size_t key_bytes);

size_t key_map_count(const struct key_map *map);
size_t key_map_bytes(const struct key_map *map);
#endif
