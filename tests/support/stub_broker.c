#include "tests/support/stub_broker.h"

#include "broker/storage/producer_state.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "proto/record/codec.h"
#include "proto/wire/frame.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define BROKERS_MAX 8
#define TOPICS_MAX 16
#define CONNECTIONS_MAX 64
#define BODIES_MAX 64
#define EXPANDED_MAX ((size_t)64 << 20)

struct batch {
    uint8_t *data;
    size_t bytes;
    int64_t base_offset;
    int32_t count;
};
struct partition {
    int32_t leader, epoch;
    struct batch *batches;
    size_t count, room;
    int64_t end;
    struct producer_state *producers; /* NULL: nobody */
};
struct topic {
    char name[256];
    uint8_t id[16];
    int32_t partitions_count;
    struct partition *partitions;
};

struct stub_connection {
    int fd;
    struct broker *broker;
    bool hello;
    uint8_t *data;
    size_t bytes, room;
};
/* A frame that waits for its time. */
struct later {
    struct later *next;
    int64_t at_ms;
    struct stub_connection *connection;
    int fd;
    uint8_t *frame;
    size_t bytes;
};
struct broker {
    struct stub_cluster *cluster;
    int32_t id;
    int listener, wake;
    uint16_t port;
    pthread_t thread;
    bool running; /* under the cluster's lock */
    bool stopped; /* and has no connection any more */
    bool quitting;
    struct stub_connection *connections[CONNECTIONS_MAX];
    struct later *later; /* the thread's own */
    struct arena *arena;
};
struct stub_cluster {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct broker brokers[BROKERS_MAX];
    unsigned brokers_count;
    int64_t producer_ids;
    struct topic topics[TOPICS_MAX];
    unsigned topics_made;
    stub_function *function;
    void *function_arg;
    char servers[BROKERS_MAX * 24];
    unsigned connections_made;
    unsigned requests[BODIES_MAX];
};

static void insist(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "stub broker: %s: %s\n", what, strerror(errno));
    abort();
}

/* ---- what is stored (under the lock) ---------------------------------------------------------------- */

static struct topic *topic_by_name(struct stub_cluster *c, const void *name, size_t bytes)
{
    for (size_t i = 0; i < TOPICS_MAX; i++)
        if (bytes > 0 && strlen(c->topics[i].name) == bytes && memcmp(c->topics[i].name, name, bytes) == 0)
            return &c->topics[i];
    return NULL;
}

static struct topic *topic_by_id(struct stub_cluster *c, const ProtobufCBinaryData *id)
{
    for (size_t i = 0; i < TOPICS_MAX; i++)
        if (c->topics[i].name[0] && id->len == 16 && memcmp(c->topics[i].id, id->data, 16) == 0)
            return &c->topics[i];
    return NULL;
}

static struct partition *partition_of(struct topic *t, int32_t partition)
{
    return t && partition >= 0 && partition < t->partitions_count ? &t->partitions[partition] : NULL;
}

static struct partition *partition_named(struct stub_cluster *c, const char *topic, int32_t partition)
{
    return partition_of(topic_by_name(c, topic, strlen(topic)), partition);
}

static int64_t store(struct partition *p, const void *data, const struct batch_header *h)
{
    if (p->count == p->room) {
        p->room = p->room ? 2 * p->room : 64;
        p->batches = realloc(p->batches, p->room * sizeof *p->batches);
        insist(p->batches != NULL, "memory");
    }
    struct batch *b = &p->batches[p->count++];
    *b = (struct batch){.data = malloc(h->total_bytes),
                        .bytes = h->total_bytes,
                        .base_offset = p->end,
                        .count = h->records_count};
    insist(b->data != NULL, "memory");
    memcpy(b->data, data, h->total_bytes);
    batch_patch(b->data, p->end, p->epoch);
    if (batch_is_idempotent(h)) {
        struct batch_header stored = *h;
        stored.base_offset = p->end;
        if (!p->producers)
            insist(producer_state_new(&p->producers) == 0, "memory");
        insist(producer_state_note(p->producers, &stored, 0) == 0, "memory");
    }
    p->end += h->last_offset_delta + 1;
    return b->base_offset;
}

static void topic_clear(struct topic *t)
{
    for (int32_t i = 0; i < t->partitions_count; i++) {
        for (size_t j = 0; j < t->partitions[i].count; j++)
            free(t->partitions[i].batches[j].data);
        free(t->partitions[i].batches);
        producer_state_free(t->partitions[i].producers);
    }
    free(t->partitions);
    memset(t, 0, sizeof *t);
}

/* ---- replies ---------------------------------------------------------------------------------------- */

static uint8_t *render(const struct stub_request *q, Brook__Response *response, const void *records,
                       size_t records_bytes, size_t *ret_bytes)
{
    response->has_correlation_id = 1;
    response->correlation_id = q->request->correlation_id;
    size_t envelope_bytes = brook__response__get_packed_size(response);
    uint8_t *frame = malloc(FRAME_PREFIX_BYTES + envelope_bytes + records_bytes);
    insist(frame != NULL, "memory");
    frame_write_prefix(frame, (uint32_t)envelope_bytes, (uint32_t)records_bytes);
    brook__response__pack(response, frame + FRAME_PREFIX_BYTES);
    if (records_bytes > 0)
        memcpy(frame + FRAME_PREFIX_BYTES + envelope_bytes, records, records_bytes);
    *ret_bytes = FRAME_PREFIX_BYTES + envelope_bytes + records_bytes;
    return frame;
}

