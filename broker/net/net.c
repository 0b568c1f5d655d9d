#include "broker/net/net.h"

#include "broker/cluster/cluster.h"
#include "broker/net/disk_threads.h"
#include "broker/net/listener.h"
#include "broker/net/loop.h"

#include <stdlib.h>

struct net {
    struct listener_counts *counts;
    struct disk_threads *disk_threads;
    struct listener *listeners[NET_LISTENERS_MAX];
    size_t listeners_count;
    struct io_loop **loops;
    size_t loops_count;
};

static int make_loops(struct net *net, const struct net_settings *settings,
                      const struct handler_settings *handlers, const struct diag *diag)
{
    net->loops = calloc((size_t)settings->threads_count, sizeof(struct io_loop *));
    if (!net->loops)
        return -BROOK_E_NOMEM;
    while (net->loops_count < (size_t)settings->threads_count) {
        struct io_loop *loop;
        int r = loop_new(settings, handlers, diag, &loop);
        if (r < 0)
            return r;
        loop->counts = net->counts;
        loop->disk_threads = net->disk_threads;
        net->loops[net->loops_count++] = loop;
    }
    return 0;
}

static int make_listeners(struct net *net, const struct net_settings *settings, struct brook_error *error)
{
    if (settings->listeners_count > NET_LISTENERS_MAX)
        return brook_error_set(error, BROOK_E_CONFIG, "listeners: at most %d", NET_LISTENERS_MAX);
    for (size_t i = 0; i < settings->listeners_count; i++) {
        int r = listener_new(settings->listeners[i], net->loops, net->loops_count, net->counts,
                             &net->listeners[i], error);
        if (r < 0)
            return r;
        net->listeners_count++;
    }
    return 0;
}

int net_new(const struct net_settings *settings, const struct handler_settings *handlers,
            const struct diag *diag, struct net **ret_net, struct brook_error *error)
{
    struct net *net = calloc(1, sizeof *net);
    if (!net)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    int r =
        listener_counts_new(settings->connections_max, settings->connections_per_address_max, &net->counts);
    if (r == 0)
        r = disk_threads_new(settings->disk_threads_count, &net->disk_threads);
    if (r == 0)
        r = make_loops(net, settings, handlers, diag);
    if (r < 0)
        brook_error_set(error, r, "can not make the I/O loops: %s", brook_error_text(r));
    else
        r = make_listeners(net, settings, error);
    if (r < 0) {
        net_free(net);
        return r;
    }
    *ret_net = net;
    return 0;
}

int net_port(const struct net *net, size_t listener)
{
    return listener_port(net->listeners[listener]);
}

static void take_view(void *arg, struct view *view)
{
    struct io_loop *loop = arg;
    struct view *old = loop->face.view;
    loop->face.view = view;
    view_unref(old);
}

int net_start(struct net *net, struct cluster *cluster)
{
    int r = 0;
    for (size_t i = 0; i < net->loops_count && r == 0; i++) {
        net->loops[i]->face.cluster = cluster;
        r = cluster_subscribe(cluster, &net->loops[i]->inbox, take_view, net->loops[i]);
        if (r == 0)
            r = loop_start(net->loops[i]);
    }
    return r;
}

/* ---- listeners are the first loop's: verbs for them go there and are waited for ------------------------ */

struct verb {
    struct inbox_item item;
    struct net *net;
    bool opens;
    int result;
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done;
};

static void carry_out(struct inbox_item *item)
{
    struct verb *verb = CONTAINER_OF(item, struct verb, item);
    int result = 0;
    for (size_t i = 0; i < verb->net->listeners_count; i++) {
        if (!verb->opens)
            listener_close(verb->net->listeners[i]);
        else if (result == 0)
            result = listener_listen(verb->net->listeners[i]);
    }
    pthread_mutex_lock(&verb->lock);
    verb->result = result;
    verb->is_done = true;
    pthread_cond_signal(&verb->done);
    pthread_mutex_unlock(&verb->lock);
}

static int on_first_loop(struct net *net, bool opens)
{
    struct verb verb = {.item.run = carry_out,
                        .net = net,
                        .opens = opens,
                        .lock = PTHREAD_MUTEX_INITIALIZER,
                        .done = PTHREAD_COND_INITIALIZER};
    inbox_post(&net->loops[0]->inbox, &verb.item);
    pthread_mutex_lock(&verb.lock);
    while (!verb.is_done)
        pthread_cond_wait(&verb.done, &verb.lock);
    pthread_mutex_unlock(&verb.lock);
    return verb.result;
}

int net_accept(struct net *net, struct brook_error *error)
{
    int r = on_first_loop(net, true);
    return r < 0 ? brook_error_set(error, BROOK_E_IO, "can not listen: the port may be in use") : 0;
}

void net_stop_accepting(struct net *net)
{
    if (net->loops_count && net->loops[0]->is_running)
        on_first_loop(net, false);
}

void net_stop(struct net *net)
{
    for (size_t i = 0; i < net->loops_count; i++)
        loop_stop(net->loops[i]);
    for (size_t i = 0; i < net->loops_count; i++)
        loop_join(net->loops[i]);
    disk_threads_free(net->disk_threads);
    net->disk_threads = NULL;
}

void net_free(struct net *net)
{
    if (!net)
        return;
    disk_threads_free(net->disk_threads);
    for (size_t i = 0; i < net->listeners_count; i++)
        listener_free(net->listeners[i]);
    for (size_t i = 0; i < net->loops_count; i++)
        loop_free(net->loops[i]);
    free(net->loops);
    listener_counts_free(net->counts);
    free(net);
}

void net_configure(struct net *net, const struct net_settings *settings)
{
    listener_counts_configure(net->counts, settings->connections_max, settings->connections_per_address_max);
    for (size_t i = 0; i < net->loops_count; i++)
        loop_configure(net->loops[i], settings);
}

uint32_t net_connections(const struct net *net)
{
    return listener_counts_total(net->counts);
}
