#include "coordination/offsets_private.h"

#include "coordination/coordinator.h"
#include "coordination/paths.h"
#include "proto/base/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A write whose nodes vanish again and again (a sweeper, a topic being deleted) is given back. */
#define PATH_TRIES_MAX 4

/* One multi under way. */
struct batch {
    struct offsets *offsets;
    size_t count;
    struct offsets_write *writes[OFFSETS_PER_MULTI];
};

/* Ops of a multi in front of, and per, its writes. */
static size_t ops_before(const struct offsets_commit *commit)
{
    return commit->member ? 1 : 0;
}

static size_t ops_per_write(const struct offsets_commit *commit)
{
    return commit->member ? 1 : 3;
}

static bool same_client(const struct offsets_commit *a, const struct offsets_commit *b)
{
    if (a == b)
        return true;
    if (strcmp(a->group, b->group) != 0 || !a->member != !b->member)
        return false;
    return !a->member || strcmp(a->member, b->member) == 0;
}

/* ---- out ---------------------------------------------------------------------------------------------- */

static void add_ops(struct coordinator_multi *multi, const struct offsets_write *write)
{
    const struct offsets_commit *commit = write->commit;
    const struct offsets_entry *entry = &write->entry;
    struct path owner, offset;
    char text[24] = "";
    int bytes = entry->offset < 0 ? 0 : snprintf(text, sizeof text, "%" PRId64, entry->offset);
    path_offset(&offset, commit->group, entry->topic, entry->partition);
    if (commit->member) {
        coordinator_multi_set(multi, offset.text, text, (size_t)bytes, entry->expected_version);
        return;
    }
    path_owner(&owner, commit->group, entry->topic, entry->partition);
    coordinator_multi_create(multi, owner.text, "", 0, ZNODE_EPHEMERAL);
    coordinator_multi_set(multi, offset.text, text, (size_t)bytes, -1);
    coordinator_multi_delete(multi, owner.text, -1);
}

static struct coordinator_multi *make_multi(const struct batch *batch)
{
    const struct offsets_commit *commit = batch->writes[0]->commit;
    struct coordinator_multi *multi = coordinator_multi_new();
    if (!multi)
        return NULL;
    if (commit->member) {
        struct path member;
        path_group_member(&member, commit->group, commit->member);
        coordinator_multi_check(multi, member.text, -1);
    }
    for (size_t i = 0; i < batch->count; i++)
        add_ops(multi, batch->writes[i]);
    return multi;
}

/* ---- back --------------------------------------------------------------------------------------------- */

static void make_nodes(struct offsets_write *write);

static void again_alone(struct offsets_write *write)
{
    write->alone = true;
    offsets_list_push(&write->commit->offsets->ready, write);
}

static int refusal(const struct offsets_commit *commit, int err)
{
    if (commit->member)
        return -BROOK_E_FENCED;
    return err == -BROOK_E_NODE_EXISTS ? -BROOK_E_OWNED : -BROOK_E_OUTCOME_UNKNOWN;
}

/* Whether ZooKeeper answered, and the answer was no. */
static bool is_refusal(int err)
{
    return err == -BROOK_E_NO_NODE || err == -BROOK_E_NODE_EXISTS || err == -BROOK_E_BAD_VERSION ||
           err == -BROOK_E_NOT_EMPTY;
}

/* The write at fault gets its answer; the others, which nothing is wrong with as far as is known, go
 * singly. */
static void batch_refused(struct batch *batch, int err, size_t failed_op)
{
    const struct offsets_commit *commit = batch->writes[0]->commit;
    bool member_gone = commit->member && failed_op == 0;
    size_t at_fault = member_gone ? 0 : (failed_op - ops_before(commit)) / ops_per_write(commit);
    for (size_t i = 0; i < batch->count; i++) {
        struct offsets_write *write = batch->writes[i];
        if (member_gone)
            offsets_write_end(write, -BROOK_E_STALE_MEMBER, -1);
        else if (i != at_fault)
            again_alone(write);
        else if (!write->commit->member && err == -BROOK_E_NO_NODE)
            make_nodes(write);
        else
            offsets_write_end(write, refusal(write->commit, err), -1);
    }
}

static void batch_done(struct batch *batch, const struct coordinator_reply *reply)
{
    const struct offsets_commit *commit = batch->writes[0]->commit;
    size_t before = ops_before(commit);
    size_t per_write = ops_per_write(commit);
    bool versioned = commit->member != NULL;
    for (size_t i = 0; i < batch->count; i++) {
        int32_t version = versioned ? reply->op_stats[before + i * per_write].version : -1;
        offsets_write_end(batch->writes[i], 0, version);
    }
}

