/* What a controller does, one thing at a time: for tests in which it ends at any of its writes.
 *
 * One thread.
 */
#ifndef BROOK_TESTS_CLUSTER_CONTROLLER_DEEDS_H
#define BROOK_TESTS_CLUSTER_CONTROLLER_DEEDS_H

#include "tests/cluster/stage.h"

struct deed {
    const char *name;
    void (*prepare)(struct stage *s);
    void (*begin)(struct stage *s);
    /* Beside agreement; NULL: agreement is all. */
    bool (*is_done)(struct stage *s);
    /* What would hurt if the former controller's writes came now; NULL: nothing. And whether it has. */
    void (*tempt)(struct stage *s);
    bool (*is_unhurt)(struct stage *s);
    /* All brokers are to run again. */
    void (*restore)(struct stage *s);
    /* Whether disks hold what they should and nothing else, when all are back; NULL: agreement is all. */
    bool (*is_kept)(struct stage *s);
    /* Nothing remains for the next round; NULL: nothing does. */
    void (*clean)(struct stage *s);
};
extern const struct deed controller_deeds[];
extern const int controller_deeds_count;
#endif
