#include "tests/unit/client/consumer_fixture.h"

#include "proto/base/err.h"
#include "proto/wire/frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- stored offsets ---- */

static struct stored_offset *find_stored(struct consumer_fixture *f, const char *topic, int32_t partition)
{
    for (unsigned i = 0; i < f->stored_count; i++)
        if (f->stored[i].partition == partition && strcmp(f->stored[i].topic, topic) == 0)
            return &f->stored[i];
    return NULL;
}

static void store(struct consumer_fixture *f, const char *topic, int32_t partition, int64_t offset)
{
    struct stored_offset *s = find_stored(f, topic, partition);
    if (!s) {
        ck_assert_uint_lt(f->stored_count, STORED_MAX);
        s = &f->stored[f->stored_count++];
        snprintf(s->topic, sizeof s->topic, "%s", topic);
        s->partition = partition;
    }
    s->offset = offset;
    s->writes++;
}

void fixture_store(struct consumer_fixture *f, const char *topic, int32_t partition, int64_t offset)
{
    pthread_mutex_lock(&f->lock);
    store(f, topic, partition, offset);
    pthread_mutex_unlock(&f->lock);
}

int64_t fixture_stored(struct consumer_fixture *f, const char *topic, int32_t partition)
{
    pthread_mutex_lock(&f->lock);
    struct stored_offset *s = find_stored(f, topic, partition);
    int64_t offset = s ? s->offset : -1;
    pthread_mutex_unlock(&f->lock);
    return offset;
}

unsigned fixture_stored_writes(struct consumer_fixture *f)
{
    unsigned writes = 0;
    pthread_mutex_lock(&f->lock);
    for (unsigned i = 0; i < f->stored_count; i++)
        writes += f->stored[i].writes;
    pthread_mutex_unlock(&f->lock);
    return writes;
}

struct stored_wait {
    struct consumer_fixture *f;
    const char *topic;
    int32_t partition;
    int64_t offset;
};

static bool is_stored(void *arg)
{
    struct stored_wait *w = arg;
    return fixture_stored(w->f, w->topic, w->partition) == w->offset;
}

bool fixture_wait_stored(struct consumer_fixture *f, const char *topic, int32_t partition, int64_t offset)
{
    struct stored_wait w = {f, topic, partition, offset};
    return suite_wait(is_stored, &w, WAIT_MS);
}

static void answer_commit(struct consumer_fixture *f, const struct stub_request *q)
{
    const Brook__CommitOffsetsRequest *asked = q->request->commit_offsets;
    struct arena *arena;
    ck_assert_int_eq(arena_new(1 << 20, &arena), 0);
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__CommitOffsetsResponse body = BROOK__COMMIT_OFFSETS_RESPONSE__INIT;
    response.body_case = BROOK__RESPONSE__BODY_COMMIT_OFFSETS;
    response.commit_offsets = &body;
    body.n_offsets = asked->n_offsets;
    body.offsets = arena_alloc(arena, asked->n_offsets * sizeof *body.offsets + 1);
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < asked->n_offsets; i++) {
        Brook__CommittedOffset *made = body.offsets[i] = arena_alloc(arena, sizeof *made);
        brook__committed_offset__init(made);
        made->status = envelope_status(arena, f->commit_code, NULL);
        char *topic = arena_string(arena, asked->offsets[i]->topic.data, asked->offsets[i]->topic.len);
        if (f->commit_code == 0)
            store(f, topic, asked->offsets[i]->partition, asked->offsets[i]->offset);
    }
    pthread_mutex_unlock(&f->lock);
    stub_reply(q, &response, NULL, 0, 0);
    arena_free(arena);
}

static void answer_fetch(struct consumer_fixture *f, const struct stub_request *q)
{
    struct arena *arena;
    ck_assert_int_eq(arena_new(1 << 20, &arena), 0);
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__FetchOffsetsResponse body = BROOK__FETCH_OFFSETS_RESPONSE__INIT;
    response.body_case = BROOK__RESPONSE__BODY_FETCH_OFFSETS;
    response.fetch_offsets = &body;
    body.offsets = arena_alloc(arena, (STORED_MAX + 1) * sizeof *body.offsets);
    pthread_mutex_lock(&f->lock);
    for (unsigned i = 0; i < f->stored_count; i++) {
        Brook__FetchedOffset *fetched = body.offsets[body.n_offsets++] = arena_alloc(arena, sizeof *fetched);
        brook__fetched_offset__init(fetched);
        fetched->has_topic = fetched->has_partition = fetched->has_offset = 1;
        fetched->topic = envelope_text(f->stored[i].topic);
        fetched->partition = f->stored[i].partition;
        fetched->offset = f->stored[i].offset;
    }
    pthread_mutex_unlock(&f->lock);
    stub_reply(q, &response, NULL, 0, 0);
    arena_free(arena);
}