void stub_send_raw(struct stub_connection *connection, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    while (bytes > 0 && connection->fd >= 0) {
        ssize_t n = send(connection->fd, p, bytes, MSG_NOSIGNAL);
        if (n <= 0 && errno != EINTR)
            return;
        if (n > 0) {
            p += n;
            bytes -= (size_t)n;
        }
    }
}

static void send_frame(const struct stub_request *q, uint8_t *frame, size_t bytes, int delay_ms)
{
    if (delay_ms <= 0) {
        stub_send_raw(q->connection, frame, bytes);
        free(frame);
        return;
    }
    struct later *l = calloc(1, sizeof *l);
    insist(l != NULL, "memory");
    *l = (struct later){.next = q->connection->broker->later,
                        .at_ms = clock_boot_ms() + delay_ms,
                        .connection = q->connection,
                        .fd = q->connection->fd,
                        .frame = frame,
                        .bytes = bytes};
    q->connection->broker->later = l;
}

void stub_reply(const struct stub_request *q, Brook__Response *response, const void *records,
                size_t records_bytes, int delay_ms)
{
    size_t bytes;
    uint8_t *frame = render(q, response, records, records_bytes, &bytes);
    send_frame(q, frame, bytes, delay_ms);
}

void stub_reply_error(const struct stub_request *q, int code, const char *text)
{
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__Status status = BROOK__STATUS__INIT;
    status.has_code = 1;
    status.code = code;
    status.has_text = 1;
    status.text = envelope_text(text);
    response.status = &status;
    stub_reply(q, &response, NULL, 0, 0);
}

void stub_close(struct stub_connection *connection)
{
    if (connection->fd >= 0)
        shutdown(connection->fd, SHUT_RDWR);
}

/* ---- the stub's own answers (under the lock) -------------------------------------------------------- */

static uint8_t *answer_hello(const struct stub_request *q, struct arena *a, size_t *ret_bytes)
{
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__HelloResponse hello = BROOK__HELLO_RESPONSE__INIT;
    hello.has_version = 1;
    hello.version = 1;
    hello.has_broker_id = 1;
    hello.broker_id = q->broker_id;
    hello.has_software = 1;
    hello.software = envelope_text("stub");
    hello.has_idempotent_batches_in_flight_max = 1;
    hello.idempotent_batches_in_flight_max = PRODUCER_BATCHES_MAX;
    response.body_case = BROOK__RESPONSE__BODY_HELLO;
    response.hello = &hello;
    return render(q, &response, NULL, 0, ret_bytes);
}

static Brook__TopicInfo *describe_topic(struct arena *a, struct stub_cluster *c, struct topic *t,
                                        ProtobufCBinaryData name)
{
    Brook__TopicInfo *info = arena_alloc(a, sizeof *info);
    brook__topic_info__init(info);
    info->has_name = 1;
    info->name = name;
    if (!t) {
        info->status = envelope_status(a, BROOK_E_UNKNOWN_TOPIC, NULL);
        return info;
    }
    info->has_topic_id = 1;
    info->topic_id = envelope_bytes(t->id, 16);
    info->n_partitions = (size_t)t->partitions_count;
    info->partitions = arena_alloc(a, info->n_partitions * sizeof *info->partitions);
    for (int32_t i = 0; i < t->partitions_count; i++) {
        Brook__PartitionInfo *p = arena_alloc(a, sizeof *p);
        brook__partition_info__init(p);
        p->has_partition = p->has_leader = p->has_leader_epoch = 1;
        p->partition = i;
        p->leader = t->partitions[i].leader;
        p->leader_epoch = t->partitions[i].epoch;
        p->has_error = p->leader < 0;
        p->error = p->leader < 0 ? BROOK_E_NO_LEADER : 0;
        info->partitions[i] = p;
    }
    return info;
}

static uint8_t *answer_metadata(const struct stub_request *q, struct arena *a, size_t *ret_bytes)
{
    struct stub_cluster *c = q->cluster;
    const Brook__MetadataRequest *asked = q->request->metadata;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__MetadataResponse answer = BROOK__METADATA_RESPONSE__INIT;
    Brook__BrokerInfo brokers[BROKERS_MAX], *broker_list[BROKERS_MAX];
    for (unsigned i = 0; i < c->brokers_count; i++) {
        brook__broker_info__init(&brokers[i]);
        brokers[i].has_broker_id = brokers[i].has_host = brokers[i].has_port = 1;
        brokers[i].broker_id = c->brokers[i].id;
        brokers[i].host = envelope_text("127.0.0.1");
        brokers[i].port = c->brokers[i].port;
        broker_list[i] = &brokers[i];
    }
    answer.n_brokers = c->brokers_count;
    answer.brokers = broker_list;
    answer.has_cluster_id = 1;
    answer.cluster_id = envelope_text("stub");
    size_t count = asked->all ? TOPICS_MAX : asked->n_topics;
    answer.topics = arena_alloc(a, (count + 1) * sizeof *answer.topics);
    for (size_t i = 0; i < count; i++) {
        if (asked->all && !c->topics[i].name[0])
            continue;
        ProtobufCBinaryData name = asked->all ? envelope_text(c->topics[i].name) : asked->topics[i];
        answer.topics[answer.n_topics++] = describe_topic(a, c, topic_by_name(c, name.data, name.len), name);
    }
    response.body_case = BROOK__RESPONSE__BODY_METADATA;
    response.metadata = &answer;
    return render(q, &response, NULL, 0, ret_bytes);
}

