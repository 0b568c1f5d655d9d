#include "broker/server.h"

#include "broker/cluster/cluster.h"
#include "broker/net/net.h"
#include "broker/room_settings.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"

#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>
#ifdef HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

struct server {
    const struct server_options *options;
    pthread_mutex_t settings_lock; /* for changes at run time */
    struct settings *settings;
    struct diag diag;
    struct handler_settings handlers;
    struct inbox inbox;
    struct net *net;
    struct cluster *cluster;
    char **listeners;
    size_t listeners_count;
    char **data_dirs;
    size_t data_dirs_count;
    char host[256]; /* advertised */
    int port;
    int signals_fd;
    uint32_t connections_max;
    size_t open_files_max;
    int exit_status;
    bool is_done;
    int64_t watchdog_ns; /* 0: none */
};

/* ---- systemd ------------------------------------------------------------------------------------------- */

static void notify(const char *state)
{
#ifdef HAVE_SYSTEMD
    sd_notify(0, state);
#endif
}

static int64_t watchdog_interval_ns(void)
{
#ifdef HAVE_SYSTEMD
    uint64_t usec;
    if (sd_watchdog_enabled(0, &usec) > 0)
        return (int64_t)usec * 1000 / 2;
#endif
    return 0;
}

/* ---- settings for the rooms ---------------------------------------------------------------------------- */

/* On an I/O loop, while the server's thread may take over others. */
static void visit_settings(const void *arg, request_setting_visitor *visitor, void *visitor_arg)
{
    struct server *server = (struct server *)(uintptr_t)arg;
    pthread_mutex_lock(&server->settings_lock);
    settings_visit(server->settings, visitor, visitor_arg);
    pthread_mutex_unlock(&server->settings_lock);
}

static struct handler_settings handler_settings(const struct server *server)
{
    struct handler_settings to = room_settings_handlers(server->settings);
    to.software = "brookd " PACKAGE_VERSION;
    to.visit_settings = visit_settings;
    to.settings = server;
    return to;
}

static struct net_settings net_settings(const struct server *server)
{
    struct net_settings to = room_settings_net(server->settings);
    to.listeners = (const char *const *)server->listeners;
    to.listeners_count = server->listeners_count;
    to.connections_max = server->connections_max;
    return to;
}

static struct cluster_settings cluster_settings(const struct server *server)
{
    struct cluster_settings to = room_settings_cluster(server->settings);
    to.replication.software = "brookd " PACKAGE_VERSION;
    to.advertised_host = server->host;
    to.advertised_port = server->port;
    to.data_dirs = (const char *const *)server->data_dirs;
    to.data_dirs_count = server->data_dirs_count;
    to.open_files_max = server->open_files_max;
    to.diag = &server->diag;
    return to;
}

static void set_diag(struct server *server)
{
    diag_level_parse(server->settings->log_level, &server->diag.level_min);
    server->diag.json = strcmp(server->settings->log_format, "json") == 0;
}

/* ---- addresses ----------------------------------------------------------------------------------------- */

static int split_addresses(struct server *server)
{
    server->listeners = settings_split(server->settings->listeners, &server->listeners_count);
    server->data_dirs = settings_split(server->settings->log_dirs, &server->data_dirs_count);
    if (!server->listeners || !server->data_dirs)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < server->listeners_count; i++)
        server->listeners[i] = (char *)(uintptr_t)settings_strip_scheme(server->listeners[i]);
    return 0;
}

