/* /consumers/<G>/ids/<member>. Kafka's form: "subscription" maps names to a number of streams. */
#include "coordination/znodes.h"
#include "coordination/znodes_json.h"
#include "proto/base/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUBSCRIPTION_MAX 10000
#define PATTERN_BYTES_MAX 4096
#define TEXT_BYTES_MAX 255

void znode_member_done(struct znode_member *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->topics_count; i++)
        free(m->topics[i]);
    free(m->topics);
    free(m->strategy);
    free(m->host);
    free(m->incarnation);
    memset(m, 0, sizeof *m);
}

static json_t *encode_subscription(const struct znode_member *m)
{
    json_t *subscription = json_object();
    for (size_t i = 0; subscription && i < m->topics_count; i++)
        if (json_object_set_new(subscription, m->topics[i], json_integer(1)) < 0) {
            json_decref(subscription);
            return NULL;
        }
    return subscription;
}

char *znode_encode_member(const struct znode_member *m)
{
    char when[24];
    snprintf(when, sizeof when, "%" PRId64, m->timestamp_ms);
    AUTO_JSON json_t *root = json_pack(
        "{s:i, s:o, s:s, s:s, s:s, s:i, s:s?, s:s}", "version", 1, "subscription", encode_subscription(m),
        "pattern", m->is_pattern ? "white_list" : "static", "timestamp", when, "strategy",
        m->strategy ? m->strategy : "sticky", "algorithm", (int)m->algorithm_version, "host", m->host,
        "incarnation", m->incarnation ? m->incarnation : "");
    return json_to_text(root);
}

static int decode_subscription(json_t *subscription, struct znode_member *m, struct brook_error *error)
{
    size_t count = json_object_size(subscription);
    const char *name;
    json_t *streams;
    if (count > (m->is_pattern ? 1 : SUBSCRIPTION_MAX))
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "a subscription to too many topics");
    if (count == 0)
        return 0;
    m->topics = calloc(count, sizeof *m->topics);
    if (!m->topics)
        return -BROOK_E_NOMEM;
    json_object_foreach(subscription, name, streams)
    {
        size_t bytes = strlen(name);
        bool legal =
            m->is_pattern ? bytes > 0 && bytes <= PATTERN_BYTES_MAX : name_is_legal_topic(name, bytes);
        if (!legal || !json_is_integer(streams))
            return brook_error_set(error, BROOK_E_BAD_ZNODE, "field \"subscription\" holds an illegal entry");
        if (!(m->topics[m->topics_count] = strdup(name)))
            return -BROOK_E_NOMEM;
        m->topics_count++;
    }
    return 0;
}

static int decode_pattern(const json_t *root, bool *ret, struct brook_error *error)
{
    char *pattern = NULL;
    int r = json_get_text(root, "pattern", JSON_OPTIONAL, TEXT_BYTES_MAX, &pattern, error);
    if (r < 0 || !pattern)
        return r;
    bool is_static = strcmp(pattern, "static") == 0;
    bool is_white = strcmp(pattern, "white_list") == 0;
    free(pattern);
    if (!is_static && !is_white)
        return brook_error_set(error, BROOK_E_BAD_ZNODE,
                               "field \"pattern\" is neither static nor white_list");
    *ret = is_white;
    return 0;
}

static bool is_strategy(const char *text)
{
    return strcmp(text, "range") == 0 || strcmp(text, "roundrobin") == 0 || strcmp(text, "sticky") == 0;
}

static int read_member(json_t *root, struct znode_member *m, struct brook_error *error)
{
    json_t *subscription = NULL;
    int r;
    if ((r = decode_pattern(root, &m->is_pattern, error)) < 0 ||
        (r = json_get_object(root, "subscription", JSON_REQUIRED, &subscription, error)) < 0 ||
        (r = decode_subscription(subscription, m, error)) < 0 ||
        (r = json_get_text(root, "strategy", JSON_OPTIONAL, TEXT_BYTES_MAX, &m->strategy, error)) < 0 ||
        (r = json_get_int32(root, "algorithm", JSON_OPTIONAL, 1, INT32_MAX, &m->algorithm_version, error)) <
            0 ||
        (r = json_get_text(root, "host", JSON_OPTIONAL, TEXT_BYTES_MAX, &m->host, error)) < 0 ||
        (r = json_get_text(root, "incarnation", JSON_OPTIONAL, TEXT_BYTES_MAX, &m->incarnation, error)) < 0 ||
        (r = json_get_int64(root, "timestamp", JSON_OPTIONAL, INT64_MIN, INT64_MAX, &m->timestamp_ms,
                            error)) < 0)
        return r;
    if (!m->strategy && !(m->strategy = strdup("range")))
        return -BROOK_E_NOMEM;
    if (!is_strategy(m->strategy))
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "field \"strategy\" is unknown");
    if ((!m->host && !(m->host = strdup(""))) || (!m->incarnation && !(m->incarnation = strdup(""))))
        return -BROOK_E_NOMEM;
    return 0;
}

int znode_decode_member(const char *data, size_t bytes, struct znode_member *ret, struct brook_error *error)
{
    AUTO_JSON json_t *root = NULL;
    struct znode_member m = {.algorithm_version = 1};
    int r = json_load_object(data, bytes, 1, 1, &root, error);
    if (r < 0)
        return r;
    r = read_member(root, &m, error);
    if (r < 0) {
        znode_member_done(&m);
        return r;
    }
    *ret = m;
    return 0;
}
