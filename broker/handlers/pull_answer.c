#include "broker/handlers/pull_answer.h"

#include "broker/partition/partition.h"
#include "broker/replication/epoch_history.h"
#include "broker/replication/replica.h"

#include <inttypes.h>
#include <string.h>

#define MS ((int64_t)1000000)
/* Looks at one entry that keeps changing under our eyes. */
#define LOOKS_MAX 8

/* ---- an answer being put together ---------------------------------------------------------------------- */

struct answer {
    struct pull_session *session;
    struct request *request;
    Brook__PulledPartition *parts;
    Brook__PulledPartition **pointers;
    struct log_range *ranges;
    struct pull_entry **served; /* whose records the ranges are */
    size_t parts_count;
    size_t ranges_count;
    size_t bytes;
    bool has_error;
    bool has_news; /* that somebody waits for: not to be parked */
};

static int answer_begin(struct answer *a, struct pull_session *s)
{
    size_t most = s->ready_count + s->unsent_count;
    *a = (struct answer){.session = s, .request = s->parked};
    if (!most)
        return 0;
    a->parts = request_reply_alloc(a->request, most * sizeof a->parts[0]);
    a->pointers = request_reply_alloc(a->request, most * sizeof a->pointers[0]);
    a->ranges = request_reply_alloc(a->request, most * sizeof a->ranges[0]);
    a->served = request_reply_alloc(a->request, most * sizeof a->served[0]);
    return a->parts && a->pointers && a->ranges && a->served ? 0 : -BROOK_E_NOMEM;
}

static void answer_drop(struct answer *a)
{
    for (size_t i = 0; i < a->ranges_count; i++)
        log_range_done(&a->ranges[i]);
    arena_reset(a->session->loop->reply_arena);
}

static Brook__PulledPartition *add_part(struct answer *a, struct pull_entry *e)
{
    Brook__PulledPartition *part = &a->parts[a->parts_count];
    brook__pulled_partition__init(part);
    part->has_topic_id = part->has_partition = true;
    part->topic_id = envelope_bytes(e->key.topic_id, sizeof e->key.topic_id);
    part->partition = e->key.partition;
    a->pointers[a->parts_count++] = part;
    return part;
}

static void add_marks(Brook__PulledPartition *part, struct pull_entry *e, const struct partition_marks *marks)
{
    part->has_high_watermark = part->has_log_start_offset = part->has_log_end_offset = true;
    part->high_watermark = marks->high_watermark;
    part->log_start_offset = marks->log_start;
    part->log_end_offset = marks->log_end;
    part->has_epoch_start = part->has_leader_epoch = e->session->replica_id >= 0;
    part->epoch_start = marks->epoch_start;
    part->leader_epoch = marks->leader_epoch;
    e->sent_high_watermark = marks->high_watermark;
    e->sent_log_start = marks->log_start;
    pull_entry_set_unsent(e, false);
}

static bool marks_have_moved(const struct pull_entry *e, const struct partition_marks *marks)
{
    return e->sent_high_watermark != marks->high_watermark || e->sent_log_start != marks->log_start;
}

static Brook__PulledPartition *add_error(struct answer *a, struct pull_entry *e, const struct brook_error *error,
                                         const struct partition_marks *marks)
{
    Brook__PulledPartition *part = add_part(a, e);
    part->status = request_status(a->request, error);
    if (!part->status) { /* no memory for a sentence: not for silence either */
        static Brook__Status busy = {
            PROTOBUF_C_MESSAGE_INIT(&brook__status__descriptor), 1, BROOK_E_BUSY, 0, {0, NULL}};
        part->status = &busy;
    }
    if (marks)
        add_marks(part, e, marks);
    a->has_error = true;
    pull_entry_make_ready(e);
    return part;
}

/* ---- finding ------------------------------------------------------------------------------------------- */

