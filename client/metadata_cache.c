#include "client/metadata_cache.h"

#include "client/client.h"
#include "client/config.h"
#include "proto/base/clock.h"
#include "proto/wire/channel.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

/* Between questions that nothing new made necessary: doubles from the first to the last. */
#define AGAIN_MS_MIN 50
#define AGAIN_MS_MAX 250
#define REQUEST_TIMEOUT_MS_MAX 10000
#define PARTITIONS_MAX 100000

struct topic {
    struct metadata_topic face;
    bool stale; /* to be asked for */
    bool dropped;
    bool answered;
    UT_hash_handle hh; /* by name */
    char name[];
};

struct metadata_cache {
    struct client *client;
    void (*changed)(void *arg);
    void *changed_arg;
    struct topic *topics;
    struct topic *dropped; /* freed at the next answer: pointers may be out */
    struct metadata_broker *brokers;
    size_t brokers_count;
    bool asking;
    bool scheduled;   /* the timer will ask */
    bool brokers_due; /* ask even without a topic */
    int back_off_ms;  /* 0: the last question was answered well */
    int64_t asked_ms;
    struct client_timer *timer; /* ask again */
    struct client_timer *age;
};

static void ask(struct metadata_cache *m);

/* ---- what is known ---------------------------------------------------------------------------------- */

static struct topic *find(struct metadata_cache *m, const char *name)
{
    struct topic *t;
    HASH_FIND_STR(m->topics, name, t);
    return t;
}

static void topic_free(struct topic *t)
{
    free(t->face.partitions);
    free(t);
}

static struct topic *add(struct metadata_cache *m, const char *name)
{
    size_t bytes = strlen(name) + 1;
    struct topic *t = calloc(1, sizeof *t + bytes);
    if (!t)
        return NULL;
    memcpy(t->name, name, bytes);
    t->face.name = t->name;
    t->stale = true;
    HASH_ADD_KEYPTR(hh, m->topics, t->name, bytes - 1, t);
    return t;
}

const struct metadata_topic *metadata_topic(struct metadata_cache *m, const char *name)
{
    struct topic *t = find(m, name);
    if (t)
        return t->answered ? &t->face : NULL;
    if (add(m, name))
        ask(m);
    return NULL;
}

void metadata_unwant(struct metadata_cache *m, const char *name)
{
    struct topic *t = find(m, name);
    if (!t)
        return;
    HASH_DEL(m->topics, t);
    t->hh.next = m->dropped;
    m->dropped = t;
}

static void free_dropped(struct metadata_cache *m)
{
    while (m->dropped) {
        struct topic *t = m->dropped;
        m->dropped = t->hh.next;
        topic_free(t);
    }
}

const struct metadata_broker *metadata_broker(struct metadata_cache *m, int32_t broker_id)
{
    for (size_t i = 0; i < m->brokers_count; i++)
        if (m->brokers[i].broker_id == broker_id)
            return &m->brokers[i];
    return NULL;
}

size_t metadata_brokers(struct metadata_cache *m, const struct metadata_broker **ret_brokers)
{
    *ret_brokers = m->brokers;
    return m->brokers_count;
}

/* ---- answers ---------------------------------------------------------------------------------------- */

/* One block: the array, then the names. */
static void take_brokers(struct metadata_cache *m, const Brook__MetadataResponse *answer)
{
    size_t room = answer->n_brokers * sizeof *m->brokers;
    for (size_t i = 0; i < answer->n_brokers; i++)
        room += answer->brokers[i]->host.len + 1;
    if (answer->n_brokers == 0)
        return;
    struct metadata_broker *brokers = malloc(room);
    if (!brokers)
        return;
    char *text = (char *)(brokers + answer->n_brokers);
    for (size_t i = 0; i < answer->n_brokers; i++) {
        const Brook__BrokerInfo *b = answer->brokers[i];
        brokers[i] =
            (struct metadata_broker){.broker_id = b->broker_id, .host = text, .port = (int32_t)b->port};
        if (b->host.len > 0)
            memcpy(text, b->host.data, b->host.len);
        text[b->host.len] = '\0';
        text += b->host.len + 1;
    }
    free(m->brokers);
    m->brokers = brokers;
    m->brokers_count = answer->n_brokers;
}

