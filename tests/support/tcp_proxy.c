#include "tests/support/tcp_proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIPES_MAX 256
#define BUFFER_BYTES (64 << 10)

/* One direction of one connection. */
struct lane {
    char *buffer; /* [at, end) is to be written */
    size_t at, end;
    bool eof; /* the source has ended; told to the target once the buffer is empty */
    bool closed;
};

struct pipe {
    int fd[2]; /* client, server; -1: the slot is free */
    struct lane lane[2];
    int tag;
};

struct tcp_proxy {
    pthread_t thread;
    pthread_mutex_t lock;
    int wake_fd;
    int listen_fd;
    int port;
    int target_port;
    bool stopping;
    enum tcp_proxy_mode mode;
    uint64_t left[2]; /* UINT64_MAX: no limit */
    bool stall_at_limit;
    bool held[TCP_PROXY_TAGS][2];
    int (*who)(void *arg, int client_port, int proxy_port);
    void *who_arg;
    uint64_t accepted;
    uint64_t bytes[2];
    struct pipe pipes[PIPES_MAX];
};

static void die(const char *what)
{
    fprintf(stderr, "# tcp proxy: %s: %s\n", what, strerror(errno));
    abort();
}

static void start_listening(struct tcp_proxy *p)
{
    struct sockaddr_in here = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                               .sin_port = htons((uint16_t)p->port)};
    socklen_t bytes = sizeof here;
    int yes = 1;
    p->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (p->listen_fd < 0 || setsockopt(p->listen_fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) < 0 ||
        bind(p->listen_fd, (struct sockaddr *)&here, sizeof here) < 0 || listen(p->listen_fd, 64) < 0 ||
        getsockname(p->listen_fd, (struct sockaddr *)&here, &bytes) < 0)
        die("listen");
    p->port = ntohs(here.sin_port);
}

