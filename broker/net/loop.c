#include "broker/net/loop.h"

#include "broker/handlers/handlers.h"
#include "broker/net/connection.h"
#include "broker/net/disk_threads.h"
#include "broker/net/listener_counts.h"
#include "broker/partition/partition.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"
#include "proto/record/codec.h"

#include <assert.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS ((int64_t)1000000)
/* What a request may take unpacked: 1 MiB of legal envelope needs about a third of it. */
#define MESSAGE_ARENA_BYTES ((size_t)16 << 20)
/* Metadata of 100,000 partitions. */
#define REPLY_ARENA_BYTES ((size_t)64 << 20)
/* Shared buffers and answers; per connection they are bounded by other limits, this is the last net. */
#define BUFFERS_BYTES_MAX ((size_t)1 << 30)
#define BUFFERS_IDLE_BYTES ((size_t)8 << 20)
#define FRAMES_IDLE_BYTES ((size_t)64 << 20)
#define TICK_MS_MAX 1000
/* So long without a request, and memory kept for the next one goes back to the system. */
#define TRIM_AFTER_MS 5000

/* ---- the turn ------------------------------------------------------------------------------------------ */

void loop_turn_begin(struct io_loop *loop)
{
    if (loop->in_turn)
        return;
    loop->in_turn = true;
    loop->face.now_ns = clock_boot_ns();
    loop->face.now_wall_ms = clock_wall_ms();
}

static void drain_touched(struct io_loop *loop)
{
    if (!loop->touched_count)
        return;
    for (size_t i = 0; i < loop->touched_count; i++) {
        partition_drain(loop->touched[i], &loop->inbox);
        partition_unref(loop->touched[i]);
    }
    loop->touched_count = 0;
    memset(loop->touched_slots, 0, sizeof loop->touched_slots);
    /* Waiters of this loop that the appends have woken: without another way round through epoll. */
    inbox_drain(&loop->inbox);
}

static void settle_dirty(struct io_loop *loop)
{
    struct connection *c;
    while ((c = TAILQ_FIRST(&loop->dirty))) {
        TAILQ_REMOVE(&loop->dirty, c, in_dirty);
        c->is_dirty = false;
        connection_settle(c);
    }
}

static void feed_starved(struct io_loop *loop)
{
    struct connection *c;
    while ((c = TAILQ_FIRST(&loop->starved))) {
        struct slab *slab = NULL;
        if (c->state == CONNECTION_OPEN && !(slab = pool_take(loop->frames, c->in.wanted)))
            return;
        TAILQ_REMOVE(&loop->starved, c, in_starved);
        c->is_starved = false;
        if (slab)
            input_grant(&c->in, slab);
        connection_settle(c);
    }
}

static void bury_doomed(struct io_loop *loop)
{
    struct connection *c;
    while ((c = TAILQ_FIRST(&loop->doomed))) {
        TAILQ_REMOVE(&loop->doomed, c, in_connections);
        connection_bury(c);
    }
}

static void arm_deadline(struct io_loop *loop)
{
    int64_t earliest = deadlines_earliest(&loop->deadlines);
    if (loop->stop_at_ns && (!earliest || loop->stop_at_ns < earliest))
        earliest = loop->stop_at_ns;
    /* A timer that fires for nothing is cheaper than setting it for every request that ends in time. */
    if (!earliest || (loop->deadline_armed_ns && loop->deadline_armed_ns <= earliest))
        return;
    int64_t wait_ns = earliest - clock_boot_ns();
    if (wait_ns < 0)
        wait_ns = 0;
    struct timeval wait = {.tv_sec = wait_ns / 1000000000, .tv_usec = wait_ns % 1000000000 / 1000};
    evtimer_add(loop->deadline_event, &wait);
    loop->deadline_armed_ns = earliest;
}

static int tick_ms(const struct io_loop *loop)
{
    const struct net_settings *s = &loop->settings;
    int ms = TICK_MS_MAX;
    const int limits[] = {s->hello_ms_max, s->idle_ms_max, s->frame_ms_max, s->send_ms_max};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        if (limits[i] / 4 < ms)
            ms = limits[i] / 4;
    return ms < 10 ? 10 : ms;
}

