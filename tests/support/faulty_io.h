/* Faults under file I/O: this library defines the functions of broker/storage/file_io.h, so a program that
 * links it in front of libstorage.a (and calls any function below) gets these instead of the real ones.
 *
 * Until told otherwise every call goes through, except that syncs are only counted: no disk loses its power
 * here, and thousands of real ones would be most of a test's time. Calls are counted by kind; a rule says
 * what happens to the k-th. Rules may be set and calls made from any thread.
 */
#ifndef BROOK_TESTS_FAULTY_IO_H
#define BROOK_TESTS_FAULTY_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum faulty_kind {
    FAULTY_OPEN = 1 << 0,
    FAULTY_PREAD = 1 << 1,
    FAULTY_PWRITEV = 1 << 2,
    FAULTY_TRUNCATE = 1 << 3,
    FAULTY_DATASYNC = 1 << 4,
    FAULTY_RENAME = 1 << 5,
    FAULTY_UNLINK = 1 << 6,
    FAULTY_MKDIR = 1 << 7,
    FAULTY_RMDIR = 1 << 8,
    FAULTY_SYNC_DIRECTORY = 1 << 9,
    FAULTY_PREAD_CACHED = 1 << 10,
    FAULTY_FREE_BYTES = 1 << 11,
    FAULTY_OPEN_CACHED = 1 << 12,
    FAULTY_CHANGES = FAULTY_OPEN | FAULTY_PWRITEV | FAULTY_TRUNCATE | FAULTY_DATASYNC | FAULTY_RENAME |
                     FAULTY_UNLINK | FAULTY_MKDIR | FAULTY_RMDIR | FAULTY_SYNC_DIRECTORY
};

/* Forget all rules, counts and history; let stalled calls go. */
void faulty_reset(void);
/* From now on, the k-th (from 1) of the calls of these kinds fails with `error`; `count` of them in a row.
 * Calls that fail do nothing. */
void faulty_fail(unsigned kinds, int k, int count, int error);
/* From now on, the k-th pwritev writes at most `bytes` bytes, and the one after it fails with `error` (0:
 * goes through). */
void faulty_shorten(int k, size_t bytes, int error);
/* Only calls that touch a path with `part` in it count for the rule, or stall, from now on, until the next reset. */
void faulty_only(const char *part);
/* What io_free_bytes() says of paths with `part` in them from now on, also after a reset; -1: the truth. */
void faulty_free_bytes(const char *part, int64_t bytes);
/* Calls of these kinds since the rule was set (or the reset). */
int faulty_calls(unsigned kinds);
/* Whether the rule has struck. */
bool faulty_struck(void);

/* Calls of these kinds wait until faulty_release(). */
void faulty_stall(unsigned kinds);
/* From now on a pwritev is done in two halves, and others run in between and behind them: who looks at a file before
 * the write has returned finds half of it. */
void faulty_tear(void);
void faulty_release(void);
/* How many wait. */
int faulty_stalled(void);

/* Remember the calls in order: kind and the last part of the path. */
struct faulty_call {
    enum faulty_kind kind;
    char name[128];
};
void faulty_record(void);
const struct faulty_call *faulty_history(size_t *ret_count);
#endif
