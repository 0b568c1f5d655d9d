#include "tests/support/caller.h"

#include "config.h"
#include "tests/support/suite.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef BROOK_SANITIZED
#define PATIENCE 3
#else
#define PATIENCE 1
#endif

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void caller_init(struct caller *k)
{
    memset(k, 0, sizeof *k);
    ck_assert_int_eq(inbox_init(&k->inbox), 0);
}

void caller_done(struct caller *k)
{
    /* Replies that a coordinator posted while it stopped own memory. */
    while (inbox_drain(&k->inbox))
        ;
    inbox_done(&k->inbox);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

void got_copy(void *arg, const struct coordinator_reply *reply)
{
    struct got *g = arg;
    g->count++;
    g->err = reply->err;
    g->generation = reply->generation;
    g->sent_ns = reply->sent_ns;
    g->stat = reply->stat;
    g->failed_op = reply->failed_op;
    g->has_op_stats = reply->op_stats != NULL;
    snprintf(g->path, sizeof g->path, "%s", reply->path ? reply->path : "");
    g->data_bytes = reply->data_bytes;
    snprintf(g->data, sizeof g->data, "%s", reply->data ? reply->data : "");
    g->children_count = reply->children_count;
    for (size_t i = 0; i < reply->children_count && i < CALLER_CHILDREN_MAX; i++)
        snprintf(g->children[i], sizeof g->children[i], "%s", reply->children[i]);
    if (reply->children_count <= CALLER_CHILDREN_MAX)
        qsort(g->children, reply->children_count, sizeof g->children[0], compare_names);
    for (size_t i = 0; reply->op_stats && i < g->op_stats_max; i++)
        g->op_stats[i] = reply->op_stats[i];
}

struct coordinator_call caller_begin(struct caller *k)
{
    memset(&k->got, 0, sizeof k->got);
    return (struct coordinator_call){.inbox = &k->inbox,
                                     .callback = got_copy,
                                     .arg = &k->got,
                                     .urgent = k->urgent,
                                     .generation = k->generation};
}

static bool has_arrived(void *arg)
{
    return ((const struct caller *)arg)->got.count > 0;
}

const struct got *caller_end(struct caller *k)
{
    if (!caller_wait(k, has_arrived, k, CALLER_TIMEOUT_MS))
        ck_abort_msg("no reply");
    return &k->got;
}

bool caller_wait(struct caller *k, bool (*condition)(void *arg), void *arg, int timeout_ms)
{
    int64_t until = now_ms() + (int64_t)timeout_ms * PATIENCE;
    while (!condition(arg)) {
        int64_t left = until - now_ms();
        if (left <= 0)
            return false;
        struct pollfd p = {.fd = inbox_fd(&k->inbox), .events = POLLIN};
        poll(&p, 1, left < 20 ? (int)left : 20);
        inbox_drain(&k->inbox);
    }
    return true;
}

void caller_idle(struct caller *k, int ms)
{
    int64_t until = now_ms() + ms;
    while (now_ms() < until) {
        struct pollfd p = {.fd = inbox_fd(&k->inbox), .events = POLLIN};
        poll(&p, 1, (int)(until - now_ms()));
        inbox_drain(&k->inbox);
    }
}

static void note_event(void *arg, const struct coordinator_session *session)
{
    struct caller *k = arg;
    ck_assert_uint_lt(k->events_count, sizeof k->events / sizeof k->events[0]);
    k->events[k->events_count++] = *session;
}

void caller_listen(struct caller *k, struct coordinator *c)
{
    ck_assert_int_eq(coordinator_listen(c, &k->inbox, note_event, k), 0);
}

struct wanted {
    const struct caller *caller;
    enum coordinator_event event;
    size_t from;
};

static bool has_event(void *arg)
{
    struct wanted *w = arg;
    for (; w->from < w->caller->events_count; w->from++)
        if (w->caller->events[w->from].event == w->event)
            return true;
    return false;
}

size_t caller_wait_event(struct caller *k, enum coordinator_event event, size_t from)
{
    struct wanted w = {k, event, from};
    if (!caller_wait(k, has_event, &w, CALLER_TIMEOUT_MS))
        ck_abort_msg("session event %d did not come", (int)event);
    return w.from;
}

static struct coordinator *make(struct caller *k, const struct coordinator_settings *settings)
{
    struct brook_error error = {0};
    struct coordinator *c = NULL;
    if (coordinator_new(settings, &c, &error) < 0)
        ck_abort_msg("%s", error.text);
    caller_listen(k, c);
    return c;
}

struct coordinator *caller_start(struct caller *k, const char *connect, int timeout_ms)
{
    return make(k, &(struct coordinator_settings){.connect = connect, .session_timeout_ms = timeout_ms});
}

struct coordinator *caller_connect(struct caller *k, const char *connect, int timeout_ms,
                                   const char *session_file)
{
    struct coordinator_settings settings = {
        .connect = connect, .session_timeout_ms = timeout_ms, .session_file = session_file};
    struct coordinator *c = make(k, &settings);
    caller_wait_event(k, COORDINATOR_CONNECTED, k->events_count);
    return c;
}

void caller_sync(struct caller *k, struct coordinator *c)
{
    coordinator_sync(c, "/", caller_begin(k));
    ck_assert_int_eq(caller_end(k)->err, 0);
}

int64_t caller_free_timed(struct coordinator *c, bool keep, int timeout_ms)
{
    int64_t before = now_ms();
    coordinator_free(c, keep, timeout_ms);
    return now_ms() - before;
}
