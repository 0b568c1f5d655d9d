/* /admin/reassign_partitions, /admin/reassign_throttle, /admin/preferred_replica_election, /brokers/topics/<T>/ends/<id>. */
#include "coordination/znodes.h"
#include "coordination/znodes_json.h"
#include "proto/base/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- wishes ----------------------------------------------------------------------------------------- */

void znode_wishes_done(struct znode_wishes *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->count; i++) {
        free(w->list[i].topic);
        free(w->list[i].replicas.brokers);
    }
    free(w->list);
    memset(w, 0, sizeof *w);
}

static json_t *encode_wish(const struct znode_wish *wish, enum znode_wish_kind kind)
{
    if (kind == ZNODE_WISH_REASSIGN)
        return json_pack("{s:s, s:i, s:o}", "topic", wish->topic, "partition", (int)wish->partition, "replicas",
                         json_from_int32s(wish->replicas.brokers, (size_t)wish->replicas.count));
    json_t *entry = json_pack("{s:s, s:i}", "topic", wish->topic, "partition", (int)wish->partition);
    if (entry && wish->unclean && json_object_set_new(entry, "election", json_string("unclean")) < 0) {
        json_decref(entry);
        return NULL;
    }
    return entry;
}

char *znode_encode_wishes(const struct znode_wishes *w, enum znode_wish_kind kind)
{
    AUTO_JSON json_t *root = json_pack("{s:i, s:[]}", "version", 1, "partitions");
    json_t *list = json_object_get(root, "partitions");
    for (size_t i = 0; i < w->count; i++)
        if (json_array_append_new(list, encode_wish(&w->list[i], kind)) < 0)
            return NULL;
    if (kind == ZNODE_WISH_REASSIGN && w->has_throttle &&
        json_object_set_new(root, "throttle", json_integer((json_int_t)w->throttle)) < 0)
        return NULL;
    return json_to_text(root);
}

static int decode_election(const json_t *entry, struct znode_wish *ret, struct brook_error *error)
{
    char *text = NULL;
    int r = json_get_text(entry, "election", JSON_OPTIONAL, 16, &text, error);
    if (r < 0 || !text)
        return r;
    ret->unclean = !strcmp(text, "unclean");
    bool is_known = ret->unclean || !strcmp(text, "preferred");
    free(text);
    return is_known ? 0
                    : brook_error_set(error, BROOK_E_BAD_ZNODE,
                                      "field \"election\" is neither \"preferred\" nor \"unclean\"");
}

static int decode_brokers(const json_t *entry, struct znode_wish *ret, struct brook_error *error)
{
    json_t *array = NULL;
    size_t count = 0;
    int r = json_get_array(entry, "replicas", JSON_REQUIRED, &array, error);
    if (r < 0 || (r = json_to_int32s(array, "replicas", 0, INT32_MAX, ZNODE_REPLICAS_MAX,
                                     &ret->replicas.brokers, &count, error)) < 0)
        return r;
    ret->replicas.count = (int32_t)count;
    return 0;
}

/* What was read so far is in *ret, whatever is returned. */
static int decode_wish(const json_t *entry, enum znode_wish_kind kind, struct znode_wish *ret,
                       struct brook_error *error)
{
    if (!json_is_object(entry))
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "\"partitions\" holds something else than objects");
    int r = json_get_text(entry, "topic", JSON_REQUIRED, TOPIC_NAME_BYTES_MAX, &ret->topic, error);
    if (r < 0 || (r = json_get_int32(entry, "partition", JSON_REQUIRED, 0, ZNODE_PARTITIONS_MAX - 1,
                                     &ret->partition, error)) < 0)
        return r;
    if (!name_is_legal_topic(ret->topic, strlen(ret->topic)))
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "an illegal topic name");
    return kind == ZNODE_WISH_REASSIGN ? decode_brokers(entry, ret, error) : decode_election(entry, ret, error);
}

int znode_decode_wishes(const char *data, size_t bytes, enum znode_wish_kind kind, struct znode_wishes *ret,
                        struct brook_error *error)
{
    AUTO_JSON json_t *root = NULL;
    json_t *array = NULL;
    struct znode_wishes w = {.throttle = -1};
    int r = json_load_object(data, bytes, 1, 1, &root, error);
    if (r < 0 || (r = json_get_array(root, "partitions", JSON_REQUIRED, &array, error)) < 0)
        return r;
    if (kind == ZNODE_WISH_REASSIGN &&
        (r = json_get_int64(root, "throttle", JSON_OPTIONAL, 0, INT64_MAX, &w.throttle, error)) < 0)
        return r;
    w.has_throttle = w.throttle >= 0;
    size_t count = json_array_size(array);
    if (count > ZNODE_WISHES_MAX)
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "%zu partitions, at most %d are allowed", count,
                               ZNODE_WISHES_MAX);
    w.list = calloc(count + 1, sizeof *w.list);
    if (!w.list)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < count && !r; i++)
        r = decode_wish(json_array_get(array, i), kind, &w.list[w.count++], error);
    if (r < 0) {
        znode_wishes_done(&w);
        return r;
    }
    *ret = w;
    return 0;
}

