#include "tests/support/fake_zookeeper.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 32
#define SESSIONS_MAX 4096
#define RULES_MAX 64
#define WATCHES_MAX 1024
#define PATH_MAX_ 256
#define FRAME_MAX (2 << 20)

enum {
    ERR_NO_NODE = -101,
    ERR_BAD_VERSION = -103,
    ERR_EXISTS = -110,
    ERR_NOT_EMPTY = -111,
    ERR_NEIGHBOUR = -2
};
enum { XID_WATCH = -1, XID_PING = -2, XID_AUTH = -4, XID_SET_WATCHES = -8 };
enum { EVENT_CREATED = 1, EVENT_DELETED = 2, EVENT_CHANGED = 3, EVENT_CHILD = 4 };
enum { WATCH_DATA = 1, WATCH_CHILD = 2 };

struct node {
    struct node *next;
    char path[PATH_MAX_];
    char *data;
    int bytes;
    int64_t czxid, mzxid, pzxid, owner;
    int version, cversion, sequence;
};

/* Bytes that grow at the end (out) or are read from the front (in). */
struct bytes {
    char *at;
    size_t count, read, capacity;
    bool bad;
};

struct connection {
    int fd; /* -1: free */
    bool is_connected;
    bool stalls;
    int64_t session;
    struct bytes in;
};

struct watch {
    int connection; /* -1: free */
    int kind;
    char path[PATH_MAX_];
};

struct fake_zookeeper {
    pthread_t thread;
    pthread_mutex_t lock;
    int listen_fd, wake_fd, port;
    bool stopping;
    struct node *nodes;
    int64_t zxid;
    int64_t sessions[SESSIONS_MAX]; /* that live */
    int64_t last_session;
    struct connection connections[CONNECTIONS_MAX];
    struct watch watches[WATCHES_MAX];
    struct fake_rule rules[RULES_MAX];
    unsigned rules_count;
    unsigned counts[128];
    struct watch fired[WATCHES_MAX]; /* by the request at hand; `kind` is the event */
    unsigned fired_count;
};

static void die(const char *what)
{
    fprintf(stderr, "# fake zookeeper: %s: %s\n", what, strerror(errno));
    abort();
}

/* ---- bytes --------------------------------------------------------------------------------------------- */

static void put(struct bytes *b, const void *data, size_t count)
{
    if (b->count + count > b->capacity) {
        b->capacity = (b->count + count) * 2 + 64;
        if (!(b->at = realloc(b->at, b->capacity)))
            die("memory");
    }
    if (count)
        memcpy(b->at + b->count, data, count);
    b->count += count;
}

static void put_int(struct bytes *b, int32_t value)
{
    uint32_t v = htobe32((uint32_t)value);
    put(b, &v, sizeof v);
}

static void put_long(struct bytes *b, int64_t value)
{
    uint64_t v = htobe64((uint64_t)value);
    put(b, &v, sizeof v);
}

static void put_buffer(struct bytes *b, const void *data, int count)
{
    put_int(b, count);
    put(b, data, count > 0 ? (size_t)count : 0);
}

static void put_text(struct bytes *b, const char *text)
{
    put_buffer(b, text, (int)strlen(text));
}

static const char *take(struct bytes *b, size_t count)
{
    if (b->bad || b->count - b->read < count) {
        b->bad = true;
        return NULL;
    }
    const char *at = b->at + b->read;
    b->read += count;
    return at;
}

static int32_t take_int(struct bytes *b)
{
    uint32_t v = 0;
    const char *at = take(b, sizeof v);
    if (at)
        memcpy(&v, at, sizeof v);
    return (int32_t)be32toh(v);
}

static int64_t take_long(struct bytes *b)
{
    uint64_t v = 0;
    const char *at = take(b, sizeof v);
    if (at)
        memcpy(&v, at, sizeof v);
    return (int64_t)be64toh(v);
}

static const char *take_buffer(struct bytes *b, int *count)
{
    *count = take_int(b);
    return *count > 0 ? take(b, (size_t)*count) : NULL;
}

static void take_path(struct bytes *b, char path[PATH_MAX_])
{
    int count;
    const char *at = take_buffer(b, &count);
    if (!at || count >= PATH_MAX_)
        count = 0;
    if (at)
        memcpy(path, at, (size_t)count);
    path[count] = '\0';
}

