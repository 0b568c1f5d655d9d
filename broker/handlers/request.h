/* A request on its way through a handler, and how it is answered.
 *
 * broker/net reads a frame, unpacks its envelope and calls the one handler for its body, on the connection's
 * I/O loop. The handler answers now, or keeps the request and answers later from a callback on the same loop
 * (an inbox item, a deadline). Every request is ended exactly once, by request_reply(), request_fail(),
 * request_end() or request_end_and_close(); after that it must not be touched.
 *
 *     void handle_thing(struct request *r)
 *     {
 *         const Brook__ThingRequest *asked = r->message->thing;
 *         struct thing_work *work = request_alloc(r, sizeof *work);   // lives until the request ends
 *         if (!work)
 *             return request_fail(r, BROOK_E_NOMEM, NULL);
 *         cluster_do(r->loop->cluster, ..., r->loop->inbox, thing_done, r);
 *     }
 *     static void thing_done(void *arg, const struct thing_result *result)
 *     {
 *         struct request *r = arg;
 *         Brook__ThingResponse *body = request_new(r, Brook__ThingResponse, brook__thing_response__init);
 *         ...
 *         response->thing = body, response->body_case = BROOK__RESPONSE__BODY_THING;
 *         request_reply(r, response, NULL, 0);
 *     }
 *
 * What this does not know: sockets and connections. Everything here: the loop's thread only.
 * Memory comes in three lives: the message (until the handler returns), the request's own (request_alloc,
 * until it ends), the reply's (request_new, until it is answered: build a reply and send it in one go).
 */
#ifndef BROOK_HANDLERS_REQUEST_H
#define BROOK_HANDLERS_REQUEST_H

#include "broker/cluster/view.h"
#include "broker/storage/log.h"
#include "proto/base/inbox.h"
#include "proto/wire/envelope.h"

struct cluster;
struct codec;
struct diag;
struct pull_session;
struct request;
struct request_peer;
struct slab;

/* A request object carries this much of request_alloc() in itself: a produce of one partition takes nothing
 * from malloc. */
#define REQUEST_SCRATCH_BYTES 896

/* ---- what is handed down ------------------------------------------------------------------------------- */

typedef void request_setting_visitor(void *arg, const char *key, const char *value, bool is_default,
                                     const char *description);

/* Limits and facts, the same for all loops; constant. */
struct handler_settings {
    int32_t broker_id;
    const char *software; /* "brookd 0.1.0" */
    uint32_t frame_bytes_max;
    int32_t message_bytes_max;
    uint32_t partitions_per_request_max;
    uint32_t topics_per_request_max;
    uint32_t pull_bytes_max;
    uint32_t pull_wait_ms_max;
    uint32_t request_timeout_ms_max; /* caps timeout_ms of produce and administration */
    uint32_t pull_sessions_per_connection_max;
    uint32_t pulls_parked_per_connection_max;
    uint32_t expanded_bytes_max; /* of one batch, for lookups by time */
    /* The broker's own settings, for DescribeConfigs. */
    void (*visit_settings)(const void *settings, request_setting_visitor *visitor, void *arg);
    const void *settings;
};

/* Work for a disk thread: `run` there, then `done` on the loop that asked. Embedded in what asks. */
struct disk_work {
    void (*run)(struct disk_work *work);
    void (*done)(struct disk_work *work);
    struct inbox *inbox;
    struct inbox_item item;
    struct disk_work *next;
};

/* The I/O loop as a handler sees it. */
struct request_loop {
    struct inbox *inbox; /* for answers from other threads */
    struct cluster *cluster;
    struct view *view; /* borrowed: good until the handler or callback returns. NULL: nothing known yet */
    const struct handler_settings *settings;
    const struct diag *diag;
    struct arena *reply_arena; /* by request_new() only */
    struct codec *codec;       /* made by the first handler that needs one */
    int64_t now_ns;            /* clock_boot_ns() and clock_wall_ms() at the start of this turn */
    int64_t now_wall_ms;
    bool is_stopping; /* answer what waits, begin nothing long */
    const struct request_ops *ops;
};

/* What net does for handlers. Called through the functions below. */
struct request_ops {
    void (*reply)(struct request *r, Brook__Response *response, struct log_range *ranges,
                  size_t ranges_count);
    /* `close_because` NULL: the connection stays. */
    void (*end)(struct request *r, const struct brook_error *close_because);
    void (*set_deadline)(struct request *r, int64_t deadline_ns);
    /* Call partition_drain() for `p` at the end of this turn. */
    void (*touch)(struct request_loop *loop, struct partition *p);
    void (*submit)(struct request_loop *loop, struct disk_work *work);
};

/* The connection as a handler sees it. Outlives its requests. */
struct request_peer {
    const char *name;                   /* "127.0.0.1:41234", for log lines */
    uint32_t version;                   /* negotiated; 0 before Hello */
    struct pull_session *pull_sessions; /* handlers/pull.h; freed by handlers_peer_gone() */
    uint32_t pulls_parked;
};

/* ---- the request --------------------------------------------------------------------------------------- */