static bool is_wildcard(const char *host)
{
    return !*host || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

/* What clients are told: what was set, else the first listener's host, else this machine's name. */
static void choose_advertised(struct server *server)
{
    const char *set = server->settings->advertised_listeners;
    const char *address = set ? settings_strip_scheme(set) : server->listeners[0];
    const char *colon = strrchr(address, ':');
    size_t bytes = (size_t)(colon - address);
    if (bytes > 2 && address[0] == '[') {
        address++;
        bytes -= 2;
    }
    snprintf(server->host, sizeof server->host, "%.*s", (int)bytes, address);
    server->port = set ? atoi(colon + 1) : 0;
    if (server->port == 0)
        server->port = net_port(server->net, 0);
    if (is_wildcard(server->host) && gethostname(server->host, sizeof server->host - 1) < 0)
        snprintf(server->host, sizeof server->host, "localhost");
}

/* ---- the process --------------------------------------------------------------------------------------- */

static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* What segments get is settled at the start; connections get the rest. */
static void share_descriptors(struct server *server)
{
    struct rlimit limit;
    uint64_t count = getrlimit(RLIMIT_NOFILE, &limit) < 0 ? RLIM_INFINITY : limit.rlim_cur;
    if (!server->open_files_max)
        server->open_files_max = room_settings_open_files(server->settings, count);
    server->connections_max = room_settings_connections(server->settings, count, server->open_files_max);
    if (server->connections_max < (uint32_t)server->settings->max_connections)
        diag_log(&server->diag, DIAG_INFO, "",
                 "max.connections is %" PRIu32 ", not %" PRId32 ": of %" PRIu64 " file descriptors %zu are for logs",
                 server->connections_max, server->settings->max_connections, count, server->open_files_max);
}

static sigset_t handled_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    return set;
}

