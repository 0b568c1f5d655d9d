#include "coordination/served.h"

#include "coordination/paths.h"
#include "coordination/znodes.h"
#include "proto/base/diag.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

struct served_topic {
    UT_hash_handle hh;
    struct served *served;
    char *text; /* what should be there; NULL: nothing */
    bool is_dirty;
    bool is_written; /* the node is there, and ours */
    bool is_busy;
    bool is_forgotten; /* out of the table; the call under way frees it */
    size_t path_bytes; /* counted against the budget; 0: not counted */
    char name[];
};

struct served {
    struct coordinator *coordinator;
    struct inbox *inbox;
    int32_t broker_id;
    const struct diag *diag;
    struct served_topic *topics;
    size_t path_bytes;
    unsigned in_flight;
    int64_t next_ms;
    bool is_dirty;
    bool said_full;
    bool is_closed;
};

static void write_topic(struct served_topic *t);

int served_new(struct coordinator *coordinator, struct inbox *inbox, int32_t broker_id,
               const struct diag *diag, struct served **ret_served)
{
    struct served *s = calloc(1, sizeof *s);
    if (!s)
        return -BROOK_E_NOMEM;
    s->coordinator = coordinator;
    s->inbox = inbox;
    s->broker_id = broker_id;
    s->diag = diag;
    *ret_served = s;
    return 0;
}

static void topic_free(struct served_topic *t)
{
    free(t->text);
    free(t);
}

static void uncount(struct served_topic *t)
{
    t->served->path_bytes -= t->path_bytes;
    t->path_bytes = 0;
}

static void remove_topic(struct served_topic *t)
{
    uncount(t);
    HASH_DEL(t->served->topics, t);
    t->is_forgotten = true;
    if (!t->is_busy)
        topic_free(t);
}

void served_free(struct served *s)
{
    if (!s)
        return;
    struct served_topic *t, *next;
    HASH_ITER(hh, s->topics, t, next)
    remove_topic(t);
    s->is_closed = true;
    if (!s->in_flight)
        free(s);
}

static struct served_topic *topic_add(struct served *s, const char *name)
{
    struct served_topic *t = calloc(1, sizeof *t + strlen(name) + 1);
    if (!t)
        return NULL;
    t->served = s;
    memcpy(t->name, name, strlen(name) + 1);
    HASH_ADD_STR(s->topics, name, t);
    return t;
}

static void mark(struct served_topic *t)
{
    t->is_dirty = true;
    t->served->is_dirty = true;
}

int served_set(struct served *s, const char *topic, const int32_t *leads, size_t leads_count,
               const int32_t *follows, size_t follows_count)
{
    struct served_topic *t;
    char *text = NULL;
    HASH_FIND_STR(s->topics, topic, t);
    if (leads_count + follows_count > 0) {
        text = znode_encode_served(leads, leads_count, follows, follows_count);
        if (!t)
            t = topic_add(s, topic);
        if (!text || !t) {
            free(text);
            return -BROOK_E_NOMEM;
        }
    }
    if (!t)
        return 0;
    if (t->text && text ? !strcmp(t->text, text) : t->text == text) {
        free(text);
        return 0;
    }
    free(t->text);
    t->text = text;
    mark(t);
    return 0;
}

void served_forget(struct served *s, const char *topic)
{
    struct served_topic *t;
    HASH_FIND_STR(s->topics, topic, t);
    if (t)
        remove_topic(t);
}

void served_expired(struct served *s)
{
    for (struct served_topic *t = s->topics; t; t = t->hh.next) {
        t->is_written = false;
        mark(t);
    }
}

/* ---- writing ---------------------------------------------------------------------------------------- */

static struct coordinator_call begin(struct served_topic *t, coordinator_callback *callback)
{
    t->is_busy = true;
    t->served->in_flight++;
    return (struct coordinator_call){.inbox = t->served->inbox,
                                     .callback = callback,
                                     .arg = t,
                                     .generation = coordinator_generation(t->served->coordinator)};
}

