/* The offset index of a segment: file of 8-byte entries (relative offset i32, position i32), big-endian,
 * rising.
 *
 * An entry says: the batch at `position` ends at base offset + `relative_offset`. Only every few KiB has one,
 * the first batch never; a reader starts at the last entry at or below its offset and walks headers.
 * Stateless; any thread.
 */
#ifndef BROOK_STORAGE_INDEX_H
#define BROOK_STORAGE_INDEX_H

#include <stdint.h>

#define INDEX_ENTRY_BYTES 8

struct index_entry {
    int32_t relative_offset;
    int32_t position;
};

void index_entry_encode(const struct index_entry *entry, uint8_t to[INDEX_ENTRY_BYTES]);
void index_entry_decode(const uint8_t from[INDEX_ENTRY_BYTES], struct index_entry *ret_entry);

/* The last of the first `count` entries of the file at or below `relative_offset`. Returns 1, 0 (none), or -1
 * and errno. */
int index_search(int fd, uint32_t count, int64_t relative_offset, struct index_entry *ret_entry);
/* The same by file position. */
int index_search_position(int fd, uint32_t count, int64_t position, struct index_entry *ret_entry);
/* Both without waiting for a disk: -1 and EAGAIN where they would have to. */
int index_search_cached(int fd, uint32_t count, int64_t relative_offset, struct index_entry *ret_entry);
int index_search_position_cached(int fd, uint32_t count, int64_t position, struct index_entry *ret_entry);
/* How many of the first `count` entries lie below `relative_end`; -1 and errno. */
int index_count_below(int fd, uint32_t count, int64_t relative_end);
/* The entry at `place`. Returns 0, or -1 and errno. */
int index_read(int fd, uint32_t place, struct index_entry *ret_entry);
#endif
