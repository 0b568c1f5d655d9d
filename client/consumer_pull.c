#include "client/consumer_pull.h"

#include "proto/base/cleanup.h"
#include "proto/base/err.h"
#include "proto/base/pool.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define PULLS_IN_FLIGHT_MAX 2
/* Partitions named in one pull; the rest follows in the next. */
#define NAMES_PER_PULL_MAX 5000
/* Of a partition whose records came: it has to be named again, also where they were of no use. */
#define NAMED_NOWHERE (-1)
#define PULL_BYTES_MIN ((size_t)64 << 10)
#define BACKOFF_MS_MIN 50
#define BACKOFF_MS_MAX 1000
/* The leader is asked again after this long whether the replica in our rack is still the one to read from. */
#define NEAREST_MS 60000
/* After that replica has failed: for so long, doubled with each failure in a row, all is read from the leader. */
#define STAY_MS_MIN 500
#define STAY_MS_MAX 60000

/* One request in flight. */
struct pull {
    struct pull *next;
    struct consumer_puller *puller;
    uint64_t session;
    uint64_t sequence;
    bool is_first; /* of its session: the reply says the id */
};

struct consumer_puller {
    struct consumer_puller *next;
    struct consumer_fetcher *f;
    int32_t broker_id;
    struct consumer_partition *members;
    uint64_t session;    /* ours: another number for each session */
    uint32_t session_id; /* the broker's; 0: not known yet */
    int32_t epoch;
    bool is_sessionless; /* the broker keeps none: every pull names all */
    uint64_t sequence;   /* counts pulls */
    unsigned in_flight;
    int failures; /* in a row */
    int64_t not_before_ms;
    int told;                     /* the lasting failure that was reported */
    struct partition_id *forgets; /* left, and still known to the session */
    size_t forgets_count, forgets_capacity;
    struct pull *idle;
};

static void begin_session(struct consumer_puller *puller)
{
    puller->session = ++puller->f->sessions;
    puller->session_id = 0;
    puller->epoch = 0;
    puller->forgets_count = 0;
}

static struct consumer_puller *puller_of(struct consumer_fetcher *f, int32_t broker_id)
{
    for (struct consumer_puller *puller = f->pullers; puller; puller = puller->next)
        if (puller->broker_id == broker_id)
            return puller;
    struct consumer_puller *puller = calloc(1, sizeof *puller);
    if (!puller)
        return NULL;
    puller->f = f;
    puller->broker_id = broker_id;
    puller->next = f->pullers;
    f->pullers = puller;
    begin_session(puller);
    return puller;
}

void pullers_free(struct consumer_fetcher *f)
{
    while (f->pullers) {
        struct consumer_puller *puller = f->pullers;
        f->pullers = puller->next;
        assert(puller->in_flight == 0);
        while (puller->idle) {
            struct pull *pull = puller->idle;
            puller->idle = pull->next;
            free(pull);
        }
        free(puller->forgets);
        free(puller);
    }
}

/* ---- the replica in our rack ---- */

/* The leader says that it is nearer. */
static void go_near(struct consumer_fetcher *f, struct consumer_partition *p, int32_t broker_id)
{
    diag_log(client_diag(f->client), DIAG_INFO, "", "partition %s/%d: reading from broker %d, which is in rack %s",
             p->topic, p->partition, broker_id, f->set->settings.rack);
    p->nearest = broker_id;
    p->nearest_ms = set_now_ms() + NEAREST_MS;
}

/* It failed: back to the leader, which knows. */
static void go_back(struct consumer_fetcher *f, struct consumer_partition *p)
{
    diag_log(client_diag(f->client), DIAG_INFO, "", "partition %s/%d: reading from the leader again, not from broker %d",
             p->topic, p->partition, p->nearest);
    int64_t stay_ms = (int64_t)STAY_MS_MIN << (p->stays < 10 ? p->stays : 10);
    p->stays++;
    p->stay_ms = set_now_ms() + (stay_ms < STAY_MS_MAX ? stay_ms : STAY_MS_MAX);
    p->nearest = -1;
    f->needs_refresh = true;
    set_mark(f->set, p);
}

static bool is_near(const struct consumer_partition *p)
{
    return p->puller && p->nearest == p->puller->broker_id;
}

