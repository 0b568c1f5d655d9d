#include "client/consumer.h"

#include "client/config.h"
#include "proto/base/cleanup.h"
#include "proto/base/err.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* While the lease says no: how often it is asked again. */
#define BUSY_WAIT_MS 10
/* While closing: how often callbacks are looked for. */
#define CLOSE_STEP_MS 5

static void on_kick(struct inbox_item *item);

/* ---- life ---- */

static size_t config_size(const brook_config *config, enum config_id id)
{
    return (size_t)config_number(config, id);
}

static void read_settings(const brook_config *config, struct consumer_settings *s)
{
    static const enum reset_policy resets[] = {RESET_EARLIEST, RESET_LATEST, RESET_NONE};
    *s = (struct consumer_settings){
        .queued_bytes_max = config_number(config, CONFIG_QUEUED_MAX_BYTES),
        .fetch_bytes_max = config_size(config, CONFIG_FETCH_MAX_BYTES),
        .partition_fetch_bytes = config_size(config, CONFIG_MAX_PARTITION_FETCH_BYTES),
        .frame_bytes_max = config_size(config, CONFIG_SOCKET_FRAME_BYTES_MAX),
        .fetch_bytes_min = (uint32_t)config_number(config, CONFIG_FETCH_MIN_BYTES),
        .fetch_wait_ms = config_int(config, CONFIG_FETCH_MAX_WAIT),
        .request_timeout_ms = config_int(config, CONFIG_REQUEST_TIMEOUT),
        .reset = resets[config_number(config, CONFIG_AUTO_OFFSET_RESET)],
        .check_crcs = config_flag(config, CONFIG_CHECK_CRCS),
        .auto_commit = config_flag(config, CONFIG_ENABLE_AUTO_COMMIT),
        .auto_commit_interval_ms = config_int(config, CONFIG_AUTO_COMMIT_INTERVAL)};
    if (s->partition_fetch_bytes > s->fetch_bytes_max)
        s->partition_fetch_bytes = s->fetch_bytes_max;
}

struct start {
    struct brook_consumer *c;
    int r;
};

static void start_on_loop(void *arg)
{
    struct start *start = arg;
    struct brook_consumer *c = start->c;
    const struct consumer_settings *s = &c->set->settings;
    struct fetcher_events events = {.drained = consumer_on_drained, .arg = c};
    start->r = fetcher_new(c->client, c->set, c->group_id, &events, &c->fetcher);
    if (start->r == 0)
        start->r = commits_new(c->client, c->group_id, s->request_timeout_ms, &c->commits);
    if (start->r < 0)
        return;
    c->auto_commit = client_timer_new(c->client, consumer_auto_commit, c);
    if (!c->auto_commit)
        start->r = -BROOK_E_NOMEM;
    else if (s->auto_commit && c->group_id[0])
        client_timer_set(c->auto_commit, s->auto_commit_interval_ms);
}

static void stop_on_loop(void *arg)
{
    struct brook_consumer *c = arg;
    if (atomic_load(&c->group))
        group_free(atomic_load(&c->group));
    set_close(c->set);
    fetcher_close(c->fetcher);
    commits_close(c->commits);
    client_timer_free(c->auto_commit);
}

static void destroy(struct brook_consumer *c)
{
    if (c->client)
        client_call(c->client, stop_on_loop, c);
    client_free(c->client);
    if (c->set) {
        set_lock(c->set);
        set_unref_unlock(c->set);
    }
    free(c);
}

static int start(struct brook_consumer *c, const brook_config *config, struct brook_error *error)
{
    struct consumer_settings settings;
    struct start start = {.c = c};
    read_settings(config, &settings);
    /* Besides what is queued: one pull per broker on its way, and the largest batch. */
    size_t pool_bytes = 2 * (size_t)settings.queued_bytes_max + 2 * settings.frame_bytes_max;
    int r = client_new(config, pool_bytes, &c->client, error);
    if (r < 0)
        return r;
    settings.rack = config_text(client_config(c->client), CONFIG_CLIENT_RACK); /* a copy that stays */
    r = set_new(&settings, client_inbox(c->client), on_kick, &c->set);
    if (r < 0) {
        client_free(TAKE(c->client));
        return brook_error_set(error, -r, "the consumer could not be made: %s", brook_error_text(r));
    }
    client_call(c->client, start_on_loop, &start);
    return start.r < 0 ? brook_error_set(error, -start.r, "the consumer could not be made: %s",
                                         brook_error_text(start.r))
                       : 0;
}

