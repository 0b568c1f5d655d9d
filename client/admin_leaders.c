#include "client/admin_leaders.h"

#include "proto/base/names.h"
#include "proto/wire/envelope.h"

#include <stdlib.h>
#include <string.h>

/* Lives on the heap: answers may come after the caller has gone. [loop] */
struct leaders_call {
    int refs; /* the caller's and one per request on its way */
    brook_admin *admin;
    struct admin_question *question; /* NULL: the caller has gone, and `partitions` and `arg` with it */
    const struct leaders_kind *kind;
    void *arg;
    struct leaders_partition *partitions;
    size_t count;
    bool is_patient;
};

/* A request to one leader: which partitions it asked for. */
struct leaders_request {
    struct leaders_call *call;
    size_t count;
    size_t places[];
};

static void call_unref(struct leaders_call *c)
{
    if (--c->refs == 0)
        free(c);
}

/* ---- answers ---------------------------------------------------------------------------------------- */

/* Passing errors are tried again until time runs out; what stands in the error then is the answer. */
static void fail_partition(struct leaders_call *c, size_t place, int code, const char *text)
{
    struct leaders_partition *p = &c->partitions[place];
    client_partition_error(&p->error, code, p->topic, p->partition, text);
    p->state = admin_is_passing(code) ? LEADERS_WAITS : LEADERS_DONE;
}

static void finish_if_done(struct leaders_call *c)
{
    const struct brook_error *first = NULL;
    if (c->admin->question != c->question)
        return; /* time was up */
    for (size_t i = 0; i < c->count; i++) {
        if (c->partitions[i].state != LEADERS_DONE)
            return;
        if (c->partitions[i].error.code && !first)
            first = &c->partitions[i].error;
    }
    struct admin_question *q = c->question;
    c->question = NULL;
    admin_finish(c->admin, q, first ? -first->code : 0, first);
}

static void take_answer(struct leaders_call *c, size_t place, const Brook__Response *response, size_t index)
{
    struct leaders_partition *p = &c->partitions[place];
    struct brook_error error;
    if (envelope_status_read(c->kind->take(c->arg, place, response, index), &error) == 0) {
        p->state = LEADERS_DONE;
        p->error.code = 0;
        return;
    }
    fail_partition(c, place, error.code, error.text);
    if (p->state == LEADERS_WAITS && brook_error_advice(error.code) == BROOK_ADVICE_REFRESH)
        metadata_refresh(client_metadata(c->admin->client));
}

static void take_failure(struct leaders_call *c, size_t place, int err, const struct brook_error *error)
{
    struct leaders_partition *p = &c->partitions[place];
    bool is_unsent = err == -BROOK_E_CONNECT_FAILED || err == -BROOK_E_REQUEST_EXPIRED;
    if (err < 0 && !is_unsent && c->kind->is_once && c->kind->is_once(c->arg, place)) {
        brook_error_set(&p->error, BROOK_E_OUTCOME_UNKNOWN, "%s/%d: the answer was lost: %s", p->topic, p->partition,
                        brook_error_text(err));
        p->state = LEADERS_DONE;
    } else if (err == 0 && error->code && !admin_is_passing(error->code)) {
        fail_partition(c, place, error->code, error->text);
    } else {
        p->state = LEADERS_WAITS;
        metadata_refresh(client_metadata(c->admin->client)); /* it may be somebody else's by now */
    }
}

static void on_answer(void *arg, const struct channel_reply *reply)
{
    struct leaders_request *request = arg;
    struct leaders_call *c = request->call;
    struct brook_error error = {.code = -reply->err};
    bool good = reply->err == 0 && envelope_status_read(reply->response->status, &error) == 0 &&
                c->kind->count(reply->response) == (int64_t)request->count;
    bool waits = false;
    for (size_t i = 0; c->question && i < request->count; i++) {
        size_t place = request->places[i];
        if (good)
            take_answer(c, place, reply->response, i);
        else
            take_failure(c, place, reply->err, &error);
        waits |= c->partitions[place].state == LEADERS_WAITS;
    }
    if (c->question && waits)
        admin_pause(c->admin, c->question);
    if (c->question)
        finish_if_done(c);
    call_unref(c);
    free(request);
}

/* ---- questions -------------------------------------------------------------------------------------- */

