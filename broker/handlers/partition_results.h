/* Petitions about partitions and their results: what ElectLeaders and Reassign share. */
#ifndef BROOK_HANDLERS_PARTITION_RESULTS_H
#define BROOK_HANDLERS_PARTITION_RESULTS_H

#include "broker/cluster/cluster.h"
#include "broker/handlers/request.h"

/* A petition on its way, in the request's memory. */
struct partition_results {
    struct request *request;
    struct znode_wishes wishes;
    /* Called with one result for each wish; answers the request. */
    void (*done)(struct request *r, Brook__PartitionResult **results, size_t count);
};

/* Room for `count` wishes, to be filled in. NULL: the request was answered (too many, none, or out of memory). */
struct partition_results *partition_results_begin(struct request *r, size_t count,
                                                  void (*done)(struct request *r, Brook__PartitionResult **results,
                                                               size_t count));
/* The topic's name of wish `index`. Returns false when the request was answered: it is no name. */
bool partition_results_name(struct partition_results *all, size_t index, const ProtobufCBinaryData *name);
/* Ask the controller. */
void partition_results_ask(struct partition_results *all, enum znode_wish_kind kind, int64_t throttle,
                           bool validate_only, uint32_t timeout_ms);
#endif
