/* A batch as a producer sends it, or as it lies on disk. The checksum is put right first: behind it lies all
 * that is worth finding. */
#include "tests/fuzz/walk.h"

#include <stdlib.h>
#include <string.h>

#define EXPANDED_BYTES_MAX ((size_t)1 << 20)

static void check_batch(const uint8_t *data, size_t bytes, struct codec *codec)
{
    struct batch_header h;
    const void *records;
    size_t records_bytes;
    batch_check_produced(data, bytes, bytes, &h, NULL);
    if (batch_read_header(data, bytes, &h) == 0 &&
        batch_records(data, &h, codec, EXPANDED_BYTES_MAX, &records, &records_bytes) == 0)
        walk_records(&h, records, records_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct codec *codec;
    struct batch_header h;
    if (!codec && codec_new(&codec) < 0)
        return 0;
    check_batch(data, bytes, codec);
    if (batch_read_header(data, bytes, &h) < 0)
        return 0;
    uint8_t *copy = malloc(bytes);
    if (!copy)
        return 0;
    memcpy(copy, data, bytes);
    batch_write_header(copy, &h);
    FUZZ_CHECK(memcmp(copy, data, 17) == 0 && memcmp(copy + 21, data + 21, bytes - 21) == 0);
    FUZZ_CHECK(batch_read_header(copy, bytes, &h) == 0 && batch_check_crc(copy, &h) == 0);
    check_batch(copy, bytes, codec);
    free(copy);
    return 0;
}