/* The leader of a waiting partition, or -1 (then its error says why). */
static int32_t leader_of(struct leaders_call *c, size_t place, const struct metadata_topic **ret_topic)
{
    struct leaders_partition *p = &c->partitions[place];
    const struct metadata_topic *topic = metadata_topic(client_metadata(c->admin->client), p->topic);
    if (!topic)
        return -1;
    *ret_topic = topic;
    if (topic->error) {
        brook_error_set(&p->error, topic->error, "%s: %s", p->topic, brook_error_text(topic->error));
        if (topic->error != BROOK_E_UNKNOWN_TOPIC || topic->times_unknown >= 2)
            p->state = LEADERS_DONE;
        return -1;
    }
    if (p->partition >= topic->partitions_count) {
        brook_error_set(&p->error, BROOK_E_UNKNOWN_PARTITION, "topic %s has %d partitions, no number %d", p->topic,
                        topic->partitions_count, p->partition);
        p->state = LEADERS_DONE;
        return -1;
    }
    int32_t leader = topic->partitions[p->partition].leader;
    if (leader < 0) {
        brook_error_set(&p->error, BROOK_E_NO_LEADER, "%s/%d has no leader", p->topic, p->partition);
        p->state = c->is_patient ? LEADERS_WAITS : LEADERS_DONE;
    }
    return leader;
}

static int send_request(struct leaders_call *c, struct channel *channel, struct leaders_request *request, void *entries)
{
    Brook__Request message = BROOK__REQUEST__INIT;
    union leaders_body body;
    c->kind->wrap(c->arg, entries, request->count, &body, &message);
    return channel_send(channel, &message, NULL, 0, admin_time_left_ms(c->question), on_answer, request);
}

/* All waiting partitions that `leader` answers for, in one request. */
static void ask_leader(struct leaders_call *c, int32_t leader)
{
    struct channel *channel = client_channel(c->admin->client, leader, CLIENT_LANE_REQUESTS);
    struct leaders_request *request = malloc(sizeof *request + c->count * sizeof request->places[0]);
    union leaders_entry *entries = calloc(c->count, sizeof *entries);
    void **list = calloc(c->count, sizeof *list);
    if (channel && request && entries && list) {
        *request = (struct leaders_request){.call = c};
        for (size_t i = 0; i < c->count; i++) {
            const struct metadata_topic *topic;
            if (c->partitions[i].state != LEADERS_WAITS || leader_of(c, i, &topic) != leader)
                continue;
            c->kind->fill(c->arg, i, topic, &entries[request->count]);
            list[request->count] = &entries[request->count];
            request->places[request->count++] = i;
        }
        if (send_request(c, channel, request, list) == 0) {
            for (size_t i = 0; i < request->count; i++)
                c->partitions[request->places[i]].state = LEADERS_ASKED;
            c->refs++;
            request = NULL;
        }
    }
    free(request);
    free(entries);
    free(list);
}

static void ask_leaders(brook_admin *admin, struct admin_question *q)
{
    struct leaders_call *c = q->arg;
    for (size_t i = 0; i < c->count; i++) {
        const struct metadata_topic *topic;
        int32_t leader = c->partitions[i].state == LEADERS_WAITS ? leader_of(c, i, &topic) : -1;
        /* One that failed to be asked stays as it is, and so would the others of its leader. */
        if (leader >= 0)
            ask_leader(c, leader);
    }
    finish_if_done(c);
}

/* ---- the caller's side ------------------------------------------------------------------------------ */

/* From here on answers change nothing. */
static void let_go(void *arg)
{
    struct leaders_call *c = arg;
    c->question = NULL;
    call_unref(c);
}

int leaders_check(const char *topic, int32_t partition, struct brook_error *error)
{
    if (!topic || !name_is_legal_topic(topic, strlen(topic)))
        return brook_error_set(error, BROOK_E_ILLEGAL_NAME, "\"%.100s\" is not a legal topic name", topic ? topic : "");
    if (partition < 0)
        return brook_error_set(error, BROOK_E_INVALID, "partition %d", partition);
    return 0;
}

int leaders_ask(brook_admin *admin, const struct leaders_kind *kind, void *arg, struct leaders_partition *partitions,
                size_t count, bool is_patient, int timeout_ms, struct brook_error *error)
{
    struct leaders_call *c = calloc(1, sizeof *c);
    if (!c)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    struct admin_question q = {.ask = ask_leaders, .arg = c};
    *c = (struct leaders_call){.refs = 1,
                               .admin = admin,
                               .question = &q,
                               .kind = kind,
                               .arg = arg,
                               .partitions = partitions,
                               .count = count,
                               .is_patient = is_patient};
    int r = admin_run(admin, &q, timeout_ms, error);
    client_call(admin->client, let_go, c);
    return r;
}