static int find(const struct pull_session *s, const struct pull_entry *e, int32_t current_epoch,
                const struct view_topic **ret_topic, struct partition **ret_partition, struct brook_error *error)
{
    ProtobufCBinaryData topic_id = envelope_bytes((uint8_t *)(uintptr_t)e->key.topic_id, sizeof e->key.topic_id);
    return s->replica_id >= 0
               ? request_find_led(s->loop, &topic_id, e->key.partition, current_epoch, ret_topic, ret_partition, error)
               : request_find_read(s->loop, &topic_id, e->key.partition, current_epoch, ret_topic, ret_partition, error);
}

/* ---- looking at one entry ------------------------------------------------------------------------------ */

static void add_range(struct answer *a, struct pull_entry *e, const struct partition_marks *marks,
                      const struct log_range *range)
{
    Brook__PulledPartition *part = add_part(a, e);
    add_marks(part, e, marks);
    part->has_records_bytes = true;
    part->records_bytes = (uint32_t)range->bytes;
    a->served[a->ranges_count] = e;
    a->ranges[a->ranges_count++] = *range;
    a->bytes += range->bytes;
    pull_entry_make_ready(e); /* to the end: should this answer not be sent, others come first in the next */
}

/* Followers may be behind the leader, or have begun later: only the leader may say that an offset is out of range. */
static void say_not_here(const struct view_topic *topic, const struct pull_entry *e,
                         const struct partition_marks *marks, struct brook_error *error)
{
    brook_error_set(error, BROOK_E_OFFSET_NOT_AVAILABLE,
                    "partition %s/%d: this follower holds offsets %" PRId64 " to %" PRId64 ", not %" PRId64, topic->name,
                    e->key.partition, marks->log_start, marks->log_end, e->offset);
}

static void say_out_of_range(const struct view_topic *topic, const struct pull_entry *e,
                             const struct partition_marks *marks, struct brook_error *error)
{
    if (marks->is_follower)
        say_not_here(topic, e, marks, error);
    else if (e->offset < marks->log_start)
        brook_error_set(error, BROOK_E_OFFSET_OUT_OF_RANGE,
                        "partition %s/%d: offset %" PRId64 " is below the log's start %" PRId64, topic->name,
                        e->key.partition, e->offset, marks->log_start);
    else
        brook_error_set(error, BROOK_E_OFFSET_OUT_OF_RANGE,
                        "partition %s/%d: offset %" PRId64 " is above the log's end %" PRId64, topic->name,
                        e->key.partition, e->offset, marks->log_end);
}

/* The first offset that the session's reader does not see. */
static int64_t end_for(const struct pull_session *s, const struct partition_marks *marks)
{
    return s->replica_id >= 0 ? marks->log_end : marks->visible_end;
}

/* As log_read(); -BROOK_E_LOCKED: a disk thread reads first. */
static int read_log(struct pull_entry *e, struct partition *p, const struct pull_look *k,
                    struct log_range *ret_range)
{
    struct log *log = partition_log(p);
    int r = e->is_loaded ? -BROOK_E_LOCKED
                         : log_read_cached(log, k->offset, k->end_offset, k->bytes_max, k->whole_first,
                                           k->first_bytes_max, ret_range);
    if (r == -BROOK_E_LOCKED && (e->is_loaded || !pull_entry_load(e, p, k)))
        r = log_read(log, k->offset, k->end_offset, k->bytes_max, k->whole_first, k->first_bytes_max,
                     ret_range);
    e->is_loaded = false;
    return r;
}

/* There is something for the entry below what it may see. */
static void look_at_data(struct answer *a, struct pull_entry *e, const struct view_topic *topic,
                         struct partition *p, const struct partition_marks *marks)
{
    struct brook_error error;
    struct log_range range = {0};
    size_t left = a->session->max_bytes > a->bytes ? a->session->max_bytes - a->bytes : 0;
    bool is_first = a->ranges_count == 0;
    if (!left && !is_first)
        return;
    size_t most = e->bytes_max < left ? e->bytes_max : left;
    /* The envelope has its share of the frame too. */
    size_t first_bytes_max = a->request->loop->settings->frame_bytes_max / 8 * 7;
    const struct pull_look k = {e->offset, end_for(a->session, marks), most, is_first, first_bytes_max};
    int r = read_log(e, p, &k, &range);
    if (r == -BROOK_E_LOCKED)
        return;
    if (r == -BROOK_E_OFFSET_OUT_OF_RANGE) {
        struct partition_marks now;
        partition_marks(p, &now);
        say_out_of_range(topic, e, &now, &error);
        add_error(a, e, &error, &now);
    } else if (r < 0) {
        brook_error_set(&error, r, "partition %s/%d: can not read at offset %" PRId64 ": %s", topic->name,
                        e->key.partition, e->offset, brook_error_text(r));
        add_error(a, e, &error, marks);
    } else if (range.bytes) {
        add_range(a, e, marks, &range);
    } else {
        log_range_done(&range);
    }
}

