#include "broker/storage/index.h"

#include "broker/storage/file.h"
#include "broker/storage/sorted_file.h"
#include "proto/record/big_endian.h"

#include <errno.h>

static int64_t offset_of(const uint8_t *entry)
{
    return (int32_t)be32_read(entry);
}

static int64_t position_of(const uint8_t *entry)
{
    return (int32_t)be32_read(entry + 4);
}

static const struct sorted_kind kind_by_position = {.entry_bytes = INDEX_ENTRY_BYTES, .key = position_of};
static const struct sorted_kind kind = {.entry_bytes = INDEX_ENTRY_BYTES, .key = offset_of};
static const struct sorted_kind cached_by_position = {
    .entry_bytes = INDEX_ENTRY_BYTES, .key = position_of, .cached_only = true};
static const struct sorted_kind cached = {
    .entry_bytes = INDEX_ENTRY_BYTES, .key = offset_of, .cached_only = true};

void index_entry_encode(const struct index_entry *entry, uint8_t to[INDEX_ENTRY_BYTES])
{
    be32_write(to, (uint32_t)entry->relative_offset);
    be32_write(to + 4, (uint32_t)entry->position);
}

void index_entry_decode(const uint8_t from[INDEX_ENTRY_BYTES], struct index_entry *ret_entry)
{
    ret_entry->relative_offset = (int32_t)be32_read(from);
    ret_entry->position = (int32_t)be32_read(from + 4);
}

static int search(const struct sorted_kind *by, int fd, uint32_t count, int64_t key,
                  struct index_entry *ret_entry)
{
    uint8_t entry[SORTED_ENTRY_BYTES_MAX];
    int r = sorted_file_search(by, fd, count, key, true, entry, NULL);
    if (r == 1)
        index_entry_decode(entry, ret_entry);
    return r;
}

int index_search(int fd, uint32_t count, int64_t relative_offset, struct index_entry *ret_entry)
{
    return search(&kind, fd, count, relative_offset, ret_entry);
}

int index_search_position(int fd, uint32_t count, int64_t position, struct index_entry *ret_entry)
{
    return search(&kind_by_position, fd, count, position, ret_entry);
}

int index_search_cached(int fd, uint32_t count, int64_t relative_offset, struct index_entry *ret_entry)
{
    return search(&cached, fd, count, relative_offset, ret_entry);
}

int index_search_position_cached(int fd, uint32_t count, int64_t position, struct index_entry *ret_entry)
{
    return search(&cached_by_position, fd, count, position, ret_entry);
}

int index_count_below(int fd, uint32_t count, int64_t relative_end)
{
    uint8_t entry[SORTED_ENTRY_BYTES_MAX];
    uint32_t place = 0;
    int r = sorted_file_search(&kind, fd, count, relative_end, false, entry, &place);
    return r == 1 ? (int)place + 1 : r;
}

int index_read(int fd, uint32_t place, struct index_entry *ret_entry)
{
    uint8_t entry[INDEX_ENTRY_BYTES];
    ssize_t n = file_read(fd, entry, sizeof entry, (off_t)place * INDEX_ENTRY_BYTES);
    if (n < 0)
        return -1;
    if (n != sizeof entry) {
        errno = ENODATA;
        return -1;
    }
    index_entry_decode(entry, ret_entry);
    return 0;
}