/* Before anybody can know that we run: a signal that comes early waits until it is caught. */
static void hold_signals(void)
{
    sigset_t set = handled_signals();
    signal(SIGPIPE, SIG_IGN);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static int catch_signals(struct server *server)
{
    sigset_t set = handled_signals();
    server->signals_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return server->signals_fd < 0 ? -BROOK_E_IO : 0;
}

/* ---- SIGHUP -------------------------------------------------------------------------------------------- */

static void say_change(void *arg, const char *name, const char *from, const char *to, bool at_run_time)
{
    const struct server *server = arg;
    if (at_run_time)
        diag_log(&server->diag, DIAG_INFO, "", "%s is %s now (was %s)", name, to, from);
    else
        diag_log(&server->diag, DIAG_WARN, "", "%s stays %s: %s needs a restart", name, from, to);
}

static void take_over(struct server *server, const struct settings *fresh)
{
    pthread_mutex_lock(&server->settings_lock);
    settings_take_over(server->settings, fresh);
    pthread_mutex_unlock(&server->settings_lock);
    enum diag_level level;
    if (diag_level_parse(server->settings->log_level, &level) == 0)
        __atomic_store_n(&server->diag.level_min, level, __ATOMIC_RELAXED);
    share_descriptors(server);
    struct net_settings net = net_settings(server);
    net_configure(server->net, &net);
}

static void reload(struct server *server)
{
    struct settings_faults faults = {0};
    struct settings *fresh;
    const struct server_options *o = server->options;
    diag_log(&server->diag, DIAG_INFO, "", "reading the configuration again");
    if (settings_load(o->file, o->overrides, o->overrides_count, &fresh, &faults) == 0) {
        settings_compare(server->settings, fresh, say_change, server);
        take_over(server, fresh);
        settings_free(fresh);
    } else {
        diag_log(&server->diag, DIAG_ERROR, "", "the configuration has faults: nothing is changed");
    }
    for (size_t i = 0; i < faults.count; i++)
        diag_log(&server->diag, DIAG_ERROR, "", "%s", faults.lines[i]);
    settings_faults_done(&faults);
}

/* ---- running ------------------------------------------------------------------------------------------- */

static void fail(struct server *server, const struct brook_error *error)
{
    diag_log(&server->diag, DIAG_ERROR, "", "can not start: %s",
             error->text[0] ? error->text : brook_error_text(error->code));
    server->exit_status = EXIT_FAILURE;
    server->is_done = true;
}

static void on_ready(void *arg, const struct brook_error *why)
{
    struct server *server = arg;
    struct brook_error error = *why;
    if (server->is_done)
        return;
    if (error.code || net_accept(server->net, &error) < 0) {
        fail(server, &error);
        return;
    }
    char subject[32];
    snprintf(subject, sizeof subject, "broker=%" PRId32, server->settings->broker_id);
    diag_log(&server->diag, DIAG_INFO, subject, "ready: listens on port %d, clients are told %s:%d",
             net_port(server->net, 0), server->host, server->port);
    notify("READY=1");
}

static void take_signals(struct server *server)
{
    struct signalfd_siginfo info;
    while (read(server->signals_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGHUP) {
            reload(server);
            continue;
        }
        diag_log(&server->diag, DIAG_INFO, "", "stopping (signal %u)", info.ssi_signo);
        server->is_done = true;
    }
}

static void wait_and_serve(struct server *server)
{
    struct pollfd fds[] = {{.fd = server->signals_fd, .events = POLLIN},
                           {.fd = inbox_fd(&server->inbox), .events = POLLIN}};
    int timeout_ms = server->watchdog_ns ? (int)(server->watchdog_ns / 1000000) : -1;
    while (!server->is_done) {
        int n = poll(fds, 2, timeout_ms);
        if (n < 0 && errno != EINTR)
            break;
        take_signals(server);
        inbox_drain(&server->inbox);
        if (server->watchdog_ns)
            notify("WATCHDOG=1");
    }
}

static int start(struct server *server, struct brook_error *error)
{
    int r = inbox_init(&server->inbox);
    if (r == 0)
        r = catch_signals(server);
    if (r == 0)
        r = split_addresses(server);
    if (r < 0)
        return brook_error_set(error, r, "%s", brook_error_text(r));
    raise_descriptors();
    share_descriptors(server);
    server->handlers = handler_settings(server);
    struct net_settings net = net_settings(server);
    r = net_new(&net, &server->handlers, &server->diag, &server->net, error);
    if (r < 0)
        return r;
    choose_advertised(server);
    struct cluster_settings cluster = cluster_settings(server);
    struct cluster_events events = {.inbox = &server->inbox, .ready = on_ready, .arg = server};
    r = cluster_new(&cluster, &events, &server->cluster, error);
    if (r < 0)
        return r;
    r = net_start(server->net, server->cluster);
    return r < 0 ? brook_error_set(error, r, "can not start the I/O threads: %s", brook_error_text(r)) : 0;
}

/* Leave the cluster, nobody new, answer, close, and only then free what others could post to. */
static void stop(struct server *server)
{
    int64_t began_ms = clock_boot_ms();
    notify("STOPPING=1");
    if (server->cluster)
        cluster_drain(server->cluster);
    if (server->net) {
        net_stop_accepting(server->net);
        net_stop(server->net);
    }
    if (server->cluster)
        cluster_free(server->cluster);
    net_free(server->net);
    if (server->exit_status == EXIT_SUCCESS)
        diag_log(&server->diag, DIAG_INFO, "", "stopped after %" PRId64 " ms", clock_boot_ms() - began_ms);
}

int server_run(const struct server_options *options, struct settings *settings)
{
    struct server server = {.options = options, .settings = settings, .signals_fd = -1, .inbox.fd = -1};
    struct brook_error error = {0};
    hold_signals();
    pthread_mutex_init(&server.settings_lock, NULL);
    set_diag(&server);
    server.watchdog_ns = watchdog_interval_ns();
    diag_log(&server.diag, DIAG_INFO, "", "brookd " PACKAGE_VERSION " starts");
    if (start(&server, &error) < 0)
        fail(&server, &error);
    else
        wait_and_serve(&server);
    stop(&server);
    inbox_done(&server.inbox);
    if (server.signals_fd >= 0)
        close(server.signals_fd);
    free(server.listeners);
    free(server.data_dirs);
    pthread_mutex_destroy(&server.settings_lock);
    settings_free(server.settings);
    return server.exit_status;
}
