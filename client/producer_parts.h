/* The producer's insides, shared by its files (producer_*.c).
 *
 * Two worlds. Sending threads put records into the open batch of a partition under `lock`, which is never
 * held for longer than that. The loop thread takes batches over, closes, sends, repeats and completes them;
 * what is marked [loop] is touched by it alone. A batch belongs to exactly one list at a time: a partition's
 * open or closed ones (lock), its backlog or a request (loop), the reports (lock), or the free list (lock).
 *
 * Order: a batch carries the number of its first record, counted per partition, so the halves of a batch that
 * was cut have their places, too. As long as one of them failed and others are on their way, nothing more of
 * the partition is sent (`recovering`); then all go on in sequence. The numbers that brokers see are others:
 * producer_identity.c.
 */
#ifndef BROOK_CLIENT_PRODUCER_PARTS_H
#define BROOK_CLIENT_PRODUCER_PARTS_H

#include "client/client.h"
#include "client/config.h"
#include "client/latency.h"
#include "proto/record/batch.h"

#include <brook/producer.h>
#include <pthread.h>
#include <uthash.h>

/* Batches up to this size share a slab. */
#define PRODUCER_SMALL_BYTES ((size_t)8 << 10)
#define PRODUCER_SHARED_SLAB_BYTES ((size_t)64 << 10)
/* Partitions in one request. */
#define PRODUCER_ENTRIES_MAX 500
#define PRODUCER_PARTITIONS_MAX 100000
#define PRODUCER_TEXT_BYTES 320
/* Batches of a partition that an idempotent producer has on its way: what brokers remember of each. */
#define PRODUCER_BATCHES_IN_FLIGHT_MAX 5

struct produce_partition;
struct produce_topic;

/* In the order in which fields are used together: a batch of one record is mostly cache misses. */
struct produce_batch {
    struct produce_batch *next;
    struct produce_partition *partition;
    void *opaque;   /* of the first record */
    void **opaques; /* of all, when there are several; kept for the next use */
    size_t opaques_room;
    /* From here on [loop], then the reports'. */
    int64_t base_offset;
    enum brook_outcome outcome;
    int code;
    char *text; /* NULL: the list's */

    struct batch_writer writer;
    struct slab *slab;
    size_t charge; /* what it counts against buffer.memory */

    const uint8_t *data; /* [loop] finished: header, checksum, compression */
    size_t data_bytes;
    int attempts;
    bool maybe;  /* one attempt ended with an unknown outcome */
    bool purged; /* reported already; the memory is still borrowed */
    bool was_first; /* when it was sent last, nothing before it was on its way */
    int16_t producer_epoch;
    int32_t base_sequence;
    int64_t producer_id; /* -1: not numbered yet */
    uint64_t sequence;
    int64_t opened_ms;
    struct produce_batch *open_previous, *open_next; /* open batches by age */
};

struct batch_list {
    struct produce_batch *head;
    struct produce_batch **tail;
};

struct produce_partition {
    struct produce_topic *topic;
    int32_t index;
    /* lock */
    struct produce_batch *open;
    struct batch_list closed;
    uint64_t sequence;  /* of the next batch */
    size_t usual_bytes; /* how large its batches get: room for the next one */
    size_t batch_bytes; /* how large they may get: batch.size, less once the broker refused one */
    bool ready;         /* in the producer's ready list */
    bool due;           /* the open batch is to leave as soon as it can */
    struct produce_partition *ready_next;
    /* loop */
    struct batch_list backlog;
    int32_t leader;
    int in_flight; /* requests */
    bool recovering;
    bool backs_off;       /* and then waits before it goes on */
    uint64_t alone_below; /* batches before this go one per request: one of them was too large */
    int failures;         /* in a row */
    int64_t retry_ms;     /* not before; 0: now */
    int64_t producer_id;  /* -1: nothing is numbered yet */
    int32_t next_sequence;
    int16_t producer_epoch;
    bool is_broken;        /* a number was left out for certain: all is numbered anew, once nothing is on its way */
    int batches_in_flight;
    int restarts; /* of the numbers, in a row */
    bool on_agenda, in_target, resting;
    struct produce_partition *agenda_next, *target_next, *resting_next;
};