static void all_go_back(struct consumer_puller *puller)
{
    struct consumer_partition *p;
    DL_FOREACH2(puller->members, p, puller_next)
    if (is_near(p))
        go_back(puller->f, p);
}

void pullers_lost(struct consumer_fetcher *f, int32_t broker_id)
{
    for (struct consumer_puller *puller = f->pullers; puller; puller = puller->next)
        if (puller->broker_id == broker_id) {
            begin_session(puller);
            all_go_back(puller);
        }
}

/* ---- members ---- */

static bool is_named(const struct consumer_puller *puller, const struct consumer_partition *p)
{
    return p->named_session == puller->session;
}

/* Without room to remember what to forget, all is forgotten: a new session. */
static void remember_to_forget(struct consumer_puller *puller, const struct partition_id *id)
{
    if (puller->forgets_count == puller->forgets_capacity) {
        size_t capacity = puller->forgets_capacity ? 2 * puller->forgets_capacity : 16;
        struct partition_id *forgets = realloc(puller->forgets, capacity * sizeof *forgets);
        if (!forgets || capacity > NAMES_PER_PULL_MAX) {
            begin_session(puller);
            if (forgets)
                puller->forgets = forgets;
            return;
        }
        puller->forgets = forgets;
        puller->forgets_capacity = capacity;
    }
    puller->forgets[puller->forgets_count++] = *id;
}

void puller_leave(struct consumer_fetcher *f, struct consumer_partition *p)
{
    struct consumer_puller *puller = p->puller;
    if (!puller)
        return;
    if (is_named(puller, p))
        remember_to_forget(puller, &p->id);
    DL_DELETE2(puller->members, p, puller_prev, puller_next);
    p->puller = NULL;
    p->named_session = 0;
    p->wants_records = false;
    consumer_partition_unref(p);
}

static bool is_to_forget(const struct consumer_puller *puller, const struct partition_id *id)
{
    for (size_t i = 0; i < puller->forgets_count; i++)
        if (memcmp(&puller->forgets[i], id, sizeof *id) == 0)
            return true;
    return false;
}

void puller_join(struct consumer_fetcher *f, struct consumer_partition *p, int32_t broker_id, bool wants)
{
    if (p->puller && p->puller->broker_id != broker_id)
        puller_leave(f, p);
    if (!p->puller) {
        struct consumer_puller *puller = puller_of(f, broker_id);
        if (!puller) {
            fetcher_wake_at(f, set_now_ms() + BACKOFF_MS_MAX);
            return;
        }
        /* In one pull a partition can not be both forgotten and named. */
        if (is_to_forget(puller, &p->id))
            begin_session(puller);
        consumer_partition_ref(p);
        p->puller = puller;
        DL_APPEND2(puller->members, p, puller_prev, puller_next);
    }
    p->wants_records = wants;
}

/* ---- replies ---- */

static int64_t back_off(struct consumer_puller *puller)
{
    int64_t delay_ms = (int64_t)BACKOFF_MS_MIN << (puller->failures < 5 ? puller->failures : 5);
    puller->failures++;
    return delay_ms < BACKOFF_MS_MAX ? delay_ms : BACKOFF_MS_MAX;
}

/* The pull as a whole failed: that says nothing about any position. */
static void on_failure(struct consumer_puller *puller, int code)
{
    struct consumer_fetcher *f = puller->f;
    enum brook_advice advice = brook_error_advice(code);
    bool is_session = code == BROOK_E_UNKNOWN_PULL_SESSION || code == BROOK_E_BAD_PULL_SESSION_EPOCH;
    f->set->counters.pull_errors++;
    begin_session(puller);
    if (!is_session)
        all_go_back(puller);
    f->needs_refresh |= !is_session;
    int64_t delay_ms = is_session && puller->failures == 0 ? 0 : back_off(puller);
    puller->failures += is_session && puller->failures == 0;
    puller->not_before_ms = set_now_ms() + delay_ms;
    fetcher_wake_at(f, puller->not_before_ms);
    diag_log(client_diag(f->client), is_session ? DIAG_DEBUG : DIAG_INFO, "", "broker %d: pull: %s",
             puller->broker_id, brook_error_text(code));
    if ((advice == BROOK_ADVICE_FIX || advice == BROOK_ADVICE_FATAL) && puller->told != code) {
        struct brook_error error;
        brook_error_set(&error, code, "broker %d refuses to be pulled from: %s", puller->broker_id,
                        brook_error_text(code));
        puller->told = code;
        set_put_failure(f->set, &error);
    }
}