static void close_pipe(struct pipe *pipe)
{
    const struct linger reset = {.l_onoff = 1};
    for (int i = 0; i < 2; i++) {
        setsockopt(pipe->fd[i], SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(pipe->fd[i]);
        pipe->fd[i] = -1;
        free(pipe->lane[i].buffer);
        pipe->lane[i] = (struct lane){0};
    }
}

/* `tag` -1: all. */
static void cut(struct tcp_proxy *p, int tag)
{
    for (int i = 0; i < PIPES_MAX; i++)
        if (p->pipes[i].fd[0] >= 0 && (tag < 0 || p->pipes[i].tag == tag))
            close_pipe(&p->pipes[i]);
}

static void cut_all(struct tcp_proxy *p)
{
    cut(p, -1);
}

static int tag_of(const struct tcp_proxy *p, const struct sockaddr_in *client)
{
    int tag = p->who ? p->who(p->who_arg, ntohs(client->sin_port), p->port) : 0;
    return tag > 0 && tag < TCP_PROXY_TAGS ? tag : 0;
}

static struct pipe *free_pipe(struct tcp_proxy *p)
{
    for (int i = 0; i < PIPES_MAX; i++)
        if (p->pipes[i].fd[0] < 0)
            return &p->pipes[i];
    return NULL;
}

static void accept_one(struct tcp_proxy *p)
{
    struct sockaddr_in target = {.sin_family = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .sin_port = htons((uint16_t)p->target_port)};
    struct sockaddr_in from = {0};
    socklen_t from_bytes = sizeof from;
    int client = accept4(p->listen_fd, (struct sockaddr *)&from, &from_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (client < 0)
        return;
    p->accepted++;
    struct pipe *pipe = p->mode == TCP_PROXY_HANG_UP ? NULL : free_pipe(p);
    int server = pipe ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    if (server < 0 || connect(server, (struct sockaddr *)&target, sizeof target) < 0) {
        close(client);
        if (server >= 0)
            close(server);
        return;
    }
    pipe->tag = tag_of(p, &from);
    pipe->fd[0] = client;
    pipe->fd[1] = server;
    for (int i = 0; i < 2; i++)
        if (!(pipe->lane[i].buffer = malloc(BUFFER_BYTES)))
            die("memory");
}

static bool swallows(const struct tcp_proxy *p, int lane)
{
    return p->mode == TCP_PROXY_SWALLOW || (lane == TCP_PROXY_UP && p->mode == TCP_PROXY_SWALLOW_UP) ||
           (lane == TCP_PROXY_DOWN && p->mode == TCP_PROXY_SWALLOW_DOWN);
}

/* Returns false when everything has been cut. */
static bool count_off(struct tcp_proxy *p, int lane, struct lane *l)
{
    size_t have = l->end - l->at;
    if (p->left[lane] == UINT64_MAX)
        return true;
    if (have < p->left[lane]) {
        p->left[lane] -= have;
        return true;
    }
    l->end = l->at + p->left[lane];
    return false;
}

static void write_lane(struct pipe *pipe, int lane)
{
    struct lane *l = &pipe->lane[lane];
    while (l->at < l->end) {
        ssize_t n = send(pipe->fd[1 - lane], l->buffer + l->at, l->end - l->at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            close_pipe(pipe);
            return;
        }
        if (n <= 0)
            break;
        l->at += (size_t)n;
    }
    if (l->at == l->end && l->eof && !l->closed) {
        shutdown(pipe->fd[1 - lane], SHUT_WR);
        l->closed = true;
    }
}

static void reach_limit(struct tcp_proxy *p)
{
    p->left[0] = p->left[1] = UINT64_MAX;
    if (p->stall_at_limit) {
        p->mode = TCP_PROXY_STALL;
        return;
    }
    /* What was allowed to pass shall arrive. */
    usleep(20000);
    cut_all(p);
}

static void read_lane(struct tcp_proxy *p, struct pipe *pipe, int lane)
{
    struct lane *l = &pipe->lane[lane];
    ssize_t n = recv(pipe->fd[lane], l->buffer, BUFFER_BYTES, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0) {
        close_pipe(pipe);
        return;
    }
    l->eof = n == 0;
    p->bytes[lane] += (size_t)n;
    if (swallows(p, lane) && n > 0)
        return;
    l->at = 0;
    l->end = (size_t)n;
    bool more = count_off(p, lane, l);
    write_lane(pipe, lane);
    if (!more)
        reach_limit(p);
}

static bool may_read(const struct tcp_proxy *p, const struct pipe *pipe, int lane)
{
    const struct lane *l = &pipe->lane[lane];
    return pipe->fd[0] >= 0 && l->at == l->end && !l->eof && p->mode != TCP_PROXY_STALL && !p->held[pipe->tag][lane];
}

static void serve_pipe(struct tcp_proxy *p, struct pipe *pipe, const struct pollfd *fds)
{
    for (int lane = 0; lane < 2 && pipe->fd[0] >= 0; lane++) {
        if (fds[1 - lane].revents & (POLLOUT | POLLERR | POLLHUP))
            write_lane(pipe, lane);
        if (fds[lane].revents & (POLLIN | POLLERR | POLLHUP) && may_read(p, pipe, lane))
            read_lane(p, pipe, lane);
    }
    if (pipe->fd[0] >= 0 && pipe->lane[0].closed && pipe->lane[1].closed)
        close_pipe(pipe);
}

static void fill_pollfds(const struct tcp_proxy *p, const struct pipe *pipe, struct pollfd *fds)
{
    for (int i = 0; i < 2; i++) {
        const struct lane *to = &pipe->lane[1 - i];
        short events = 0;
        if (may_read(p, pipe, i))
            events |= POLLIN;
        if (to->at < to->end)
            events |= POLLOUT;
        /* Without interest not even an error may wake us, or a stalled proxy would spin. */
        fds[i] = (struct pollfd){.fd = events ? pipe->fd[i] : -1, .events = events};
    }
}

static void *run(void *arg)
{
    struct tcp_proxy *p = arg;
    static const short in = POLLIN;
    struct pollfd *fds = calloc(2 + 2 * PIPES_MAX, sizeof *fds);
    if (!fds)
        die("memory");
    pthread_mutex_lock(&p->lock);
    while (!p->stopping) {
        fds[0] = (struct pollfd){.fd = p->wake_fd, .events = in};
        fds[1] = (struct pollfd){.fd = p->listen_fd, .events = in};
        for (int i = 0; i < PIPES_MAX; i++)
            fill_pollfds(p, &p->pipes[i], fds + 2 + 2 * i);
        pthread_mutex_unlock(&p->lock);
        poll(fds, 2 + 2 * PIPES_MAX, -1);
        pthread_mutex_lock(&p->lock);
        eventfd_t count;
        if (fds[0].revents) {
            /* Something has changed: what poll() said is about the past. */
            eventfd_read(p->wake_fd, &count);
            continue;
        }
        if (fds[1].revents && p->listen_fd >= 0)
            accept_one(p);
        for (int i = 0; i < PIPES_MAX; i++)
            if (p->pipes[i].fd[0] >= 0)
                serve_pipe(p, &p->pipes[i], fds + 2 + 2 * i);
    }
    cut_all(p);
    pthread_mutex_unlock(&p->lock);
    free(fds);
    return NULL;
}

struct tcp_proxy *tcp_proxy_start(int target_port)
{
    struct tcp_proxy *p = calloc(1, sizeof *p);
    if (!p)
        die("memory");
    pthread_mutex_init(&p->lock, NULL);
    p->target_port = target_port;
    p->left[0] = p->left[1] = UINT64_MAX;
    for (int i = 0; i < PIPES_MAX; i++)
        p->pipes[i].fd[0] = p->pipes[i].fd[1] = -1;
    p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    start_listening(p);
    if (p->wake_fd < 0 || pthread_create(&p->thread, NULL, run, p) != 0)
        die("thread");
    return p;
}

static void lock(struct tcp_proxy *p)
{
    pthread_mutex_lock(&p->lock);
}

static void unlock_and_wake(struct tcp_proxy *p)
{
    eventfd_write(p->wake_fd, 1);
    pthread_mutex_unlock(&p->lock);
}

void tcp_proxy_stop(struct tcp_proxy *p)
{
    if (!p)
        return;
    lock(p);
    p->stopping = true;
    unlock_and_wake(p);
    pthread_join(p->thread, NULL);
    if (p->listen_fd >= 0)
        close(p->listen_fd);
    close(p->wake_fd);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

int tcp_proxy_port(const struct tcp_proxy *p)
{
    return p->port;
}

void tcp_proxy_retarget(struct tcp_proxy *p, int target_port)
{
    lock(p);
    p->target_port = target_port;
    unlock_and_wake(p);
}

void tcp_proxy_set(struct tcp_proxy *p, enum tcp_proxy_mode mode)
{
    lock(p);
    p->mode = mode;
    if (mode == TCP_PROXY_REFUSE && p->listen_fd >= 0) {
        close(p->listen_fd);
        p->listen_fd = -1;
    } else if (mode != TCP_PROXY_REFUSE && p->listen_fd < 0) {
        start_listening(p);
    }
    unlock_and_wake(p);
}

void tcp_proxy_cut(struct tcp_proxy *p)
{
    lock(p);
    cut_all(p);
    unlock_and_wake(p);
}

void tcp_proxy_cut_after(struct tcp_proxy *p, enum tcp_proxy_direction direction, uint64_t bytes, int stall)
{
    lock(p);
    p->left[direction] = bytes;
    p->stall_at_limit = stall;
    unlock_and_wake(p);
}

void tcp_proxy_tell_apart(struct tcp_proxy *p, int (*who)(void *arg, int client_port, int proxy_port), void *arg)
{
    lock(p);
    p->who = who;
    p->who_arg = arg;
    unlock_and_wake(p);
}

void tcp_proxy_hold(struct tcp_proxy *p, int tag, enum tcp_proxy_direction direction, int hold)
{
    lock(p);
    p->held[tag][direction] = hold;
    unlock_and_wake(p);
}

void tcp_proxy_cut_tag(struct tcp_proxy *p, int tag)
{
    lock(p);
    cut(p, tag);
    unlock_and_wake(p);
}

uint64_t tcp_proxy_accepted(struct tcp_proxy *p)
{
    lock(p);
    uint64_t count = p->accepted;
    pthread_mutex_unlock(&p->lock);
    return count;
}

size_t tcp_proxy_open(struct tcp_proxy *p)
{
    size_t count = 0;
    lock(p);
    for (int i = 0; i < PIPES_MAX; i++)
        count += p->pipes[i].fd[0] >= 0;
    pthread_mutex_unlock(&p->lock);
    return count;
}

uint64_t tcp_proxy_bytes(struct tcp_proxy *p, enum tcp_proxy_direction direction)
{
    lock(p);
    uint64_t count = p->bytes[direction];
    pthread_mutex_unlock(&p->lock);
    return count;
}
