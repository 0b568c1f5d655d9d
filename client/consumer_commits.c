#include "client/consumer_commits.h"

#include "client/client.h"
#include "client/consumer_slot.h"
#include "proto/base/cleanup.h"
#include "proto/base/err.h"
#include "proto/base/names.h"

#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

#define RETRY_MS 100
#define ENTRIES_PER_REQUEST 1000
#define TIMES_UNKNOWN 2

struct commit_entry {
    UT_hash_handle hh;
    struct commit_slot slot;
    int32_t partition;
    size_t key_bytes;
    char topic[]; /* with NUL, then the partition: the key */
};

struct commit_wait {
    struct commit_entry *entry;
    uint64_t number;
};

struct commit_call {
    struct commit_call *prev, *next;
    commits_callback *done;
    void *arg;
    int err;
    struct brook_position which;
    size_t count; /* that have not ended */
    struct commit_wait waits[];
};

struct commits {
    struct client *client;
    const char *group;
    int request_timeout_ms;
    unsigned refs; /* of the owner and of each request in flight */
    bool is_closed;
    struct client_timer *timer;
    struct commit_entry *entries;
    struct commit_call *calls;
};

struct commit_request {
    struct commits *commits;
    size_t count;
    struct commit_entry *entries[];
};

static void commits_unref(struct commits *c)
{
    if (--c->refs > 0)
        return;
    struct commit_entry *entry, *next;
    HASH_ITER (hh, c->entries, entry, next) {
        HASH_DEL(c->entries, entry);
        free(entry);
    }
    free(c);
}

static struct commit_entry *entry_of(struct commits *c, const struct brook_position *position)
{
    size_t topic_bytes = strnlen(position->topic, TOPIC_NAME_BYTES_MAX);
    char key[TOPIC_NAME_BYTES_MAX + 1 + sizeof position->partition] = "";
    size_t key_bytes = topic_bytes + 1 + sizeof position->partition;
    memcpy(key, position->topic, topic_bytes);
    memcpy(key + topic_bytes + 1, &position->partition, sizeof position->partition);
    struct commit_entry *entry;
    HASH_FIND(hh, c->entries, key, key_bytes, entry);
    if (entry)
        return entry;
    entry = calloc(1, sizeof *entry + key_bytes);
    if (!entry)
        return NULL;
    memcpy(entry->topic, key, key_bytes);
    entry->partition = position->partition;
    entry->key_bytes = key_bytes;
    commit_slot_init(&entry->slot);
    HASH_ADD_KEYPTR(hh, c->entries, entry->topic, key_bytes, entry);
    if (!entry->hh.tbl) {
        free(entry);
        return NULL;
    }
    return entry;
}

/* ---- calls ---- */

static void fail(struct commit_call *call, int err, const char *topic, int32_t partition, int64_t offset)
{
    if (call->err != 0)
        return;
    call->err = err;
    call->which = (struct brook_position){topic, partition, offset};
}

/* Drop the values that have ended; true when none is left. */
static bool look(struct commit_call *call)
{
    for (size_t i = call->count; i-- > 0;) {
        struct commit_wait *wait = &call->waits[i];
        int code;
        if (!commit_slot_has_ended(&wait->entry->slot, wait->number, &code))
            continue;
        if (code != 0)
            fail(call, -code, wait->entry->topic, wait->entry->partition, -1);
        *wait = call->waits[--call->count];
    }
    return call->count == 0;
}

static void finish(struct commit_call *call)
{
    if (call->done)
        call->done(call->arg, call->err, call->err != 0 ? &call->which : NULL);
    free(call);
}

static void finish_calls(struct commits *c)
{
    struct commit_call *call, *next;
    DL_FOREACH_SAFE (c->calls, call, next) {
        if (!look(call))
            continue;
        DL_DELETE(c->calls, call);
        finish(call);
    }
}

/* ---- requests ---- */

static void send_due(struct commits *c);

static void on_timer(void *arg)
{
    send_due(arg);
}

static void take_answers(struct commit_request *request, int code, const Brook__CommitOffsetsResponse *body)
{
    bool is_retry = false;
    for (size_t i = 0; i < request->count; i++) {
        int own = code;
        if (own == 0)
            own = body && i < body->n_offsets ? envelope_status_code(body->offsets[i]->status)
                                              : BROOK_E_SERVER_ERROR;
        is_retry |= commit_slot_end(&request->entries[i]->slot, own) == COMMIT_AGAIN;
    }
    if (is_retry)
        client_timer_set(request->commits->timer, RETRY_MS);
}

static void on_committed(void *arg, const struct channel_reply *reply)
{
    struct commit_request *request = arg;
    struct commits *c = request->commits;
    if (!c->is_closed) {
        int code = reply->err < 0 ? -reply->err : envelope_status_code(reply->response->status);
        bool is_body = code == 0 && reply->response->body_case == BROOK__RESPONSE__BODY_COMMIT_OFFSETS;
        take_answers(request, code, is_body ? reply->response->commit_offsets : NULL);
        finish_calls(c);
        if (reply->err == 0)
            send_due(c);
    }
    free(request);
    commits_unref(c);
}

/* The topic's id, once the metadata has it. -BROOK_E_AGAIN: later. */
static int find_topic(struct commits *c, const char *name, const struct metadata_topic **ret_topic)
{
    const struct metadata_topic *topic = metadata_topic(client_metadata(c->client), name);
    if (!topic || (topic->error == BROOK_E_UNKNOWN_TOPIC && topic->times_unknown < TIMES_UNKNOWN))
        return -BROOK_E_AGAIN;
    if (topic->error != 0)
        return -topic->error;
    *ret_topic = topic;
    return 0;
}