/* Records came that bring the reader no further. */
static void on_no_progress(struct consumer_fetcher *f, struct consumer_partition *p,
                           const struct run_extent *extent, size_t bytes)
{
    size_t needed = extent->needed_bytes;
    if (needed == 0 && extent->skip_bytes < bytes)
        needed = 2 * p->fetch_bytes > BATCH_HEADER_BYTES ? 2 * p->fetch_bytes : BATCH_HEADER_BYTES;
    if (needed > p->fetch_bytes && needed <= f->set->settings.frame_bytes_max) {
        p->fetch_bytes = needed;
        return;
    }
    int code = needed > p->fetch_bytes ? BROOK_E_MESSAGE_TOO_LARGE : BROOK_E_OFFSET_NOT_AVAILABLE;
    fetcher_apply(f, p, position_on_pull_error(&p->position, code, true, set_now_ms()));
}

static void take_records(struct consumer_fetcher *f, struct consumer_partition *p, struct slab *slab,
                         const uint8_t *data, size_t bytes)
{
    struct run_extent extent;
    run_measure(data, bytes, p->position.offset, p->high_watermark, &p->epochs, &extent);
    if (extent.whole_bytes == 0) {
        on_no_progress(f, p, &extent, bytes);
        return;
    }
    if (set_put(f->set, p, slab, data + extent.skip_bytes, extent.whole_bytes, p->high_watermark) < 0) {
        position_on_silence(&p->position, set_now_ms());
        return;
    }
    position_on_records(&p->position, extent.next);
    p->is_halted = extent.is_bad;
}

/* The log is not what was read of it. */
static void take_divergence(struct consumer_fetcher *f, struct consumer_partition *p,
                            const Brook__PulledPartition *pulled)
{
    int64_t before = p->delivered;
    struct position_effects effects = set_truncate(f->set, p, pulled->diverged_epoch, pulled->diverged_at);
    if (effects.report != 0)
        diag_log(client_diag(f->client), DIAG_WARN, "",
                 "partition %s/%d: the records at offsets %" PRId64 " to %" PRId64
                 ", which were given out, are gone: a replica without them was elected, or lost them",
                 p->topic, p->partition, p->delivered, before - 1);
    fetcher_apply(f, p, effects);
}

static struct consumer_partition *find_asked(const struct pull *pull, const Brook__PulledPartition *pulled)
{
    struct consumer_puller *puller = pull->puller;
    struct partition_id id;
    if (pulled->topic_id.len != TOPIC_ID_BYTES)
        return NULL;
    memset(&id, 0, sizeof id);
    memcpy(id.topic_id, pulled->topic_id.data, TOPIC_ID_BYTES);
    id.partition = pulled->partition;
    struct consumer_partition *p = set_find_id(puller->f->set, &id);
    if (!p || p->puller != puller || !is_named(puller, p) || pull->sequence < p->named_since)
        return NULL;
    if (pulled->records_bytes > 0)
        p->named_offset = NAMED_NOWHERE;
    bool is_current = p->named_generation == p->generation && p->life == PARTITION_LIVE;
    return is_current && p->position.phase == POSITION_KNOWN ? p : NULL;
}

static void take_partition(const struct pull *pull, const Brook__PulledPartition *pulled, struct slab *slab,
                           const uint8_t *data)
{
    struct consumer_fetcher *f = pull->puller->f;
    struct consumer_partition *p = find_asked(pull, pulled);
    if (!p)
        return;
    set_mark(f->set, p);
    int code = envelope_status_code(pulled->status);
    bool is_elsewhere = is_near(p);
    if (code != 0 && is_elsewhere) {
        go_back(f, p);
        return;
    }
    if (pulled->preferred_replica >= 0 && !is_elsewhere) {
        p->named_offset = NAMED_NOWHERE;
        go_near(f, p, pulled->preferred_replica);
        return;
    }
    if (code == BROOK_E_LOG_DIVERGED && pulled->diverged_at >= 0 && p->position.offset > 0) {
        take_divergence(f, p, pulled);
        return;
    }
    if (code != 0) {
        if (code == BROOK_E_OFFSET_OUT_OF_RANGE) {
            p->range_first = pulled->log_start_offset;
            p->range_end = pulled->log_end_offset;
        }
        struct position_effects effects = position_on_pull_error(&p->position, code, true, set_now_ms());
        fetcher_apply(f, p, effects);
        if (p->position.phase != POSITION_KNOWN)
            set_void_fetched(f->set, p);
        return;
    }
    if (is_elsewhere)
        p->stays = 0;
    if (pulled->has_high_watermark && pulled->high_watermark >= 0)
        p->high_watermark = pulled->high_watermark;
    if (pulled->records_bytes > 0)
        take_records(f, p, slab, data, pulled->records_bytes);
    else
        position_on_records(&p->position, p->position.offset);
}

