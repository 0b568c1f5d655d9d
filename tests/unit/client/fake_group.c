/* client/group_driver.h as a puppet: no ZooKeeper, the test says what happens. */
#include "client/group_driver.h"

#include "client/client.h"
#include "tests/unit/client/consumer_fixture.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct group {
    struct client *client;
    struct group_events events;
};

static struct group *the_group;
static _Atomic bool may_deliver = true;
static _Atomic int64_t drained_offset = -2;
static _Atomic int64_t committed_offset = -2;
static _Atomic unsigned leaves;

int group_new(struct client *client, const struct group_events *events, struct group **ret_group,
              struct brook_error *error)
{
    the_group = calloc(1, sizeof *the_group);
    the_group->client = client;
    the_group->events = *events;
    *ret_group = the_group;
    return 0;
}

void group_free(struct group *group)
{
    free(group);
    the_group = NULL;
}

int group_subscribe(struct group *group, const char *const *topics, size_t count, const char *pattern,
                    struct brook_error *error)
{
    return 0;
}

int group_check_topics(const char *const *topics, size_t count, struct brook_error *error)
{
    return 0;
}

int group_check_pattern(const char *pattern, struct brook_error *error)
{
    return 0;
}

void group_leave(struct group *group, enum group_leave_mode mode, int timeout_ms,
                 void (*done)(void *arg, int err), void *arg)
{
    atomic_fetch_add(&leaves, 1);
    if (done)
        done(arg, 0);
}

bool group_keeps_session(const struct group *group)
{
    return false;
}

void group_drained(struct group *group, const char *topic, int32_t partition, int64_t offset)
{
    atomic_store(&drained_offset, offset);
}

void group_commit(struct group *group, const struct brook_position *positions, size_t count, int timeout_ms,
                  group_commit_callback *done, void *arg)
{
    atomic_store(&committed_offset, positions[0].offset);
    if (done)
        done(arg, 0, NULL);
}

int64_t group_committed(const struct group *group, const char *topic, int32_t partition)
{
    return -1;
}

void group_poll_begin(struct group *group)
{
}

void group_poll_end(struct group *group)
{
}

bool group_may_deliver(const struct group *group, uint64_t generation)
{
    return atomic_load(&may_deliver) && generation == 7;
}

uint64_t group_generation(const struct group *group)
{
    return 7;
}

void group_member_id(const struct group *group, char *buffer, size_t room)
{
    strncpy(buffer, "member-1", room - 1);
}

/* ---- strings ---- */

struct deed {
    enum fake_group_kind kind;
    const struct brook_position *positions;
    size_t count;
    int64_t offset;
    const struct brook_error *error;
};

static void act(void *arg)
{
    struct deed *d = arg;
    const struct group_events *e = &the_group->events;
    if (d->kind == FAKE_ASSIGNED)
        e->assigned(e->arg, d->positions, d->count);
    else if (d->kind == FAKE_REVOKING)
        e->revoking(e->arg, d->positions, d->count);
    else
        e->lost(e->arg, d->positions, d->count);
}

void fake_group_do(enum fake_group_kind kind, const struct brook_position *positions, size_t count)
{
    struct deed d = {.kind = kind, .positions = positions, .count = count};
    atomic_store(&drained_offset, -2);
    client_call(the_group->client, act, &d);
}

static void end_drain(void *arg)
{
    struct deed *d = arg;
    d->offset =
        the_group->events.drain_over(the_group->events.arg, d->positions->topic, d->positions->partition);
}

int64_t fake_group_drain_over(const char *topic, int32_t partition)
{
    struct brook_position position = {topic, partition, -1};
    struct deed d = {.positions = &position};
    client_call(the_group->client, end_drain, &d);
    return d.offset;
}

static void tell_failure(void *arg)
{
    struct deed *d = arg;
    the_group->events.failed(the_group->events.arg, d->error);
}

void fake_group_fail(const struct brook_error *error)
{
    struct deed d = {.error = error};
    client_call(the_group->client, tell_failure, &d);
}

int64_t fake_group_drained(void)
{
    return atomic_load(&drained_offset);
}

void fake_group_may_deliver(bool may)
{
    atomic_store(&may_deliver, may);
}

int64_t fake_group_committed(void)
{
    return atomic_load(&committed_offset);
}

unsigned fake_group_leaves(void)
{
    return atomic_load(&leaves);
}
