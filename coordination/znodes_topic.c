/* /brokers/topics/<T> and the state of its partitions. */
#include "coordination/znodes.h"
#include "coordination/znodes_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOPIC_VERSION 3

static void move_done(struct znode_move *m)
{
    free(m->adding.brokers);
    free(m->removing.brokers);
    free(m->target.brokers);
}

void znode_topic_done(struct znode_topic *t)
{
    if (!t)
        return;
    for (int32_t p = 0; t->replicas && p < t->partitions_count; p++)
        free(t->replicas[p].brokers);
    free(t->replicas);
    for (size_t i = 0; i < t->moves_count; i++)
        move_done(&t->moves[i]);
    free(t->moves);
    memset(t, 0, sizeof *t);
}

static int compare_move(const void *a, const void *b)
{
    int32_t left = ((const struct znode_move *)a)->partition;
    int32_t right = ((const struct znode_move *)b)->partition;
    return (left > right) - (left < right);
}

const struct znode_move *znode_topic_move(const struct znode_topic *t, int32_t partition)
{
    struct znode_move key = {.partition = partition};
    return t->moves_count ? bsearch(&key, t->moves, t->moves_count, sizeof key, compare_move) : NULL;
}

/* ---- writing ---------------------------------------------------------------------------------------- */

static int add_list(json_t *object, int32_t partition, const struct znode_replicas *list)
{
    char key[16];
    snprintf(key, sizeof key, "%" PRId32, partition);
    json_t *brokers = json_from_int32s(list->brokers, (size_t)list->count);
    return brokers && json_object_set_new(object, key, brokers) == 0 ? 0 : -BROOK_E_NOMEM;
}

/* Kafka leaves out a partition where nothing is added (or removed). */
static int add_moves(const struct znode_topic *t, json_t *root)
{
    json_t *adding = json_object_get(root, "adding_replicas");
    json_t *removing = json_object_get(root, "removing_replicas"), *target = json_object();
    if (!target || json_object_set_new(root, "target_replicas", target) < 0)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < t->moves_count; i++) {
        const struct znode_move *m = &t->moves[i];
        if ((m->adding.count && add_list(adding, m->partition, &m->adding)) ||
            (m->removing.count && add_list(removing, m->partition, &m->removing)) ||
            add_list(target, m->partition, &m->target))
            return -BROOK_E_NOMEM;
    }
    return 0;
}

static json_t *encode_partitions(const struct znode_topic *t)
{
    json_t *partitions = json_object();
    for (int32_t p = 0; partitions && p < t->partitions_count; p++) {
        if (add_list(partitions, p, &t->replicas[p])) {
            json_decref(partitions);
            return NULL;
        }
    }
    return partitions;
}

char *znode_encode_topic(const struct znode_topic *t)
{
    char id[TOPIC_ID_TEXT_BYTES];
    topic_id_format(&t->topic_id, id);
    AUTO_JSON json_t *root =
        json_pack("{s:i, s:s, s:o, s:{}, s:{}}", "version", TOPIC_VERSION, "topic_id", id, "partitions",
                  encode_partitions(t), "adding_replicas", "removing_replicas");
    if (!root || (t->moves_count && add_moves(t, root)))
        return NULL;
    if (t->is_marked && json_object_set_new(root, "marked", json_true()) < 0)
        return NULL;
    return json_to_text(root);
}

/* ---- reading ---------------------------------------------------------------------------------------- */

static int decode_topic_id(const json_t *root, struct topic_id *ret, struct brook_error *error)
{
    char *text = NULL;
    int r = json_get_text(root, "topic_id", JSON_OPTIONAL, TOPIC_ID_TEXT_BYTES, &text, error);
    if (r < 0 || !text)
        return r;
    r = topic_id_parse(text, ret);
    free(text);
    return r < 0 ? brook_error_set(error, BROOK_E_BAD_ZNODE,
                                   "field \"topic_id\" is not 22 characters of base64url")
                 : 0;
}

static int decode_replicas(const json_t *array, struct znode_replicas *ret, struct brook_error *error)
{
    size_t count;
    int r =
        json_to_int32s(array, "partitions", 0, INT32_MAX, ZNODE_REPLICAS_MAX, &ret->brokers, &count, error);
    if (r < 0)
        return r;
    ret->count = (int32_t)count;
    return count > 0 ? 0 : brook_error_set(error, BROOK_E_BAD_ZNODE, "a partition without replicas");
}

