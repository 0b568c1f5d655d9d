/* Where clients come in: one listening socket, accepted on the first loop and handed round to all of them.
 *
 * Counts connections, in all and per address, and refuses what is beyond the limits by closing it at once.
 * When the process has no descriptor left, one kept in reserve is used to tell the caller so, and accepting
 * rests for 100 ms: a listener that stays readable would burn a CPU.
 */
#ifndef BROOK_NET_LISTENER_H
#define BROOK_NET_LISTENER_H

#include "broker/net/listener_counts.h"
#include "broker/net/loop.h"

struct listener;

/* Bind `address` ("host:port"). The loops are borrowed. Returns 0, -BROOK_E_NOMEM, or -BROOK_E_CONFIG (bad
 * address, in use) with a sentence. */
int listener_new(const char *address, struct io_loop **loops, size_t loops_count,
                 struct listener_counts *counts, struct listener **ret_listener, struct brook_error *error);
void listener_free(struct listener *listener);
int listener_port(const struct listener *listener);

/* The thread of the first loop: begin, end. Returns 0 or -BROOK_E_IO. */
int listener_listen(struct listener *listener);
void listener_close(struct listener *listener);
#endif