/* ---- the tree ------------------------------------------------------------------------------------------ */

static struct node *find(struct fake_zookeeper *f, const char *path)
{
    struct node *n = f->nodes;
    while (n && strcmp(n->path, path) != 0)
        n = n->next;
    return n;
}

static void parent_of(const char *path, char parent[PATH_MAX_])
{
    const char *slash = strrchr(path, '/');
    size_t n = slash && slash != path ? (size_t)(slash - path) : 1;
    memcpy(parent, path, n);
    parent[n] = '\0';
}

static bool is_child(const struct node *n, const char *path)
{
    char parent[PATH_MAX_];
    if (strcmp(n->path, "/") == 0)
        return false;
    parent_of(n->path, parent);
    return strcmp(parent, path) == 0;
}

static int children(struct fake_zookeeper *f, const char *path)
{
    int count = 0;
    for (const struct node *n = f->nodes; n; n = n->next)
        count += is_child(n, path);
    return count;
}

static void fire(struct fake_zookeeper *f, const char *path, int kind, int event)
{
    for (int i = 0; i < WATCHES_MAX; i++) {
        struct watch *w = &f->watches[i];
        if (w->connection < 0 || w->kind != kind || strcmp(w->path, path) != 0)
            continue;
        f->fired[f->fired_count] = *w;
        f->fired[f->fired_count++].kind = event;
        w->connection = -1;
    }
}

static void watch(struct fake_zookeeper *f, int connection, int kind, const char *path)
{
    for (int i = 0; i < WATCHES_MAX; i++)
        if (f->watches[i].connection < 0) {
            f->watches[i].connection = connection;
            f->watches[i].kind = kind;
            strcpy(f->watches[i].path, path);
            return;
        }
    die("watches");
}

static void touch_parent(struct fake_zookeeper *f, const char *path)
{
    char parent[PATH_MAX_];
    parent_of(path, parent);
    struct node *n = find(f, parent);
    if (n) {
        n->pzxid = f->zxid;
        n->cversion++;
        fire(f, parent, WATCH_CHILD, EVENT_CHILD);
    }
}

static void set_data(struct node *n, const char *data, int bytes)
{
    free(n->data);
    n->data = malloc((size_t)(bytes > 0 ? bytes : 0) + 1);
    n->bytes = bytes > 0 ? bytes : 0;
    if (bytes > 0)
        memcpy(n->data, data, (size_t)bytes);
}

static int create(struct fake_zookeeper *f, char *path, const char *data, int bytes, int flags,
                  int64_t session)
{
    char parent[PATH_MAX_];
    parent_of(path, parent);
    struct node *above = find(f, parent);
    if (!above)
        return ERR_NO_NODE;
    if (flags & 2)
        snprintf(path + strlen(path), 12, "%010d", above->sequence++);
    if (find(f, path))
        return ERR_EXISTS;
    struct node *n = calloc(1, sizeof *n);
    strcpy(n->path, path);
    set_data(n, data, bytes);
    n->czxid = n->mzxid = n->pzxid = ++f->zxid;
    n->owner = flags & 1 ? session : 0;
    n->next = f->nodes;
    f->nodes = n;
    fire(f, path, WATCH_DATA, EVENT_CREATED);
    touch_parent(f, path);
    return 0;
}

static int delete (struct fake_zookeeper *f, const char *path, int version)
{
    struct node *n = find(f, path);
    if (!n)
        return ERR_NO_NODE;
    if (version >= 0 && version != n->version)
        return ERR_BAD_VERSION;
    if (children(f, path))
        return ERR_NOT_EMPTY;
    struct node **at = &f->nodes;
    while (*at != n)
        at = &(*at)->next;
    *at = n->next;
    f->zxid++;
    fire(f, path, WATCH_DATA, EVENT_DELETED);
    fire(f, path, WATCH_CHILD, EVENT_DELETED);
    touch_parent(f, path);
    free(n->data);
    free(n);
    return 0;
}

