/* The commits of one partition without a group membership: one in flight, the newest of the rest waits.
 *
 * Every value gets a number; a caller who waits for its value waits until `ended` has reached that number. A
 * newer value takes the place of one that still waits, so the stored offset is the one asked for last, also
 * backwards. Pure; loop thread. (Members commit through their group, which knows versions:
 * client/group_driver.h.)
 */
#ifndef BROOK_CLIENT_CONSUMER_SLOT_H
#define BROOK_CLIENT_CONSUMER_SLOT_H

#include <stdbool.h>
#include <stdint.h>

struct commit_slot {
    bool is_in_flight;
    int64_t stored;  /* by us, as far as is known; BROOK_OFFSET_NONE */
    int64_t sent;    /* in flight */
    int64_t waiting; /* -1: none */
    uint64_t sent_number;
    uint64_t waiting_number;
    uint64_t last_number;
    uint64_t ended; /* values up to this number have ended ... */
    int ended_code; /* ... the last of them so: 0 or positive */
};

enum commit_verdict {
    COMMIT_DONE,
    COMMIT_AGAIN, /* send again after a pause */
    COMMIT_FAILED /* given up */
};

void commit_slot_init(struct commit_slot *s);
/* Ask for `offset` to be stored. Returns the number to wait for (0: it is stored already and nothing is on
 * its way). */
uint64_t commit_slot_want(struct commit_slot *s, int64_t offset);
/* A value waits and none is in flight. */
bool commit_slot_has_work(const struct commit_slot *s);
/* Take the value that waits into flight: s->sent. */
void commit_slot_begin(struct commit_slot *s);
/* The answer: `code` 0, or a failure (either sign). An outcome that is not known is sent again: nobody else
 * may write, so that twice is as good as once. */
enum commit_verdict commit_slot_end(struct commit_slot *s, int code);
/* Give up everything with `code`. */
void commit_slot_abandon(struct commit_slot *s, int code);
/* Has the value with this number ended? Then *ret_code is 0 or positive. */
bool commit_slot_has_ended(const struct commit_slot *s, uint64_t number, int *ret_code);
#endif
