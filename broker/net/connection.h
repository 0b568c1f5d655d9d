/* One client: its socket, what it sends, what it is sent, its requests in flight.
 *
 *   open      reads and answers
 *   closing   reads nothing more; ends when its requests are answered and its output is sent
 *   lingering all is sent and our side is shut: waits a moment for the peer, so that the last answer is not
 * torn away by a reset doomed    to be closed at the end of the turn buried    closed; its memory stays until
 * its last request has ended
 *
 * Reading stops, by itself and for as long as it takes, while too many requests or too many bytes of answers
 * are outstanding, or while the loop's budget has no room for the next frame. The loop's thread only.
 */
#ifndef BROOK_NET_CONNECTION_H
#define BROOK_NET_CONNECTION_H

#include "broker/net/input.h"
#include "broker/net/loop.h"
#include "broker/net/output.h"

#include <event2/event_struct.h>

enum connection_state {
    CONNECTION_OPEN,
    CONNECTION_CLOSING,
    CONNECTION_LINGERING,
    CONNECTION_DOOMED,
    CONNECTION_BURIED
};

struct connection {
    struct request_peer peer;
    char name[64]; /* the peer's address, for people */
    struct sockaddr_storage address;
    struct io_loop *loop;
    enum connection_state state;
    int fd;
    struct event readable;
    struct event writable;
    bool reads;  /* `readable` is added */
    bool writes; /* `writable` is added */

    struct input in;
    struct output out;
    /* Records on their way from the disk; `out` waits for them. */
    bool is_warming;
    struct output_cold cold; /* its descriptor is ours */
    struct disk_work warming;
    struct request *requests; /* in flight, newest first */
    uint32_t requests_count;  /* and what else must end before the memory may go */

    TAILQ_ENTRY(connection) in_connections; /* alive, doomed or buried */
    TAILQ_ENTRY(connection) in_ready;
    TAILQ_ENTRY(connection) in_dirty;
    TAILQ_ENTRY(connection) in_starved;
    bool is_ready;
    bool is_dirty;
    bool is_starved;

    bool has_spoken; /* a whole frame was read */
    bool has_ended;  /* the peer has shut its side */
    bool is_blocked; /* outstanding answers are at a limit */
    bool has_woken;  /* closing: its parked pulls have been answered */
    int64_t opened_ns;
    int64_t read_ns;     /* last receive */
    int64_t used_ns;     /* last request begun or ended */
    int64_t half_ns;     /* since when a frame is half read, pauses of ours not counted; 0: none */
    uint64_t half_bytes; /* read since */
    int64_t paused_ns;   /* since when we do not read by our own choice; 0: reading */
    int64_t sent_ns;     /* last progress of output, or when it was queued on an empty queue */
    int64_t linger_until_ns;
};

/* Takes the descriptor over, in every case. NULL: it could not be done (and is closed). */
struct connection *connection_new(struct io_loop *loop, int fd, const struct sockaddr_storage *address);
/* Answers that come for a dead connection are dropped. */
void connection_reply(struct connection *c, Brook__Response *response, struct log_range *ranges,
                      size_t ranges_count);
/* Stop reading; close when all is answered and sent. */
void connection_close(struct connection *c);
/* Say once, and not too often in all, why the connection is going to be closed. */
void connection_complain(struct connection *c, const char *why);
/* Close at the end of this turn. */
void connection_doom(struct connection *c);

/* ---- called by the loop -------------------------------------------------------------------------------- */

/* Go on with what was left (list `ready`). */
void connection_resume(struct connection *c);
/* End of turn: send, see whether to read again or to close. */
void connection_settle(struct connection *c);
/* Close a doomed one; tells its requests. It is freed here or with its last request. */
void connection_bury(struct connection *c);
/* The periodic look: timeouts. */
void connection_check(struct connection *c);
/* A request of it has ended. */
void connection_request_ended(struct connection *c);
void connection_free(struct connection *c);
#endif
