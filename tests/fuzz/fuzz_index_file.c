/* Any bytes as an index: a search answers with an entry that is in the file and fits the question, or with
 * none. The first four bytes are the key. */
#include "tests/fuzz/target.h"

#include "broker/storage/index.h"
#include "broker/storage/time_index.h"
#include "proto/record/big_endian.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static bool has_index_entry(const uint8_t *data, uint32_t count, const struct index_entry *wanted)
{
    uint8_t encoded[INDEX_ENTRY_BYTES];
    index_entry_encode(wanted, encoded);
    for (uint32_t i = 0; i < count; i++)
        if (memcmp(data + i * INDEX_ENTRY_BYTES, encoded, sizeof encoded) == 0)
            return true;
    return false;
}

static void check_index(int fd, const uint8_t *data, uint32_t count, int32_t key)
{
    struct index_entry e;
    int r = index_search(fd, count, key, &e);
    FUZZ_CHECK(r >= 0);
    FUZZ_CHECK(r == 0 || (e.relative_offset <= key && has_index_entry(data, count, &e)));
    r = index_search_position(fd, count, key, &e);
    FUZZ_CHECK(r == 0 || (e.position <= key && has_index_entry(data, count, &e)));
    FUZZ_CHECK(index_count_below(fd, count, key) <= (int)count);
    FUZZ_CHECK(index_search(fd, count + 1, key, &e) == -1 || count >= 512); /* beyond the end of the file */
}

static void check_time_index(int fd, uint32_t count, int64_t key)
{
    struct time_index_entry e;
    int r = time_index_search(fd, count, key, &e);
    FUZZ_CHECK(r >= 0 && (r == 0 || e.timestamp < key));
    FUZZ_CHECK(time_index_count_below(fd, count, key) <= (int)count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 4)
        return 0;
    int32_t key = (int32_t)be32_read(data);
    data += 4;
    bytes -= 4;
    int fd = memfd_create("index", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    check_index(fd, data, (uint32_t)(bytes / INDEX_ENTRY_BYTES), key);
    check_time_index(fd, (uint32_t)(bytes / TIME_INDEX_ENTRY_BYTES), (int64_t)key * 256);
    close(fd);
    return 0;
}
