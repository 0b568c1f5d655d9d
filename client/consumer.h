/* The consumer handle: what the functions of <brook/consumer.h> share.
 *
 * Application threads work on the set (consumer_set.h) and hand jobs to the loop; the loop owns fetcher,
 * commits and group. `group` is made once and lives until close, so that poll may read the pointer at any
 * time.
 */
#ifndef BROOK_CLIENT_CONSUMER_H
#define BROOK_CLIENT_CONSUMER_H

#include "client/client.h"
#include "client/consumer_commits.h"
#include "client/consumer_fetcher.h"
#include "client/consumer_set.h"
#include "client/group_driver.h"

#include <stdatomic.h>
#include <sys/types.h>

enum consumer_mode { CONSUMER_IDLE, CONSUMER_ASSIGNED, CONSUMER_SUBSCRIBED };

struct brook_consumer {
    pid_t pid;
    struct client *client;
    struct consumer_set *set;
    struct consumer_fetcher *fetcher;
    struct commits *commits;
    struct group *_Atomic group;
    struct client_timer *auto_commit;
    char group_id[GROUP_NAME_BYTES_MAX + 1];
    enum consumer_mode mode; /* under the set's lock */
    struct brook_rebalance callbacks;
    bool is_in_callback;
    _Atomic bool is_interrupted;
    struct event_place place; /* of the last error of poll */
    bool has_left;            /* under the set's lock */
    int leave_result;
};

/* What the group driver calls. */
extern const struct group_events consumer_group_events;
/* A draining partition is done with. */
void consumer_on_drained(void *arg, struct consumer_partition *p);
/* Run the rebalance callbacks that are due. */
void consumer_run_callbacks(struct brook_consumer *c);

/* Commits. */
struct position_block {
    size_t count;
    struct brook_position positions[]; /* the strings behind them */
};
/* A copy in one block; NULL: out of memory. */
struct position_block *positions_copy(const struct brook_position *positions, size_t count);
/* What was released: of all partitions, or only where it differs from what auto-commit asked for last (which
 * is noted then). NULL: out of memory. */
struct position_block *consumer_collect(struct brook_consumer *c, bool only_new);
/* On the loop: through the group, or as a simple consumer. */
void consumer_commit_on_loop(struct brook_consumer *c, const struct position_block *block, int timeout_ms,
                             commits_callback *done, void *arg);
void consumer_auto_commit(void *arg);

/* Make a poll that waits return -BROOK_E_CLOSED, and all later ones. Async-signal-safe. */
void consumer_interrupt(struct brook_consumer *c);
#endif
