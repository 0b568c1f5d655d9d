#include "broker/cluster/intents.h"

#include "broker/cluster/intents_internal.h"
#include "broker/cluster/placement.h"
#include "coordination/paths.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_MS 20 /* between two looks whether a deletion is through */

static void intent_free(struct intent *i)
{
    free(i->topic);
    free(i->node);
    znode_config_done(&i->config);
    free(i);
}

static int copy_config(struct intent *i, const struct znode_config *config)
{
    i->config.entries = calloc(config->count + 1, sizeof *i->config.entries);
    if (!i->config.entries)
        return -BROOK_E_NOMEM;
    for (size_t k = 0; k < config->count; k++) {
        struct znode_config_entry *entry = &i->config.entries[i->config.count++];
        entry->key = strdup(config->entries[k].key);
        entry->value = config->entries[k].value ? strdup(config->entries[k].value) : NULL;
        if (!entry->key || (config->entries[k].value && !entry->value))
            return -BROOK_E_NOMEM;
    }
    return 0;
}

struct intent *intent_new(enum intent_kind kind, const char *topic, int32_t partitions, int32_t replicas,
                          const struct znode_config *config, bool validate_only, int timeout_ms,
                          struct inbox *inbox, cluster_topic_callback *callback, void *arg)
{
    struct intent *i;
    do
        i = calloc(1, sizeof *i);
    while (!i); /* somebody waits for the answer; what holds the memory is about to give some back */
    i->kind = kind;
    i->topic = strdup(topic);
    i->partitions = partitions;
    i->replicas = replicas;
    i->validate_only = validate_only;
    i->deadline_ms = clock_boot_ms() + timeout_ms;
    i->inbox = inbox;
    i->callback = callback;
    i->arg = arg;
    i->is_broken = !i->topic || (config && copy_config(i, config));
    return i;
}

/* ---- answering -------------------------------------------------------------------------------------- */

/* The answer travels by itself, so that the intent may still be pointed to by a call. */
struct answer {
    struct inbox_item item;
    cluster_topic_callback *callback;
    void *arg;
    struct cluster_topic_result result;
};

static void deliver(struct inbox_item *item)
{
    AUTO_FREE struct answer *answer = CONTAINER_OF(item, struct answer, item);
    answer->callback(answer->arg, &answer->result);
}

static void remove_waiting(struct intent *i)
{
    if (!i->all)
        return;
    struct intent **at = &i->all->waiting;
    while (*at && *at != i)
        at = &(*at)->next;
    if (*at) {
        *at = i->next;
        i->all->count--;
    }
}

/* The only way out. */
void intent_answer(struct intent *i)
{
    struct answer *a;
    do
        a = malloc(sizeof *a);
    while (!a);
    *a = (struct answer){.item.run = deliver, .callback = i->callback, .arg = i->arg, .result = i->result};
    remove_waiting(i);
    inbox_post(i->inbox, &a->item);
    i->is_answered = true;
    if (!i->is_calling)
        intent_free(i);
}

void intent_fail(struct intent *i, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    brook_error_setv(&i->result.error, abs(code), format, args);
    va_end(args);
    intent_answer(i);
}

void intent_fail_plainly(struct intent *i, int code)
{
    intent_fail(i, code, "topic %s: %s", i->topic, brook_error_text(code));
}

void intent_refuse(struct intent *i, int code, const char *why)
{
    intent_fail(i, code, "%s", why);
}

/* ---- calls ------------------------------------------------------------------------------------------ */

struct coordinator_call intent_begin(struct intent *i, coordinator_callback *callback)
{
    i->is_calling = true;
    return (struct coordinator_call){.inbox = i->all->s.inbox, .callback = callback, .arg = i};
}

/* NULL: it was answered meanwhile (its time was up). */
struct intent *intent_end(void *arg)
{
    struct intent *i = arg;
    i->is_calling = false;
    if (!i->is_answered)
        return i;
    intent_free(i);
    return NULL;
}

bool intent_is_unknown(int err)
{
    return err == -BROOK_E_OUTCOME_UNKNOWN || err == -BROOK_E_SESSION_EXPIRED;
}

void intent_written(struct intent *i)
{
    i->is_written = true; /* seen to be done at the end of this turn at the earliest */
}

/* ---- placing ---------------------------------------------------------------------------------------- */

/* `count` lists of `each` brokers behind `existing` ones; all lie in one array, which is to be freed. */
int intent_place(struct intent *i, const struct znode_replicas *existing, int32_t existing_count,
                 int32_t count, int32_t each, struct znode_replicas *replicas, int32_t **ret_brokers)
{
    struct intents *all = i->all;
    int32_t *brokers = malloc((size_t)count * (size_t)each * sizeof *brokers);
    if (!brokers)
        return -BROOK_E_NOMEM;
    int err = placement_make(image_alive(all->s.image), existing, existing_count, all->turn++, count, each,
                             brokers, &i->result.error);
    if (err) {
        free(brokers);
        return err;
    }
    for (int32_t k = 0; k < count; k++)
        replicas[k] = (struct znode_replicas){brokers + (size_t)k * (size_t)each, each};
    *ret_brokers = brokers;
    return 0;
}

