/* What the client knows about brokers, topics and leaders. Loop thread only; filled by Metadata replies.
 *
 * Refreshes on demand (an error said so), when a wanted topic is missing, and on a slow timer; requests
 * coalesce and back off. A newer leader epoch replaces an older one within one topic id; another topic id
 * replaces everything.
 */
#ifndef BROOK_CLIENT_METADATA_CACHE_H
#define BROOK_CLIENT_METADATA_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct metadata_partition {
    int32_t leader; /* -1: none */
    int32_t leader_epoch;
    int32_t error;
};
struct metadata_topic {
    const char *name;
    uint8_t topic_id[16];
    int32_t error;         /* UNKNOWN_TOPIC: asked, and not there; OK: known */
    int32_t times_unknown; /* answers in a row that said UNKNOWN_TOPIC */
    int32_t partitions_count;
    struct metadata_partition *partitions;
    uint64_t generation; /* counts topic ids: rises when the topic was made anew */
};
struct metadata_broker {
    int32_t broker_id;
    const char *host;
    int32_t port;
};

struct client;
struct metadata_cache;

/* For client.c. */
int metadata_cache_new(struct client *client, void (*changed)(void *arg), void *arg,
                       struct metadata_cache **ret_cache);
void metadata_cache_free(struct metadata_cache *m);
/* A broker can be asked now: ask what is due. */
void metadata_cache_pump(struct metadata_cache *m);

/* NULL while nobody has answered about it; asking makes it wanted (kept fresh). Good until the next loop
 * turn. */
const struct metadata_topic *metadata_topic(struct metadata_cache *m, const char *name);
/* Not wanted any more. */
void metadata_unwant(struct metadata_cache *m, const char *name);
const struct metadata_broker *metadata_broker(struct metadata_cache *m, int32_t broker_id);
size_t metadata_brokers(struct metadata_cache *m, const struct metadata_broker **ret_brokers);
/* Something said that this is out of date: ask again soon (coalesced, with back-off). Each answer, changed or
 * not, is announced as metadata_changed. Topics that are not there and partitions without a leader are asked
 * for again by the cache itself while they are wanted. */
void metadata_refresh(struct metadata_cache *m);
#endif
