/* The nodes that hold one value: cluster id, controller, numbers, offsets, producer id blocks. */
#include "coordination/znodes.h"
#include "coordination/znodes_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLUSTER_ID_BYTES_MAX 255

char *znode_encode_cluster_id(const char *id)
{
    AUTO_JSON json_t *root = json_pack("{s:s, s:s}", "version", "1", "id", id);
    return json_to_text(root);
}

int znode_decode_cluster_id(const char *data, size_t bytes, char **ret_id, struct brook_error *error)
{
    AUTO_JSON json_t *root = NULL;
    char *id = NULL;
    int r = json_load_object(data, bytes, 1, 1, &root, error);
    if (r < 0 || (r = json_get_text(root, "id", JSON_REQUIRED, CLUSTER_ID_BYTES_MAX, &id, error)) < 0)
        return r;
    if (!*id) {
        free(id);
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "an empty cluster id");
    }
    *ret_id = id;
    return 0;
}

char *znode_encode_controller(int32_t broker_id, int64_t timestamp_ms)
{
    char when[24];
    snprintf(when, sizeof when, "%" PRId64, timestamp_ms);
    AUTO_JSON json_t *root =
        json_pack("{s:i, s:i, s:s}", "version", 1, "brokerid", (int)broker_id, "timestamp", when);
    return json_to_text(root);
}

int znode_decode_controller(const char *data, size_t bytes, int32_t *ret_broker_id, struct brook_error *error)
{
    AUTO_JSON json_t *root = NULL;
    int r = json_load_object(data, bytes, 1, INT32_MAX, &root, error);
    if (r < 0)
        return r;
    return json_get_int32(root, "brokerid", JSON_REQUIRED, 0, INT32_MAX, ret_broker_id, error);
}

char *znode_encode_number(int64_t number)
{
    char *text;
    return asprintf(&text, "%" PRId64, number) < 0 ? NULL : text;
}

int znode_decode_number(const char *data, size_t bytes, int64_t *ret, struct brook_error *error)
{
    if (!data || text_to_int64(data, bytes, ret) < 0)
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "not a decimal number");
    return 0;
}

int znode_decode_offset(const char *data, size_t bytes, int64_t *ret, struct brook_error *error)
{
    int64_t offset = -1;
    if (bytes > 0) {
        int r = znode_decode_number(data, bytes, &offset, error);
        if (r < 0)
            return r;
        if (offset < 0)
            return brook_error_set(error, BROOK_E_BAD_ZNODE, "a negative offset");
    }
    *ret = offset;
    return 0;
}

char *znode_encode_producer_block(int32_t broker_id, int64_t first, int64_t last)
{
    char from[24], to[24];
    snprintf(from, sizeof from, "%" PRId64, first);
    snprintf(to, sizeof to, "%" PRId64, last);
    AUTO_JSON json_t *root = json_pack("{s:i, s:i, s:s, s:s}", "version", 1, "broker", (int)broker_id,
                                       "block_start", from, "block_end", to);
    return json_to_text(root);
}

int znode_decode_producer_block(const char *data, size_t bytes, int64_t *ret_last, struct brook_error *error)
{
    AUTO_JSON json_t *root = NULL;
    int64_t first = 0, last = 0;
    int r = json_load_object(data, bytes, 1, INT32_MAX, &root, error);
    if (r < 0 || (r = json_get_int64(root, "block_start", JSON_REQUIRED, 0, INT64_MAX, &first, error)) < 0 ||
        (r = json_get_int64(root, "block_end", JSON_REQUIRED, 0, INT64_MAX, &last, error)) < 0)
        return r;
    if (last < first)
        return brook_error_set(error, BROOK_E_BAD_ZNODE,
                               "a block of producer ids that ends before it starts");
    *ret_last = last;
    return 0;
}
