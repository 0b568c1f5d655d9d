#include "broker/storage/recovery.h"

#include "broker/storage/file.h"
#include "broker/storage/header_cursor.h"
#include "proto/base/cleanup.h"
#include "proto/record/big_endian.h"
#include "proto/record/crc32c.h"

#include <isa-l/crc.h>
#include <stdatomic.h>
#include <string.h>

#define BLOCK_BYTES ((size_t)1 << 20)
#define CRC_FROM 21
#define MAGIC_AT 16
/* Before v2: offset i64, size i32, CRC-32 u32, magic i8, ... */
#define OLD_CRC_AT 12
#define OLD_CRC_FROM 16

/* A window on the file. */
struct window {
    int fd;
    int64_t position;
    size_t filled;
    uint8_t *block;
};

/* At least `bytes` (at most BLOCK_BYTES) from `position` on, more if there are. Keeps what it has of them.
 * NULL: the file ends before, or can not be read (*ret_error is set then). */
static const uint8_t *window_at(struct window *w, int64_t position, size_t bytes, bool *ret_error)
{
    int64_t at = position - w->position;
    if (at >= 0 && at + (int64_t)bytes <= (int64_t)w->filled)
        return w->block + at;
    size_t kept = at >= 0 && at < (int64_t)w->filled ? w->filled - (size_t)at : 0;
    if (kept > 0)
        memmove(w->block, w->block + at, kept);
    w->position = position;
    w->filled = kept;
    ssize_t n = file_read(w->fd, w->block + kept, BLOCK_BYTES - kept, position + (int64_t)kept);
    if (n < 0) {
        *ret_error = true;
        return NULL;
    }
    w->filled += (size_t)n;
    return w->filled >= bytes ? w->block : NULL;
}

/* The checksum of [position, position + bytes), piece by piece; `sum` continues one. */
static int sum_range(struct window *w, int64_t position, int64_t bytes,
                     uint32_t (*sum)(uint32_t so_far, const void *data, size_t bytes), uint32_t *ret_sum)
{
    uint32_t so_far = 0;
    bool error = false;
    while (bytes > 0) {
        size_t piece = bytes < (int64_t)BLOCK_BYTES ? (size_t)bytes : BLOCK_BYTES;
        const uint8_t *p = window_at(w, position, piece, &error);
        if (!p)
            return error ? -BROOK_E_STORAGE_ERROR : -BROOK_E_CORRUPT_BATCH;
        so_far = sum(so_far, p, piece);
        position += (int64_t)piece;
        bytes -= (int64_t)piece;
    }
    *ret_sum = so_far;
    return 0;
}

static uint32_t sum_old(uint32_t so_far, const void *data, size_t bytes)
{
    return crc32_gzip_refl(so_far, data, bytes);
}

/* Whether a message of the formats before v2 lies at `position`, checksum and all: random bytes do not. */
static bool is_old_message(struct window *w, int64_t position, int64_t end)
{
    bool error = false;
    const uint8_t *p = window_at(w, position, OLD_CRC_FROM + 1, &error);
    if (!p)
        return false;
    int64_t total = BATCH_PREFIX_BYTES + (int64_t)be32_read(p + 8);
    uint32_t stored = be32_read(p + OLD_CRC_AT), sum;
    return p[MAGIC_AT] < BATCH_MAGIC && total > OLD_CRC_FROM && total <= end - position &&
           sum_range(w, position + OLD_CRC_FROM, total - OLD_CRC_FROM, sum_old, &sum) == 0 && sum == stored;
}

/* The header at `position`, if it can be one of a batch that ends within the file and begins at `base_min` or
 * above. */
static int read_plausible(struct window *w, const struct recovery_scan *scan, int64_t position,
                          int64_t base_min, struct batch_header *ret_header)
{
    bool error = false;
    const uint8_t *p = window_at(w, position, BATCH_HEADER_BYTES, &error);
    if (!p)
        return error ? -BROOK_E_STORAGE_ERROR : -BROOK_E_CORRUPT_BATCH;
    struct batch_header h;
    int r = batch_read_header(p, BATCH_HEADER_BYTES, &h);
    if ((r != 0 && r != -BROOK_E_AGAIN) || h.base_offset < base_min ||
        batch_last_offset(&h) - scan->base_offset > INT32_MAX ||
        (int64_t)h.total_bytes > scan->bytes - position)
        return -BROOK_E_CORRUPT_BATCH;
    *ret_header = h;
    return 0;
}

static int check_sum(struct window *w, const struct batch_header *h, int64_t position)
{
    uint32_t sum;
    int r = sum_range(w, position + CRC_FROM, (int64_t)h->total_bytes - CRC_FROM, crc32c, &sum);
    return r != 0 ? r : sum == h->crc ? 0 : -BROOK_E_CORRUPT_BATCH;
}

