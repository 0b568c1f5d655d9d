#include "broker/storage/time_index.h"

#include "broker/storage/file.h"
#include "broker/storage/sorted_file.h"
#include "proto/record/big_endian.h"

#include <errno.h>

static int64_t timestamp_of(const uint8_t *entry)
{
    return (int64_t)be64_read(entry);
}

static int64_t offset_of(const uint8_t *entry)
{
    return (int32_t)be32_read(entry + 8);
}

static const struct sorted_kind kind_by_offset = {.entry_bytes = TIME_INDEX_ENTRY_BYTES, .key = offset_of};
static const struct sorted_kind kind = {.entry_bytes = TIME_INDEX_ENTRY_BYTES, .key = timestamp_of};

void time_index_entry_encode(const struct time_index_entry *entry, uint8_t to[TIME_INDEX_ENTRY_BYTES])
{
    be64_write(to, (uint64_t)entry->timestamp);
    be32_write(to + 8, (uint32_t)entry->relative_offset);
}

void time_index_entry_decode(const uint8_t from[TIME_INDEX_ENTRY_BYTES], struct time_index_entry *ret_entry)
{
    ret_entry->timestamp = (int64_t)be64_read(from);
    ret_entry->relative_offset = (int32_t)be32_read(from + 8);
}

int time_index_search(int fd, uint32_t count, int64_t timestamp, struct time_index_entry *ret_entry)
{
    uint8_t entry[SORTED_ENTRY_BYTES_MAX];
    int r = sorted_file_search(&kind, fd, count, timestamp, false, entry, NULL);
    if (r == 1)
        time_index_entry_decode(entry, ret_entry);
    return r;
}

int time_index_read(int fd, uint32_t place, struct time_index_entry *ret_entry)
{
    uint8_t entry[TIME_INDEX_ENTRY_BYTES];
    ssize_t n = file_read(fd, entry, sizeof entry, (off_t)place * TIME_INDEX_ENTRY_BYTES);
    if (n < 0)
        return -1;
    if (n != sizeof entry) {
        errno = ENODATA;
        return -1;
    }
    time_index_entry_decode(entry, ret_entry);
    return 0;
}

int time_index_count_below(int fd, uint32_t count, int64_t relative_end)
{
    uint8_t entry[SORTED_ENTRY_BYTES_MAX];
    uint32_t place = 0;
    int r = sorted_file_search(&kind_by_offset, fd, count, relative_end, false, entry, &place);
    return r == 1 ? (int)place + 1 : r;
}
