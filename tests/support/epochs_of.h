/* A log's leader epochs, asked as replication asks them (broker/replication/epoch_history.h). */
#ifndef BROOK_TESTS_EPOCHS_OF_H
#define BROOK_TESTS_EPOCHS_OF_H

#include "broker/replication/epoch_history.h"
#include "broker/storage/log.h"

struct epochs_question {
    int64_t offset; /* -1: ask for the end of `epoch` */
    int32_t epoch;
    int32_t before;
    struct epoch_end end;
};

static inline void epochs_look(void *arg, const struct epochs *epochs, int64_t start_offset, int64_t end_offset)
{
    struct epochs_question *q = arg;
    struct epoch_history history = {epochs->entries, epochs->count, start_offset, end_offset};
    if (q->offset >= 0)
        q->before = epoch_history_before(&history, q->offset);
    else
        q->end = epoch_history_end(&history, q->epoch);
}

static inline int32_t epoch_before(struct log *log, int64_t offset)
{
    struct epochs_question q = {.offset = offset};
    log_look_at_epochs(log, epochs_look, &q);
    return q.before;
}

static inline struct epoch_end end_of_epoch(struct log *log, int32_t epoch)
{
    struct epochs_question q = {.offset = -1, .epoch = epoch};
    log_look_at_epochs(log, epochs_look, &q);
    return q.end;
}
#endif
