/* Telling how far logs go: when a partition has no leader and several replicas, the controller may have to find the
 * one with the longest log. It can not ask anybody, so every replica tells, unasked, as soon as it has adopted the
 * state without a leader: then it follows nobody, and its log stays as told until a newer state.
 *
 * One node per topic and broker, announced in the same multi, written again only when it says something new. The
 * cluster thread's alone.
 */
#ifndef BROOK_CLUSTER_ENDS_H
#define BROOK_CLUSTER_ENDS_H

#include "broker/cluster/hosting.h"
#include "broker/cluster/image.h"
#include "coordination/coordinator.h"

#define ENDS_RETRY_MS 500

struct ends;

struct ends_settings {
    struct coordinator *coordinator;
    struct inbox *inbox;
    struct image *image;
    struct hosting *hosting;
    int32_t broker_id;
};

int ends_new(const struct ends_settings *settings, struct ends **ret_ends);
/* After the coordinator was freed and the inbox drained. NULL is fine. */
void ends_free(struct ends *ends);

/* The topic has changed, or one of its partitions here was opened. */
void ends_consider(struct ends *ends, struct image_topic *topic);
/* While registered with this epoch and all that was read is followed: tell what is due. Returns when to call again. */
int64_t ends_tick(struct ends *ends, int64_t broker_epoch, int64_t now_ms);
#endif