static int check_leader(const struct stub_request *q, const struct partition *p)
{
    return !p ? BROOK_E_UNKNOWN_TOPIC : p->leader != q->broker_id ? BROOK_E_NOT_LEADER : 0;
}

/* As brokers do, before anything is looked at: the numbers of an entry's batches go on. */
static bool is_chain(const uint8_t *at, size_t bytes)
{
    struct batch_header h;
    int64_t next = -1;
    for (const uint8_t *b = at; b < at + bytes; b += h.total_bytes) {
        batch_read_header(b, bytes, &h);
        if (batch_is_idempotent(&h) && next >= 0 && h.base_sequence != next)
            return false;
        next = ((int64_t)h.base_sequence + h.last_offset_delta + 1) & INT32_MAX;
    }
    return true;
}

static int store_all(struct partition *p, const uint8_t *at, size_t bytes, Brook__ProducedPartition *ret)
{
    struct batch_header h;
    if (!is_chain(at, bytes))
        return BROOK_E_OUT_OF_SEQUENCE;
    for (const uint8_t *b = at; b < at + bytes; b += h.total_bytes) {
        struct producer_verdict v = {0};
        struct brook_error error;
        batch_read_header(b, bytes, &h);
        if (batch_is_idempotent(&h) && producer_state_check(p->producers, &h, &v, &error) < 0)
            return error.code; /* the client's batches of one entry stand and fall together */
        int64_t base = v.is_duplicate ? v.base_offset : store(p, b, &h);
        ret->batch_offsets[ret->n_batch_offsets++] = base;
        if (b == at)
            ret->base_offset = base;
    }
    ret->has_base_offset = 1;
    return 0;
}

static int produce_one(const struct stub_request *q, const Brook__ProducePartition *asked, const uint8_t *at,
                       struct arena *a, Brook__ProducedPartition *ret)
{
    size_t count = 0;
    struct partition *p = partition_of(topic_by_id(q->cluster, &asked->topic_id), asked->partition);
    int code = check_leader(q, p);
    if (code)
        return code;
    size_t left = asked->records_bytes;
    struct batch_header h;
    for (const uint8_t *b = at; left > 0; b += h.total_bytes, left -= h.total_bytes) {
        int r = batch_check_produced(b, left, left, &h, NULL);
        if (r < 0)
            return -r;
        count++;
    }
    ret->batch_offsets = arena_alloc(a, count * sizeof ret->batch_offsets[0]);
    return store_all(p, at, asked->records_bytes, ret);
}

/* An unacknowledged produce that was refused: the only answer is the end of the connection. */
static bool is_refused(const struct stub_request *q)
{
    bool refused = false;
    pthread_mutex_lock(&q->cluster->lock);
    for (size_t i = 0; i < q->request->produce->n_partitions; i++) {
        const Brook__ProducePartition *asked = q->request->produce->partitions[i];
        refused |=
            check_leader(q, partition_of(topic_by_id(q->cluster, &asked->topic_id), asked->partition)) != 0;
    }
    pthread_mutex_unlock(&q->cluster->lock);
    return refused;
}

static uint8_t *answer_init_producer(const struct stub_request *q, struct arena *a, size_t *ret_bytes)
{
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__InitProducerResponse made = BROOK__INIT_PRODUCER_RESPONSE__INIT;
    made.has_producer_id = made.has_producer_epoch = 1;
    made.producer_id = q->cluster->producer_ids++;
    made.producer_epoch = 0;
    response.body_case = BROOK__RESPONSE__BODY_INIT_PRODUCER;
    response.init_producer = &made;
    return render(q, &response, NULL, 0, ret_bytes);
}

static uint8_t *answer_produce(const struct stub_request *q, struct arena *a, size_t *ret_bytes)
{
    const Brook__ProduceRequest *asked = q->request->produce;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__ProduceResponse answer = BROOK__PRODUCE_RESPONSE__INIT;
    const uint8_t *at = q->records;
    answer.n_partitions = asked->n_partitions;
    answer.partitions = arena_alloc(a, (asked->n_partitions + 1) * sizeof *answer.partitions);
    for (size_t i = 0; i < asked->n_partitions; i++) {
        Brook__ProducedPartition *made = arena_alloc(a, sizeof *made);
        brook__produced_partition__init(made);
        int code = produce_one(q, asked->partitions[i], at, a, made);
        made->status = envelope_status(a, code, NULL);
        answer.partitions[i] = made;
        at += asked->partitions[i]->records_bytes;
    }
    response.body_case = BROOK__RESPONSE__BODY_PRODUCE;
    response.produce = &answer;
    return render(q, &response, NULL, 0, ret_bytes);
}