static int set(struct fake_zookeeper *f, const char *path, const char *data, int bytes, int version)
{
    struct node *n = find(f, path);
    if (!n)
        return ERR_NO_NODE;
    if (version >= 0 && version != n->version)
        return ERR_BAD_VERSION;
    set_data(n, data, bytes);
    n->version++;
    n->mzxid = ++f->zxid;
    fire(f, path, WATCH_DATA, EVENT_CHANGED);
    return 0;
}

static int check(struct fake_zookeeper *f, const char *path, int version)
{
    const struct node *n = find(f, path);
    if (!n)
        return ERR_NO_NODE;
    return version >= 0 && version != n->version ? ERR_BAD_VERSION : 0;
}

static void put_stat(struct fake_zookeeper *f, struct bytes *b, const struct node *n)
{
    put_long(b, n->czxid);
    put_long(b, n->mzxid);
    put_long(b, 0);
    put_long(b, 0);
    put_int(b, n->version);
    put_int(b, n->cversion);
    put_int(b, 0);
    put_long(b, n->owner);
    put_int(b, n->bytes);
    put_int(b, children(f, n->path));
    put_long(b, n->pzxid);
}

/* ---- connections --------------------------------------------------------------------------------------- */

static void close_connection(struct fake_zookeeper *f, int index)
{
    struct connection *k = &f->connections[index];
    close(k->fd);
    free(k->in.at);
    *k = (struct connection){.fd = -1};
    for (int i = 0; i < WATCHES_MAX; i++)
        if (f->watches[i].connection == index)
            f->watches[i].connection = -1;
}

static void send_frame(struct connection *k, const struct bytes *body)
{
    uint32_t count = htobe32((uint32_t)body->count);
    if (k->fd < 0 || k->stalls)
        return;
    /* Replies are small and the socket buffer is not: a blocking send in the server of a test is fine. */
    if (send(k->fd, &count, sizeof count, MSG_NOSIGNAL | MSG_MORE) == sizeof count)
        send(k->fd, body->at, body->count, MSG_NOSIGNAL);
}

static void send_reply(struct fake_zookeeper *f, struct connection *k, int xid, int err,
                       const struct bytes *result)
{
    struct bytes b = {0};
    put_int(&b, xid);
    put_long(&b, f->zxid);
    put_int(&b, err);
    if (err == 0 && result)
        put(&b, result->at, result->count);
    send_frame(k, &b);
    free(b.at);
}

static void send_events(struct fake_zookeeper *f)
{
    for (unsigned i = 0; i < f->fired_count; i++) {
        struct bytes b = {0};
        put_int(&b, XID_WATCH);
        put_long(&b, -1);
        put_int(&b, 0);
        put_int(&b, f->fired[i].kind);
        put_int(&b, 3);
        put_text(&b, f->fired[i].path);
        send_frame(&f->connections[f->fired[i].connection], &b);
        free(b.at);
    }
    f->fired_count = 0;
}

static bool lives(const struct fake_zookeeper *f, int64_t session)
{
    for (int i = 0; i < SESSIONS_MAX; i++)
        if (session && f->sessions[i] == session)
            return true;
    return false;
}

static void end_session(struct fake_zookeeper *f, int64_t session)
{
    for (int i = 0; i < SESSIONS_MAX; i++)
        if (f->sessions[i] == session)
            f->sessions[i] = 0;
    for (struct node *n = f->nodes, *next; n; n = next) {
        next = n->next;
        if (n->owner && n->owner == session)
            delete (f, n->path, -1);
    }
    send_events(f);
}

static int64_t begin_session(struct fake_zookeeper *f)
{
    for (int i = 0; i < SESSIONS_MAX; i++)
        if (!f->sessions[i])
            return f->sessions[i] = 0x1000000 + ++f->last_session;
    die("sessions");
    return 0;
}

static void handshake(struct fake_zookeeper *f, int index, struct bytes *in)
{
    struct connection *k = &f->connections[index];
    struct bytes b = {0};
    static const char password[16] = "fake password 16";
    take_int(in);
    take_long(in);
    int timeout = take_int(in);
    int64_t wanted = take_long(in);
    bool expired = wanted && !lives(f, wanted);
    k->session = expired ? 0 : wanted ? wanted : begin_session(f);
    k->is_connected = true;
    put_int(&b, 0);
    put_int(&b, expired ? 0 : timeout);
    put_long(&b, k->session);
    put_buffer(&b, password, sizeof password);
    put(&b, "", 1);
    send_frame(k, &b);
    free(b.at);
    if (expired)
        close_connection(f, index);
}

