#include "client/group_driver_private.h"

#include "client/config.h"
#include "coordination/topic_pattern.h"
#include "proto/base/clock.h"
#include "proto/base/names.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NS_PER_MS 1000000
/* The machine is looked at this often without a reason, and more often while the application's next poll is
 * what it waits for. */
#define TICK_MS 1000
#define TICK_AWAY_MS 100

void group_log(const struct group *g, enum diag_level level, const char *format, ...)
{
    char subject[GROUP_NAME_BYTES_MAX + MEMBER_ID_BYTES_MAX + 32];
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(subject, sizeof subject, "group=%s member=%s", g->name, group_member_get_id(g->machine));
    diag_log(client_diag(g->client), level, subject, "%s", text);
}

void group_ref(struct group *g)
{
    g->refs++;
}

void group_unref(struct group *g)
{
    if (--g->refs > 0)
        return;
    group_commits_free(g->commits);
    group_member_free(g->machine);
    topic_patterns_free(g->patterns);
    client_timer_free(g->timer);
    free(g);
}

struct coordinator_call group_call(struct group *g, coordinator_callback *callback, void *arg)
{
    return (struct coordinator_call){.inbox = client_inbox(g->client),
                                     .callback = callback,
                                     .arg = arg,
                                     .generation = atomic_load(&g->generation)};
}

/* ---- steps -------------------------------------------------------------------------------------------- */

static void set_timer(struct group *g)
{
    int64_t now = clock_boot_ms();
    int64_t at = group_member_next_ms(g->machine);
    int64_t commits_at = group_commits_next_ms(g->commits);
    int64_t cap = now + (group_member_is_registered(g->machine) ? TICK_MS : TICK_AWAY_MS);
    at = commits_at < at ? commits_at : at;
    if (g->left && g->leave_deadline_ms < at)
        at = g->leave_deadline_ms;
    at = cap < at ? cap : at;
    client_timer_set(g->timer, at > now ? (int)(at - now) : 1);
}

/* Whatever happened, something may be due earlier than before, or ready to be sent. */
static void after_event(struct group *g)
{
    if (g->closed || g->running)
        return;
    group_send_commits(g);
    if (!g->closed)
        set_timer(g);
}

void group_step(struct group *g, struct group_event event)
{
    if (g->closed)
        return;
    event.now_ms = clock_boot_ms();
    event.lease_until_ms = coordinator_lease_until_ns(g->coordinator) / NS_PER_MS;
    event.polled_ms = atomic_load(&g->polled_ms);
    /* Without memory the machine goes on at the next tick. */
    if (group_member_step(g->machine, &event) < 0)
        group_log(g, DIAG_WARN, "out of memory: trying again");
    group_ref(g);
    group_carry_out(g);
    after_event(g);
    group_unref(g);
}

static void on_timer(void *arg)
{
    struct group *g = arg;
    group_ref(g);
    int64_t now = clock_boot_ms();
    group_commits_tick(g->commits, now);
    if (g->left && now >= g->leave_deadline_ms)
        group_end_leave(g, -BROOK_E_TIMED_OUT);
    group_step(g, (struct group_event){.kind = GROUP_EVENT_TICK});
    group_unref(g);
}

static void on_session(void *arg, const struct coordinator_session *session)
{
    struct session_tap *tap = arg;
    struct group *g = tap->group;
    if (!g)
        return;
    if (session->event == COORDINATOR_CONNECTED) {
        if (session->generation != atomic_load(&g->generation)) {
            /* What the old session owned is told to be lost before anything is of the new one. */
            group_step(g, (struct group_event){.kind = GROUP_EVENT_EXPIRED});
            atomic_store(&g->generation, session->generation);
        }
        group_step(g, (struct group_event){.kind = GROUP_EVENT_CONNECTED,
                                           .generation = session->generation,
                                           .session_id = session->session_id,
                                           .session_timeout_ms = session->timeout_ms,
                                           .resumed = session->resumed});
    } else if (session->event == COORDINATOR_EXPIRED) {
        group_step(g, (struct group_event){.kind = GROUP_EVENT_EXPIRED});
    }
}

static void on_channel_ready(void *arg, int32_t broker_id, enum client_lane lane)
{
    if (lane == CLIENT_LANE_REQUESTS)
        after_event(arg);
}

/* ---- commits and the machine --------------------------------------------------------------------------- */

static void on_doubt(void *arg, const char *topic, int32_t partition, int err)
{
    group_step(arg, (struct group_event){
                        .kind = GROUP_EVENT_DOUBT, .topic = topic, .partition = partition, .err = err});
}

