/* Requests to a leader, and their answers taken apart. */
#include "broker/replication/fetcher_internal.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"
#include "proto/base/pool.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One request in flight. Links wait for theirs before they go (pulls_in_flight), or end them with their channel. */
struct fetch_request {
    struct fetch_link *link;
    uint64_t session;
    uint64_t number; /* of a pull */
    bool is_first;
    struct fetch_asked {
        struct fetch_key key;
        int32_t current_epoch;
        int32_t epoch;
    } *asked; /* EpochEnd */
    size_t asked_count;
};

static struct fetch_request *request_new(struct fetch_link *link)
{
    struct fetch_request *r = calloc(1, sizeof *r);
    if (r) {
        r->link = link;
        r->session = link->session;
    }
    return r;
}

static void request_free(struct fetch_request *r)
{
    free(r->asked);
    free(r);
}

static struct fetch_entry *find(struct fetch_link *link, const struct fetch_key *key)
{
    struct fetch_entry *e;
    HASH_FIND(hh, link->thread->entries, key, sizeof *key, e);
    return e && e->link == link ? e : NULL;
}

/* ---- epochs ------------------------------------------------------------------------------------------ */

static void take_epochs(struct fetch_request *r, const struct channel_reply *reply)
{
    bool is_well = !reply->err && !envelope_status_code(reply->response->status) &&
                   reply->response->body_case == BROOK__RESPONSE__BODY_EPOCH_END &&
                   reply->response->epoch_end->n_partitions == r->asked_count;
    for (size_t i = 0; i < r->asked_count; i++) {
        struct fetch_entry *e = find(r->link, &r->asked[i].key);
        if (!e || e->place != FETCH_ASKING)
            continue;
        if (is_well)
            fetch_entry_take_epoch_end(e, r->asked[i].current_epoch, r->asked[i].epoch,
                                       reply->response->epoch_end->partitions[i]);
        else
            fetch_entry_back_off(e, BROOK_E_DISCONNECTED, NULL);
    }
}

static void on_epochs(void *arg, const struct channel_reply *reply)
{
    struct fetch_request *r = arg;
    if (reply->err != -BROOK_E_CLOSED)
        take_epochs(r, reply);
    request_free(r);
}

static size_t count_asking(struct fetch_link *link)
{
    size_t count = 0;
    struct fetch_entry *e;
    TAILQ_FOREACH(e, &link->lists[FETCH_DUE], in_place)
    count += e->state.phase == FOLLOWER_ASK;
    return count < FETCHER_NAMES_MAX ? count : FETCHER_NAMES_MAX;
}

static void name_asking(struct fetch_request *r, Brook__EpochEndRequest *body, Brook__EpochEndPartition *entries)
{
    struct fetch_entry *e, *next;
    for (e = TAILQ_FIRST(&r->link->lists[FETCH_DUE]); e && body->n_partitions < r->asked_count; e = next) {
        next = TAILQ_NEXT(e, in_place);
        if (e->state.phase != FOLLOWER_ASK)
            continue;
        size_t at = body->n_partitions++;
        r->asked[at] = (struct fetch_asked){e->key, e->state.leader_epoch, e->state.asked};
        brook__epoch_end_partition__init(&entries[at]);
        entries[at].has_topic_id = entries[at].has_partition = true;
        entries[at].has_current_epoch = entries[at].has_epoch = true;
        entries[at].topic_id = envelope_bytes(r->asked[at].key.topic_id, sizeof e->key.topic_id);
        entries[at].partition = e->key.number;
        entries[at].current_epoch = e->state.leader_epoch;
        entries[at].epoch = e->state.asked;
        body->partitions[at] = &entries[at];
        fetch_entry_move(e, FETCH_ASKING);
    }
}

void fetch_link_ask(struct fetch_link *link)
{
    size_t count = count_asking(link);
    struct fetch_request *r = count ? request_new(link) : NULL;
    if (!r)
        return;
    struct arena *arena = link->thread->arena;
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__EpochEndRequest body = BROOK__EPOCH_END_REQUEST__INIT;
    Brook__EpochEndPartition *entries = arena_alloc(arena, count * sizeof *entries);
    body.partitions = arena_alloc(arena, count * sizeof *body.partitions);
    r->asked = calloc(count, sizeof *r->asked);
    r->asked_count = count;
    bool is_out = false;
    if (entries && body.partitions && r->asked) {
        name_asking(r, &body, entries);
        request.body_case = BROOK__REQUEST__BODY_EPOCH_END;
        request.epoch_end = &body;
        is_out = channel_send(link->channel, &request, NULL, 0, link->thread->fetchers->s.request_timeout_ms,
                              on_epochs, r) == 0;
    }
    arena_reset(arena);
    if (is_out)
        return;
    while (!TAILQ_EMPTY(&link->lists[FETCH_ASKING]))
        fetch_entry_back_off(TAILQ_FIRST(&link->lists[FETCH_ASKING]), BROOK_E_NOMEM, NULL);
    request_free(r);
}

