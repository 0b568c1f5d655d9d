/* How many connections there are, in all and per address, against their limits. Any thread. */
#ifndef BROOK_NET_LISTENER_COUNTS_H
#define BROOK_NET_LISTENER_COUNTS_H

#include "proto/base/err.h"

#include <stdint.h>
#include <sys/socket.h>

struct listener_counts;

/* Returns 0 or -BROOK_E_NOMEM. */
int listener_counts_new(uint32_t connections_max, uint32_t per_address_max,
                        struct listener_counts **ret_counts);
void listener_counts_free(struct listener_counts *counts);
void listener_counts_configure(struct listener_counts *counts, uint32_t connections_max,
                               uint32_t per_address_max);
uint32_t listener_counts_total(struct listener_counts *counts);
/* One more from this address. Returns 0, or -BROOK_E_TOO_MANY or -BROOK_E_NOMEM with a sentence. */
int listener_counts_add(struct listener_counts *counts, const struct sockaddr_storage *address,
                        struct brook_error *error);
/* NULL is fine. */
void listener_counts_remove(struct listener_counts *counts, const struct sockaddr_storage *address);
#endif
