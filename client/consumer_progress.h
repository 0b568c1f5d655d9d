/* How far the application has come in one partition: the end of the contiguous run of released batches.
 *
 * Batches are handed out in offset order and come back in any order; only what is released without a gap from
 * the start counts as processed. Knows neither batches nor time. Pure; the owner locks. Offsets mean the next
 * record.
 */
#ifndef BROOK_CLIENT_CONSUMER_PROGRESS_H
#define BROOK_CLIENT_CONSUMER_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A ticket that counts for nothing. */
#define PROGRESS_TICKET_NONE 0

struct progress_run {
    int64_t next;
    int64_t released;         /* -1: still out */
    _Atomic int64_t *partial; /* of a batch that is out: processed so far */
};

struct consumer_progress {
    struct progress_run *runs; /* a ring: what is out, and what waits for a lower one */
    size_t head;
    size_t count;
    size_t capacity;       /* 0 or a power of two */
    uint64_t first_ticket; /* of runs[head] */
    uint64_t next_ticket;  /* never one that was given out before */
    int64_t processed;
    bool is_blocked; /* a batch came back unfinished: nothing handed out after it can count */
};

void progress_init(struct consumer_progress *p);
void progress_done(struct consumer_progress *p);

/* Begin anew at `offset` (-1: not known yet): tickets given out before are void. */
void progress_start(struct consumer_progress *p, int64_t offset);
/* The records up to `next` are handed out, in order, without a gap to the last ones. *partial (may be NULL)
 * is read until the release. Returns 0 and the ticket to release them with, or -BROOK_E_NOMEM. */
int progress_hand_out(struct consumer_progress *p, int64_t next, _Atomic int64_t *partial,
                      uint64_t *ret_ticket);
/* Those records below `next` are done; with `next` below the end of the run the rest comes back unprocessed,
 * and nothing behind it can count before the next progress_start(). Void tickets: nothing. */
void progress_release(struct consumer_progress *p, uint64_t ticket, int64_t next);
/* The next record that is not processed, -1 while not known. */
int64_t progress_processed(const struct consumer_progress *p);
#endif
