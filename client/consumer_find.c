#include "client/consumer_find.h"

#include "proto/base/err.h"

#include <stdlib.h>
#include <string.h>

#define ANY_BROKER (-1)
#define RETRY_MS 100
/* Partitions asked about in one request; the rest is asked in the next pass. */
#define ENTRIES_MAX 2000

struct find_entry {
    struct consumer_partition *partition; /* with a reference */
    uint32_t generation;
};

/* One request to be sent or in flight. */
struct position_find {
    struct position_find *next;
    struct consumer_fetcher *f;
    int32_t leader; /* ANY_BROKER: stored offsets */
    size_t count;
    size_t capacity;
    struct find_entry *entries;
};

static bool is_asking(const struct consumer_partition *p)
{
    return p->is_asking && p->asking_generation == p->generation;
}

static struct position_find *find_of(struct consumer_fetcher *f, int32_t leader)
{
    for (struct position_find *find = f->finds; find; find = find->next)
        if (find->leader == leader)
            return find;
    struct position_find *find = calloc(1, sizeof *find);
    if (!find)
        return NULL;
    find->f = f;
    find->leader = leader;
    find->next = f->finds;
    f->finds = find;
    return find;
}

static struct find_entry *new_entry(struct position_find *find)
{
    if (find->count == find->capacity) {
        size_t capacity = find->capacity ? 2 * find->capacity : 8;
        struct find_entry *entries = realloc(find->entries, capacity * sizeof *entries);
        if (!entries)
            return NULL;
        find->entries = entries;
        find->capacity = capacity;
    }
    return &find->entries[find->count++];
}

static void ask(struct consumer_fetcher *f, struct consumer_partition *p, int32_t leader)
{
    if (is_asking(p))
        return;
    struct position_find *find = find_of(f, leader);
    struct find_entry *entry = find && find->count < ENTRIES_MAX ? new_entry(find) : NULL;
    if (!entry) {
        fetcher_wake_at(f, set_now_ms() + RETRY_MS);
        return;
    }
    consumer_partition_ref(p);
    *entry = (struct find_entry){.partition = p, .generation = p->generation};
    p->is_asking = true;
    p->asking_generation = p->generation;
}

void find_stored(struct consumer_fetcher *f, struct consumer_partition *p)
{
    if (f->group_id[0] == '\0') /* nobody could have stored one */
        fetcher_apply(f, p, position_on_stored(&p->position, 0, BROOK_OFFSET_NONE, set_now_ms()));
    else
        ask(f, p, ANY_BROKER);
}

void find_log(struct consumer_fetcher *f, struct consumer_partition *p, int32_t leader)
{
    ask(f, p, leader);
}

/* [locked] */
static void find_free(struct position_find *find)
{
    for (size_t i = 0; i < find->count; i++)
        consumer_partition_unref(find->entries[i].partition);
    free(find->entries);
    free(find);
}

void finds_free(struct consumer_fetcher *f)
{
    while (f->finds) {
        struct position_find *find = f->finds;
        f->finds = find->next;
        set_lock(f->set);
        find_free(find);
        set_unlock(f->set);
    }
}

/* ---- answers ---- */

/* Nobody answered (`backs_off`), or nobody could be asked: that is announced when it changes. */
static void on_silence(struct position_find *find, bool backs_off)
{
    for (size_t i = 0; i < find->count; i++) {
        struct find_entry *entry = &find->entries[i];
        struct consumer_partition *p = entry->partition;
        if (p->asking_generation != entry->generation)
            continue;
        p->is_asking = false;
        if (backs_off)
            position_on_silence(&p->position, set_now_ms());
        set_mark(find->f->set, p);
    }
}

static void on_answer(struct position_find *find, struct find_entry *entry, int code, int64_t offset)
{
    struct consumer_fetcher *f = find->f;
    struct consumer_partition *p = entry->partition;
    if (p->asking_generation == entry->generation)
        p->is_asking = false;
    if (p->generation != entry->generation || p->life != PARTITION_LIVE)
        return;
    struct position_effects effects = find->leader == ANY_BROKER
                                          ? position_on_stored(&p->position, code, offset, set_now_ms())
                                          : position_on_log(&p->position, code, offset, set_now_ms());
    fetcher_apply(f, p, effects);
    if (p->position.phase == POSITION_KNOWN)
        set_start_at(f->set, p, p->position.offset);
    set_mark(f->set, p);
}

static void take_listed(struct position_find *find, const Brook__Response *response)
{
    bool is_body = response->body_case == BROOK__RESPONSE__BODY_LIST_OFFSETS;
    size_t count = is_body ? response->list_offsets->n_partitions : 0;
    for (size_t i = 0; i < find->count; i++) {
        if (i >= count) {
            on_answer(find, &find->entries[i], BROOK_E_SERVER_ERROR, -1);
            continue;
        }
        const Brook__ListedOffset *listed = response->list_offsets->partitions[i];
        on_answer(find, &find->entries[i], envelope_status_code(listed->status), listed->offset);
    }
}

static const Brook__FetchedOffset *fetched_of(const Brook__FetchOffsetsResponse *body, const char *topic,
                                              int32_t partition)
{
    for (size_t i = 0; i < body->n_offsets; i++)
        if (body->offsets[i]->partition == partition && envelope_bytes_equal(&body->offsets[i]->topic, topic))
            return body->offsets[i];
    return NULL;
}

