/* One-shot questions of the application: it waits, the loop asks until there is an answer. */
#include "client/consumer_find.h"
#include "proto/base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUESTION_RETRY_MS 50

/* Shared by the thread that waits and the loop; the second to let go frees it. */
struct question {
    struct inbox_item item;
    struct question *next; /* of the fetcher's, on the loop */
    struct consumer_fetcher *f;
    struct client_timer *timer;
    enum question_kind kind;
    char topic[TOPIC_NAME_BYTES_MAX + 1];
    int32_t partition;
    int64_t timestamp_ms;
    bool is_in_flight;
    /* Under the set's lock: */
    unsigned refs;
    bool is_done;
    int code; /* 0, or the last failure */
    int64_t offset;
    struct brook_error error;
};

/* [locked] */
static void unref(struct question *l)
{
    if (--l->refs == 0)
        free(l);
}

/* The loop lets go. */
static void end(struct question *l)
{
    struct consumer_fetcher *f = l->f;
    for (struct question **at = &f->questions; *at; at = &(*at)->next)
        if (*at == l) {
            *at = l->next;
            break;
        }
    client_timer_free(l->timer);
    set_lock(f->set);
    l->is_done = true;
    pthread_cond_broadcast(&f->set->changed);
    unref(l);
    set_unlock(f->set);
    fetcher_unref(f);
}

static void note(struct question *l, int code, const char *text)
{
    set_lock(l->f->set);
    l->code = code;
    client_partition_error(&l->error, code, l->topic, l->partition, text && text[0] ? text : brook_error_text(code));
    set_unlock(l->f->set);
}

static void succeed(struct question *l, int64_t offset)
{
    set_lock(l->f->set);
    l->code = 0;
    l->offset = offset;
    set_unlock(l->f->set);
    end(l);
}

/* Again later, unless asking again can not help or nobody waits any more. */
static void fail(struct question *l, int code, const char *text)
{
    enum brook_advice advice = brook_error_advice(code);
    note(l, code, text);
    set_lock(l->f->set);
    bool is_alone = l->refs == 1;
    set_unlock(l->f->set);
    if (advice == BROOK_ADVICE_FIX || advice == BROOK_ADVICE_FATAL || is_alone || l->f->is_closed) {
        end(l);
        return;
    }
    if (advice == BROOK_ADVICE_REFRESH)
        metadata_refresh(client_metadata(l->f->client));
    client_timer_set(l->timer, QUESTION_RETRY_MS);
}

static void take_answer(struct question *l, const Brook__Response *response)
{
    if (l->kind == QUESTION_TIME && response->body_case == BROOK__RESPONSE__BODY_LIST_OFFSETS &&
        response->list_offsets->n_partitions == 1) {
        const Brook__ListedOffset *listed = response->list_offsets->partitions[0];
        int code = envelope_status_code(listed->status);
        if (code == 0 && listed->offset >= 0)
            succeed(l, listed->offset);
        else
            fail(l, code != 0 ? code : BROOK_E_OFFSET_NOT_AVAILABLE, NULL);
        return;
    }
    if (l->kind != QUESTION_STORED || response->body_case != BROOK__RESPONSE__BODY_FETCH_OFFSETS) {
        fail(l, BROOK_E_SERVER_ERROR, NULL);
        return;
    }
    const Brook__FetchOffsetsResponse *body = response->fetch_offsets;
    for (size_t i = 0; i < body->n_offsets; i++) {
        const Brook__FetchedOffset *fetched = body->offsets[i];
        if (!envelope_bytes_equal(&fetched->topic, l->topic) ||
            (fetched->partition != l->partition && fetched->partition != -1))
            continue;
        int code = envelope_status_code(fetched->status);
        if (code != 0)
            fail(l, code, NULL);
        else
            succeed(l, fetched->offset >= 0 ? fetched->offset : BROOK_OFFSET_NONE);
        return;
    }
    succeed(l, BROOK_OFFSET_NONE);
}

static void on_reply(void *arg, const struct channel_reply *reply)
{
    struct question *l = arg;
    l->is_in_flight = false;
    int code = reply->err < 0 ? -reply->err : envelope_status_code(reply->response->status);
    if (l->f->is_closed)
        end(l);
    else if (code != 0)
        fail(l, code, NULL);
    else
        take_answer(l, reply->response);
}

static int send_stored(struct question *l, struct channel *channel)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__FetchOffsetsRequest body = BROOK__FETCH_OFFSETS_REQUEST__INIT;
    ProtobufCBinaryData topic = envelope_text(l->topic);
    request.body_case = BROOK__REQUEST__BODY_FETCH_OFFSETS;
    request.fetch_offsets = &body;
    body.has_group = true;
    body.group = envelope_text(l->f->group_id);
    body.n_topics = 1;
    body.topics = &topic;
    return channel_send(channel, &request, NULL, 0, l->f->set->settings.request_timeout_ms, on_reply, l);
}

