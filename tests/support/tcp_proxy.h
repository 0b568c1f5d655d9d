/* A TCP proxy on loopback that can be told to misbehave. One thread of its own; every function here may be
 * called by any other thread and has taken effect when it returns. Ports are on 127.0.0.1.
 */
#ifndef BROOK_TESTS_TCP_PROXY_H
#define BROOK_TESTS_TCP_PROXY_H

#include <stddef.h>
#include <stdint.h>

struct tcp_proxy;

enum tcp_proxy_mode {
    TCP_PROXY_PASS,
    TCP_PROXY_SWALLOW_UP,   /* what clients send is read and thrown away */
    TCP_PROXY_SWALLOW_DOWN, /* what the server sends is read and thrown away */
    TCP_PROXY_SWALLOW,      /* both */
    TCP_PROXY_STALL,        /* nothing is read any more: both ends fill their buffers */
    TCP_PROXY_HANG_UP,      /* new connections are accepted and closed at once; old ones pass */
    TCP_PROXY_REFUSE        /* nobody listens: connecting is refused; old ones pass */
};

/* Which bytes a count is about. */
enum tcp_proxy_direction { TCP_PROXY_UP, TCP_PROXY_DOWN };

/* Forward to 127.0.0.1:target_port. Never NULL: prints and aborts. */
struct tcp_proxy *tcp_proxy_start(int target_port);
/* Cuts all connections. NULL is fine. */
void tcp_proxy_stop(struct tcp_proxy *p);
int tcp_proxy_port(const struct tcp_proxy *p);
/* To where new connections go from now on. */
void tcp_proxy_retarget(struct tcp_proxy *p, int target_port);

void tcp_proxy_set(struct tcp_proxy *p, enum tcp_proxy_mode mode);
/* Close all connections (with a reset: nothing that is under way arrives). */
void tcp_proxy_cut(struct tcp_proxy *p);
/* Let `bytes` more pass in this direction, all connections together; then cut everything, or with `stall`
 * behave as TCP_PROXY_STALL. */
void tcp_proxy_cut_after(struct tcp_proxy *p, enum tcp_proxy_direction direction, uint64_t bytes, int stall);

/* Tell connections apart: `who` is asked once for each new one, on the proxy's thread, by the port that its client
 * calls from; it must not call the proxy. It answers 0 (as all are without this) to TCP_PROXY_TAGS - 1. */
#define TCP_PROXY_TAGS 16
void tcp_proxy_tell_apart(struct tcp_proxy *p, int (*who)(void *arg, int client_port, int proxy_port), void *arg);
/* From now on, or no longer, read nothing in this direction on connections of this tag, old and new: what was sent
 * meanwhile arrives afterwards, unless the connection ends or is cut before. */
void tcp_proxy_hold(struct tcp_proxy *p, int tag, enum tcp_proxy_direction direction, int hold);
/* Close the connections of this tag, with a reset. */
void tcp_proxy_cut_tag(struct tcp_proxy *p, int tag);

/* How many connections were accepted so far, and how many are open now. */
uint64_t tcp_proxy_accepted(struct tcp_proxy *p);
size_t tcp_proxy_open(struct tcp_proxy *p);
/* Bytes that came in from the clients (up) or the server (down) so far. */
uint64_t tcp_proxy_bytes(struct tcp_proxy *p, enum tcp_proxy_direction direction);
#endif
