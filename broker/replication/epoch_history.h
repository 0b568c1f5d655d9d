/* Questions to a log's leader epochs: does another log fit, and where do two logs part?
 *
 * A view of what storage keeps (`struct epochs`) together with where the log begins and ends; borrowed, good as
 * long as the log does not change. Epochs rise with offsets; an epoch ends where the next one begins, the last one
 * at the log's end. Pure, any thread, no memory of its own. Offsets count records.
 */
#ifndef BROOK_REPLICATION_EPOCH_HISTORY_H
#define BROOK_REPLICATION_EPOCH_HISTORY_H

#include "broker/storage/epochs.h"

struct epoch_history {
    const struct epoch_entry *entries; /* as struct epochs has them */
    size_t count;
    int64_t log_start;
    int64_t log_end;
};

/* An epoch, and the offset behind its last record. */
struct epoch_end {
    int32_t epoch; /* -1: none */
    int64_t end;
};

/* The epoch of the last record, -1 when there was none. Retention may have removed it: as long as the epochs remember
 * it, a log that has become empty still says how it ended. */
int32_t epoch_history_last(const struct epoch_history *h);
/* The epoch of the record before `offset`, -1 when this log does not have that record (but see above for the end of
 * an empty log). What a pull says as last_epoch. */
int32_t epoch_history_before(const struct epoch_history *h, int64_t offset);
/* The largest epoch that is at most `epoch`, and its end. None: -1, and where the log begins. This is the answer to
 * EpochEnd. */
struct epoch_end epoch_history_end(const struct epoch_history *h, int32_t epoch);
/* How the log is compared with others in an election (election.h), when its replica has reached the start of
 * `reached_epoch`: the newer of that and of its last epoch, and where it ends, as far as it is safe (INT64_MAX: all is). */
struct epoch_end epoch_history_report(const struct epoch_history *h, int64_t safe_end, int32_t reached_epoch);
/* Whether a log that ends at `offset` with a record of `last_epoch` (-1: it has none) is a beginning of this one: then
 * both hold the same records below `offset`, as far as this one still has them. A log that ends where this one
 * begins always fits. */
bool epoch_history_fits(const struct epoch_history *h, int64_t offset, int32_t last_epoch);
#endif