/* ---- requests ------------------------------------------------------------------------------------------ */

struct job {
    int op;
    int connection;
    int64_t session;
    struct bytes *in;
    struct bytes out;
};

static int do_create(struct fake_zookeeper *f, struct job *j)
{
    char path[PATH_MAX_];
    int bytes, ignored;
    take_path(j->in, path);
    const char *data = take_buffer(j->in, &bytes);
    for (int acls = take_int(j->in); acls > 0; acls--) {
        take_int(j->in);
        take_buffer(j->in, &ignored);
        take_buffer(j->in, &ignored);
    }
    int flags = take_int(j->in);
    int err = create(f, path, data, bytes, flags, j->session);
    if (err == 0)
        put_text(&j->out, path);
    return err;
}

static int do_set(struct fake_zookeeper *f, struct job *j)
{
    char path[PATH_MAX_];
    int bytes;
    take_path(j->in, path);
    const char *data = take_buffer(j->in, &bytes);
    int err = set(f, path, data, bytes, take_int(j->in));
    if (err == 0)
        put_stat(f, &j->out, find(f, path));
    return err;
}

static int do_read(struct fake_zookeeper *f, struct job *j)
{
    char path[PATH_MAX_];
    take_path(j->in, path);
    const char *wants = take(j->in, 1);
    struct node *n = find(f, path);
    if (wants && *wants && (n || j->op == FAKE_EXISTS))
        watch(f, j->connection, j->op == FAKE_CHILDREN ? WATCH_CHILD : WATCH_DATA, path);
    if (!n)
        return ERR_NO_NODE;
    if (j->op == FAKE_GET)
        put_buffer(&j->out, n->data, n->bytes);
    if (j->op == FAKE_CHILDREN) {
        put_int(&j->out, children(f, path));
        for (const struct node *c = f->nodes; c; c = c->next)
            if (is_child(c, path))
                put_text(&j->out, strrchr(c->path, '/') + 1);
    }
    put_stat(f, &j->out, n);
    return 0;
}

static int do_versioned(struct fake_zookeeper *f, struct job *j, int op)
{
    char path[PATH_MAX_];
    take_path(j->in, path);
    int version = take_int(j->in);
    return op == FAKE_DELETE ? delete (f, path, version) : check(f, path, version);
}

static int do_write(struct fake_zookeeper *f, struct job *j, int op)
{
    if (op == FAKE_CREATE)
        return do_create(f, j);
    if (op == FAKE_SET)
        return do_set(f, j);
    return do_versioned(f, j, op);
}

static struct node *copy_tree(const struct node *from)
{
    struct node *head = NULL, **tail = &head;
    for (; from; from = from->next) {
        struct node *n = malloc(sizeof *n);
        *n = *from;
        n->data = NULL;
        set_data(n, from->data, from->bytes);
        n->next = NULL;
        *tail = n;
        tail = &n->next;
    }
    return head;
}

static void free_tree(struct node *n)
{
    while (n) {
        struct node *next = n->next;
        free(n->data);
        free(n);
        n = next;
    }
}

static void put_multi_header(struct bytes *b, int type, char done, int err)
{
    put_int(b, type);
    put(b, &done, 1);
    put_int(b, err);
}

static int count_ops(struct job *j, int ops[64], size_t starts[64])
{
    int count = 0;
    for (;;) {
        int type = take_int(j->in);
        const char *done = take(j->in, 1);
        take_int(j->in);
        if (!done || *done || count == 64)
            return count;
        ops[count] = type;
        starts[count++] = j->in->read;
        /* Skip the body by shape: path, then what follows it. */
        int bytes;
        take_buffer(j->in, &bytes);
        if (type == FAKE_CREATE || type == FAKE_SET)
            take_buffer(j->in, &bytes);
        for (int acls = type == FAKE_CREATE ? take_int(j->in) : 0; acls > 0; acls--) {
            take_int(j->in);
            take_buffer(j->in, &bytes);
            take_buffer(j->in, &bytes);
        }
        take_int(j->in);
    }
}