struct request {
    struct request_loop *loop;
    struct request_peer *peer;
    /* Good until the handler returns; then NULL. */
    const Brook__Request *message;
    uint64_t correlation_id;
    int64_t arrived_ns;
    int64_t expires_ns; /* the client has given up then: check request_is_expired() before a late effect. 0:
                           never */
    /* Record bytes of the frame: writable, good until the request ends. */
    uint8_t *records;
    size_t records_bytes;
    struct slab *slab; /* holds them */

    /* Set by a handler that keeps the request. Both may end it, both may be NULL. */
    void (*on_deadline)(struct request *r); /* at request_set_deadline() */
    void (*on_gone)(struct request *r); /* the connection is dead: nobody will read the answer. Called once */
    bool is_gone;
    void *state;

    /* net's and request.c's own */
    int64_t deadline_ns;
    size_t heap_index; /* 0: none is set */
    struct request *next;
    struct request *previous;
    struct request_block *blocks;
    size_t scratch_used;
    _Alignas(16) uint8_t scratch[REQUEST_SCRATCH_BYTES];
};

/* Zeroed memory until the request ends. NULL: out of memory. */
void *request_alloc(struct request *r, size_t bytes);
/* A NUL-terminated copy of a message's bytes; NULL when out of memory or there is a NUL inside. */
char *request_text(struct request *r, const ProtobufCBinaryData *bytes);

/* Memory for a reply; NULL beyond its budget (then request_fail(r, BROOK_E_NOMEM, NULL)). Good until the
 * request is answered, which must be before the handler or callback returns. */
void *request_reply_alloc(struct request *r, size_t bytes);
/* An initialised message of `type` for the reply, or NULL. */
#define request_new(r, type, init) \
    __extension__({ \
        type *new_ = request_reply_alloc(r, sizeof(type)); \
        if (new_) \
            init(new_); \
        new_; \
    })
/* A status in the reply: NULL for error->code 0. An empty text becomes the list's own. */
Brook__Status *request_status(struct request *r, const struct brook_error *error);
/* Bytes of the reply, copied. .data is NULL when out of memory (or `bytes` is 0). */
ProtobufCBinaryData request_reply_bytes(struct request *r, const void *data, size_t bytes);

/* Answer. The correlation id is filled in. `ranges` are record bytes behind the envelope, in order: taken
 * over (log_range_done() when sent, or if the peer is gone); the array itself is copied. */
void request_reply(struct request *r, Brook__Response *response, struct log_range *ranges,
                   size_t ranges_count);
/* Answer with a status and no body. `format` NULL: the list's own text. */
void request_fail(struct request *r, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
void request_fail_error(struct request *r, const struct brook_error *error);
/* End without an answer (acks none). */
void request_end(struct request *r);
/* End and close the connection once what is queued for it has been sent: the only way to tell a peer that
 * expects no answer. `why` is logged. */
void request_end_and_close(struct request *r, const struct brook_error *why);

/* Call r->on_deadline at this clock_boot_ns(); again replaces it, 0 takes it back. Never called early, at
 * most a few ms late. */
void request_set_deadline(struct request *r, int64_t deadline_ns);
bool request_is_expired(const struct request *r);
/* More partitions than one request may name: then it is answered so, and true is returned. */
bool request_refuse_many(struct request *r, size_t partitions_count);
/* The request's own timeout in ms, capped: min(asked, request_timeout_ms_max). */
int request_timeout_ms(const struct request *r, uint32_t asked_ms);

/* ---- looking things up --------------------------------------------------------------------------------- */

/* The topic with this id (bytes of a message) in the loop's view. Returns 0, or -BROOK_E_UNKNOWN_TOPIC,
 * -BROOK_E_TOPIC_BEING_DELETED, -BROOK_E_INVALID (not 16 bytes), -BROOK_E_BROKER_NOT_AVAILABLE (no view yet)
 * with a sentence. */
int request_find_topic(const struct request_loop *loop, const ProtobufCBinaryData *topic_id,
                       const struct view_topic **ret, struct brook_error *error);
/* The partition, if this broker leads it; `current_epoch` -1: not known to the client. Borrowed from the
 * view. Also returns -BROOK_E_UNKNOWN_PARTITION, -BROOK_E_NOT_LEADER, -BROOK_E_NO_LEADER,
 * -BROOK_E_FENCED_EPOCH, -BROOK_E_UNKNOWN_EPOCH; the sentence names topic/partition and the leader. */
int request_find_led(const struct request_loop *loop, const ProtobufCBinaryData *topic_id, int32_t partition,
                     int32_t current_epoch, const struct view_topic **ret_topic,
                     struct partition **ret_partition, struct brook_error *error);

/* The same for a consumer's pull, which a follower may serve as well to whoever knows its leader epoch. */
int request_find_read(const struct request_loop *loop, const ProtobufCBinaryData *topic_id, int32_t partition,
                      int32_t current_epoch, const struct view_topic **ret_topic,
                      struct partition **ret_partition, struct brook_error *error);

/* ---- for net ------------------------------------------------------------------------------------------- */

/* Make a zeroed or recycled object ready; free what it allocated. */
void request_init(struct request *r, struct request_loop *loop, struct request_peer *peer);
void request_done(struct request *r);
#endif
