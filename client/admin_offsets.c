#include "client/admin_parts.h"
#include "proto/base/names.h"
#include "proto/wire/envelope.h"

#include <stdlib.h>
#include <string.h>

enum entry_state { ENTRY_WAITS, ENTRY_ASKED, ENTRY_DONE };

/* One position that is looked up. */
struct entry {
    enum entry_state state;
    int64_t offset;
    struct brook_error error;
};

/* What the leaders are asked: offsets, or to delete records. Lives on the heap: answers may come after the caller
 * has gone. [loop] */
struct lookup_offsets {
    int refs; /* the caller's and one per request on its way */
    brook_admin *admin;
    struct admin_question *question; /* NULL: the caller has gone */
    const struct brook_position *positions;
    const int64_t *timestamps;
    bool deletes; /* the records below `positions` */
    bool validate_only;
    size_t count;
    struct entry *entries;
};

/* A request to one leader: which entries it asked for. */
struct offsets_request {
    struct lookup_offsets *lookup;
    size_t count;
    size_t places[];
};

static void lookup_unref(struct lookup_offsets *l)
{
    if (--l->refs > 0)
        return;
    free(l->entries);
    free(l);
}

static void end_entry(struct entry *e, int64_t offset)
{
    e->state = ENTRY_DONE;
    e->offset = offset;
    e->error.code = 0;
}

/* Passing errors are tried again until time runs out; what stands in the error then is the answer. */
static void fail_entry(struct entry *e, int code, const char *topic, int32_t partition, const char *text)
{
    brook_error_set(&e->error, code, "%s/%d: %s", topic, partition, text);
    e->state = admin_is_passing(code) ? ENTRY_WAITS : ENTRY_DONE;
}

static void finish_if_done(struct lookup_offsets *l)
{
    const struct brook_error *first = NULL;
    if (l->admin->question != l->question)
        return; /* time was up */
    for (size_t i = 0; i < l->count; i++) {
        if (l->entries[i].state != ENTRY_DONE)
            return;
        if (l->entries[i].error.code && !first)
            first = &l->entries[i].error;
    }
    struct admin_question *q = l->question;
    l->question = NULL;
    admin_finish(l->admin, q, first ? -first->code : 0, first);
}

static void take_entry(struct lookup_offsets *l, size_t place, const Brook__Status *status, int64_t offset)
{
    struct brook_error error;
    const struct brook_position *at = &l->positions[place];
    if (envelope_status_read(status, &error) == 0)
        end_entry(&l->entries[place], offset);
    else
        fail_entry(&l->entries[place], error.code, at->topic, at->partition, error.text);
    if (l->entries[place].state == ENTRY_WAITS && brook_error_advice(error.code) == BROOK_ADVICE_REFRESH)
        metadata_refresh(client_metadata(l->admin->client));
}

/* Whether the response is of the kind that was asked for, with an answer for each. */
static bool fits(const struct lookup_offsets *l, const Brook__Response *response, size_t count)
{
    if (l->deletes)
        return response->body_case == BROOK__RESPONSE__BODY_DELETE_RECORDS &&
               response->delete_records->n_partitions == count;
    return response->body_case == BROOK__RESPONSE__BODY_LIST_OFFSETS &&
           response->list_offsets->n_partitions == count;
}

static void take_answer(struct lookup_offsets *l, size_t place, const Brook__Response *response, size_t index)
{
    if (l->deletes) {
        const Brook__DeletedRecords *deleted = response->delete_records->partitions[index];
        take_entry(l, place, deleted->status, deleted->log_start_offset);
    } else {
        const Brook__ListedOffset *listed = response->list_offsets->partitions[index];
        take_entry(l, place, listed->status, listed->offset);
    }
}

/* Reading twice does no harm, nor does deleting up to an offset. Deleting everything again would take what came
 * meanwhile: whether it was done stays open. */
static void take_failure(struct lookup_offsets *l, size_t place, int err, const struct brook_error *error)
{
    const struct brook_position *at = &l->positions[place];
    bool is_unsent = err == -BROOK_E_CONNECT_FAILED || err == -BROOK_E_REQUEST_EXPIRED;
    if (err < 0 && !is_unsent && l->deletes && !l->validate_only && at->offset == BROOK_OFFSET_LATEST) {
        brook_error_set(&l->entries[place].error, BROOK_E_OUTCOME_UNKNOWN, "%s/%d: the answer was lost: %s",
                        at->topic, at->partition, brook_error_text(err));
        l->entries[place].state = ENTRY_DONE;
    } else if (err == 0 && error->code && !admin_is_passing(error->code)) {
        fail_entry(&l->entries[place], error->code, at->topic, at->partition, error->text);
    } else {
        l->entries[place].state = ENTRY_WAITS;
        metadata_refresh(client_metadata(l->admin->client));
    }
}

