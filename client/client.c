#include "client/client.h"

#include "client/bootstrap.h"
#include "client/config.h"
#include "client/links.h"
#include "client/state_lock.h"
#include "coordination/coordinator.h"
#include "proto/base/cleanup.h"
#include "proto/base/pool.h"

#include <event2/event.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long the ZooKeeper session may take to close. */
#define COORDINATOR_CLOSE_MS 2000
/* Slabs that are kept for the next use. */
#define POOL_IDLE_BYTES ((size_t)64 << 20)

/* Where a walk over the listeners stands, so that they may come and go meanwhile. */
struct cursor {
    struct client_listener *next;
    struct cursor *outer;
};

struct client {
    pid_t pid;
    brook_config *config;
    struct diag diag;
    struct pool *pool;
    struct event_base *base;
    struct event *inbox_event;
    struct inbox inbox;
    pthread_t thread;
    bool running;
    struct client_listener *listeners;
    struct cursor *cursors;
    struct links *links;
    struct bootstrap *bootstrap;
    struct metadata_cache *metadata;
    struct coordinator *coordinator;
    bool keeps_session;
    int state_lock; /* -1: none */
    void **adopted;
    size_t adopted_count;
};

/* ---- timers ----------------------------------------------------------------------------------------- */

struct client_timer {
    struct event *event;
    void (*work)(void *arg);
    void *arg;
};

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct client_timer *timer = arg;
    timer->work(timer->arg);
}

struct client_timer *client_timer_new(struct client *client, void (*work)(void *arg), void *arg)
{
    struct client_timer *timer = calloc(1, sizeof *timer);
    if (!timer)
        return NULL;
    timer->work = work;
    timer->arg = arg;
    timer->event = evtimer_new(client->base, on_timer, timer);
    if (!timer->event) {
        free(timer);
        return NULL;
    }
    return timer;
}

void client_timer_set(struct client_timer *timer, int delay_ms)
{
    struct timeval wait = {.tv_sec = delay_ms / 1000, .tv_usec = delay_ms % 1000 * 1000};
    event_add(timer->event, &wait);
}

void client_timer_stop(struct client_timer *timer)
{
    event_del(timer->event);
}

void client_timer_free(struct client_timer *timer)
{
    if (!timer)
        return;
    event_free(timer->event);
    free(timer);
}

/* ---- listeners -------------------------------------------------------------------------------------- */

void client_listen(struct client *client, struct client_listener *listener)
{
    listener->next = client->listeners;
    client->listeners = listener;
}

void client_unlisten(struct client *client, struct client_listener *listener)
{
    for (struct cursor *c = client->cursors; c; c = c->outer)
        if (c->next == listener)
            c->next = listener->next;
    for (struct client_listener **at = &client->listeners; *at; at = &(*at)->next)
        if (*at == listener) {
            *at = listener->next;
            return;
        }
}

static struct client_listener *walk(struct cursor *cursor)
{
    struct client_listener *listener = cursor->next;
    if (listener)
        cursor->next = listener->next;
    return listener;
}

static void on_ready(void *arg, int32_t broker_id, enum client_lane lane)
{
    struct client *client = arg;
    struct cursor cursor = {.next = client->listeners, .outer = client->cursors};
    client->cursors = &cursor;
    if (lane == CLIENT_LANE_REQUESTS && client->metadata)
        metadata_cache_pump(client->metadata);
    for (struct client_listener *l; (l = walk(&cursor));)
        if (l->channel_ready)
            l->channel_ready(l->arg, broker_id, lane);
    client->cursors = cursor.outer;
}

static void on_lost(void *arg, int32_t broker_id, enum client_lane lane, const struct brook_error *why)
{
    struct client *client = arg;
    struct cursor cursor = {.next = client->listeners, .outer = client->cursors};
    client->cursors = &cursor;
    for (struct client_listener *l; (l = walk(&cursor));)
        if (l->channel_lost)
            l->channel_lost(l->arg, broker_id, lane, why);
    client->cursors = cursor.outer;
}

static void on_metadata(void *arg)
{
    struct client *client = arg;
    struct cursor cursor = {.next = client->listeners, .outer = client->cursors};
    client->cursors = &cursor;
    for (struct client_listener *l; (l = walk(&cursor));)
        if (l->metadata_changed)
            l->metadata_changed(l->arg);
    client->cursors = cursor.outer;
}

static void on_searching(void *arg)
{
    struct client *client = arg;
    bootstrap_search(client->bootstrap);
}

/* ---- the loop --------------------------------------------------------------------------------------- */

static void on_inbox(evutil_socket_t fd, short what, void *arg)
{
    struct client *client = arg;
    inbox_drain(&client->inbox);
}

static void *run(void *arg)
{
    struct client *client = arg;
    event_base_loop(client->base, EVLOOP_NO_EXIT_ON_EMPTY);
    return NULL;
}

