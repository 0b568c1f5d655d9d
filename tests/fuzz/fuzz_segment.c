/* Any bytes as a `.log` file under recovery: what it takes for batches lies back to back and rises, and what
 * it calls whole is. */
#include "tests/fuzz/target.h"

#include "broker/storage/recovery.h"

#include <sys/mman.h>
#include <unistd.h>

struct seen {
    int64_t position;
    int64_t next_offset;
};

static void check(void *arg, const struct batch_header *h, int64_t position)
{
    struct seen *s = arg;
    FUZZ_CHECK(position == s->position && h->base_offset >= s->next_offset);
    s->position = position + (int64_t)h->total_bytes;
    s->next_offset = batch_last_offset(h) + 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    int fd = memfd_create("segment", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    for (int64_t trusted = -1; trusted < 3; trusted += 2) {
        struct seen seen = {0};
        struct recovery_scan scan = {
            .fd = fd, .bytes = (int64_t)bytes, .trusted_below = trusted, .seen = check, .arg = &seen};
        int r = recovery_scan(&scan);
        FUZZ_CHECK(r == 0 || r == -BROOK_E_UNSUPPORTED_FORMAT);
        FUZZ_CHECK(scan.valid_bytes == seen.position && scan.next_offset == seen.next_offset);
        FUZZ_CHECK(scan.valid_bytes <= (int64_t)bytes && scan.bytes_scanned <= scan.valid_bytes);
        FUZZ_CHECK(r != 0 || (scan.verdict == RECOVERY_WHOLE) == (scan.valid_bytes == (int64_t)bytes));
    }
    close(fd);
    return 0;
}