/* ---- pull sessions ---- */

#define SESSIONS_MAX 512
#define ENTRIES_MAX 64

struct session_entry {
    uint8_t topic_id[16];
    Brook__PullPartition asked;
    int64_t told_end;
};
struct session {
    struct stub_connection *connection;
    int32_t broker_id;
    int32_t epoch;
    unsigned count;
    struct session_entry entries[ENTRIES_MAX];
};
/* Of one broker, which is a thread. */
static _Thread_local struct session sessions[SESSIONS_MAX];
static _Thread_local uint32_t sessions_count;

static struct session_entry *entry_of(struct session *s, const ProtobufCBinaryData *topic_id,
                                      int32_t partition)
{
    for (unsigned i = 0; i < s->count; i++)
        if (s->entries[i].asked.partition == partition &&
            memcmp(s->entries[i].topic_id, topic_id->data, 16) == 0)
            return &s->entries[i];
    return NULL;
}

static void apply(struct session *s, const Brook__PullRequest *asked)
{
    for (size_t i = 0; i < asked->n_forget; i++) {
        struct session_entry *e = entry_of(s, &asked->forget[i]->topic_id, asked->forget[i]->partition);
        if (e)
            *e = s->entries[--s->count];
    }
    for (size_t i = 0; i < asked->n_partitions; i++) {
        const Brook__PullPartition *named = asked->partitions[i];
        struct session_entry *e = entry_of(s, &named->topic_id, named->partition);
        if (!e) {
            ck_assert_uint_lt(s->count, ENTRIES_MAX);
            e = &s->entries[s->count++];
            e->told_end = -1;
        }
        memcpy(e->topic_id, named->topic_id.data, 16);
        e->asked = *named;
    }
}

/* The session that the request speaks of, or what is wrong. */
static int find_session(const struct stub_request *q, uint32_t *ret_id)
{
    const Brook__PullRequest *asked = q->request->pull;
    if (asked->session_epoch == 0) {
        ck_assert_uint_lt(sessions_count, SESSIONS_MAX);
        sessions[sessions_count] = (struct session){.connection = q->connection, .broker_id = q->broker_id};
        *ret_id = ++sessions_count;
        return 0;
    }
    if (asked->session_id == 0 || asked->session_id > sessions_count)
        return BROOK_E_UNKNOWN_PULL_SESSION;
    struct session *s = &sessions[asked->session_id - 1];
    if (s->connection != q->connection || s->broker_id != q->broker_id)
        return BROOK_E_UNKNOWN_PULL_SESSION;
    if (asked->session_epoch != ++s->epoch)
        return BROOK_E_BAD_PULL_SESSION_EPOCH;
    *ret_id = asked->session_id;
    return 0;
}

/* The answer to a pull that names all partitions of the session, told as the session would. */
static void answer_in_session(const struct stub_request *q, uint32_t id)
{
    struct session *s = &sessions[id - 1];
    Brook__PullRequest all = *q->request->pull;
    Brook__PullPartition *pointers[ENTRIES_MAX];
    Brook__Request request = *q->request;
    struct stub_request copy = *q;
    struct session_entry first = s->entries[0];
    if (s->count > 1) { /* somebody else's turn to be the first */
        memmove(&s->entries[0], &s->entries[1], (s->count - 1) * sizeof first);
        s->entries[s->count - 1] = first;
    }
    for (unsigned i = 0; i < s->count; i++) {
        pointers[i] = &s->entries[i].asked;
        pointers[i]->topic_id.data = s->entries[i].topic_id;
    }
    all.partitions = pointers;
    all.n_partitions = s->count;
    all.n_forget = 0;
    request.pull = &all;
    copy.request = &request;
    size_t bytes;
    uint8_t *frame = stub_render_default(&copy, &bytes);
    struct frame_prefix prefix;
    struct arena *arena;
    Brook__Response *response;
    ck_assert_int_eq(
        frame_parse(frame, bytes, FRAME_BYTES_MAX_DEFAULT, ENVELOPE_BYTES_MAX_BROKER, &prefix, NULL), 0);
    ck_assert_int_eq(arena_new(16 << 20, &arena), 0);
    ck_assert_int_eq(
        envelope_unpack_response(arena, frame + FRAME_PREFIX_BYTES, prefix.envelope_bytes, &response), 0);
    Brook__PullResponse *body = response->pull;
    size_t count = 0, records_bytes = 0;
    bool has_news = false, is_full = false;
    for (size_t i = 0; i < body->n_partitions; i++) {
        Brook__PulledPartition *pulled = body->partitions[i];
        /* The first one may be larger than asked for, no other. */
        is_full |= records_bytes > 0 && records_bytes + pulled->records_bytes > all.max_bytes;
        if (is_full)
            pulled->records_bytes = 0;
        records_bytes += pulled->records_bytes;
        struct session_entry *e = &s->entries[i];
        bool is_told = pulled->records_bytes > 0 || pulled->status || pulled->high_watermark != e->told_end;
        has_news |= is_told;
        e->told_end = pulled->high_watermark;
        if (is_told)
            body->partitions[count++] = pulled;
    }
    body->n_partitions = count;
    body->has_session_id = 1;
    body->session_id = id;
    response->has_correlation_id = 1;
    int delay_ms = has_news || q->request->pull->max_wait_ms == 0 ? 0 : 5;
    stub_reply(q, response, frame + FRAME_PREFIX_BYTES + prefix.envelope_bytes, records_bytes, delay_ms);
    arena_free(arena);
    free(frame);
}

