/* ListOffsets: where logs begin and end, and which offset a time has. Lookups by time may read and expand a
 * batch: they go to a disk thread.
 */
#include "broker/handlers/handlers.h"

#include "broker/partition/partition.h"
#include "proto/base/cleanup.h"

#include <inttypes.h>

struct lookup {
    struct listing *listing;
    struct disk_work work;
    struct partition *partition; /* a reference while a disk thread looks */
    int64_t wanted;
    int64_t visible_end;
    bool is_end_known;
    size_t expanded_bytes_max;
    int32_t leader_epoch;
    int64_t offset;
    int64_t timestamp;
    struct brook_error error;
};

struct listing {
    struct request *request;
    uint32_t count;
    uint32_t pending;
    struct lookup lookups[];
};

static int fill(struct request *r, const struct lookup *l, Brook__ListedOffset *out)
{
    brook__listed_offset__init(out);
    if (l->error.code) {
        out->status = request_status(r, &l->error);
        return out->status ? 0 : -BROOK_E_NOMEM;
    }
    out->has_offset = out->has_timestamp = out->has_leader_epoch = true;
    out->offset = l->offset;
    out->timestamp = l->timestamp;
    out->leader_epoch = l->leader_epoch;
    return 0;
}

static void finish(struct listing *listing)
{
    struct request *r = listing->request;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__ListOffsetsResponse body = BROOK__LIST_OFFSETS_RESPONSE__INIT;
    Brook__ListedOffset *parts = request_reply_alloc(r, listing->count * sizeof parts[0]);
    body.partitions = request_reply_alloc(r, listing->count * sizeof body.partitions[0]);
    int e = parts && body.partitions ? 0 : -BROOK_E_NOMEM;
    for (uint32_t i = 0; i < listing->count && e == 0; i++) {
        e = fill(r, &listing->lookups[i], &parts[i]);
        body.partitions[i] = &parts[i];
    }
    if (e < 0) {
        request_fail(r, BROOK_E_NOMEM, "out of memory for the answer");
        return;
    }
    body.n_partitions = listing->count;
    response.body_case = BROOK__RESPONSE__BODY_LIST_OFFSETS;
    response.list_offsets = &body;
    request_reply(r, &response, NULL, 0);
}

static void one_is_done(struct listing *listing)
{
    if (--listing->pending == 0)
        finish(listing);
}

static void say_end_unknown(struct brook_error *error, const char *topic, int32_t partition)
{
    brook_error_set(error, BROOK_E_OFFSET_NOT_AVAILABLE,
                    "partition %s/%d: the leader is new and does not know yet how far records are safe", topic, partition);
}

/* ---- on a disk thread ---------------------------------------------------------------------------------- */

static void find_time(struct disk_work *work)
{
    struct lookup *l = CONTAINER_OF(work, struct lookup, work);
    int r = log_find_time(partition_log(l->partition), l->wanted, l->visible_end, l->expanded_bytes_max,
                          &l->offset, &l->timestamp);
    if (r == -BROOK_E_NOT_FOUND && !l->is_end_known) { /* it may be behind it, and consumers may have seen it */
        say_end_unknown(&l->error, partition_topic(l->partition), partition_number(l->partition));
    } else if (r == -BROOK_E_NOT_FOUND) {
        l->offset = l->visible_end;
        l->timestamp = -1;
    } else if (r < 0) {
        brook_error_set(&l->error, r, "partition %s/%d: can not look for time %" PRId64 ": %s",
                        partition_topic(l->partition), partition_number(l->partition), l->wanted,
                        brook_error_text(r));
    }
}

static void time_found(struct disk_work *work)
{
    struct lookup *l = CONTAINER_OF(work, struct lookup, work);
    partition_unref(TAKE(l->partition));
    one_is_done(l->listing);
}

/* ---- the request --------------------------------------------------------------------------------------- */

static void look(struct request *r, struct lookup *l, const Brook__ListOffsetsPartition *entry)
{
    const struct view_topic *topic;
    struct partition *p;
    struct partition_marks marks;
    if (request_find_led(r->loop, &entry->topic_id, entry->partition, entry->current_epoch, &topic, &p,
                         &l->error) < 0)
        return;
    partition_marks(p, &marks);
    l->leader_epoch = marks.leader_epoch;
    l->timestamp = -1;
    switch ((int)entry->query) {
    case BROOK__OFFSET_QUERY__EARLIEST:
        l->offset = marks.log_start;
        break;
    case BROOK__OFFSET_QUERY__LATEST:
        if (!marks.is_end_known)
            say_end_unknown(&l->error, topic->name, entry->partition);
        l->offset = marks.visible_end;
        break;
    case BROOK__OFFSET_QUERY__BY_TIME:
        l->partition = partition_ref(p);
        l->wanted = entry->timestamp;
        l->visible_end = marks.visible_end;
        l->is_end_known = marks.is_end_known;
        l->expanded_bytes_max = r->loop->settings->expanded_bytes_max;
        l->work = (struct disk_work){.run = find_time, .done = time_found};
        l->listing->pending++;
        r->loop->ops->submit(r->loop, &l->work);
        break;
    default:
        brook_error_set(&l->error, BROOK_E_UNSUPPORTED, "this broker does not know offset query %d",
                        (int)entry->query);
    }
}

void handle_list_offsets(struct request *r)
{
    const Brook__ListOffsetsRequest *asked = r->message->list_offsets;
    if (request_refuse_many(r, asked->n_partitions))
        return;
    struct listing *listing = request_alloc(r, sizeof *listing + asked->n_partitions * sizeof(struct lookup));
    if (!listing) {
        request_fail(r, BROOK_E_NOMEM, "out of memory for %zu partitions", asked->n_partitions);
        return;
    }
    listing->request = r;
    listing->count = (uint32_t)asked->n_partitions;
    listing->pending = 1; /* our own, so that the end comes once */
    for (uint32_t i = 0; i < listing->count; i++) {
        listing->lookups[i].listing = listing;
        look(r, &listing->lookups[i], asked->partitions[i]);
    }
    one_is_done(listing);
}