static void keep_ticking(struct io_loop *loop)
{
    bool is_needed = !TAILQ_EMPTY(&loop->connections) || !loop->is_trimmed;
    if (is_needed == loop->is_ticking)
        return;
    int ms = tick_ms(loop);
    const struct timeval every = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    if (is_needed)
        evtimer_add(loop->tick_event, &every);
    else
        evtimer_del(loop->tick_event);
    loop->is_ticking = is_needed;
}

static void turn_end(struct io_loop *loop)
{
    drain_touched(loop);
    settle_dirty(loop);
    bury_doomed(loop);
    feed_starved(loop); /* with what the dead have left */
    bury_doomed(loop);
    arm_deadline(loop);
    keep_ticking(loop);
    if (loop->face.is_stopping && (TAILQ_EMPTY(&loop->connections) || loop->face.now_ns >= loop->stop_at_ns))
        loop->quit = true;
    loop->in_turn = false;
}

static void resume_ready(struct io_loop *loop)
{
    struct connection_list now = TAILQ_HEAD_INITIALIZER(now);
    struct connection *c, *last = TAILQ_LAST(&loop->ready, connection_list);
    bool is_last = last == NULL;
    while (!is_last && (c = TAILQ_FIRST(&loop->ready))) {
        is_last = c == last;
        TAILQ_REMOVE(&loop->ready, c, in_ready);
        c->is_ready = false;
        connection_resume(c);
    }
}

/* What is freed with the loop may be long in coming: clients are not to wait for that. */
static void leave_peers(struct io_loop *loop)
{
    struct connection *c;
    loop_turn_begin(loop);
    while ((c = TAILQ_FIRST(&loop->connections)))
        connection_doom(c);
    bury_doomed(loop);
    loop->in_turn = false;
}

static void *run(void *arg)
{
    struct io_loop *loop = arg;
    while (!loop->quit) {
        int flags = EVLOOP_ONCE | (TAILQ_EMPTY(&loop->ready) ? 0 : EVLOOP_NONBLOCK);
        event_base_loop(loop->base, flags);
        loop_turn_begin(loop);
        resume_ready(loop);
        turn_end(loop);
    }
    leave_peers(loop);
    return NULL;
}

/* ---- events -------------------------------------------------------------------------------------------- */

static void on_inbox(evutil_socket_t fd, short events, void *arg)
{
    struct io_loop *loop = arg;
    loop_turn_begin(loop);
    inbox_drain(&loop->inbox);
}

static void on_deadline(evutil_socket_t fd, short events, void *arg)
{
    struct io_loop *loop = arg;
    struct request *r;
    loop_turn_begin(loop);
    loop->deadline_armed_ns = 0;
    int64_t now_ns = clock_boot_ns();
    while ((r = deadlines_pop_due(&loop->deadlines, now_ns)))
        if (r->on_deadline)
            r->on_deadline(r);
}

static void trim(struct io_loop *loop)
{
    pool_trim(loop->buffers, 0);
    pool_trim(loop->frames, 0);
    output_spares_done(&loop->spares);
    while (loop->free_requests) {
        struct request *next = loop->free_requests->next;
        free(loop->free_requests);
        loop->free_requests = next;
    }
    loop->free_requests_count = 0;
    if (!loop->requests_count) {
        deadlines_done(&loop->deadlines);
        free(loop->touched);
        loop->touched = NULL;
        loop->touched_capacity = 0;
    }
    malloc_trim(0);
    loop->is_trimmed = true;
}

static void on_tick(evutil_socket_t fd, short events, void *arg)
{
    struct io_loop *loop = arg;
    struct connection *c, *next;
    loop_turn_begin(loop);
    loop->is_ticking = false;
    for (c = TAILQ_FIRST(&loop->connections); c; c = next) {
        next = TAILQ_NEXT(c, in_connections);
        connection_check(c);
    }
    if (!loop->is_trimmed && loop->face.now_ns - loop->busy_ns > TRIM_AFTER_MS * MS)
        trim(loop);
}

/* ---- life ---------------------------------------------------------------------------------------------- */

static void init_lists(struct io_loop *loop)
{
    TAILQ_INIT(&loop->connections);
    TAILQ_INIT(&loop->ready);
    TAILQ_INIT(&loop->dirty);
    TAILQ_INIT(&loop->starved);
    TAILQ_INIT(&loop->doomed);
    TAILQ_INIT(&loop->buried);
}

