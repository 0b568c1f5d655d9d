/* /brokers/changes/change_<seq>. */
#include "coordination/znodes.h"
#include "coordination/znodes_json.h"
#include "proto/base/names.h"

#include <stdlib.h>
#include <string.h>

#define CHANGE_TOPICS_MAX 100000

static void free_texts(char **texts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(texts[i]);
    free(texts);
}

void znode_partitions_free(struct znode_change_partitions *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(list[i].topic);
        free(list[i].partitions);
    }
    free(list);
}

void znode_change_done(struct znode_change *c)
{
    if (!c)
        return;
    free_texts(c->topics, c->topics_count);
    znode_partitions_free(c->states, c->states_count);
    free_texts(c->assigned, c->assigned_count);
    free_texts(c->ends, c->ends_count);
    memset(c, 0, sizeof *c);
}

static json_t *encode_topics(char *const *topics, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < count; i++)
        if (json_array_append_new(array, json_string(topics[i])) < 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

json_t *json_from_partitions(const struct znode_change_partitions *list, size_t count)
{
    json_t *object = json_object();
    for (size_t i = 0; object && i < count; i++) {
        json_t *numbers = json_from_int32s(list[i].partitions, list[i].partitions_count);
        if (!numbers || json_object_set_new(object, list[i].topic, numbers) < 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

/* A list that most notifications do not have. */
static int add_topics(json_t *root, const char *key, char *const *topics, size_t count)
{
    return count ? json_object_set_new(root, key, encode_topics(topics, count)) : 0;
}

char *znode_encode_change(const struct znode_change *c)
{
    AUTO_JSON json_t *root = json_pack("{s:i, s:b, s:o, s:o}", "version", 1, "brokers", (int)c->brokers,
                                       "topics", encode_topics(c->topics, c->topics_count), "partitions",
                                       json_from_partitions(c->states, c->states_count));
    if (!root || add_topics(root, "assigned", c->assigned, c->assigned_count) ||
        add_topics(root, "ends", c->ends, c->ends_count))
        return NULL;
    return json_to_text(root);
}

static int bad_name(struct brook_error *error)
{
    return brook_error_set(error, BROOK_E_BAD_ZNODE, "an illegal topic name");
}

static int decode_topics(const json_t *root, const char *key, char ***ret, size_t *ret_count,
                         struct brook_error *error)
{
    json_t *array = NULL;
    int r = json_get_array(root, key, JSON_OPTIONAL, &array, error);
    size_t count = array ? json_array_size(array) : 0;
    if (r < 0)
        return r;
    if (count == 0)
        return 0;
    if (count > CHANGE_TOPICS_MAX)
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "too many topics");
    *ret = calloc(count, sizeof **ret);
    if (!*ret)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        const json_t *name = json_array_get(array, i);
        if (!json_is_string(name) || !name_is_legal_topic(json_string_value(name), json_string_length(name)))
            return bad_name(error);
        if (!((*ret)[i] = strdup(json_string_value(name))))
            return -BROOK_E_NOMEM;
        (*ret_count)++;
    }
    return 0;
}

int json_to_partitions(json_t *object, struct znode_change_partitions **ret, size_t *ret_count,
                       struct brook_error *error)
{
    size_t count = json_object_size(object);
    const char *name;
    json_t *numbers;
    if (count == 0)
        return 0;
    if (count > CHANGE_TOPICS_MAX)
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "too many topics");
    *ret = calloc(count, sizeof **ret);
    if (!*ret)
        return -BROOK_E_NOMEM;
    json_object_foreach(object, name, numbers)
    {
        struct znode_change_partitions *at = &(*ret)[*ret_count];
        if (!name_is_legal_topic(name, strlen(name)))
            return bad_name(error);
        if (!(at->topic = strdup(name)))
            return -BROOK_E_NOMEM;
        (*ret_count)++;
        int r = json_to_int32s(numbers, "partitions", 0, ZNODE_PARTITIONS_MAX - 1, ZNODE_PARTITIONS_MAX,
                               &at->partitions, &at->partitions_count, error);
        if (r < 0)
            return r;
    }
    return 0;
}

int znode_decode_change(const char *data, size_t bytes, struct znode_change *ret, struct brook_error *error)
{
    AUTO_JSON json_t *root = NULL;
    json_t *partitions = NULL;
    struct znode_change c = {0};
    int r = json_load_object(data, bytes, 1, 1, &root, error);
    if (r < 0 || (r = json_get_bool(root, "brokers", JSON_OPTIONAL, &c.brokers, error)) < 0 ||
        (r = json_get_object(root, "partitions", JSON_OPTIONAL, &partitions, error)) < 0)
        return r;
    if ((r = decode_topics(root, "topics", &c.topics, &c.topics_count, error)) < 0 ||
        (r = decode_topics(root, "assigned", &c.assigned, &c.assigned_count, error)) < 0 ||
        (r = decode_topics(root, "ends", &c.ends, &c.ends_count, error)) < 0 ||
        (partitions && (r = json_to_partitions(partitions, &c.states, &c.states_count, error)) < 0)) {
        znode_change_done(&c);
        return r;
    }
    *ret = c;
    return 0;
}
