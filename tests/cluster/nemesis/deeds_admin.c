/* Deeds of an operator: partitions to other brokers, records deleted. */
#include "tests/cluster/nemesis/world.h"

#include "proto/base/clock.h"
#include "tests/support/suite.h"

#include <inttypes.h>

#define ANSWER_MS 1000
/* Slower than all of a run's records, faster than those that come meanwhile. */
#define SLOW_BYTES_PER_S 200000
#define LIFT_PAUSE_MS 500

/* ---- moves ------------------------------------------------------------------------------------------------------ */

void deeds_move(struct world *w, const struct fault *f)
{
    int32_t replicas[NETWORK_BROKERS_MAX];
    int n = w->options->brokers;
    for (int i = 0; i < n; i++)
        replicas[i] = 1 + i;
    for (int i = 0; i < n; i++) {
        int j = i + (int)suite_random_below(&w->schedule.random, (uint64_t)(n - i));
        int32_t other = replicas[j];
        replicas[j] = replicas[i];
        replicas[i] = other;
    }
    if (!wishes_move(w->wishes, &w->topics, f->partition, replicas, w->options->replicas))
        world_say(w, "  it can not be asked for now");
}

static bool throttle(struct world *w, int64_t bytes_per_s)
{
    struct brook_error error = {0};
    return brook_admin_reassign(w->admin, NULL, 0, bytes_per_s, false, ANSWER_MS, NULL, &error) == 0;
}

void deeds_move_slowly(struct world *w, const struct fault *f)
{
    w->view.is_move_slow = true;
    if (!throttle(w, SLOW_BYTES_PER_S))
        world_say(w, "  no answer about the throttle");
    deeds_move(w, f);
}

/* Whoever has to take it down may not be there just now. */
void deeds_lift_throttle(struct world *w)
{
    if (!w->is_throttle_to_go || clock_boot_ms() < w->lift_at_ms)
        return;
    if (throttle(w, 0))
        w->is_throttle_to_go = w->view.is_move_slow = false;
    else
        w->lift_at_ms = clock_boot_ms() + LIFT_PAUSE_MS;
}

/* ---- deletions -------------------------------------------------------------------------------------------------- */

/* What all readers and groups are done with may go; who is cut off reads on behind it. */
static int64_t read_by_all(struct world *w, int32_t partition)
{
    int64_t next = INT64_MAX;
    for (int i = 0; i < WORLD_READERS; i++) {
        int64_t at = reader_next(w->readers[i], partition);
        next = at < next ? at : next;
    }
    for (int g = 0; g < w->options->groups; g++) {
        int64_t at = watch_committed(w->watch, g, partition);
        next = at < next ? at : next;
    }
    return next;
}

void deeds_delete(struct world *w, const struct fault *f)
{
    struct brook_error error = {0};
    int32_t p = f->partition;
    int64_t below = read_by_all(w, p);
    if (below <= w->asked[p]) {
        world_say(w, "  there is nothing that all have read");
        return;
    }
    below -= (int64_t)suite_random_below(&w->schedule.random, (uint64_t)(below - w->asked[p]));
    w->asked[p] = below;
    struct brook_position at = {topics_name(&w->topics, p), topics_number(&w->topics, p), below};
    if (brook_admin_delete_records(w->admin, &at, 1, false, ANSWER_MS, &error) == 0)
        w->confirmed[p] = at.offset > below ? at.offset : below;
    else
        world_say(w, "  below %" PRId64 ": %s", below, error.text);
}
