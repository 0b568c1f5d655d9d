/* What a consumer reads: its partitions, what was fetched of them, what is out, and what poll has to say
 * next.
 *
 * The one place that loop and application share. The loop puts chunks (the records of one partition in one
 * reply) and events in; the application takes runs of them out, gives batches back, and moves positions. One
 * lock protects all of it; it is never held across a system call but the one that signals the descriptor, nor
 * while records are checked. Which broker is asked for what: client/consumer_pull.h. The set outlives its
 * consumer while batches are out.
 *
 * Functions take the lock themselves unless marked [locked]. Offsets mean the next record.
 */
#ifndef BROOK_CLIENT_CONSUMER_SET_H
#define BROOK_CLIENT_CONSUMER_SET_H

#include "client/consumer_epochs.h"
#include "client/consumer_position.h"
#include "client/consumer_progress.h"
#include "client/consumer_run.h"
#include "proto/base/inbox.h"
#include "proto/base/names.h"

#include <brook/consumer.h>
#include <pthread.h>

/* Out of memory is an error, not the end of the process. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct consumer_fetcher;
struct consumer_puller;
struct slab;

#define TOPIC_ID_BYTES 16

/* A partition of one topic id: how replies name it. */
struct partition_id {
    uint8_t topic_id[TOPIC_ID_BYTES];
    int32_t partition;
};

/* The records of one partition in one reply. */
struct consumer_chunk {
    struct consumer_chunk *next;
    struct slab *slab;
    const uint8_t *data;
    size_t bytes;
    int64_t end; /* the high watermark that came with it */
};

enum partition_life {
    PARTITION_LIVE,
    PARTITION_DRAINING, /* nothing is delivered any more; the application finishes what it holds */
    PARTITION_GONE
};

/* What happened to a partition that its owner has to hear in a rebalance callback. */
enum rebalance_kind { REBALANCE_ASSIGNED, REBALANCE_REVOKING, REBALANCE_LOST, REBALANCE_KINDS };
struct rebalance_note {
    struct rebalance_note *prev, *next;
    struct consumer_partition *partition; /* with a reference; NULL: not in the list */
    enum rebalance_kind kind;
};

struct consumer_partition {
    UT_hash_handle hh_name;
    UT_hash_handle hh_id;
    unsigned refs; /* of the set, batches, notes, requests, the list of marked ones */
    char *topic;
    int32_t partition;
    size_t key_bytes; /* of key: the topic and the partition */
    char *key;
    struct partition_id id;
    bool has_id;
    enum partition_life life;
    uint64_t group_generation; /* the ZooKeeper session in which it was claimed; 0: no group */

    /* Delivery. `generation` rises whenever what was fetched or asked for before is void. */
    uint32_t generation;
    bool is_paused;
    struct consumer_partition *ready_prev, *ready_next; /* in the list of those with chunks */
    struct consumer_chunk *chunks;
    struct consumer_chunk **chunks_tail;
    size_t queued_bytes; /* fetched and not handed out */
    int64_t delivered;   /* what poll hands out next; -1: not known yet */
    struct consumer_progress progress;
    unsigned batches_out;
    int64_t high_watermark; /* -1: not known */
    int64_t range_first, range_end; /* what the log held when a position was out of range; -1: none was */
    int64_t auto_committed; /* the last value that auto-commit asked for */

    /* Fetching. */
    struct consumer_position position;
    struct read_epochs epochs;  /* of what is before it */
    bool is_halted;             /* a reply made no sense: wait until the application has been told where */
    bool is_asking;             /* a request about the position is out ... */
    uint32_t asking_generation; /* ... since this generation */
    size_t fetch_bytes;
    int32_t leader_epoch;
    int32_t nearest;        /* the replica in our rack that the leader named; -1: read from the leader */
    int64_t nearest_ms;     /* until then; after that the leader is asked again */
    int64_t stay_ms;        /* until then no other replica is wanted: the last one failed ... */
    unsigned stays;         /* ... so often in a row */
    struct consumer_puller *puller;
    struct consumer_partition *puller_prev, *puller_next;
    bool wants_records;
    uint64_t named_session; /* the session that knows it, and what it was told; 0: none */
    uint32_t named_generation;
    int64_t named_offset;
    int32_t named_epoch;
    size_t named_bytes;
    bool named_stay;
    uint64_t named_since; /* the first pull that named this generation: replies to earlier ones are void */

