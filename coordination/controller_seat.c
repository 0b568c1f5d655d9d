#include "coordination/controller_seat.h"

#include "coordination/ephemeral.h"
#include "coordination/paths.h"
#include "coordination/znodes.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"

#include <stdlib.h>
#include <string.h>

struct controller_seat {
    struct coordinator *coordinator;
    struct inbox *inbox;
    int32_t broker_id;
    struct controller_seat_events events;
    struct observation *observation;
    int32_t seen; /* who sits there, -1: nobody or not known */
    bool is_free; /* the last observation found no node */
    bool stands;
    bool is_leaving; /* it claims nothing any more */
    bool is_held;
    bool is_claiming; /* one chain of calls is under way */
    bool is_closed;
    int32_t epoch_claimed;
};

static void read_epoch(struct controller_seat *s);

static void claim(struct controller_seat *s)
{
    if (!s->stands || s->is_leaving || s->is_held || s->is_claiming || !s->is_free || s->is_closed)
        return;
    s->is_claiming = true;
    read_epoch(s);
}

static struct coordinator_call call_of(struct controller_seat *s, coordinator_callback *callback)
{
    return (struct coordinator_call){.inbox = s->inbox,
                                     .callback = callback,
                                     .arg = s,
                                     .urgent = true,
                                     .generation = coordinator_generation(s->coordinator)};
}

/* The chain has ended. Returns whether the object is still wanted. */
static bool end_chain(struct controller_seat *s)
{
    s->is_claiming = false;
    if (!s->is_closed)
        return true;
    free(s);
    return false;
}

static void seated(struct controller_seat *s, int32_t epoch, int32_t epoch_version)
{
    s->is_held = true;
    s->is_free = false;
    s->events.elected(s->events.arg, epoch, epoch_version);
}

/* The node is ours from an attempt whose answer was lost: the epoch that came with it is the present one. */
static void epoch_found(void *arg, const struct coordinator_reply *reply)
{
    struct controller_seat *s = arg;
    if (!end_chain(s) || reply->err || !s->stands)
        return;
    int64_t epoch;
    if (!znode_decode_number(reply->data, reply->data_bytes, &epoch, NULL))
        seated(s, (int32_t)epoch, reply->stat.version);
}

static void claimed(void *arg, const struct coordinator_reply *reply)
{
    struct controller_seat *s = arg;
    if (!reply->err && !reply->op_stats && !s->is_closed) {
        coordinator_get(s->coordinator, PATH_CONTROLLER_EPOCH, call_of(s, epoch_found));
        return;
    }
    int32_t epoch_version = reply->err ? -1 : reply->op_stats[1].version;
    if (!end_chain(s))
        return;
    if (!reply->err && s->stands)
        seated(s, s->epoch_claimed, epoch_version);
    else if (!reply->err) /* given up while the claim was under way */
        coordinator_delete_own(s->coordinator, PATH_CONTROLLER, (struct coordinator_call){0});
    else if (reply->err == -BROOK_E_NODE_EXISTS)
        s->is_free = false;
    else if (reply->err == -BROOK_E_BAD_VERSION)
        claim(s);
}

static void send_claim(struct controller_seat *s, int64_t epoch, int32_t version)
{
    struct coordinator_multi *multi = coordinator_multi_new();
    AUTO_FREE char *node = znode_encode_controller(s->broker_id, clock_wall_ms());
    AUTO_FREE char *next = znode_encode_number(epoch + 1);
    if (!multi || !node || !next) {
        coordinator_multi_free(multi);
        end_chain(s);
        return;
    }
    s->epoch_claimed = (int32_t)(epoch + 1);
    coordinator_multi_create(multi, PATH_CONTROLLER, node, strlen(node), ZNODE_EPHEMERAL);
    coordinator_multi_set(multi, PATH_CONTROLLER_EPOCH, next, strlen(next), version);
    ephemeral_claim(s->coordinator, PATH_CONTROLLER, &multi, 0, call_of(s, claimed));
}