static void answer_pull(struct consumer_fixture *f, const struct stub_request *q)
{
    uint32_t id;
    pthread_mutex_lock(&f->lock);
    int code = find_session(q, &id);
    if (code == 0) {
        apply(&sessions[id - 1], q->request->pull);
        answer_in_session(q, id);
    }
    pthread_mutex_unlock(&f->lock);
    if (code != 0)
        stub_reply_error(q, code, "");
}

static enum stub_verdict on_request(void *arg, const struct stub_request *q)
{
    struct consumer_fixture *f = arg;
    if (f->function && f->function(f->function_arg, q) == STUB_DONE)
        return STUB_DONE;
    switch (q->request->body_case) {
    case BROOK__REQUEST__BODY_COMMIT_OFFSETS:
        answer_commit(f, q);
        return STUB_DONE;
    case BROOK__REQUEST__BODY_FETCH_OFFSETS:
        answer_fetch(f, q);
        return STUB_DONE;
    case BROOK__REQUEST__BODY_PULL:
        if (f->no_sessions || q->request->pull->session_epoch < 0)
            return STUB_PASS;
        answer_pull(f, q);
        return STUB_DONE;
    default:
        return STUB_PASS;
    }
}

/* ---- the fixture ---- */

void fixture_open(struct consumer_fixture *f, unsigned brokers)
{
    memset(f, 0, sizeof *f);
    pthread_mutex_init(&f->lock, NULL);
    f->cluster = stub_cluster_new(brokers);
    stub_cluster_on_request(f->cluster, on_request, f);
    ck_assert_int_eq(brook_config_new(&f->config), 0);
    fixture_set(f, "bootstrap.servers", stub_cluster_servers(f->cluster));
    fixture_set(f, "auto.offset.reset", "earliest");
    fixture_set(f, "reconnect.backoff.ms", "1");
    fixture_set(f, "reconnect.backoff.max.ms", "20");
}

void fixture_set(struct consumer_fixture *f, const char *key, const char *value)
{
    int r = brook_config_set(f->config, key, value, &f->error);
    ck_assert_msg(r == 0, "%s", f->error.text);
}

void fixture_start(struct consumer_fixture *f)
{
    int r = brook_consumer_new(f->config, &f->consumer, &f->error);
    ck_assert_msg(r == 0, "%s", f->error.text);
}

void fixture_assign(struct consumer_fixture *f, const char *topic, int32_t partition, int64_t offset)
{
    struct brook_position position = {topic, partition, offset};
    if (!f->consumer)
        fixture_start(f);
    int r = brook_consumer_assign(f->consumer, &position, 1, &f->error);
    ck_assert_msg(r == 0, "%s", f->error.text);
}

void fixture_close(struct consumer_fixture *f)
{
    brook_consumer_close(f->consumer, WAIT_MS);
    brook_config_free(f->config);
    stub_cluster_free(f->cluster);
    pthread_mutex_destroy(&f->lock);
}

/* Takes over *data, the writer's buffer. */
static size_t compress(struct batch_writer *w, uint8_t **data)
{
    struct codec *codec;
    size_t room = BATCH_HEADER_BYTES + codec_bound(CODEC_ZSTD, w->bytes), bytes = 0;
    uint8_t *to = malloc(room);
    ck_assert_int_eq(codec_new(&codec), 0);
    ck_assert_int_eq(batch_writer_finish_compressed(w, codec, CODEC_ZSTD, -1, -1, -1, to, room, &bytes), 0);
    codec_free(codec);
    free(*data);
    *data = to;
    return bytes;
}

