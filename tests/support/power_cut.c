#include "tests/support/power_cut.h"

#include "broker/storage/file_io.h"
#include "tests/support/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES 128
#define FDS_MAX 4096

struct node;
struct entry {
    char name[NAME_BYTES];
    struct node *node;
};
struct names {
    struct entry *at;
    size_t count;
};
struct node {
    struct node *next; /* all of them, for freeing */
    bool is_directory;
    struct names live; /* as the calls see it */
    struct names kept; /* as it survives */
    uint8_t *bytes;    /* likewise */
    size_t bytes_count;
};

enum change_kind { CHANGE_ADD, CHANGE_REMOVE, CHANGE_RENAME, CHANGE_WRITE, CHANGE_TRUNCATE };
struct change {
    enum change_kind kind;
    bool is_covered;
    struct node *node; /* whose names or bytes change */
    struct node *added;
    char name[NAME_BYTES];
    char to[NAME_BYTES];
    uint8_t *data;
    size_t bytes;
    off_t position;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char root[PATH_MAX];
    struct node *nodes;
    struct node *top;
    struct change *changes;
    size_t count, capacity;
    struct node *fds[FDS_MAX];
    int calls_left; /* -1: no cut is planned */
    bool is_cut;
} disk = {.calls_left = -1};

static void *checked(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

static struct node *new_node(bool is_directory)
{
    struct node *n = checked(calloc(1, sizeof *n));
    n->is_directory = is_directory;
    n->next = disk.nodes;
    disk.nodes = n;
    return n;
}

/* ---- names ----------------------------------------------------------------------------------------------
 */

static struct entry *names_find(const struct names *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (!strcmp(names->at[i].name, name))
            return &names->at[i];
    return NULL;
}

static void names_remove(struct names *names, const char *name)
{
    struct entry *e = names_find(names, name);
    if (e)
        *e = names->at[--names->count];
}

static void names_set(struct names *names, const char *name, struct node *node)
{
    names_remove(names, name);
    names->at = checked(realloc(names->at, (names->count + 1) * sizeof names->at[0]));
    struct entry *e = &names->at[names->count++];
    snprintf(e->name, sizeof e->name, "%s", name);
    e->node = node;
}

static void names_rename(struct names *names, const char *from, const char *to)
{
    struct entry *e = names_find(names, from);
    struct node *node = e ? e->node : NULL;
    names_remove(names, from);
    if (node)
        names_set(names, to, node);
}

/* The directory of `path`, and the name in it; the root itself has the name "". NULL: not below the root. */
static struct node *find_parent(const char *path, char name[NAME_BYTES])
{
    size_t root_bytes = strlen(disk.root);
    if (!disk.top || strncmp(path, disk.root, root_bytes) != 0 ||
        (path[root_bytes] && path[root_bytes] != '/'))
        return NULL;
    struct node *at = disk.top;
    const char *rest = path + root_bytes;
    name[0] = '\0';
    while (*rest) {
        rest++;
        size_t bytes = strcspn(rest, "/");
        if (name[0]) {
            struct entry *e = names_find(&at->live, name);
            if (!e)
                return NULL;
            at = e->node;
        }
        snprintf(name, NAME_BYTES, "%.*s", (int)bytes, rest);
        rest += bytes;
    }
    return at;
}

static struct node *find_node(const char *path)
{
    char name[NAME_BYTES];
    struct node *parent = find_parent(path, name);
    if (!parent || !name[0])
        return parent;
    struct entry *e = names_find(&parent->live, name);
    return e ? e->node : NULL;
}

/* ---- changes --------------------------------------------------------------------------------------------
 */

static struct change *add_change(enum change_kind kind, struct node *node)
{
    if (disk.count == disk.capacity) {
        disk.capacity = disk.capacity ? 2 * disk.capacity : 256;
        disk.changes = checked(realloc(disk.changes, disk.capacity * sizeof disk.changes[0]));
    }
    struct change *c = &disk.changes[disk.count++];
    *c = (struct change){.kind = kind, .node = node};
    return c;
}

static void add_name(struct node *parent, const char *name, struct node *node)
{
    struct change *c = add_change(CHANGE_ADD, parent);
    c->added = node;
    snprintf(c->name, sizeof c->name, "%s", name);
    names_set(&parent->live, name, node);
}

static void remove_name(struct node *parent, const char *name)
{
    struct change *c = add_change(CHANGE_REMOVE, parent);
    snprintf(c->name, sizeof c->name, "%s", name);
    names_remove(&parent->live, name);
}

static void cover(const struct node *node)
{
    for (size_t i = 0; i < disk.count; i++)
        if (disk.changes[i].node == node)
            disk.changes[i].is_covered = true;
}

static void keep_size(struct node *n, size_t bytes)
{
    if (bytes > n->bytes_count) {
        n->bytes = checked(realloc(n->bytes, bytes));
        memset(n->bytes + n->bytes_count, 0, bytes - n->bytes_count);
    }
    n->bytes_count = bytes;
}

static void keep_change(const struct change *c, size_t bytes)
{
    switch (c->kind) {
    case CHANGE_ADD:
        names_set(&c->node->kept, c->name, c->added);
        break;
    case CHANGE_REMOVE:
        names_remove(&c->node->kept, c->name);
        break;
    case CHANGE_RENAME:
        names_rename(&c->node->kept, c->name, c->to);
        break;
    case CHANGE_WRITE: {
        size_t end = (size_t)c->position + bytes;
        if (bytes == 0)
            break;
        if (end > c->node->bytes_count)
            keep_size(c->node, end);
        memcpy(c->node->bytes + c->position, c->data, bytes);
        break;
    }
    case CHANGE_TRUNCATE:
        keep_size(c->node, (size_t)c->position);
        break;
    }
}

/* The write that the cut came into: a part of its bytes, and perhaps the file's new size all the same. */
static void keep_torn(const struct change *c, uint64_t *random)
{
    if (c->kind != CHANGE_WRITE)
        return;
    size_t end = (size_t)c->position + c->bytes;
    keep_change(c, (size_t)suite_random_below(random, c->bytes + 1));
    if (suite_random_below(random, 3) == 0 && c->node->bytes_count < end)
        keep_size(c->node, end);
}

/* ---- the cut --------------------------------------------------------------------------------------------
 */

static void write_out(const struct node *n, const char *path)
{
    if (!n->is_directory) {
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (fd < 0 || write(fd, n->bytes, n->bytes_count) != (ssize_t)n->bytes_count)
            abort();
        close(fd);
        return;
    }
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        abort();
    for (size_t i = 0; i < n->kept.count; i++) {
        char below[PATH_MAX];
        snprintf(below, sizeof below, "%.3900s/%s", path, n->kept.at[i].name);
        write_out(n->kept.at[i].node, below);
    }
}

/* What survived is what is there now, all of it safe. */
static void begin_anew(struct node *n)
{
    free(n->live.at);
    n->live = (struct names){0};
    if (n->bytes_count) {
        struct change *c = add_change(CHANGE_WRITE, n);
        c->data = n->bytes;
        c->bytes = n->bytes_count;
    } else {
        free(n->bytes);
    }
    n->bytes = NULL;
    n->bytes_count = 0;
    struct names kept = n->kept;
    n->kept = (struct names){0};
    for (size_t i = 0; i < kept.count; i++) {
        add_name(n, kept.at[i].name, kept.at[i].node);
        begin_anew(kept.at[i].node);
    }
    free(kept.at);
}

static void drop_changes(void)
{
    for (size_t i = 0; i < disk.count; i++)
        free(disk.changes[i].data);
    disk.count = 0;
}

void power_restore(uint64_t *random)
{
    pthread_mutex_lock(&lock);
    size_t moment =
        suite_random_below(random, 4) == 0 ? 0 : (size_t)suite_random_below(random, disk.count + 1);
    for (size_t i = 0; i < disk.count; i++) {
        const struct change *c = &disk.changes[i];
        if (c->is_covered || i < moment)
            keep_change(c, c->bytes);
        else if (i == moment && moment > 0)
            keep_torn(c, random);
    }
    suite_remove_tree(disk.root);
    write_out(disk.top, disk.root);
    drop_changes();
    begin_anew(disk.top);
    for (size_t i = 0; i < disk.count; i++)
        disk.changes[i].is_covered = true;
    memset(disk.fds, 0, sizeof disk.fds);
    disk.is_cut = false;
    disk.calls_left = -1;
    pthread_mutex_unlock(&lock);
}

void power_end(void)
{
    drop_changes();
    free(disk.changes);
    disk.changes = NULL;
    disk.capacity = 0;
    for (struct node *n = disk.nodes, *next; n; n = next) {
        next = n->next;
        free(n->live.at);
        free(n->kept.at);
        free(n->bytes);
        free(n);
    }
    disk.nodes = disk.top = NULL;
    memset(disk.fds, 0, sizeof disk.fds);
    disk.is_cut = false;
    disk.calls_left = -1;
}

void power_begin(const char *root)
{
    power_end();
    snprintf(disk.root, sizeof disk.root, "%s", root);
    suite_remove_tree(root);
    if (mkdir(root, 0755) < 0)
        abort();
    disk.top = new_node(true);
}

void power_cut_after(int calls)
{
    pthread_mutex_lock(&lock);
    disk.calls_left = calls;
    disk.is_cut = calls == 0;
    pthread_mutex_unlock(&lock);
}

bool power_is_cut(void)
{
    pthread_mutex_lock(&lock);
    bool is_cut = disk.is_cut;
    pthread_mutex_unlock(&lock);
    return is_cut;
}

/* ---- the calls ------------------------------------------------------------------------------------------
 */

/* Takes the lock; false, without it, when there is no power. The last call before the cut is still carried
 * out. */
static bool enter(bool changes)
{
    pthread_mutex_lock(&lock);
    if (disk.is_cut) {
        pthread_mutex_unlock(&lock);
        errno = EIO;
        return false;
    }
    if (changes && disk.calls_left > 0 && --disk.calls_left == 0)
        disk.is_cut = true;
    return true;
}

static int leave(int result)
{
    int saved = errno;
    pthread_mutex_unlock(&lock);
    errno = saved;
    return result;
}

static struct node *node_of(int fd)
{
    return fd >= 0 && fd < FDS_MAX ? disk.fds[fd] : NULL;
}

int io_open(const char *path, int flags)
{
    char name[NAME_BYTES];
    if (!enter((flags & (O_CREAT | O_TRUNC)) != 0))
        return -1;
    int fd = open(path, flags | O_CLOEXEC, 0644);
    struct node *parent = fd >= 0 && fd < FDS_MAX ? find_parent(path, name) : NULL;
    if (!parent)
        return leave(fd);
    struct entry *e = names_find(&parent->live, name);
    struct node *node = e ? e->node : new_node(false);
    if (!e)
        add_name(parent, name, node);
    else if (flags & O_TRUNC)
        add_change(CHANGE_TRUNCATE, node);
    disk.fds[fd] = node;
    return leave(fd);
}

int io_open_cached(const char *path, int flags)
{
    return io_open(path, flags);
}

int io_close(int fd)
{
    pthread_mutex_lock(&lock);
    if (fd >= 0 && fd < FDS_MAX)
        disk.fds[fd] = NULL;
    return leave(close(fd));
}

ssize_t io_pread(int fd, void *buffer, size_t bytes, off_t position)
{
    return enter(false) ? leave(0), pread(fd, buffer, bytes, position) : -1;
}

/* What was written a moment ago is in memory. */
ssize_t io_pread_cached(int fd, void *buffer, size_t bytes, off_t position)
{
    return io_pread(fd, buffer, bytes, position);
}

ssize_t io_pwritev(int fd, const struct iovec *parts, int count, off_t position)
{
    if (!enter(true))
        return -1;
    ssize_t written = pwritev(fd, parts, count, position);
    struct node *node = node_of(fd);
    if (written > 0 && node) {
        struct change *c = add_change(CHANGE_WRITE, node);
        c->data = checked(malloc((size_t)written));
        c->position = position;
        for (int i = 0; i < count && c->bytes < (size_t)written; i++) {
            size_t left = (size_t)written - c->bytes;
            size_t n = parts[i].iov_len < left ? parts[i].iov_len : left;
            memcpy(c->data + c->bytes, parts[i].iov_base, n);
            c->bytes += n;
        }
    }
    leave(0);
    return written;
}

int io_truncate(int fd, off_t bytes)
{
    if (!enter(true))
        return -1;
    int r = ftruncate(fd, bytes);
    if (r == 0 && node_of(fd))
        add_change(CHANGE_TRUNCATE, node_of(fd))->position = bytes;
    return leave(r);
}

int io_datasync(int fd)
{
    if (!enter(true))
        return -1;
    if (node_of(fd))
        cover(node_of(fd));
    return leave(0);
}

int io_rename(const char *from, const char *to)
{
    char name[NAME_BYTES], new_name[NAME_BYTES];
    if (!enter(true))
        return -1;
    int r = rename(from, to);
    struct node *parent = r == 0 ? find_parent(from, name) : NULL;
    if (parent && find_parent(to, new_name) == parent) {
        struct change *c = add_change(CHANGE_RENAME, parent);
        memcpy(c->name, name, sizeof c->name);
        memcpy(c->to, new_name, sizeof c->to);
        names_rename(&parent->live, name, new_name);
    } else if (parent) {
        abort();
    }
    return leave(r);
}

static int remove_entry(const char *path, int (*remove_it)(const char *path))
{
    char name[NAME_BYTES];
    if (!enter(true))
        return -1;
    int r = remove_it(path);
    struct node *parent = r == 0 ? find_parent(path, name) : NULL;
    if (parent)
        remove_name(parent, name);
    return leave(r);
}

int io_unlink(const char *path)
{
    return remove_entry(path, unlink);
}

int io_rmdir(const char *path)
{
    return remove_entry(path, rmdir);
}

int io_mkdir(const char *path)
{
    char name[NAME_BYTES];
    if (!enter(true))
        return -1;
    int r = mkdir(path, 0755);
    struct node *parent = r == 0 ? find_parent(path, name) : NULL;
    if (parent)
        add_name(parent, name, new_node(true));
    return leave(r);
}

int io_sync_directory(const char *path)
{
    if (!enter(true))
        return -1;
    struct node *node = find_node(path);
    if (node)
        cover(node);
    return leave(0);
}

int io_free_bytes(const char *path, int64_t *ret_bytes)
{
    *ret_bytes = INT64_MAX;
    return enter(false) ? leave(0) : -1;
}