/* ---- followers ----------------------------------------------------------------------------------------- */

static int note_position(struct pull_entry *e, struct replica *replica, int64_t now_ns)
{
    const struct pull_session *s = e->session;
    const struct leader_pull pull = {.broker_id = s->replica_id,
                                     .broker_epoch = s->broker_epoch,
                                     .current_epoch = e->current_epoch,
                                     .offset = e->offset,
                                     .last_epoch = e->last_epoch,
                                     .safe_end = e->safe_end,
                                     .reached_epoch = e->reached_epoch,
                                     .log_start = e->log_start};
    return replica ? replica_pull(replica, &pull, now_ns / MS) : -BROOK_E_NOT_LEADER;
}

/* The leader takes note of where a follower stands, once for each time it says so. Returns 0, or what it has to be
 * told. */
static int take_note(struct pull_entry *e, const struct view_topic *topic, const struct partition_marks *marks,
                     struct brook_error *error)
{
    int r = note_position(e, topic->partitions[e->key.partition].replica, e->session->loop->now_ns);
    e->is_noted = r == 0;
    if (r == -BROOK_E_OFFSET_OUT_OF_RANGE)
        say_out_of_range(topic, e, marks, error);
    else if (r < 0)
        brook_error_set(error, r, "partition %s/%d: replica %d at offset %" PRId64 " after epoch %d: %s", topic->name,
                        e->key.partition, e->session->replica_id, e->offset, e->last_epoch, brook_error_text(r));
    return r;
}

/* ---- consumers ----------------------------------------------------------------------------------------- */

struct consumer_question {
    int64_t offset;
    int32_t last_epoch;
    int32_t before;       /* of the record before the offset, here */
    struct epoch_end end; /* of the consumer's epoch, here */
};

static void ask_history(void *arg, const struct epochs *epochs, int64_t start_offset, int64_t end_offset)
{
    struct consumer_question *q = arg;
    struct epoch_history history = {epochs->entries, epochs->count, start_offset, end_offset};
    q->before = epoch_history_before(&history, q->offset);
    q->end = epoch_history_end(&history, q->last_epoch);
}

/* Whether the log is what the consumer has read so far, by the epoch of its last record: looked at once for each time
 * that it says where it stands. A log that does not know the epoch says nothing. */
static bool has_diverged(struct pull_entry *e, struct log *log, const struct partition_marks *marks)
{
    if (e->session->replica_id >= 0 || e->is_noted || e->last_epoch < 0 || e->offset < marks->log_start)
        return false;
    struct consumer_question q = {.offset = e->offset, .last_epoch = e->last_epoch};
    log_look_at_epochs(log, ask_history, &q);
    e->is_noted = e->offset <= marks->log_end && (q.before < 0 || q.before == e->last_epoch);
    return !e->is_noted;
}

/* Followers may be behind, or cut later than others: only the leader may say it. */
static void say_diverged(struct answer *a, struct pull_entry *e, const struct view_topic *topic, struct log *log,
                         const struct partition_marks *marks)
{
    struct brook_error error;
    struct consumer_question q = {.offset = e->offset, .last_epoch = e->last_epoch};
    if (marks->is_follower) {
        say_not_here(topic, e, marks, &error);
        add_error(a, e, &error, marks);
        return;
    }
    log_look_at_epochs(log, ask_history, &q);
    brook_error_set(&error, BROOK_E_LOG_DIVERGED,
                    "partition %s/%d: the record before offset %" PRId64 " was of epoch %d; of those up to it the log "
                    "ends at %" PRId64,
                    topic->name, e->key.partition, e->offset, e->last_epoch, q.end.end);
    Brook__PulledPartition *part = add_error(a, e, &error, marks);
    part->has_diverged_at = part->has_diverged_epoch = true;
    part->diverged_epoch = q.end.epoch;
    part->diverged_at = q.end.end;
}

