/* Plans of reassignment: made for a list of brokers, read from a file, written. The file is what Kafka's tool takes:
 * {"version":1,"partitions":[{"topic":"T","partition":0,"replicas":[1,2]}]}. One thread.
 */
#ifndef BROOK_CLI_REASSIGN_PLAN_H
#define BROOK_CLI_REASSIGN_PLAN_H

#include <brook/admin.h>
#include <jansson.h>

struct plan {
    struct brook_partition_plan *list;
    size_t count;
    json_t *text; /* holds the names of a plan that was read; NULL */
};
void plan_done(struct plan *plan);

/* Spread the partitions of `cluster` over `brokers` (which are in it): who may stay stays, each partition is in as many
 * racks as there are, and the rest goes where least is. `replicas` 0: as many as each partition has. Names are borrowed
 * from `cluster`. Partitions whose list stays the same are left out. Returns 0, -BROOK_E_INVALID (a broker is not there),
 * -BROOK_E_INVALID_REPLICATION (more replicas than brokers) or -BROOK_E_NOMEM. */
int plan_make(const struct brook_cluster *cluster, const int32_t *brokers, size_t brokers_count, int32_t replicas,
              struct plan *ret, struct brook_error *error);
/* Returns 0, or -BROOK_E_INVALID with a sentence. */
int plan_read(const char *file, struct plan *ret, struct brook_error *error);
json_t *plan_json(const struct brook_partition_plan *list, size_t count);
#endif