/* Returns 0 or what is wrong with the reply as a whole. */
static int take_reply(const struct pull *pull, const struct channel_reply *reply)
{
    const Brook__Response *response = reply->response;
    if (response->body_case != BROOK__RESPONSE__BODY_PULL)
        return BROOK_E_BAD_ENVELOPE;
    const Brook__PullResponse *body = response->pull;
    uint64_t bytes = 0;
    for (size_t i = 0; i < body->n_partitions; i++)
        bytes += body->partitions[i]->records_bytes;
    if (bytes != reply->records_bytes)
        return BROOK_E_BAD_FRAME;
    struct consumer_puller *puller = pull->puller;
    if (pull->is_first) {
        puller->session_id = body->session_id;
        puller->is_sessionless = body->session_id == 0;
    }
    puller->failures = 0;
    puller->not_before_ms = 0;
    puller->told = 0;
    puller->f->set->counters.replies_bytes += bytes;
    const uint8_t *data = reply->records;
    for (size_t i = 0; i < body->n_partitions; i++) {
        take_partition(pull, body->partitions[i], reply->slab, data);
        data += body->partitions[i]->records_bytes;
    }
    return 0;
}

static void give_back(struct pull *pull)
{
    struct consumer_puller *puller = pull->puller;
    pull->next = puller->idle;
    puller->idle = pull;
    fetcher_unref(puller->f);
}

static void on_pulled(void *arg, const struct channel_reply *reply)
{
    struct pull *pull = arg;
    struct consumer_puller *puller = pull->puller;
    struct consumer_fetcher *f = puller->f;
    puller->in_flight--;
    if (f->is_closed) {
        give_back(pull);
        return;
    }
    int code = 0;
    set_lock(f->set);
    f->set->counters.replies++;
    if (pull->session == puller->session) {
        code = reply->err < 0 ? -reply->err : envelope_status_code(reply->response->status);
        if (code == BROOK_E_SUPERSEDED && !pull->is_first)
            code = 0;
        else if (code == 0)
            code = take_reply(pull, reply);
        if (code != 0)
            on_failure(puller, code);
    }
    set_unlock(f->set);
    /* After a failure the channel may be about to close: not from in here. */
    if (reply->err == 0)
        fetcher_run(f, code != 0);
    else
        fetcher_again(f);
    give_back(pull);
}

/* ---- requests ---- */

static bool has_to_stay(const struct consumer_partition *p)
{
    return set_now_ms() < p->stay_ms;
}

static bool is_changed(const struct consumer_puller *puller, const struct consumer_partition *p)
{
    return p->named_stay != has_to_stay(p) || !is_named(puller, p) || p->named_generation != p->generation ||
           p->named_offset != p->position.offset || p->named_epoch != p->leader_epoch ||
           p->named_bytes != p->fetch_bytes;
}

/* Whether another pull has to be sent now. */
static bool is_pull_due(struct consumer_puller *puller)
{
    bool wants = false, changed = false;
    const struct consumer_partition *p;
    DL_FOREACH2(puller->members, p, puller_next)
    {
        wants |= p->wants_records;
        changed |= p->wants_records && is_changed(puller, p);
    }
    if (!wants || puller->in_flight == PULLS_IN_FLIGHT_MAX)
        return false;
    /* The id of the session is still to come. */
    if (puller->in_flight > 0 && (!changed || puller->session_id == 0))
        return false;
    if (set_now_ms() < puller->not_before_ms) {
        fetcher_wake_at(puller->f, puller->not_before_ms);
        return false;
    }
    return true;
}

/* What one pull may bring: as much as its partitions want, and so little that pulls to all brokers fit into
 * half of the memory for fetched records, beside what waits for the application. */
