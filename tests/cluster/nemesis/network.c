#include "tests/cluster/nemesis/network.h"

#include "tests/cluster/nemesis/hosts.h"
#include "tests/cluster/nemesis/peer.h"
#include "tests/support/tcp_proxy.h"
#include "tests/support/zookeeper.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct network {
    enum network_mode mode;
    int count;
    struct hosts *hosts; /* NETWORK_HOSTS */
    struct {
        int port;
        struct tcp_proxy *inbound; /* what others know as this broker */
        struct tcp_proxy *zookeeper; /* what this broker knows as ZooKeeper */
        _Atomic pid_t pid;
    } broker[NETWORK_BROKERS_MAX + 1];
};

struct network *network_new(enum network_mode mode, int count)
{
    struct network *n = calloc(1, sizeof *n);
    if (!n || count > NETWORK_BROKERS_MAX)
        abort();
    n->mode = mode;
    n->count = count;
    if (mode == NETWORK_HOSTS)
        n->hosts = hosts_new(count);
    return n;
}

void network_free(struct network *n)
{
    if (!n)
        return;
    for (int id = 1; id <= NETWORK_BROKERS_MAX; id++) {
        tcp_proxy_stop(n->broker[id].inbound);
        tcp_proxy_stop(n->broker[id].zookeeper);
    }
    hosts_free(n->hosts);
    free(n);
}

void network_sweep(void)
{
    hosts_sweep();
}

const char *network_zookeeper_address(const struct network *n)
{
    return n->hosts ? hosts_zookeeper_address(n->hosts) : NULL;
}

/* The id of the broker that calls from `client_port`; 0: somebody else. */
static int who(void *arg, int client_port, int proxy_port)
{
    struct network *n = arg;
    unsigned long inode = peer_socket(client_port, proxy_port);
    for (int id = 1; inode && id <= n->count; id++)
        if (n->broker[id].pid && peer_has_socket(n->broker[id].pid, inode))
            return id;
    return 0;
}

static void start_proxies(struct network *n, const struct zookeeper *zookeeper, int id)
{
    n->broker[id].port = zookeeper_free_port();
    n->broker[id].inbound = tcp_proxy_start(n->broker[id].port);
    tcp_proxy_tell_apart(n->broker[id].inbound, who, n);
    n->broker[id].zookeeper = tcp_proxy_start(zookeeper_port(zookeeper));
}

void network_place(void *arg, const struct zookeeper *zookeeper, int id, struct brokers_place *place)
{
    struct network *n = arg;
    if (n->hosts) {
        hosts_place(n->hosts, id, place);
        return;
    }
    if (!n->broker[id].inbound)
        start_proxies(n, zookeeper, id);
    snprintf(place->listeners, sizeof place->listeners, "127.0.0.1:%d", n->broker[id].port);
    snprintf(place->advertised, sizeof place->advertised, "127.0.0.1:%d", tcp_proxy_port(n->broker[id].inbound));
    snprintf(place->zookeeper, sizeof place->zookeeper, "127.0.0.1:%d/brook", tcp_proxy_port(n->broker[id].zookeeper));
}

void network_set_pid(struct network *n, int id, pid_t pid)
{
    n->broker[id].pid = pid;
}

void network_reconnect(struct network *n)
{
    for (int id = 1; id <= n->count; id++)
        if (n->broker[id].inbound)
            tcp_proxy_cut(n->broker[id].inbound);
}

/* Of the connections between two, those that `from` made carry its words up, those that `to` made carry them down. */
static void hold(struct network *n, int from, int to, int on)
{
    if (to == NETWORK_ZOOKEEPER) {
        tcp_proxy_hold(n->broker[from].zookeeper, 0, TCP_PROXY_UP, on);
    } else if (from == NETWORK_ZOOKEEPER) {
        tcp_proxy_hold(n->broker[to].zookeeper, 0, TCP_PROXY_DOWN, on);
    } else {
        tcp_proxy_hold(n->broker[to].inbound, from, TCP_PROXY_UP, on);
        tcp_proxy_hold(n->broker[from].inbound, to, TCP_PROXY_DOWN, on);
    }
}

static void reset_between(struct network *n, int from, int to)
{
    if (to == NETWORK_ZOOKEEPER || from == NETWORK_ZOOKEEPER) {
        tcp_proxy_cut(n->broker[from + to].zookeeper);
        return;
    }
    tcp_proxy_cut_tag(n->broker[to].inbound, from);
    tcp_proxy_cut_tag(n->broker[from].inbound, to);
}

void network_cut(struct network *n, int from, int to)
{
    if (n->hosts)
        hosts_cut(n->hosts, from, to);
    else
        hold(n, from, to, 1);
}

void network_heal(struct network *n, int from, int to, bool reset)
{
    if (n->hosts) {
        hosts_heal(n->hosts, from, to);
        return;
    }
    if (reset)
        reset_between(n, from, to);
    hold(n, from, to, 0);
}
