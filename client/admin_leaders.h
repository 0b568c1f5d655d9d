/* Asking the leaders of partitions: one question, spread over as many requests as there are leaders, asked again where
 * that helps, until each partition has an answer or no time is left. What is asked, and what becomes of the answers, is
 * its kind's to say (admin_offsets.c, admin_replicas.c).
 */
#ifndef BROOK_CLIENT_ADMIN_LEADERS_H
#define BROOK_CLIENT_ADMIN_LEADERS_H

#include "client/admin_parts.h"

struct leaders_call;

/* One request's entries and its body, of any kind. */
union leaders_entry {
    Brook__ListOffsetsPartition listed;
    Brook__DeleteRecordsPartition deleted;
    Brook__DescribeReplicasPartition described;
};
union leaders_body {
    Brook__ListOffsetsRequest listing;
    Brook__DeleteRecordsRequest deletion;
    Brook__DescribeReplicasRequest description;
};

/* All on the loop. `arg` is the call's. */
struct leaders_kind {
    /* The message about one partition. */
    void (*fill)(void *arg, size_t place, const struct metadata_topic *topic, union leaders_entry *to);
    /* The request around `count` of them. */
    void (*wrap)(void *arg, void *entries, size_t count, union leaders_body *body, Brook__Request *request);
    /* How many partitions the response answers; -1: it is of another kind. */
    int64_t (*count)(const Brook__Response *response);
    /* Take over an answer and return its status. */
    const Brook__Status *(*take)(void *arg, size_t place, const Brook__Response *response, size_t index);
    /* Whether the partition must not be asked again when an answer may have been lost. NULL: none. */
    bool (*is_once)(void *arg, size_t place);
};

enum leaders_state { LEADERS_WAITS, LEADERS_ASKED, LEADERS_DONE };

struct leaders_partition {
    const char *topic; /* borrowed until the call returns */
    int32_t partition;
    enum leaders_state state;
    struct brook_error error;
};

/* Ask about partitions[0 .. count) (state 0), at least one; each is DONE without error when it was answered. `partitions`
 * and `arg` are touched by nobody after the return. With `is_patient` a partition without leader is asked again for as
 * long as there is time, else that is its answer. Returns 0, the first error, or -BROOK_E_TIMED_OUT, -BROOK_E_NOMEM. */
int leaders_ask(brook_admin *admin, const struct leaders_kind *kind, void *arg, struct leaders_partition *partitions,
                size_t count, bool is_patient, int timeout_ms, struct brook_error *error);
/* Returns 0, -BROOK_E_ILLEGAL_NAME or -BROOK_E_INVALID with a sentence. */
int leaders_check(const char *topic, int32_t partition, struct brook_error *error);
#endif
