#include "broker/handlers/pull_session.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void wake(struct partition_waiter *waiter);

struct pull_session *pull_session_new(struct request_loop *loop, struct request_peer *peer, uint32_t id)
{
    struct pull_session *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->id = id;
    s->replica_id = -1;
    s->broker_epoch = -1;
    s->loop = loop;
    s->peer = peer;
    TAILQ_INIT(&s->ready);
    TAILQ_INIT(&s->unsent);
    s->next = peer->pull_sessions;
    peer->pull_sessions = s;
    return s;
}

static void unlink_session(struct pull_session *s)
{
    struct pull_session **at = &s->peer->pull_sessions;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
}

struct pull_session *pull_session_find(const struct request_peer *peer, uint32_t id)
{
    struct pull_session *s = peer->pull_sessions;
    while (s && (s->id != id || !id))
        s = s->next;
    return s;
}

size_t pull_session_entries(const struct pull_session *s)
{
    return HASH_COUNT(s->entries);
}

void pull_entry_make_ready(struct pull_entry *e)
{
    struct pull_session *s = e->session;
    if (e->is_ready)
        TAILQ_REMOVE(&s->ready, e, in_ready);
    else
        s->ready_count++;
    e->is_ready = true;
    TAILQ_INSERT_TAIL(&s->ready, e, in_ready);
}

void pull_entry_make_quiet(struct pull_entry *e)
{
    if (!e->is_ready)
        return;
    TAILQ_REMOVE(&e->session->ready, e, in_ready);
    e->session->ready_count--;
    e->is_ready = false;
}

void pull_entry_set_unsent(struct pull_entry *e, bool is_unsent)
{
    struct pull_session *s = e->session;
    if (e->is_unsent == is_unsent)
        return;
    e->is_unsent = is_unsent;
    if (is_unsent) {
        TAILQ_INSERT_TAIL(&s->unsent, e, in_unsent);
        s->unsent_count++;
    } else {
        TAILQ_REMOVE(&s->unsent, e, in_unsent);
        s->unsent_count--;
    }
}

/* ---- waiting ------------------------------------------------------------------------------------------- */

static void wake(struct partition_waiter *waiter)
{
    struct pull_entry *e = CONTAINER_OF(waiter, struct pull_entry, waiter);
    struct pull_session *s = e->session;
    struct partition *p = e->waits_for;
    e->waits_for = NULL;
    if (!e->is_ready)
        pull_entry_make_ready(e);
    partition_unref(p);
    if (s->parked)
        s->woken(s);
}

bool pull_entry_wait(struct pull_entry *e, struct partition *p, int64_t offset)
{
    if (e->waits_for)
        return true;
    e->waiter = (struct partition_waiter){.offset = offset,
                                          .heeds_deletions = e->session->replica_id >= 0,
                                          .known_start = e->sent_log_start,
                                          .heeds_marks = e->has_readers && e->session->replica_id >= 0,
                                          .known_mark = e->sent_high_watermark,
                                          .end = e->session->replica_id >= 0 ? PARTITION_LOG_END : PARTITION_VISIBLE_END,
                                          .inbox = e->session->loop->inbox,
                                          .wake = wake};
    /* Before: the wake-up may come from another thread as soon as it is registered, though it runs on this
     * one. */
    e->waits_for = partition_ref(p);
    if (partition_wait(p, &e->waiter))
        return true;
    partition_unref(p);
    e->waits_for = NULL;
    return false;
}

static void unwait(struct pull_entry *e)
{
    if (!e->waits_for)
        return;
    partition_unwait(e->waits_for, &e->waiter);
    partition_unref(e->waits_for);
    e->waits_for = NULL;
}

static void free_woken(struct partition_waiter *waiter)
{
    free(CONTAINER_OF(waiter, struct pull_entry, waiter));
}

/* A waiter that was posted comes round for certain, but perhaps it is still in the hands of the thread that posts it:
 * only when it runs here has everybody let go of it. */
static void entry_free(struct pull_entry *e)
{
    struct pull_session *s = e->session;
    HASH_DEL(s->entries, e);
    pull_entry_drop_load(e);
    pull_entry_make_quiet(e);
    pull_entry_set_unsent(e, false);
    unwait(e);
    if (e->waiter.posted)
        e->waiter.wake = free_woken;
    else
        free(e);
}

void pull_entry_rest(struct pull_entry *e)
{
    pull_entry_make_quiet(e);
    pull_entry_drop_load(e);
    unwait(e);
}

void pull_session_free(struct pull_session *s)
{
    struct pull_entry *e, *next;
    assert(!s->parked);
    unlink_session(s);
    HASH_ITER(hh, s->entries, e, next)
    entry_free(e);
    free(s->rack);
    free(s);
}

/* ---- entries ------------------------------------------------------------------------------------------- */

static struct pull_entry *find(const struct pull_session *s, const struct pull_key *key)
{
    struct pull_entry *e;
    HASH_FIND(hh, s->entries, key, sizeof *key, e);
    return e;
}

static struct pull_entry *entry_new(struct pull_session *s, const struct pull_key *key)
{
    struct pull_entry *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->key = *key;
    e->session = s;
    e->sent_high_watermark = e->sent_log_start = -2;
    HASH_ADD(hh, s->entries, key, sizeof e->key, e);
    return e;
}

int pull_session_set(struct pull_session *s, const struct pull_key *key, const Brook__PullPartition *asked)
{
    struct pull_entry *e = find(s, key);
    if (e) {
        unwait(e);
        pull_entry_drop_load(e);
        e->is_loaded = false;
    }
    if (e && e->waiter.posted) { /* its waiter can not be used again before it has come round */
        entry_free(e);
        e = NULL;
    }
    if (!e && !(e = entry_new(s, key)))
        return -BROOK_E_NOMEM;
    e->offset = asked->offset;
    e->current_epoch = asked->current_epoch;
    e->bytes_max = asked->max_bytes;
    e->last_epoch = asked->last_epoch;
    e->safe_end = asked->safe_end;
    e->reached_epoch = asked->reached_epoch;
    e->log_start = asked->log_start;
    e->has_readers = asked->has_readers;
    e->stays = asked->stay;
    e->is_noted = false;
    e->is_start_told = false;
    if (!e->is_ready)
        pull_entry_make_ready(e);
    return 0;
}

void pull_session_forget(struct pull_session *s, const struct pull_key *key)
{
    struct pull_entry *e = find(s, key);
    if (e)
        entry_free(e);
}
