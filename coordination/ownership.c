#include "coordination/ownership_private.h"

#include "coordination/znodes.h"
#include "proto/base/err.h"

#include <stdlib.h>
#include <string.h>

int ownership_new(struct coordinator *coordinator, struct inbox *inbox, const char *group, const char *member,
                  uint64_t generation, struct ownership **ret_ownership)
{
    struct ownership *ownership = calloc(1, sizeof *ownership);
    if (!ownership)
        return -BROOK_E_NOMEM;
    ownership->coordinator = coordinator;
    ownership->inbox = inbox;
    ownership->generation = generation;
    ownership->session_id = coordinator_session_id(coordinator);
    ownership->refs = 1;
    ownership->group = strdup(group);
    ownership->member = strdup(member);
    if (!ownership->group || !ownership->member) {
        ownership_unref(ownership);
        return -BROOK_E_NOMEM;
    }
    *ret_ownership = ownership;
    return 0;
}

void ownership_ref(struct ownership *ownership)
{
    ownership->refs++;
}

void ownership_unref(struct ownership *ownership)
{
    if (--ownership->refs > 0)
        return;
    free(ownership->group);
    free(ownership->member);
    free(ownership);
}

void ownership_free(struct ownership *ownership)
{
    if (!ownership)
        return;
    ownership->closed = true;
    ownership_unref(ownership);
}

struct coordinator_call ownership_call(struct ownership *ownership, coordinator_callback *callback, void *arg)
{
    return (struct coordinator_call){
        .inbox = ownership->inbox, .callback = callback, .arg = arg, .generation = ownership->generation};
}

/* ---- operations --------------------------------------------------------------------------------------- */

struct ownership_op *ownership_op_new(struct ownership *ownership, const char *topic, int32_t partition,
                                      uint64_t tag, ownership_callback *callback, void *arg)
{
    struct ownership_reply reply = {
        .tag = tag, .topic = topic, .partition = partition, .offset = -1, .version = -1};
    struct ownership_op *op = calloc(1, sizeof *op);
    if (!op) {
        reply.err = -BROOK_E_NOMEM;
        callback(arg, &reply);
        return NULL;
    }
    op->ownership = ownership;
    op->callback = callback;
    op->arg = arg;
    op->read = reply;
    path_owner(&op->owner, ownership->group, topic, partition);
    path_offset(&op->offset, ownership->group, topic, partition);
    path_group_owners(&op->owners, ownership->group, topic);
    ownership_ref(ownership);
    return op;
}

void ownership_op_end(struct ownership_op *op, int err)
{
    struct ownership *ownership = op->ownership;
    op->read.err = err;
    op->callback(op->arg, &op->read);
    free(op);
    ownership_unref(ownership);
}

bool ownership_op_is_over(struct ownership_op *op)
{
    struct ownership *ownership = op->ownership;
    if (!ownership->closed)
        return false;
    free(op);
    ownership_unref(ownership);
    return true;
}

int ownership_op_take_offset(struct ownership_op *op, const struct coordinator_reply *reply)
{
    int64_t offset;
    if (reply->data_bytes >= sizeof op->value ||
        znode_decode_offset(reply->data, reply->data_bytes, &offset, NULL) != 0)
        return -BROOK_E_BAD_ZNODE;
    memcpy(op->value, reply->data, reply->data_bytes);
    op->value_bytes = reply->data_bytes;
    op->read.offset = offset;
    op->read.version = reply->stat.version;
    return 0;
}

/* ---- release ------------------------------------------------------------------------------------------ */

static void on_released(void *arg, const struct coordinator_reply *reply)
{
    struct ownership_op *op = arg;
    if (!ownership_op_is_over(op))
        ownership_op_end(op, reply->err == -BROOK_E_NO_NODE ? 0 : reply->err);
}

void ownership_release(struct ownership *ownership, const char *topic, int32_t partition, uint64_t tag,
                       ownership_callback *callback, void *arg)
{
    struct ownership_op *op = ownership_op_new(ownership, topic, partition, tag, callback, arg);
    if (op)
        coordinator_delete_own(ownership->coordinator, op->owner.text,
                               ownership_call(ownership, on_released, op));
}

/* ---- verify: the offset first, then whose the owner node is ------------------------------------------- */

static void on_verify_owner(void *arg, const struct coordinator_reply *reply)
{
    struct ownership_op *op = arg;
    if (ownership_op_is_over(op))
        return;
    op->read.ours = !reply->err && reply->stat.ephemeral_owner == op->ownership->session_id;
    ownership_op_end(op, reply->err == -BROOK_E_NO_NODE ? 0 : reply->err);
}

static void on_verify_offset(void *arg, const struct coordinator_reply *reply)
{
    struct ownership_op *op = arg;
    if (ownership_op_is_over(op))
        return;
    if (reply->err == -BROOK_E_NO_NODE) {
        /* No offset node: whoever owned it, nothing can be committed. */
        ownership_op_end(op, 0);
        return;
    }
    int err = reply->err ? reply->err : ownership_op_take_offset(op, reply);
    if (err)
        ownership_op_end(op, err);
    else
        coordinator_exists(op->ownership->coordinator, op->owner.text,
                           ownership_call(op->ownership, on_verify_owner, op));
}

static void on_verify_sync(void *arg, const struct coordinator_reply *reply)
{
    struct ownership_op *op = arg;
    if (ownership_op_is_over(op))
        return;
    if (reply->err)
        ownership_op_end(op, reply->err);
    else
        coordinator_get(op->ownership->coordinator, op->offset.text,
                        ownership_call(op->ownership, on_verify_offset, op));
}

void ownership_verify(struct ownership *ownership, const char *topic, int32_t partition, uint64_t tag,
                      ownership_callback *callback, void *arg)
{
    struct ownership_op *op = ownership_op_new(ownership, topic, partition, tag, callback, arg);
    if (op)
        coordinator_sync(ownership->coordinator, op->offset.text,
                         ownership_call(ownership, on_verify_sync, op));
}

/* ---- watch -------------------------------------------------------------------------------------------- */

struct ownership_watch {
    struct observation *observation;
    int64_t session_id;
    ownership_watch_callback *callback;
    void *arg;
};

static void on_watched(void *arg, const struct coordinator_reply *reply)
{
    struct ownership_watch *watch = arg;
    bool exists = reply->err == 0;
    watch->callback(watch->arg, exists, exists && reply->stat.ephemeral_owner == watch->session_id);
}

struct ownership_watch *ownership_watch_new(struct ownership *ownership, const char *topic, int32_t partition,
                                            ownership_watch_callback *callback, void *arg)
{
    struct ownership_watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return NULL;
    *watch = (struct ownership_watch){.session_id = ownership->session_id, .callback = callback, .arg = arg};
    struct path path;
    path_owner(&path, ownership->group, topic, partition);
    watch->observation = coordinator_observe(ownership->coordinator, OBSERVE_DATA, path.text, 0,
                                             ownership->inbox, on_watched, watch);
    if (watch->observation)
        return watch;
    free(watch);
    return NULL;
}

void ownership_watch_free(struct ownership_watch *watch)
{
    if (!watch)
        return;
    observation_free(watch->observation);
    free(watch);
}
