/* Snappy in the xerial stream that Kafka uses: a header of 16 bytes, then per block its size (i32) and a raw
 * snappy block. */
#include "proto/record/codec_kinds.h"

#include "proto/base/err.h"
#include "proto/record/big_endian.h"

#include <snappy-c.h>
#include <stdbool.h>

#define HEADER_BYTES 16
#define VERSION 1
/* The block size of the Java library. */
#define BLOCK_BYTES ((size_t)32 << 10)
/* No element of a snappy block makes more than 64 bytes out of less than 3. */
#define EXPANSION_MAX 22

static const uint8_t magic[8] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0};

size_t snappy_bound(size_t bytes)
{
    size_t blocks = bytes / BLOCK_BYTES + 1;
    return HEADER_BYTES + blocks * (4 + snappy_max_compressed_length(0)) + bytes + bytes / 6;
}

/* One block with its size in front. `*room` is what is left at `to`. Returns the bytes taken, 0: no room. */
static size_t compress_block(const uint8_t *from, size_t bytes, uint8_t *to, size_t room)
{
    if (room < 4 + snappy_max_compressed_length(bytes))
        return 0;
    size_t compressed = room - 4;
    if (snappy_compress((const char *)from, bytes, (char *)to + 4, &compressed) != SNAPPY_OK)
        return 0;
    be32_write(to, (uint32_t)compressed);
    return 4 + compressed;
}

int snappy_stream_compress(void **context, const void *from, size_t from_bytes, void *to, size_t to_capacity,
                           size_t *ret_bytes)
{
    if (to_capacity < HEADER_BYTES)
        return -BROOK_E_AGAIN;
    uint8_t *p = to;
    memcpy(p, magic, sizeof magic);
    be32_write(p + 8, VERSION);
    be32_write(p + 12, VERSION);
    const uint8_t *in = from;
    size_t done = 0, written = HEADER_BYTES;
    do {
        size_t block = from_bytes - done < BLOCK_BYTES ? from_bytes - done : BLOCK_BYTES;
        size_t n = compress_block(in + done, block, p + written, to_capacity - written);
        if (n == 0)
            return -BROOK_E_AGAIN;
        done += block;
        written += n;
    } while (done < from_bytes);
    *ret_bytes = written;
    return 0;
}

static bool is_header(const uint8_t *p, size_t bytes)
{
    return bytes >= HEADER_BYTES && memcmp(p, magic, sizeof magic) == 0 && be32_read(p + 8) >= VERSION &&
           be32_read(p + 12) == VERSION;
}

static int expand_block(const uint8_t *block, size_t bytes, struct codec_output *out)
{
    size_t claimed;
    if (snappy_uncompressed_length((const char *)block, bytes, &claimed) != SNAPPY_OK)
        return -BROOK_E_CORRUPT_BATCH;
    if (claimed / EXPANSION_MAX > bytes)
        return -BROOK_E_CORRUPT_BATCH;
    int r = codec_output_reserve(out, claimed);
    if (r < 0)
        return r;
    /* Even a block of no bytes needs an address to write to. */
    char *to = claimed > 0 ? (char *)out->data + out->bytes : (char *)out->spill;
    if (snappy_uncompress((const char *)block, bytes, to, &claimed) != SNAPPY_OK)
        return -BROOK_E_CORRUPT_BATCH;
    return codec_output_wrote(out, claimed);
}

int snappy_stream_expand(void **context, const void *from, size_t from_bytes, struct codec_output *out)
{
    const uint8_t *p = from;
    const uint8_t *end = p + from_bytes;
    bool any = false;
    if (!is_header(p, from_bytes))
        return -BROOK_E_CORRUPT_BATCH;
    p += HEADER_BYTES;
    while (p < end || !any) {
        if (end - p < 4)
            return -BROOK_E_CORRUPT_BATCH;
        /* A second stream may follow the first; as a size its magic would be negative. */
        if (any && is_header(p, (size_t)(end - p))) {
            p += HEADER_BYTES;
            any = false;
            continue;
        }
        uint32_t bytes = be32_read(p);
        p += 4;
        if (bytes > (size_t)(end - p))
            return -BROOK_E_CORRUPT_BATCH;
        int r = expand_block(p, bytes, out);
        if (r < 0)
            return r;
        p += bytes;
        any = true;
    }
    return 0;
}
