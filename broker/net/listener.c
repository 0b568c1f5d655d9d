#include "broker/net/listener.h"

#include "proto/base/cleanup.h"
#include "proto/base/diag.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG 1024
#define ACCEPTS_PER_TURN 64
#define REST_MS 100
#define COMPLAIN_EVERY_NS ((int64_t)10000000000)

struct listener {
    char *address;
    struct io_loop **loops;
    size_t loops_count;
    size_t next_loop;
    struct listener_counts *counts;
    int fd;
    int spare_fd;
    int port;
    struct event *acceptable;
    struct event *rested;
    int64_t complained_ns;
    uint64_t refused; /* since then */
};

/* Split "host:port", "[v6]:port" or ":port" in place. */
static int split(char *text, char **ret_host, char **ret_port)
{
    char *colon = strrchr(text, ':');
    if (!colon || !colon[1])
        return -BROOK_E_CONFIG;
    *colon = '\0';
    *ret_port = colon + 1;
    size_t bytes = strlen(text);
    if (text[0] == '[' && bytes > 2 && text[bytes - 1] == ']') {
        text[bytes - 1] = '\0';
        text++;
    } else if (strchr(text, ':')) {
        return -BROOK_E_CONFIG;
    }
    *ret_host = *text ? text : NULL;
    return 0;
}

static int bind_one(const struct addrinfo *info)
{
    const int on = 1, off = 0;
    AUTO_CLOSE int fd =
        socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, info->ai_protocol);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (info->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, info->ai_addr, info->ai_addrlen) < 0)
        return -1;
    return TAKE_FD(fd);
}

static int bind_address(const char *address, int *ret_fd, struct brook_error *error)
{
    AUTO_FREE char *copy = strdup(address);
    char *host, *port;
    if (!copy)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    if (split(copy, &host, &port) < 0)
        return brook_error_set(error, BROOK_E_CONFIG, "listeners: \"%s\" is not host:port", address);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found;
    int r = getaddrinfo(host, port, &hints, &found);
    if (r != 0)
        return brook_error_set(error, BROOK_E_CONFIG, "listeners: \"%s\": %s", address, gai_strerror(r));
    int fd = -1;
    for (const struct addrinfo *info = found; info && fd < 0; info = info->ai_next)
        fd = bind_one(info);
    int saved = errno;
    freeaddrinfo(found);
    if (fd < 0)
        return brook_error_set(error, BROOK_E_CONFIG, "listeners: can not bind \"%s\": %s", address,
                               strerror(saved));
    *ret_fd = fd;
    return 0;
}

static int port_of(int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &bytes) < 0)
        return -1;
    return address.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)(void *)&address)->sin6_port)
                                         : ntohs(((struct sockaddr_in *)(void *)&address)->sin_port);
}

int listener_new(const char *address, struct io_loop **loops, size_t loops_count,
                 struct listener_counts *counts, struct listener **ret_listener, struct brook_error *error)
{
    struct listener *l = calloc(1, sizeof *l);
    if (!l)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    l->fd = l->spare_fd = -1;
    l->loops = loops;
    l->loops_count = loops_count;
    l->counts = counts;
    l->address = strdup(address);
    int r = l->address ? bind_address(address, &l->fd, error)
                       : brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    if (r < 0) {
        listener_free(l);
        return r;
    }
    l->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    l->port = port_of(l->fd);
    *ret_listener = l;
    return 0;
}

void listener_close(struct listener *l)
{
    if (l->acceptable)
        event_free(l->acceptable);
    if (l->rested)
        event_free(l->rested);
    l->acceptable = l->rested = NULL;
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}

void listener_free(struct listener *l)
{
    if (!l)
        return;
    listener_close(l);
    if (l->spare_fd >= 0)
        close(l->spare_fd);
    free(l->address);
    free(l);
}

int listener_port(const struct listener *l)
{
    return l->port;
}

static void complain(struct listener *l, const char *why)
{
    struct io_loop *loop = l->loops[0];
    l->refused++;
    if (l->complained_ns && loop->face.now_ns - l->complained_ns < COMPLAIN_EVERY_NS)
        return;
    diag_log(loop->face.diag, DIAG_WARN, l->address, "refusing connections: %s (%llu refused)", why,
             (unsigned long long)l->refused);
    l->complained_ns = loop->face.now_ns;
    l->refused = 0;
}

/* Tell one caller by closing its connection, then rest. */
static void out_of_descriptors(struct listener *l)
{
    const struct timeval rest = {.tv_usec = REST_MS * 1000};
    complain(l, "the process has no file descriptor left");
    if (l->spare_fd >= 0) {
        close(l->spare_fd);
        int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            close(fd);
        l->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    event_del(l->acceptable);
    event_add(l->rested, &rest);
}

static void on_rested(evutil_socket_t fd, short events, void *arg)
{
    struct listener *l = arg;
    loop_turn_begin(l->loops[0]);
    if (l->spare_fd < 0)
        l->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    event_add(l->acceptable, NULL);
}

static void welcome(struct listener *l, int fd, const struct sockaddr_storage *address)
{
    struct brook_error error;
    if (listener_counts_add(l->counts, address, &error) < 0) {
        complain(l, error.text);
        close(fd);
        return;
    }
    struct io_loop *loop = l->loops[l->next_loop];
    l->next_loop = (l->next_loop + 1) % l->loops_count;
    loop_adopt(loop, fd, address);
}

static void on_acceptable(evutil_socket_t listening, short events, void *arg)
{
    struct listener *l = arg;
    loop_turn_begin(l->loops[0]);
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_storage address = {0};
        socklen_t bytes = sizeof address;
        int fd = accept4(l->fd, (struct sockaddr *)&address, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            welcome(l, fd, &address);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            out_of_descriptors(l);
        else if (errno == ECONNABORTED || errno == EINTR)
            continue;
        return;
    }
}

int listener_listen(struct listener *l)
{
    struct event_base *base = l->loops[0]->base;
    l->acceptable = event_new(base, l->fd, EV_READ | EV_PERSIST, on_acceptable, l);
    l->rested = evtimer_new(base, on_rested, l);
    if (!l->acceptable || !l->rested || listen(l->fd, BACKLOG) < 0 || event_add(l->acceptable, NULL) < 0)
        return -BROOK_E_IO;
    return 0;
}