/* A record for a topic that is not known yet. When it fails it becomes a batch of one, to be reported, in place:
 * that must not need memory. */
struct early_record {
    union {
        struct {
            struct early_record *next;
            int64_t opened_ms;
            size_t charge;
            struct record_view view; /* points behind this */
            int32_t partition;
            int code; /* why it was refused */
            void *opaque;
        };
        struct produce_batch report;
    };
};

/* Index of the partition that such batches have; the one that was asked for is their `sequence`. */
#define PRODUCER_NOWHERE INT32_MIN

struct produce_topic {
    brook_producer *producer;
    UT_hash_handle hh;
    /* lock */
    bool known;
    int32_t partitions_count;
    struct produce_partition **partitions;
    int32_t partitions_made; /* only grows */
    int32_t *available;      /* partitions that have leaders */
    int32_t available_count;
    int32_t sticky; /* -1: choose */
    struct early_record *early_head, **early_tail;
    struct produce_partition nowhere; /* of what failed before it had a partition */
    bool is_new; /* the loop has not seen it yet */
    struct produce_topic *new_next;
    /* loop */
    uint8_t topic_id[16];
    char name[];
};

/* Requests to one broker. [loop] */
struct produce_target {
    struct produce_target *next;
    int32_t broker_id;
    int in_flight;
    struct produce_partition *head, **tail; /* partitions that can send */
};

/* One request on its way: its batches in the order of its entries. [loop] */
struct produce_request {
    struct produce_request *previous, *next; /* of all in flight, or of the free ones */
    brook_producer *producer;
    struct produce_target *target;
    struct batch_list batches;
    bool oneway;
};

struct producer_counters {
    int64_t records_accepted, records_stored, records_failed, records_maybe;
    int64_t bytes_accepted, bytes_sent;
    int64_t batches_sent, requests_sent, retries;
    int64_t queue_full;
};

struct brook_producer {
    struct client *client;
    pid_t pid;
    /* settings, constant */
    int acks; /* BROOK__ACKS__... */
    size_t batch_bytes; /* but for this: lock; a broker may lower it */
    int32_t batch_records_max;
    bool one_by_one; /* one batch per request */
    int linger_ms;
    enum codec_id codec_id;
    size_t buffer_bytes_max;
    int64_t delivery_timeout_ms;
    int64_t retries_max;
    int retry_back_off_ms, retry_back_off_ms_max;
    int in_flight_max, partition_in_flight_max;
    size_t request_bytes_max;
    int request_timeout_ms;
    bool by_key;
    bool is_idempotent;
    int32_t first_sequence; /* of a partition's first epoch: 0, but for tests */
    brook_report_callback *report;
    void *report_arg;
    brook_partitioner *partitioner;
    void *partitioner_arg;

    /* lock */
    pthread_mutex_t lock;
    pthread_cond_t room;     /* memory was given back */
    pthread_cond_t reported; /* reports came, or unreported fell */
    struct produce_topic *topics;
    struct produce_topic *last_topic;
    struct produce_topic *new_topics;
    struct produce_partition *ready_head, **ready_tail;
    struct produce_batch *open_first, *open_last; /* by age */
    struct produce_batch *free_batches;
    struct slab *shared; /* small batches are cut from it */
    size_t shared_used;
    size_t used_bytes;
    bool hurry;      /* memory is short: nothing lingers */
    bool free_later; /* closed inside a callback */
    bool overdraft;  /* buffer.memory does not apply */
    int room_waiters, report_waiters;
    struct batch_list reports;
    int64_t unreported; /* records accepted and not reported yet */
    int64_t delivering; /* of these, in the hands of callbacks now */
    int flushes;
    bool closing;
    bool woken;        /* the loop will look */
    bool linger_armed; /* the loop will look in linger_ms at the latest */
    int fd;            /* eventfd, -1: nobody asked */
    uint64_t random;
    struct producer_counters counters;
    struct latency latency; /* from opening a batch to its end */

