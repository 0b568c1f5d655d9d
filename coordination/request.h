/* One request and the answer to it, inside coordination.
 *
 * A request goes from the calling thread to the session thread, is sent, and lives until the library has
 * completed it, since the library holds its address. The answer is allocated with the request, so that giving
 * it can not fail, and goes back to the inbox of the call. Requests of the machines inside (observations,
 * claims) have a `done` function instead, which runs on the session thread.
 */
#ifndef BROOK_COORDINATION_REQUEST_H
#define BROOK_COORDINATION_REQUEST_H

#include "coordination/coordinator.h"

struct request;

enum request_op {
    OP_GET,
    OP_EXISTS,
    OP_CHILDREN,
    OP_CREATE,
    OP_SET,
    OP_DELETE,
    OP_SYNC,
    OP_MULTI,
    OP_UNWATCH
};

struct answer {
    struct inbox_item item;
    struct coordinator_call call;
    struct coordinator_reply reply;
    /* What the reply points to; malloc'ed. */
    char *path;
    char *data;
    char **children; /* one block: pointers, then names */
    struct znode_stat *op_stats;
};

/* Zeroed memory for the few bytes without which a reply could not even say that memory is short: aborts when
 * there is none. */
void *must_calloc(size_t bytes);

struct answer *answer_new(struct coordinator_call call);
void answer_free(struct answer *a);
/* Hand it to its inbox, where the callback runs and the answer is freed. */
void answer_post(struct answer *a);
/* Copy into the answer; on failure reply.err becomes -BROOK_E_NOMEM. */
void answer_copy_data(struct answer *a, const char *data, size_t bytes);
void answer_copy_children(struct answer *a, char *const *names, size_t count);
/* Move what `from` holds to `to`, call and inbox item excepted. */
void answer_take(struct answer *to, struct answer *from);

/* `r->answer` holds the reply, which the function may use or take; the request is freed afterwards. */
typedef void request_done(struct coordinator *c, struct request *r);

struct request {
    struct inbox_item item; /* on the way to the session thread */
    struct request *prev, *next;
    struct coordinator *coordinator;
    enum request_op op;
    char *path; /* with chroot */
    void *data;
    size_t data_bytes;
    int32_t version; /* OP_UNWATCH: which watches, as the library numbers them */
    enum znode_mode mode;
    struct coordinator_multi *multi;
    bool urgent;
    bool before_ready;          /* part of setting the session up: does not wait for that */
    uint64_t generation_wanted; /* 0: any */
    uint64_t watch_id;          /* reads: set a watch for this observation; 0: none */
    request_done *done;         /* NULL: the answer goes to the inbox of its call */
    void *done_arg;

    int64_t accepted_ms;
    int64_t sent_ns;
    uint64_t generation; /* of the session that carried it */
    int sends;
    int rc; /* what the completion said */
    struct answer *answer;
};

/* Takes `path` (malloc'ed). */
struct request *request_new(struct coordinator *c, enum request_op op, char *path,
                            struct coordinator_call call);
void request_free(struct request *r);
/* Copy `data` into the request. Returns 0 or -BROOK_E_NOMEM. */
int request_copy_data(struct request *r, const void *data, size_t bytes);
/* What it takes on the wire, roughly and never too little. */
size_t request_bytes(const struct request *r);
bool request_is_read(const struct request *r);
#endif
