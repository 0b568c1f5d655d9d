/* What an answer means for the partition's log: appended, cut, begun anew, or left alone for a while. */
#include "broker/replication/fetcher_internal.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SECOND_NS ((int64_t)1000000000)

/* ---- questions to follower_state, asked under the log's lock ------------------------------------------ */

struct question {
    void (*ask)(struct question *q, const struct epoch_history *history);
    struct fetch_entry *e;
    struct leader_pull pull;
    struct epoch_end answer;
    int64_t safe_end;
    int64_t offset; /* asked for; or the leader's log start */
    int64_t log_start;
    int64_t log_end;
    int32_t current_epoch;
    int32_t asked;
    int error;
    bool result;
};

static void look(void *arg, const struct epochs *epochs, int64_t start_offset, int64_t end_offset)
{
    struct question *q = arg;
    struct epoch_history history = {epochs->entries, epochs->count, start_offset, end_offset};
    q->log_start = start_offset;
    q->log_end = end_offset;
    if (q->ask)
        q->ask(q, &history);
}

static void ask(struct question *q)
{
    log_look_at_epochs(partition_log(q->e->partition), look, q);
}

static void ask_pull(struct question *q, const struct epoch_history *history)
{
    follower_state_pull(&q->e->state, history, q->e->link->thread->fetchers->s.broker_id,
                        q->e->link->broker_epoch,
                        q->safe_end, replica_reached_epoch(q->e->replica), &q->pull);
}

static void ask_may_append(struct question *q, const struct epoch_history *history)
{
    q->result = follower_state_may_append(&q->e->state, history, q->current_epoch, q->offset);
}

static void ask_refused(struct question *q, const struct epoch_history *history)
{
    follower_state_refused(&q->e->state, history, q->current_epoch, q->error, q->offset);
}

static void ask_epoch_end(struct question *q, const struct epoch_history *history)
{
    q->result = follower_state_epoch_end(&q->e->state, history, q->current_epoch, q->asked, &q->answer);
}

static void ask_reached(struct question *q, const struct epoch_history *history)
{
    q->current_epoch = follower_state_reached(&q->e->state, history, q->safe_end, q->current_epoch, q->offset);
}

static void ask_cut(struct question *q, const struct epoch_history *history)
{
    follower_state_cut(&q->e->state, history);
}

int32_t fetch_entry_reached(struct fetch_entry *e, int64_t safe_end)
{
    struct question q = {.ask = ask_reached,
                         .e = e,
                         .current_epoch = replica_reached_epoch(e->replica),
                         .safe_end = safe_end,
                         .offset = e->epoch_start};
    ask(&q);
    return q.current_epoch;
}

/* ---- the safe end ---------------------------------------------------------------------------------------- */

static void on_safe(struct partition_waiter *w)
{
    struct fetch_entry *e = CONTAINER_OF(w, struct fetch_entry, safe);
    e->is_waiting_safe = false;
    (void)fetch_entry_reach(e);
    if (e->place == FETCH_NAMED)
        fetch_entry_move(e, FETCH_DUE);
}

/* When more of the log has reached the disk, the leader has to know. False: it has, since the marks were looked at. */
static bool wait_for_safe_end(struct fetch_entry *e, const struct partition_marks *marks)
{
    if (e->is_waiting_safe || marks->safe_end >= marks->log_end || e->safe.posted)
        return true;
    e->safe = (struct partition_waiter){.offset = marks->safe_end,
                                        .end = PARTITION_SAFE_END,
                                        .inbox = &e->link->thread->inbox,
                                        .wake = on_safe};
    e->is_waiting_safe = partition_wait(e->partition, &e->safe);
    return e->is_waiting_safe || !marks->is_follower;
}

void fetch_entry_pull(struct fetch_entry *e, struct leader_pull *ret)
{
    struct partition_marks marks;
    do
        partition_marks(e->partition, &marks);
    while (!wait_for_safe_end(e, &marks));
    (void)fetch_entry_reach(e);
    struct question q = {.ask = ask_pull, .e = e, .safe_end = marks.safe_end};
    ask(&q);
    *ret = q.pull;
    ret->log_start = marks.kept_start;
}

/* ---- cutting ------------------------------------------------------------------------------------------------ */

