#include "tests/cluster/nemesis/replicas.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BATCH_HEAD_BYTES 61
#define LAST_DELTA_AT 23

static int is_log(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n == 24 && strcmp(e->d_name + 20, ".log") == 0;
}

static void load_file(struct replica *r, const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !(r->bytes = realloc(r->bytes, r->count + (size_t)st.st_size + 1)))
        abort();
    for (ssize_t n; (n = read(fd, r->bytes + r->count, (size_t)st.st_size)) > 0; st.st_size -= n)
        r->count += (size_t)n;
    close(fd);
}

void replica_load(struct replica *r, const char *directory)
{
    struct dirent **names;
    char path[2 * PATH_MAX];
    *r = (struct replica){0};
    int n = scandir(directory, &names, is_log, alphasort);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]->d_name);
        load_file(r, path);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
}

void replica_done(struct replica *r)
{
    free(r->bytes);
    *r = (struct replica){0};
}

static uint64_t big_endian(const uint8_t *p, int bytes)
{
    uint64_t n = 0;
    for (int i = 0; i < bytes; i++)
        n = n << 8 | p[i];
    return n;
}

/* Bytes of the batch at `at`; 0: no whole one is there. */
static size_t batch_bytes(const struct replica *r, size_t at)
{
    if (r->count < at + BATCH_HEAD_BYTES)
        return 0;
    size_t bytes = 12 + (size_t)big_endian(r->bytes + at + 8, 4);
    return bytes >= BATCH_HEAD_BYTES && bytes <= r->count - at ? bytes : 0;
}

int64_t replica_first_difference(const struct replica *a, const struct replica *b)
{
    size_t at = 0;
    for (;;) {
        size_t bytes = batch_bytes(a, at), other = batch_bytes(b, at);
        if (bytes != other || (bytes && memcmp(a->bytes + at, b->bytes + at, bytes) != 0))
            return (int64_t)big_endian((bytes ? a : b)->bytes + at, 8);
        if (!bytes)
            return a->count == b->count ? -1 : replica_end(a);
        at += bytes;
    }
}

/* The offset behind the batch at `at`. */
static int64_t batch_end(const struct replica *r, size_t at)
{
    return (int64_t)big_endian(r->bytes + at, 8) + (int64_t)big_endian(r->bytes + at + LAST_DELTA_AT, 4) + 1;
}

void replica_begin_at(struct replica *r, int64_t offset)
{
    size_t at = 0, bytes;
    while ((bytes = batch_bytes(r, at)) > 0 && batch_end(r, at) <= offset)
        at += bytes;
    r->count -= at;
    if (at)
        memmove(r->bytes, r->bytes + at, r->count);
}

int64_t replica_end(const struct replica *r)
{
    int64_t end = 0;
    size_t bytes;
    for (size_t at = 0; (bytes = batch_bytes(r, at)) > 0; at += bytes)
        end = batch_end(r, at);
    return end;
}