static int do_multi(struct fake_zookeeper *f, struct job *j)
{
    int ops[64];
    size_t starts[64];
    int count = count_ops(j, ops, starts), failed = -1, err = 0;
    struct node *before = copy_tree(f->nodes);
    struct bytes good = {0};
    unsigned fired = f->fired_count;
    for (int i = 0; i < count && err == 0; i++) {
        struct job one = {.op = ops[i], .connection = j->connection, .session = j->session, .in = j->in};
        j->in->read = starts[i];
        put_multi_header(&good, ops[i], 0, 0);
        err = do_write(f, &one, ops[i]);
        put(&good, one.out.at, one.out.count);
        free(one.out.at);
        failed = i;
    }
    if (err == 0) {
        put(&j->out, good.at, good.count);
    } else {
        /* Watches that fired meanwhile are lost with it, which nobody here minds. */
        struct node *after = f->nodes;
        f->nodes = before;
        before = after;
        f->fired_count = fired;
        for (int i = 0; i < count; i++) {
            int code = i < failed ? 0 : i == failed ? err : ERR_NEIGHBOUR;
            put_multi_header(&j->out, -1, 0, code);
            put_int(&j->out, code);
        }
    }
    put_multi_header(&j->out, -1, 1, -1);
    free(good.at);
    free_tree(before);
    return 0;
}

static int carry_out(struct fake_zookeeper *f, struct job *j)
{
    char path[PATH_MAX_];
    switch (j->op) {
    case FAKE_CREATE:
    case FAKE_SET:
    case FAKE_DELETE:
        return do_write(f, j, j->op);
    case FAKE_EXISTS:
    case FAKE_GET:
    case FAKE_CHILDREN:
        return do_read(f, j);
    case FAKE_MULTI:
        return do_multi(f, j);
    case FAKE_SYNC:
        take_path(j->in, path);
        put_text(&j->out, path);
        return 0;
    default:
        return 0;
    }
}

/* The rule for this request, or an ordinary one. */
static struct fake_rule take_rule(struct fake_zookeeper *f, int op)
{
    for (unsigned i = 0; i < f->rules_count; i++) {
        struct fake_rule *r = &f->rules[i];
        if ((int)r->op != op)
            continue;
        if (r->skip) {
            r->skip--;
            continue;
        }
        struct fake_rule found = *r;
        if (r->times-- <= 1) {
            memmove(r, r + 1, (f->rules_count - i - 1) * sizeof *r);
            f->rules_count--;
        }
        return found;
    }
    return (struct fake_rule){.op = (enum fake_op)op, .apply = true, .answer = FAKE_ANSWER};
}

static void set_watches_again(struct fake_zookeeper *f, int index, struct bytes *in)
{
    char path[PATH_MAX_];
    take_long(in);
    for (int list = 0; list < 3; list++)
        for (int count = take_int(in); count > 0 && !in->bad; count--) {
            take_path(in, path);
            watch(f, index, list == 2 ? WATCH_CHILD : WATCH_DATA, path);
        }
}

static void unwatch(struct fake_zookeeper *f, int index, struct bytes *in)
{
    char path[PATH_MAX_];
    take_path(in, path);
    for (int i = 0; i < WATCHES_MAX; i++)
        if (f->watches[i].connection == index && strcmp(f->watches[i].path, path) == 0)
            f->watches[i].connection = -1;
}

static void answer(struct fake_zookeeper *f, int index, int xid, const struct fake_rule *rule, int err,
                   const struct bytes *out)
{
    struct connection *k = &f->connections[index];
    int64_t session = k->session;
    switch (rule->answer) {
    case FAKE_ANSWER:
        send_reply(f, k, xid, err, out);
        break;
    case FAKE_STALL:
        k->stalls = true;
        break;
    case FAKE_WRONG_XID:
        send_reply(f, k, xid + 77, err, out);
        break;
    case FAKE_AUTH_FAIL:
        send_reply(f, k, XID_AUTH, -115, NULL);
        break;
    case FAKE_EXPIRE:
        close_connection(f, index);
        end_session(f, session);
        break;
    case FAKE_CLOSE:
        close_connection(f, index);
        break;
    }
}

