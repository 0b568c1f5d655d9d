/* /brokers/topics/<T> and the state of its partitions. */
#include "coordination/znodes.h"
#include "coordination/znodes_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOPIC_VERSION 3

void znode_topic_done(struct znode_topic *t)
{
    if (!t)
        return;
    for (int32_t p = 0; t->replicas && p < t->partitions_count; p++)
        free(t->replicas[p].brokers);
    free(t->replicas);
    memset(t, 0, sizeof *t);
}

static json_t *encode_partitions(const struct znode_topic *t)
{
    json_t *partitions = json_object();
    for (int32_t p = 0; partitions && p < t->partitions_count; p++) {
        char key[16];
        snprintf(key, sizeof key, "%" PRId32, p);
        json_t *brokers = json_from_int32s(t->replicas[p].brokers, (size_t)t->replicas[p].count);
        if (!brokers || json_object_set_new(partitions, key, brokers) < 0) {
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
    return json_to_text(root);
}

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

int znode_decode_topic(const char *data, size_t bytes, struct znode_topic *ret, struct brook_error *error)
{
    AUTO_JSON json_t *root = NULL;
    json_t *partitions = NULL;
    struct znode_topic t = {0};
    int r = json_load_object(data, bytes, 1, INT32_MAX, &root, error);
    if (r < 0 || (r = decode_topic_id(root, &t.topic_id, error)) < 0 ||
        (r = json_get_object(root, "partitions", JSON_REQUIRED, &partitions, error)) < 0)
        return r;
    r = decode_partitions(partitions, &t, error);
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