int brook_consumer_new(const brook_config *config, brook_consumer **ret_consumer, struct brook_error *error)
{
    const char *group = config_text(config, CONFIG_GROUP_ID);
    if (group[0] && !name_is_legal_group(group, strlen(group)))
        return brook_error_set(error, BROOK_E_CONFIG, "group.id: \"%.100s\" is not a legal name", group);
    struct brook_consumer *c = calloc(1, sizeof *c);
    if (!c)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    c->pid = getpid();
    c->place.partition = -1;
    strncpy(c->group_id, group, sizeof c->group_id - 1);
    int r = start(c, config, error);
    if (r < 0) {
        destroy(c);
        return r;
    }
    *ret_consumer = c;
    return 0;
}

void brook_consumer_on_rebalance(brook_consumer *c, const struct brook_rebalance *callbacks)
{
    set_lock(c->set);
    c->callbacks = *callbacks;
    c->set->has_callbacks[REBALANCE_ASSIGNED] = callbacks->on_assigned != NULL;
    c->set->has_callbacks[REBALANCE_REVOKING] = callbacks->on_revoking != NULL;
    c->set->has_callbacks[REBALANCE_LOST] = callbacks->on_lost != NULL;
    set_unlock(c->set);
}

/* ---- closing ---- */

struct leave {
    struct brook_consumer *c;
    int timeout_ms;
};

static void on_left(void *arg, int err)
{
    struct brook_consumer *c = arg;
    set_lock(c->set);
    c->has_left = true;
    c->leave_result = err;
    pthread_cond_broadcast(&c->set->changed);
    set_unlock(c->set);
}

static void leave_on_loop(void *arg)
{
    struct leave *leave = arg;
    group_leave(atomic_load(&leave->c->group), GROUP_LEAVE_FOR_RESTART, leave->timeout_ms, on_left, leave->c);
}

/* Hand the partitions back; the application's callbacks run here. The group ends it at the time-out. */
static int leave_group(struct brook_consumer *c, int timeout_ms)
{
    struct leave leave = {c, timeout_ms};
    client_call(c->client, leave_on_loop, &leave);
    bool has_left = false;
    while (!has_left) {
        consumer_run_callbacks(c);
        set_lock(c->set);
        has_left = set_wait(c->set, &c->has_left, CLOSE_STEP_MS);
        set_unlock(c->set);
    }
    consumer_run_callbacks(c);
    return c->leave_result == 0 ? 0 : -BROOK_E_TIMED_OUT;
}

static int commit_last(struct brook_consumer *c, int timeout_ms)
{
    if (!c->set->settings.auto_commit || !c->group_id[0])
        return 0;
    int r = brook_consumer_commit(c, NULL, 0, BROOK_COMMIT_SYNC, timeout_ms, NULL);
    return r == -BROOK_E_TIMED_OUT ? r : 0;
}

int brook_consumer_close(brook_consumer *c, int timeout_ms)
{
    if (!c)
        return 0;
    if (c->pid != getpid()) {
        client_free(c->client); /* forked: the rest is shared with threads that are not here */
        free(c);
        return 0;
    }
    if (timeout_ms < 0)
        timeout_ms = 0;
    set_lock(c->set);
    enum consumer_mode mode = c->mode;
    set_unlock(c->set);
    int r = 0;
    if (mode == CONSUMER_ASSIGNED)
        r = commit_last(c, timeout_ms);
    else if (atomic_load(&c->group))
        r = leave_group(c, timeout_ms);
    destroy(c);
    return r;
}

/* ---- polling ---- */

static void on_kick(struct inbox_item *item)
{
    struct consumer_set *set = CONTAINER_OF(item, struct consumer_set, kick);
    set_lock(set);
    set->is_kicked = false;
    struct consumer_fetcher *f = set->fetcher;
    set_unlock(set);
    if (f)
        fetcher_run(f, false);
}

