#include "broker/net/dispatch.h"

#include "broker/handlers/handlers.h"
#include "proto/base/names.h"

struct route {
    const char *name;
    void (*handle)(struct request *r);
    bool takes_records; /* record bytes may follow the envelope */
};

static const struct route routes[] = {
    [BROOK__REQUEST__BODY_HELLO] = {"hello", handle_hello, false},
    [BROOK__REQUEST__BODY_METADATA] = {"metadata", handle_metadata, false},
    [BROOK__REQUEST__BODY_PRODUCE] = {"produce", handle_produce, true},
    [BROOK__REQUEST__BODY_PULL] = {"pull", handle_pull, false},
    [BROOK__REQUEST__BODY_LIST_OFFSETS] = {"list_offsets", handle_list_offsets, false},
    [BROOK__REQUEST__BODY_COMMIT_OFFSETS] = {"commit_offsets", handle_commit_offsets, false},
    [BROOK__REQUEST__BODY_FETCH_OFFSETS] = {"fetch_offsets", handle_fetch_offsets, false},
    [BROOK__REQUEST__BODY_CREATE_TOPICS] = {"create_topics", handle_create_topics, false},
    [BROOK__REQUEST__BODY_DELETE_TOPICS] = {"delete_topics", handle_delete_topics, false},
    [BROOK__REQUEST__BODY_ADD_PARTITIONS] = {"add_partitions", handle_add_partitions, false},
    [BROOK__REQUEST__BODY_DESCRIBE_CONFIGS] = {"describe_configs", handle_describe_configs, false},
    [BROOK__REQUEST__BODY_LIST_GROUPS] = {"list_groups", handle_list_groups, false},
    [BROOK__REQUEST__BODY_ELECT_LEADERS] = {"elect_leaders", handle_elect_leaders, false},
    [BROOK__REQUEST__BODY_REASSIGN] = {"reassign", handle_reassign, false},
    [BROOK__REQUEST__BODY_LIST_REASSIGNMENTS] = {"list_reassignments", handle_list_reassignments, false},
    [BROOK__REQUEST__BODY_DESCRIBE_GROUPS] = {"describe_groups", handle_describe_groups, false},
    [BROOK__REQUEST__BODY_EPOCH_END] = {"epoch_end", handle_epoch_end, false},
    [BROOK__REQUEST__BODY_INIT_PRODUCER] = {"init_producer", handle_init_producer, false},
    [BROOK__REQUEST__BODY_DESCRIBE_REPLICAS] = {"describe_replicas", handle_describe_replicas, false},
    [BROOK__REQUEST__BODY_DELETE_RECORDS] = {"delete_records", handle_delete_records, false},
    [BROOK__REQUEST__BODY_ALTER_CONFIGS] = {"alter_configs", handle_alter_configs, false},
};

static const struct route *find_route(const Brook__Request *message)
{
    size_t body = (size_t)message->body_case;
    if (body >= sizeof routes / sizeof routes[0] || !routes[body].handle)
        return NULL;
    return &routes[body];
}

/* The peer does not know the rules: answer, then close. */
static void refuse_and_close(struct connection *c, struct request *r, const struct brook_error *why)
{
    connection_complain(c, why->text);
    connection_close(c);
    request_fail_error(r, why);
}

static int judge(const struct connection *c, const struct request *r, const struct route *route,
                 struct brook_error *error)
{
    const Brook__Request *message = r->message;
    if (!route)
        return brook_error_set(error, BROOK_E_UNSUPPORTED, "this broker does not know request %d",
                               (int)message->body_case);
    if (message->client_id.len > CLIENT_ID_BYTES_MAX)
        return brook_error_set(error, BROOK_E_INVALID, "a client id has at most %d bytes, not %zu",
                               CLIENT_ID_BYTES_MAX, message->client_id.len);
    if (r->records_bytes && !route->takes_records)
        return brook_error_set(error, BROOK_E_BAD_FRAME,
                               "%zu bytes follow a %s request, which has no records", r->records_bytes,
                               route->name);
    if (request_is_expired(r))
        return brook_error_set(error, BROOK_E_REQUEST_EXPIRED,
                               "the %s request's deadline of %u ms had passed before it was begun",
                               route->name, message->deadline_ms);
    return 0;
}

static void carry_out(struct connection *c, struct request *r)
{
    struct io_loop *loop = c->loop;
    const Brook__Request *message = r->message;
    const struct route *route = find_route(message);
    struct brook_error error;
    if (!c->peer.version && message->body_case != BROOK__REQUEST__BODY_HELLO) {
        brook_error_set(&error, BROOK_E_BAD_FRAME, "the first request of a connection must be hello, not %s",
                        route ? route->name : "an unknown one");
        refuse_and_close(c, r, &error);
        return;
    }
    if (judge(c, r, route, &error) < 0) {
        bool wants_no_answer = route && message->body_case == BROOK__REQUEST__BODY_PRODUCE &&
                               message->produce->acks == BROOK__ACKS__ACKS_NONE;
        if (wants_no_answer)
            request_end_and_close(r, &error);
        else
            request_fail_error(r, &error);
        return;
    }
    loop->current = r;
    route->handle(r);
    if (loop->current == r) {
        r->message = NULL;
        if (!r->records_bytes) {
            slab_unref(r->slab);
            r->slab = NULL;
        }
    }
    loop->current = NULL;
}

void dispatch_frame(struct connection *c, struct input_frame *frame)
{
    struct io_loop *loop = c->loop;
    struct request *r = loop_request_new(loop, &c->peer);
    if (!r) {
        slab_unref(frame->slab);
        connection_complain(c, "out of memory");
        connection_doom(c);
        return;
    }
    r->slab = frame->slab;
    r->records = frame->records;
    r->records_bytes = frame->records_bytes;
    r->arrived_ns = c->read_ns;

    Brook__Request *message;
    if (envelope_unpack_request(loop->message_arena, frame->envelope, frame->envelope_bytes, &message) < 0) {
        struct brook_error error;
        brook_error_set(&error, BROOK_E_BAD_ENVELOPE,
                        "an envelope of %zu bytes is malformed, or takes too much memory to read",
                        frame->envelope_bytes);
        refuse_and_close(c, r, &error);
    } else {
        r->message = message;
        r->correlation_id = message->correlation_id;
        if (message->deadline_ms)
            r->expires_ns = r->arrived_ns + (int64_t)message->deadline_ms * 1000000;
        carry_out(c, r);
    }
    arena_reset(loop->message_arena);
}