static uint8_t *answer_list_offsets(const struct stub_request *q, struct arena *a, size_t *ret_bytes)
{
    const Brook__ListOffsetsRequest *asked = q->request->list_offsets;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__ListOffsetsResponse answer = BROOK__LIST_OFFSETS_RESPONSE__INIT;
    answer.n_partitions = asked->n_partitions;
    answer.partitions = arena_alloc(a, (asked->n_partitions + 1) * sizeof *answer.partitions);
    for (size_t i = 0; i < asked->n_partitions; i++) {
        Brook__ListedOffset *listed = arena_alloc(a, sizeof *listed);
        brook__listed_offset__init(listed);
        struct partition *p = partition_of(topic_by_id(q->cluster, &asked->partitions[i]->topic_id),
                                           asked->partitions[i]->partition);
        listed->status = envelope_status(a, check_leader(q, p), NULL);
        listed->has_offset = 1;
        bool earliest = asked->partitions[i]->query == BROOK__OFFSET_QUERY__EARLIEST;
        listed->offset = !p ? -1 : earliest ? 0 : p->end;
        answer.partitions[i] = listed;
    }
    response.body_case = BROOK__RESPONSE__BODY_LIST_OFFSETS;
    response.list_offsets = &answer;
    return render(q, &response, NULL, 0, ret_bytes);
}

/* The leader, and a follower that lacks one record. */
static uint8_t *answer_describe_replicas(const struct stub_request *q, struct arena *a, size_t *ret_bytes)
{
    const Brook__DescribeReplicasRequest *asked = q->request->describe_replicas;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__DescribeReplicasResponse answer = BROOK__DESCRIBE_REPLICAS_RESPONSE__INIT;
    answer.n_partitions = asked->n_partitions;
    answer.partitions = arena_alloc(a, (asked->n_partitions + 1) * sizeof *answer.partitions);
    for (size_t i = 0; i < asked->n_partitions; i++) {
        Brook__PartitionReplicas *made = arena_alloc(a, sizeof *made);
        struct partition *p = partition_of(topic_by_id(q->cluster, &asked->partitions[i]->topic_id),
                                           asked->partitions[i]->partition);
        brook__partition_replicas__init(made);
        made->status = envelope_status(a, check_leader(q, p), NULL);
        made->has_log_end_offset = made->has_high_watermark = made->has_log_start_offset = 1;
        made->log_start_offset = 0;
        made->log_end_offset = p ? p->end : -1;
        made->high_watermark = p ? p->end - 1 : -1;
        made->replicas = arena_alloc(a, 2 * sizeof *made->replicas);
        for (int32_t k = 0; !made->status && k < 2; k++) {
            Brook__ReplicaProgress *r = made->replicas[k] = arena_alloc(a, sizeof *r);
            brook__replica_progress__init(r);
            r->has_broker_id = r->has_in_sync = r->has_log_end_offset = r->has_lag = r->has_behind_ms = 1;
            r->broker_id = k ? 77 : p->leader;
            r->in_sync = !k;
            r->log_end_offset = p->end - k;
            r->lag = k;
            r->behind_ms = 5 * k;
            made->n_replicas++;
        }
        answer.partitions[i] = made;
    }
    response.body_case = BROOK__RESPONSE__BODY_DESCRIBE_REPLICAS;
    response.describe_replicas = &answer;
    return render(q, &response, NULL, 0, ret_bytes);
}

/* Batches from the one that holds `offset` on; the first one always, others while they fit. */
static size_t pull_one(const struct partition *p, int64_t offset, size_t bytes_max, uint8_t **at,
                       size_t *room, size_t used)
{
    size_t taken = 0;
    for (size_t i = 0; i < p->count; i++) {
        const struct batch *b = &p->batches[i];
        if (b->base_offset + b->count <= offset)
            continue;
        if (taken > 0 && taken + b->bytes > bytes_max)
            break;
        if (used + taken + b->bytes > *room) {
            *room = 2 * (used + taken + b->bytes);
            *at = realloc(*at, *room);
            insist(*at != NULL, "memory");
        }
        memcpy(*at + used + taken, b->data, b->bytes);
        taken += b->bytes;
    }
    return taken;
}

static int32_t batch_epoch(const struct batch *b)
{
    struct batch_header h;
    insist(batch_read_header(b->data, b->bytes, &h) == 0, "stored batch");
    return h.leader_epoch;
}

/* Whether the record before `offset` is of another epoch than the reader says, or not there. Then also the newest
 * epoch up to that one, and where it ends. */
