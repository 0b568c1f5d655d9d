/* The commits of one partition: one in flight, the newest of the rest waits.
 *
 * Every value gets a number; a caller who waits for its value waits until `ended` has reached that number. A newer
 * value takes the place of one that still waits, so the stored offset is the one asked for last, also backwards.
 * Pure; the owner locks and sends.
 */
#ifndef BROOK_CLIENT_CONSUMER_SLOT_H
#define BROOK_CLIENT_CONSUMER_SLOT_H

#include <stdbool.h>
#include <stdint.h>

enum commit_state {
    COMMIT_IDLE,
    COMMIT_SENT,
    COMMIT_RESOLVING /* the outcome is being found out */
};

struct commit_slot {
    enum commit_state state;
    bool has_owner;  /* a member owns the partition: versions count, outcomes are found out */
    int32_t version; /* of the offset node; -1: not known */
    int64_t stored;  /* what is stored as far as is known; BROOK_OFFSET_NONE */
    int64_t sent;    /* in flight or in question */
    int64_t waiting; /* -1: none */
    uint64_t sent_number;
    uint64_t waiting_number;
    uint64_t last_number;
    uint64_t ended; /* values up to this number have ended ... */
    int ended_code; /* ... the last of them so: 0 or positive */
};

enum commit_verdict {
    COMMIT_DONE,
    COMMIT_AGAIN,   /* send again after a pause */
    COMMIT_RESOLVE, /* ask the driver (only with an owner) */
    COMMIT_FAILED   /* given up */
};

/* `stored` BROOK_OFFSET_NONE: nothing, or not known. `version` only with an owner. */
void commit_slot_init(struct commit_slot *s, bool has_owner, int64_t stored, int32_t version);
/* Ask for `offset` to be stored. Returns the number to wait for (0: it is stored already and nothing is on its way). */
uint64_t commit_slot_want(struct commit_slot *s, int64_t offset);
bool commit_slot_has_work(const struct commit_slot *s);
/* Something is wanted, in flight or in question. */
bool commit_slot_is_busy(const struct commit_slot *s);
/* Take the value that waits into flight: its offset is s->sent, to be sent with s->version. */
void commit_slot_begin(struct commit_slot *s);
/* The answer: `code` 0 and the new version, or a failure (either sign). */
enum commit_verdict commit_slot_end(struct commit_slot *s, int code, int32_t version);
/* It was found out (COMMIT_RESOLVING only): the node holds `stored` with `version` and the partition is ours. */
enum commit_verdict commit_slot_resolved(struct commit_slot *s, int64_t stored, int32_t version);
/* Give up everything with `code`. */
void commit_slot_abandon(struct commit_slot *s, int code);
/* Has the value with this number ended? Then *ret_code is 0 or positive. */
bool commit_slot_has_ended(const struct commit_slot *s, uint64_t number, int *ret_code);
#endif
