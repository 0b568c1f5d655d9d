#include "client/links.h"

#include "client/config.h"
#include "proto/wire/resolver.h"
#include "proto/base/clock.h"

#include <brook/brook.h>
#include <stdio.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define BOOTSTRAP_ID (-1)
/* However short the setting, a dead broker is not tried without pause. */
#define BACK_OFF_MS_MIN 10
/* While no connection is ready, another address is tried besides after this long. */
#define RACE_MS 250

struct link {
    struct link *next;
    struct links *links;
    int32_t broker_id; /* BOOTSTRAP_ID: known by address only */
    enum client_lane lane;
    char host[256];
    uint16_t port;
    struct channel *channel; /* NULL: none was made yet */
    struct lookup *lookup;   /* the name is being resolved */
    size_t attempt;          /* counts connections, to go through the addresses of a name */
    int failures;            /* in a row */
    bool wanted;             /* somebody asked for it since it was last ready */
    bool resting;            /* until the timer */
    bool was_gone;           /* the metadata did not have it, since it began to fail */
    bool offered;            /* its address is in the present list */
    size_t message_max;      /* bytes, of the last Hello; 0: it did not say */
    int idempotent_batches_max;
    struct client_timer *timer;
};

struct links {
    struct client *client;
    struct links_events events;
    struct link *first;
    struct client_timer *race;
    bool racing;
    size_t turn; /* which of the ready channels is next */
    struct brook_error last_error;
    uint64_t random;
};

static void connect_link(struct link *link);

/* ---- one link --------------------------------------------------------------------------------------- */

static uint64_t next_random(struct links *links)
{
    links->random ^= links->random << 13;
    links->random ^= links->random >> 7;
    links->random ^= links->random << 17;
    return links->random;
}

/* Doubles with each failure, give or take a fifth, so that clients do not come back together. */
static int back_off_ms(struct link *link)
{
    const brook_config *config = client_config(link->links->client);
    int64_t ms = config_number(config, CONFIG_RECONNECT_BACKOFF);
    int64_t most = config_number(config, CONFIG_RECONNECT_BACKOFF_MAX);
    for (int i = 1; i < link->failures && ms < most; i++)
        ms *= 2;
    ms = ms < most ? ms : most;
    ms = ms > BACK_OFF_MS_MIN ? ms : BACK_OFF_MS_MIN;
    int64_t fifth = ms / 5;
    return (int)(ms - fifth + (int64_t)(next_random(link->links) % (uint64_t)(2 * fifth + 1)));
}

static void rest(struct link *link)
{
    link->failures++;
    link->resting = true;
    client_timer_set(link->timer, back_off_ms(link));
}

static const struct metadata_broker *broker_of(const struct link *link)
{
    return link->broker_id == BOOTSTRAP_ID ? NULL
                                           : metadata_broker(client_metadata(link->links->client), link->broker_id);
}

/* The brokers have another process at it than the one that failed: registered again, or at another address. */
static bool is_another(const struct link *link)
{
    const struct metadata_broker *broker = broker_of(link);
    return broker && (link->was_gone || broker->port != link->port ||
                      strncmp(broker->host, link->host, sizeof link->host - 1) != 0);
}

/* Why it failed says nothing about that one. */
static void end_rest(struct link *link)
{
    link->resting = link->was_gone = false;
    link->failures = 0;
    client_timer_stop(link->timer);
}

static void on_rested(void *arg)
{
    struct link *link = arg;
    link->resting = false;
    link->was_gone |= !broker_of(link);
    if (link->wanted)
        connect_link(link);
}

static void note(struct link *link, const struct brook_error *why)
{
    struct links *links = link->links;
    links->last_error = *why;
    if (link->broker_id == BOOTSTRAP_ID)
        diag_log(client_diag(links->client), DIAG_WARN, "", "%s; will try again", why->text);
    else
        diag_log(client_diag(links->client), DIAG_INFO, "", "broker %d: %s", link->broker_id, why->text);
}

static void on_closed(void *arg, const struct brook_error *why)
{
    struct link *link = arg;
    note(link, why);
    rest(link);
    link->links->events.lost(link->links->events.arg, link->broker_id, link->lane, why);
}

static struct link *find(struct links *links, int32_t broker_id, enum client_lane lane)
{
    for (struct link *l = links->first; l; l = l->next)
        if (l->broker_id == broker_id && l->lane == lane)
            return l;
    return NULL;
}

/* Another broker than the one wanted answers at this address: the metadata is out of date. */
static void refuse_broker(struct link *link, int32_t broker_id)
{
    struct brook_error why;
    brook_error_set(&why, BROOK_E_BROKER_NOT_AVAILABLE, "%s:%u is broker %d, not %d", link->host, link->port,
                    broker_id, link->broker_id);
    channel_free(link->channel);
    link->channel = NULL;
    on_closed(link, &why);
    metadata_refresh(client_metadata(link->links->client));
}

