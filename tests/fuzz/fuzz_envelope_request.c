/* Any bytes as a Request. What is understood must survive being packed and unpacked again. */
#include "proto/base/err.h"
#include "proto/wire/envelope.h"
#include "tests/fuzz/target.h"

#include <stdlib.h>
#include <string.h>

#define BUDGET_BYTES ((size_t)4 << 20)

static uint8_t *pack(const Brook__Request *message, size_t *ret_bytes)
{
    *ret_bytes = brook__request__get_packed_size(message);
    uint8_t *data = malloc(*ret_bytes + 1);
    FUZZ_CHECK(!data || brook__request__pack(message, data) == *ret_bytes);
    return data;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct arena *arena, *second;
    Brook__Request *message, *again;
    if (!arena && (arena_new(BUDGET_BYTES, &arena) < 0 || arena_new(4 * BUDGET_BYTES, &second) < 0))
        return 0;
    arena_reset(arena);
    arena_reset(second);
    if (envelope_unpack_request(arena, data, bytes, &message) < 0)
        return 0;
    size_t once_bytes, twice_bytes;
    uint8_t *once = pack(message, &once_bytes);
    if (once && envelope_unpack_request(second, once, once_bytes, &again) == 0) {
        uint8_t *twice = pack(again, &twice_bytes);
        FUZZ_CHECK(!twice || (twice_bytes == once_bytes && memcmp(once, twice, once_bytes) == 0));
        free(twice);
    }
    free(once);
    return 0;
}
