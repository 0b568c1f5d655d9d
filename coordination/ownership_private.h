/* Inside of the ownership registry: shared by ownership*.c only. Loop thread. */
#ifndef BROOK_COORDINATION_OWNERSHIP_PRIVATE_H
#define BROOK_COORDINATION_OWNERSHIP_PRIVATE_H

#include "coordination/coordinator.h"
#include "coordination/ownership.h"
#include "coordination/paths.h"

struct ownership {
    struct coordinator *coordinator;
    struct inbox *inbox;
    uint64_t generation;
    int64_t session_id;
    unsigned refs; /* the owner and each operation under way */
    bool closed;
    char *group;
    char *member;
};

/* One claim, release or verification under way. Each coordinator reply either goes on or ends it. */
struct ownership_op {
    struct ownership *ownership;
    ownership_callback *callback;
    void *arg;
    struct path owner;
    struct path offset;
    struct path owners; /* the folder above `owner` */
    /* Of the offset node, as read last. */
    char value[24];
    size_t value_bytes;
    struct ownership_reply read; /* the reply as it grows */
};

void ownership_ref(struct ownership *ownership);
void ownership_unref(struct ownership *ownership);
struct coordinator_call ownership_call(struct ownership *ownership, coordinator_callback *callback,
                                       void *arg);

/* NULL without memory: `callback` has run with -BROOK_E_NOMEM then. */
struct ownership_op *ownership_op_new(struct ownership *ownership, const char *topic, int32_t partition,
                                      uint64_t tag, ownership_callback *callback, void *arg);
/* Calls back with `err` and op->read, frees. */
void ownership_op_end(struct ownership_op *op, int err);
/* Whether the ownership was freed meanwhile: then the op is gone. First thing in every reply. */
bool ownership_op_is_over(struct ownership_op *op);
/* Take value, version and decoded offset from the answer to a get of the offset node. Returns 0 or
 * -BROOK_E_BAD_ZNODE. */
int ownership_op_take_offset(struct ownership_op *op, const struct coordinator_reply *reply);
#endif
