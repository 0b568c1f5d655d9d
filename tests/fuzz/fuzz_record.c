/* The records of a batch in the clear. The first three bytes say what the header would: last offset delta
 * (two) and records count. */
#include "tests/fuzz/walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 3)
        return 0;
    const struct batch_header h = {
        .base_offset = 1000, .last_offset_delta = data[0] << 8 | data[1], .records_count = data[2]};
    walk_records(&h, data + 3, bytes - 3);
    return 0;
}