static void batch_failed(struct batch *batch, int err)
{
    /* Our session is not the member's: its end says nothing about the write. */
    if (err == -BROOK_E_SESSION_EXPIRED)
        err = -BROOK_E_OUTCOME_UNKNOWN;
    for (size_t i = 0; i < batch->count; i++)
        offsets_write_end(batch->writes[i], err, -1);
}

static void on_batch(void *arg, const struct coordinator_reply *reply)
{
    struct batch *batch = arg;
    struct offsets *offsets = batch->offsets;
    offsets_ref(offsets);
    offsets->batches--;
    if (reply->err == 0)
        batch_done(batch, reply);
    else if (is_refusal(reply->err))
        batch_refused(batch, reply->err, reply->failed_op);
    else
        batch_failed(batch, reply->err);
    free(batch);
    offsets_pump(offsets);
    offsets_unref(offsets);
}

/* ---- nodes of simple consumers ------------------------------------------------------------------------ */

static void on_offset_node(void *arg, const struct coordinator_reply *reply)
{
    struct offsets_write *write = arg;
    struct offsets *offsets = write->commit->offsets;
    offsets_ref(offsets);
    if (reply->err == 0 || reply->err == -BROOK_E_NODE_EXISTS)
        again_alone(write);
    else
        offsets_write_end(write, reply->err, -1);
    offsets_pump(offsets);
    offsets_unref(offsets);
}

static void on_owners_node(void *arg, const struct coordinator_reply *reply)
{
    struct offsets_write *write = arg;
    struct offsets *offsets = write->commit->offsets;
    if (reply->err != 0 && reply->err != -BROOK_E_NODE_EXISTS) {
        on_offset_node(arg, reply);
        return;
    }
    struct path path;
    path_offset(&path, write->commit->group, write->entry.topic, write->entry.partition);
    struct coordinator_call call = {.inbox = offsets->inbox, .callback = on_offset_node, .arg = write};
    coordinator_create_path(offsets->coordinator, path.text, "", 0, call);
}

static void make_nodes(struct offsets_write *write)
{
    struct offsets *offsets = write->commit->offsets;
    if (++write->path_tries > PATH_TRIES_MAX || offsets->closed) {
        offsets_write_end(write, offsets->closed ? -BROOK_E_CLOSED : -BROOK_E_BUSY, -1);
        return;
    }
    struct path path;
    path_group_owners(&path, write->commit->group, write->entry.topic);
    struct coordinator_call call = {.inbox = offsets->inbox, .callback = on_owners_node, .arg = write};
    coordinator_create_path(offsets->coordinator, path.text, "", 0, call);
}

/* ---- the pump ----------------------------------------------------------------------------------------- */

/* Take what is first in line, and what stands directly behind it and fits. */
static void batch_fill(struct batch *batch)
{
    struct offsets_list *ready = &batch->offsets->ready;
    batch->writes[batch->count++] = offsets_list_pop(ready);
    const struct offsets_write *first = batch->writes[0];
    while (ready->head && !first->alone && !ready->head->alone && batch->count < OFFSETS_PER_MULTI &&
           same_client(first->commit, ready->head->commit))
        batch->writes[batch->count++] = offsets_list_pop(ready);
}

static void batch_send(struct batch *batch)
{
    struct offsets *offsets = batch->offsets;
    struct coordinator_multi *multi = make_multi(batch);
    if (!multi) {
        batch_failed(batch, -BROOK_E_NOMEM);
        free(batch);
        return;
    }
    offsets->batches++;
    struct coordinator_call call = {.inbox = offsets->inbox, .callback = on_batch, .arg = batch};
    coordinator_multi_send(offsets->coordinator, &multi, call);
}

void offsets_pump(struct offsets *offsets)
{
    while (offsets->ready.head && offsets->closed)
        offsets_write_end(offsets_list_pop(&offsets->ready), -BROOK_E_CLOSED, -1);
    while (offsets->ready.head && offsets->batches < OFFSETS_BATCHES_MAX) {
        struct batch *batch = calloc(1, sizeof *batch);
        if (!batch) {
            offsets_write_end(offsets_list_pop(&offsets->ready), -BROOK_E_NOMEM, -1);
            continue;
        }
        batch->offsets = offsets;
        batch_fill(batch);
        batch_send(batch);
    }
}