static int grow_partitions(struct metadata_topic *face, int32_t count)
{
    struct metadata_partition *wider = realloc(face->partitions, (size_t)count * sizeof *wider);
    if (!wider)
        return -BROOK_E_NOMEM;
    for (int32_t i = face->partitions_count; i < count; i++)
        wider[i] = (struct metadata_partition){.leader = -1, .leader_epoch = -1, .error = BROOK_E_NO_LEADER};
    face->partitions = wider;
    face->partitions_count = count;
    return 0;
}

/* Within one topic an older epoch never replaces a newer one. */
static void take_partition(struct metadata_topic *face, const Brook__PartitionInfo *info)
{
    if (info->partition < 0 || info->partition >= face->partitions_count)
        return;
    struct metadata_partition *p = &face->partitions[info->partition];
    if (info->leader_epoch < p->leader_epoch)
        return;
    p->leader = info->error ? -1 : info->leader;
    p->leader_epoch = info->leader_epoch;
    p->error = info->error ? info->error : info->leader < 0 ? BROOK_E_NO_LEADER : 0;
}

/* Partitions are numbered without holes; an answer that leaves some out says nothing about them. */
static int32_t partitions_in(const Brook__TopicInfo *info)
{
    int32_t count = 0;
    for (size_t i = 0; i < info->n_partitions; i++)
        if (info->partitions[i]->partition >= count && info->partitions[i]->partition < PARTITIONS_MAX)
            count = info->partitions[i]->partition + 1;
    return count;
}

static void take_known(struct metadata_topic *face, const Brook__TopicInfo *info)
{
    if (face->generation == 0 || memcmp(face->topic_id, info->topic_id.data, sizeof face->topic_id) != 0) {
        memcpy(face->topic_id, info->topic_id.data, sizeof face->topic_id);
        face->partitions_count = 0;
        face->generation++;
    }
    int32_t count = partitions_in(info);
    if (count > face->partitions_count && grow_partitions(face, count) < 0)
        return;
    for (size_t i = 0; i < info->n_partitions; i++)
        take_partition(face, info->partitions[i]);
    face->error = 0;
    face->times_unknown = 0;
}

static void take_topic(struct metadata_cache *m, const Brook__TopicInfo *info)
{
    struct topic *t = NULL;
    if (info->name.len > 0)
        HASH_FIND(hh, m->topics, info->name.data, (unsigned)info->name.len, t);
    if (!t)
        return;
    int code = envelope_status_code(info->status);
    t->answered = true;
    if (code == 0 && info->topic_id.len == sizeof t->face.topic_id)
        take_known(&t->face, info);
    else
        t->face.error = code ? code : BROOK_E_SERVER_ERROR;
    if (code == BROOK_E_UNKNOWN_TOPIC)
        t->face.times_unknown++;
}

/* Whether the answer is one to build on, or the question has to be asked again soon. */
static bool is_settled(const struct metadata_topic *face)
{
    if (face->error)
        return false;
    for (int32_t i = 0; i < face->partitions_count; i++)
        if (face->partitions[i].leader < 0)
            return false;
    return face->partitions_count > 0;
}

static void ask_later(struct metadata_cache *m)
{
    if (m->scheduled)
        return;
    m->scheduled = true;
    m->back_off_ms = m->back_off_ms == 0 ? AGAIN_MS_MIN : m->back_off_ms * 2;
    if (m->back_off_ms > AGAIN_MS_MAX)
        m->back_off_ms = AGAIN_MS_MAX;
    client_timer_set(m->timer, m->back_off_ms);
}

static bool mark_unsettled(struct metadata_cache *m)
{
    bool any = false;
    for (struct topic *t = m->topics; t; t = t->hh.next)
        if (!t->stale && !is_settled(&t->face))
            any = t->stale = true;
    return any;
}

static bool any_stale(const struct metadata_cache *m)
{
    for (struct topic *t = m->topics; t; t = t->hh.next)
        if (t->stale)
            return true;
    return false;
}

