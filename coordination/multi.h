/* The inside of a multi: a list of ops, and the block of memory that the library works with while the multi
 * is in flight. One owner at a time; no thread of its own.
 */
#ifndef BROOK_COORDINATION_MULTI_H
#define BROOK_COORDINATION_MULTI_H

#include "coordination/coordinator.h"

#include <zookeeper/zookeeper.h>

/* More than the headers, ACL and lengths of one op take on the wire. */
#define MULTI_OVERHEAD_BYTES 128

struct multi_op {
    enum { MULTI_CHECK, MULTI_CREATE, MULTI_SET, MULTI_DELETE } type;
    char *path; /* without chroot */
    void *data;
    size_t data_bytes;
    int32_t version;
    enum znode_mode mode;
};

struct multi_flight {
    zoo_op_t *ops;
    zoo_op_result_t *results;
    struct Stat *stats;
    char **paths; /* with chroot */
    size_t count;
};

struct coordinator_multi {
    struct multi_op *ops;
    size_t count;
    size_t capacity;
    size_t bytes;
    int err; /* the first thing that went wrong while building */
    struct multi_flight flight;
};

/* Make m->flight ready for sending (again). Returns 0 or -BROOK_E_NOMEM. */
int multi_prepare(struct coordinator_multi *m, const char *chroot);
/* After completion: which op failed first and the code to go by, given the code of the whole. */
int multi_result(const struct coordinator_multi *m, int rc, size_t *ret_failed_op);
void stat_from_zookeeper(struct znode_stat *to, const struct Stat *from);
#endif
