#include "coordination/registry.h"

#include "coordination/changes.h"
#include "coordination/ephemeral.h"
#include "coordination/paths.h"
#include "coordination/znodes.h"
#include "coordination/znodes_json.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct registry {
    struct coordinator *coordinator;
    struct inbox *inbox;
    struct registry_events events;
    struct znode_broker entry;
    struct path path;
    struct path epoch_path;
    struct observation *observation; /* of the entry, once it was made */
    char subject[32];
    int64_t broker_epoch; /* -1: not registered */
    int64_t epoch_claimed;
    bool is_wanted;
    bool is_claiming; /* one chain of calls is under way */
    bool is_stale;    /* the entry in ZooKeeper does not say what ours does */
    bool is_telling;  /* a write of it is under way */
    bool is_closed;
};

static void read_epoch(struct registry *r);

static void registry_destroy(struct registry *r)
{
    znode_broker_done(&r->entry);
    free(r);
}

static struct coordinator_call call_of(struct registry *r, coordinator_callback *callback)
{
    return (struct coordinator_call){.inbox = r->inbox,
                                     .callback = callback,
                                     .arg = r,
                                     .urgent = true,
                                     .generation = coordinator_generation(r->coordinator)};
}

static void claim(struct registry *r)
{
    if (!r->is_wanted || r->is_claiming || r->is_closed || r->broker_epoch >= 0)
        return;
    r->is_claiming = true;
    read_epoch(r);
}

/* The chain has ended. Returns whether the object is still wanted. */
static bool end_chain(struct registry *r)
{
    r->is_claiming = false;
    if (!r->is_closed)
        return true;
    if (!r->is_telling)
        registry_destroy(r);
    return false;
}

static void refuse(struct registry *r, const struct brook_error *error)
{
    r->is_wanted = false;
    r->events.refused(r->events.arg, error);
}

/* ---- watching the entry ----------------------------------------------------------------------------- */

static void observed(void *arg, const struct coordinator_reply *reply)
{
    struct registry *r = arg;
    if (r->broker_epoch < 0)
        return;
    if (!reply->err && reply->stat.ephemeral_owner == coordinator_session_id(r->coordinator))
        return;
    r->broker_epoch = -1;
    r->events.vanished(r->events.arg);
    claim(r);
}

/* ---- changing the entry ----------------------------------------------------------------------------- */

static void tell(struct registry *r);

static void told(void *arg, const struct coordinator_reply *reply)
{
    struct registry *r = arg;
    r->is_telling = false;
    if (r->is_closed && !r->is_claiming) {
        registry_destroy(r);
        return;
    }
    if (reply->err)
        r->is_stale = true; /* written with the next entry, or at the next tick */
    else
        tell(r);
}

static void tell(struct registry *r)
{
    if (!r->is_stale || r->is_telling || r->is_closed || r->broker_epoch < 0)
        return;
    struct znode_change change = {.brokers = true};
    struct coordinator_multi *multi = coordinator_multi_new();
    AUTO_FREE char *entry = znode_encode_broker(&r->entry);
    if (multi && entry)
        coordinator_multi_set(multi, r->path.text, entry, strlen(entry), -1);
    if (!multi || !entry || changes_announce(multi, &change)) {
        coordinator_multi_free(multi);
        return;
    }
    r->is_stale = false;
    r->is_telling = true;
    coordinator_multi_send(r->coordinator, &multi, call_of(r, told));
}

static void registered(struct registry *r, int64_t broker_epoch)
{
    r->broker_epoch = broker_epoch;
    r->entry.broker_epoch = broker_epoch;
    if (!r->observation)
        r->observation =
            coordinator_observe(r->coordinator, OBSERVE_DATA, r->path.text, 0, r->inbox, observed, r);
    tell(r);
    r->events.registered(r->events.arg, broker_epoch);
}

/* ---- the claim -------------------------------------------------------------------------------------- */

/* The entry is this session's from an attempt whose answer was lost: the epoch is the one that it names. */
static void adopt(struct registry *r, const struct coordinator_reply *reply)
{
    struct znode_broker entry;
    if (znode_decode_broker(reply->data, reply->data_bytes, &entry, NULL))
        return;
    r->is_stale = true; /* it may be older than what ours says */
    if (!strcmp(entry.incarnation, r->entry.incarnation))
        registered(r, entry.broker_epoch);
    znode_broker_done(&entry);
}

static void explain_taken(struct registry *r, const struct coordinator_reply *reply)
{
    struct brook_error error = {0};
    struct znode_broker entry;
    if (znode_decode_broker(reply->data, reply->data_bytes, &entry, NULL)) {
        ephemeral_explain(reply, r->subject, &error);
    } else {
        brook_error_set(&error, BROOK_E_NODE_EXISTS,
                        "%s is in use by a live broker: %s:%" PRId32 ", incarnation %s, session 0x%" PRIx64,
                        r->subject, entry.host, entry.port, entry.incarnation ? entry.incarnation : "unknown",
                        reply->stat.ephemeral_owner);
        znode_broker_done(&entry);
    }
    refuse(r, &error);
}