/* ---- answers ----------------------------------------------------------------------------------------- */

static void take_parts(struct fetch_request *r, const Brook__PullResponse *body, const struct channel_reply *reply)
{
    struct fetch_link *link = r->link;
    size_t at = 0;
    for (size_t i = 0; i < body->n_partitions; i++) {
        const Brook__PulledPartition *part = body->partitions[i];
        if (part->records_bytes > reply->records_bytes - at || part->topic_id.len != 16)
            return; /* the frame's length was checked: a broker that does not count right */
        struct fetch_key key = {.number = part->partition};
        memcpy(key.topic_id, part->topic_id.data, sizeof key.topic_id);
        struct fetch_entry *e = find(link, &key);
        /* Named again, or due again since: what comes now answers an earlier question. */
        if (e && e->session == r->session && e->place == FETCH_NAMED && e->named_by <= r->number)
            fetch_entry_take(e, part, reply->slab ? reply->slab->data + at : NULL);
        else if (e && e->session == r->session)
            fetch_entry_take_marks(e, part);
        at += part->records_bytes;
    }
}

static void fail(struct fetch_link *link, int code)
{
    bool is_session = code == BROOK_E_UNKNOWN_PULL_SESSION || code == BROOK_E_BAD_PULL_SESSION_EPOCH;
    if (code == BROOK_E_TIMED_OUT) { /* whatever is sent on this connection is as likely to be lost */
        fetch_link_drop(link, brook_error_text(code));
        return;
    }
    fetch_link_restart_session(link);
    if (is_session)
        return;
    diag_log(link->thread->fetchers->s.diag, DIAG_DEBUG, "", "broker %" PRId32 ": pull: %s", link->broker_id,
             brook_error_text(code));
    struct fetch_entry *e;
    TAILQ_FOREACH(e, &link->lists[FETCH_DUE], in_place)
    e->retry_ns = clock_boot_ns() + fetcher_backoff_ns(link->thread, link->failures);
    while (!TAILQ_EMPTY(&link->lists[FETCH_DUE]))
        fetch_entry_move(TAILQ_FIRST(&link->lists[FETCH_DUE]), FETCH_WAITING);
    link->failures++;
}

static void on_pulled(void *arg, const struct channel_reply *reply)
{
    struct fetch_request *r = arg;
    struct fetch_link *link = r->link;
    if (reply->err == -BROOK_E_CLOSED) {
        request_free(r);
        return;
    }
    link->pulls_in_flight--;
    if (r->session == link->session) {
        int code = reply->err ? -reply->err : envelope_status_code(reply->response->status);
        bool has_body = !code && reply->response->body_case == BROOK__RESPONSE__BODY_PULL;
        if (r->is_first)
            link->is_first_out = false;
        if (has_body) {
            link->failures = 0;
            link->session_id = reply->response->pull->session_id;
            take_parts(r, reply->response->pull, reply);
        } else if (code != BROOK_E_SUPERSEDED || r->is_first) {
            fail(link, code ? code : BROOK_E_BAD_ENVELOPE);
        }
    }
    request_free(r);
}

/* ---- pulls ------------------------------------------------------------------------------------------- */

static void name(struct fetch_entry *e, Brook__PullRequest *body, Brook__PullPartition *entry)
{
    struct leader_pull pull;
    fetch_entry_pull(e, &pull);
    brook__pull_partition__init(entry);
    entry->has_topic_id = entry->has_partition = entry->has_offset = entry->has_current_epoch = true;
    entry->has_last_epoch = entry->has_safe_end = entry->has_max_bytes = true;
    entry->topic_id = envelope_bytes(e->key.topic_id, sizeof e->key.topic_id);
    entry->partition = e->key.number;
    entry->offset = pull.offset;
    entry->current_epoch = pull.current_epoch;
    entry->last_epoch = pull.last_epoch;
    entry->safe_end = pull.safe_end;
    entry->has_reached_epoch = entry->has_log_start = true;
    entry->log_start = pull.log_start;
    entry->has_has_readers = true;
    entry->has_readers = partition_has_readers(e->partition);
    entry->reached_epoch = pull.reached_epoch;
    entry->max_bytes = e->link->thread->fetchers->s.partition_bytes_max;
    e->pulled_offset = pull.offset;
    e->session = e->link->session;
    e->named_by = e->link->pulls;
    fetch_entry_move(e, FETCH_NAMED);
}