/* Locks of libevent are not needed: a loop's events are its thread's alone. Its change list is not used: it
 * would tell epoll about a descriptor after that was closed, when another loop may have been given the same
 * number. */
static int make_events(struct io_loop *loop)
{
    struct event_config *config = event_config_new();
    if (!config)
        return -BROOK_E_NOMEM;
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
    loop->base = event_base_new_with_config(config);
    event_config_free(config);
    if (!loop->base)
        return -BROOK_E_NOMEM;
    loop->inbox_event = event_new(loop->base, inbox_fd(&loop->inbox), EV_READ | EV_PERSIST, on_inbox, loop);
    loop->deadline_event = evtimer_new(loop->base, on_deadline, loop);
    loop->tick_event = evtimer_new(loop->base, on_tick, loop);
    if (!loop->inbox_event || !loop->deadline_event || !loop->tick_event)
        return -BROOK_E_NOMEM;
    return event_add(loop->inbox_event, NULL) < 0 ? -BROOK_E_IO : 0;
}

static int make(struct io_loop *loop)
{
    int r = inbox_init(&loop->inbox);
    if (r == 0)
        r = pool_new(BUFFERS_BYTES_MAX, BUFFERS_IDLE_BYTES, &loop->buffers);
    if (r == 0)
        r = pool_new(loop->settings.queued_bytes_max, FRAMES_IDLE_BYTES, &loop->frames);
    if (r == 0)
        r = arena_new(MESSAGE_ARENA_BYTES, &loop->message_arena);
    if (r == 0)
        r = arena_new(REPLY_ARENA_BYTES, &loop->face.reply_arena);
    return r == 0 ? make_events(loop) : r;
}

int loop_new(const struct net_settings *settings, const struct handler_settings *handlers,
             const struct diag *diag, struct io_loop **ret_loop)
{
    struct io_loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return -BROOK_E_NOMEM;
    init_lists(loop);
    loop->settings = *settings;
    loop->face.ops = &loop_request_ops;
    loop->face.inbox = &loop->inbox;
    loop->face.settings = handlers;
    loop->face.diag = diag;
    loop->is_trimmed = true;
    int r = make(loop);
    if (r < 0) {
        loop_free(loop);
        return r;
    }
    *ret_loop = loop;
    return 0;
}

static void end_connections(struct io_loop *loop)
{
    struct connection *c;
    loop_turn_begin(loop);
    loop->face.is_stopping = true;
    while ((c = TAILQ_FIRST(&loop->connections)))
        connection_doom(c);
    bury_doomed(loop);
    while (loop->inbox.tail && inbox_drain(&loop->inbox))
        bury_doomed(loop);
    /* Nobody is left who could answer these. */
    while ((c = TAILQ_FIRST(&loop->buried))) {
        while (c->requests_count > 1)
            loop_request_end(loop, c->requests);
        loop_request_end(loop, c->requests);
        bury_doomed(loop);
    }
}

void loop_free(struct io_loop *loop)
{
    if (!loop)
        return;
    end_connections(loop);
    for (size_t i = 0; i < loop->touched_count; i++)
        partition_unref(loop->touched[i]);
    view_unref(loop->face.view);
    if (loop->inbox_event)
        event_free(loop->inbox_event);
    if (loop->deadline_event)
        event_free(loop->deadline_event);
    if (loop->tick_event)
        event_free(loop->tick_event);
    if (loop->base)
        event_base_free(loop->base);
    trim(loop);
    free(loop->touched);
    deadlines_done(&loop->deadlines);
    arena_free(loop->message_arena);
    arena_free(loop->face.reply_arena);
    codec_free(loop->face.codec);
    assert(!loop->buffers || pool_bytes_in_use(loop->buffers) == 0);
    assert(!loop->frames || pool_bytes_in_use(loop->frames) == 0);
    pool_unref(loop->buffers);
    pool_unref(loop->frames);
    inbox_done(&loop->inbox);
    free(loop);
}

int loop_start(struct io_loop *loop)
{
    if (pthread_create(&loop->thread, NULL, run, loop) != 0)
        return -BROOK_E_IO;
    loop->is_running = true;
    return 0;
}
