/* Inside of a partition, shared by the files of this folder and by nobody else.
 *
 * Lock order: append, then state, then the log's own. `append` is held by whoever writes; loops only try it,
 * so a queue that is not empty has a holder of `append` who will look again, or somebody about to try.
 */
#ifndef BROOK_PARTITION_STATE_H
#define BROOK_PARTITION_STATE_H

#include "broker/partition/partition.h"
#include "broker/partition/watermark.h"
#include "broker/storage/flusher.h"

#include <pthread.h>
#include <stdatomic.h>

struct append_list {
    struct partition_append *head;
    struct partition_append *last;
};

struct partition {
    _Atomic unsigned refs;
    char *topic;
    int32_t number;
    uint8_t topic_id[16];
    struct log *log;
    void *owner;
    void (*released)(void *arg, struct log *log); /* NULL: the last reference closes the log */
    void *released_arg;
    int (*persist_start)(void *arg, int64_t start_offset); /* NULL: nobody */
    void *persist_start_arg;

    pthread_mutex_t append;
    _Atomic unsigned append_wanted; /* threads waiting for `append`: loops leave it to them */

    pthread_mutex_t state;
    bool is_leader;
    bool is_follower; /* never both */
    int32_t leader_epoch;
    struct watermark_limits limits; /* a leader's */
    int64_t replicated_start; /* of the others that count, as limits.replicated_end: where their logs begin */
    int64_t deleted_start;  /* of the last deletion on request here; INT64_MIN: there was none */
    int64_t kept_start;     /* known to be on stable storage */
    int refusal; /* what appends are answered without being tried; 0: they are */
    const char *refusal_text;
    int64_t log_end;
    int64_t durable_end; /* as of the last flush that was looked at */
    int64_t high_watermark;
    struct durability durability;
    struct append_list queue;   /* to be written */
    struct append_list unacked; /* written, waiting for the high watermark; rising offsets */
    struct partition_waiter *waiters;
    bool was_read; /* a consumer has waited since partition_has_readers() */
    struct inbox_item hand_over; /* asks a loop to drain */
    struct inbox *hand_over_to;  /* NULL: not posted */

    struct flusher *flusher; /* NULL: none */
    struct flusher_entry flush;
    bool is_flushing;       /* the flusher has `flush`, and with it a reference to the partition */
    bool is_flush_hurried;  /* as far as this side knows, it does not wait for its time */
    int64_t dirty_since_ns; /* about when the oldest unflushed record came; 0: not known */
};

/* Answers and wake-ups collected under `state`, given out without it. */
struct outbox {
    struct append_list appends;
    struct partition_waiter *waiters;
    struct partition_waiter **waiters_tail;
};

void append_list_push(struct append_list *list, struct partition_append *a);
struct partition_append *append_list_pop(struct append_list *list);
/* By last offset, behind equal ones. */
void append_list_insert(struct append_list *list, struct partition_append *a);
bool append_list_remove(struct append_list *list, struct partition_append *a);

void outbox_init(struct outbox *o);
void outbox_answer(struct outbox *o, struct partition_append *a, int code, const char *text);
/* The same for one that was written. */
void outbox_answer_written(struct outbox *o, struct partition_append *a, int code, const char *text);
/* Take the waiter from the partition's list. Under `state`. */
void outbox_wake(struct outbox *o, struct partition_waiter *w);
/* Post to their inboxes; what belongs to `own` moves to `mine` (both may be NULL). */
void outbox_post(struct outbox *o, struct inbox *own, struct outbox *mine);
/* Run the answers and wake-ups of the calling loop. */
void outbox_run(struct outbox *mine);

/* `start` is on stable storage. */
void partition_keep_start(struct partition *p, int64_t start);

/* Under `state`: see to it that the log is flushed when its durability, and who waits, ask for it. */
void partition_want_flush(struct partition *p);
/* Under `state`: if the flusher holds the partition until a later time, let it come to an end now. */
void partition_hurry_flush(struct partition *p);
/* Under `state`: the first offset that consumers do not see; up to where this replica holds its records safely. */
int64_t partition_visible_end(const struct partition *p);
int64_t partition_safe_end(const struct partition *p);
/* Under `state`: the role ends; whoever waits is told. */
void partition_end_role(struct partition *p, struct outbox *o);

/* Under `state`: the log ends at `log_end` now. Moves the marks, and what they release into `o`. */
void partition_advance(struct partition *p, int64_t log_end, struct outbox *o);
#endif