static int send_time(struct question *l, struct channel *channel, const struct metadata_topic *topic)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__ListOffsetsRequest body = BROOK__LIST_OFFSETS_REQUEST__INIT;
    Brook__ListOffsetsPartition entry = BROOK__LIST_OFFSETS_PARTITION__INIT, *entries = &entry;
    request.body_case = BROOK__REQUEST__BODY_LIST_OFFSETS;
    request.list_offsets = &body;
    body.n_partitions = 1;
    body.partitions = &entries;
    entry.has_topic_id = entry.has_partition = entry.has_query = entry.has_timestamp =
        entry.has_current_epoch = true;
    entry.topic_id = envelope_bytes(topic->topic_id, TOPIC_ID_BYTES);
    entry.partition = l->partition;
    entry.query = BROOK__OFFSET_QUERY__BY_TIME;
    entry.timestamp = l->timestamp_ms;
    entry.current_epoch = topic->partitions[l->partition].leader_epoch;
    return channel_send(channel, &request, NULL, 0, l->f->set->settings.request_timeout_ms, on_reply, l);
}

/* What the metadata says against asking a leader: 0, or a code (a retry is worth it). */
static int judge(const struct question *l, const struct metadata_topic *topic)
{
    if (!topic)
        return BROOK_E_AGAIN;
    if (topic->error != 0)
        return topic->error;
    if (l->partition < 0 || l->partition >= topic->partitions_count)
        return BROOK_E_UNKNOWN_PARTITION;
    return topic->partitions[l->partition].leader < 0 ? BROOK_E_NO_LEADER : 0;
}

static void try(void *arg)
{
    struct question *l = arg;
    struct client *client = l->f->client;
    const struct metadata_topic *topic = NULL;
    struct channel *channel;
    int code = 0;
    if (l->kind == QUESTION_STORED) {
        channel = client_any_channel(client);
    } else {
        topic = metadata_topic(client_metadata(client), l->topic);
        code = judge(l, topic);
        channel = code == 0
                      ? client_channel(client, topic->partitions[l->partition].leader, CLIENT_LANE_REQUESTS)
                      : NULL;
    }
    if (!channel) {
        bool is_unasked = code == 0 || code == BROOK_E_AGAIN;
        fail(l, code != 0 ? code : BROOK_E_BROKER_NOT_AVAILABLE,
             is_unasked ? client_last_error(client)->text : NULL);
        return;
    }
    int r = l->kind == QUESTION_STORED ? send_stored(l, channel) : send_time(l, channel, topic);
    if (r == 0)
        l->is_in_flight = true;
    else
        fail(l, -r, NULL);
}

static void begin(struct inbox_item *item)
{
    struct question *l = CONTAINER_OF(item, struct question, item);
    struct consumer_fetcher *f = l->f;
    fetcher_ref(f);
    l->next = f->questions;
    f->questions = l;
    l->timer = f->is_closed ? NULL : client_timer_new(f->client, try, l);
    if (!l->timer) {
        note(l, f->is_closed ? BROOK_E_CLOSED : BROOK_E_NOMEM, NULL);
        end(l);
        return;
    }
    try(l);
}

void questions_close(struct consumer_fetcher *f)
{
    struct question *next;
    for (struct question *l = f->questions; l; l = next) {
        next = l->next;
        note(l, BROOK_E_CLOSED, NULL);
        if (!l->is_in_flight) /* else its request ends it */
            end(l);
    }
}

int question_ask(struct consumer_fetcher *f, enum question_kind kind, const char *topic, int32_t partition,
                 int64_t timestamp_ms, int timeout_ms, int64_t *ret_offset, struct brook_error *error)
{
    struct consumer_set *set = f->set;
    struct question *l = calloc(1, sizeof *l);
    if (!l)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    l->item.run = begin;
    l->f = f;
    l->kind = kind;
    snprintf(l->topic, sizeof l->topic, "%s", topic);
    l->partition = partition;
    l->timestamp_ms = timestamp_ms;
    l->refs = 2;
    inbox_post(client_inbox(f->client), &l->item);
    set_lock(set);
    int r = set_wait(set, &l->is_done, timeout_ms) ? -l->code : -BROOK_E_TIMED_OUT;
    if (r == 0)
        *ret_offset = l->offset;
    else if (r == -BROOK_E_TIMED_OUT && l->error.text[0])
        brook_error_set(error, -r, "timed out: %s", l->error.text);
    else
        brook_error_set(error, -r, "%s", l->error.text[0] ? l->error.text : "timed out");
    unref(l);
    set_unlock(set);
    return r;
}