/* Collect what is due, at most one request's worth. *ret_more: something has to wait. */
static size_t collect(struct commits *c, struct commit_entry **entries, const struct metadata_topic **topics,
                      bool *ret_more)
{
    size_t count = 0;
    struct commit_entry *entry, *next;
    HASH_ITER (hh, c->entries, entry, next) {
        if (!commit_slot_has_work(&entry->slot))
            continue;
        int r = count < ENTRIES_PER_REQUEST ? find_topic(c, entry->topic, &topics[count]) : -BROOK_E_AGAIN;
        if (r == 0)
            entries[count++] = entry;
        else if (r == -BROOK_E_AGAIN || brook_error_advice(r) == BROOK_ADVICE_RETRY)
            *ret_more = true;
        else
            commit_slot_abandon(&entry->slot, r);
    }
    return count;
}

static int send_entries(struct commits *c, struct channel *channel, struct commit_request *request,
                        const struct metadata_topic *const *topics)
{
    size_t count = request->count;
    AUTO_FREE Brook__CommitOffset *offsets = calloc(count, sizeof *offsets);
    AUTO_FREE Brook__CommitOffset **pointers = calloc(count, sizeof *pointers);
    if (!offsets || !pointers)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        Brook__CommitOffset *o = pointers[i] = &offsets[i];
        brook__commit_offset__init(o);
        o->has_topic = o->has_topic_id = o->has_partition = o->has_offset = true;
        o->topic = envelope_text(request->entries[i]->topic);
        o->topic_id = envelope_bytes(topics[i]->topic_id, sizeof topics[i]->topic_id);
        o->partition = request->entries[i]->partition;
        o->offset = request->entries[i]->slot.waiting;
    }
    Brook__Request envelope = BROOK__REQUEST__INIT;
    Brook__CommitOffsetsRequest body = BROOK__COMMIT_OFFSETS_REQUEST__INIT;
    envelope.body_case = BROOK__REQUEST__BODY_COMMIT_OFFSETS;
    envelope.commit_offsets = &body;
    body.has_group = true;
    body.group = envelope_text(c->group);
    body.n_offsets = count;
    body.offsets = pointers;
    return channel_send(channel, &envelope, NULL, 0, c->request_timeout_ms, on_committed, request);
}

static void send_due(struct commits *c)
{
    if (c->is_closed)
        return;
    struct commit_request *request =
        malloc(sizeof *request + ENTRIES_PER_REQUEST * sizeof request->entries[0]);
    AUTO_FREE const struct metadata_topic **topics = calloc(ENTRIES_PER_REQUEST, sizeof *topics);
    bool has_more = false;
    int r = request && topics ? 0 : -BROOK_E_NOMEM;
    if (r == 0) {
        *request = (struct commit_request){.commits = c};
        request->count = collect(c, request->entries, topics, &has_more);
        finish_calls(c);
    }
    struct channel *channel = r == 0 && request->count > 0 ? client_any_channel(c->client) : NULL;
    if (channel)
        r = send_entries(c, channel, request, topics);
    if (channel && r == 0) {
        c->refs++;
        for (size_t i = 0; i < request->count; i++)
            commit_slot_begin(&request->entries[i]->slot);
    } else {
        has_more |= r < 0 || request->count > 0;
        free(request);
    }
    if (has_more)
        client_timer_set(c->timer, RETRY_MS);
}

void commits_commit(struct commits *c, const struct brook_position *positions, size_t count,
                    commits_callback *done, void *arg)
{
    struct commit_call *call = calloc(1, sizeof *call + count * sizeof call->waits[0]);
    if (!call) {
        if (done)
            done(arg, -BROOK_E_NOMEM, NULL);
        return;
    }
    call->done = done;
    call->arg = arg;
    for (size_t i = 0; i < count; i++) {
        struct commit_entry *entry = entry_of(c, &positions[i]);
        if (!entry) {
            fail(call, -BROOK_E_NOMEM, "", positions[i].partition, positions[i].offset);
            continue;
        }
        uint64_t number = commit_slot_want(&entry->slot, positions[i].offset);
        if (number > 0)
            call->waits[call->count++] = (struct commit_wait){entry, number};
    }
    DL_APPEND(c->calls, call);
    if (call->count > 0)
        send_due(c);
    else
        finish_calls(c);
}

int commits_new(struct client *client, const char *group, int request_timeout_ms,
                struct commits **ret_commits)
{
    struct commits *c = calloc(1, sizeof *c);
    if (!c)
        return -BROOK_E_NOMEM;
    c->client = client;
    c->group = group;
    c->request_timeout_ms = request_timeout_ms;
    c->refs = 1;
    c->timer = client_timer_new(client, on_timer, c);
    if (!c->timer) {
        free(c);
        return -BROOK_E_NOMEM;
    }
    *ret_commits = c;
    return 0;
}

void commits_close(struct commits *c)
{
    if (!c)
        return;
    c->is_closed = true;
    client_timer_free(TAKE(c->timer));
    struct commit_entry *entry, *next;
    HASH_ITER (hh, c->entries, entry, next)
        commit_slot_abandon(&entry->slot, BROOK_E_CLOSED);
    finish_calls(c);
    commits_unref(c);
}
