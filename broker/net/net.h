/* The network side of brookd: listeners, I/O loops, connections.
 *
 * In order: net_new (sockets are bound, nothing listens), net_start (threads run, follow the cluster's
 * views), net_accept (clients may come), net_stop_accepting, net_stop (what waits is answered, output is
 * flushed, threads are joined), net_free, after everybody who may post to a loop's inbox is gone. One thread
 * calls these: the server's.
 */
#ifndef BROOK_NET_NET_H
#define BROOK_NET_NET_H

#include "broker/handlers/request.h"

#define NET_LISTENERS_MAX 8

/* Limits of loops and connections. Those marked * may change while running (net_configure). */
struct net_settings {
    const char *const *listeners; /* "host:port", "[v6]:port", ":port" */
    size_t listeners_count;
    int threads_count;
    int disk_threads_count;
    uint32_t frame_bytes_max;
    size_t queued_bytes_max;              /* large frames being read or carried out, per loop */
    uint32_t requests_in_flight_max;      /* per connection: read, not yet answered */
    size_t output_bytes_max;              /* per connection: queued answers; above it nothing is read */
    uint32_t connections_max;             /* * all together */
    uint32_t connections_per_address_max; /* * */
    int hello_ms_max;                     /* * from accept to Hello */
    int idle_ms_max;                      /* * without requests */
    int frame_ms_max; /* * for a half-sent frame, plus what its bytes take at frame_bytes_per_s_min */
    uint32_t frame_bytes_per_s_min;
    int send_ms_max;       /* * output without progress */
    int stop_ms_max;       /* to flush at the end */
    int send_buffer_bytes; /* SO_SNDBUF, SO_RCVBUF; 0: the system's */
    int receive_buffer_bytes;
};

struct net;

/* `settings` are copied, `handlers` and `diag` borrowed. Returns 0, -BROOK_E_NOMEM, -BROOK_E_IO or
 * -BROOK_E_CONFIG (an address can not be bound) with a sentence. */
int net_new(const struct net_settings *settings, const struct handler_settings *handlers,
            const struct diag *diag, struct net **ret_net, struct brook_error *error);
/* The port bound (for port 0). */
int net_port(const struct net *net, size_t listener);

/* Returns 0, -BROOK_E_NOMEM or -BROOK_E_IO. */
int net_start(struct net *net, struct cluster *cluster);
int net_accept(struct net *net, struct brook_error *error);
/* Returns once no connection is accepted any more. */
void net_stop_accepting(struct net *net);
void net_stop(struct net *net);
void net_free(struct net *net);

/* Take over the values marked * from now on. */
void net_configure(struct net *net, const struct net_settings *settings);

/* Open connections now. Any thread. */
uint32_t net_connections(const struct net *net);
#endif
