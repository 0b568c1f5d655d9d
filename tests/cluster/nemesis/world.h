/* The cluster of a nemesis run and all who work with it; of nemesis.c and deeds*.c alone. */
#ifndef BROOK_TESTS_NEMESIS_WORLD_H
#define BROOK_TESTS_NEMESIS_WORLD_H

#include "tests/cluster/nemesis/groups.h"
#include "tests/cluster/nemesis/nemesis.h"
#include "tests/cluster/nemesis/producers.h"
#include "tests/cluster/nemesis/readers.h"
#include "tests/cluster/nemesis/topics.h"
#include "tests/cluster/nemesis/watch.h"
#include "tests/cluster/nemesis/watermarks.h"
#include "tests/cluster/nemesis/wishes.h"

#include <stdatomic.h>

#define WORLD_SESSION_MS 2000
#define WORLD_ACTIVE_MAX 3
#define WORLD_READERS 2
#define WORLD_GROUPS_MAX 2

/* How long all may take to be well again when nothing is broken any more. */
#define WORLD_RECOVERY_MS 60000

struct active {
    size_t index; /* in the report */
    int64_t until_ms;
};

struct world {
    const struct nemesis_options *options;
    struct nemesis_report *report;
    struct topics topics;
    struct network *network;
    struct brokers *brokers;
    struct watch *watch;
    struct watermarks *watermarks;
    struct wishes *wishes;
    brook_admin *admin;
    struct producers *producers;
    struct gaps *acks;
    FILE *client_log;
    struct reader *readers[WORLD_READERS];
    struct group *groups[WORLD_GROUPS_MAX];
    int64_t began_ms;
    _Atomic bool is_up[NETWORK_BROKERS_MAX + 1];
    struct schedule schedule;
    struct active active[WORLD_ACTIVE_MAX];
    int active_count;
    struct schedule_view view;
    /* By partition: below which offset the deletion of records was asked for, and up to where that was confirmed. */
    int64_t asked[WATCH_PARTITIONS_MAX];
    int64_t confirmed[WATCH_PARTITIONS_MAX];
    bool is_throttle_to_go; /* of moves; then next tried at ... */
    int64_t lift_at_ms;
};

int64_t world_now(const struct world *w); /* ms since the beginning */
__attribute__((format(printf, 2, 3))) void world_say(const struct world *w, const char *format, ...);
/* Says it, and counts it as a surprise. */
__attribute__((format(printf, 2, 3))) void world_surprise(struct world *w, const char *format, ...);
void world_start_broker(struct world *w, int id);

/* ---- deeds.c ---- */
/* Let the fault begin; those that last are undone by deeds_end(). */
void deeds_begin(struct world *w, const struct fault *f);
void deeds_end(struct world *w, const struct active *a);
/* End what has lasted long enough (`all`: everything). */
void deeds_expire(struct world *w, bool all);
/* Start again, and count, what ended by itself. */
void deeds_mend(struct world *w);
/* False: not all was well again within WORLD_RECOVERY_MS, which is a surprise. */
bool deeds_wait_calm(struct world *w);

/* ---- deeds_admin.c ---- */
void deeds_move(struct world *w, const struct fault *f);
void deeds_move_slowly(struct world *w, const struct fault *f);
/* Take the throttle down when that is due; tried again until it is done. */
void deeds_lift_throttle(struct world *w);
void deeds_delete(struct world *w, const struct fault *f);
#endif
