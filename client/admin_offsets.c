/* Offsets, and the deletion of records. */
#include "client/admin_leaders.h"
#include "proto/base/cleanup.h"
#include "proto/wire/envelope.h"

#include <stdlib.h>

/* What is asked; each position is replaced by its answer. */
struct offsets {
    struct brook_position *positions;
    const int64_t *timestamps;
    bool validate_only;
    int64_t *answers;
};

/* ---- offsets ---------------------------------------------------------------------------------------- */

static void fill_listed(void *arg, size_t place, const struct metadata_topic *topic, union leaders_entry *entry)
{
    const struct offsets *o = arg;
    const struct brook_position *at = &o->positions[place];
    Brook__ListOffsetsPartition *to = &entry->listed;
    brook__list_offsets_partition__init(to);
    to->has_topic_id = to->has_partition = to->has_query = 1;
    to->topic_id = envelope_bytes(topic->topic_id, sizeof topic->topic_id);
    to->partition = at->partition;
    to->query =
        at->offset == BROOK_OFFSET_EARLIEST ? BROOK__OFFSET_QUERY__EARLIEST : BROOK__OFFSET_QUERY__LATEST;
    if (o->timestamps) {
        to->query = BROOK__OFFSET_QUERY__BY_TIME;
        to->has_timestamp = 1;
        to->timestamp = o->timestamps[place];
    }
}

static void wrap_listed(void *arg, void *entries, size_t count, union leaders_body *body, Brook__Request *request)
{
    (void)arg;
    brook__list_offsets_request__init(&body->listing);
    body->listing.n_partitions = count;
    body->listing.partitions = entries;
    request->body_case = BROOK__REQUEST__BODY_LIST_OFFSETS;
    request->list_offsets = &body->listing;
}

static int64_t count_listed(const Brook__Response *response)
{
    return response->body_case == BROOK__RESPONSE__BODY_LIST_OFFSETS ? (int64_t)response->list_offsets->n_partitions
                                                                     : -1;
}

static const Brook__Status *take_listed(void *arg, size_t place, const Brook__Response *response, size_t index)
{
    const Brook__ListedOffset *listed = response->list_offsets->partitions[index];
    ((struct offsets *)arg)->answers[place] = listed->offset;
    return listed->status;
}

static const struct leaders_kind listing = {fill_listed, wrap_listed, count_listed, take_listed, NULL};

/* ---- deletion of records ---------------------------------------------------------------------------- */

static void fill_deleted(void *arg, size_t place, const struct metadata_topic *topic, union leaders_entry *entry)
{
    const struct brook_position *at = &((struct offsets *)arg)->positions[place];
    Brook__DeleteRecordsPartition *to = &entry->deleted;
    brook__delete_records_partition__init(to);
    to->has_topic_id = to->has_partition = to->has_before_offset = 1;
    to->topic_id = envelope_bytes(topic->topic_id, sizeof topic->topic_id);
    to->partition = at->partition;
    to->before_offset = at->offset == BROOK_OFFSET_LATEST ? -1 : at->offset;
}

static void wrap_deleted(void *arg, void *entries, size_t count, union leaders_body *body, Brook__Request *request)
{
    const struct offsets *o = arg;
    brook__delete_records_request__init(&body->deletion);
    body->deletion.n_partitions = count;
    body->deletion.partitions = entries;
    body->deletion.has_validate_only = 1;
    body->deletion.validate_only = o->validate_only;
    request->body_case = BROOK__REQUEST__BODY_DELETE_RECORDS;
    request->delete_records = &body->deletion;
}

static int64_t count_deleted(const Brook__Response *response)
{
    return response->body_case == BROOK__RESPONSE__BODY_DELETE_RECORDS
               ? (int64_t)response->delete_records->n_partitions
               : -1;
}

static const Brook__Status *take_deleted(void *arg, size_t place, const Brook__Response *response, size_t index)
{
    const Brook__DeletedRecords *deleted = response->delete_records->partitions[index];
    ((struct offsets *)arg)->answers[place] = deleted->log_start_offset;
    return deleted->status;
}

/* Deleting up to an offset twice does no harm. Deleting everything again would take what came meanwhile: whether it
 * was done stays open. */
static bool is_once(void *arg, size_t place)
{
    const struct offsets *o = arg;
    return !o->validate_only && o->positions[place].offset == BROOK_OFFSET_LATEST;
}

static const struct leaders_kind deletion = {fill_deleted, wrap_deleted, count_deleted, take_deleted, is_once};

/* ---- both ------------------------------------------------------------------------------------------- */

static int run(brook_admin *admin, const struct leaders_kind *kind, struct offsets *o, size_t count, int timeout_ms,
               struct brook_error *error)
{
    AUTO_FREE struct leaders_partition *partitions = calloc(count, sizeof *partitions);
    AUTO_FREE int64_t *answers = calloc(count, sizeof *answers);
    if (!partitions || !answers)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    for (size_t i = 0; i < count; i++) {
        partitions[i].topic = o->positions[i].topic;
        partitions[i].partition = o->positions[i].partition;
    }
    o->answers = answers;
    int r = leaders_ask(admin, kind, o, partitions, count, true, timeout_ms, error);
    for (size_t i = 0; i < count; i++) {
        bool known = partitions[i].state == LEADERS_DONE && !partitions[i].error.code;
        o->positions[i].offset = known ? answers[i] : BROOK_OFFSET_NONE;
    }
    return r;
}

static int check_positions(const struct brook_position *positions, size_t count, struct brook_error *error)
{
    int r = 0;
    for (size_t i = 0; i < count && r == 0; i++)
        r = leaders_check(positions[i].topic, positions[i].partition, error);
    return r;
}

int brook_admin_list_offsets(brook_admin *admin, struct brook_position *positions, const int64_t *timestamps,
                             size_t count, int timeout_ms, struct brook_error *error)
{
    int r = check_positions(positions, count, error);
    if (r < 0 || count == 0)
        return r;
    struct offsets o = {.positions = positions, .timestamps = timestamps};
    return run(admin, &listing, &o, count, timeout_ms, error);
}

int brook_admin_delete_records(brook_admin *admin, struct brook_position *positions, size_t count,
                               bool validate_only, int timeout_ms, struct brook_error *error)
{
    int r = check_positions(positions, count, error);
    for (size_t i = 0; r == 0 && i < count; i++)
        if (positions[i].offset < 0 && positions[i].offset != BROOK_OFFSET_LATEST)
            r = brook_error_set(error, BROOK_E_INVALID, "%s/%d: records can not be deleted up to offset %lld",
                                positions[i].topic, positions[i].partition, (long long)positions[i].offset);
    if (r < 0 || count == 0)
        return r;
    struct offsets o = {.positions = positions, .validate_only = validate_only};
    return run(admin, &deletion, &o, count, timeout_ms, error);
}
