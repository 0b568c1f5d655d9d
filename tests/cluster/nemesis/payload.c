#include "tests/cluster/nemesis/payload.h"

#include "tests/support/suite.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FILLER_BYTES_MAX 240

size_t payload_write(char buffer[PAYLOAD_BYTES_MAX], int32_t producer, int64_t sequence)
{
    uint64_t state = (uint64_t)sequence * 1000003u + (uint64_t)(uint32_t)producer;
    int n = snprintf(buffer, PAYLOAD_BYTES_MAX, "p%" PRId32 " s%" PRId64 " ", producer, sequence);
    size_t filler = suite_random_below(&state, FILLER_BYTES_MAX);
    for (size_t i = 0; i < filler; i++)
        buffer[n + (int)i] = (char)('a' + suite_random_below(&state, 26));
    return (size_t)n + filler;
}

bool payload_read(const char *data, size_t bytes, int32_t *ret_producer, int64_t *ret_sequence)
{
    char text[PAYLOAD_BYTES_MAX], again[PAYLOAD_BYTES_MAX];
    int32_t producer;
    int64_t sequence;
    if (bytes >= sizeof text)
        return false;
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    if (sscanf(text, "p%" SCNd32 " s%" SCNd64 " ", &producer, &sequence) != 2)
        return false;
    if (payload_write(again, producer, sequence) != bytes || memcmp(again, data, bytes) != 0)
        return false;
    *ret_producer = producer;
    *ret_sequence = sequence;
    return true;
}
