/* What a partition knows of the idempotent producers that wrote to it: of each its epoch and its last batches, so that
 * a repeated batch is told from a new one, and a gap from either.
 *
 * Sequence numbers count a producer's records of one partition, from 0 in each epoch; after 2^31 - 1 comes 0 again.
 *
 *   producer        epoch      sequence                    verdict
 *   known           the same   the next                    new
 *                              inside one remembered batch duplicate: stored at that offset
 *                              below all remembered        duplicate, its offset is not known any more
 *                              anything else               -BROOK_E_OUT_OF_SEQUENCE
 *                   newer      0                           new; what was known of the older epoch is forgotten
 *                              not 0                       -BROOK_E_OUT_OF_SEQUENCE
 *                   older                                  -BROOK_E_PRODUCER_FENCED
 *   not known                  0                           new
 *                              not 0                       -BROOK_E_UNKNOWN_PRODUCER
 *
 * A producer becomes unknown when it has been silent for too long, or when more than the limit have come after it. Its
 * records' removal by retention does not make it so. Pure: knows headers, not logs or files. One thread at a time.
 *
 * Changes are made in transactions, so that an append that fails leaves nothing behind:
 *
 *     producer_state_begin(s);
 *     producer_state_note(s, &header, now_ms) ...
 *     producer_state_keep(s, limit);   or   producer_state_undo(s);
 */
#ifndef BROOK_STORAGE_PRODUCER_STATE_H
#define BROOK_STORAGE_PRODUCER_STATE_H

#include "broker/storage/producer_snapshot.h"
#include "proto/record/batch.h"

/* Batches remembered of each producer: so many may be on their way for one partition. */
#define PRODUCER_BATCHES_MAX 5

/* The defaults of the broker's settings. */
#define PRODUCERS_PER_PARTITION_DEFAULT 5000
#define PRODUCER_EXPIRATION_MS_DEFAULT ((int64_t)24 * 3600 * 1000)

struct producer_state;

int producer_state_new(struct producer_state **ret_state);
void producer_state_free(struct producer_state *s);
/* Forget everything. Not inside a transaction. */
void producer_state_clear(struct producer_state *s);
size_t producer_state_count(const struct producer_state *s);

/* Whether the batch counts here at all: one of a producer with a sequence number, and none of control. */
static inline bool batch_is_idempotent(const struct batch_header *h)
{
    return h->producer_id >= 0 && h->base_sequence >= 0 && !(h->attributes & BATCH_CONTROL);
}

/* The sequence number `count` (not negative) records after `sequence`. */
static inline int32_t sequence_after(int32_t sequence, int32_t count)
{
    return (int32_t)(((uint32_t)sequence + (uint32_t)count) & INT32_MAX);
}

struct producer_verdict {
    bool is_duplicate;
    int64_t base_offset; /* of the records that are there already; -1: not known any more */
    int64_t last_offset; /* all of them lie at or below it */
};
/* Judge a batch (batch_is_idempotent()), whose offsets do not matter. `s` may be NULL: nobody is known. Returns 0 and
 * the verdict, or one of the errors of the table with a sentence. */
int producer_state_check(const struct producer_state *s, const struct batch_header *h,
                         struct producer_verdict *ret_verdict, struct brook_error *error);

void producer_state_begin(struct producer_state *s);
/* Take up a batch with its offsets, unchecked: what a leader has judged, what a follower is sent, what lies in the log.
 * One at or below what is known of its producer changes nothing. `seen_ms`: broker's clock. Returns 0 or
 * -BROOK_E_NOMEM (nothing has changed). Without a transaction it counts at once. */
int producer_state_note(struct producer_state *s, const struct batch_header *h, int64_t seen_ms);
/* The changes stay; if more than `limit` producers are known now, those silent longest are forgotten. */
void producer_state_keep(struct producer_state *s, size_t limit);
void producer_state_undo(struct producer_state *s);

/* The log was cut to `end_offset`: forget the batches from there on. Returns false when what was before them is not
 * known any more: then the state must be made anew. */
bool producer_state_cut(struct producer_state *s, int64_t end_offset);
/* Forget those not seen since `before_ms`. */
void producer_state_expire(struct producer_state *s, int64_t before_ms);

/* The bytes of a snapshot: an entry for each remembered batch, a producer's newest last, which is the one that counts
 * for Kafka's reader. The caller frees them. `s` may be NULL. Returns 0 or -BROOK_E_NOMEM. */
int producer_state_save(const struct producer_state *s, void **ret_data, size_t *ret_bytes);
/* Take up a snapshot that was checked (producer_snapshot_check()). `now_ms` bounds its times. Returns 0 or
 * -BROOK_E_NOMEM. */
int producer_state_load(struct producer_state *s, const void *data, size_t count, int64_t now_ms);
#endif
