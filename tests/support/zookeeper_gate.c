#include "tests/support/zookeeper_gate.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINKS_MAX 16
#define LATE_MAX 64
#define READ_BYTES (64 << 10)
#define PATH_BYTES 512

enum { UP, DOWN };
enum state { OPEN, ARMED, PASSING /* the last write is under way */, SHUT, CUT };

/* What ZooKeeper calls its requests. */
enum { OP_CREATE = 1, OP_DELETE = 2, OP_SET = 5, OP_MULTI = 14, OP_CREATE2 = 15 };
#define XID_PING (-2)

struct bytes {
    uint8_t *at;
    size_t count;
    size_t room;
};

/* One connection. Of each direction: read and not yet a whole frame, kept while shut, and to be sent. */
struct link {
    int fd[2]; /* client, server; -1: the slot is free */
    struct bytes in[2];
    struct bytes kept[2];
    struct bytes out[2];
    bool is_greeted[2]; /* the first frame has no header */
    struct {
        int32_t xid;
        int32_t op;
    } late[LATE_MAX]; /* not answered yet */
    size_t late_count;
};

struct zookeeper_gate {
    pthread_t thread;
    pthread_mutex_t lock;
    zookeeper_gate_counts *counts;
    int wake_fd;
    int listen_fd;
    int port;
    int target_port;
    bool is_stopping;
    enum state state;
    enum zookeeper_gate_manner manner;
    unsigned left; /* ARMED: writes until it shuts */
    unsigned writes;
    const struct link *last_link; /* PASSING: whose answer is waited for */
    int32_t last_xid;
    struct zookeeper_gate_late late;
    struct link links[LINKS_MAX];
};

static void die(const char *what)
{
    fprintf(stderr, "# zookeeper gate: %s: %s\n", what, strerror(errno));
    abort();
}

/* ---- bytes and frames ----------------------------------------------------------------------------------- */

static void add(struct bytes *b, const void *data, size_t count)
{
    if (b->count + count > b->room) {
        b->room = 2 * (b->count + count);
        b->at = realloc(b->at, b->room);
        if (!b->at)
            die("memory");
    }
    memcpy(b->at + b->count, data, count);
    b->count += count;
}

static void drop(struct bytes *b, size_t count)
{
    memmove(b->at, b->at + count, b->count - count);
    b->count -= count;
}

static void done(struct bytes *b)
{
    free(b->at);
    *b = (struct bytes){0};
}

static int32_t number(const uint8_t *frame, size_t bytes, size_t at)
{
    uint32_t n;
    if (at + sizeof n > bytes)
        return 0;
    memcpy(&n, frame + at, sizeof n);
    return (int32_t)ntohl(n);
}

/* A whole frame at the start of `b`: its bytes with the length; 0: not there yet. */
static size_t whole_frame(const struct bytes *b)
{
    if (b->count < 4)
        return 0;
    size_t bytes = 4 + (size_t)number(b->at, b->count, 0);
    return bytes <= b->count ? bytes : 0;
}

static bool is_write(int32_t op)
{
    return op == OP_CREATE || op == OP_DELETE || op == OP_SET || op == OP_MULTI || op == OP_CREATE2;
}

/* Requests are: length, xid, type, and in a multi a header of nine bytes before each operation; then the path. */
static bool counts(const struct zookeeper_gate *g, const uint8_t *frame, size_t bytes)
{
    char path[PATH_BYTES] = "";
    int32_t op = number(frame, bytes, 8);
    size_t at = op == OP_MULTI ? 21 : 12;
    size_t length = (size_t)number(frame, bytes, at);
    if (!is_write(op))
        return false;
    if (length < sizeof path && at + 4 + length <= bytes)
        memcpy(path, frame + at + 4, length);
    bool is_counted = g->counts(path);
    if (getenv("BROOK_TEST_LOG"))
        fprintf(stderr, "# gate %d: write %s%s\n", g->port, path, is_counted ? "" : " (not counted)");
    return is_counted;
}

/* Answers are: length, xid, zxid, error; of a multi the first result's type follows, -1 for all when one failed. */
static void note_late_answer(struct zookeeper_gate *g, struct link *l, const uint8_t *frame, size_t bytes)
{
    for (size_t i = 0; i < l->late_count; i++) {
        if (l->late[i].xid != number(frame, bytes, 4))
            continue;
        bool has_failed =
            number(frame, bytes, 16) != 0 || (l->late[i].op == OP_MULTI && number(frame, bytes, 20) == -1);
        g->late.answered++;
        g->late.carried_out += !has_failed;
        l->late[i] = l->late[--l->late_count];
        return;
    }
}