static int start_thread(struct client *client)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(&client->thread, NULL, run, client);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0)
        return -BROOK_E_IO;
    pthread_setname_np(client->thread, "brook-client");
    client->running = true;
    return 0;
}

static int make_base(struct client *client)
{
    struct event_config *config = event_config_new();
    if (!config)
        return -BROOK_E_NOMEM;
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV);
    client->base = event_base_new_with_config(config);
    event_config_free(config);
    if (!client->base)
        return -BROOK_E_IO;
    int r = inbox_init(&client->inbox);
    if (r < 0)
        return r;
    client->inbox_event =
        event_new(client->base, inbox_fd(&client->inbox), EV_READ | EV_PERSIST, on_inbox, client);
    return client->inbox_event && event_add(client->inbox_event, NULL) == 0 ? 0 : -BROOK_E_NOMEM;
}

static int make_parts(struct client *client, size_t pool_bytes)
{
    size_t idle = pool_bytes < POOL_IDLE_BYTES ? pool_bytes : POOL_IDLE_BYTES;
    struct links_events events = {
        .ready = on_ready, .lost = on_lost, .searching = on_searching, .arg = client};
    int r = pool_new(pool_bytes, idle, &client->pool);
    if (r == 0)
        r = make_base(client);
    if (r == 0)
        r = metadata_cache_new(client, on_metadata, client, &client->metadata);
    if (r == 0)
        r = links_new(client, &events, &client->links);
    if (r == 0)
        r = bootstrap_new(client, client->links, &client->bootstrap);
    return r;
}

static int check_zookeeper(const brook_config *config, struct brook_error *error)
{
    struct brook_error why;
    int r = coordinator_check_connect(config_text(config, CONFIG_ZOOKEEPER_CONNECT), &why);
    return r < 0 ? brook_error_set(error, -r, "zookeeper.connect: %.240s", why.text) : 0;
}

static int check(const brook_config *config, struct brook_error *error)
{
    AUTO_FREE struct links_address *addresses = NULL;
    size_t count;
    if (config_has(config, CONFIG_BOOTSTRAP_SERVERS)) {
        int r = bootstrap_parse(config_text(config, CONFIG_BOOTSTRAP_SERVERS), &addresses, &count, error);
        if (r < 0)
            return r;
    }
    if (config_has(config, CONFIG_ZOOKEEPER_CONNECT))
        return check_zookeeper(config, error);
    if (!config_has(config, CONFIG_BOOTSTRAP_SERVERS))
        return brook_error_set(error, BROOK_E_CONFIG,
                               "neither zookeeper.connect nor bootstrap.servers is set");
    return 0;
}

/* On the loop thread, or when there is none any more. */
static void tear_down(void *arg)
{
    struct client *client = arg;
    struct links *links = TAKE(client->links);
    if (client->bootstrap)
        bootstrap_stop(client->bootstrap);
    links_free(links);
    metadata_cache_free(TAKE(client->metadata));
}

static void stop_loop(void *arg)
{
    struct client *client = arg;
    event_base_loopbreak(client->base);
}

static void destroy(struct client *client)
{
    tear_down(client);
    while (client->base && client->inbox_event && inbox_drain(&client->inbox))
        ;
    bootstrap_free(client->bootstrap);
    if (client->inbox_event)
        event_free(client->inbox_event);
    if (client->base) {
        inbox_done(&client->inbox);
        event_base_free(client->base);
    }
    for (size_t i = 0; i < client->adopted_count; i++)
        free(client->adopted[i]);
    free(client->adopted);
    if (client->state_lock >= 0)
        close(client->state_lock);
    pool_unref(client->pool);
    brook_config_free(client->config);
    free(client);
}

int client_new(const brook_config *config, size_t pool_bytes, struct client **ret_client,
               struct brook_error *error)
{
    int r = check(config, error);
    if (r < 0)
        return r;
    struct client *client = calloc(1, sizeof *client);
    if (!client)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    client->pid = getpid();
    client->inbox.fd = -1;
    client->state_lock = -1;
    client->config = brook_config_copy(config);
    r = client->config ? make_parts(client, pool_bytes) : -BROOK_E_NOMEM;
    if (r == 0) {
        config_diag(client->config, &client->diag);
        r = start_thread(client);
    }
    if (r < 0) {
        destroy(client);
        return brook_error_set(error, -r, "the client's loop could not be started: %s", brook_error_text(r));
    }
    *ret_client = client;
    return 0;
}

void client_free(struct client *client)
{
    if (!client)
        return;
    if (client->pid != getpid()) {
        /* Forked: descriptors and locks are the parent's. */
        brook_config_free(client->config);
        free(client);
        return;
    }
    client_call(client, tear_down, client);
    coordinator_free(client->coordinator, client->keeps_session, COORDINATOR_CLOSE_MS);
    /* Behind the answers that the coordinator has posted. */
    client_call(client, stop_loop, client);
    pthread_join(client->thread, NULL);
    client->running = false;
    destroy(client);
}

struct call {
    struct inbox_item item;
    void (*work)(void *arg);
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t done_changed;
    bool done;
};