static void serve(struct fake_zookeeper *f, int index, struct bytes *in)
{
    struct connection *k = &f->connections[index];
    int xid = k->is_connected ? take_int(in) : 0;
    int op = k->is_connected ? take_int(in) : FAKE_CONNECT;
    f->counts[op & 127]++;
    struct fake_rule rule = take_rule(f, op);
    struct job j = {.op = op, .connection = index, .session = k->session, .in = in};
    int err = rule.error;
    if (op == FAKE_CONNECT) {
        if (rule.apply)
            handshake(f, index, in);
        /* With `apply` the connection goes after the reply has. */
        if (rule.answer != FAKE_ANSWER && k->fd >= 0)
            answer(f, index, xid, &rule, 0, NULL);
        return;
    }
    if (rule.apply && !err)
        err = carry_out(f, &j);
    if (op == FAKE_SET_WATCHES)
        set_watches_again(f, index, in);
    if (op == FAKE_REMOVE_WATCHES)
        unwatch(f, index, in);
    send_events(f);
    answer(f, index, xid, &rule, err, &j.out);
    free(j.out.at);
    if (op == FAKE_CLOSE_SESSION && rule.answer == FAKE_ANSWER) {
        end_session(f, j.session);
        close_connection(f, index);
    }
}

/* Whole frames, while there are some and the connection lives. */
static void serve_frames(struct fake_zookeeper *f, int index)
{
    struct connection *k = &f->connections[index];
    while (k->fd >= 0 && k->in.count >= 4) {
        uint32_t bytes;
        memcpy(&bytes, k->in.at, 4);
        bytes = be32toh(bytes);
        if (bytes > FRAME_MAX) {
            close_connection(f, index);
            return;
        }
        if (k->in.count < 4 + bytes)
            return;
        char *copy = malloc(bytes + 1);
        memcpy(copy, k->in.at + 4, bytes);
        memmove(k->in.at, k->in.at + 4 + bytes, k->in.count - 4 - bytes);
        k->in.count -= 4 + bytes;
        struct bytes frame = {.at = copy, .count = bytes};
        if (!k->stalls)
            serve(f, index, &frame);
        free(copy);
    }
}

static void receive(struct fake_zookeeper *f, int index)
{
    struct connection *k = &f->connections[index];
    char buffer[65536];
    ssize_t n = recv(k->fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        close_connection(f, index);
        return;
    }
    put(&k->in, buffer, (size_t)n);
    serve_frames(f, index);
}

