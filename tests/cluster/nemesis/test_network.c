/* That cuts cut: a proxy that knows whose connection it is, and holds one direction of it. */
#include "tests/cluster/nemesis/peer.h"
#include "tests/support/suite.h"
#include "tests/support/tcp_proxy.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define OURS 3
#define OTHERS 4
#define WAIT_MS 15000
/* How long to look for what must not come. */
#define NOTHING_MS 100

static int listening(int *ret_port)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof here;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert(fd >= 0 && bind(fd, (struct sockaddr *)&here, sizeof here) == 0 && listen(fd, 4) == 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&here, &bytes), 0);
    *ret_port = ntohs(here.sin_port);
    return fd;
}

static int connected(int port)
{
    struct sockaddr_in there = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&there, sizeof there), 0);
    return fd;
}

static int who(void *arg, int client_port, int proxy_port)
{
    unsigned long inode = peer_socket(client_port, proxy_port);
    return inode && peer_has_socket(getpid(), inode) ? OURS : 0;
}

static void say(int fd, char c)
{
    ck_assert_int_eq(send(fd, &c, 1, 0), 1);
}

/* The next byte, 0: none within `timeout_ms`. */
static char hear(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char c = 0;
    if (poll(&p, 1, timeout_ms) == 1)
        ck_assert_int_eq(recv(fd, &c, 1, 0), 1);
    return c;
}

START_TEST(one_direction_of_ones_connections_is_held_and_let_go)
{
    int port;
    int door = listening(&port);
    struct tcp_proxy *proxy = tcp_proxy_start(port);
    tcp_proxy_tell_apart(proxy, who, NULL);
    int client = connected(tcp_proxy_port(proxy));
    int server = accept(door, NULL, NULL);
    tcp_proxy_hold(proxy, OTHERS, TCP_PROXY_UP, 1);
    say(client, 'a');
    ck_assert_int_eq(hear(server, WAIT_MS), 'a');
    tcp_proxy_hold(proxy, OURS, TCP_PROXY_UP, 1);
    say(client, 'b');
    ck_assert_int_eq(hear(server, NOTHING_MS), 0);
    say(server, 'c');
    ck_assert_int_eq(hear(client, WAIT_MS), 'c');
    tcp_proxy_hold(proxy, OURS, TCP_PROXY_UP, 0);
    ck_assert_int_eq(hear(server, WAIT_MS), 'b');
    tcp_proxy_cut_tag(proxy, OTHERS);
    say(client, 'd');
    ck_assert_int_eq(hear(server, WAIT_MS), 'd');
    tcp_proxy_cut_tag(proxy, OURS);
    struct pollfd ended = {.fd = server, .events = POLLIN};
    char c;
    ck_assert_int_eq(poll(&ended, 1, WAIT_MS), 1);
    ck_assert_int_le(recv(server, &c, 1, 0), 0);
    close(client), close(server), close(door);
    tcp_proxy_stop(proxy);
}
END_TEST

SUITE_MAIN("nemesis/network", SUITE_TEST_SLOW(one_direction_of_ones_connections_is_held_and_let_go, 60))
