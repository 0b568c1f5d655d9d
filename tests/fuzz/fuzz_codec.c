/* A compressed stream; the first byte chooses the codec. The rest is compressed too and must come back. */
#include "tests/fuzz/target.h"

#include "proto/base/err.h"
#include "proto/record/codec.h"

#include <stdlib.h>
#include <string.h>

#define EXPANDED_BYTES_MAX ((size_t)256 << 10)

static void check_expand(struct codec *codec, enum codec_id id, const uint8_t *data, size_t bytes)
{
    const void *out;
    size_t n, into;
    int r = codec_expand(codec, id, data, bytes, EXPANDED_BYTES_MAX, &out, &n);
    FUZZ_CHECK(r == 0 || r == -BROOK_E_CORRUPT_BATCH || r == -BROOK_E_EXPANDS_TOO_FAR);
    if (r < 0)
        return;
    FUZZ_CHECK(n <= EXPANDED_BYTES_MAX);
    uint8_t *copy = malloc(n + 1), *room = malloc(n);
    if (copy && room) {
        memcpy(copy, out, n);
        FUZZ_CHECK(codec_expand_into(codec, id, data, bytes, room, n, &into) == 0);
        FUZZ_CHECK(into == n && memcmp(room, copy, n) == 0);
        FUZZ_CHECK(n == 0 ||
                   codec_expand_into(codec, id, data, bytes, room, n - 1, &into) == -BROOK_E_EXPANDS_TOO_FAR);
    }
    free(copy);
    free(room);
}

static void check_round_trip(struct codec *codec, enum codec_id id, const uint8_t *data, size_t bytes)
{
    size_t bound = codec_bound(id, bytes), packed_bytes, n;
    uint8_t *packed = malloc(bound);
    const void *out;
    if (!packed)
        return;
    FUZZ_CHECK(codec_compress(codec, id, data, bytes, packed, bound, &packed_bytes) == 0);
    FUZZ_CHECK(codec_expand(codec, id, packed, packed_bytes, bytes, &out, &n) == 0);
    FUZZ_CHECK(n == bytes && (n == 0 || memcmp(out, data, n) == 0));
    free(packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct codec *codec;
    if (bytes == 0 || (!codec && codec_new(&codec) < 0))
        return 0;
    enum codec_id id = (enum codec_id)(1 + data[0] % 4);
    check_expand(codec, id, data + 1, bytes - 1);
    check_round_trip(codec, id, data + 1, bytes - 1);
    return 0;
}