/* A call has ended. Returns NULL when nobody wants the topic any more. */
static struct served_topic *end(void *arg)
{
    struct served_topic *t = arg;
    struct served *s = t->served;
    t->is_busy = false;
    s->in_flight--;
    if (!t->is_forgotten)
        return t;
    topic_free(t);
    if (s->is_closed && !s->in_flight)
        free(s);
    return NULL;
}

static void set_done(void *arg, const struct coordinator_reply *reply)
{
    struct served_topic *t = end(arg);
    if (!t || !reply->err)
        return;
    t->is_written = reply->err != -BROOK_E_NO_NODE && t->is_written;
    mark(t);
}

static void removed(void *arg, const struct coordinator_reply *reply)
{
    struct served_topic *t = end(arg);
    if (!t)
        return;
    if (reply->err) {
        mark(t);
        return;
    }
    t->is_written = false;
    uncount(t);
}

/* Somebody's node is there: ours, if an answer was lost; an expired session's otherwise, which will go. */
static void owner_seen(void *arg, const struct coordinator_reply *reply)
{
    struct served_topic *t = end(arg);
    if (!t)
        return;
    t->is_written =
        !reply->err && reply->stat.ephemeral_owner == coordinator_session_id(t->served->coordinator);
    mark(t);
}

static void parent_made(void *arg, const struct coordinator_reply *reply)
{
    struct served_topic *t = end(arg);
    if (t &&
        reply->err != -BROOK_E_NO_NODE) /* else the topic is being deleted: whoever deletes it will say so */
        mark(t);
}

static void created(void *arg, const struct coordinator_reply *reply)
{
    struct served_topic *t = end(arg);
    struct path path;
    if (!t)
        return;
    struct coordinator *c = t->served->coordinator;
    switch (reply->err) {
    case 0:
        t->is_written = true;
        break;
    case -BROOK_E_NO_NODE:
        /* Never the whole path: that would bring a deleted topic back. */
        coordinator_create(c, path_topic_brokers(&path, t->name), NULL, 0, ZNODE_PERSISTENT,
                           begin(t, parent_made));
        break;
    case -BROOK_E_NODE_EXISTS:
        coordinator_exists(c, path_topic_broker(&path, t->name, t->served->broker_id), begin(t, owner_seen));
        break;
    default:
        mark(t);
    }
}

/* Whether there is room for the topic's entry. */
static bool count(struct served_topic *t, size_t bytes)
{
    struct served *s = t->served;
    if (t->path_bytes)
        return true;
    if (s->path_bytes + bytes > SERVED_PATH_BYTES_MAX) {
        if (!s->said_full)
            diag_log(s->diag, DIAG_WARN, "",
                     "/brokers/topics/*/brokers is incomplete: the entries of this broker "
                     "would take more than %d bytes of ephemeral paths",
                     SERVED_PATH_BYTES_MAX);
        s->said_full = true;
        return false;
    }
    t->path_bytes = bytes;
    s->path_bytes += bytes;
    return true;
}

static void write_topic(struct served_topic *t)
{
    struct path path;
    struct coordinator *c = t->served->coordinator;
    path_topic_broker(&path, t->name, t->served->broker_id);
    t->is_dirty = false;
    if (!t->text) {
        if (t->is_written)
            coordinator_delete_own(c, path.text, begin(t, removed));
        return;
    }
    if (!count(t, strlen(path.text)))
        return;
    if (t->is_written)
        coordinator_set(c, path.text, t->text, strlen(t->text), -1, begin(t, set_done));
    else
        coordinator_create(c, path.text, t->text, strlen(t->text), ZNODE_EPHEMERAL, begin(t, created));
}

int64_t served_tick(struct served *s, int64_t now_ms)
{
    if (!s->is_dirty)
        return INT64_MAX;
    if (now_ms < s->next_ms)
        return s->next_ms;
    s->next_ms = now_ms + SERVED_INTERVAL_MS;
    s->is_dirty = false;
    for (struct served_topic *t = s->topics; t; t = t->hh.next) {
        if (!t->is_dirty)
            continue;
        if (t->is_busy || s->in_flight >= SERVED_IN_FLIGHT_MAX)
            s->is_dirty = true;
        else
            write_topic(t);
    }
    return s->is_dirty ? s->next_ms : INT64_MAX;
}
