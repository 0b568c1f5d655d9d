#include "tests/cluster/nemesis/hosts.h"

#include "tests/support/brokers.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "brook-nemesis-"

struct hosts {
    pid_t owner;
    int count;
    char net[16];       /* "10.a.b" */
    char zookeeper[20];
};

/* Returns whether the shell says that it worked. */
__attribute__((format(printf, 1, 2))) static bool run(const char *format, ...)
{
    char command[512];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    return system(command) == 0;
}

static void give_up(struct hosts *h, const char *what)
{
    fprintf(stderr, "nemesis: %s: --mode hosts needs root and iproute2\n", what);
    hosts_free(h);
    exit(2);
}

static void remove_all_of(pid_t owner)
{
    for (int id = 1; id <= 9; id++)
        run("ip netns del " PREFIX "%d-%d 2>/dev/null", (int)owner, id);
    run("ip link del bn%d 2>/dev/null", (int)owner);
}

void hosts_sweep(void)
{
    DIR *dir = opendir("/run/netns");
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        pid_t owner = (pid_t)strtol(e->d_name + strlen(PREFIX), NULL, 10);
        if (owner > 0 && kill(owner, 0) < 0 && errno == ESRCH)
            remove_all_of(owner);
    }
    if (dir)
        closedir(dir);
}

/* Let rules decide about what comes in as well: the table of local addresses is asked behind ours, and sockets do not
 * remember their route. */
static bool let_rules_filter(int pid, int id)
{
    return run("ip -n " PREFIX "%d-%d rule add pref 10 lookup local", pid, id) &&
           run("ip -n " PREFIX "%d-%d rule del pref 0", pid, id) &&
           run("ip netns exec " PREFIX "%d-%d sh -c 'echo 0 >/proc/sys/net/ipv4/ip_early_demux'", pid, id);
}

static bool make_host(const struct hosts *h, int id)
{
    int pid = (int)h->owner;
    return run("ip netns add " PREFIX "%d-%d", pid, id) &&
           run("ip link add bn%dv%d type veth peer name eth0 netns " PREFIX "%d-%d", pid, id, pid, id) &&
           run("ip link set bn%dv%d master bn%d up", pid, id, pid) &&
           run("ip -n " PREFIX "%d-%d addr add %s.%d/24 dev eth0", pid, id, h->net, 10 + id) &&
           run("ip -n " PREFIX "%d-%d link set eth0 up", pid, id) &&
           run("ip -n " PREFIX "%d-%d link set lo up", pid, id) && let_rules_filter(pid, id);
}

struct hosts *hosts_new(int count)
{
    struct hosts *h = calloc(1, sizeof *h);
    if (!h)
        abort();
    hosts_sweep();
    h->owner = getpid();
    h->count = count;
    snprintf(h->net, sizeof h->net, "10.%d.%d", 192 + h->owner % 60, h->owner / 60 % 250);
    snprintf(h->zookeeper, sizeof h->zookeeper, "%s.2", h->net);
    if (!run("ip link add bn%d type bridge", (int)h->owner) || !run("ip addr add %s.1/24 dev bn%d", h->net, (int)h->owner) ||
        !run("ip addr add %s/24 dev bn%d", h->zookeeper, (int)h->owner) || !run("ip link set bn%d up", (int)h->owner))
        give_up(h, "a bridge can not be made");
    for (int id = 1; id <= count; id++)
        if (!make_host(h, id))
            give_up(h, "a network namespace can not be made");
    return h;
}

void hosts_free(struct hosts *h)
{
    if (!h)
        return;
    remove_all_of(h->owner);
    free(h);
}

const char *hosts_zookeeper_address(const struct hosts *h)
{
    return h->zookeeper;
}

void hosts_place(const struct hosts *h, int id, struct brokers_place *place)
{
    snprintf(place->listeners, sizeof place->listeners, "%s.%d:9092", h->net, 10 + id);
    snprintf(place->namespace, sizeof place->namespace, PREFIX "%d-%d", (int)h->owner, id);
}

/* ZooKeeper shares its host with the clients, so what it sends is not cut there but thrown away at the broker. */
static void change(const struct hosts *h, int from, int to, bool cut)
{
    int pid = (int)h->owner;
    int last = to ? 10 + to : 2;
    if (from == 0 && cut)
        run("ip -n " PREFIX "%d-%d rule add pref 1 from %s.2 blackhole", pid, to, h->net);
    else if (from == 0)
        run("ip -n " PREFIX "%d-%d rule del pref 1 2>/dev/null", pid, to);
    else if (cut)
        run("ip -n " PREFIX "%d-%d neigh replace %s.%d lladdr 02:00:00:00:00:%02x dev eth0 nud permanent", pid, from,
            h->net, last, last);
    else
        run("ip -n " PREFIX "%d-%d neigh del %s.%d dev eth0 2>/dev/null", pid, from, h->net, last);
}

void hosts_cut(const struct hosts *h, int from, int to)
{
    change(h, from, to, true);
}

void hosts_heal(const struct hosts *h, int from, int to)
{
    change(h, from, to, false);
}