static void epoch_made(void *arg, const struct coordinator_reply *reply)
{
    struct controller_seat *s = arg;
    if (!end_chain(s))
        return;
    if (!reply->err || reply->err == -BROOK_E_NODE_EXISTS)
        claim(s);
}

static void epoch_read(void *arg, const struct coordinator_reply *reply)
{
    struct controller_seat *s = arg;
    int64_t epoch = 0;
    if (reply->err == -BROOK_E_NO_NODE && !s->is_closed) {
        coordinator_create_path(s->coordinator, PATH_CONTROLLER_EPOCH, "0", 1, call_of(s, epoch_made));
        return;
    }
    if (reply->err || s->is_closed || !s->stands ||
        znode_decode_number(reply->data, reply->data_bytes, &epoch, NULL)) {
        end_chain(s);
        return;
    }
    send_claim(s, epoch, reply->stat.version);
}

static void read_epoch(struct controller_seat *s)
{
    coordinator_get(s->coordinator, PATH_CONTROLLER_EPOCH, call_of(s, epoch_read));
}

static void set_seen(struct controller_seat *s, int32_t broker_id)
{
    if (s->seen == broker_id)
        return;
    s->seen = broker_id;
    s->events.changed(s->events.arg, broker_id);
}

static void lose(struct controller_seat *s)
{
    if (!s->is_held)
        return;
    s->is_held = false;
    s->events.lost(s->events.arg);
}

static void observed(void *arg, const struct coordinator_reply *reply)
{
    struct controller_seat *s = arg;
    int32_t broker_id = -1;
    s->is_free = reply->err == -BROOK_E_NO_NODE;
    if (!reply->err)
        znode_decode_controller(reply->data, reply->data_bytes, &broker_id, NULL);
    if (reply->err || reply->stat.ephemeral_owner != coordinator_session_id(s->coordinator))
        lose(s);
    set_seen(s, broker_id);
    claim(s);
}

int controller_seat_new(struct coordinator *coordinator, struct inbox *inbox, int32_t broker_id,
                        const struct controller_seat_events *events, struct controller_seat **ret_seat)
{
    struct controller_seat *s = calloc(1, sizeof *s);
    if (!s)
        return -BROOK_E_NOMEM;
    s->coordinator = coordinator;
    s->inbox = inbox;
    s->broker_id = broker_id;
    s->events = *events;
    s->seen = -1;
    s->observation = coordinator_observe(coordinator, OBSERVE_DATA, PATH_CONTROLLER, 0, inbox, observed, s);
    if (!s->observation) {
        free(s);
        return -BROOK_E_NOMEM;
    }
    *ret_seat = s;
    return 0;
}

void controller_seat_free(struct controller_seat *s)
{
    if (!s)
        return;
    observation_free(s->observation);
    s->is_closed = true;
    if (!s->is_claiming)
        free(s);
}

void controller_seat_stand(struct controller_seat *s)
{
    s->stands = true;
    s->is_leaving = false;
    claim(s);
}

void controller_seat_leave_to_others(struct controller_seat *s)
{
    s->is_leaving = true;
}

void controller_seat_expired(struct controller_seat *s)
{
    s->stands = false;
    s->is_free = false; /* the first observation of the new session tells */
    lose(s);
    set_seen(s, -1);
}

void controller_seat_outdated(struct controller_seat *s)
{
    lose(s);
    /* If the node is ours all the same (somebody wrote the epoch by hand), a new claim sets things right. */
    coordinator_delete_own(s->coordinator, PATH_CONTROLLER, (struct coordinator_call){0});
    observation_poke(s->observation);
}

void controller_seat_release(struct controller_seat *s, struct coordinator_call call)
{
    s->stands = false;
    lose(s);
    coordinator_delete_own(s->coordinator, PATH_CONTROLLER, call);
}

void controller_seat_tick(struct controller_seat *s)
{
    claim(s);
}
