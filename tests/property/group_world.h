/* A world for the group machine: a model of ZooKeeper, of brokers that commit, and of processes that freeze,
 * lose their link, die, and answer late or never. Time is simulated; everything comes from one seed.
 *
 * After every step of time the world checks: of each partition at most one member delivers while its lease
 * holds; a commit that succeeds is the last claimant's; stored offsets do not go back within one life of a
 * topic.
 */
#ifndef BROOK_TESTS_GROUP_WORLD_H
#define BROOK_TESTS_GROUP_WORLD_H

#include "client/group_member.h"

#include <stdbool.h>
#include <stdint.h>

#define WORLD_MEMBERS 24
#define WORLD_TOPICS 3
#define WORLD_PARTITIONS 8
#define WORLD_TIMEOUT_MS 2000
#define WORLD_DRAIN_MS 1000
#define WORLD_SETTLE_MS 100
#define WORLD_MAX_POLL_MS 5000

struct world;

struct world *world_new(uint64_t seed);
void world_free(struct world *w);
int64_t world_now(const struct world *w);
uint64_t world_random(struct world *w, uint64_t bound);
/* Faults of single requests: lost answers, failed claims. Off at first. */
void world_set_faults(struct world *w, bool on);

void world_topic_make(struct world *w, int topic, int32_t partitions); /* again: a new topic of that name */
void world_topic_grow(struct world *w, int topic, int32_t partitions);
void world_topic_delete(struct world *w, int topic);

/* A process in slot `member` (free before): subscribes to the topics of `mask`, or with mask 0 to all by
 * expression. `is_static`: its id is the slot's, and it takes up the slot's last session if that lives. */
void world_start(struct world *w, int member, unsigned mask, bool is_static);
bool world_is_running(const struct world *w, int member);
void world_kill(struct world *w, int member);
void world_leave(struct world *w, int member); /* the slot is free when it has left */
void world_resubscribe(struct world *w, int member, unsigned mask);
void world_freeze(struct world *w, int member, int ms);
void world_cut(struct world *w, int member, int ms); /* no link to ZooKeeper */
void world_stop_polling(struct world *w, int member, int ms);
void world_take_id(struct world *w, int member); /* somebody deletes the ids node */
void world_slow(struct world *w, int member, int drain_ms); /* how long its application takes to let go */

/* Let time pass; checks the invariants all along. */
void world_run(struct world *w, int ms);
/* End all faults, and run until everybody is quiet and everything adds up. False after `ms`. */
bool world_settles(struct world *w, int ms);

/* Owner of a partition, -1: nobody. */
int world_owner(const struct world *w, int topic, int32_t partition);
bool world_delivers(const struct world *w, int member, int topic, int32_t partition);
/* Counters since the start. */
int world_writes(const struct world *w);          /* of assignments */
int world_drains(const struct world *w, int member);
int world_member_reads(const struct world *w);    /* rounds that read every member */
int world_reports(const struct world *w, enum group_report report);
int64_t world_last_unowned(const struct world *w); /* when some partition was last without a deliverer */
#endif