/* The leader's log begins above our end: what we have is of no use to anybody. */
static int skip(struct fetch_entry *e)
{
    struct question q = {.e = e};
    ask(&q);
    return e->state.start <= q.log_end ? 0 : fetch_entry_start_over(e, q.log_start, e->state.start);
}

void fetch_entry_was_cut(struct fetch_entry *e)
{
    struct question q = {.ask = ask_cut, .e = e};
    ask(&q);
    fetch_entry_move(e, FETCH_DUE); /* or to where it goes on */
    fetch_entry_continue(e);
}

void fetch_entry_continue(struct fetch_entry *e)
{
    if (e->state.phase == FOLLOWER_PULL && skip(e) != 0)
        return;
    /* FOLLOWER_IDLE: a newer state brings a new order. */
    fetch_entry_move(e, e->state.phase == FOLLOWER_IDLE  ? FETCH_WAITING
                        : e->state.phase == FOLLOWER_CUT ? FETCH_CUTTING
                                                         : FETCH_DUE);
}

/* ---- appending ------------------------------------------------------------------------------------------- */

struct run {
    struct log_batch batches[FETCHER_BATCHES_MAX];
    size_t count;
    size_t bytes;
};

/* The whole batches at the front of `records`, all checked. Returns 0 or what is wrong with the next one. */
static int read_run(uint8_t *records, size_t bytes, int32_t epoch_max, struct run *ret)
{
    ret->count = ret->bytes = 0;
    while (ret->count < FETCHER_BATCHES_MAX) {
        struct log_batch *b = &ret->batches[ret->count];
        int r = batch_read_header(records + ret->bytes, bytes - ret->bytes, &b->header);
        if (r == -BROOK_E_AGAIN)
            return 0; /* a partial one at the end */
        if (r == 0)
            r = batch_check_crc(records + ret->bytes, &b->header);
        if (r == 0 && b->header.leader_epoch > epoch_max)
            r = -BROOK_E_UNKNOWN_EPOCH;
        if (r < 0)
            return r;
        b->data = records + ret->bytes;
        ret->bytes += b->header.total_bytes;
        ret->count++;
    }
    return 0;
}

static int append(struct fetch_entry *e, uint8_t *records, size_t bytes, int64_t high_watermark,
                  struct brook_error *error)
{
    static _Thread_local struct run run;
    size_t done = 0;
    int r, bad;
    do {
        bad = read_run(records + done, bytes - done, e->state.leader_epoch, &run);
        r = partition_append_replicated(e->partition, e->state.leader_epoch, run.batches, run.count, high_watermark,
                                        error);
        done += run.bytes;
    } while (r == 0 && bad == 0 && run.count == FETCHER_BATCHES_MAX);
    if (r == 0 && bad < 0)
        r = brook_error_set(error, -bad, "the batch at byte %zu of what the leader sent: %s", done,
                            brook_error_text(bad));
    return r;
}

/* Returns for how long nothing more may be taken in. */
static int64_t take_from(struct fetch_allowance *a, int64_t rate, size_t bytes, int64_t now_ns)
{
    int64_t waited_ns = now_ns - a->ns;
    int64_t gained = waited_ns >= SECOND_NS ? rate : waited_ns / 1000 * rate / 1000000;
    a->bytes = a->bytes + gained < rate ? a->bytes + gained : rate;
    a->ns = now_ns;
    a->bytes -= (int64_t)bytes;
    if (a->bytes >= 0)
        return 0;
    int64_t owed = -a->bytes;
    return owed / rate * SECOND_NS + owed % rate * 1000000 / rate * 1000;
}

/* Those that catch up wait when they have taken more than their share, so that those in sync have the rest. One that a
 * move adds keeps to both limits. */