static void claimed(void *arg, const struct coordinator_reply *reply)
{
    struct registry *r = arg;
    if (!end_chain(r) || !r->is_wanted)
        return;
    switch (reply->err) {
    case 0:
        if (reply->op_stats)
            registered(r, r->epoch_claimed);
        else
            adopt(r, reply);
        break;
    case -BROOK_E_NODE_EXISTS:
        explain_taken(r, reply);
        break;
    case -BROOK_E_BAD_VERSION:
        claim(r);
        break;
    case -BROOK_E_NODE_TOO_LARGE:
    case -BROOK_E_ZOOKEEPER_AUTH: {
        struct brook_error error;
        brook_error_set(&error, -reply->err, "%s can not be registered: %s", r->subject,
                        brook_error_text(reply->err));
        refuse(r, &error);
        break;
    }
    default: /* the next session or the next tick tries again */
        break;
    }
}

static void send_claim(struct registry *r, int32_t epoch_version)
{
    r->entry.broker_epoch = r->epoch_claimed = (int64_t)epoch_version + 1;
    r->entry.timestamp_ms = clock_wall_ms();
    r->is_stale = false;
    struct coordinator_multi *multi = coordinator_multi_new();
    AUTO_FREE char *number = znode_encode_number(r->epoch_claimed);
    AUTO_FREE char *entry = znode_encode_broker(&r->entry);
    if (!multi || !number || !entry) {
        coordinator_multi_free(multi);
        end_chain(r);
        return;
    }
    coordinator_multi_set(multi, r->epoch_path.text, number, strlen(number), epoch_version);
    coordinator_multi_create(multi, r->path.text, entry, strlen(entry), ZNODE_EPHEMERAL);
    ephemeral_claim(r->coordinator, r->path.text, &multi, -1, call_of(r, claimed));
}

static void epoch_made(void *arg, const struct coordinator_reply *reply)
{
    struct registry *r = arg;
    if (!end_chain(r))
        return;
    if (!reply->err || reply->err == -BROOK_E_NODE_EXISTS)
        claim(r);
}

static void epoch_read(void *arg, const struct coordinator_reply *reply)
{
    struct registry *r = arg;
    if (reply->err == -BROOK_E_NO_NODE && !r->is_closed)
        coordinator_create_path(r->coordinator, r->epoch_path.text, "0", 1, call_of(r, epoch_made));
    else if (reply->err || r->is_closed || !r->is_wanted)
        end_chain(r);
    else
        send_claim(r, reply->stat.version);
}

static void read_epoch(struct registry *r)
{
    coordinator_get(r->coordinator, r->epoch_path.text, call_of(r, epoch_read));
}

/* ---- face ------------------------------------------------------------------------------------------- */

static char *new_incarnation(void)
{
    struct topic_id id;
    char text[TOPIC_ID_TEXT_BYTES];
    topic_id_random(&id);
    topic_id_format(&id, text);
    return strdup(text);
}

int registry_new(struct coordinator *coordinator, struct inbox *inbox,
                 const struct registry_settings *settings, const struct registry_events *events,
                 struct registry **ret_registry)
{
    struct registry *r = calloc(1, sizeof *r);
    if (!r)
        return -BROOK_E_NOMEM;
    r->coordinator = coordinator;
    r->inbox = inbox;
    r->events = *events;
    r->broker_epoch = -1;
    r->entry.port = settings->port;
    r->entry.host = strdup(settings->host);
    r->entry.rack = settings->rack ? strdup(settings->rack) : NULL;
    r->entry.incarnation = new_incarnation();
    if (!r->entry.host || !r->entry.incarnation || (settings->rack && !r->entry.rack)) {
        registry_destroy(r);
        return -BROOK_E_NOMEM;
    }
    path_broker_id(&r->path, settings->broker_id);
    path_broker_epoch(&r->epoch_path, settings->broker_id);
    snprintf(r->subject, sizeof r->subject, "broker id %" PRId32, settings->broker_id);
    *ret_registry = r;
    return 0;
}

void registry_free(struct registry *r)
{
    if (!r)
        return;
    observation_free(r->observation);
    r->is_closed = true;
    if (!r->is_claiming && !r->is_telling)
        registry_destroy(r);
}

void registry_register(struct registry *r, int64_t clean_from, int64_t disk_from)
{
    r->entry.clean_from = clean_from;
    r->entry.disk_from = disk_from;
    r->is_wanted = true;
    claim(r);
}

void registry_expired(struct registry *r)
{
    r->broker_epoch = -1;
    r->is_wanted = false;
}

void registry_tick(struct registry *r)
{
    claim(r);
    tell(r);
}

void registry_drain(struct registry *r)
{
    r->entry.draining = true;
    r->is_stale = true;
    tell(r);
}

void registry_set_offline(struct registry *r, struct znode_change_partitions *list, size_t count)
{
    znode_partitions_free(r->entry.offline, r->entry.offline_count);
    r->entry.offline = list;
    r->entry.offline_count = count;
    r->is_stale = true;
    tell(r);
}

void registry_unregister(struct registry *r, struct coordinator_call call)
{
    r->is_wanted = false;
    r->broker_epoch = -1;
    coordinator_delete_own(r->coordinator, r->path.text, call);
}

int64_t registry_broker_epoch(const struct registry *r)
{
    return r->broker_epoch;
}

const char *registry_incarnation(const struct registry *r)
{
    return r->entry.incarnation;
}