static void on_listed(void *arg, const struct channel_reply *reply)
{
    struct offsets_request *request = arg;
    struct lookup_offsets *l = request->lookup;
    const Brook__Response *response = reply->response;
    struct brook_error error = {.code = -reply->err};
    bool good = reply->err == 0 && envelope_status_read(response->status, &error) == 0 &&
                fits(l, response, request->count);
    bool waits = false;
    for (size_t i = 0; l->question && i < request->count; i++) {
        size_t place = request->places[i];
        if (good)
            take_answer(l, place, response, i);
        else
            take_failure(l, place, reply->err, &error);
        waits |= l->entries[place].state == ENTRY_WAITS;
    }
    if (l->question && waits)
        admin_pause(l->admin, l->question);
    if (l->question)
        finish_if_done(l);
    lookup_unref(l);
    free(request);
}

static void fill_partition(const struct lookup_offsets *l, size_t place, const struct metadata_topic *topic,
                           Brook__ListOffsetsPartition *to)
{
    const struct brook_position *at = &l->positions[place];
    brook__list_offsets_partition__init(to);
    to->has_topic_id = to->has_partition = to->has_query = 1;
    to->topic_id = envelope_bytes(topic->topic_id, sizeof topic->topic_id);
    to->partition = at->partition;
    to->query =
        at->offset == BROOK_OFFSET_EARLIEST ? BROOK__OFFSET_QUERY__EARLIEST : BROOK__OFFSET_QUERY__LATEST;
    if (l->timestamps) {
        to->query = BROOK__OFFSET_QUERY__BY_TIME;
        to->has_timestamp = 1;
        to->timestamp = l->timestamps[place];
    }
}

static void fill_deletion(const struct lookup_offsets *l, size_t place, const struct metadata_topic *topic,
                          Brook__DeleteRecordsPartition *to)
{
    const struct brook_position *at = &l->positions[place];
    brook__delete_records_partition__init(to);
    to->has_topic_id = to->has_partition = to->has_before_offset = 1;
    to->topic_id = envelope_bytes(topic->topic_id, sizeof topic->topic_id);
    to->partition = at->partition;
    to->before_offset = at->offset == BROOK_OFFSET_LATEST ? -1 : at->offset;
}

/* The leader of a waiting entry, or -1 (then its error says why). */
static int32_t leader_of(struct lookup_offsets *l, size_t place, const struct metadata_topic **ret_topic)
{
    const struct brook_position *at = &l->positions[place];
    struct entry *e = &l->entries[place];
    const struct metadata_topic *topic = metadata_topic(client_metadata(l->admin->client), at->topic);
    if (!topic)
        return -1;
    *ret_topic = topic;
    if (topic->error) {
        brook_error_set(&e->error, topic->error, "%s: %s", at->topic, brook_error_text(topic->error));
        if (topic->error != BROOK_E_UNKNOWN_TOPIC || topic->times_unknown >= 2)
            e->state = ENTRY_DONE;
        return -1;
    }
    if (at->partition >= topic->partitions_count) {
        brook_error_set(&e->error, BROOK_E_UNKNOWN_PARTITION, "topic %s has %d partitions, no number %d",
                        at->topic, topic->partitions_count, at->partition);
        e->state = ENTRY_DONE;
        return -1;
    }
    if (topic->partitions[at->partition].leader < 0)
        brook_error_set(&e->error, BROOK_E_NO_LEADER, "%s/%d has no leader", at->topic, at->partition);
    return topic->partitions[at->partition].leader;
}

/* One request's entries, of either kind. */
union offsets_entry {
    Brook__ListOffsetsPartition listed;
    Brook__DeleteRecordsPartition deleted;
};

static int send_request(struct lookup_offsets *l, struct channel *channel, struct offsets_request *request,
                        void *list)
{
    Brook__Request message = BROOK__REQUEST__INIT;
    Brook__ListOffsetsRequest listing = BROOK__LIST_OFFSETS_REQUEST__INIT;
    Brook__DeleteRecordsRequest deletion = BROOK__DELETE_RECORDS_REQUEST__INIT;
    if (l->deletes) {
        deletion.n_partitions = request->count;
        deletion.partitions = list;
        deletion.has_validate_only = 1;
        deletion.validate_only = l->validate_only;
        message.body_case = BROOK__REQUEST__BODY_DELETE_RECORDS;
        message.delete_records = &deletion;
    } else {
        listing.n_partitions = request->count;
        listing.partitions = list;
        message.body_case = BROOK__REQUEST__BODY_LIST_OFFSETS;
        message.list_offsets = &listing;
    }
    return channel_send(channel, &message, NULL, 0, admin_time_left_ms(l->question), on_listed, request);
}