static void accept_one(struct fake_zookeeper *f)
{
    int fd = accept4(f->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    for (int i = 0; fd >= 0 && i < CONNECTIONS_MAX; i++)
        if (f->connections[i].fd < 0) {
            f->connections[i].fd = fd;
            return;
        }
    if (fd >= 0)
        close(fd);
}

static void *run(void *arg)
{
    struct fake_zookeeper *f = arg;
    struct pollfd fds[2 + CONNECTIONS_MAX];
    pthread_mutex_lock(&f->lock);
    while (!f->stopping) {
        fds[0] = (struct pollfd){.fd = f->wake_fd, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = f->listen_fd, .events = POLLIN};
        for (int i = 0; i < CONNECTIONS_MAX; i++)
            fds[2 + i] = (struct pollfd){.fd = f->connections[i].fd, .events = POLLIN};
        pthread_mutex_unlock(&f->lock);
        poll(fds, 2 + CONNECTIONS_MAX, -1);
        pthread_mutex_lock(&f->lock);
        eventfd_t count;
        if (fds[0].revents) {
            eventfd_read(f->wake_fd, &count);
            continue;
        }
        for (int i = 0; i < CONNECTIONS_MAX; i++)
            if (fds[2 + i].revents && f->connections[i].fd >= 0)
                receive(f, i);
        if (fds[1].revents)
            accept_one(f);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---- the outside --------------------------------------------------------------------------------------- */

static void lock(struct fake_zookeeper *f)
{
    pthread_mutex_lock(&f->lock);
}

static void unlock(struct fake_zookeeper *f)
{
    send_events(f);
    eventfd_write(f->wake_fd, 1);
    pthread_mutex_unlock(&f->lock);
}

struct fake_zookeeper *fake_zookeeper_start(void)
{
    struct fake_zookeeper *f = calloc(1, sizeof *f);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof here;
    if (!f)
        die("memory");
    pthread_mutex_init(&f->lock, NULL);
    for (int i = 0; i < CONNECTIONS_MAX; i++)
        f->connections[i].fd = -1;
    for (int i = 0; i < WATCHES_MAX; i++)
        f->watches[i].connection = -1;
    f->nodes = calloc(1, sizeof *f->nodes);
    strcpy(f->nodes->path, "/");
    f->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    f->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (f->listen_fd < 0 || bind(f->listen_fd, (struct sockaddr *)&here, sizeof here) < 0 ||
        listen(f->listen_fd, 64) < 0 || getsockname(f->listen_fd, (struct sockaddr *)&here, &bytes) < 0 ||
        pthread_create(&f->thread, NULL, run, f) != 0)
        die("start");
    f->port = ntohs(here.sin_port);
    return f;
}

void fake_zookeeper_stop(struct fake_zookeeper *f)
{
    if (!f)
        return;
    lock(f);
    f->stopping = true;
    unlock(f);
    pthread_join(f->thread, NULL);
    for (int i = 0; i < CONNECTIONS_MAX; i++)
        if (f->connections[i].fd >= 0)
            close_connection(f, i);
    close(f->listen_fd);
    close(f->wake_fd);
    free_tree(f->nodes);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

int fake_zookeeper_port(const struct fake_zookeeper *f)
{
    return f->port;
}

const char *fake_zookeeper_connect(const struct fake_zookeeper *f, const char *chroot)
{
    static _Thread_local char text[256];
    snprintf(text, sizeof text, "127.0.0.1:%d%s", f->port, chroot);
    return text;
}

void fake_zookeeper_script(struct fake_zookeeper *f, struct fake_rule rule)
{
    lock(f);
    if (f->rules_count == RULES_MAX)
        die("rules");
    f->rules[f->rules_count++] = rule;
    unlock(f);
}

void fake_zookeeper_expire(struct fake_zookeeper *f)
{
    lock(f);
    for (int i = 0; i < CONNECTIONS_MAX; i++)
        if (f->connections[i].fd >= 0)
            close_connection(f, i);
    for (int i = 0; i < SESSIONS_MAX; i++)
        if (f->sessions[i])
            end_session(f, f->sessions[i]);
    unlock(f);
}

void fake_zookeeper_cut(struct fake_zookeeper *f)
{
    lock(f);
    for (int i = 0; i < CONNECTIONS_MAX; i++)
        if (f->connections[i].fd >= 0)
            close_connection(f, i);
    unlock(f);
}

void fake_zookeeper_babble(struct fake_zookeeper *f)
{
    lock(f);
    for (int i = 0; i < CONNECTIONS_MAX; i++)
        if (f->connections[i].fd >= 0)
            send_reply(f, &f->connections[i], 4711, 0, NULL);
    unlock(f);
}

unsigned fake_zookeeper_count(struct fake_zookeeper *f, enum fake_op op)
{
    lock(f);
    unsigned count = f->counts[op & 127];
    unlock(f);
    return count;
}

unsigned fake_zookeeper_rules(struct fake_zookeeper *f)
{
    lock(f);
    unsigned count = f->rules_count;
    unlock(f);
    return count;
}

int fake_zookeeper_version(struct fake_zookeeper *f, const char *path)
{
    lock(f);
    const struct node *n = find(f, path);
    int version = n ? n->version : -1;
    unlock(f);
    return version;
}

void fake_zookeeper_put(struct fake_zookeeper *f, const char *path, const char *data)
{
    char copy[PATH_MAX_];
    lock(f);
    snprintf(copy, sizeof copy, "%s", path);
    if (set(f, path, data, (int)strlen(data), -1) < 0)
        create(f, copy, data, (int)strlen(data), 0, 0);
    unlock(f);
}

void fake_zookeeper_remove(struct fake_zookeeper *f, const char *path)
{
    lock(f);
    delete (f, path, -1);
    unlock(f);
}