    /* loop */
    struct inbox_item wake;
    struct client_listener listener;
    struct event *pump_event; /* one pass per turn, however many replies came */
    struct client_timer *timer;
    int64_t timer_at_ms;
    int64_t expiry_ms; /* next look at delivery timeouts */
    struct client_timer *statistics_timer;
    struct produce_target *targets;
    struct produce_partition *agenda_head, **agenda_tail;
    struct produce_partition *resting;
    struct produce_request *requests_first, *requests_last; /* in flight */
    struct produce_request *free_requests;
    struct codec *codec;
    struct iovec *iov;
    size_t iov_room;
    Brook__ProducePartition *entries;
    Brook__ProducePartition **entry_list;
    bool pumping, pump_again, stopped;
    int64_t producer_id; /* for partitions that have none yet; -1: to be asked for */
    int16_t producer_epoch;
    bool is_asking_id;
    int id_failures;
    int64_t id_retry_ms;
    struct brook_error id_error; /* why there is none; code 0: nobody said no */
    int batches_offered;         /* in flight per partition, by the brokers seen so far */
    int64_t bytes_sent, batches_sent, requests_sent, retries; /* since they were last added to the counters */
    int64_t statistics_last_ms;
    struct producer_counters statistics_last;
};

static inline void batch_list_init(struct batch_list *list)
{
    list->head = NULL;
    list->tail = &list->head;
}

static inline void batch_list_append(struct batch_list *list, struct produce_batch *batch)
{
    batch->next = NULL;
    *list->tail = batch;
    list->tail = &batch->next;
}

static inline struct produce_batch *batch_list_pop(struct batch_list *list)
{
    struct produce_batch *batch = list->head;
    if (batch && !(list->head = batch->next))
        list->tail = &list->head;
    return batch;
}

/* All of `from` behind `to`. */
static inline void batch_list_splice(struct batch_list *to, struct batch_list *from)
{
    if (!from->head)
        return;
    *to->tail = from->head;
    to->tail = from->tail;
    batch_list_init(from);
}

/* ---- producer_batch.c: memory ----------------------------------------------------------------------- */

/* A new open batch with room for at least `record_bytes` of record, counted against buffer.memory.
 * Returns 0, -BROOK_E_QUEUE_FULL or -BROOK_E_NOMEM. [lock] */
int producer_batch_open(brook_producer *p, struct produce_partition *partition, size_t record_bytes,
                        struct produce_batch **ret_batch);
/* Make room for `record_bytes` more, up to the size that batches may have. -BROOK_E_AGAIN: it is full. [lock]
 */
int producer_batch_grow(brook_producer *p, struct produce_batch *batch, size_t record_bytes);
/* Make room for the opaque pointer of one more record, `number`. Returns 0 or -BROOK_E_NOMEM. */
int producer_batch_opaque_room(struct produce_batch *batch, size_t number);
static inline void producer_batch_set_opaque(struct produce_batch *batch, size_t number, void *opaque)
{
    if (number == 0)
        batch->opaque = opaque;
    else
        batch->opaques[number] = opaque;
}
static inline void *producer_batch_opaque(const struct produce_batch *batch, size_t number)
{
    return number == 0 ? batch->opaque : batch->opaques[number];
}
/* The open batch of `partition` gets no more records: to its closed ones. [lock] */
void producer_batch_close(brook_producer *p, struct produce_partition *partition);
/* A batch that no sender sees, with room for `bytes`, header included, whatever buffer.memory says: for records
 * that were accepted already. The caller sets what producer_batch_open() sets. Returns 0 or -BROOK_E_NOMEM.
 * [lock] */