static void refresh(struct pull_entry *e, struct partition *p, struct replica *replica)
{
    struct partition_marks marks;
    note_position(e, replica, e->session->loop->now_ns);
    partition_marks(p, &marks);
    if (marks_have_moved(e, &marks))
        pull_entry_set_unsent(e, true);
}

/* Whoever still waits has all that there is: it counts as having asked again. A session names only what changed, so
 * this stands for the pulls that would have named the rest. Marks that have moved since are told with the answer. */
void pull_refresh(struct pull_session *s)
{
    if (s->replica_id < 0 || s->loop->now_ns - s->refreshed_ns < PULL_REFRESH_MS * MS)
        return;
    s->refreshed_ns = s->loop->now_ns;
    struct pull_entry *e, *next;
    HASH_ITER(hh, s->entries, e, next)
    {
        ProtobufCBinaryData topic_id = envelope_bytes(e->key.topic_id, sizeof e->key.topic_id);
        const struct view_topic *topic;
        struct partition *p;
        if (e->waits_for && e->is_noted &&
            request_find_led(s->loop, &topic_id, e->key.partition, e->current_epoch, &topic, &p, NULL) == 0)
            refresh(e, p, topic->partitions[e->key.partition].replica);
    }
}

/* A follower that has reached the start of the epoch counts only when it knows, so it is told at once. */
static void tell_start(struct answer *a, struct pull_entry *e, const struct partition_marks *marks)
{
    if (a->session->replica_id < 0 || e->is_start_told || e->reached_epoch >= marks->leader_epoch)
        return;
    e->is_start_told = true;
    pull_entry_set_unsent(e, true);
    a->has_news = true;
}

/* Whoever deleted records waits until the followers in sync have done so too. */
static void tell_deletion(struct answer *a, struct pull_entry *e, const struct partition_marks *marks)
{
    if (a->session->replica_id < 0 || marks->deleted_start <= e->sent_log_start)
        return;
    pull_entry_set_unsent(e, true);
    a->has_news = true;
}

/* Consumers that read from the follower wait for the high watermark. */
static void tell_mark(struct answer *a, struct pull_entry *e, const struct partition_marks *marks)
{
    if (a->session->replica_id < 0 || !e->has_readers || marks->high_watermark <= e->sent_high_watermark)
        return;
    pull_entry_set_unsent(e, true);
    a->has_news = true;
}

/* ---- racks --------------------------------------------------------------------------------------------- */

static bool is_in_rack(const struct view *view, int32_t broker_id, const char *rack)
{
    const struct view_broker *b = view_broker(view, broker_id);
    return b && b->rack && strcmp(b->rack, rack) == 0;
}

/* The replica in the consumer's rack that has most, of those that are alive, in sync, and have what is asked for. -1: the
 * leader serves it, being in that rack, or as nobody else is. */
static int32_t nearest(const struct pull_session *s, const struct pull_entry *e, struct replica *replica)
{
    struct replica_position at[ZNODE_REPLICAS_MAX];
    const struct replica_position *best = NULL;
    if (!replica || is_in_rack(s->loop->view, s->loop->settings->broker_id, s->rack))
        return -1;
    size_t count = replica_positions(replica, at);
    for (size_t i = 0; i < count; i++)
        if (at[i].broker_id != s->loop->settings->broker_id && at[i].is_in_sync && at[i].end >= e->offset &&
            is_in_rack(s->loop->view, at[i].broker_id, s->rack) && (!best || at[i].end > best->end))
            best = &at[i];
    return best ? best->broker_id : -1;
}