static bool has_diverged(const struct partition *p, int64_t offset, int32_t last_epoch, Brook__PulledPartition *pulled)
{
    int32_t before = -1;
    pulled->diverged_at = 0;
    for (size_t i = 0; i < p->count; i++) {
        const struct batch *b = &p->batches[i];
        int32_t epoch = batch_epoch(b);
        if (b->base_offset < offset)
            before = epoch;
        if (epoch > last_epoch)
            continue;
        pulled->diverged_epoch = epoch;
        pulled->diverged_at = b->base_offset + b->count;
    }
    return last_epoch >= 0 && (before != last_epoch || offset > p->end);
}

static uint8_t *answer_pull(const struct stub_request *q, struct arena *a, size_t *ret_bytes)
{
    const Brook__PullRequest *asked = q->request->pull;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__PullResponse answer = BROOK__PULL_RESPONSE__INIT;
    uint8_t *records = NULL;
    size_t room = 0, used = 0;
    answer.partitions = arena_alloc(a, (asked->n_partitions + 1) * sizeof *answer.partitions);
    for (size_t i = 0; i < asked->n_partitions; i++) {
        const Brook__PullPartition *from = asked->partitions[i];
        struct partition *p = partition_of(topic_by_id(q->cluster, &from->topic_id), from->partition);
        Brook__PulledPartition *pulled = arena_alloc(a, sizeof *pulled);
        brook__pulled_partition__init(pulled);
        pulled->has_topic_id = pulled->has_partition = pulled->has_records_bytes = 1;
        pulled->topic_id = from->topic_id;
        pulled->partition = from->partition;
        int code = check_leader(q, p);
        if (!code && has_diverged(p, from->offset, from->last_epoch, pulled)) {
            code = BROOK_E_LOG_DIVERGED;
            pulled->has_diverged_at = pulled->has_diverged_epoch = 1;
        }
        if (!code && (from->offset < 0 || from->offset > p->end))
            code = BROOK_E_OFFSET_OUT_OF_RANGE;
        pulled->status = envelope_status(a, code, NULL);
        if (p) {
            pulled->has_high_watermark = pulled->has_log_start_offset = pulled->has_log_end_offset = 1;
            pulled->high_watermark = pulled->log_end_offset = p->end;
            pulled->log_start_offset = 0;
        }
        if (!code)
            pulled->records_bytes =
                (uint32_t)pull_one(p, from->offset, from->max_bytes, &records, &room, used);
        used += pulled->records_bytes;
        answer.partitions[answer.n_partitions++] = pulled;
    }
    response.body_case = BROOK__RESPONSE__BODY_PULL;
    response.pull = &answer;
    uint8_t *frame = render(q, &response, records, used, ret_bytes);
    free(records);
    return frame;
}

uint8_t *stub_render_default(const struct stub_request *q, size_t *ret_bytes)
{
    struct stub_cluster *c = q->cluster;
    struct arena *a;
    insist(arena_new((size_t)64 << 20, &a) == 0, "memory");
    uint8_t *frame;
    pthread_mutex_lock(&c->lock);
    switch (q->request->body_case) {
    case BROOK__REQUEST__BODY_HELLO:
        frame = answer_hello(q, a, ret_bytes);
        break;
    case BROOK__REQUEST__BODY_METADATA:
        frame = answer_metadata(q, a, ret_bytes);
        break;
    case BROOK__REQUEST__BODY_INIT_PRODUCER:
        frame = answer_init_producer(q, a, ret_bytes);
        break;
    case BROOK__REQUEST__BODY_PRODUCE:
        frame = answer_produce(q, a, ret_bytes);
        break;
    case BROOK__REQUEST__BODY_DESCRIBE_REPLICAS:
        frame = answer_describe_replicas(q, a, ret_bytes);
        break;
    case BROOK__REQUEST__BODY_LIST_OFFSETS:
        frame = answer_list_offsets(q, a, ret_bytes);
        break;
    case BROOK__REQUEST__BODY_PULL:
        frame = answer_pull(q, a, ret_bytes);
        break;
    default: {
        Brook__Response response = BROOK__RESPONSE__INIT;
        response.status = envelope_status(a, BROOK_E_UNSUPPORTED, NULL);
        frame = render(q, &response, NULL, 0, ret_bytes);
    }
    }
    pthread_mutex_unlock(&c->lock);
    arena_free(a);
    return frame;
}

void stub_reply_default(const struct stub_request *q, int delay_ms)
{
    size_t bytes;
    uint8_t *frame = stub_render_default(q, &bytes);
    bool silent = q->request->body_case == BROOK__REQUEST__BODY_PRODUCE &&
                  q->request->produce->acks == BROOK__ACKS__ACKS_NONE;
    if (silent && is_refused(q))
        stub_close(q->connection);
    if (silent)
        free(frame);
    else
        send_frame(q, frame, bytes, delay_ms);
}

/* An empty pull waits: nothing is there before the time is over, as far as the stub is concerned. */
static int pull_delay(const struct stub_request *q)
{
    if (q->request->body_case != BROOK__REQUEST__BODY_PULL)
        return 0;
    int delay = (int)q->request->pull->max_wait_ms;
    pthread_mutex_lock(&q->cluster->lock);
    for (size_t i = 0; i < q->request->pull->n_partitions; i++) {
        const Brook__PullPartition *from = q->request->pull->partitions[i];
        struct partition *p = partition_of(topic_by_id(q->cluster, &from->topic_id), from->partition);
        if (!p || p->leader != q->broker_id || p->end != from->offset)
            delay = 0;
    }
    pthread_mutex_unlock(&q->cluster->lock);
    return delay < 20 ? delay : 20;
}