static size_t name_due(struct fetch_link *link, Brook__PullRequest *body, Brook__PullPartition *entries, size_t count)
{
    struct fetch_entry *e, *next;
    for (e = TAILQ_FIRST(&link->lists[FETCH_DUE]); e && body->n_partitions < count; e = next) {
        next = TAILQ_NEXT(e, in_place);
        if (e->state.phase != FOLLOWER_PULL)
            continue;
        Brook__PullPartition *entry = &entries[body->n_partitions];
        name(e, body, entry);
        body->partitions[body->n_partitions++] = entry;
    }
    return body->n_partitions;
}

static void name_forgets(struct fetch_link *link, Brook__PullRequest *body, Brook__PullForget *forgets)
{
    for (size_t i = 0; i < link->forgets_count; i++) {
        brook__pull_forget__init(&forgets[i]);
        forgets[i].has_topic_id = forgets[i].has_partition = true;
        forgets[i].topic_id = envelope_bytes(link->forgets[i].topic_id, 16);
        forgets[i].partition = link->forgets[i].number;
        body->forget[i] = &forgets[i];
    }
    body->n_forget = link->forgets_count;
}

static size_t count_due(struct fetch_link *link)
{
    size_t count = 0;
    struct fetch_entry *e;
    TAILQ_FOREACH(e, &link->lists[FETCH_DUE], in_place)
    {
        count += e->state.phase == FOLLOWER_PULL;
        if (count == FETCHER_NAMES_MAX)
            break;
    }
    return count;
}

static int send_pull(struct fetch_link *link, struct fetch_request *r, size_t count)
{
    const struct fetcher_settings *s = &link->thread->fetchers->s;
    struct arena *arena = link->thread->arena;
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__PullRequest body = BROOK__PULL_REQUEST__INIT;
    Brook__PullPartition *entries = arena_alloc(arena, (count + 1) * sizeof *entries);
    Brook__PullForget *forgets = arena_alloc(arena, (link->forgets_count + 1) * sizeof *forgets);
    body.partitions = arena_alloc(arena, (count + 1) * sizeof *body.partitions);
    body.forget = arena_alloc(arena, (link->forgets_count + 1) * sizeof *body.forget);
    if (!entries || !forgets || !body.partitions || !body.forget)
        return -BROOK_E_NOMEM;
    body.has_session_id = body.has_session_epoch = body.has_max_wait_ms = body.has_min_bytes = true;
    body.has_max_bytes = body.has_replica_id = body.has_broker_epoch = true;
    body.session_id = link->session_id;
    body.session_epoch = link->session_epoch;
    body.max_wait_ms = s->wait_ms_max;
    body.max_bytes = s->bytes_max;
    body.replica_id = s->broker_id;
    body.broker_epoch = link->broker_epoch;
    r->number = ++link->pulls;
    name_due(link, &body, entries, count);
    name_forgets(link, &body, forgets);
    request.body_case = BROOK__REQUEST__BODY_PULL;
    request.pull = &body;
    r->is_first = link->session_epoch == 0;
    return channel_send(link->channel, &request, NULL, 0, (int)s->wait_ms_max + s->request_timeout_ms, on_pulled, r);
}

void fetch_link_pull(struct fetch_link *link)
{
    size_t count = count_due(link);
    /* One is always out; another when there is something new to say, which takes the parked one's place. */
    bool is_due = link->pulls_in_flight == 0 || (count > 0 && link->pulls_in_flight == 1 && !link->is_first_out);
    bool has_names = count > 0 || !TAILQ_EMPTY(&link->lists[FETCH_NAMED]);
    if (!is_due || !has_names)
        return;
    struct fetch_request *r = request_new(link);
    if (!r)
        return;
    int err = send_pull(link, r, count);
    arena_reset(link->thread->arena);
    if (err < 0) {
        request_free(r);
        fail(link, -err);
        return;
    }
    link->is_first_out |= r->is_first;
    link->pulls_in_flight++;
    link->session_epoch = link->session_epoch == INT32_MAX ? 1 : link->session_epoch + 1;
    link->forgets_count = 0;
}