/* With the sentence that placing left, if it left one. */
void intent_fail_placing(struct intent *i, int err)
{
    struct brook_error why = i->result.error;
    if (why.code)
        intent_fail(i, why.code, "topic %s: %s", i->topic, why.text);
    else
        intent_fail_plainly(i, err);
}

int32_t intent_replicas_of(const struct znode_topic *node)
{
    const struct znode_move *move = znode_topic_move(node, 0);
    if (!node->partitions_count)
        return 0;
    return move ? move->target.count : node->replicas[0].count;
}

/* ---- seen to be done -------------------------------------------------------------------------------- */

/* The image was made from these settings, or from later ones. */
static bool is_in_force(const struct intent *i)
{
    const struct image_topic *topic = image_find(i->all->s.image, i->topic);
    return topic && topic_id_equal(&topic->node.topic_id, &i->result.topic_id) &&
           topic->config_zxid >= i->config_zxid;
}

static bool is_led(const struct intent *i)
{
    const struct image_topic *topic = image_find(i->all->s.image, i->topic);
    if (!topic || !topic_id_equal(&topic->node.topic_id, &i->result.topic_id) ||
        topic->node.partitions_count < i->partitions)
        return false;
    for (int32_t p = 0; p < topic->node.partitions_count; p++)
        if (topic->partitions[p].leader < 0)
            return false;
    return true;
}

static void intent_gone(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = intent_end(arg);
    if (i && reply->err == -BROOK_E_NO_NODE)
        intent_answer(i);
}

/* Not in the image can mean that it was never read: only the intent's own end is proof. */
static void check_deleted(struct intent *i)
{
    const struct image_topic *topic = image_find(i->all->s.image, i->topic);
    struct path path;
    if (i->is_calling || (topic && topic_id_equal(&topic->node.topic_id, &i->result.topic_id)))
        return;
    coordinator_exists(i->all->s.coordinator, path_delete_topic(&path, i->topic), intent_begin(i, intent_gone));
}

/* Returns when to look again. */
static int64_t check(struct intent *i, int64_t now_ms)
{
    if (i->kind != INTENT_DELETE) {
        if (i->kind == INTENT_ALTER ? is_in_force(i) : is_led(i))
            intent_answer(i);
        return INT64_MAX;
    }
    if (now_ms < i->check_ms)
        return i->check_ms;
    i->check_ms = now_ms + CHECK_MS;
    check_deleted(i);
    return i->check_ms;
}

int64_t intents_tick(struct intents *all, int64_t now_ms, bool view_is_current)
{
    int64_t due = INT64_MAX;
    for (struct intent *i = all->waiting, *next; i; i = next) {
        next = i->next;
        if (now_ms >= i->deadline_ms) {
            intent_fail(i, BROOK_E_TIMED_OUT, "topic %s: not done in time; %s", i->topic,
                 i->is_written ? "it will be carried out" : "it may be carried out");
            continue;
        }
        due = i->deadline_ms < due ? i->deadline_ms : due;
        int64_t again = i->is_written && view_is_current ? check(i, now_ms) : INT64_MAX;
        due = again < due ? again : due;
    }
    return due;
}

/* ---- life ------------------------------------------------------------------------------------------- */

int intents_new(const struct intents_settings *settings, struct intents **ret_intents)
{
    struct intents *all = calloc(1, sizeof *all);
    if (!all)
        return -BROOK_E_NOMEM;
    all->s = *settings;
    struct topic_id random;
    topic_id_random(&random);
    memcpy(&all->turn, random.bytes, sizeof all->turn);
    *ret_intents = all;
    return 0;
}

void intents_free(struct intents *all)
{
    if (!all)
        return;
    while (all->waiting)
        intent_fail_plainly(all->waiting, BROOK_E_STOPPING);
    free(all);
}

void intents_submit(struct intents *all, struct intent *i)
{
    if (i->is_broken)
        return intent_refuse(i, BROOK_E_NOMEM, "out of memory");
    if (all->count >= INTENTS_WAITING_MAX)
        return intent_fail_plainly(i, BROOK_E_BUSY);
    i->all = all;
    i->next = all->waiting;
    all->waiting = i;
    all->count++;
    if (!name_is_legal_topic(i->topic, strlen(i->topic)))
        intent_fail(i, BROOK_E_ILLEGAL_NAME,
                    "topic name \"%.60s\": allowed are up to %d letters, digits, '.', '_' and '-'", i->topic,
                    TOPIC_NAME_BYTES_MAX);
    else if (i->kind == INTENT_CREATE)
        intent_create(i);
    else if (i->kind == INTENT_DELETE)
        intent_delete(i);
    else if (i->kind == INTENT_ALTER)
        intent_alter(i);
    else
        intent_grow(i);
}