static size_t pull_bytes(const struct consumer_puller *puller)
{
    const struct consumer_settings *s = &puller->f->set->settings;
    size_t count = 0, wanted = 0;
    for (const struct consumer_puller *other = puller->f->pullers; other; other = other->next)
        count += other->members != NULL;
    size_t share = (size_t)s->queued_bytes_max / 2 / (count ? count : 1);
    if (share < PULL_BYTES_MIN)
        share = PULL_BYTES_MIN;
    if (share > s->fetch_bytes_max)
        share = s->fetch_bytes_max;
    const struct consumer_partition *p;
    DL_FOREACH2(puller->members, p, puller_next)
    {
        wanted += p->wants_records ? p->fetch_bytes : 0;
        if (wanted >= share)
            return share;
    }
    return wanted;
}

/* [locked] */
static bool has_room(struct consumer_fetcher *f, size_t bytes)
{
    struct consumer_set *set = f->set;
    size_t in_use = pool_bytes_in_use(client_pool(f->client));
    bool has = in_use == 0 || in_use + bytes <= (size_t)set->settings.queued_bytes_max;
    set->is_starved |= !has;
    /* What is queued or out kicks when it comes back. Else the channel has the memory, of the reply that is
     * being taken right now, and says nothing when it gives it up. */
    if (!has && !set->ready && set->batches_out == 0)
        fetcher_wake_at(f, set_now_ms() + 1);
    return has;
}

static void name(struct consumer_puller *puller, struct consumer_partition *p, Brook__PullPartition *entry)
{
    if (p->named_generation != p->generation || !is_named(puller, p))
        p->named_since = puller->sequence;
    p->named_session = puller->session;
    p->named_generation = p->generation;
    p->named_offset = p->position.offset;
    p->named_epoch = p->leader_epoch;
    p->named_bytes = p->fetch_bytes;
    p->named_stay = has_to_stay(p);
    brook__pull_partition__init(entry);
    entry->has_topic_id = entry->has_partition = entry->has_offset = entry->has_max_bytes = true;
    entry->topic_id = envelope_bytes(p->id.topic_id, TOPIC_ID_BYTES);
    entry->partition = p->partition;
    entry->offset = p->position.offset;
    entry->has_current_epoch = p->leader_epoch >= 0;
    entry->current_epoch = p->leader_epoch;
    entry->last_epoch = read_epochs_before(&p->epochs, p->position.offset);
    entry->has_last_epoch = entry->last_epoch >= 0;
    entry->max_bytes = (uint32_t)p->fetch_bytes;
    entry->has_stay = p->named_stay;
    entry->stay = p->named_stay;
}

static int add_names(struct consumer_puller *puller, struct arena *arena, Brook__PullRequest *body)
{
    size_t count = 0;
    struct consumer_partition *p;
    DL_FOREACH2(puller->members, p, puller_next)
    count += p->wants_records && (is_changed(puller, p) || puller->is_sessionless);
    if (count > NAMES_PER_PULL_MAX)
        count = NAMES_PER_PULL_MAX;
    body->partitions = arena_alloc(arena, count * sizeof *body->partitions + 1);
    Brook__PullPartition *entries = arena_alloc(arena, count * sizeof *entries + 1);
    if (!body->partitions || !entries)
        return -BROOK_E_NOMEM;
    DL_FOREACH2(puller->members, p, puller_next)
    {
        if (body->n_partitions == count)
            break;
        if (!p->wants_records || !(is_changed(puller, p) || puller->is_sessionless))
            continue;
        name(puller, p, &entries[body->n_partitions]);
        body->partitions[body->n_partitions] = &entries[body->n_partitions];
        body->n_partitions++;
    }
    return 0;
}

static bool is_to_be_forgotten(const struct consumer_puller *puller, const struct consumer_partition *p)
{
    return !p->wants_records && is_named(puller, p);
}

static void forget(const struct partition_id *id, Brook__PullForget *entry)
{
    brook__pull_forget__init(entry);
    entry->has_topic_id = entry->has_partition = true;
    entry->topic_id = envelope_bytes(id->topic_id, TOPIC_ID_BYTES);
    entry->partition = id->partition;
}

