/* Why a partition has no leader, and who is waited for: in words, for people. Pure. */
#ifndef BROOK_CLUSTER_LEADERLESS_H
#define BROOK_CLUSTER_LEADERLESS_H

#include "broker/cluster/controller.h"

#define LEADERLESS_TEXT_BYTES 512

/* "waits for broker 2 (in sync, not running)", "brokers 1,3 compare their logs: ...", ... As controller_elect() would
 * judge the case (its `ends` are not looked at). For a partition that has a leader: "". Returns `text`. */
const char *leaderless_explain(const struct controller_case *partition, char text[LEADERLESS_TEXT_BYTES]);
#endif
