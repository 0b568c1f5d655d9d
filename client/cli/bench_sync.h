/* How often a second files can be appended to and synced, without any broker: what acknowledging each batch by a sync
 * of its own would allow. */
#ifndef BROOK_CLI_BENCH_SYNC_H
#define BROOK_CLI_BENCH_SYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_SYNC_FILES_MAX 1024

/* `files` threads, each with a new file in `directory`, append `bytes` (at most BENCH_SYNC_BYTES_MAX are written) and
 * fdatasync in turn for about `seconds`; *ret_per_second: syncs of all together. The files are gone afterwards. Returns
 * false after having said why. */
#define BENCH_SYNC_BYTES_MAX ((size_t)1 << 20)
bool bench_sync_often(const char *directory, int files, size_t bytes, double seconds, double *ret_per_second);
#endif