int producer_batch_spare(brook_producer *p, size_t bytes, struct produce_batch **ret_batch);
/* Checksum and compression, at most once. [loop] */
int producer_batch_finish(brook_producer *p, struct produce_batch *batch);
/* Give the record memory back. [lock] */
void producer_batch_drop_memory(brook_producer *p, struct produce_batch *batch);
/* To the free list. [lock] */
void producer_batch_recycle(brook_producer *p, struct produce_batch *batch);
void producer_batches_free(brook_producer *p);

/* ---- producer_split.c ------------------------------------------------------------------------------- */

/* Cut a finished batch of two or more records, which the broker found too large, into two of about half its
 * bytes. `batch` is gone afterwards; on failure (-BROOK_E_NOMEM, or an error of the codec) it is as before.
 * [loop] */
int producer_split(brook_producer *p, struct produce_batch *batch, struct produce_batch *ret_halves[2]);

/* ---- producer_topics.c ------------------------------------------------------------------------------ */

/* Returns 0, -BROOK_E_ILLEGAL_NAME or -BROOK_E_NOMEM. [lock] */
int producer_topic(brook_producer *p, const char *name, struct produce_topic **ret_topic);
/* A partition for a record that has neither partition nor key. [lock] */
int32_t producer_topic_choose(brook_producer *p, struct produce_topic *topic);
/* Keep a record until its topic is known. [lock] */
int producer_topic_hold(brook_producer *p, struct produce_topic *topic, const struct record_view *view,
                        int32_t partition, void *opaque);
/* Look up new topics; take over what the metadata says; fail what has no topic. [loop] */
void producer_topics_update(brook_producer *p);
/* Fail early records that are older than delivery.timeout.ms (`all`: purge all). [loop] */
void producer_topics_expire(brook_producer *p, int64_t now_ms, bool all);
void producer_topics_free(brook_producer *p);

/* ---- producer.c ------------------------------------------------------------------------------------- */

/* Put a record into a batch of `partition`. Returns 0, -BROOK_E_QUEUE_FULL, -BROOK_E_NOMEM. [lock] */
int producer_add(brook_producer *p, struct produce_partition *partition, const struct record_view *view,
                 void *opaque);
/* The last act of a call that has run reports: if one of them has closed the producer, it ends here. */
void producer_end_deferred_close(brook_producer *p);
/* Whether the calling thread is inside a report callback of `p`. */
bool producer_in_callback(const brook_producer *p);

/* ---- producer_reports.c ----------------------------------------------------------------------------- */

/* A batch has come to its end; takes it. `text` NULL: the list's. [loop or lock-free] */
void producer_complete(brook_producer *p, struct produce_batch *batch, enum brook_outcome outcome,
                       int64_t base_offset, int code, const char *text);
/* The same for a record that never was in a batch. [no lock] */
void producer_complete_early(brook_producer *p, struct produce_topic *topic, struct early_record *early,
                             int code, const char *text);
/* Why the last attempt failed, for the report of a batch that runs out of time. Copied; out of memory: none. [loop]
 */
void producer_keep_text(struct produce_batch *batch, const char *text);
/* Run the reports that are there. Returns how many. [no lock] */
int producer_reports_run(brook_producer *p);
/* Wait under the lock on `condition` until `until_ms` (clock_boot_ms(), INT64_MAX: for ever). False: it is
 * later. */
bool producer_wait(brook_producer *p, pthread_cond_t *condition, int64_t until_ms);

/* ---- producer_sender.c ------------------------------------------------------------------------------ */