static size_t make_batch(struct consumer_fixture *f, const char *topic, int32_t partition, int count,
                         size_t value_bytes, bool is_compressed, uint8_t **ret_data)
{
    int64_t base = stub_cluster_end_offset(f->cluster, topic, partition);
    size_t room = BATCH_HEADER_BYTES + (size_t)count * (value_bytes + 100);
    uint8_t *data = malloc(room);
    char *value = calloc(1, value_bytes + 64);
    struct batch_writer w;
    batch_writer_init(&w, data, room);
    for (int i = 0; i < count; i++) {
        int n = snprintf(value, 64, "%s/%d/%lld", topic, partition, (long long)base + i);
        struct record_header header = {.key = "h", .key_bytes = 1, .value = "x", .value_bytes = 1};
        struct record_view view = {.key = "k",
                                   .key_bytes = 1,
                                   .value = value,
                                   .value_bytes =
                                       (int32_t)((size_t)n > value_bytes ? (size_t)n : value_bytes),
                                   .headers = &header,
                                   .headers_count = 1,
                                   .timestamp = 1000 + base + i};
        ck_assert_int_eq(batch_writer_add(&w, &view), 0);
    }
    free(value);
    *ret_data = data;
    return is_compressed ? compress(&w, ret_data) : batch_writer_finish(&w, -1, -1, -1);
}

void fixture_append(struct consumer_fixture *f, const char *topic, int32_t partition, int count,
                    size_t value_bytes)
{
    uint8_t *data;
    size_t bytes = make_batch(f, topic, partition, count, value_bytes, false, &data);
    ck_assert_int_ge(stub_cluster_append(f->cluster, topic, partition, data, bytes), 0);
    free(data);
}

void fixture_append_compressed(struct consumer_fixture *f, const char *topic, int32_t partition, int count,
                               size_t value_bytes)
{
    uint8_t *data;
    size_t bytes = make_batch(f, topic, partition, count, value_bytes, true, &data);
    ck_assert_int_ge(stub_cluster_append(f->cluster, topic, partition, data, bytes), 0);
    free(data);
}

void fixture_append_damaged(struct consumer_fixture *f, const char *topic, int32_t partition, int count)
{
    uint8_t *data;
    size_t bytes = make_batch(f, topic, partition, count, 0, false, &data);
    data[bytes - 10] ^= 0x20;
    ck_assert_int_ge(stub_cluster_append(f->cluster, topic, partition, data, bytes), 0);
    free(data);
}

brook_batch *fixture_poll(struct consumer_fixture *f)
{
    brook_batch *batch;
    int r = brook_consumer_poll(f->consumer, WAIT_MS, &batch, &f->error);
    ck_assert_msg(r == 0, "poll: %s", f->error.text);
    return batch;
}

int fixture_poll_event(struct consumer_fixture *f)
{
    brook_batch *batch = NULL;
    int r = brook_consumer_poll(f->consumer, WAIT_MS, &batch, &f->error);
    if (r == 0)
        brook_batch_release(batch);
    return r;
}

int64_t fixture_check_batch(struct consumer_fixture *f, brook_batch *batch, int64_t first)
{
    struct brook_message m;
    char text[64];
    while (brook_batch_next(batch, &m) == 0) {
        struct brook_header header;
        int n = snprintf(text, sizeof text, "%s/%d/%lld", brook_batch_topic(batch),
                         brook_batch_partition(batch), (long long)m.offset);
        ck_assert_int_eq(m.offset, first);
        ck_assert_uint_ge(m.value_bytes, (size_t)n);
        ck_assert(memcmp(m.value, text, (size_t)n) == 0);
        ck_assert_int_eq(m.timestamp, 1000 + m.offset);
        ck_assert(m.key_bytes == 1 && memcmp(m.key, "k", 1) == 0);
        ck_assert_int_eq(brook_message_header(&m, 0, &header), 0);
        ck_assert(header.value_bytes == 1 && memcmp(header.value, "x", 1) == 0);
        ck_assert_int_eq(brook_message_header(&m, 1, &header), -BROOK_E_INVALID);
        first++;
    }
    return first;
}

void fixture_read_to(struct consumer_fixture *f, int32_t partition, int64_t *at, int64_t end)
{
    while (*at < end) {
        brook_batch *batch = fixture_poll(f);
        ck_assert_int_eq(brook_batch_partition(batch), partition);
        *at = fixture_check_batch(f, batch, *at);
        brook_batch_release(batch);
    }
    ck_assert_int_eq(*at, end);
}