/* Whether the consumer is sent elsewhere. */
static bool send_elsewhere(struct answer *a, struct pull_entry *e, const struct view_topic *topic,
                           const struct partition_marks *marks)
{
    if (!a->session->rack || e->stays || e->current_epoch < 0 || !marks->is_leader)
        return false;
    int32_t broker_id = nearest(a->session, e, topic->partitions[e->key.partition].replica);
    if (broker_id < 0)
        return false;
    Brook__PulledPartition *part = add_part(a, e);
    add_marks(part, e, marks);
    part->has_preferred_replica = true;
    part->preferred_replica = broker_id;
    a->has_news = true;
    pull_entry_rest(e);
    return true;
}

/* ---- one look ------------------------------------------------------------------------------------------ */

/* One look at the entry. Returns whether it has to be looked at again: something came between look and wait.
 */
static bool look_once(struct answer *a, struct pull_entry *e)
{
    const struct view_topic *topic;
    struct partition *p;
    struct brook_error error;
    struct partition_marks marks;
    if (find(a->session, e, e->current_epoch, &topic, &p, &error) < 0) {
        add_error(a, e, &error, NULL);
        return false;
    }
    partition_marks(p, &marks);
    if (has_diverged(e, partition_log(p), &marks)) {
        say_diverged(a, e, topic, partition_log(p), &marks);
        return false;
    }
    bool is_refused = a->session->replica_id >= 0 && !e->is_noted && take_note(e, topic, &marks, &error) < 0;
    if (!is_refused && (e->offset < marks.log_start || e->offset > marks.log_end)) {
        say_out_of_range(topic, e, &marks, &error);
        is_refused = true;
    }
    if (is_refused) {
        add_error(a, e, &error, &marks);
        return false;
    }
    if (send_elsewhere(a, e, topic, &marks))
        return false;
    if (e->offset < end_for(a->session, &marks)) {
        look_at_data(a, e, topic, p, &marks);
        return false;
    }
    if (marks_have_moved(e, &marks))
        pull_entry_set_unsent(e, true);
    tell_start(a, e, &marks);
    tell_deletion(a, e, &marks);
    tell_mark(a, e, &marks);
    if (!pull_entry_wait(e, p, e->offset))
        return true;
    pull_entry_make_quiet(e);
    return false;
}

static void look(struct answer *a, struct pull_entry *e)
{
    for (int i = 0; i < LOOKS_MAX && look_once(a, e); i++)
        ;
}

/* ---- answering and parking ----------------------------------------------------------------------------- */

static void add_unsent(struct answer *a)
{
    struct pull_session *s = a->session;
    struct pull_entry *e, *next;
    for (e = TAILQ_FIRST(&s->unsent); e; e = next) {
        const struct view_topic *topic;
        struct partition *p;
        struct partition_marks marks;
        next = TAILQ_NEXT(e, in_unsent);
        if (find(s, e, s->replica_id < 0 ? e->current_epoch : -1, &topic, &p, NULL) < 0) {
            pull_entry_set_unsent(e, false);
            continue;
        }
        partition_marks(p, &marks);
        add_marks(add_part(a, e), e, &marks);
    }
}

/* The parked pull is taken off and answered; a temporary session ends with it. */
static struct request *unpark(struct pull_session *s)
{
    struct request *r = s->parked;
    s->parked = NULL;
    s->peer->pulls_parked--;
    r->on_deadline = NULL;
    r->on_gone = NULL;
    return r;
}

static void send(struct answer *a, int status_code)
{
    struct pull_session *s = a->session;
    struct request *r = unpark(s);
    for (size_t i = 0; i < a->ranges_count; i++)
        pull_entry_rest(a->served[i]);
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__PullResponse body = BROOK__PULL_RESPONSE__INIT;
    Brook__Status status = BROOK__STATUS__INIT;
    if (status_code) {
        status.has_code = status.has_text = true;
        status.code = status_code;
        status.text = envelope_text(brook_error_text(status_code));
        response.status = &status;
    }
    body.has_session_id = true;
    body.session_id = s->id;
    body.n_partitions = a->parts_count;
    body.partitions = a->pointers;
    response.body_case = BROOK__RESPONSE__BODY_PULL;
    response.pull = &body;
    request_reply(r, &response, a->ranges, a->ranges_count);
    if (!s->id)
        pull_session_free(s);
}

