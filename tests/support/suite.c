#include "tests/support/suite.h"

#include "config.h"

#include <ftw.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#ifdef BROOK_SANITIZED
#define PATIENCE 3
#else
#define PATIENCE 1
#endif

/* A file system in memory, and how much of it has to be free. */
#define MEMORY "/dev/shm"
#define MEMORY_BYTES_MIN ((uint64_t)1 << 30)

#define PARTS_MAX 16

/* Programs that start real processes, and tests that ask for it. */
static bool wants_disk;

bool suite_is_quick(void)
{
    const char *quick = getenv("BROOK_QUICK");
    return quick && strcmp(quick, "0") != 0;
}

int suite_rounds(int count)
{
    return suite_is_quick() ? (count + 4) / 5 : count;
}

int suite_run(const char *name, const struct suite_test *tests, unsigned count)
{
    bool is_cluster = strncmp(name, "cluster/", 8) == 0;
    wants_disk = is_cluster;
    /* Sanitizer builds and distcheck run one smoke of each of them. */
    if (suite_is_quick() && is_cluster)
        count = 1;
    Suite *suite = suite_create(name);
    for (unsigned i = 0; i < count; i++) {
        TCase *tcase = tcase_create(tests[i].name);
        tcase_set_timeout(tcase, (tests[i].timeout_s > 0 ? tests[i].timeout_s : 20) * PATIENCE);
        tcase_add_test(tcase, tests[i].test);
        suite_add_tcase(suite, tcase);
    }
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    /* In TAP mode the lines say it; a non-zero exit would count one error more. */
    return failed && !getenv("CK_TAP_LOG_FILE_NAME") ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* What can not be removed, as what something is mounted at, keeps nothing else. */
static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    remove(path);
    return 0;
}

void suite_remove_tree(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static char directory[PATH_MAX];
static pid_t directory_owner;

static void remove_directory(void)
{
    if (getpid() == directory_owner)
        suite_remove_tree(directory);
}

static const char *parent_directory(void)
{
    struct statvfs memory;
    const char *tmp = getenv("TMPDIR");
    if (tmp)
        return tmp;
    bool fits = !wants_disk && access(MEMORY, W_OK | X_OK) == 0 && statvfs(MEMORY, &memory) == 0 &&
                (uint64_t)memory.f_bavail * memory.f_frsize >= MEMORY_BYTES_MIN;
    return fits ? MEMORY : "/tmp";
}

void suite_use_disk(void)
{
    wants_disk = true;
}

const char *suite_directory(void)
{
    if (directory_owner != getpid()) {
        snprintf(directory, sizeof directory, "%s/brook-test-XXXXXX", parent_directory());
        if (!mkdtemp(directory)) {
            perror(directory);
            abort();
        }
        directory_owner = getpid();
        atexit(remove_directory);
    }
    return directory;
}

uint64_t suite_seed(void)
{
    static uint64_t seed;
    if (!seed) {
        const char *given = getenv("BROOK_SEED");
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        seed = given ? strtoull(given, NULL, 0) : (uint64_t)now.tv_nsec * 2654435761u + (uint64_t)now.tv_sec;
        if (!seed)
            seed = 1;
        fprintf(stderr, "# BROOK_SEED=%" PRIu64 "\n", seed);
    }
    return seed;
}

uint64_t suite_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t suite_random_below(uint64_t *state, uint64_t bound)
{
    return bound ? suite_random(state) % bound : 0;
}

struct part {
    pthread_t thread;
    void (*run)(int number);
    int number;
};

static void *run_part(void *arg)
{
    struct part *p = arg;
    p->run(p->number);
    return NULL;
}

void suite_parallel(void (*part)(int number), int count)
{
    struct part parts[PARTS_MAX];
    ck_assert_int_le(count, PARTS_MAX);
    for (int i = 0; i < count; i++) {
        parts[i] = (struct part){.run = part, .number = i};
        ck_assert_int_eq(pthread_create(&parts[i].thread, NULL, run_part, &parts[i]), 0);
    }
    for (int i = 0; i < count; i++)
        pthread_join(parts[i].thread, NULL);
}

bool suite_wait(bool (*condition)(void *arg), void *arg, int timeout_ms)
{
    const struct timespec step = {.tv_nsec = 2000000};
    for (int waited = 0; waited <= timeout_ms * PATIENCE; waited += 2) {
        if (condition(arg))
            return true;
        nanosleep(&step, NULL);
    }
    return condition(arg);
}

#ifdef __SANITIZE_THREAD__
/* ZooKeeper's library formats addresses for its log in a buffer that all handles share. */
const char *__tsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void)
{
    return "race:format_endpoint_info\n";
}
#endif
