#include "broker/storage/sorted_file.h"

#include "broker/storage/file.h"

#include <errno.h>
#include <string.h>

/* Below this many bytes one read costs less than two probes. */
#define BLOCK_BYTES 4096

static int read_exactly(const struct sorted_kind *kind, int fd, uint8_t *buffer, size_t bytes, off_t position)
{
    ssize_t n = (kind->cached_only ? file_read_cached : file_read)(fd, buffer, bytes, position);
    if (n < 0)
        return -1;
    if ((size_t)n < bytes) {
        errno = ENODATA;
        return -1;
    }
    return 0;
}

static bool fits(const struct sorted_kind *kind, const uint8_t *entry, int64_t key, bool inclusive)
{
    int64_t k = kind->key(entry);
    return k < key || (inclusive && k == key);
}

/* Narrow [low, high) to at most one block; the entries below `low` fit, those from `high` on do not. */
static int narrow(const struct sorted_kind *kind, int fd, int64_t key, bool inclusive, uint32_t *low,
                  uint32_t *high)
{
    uint8_t entry[SORTED_ENTRY_BYTES_MAX];
    while ((*high - *low) * kind->entry_bytes > BLOCK_BYTES) {
        uint32_t middle = *low + (*high - *low) / 2;
        if (read_exactly(kind, fd, entry, kind->entry_bytes, (off_t)middle * kind->entry_bytes) != 0)
            return -1;
        /* Keep the last fitting entry inside, so that the block read below has it. */
        if (fits(kind, entry, key, inclusive))
            *low = middle;
        else
            *high = middle;
    }
    return 0;
}

int sorted_file_search(const struct sorted_kind *kind, int fd, uint32_t count, int64_t key, bool inclusive,
                       uint8_t ret_entry[SORTED_ENTRY_BYTES_MAX], uint32_t *ret_place)
{
    uint32_t first = 0, behind = count;
    if (narrow(kind, fd, key, inclusive, &first, &behind) != 0)
        return -1;
    uint8_t block[BLOCK_BYTES];
    if (read_exactly(kind, fd, block, (size_t)(behind - first) * kind->entry_bytes,
                     (off_t)first * kind->entry_bytes) != 0)
        return -1;

    uint32_t low = 0, high = behind - first;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (fits(kind, block + middle * kind->entry_bytes, key, inclusive))
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return 0;
    memcpy(ret_entry, block + (low - 1) * kind->entry_bytes, kind->entry_bytes);
    if (ret_place)
        *ret_place = first + low - 1;
    return 1;
}