static void run_call(struct inbox_item *item)
{
    struct call *call = CONTAINER_OF(item, struct call, item);
    call->work(call->arg);
    pthread_mutex_lock(&call->lock);
    call->done = true;
    pthread_cond_signal(&call->done_changed);
    pthread_mutex_unlock(&call->lock);
}

void client_call(struct client *client, void (*work)(void *arg), void *arg)
{
    struct call call = {.item.run = run_call, .work = work, .arg = arg};
    pthread_mutex_init(&call.lock, NULL);
    pthread_cond_init(&call.done_changed, NULL);
    inbox_post(&client->inbox, &call.item);
    pthread_mutex_lock(&call.lock);
    while (!call.done)
        pthread_cond_wait(&call.done_changed, &call.lock);
    pthread_mutex_unlock(&call.lock);
    pthread_cond_destroy(&call.done_changed);
    pthread_mutex_destroy(&call.lock);
}

/* ---- parts ------------------------------------------------------------------------------------------ */

struct event_base *client_base(struct client *client)
{
    return client->base;
}

struct inbox *client_inbox(struct client *client)
{
    return &client->inbox;
}

struct pool *client_pool(struct client *client)
{
    return client->pool;
}

const struct diag *client_diag(const struct client *client)
{
    return &client->diag;
}

const brook_config *client_config(const struct client *client)
{
    return client->config;
}

struct metadata_cache *client_metadata(struct client *client)
{
    return client->metadata;
}

struct channel *client_channel(struct client *client, int32_t broker_id, enum client_lane lane)
{
    return client->links ? links_channel(client->links, broker_id, lane) : NULL;
}

size_t client_message_bytes_max(struct client *client, int32_t broker_id)
{
    return client->links ? links_message_bytes_max(client->links, broker_id) : 0;
}

int client_idempotent_batches_max(struct client *client, int32_t broker_id)
{
    return client->links ? links_idempotent_batches_max(client->links, broker_id) : 0;
}

struct channel *client_any_channel(struct client *client)
{
    return client->links ? links_any_channel(client->links) : NULL;
}

const struct brook_error *client_last_error(const struct client *client)
{
    static const struct brook_error none;
    if (!client->links)
        return &none;
    const struct brook_error *search = bootstrap_trouble(client->bootstrap);
    return search->code && !links_is_ready(client->links) ? search : links_last_error(client->links);
}

/* A static member's session outlives the process: its id and password are kept in `state.dir`. */
static void name_state_file(const brook_config *config, const char *ending, char *to, size_t room)
{
    snprintf(to, room, "%s/%s.%s.%s", config_text(config, CONFIG_STATE_DIR),
             config_text(config, CONFIG_GROUP_ID), config_text(config, CONFIG_GROUP_INSTANCE_ID), ending);
}

void client_keep_session(struct client *client)
{
    client->keeps_session = true;
}

int client_adopt(struct client *client, void *block)
{
    void **adopted = realloc(client->adopted, (client->adopted_count + 1) * sizeof *adopted);
    if (!adopted)
        return -BROOK_E_NOMEM;
    client->adopted = adopted;
    adopted[client->adopted_count++] = block;
    return 0;
}

struct coordinator *client_coordinator(struct client *client, struct brook_error *error)
{
    const brook_config *config = client->config;
    if (client->coordinator)
        return client->coordinator;
    if (!config_has(config, CONFIG_ZOOKEEPER_CONNECT)) {
        brook_error_set(error, BROOK_E_CONFIG, "zookeeper.connect is not set");
        return NULL;
    }
    char file[PATH_MAX];
    bool resume = config_has(config, CONFIG_GROUP_INSTANCE_ID) && config_has(config, CONFIG_STATE_DIR);
    name_state_file(config, "lock", file, sizeof file);
    if (resume && client->state_lock < 0 && state_lock_take(file, &client->state_lock, error) < 0)
        return NULL;
    name_state_file(config, "session", file, sizeof file);
    struct coordinator_settings settings = {.connect = config_text(config, CONFIG_ZOOKEEPER_CONNECT),
                                            .session_timeout_ms = config_int(config, CONFIG_SESSION_TIMEOUT),
                                            .session_file = resume ? file : NULL,
                                            .resume_session = resume,
                                            .diag = &client->diag};
    struct coordinator *coordinator;
    if (coordinator_new(&settings, &coordinator, error) < 0)
        return NULL;
    client->coordinator = coordinator;
    return coordinator;
}

void client_partition_error(struct brook_error *error, int code, const char *topic, int32_t partition, const char *text)
{
    char place[sizeof error->text];
    int n = snprintf(place, sizeof place, "partition %.200s/%d", topic, partition);
    bool is_named = strncmp(text, place, (size_t)n) == 0 && (text[n] == ':' || text[n] == ' ');
    brook_error_set(error, code, "%s%s%s", is_named ? "" : place, is_named ? "" : ": ", text);
}