    /* What poll has to tell. */
    int event_code; /* 0: nothing */
    int64_t event_offset;
    struct consumer_partition *event_prev, *event_next;
    struct rebalance_note notes[REBALANCE_KINDS];
    bool was_revoked; /* on_revoking has run, or nobody wants it */
    bool was_drained; /* the group was told */

    bool is_marked; /* in the list of those that the loop has to look at */
    struct consumer_partition *marked_next;
    struct consumer_partition *drained_next;
};

struct consumer_settings {
    int64_t queued_bytes_max;
    size_t fetch_bytes_max;
    size_t partition_fetch_bytes;
    size_t frame_bytes_max;
    uint32_t fetch_bytes_min;
    int fetch_wait_ms;
    int request_timeout_ms;
    enum reset_policy reset;
    const char *rack; /* borrowed; "": none */
    bool check_crcs;
    bool auto_commit;
    int auto_commit_interval_ms;
};

struct consumer_counters {
    uint64_t records, bytes, batches; /* handed out */
    uint64_t pulls, replies, replies_bytes, pull_errors;
    uint64_t damaged, resets, dropped_bytes;
};

#define SET_FAILURES_MAX 16

struct consumer_set {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* CLOCK_MONOTONIC: something that a caller may wait for has ended */
    unsigned refs;          /* of the consumer, requests and batches */
    bool is_closed;
    struct consumer_settings settings;
    struct consumer_partition *by_name;
    struct consumer_partition *by_id;

    /* To the application. */
    struct consumer_partition *ready;
    struct consumer_partition *events;
    struct rebalance_note *notes;
    struct brook_error failures[SET_FAILURES_MAX]; /* of the group as a whole */
    unsigned failures_count;
    bool has_callbacks[REBALANCE_KINDS];
    int fd;
    bool is_signalled;
    size_t bytes_out; /* of batches that are out */
    unsigned batches_out;

    /* To the loop. */
    struct inbox *inbox;              /* NULL once closed */
    struct consumer_fetcher *fetcher; /* the loop's; NULL before and after it lives */
    struct inbox_item kick;
    bool is_kicked;
    bool is_starved; /* pulls wait for memory */
    struct consumer_partition *marked;

    struct consumer_chunk *idle_chunks;
    struct brook_batch *idle_batches;
    unsigned idle_chunks_count, idle_batches_count;
    struct pool *pool;   /* what is expanded */
    struct codec *codec; /* of the thread that polls */
    size_t expanded_guess;
    struct consumer_counters counters;
};

/* `run` is called on the loop after a kick. Returns 0, -BROOK_E_NOMEM or -BROOK_E_IO. */
int set_new(const struct consumer_settings *settings, struct inbox *inbox,
            void (*run)(struct inbox_item *item), struct consumer_set **ret_set);
struct consumer_set *set_ref(struct consumer_set *set); /* [locked] */
/* Gives up the lock if it was the last reference and frees; returns with the lock given up in any case.
 * [locked] */
void set_unref_unlock(struct consumer_set *set);
void set_lock(struct consumer_set *set);
void set_unlock(struct consumer_set *set);
/* The loop is about to go: nothing is posted any more; all partitions go and are marked for fetcher_close().
 */
void set_close(struct consumer_set *set);

/* ---- partitions [locked] ---- */

struct consumer_partition *set_find(struct consumer_set *set, const char *topic, int32_t partition);
struct consumer_partition *set_find_id(struct consumer_set *set, const struct partition_id *id);
/* Returns 0, -BROOK_E_EXISTS or -BROOK_E_NOMEM. With a group, on_assigned is due before the first record. */
int set_add(struct consumer_set *set, const struct brook_position *position, uint64_t group_generation);
/* Stop delivering; on_revoking is due. */
void set_begin_drain(struct consumer_set *set, struct consumer_partition *p);
/* It is somebody else's, or nobody's. `is_lost`: the application has to hear of it, unless it never heard
 * that it had it, or has finished with it. */
void set_remove(struct consumer_set *set, struct consumer_partition *p, bool is_lost);
/* All batches of a draining partition are back and the callback has run. */
bool set_is_drained(const struct consumer_partition *p);
void consumer_partition_ref(struct consumer_partition *p);
void consumer_partition_unref(struct consumer_partition *p);
/* Remember under which topic id it is known. */
void set_identify(struct consumer_set *set, struct consumer_partition *p, const uint8_t *topic_id);