/* One batch at scan->valid_bytes, with its checksum. */
static int scan_batch(struct recovery_scan *scan, struct window *w)
{
    struct batch_header h;
    int64_t position = scan->valid_bytes;
    int r = read_plausible(w, scan, position, scan->next_offset, &h);
    if (r == -BROOK_E_CORRUPT_BATCH)
        return is_old_message(w, position, scan->bytes) ? -BROOK_E_UNSUPPORTED_FORMAT : r;
    /* One that fits the window is wanted there as a whole, so that nothing is read twice. */
    bool error = false;
    if (r == 0 && h.total_bytes <= BLOCK_BYTES && !window_at(w, position, h.total_bytes, &error))
        r = error ? -BROOK_E_STORAGE_ERROR : -BROOK_E_CORRUPT_BATCH;
    if (r == 0)
        r = check_sum(w, &h, position);
    if (r != 0)
        return r;
    scan->seen(scan->arg, &h, position);
    scan->bytes_scanned += (int64_t)h.total_bytes;
    if (scan->counter)
        atomic_fetch_add_explicit(scan->counter, (int64_t)h.total_bytes, memory_order_relaxed);
    scan->valid_bytes += (int64_t)h.total_bytes;
    scan->next_offset = batch_last_offset(&h) + 1;
    return 0;
}

/* Headers only, up to the first batch that is not trusted, or that is none: the checksum scan judges it. */
static void skip_trusted(struct recovery_scan *scan)
{
    struct header_cursor c;
    struct batch_header h;
    int64_t position;
    header_cursor_init(&c, scan->fd, 0, scan->bytes);
    while (header_cursor_next(&c, &h, &position) == 0 && batch_last_offset(&h) < scan->trusted_below &&
           h.base_offset >= scan->next_offset) {
        scan->seen(scan->arg, &h, position);
        scan->valid_bytes = position + (int64_t)h.total_bytes;
        scan->next_offset = batch_last_offset(&h) + 1;
    }
}

/* Whether a valid batch lies anywhere behind the last one that was taken: also at once, with an offset that
 * falls back, which no unfinished append leaves. A header must be plausible and its base offset must lie in
 * the segment's range, so chance finds none and hardly a sum is made. */
static int search_valid(struct recovery_scan *scan, struct window *w, struct window *sums, bool *ret_found)
{
    int64_t position = scan->valid_bytes;
    bool error = false;
    while (position + BATCH_HEADER_BYTES <= scan->bytes) {
        const uint8_t *p = window_at(w, position, BATCH_HEADER_BYTES, &error);
        if (!p)
            return error ? -BROOK_E_STORAGE_ERROR : 0;
        size_t places = w->filled - (size_t)(p - w->block) - BATCH_HEADER_BYTES + 1;
        const uint8_t *magic = memchr(p + MAGIC_AT, BATCH_MAGIC, places);
        if (!magic) {
            position += (int64_t)places;
            continue;
        }
        position += magic - (p + MAGIC_AT);
        struct batch_header h;
        if (read_plausible(w, scan, position, scan->base_offset, &h) == 0 &&
            check_sum(sums, &h, position) == 0) {
            *ret_found = true;
            scan->found_position = position;
            return 0;
        }
        position++;
    }
    return 0;
}

static int judge_rest(struct recovery_scan *scan, struct window *w)
{
    AUTO_FREE uint8_t *block = malloc(BLOCK_BYTES);
    if (!block)
        return -BROOK_E_NOMEM;
    struct window sums = {.fd = scan->fd, .block = block};
    bool found = false;
    int r = search_valid(scan, w, &sums, &found);
    if (r == 0)
        scan->verdict = found ? RECOVERY_DAMAGED : RECOVERY_TORN;
    return r;
}

int recovery_scan(struct recovery_scan *scan)
{
    scan->verdict = RECOVERY_WHOLE;
    scan->valid_bytes = scan->start_position;
    scan->next_offset = scan->base_offset;
    scan->bytes_scanned = 0;
    if (scan->trusted_below > scan->base_offset)
        skip_trusted(scan);

    AUTO_FREE uint8_t *block = malloc(BLOCK_BYTES);
    if (!block)
        return -BROOK_E_NOMEM;
    struct window w = {.fd = scan->fd, .block = block};
    int r = 0;
    while (r == 0 && scan->valid_bytes < scan->bytes)
        r = scan_batch(scan, &w);
    return r == -BROOK_E_CORRUPT_BATCH ? judge_rest(scan, &w) : r;
}
