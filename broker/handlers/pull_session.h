/* Pull sessions: which partitions a connection reads, where it stands in each, and what waits.
 *
 * An entry is ready (there may be something to send: it stands in the session's queue, longest served first),
 * or waiting (a waiter is registered with its partition, and nothing needs to be looked at until that fires),
 * or loading (a disk thread reads what the loop must not wait for), or resting: its records were sent, and
 * only the client knows where to go on. So a pull of a thousand quiet partitions costs nothing, a wake-up
 * looks at what was signalled only, and no record is sent twice because the client pulls again before it has
 * them. The loop's thread only. Knows partitions and requests, and not how an answer is put together
 * (pull.c).
 */
#ifndef BROOK_HANDLERS_PULL_SESSION_H
#define BROOK_HANDLERS_PULL_SESSION_H

#include "broker/handlers/request.h"
#include "broker/partition/partition.h"

#include <sys/queue.h>
#include <uthash.h>

struct pull_load;

#define PULL_EPOCH_NONE (-1) /* a pull without a session */

struct pull_key {
    uint8_t topic_id[16];
    int32_t partition;
};

struct pull_entry {
    struct pull_key key;
    struct pull_session *session;
    int64_t offset;
    int32_t current_epoch;
    uint32_t bytes_max;
    /* Epoch of the record before `offset`, -1: not known; of a follower's how far its log is safe; and whether that
     * was told to the partition (of a consumer's: whether the epoch fits its log). */
    int32_t last_epoch;
    int64_t safe_end;
    int32_t reached_epoch;
    int64_t log_start;
    bool has_readers;
    bool stays; /* a consumer's: no other replica is named to it */
    bool is_noted;
    bool is_start_told; /* where the epoch begins, since it was named last */
    /* As last sent: a reply names partitions whose marks have moved. -2: never. */
    int64_t sent_high_watermark;
    int64_t sent_log_start;
    bool is_ready;
    bool is_unsent; /* has marks to tell, when an answer is sent anyway */
    TAILQ_ENTRY(pull_entry) in_ready;
    TAILQ_ENTRY(pull_entry) in_unsent;
    bool is_loaded;              /* what its next look needs was read a moment ago: that look may wait */
    struct pull_load *load;      /* under way; NULL: none */
    struct partition *waits_for; /* a reference while the waiter is registered */
    struct partition_waiter waiter;
    UT_hash_handle hh;
};
TAILQ_HEAD(pull_entry_list, pull_entry);

/* A rack's name is shorter; a longer one is taken for none. */
#define PULL_RACK_BYTES 256

struct pull_session {
    uint32_t id; /* 0: temporary, for one pull */
    int32_t replica_id; /* -1: a client's */
    int64_t broker_epoch;
    char *rack; /* where the consumer stands; NULL: not said */
    int64_t refreshed_ns;
    int32_t epoch;
    struct request_loop *loop;
    struct request_peer *peer;
    struct pull_session *next; /* of the peer, newest first */
    struct pull_entry *entries;
    struct pull_entry_list ready;
    struct pull_entry_list unsent;
    size_t ready_count;
    size_t unsent_count;
    size_t loading_count;
    /* The pull that waits; NULL: none. */
    struct request *parked;
    int64_t parked_ns;
    bool is_overdue; /* its time is over: answered as soon as there is something, or nothing is loading */
    uint32_t min_bytes;
    uint32_t max_bytes;
    /* An entry became ready while a pull is parked. */
    void (*woken)(struct pull_session *session);
};

/* A session of the peer, in its list. NULL: out of memory. */
struct pull_session *pull_session_new(struct request_loop *loop, struct request_peer *peer, uint32_t id);
/* No pull is parked. */
void pull_session_free(struct pull_session *session);
struct pull_session *pull_session_find(const struct request_peer *peer, uint32_t id);
size_t pull_session_entries(const struct pull_session *session);

/* Add the entry or change it; it is ready afterwards. Returns 0 or -BROOK_E_NOMEM. */
int pull_session_set(struct pull_session *session, const struct pull_key *key, const Brook__PullPartition *asked);
void pull_session_forget(struct pull_session *session, const struct pull_key *key);

/* Register a waiter for something at `offset` of `p`, below what the session's reader may see. Returns whether it waits now (else there is something).
 * It goes on standing in the queue of ready ones if it did. */
bool pull_entry_wait(struct pull_entry *entry, struct partition *p, int64_t offset);
/* The arguments of log_read(). */
struct pull_look {
    int64_t offset;
    int64_t end_offset;
    size_t bytes_max;
    bool whole_first;
    size_t first_bytes_max;
};
/* Let a disk thread read what that look at `p` needs; the entry is out of the queue until then, and `woken`
 * is called for it. Returns false when out of memory. */
bool pull_entry_load(struct pull_entry *entry, struct partition *p, const struct pull_look *look);
/* Nobody waits for it any more. */
void pull_entry_drop_load(struct pull_entry *entry);
/* Into the queue's end, or out of it. */
void pull_entry_make_ready(struct pull_entry *entry);
void pull_entry_make_quiet(struct pull_entry *entry);
/* Records were sent: nothing more until pull_session_set() names it again. */
void pull_entry_rest(struct pull_entry *entry);
void pull_entry_set_unsent(struct pull_entry *entry, bool is_unsent);
#endif
