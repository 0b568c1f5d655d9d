#include "client/partitioner.h"
#include "client/producer_parts.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/names.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- topics (under the lock) ------------------------------------------------------------------------ */

static struct produce_topic *add_topic(brook_producer *p, const char *name)
{
    size_t bytes = strlen(name) + 1;
    struct produce_topic *topic = calloc(1, sizeof *topic + bytes);
    if (!topic)
        return NULL;
    memcpy(topic->name, name, bytes);
    topic->producer = p;
    topic->sticky = -1;
    topic->early_tail = &topic->early_head;
    topic->nowhere.topic = topic;
    topic->nowhere.index = PRODUCER_NOWHERE;
    HASH_ADD_KEYPTR(hh, p->topics, topic->name, bytes - 1, topic);
    return topic;
}

int producer_topic(brook_producer *p, const char *name, struct produce_topic **ret_topic)
{
    struct produce_topic *topic = p->last_topic;
    if (topic && strcmp(topic->name, name) == 0) {
        *ret_topic = topic;
        return 0;
    }
    HASH_FIND_STR(p->topics, name, topic);
    if (!topic) {
        if (!name_is_legal_topic(name, strlen(name)))
            return -BROOK_E_ILLEGAL_NAME;
        if (!(topic = add_topic(p, name)))
            return -BROOK_E_NOMEM;
    }
    p->last_topic = topic;
    *ret_topic = topic;
    return 0;
}

static uint64_t next_random(brook_producer *p)
{
    p->random ^= p->random << 13;
    p->random ^= p->random >> 7;
    p->random ^= p->random << 17;
    return p->random;
}

int32_t producer_topic_choose(brook_producer *p, struct produce_topic *topic)
{
    if (topic->sticky < 0 || topic->sticky >= topic->partitions_count) {
        uint64_t random = next_random(p) >> 16;
        if (topic->available_count > 0)
            topic->sticky = topic->available[random % (uint64_t)topic->available_count];
        else
            topic->sticky = (int32_t)(random % (uint64_t)topic->partitions_count);
    }
    return topic->sticky;
}

static struct produce_partition *make_partition(struct produce_topic *topic, int32_t index)
{
    struct produce_partition *partition = calloc(1, sizeof *partition);
    if (!partition)
        return NULL;
    partition->topic = topic;
    partition->index = index;
    partition->leader = -1;
    partition->producer_id = -1;
    partition->batch_bytes = topic->producer->batch_bytes;
    batch_list_init(&partition->closed);
    batch_list_init(&partition->backlog);
    return partition;
}

/* Room for `count` partitions. They are never taken away: batches point to them. */
static int make_partitions(struct produce_topic *topic, int32_t count)
{
    if (count <= topic->partitions_made)
        return 0;
    size_t bytes = (size_t)count * sizeof topic->partitions[0];
    struct produce_partition **wider = realloc(topic->partitions, bytes);
    if (!wider)
        return -BROOK_E_NOMEM;
    topic->partitions = wider;
    int32_t *available = realloc(topic->available, (size_t)count * sizeof *available);
    if (!available)
        return -BROOK_E_NOMEM;
    topic->available = available;
    for (; topic->partitions_made < count; topic->partitions_made++) {
        struct produce_partition *made = make_partition(topic, topic->partitions_made);
        if (!made)
            return -BROOK_E_NOMEM;
        topic->partitions[topic->partitions_made] = made;
    }
    return 0;
}

/* ---- records whose topic is not known --------------------------------------------------------------- */

static size_t view_bytes(const struct record_view *v)
{
    size_t bytes = (v->key ? (size_t)v->key_bytes : 0) + (v->value ? (size_t)v->value_bytes : 0) +
                   (size_t)v->headers_count * sizeof v->headers[0];
    for (int32_t i = 0; i < v->headers_count; i++)
        bytes +=
            (size_t)v->headers[i].key_bytes + (v->headers[i].value ? (size_t)v->headers[i].value_bytes : 0);
    return bytes;
}

static const void *copy_to(uint8_t **at, const void *data, int32_t bytes)
{
    if (!data)
        return NULL;
    const void *copy = memcpy(*at, data, (size_t)bytes);
    *at += bytes;
    return copy;
}

static void copy_view(struct early_record *early, const struct record_view *v)
{
    struct record_header *headers = (struct record_header *)(early + 1);
    uint8_t *at = (uint8_t *)(headers + v->headers_count);
    early->view = *v;
    early->view.headers = headers;
    early->view.key = copy_to(&at, v->key, v->key_bytes);
    early->view.value = copy_to(&at, v->value, v->value_bytes);
    for (int32_t i = 0; i < v->headers_count; i++) {
        headers[i] = v->headers[i];
        headers[i].key = copy_to(&at, v->headers[i].key, v->headers[i].key_bytes);
        headers[i].value = copy_to(&at, v->headers[i].value, v->headers[i].value_bytes);
    }
}