/* "timed out; `why`" in `buffer`, for a record that was given up; NULL: nothing to add to the code's own words. */
const char *producer_give_up_text(int code, const char *why, char *buffer, size_t bytes);
int producer_sender_start(brook_producer *p);
/* On the loop; nothing is in flight for the producer afterwards. */
void producer_sender_stop(brook_producer *p);
/* The loop is to look: returns whether the caller must call producer_wake() after unlocking. [lock] */
static inline bool producer_ask_wake(brook_producer *p)
{
    bool wake = !p->woken;
    p->woken = true;
    return wake;
}
void producer_wake(brook_producer *p);
/* Put a partition into the ready list. [lock] */
void producer_ready(brook_producer *p, struct produce_partition *partition);
/* Send what can be sent: now, or at the end of this turn. [loop] */
void producer_pump(brook_producer *p);
void producer_pump_later(brook_producer *p);
void producer_agenda(brook_producer *p, struct produce_partition *partition);
typedef void producer_partition_visitor(brook_producer *p, struct produce_partition *partition, int64_t arg);
void producer_each_partition(brook_producer *p, producer_partition_visitor *visit, int64_t arg);
/* Report everything as given up. [loop] */
void producer_purge_all(brook_producer *p);
/* End what waits for this partition and is not in flight. [loop] */
void producer_partition_fail(brook_producer *p, struct produce_partition *partition, int code);

/* ---- producer_requests.c ---------------------------------------------------------------------------- */

/* Send requests to the target while it can take some. [loop] */
void producer_send_requests(brook_producer *p, struct produce_target *target);
bool producer_can_send(const brook_producer *p, const struct produce_partition *partition, int64_t now_ms);
struct produce_target *producer_target(brook_producer *p, int32_t broker_id);
void producer_target_push(struct produce_target *target, struct produce_partition *partition);
/* Out of whichever target it waits in. [loop] */
void producer_target_leave(brook_producer *p, struct produce_partition *partition);
/* Report as given up what is in flight; its memory goes when its requests end. [loop] */
void producer_requests_purge(brook_producer *p);
void producer_requests_free(brook_producer *p);
void producer_request_give(brook_producer *p, struct produce_request *request);

/* ---- producer_identity.c ---------------------------------------------------------------------------- */

/* Which settings hold; contradictions with an idempotence that was asked for are refused. */
int producer_identity_init(brook_producer *p, const brook_config *config, struct brook_error *error);
/* Ask for a producer id if one is needed. Returns when to look again. [loop] */
int64_t producer_identity_pass(brook_producer *p, int64_t now_ms);
/* Whether the partition's next batch can have a number, and how many more may be on their way. [loop] */
bool producer_has_identity(const brook_producer *p, const struct produce_partition *partition);
int producer_batches_room(const brook_producer *p, const struct produce_partition *partition);
/* Number a batch that is sent for the first time. [loop] */
void producer_number(brook_producer *p, struct produce_partition *partition, struct produce_batch *batch);
/* Before a partition sends: number all of its batches anew, if that is due. [loop] */
void producer_begin_anew(brook_producer *p, struct produce_partition *partition);
/* From now on the numbers given so far are worth nothing. [loop] */
void producer_break(brook_producer *p, struct produce_partition *partition);
/* A batch is about to be reported as not, or maybe, stored. [loop] */
void producer_gave_up(brook_producer *p, const struct produce_batch *batch, int code);
/* The broker did not take the number: whether the batch goes on (it is in the backlog then). [loop] */
bool producer_is_refused_number(int code);
bool producer_retry_number(brook_producer *p, struct produce_batch *batch);

/* ---- producer_answers.c ----------------------------------------------------------------------------- */

/* The callbacks of requests with and without a reply; `arg` is the request. [loop] */
void producer_on_reply(void *arg, const struct channel_reply *reply);
void producer_on_sent(void *arg, int err);
/* A batch back to its place in the sequence of its partition's backlog. [loop] */
void producer_put_back(struct produce_partition *partition, struct produce_batch *batch);
int64_t producer_back_off_ms(const brook_producer *p, int failures);
#endif