void consumer_run_callbacks(struct brook_consumer *c)
{
    enum rebalance_kind kind;
    struct brook_position *positions;
    size_t count;
    while ((count = set_take_notes(c->set, &kind, &positions)) > 0) {
        c->is_in_callback = true;
        if (kind == REBALANCE_ASSIGNED && c->callbacks.on_assigned)
            c->callbacks.on_assigned(c->callbacks.arg, positions, count);
        else if (kind == REBALANCE_REVOKING && c->callbacks.on_revoking)
            c->callbacks.on_revoking(c->callbacks.arg, positions, count);
        else if (kind == REBALANCE_LOST && c->callbacks.on_lost)
            c->callbacks.on_lost(c->callbacks.arg, positions, count);
        c->is_in_callback = false;
        if (kind == REBALANCE_REVOKING)
            set_notes_done(c->set, positions, count);
        free(positions);
    }
}

static bool may_deliver(void *arg, uint64_t group_generation)
{
    return group_generation == 0 || group_may_deliver(arg, group_generation);
}

/* Milliseconds until `until_ms`, for poll(2); -1: for ever. */
static int left_ms(int64_t until_ms)
{
    if (until_ms == INT64_MAX)
        return -1;
    int64_t left = until_ms - set_now_ms();
    return left > 0 ? (int)left : 0;
}

static void wait_for_news(struct brook_consumer *c, int ms, bool is_busy)
{
    if (is_busy) {
        int step_ms = ms >= 0 && ms < BUSY_WAIT_MS ? ms : BUSY_WAIT_MS;
        nanosleep(&(struct timespec){.tv_nsec = step_ms * 1000000L}, NULL);
        return;
    }
    struct pollfd fd = {.fd = c->set->fd, .events = POLLIN};
    poll(&fd, 1, ms);
}

/* One look, without waiting. */
static int poll_once(struct brook_consumer *c, struct group *group, brook_batch **ret_batch,
                     struct brook_error *error)
{
    consumer_run_callbacks(c);
    int r = set_take_event(c->set, error, &c->place);
    if (r == 0)
        r = set_take_batch(c->set, may_deliver, group, ret_batch);
    else
        return r;
    if (r == -BROOK_E_NOMEM)
        brook_error_set(error, BROOK_E_NOMEM, "out of memory for a batch");
    /* Damage: the event is there now. */
    return r == 0 || r == -BROOK_E_AGAIN || r == -BROOK_E_BUSY || r == -BROOK_E_NOMEM
               ? r
               : poll_once(c, group, ret_batch, error);
}

static int poll_until(struct brook_consumer *c, struct group *group, int64_t until_ms,
                      brook_batch **ret_batch, struct brook_error *error)
{
    for (;;) {
        if (atomic_load(&c->is_interrupted))
            return brook_error_set(error, BROOK_E_CLOSED, "stopped");
        int r = poll_once(c, group, ret_batch, error);
        if (r != -BROOK_E_AGAIN && r != -BROOK_E_BUSY)
            return r;
        int ms = left_ms(until_ms);
        if (ms == 0)
            return brook_error_set(error, BROOK_E_AGAIN, "nothing came in time");
        wait_for_news(c, ms, r == -BROOK_E_BUSY);
    }
}

int brook_consumer_poll(brook_consumer *c, int timeout_ms, brook_batch **ret_batch, struct brook_error *error)
{
    if (c->is_in_callback)
        return brook_error_set(error, BROOK_E_INVALID, "poll was called from a rebalance callback");
    struct group *group = atomic_load_explicit(&c->group, memory_order_acquire);
    int64_t until_ms = timeout_ms < 0 ? INT64_MAX : timeout_ms == 0 ? 0 : set_now_ms() + timeout_ms;
    if (group)
        group_poll_begin(group);
    int r = poll_until(c, group, until_ms, ret_batch, error);
    if (group)
        group_poll_end(group);
    return r;
}

void brook_consumer_error_position(const brook_consumer *c, struct brook_position *ret_position)
{
    *ret_position = (struct brook_position){c->place.topic[0] ? c->place.topic : NULL, c->place.partition,
                                            c->place.offset};
}

void consumer_interrupt(struct brook_consumer *c)
{
    atomic_store(&c->is_interrupted, true);
    eventfd_write(c->set->fd, 1);
}

int brook_consumer_fd(const brook_consumer *c)
{
    return c->set->fd;
}
