#include "broker/cluster/quota.h"

#include "coordination/paths.h"
#include "coordination/znodes.h"
#include "proto/base/cleanup.h"
#include "proto/base/diag.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct quota {
    const struct diag *diag;
    quota_report *report;
    void *arg;
    struct path this_path;
    int64_t setting;
    int64_t of_all;  /* -1: nothing is said */
    int64_t of_this; /* likewise */
    _Atomic int64_t bytes;
    _Atomic int64_t throttle;
    int32_t throttle_version;
    struct observation *watches[3];
};

int quota_new(int64_t setting, const struct diag *diag, quota_report *report, void *arg, struct quota **ret_quota)
{
    struct quota *q = calloc(1, sizeof *q);
    if (!q)
        return -BROOK_E_NOMEM;
    q->diag = diag;
    q->report = report;
    q->arg = arg;
    q->setting = setting;
    q->of_all = q->of_this = -1;
    q->throttle_version = QUOTA_NOT_READ;
    atomic_store(&q->bytes, setting);
    *ret_quota = q;
    return 0;
}

void quota_stop(struct quota *q)
{
    for (int i = 0; q && i < 3; i++)
        observation_free(TAKE(q->watches[i]));
}

void quota_free(struct quota *q)
{
    free(q);
}

int64_t quota_bytes(const struct quota *q)
{
    return atomic_load_explicit(&q->bytes, memory_order_relaxed);
}

int64_t quota_throttle(const struct quota *q)
{
    return atomic_load_explicit(&q->throttle, memory_order_relaxed);
}

int32_t quota_throttle_version(const struct quota *q)
{
    return q->throttle_version;
}

void quota_look(struct quota *q)
{
    if (q->watches[2])
        observation_poke(q->watches[2]);
}

static void settle(struct quota *q)
{
    int64_t bytes = q->of_this >= 0 ? q->of_this : q->of_all >= 0 ? q->of_all : q->setting;
    if (bytes == quota_bytes(q))
        return;
    atomic_store_explicit(&q->bytes, bytes, memory_order_relaxed);
    diag_log(q->diag, DIAG_INFO, "", QUOTA_KEY " is %" PRId64 " now", bytes);
}

/* -1: nothing that can be used. */
static int64_t parse(const char *text)
{
    char *end;
    errno = 0;
    long long value = *text >= '0' && *text <= '9' ? strtoll(text, &end, 10) : -1;
    return value < 0 || errno || *end ? -1 : value;
}

/* What the node says, or -1. */
static int64_t find_value(const struct znode_config *config, struct brook_error *error)
{
    int64_t value = -1;
    for (size_t i = 0; i < config->count; i++) {
        if (strcmp(config->entries[i].key, QUOTA_KEY) != 0)
            continue;
        value = parse(config->entries[i].value);
        if (value < 0)
            brook_error_set(error, BROOK_E_BAD_ZNODE, QUOTA_KEY ": \"%.60s\" is not a number of bytes",
                            config->entries[i].value);
    }
    return value;
}

static int64_t read_node(const struct quota *q, const char *path, const struct coordinator_reply *reply)
{
    struct znode_config config = {0};
    struct brook_error error = {0};
    int64_t value = -1;
    if (reply->err && reply->err != -BROOK_E_NO_NODE)
        return -1;
    if (!reply->err && !znode_decode_config(reply->data, reply->data_bytes, &config, &error))
        value = find_value(&config, &error);
    q->report(q->arg, path, error.code ? &error : NULL);
    znode_config_done(&config);
    return value;
}

static void all_observed(void *arg, const struct coordinator_reply *reply)
{
    struct quota *q = arg;
    q->of_all = read_node(q, PATH_CONFIG_BROKERS_DEFAULT, reply);
    settle(q);
}

static void this_observed(void *arg, const struct coordinator_reply *reply)
{
    struct quota *q = arg;
    q->of_this = read_node(q, q->this_path.text, reply);
    settle(q);
}

static void throttle_observed(void *arg, const struct coordinator_reply *reply)
{
    struct quota *q = arg;
    struct brook_error error = {0};
    int64_t bytes = 0;
    if (reply->err && reply->err != -BROOK_E_NO_NODE)
        return;
    q->throttle_version = reply->err ? -1 : reply->stat.version;
    if (!reply->err)
        znode_decode_throttle(reply->data, reply->data_bytes, &bytes, &error);
    q->report(q->arg, PATH_REASSIGN_THROTTLE, error.code ? &error : NULL);
    if (bytes == quota_throttle(q))
        return;
    atomic_store_explicit(&q->throttle, bytes, memory_order_relaxed);
    if (bytes)
        diag_log(q->diag, DIAG_INFO, "", "replicas that are moved here take in %" PRId64 " bytes per second at most",
                 bytes);
    else
        diag_log(q->diag, DIAG_INFO, "", "replicas that are moved here are not throttled any more");
}

int quota_watch(struct quota *q, struct coordinator *coordinator, struct inbox *inbox, int32_t broker_id)
{
    q->watches[0] =
        coordinator_observe(coordinator, OBSERVE_DATA, PATH_CONFIG_BROKERS_DEFAULT, 0, inbox, all_observed, q);
    q->watches[1] = coordinator_observe(coordinator, OBSERVE_DATA, path_broker_config(&q->this_path, broker_id), 0, inbox,
                                        this_observed, q);
    q->watches[2] =
        coordinator_observe(coordinator, OBSERVE_DATA, PATH_REASSIGN_THROTTLE, 0, inbox, throttle_observed, q);
    return q->watches[0] && q->watches[1] && q->watches[2] ? 0 : -BROOK_E_NOMEM;
}
