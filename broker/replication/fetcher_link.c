/* The connection to a leader: found, made, lost, made again. */
#include "broker/replication/fetcher_internal.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void fetch_link_restart_session(struct fetch_link *link)
{
    link->session++;
    link->session_id = 0;
    link->session_epoch = 0;
    link->is_first_out = false;
    link->forgets_count = 0;
    while (!TAILQ_EMPTY(&link->lists[FETCH_NAMED]))
        fetch_entry_move(TAILQ_FIRST(&link->lists[FETCH_NAMED]), FETCH_DUE);
}

static void wait_and_try_again(struct fetch_link *link, const char *why)
{
    struct fetch_thread *t = link->thread;
    link->retry_ns = clock_boot_ns() + fetcher_backoff_ns(t, link->failures);
    link->failures++;
    if (link->is_down_told || link->failures < 3)
        return;
    link->is_down_told = true;
    diag_log(t->fetchers->s.diag, DIAG_WARN, "", "can not pull from broker %" PRId32 " at %s:%u, trying on: %s",
             link->broker_id, link->host, link->port, why);
}

void fetch_link_drop(struct fetch_link *link, const char *why)
{
    channel_free(link->channel); /* what is in flight ends with it, unsaid */
    link->channel = NULL;
    link->is_ready = false;
    link->pulls_in_flight = 0;
    fetch_link_restart_session(link);
    while (!TAILQ_EMPTY(&link->lists[FETCH_ASKING]))
        fetch_entry_move(TAILQ_FIRST(&link->lists[FETCH_ASKING]), FETCH_DUE);
    wait_and_try_again(link, why);
}

static void on_ready(void *arg, const Brook__HelloResponse *hello)
{
    struct fetch_link *link = arg;
    if (hello->broker_id != link->broker_id) {
        fetch_link_drop(link, "another broker answers there");
        return;
    }
    link->is_ready = true;
    link->failures = 0;
    if (link->is_down_told)
        diag_log(link->thread->fetchers->s.diag, DIAG_INFO, "", "pulling from broker %" PRId32 " again",
                 link->broker_id);
    link->is_down_told = false;
    fetch_link_restart_session(link);
}

static void on_closed(void *arg, const struct brook_error *why)
{
    struct fetch_link *link = arg;
    bool was_ready = link->is_ready;
    link->is_ready = false;
    fetch_link_restart_session(link);
    while (!TAILQ_EMPTY(&link->lists[FETCH_ASKING]))
        fetch_entry_move(TAILQ_FIRST(&link->lists[FETCH_ASKING]), FETCH_DUE);
    if (was_ready)
        link->retry_ns = 0;
    else
        wait_and_try_again(link, why->text);
}

static int make_channel(struct fetch_link *link)
{
    const struct fetcher_settings *s = &link->thread->fetchers->s;
    struct channel_settings settings = {
        .base = link->thread->base,
        .pool = link->thread->pool,
        .client_id = "replica",
        .software = s->software,
        .frame_bytes_max = s->frame_bytes_max,
        .connect_timeout_ms = FETCHER_CONNECT_TIMEOUT_MS,
    };
    struct channel_events events = {.ready = on_ready, .closed = on_closed, .arg = link};
    return channel_new(&settings, &events, &link->channel);
}

struct fetch_link *fetch_link_of(struct fetch_thread *t, const struct fetcher_leader *leader)
{
    struct fetch_link *link = t->links;
    while (link && link->broker_id != leader->broker_id)
        link = link->next;
    if (link && link->port == leader->port && strcmp(link->host, leader->host) == 0)
        return link;
    char *host = strdup(leader->host);
    if (!link && host && (link = calloc(1, sizeof *link))) {
        link->thread = t;
        link->broker_id = leader->broker_id;
        link->session = 1;
        for (int i = 0; i <= FETCH_WAITING; i++)
            TAILQ_INIT(&link->lists[i]);
        link->next = t->links;
        t->links = link;
    }
    if (!host || !link) {
        free(host);
        return NULL;
    }
    free(link->host);
    link->host = host;
    link->port = leader->port;
    link->retry_ns = 0;
    return link;
}

void fetch_link_free(struct fetch_link *link)
{
    if (link->lookup)
        lookup_cancel(link->lookup);
    channel_free(link->channel);
    free(link->forgets);
    free(link->host);
    free(link);
}

/* ---- connecting ---------------------------------------------------------------------------------------- */

static void connect_to(struct fetch_link *link, const struct resolver_address *address)
{
    if (channel_connect(link->channel, (const struct sockaddr *)&address->address, address->bytes) < 0)
        wait_and_try_again(link, "the connection was refused at once");
}

static void on_address(void *arg, const struct resolver_answer *answer)
{
    struct fetch_link *link = arg;
    link->lookup = NULL;
    if (answer->count == 0)
        wait_and_try_again(link, answer->text);
    else /* another one the next time */
        connect_to(link, &answer->addresses[link->failures % answer->count]);
}

static void connect_link(struct fetch_link *link)
{
    struct resolver_address address;
    if (!link->channel && make_channel(link) < 0)
        wait_and_try_again(link, "out of memory");
    else if (resolver_parse(link->host, link->port, &address) == 0)
        connect_to(link, &address);
    else if (lookup_new(&link->thread->inbox, link->host, link->port, on_address, link, &link->lookup) < 0)
        wait_and_try_again(link, "no name can be looked up");
}

/* ---- what is due ------------------------------------------------------------------------------------- */

static int64_t wake_waiting(struct fetch_link *link, int64_t now_ns)
{
    int64_t due_ns = INT64_MAX;
    struct fetch_entry *e, *next;
    for (e = TAILQ_FIRST(&link->lists[FETCH_WAITING]); e; e = next) {
        next = TAILQ_NEXT(e, in_place);
        if (e->retry_ns <= now_ns && e->state.phase != FOLLOWER_IDLE)
            fetch_entry_move(e, e->state.phase == FOLLOWER_CUT ? FETCH_CUTTING : FETCH_DUE);
        else if (e->state.phase != FOLLOWER_IDLE && e->retry_ns < due_ns)
            due_ns = e->retry_ns;
    }
    return due_ns;
}

static bool is_idle(const struct fetch_link *link)
{
    return !link->lookup && (!link->channel || channel_get_state(link->channel) == CHANNEL_IDLE);
}

int64_t fetch_link_run(struct fetch_link *link, int64_t now_ns)
{
    int64_t due_ns = wake_waiting(link, now_ns);
    if (!TAILQ_EMPTY(&link->lists[FETCH_CUTTING])) {
        fetch_link_cut(link);
        due_ns = wake_waiting(link, now_ns); /* those that could not be */
    }
    if (link->is_ready) {
        fetch_link_ask(link);
        fetch_link_pull(link);
        return due_ns;
    }
    if (!is_idle(link) || !link->entries_count)
        return due_ns;
    if (now_ns >= link->retry_ns)
        connect_link(link);
    if (is_idle(link) && link->retry_ns < due_ns)
        due_ns = link->retry_ns;
    return due_ns;
}