static int add_forgets(struct consumer_puller *puller, struct arena *arena, Brook__PullRequest *body)
{
    size_t count = puller->forgets_count, at = 0;
    struct consumer_partition *p;
    DL_FOREACH2(puller->members, p, puller_next)
    count += is_to_be_forgotten(puller, p);
    body->forget = arena_alloc(arena, count * sizeof *body->forget + 1);
    Brook__PullForget *entries = arena_alloc(arena, count * sizeof *entries + 1);
    if (!body->forget || !entries)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < puller->forgets_count; i++)
        forget(&puller->forgets[i], &entries[at++]);
    DL_FOREACH2(puller->members, p, puller_next)
    if (is_to_be_forgotten(puller, p)) {
        forget(&p->id, &entries[at++]);
        p->named_session = 0;
    }
    for (size_t i = 0; i < at; i++)
        body->forget[i] = &entries[i];
    body->n_forget = at;
    return 0;
}

static void fill_limits(struct consumer_puller *puller, size_t bytes, Brook__PullRequest *body)
{
    const struct consumer_settings *s = &puller->f->set->settings;
    bool is_first = puller->session_id == 0;
    body->has_session_id = body->has_session_epoch = body->has_max_wait_ms = body->has_min_bytes =
        body->has_max_bytes = true;
    body->session_id = puller->session_id;
    body->session_epoch = puller->is_sessionless ? -1 : puller->epoch;
    /* Until the id is known nothing can take the place of a pull: so that one must not wait. */
    body->max_wait_ms = is_first && !puller->is_sessionless ? 0 : (uint32_t)s->fetch_wait_ms;
    body->min_bytes = s->fetch_bytes_min;
    body->max_bytes = (uint32_t)bytes;
    if (s->rack[0]) {
        body->has_client_rack = true;
        body->client_rack = envelope_text(s->rack);
    }
}

static struct pull *take_pull(struct consumer_puller *puller)
{
    struct pull *pull = puller->idle;
    if (pull)
        puller->idle = pull->next;
    else
        pull = malloc(sizeof *pull);
    if (pull)
        *pull = (struct pull){.puller = puller,
                              .session = puller->session,
                              .sequence = puller->sequence,
                              .is_first = puller->session_id == 0};
    return pull;
}

/* [locked] */
static int send_pull(struct consumer_puller *puller, struct channel *channel, size_t bytes)
{
    struct consumer_fetcher *f = puller->f;
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__PullRequest body = BROOK__PULL_REQUEST__INIT;
    request.body_case = BROOK__REQUEST__BODY_PULL;
    request.pull = &body;
    puller->sequence++;
    struct pull *pull = take_pull(puller);
    if (!pull)
        return -BROOK_E_NOMEM;
    arena_reset(f->arena);
    fill_limits(puller, bytes, &body);
    int r = add_names(puller, f->arena, &body);
    if (r == 0)
        r = add_forgets(puller, f->arena, &body);
    if (r == 0)
        r = channel_send(channel, &request, NULL, 0,
                         (int)body.max_wait_ms + f->set->settings.request_timeout_ms, on_pulled, pull);
    if (r < 0) {
        pull->next = puller->idle;
        puller->idle = pull;
        return r;
    }
    fetcher_ref(f);
    puller->in_flight++;
    puller->forgets_count = 0;
    puller->epoch++;
    f->set->counters.pulls++;
    return 0;
}

static void puller_send(struct consumer_puller *puller)
{
    struct consumer_fetcher *f = puller->f;
    set_lock(f->set);
    size_t bytes = pull_bytes(puller);
    bool is_due = is_pull_due(puller) && has_room(f, bytes);
    set_unlock(f->set);
    if (!is_due)
        return;
    struct channel *channel = client_channel(f->client, puller->broker_id, CLIENT_LANE_PULLS);
    if (!channel) {
        fetcher_wake_at(f, set_now_ms() + BACKOFF_MS_MAX);
        return;
    }
    set_lock(f->set);
    int r = send_pull(puller, channel, bytes);
    if (r < 0) {
        /* What was named in a pull that was not sent is not named. */
        begin_session(puller);
        puller->not_before_ms = set_now_ms() + back_off(puller);
        fetcher_wake_at(f, puller->not_before_ms);
    }
    set_unlock(f->set);
}

void pullers_send(struct consumer_fetcher *f)
{
    set_lock(f->set);
    f->set->is_starved = false;
    set_unlock(f->set);
    for (struct consumer_puller *puller = f->pullers; puller; puller = puller->next)
        puller_send(puller);
}
