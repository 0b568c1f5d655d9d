/* DeleteRecords: a partition's start offset rises. It is written to the disk before it is answered, so a disk thread
 * does it; a request's partitions one after the other. Then the answer waits until the other replicas in sync have
 * done the same: whoever leads next must not show again what was deleted.
 */
#include "broker/handlers/handlers.h"

#include "broker/partition/partition.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"

#include <inttypes.h>

struct entry {
    struct deletion *deletion;
    struct partition *partition; /* a reference until it is done; NULL: refused */
    int32_t leader_epoch;
    struct partition_waiter waiter;
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
    uint32_t pending; /* entries that wait for other replicas, and one while they are looked at */
    bool is_time;
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

/* ---- the other replicas -------------------------------------------------------------------------------- */

static void one_is_done(struct deletion *d)
{
    if (--d->pending == 0)
        finish(d);
}

/* Deleted here, but not everywhere. To delete up to an offset again does no harm; "all there is" would take what came
 * meanwhile. */
static void fail_half_way(struct entry *e, int code, const char *why)
{
    brook_error_set(&e->error, e->before < 0 ? BROOK_E_OUTCOME_UNKNOWN : code,
                    "partition %s/%d: records below %" PRId64 " are deleted at the leader, but %s",
                    partition_topic(e->partition), partition_number(e->partition), e->start, why);
}

/* Returns whether nothing is left to wait for; if that is a failure, the entry says so. */
static bool is_replicated(struct entry *e)
{
    struct partition_marks marks;
    partition_marks(e->partition, &marks);
    if (!marks.is_leader || marks.leader_epoch != e->leader_epoch)
        fail_half_way(e, BROOK_E_NOT_LEADER, "another one came before all replicas in sync had done the same");
    else if (marks.replicated_start < e->start && !e->deletion->is_time)
        return false;
    else if (marks.replicated_start < e->start)
        fail_half_way(e, BROOK_E_TIMED_OUT, "not yet at all replicas in sync");
    return true;
}

/* Look again, or wait for the replicas. */
static void wait_for_replicas(struct entry *e)
{
    while (!is_replicated(e))
        if (partition_wait(e->partition, &e->waiter))
            return;
    partition_unref(TAKE(e->partition));
    one_is_done(e->deletion);
}

static void on_moved(struct partition_waiter *w)
{
    wait_for_replicas(CONTAINER_OF(w, struct entry, waiter));
}

static void on_time(struct request *r)
{
    struct deletion *d = r->state;
    uint32_t count = d->count;
    d->is_time = true;
    d->pending++;
    for (uint32_t i = 0; i < count; i++) {
        struct entry *e = &d->entries[i];
        if (!e->partition)
            continue;
        partition_unwait(e->partition, &e->waiter);
        e->waiter.wake = on_moved;
        if (!e->waiter.posted) /* else it is about to look again */
            wait_for_replicas(e);
    }
    one_is_done(d);
}

static void set_deadline(struct deletion *d)
{
    struct request *r = d->request;
    int64_t longest_ns = (int64_t)r->loop->settings->request_timeout_ms_max * 1000000;
    int64_t now_ns = clock_boot_ns(), left_ns = d->expires_ns ? d->expires_ns - now_ns : longest_ns;
    if (left_ns > longest_ns)
        left_ns = longest_ns;
    r->state = d;
    r->on_deadline = on_time;
    request_set_deadline(r, now_ns + left_ns / 10 * 9); /* the answer has a way to go, too */
}

static void deleted(struct disk_work *work)
{
    struct deletion *d = CONTAINER_OF(work, struct deletion, work);
    d->pending = 1;
    set_deadline(d);
    for (uint32_t i = 0; i < d->count; i++) {
        struct entry *e = &d->entries[i];
        if (!e->partition)
            continue;
        e->waiter = (struct partition_waiter){.offset = e->start - 1,
                                              .end = PARTITION_REPLICATED_START,
                                              .inbox = d->request->loop->inbox,
                                              .wake = on_moved};
        d->pending++;
        if (d->validate_only || e->error.code) {
            partition_unref(TAKE(e->partition));
            d->pending--;
        } else {
            wait_for_replicas(e);
        }
    }
    one_is_done(d);
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
    partition_is_leader(p, &e->leader_epoch);
    e->partition = partition_ref(p);
}

void handle_delete_records(struct request *r)
{
    const Brook__DeleteRecordsRequest *asked = r->message->delete_records;
    if (request_refuse_many(r, asked->n_partitions))
        return;
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
    for (uint32_t i = 0; i < d->count; i++) {
        d->entries[i].deletion = d;
        look(r, &d->entries[i], asked->partitions[i]);
    }
    r->loop->ops->submit(r->loop, &d->work);
}