/* ---- positions [locked] ---- */

/* Read on from `offset` (a number or BROOK_OFFSET_...); what was fetched is void, what is out counts for
 * nothing. */
void set_seek(struct consumer_set *set, struct consumer_partition *p, int64_t offset);
void set_pause(struct consumer_set *set, struct consumer_partition *p, bool is_paused);
/* The topic was made anew. Returns what position.h wants done. */
struct position_effects set_topic_anew(struct consumer_set *set, struct consumer_partition *p);
/* The partition's log is not what was read of it (consumer_epochs.h: `epoch`, `end`). What was fetched is void; if
 * records that were handed out are gone, it goes on where they were, or not at all with reset=none, and that is
 * reported. */
struct position_effects set_truncate(struct consumer_set *set, struct consumer_partition *p, int32_t epoch,
                                     int64_t end);
/* A position was found out: delivery starts there. */
void set_start_at(struct consumer_set *set, struct consumer_partition *p, int64_t offset);
/* What was fetched or asked for is void, though the position may be the same. */
void set_void_fetched(struct consumer_set *set, struct consumer_partition *p);
/* More should be pulled for it. */
bool set_is_hungry(const struct consumer_set *set, const struct consumer_partition *p);

/* ---- what the loop brings [locked] ---- */

/* Records of `p` in a slab (a reference is taken). Returns 0 or -BROOK_E_NOMEM. */
int set_put(struct consumer_set *set, struct consumer_partition *p, struct slab *slab, const uint8_t *data,
            size_t bytes, int64_t end);
/* A chunk that was taken out goes to the idle ones; its slab was given back. */
void chunk_give(struct consumer_set *set, struct consumer_chunk *chunk);
/* Poll has to return `code` (positive) for the place; replaces one that was not told yet. */
void set_put_event(struct consumer_set *set, struct consumer_partition *p, int code, int64_t offset);
void set_put_failure(struct consumer_set *set, const struct brook_error *error);

/* ---- what the application takes ---- */

/* The next rebalance notes of one kind, as positions (one block, for free()). Returns their number; 0: none.
 * The callback (if anybody wants it) has to run before set_notes_done(). */
size_t set_take_notes(struct consumer_set *set, enum rebalance_kind *ret_kind,
                      struct brook_position **ret_positions);
/* on_revoking has run for these: the loop may go on with them. */
void set_notes_done(struct consumer_set *set, const struct brook_position *positions, size_t count);
/* What an event is about; topic "": none. */
struct event_place {
    char topic[TOPIC_NAME_BYTES_MAX + 1];
    int32_t partition;
    int64_t offset;
};
/* An event, if there is one: returns its negative code, with sentence and place; else 0. */
int set_take_event(struct consumer_set *set, struct brook_error *error, struct event_place *ret_place);
/* Whether records of a partition claimed in session `group_generation` may be handed out now. */
typedef bool set_may_deliver(void *arg, uint64_t group_generation);
/* The next batch. Returns 0; -BROOK_E_AGAIN: none now; -BROOK_E_BUSY: there is one, but it may not be handed
 * out now (the lease); -BROOK_E_CORRUPT_BATCH and its kin: an event was queued instead, take it. One thread
 * at a time. */
int set_take_batch(struct consumer_set *set, set_may_deliver *may_deliver, void *arg,
                   struct brook_batch **ret_batch);

/* ---- signals [locked] ---- */

/* Make the descriptor say whether poll would return at once. Called at the end of whatever changes that. */
void set_signal(struct consumer_set *set);
/* The loop has to look at `p`; set_kick() also wakes it (`p` NULL: only that). */
void set_mark(struct consumer_set *set, struct consumer_partition *p);
void set_kick(struct consumer_set *set, struct consumer_partition *p);
/* So much is out that nothing more is handed out before something comes back. */
bool set_is_full(const struct consumer_set *set);
/* Wait until *done (protected by the lock), which whoever sets it announces by `changed`; -1 ms: as long as
 * it takes. Returns whether it is done. [locked] */
bool set_wait(struct consumer_set *set, const bool *done, int timeout_ms);
/* The clock of all positions. */
int64_t set_now_ms(void);
/* The partitions that were marked, as a list by `marked_next`, each with a reference; the list is empty then.
 */
struct consumer_partition *set_take_marked(struct consumer_set *set);
#endif