void pull_send_empty(struct pull_session *s, int status_code)
{
    struct answer a = {.session = s, .request = s->parked};
    send(&a, status_code);
}

/* An entry has some data, though too little: look again when there is more. */
static void wait_for_more(struct pull_session *s, struct pull_entry *e)
{
    const struct view_topic *topic;
    struct partition *p;
    for (int i = 0; i < LOOKS_MAX; i++) {
        struct partition_marks marks;
        if (find(s, e, s->replica_id < 0 ? e->current_epoch : -1, &topic, &p, NULL) < 0)
            return;
        partition_marks(p, &marks);
        int64_t end = end_for(s, &marks);
        if (pull_entry_wait(e, p, end > e->offset ? end : e->offset))
            return;
    }
}

/* Look at what is ready; answer if there is enough, or an error, or if it is time. Returns whether it
 * answered. */
bool pull_serve(struct pull_session *s, bool is_time)
{
    struct answer a;
    if (answer_begin(&a, s) < 0) {
        struct request *r = unpark(s);
        request_fail(r, BROOK_E_BUSY, "no memory for an answer about %zu partitions", s->ready_count);
        if (!s->id)
            pull_session_free(s);
        return true;
    }
    /* Served ones go to the queue's end: the count says where those begin. */
    size_t count = s->ready_count;
    struct pull_entry *e = TAILQ_FIRST(&s->ready), *next;
    for (; count > 0; count--, e = next) {
        next = TAILQ_NEXT(e, in_ready);
        look(&a, e);
        if (a.bytes >= s->max_bytes)
            break;
    }
    /* A pull that does not wait is no reason to say that there is nothing where the disk has something. */
    bool is_due = is_time || (s->is_overdue && (a.bytes || !s->loading_count));
    if (is_due || a.has_error || a.has_news || (a.bytes && a.bytes >= s->min_bytes)) {
        add_unsent(&a);
        send(&a, 0);
        return true;
    }
    answer_drop(&a);
    TAILQ_FOREACH(e, &s->ready, in_ready)
    wait_for_more(s, e);
    return false;
}

static void on_woken(struct pull_session *s)
{
    pull_serve(s, false);
}

static void on_time(struct request *r)
{
    struct pull_session *s = r->state;
    s->is_overdue = true;
    pull_serve(s, false);
}

static void on_gone(struct request *r)
{
    struct pull_session *s = r->state;
    unpark(s);
    request_end(r);
    if (!s->id)
        pull_session_free(s);
}

static void make_room(struct request_peer *peer, uint32_t parked_max)
{
    if (peer->pulls_parked < parked_max)
        return;
    struct pull_session *oldest = NULL;
    for (struct pull_session *s = peer->pull_sessions; s; s = s->next)
        if (s->parked && (!oldest || s->parked_ns <= oldest->parked_ns))
            oldest = s;
    if (oldest)
        pull_serve(oldest, true);
}

void pull_park(struct pull_session *s, struct request *r, const Brook__PullRequest *asked)
{
    const struct handler_settings *limits = r->loop->settings;
    make_room(r->peer, limits->pulls_parked_per_connection_max);
    s->parked = r;
    s->parked_ns = r->loop->now_ns;
    s->peer->pulls_parked++;
    s->max_bytes = asked->max_bytes < limits->pull_bytes_max ? asked->max_bytes : limits->pull_bytes_max;
    if (s->max_bytes == 0)
        s->max_bytes = 1;
    s->min_bytes = asked->min_bytes < s->max_bytes ? asked->min_bytes : s->max_bytes;
    s->woken = on_woken;
    r->state = s;
    r->on_gone = on_gone;
    r->on_deadline = on_time;
    uint32_t wait_ms =
        asked->max_wait_ms < limits->pull_wait_ms_max ? asked->max_wait_ms : limits->pull_wait_ms_max;
    s->is_overdue = wait_ms == 0;
    if (!pull_serve(s, r->loop->is_stopping) && wait_ms > 0)
        request_set_deadline(r, r->loop->now_ns + wait_ms * MS);
}
