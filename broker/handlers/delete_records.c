/* DeleteRecords: a partition's start offset rises. It is written to the disk before it is answered, so a disk thread
 * does it; a request's partitions one after the other.
 */
#include "broker/handlers/handlers.h"

#include "broker/partition/partition.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"

struct entry {
    struct partition *partition; /* a reference until it is done; NULL: refused */
    int64_t before;
    int64_t start;
    struct brook_error error;
};

struct deletion {
    struct request *request;
    struct disk_work work;
    bool validate_only;
    int64_t expires_ns; /* the client has given up then. 0: never */
    uint32_t count;
    struct entry entries[];
};

static int fill(struct request *r, const struct entry *e, Brook__DeletedRecords *out)
{
    brook__deleted_records__init(out);
    if (e->error.code) {
        out->status = request_status(r, &e->error);
        return out->status ? 0 : -BROOK_E_NOMEM;
    }
    out->has_log_start_offset = true;
    out->log_start_offset = e->start;
    return 0;
}

static void finish(struct deletion *d)
{
    struct request *r = d->request;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__DeleteRecordsResponse body = BROOK__DELETE_RECORDS_RESPONSE__INIT;
    Brook__DeletedRecords *parts = request_reply_alloc(r, (d->count + 1) * sizeof parts[0]);
    body.partitions = request_reply_alloc(r, (d->count + 1) * sizeof body.partitions[0]);
    int e = parts && body.partitions ? 0 : -BROOK_E_NOMEM;
    for (uint32_t i = 0; i < d->count && e == 0; i++) {
        e = fill(r, &d->entries[i], &parts[i]);
        body.partitions[i] = &parts[i];
    }
    if (e < 0) {
        request_fail(r, BROOK_E_OUTCOME_UNKNOWN, "no memory for the answer that says what was deleted");
        return;
    }
    body.n_partitions = d->count;
    response.body_case = BROOK__RESPONSE__BODY_DELETE_RECORDS;
    response.delete_records = &body;
    request_reply(r, &response, NULL, 0);
}

/* ---- on a disk thread ---------------------------------------------------------------------------------- */

static void delete_all(struct disk_work *work)
{
    struct deletion *d = CONTAINER_OF(work, struct deletion, work);
    for (uint32_t i = 0; i < d->count; i++) {
        struct entry *e = &d->entries[i];
        if (e->partition && d->expires_ns && clock_boot_ns() > d->expires_ns)
            brook_error_set(&e->error, BROOK_E_REQUEST_EXPIRED, "partition %s/%d: nothing was deleted, time was up",
                            partition_topic(e->partition), partition_number(e->partition));
        else if (e->partition)
            partition_delete_records(e->partition, e->before, d->validate_only, &e->start, &e->error);
    }
}

static void deleted(struct disk_work *work)
{
    struct deletion *d = CONTAINER_OF(work, struct deletion, work);
    for (uint32_t i = 0; i < d->count; i++)
        partition_unref(TAKE(d->entries[i].partition));
    finish(d);
}

/* ---- the request --------------------------------------------------------------------------------------- */

static void look(struct request *r, struct entry *e, const Brook__DeleteRecordsPartition *asked)
{
    const struct view_topic *topic;
    struct partition *p;
    if (request_find_led(r->loop, &asked->topic_id, asked->partition, asked->current_epoch, &topic, &p,
                         &e->error))
        return;
    if (!asked->has_before_offset) {
        brook_error_set(&e->error, BROOK_E_INVALID, "partition %s/%d: no offset is given to delete up to",
                        topic->name, asked->partition);
        return;
    }
    e->before = asked->before_offset;
    e->partition = partition_ref(p);
}

void handle_delete_records(struct request *r)
{
    const Brook__DeleteRecordsRequest *asked = r->message->delete_records;
    uint32_t most = r->loop->settings->partitions_per_request_max;
    if (asked->n_partitions > most) {
        request_fail(r, BROOK_E_TOO_MANY, "%zu partitions in one request, at most %u are allowed",
                     asked->n_partitions, most);
        return;
    }
    struct deletion *d = request_alloc(r, sizeof *d + asked->n_partitions * sizeof(struct entry));
    if (!d) {
        request_fail(r, BROOK_E_NOMEM, "out of memory for %zu partitions", asked->n_partitions);
        return;
    }
    d->request = r;
    d->validate_only = asked->validate_only;
    d->expires_ns = r->expires_ns;
    d->count = (uint32_t)asked->n_partitions;
    d->work = (struct disk_work){.run = delete_all, .done = deleted};
    for (uint32_t i = 0; i < d->count; i++)
        look(r, &d->entries[i], asked->partitions[i]);
    r->loop->ops->submit(r->loop, &d->work);
}