/* Whether the frame has to stay. */
static bool judge_up(struct zookeeper_gate *g, struct link *l, const uint8_t *frame, size_t bytes)
{
    int32_t xid = number(frame, bytes, 4);
    if (g->state == SHUT || g->state == PASSING)
        return xid != XID_PING;
    if (!counts(g, frame, bytes))
        return false;
    if (g->state == ARMED && --g->left == 0) {
        g->state = g->manner == ZOOKEEPER_GATE_SWALLOW ? PASSING : SHUT;
        g->last_link = l;
        g->last_xid = xid;
        if (g->state == SHUT)
            return true;
    }
    g->writes++;
    return false;
}

static bool judge_down(struct zookeeper_gate *g, struct link *l, const uint8_t *frame, size_t bytes)
{
    int32_t xid = number(frame, bytes, 4);
    note_late_answer(g, l, frame, bytes);
    if (g->state == PASSING && g->last_link == l && g->last_xid == xid)
        g->state = SHUT;
    return g->state == SHUT && xid != XID_PING;
}

static void sort_out(struct zookeeper_gate *g, struct link *l, int way)
{
    for (size_t bytes; (bytes = whole_frame(&l->in[way])) > 0; drop(&l->in[way], bytes)) {
        const uint8_t *frame = l->in[way].at;
        bool stays = l->is_greeted[way] && (way == UP ? judge_up : judge_down)(g, l, frame, bytes);
        l->is_greeted[way] = true;
        add(stays ? &l->kept[way] : &l->out[way], frame, bytes);
    }
}

/* ---- connections ---------------------------------------------------------------------------------------- */

static void close_link(struct link *l)
{
    for (int i = 0; i < 2; i++) {
        close(l->fd[i]);
        done(&l->in[i]);
        done(&l->kept[i]);
        done(&l->out[i]);
    }
    *l = (struct link){.fd = {-1, -1}};
}

static void close_all(struct zookeeper_gate *g)
{
    for (int i = 0; i < LINKS_MAX; i++)
        if (g->links[i].fd[0] >= 0)
            close_link(&g->links[i]);
}

static void accept_one(struct zookeeper_gate *g)
{
    struct sockaddr_in target = {.sin_family = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .sin_port = htons((uint16_t)g->target_port)};
    int client = accept4(g->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), at = 0;
    if (client < 0)
        return;
    while (at < LINKS_MAX && g->links[at].fd[0] >= 0)
        at++;
    int server = g->state == CUT || at == LINKS_MAX ? -1 : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server < 0 || connect(server, (struct sockaddr *)&target, sizeof target) < 0) {
        close(client);
        if (server >= 0)
            close(server);
        return;
    }
    g->links[at].fd[0] = client;
    g->links[at].fd[1] = server;
}

/* Both return false when the connection has ended. */
static bool read_some(struct link *l, int way)
{
    uint8_t buffer[READ_BYTES];
    ssize_t n = recv(l->fd[way], buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n > 0)
        add(&l->in[way], buffer, (size_t)n);
    return n > 0;
}

static bool write_some(struct link *l, int way)
{
    struct bytes *out = &l->out[way];
    if (!out->count)
        return true;
    ssize_t n = send(l->fd[1 - way], out->at, out->count, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0)
        drop(out, (size_t)n);
    return n > 0 || errno == EAGAIN || errno == EINTR;
}

static void serve(struct zookeeper_gate *g, struct link *l, const struct pollfd *fds)
{
    bool is_up = true;
    for (int way = 0; way < 2 && is_up; way++) {
        if (fds[way].revents & (POLLIN | POLLERR | POLLHUP))
            is_up = read_some(l, way);
        sort_out(g, l, way);
        is_up = write_some(l, way) && is_up;
    }
    if (!is_up)
        close_link(l);
}

/* ---- the thread ----------------------------------------------------------------------------------------- */

static void fill_pollfds(const struct zookeeper_gate *g, struct pollfd *fds)
{
    bool is_open = g->state != SHUT && g->state != PASSING;
    fds[0] = (struct pollfd){.fd = g->wake_fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = is_open ? g->listen_fd : -1, .events = POLLIN};
    for (int i = 0; i < LINKS_MAX; i++)
        for (int way = 0; way < 2; way++)
            fds[2 + 2 * i + way] = (struct pollfd){
                .fd = g->links[i].fd[way],
                .events = (short)(POLLIN | (g->links[i].out[1 - way].count ? POLLOUT : 0))};
}

