/* /brokers/ids/<id> and /brokers/topics/<T>/brokers/<id>. */
#include "coordination/znodes.h"
#include "coordination/znodes_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES_MAX 255
/* What Kafka's version 5 of this node had is read, what its first had too. */
#define BROKER_VERSION 5

void znode_broker_done(struct znode_broker *b)
{
    if (!b)
        return;
    free(b->host);
    free(b->rack);
    free(b->incarnation);
    znode_partitions_free(b->offline, b->offline_count);
    memset(b, 0, sizeof *b);
}

char *znode_encode_broker(const struct znode_broker *b)
{
    char when[24], endpoint[TEXT_BYTES_MAX + 40];
    bool v6 = strchr(b->host, ':') != NULL;
    snprintf(when, sizeof when, "%" PRId64, b->timestamp_ms);
    snprintf(endpoint, sizeof endpoint, v6 ? "BROOK://[%.255s]:%" PRId32 : "BROOK://%.255s:%" PRId32, b->host,
             b->port);
    AUTO_JSON json_t *root = json_pack(
        "{s:i, s:s, s:i, s:[s], s:s?, s:s, s:s, s:I, s:I, s:I, s:b}", "version", BROKER_VERSION, "host", b->host,
        "port", (int)b->port, "endpoints", endpoint, "rack", b->rack, "timestamp", when, "incarnation",
        b->incarnation ? b->incarnation : "", "broker_epoch", (json_int_t)b->broker_epoch, "clean_from",
        (json_int_t)b->clean_from, "disk_from", (json_int_t)b->disk_from, "draining", (int)b->draining);
    if (b->offline_count &&
        json_object_set_new(root, "offline", json_from_partitions(b->offline, b->offline_count)) < 0)
        return NULL;
    return json_to_text(root);
}

static int compare_topics(const void *a, const void *b)
{
    return strcmp(((const struct znode_change_partitions *)a)->topic, ((const struct znode_change_partitions *)b)->topic);
}

static int compare_numbers(const void *a, const void *b)
{
    int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;
    return (left > right) - (left < right);
}

bool znode_broker_is_offline(const struct znode_broker *b, const char *topic, int32_t partition)
{
    struct znode_change_partitions key = {.topic = (char *)(uintptr_t)topic};
    const struct znode_change_partitions *found =
        b->offline_count ? bsearch(&key, b->offline, b->offline_count, sizeof key, compare_topics) : NULL;
    return found && found->partitions_count &&
           bsearch(&partition, found->partitions, found->partitions_count, sizeof partition, compare_numbers) != NULL;
}

static int read_offline(const json_t *root, struct znode_broker *b, struct brook_error *error)
{
    json_t *object = NULL;
    int r = json_get_object(root, "offline", JSON_OPTIONAL, &object, error);
    if (r < 0 || !object || (r = json_to_partitions(object, &b->offline, &b->offline_count, error)) < 0)
        return r;
    if (b->offline_count)
        qsort(b->offline, b->offline_count, sizeof *b->offline, compare_topics);
    for (size_t i = 0; i < b->offline_count; i++)
        if (b->offline[i].partitions_count)
            qsort(b->offline[i].partitions, b->offline[i].partitions_count, sizeof(int32_t), compare_numbers);
    return 0;
}

static int read_broker(const json_t *root, struct znode_broker *b, struct brook_error *error)
{
    int r;
    if ((r = json_get_text(root, "host", JSON_REQUIRED, TEXT_BYTES_MAX, &b->host, error)) < 0 ||
        (r = json_get_int32(root, "port", JSON_REQUIRED, 1, 65535, &b->port, error)) < 0 ||
        (r = json_get_text(root, "rack", JSON_OPTIONAL, TEXT_BYTES_MAX, &b->rack, error)) < 0 ||
        (r = json_get_text(root, "incarnation", JSON_OPTIONAL, TEXT_BYTES_MAX, &b->incarnation, error)) < 0 ||
        (r = json_get_int64(root, "timestamp", JSON_OPTIONAL, INT64_MIN, INT64_MAX, &b->timestamp_ms,
                            error)) < 0 ||
        (r = json_get_int64(root, "broker_epoch", JSON_OPTIONAL, 0, INT64_MAX, &b->broker_epoch, error)) <
            0 ||
        (r = json_get_int64(root, "clean_from", JSON_OPTIONAL, -1, INT64_MAX, &b->clean_from, error)) < 0 ||
        (r = json_get_int64(root, "disk_from", JSON_OPTIONAL, -1, INT64_MAX, &b->disk_from, error)) < 0 ||
        (r = json_get_bool(root, "draining", JSON_OPTIONAL, &b->draining, error)) < 0 ||
        (r = read_offline(root, b, error)) < 0)
        return r;
    if (!*b->host)
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "field \"host\" is empty");
    if (!b->incarnation && !(b->incarnation = strdup("")))
        return -BROOK_E_NOMEM;
    return 0;
}

int znode_decode_broker(const char *data, size_t bytes, struct znode_broker *ret, struct brook_error *error)
{
    AUTO_JSON json_t *root = NULL;
    struct znode_broker b = {.clean_from = -1, .disk_from = -1};
    int r = json_load_object(data, bytes, 1, INT32_MAX, &root, error);
    if (r < 0)
        return r;
    r = read_broker(root, &b, error);
    if (r < 0) {
        znode_broker_done(&b);
        return r;
    }
    *ret = b;
    return 0;
}

char *znode_encode_served(const int32_t *leads, size_t leads_count, const int32_t *follows,
                          size_t follows_count)
{
    AUTO_JSON json_t *root =
        json_pack("{s:i, s:o, s:o}", "version", 1, "leads", json_from_int32s(leads, leads_count), "follows",
                  json_from_int32s(follows, follows_count));
    return json_to_text(root);
}