static void on_finished(void *arg, const char *topic, int32_t partition)
{
    group_step(arg,
               (struct group_event){.kind = GROUP_EVENT_DRAINED, .topic = topic, .partition = partition});
}

/* ---- making -------------------------------------------------------------------------------------------- */

/* The short name of this machine, in the alphabet of member ids. */
static void name_host(char *to, size_t room)
{
    if (gethostname(to, room) != 0)
        to[0] = '\0';
    to[room - 1] = '\0';
    size_t n = 0;
    while (n < 40 && to[n] && to[n] != '.') {
        if (!name_is_legal_member(&to[n], 1) || to[n] == ':')
            to[n] = '-';
        n++;
    }
    to[n] = '\0';
    if (n == 0)
        snprintf(to, room, "member");
}

static int check_settings(const brook_config *config, struct brook_error *error)
{
    const char *group = config_text(config, CONFIG_GROUP_ID);
    const char *instance = config_text(config, CONFIG_GROUP_INSTANCE_ID);
    if (!group[0])
        return brook_error_set(error, BROOK_E_CONFIG, "group.id is not set");
    if (!name_is_legal_group(group, strlen(group)))
        return brook_error_set(error, BROOK_E_CONFIG, "group.id \"%.100s\" is not a legal name", group);
    if (!instance[0])
        return 0;
    if (!name_is_legal_member(instance, strlen(instance)) || strchr(instance, ':'))
        return brook_error_set(error, BROOK_E_CONFIG, "group.instance.id \"%.100s\" is not a legal name",
                               instance);
    if (!config_has(config, CONFIG_STATE_DIR))
        return brook_error_set(error, BROOK_E_CONFIG, "group.instance.id needs state.dir");
    return 0;
}

static int make_parts(struct group *g, const brook_config *config)
{
    struct group_member_settings settings = {
        .static_id = g->instance_id,
        .host = g->host,
        .drain_ms = config_int(config, CONFIG_REBALANCE_DRAIN),
        .settle_ms = g->settle_ms,
        .max_poll_ms = config_int(config, CONFIG_MAX_POLL_INTERVAL),
        .deliver_without_lease = g->continues_without_lease,
        .seed = (uint64_t)clock_boot_ns() ^ ((uint64_t)getpid() << 32) ^ (uint64_t)(uintptr_t)g,
    };
    int err =
        assign_strategy_parse(config_text(config, CONFIG_PARTITION_ASSIGNMENT_STRATEGY), &settings.strategy);
    struct group_commits_events events = {.doubt = on_doubt, .finished = on_finished, .arg = g};
    g->patterns = topic_patterns_new();
    g->timer = client_timer_new(g->client, on_timer, g);
    g->tap = calloc(1, sizeof *g->tap);
    if (!g->patterns || !g->timer || !g->tap)
        return -BROOK_E_NOMEM;
    if (client_adopt(g->client, g->tap) < 0) {
        free(g->tap);
        return -BROOK_E_NOMEM;
    }
    if (!err)
        err = group_member_new(&settings, g->patterns, &g->machine);
    if (!err)
        err = group_commits_new(&events, &g->commits);
    if (!err)
        err = coordinator_listen(g->coordinator, client_inbox(g->client), on_session, g->tap);
    return err;
}

int group_new(struct client *client, const struct group_events *events, struct group **ret_group,
              struct brook_error *error)
{
    const brook_config *config = client_config(client);
    int err = check_settings(config, error);
    if (err)
        return err;
    struct coordinator *coordinator = client_coordinator(client, error);
    if (!coordinator)
        return error && error->code ? -error->code : -BROOK_E_CONFIG;
    struct group *g = calloc(1, sizeof *g);
    if (!g)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    g->client = client;
    g->coordinator = coordinator;
    g->events = *events;
    g->refs = 1;
    g->name = config_text(config, CONFIG_GROUP_ID);
    g->instance_id =
        config_has(config, CONFIG_GROUP_INSTANCE_ID) ? config_text(config, CONFIG_GROUP_INSTANCE_ID) : NULL;
    name_host(g->host, sizeof g->host);
    snprintf(g->incarnation, sizeof g->incarnation, "%016" PRIx64,
             (uint64_t)clock_boot_ns() * 0x9e3779b97f4a7c15u);
    g->settle_ms = config_int(config, CONFIG_REBALANCE_SETTLE);
    g->request_timeout_ms = config_int(config, CONFIG_REQUEST_TIMEOUT);
    g->continues_without_lease = strcmp(config_text(config, CONFIG_GROUP_ON_LEASE_LOSS), "continue") == 0;
    atomic_store(&g->polled_ms, clock_boot_ms());
    err = make_parts(g, config);
    if (err) {
        group_unref(g);
        return brook_error_set(error, -err, "the group member could not be made: %s", brook_error_text(err));
    }
    g->tap->group = g;
    g->listener = (struct client_listener){.channel_ready = on_channel_ready, .arg = g};
    client_listen(client, &g->listener);
    *ret_group = g;
    return 0;
}