static void charge(struct fetch_entry *e, size_t bytes)
{
    struct fetch_thread *t = e->link->thread;
    int64_t now_ns = clock_boot_ns(), wait_ns = 0, longer_ns = 0;
    int64_t quota = atomic_load_explicit(&t->fetchers->quota_bytes_per_s, memory_order_relaxed);
    int64_t throttle = atomic_load_explicit(&t->fetchers->throttle_bytes_per_s, memory_order_relaxed);
    if (!bytes || !replica_is_catching_up(e->replica))
        return;
    if (quota > 0)
        wait_ns = take_from(&t->catching_up, quota / t->fetchers->threads_count + 1, bytes, now_ns);
    if (throttle > 0 && replica_is_moved_here(e->replica))
        longer_ns = take_from(&t->moved, throttle / t->fetchers->threads_count + 1, bytes, now_ns);
    wait_ns = longer_ns > wait_ns ? longer_ns : wait_ns;
    if (wait_ns <= 0)
        return;
    e->retry_ns = now_ns + wait_ns;
    fetch_entry_move(e, FETCH_WAITING);
}

static void went_well(struct fetch_entry *e)
{
    e->failures = 0;
    if (!e->told)
        return;
    char subject[288];
    snprintf(subject, sizeof subject, "partition=%s/%" PRId32 " epoch=%" PRId32, partition_topic(e->partition),
             e->key.number, e->state.leader_epoch);
    diag_log(e->link->thread->fetchers->s.diag, DIAG_INFO, subject, "following broker %" PRId32 " again",
             e->state.leader);
    e->told = 0;
}

static void take_refusal(struct fetch_entry *e, const Brook__PulledPartition *part, int code)
{
    struct question q = {.ask = ask_refused,
                         .e = e,
                         .current_epoch = e->state.leader_epoch,
                         .error = -code,
                         .offset = part->log_start_offset};
    enum follower_phase before = e->state.phase;
    int64_t start_before = e->state.start;
    ask(&q);
    if (e->state.phase != before || e->state.start != start_before) {
        fetch_entry_continue(e);
        return;
    }
    struct brook_error error = {0};
    envelope_status_read(part->status, &error);
    fetch_entry_back_off(e, code, error.text);
}

void fetch_entry_take(struct fetch_entry *e, const Brook__PulledPartition *part, uint8_t *records)
{
    int code = envelope_status_code(part->status);
    if (code) {
        take_refusal(e, part, code);
        return;
    }
    struct brook_error error = {0};
    struct question q = {
        .ask = ask_may_append, .e = e, .current_epoch = e->state.leader_epoch, .offset = e->pulled_offset};
    ask(&q);
    if (!q.result) {
        fetch_entry_continue(e);
        return;
    }
    int r = append(e, records, part->records_bytes, part->high_watermark, &error);
    if (r == 0 && part->epoch_start >= 0 && part->leader_epoch == e->state.leader_epoch)
        e->epoch_start = part->epoch_start;
    if (r == 0)
        fetch_entry_heed_start(e, part->log_start_offset);
    if (r == -BROOK_E_FENCED_EPOCH) {
        fetch_entry_move(e, FETCH_WAITING); /* until its order comes */
        e->state.phase = FOLLOWER_IDLE;
    } else if (r < 0) {
        fetch_entry_back_off(e, -r, error.text);
    } else if (fetch_entry_reach(e) || part->records_bytes > 0) { /* else the leader has it named still */
        went_well(e);
        fetch_entry_move(e, FETCH_DUE);
        charge(e, part->records_bytes);
    } else {
        went_well(e);
    }
}

void fetch_entry_take_marks(struct fetch_entry *e, const Brook__PulledPartition *part)
{
    struct brook_error error;
    if (!envelope_status_code(part->status) && e->state.phase == FOLLOWER_PULL)
        (void)partition_append_replicated(e->partition, e->state.leader_epoch, NULL, 0, part->high_watermark, &error);
}

void fetch_entry_take_epoch_end(struct fetch_entry *e, int32_t current_epoch, int32_t asked, const Brook__EpochEnd *end)
{
    int code = envelope_status_code(end->status);
    struct question q = {.e = e, .current_epoch = current_epoch, .asked = asked, .error = -code};
    enum follower_phase before = e->state.phase;
    if (code) {
        q.ask = ask_refused;
        ask(&q);
        if (e->state.phase == before)
            fetch_entry_back_off(e, code, NULL);
        else
            fetch_entry_continue(e);
        return;
    }
    q.ask = ask_epoch_end;
    q.answer = (struct epoch_end){end->epoch, end->end_offset};
    ask(&q);
    fetch_entry_continue(e);
}
