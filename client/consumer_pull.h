/* Pullers: for each broker one pull session with the partitions that it leads, and one pull ahead of the
 * application.
 *
 * The session tells the broker only what changed. At most two pulls are in flight: the one that waits, and
 * one that takes its place because something changed. Records stay in the slab of the reply. Loop thread
 * only.
 */
#ifndef BROOK_CLIENT_CONSUMER_PULL_H
#define BROOK_CLIENT_CONSUMER_PULL_H

#include "client/consumer_fetcher.h"

struct consumer_puller;

/* Pull `p` from this broker from now on (`wants`), or only keep it in mind. [locked] */
void puller_join(struct consumer_fetcher *f, struct consumer_partition *p, int32_t broker_id, bool wants);
/* Not from any broker. [locked] */
void puller_leave(struct consumer_fetcher *f, struct consumer_partition *p);
/* Send the pulls that are due. Takes and gives up the lock. */
void pullers_send(struct consumer_fetcher *f);
/* A connection for pulls was lost, or could not be made: its session with it. [locked] */
void pullers_lost(struct consumer_fetcher *f, int32_t broker_id);
void pullers_free(struct consumer_fetcher *f);
#endif