static void *run(void *arg)
{
    struct zookeeper_gate *g = arg;
    struct pollfd fds[2 + 2 * LINKS_MAX];
    eventfd_t unused;
    pthread_mutex_lock(&g->lock);
    while (!g->is_stopping) {
        fill_pollfds(g, fds);
        pthread_mutex_unlock(&g->lock);
        poll(fds, sizeof fds / sizeof fds[0], -1);
        pthread_mutex_lock(&g->lock);
        if (fds[0].revents) {
            /* Something has changed: what poll() said is about the past. */
            eventfd_read(g->wake_fd, &unused);
            continue;
        }
        for (int i = 0; i < LINKS_MAX; i++)
            if (g->links[i].fd[0] >= 0)
                serve(g, &g->links[i], fds + 2 + 2 * i);
        if (fds[1].revents)
            accept_one(g);
    }
    close_all(g);
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

static void start_listening(struct zookeeper_gate *g)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof here;
    g->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (g->listen_fd < 0 || bind(g->listen_fd, (struct sockaddr *)&here, sizeof here) < 0 ||
        listen(g->listen_fd, 16) < 0 || getsockname(g->listen_fd, (struct sockaddr *)&here, &bytes) < 0)
        die("listen");
    g->port = ntohs(here.sin_port);
}

struct zookeeper_gate *zookeeper_gate_start(int zookeeper_port, zookeeper_gate_counts *counted)
{
    struct zookeeper_gate *g = calloc(1, sizeof *g);
    if (!g)
        die("memory");
    pthread_mutex_init(&g->lock, NULL);
    g->target_port = zookeeper_port;
    g->counts = counted;
    for (int i = 0; i < LINKS_MAX; i++)
        g->links[i].fd[0] = g->links[i].fd[1] = -1;
    g->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    start_listening(g);
    if (g->wake_fd < 0 || pthread_create(&g->thread, NULL, run, g) != 0)
        die("thread");
    return g;
}

/* ---- what it is told ------------------------------------------------------------------------------------ */

static void unlock_and_wake(struct zookeeper_gate *g)
{
    eventfd_write(g->wake_fd, 1);
    pthread_mutex_unlock(&g->lock);
}

void zookeeper_gate_stop(struct zookeeper_gate *g)
{
    if (!g)
        return;
    pthread_mutex_lock(&g->lock);
    g->is_stopping = true;
    unlock_and_wake(g);
    pthread_join(g->thread, NULL);
    close(g->listen_fd);
    close(g->wake_fd);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

int zookeeper_gate_port(const struct zookeeper_gate *g)
{
    return g->port;
}

void zookeeper_gate_arm(struct zookeeper_gate *g, unsigned kth, enum zookeeper_gate_manner manner)
{
    pthread_mutex_lock(&g->lock);
    if (g->state != OPEN)
        die("armed while it is not open");
    g->state = ARMED;
    g->left = kth;
    g->manner = manner;
    g->writes = 0;
    unlock_and_wake(g);
}

bool zookeeper_gate_disarm(struct zookeeper_gate *g)
{
    pthread_mutex_lock(&g->lock);
    bool is_in_time = g->state == ARMED || g->state == OPEN;
    if (is_in_time)
        g->state = OPEN;
    unlock_and_wake(g);
    return is_in_time;
}

bool zookeeper_gate_is_shut(struct zookeeper_gate *g)
{
    pthread_mutex_lock(&g->lock);
    bool is_shut = g->state == SHUT;
    pthread_mutex_unlock(&g->lock);
    return is_shut;
}

unsigned zookeeper_gate_writes(struct zookeeper_gate *g)
{
    pthread_mutex_lock(&g->lock);
    unsigned writes = g->writes;
    pthread_mutex_unlock(&g->lock);
    return writes;
}

void zookeeper_gate_shut(struct zookeeper_gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->state = SHUT;
    unlock_and_wake(g);
}

/* Remember what was kept, and let it go. */
static void let_go(struct zookeeper_gate *g, struct link *l)
{
    struct bytes up = l->kept[UP];
    for (size_t bytes; up.count && (bytes = whole_frame(&up)) > 0; up.at += bytes, up.count -= bytes) {
        if (!counts(g, up.at, bytes))
            continue;
        g->late.count++;
        if (l->late_count == LATE_MAX)
            die("too many writes were kept");
        l->late[l->late_count].xid = number(up.at, bytes, 4);
        l->late[l->late_count++].op = number(up.at, bytes, 8);
    }
    for (int way = 0; way < 2; way++) {
        if (l->kept[way].count)
            add(&l->out[way], l->kept[way].at, l->kept[way].count);
        l->kept[way].count = 0;
    }
}

void zookeeper_gate_open(struct zookeeper_gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->late = (struct zookeeper_gate_late){0};
    g->state = OPEN;
    for (int i = 0; i < LINKS_MAX; i++)
        if (g->links[i].fd[0] >= 0)
            let_go(g, &g->links[i]);
    unlock_and_wake(g);
}

void zookeeper_gate_cut(struct zookeeper_gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->state = CUT;
    close_all(g);
    unlock_and_wake(g);
}

struct zookeeper_gate_late zookeeper_gate_late(struct zookeeper_gate *g)
{
    pthread_mutex_lock(&g->lock);
    struct zookeeper_gate_late late = g->late;
    pthread_mutex_unlock(&g->lock);
    return late;
}