void group_free(struct group *g)
{
    if (!g)
        return;
    g->closed = true;
    g->tap->group = NULL;
    client_unlisten(g->client, &g->listener);
    client_timer_stop(g->timer);
    group_unwatch_owners(g);
    group_unwatch_group(g);
    ownership_free(g->ownership);
    g->ownership = NULL;
    group_view_cancel(g->view_read);
    g->view_read = NULL;
    group_forget_registration(g);
    group_end_leave(g, -BROOK_E_CLOSED);
    group_commits_close_all(g->commits, -BROOK_E_CLOSED);
    group_unref(g);
}

/* ---- joining and leaving ------------------------------------------------------------------------------- */

int group_subscribe(struct group *g, const char *const *topics, size_t count, const char *pattern,
                    struct brook_error *error)
{
    int err = pattern ? group_check_pattern(pattern, error) : group_check_topics(topics, count, error);
    if (err)
        return err;
    /* Joining is a sign of life of the application. */
    int64_t polled = atomic_load(&g->polled_ms);
    if (polled != INT64_MAX)
        atomic_compare_exchange_strong(&g->polled_ms, &polled, clock_boot_ms());
    g->keeps_session = false;
    group_step(g, (struct group_event){.kind = GROUP_EVENT_SUBSCRIBE,
                                       .names = pattern ? &pattern : topics,
                                       .names_count = pattern ? 1 : count,
                                       .is_pattern = pattern != NULL});
    return 0;
}

void group_end_leave(struct group *g, int err)
{
    void (*left)(void *arg, int err) = g->left;
    g->left = NULL;
    if (left)
        left(g->left_arg, err);
}

void group_leave(struct group *g, enum group_leave_mode mode, int timeout_ms,
                 void (*done)(void *arg, int err), void *arg)
{
    group_end_leave(g, -BROOK_E_CLOSED);
    g->left = done;
    g->left_arg = arg;
    g->leave_deadline_ms = clock_boot_ms() + timeout_ms;
    g->leave_mode = g->instance_id ? mode : GROUP_LEAVE;
    group_step(
        g, (struct group_event){.kind = GROUP_EVENT_LEAVE, .keep = g->leave_mode == GROUP_LEAVE_FOR_RESTART});
}

bool group_keeps_session(const struct group *g)
{
    return g->keeps_session;
}

/* ---- the consumer's calls ------------------------------------------------------------------------------ */

void group_drained(struct group *g, const char *topic, int32_t partition, int64_t offset)
{
    struct brook_position position = {topic, partition, offset};
    if (offset >= 0)
        group_commits_add(g->commits, &position, 1, 0, NULL, NULL);
    group_commits_finish(g->commits, topic, partition);
    after_event(g);
}

void group_commit(struct group *g, const struct brook_position *positions, size_t count, int timeout_ms,
                  group_commit_callback *done, void *arg)
{
    int64_t deadline = timeout_ms > 0 ? clock_boot_ms() + timeout_ms : 0;
    group_ref(g);
    group_commits_add(g->commits, positions, count, deadline, done, arg);
    after_event(g);
    group_unref(g);
}

int64_t group_committed(const struct group *g, const char *topic, int32_t partition)
{
    return group_commits_stored(g->commits, topic, partition);
}

void group_poll_begin(struct group *g)
{
    atomic_store(&g->polled_ms, INT64_MAX);
}

void group_poll_end(struct group *g)
{
    atomic_store(&g->polled_ms, clock_boot_ms());
}

uint64_t group_generation(const struct group *g)
{
    return atomic_load(&g->generation);
}

bool group_may_deliver(const struct group *g, uint64_t generation)
{
    if (coordinator_generation(g->coordinator) != generation)
        return false;
    if (g->continues_without_lease)
        return true;
    int64_t timeout_ns = (int64_t)coordinator_timeout_ms(g->coordinator) * NS_PER_MS;
    int64_t until_ns = coordinator_lease_until_ns(g->coordinator) - timeout_ns / 2;
    /* Looked at again, so that the lease is not a newer session's. */
    return clock_boot_ns() < until_ns && coordinator_generation(g->coordinator) == generation;
}

void group_member_id(const struct group *g, char *buffer, size_t room)
{
    snprintf(buffer, room, "%s",
             group_member_is_registered(g->machine) ? group_member_get_id(g->machine) : "");
}