/* ---- connections ------------------------------------------------------------------------------------ */

static void handle(struct stub_connection *connection, const struct frame_prefix *prefix,
                   const uint8_t *envelope)
{
    struct broker *broker = connection->broker;
    struct stub_cluster *c = broker->cluster;
    Brook__Request *request;
    arena_reset(broker->arena);
    if (envelope_unpack_request(broker->arena, envelope, prefix->envelope_bytes, &request) < 0) {
        stub_close(connection);
        return;
    }
    struct stub_request q = {.cluster = c,
                             .broker_id = broker->id,
                             .connection = connection,
                             .request = request,
                             .records = envelope + prefix->envelope_bytes,
                             .records_bytes = prefix->records_bytes};
    pthread_mutex_lock(&c->lock);
    q.number = c->requests[request->body_case % BODIES_MAX]++;
    stub_function *function = c->function;
    void *arg = c->function_arg;
    pthread_mutex_unlock(&c->lock);
    if (!function || function(arg, &q) == STUB_PASS)
        stub_reply_default(&q, pull_delay(&q));
}

static void handle_all(struct stub_connection *connection)
{
    struct frame_prefix prefix;
    size_t at = 0;
    while (connection->bytes - at >= FRAME_PREFIX_BYTES) {
        const uint8_t *p = connection->data + at;
        int r = frame_parse(p, connection->bytes - at, FRAME_BYTES_MAX_DEFAULT, ENVELOPE_BYTES_MAX_BROKER,
                            &prefix, NULL);
        if (r < 0) {
            stub_close(connection);
            break;
        }
        if (connection->bytes - at < 4 + (size_t)prefix.frame_bytes)
            break;
        handle(connection, &prefix, p + FRAME_PREFIX_BYTES);
        at += 4 + (size_t)prefix.frame_bytes;
    }
    connection->bytes -= at;
    memmove(connection->data, connection->data + at, connection->bytes);
}

static void drop(struct broker *broker, size_t place)
{
    struct stub_connection *connection = broker->connections[place];
    for (struct later *l = broker->later; l; l = l->next)
        if (l->connection == connection)
            l->connection = NULL;
    close(connection->fd);
    free(connection->data);
    free(connection);
    broker->connections[place] = NULL;
}

static void receive(struct broker *broker, size_t place)
{
    struct stub_connection *connection = broker->connections[place];
    if (connection->room - connection->bytes < 65536) {
        connection->room = 2 * connection->room + 131072;
        connection->data = realloc(connection->data, connection->room);
        insist(connection->data != NULL, "memory");
    }
    ssize_t n = recv(connection->fd, connection->data + connection->bytes,
                     connection->room - connection->bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        drop(broker, place);
        return;
    }
    connection->bytes += (size_t)n;
    handle_all(connection);
}

static void take_connection(struct broker *broker)
{
    int on = 1;
    int fd = accept4(broker->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    pthread_mutex_lock(&broker->cluster->lock);
    bool running = broker->running;
    broker->cluster->connections_made += running;
    pthread_mutex_unlock(&broker->cluster->lock);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    for (size_t i = 0; running && i < CONNECTIONS_MAX; i++) {
        if (broker->connections[i])
            continue;
        broker->connections[i] = calloc(1, sizeof *broker->connections[i]);
        insist(broker->connections[i] != NULL, "memory");
        *broker->connections[i] = (struct stub_connection){.fd = fd, .broker = broker};
        return;
    }
    close(fd);
}

static int send_due(struct broker *broker)
{
    int64_t now = clock_boot_ms();
    int wait = 1000;
    for (struct later **at = &broker->later; *at;) {
        struct later *l = *at;
        if (l->at_ms > now && l->connection) {
            if (l->at_ms - now < wait)
                wait = (int)(l->at_ms - now);
            at = &l->next;
            continue;
        }
        *at = l->next;
        if (l->connection)
            stub_send_raw(l->connection, l->frame, l->bytes);
        free(l->frame);
        free(l);
    }
    return wait;
}

static void drop_all(struct broker *broker)
{
    for (size_t i = 0; i < CONNECTIONS_MAX; i++)
        if (broker->connections[i])
            drop(broker, i);
    pthread_mutex_lock(&broker->cluster->lock);
    broker->stopped = true;
    pthread_cond_broadcast(&broker->cluster->changed);
    pthread_mutex_unlock(&broker->cluster->lock);
}

static bool turn(struct broker *broker)
{
    struct pollfd fds[CONNECTIONS_MAX + 2];
    size_t places[CONNECTIONS_MAX];
    nfds_t n = 2;
    int wait = send_due(broker);
    pthread_mutex_lock(&broker->cluster->lock);
    bool running = broker->running, quitting = broker->quitting;
    pthread_mutex_unlock(&broker->cluster->lock);
    if (!running)
        drop_all(broker);
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        if (!broker->connections[i])
            continue;
        places[n - 2] = i;
        fds[n++] = (struct pollfd){.fd = broker->connections[i]->fd, .events = POLLIN};
    }
    if (quitting)
        return false;
    fds[0] = (struct pollfd){.fd = broker->listener, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = broker->wake, .events = POLLIN};
    if (poll(fds, n, wait) <= 0)
        return true;
    eventfd_t woken;
    if (fds[1].revents)
        eventfd_read(broker->wake, &woken);
    if (fds[0].revents)
        take_connection(broker);
    for (nfds_t i = 2; i < n; i++)
        if (fds[i].revents)
            receive(broker, places[i - 2]);
    return true;
}

