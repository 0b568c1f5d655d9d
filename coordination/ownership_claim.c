/* A claim is a walk over these answers; every arrow back to `read` reads the offset node again:
 *
 *     read --no node--> make it --> read
 *     read --value, version--> multi {create owner, set offset}
 *         done       -> claimed
 *         the offset's version moved, a folder was missing -> read
 *         the owner node is there -> look whose: gone -> read; another session's -> refused
 *                                    ours -> multi {set owner, set offset}: done -> claimed, else -> read
 *         no answer  -> sync -> read (if it was carried out, the owner node is found to be ours)
 */
#include "coordination/ownership_private.h"

#include "proto/base/err.h"

#include <string.h>

static void claim_read(struct ownership_op *op);

/* Whether an answer leaves it open if the request was carried out, in a session that lives. */
static bool is_unknown(int err)
{
    return err == -BROOK_E_OUTCOME_UNKNOWN || err == -BROOK_E_TIMED_OUT;
}

static void on_synced(void *arg, const struct coordinator_reply *reply)
{
    struct ownership_op *op = arg;
    if (ownership_op_is_over(op))
        return;
    if (reply->err)
        ownership_op_end(op, is_unknown(reply->err) ? -BROOK_E_OUTCOME_UNKNOWN : reply->err);
    else
        claim_read(op);
}

static void claim_sync(struct ownership_op *op)
{
    coordinator_sync(op->ownership->coordinator, op->owner.text,
                     ownership_call(op->ownership, on_synced, op));
}

/* What both multis may answer besides success. */
static void claim_again(struct ownership_op *op, int err)
{
    if (is_unknown(err))
        claim_sync(op);
    else if (err == -BROOK_E_BAD_VERSION || err == -BROOK_E_NO_NODE)
        claim_read(op);
    else
        ownership_op_end(op, err);
}

static void claim_won(struct ownership_op *op, const struct coordinator_reply *reply)
{
    op->read.version = reply->op_stats[1].version;
    op->read.ours = true;
    ownership_op_end(op, 0);
}

static void on_resumed(void *arg, const struct coordinator_reply *reply)
{
    struct ownership_op *op = arg;
    if (ownership_op_is_over(op))
        return;
    if (reply->err)
        claim_again(op, reply->err);
    else
        claim_won(op, reply);
}

/* The owner node is this session's: from an attempt whose answer was lost, or the session was taken up again.
 * Moving the offset's version voids whatever the earlier owner (us) may still have under way. */
static void claim_resume(struct ownership_op *op)
{
    struct ownership *ownership = op->ownership;
    struct coordinator_multi *multi = coordinator_multi_new();
    if (!multi) {
        ownership_op_end(op, -BROOK_E_NOMEM);
        return;
    }
    coordinator_multi_set(multi, op->owner.text, ownership->member, strlen(ownership->member), -1);
    coordinator_multi_set(multi, op->offset.text, op->value, op->value_bytes, op->read.version);
    coordinator_multi_send(ownership->coordinator, &multi, ownership_call(ownership, on_resumed, op));
}

static void on_owner(void *arg, const struct coordinator_reply *reply)
{
    struct ownership_op *op = arg;
    if (ownership_op_is_over(op))
        return;
    if (reply->err)
        claim_again(op, reply->err);
    else if (reply->stat.ephemeral_owner == op->ownership->session_id)
        claim_resume(op);
    else
        ownership_op_end(op, -BROOK_E_NODE_EXISTS);
}

static void on_folder(void *arg, const struct coordinator_reply *reply)
{
    struct ownership_op *op = arg;
    if (ownership_op_is_over(op))
        return;
    if (reply->err == 0 || reply->err == -BROOK_E_NODE_EXISTS)
        claim_read(op);
    else
        claim_again(op, reply->err);
}

static void on_claimed(void *arg, const struct coordinator_reply *reply)
{
    struct ownership_op *op = arg;
    if (ownership_op_is_over(op))
        return;
    struct ownership *ownership = op->ownership;
    if (reply->err == 0)
        claim_won(op, reply);
    else if (reply->err == -BROOK_E_NODE_EXISTS)
        coordinator_exists(ownership->coordinator, op->owner.text, ownership_call(ownership, on_owner, op));
    else if (reply->err == -BROOK_E_NO_NODE && reply->failed_op == 0)
        coordinator_create_path(ownership->coordinator, op->owners.text, "", 0,
                                ownership_call(ownership, on_folder, op));
    else
        claim_again(op, reply->err);
}

static void claim_take(struct ownership_op *op)
{
    struct ownership *ownership = op->ownership;
    struct coordinator_multi *multi = coordinator_multi_new();
    if (!multi) {
        ownership_op_end(op, -BROOK_E_NOMEM);
        return;
    }
    coordinator_multi_create(multi, op->owner.text, ownership->member, strlen(ownership->member),
                             ZNODE_EPHEMERAL);
    coordinator_multi_set(multi, op->offset.text, op->value, op->value_bytes, op->read.version);
    coordinator_multi_send(ownership->coordinator, &multi, ownership_call(ownership, on_claimed, op));
}

static void on_offset(void *arg, const struct coordinator_reply *reply)
{
    struct ownership_op *op = arg;
    if (ownership_op_is_over(op))
        return;
    if (reply->err == -BROOK_E_NO_NODE) {
        coordinator_create_path(op->ownership->coordinator, op->offset.text, "", 0,
                                ownership_call(op->ownership, on_folder, op));
        return;
    }
    int err = reply->err ? reply->err : ownership_op_take_offset(op, reply);
    if (err)
        ownership_op_end(op, err);
    else
        claim_take(op);
}

static void claim_read(struct ownership_op *op)
{
    coordinator_get(op->ownership->coordinator, op->offset.text,
                    ownership_call(op->ownership, on_offset, op));
}

void ownership_claim(struct ownership *ownership, const char *topic, int32_t partition, uint64_t tag,
                     ownership_callback *callback, void *arg)
{
    struct ownership_op *op = ownership_op_new(ownership, topic, partition, tag, callback, arg);
    if (op)
        claim_read(op);
}