/* As many different keys as there are partitions, each below that count: no holes. */
static int decode_partitions(json_t *partitions, struct znode_topic *t, struct brook_error *error)
{
    size_t count = json_object_size(partitions);
    const char *key;
    json_t *value;
    if (count == 0 || count > ZNODE_PARTITIONS_MAX)
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "%zu partitions, allowed are 1 to %d", count,
                               ZNODE_PARTITIONS_MAX);
    t->replicas = calloc(count, sizeof *t->replicas);
    if (!t->replicas)
        return -BROOK_E_NOMEM;
    t->partitions_count = (int32_t)count;
    json_object_foreach(partitions, key, value)
    {
        int32_t p = json_key_number(key, (int32_t)count - 1);
        if (p < 0)
            return brook_error_set(error, BROOK_E_BAD_ZNODE, "partitions are not numbered 0 to %zu",
                                   count - 1);
        int r = decode_replicas(value, &t->replicas[p], error);
        if (r < 0)
            return r;
    }
    return 0;
}

static bool holds(const struct znode_replicas *list, int32_t broker)
{
    for (int32_t i = 0; i < list->count; i++)
        if (list->brokers[i] == broker)
            return true;
    return false;
}

static bool holds_all(const struct znode_replicas *list, const struct znode_replicas *others)
{
    for (int32_t i = 0; i < others->count; i++)
        if (!holds(list, others->brokers[i]))
            return false;
    return true;
}

static int decode_list(const json_t *object, const char *key, struct znode_replicas *ret,
                       struct brook_error *error)
{
    const json_t *array = object ? json_object_get(object, key) : NULL;
    size_t count = 0;
    if (!array)
        return 0;
    int r = json_to_int32s(array, key, 0, INT32_MAX, ZNODE_REPLICAS_MAX, &ret->brokers, &count, error);
    ret->count = r < 0 ? 0 : (int32_t)count;
    return r;
}

/* Whoever wrote no target, or one that is not what stays, means those that stay in their present order. */
static int settle_target(struct znode_move *m, const struct znode_replicas *replicas)
{
    struct znode_replicas *target = &m->target;
    bool fits = target->count == replicas->count - m->removing.count && holds_all(replicas, target);
    for (int32_t i = 0; fits && i < target->count; i++)
        fits = !holds(&m->removing, target->brokers[i]);
    if (fits)
        return 0;
    free(target->brokers);
    *target = (struct znode_replicas){malloc((size_t)replicas->count * sizeof(int32_t)), 0};
    if (!target->brokers)
        return -BROOK_E_NOMEM;
    for (int32_t i = 0; i < replicas->count; i++)
        if (!holds(&m->removing, replicas->brokers[i]))
            target->brokers[target->count++] = replicas->brokers[i];
    return 0;
}

static int decode_move(const json_t *adding, const json_t *removing, const json_t *target, const char *key,
                       struct znode_topic *t, struct brook_error *error)
{
    int32_t p = json_key_number(key, t->partitions_count - 1);
    if (p < 0)
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "a move of a partition that there is not");
    struct znode_move m = {.partition = p};
    int r;
    if ((r = decode_list(adding, key, &m.adding, error)) < 0 ||
        (r = decode_list(removing, key, &m.removing, error)) < 0 ||
        (r = decode_list(target, key, &m.target, error)) < 0) {
        move_done(&m);
        return r;
    }
    const struct znode_replicas *replicas = &t->replicas[p];
    if (m.removing.count >= replicas->count || !holds_all(replicas, &m.adding) ||
        !holds_all(replicas, &m.removing) || m.adding.count >= replicas->count)
        r = brook_error_set(error, BROOK_E_BAD_ZNODE, "replicas that come or go are not among the partition's");
    else
        r = settle_target(&m, replicas);
    if (r < 0 || !(m.adding.count || m.removing.count)) {
        move_done(&m);
        return r;
    }
    t->moves[t->moves_count++] = m;
    return 0;
}

static int decode_moves(const json_t *root, struct znode_topic *t, struct brook_error *error)
{
    json_t *adding = NULL, *removing = NULL, *target = NULL, *value;
    const char *key;
    int r;
    if ((r = json_get_object(root, "adding_replicas", JSON_OPTIONAL, &adding, error)) < 0 ||
        (r = json_get_object(root, "removing_replicas", JSON_OPTIONAL, &removing, error)) < 0 ||
        (r = json_get_object(root, "target_replicas", JSON_OPTIONAL, &target, error)) < 0)
        return r;
    size_t room = (adding ? json_object_size(adding) : 0) + (removing ? json_object_size(removing) : 0);
    if (!room)
        return 0;
    t->moves = calloc(room, sizeof *t->moves);
    if (!t->moves)
        return -BROOK_E_NOMEM;
    json_object_foreach(adding, key, value)
    {
        if ((r = decode_move(adding, removing, target, key, t, error)) < 0)
            return r;
    }
    json_object_foreach(removing, key, value)
    {
        bool is_done = adding && json_object_get(adding, key);
        if (!is_done && (r = decode_move(adding, removing, target, key, t, error)) < 0)
            return r;
    }
    qsort(t->moves, t->moves_count, sizeof *t->moves, compare_move);
    return 0;
}