static void *run(void *arg)
{
    struct broker *broker = arg;
    while (turn(broker))
        ;
    while (broker->later) {
        struct later *next = broker->later->next;
        free(broker->later->frame);
        free(broker->later);
        broker->later = next;
    }
    return NULL;
}

/* ---- the cluster ------------------------------------------------------------------------------------ */

static void broker_open(struct stub_cluster *c, struct broker *broker, int32_t id)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    *broker = (struct broker){.cluster = c, .id = id, .running = true};
    broker->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    broker->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    insist(broker->listener >= 0 && broker->wake >= 0, "socket");
    insist(bind(broker->listener, (struct sockaddr *)&address, bytes) == 0, "bind");
    insist(listen(broker->listener, 128) == 0, "listen");
    insist(getsockname(broker->listener, (struct sockaddr *)&address, &bytes) == 0, "getsockname");
    broker->port = ntohs(address.sin_port);
    insist(arena_new((size_t)64 << 20, &broker->arena) == 0, "memory");
}

struct stub_cluster *stub_cluster_new(unsigned brokers)
{
    struct stub_cluster *c = calloc(1, sizeof *c);
    insist(c != NULL && brokers <= BROKERS_MAX, "memory");
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    c->brokers_count = brokers;
    for (unsigned i = 0; i < brokers; i++) {
        broker_open(c, &c->brokers[i], (int32_t)i + 1);
        size_t used = strlen(c->servers);
        snprintf(c->servers + used, sizeof c->servers - used, "%s127.0.0.1:%u", i ? "," : "",
                 c->brokers[i].port);
    }
    for (unsigned i = 0; i < brokers; i++)
        insist(pthread_create(&c->brokers[i].thread, NULL, run, &c->brokers[i]) == 0, "thread");
    return c;
}

