/* The leader epochs of what was read of one partition: where the records of each began. With them the consumer proves
 * that a log which it goes on reading, from another leader perhaps, is the one that it has read so far; and finds the
 * place where the two part when it is not. Only the newest few are kept: that is enough for as many elections as may
 * happen between two pulls. Pure; offsets count records. */
#ifndef BROOK_CLIENT_CONSUMER_EPOCHS_H
#define BROOK_CLIENT_CONSUMER_EPOCHS_H

#include <stdint.h>

#define READ_EPOCHS_MAX 8

/* All zero: nothing was read. Both numbers rise. */
struct read_epochs {
    int count;
    struct {
        int32_t epoch;
        int64_t start;
    } list[READ_EPOCHS_MAX];
};

/* Another place, or another log: nothing is known about what is before. */
void read_epochs_clear(struct read_epochs *e);
/* A batch of `epoch` was read whose first record that counts is `offset`. Below 0: not known, which is nothing. */
void read_epochs_note(struct read_epochs *e, int32_t epoch, int64_t offset);
/* The epoch of the record before `offset`; -1: not known. */
int32_t read_epochs_before(const struct read_epochs *e, int64_t offset);
/* The log is not what was read below `position`: there `epoch` (-1: none) is the newest one that is not above that of
 * the record before, and ends at `end`. Returns where the two part, always below `position`, and forgets what is
 * behind it. */
int64_t read_epochs_cut(struct read_epochs *e, int64_t position, int32_t epoch, int64_t end);
#endif
