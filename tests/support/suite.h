/* What every Check program here shares: a main, a throw-away directory, a seed that is printed, bounded waits.
 *
 *     START_TEST(append_fails_whole) { ... } END_TEST
 *     SUITE_MAIN("storage/log", SUITE_TEST(append_fails_whole), SUITE_TEST(...))
 *
 * One test alone:  CK_RUN_CASE=append_fails_whole build/tests/unit/storage/test_log
 * (each test is a test case of its own name).
 */
#ifndef BROOK_TESTS_SUITE_H
#define BROOK_TESTS_SUITE_H

#include <check.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct suite_test {
    const char *name;
    const TTest *test;
    double timeout_s; /* 0: 20 s, more under sanitizers */
};
#define SUITE_TEST(function) {#function, function, 0}
#define SUITE_TEST_SLOW(function, seconds) {#function, function, seconds}
#define SUITE_MAIN(name, ...) \
    int main(void) \
    { \
        const struct suite_test tests[] = {__VA_ARGS__}; \
        return suite_run(name, tests, sizeof tests / sizeof tests[0]); \
    }
/* With BROOK_QUICK=1 only the first test of a suite named "cluster/..." is run. */
int suite_run(const char *name, const struct suite_test *tests, unsigned count);
bool suite_is_quick(void);

/* How often a property test tries: `count`, or in a hurry a fifth of it. */
int suite_rounds(int count);

/* A fresh directory, removed with everything in it when the test process exits normally. It is under $TMPDIR; when that is
 * not set, in memory (/dev/shm) if there is room, and under /tmp for suites named "cluster/...": real brokers have a real
 * disk, and the others do not wait for it. Never NULL. */
const char *suite_directory(void);
/* Let it be on a disk: for reads that must not wait, which a file system in memory knows nothing of. Before its first use. */
void suite_use_disk(void);
void suite_remove_tree(const char *path);

/* The seed of this run: $BROOK_SEED or the clock; printed on stderr the first time. */
uint64_t suite_seed(void);
/* A small generator (splitmix64) for property tests. */
uint64_t suite_random(uint64_t *state);
uint64_t suite_random_below(uint64_t *state, uint64_t bound);

/* part(0) ... part(count - 1) at the same time, each on a thread of its own, until all are through: for what waits more
 * than it works. */
void suite_parallel(void (*part)(int number), int count);

/* Poll `condition` every few milliseconds; false after `timeout_ms` (three times that under sanitizers). */
bool suite_wait(bool (*condition)(void *arg), void *arg, int timeout_ms);
#endif