static void set_state(struct stub_cluster *c, struct broker *broker, bool running, bool quitting)
{
    pthread_mutex_lock(&c->lock);
    broker->running = running;
    broker->quitting = quitting;
    broker->stopped = false;
    eventfd_write(broker->wake, 1);
    while (!running && !broker->stopped)
        pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

void stub_cluster_free(struct stub_cluster *c)
{
    for (unsigned i = 0; i < c->brokers_count; i++) {
        set_state(c, &c->brokers[i], false, true);
        pthread_join(c->brokers[i].thread, NULL);
        close(c->brokers[i].listener);
        close(c->brokers[i].wake);
        arena_free(c->brokers[i].arena);
    }
    for (size_t i = 0; i < TOPICS_MAX; i++)
        topic_clear(&c->topics[i]);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

void stub_cluster_on_request(struct stub_cluster *c, stub_function *function, void *arg)
{
    pthread_mutex_lock(&c->lock);
    c->function = function;
    c->function_arg = arg;
    pthread_mutex_unlock(&c->lock);
}

const char *stub_cluster_servers(const struct stub_cluster *c)
{
    return c->servers;
}

uint16_t stub_cluster_port(const struct stub_cluster *c, int32_t broker_id)
{
    return c->brokers[broker_id - 1].port;
}

void stub_cluster_add_topic(struct stub_cluster *c, const char *topic, int32_t partitions)
{
    pthread_mutex_lock(&c->lock);
    struct topic *t = topic_by_name(c, topic, strlen(topic));
    for (size_t i = 0; !t && i < TOPICS_MAX; i++)
        if (!c->topics[i].name[0])
            t = &c->topics[i];
    insist(t != NULL, "too many topics");
    topic_clear(t);
    snprintf(t->name, sizeof t->name, "%s", topic);
    unsigned made = ++c->topics_made;
    memcpy(t->id, &made, sizeof made);
    t->partitions_count = partitions;
    t->partitions = calloc((size_t)partitions, sizeof *t->partitions);
    insist(t->partitions != NULL, "memory");
    for (int32_t i = 0; i < partitions; i++)
        t->partitions[i].leader = 1 + i % (int32_t)c->brokers_count;
    pthread_mutex_unlock(&c->lock);
}

void stub_cluster_remove_topic(struct stub_cluster *c, const char *topic)
{
    pthread_mutex_lock(&c->lock);
    struct topic *t = topic_by_name(c, topic, strlen(topic));
    if (t)
        topic_clear(t);
    pthread_mutex_unlock(&c->lock);
}

void stub_cluster_set_leader(struct stub_cluster *c, const char *topic, int32_t partition, int32_t broker_id)
{
    pthread_mutex_lock(&c->lock);
    struct partition *p = partition_named(c, topic, partition);
    if (p) {
        p->leader = broker_id;
        p->epoch++;
    }
    pthread_mutex_unlock(&c->lock);
}

void stub_cluster_cut(struct stub_cluster *c, const char *topic, int32_t partition, int64_t end)
{
    pthread_mutex_lock(&c->lock);
    struct partition *p = partition_named(c, topic, partition);
    while (p && p->count > 0 && p->batches[p->count - 1].base_offset >= end)
        free(p->batches[--p->count].data);
    if (p) {
        p->end = end < p->end ? end : p->end;
        p->epoch++;
    }
    pthread_mutex_unlock(&c->lock);
}

void stub_cluster_stop_broker(struct stub_cluster *c, int32_t broker_id)
{
    set_state(c, &c->brokers[broker_id - 1], false, false);
}

void stub_cluster_start_broker(struct stub_cluster *c, int32_t broker_id)
{
    set_state(c, &c->brokers[broker_id - 1], true, false);
}

unsigned stub_cluster_connections_made(struct stub_cluster *c)
{
    pthread_mutex_lock(&c->lock);
    unsigned made = c->connections_made;
    pthread_mutex_unlock(&c->lock);
    return made;
}

unsigned stub_cluster_requests(struct stub_cluster *c, Brook__Request__BodyCase body)
{
    pthread_mutex_lock(&c->lock);
    unsigned count = c->requests[body % BODIES_MAX];
    pthread_mutex_unlock(&c->lock);
    return count;
}

static int64_t walk_batch(const struct batch *b, struct codec *codec, stub_record_visitor *each, void *arg)
{
    struct batch_header h;
    struct record_walker w;
    struct record record;
    const void *data;
    size_t bytes;
    int64_t count = 0;
    insist(batch_read_header(b->data, b->bytes, &h) == 0, "stored batch");
    insist(batch_records(b->data, &h, codec, EXPANDED_MAX, &data, &bytes) == 0, "stored batch expands");
    insist(record_walker_init(&w, &h, data, bytes) == 0, "stored records");
    int r;
    for (; (r = record_walker_next(&w, &record)) == 0; count++)
        if (each)
            each(arg, &record);
    insist(r == -BROOK_E_AGAIN, "stored record");
    return count;
}

int64_t stub_cluster_walk(struct stub_cluster *c, const char *topic, int32_t partition,
                          stub_record_visitor *each, void *arg)
{
    struct codec *codec;
    int64_t count = 0;
    insist(codec_new(&codec) == 0, "memory");
    pthread_mutex_lock(&c->lock);
    struct partition *p = partition_named(c, topic, partition);
    for (size_t i = 0; p && i < p->count; i++)
        count += walk_batch(&p->batches[i], codec, each, arg);
    pthread_mutex_unlock(&c->lock);
    codec_free(codec);
    return count;
}

int64_t stub_cluster_append(struct stub_cluster *c, const char *topic, int32_t partition, const void *batch,
                            size_t bytes)
{
    struct batch_header h;
    insist(batch_read_header(batch, bytes, &h) == 0, "batch");
    pthread_mutex_lock(&c->lock);
    struct partition *p = partition_named(c, topic, partition);
    int64_t base = p ? store(p, batch, &h) : -1;
    pthread_mutex_unlock(&c->lock);
    return base;
}

int64_t stub_cluster_end_offset(struct stub_cluster *c, const char *topic, int32_t partition)
{
    pthread_mutex_lock(&c->lock);
    struct partition *p = partition_named(c, topic, partition);
    int64_t end = p ? p->end : -1;
    pthread_mutex_unlock(&c->lock);
    return end;
}

static struct partition *find_partition(struct stub_cluster *c, const char *topic, int32_t partition)
{
    for (unsigned i = 0; i < TOPICS_MAX; i++)
        if (strcmp(c->topics[i].name, topic) == 0)
            return &c->topics[i].partitions[partition];
    insist(false, "no such topic");
    return NULL;
}

static void have_producers(struct partition *p)
{
    if (!p->producers)
        insist(producer_state_new(&p->producers) == 0, "memory");
}

void stub_cluster_forget_producers(struct stub_cluster *c, const char *topic, int32_t partition)
{
    pthread_mutex_lock(&c->lock);
    struct partition *p = find_partition(c, topic, partition);
    have_producers(p);
    producer_state_clear(p->producers);
    pthread_mutex_unlock(&c->lock);
}

void stub_cluster_know_producer(struct stub_cluster *c, const char *topic, int32_t partition, int64_t producer_id,
                                int32_t next_sequence)
{
    struct batch_header last = {
        .producer_id = producer_id, .base_offset = -1, .base_sequence = next_sequence - 1, .records_count = 1};
    pthread_mutex_lock(&c->lock);
    struct partition *p = find_partition(c, topic, partition);
    have_producers(p);
    insist(producer_state_note(p->producers, &last, 0) == 0, "memory");
    pthread_mutex_unlock(&c->lock);
}
