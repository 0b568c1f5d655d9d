/* Searching a file of fixed-size entries that rise by a key: what both indexes are. FORMAT.md draws them.
 *
 * The search halves the file with small reads and then reads one block; nothing is kept. It believes nothing:
 * whatever the file holds, the answer is an entry that is in the file and whose key fits the question; that
 * it is the best such entry holds only for a sorted file. Whoever uses an entry checks it against the log.
 * Any thread; blocks on the disk.
 */
#ifndef BROOK_STORAGE_SORTED_FILE_H
#define BROOK_STORAGE_SORTED_FILE_H

#include <stdbool.h>
#include <stdint.h>

#define SORTED_ENTRY_BYTES_MAX 12

struct sorted_kind {
    uint32_t entry_bytes;
    int64_t (*key)(const uint8_t *entry);
    bool cached_only; /* -1 and EAGAIN instead of waiting for the disk */
};

/* The last of the first `count` entries whose key is <= `key` (< `key` without `inclusive`). Copied to
 * `ret_entry`, its place to *ret_place (may be NULL). Returns 1; 0 when there is none; -1 and errno when the
 * file can not be read that far. */
int sorted_file_search(const struct sorted_kind *kind, int fd, uint32_t count, int64_t key, bool inclusive,
                       uint8_t ret_entry[SORTED_ENTRY_BYTES_MAX], uint32_t *ret_place);
#endif
