/* The time index of a segment: file of 12-byte entries (timestamp i64, relative offset i32), big-endian,
 * rising.
 *
 * An entry says: the greatest timestamp up to base offset + `relative_offset` is `timestamp`, and the batch
 * that holds it ends there; whatever has a greater timestamp comes behind. A last entry is written when the
 * segment is sealed or closed, so that it names the segment's greatest timestamp. Stateless; any thread.
 */
#ifndef BROOK_STORAGE_TIME_INDEX_H
#define BROOK_STORAGE_TIME_INDEX_H

#include <stdint.h>

#define TIME_INDEX_ENTRY_BYTES 12

struct time_index_entry {
    int64_t timestamp;
    int32_t relative_offset;
};

void time_index_entry_encode(const struct time_index_entry *entry, uint8_t to[TIME_INDEX_ENTRY_BYTES]);
void time_index_entry_decode(const uint8_t from[TIME_INDEX_ENTRY_BYTES], struct time_index_entry *ret_entry);

/* The last of the first `count` entries of the file with a timestamp below `timestamp`. Returns 1, 0 (none),
 * or -1 and errno. */
int time_index_search(int fd, uint32_t count, int64_t timestamp, struct time_index_entry *ret_entry);
/* The entry at `place`. Returns 0, or -1 and errno. */
int time_index_read(int fd, uint32_t place, struct time_index_entry *ret_entry);
/* How many of the first `count` entries lie below `relative_end`; -1 and errno. */
int time_index_count_below(int fd, uint32_t count, int64_t relative_end);
#endif