static void on_ready(void *arg, const Brook__HelloResponse *hello)
{
    struct link *link = arg;
    struct links *links = link->links;
    if (link->broker_id == BOOTSTRAP_ID) {
        if (hello->broker_id >= 0 && !find(links, hello->broker_id, CLIENT_LANE_REQUESTS))
            link->broker_id = hello->broker_id;
    } else if (hello->has_broker_id && hello->broker_id != link->broker_id) {
        refuse_broker(link, hello->broker_id);
        return;
    }
    link->failures = 0;
    link->wanted = link->was_gone = false;
    link->message_max = hello->message_bytes_max;
    link->idempotent_batches_max = (int)(hello->idempotent_batches_in_flight_max & INT_MAX);
    links->events.ready(links->events.arg, link->broker_id, link->lane);
}

static int make_channel(struct link *link)
{
    struct client *client = link->links->client;
    const brook_config *config = client_config(client);
    struct channel_settings settings = {.base = client_base(client),
                                        .pool = client_pool(client),
                                        .client_id = config_text(config, CONFIG_CLIENT_ID),
                                        .software = "libbrook " BROOK_VERSION_TEXT,
                                        .frame_bytes_max =
                                            (uint32_t)config_number(config, CONFIG_SOCKET_FRAME_BYTES_MAX),
                                        .connect_timeout_ms = config_int(config, CONFIG_CONNECT_TIMEOUT),
                                        .idle_timeout_ms = config_int(config, CONFIG_CONNECTIONS_MAX_IDLE)};
    struct channel_events events = {.ready = on_ready, .closed = on_closed, .arg = link};
    return channel_new(&settings, &events, &link->channel);
}

/* No connection was begun: nothing was queued on it, so nobody is told; it is tried again while it is wanted.
 */
static void fail(struct link *link, int code, const char *text)
{
    struct brook_error why;
    brook_error_set(&why, code, "%.150s:%u: %.80s", link->host, link->port, text);
    note(link, &why);
    rest(link);
}

static void connect_to(struct link *link, const struct resolver_address *address)
{
    int r = link->channel ? 0 : make_channel(link);
    if (r == 0)
        r = channel_connect(link->channel, (const struct sockaddr *)&address->address, address->bytes);
    if (r < 0)
        fail(link, -r, brook_error_text(r));
}

static void on_resolved(void *arg, const struct resolver_answer *answer)
{
    struct link *link = arg;
    link->lookup = NULL;
    if (answer->text) {
        fail(link, BROOK_E_CONNECT_FAILED, answer->text);
        return;
    }
    connect_to(link, &answer->addresses[link->attempt++ % answer->count]);
}

/* A broker may have moved since: its address is read anew for each connection. */
static void refresh_address(struct link *link)
{
    const struct metadata_broker *broker = broker_of(link);
    if (!broker)
        return;
    snprintf(link->host, sizeof link->host, "%s", broker->host);
    link->port = (uint16_t)broker->port;
}

static bool is_busy(const struct link *link)
{
    bool connected = link->channel && channel_get_state(link->channel) != CHANNEL_IDLE;
    return connected || link->lookup || link->resting;
}

static void connect_link(struct link *link)
{
    struct resolver_address address;
    if (is_busy(link))
        return;
    refresh_address(link);
    if (resolver_parse(link->host, link->port, &address) == 0) {
        connect_to(link, &address);
        return;
    }
    struct inbox *inbox = client_inbox(link->links->client);
    int r = lookup_new(inbox, link->host, link->port, on_resolved, link, &link->lookup);
    if (r < 0)
        fail(link, -r, brook_error_text(r));
}

static struct link *add(struct links *links, int32_t broker_id, enum client_lane lane, const char *host,
                        uint16_t port)
{
    struct link *link = calloc(1, sizeof *link);
    if (!link)
        return NULL;
    link->links = links;
    link->broker_id = broker_id;
    link->lane = lane;
    link->port = port;
    snprintf(link->host, sizeof link->host, "%s", host);
    link->timer = client_timer_new(links->client, on_rested, link);
    if (!link->timer) {
        free(link);
        return NULL;
    }
    link->next = links->first;
    links->first = link;
    return link;
}

static void link_free(struct link *link)
{
    if (link->lookup)
        lookup_cancel(link->lookup);
    channel_free(link->channel);
    client_timer_free(link->timer);
    free(link);
}

/* ---- all of them ------------------------------------------------------------------------------------ */

struct channel *links_channel(struct links *links, int32_t broker_id, enum client_lane lane)
{
    struct link *link = find(links, broker_id, lane);
    if (!link) {
        const struct metadata_broker *broker = metadata_broker(client_metadata(links->client), broker_id);
        if (!broker || broker_id < 0)
            return NULL;
        link = add(links, broker_id, lane, broker->host, (uint16_t)broker->port);
        if (!link)
            return NULL;
    }
    if (!link->channel || channel_get_state(link->channel) == CHANNEL_IDLE) {
        link->wanted = true;
        if (link->resting && is_another(link))
            end_rest(link);
        connect_link(link);
    }
    bool alive = link->channel && channel_get_state(link->channel) != CHANNEL_IDLE;
    return alive ? link->channel : NULL;
}

