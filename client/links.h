/* The connections of a client: per broker and lane a link, which resolves, connects, backs off and connects
 * again.
 *
 * Links to brokers that are known by address only (bootstrap) become the broker's own once Hello has told its
 * id. Loop thread only.
 */
#ifndef BROOK_CLIENT_LINKS_H
#define BROOK_CLIENT_LINKS_H

#include "client/client.h"

struct links;

struct links_events {
    void (*ready)(void *arg, int32_t broker_id, enum client_lane lane);
    void (*lost)(void *arg, int32_t broker_id, enum client_lane lane, const struct brook_error *why);
    /* Nobody is connected and somebody asked for any broker: new addresses are welcome (links_offer()).
     * Called again and again until there is a connection. */
    void (*searching)(void *arg);
    void *arg;
};

int links_new(struct client *client, const struct links_events *events, struct links **ret_links);
/* Ends all requests (channel_free()). NULL is fine. */
void links_free(struct links *links);

/* As client_channel(). */
struct channel *links_channel(struct links *links, int32_t broker_id, enum client_lane lane);
/* As client_message_bytes_max(). */
size_t links_message_bytes_max(struct links *links, int32_t broker_id);
/* As client_idempotent_batches_max(). */
int links_idempotent_batches_max(struct links *links, int32_t broker_id);
/* A ready channel for requests, to whichever broker; a different one each time where there are several. NULL:
 * none is ready; connections to brokers and to addresses of links_offer() are being made. */
struct channel *links_any_channel(struct links *links);
/* Addresses where a broker may be found: replaces the earlier list. `host` is copied. */
struct links_address {
    const char *host;
    uint16_t port;
};
int links_offer(struct links *links, const struct links_address *addresses, size_t count);
/* Whether links_any_channel() has one. */
bool links_is_ready(const struct links *links);
/* Why the last connection could not be made or was lost; code 0: none failed yet. */
const struct brook_error *links_last_error(const struct links *links);
#endif