int znode_decode_topic(const char *data, size_t bytes, struct znode_topic *ret, struct brook_error *error)
{
    AUTO_JSON json_t *root = NULL;
    json_t *partitions = NULL;
    struct znode_topic t = {0};
    int r = json_load_object(data, bytes, 1, INT32_MAX, &root, error);
    if (r < 0 || (r = decode_topic_id(root, &t.topic_id, error)) < 0 ||
        (r = json_get_bool(root, "marked", JSON_OPTIONAL, &t.is_marked, error)) < 0 ||
        (r = json_get_object(root, "partitions", JSON_REQUIRED, &partitions, error)) < 0)
        return r;
    r = decode_partitions(partitions, &t, error);
    if (!r)
        r = decode_moves(root, &t, error);
    if (r < 0) {
        znode_topic_done(&t);
        return r;
    }
    *ret = t;
    return 0;
}

/* ---- partition state --------------------------------------------------------------------------------- */

static json_t *encode_epochs(const struct znode_state *s)
{
    json_t *array = json_array();
    for (int32_t i = 0; array && i < s->isr_count; i++)
        if (json_array_append_new(array, json_integer(s->isr_epochs[i])) < 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

char *znode_encode_state(const struct znode_state *s)
{
    AUTO_JSON json_t *root =
        json_pack("{s:i, s:i, s:i, s:i, s:o, s:o}", "controller_epoch", (int)s->controller_epoch, "leader",
                  (int)s->leader, "version", 1, "leader_epoch", (int)s->leader_epoch, "isr",
                  json_from_int32s(s->isr, (size_t)s->isr_count), "isr_epochs", encode_epochs(s));
    return json_to_text(root);
}

static int decode_isr(const json_t *root, struct znode_state *s, struct brook_error *error)
{
    json_t *array = NULL;
    int32_t *isr = NULL;
    size_t count = 0;
    int r = json_get_array(root, "isr", JSON_REQUIRED, &array, error);
    if (r < 0 ||
        (r = json_to_int32s(array, "isr", 0, INT32_MAX, ZNODE_REPLICAS_MAX, &isr, &count, error)) < 0)
        return r;
    if (count)
        memcpy(s->isr, isr, count * sizeof *isr);
    s->isr_count = (int32_t)count;
    free(isr);
    return 0;
}

static int decode_epochs(const json_t *root, struct znode_state *s, struct brook_error *error)
{
    json_t *array = NULL;
    for (int32_t i = 0; i < s->isr_count; i++)
        s->isr_epochs[i] = -1;
    int r = json_get_array(root, "isr_epochs", JSON_OPTIONAL, &array, error);
    if (r < 0 || !array)
        return r;
    if (json_array_size(array) != (size_t)s->isr_count)
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "\"isr_epochs\" and \"isr\" are not of one length");
    for (int32_t i = 0; i < s->isr_count; i++) {
        const json_t *entry = json_array_get(array, (size_t)i);
        if (!json_is_integer(entry) || json_integer_value(entry) < -1)
            return brook_error_set(error, BROOK_E_BAD_ZNODE,
                                   "\"isr_epochs\" holds something else than epochs");
        s->isr_epochs[i] = json_integer_value(entry);
    }
    return 0;
}

int znode_decode_state(const char *data, size_t bytes, struct znode_state *ret, struct brook_error *error)
{
    AUTO_JSON json_t *root = NULL;
    struct znode_state s = {.leader = -1};
    int r = json_load_object(data, bytes, 1, 1, &root, error);
    if (r < 0 ||
        (r = json_get_int32(root, "controller_epoch", JSON_REQUIRED, 0, INT32_MAX, &s.controller_epoch,
                            error)) < 0 ||
        (r = json_get_int32(root, "leader", JSON_REQUIRED, -1, INT32_MAX, &s.leader, error)) < 0 ||
        (r = json_get_int32(root, "leader_epoch", JSON_REQUIRED, 0, INT32_MAX, &s.leader_epoch, error)) < 0 ||
        (r = decode_isr(root, &s, error)) < 0 || (r = decode_epochs(root, &s, error)) < 0)
        return r;
    *ret = s;
    return 0;
}
