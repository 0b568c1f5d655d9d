#include "client/cli/bench_sync.h"

#include "client/cli/cli.h"
#include "proto/base/clock.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct appender {
    int fd;
    size_t bytes;
    const uint8_t *block;
    int64_t until_ns;
    int64_t count;
    bool failed;
    bool is_running;
    pthread_t thread;
};

static void *append_and_sync(void *arg)
{
    struct appender *a = arg;
    off_t at = 0;
    while (!a->failed && clock_boot_ns() < a->until_ns) {
        a->failed = pwrite(a->fd, a->block, a->bytes, at) != (ssize_t)a->bytes || fdatasync(a->fd) < 0;
        at += (off_t)a->bytes;
        a->count++;
    }
    return NULL;
}

static int open_scratch(const char *directory)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/brook-sync-XXXXXX", directory);
    int fd = mkstemp(path);
    if (fd >= 0)
        unlink(path);
    else
        cli_say("%s: %s", directory, strerror(errno));
    return fd;
}

/* The first runs here, the others on threads of their own. */
static bool run_all(struct appender *all, int files)
{
    bool fine = true;
    for (int i = 1; i < files; i++) {
        all[i].is_running = pthread_create(&all[i].thread, NULL, append_and_sync, &all[i]) == 0;
        fine = fine && all[i].is_running;
    }
    append_and_sync(&all[0]);
    for (int i = 1; i < files; i++)
        if (all[i].is_running)
            pthread_join(all[i].thread, NULL);
    for (int i = 0; i < files; i++)
        fine = fine && !all[i].failed;
    if (!fine)
        cli_say("appending to and syncing %d files failed (is the disk full?)", files);
    return fine;
}

bool bench_sync_often(const char *directory, int files, size_t bytes, double seconds, double *ret_per_second)
{
    assert(files >= 1 && files <= BENCH_SYNC_FILES_MAX);
    struct appender *all = calloc((size_t)files, sizeof *all);
    bytes = bytes < BENCH_SYNC_BYTES_MAX ? bytes : BENCH_SYNC_BYTES_MAX;
    uint8_t *block = calloc(1, bytes);
    if (!all || !block)
        abort();
    bool fine = true;
    int opened = 0;
    for (; fine && opened < files; opened++) {
        all[opened].fd = open_scratch(directory);
        fine = all[opened].fd >= 0;
    }
    int64_t start_ns = clock_boot_ns();
    for (int i = 0; i < opened; i++) {
        all[i].bytes = bytes;
        all[i].block = block;
        all[i].until_ns = start_ns + (int64_t)(seconds * 1e9);
    }
    fine = fine && run_all(all, files);
    double taken = (double)(clock_boot_ns() - start_ns) / 1e9;
    int64_t count = 0;
    for (int i = 0; i < opened; i++) {
        count += all[i].count;
        if (all[i].fd >= 0)
            close(all[i].fd);
    }
    free(all);
    free(block);
    if (fine)
        *ret_per_second = (double)count / taken;
    return fine;
}
