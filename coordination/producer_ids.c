#include "coordination/producer_ids.h"

#include "coordination/coordinator.h"
#include "coordination/paths.h"
#include "coordination/znodes.h"
#include "proto/base/cleanup.h"

#include <stdlib.h>
#include <string.h>

struct waiting {
    struct waiting *next;
    producer_id_callback *callback;
    void *arg;
};

struct producer_ids {
    struct coordinator *coordinator;
    struct inbox *inbox;
    int32_t broker_id;
    int64_t next, end;           /* the block in use */
    int64_t spare_next, spare_end; /* the one after it; empty: none */
    int64_t asked_next;          /* the block that is being taken */
    bool is_asking;
    struct waiting *first, **tail;
    size_t waiting_count;
};

int producer_ids_new(struct coordinator *coordinator, struct inbox *inbox, int32_t broker_id,
                     struct producer_ids **ret_ids)
{
    struct producer_ids *ids = calloc(1, sizeof *ids);
    if (!ids)
        return -BROOK_E_NOMEM;
    ids->coordinator = coordinator;
    ids->inbox = inbox;
    ids->broker_id = broker_id;
    ids->tail = &ids->first;
    *ret_ids = ids;
    return 0;
}

static struct waiting *pop(struct producer_ids *ids)
{
    struct waiting *w = ids->first;
    if (!w)
        return NULL;
    if (!(ids->first = w->next))
        ids->tail = &ids->first;
    ids->waiting_count--;
    return w;
}

void producer_ids_free(struct producer_ids *ids)
{
    if (!ids)
        return;
    for (struct waiting *w; (w = pop(ids));)
        free(w);
    free(ids);
}

/* ---- taking a block --------------------------------------------------------------------------------- */

static void look(struct producer_ids *ids);

static struct coordinator_call call_of(struct producer_ids *ids, coordinator_callback *callback)
{
    return (struct coordinator_call){.inbox = ids->inbox, .callback = callback, .arg = ids};
}

static bool take_from_block(struct producer_ids *ids, int64_t *ret)
{
    if (ids->next == ids->end) {
        ids->next = ids->spare_next;
        ids->end = ids->spare_end;
        ids->spare_next = ids->spare_end = 0;
    }
    if (ids->next == ids->end)
        return false;
    *ret = ids->next++;
    return true;
}

static void answer(struct waiting *w, int err, int64_t id)
{
    struct waiting taken = *w;
    free(w);
    taken.callback(taken.arg, err, id);
}

static void finish(struct producer_ids *ids, int err)
{
    int64_t id = -1;
    ids->is_asking = false;
    if (err) {
        for (size_t n = ids->waiting_count; n > 0; n--)
            answer(pop(ids), err, -1);
        return;
    }
    while (ids->first && take_from_block(ids, &id))
        answer(pop(ids), 0, id);
    if (ids->first && !ids->is_asking)
        look(ids);
}

static void written(void *arg, const struct coordinator_reply *reply)
{
    struct producer_ids *ids = arg;
    switch (reply->err) {
    case 0:
        ids->spare_next = ids->asked_next;
        ids->spare_end = ids->asked_next + PRODUCER_IDS_PER_BLOCK;
        finish(ids, 0);
        break;
    case -BROOK_E_BAD_VERSION: /* somebody else was first */
    case -BROOK_E_NODE_EXISTS:
    case -BROOK_E_NO_NODE:
    case -BROOK_E_OUTCOME_UNKNOWN: /* the block may be ours, or somebody else's by now: nobody uses it */
    case -BROOK_E_SESSION_EXPIRED:
        look(ids);
        break;
    default:
        finish(ids, reply->err);
    }
}

static void take_block(struct producer_ids *ids, int64_t first, int32_t version)
{
    if (first > INT64_MAX - PRODUCER_IDS_PER_BLOCK) {
        finish(ids, -BROOK_E_BAD_ZNODE);
        return;
    }
    ids->asked_next = first;
    AUTO_FREE char *node = znode_encode_producer_block(ids->broker_id, first, first + PRODUCER_IDS_PER_BLOCK - 1);
    if (!node)
        finish(ids, -BROOK_E_NOMEM);
    else if (version < 0)
        coordinator_create_path(ids->coordinator, PATH_PRODUCER_ID_BLOCK, node, strlen(node),
                                call_of(ids, written));
    else
        coordinator_set(ids->coordinator, PATH_PRODUCER_ID_BLOCK, node, strlen(node), version,
                        call_of(ids, written));
}

static void read_block(void *arg, const struct coordinator_reply *reply)
{
    struct producer_ids *ids = arg;
    int64_t last;
    if (reply->err == -BROOK_E_NO_NODE) {
        take_block(ids, 0, -1);
        return;
    }
    int r = reply->err ? reply->err
                       : znode_decode_producer_block(reply->data, reply->data_bytes, &last, NULL);
    if (r < 0)
        finish(ids, r);
    else
        take_block(ids, last < INT64_MAX ? last + 1 : last, reply->stat.version);
}

static void synced(void *arg, const struct coordinator_reply *reply)
{
    struct producer_ids *ids = arg;
    if (reply->err)
        finish(ids, reply->err);
    else
        coordinator_get(ids->coordinator, PATH_PRODUCER_ID_BLOCK, call_of(ids, read_block));
}

/* Behind a sync, so that a write whose outcome is not known is seen if it was carried out. */
static void look(struct producer_ids *ids)
{
    ids->is_asking = true;
    coordinator_sync(ids->coordinator, PATH_PRODUCER_ID_BLOCK, call_of(ids, synced));
}

/* ---- giving out ------------------------------------------------------------------------------------- */

static bool is_low(const struct producer_ids *ids)
{
    return ids->end - ids->next <= PRODUCER_IDS_LOW && ids->spare_next == ids->spare_end;
}

void producer_ids_prepare(struct producer_ids *ids)
{
    if (is_low(ids) && !ids->is_asking)
        look(ids);
}

void producer_ids_take(struct producer_ids *ids, producer_id_callback *callback, void *arg)
{
    int64_t id;
    if (!ids->first && take_from_block(ids, &id)) {
        producer_ids_prepare(ids);
        callback(arg, 0, id);
        return;
    }
    struct waiting *w = ids->waiting_count < PRODUCER_IDS_WAITING_MAX ? calloc(1, sizeof *w) : NULL;
    if (!w) {
        callback(arg, ids->waiting_count < PRODUCER_IDS_WAITING_MAX ? -BROOK_E_NOMEM : -BROOK_E_BUSY, -1);
        return;
    }
    w->callback = callback;
    w->arg = arg;
    *ids->tail = w;
    ids->tail = &w->next;
    ids->waiting_count++;
    if (!ids->is_asking)
        look(ids);
}
