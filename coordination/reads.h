/* Many nodes read with bounded concurrency: item 0..count-1, a limited number under way at a time.
 *
 * The shape that every "read all of these" here has. Knows nothing of what the paths mean. Loop thread; all
 * callbacks come through the inbox.
 */
#ifndef BROOK_COORDINATION_READS_H
#define BROOK_COORDINATION_READS_H

#include "coordination/coordinator.h"
#include "coordination/paths.h"

/* Reads of one batch under way at a time. */
#define READS_IN_FLIGHT_MAX 128

enum reads_kind { READS_GET, READS_CHILDREN, READS_EXISTS };

struct reads_plan {
    struct coordinator *coordinator;
    struct inbox *inbox;
    enum reads_kind kind;
    size_t count;
    /* The path of an item. */
    void (*path)(void *arg, size_t item, struct path *ret_path);
    /* Its answer. To return anything but 0 stops asking. */
    int (*answer)(void *arg, size_t item, const struct coordinator_reply *reply);
    /* After the last answer: 0, or the first error that `answer` returned. Called last, once. */
    void (*end)(void *arg, int err);
    void *arg;
};

/* Start; `plan` is copied. Returns 0, or -BROOK_E_NOMEM: then nothing is called. */
int reads_start(const struct reads_plan *plan);
#endif