int producer_topic_hold(brook_producer *p, struct produce_topic *topic, const struct record_view *view,
                        int32_t partition, void *opaque)
{
    size_t bytes = sizeof(struct early_record) + view_bytes(view);
    if (p->used_bytes > 0 && p->used_bytes + bytes > p->buffer_bytes_max)
        return -BROOK_E_QUEUE_FULL;
    struct early_record *early = malloc(bytes);
    if (!early)
        return -BROOK_E_NOMEM;
    *early = (struct early_record){
        .charge = bytes, .partition = partition, .opaque = opaque, .opened_ms = clock_boot_ms()};
    copy_view(early, view);
    p->used_bytes += bytes;
    *topic->early_tail = early;
    topic->early_tail = &early->next;
    if (!topic->is_new) {
        topic->is_new = true;
        topic->new_next = p->new_topics;
        p->new_topics = topic;
    }
    return 0;
}

static struct early_record *take_early(struct produce_topic *topic)
{
    struct early_record *early = topic->early_head;
    if (early && !(topic->early_head = early->next))
        topic->early_tail = &topic->early_head;
    return early;
}

/* Failing needs the lock to be free: what is to fail is collected first. */
static void fail_all(brook_producer *p, struct produce_topic *topic, struct early_record *list, int code)
{
    char buffer[PRODUCER_TEXT_BYTES];
    const char *why = NULL;
    if (list && !client_any_channel(p->client) && client_last_error(p->client)->code)
        why = client_last_error(p->client)->text;
    const char *text = producer_give_up_text(code, why, buffer, sizeof buffer);
    while (list) {
        struct early_record *next = list->next;
        producer_complete_early(p, topic, list, code, text);
        list = next;
    }
}

static void fail_early(brook_producer *p, struct produce_topic *topic, int code)
{
    pthread_mutex_lock(&p->lock);
    struct early_record *list = topic->early_head;
    topic->early_head = NULL;
    topic->early_tail = &topic->early_head;
    pthread_mutex_unlock(&p->lock);
    fail_all(p, topic, list, code);
}

/* ---- the caller's partitioner ------------------------------------------------------------------------ */

/* As the caller gave it, but for the memory. */
static int ask_partitioner(brook_producer *p, const struct produce_topic *topic, struct early_record *early,
                           int32_t count)
{
    const struct record_view *v = &early->view;
    AUTO_FREE struct brook_header *headers = NULL;
    if (v->headers_count > 0 && !(headers = calloc((size_t)v->headers_count, sizeof *headers)))
        return -BROOK_E_NOMEM;
    for (int32_t i = 0; i < v->headers_count; i++)
        headers[i] = (struct brook_header){.key = v->headers[i].key,
                                           .key_bytes = (size_t)v->headers[i].key_bytes,
                                           .value = v->headers[i].value,
                                           .value_bytes = (size_t)v->headers[i].value_bytes};
    struct brook_record record = {.topic = topic->name,
                                  .partition = BROOK_PARTITION_ANY,
                                  .timestamp = v->timestamp,
                                  .key = v->key,
                                  .key_bytes = v->key ? (size_t)v->key_bytes : 0,
                                  .value = v->value,
                                  .value_bytes = v->value ? (size_t)v->value_bytes : 0,
                                  .headers = headers,
                                  .headers_count = (size_t)v->headers_count,
                                  .opaque = early->opaque};
    int32_t chosen = p->partitioner(p->partitioner_arg, &record, count);
    if (chosen < 0 || chosen >= count)
        return -BROOK_E_UNKNOWN_PARTITION;
    early->partition = chosen;
    return 0;
}

/* Ask for what is held, without the lock around the caller's function. Senders go on adding behind, so at the
 * end all have been asked; nobody but the loop takes away. [lock] */
static void partition_early(brook_producer *p, struct produce_topic *topic, int32_t count)
{
    for (struct early_record *early = topic->early_head; p->partitioner && early; early = early->next) {
        if (early->partition >= 0)
            continue;
        pthread_mutex_unlock(&p->lock);
        int r = ask_partitioner(p, topic, early, count);
        pthread_mutex_lock(&p->lock);
        early->code = -r;
    }
}

/* The topic is known: batch what came before. Under the lock, so that it stays before what comes now. */
static struct early_record *replay(brook_producer *p, struct produce_topic *topic)
{
    struct early_record *refused = NULL, **refused_tail = &refused;
    /* They were accepted: whatever room they need they get. */
    p->overdraft = true;
    for (struct early_record *early; (early = take_early(topic));) {
        int32_t partition = early->partition;
        const struct record_view *v = &early->view;
        if (partition < 0 && !early->code && p->by_key && v->key)
            partition = partition_of_key(v->key, (size_t)v->key_bytes, topic->partitions_count);
        else if (partition < 0 && !early->code)
            partition = producer_topic_choose(p, topic);
        p->used_bytes -= early->charge;
        early->next = NULL;
        int r = early->code ? -early->code : -BROOK_E_UNKNOWN_PARTITION;
        if (!early->code && partition < topic->partitions_count)
            r = producer_add(p, topic->partitions[partition], v, early->opaque);
        if (r == 0) {
            free(early);
            continue;
        }
        p->used_bytes += early->charge;
        early->partition = partition;
        early->code = -r;
        *refused_tail = early;
        refused_tail = &early->next;
    }
    p->overdraft = false;
    return refused;
}

