/* Pull: read record batches, waiting for them if need be. Here the request is judged and its session found or
 * made; pull_answer.h looks at partitions and answers.
 */
#include "broker/handlers/handlers.h"
#include "broker/handlers/pull_answer.h"

#include <inttypes.h>
#include <string.h>

/* A follower says which replica it is, in which life, and how far its log is safe; a client nothing of that. What a
 * follower says counts only for a replica that is assigned, alive, and in that life. */
static int check_role(const Brook__PullRequest *asked, struct brook_error *error)
{
    bool is_follower = asked->replica_id >= 0;
    bool is_whole = is_follower ? asked->broker_epoch >= 0 && asked->session_epoch != PULL_EPOCH_NONE
                                : asked->replica_id == -1 && asked->broker_epoch == -1;
    for (size_t i = 0; i < asked->n_partitions && is_whole; i++)
        is_whole = is_follower ? asked->partitions[i]->safe_end >= 0 : asked->partitions[i]->safe_end == -1;
    if (!is_whole)
        return brook_error_set(error, BROOK_E_INVALID,
                               "replica_id, broker_epoch and safe_end go together, in a session: followers say all of "
                               "them, clients none");
    return 0;
}

/* A session is of one reader. */
static int check_session_role(const struct pull_session *s, const Brook__PullRequest *asked, struct brook_error *error)
{
    if (s->replica_id == asked->replica_id && s->broker_epoch == asked->broker_epoch)
        return 0;
    return brook_error_set(error, BROOK_E_BAD_PULL_SESSION_EPOCH,
                           "pull session %u was begun by another reader (replica %d)", s->id, s->replica_id);
}

static int check_entries(const struct request *r, const Brook__PullRequest *asked, struct brook_error *error)
{
    uint32_t most = r->loop->settings->partitions_per_request_max;
    if (asked->n_partitions > most || asked->n_forget > most)
        return brook_error_set(
            error, BROOK_E_TOO_MANY, "%zu partitions in one request, at most %u are allowed",
            asked->n_partitions > asked->n_forget ? asked->n_partitions : asked->n_forget, most);
    for (size_t i = 0; i < asked->n_partitions; i++) {
        if (asked->partitions[i]->topic_id.len != sizeof(struct topic_id))
            return brook_error_set(error, BROOK_E_INVALID, "a topic id has 16 bytes, not %zu",
                                   asked->partitions[i]->topic_id.len);
        if (asked->partitions[i]->offset < 0)
            return brook_error_set(error, BROOK_E_INVALID, "offset %" PRId64 " of partition %d is negative",
                                   asked->partitions[i]->offset, asked->partitions[i]->partition);
    }
    for (size_t i = 0; i < asked->n_forget; i++)
        if (asked->forget[i]->topic_id.len != sizeof(struct topic_id))
            return brook_error_set(error, BROOK_E_INVALID, "a topic id has 16 bytes, not %zu",
                                   asked->forget[i]->topic_id.len);
    return 0;
}

static struct pull_key key_of(const ProtobufCBinaryData *topic_id, int32_t partition)
{
    struct pull_key key = {.partition = partition};
    memcpy(key.topic_id, topic_id->data, sizeof key.topic_id);
    return key;
}

static int apply(struct pull_session *s, const Brook__PullRequest *asked, uint32_t partitions_max,
                 struct brook_error *error)
{
    for (size_t i = 0; i < asked->n_forget; i++) {
        struct pull_key key = key_of(&asked->forget[i]->topic_id, asked->forget[i]->partition);
        pull_session_forget(s, &key);
    }
    for (size_t i = 0; i < asked->n_partitions; i++) {
        const Brook__PullPartition *entry = asked->partitions[i];
        struct pull_key key = key_of(&entry->topic_id, entry->partition);
        if (pull_session_set(s, &key, entry) < 0)
            return brook_error_set(error, BROOK_E_NOMEM, "out of memory for %zu partitions",
                                   asked->n_partitions);
    }
    if (pull_session_entries(s) > partitions_max)
        return brook_error_set(error, BROOK_E_TOO_MANY,
                               "%zu partitions in one session, at most %u are allowed",
                               pull_session_entries(s), partitions_max);
    return 0;
}

/* A newer pull takes the place of the parked one. */
static void supersede(struct pull_session *s)
{
    if (s->parked)
        pull_send_empty(s, BROOK_E_SUPERSEDED);
}