/* A broker lists what is stored: a partition that a whole answer does not name has nothing stored. */
static void take_fetched(struct position_find *find, const Brook__Response *response)
{
    const Brook__FetchOffsetsResponse *body =
        response->body_case == BROOK__RESPONSE__BODY_FETCH_OFFSETS ? response->fetch_offsets : NULL;
    for (size_t i = 0; i < find->count; i++) {
        const struct consumer_partition *p = find->entries[i].partition;
        const Brook__FetchedOffset *fetched = body ? fetched_of(body, p->topic, p->partition) : NULL;
        const Brook__FetchedOffset *of_topic = body ? fetched_of(body, p->topic, -1) : NULL;
        if (!body)
            on_answer(find, &find->entries[i], BROOK_E_SERVER_ERROR, BROOK_OFFSET_NONE);
        else if (fetched)
            on_answer(find, &find->entries[i], envelope_status_code(fetched->status), fetched->offset);
        else
            on_answer(find, &find->entries[i], of_topic ? envelope_status_code(of_topic->status) : 0,
                      BROOK_OFFSET_NONE);
    }
}

static void on_found(void *arg, const struct channel_reply *reply)
{
    struct position_find *find = arg;
    struct consumer_fetcher *f = find->f;
    set_lock(f->set);
    int code = reply->err < 0 ? -reply->err : envelope_status_code(reply->response->status);
    if (f->is_closed) {
        code = 0;
    } else if (reply->err < 0) {
        f->needs_refresh |= find->leader != ANY_BROKER;
        on_silence(find, true);
    } else if (code != 0) {
        for (size_t i = 0; i < find->count; i++)
            on_answer(find, &find->entries[i], code, -1);
    } else if (find->leader == ANY_BROKER) {
        take_fetched(find, reply->response);
    } else {
        take_listed(find, reply->response);
    }
    find_free(find);
    set_unlock(f->set);
    fetcher_again(f);
    fetcher_unref(f);
}

/* ---- requests ---- */

static int add_list(struct position_find *find, Brook__Request *request, Brook__ListOffsetsRequest *body)
{
    struct arena *arena = find->f->arena;
    request->body_case = BROOK__REQUEST__BODY_LIST_OFFSETS;
    request->list_offsets = body;
    body->partitions = arena_alloc(arena, find->count * sizeof *body->partitions);
    Brook__ListOffsetsPartition *entries = arena_alloc(arena, find->count * sizeof *entries);
    if (!body->partitions || !entries)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < find->count; i++) {
        struct consumer_partition *p = find->entries[i].partition;
        Brook__ListOffsetsPartition *entry = &entries[i];
        brook__list_offsets_partition__init(entry);
        entry->has_topic_id = entry->has_partition = entry->has_query = true;
        entry->topic_id = envelope_bytes(p->id.topic_id, TOPIC_ID_BYTES);
        entry->partition = p->partition;
        entry->query = p->position.query == BROOK_OFFSET_EARLIEST ? BROOK__OFFSET_QUERY__EARLIEST
                                                                  : BROOK__OFFSET_QUERY__LATEST;
        entry->has_current_epoch = p->leader_epoch >= 0;
        entry->current_epoch = p->leader_epoch;
        body->partitions[i] = entry;
    }
    body->n_partitions = find->count;
    return 0;
}

static bool has_topic(const Brook__FetchOffsetsRequest *body, const char *topic)
{
    for (size_t i = 0; i < body->n_topics; i++)
        if (envelope_bytes_equal(&body->topics[i], topic))
            return true;
    return false;
}

static int add_fetch(struct position_find *find, Brook__Request *request, Brook__FetchOffsetsRequest *body)
{
    request->body_case = BROOK__REQUEST__BODY_FETCH_OFFSETS;
    request->fetch_offsets = body;
    body->has_group = true;
    body->group = envelope_text(find->f->group_id);
    body->topics = arena_alloc(find->f->arena, find->count * sizeof *body->topics);
    if (!body->topics)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < find->count; i++) {
        const char *topic = find->entries[i].partition->topic;
        if (!has_topic(body, topic))
            body->topics[body->n_topics++] = envelope_text(topic);
    }
    return 0;
}

static void find_send(struct position_find *find)
{
    struct consumer_fetcher *f = find->f;
    struct channel *channel = find->leader == ANY_BROKER
                                  ? client_any_channel(f->client)
                                  : client_channel(f->client, find->leader, CLIENT_LANE_REQUESTS);
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__ListOffsetsRequest list = BROOK__LIST_OFFSETS_REQUEST__INIT;
    Brook__FetchOffsetsRequest fetch = BROOK__FETCH_OFFSETS_REQUEST__INIT;
    set_lock(f->set);
    arena_reset(f->arena);
    int r = !channel                     ? -BROOK_E_DISCONNECTED
            : find->leader == ANY_BROKER ? add_fetch(find, &request, &fetch)
                                         : add_list(find, &request, &list);
    if (r == 0)
        r = channel_send(channel, &request, NULL, 0, f->set->settings.request_timeout_ms, on_found, find);
    if (r == 0) {
        fetcher_ref(f);
    } else {
        on_silence(find, channel != NULL);
        find_free(find);
        fetcher_wake_at(f, set_now_ms() + RETRY_MS);
    }
    set_unlock(f->set);
}

void finds_send(struct consumer_fetcher *f)
{
    struct position_find *find = f->finds;
    f->finds = NULL;
    while (find) {
        struct position_find *next = find->next;
        find_send(find);
        find = next;
    }
}
