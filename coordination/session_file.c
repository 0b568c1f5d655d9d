#include "coordination/session_file.h"

#include "proto/base/cleanup.h"
#include "proto/base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse_line(const char *line, struct session_key *key)
{
    uint64_t id;
    char password[2 * SESSION_PASSWORD_BYTES + 1];
    if (sscanf(line, "session %" SCNx64 " %32[0-9a-f]", &id, password) != 2 ||
        strlen(password) != 2 * SESSION_PASSWORD_BYTES || id == 0)
        return false;
    key->id = (int64_t)id;
    for (size_t i = 0; i < SESSION_PASSWORD_BYTES; i++)
        key->password[i] = (char)(hex_digit(password[2 * i]) << 4 | hex_digit(password[2 * i + 1]));
    return true;
}

int session_file_open(struct session_file *f, const char *path)
{
    memset(f, 0, sizeof *f);
    if (!path)
        return 0;
    f->path = strdup(path);
    if (!f->path)
        return -BROOK_E_NOMEM;
    FILE *in = fopen(path, "re");
    if (!in)
        return 0;
    char line[160];
    while (f->count < SESSION_FILE_ENTRIES_MAX && fgets(line, sizeof line, in))
        if (parse_line(line, &f->keys[f->count]))
            f->count++;
    fclose(in);
    return 0;
}

void session_file_done(struct session_file *f)
{
    free(f->path);
    memset(f, 0, sizeof *f);
}

const struct session_key *session_file_find(const struct session_file *f, int64_t id)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->keys[i].id == id)
            return &f->keys[i];
    return NULL;
}

static bool write_keys(int fd, const struct session_file *f)
{
    char text[SESSION_FILE_ENTRIES_MAX * 80];
    size_t n = 0;
    for (size_t i = 0; i < f->count; i++) {
        n += (size_t)sprintf(text + n, "session %" PRIx64 " ", (uint64_t)f->keys[i].id);
        for (size_t b = 0; b < SESSION_PASSWORD_BYTES; b++)
            n += (size_t)sprintf(text + n, "%02x", (unsigned char)f->keys[i].password[b]);
        text[n++] = '\n';
    }
    return write(fd, text, n) == (ssize_t)n;
}

static int replace(const struct session_file *f)
{
    if (!f->path)
        return 0;
    AUTO_FREE char *temporary = NULL;
    if (asprintf(&temporary, "%s.new", f->path) < 0) {
        temporary = NULL;
        return -BROOK_E_NOMEM;
    }
    AUTO_CLOSE int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || !write_keys(fd, f) || rename(temporary, f->path) < 0)
        return -BROOK_E_IO;
    return 0;
}

static void take_out(struct session_file *f, int64_t id)
{
    size_t kept = 0;
    for (size_t i = 0; i < f->count; i++)
        if (f->keys[i].id != id)
            f->keys[kept++] = f->keys[i];
    f->count = kept;
}

int session_file_add(struct session_file *f, const struct session_key *key)
{
    struct session_key copy = *key;
    take_out(f, copy.id);
    if (f->count == SESSION_FILE_ENTRIES_MAX)
        f->count--;
    memmove(f->keys + 1, f->keys, f->count * sizeof f->keys[0]);
    f->keys[0] = copy;
    f->count++;
    return replace(f);
}

int session_file_remove(struct session_file *f, int64_t id)
{
    if (!session_file_find(f, id))
        return 0;
    take_out(f, id);
    return replace(f);
}