/* All waiting entries that `leader` answers, in one request. */
static void ask_leader(struct lookup_offsets *l, int32_t leader)
{
    struct channel *channel = client_channel(l->admin->client, leader, CLIENT_LANE_REQUESTS);
    struct offsets_request *request = malloc(sizeof *request + l->count * sizeof request->places[0]);
    union offsets_entry *partitions = calloc(l->count, sizeof *partitions);
    void **list = calloc(l->count, sizeof *list);
    if (channel && request && partitions && list) {
        *request = (struct offsets_request){.lookup = l};
        for (size_t i = 0; i < l->count; i++) {
            const struct metadata_topic *topic;
            if (l->entries[i].state != ENTRY_WAITS || leader_of(l, i, &topic) != leader)
                continue;
            if (l->deletes)
                fill_deletion(l, i, topic, &partitions[request->count].deleted);
            else
                fill_partition(l, i, topic, &partitions[request->count].listed);
            list[request->count] = &partitions[request->count];
            request->places[request->count++] = i;
        }
        if (send_request(l, channel, request, list) == 0) {
            for (size_t i = 0; i < request->count; i++)
                l->entries[request->places[i]].state = ENTRY_ASKED;
            l->refs++;
            request = NULL;
        }
    }
    free(request);
    free(partitions);
    free(list);
}

static void ask_leaders(brook_admin *admin, struct admin_question *q)
{
    struct lookup_offsets *l = q->arg;
    for (size_t i = 0; i < l->count; i++) {
        const struct metadata_topic *topic;
        int32_t leader = l->entries[i].state == ENTRY_WAITS ? leader_of(l, i, &topic) : -1;
        /* One that failed to be asked stays as it is, and so would the others of its leader. */
        if (leader >= 0)
            ask_leader(l, leader);
    }
    finish_if_done(l);
}

/* From here on answers change nothing. */
static void detach(void *arg)
{
    struct lookup_offsets *l = arg;
    l->question = NULL;
}

static void let_go(void *arg)
{
    lookup_unref(arg);
}

static int check_positions(const struct brook_position *positions, size_t count, struct brook_error *error)
{
    for (size_t i = 0; i < count; i++) {
        const char *topic = positions[i].topic;
        if (!topic || !name_is_legal_topic(topic, strlen(topic)))
            return brook_error_set(error, BROOK_E_ILLEGAL_NAME, "\"%.100s\" is not a legal topic name",
                                   topic ? topic : "");
        if (positions[i].partition < 0)
            return brook_error_set(error, BROOK_E_INVALID, "partition %d", positions[i].partition);
    }
    return 0;
}

/* Ask the leaders as `what` says; each position is replaced by its answer. */
static int run(brook_admin *admin, const struct lookup_offsets *what, struct brook_position *positions, size_t count,
               int timeout_ms, struct brook_error *error)
{
    struct lookup_offsets *l = calloc(1, sizeof *l);
    struct entry *entries = calloc(count, sizeof *entries);
    if (!l || !entries) {
        free(l);
        free(entries);
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    }
    struct admin_question q = {.ask = ask_leaders, .arg = l};
    *l = *what;
    l->refs = 1;
    l->admin = admin;
    l->question = &q;
    l->positions = positions;
    l->count = count;
    l->entries = entries;
    int r = admin_run(admin, &q, timeout_ms, error);
    client_call(admin->client, detach, l);
    for (size_t i = 0; i < count; i++) {
        bool known = entries[i].state == ENTRY_DONE && !entries[i].error.code;
        positions[i].offset = known ? entries[i].offset : BROOK_OFFSET_NONE;
    }
    client_call(admin->client, let_go, l);
    return r;
}

int brook_admin_list_offsets(brook_admin *admin, struct brook_position *positions, const int64_t *timestamps,
                             size_t count, int timeout_ms, struct brook_error *error)
{
    int r = check_positions(positions, count, error);
    if (r < 0 || count == 0)
        return r;
    return run(admin, &(struct lookup_offsets){.timestamps = timestamps}, positions, count, timeout_ms, error);
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
    return run(admin, &(struct lookup_offsets){.deletes = true, .validate_only = validate_only}, positions, count,
               timeout_ms, error);
}