static void on_answer(void *arg, const struct channel_reply *reply)
{
    struct metadata_cache *m = arg;
    m->asking = false;
    free_dropped(m);
    bool good = reply->err == 0 && envelope_status_code(reply->response->status) == 0 &&
                reply->response->body_case == BROOK__RESPONSE__BODY_METADATA;
    if (!good) {
        for (struct topic *t = m->topics; t; t = t->hh.next)
            t->stale = true;
        ask_later(m);
        return;
    }
    const Brook__MetadataResponse *answer = reply->response->metadata;
    take_brokers(m, answer);
    for (size_t i = 0; i < answer->n_topics; i++)
        take_topic(m, answer->topics[i]);
    bool fresh = any_stale(m); /* wanted since the question was asked */
    if (mark_unsettled(m))
        ask_later(m);
    else
        m->back_off_ms = 0;
    if (fresh)
        ask(m);
    m->changed(m->changed_arg);
}

/* ---- questions -------------------------------------------------------------------------------------- */

static int send_question(struct metadata_cache *m, struct channel *channel, ProtobufCBinaryData *names,
                         size_t count)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__MetadataRequest question = BROOK__METADATA_REQUEST__INIT;
    question.n_topics = count;
    question.topics = names;
    request.body_case = BROOK__REQUEST__BODY_METADATA;
    request.metadata = &question;
    int timeout_ms = config_int(client_config(m->client), CONFIG_REQUEST_TIMEOUT);
    if (timeout_ms > REQUEST_TIMEOUT_MS_MAX)
        timeout_ms = REQUEST_TIMEOUT_MS_MAX;
    return channel_send(channel, &request, NULL, 0, timeout_ms, on_answer, m);
}

static void ask(struct metadata_cache *m)
{
    if (m->asking)
        return;
    struct channel *channel = client_any_channel(m->client);
    if (!channel)
        return; /* metadata_cache_pump() will come */
    ProtobufCBinaryData *names = calloc(HASH_COUNT(m->topics) + 1, sizeof *names);
    if (!names) {
        ask_later(m);
        return;
    }
    size_t count = 0;
    for (struct topic *t = m->topics; t; t = t->hh.next)
        if (t->stale)
            names[count++] = envelope_text(t->name);
    int r = count > 0 || m->brokers_due ? send_question(m, channel, names, count) : 0;
    if (r < 0) {
        ask_later(m);
    } else if (count > 0 || m->brokers_due) {
        m->asking = true;
        m->brokers_due = false;
        m->asked_ms = clock_boot_ms();
        for (struct topic *t = m->topics; t; t = t->hh.next)
            t->stale = false;
        client_timer_set(m->age, config_int(client_config(m->client), CONFIG_METADATA_MAX_AGE));
    }
    free(names);
}

void metadata_cache_pump(struct metadata_cache *m)
{
    ask(m);
}

void metadata_refresh(struct metadata_cache *m)
{
    for (struct topic *t = m->topics; t; t = t->hh.next)
        t->stale = true;
    m->brokers_due = true;
    int64_t since_ms = clock_boot_ms() - m->asked_ms;
    if (m->asked_ms == 0 || since_ms >= AGAIN_MS_MAX) {
        m->back_off_ms = 0;
        ask(m);
    } else if (!m->asking) {
        ask_later(m);
    }
}

static void on_timer(void *arg)
{
    struct metadata_cache *m = arg;
    m->scheduled = false;
    ask(m);
}

static void on_age(void *arg)
{
    metadata_refresh(arg);
}

int metadata_cache_new(struct client *client, void (*changed)(void *arg), void *arg,
                       struct metadata_cache **ret_cache)
{
    struct metadata_cache *m = calloc(1, sizeof *m);
    if (!m)
        return -BROOK_E_NOMEM;
    m->client = client;
    m->changed = changed;
    m->changed_arg = arg;
    m->timer = client_timer_new(client, on_timer, m);
    m->age = client_timer_new(client, on_age, m);
    if (!m->timer || !m->age) {
        metadata_cache_free(m);
        return -BROOK_E_NOMEM;
    }
    *ret_cache = m;
    return 0;
}

void metadata_cache_free(struct metadata_cache *m)
{
    if (!m)
        return;
    free_dropped(m);
    struct topic *t, *next;
    HASH_ITER(hh, m->topics, t, next)
    {
        HASH_DEL(m->topics, t);
        topic_free(t);
    }
    free(m->brokers);
    client_timer_free(m->timer);
    client_timer_free(m->age);
    free(m);
}
