/* Any bytes as the stream of a connection, in pieces of any size: the first byte seeds the pieces. */
#include "proto/base/err.h"
#include "proto/base/pool.h"
#include "proto/wire/intake.h"
#include "tests/fuzz/target.h"

#include <string.h>

#define FRAME_BYTES_MAX ((uint32_t)1 << 20)

static void check_prefix(const uint8_t *data, size_t bytes)
{
    struct frame_prefix p;
    struct brook_error error;
    uint8_t back[FRAME_PREFIX_BYTES];
    frame_recognise(data, bytes);
    int r = frame_parse(data, bytes, FRAME_BYTES_MAX, FRAME_BYTES_MAX, &p, &error);
    if (r < 0)
        return;
    FUZZ_CHECK(bytes >= FRAME_PREFIX_BYTES && p.frame_bytes <= FRAME_BYTES_MAX);
    FUZZ_CHECK((uint64_t)4 + p.envelope_bytes + p.records_bytes == p.frame_bytes);
    frame_write_prefix(back, p.envelope_bytes, p.records_bytes);
    FUZZ_CHECK(memcmp(back, data, sizeof back) == 0);
}

static size_t feed(struct intake *in, const uint8_t *data, size_t bytes)
{
    struct iovec iov[INTAKE_IOV_MAX];
    size_t n = intake_room(in, iov), done = 0;
    FUZZ_CHECK(n > 0);
    for (size_t i = 0; i < n && done < bytes; i++) {
        size_t part = bytes - done < iov[i].iov_len ? bytes - done : iov[i].iov_len;
        memcpy(iov[i].iov_base, data + done, part);
        done += part;
    }
    intake_received(in, done);
    return done;
}

/* Frames must come out as they went in: `at` follows them through the stream. */
static int take_frames(struct intake *in, const uint8_t *data, size_t bytes, size_t *at)
{
    struct intake_frame f;
    int r;
    while ((r = intake_next(in, &f, NULL)) == 0) {
        size_t whole = FRAME_PREFIX_BYTES + f.envelope_bytes + f.records_bytes;
        FUZZ_CHECK(whole <= bytes - *at);
        const uint8_t *frame = data + *at + FRAME_PREFIX_BYTES;
        FUZZ_CHECK(f.envelope_bytes == 0 || memcmp(f.envelope, frame, f.envelope_bytes) == 0);
        FUZZ_CHECK(f.records_bytes == 0 ||
                   memcmp(f.slab->data, frame + f.envelope_bytes, f.records_bytes) == 0);
        *at += whole;
        intake_release(in);
    }
    return r;
}

static void check_stream(struct pool *pool, const uint8_t *data, size_t bytes, unsigned seed)
{
    struct intake in;
    size_t at = 0;
    int r = -BROOK_E_AGAIN;
    intake_init(&in, pool, FRAME_BYTES_MAX, FRAME_BYTES_MAX);
    for (size_t fed = 0; fed < bytes && r == -BROOK_E_AGAIN;) {
        seed = seed * 1103515245 + 12345;
        size_t step = 1 + (seed >> 16) % (seed & 1 ? 16 : 4096);
        fed += feed(&in, data + fed, step < bytes - fed ? step : bytes - fed);
        r = take_frames(&in, data, bytes, &at);
    }
    FUZZ_CHECK(r == -BROOK_E_AGAIN || r == -BROOK_E_BAD_FRAME || r == -BROOK_E_FRAME_TOO_LARGE);
    intake_done(&in);
    FUZZ_CHECK(pool_bytes_in_use(pool) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct pool *pool;
    if ((!pool && pool_new((size_t)4 << 20, (size_t)4 << 20, &pool) < 0) || bytes == 0)
        return 0;
    check_prefix(data + 1, bytes - 1);
    check_stream(pool, data + 1, bytes - 1, data[0]);
    return 0;
}