/* ---- the throttle of moves -------------------------------------------------------------------------- */

char *znode_encode_throttle(int64_t bytes_per_s)
{
    AUTO_JSON json_t *root = json_pack("{s:i, s:I}", "version", 1, "bytes_per_second", (json_int_t)bytes_per_s);
    return json_to_text(root);
}

int znode_decode_throttle(const char *data, size_t bytes, int64_t *ret_bytes_per_s, struct brook_error *error)
{
    AUTO_JSON json_t *root = NULL;
    int r = json_load_object(data, bytes, 1, 1, &root, error);
    if (r < 0)
        return r;
    return json_get_int64(root, "bytes_per_second", JSON_REQUIRED, 0, INT64_MAX, ret_bytes_per_s, error);
}

/* ---- ends of logs ----------------------------------------------------------------------------------- */

void znode_ends_done(struct znode_ends *e)
{
    if (!e)
        return;
    free(e->list);
    memset(e, 0, sizeof *e);
}

char *znode_encode_ends(const struct znode_ends *e)
{
    AUTO_JSON json_t *root =
        json_pack("{s:i, s:I, s:{}}", "version", 1, "broker_epoch", (json_int_t)e->broker_epoch, "ends");
    json_t *ends = json_object_get(root, "ends");
    for (size_t i = 0; i < e->count; i++) {
        const struct znode_end *end = &e->list[i];
        char key[16];
        snprintf(key, sizeof key, "%" PRId32, end->partition);
        if (json_object_set_new(ends, key,
                                json_pack("[i, i, I]", (int)end->leader_epoch, (int)end->last_epoch,
                                          (json_int_t)end->end)) < 0)
            return NULL;
    }
    return json_to_text(root);
}

static bool in_range(const json_t *entry, int64_t min, int64_t max)
{
    return json_is_integer(entry) && json_integer_value(entry) >= min && json_integer_value(entry) <= max;
}

static int decode_end(const char *key, const json_t *value, struct znode_end *ret, struct brook_error *error)
{
    const json_t *epoch = json_array_get(value, 0), *last = json_array_get(value, 1),
                 *end = json_array_get(value, 2);
    ret->partition = json_key_number(key, ZNODE_PARTITIONS_MAX - 1);
    if (ret->partition < 0 || json_array_size(value) != 3 || !in_range(epoch, 0, INT32_MAX) ||
        !in_range(last, -1, INT32_MAX) || !in_range(end, -1, INT64_MAX))
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "\"ends\" holds something else than ends of logs");
    ret->leader_epoch = (int32_t)json_integer_value(epoch);
    ret->last_epoch = (int32_t)json_integer_value(last);
    ret->end = json_integer_value(end);
    return 0;
}

static int compare_end(const void *a, const void *b)
{
    int32_t left = ((const struct znode_end *)a)->partition;
    int32_t right = ((const struct znode_end *)b)->partition;
    return (left > right) - (left < right);
}

int znode_decode_ends(const char *data, size_t bytes, struct znode_ends *ret, struct brook_error *error)
{
    AUTO_JSON json_t *root = NULL;
    json_t *object = NULL, *value;
    const char *key;
    struct znode_ends e = {0};
    int r = json_load_object(data, bytes, 1, 1, &root, error);
    if (r < 0 ||
        (r = json_get_int64(root, "broker_epoch", JSON_REQUIRED, 0, INT64_MAX, &e.broker_epoch, error)) < 0 ||
        (r = json_get_object(root, "ends", JSON_REQUIRED, &object, error)) < 0)
        return r;
    if (json_object_size(object) > ZNODE_PARTITIONS_MAX)
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "ends of too many partitions");
    e.list = calloc(json_object_size(object) + 1, sizeof *e.list);
    if (!e.list)
        return -BROOK_E_NOMEM;
    json_object_foreach(object, key, value)
    {
        r = decode_end(key, value, &e.list[e.count++], error);
        if (r < 0) {
            znode_ends_done(&e);
            return r;
        }
    }
    qsort(e.list, e.count, sizeof *e.list, compare_end);
    *ret = e;
    return 0;
}