static void end_session(struct pull_session *s)
{
    supersede(s);
    pull_session_free(s);
}

static uint32_t unused_id(const struct request_peer *peer)
{
    uint32_t highest = 0;
    for (const struct pull_session *s = peer->pull_sessions; s; s = s->next)
        if (s->id > highest)
            highest = s->id;
    if (highest < UINT32_MAX)
        return highest + 1;
    uint32_t id = 1;
    while (pull_session_find(peer, id))
        id++;
    return id;
}

static void end_oldest_beyond(struct request_peer *peer, uint32_t sessions_max)
{
    struct pull_session *oldest = NULL;
    uint32_t count = 0;
    for (struct pull_session *s = peer->pull_sessions; s; s = s->next)
        if (s->id) {
            oldest = s;
            count++;
        }
    if (oldest && count >= sessions_max)
        end_session(oldest);
}

/* The session that the request speaks of: found, begun, or (epoch -1) made for this pull only. */
static int find_session(struct request *r, const Brook__PullRequest *asked, struct pull_session **ret,
                        struct brook_error *error)
{
    struct pull_session *s = pull_session_find(r->peer, asked->session_id);
    if (asked->session_id && !s)
        return brook_error_set(error, BROOK_E_UNKNOWN_PULL_SESSION,
                               "pull session %u is not known on this connection", asked->session_id);
    if (asked->session_epoch > 0 && !s)
        return brook_error_set(error, BROOK_E_BAD_PULL_SESSION_EPOCH, "a session begins with epoch 0, not %d",
                               asked->session_epoch);
    if (asked->session_epoch > 0) {
        int32_t expected = s->epoch == INT32_MAX ? 1 : s->epoch + 1;
        if (asked->session_epoch != expected)
            return brook_error_set(error, BROOK_E_BAD_PULL_SESSION_EPOCH,
                                   "pull session %u: epoch %d is not the next one, which is %d", s->id,
                                   asked->session_epoch, expected);
        if (check_session_role(s, asked, error) < 0)
            return -error->code;
        s->epoch = expected;
        supersede(s);
        *ret = s;
        return 0;
    }
    if (asked->session_epoch < PULL_EPOCH_NONE)
        return brook_error_set(error, BROOK_E_BAD_PULL_SESSION_EPOCH, "epoch %d is none",
                               asked->session_epoch);
    if (s)
        end_session(s); /* begun anew, or given up */
    bool is_temporary = asked->session_epoch == PULL_EPOCH_NONE;
    if (!is_temporary)
        end_oldest_beyond(r->peer, r->loop->settings->pull_sessions_per_connection_max);
    s = pull_session_new(r->loop, r->peer, is_temporary ? 0 : unused_id(r->peer));
    if (!s)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory for a pull session");
    s->replica_id = asked->replica_id;
    s->broker_epoch = asked->broker_epoch;
    size_t rack_bytes = asked->client_rack.len;
    if (rack_bytes > 0 && rack_bytes < PULL_RACK_BYTES) /* without memory for it it stays at the leader */
        s->rack = strndup((const char *)asked->client_rack.data, rack_bytes);
    *ret = s;
    return 0;
}

void handle_pull(struct request *r)
{
    const Brook__PullRequest *asked = r->message->pull;
    struct pull_session *s = NULL;
    struct brook_error error;
    int e = check_role(asked, &error);
    if (e == 0)
        e = check_entries(r, asked, &error);
    if (e == 0)
        e = find_session(r, asked, &s, &error);
    if (e == 0 && (e = apply(s, asked, r->loop->settings->partitions_per_request_max, &error)) < 0)
        end_session(s);
    if (e < 0) {
        request_fail_error(r, &error);
        return;
    }
    pull_refresh(s);
    pull_park(s, r, asked);
}

/* ---- the connection ------------------------------------------------------------------------------------ */

void handlers_peer_wake(struct request_peer *peer)
{
    struct pull_session *next;
    for (struct pull_session *s = peer->pull_sessions; s; s = next) {
        next = s->next;
        if (s->parked)
            pull_serve(s, true);
    }
}

void handlers_peer_gone(struct request_peer *peer)
{
    while (peer->pull_sessions)
        pull_session_free(peer->pull_sessions);
}
