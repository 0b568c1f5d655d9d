/* What the parts of a connection share: connection.c (life, the end of a turn, time), connection_read.c,
 * connection_send.c. Nobody else includes this.
 */
#ifndef BROOK_NET_CONNECTION_INTERNAL_H
#define BROOK_NET_CONNECTION_INTERNAL_H

#include "broker/net/connection.h"

#define NS_PER_MS ((int64_t)1000000)

bool connection_is_dead(const struct connection *c);
/* To be settled at the end of this turn; to be gone on with next turn. */
void connection_mark_dirty(struct connection *c);
void connection_mark_ready(struct connection *c);
/* Whether epoll tells us. */
void connection_set_reading(struct connection *c, bool reads);
void connection_set_writing(struct connection *c, bool writes);
/* Whether too much is outstanding to read more. */
bool connection_is_over_limit(const struct connection *c);

/* Receive once and carry out what is whole. */
void connection_read_once(struct connection *c);
void connection_on_readable(evutil_socket_t fd, short events, void *arg);
void connection_on_writable(evutil_socket_t fd, short events, void *arg);
/* Send what the socket takes. */
void connection_flush(struct connection *c);
#endif
