/* The loop's side of a consumer: for each partition find out where it stands, pull from its leader, go
 * elsewhere when the leader moves, and look again later when nothing works.
 *
 * Level-triggered: whatever changes (a seek, a reply, new metadata, a connection) marks partitions or all of
 * them, and one pass looks at those and brings them to where they should be. Loop thread only.
 */
#ifndef BROOK_CLIENT_CONSUMER_FETCHER_H
#define BROOK_CLIENT_CONSUMER_FETCHER_H

#include "client/client.h"
#include "client/consumer_set.h"

struct arena;
struct consumer_fetcher;

struct fetcher_events {
    /* A draining partition is done with: all its batches are back. `p` has a reference for the call. */
    void (*drained)(void *arg, struct consumer_partition *p);
    void *arg;
};

/* `group_id`: whose stored offsets count; "": none. Both are borrowed. Returns 0 or -BROOK_E_NOMEM. */
int fetcher_new(struct client *client, struct consumer_set *set, const char *group_id,
                const struct fetcher_events *events, struct consumer_fetcher **ret_fetcher);
/* After set_close(). No callback of the fetcher's does anything any more; memory goes with the last request.
 * NULL is fine. */
void fetcher_close(struct consumer_fetcher *f);
/* Look at all partitions that are marked, or at all of them. */
void fetcher_run(struct consumer_fetcher *f, bool all);

/* ---- for the parts of the fetcher ---- */

struct consumer_fetcher {
    struct client *client;
    struct consumer_set *set; /* with a reference */
    const char *group_id;
    struct fetcher_events events;
    unsigned refs; /* of the owner and of each request in flight */
    bool is_closed;
    struct client_listener listener;
    struct client_timer *timer;
    int64_t timer_at_ms; /* INT64_MAX: not set */
    struct inbox_item again;
    bool is_again_posted;
    bool needs_refresh;
    struct consumer_puller *pullers;
    uint64_t sessions;           /* counts pull sessions */
    struct arena *arena;         /* for building requests */
    struct position_find *finds; /* what this pass has to ask */
    struct question *questions;
};

void fetcher_ref(struct consumer_fetcher *f);
/* Run again soon, from the loop: to be called where a pass may not run. */
void fetcher_again(struct consumer_fetcher *f);
void fetcher_unref(struct consumer_fetcher *f);
/* Have all looked at again at this time or before. */
void fetcher_wake_at(struct consumer_fetcher *f, int64_t at_ms);
/* Carry out what position.h wants done. [locked] */
void fetcher_apply(struct consumer_fetcher *f, struct consumer_partition *p, struct position_effects effects);
#endif
