/* The thread behind every handle of libbrook: one event loop, the connections, the metadata cache, and (when
 * somebody needs it) the ZooKeeper session.
 *
 * Producer, consumer and administration embed a `client` each and run their machines on its loop. Marked
 * [loop]: only on the loop thread; [any]: any thread. The loop thread blocks all signals.
 */
#ifndef BROOK_CLIENT_CLIENT_H
#define BROOK_CLIENT_CLIENT_H

#include "client/metadata_cache.h"
#include "proto/base/diag.h"
#include "proto/base/inbox.h"
#include "proto/wire/channel.h"

#include <brook/config.h>

struct client;
struct coordinator;
struct event_base;
struct pool;

/* Start the loop thread. `pool_bytes`: budget of record slabs. Returns 0, -BROOK_E_CONFIG, _NOMEM, _IO. [any]
 */
int client_new(const brook_config *config, size_t pool_bytes, struct client **ret_client,
               struct brook_error *error);
/* Stop the loop and free. The owner's objects on the loop must be gone (client_call() a tear-down first).
 * In a forked child: frees memory only. [any but loop] */
void client_free(struct client *client);

struct event_base *client_base(struct client *client);
struct inbox *client_inbox(struct client *client); /* post to run on the loop [any] */
struct pool *client_pool(struct client *client);
const struct diag *client_diag(const struct client *client);
const brook_config *client_config(const struct client *client);
struct metadata_cache *client_metadata(struct client *client); /* [loop] */

/* Run `work` on the loop and wait until it has returned. [any but loop] */
void client_call(struct client *client, void (*work)(void *arg), void *arg);
/* An administrative deadline or back-off: run `work` on the loop after `delay_ms`; cancel with
 * client_timer_free(). */
struct client_timer;
struct client_timer *client_timer_new(struct client *client, void (*work)(void *arg), void *arg);
void client_timer_set(struct client_timer *timer, int delay_ms); /* again: moves it */
void client_timer_stop(struct client_timer *timer);
void client_timer_free(struct client_timer *timer);

/* Which connection to a broker: pulls have one of their own, so that a long poll never stands in front of a
 * produce or a commit. */
enum client_lane { CLIENT_LANE_REQUESTS, CLIENT_LANE_PULLS, CLIENT_LANE_COUNT };

/* The channel to a broker of the metadata, made and connected as needed (with back-off). NULL when the broker
 * is unknown or backing off; client_when_ready() tells later. The channel stays the client's. [loop] */
struct channel *client_channel(struct client *client, int32_t broker_id, enum client_lane lane);
/* The largest batch that this broker takes, as it said when the connection for requests was made; 0: not known.
 * A topic may allow less, or more. [loop] */
size_t client_message_bytes_max(struct client *client, int32_t broker_id);
/* Batches that an idempotent producer may have on their way there for one partition; 0: not offered, or not known. [loop]
 */
int client_idempotent_batches_max(struct client *client, int32_t broker_id);
/* A channel to any live broker (bootstrap or metadata), for requests that any can answer. NULL: not now.
 * [loop] */
struct channel *client_any_channel(struct client *client);
/* Why no broker can be asked, or why the last connection failed or was lost (code 0: none did): for the
 * sentence of a call that timed out. While no broker is connected and ZooKeeper is in the way, that is said. [loop] */
const struct brook_error *client_last_error(const struct client *client);

/* Be told on the loop when a channel became ready or was lost (broker_id -1: a bootstrap connection). [loop]
 */
struct client_listener {
    struct client_listener *next;
    void (*channel_ready)(void *arg, int32_t broker_id, enum client_lane lane);
    void (*channel_lost)(void *arg, int32_t broker_id, enum client_lane lane, const struct brook_error *why);
    void (*metadata_changed)(void *arg);
    void *arg;
};
void client_listen(struct client *client, struct client_listener *listener);
void client_unlisten(struct client *client, struct client_listener *listener);

/* The ZooKeeper session, started at the first call. NULL with a sentence when zookeeper.connect is not set,
 * or when another process is this static member (state.dir is locked). [loop] */
struct coordinator *client_coordinator(struct client *client, struct brook_error *error);
/* Let client_free() leave the session as it is, for the next process of a static member to take up. [loop] */
void client_keep_session(struct client *client);
/* free() `block` at the very end, when nothing can call anybody any more. Returns 0 or -BROOK_E_NOMEM. [loop]
 */
int client_adopt(struct client *client, void *block);

/* Fill *error with the text about a partition, and its name in front where a broker's text does not begin with it. */
void client_partition_error(struct brook_error *error, int code, const char *topic, int32_t partition, const char *text);
#endif
