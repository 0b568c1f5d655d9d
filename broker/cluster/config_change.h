/* A change of a topic's own settings: which are set, which are taken away. Pure, any thread.
 */
#ifndef BROOK_CLUSTER_CONFIG_CHANGE_H
#define BROOK_CLUSTER_CONFIG_CHANGE_H

#include "proto/base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct topic_config;
struct znode_config;

/* Settings after `changes` (value NULL: taken away) to `old`; both sorted or not. The whole result is checked over
 * `defaults`: a bad setting that stays is told, too, since somebody has to look at it. `replicas`: the
 * least that a partition has; a change of min.insync.replicas must not leave it above that, and one of segment.bytes or max.message.bytes
 * not the former below the latter. On success the caller owns
 * *ret (znode_config_done()) and *ret_changed says whether it differs from `old`. Returns 0;
 * -BROOK_E_INVALID_CONFIG with a sentence (a bad value, no such setting, a key named twice); -BROOK_E_NOMEM. */
int config_change_apply(const struct znode_config *old, const struct znode_config *changes,
                        const struct topic_config *defaults, int32_t replicas, struct znode_config *ret,
                        bool *ret_changed, struct brook_error *error);
#endif
