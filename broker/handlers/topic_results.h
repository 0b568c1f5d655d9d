/* What create, delete and add partitions share: intents for several topics at once, answered when the last of
 * them is. The loop's thread only.
 */
#ifndef BROOK_HANDLERS_TOPIC_RESULTS_H
#define BROOK_HANDLERS_TOPIC_RESULTS_H

#include "broker/cluster/cluster.h"
#include "broker/handlers/request.h"

struct topic_results;

struct topic_result {
    struct topic_results *all;
    char *name; /* the request's */
    struct cluster_topic_result result;
};

struct topic_results {
    struct request *request;
    /* Called when every topic is answered; it ends the request. */
    void (*done)(struct topic_results *all);
    size_t count;
    size_t pending;
    struct topic_result topics[];
};

/* In the request's memory; NULL: refused already (too many topics at once, out of memory). `pending` is 1:
 * the caller's own, to be given up with topic_results_one_done() when all intents are under way. */
struct topic_results *topic_results_begin(struct request *r, size_t count,
                                          void (*done)(struct topic_results *all));
/* The name as text, kept in `topic`. Returns false, with the result filled in, when it can not be one. */
bool topic_results_name(struct topic_results *all, size_t index, const ProtobufCBinaryData *name);
/* Counts an intent; pass topic_results_answered with &all->topics[index] to cluster_*_topic(). */
void topic_results_add(struct topic_results *all);
void topic_results_answered(void *arg, const struct cluster_topic_result *result);
void topic_results_one_done(struct topic_results *all);

/* The reply's messages, one per topic; NULL: out of memory. */
Brook__TopicResult **topic_results_messages(struct topic_results *all);
#endif