size_t links_message_bytes_max(struct links *links, int32_t broker_id)
{
    const struct link *link = find(links, broker_id, CLIENT_LANE_REQUESTS);
    return link ? link->message_max : 0;
}

int links_idempotent_batches_max(struct links *links, int32_t broker_id)
{
    const struct link *link = find(links, broker_id, CLIENT_LANE_REQUESTS);
    return link ? link->idempotent_batches_max : 0;
}

static bool is_ready(const struct link *link)
{
    return link->lane == CLIENT_LANE_REQUESTS && link->channel &&
           channel_get_state(link->channel) == CHANNEL_READY;
}

static bool has_bootstrap(struct links *links, const char *host, uint16_t port)
{
    for (struct link *l = links->first; l; l = l->next)
        if (l->lane == CLIENT_LANE_REQUESTS && l->port == port && strcmp(l->host, host) == 0)
            return true;
    return false;
}

/* Every broker of the metadata is a candidate. */
static void add_brokers(struct links *links)
{
    const struct metadata_broker *brokers;
    size_t count = metadata_brokers(client_metadata(links->client), &brokers);
    for (size_t i = 0; i < count; i++)
        if (!find(links, brokers[i].broker_id, CLIENT_LANE_REQUESTS))
            add(links, brokers[i].broker_id, CLIENT_LANE_REQUESTS, brokers[i].host,
                (uint16_t)brokers[i].port);
}

/* Begin with one more candidate, chosen at random among those that rest or wait for nothing. */
static void try_one(struct links *links)
{
    size_t candidates = 0;
    add_brokers(links);
    for (struct link *l = links->first; l; l = l->next)
        candidates += l->lane == CLIENT_LANE_REQUESTS && !is_busy(l);
    if (candidates == 0)
        return;
    size_t chosen = next_random(links) % candidates;
    for (struct link *l = links->first; l; l = l->next) {
        if (l->lane != CLIENT_LANE_REQUESTS || is_busy(l) || chosen-- > 0)
            continue;
        connect_link(l);
        return;
    }
}

static void on_race(void *arg)
{
    struct links *links = arg;
    links->racing = false;
    if (links_is_ready(links))
        return;
    links->racing = true;
    client_timer_set(links->race, RACE_MS);
    links->events.searching(links->events.arg);
    try_one(links);
}

struct channel *links_any_channel(struct links *links)
{
    size_t ready = 0;
    for (struct link *l = links->first; l; l = l->next)
        ready += is_ready(l);
    size_t chosen = ready ? links->turn++ % ready : 0;
    for (struct link *l = links->first; l; l = l->next)
        if (is_ready(l) && chosen-- == 0)
            return l->channel;
    if (!links->racing)
        on_race(links);
    return NULL;
}

int links_offer(struct links *links, const struct links_address *addresses, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!has_bootstrap(links, addresses[i].host, addresses[i].port) &&
            !add(links, BOOTSTRAP_ID, CLIENT_LANE_REQUESTS, addresses[i].host, addresses[i].port))
            return -BROOK_E_NOMEM;
    for (struct link *l = links->first; l; l = l->next) {
        l->offered = false;
        for (size_t i = 0; i < count; i++)
            l->offered |= l->port == addresses[i].port && strcmp(l->host, addresses[i].host) == 0;
    }
    for (struct link **at = &links->first; *at;) {
        struct link *l = *at;
        if (l->broker_id != BOOTSTRAP_ID || l->offered || is_busy(l)) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        link_free(l);
    }
    if (links->racing)
        try_one(links);
    return 0;
}

bool links_is_ready(const struct links *links)
{
    for (const struct link *l = links->first; l; l = l->next)
        if (is_ready(l))
            return true;
    return false;
}

const struct brook_error *links_last_error(const struct links *links)
{
    return &links->last_error;
}

int links_new(struct client *client, const struct links_events *events, struct links **ret_links)
{
    struct links *links = calloc(1, sizeof *links);
    if (!links)
        return -BROOK_E_NOMEM;
    links->client = client;
    links->events = *events;
    links->random = (uint64_t)clock_boot_ns() | 1;
    links->race = client_timer_new(client, on_race, links);
    if (!links->race) {
        free(links);
        return -BROOK_E_NOMEM;
    }
    *ret_links = links;
    return 0;
}

void links_free(struct links *links)
{
    if (!links)
        return;
    client_timer_free(links->race);
    while (links->first) {
        struct link *next = links->first->next;
        link_free(links->first);
        links->first = next;
    }
    free(links);
}
