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
        free(list[i].quotes);
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

/* Under the key, or behind what is there: writers list partitions in any order. Takes `more`. */
static int append_to(json_t *object, const char *key, json_t *more)
{
    json_t *before = json_object_get(object, key);
    if (!before)
        return json_object_set_new(object, key, more);
    int r = more ? json_array_extend(before, more) : -1;
    json_decref(more);
    return r;
}

json_t *json_from_partitions(const struct znode_change_partitions *list, size_t count)
{
    json_t *object = json_object();
    for (size_t i = 0; object && i < count; i++) {
        json_t *numbers = json_from_int32s(list[i].partitions, list[i].partitions_count);
        if (append_to(object, list[i].topic, numbers) < 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

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

static json_t *encode_rows(const struct znode_change_partitions *named)
{
    json_t *rows = json_array();
    for (size_t i = 0; rows && i < named->partitions_count; i++) {
        const struct znode_state *s = &named->quotes[i].state;
        json_t *row = json_pack("[i, i, i, i, o, o]", (int)named->quotes[i].version, (int)s->controller_epoch,
                                (int)s->leader, (int)s->leader_epoch,
                                json_from_int32s(s->isr, (size_t)s->isr_count), encode_epochs(s));
        if (json_array_append_new(rows, row) < 0) {
            json_decref(rows);
            return NULL;
        }
    }
    return rows;
}

static int add_topic_quotes(json_t *object, const struct znode_change_partitions *named)
{
    char id[TOPIC_ID_TEXT_BYTES];
    json_t *entry = json_object_get(object, named->topic);
    topic_id_format(&named->topic_id, id);
    if (!entry && json_object_set_new(object, named->topic, entry = json_pack("{s:s}", "topic_id", id)) < 0)
        return -1;
    return append_to(entry, "rows", encode_rows(named));
}

/* What was written, for those of which the writer says so. */
static int add_quotes(json_t *root, const struct znode_change *c)
{
    json_t *object = NULL;
    for (size_t i = 0; i < c->states_count; i++) {
        if (!c->states[i].quotes)
            continue;
        if (!object && json_object_set_new(root, "states", object = json_object()) < 0)
            return -1;
        if (add_topic_quotes(object, &c->states[i]) < 0)
            return -1;
    }
    return 0;
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
        add_topics(root, "ends", c->ends, c->ends_count) || add_quotes(root, c))
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

static int bad_row(struct brook_error *error)
{
    return brook_error_set(error, BROOK_E_BAD_ZNODE, "\"states\" holds a row that is not a state");
}

static int32_t row_number(const json_t *row, size_t at)
{
    const json_t *entry = json_array_get(row, at);
    bool is_fit = json_is_integer(entry) && json_integer_value(entry) >= 0 && json_integer_value(entry) <= INT32_MAX;
    return is_fit ? (int32_t)json_integer_value(entry) : -1;
}

static int decode_row(const json_t *row, struct znode_quote *ret, struct brook_error *error)
{
    struct znode_state *s = &ret->state;
    const json_t *isr = json_array_get(row, 4), *epochs = json_array_get(row, 5);
    size_t count = json_array_size(isr);
    ret->version = row_number(row, 0);
    s->controller_epoch = row_number(row, 1);
    s->leader = row_number(row, 2);
    s->leader_epoch = row_number(row, 3);
    s->isr_count = (int32_t)count;
    bool is_led = s->leader >= 0 || json_integer_value(json_array_get(row, 2)) == -1;
    if (ret->version < 0 || s->controller_epoch < 0 || s->leader_epoch < 0 || !is_led || !json_is_array(isr) ||
        !json_is_array(epochs) || count > ZNODE_REPLICAS_MAX || json_array_size(epochs) != count)
        return bad_row(error);
    for (size_t i = 0; i < count; i++) {
        const json_t *epoch = json_array_get(epochs, i);
        s->isr[i] = row_number(isr, i);
        s->isr_epochs[i] = json_integer_value(epoch);
        if (s->isr[i] < 0 || !json_is_integer(epoch) || s->isr_epochs[i] < -1)
            return bad_row(error);
        for (size_t k = 0; k < i; k++)
            if (s->isr[k] == s->isr[i])
                return bad_row(error);
    }
    return 0;
}

static int decode_topic_quotes(json_t *entry, struct znode_change_partitions *named, struct brook_error *error)
{
    json_t *rows = json_object_get(entry, "rows");
    const char *id = json_string_value(json_object_get(entry, "topic_id"));
    if (!json_is_array(rows) || json_array_size(rows) != named->partitions_count || !id ||
        topic_id_parse(id, &named->topic_id) < 0)
        return bad_row(error);
    if (!(named->quotes = calloc(named->partitions_count + 1, sizeof *named->quotes)))
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < named->partitions_count; i++) {
        int r = decode_row(json_array_get(rows, i), &named->quotes[i], error);
        if (r < 0)
            return r;
    }
    return 0;
}

static int decode_quotes(const json_t *root, struct znode_change *c, struct brook_error *error)
{
    json_t *object = NULL;
    int r = json_get_object(root, "states", JSON_OPTIONAL, &object, error);
    for (size_t i = 0; object && !r && i < c->states_count; i++) {
        json_t *entry = json_object_get(object, c->states[i].topic);
        if (entry)
            r = decode_topic_quotes(entry, &c->states[i], error);
    }
    return r;
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
        (partitions && (r = json_to_partitions(partitions, &c.states, &c.states_count, error)) < 0) ||
        (r = decode_quotes(root, &c, error)) < 0) {
        znode_change_done(&c);
        return r;
    }
    *ret = c;
    return 0;
}