/* ---- what the metadata says ------------------------------------------------------------------------- */

static void set_leaders(brook_producer *p, struct produce_topic *topic, const struct metadata_topic *m)
{
    topic->available_count = 0;
    for (int32_t i = 0; i < topic->partitions_made; i++) {
        struct produce_partition *partition = topic->partitions[i];
        bool led = i < m->partitions_count && m->partitions[i].leader >= 0;
        int32_t leader = led ? m->partitions[i].leader : -1;
        if (led)
            topic->available[topic->available_count++] = i;
        if (leader != partition->leader) {
            partition->retry_ms = 0; /* a new leader need not be waited for */
            if (partition->in_target)
                producer_target_leave(p, partition);
        }
        partition->leader = leader;
        producer_agenda(p, partition);
    }
}

/* Another topic of the same name: nobody there knows the numbers given so far. */
static void break_all(brook_producer *p, struct produce_topic *topic)
{
    for (int32_t i = 0; i < topic->partitions_made; i++)
        producer_break(p, topic->partitions[i]);
}

static void take_known(brook_producer *p, struct produce_topic *topic, const struct metadata_topic *m)
{
    struct early_record *refused = NULL;
    pthread_mutex_lock(&p->lock);
    if (m->partitions_count <= PRODUCER_PARTITIONS_MAX && make_partitions(topic, m->partitions_count) == 0) {
        topic->partitions_count = m->partitions_count;
        if (memcmp(topic->topic_id, m->topic_id, sizeof topic->topic_id) != 0)
            break_all(p, topic);
        memcpy(topic->topic_id, m->topic_id, sizeof topic->topic_id);
        set_leaders(p, topic, m);
        partition_early(p, topic, m->partitions_count);
        topic->known = true;
        refused = replay(p, topic);
    }
    pthread_mutex_unlock(&p->lock);
    while (refused) {
        struct early_record *next = refused->next;
        producer_complete_early(p, topic, refused, refused->code, NULL);
        refused = next;
    }
}

/* Two answers in a row said that there is no such topic (any more). */
static void forget_topic(brook_producer *p, struct produce_topic *topic)
{
    pthread_mutex_lock(&p->lock);
    topic->known = false;
    pthread_mutex_unlock(&p->lock);
    fail_early(p, topic, BROOK_E_UNKNOWN_TOPIC);
    for (int32_t i = 0; i < topic->partitions_made; i++)
        producer_partition_fail(p, topic->partitions[i], BROOK_E_UNKNOWN_TOPIC);
}

static void update_topic(brook_producer *p, struct produce_topic *topic)
{
    const struct metadata_topic *m = metadata_topic(client_metadata(p->client), topic->name);
    if (!m)
        return;
    if (m->error == 0 && m->partitions_count > 0)
        take_known(p, topic, m);
    else if (m->error == BROOK_E_UNKNOWN_TOPIC && m->times_unknown >= 2)
        forget_topic(p, topic);
    else if (!topic->known && brook_error_advice(m->error) == BROOK_ADVICE_FIX)
        fail_early(p, topic, m->error);
}

void producer_topics_update(brook_producer *p)
{
    pthread_mutex_lock(&p->lock);
    p->new_topics = NULL;
    for (struct produce_topic *t = p->topics; t; t = t->hh.next)
        t->is_new = false;
    struct produce_topic *topic = p->topics;
    pthread_mutex_unlock(&p->lock);
    /* Topics are only ever added, at the end. */
    while (topic) {
        update_topic(p, topic);
        pthread_mutex_lock(&p->lock);
        topic = topic->hh.next;
        pthread_mutex_unlock(&p->lock);
    }
}

void producer_topics_expire(brook_producer *p, int64_t now_ms, bool all)
{
    pthread_mutex_lock(&p->lock);
    struct produce_topic *topic = p->topics;
    while (topic) {
        struct early_record *old = NULL, **tail = &old;
        while (topic->early_head &&
               (all || now_ms - topic->early_head->opened_ms >= p->delivery_timeout_ms)) {
            struct early_record *early = take_early(topic);
            early->next = NULL;
            *tail = early;
            tail = &early->next;
        }
        pthread_mutex_unlock(&p->lock);
        fail_all(p, topic, old, all ? BROOK_E_PURGED : BROOK_E_TIMED_OUT);
        pthread_mutex_lock(&p->lock);
        topic = topic->hh.next;
    }
    pthread_mutex_unlock(&p->lock);
}

void producer_topics_free(brook_producer *p)
{
    struct produce_topic *topic, *next;
    HASH_ITER(hh, p->topics, topic, next)
    {
        HASH_DEL(p->topics, topic);
        for (int32_t i = 0; i < topic->partitions_made; i++)
            free(topic->partitions[i]);
        free(topic->partitions);
        free(topic->available);
        for (struct early_record *early; (early = take_early(topic));)
            free(early);
        free(topic);
    }
}
