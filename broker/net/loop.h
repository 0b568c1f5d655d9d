/* An I/O loop: one thread, one event_base, its connections and their requests.
 *
 * A turn: wait for events; read and carry out what is there; then, once per turn (loop_turn_end), write each
 * touched partition's queue, send each connection's answers, hand freed memory to those who wait for it, and
 * bury what was doomed. Nothing is freed inside a callback. Objects of a loop are touched by its thread only;
 * all others go through its inbox.
 */
#ifndef BROOK_NET_LOOP_H
#define BROOK_NET_LOOP_H

#include "broker/net/deadlines.h"
#include "broker/net/net.h"
#include "broker/net/output.h"

#include <event2/event.h>
#include <pthread.h>
#include <sys/queue.h>
#include <sys/socket.h>

struct connection;
struct disk_threads;
struct listener_counts;
TAILQ_HEAD(connection_list, connection);

#define LOOP_TOUCHED_SLOTS 256

struct io_loop {
    struct request_loop face; /* what handlers see */
    struct net_settings settings;
    struct listener_counts *counts; /* NULL: nobody counts */
    struct disk_threads *disk_threads;

    pthread_t thread;
    bool is_running; /* the thread was made */
    struct event_base *base;
    struct inbox inbox;
    struct event *inbox_event;
    struct event *deadline_event;
    struct event *tick_event;
    int64_t deadline_armed_ns; /* 0: not armed */
    bool is_ticking;

    struct pool *buffers; /* shared input buffers and output */
    struct pool *frames;  /* large frames: settings.queued_bytes_max */
    struct arena *message_arena;
    struct output_spares spares;
    struct request *free_requests;
    size_t free_requests_count;
    size_t requests_count;
    struct deadlines deadlines;
    struct request *current; /* the one whose handler runs; NULL when that has ended it */

    struct connection_list connections; /* alive */
    struct connection_list ready;       /* to be gone on with next turn */
    struct connection_list dirty;   /* have output to send, or something to decide, at the end of the turn */
    struct connection_list starved; /* wait for room in `frames`, first come first served */
    struct connection_list doomed;  /* to be closed at the end of the turn */
    struct connection_list buried;  /* closed; their last requests are still on their way */

    struct partition **touched;
    size_t touched_count;
    size_t touched_capacity;
    struct partition *touched_slots[LOOP_TOUCHED_SLOTS];

    bool in_turn;
    bool quit;
    struct inbox_item stop_item;
    int64_t stop_at_ns;    /* is_stopping: until when to flush */
    int64_t complained_ns; /* log lines about peers are limited */
    unsigned complaints;
    int64_t busy_ns; /* last time there was a request */
    bool is_trimmed;
};

/* `settings` are copied. Returns 0, -BROOK_E_NOMEM or -BROOK_E_IO. */
int loop_new(const struct net_settings *settings, const struct handler_settings *handlers,
             const struct diag *diag, struct io_loop **ret_loop);
/* The thread has been joined. Runs what is left in the inbox. NULL is fine. */
void loop_free(struct io_loop *loop);
/* Make the thread. Returns 0 or -BROOK_E_IO. */
int loop_start(struct io_loop *loop);
/* Any thread, once: answer what waits, flush, end. */
void loop_stop(struct io_loop *loop);
/* Wait for the end of the thread (at most about stop_ms_max after loop_stop()). */
void loop_join(struct io_loop *loop);
/* Any thread: take over a connected socket (closed here on failure). `address` is its peer. */
void loop_adopt(struct io_loop *loop, int fd, const struct sockaddr_storage *address);
/* Any thread. */
void loop_configure(struct io_loop *loop, const struct net_settings *settings);

/* What handlers call (loop_requests.c). */
extern const struct request_ops loop_request_ops;

/* ---- for connections: the loop's thread ---------------------------------------------------------------- */

/* To be called first in every callback: reads the clocks once per turn. */
void loop_turn_begin(struct io_loop *loop);
/* A zeroed request of the connection, or NULL. loop_request_end() takes it back. */
struct request *loop_request_new(struct io_loop *loop, struct request_peer *peer);
void loop_request_end(struct io_loop *loop, struct request *r);
#endif
