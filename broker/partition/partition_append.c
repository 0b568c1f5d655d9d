#include "broker/partition/partition_state.h"
#include "proto/base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the queue -------------------------------------------------------------------------------------- */

static void answer_too_few(struct partition *p, struct partition_append *a, struct outbox *o)
{
    char text[sizeof a->error.text];
    snprintf(text, sizeof text,
             "partition %.150s/%" PRId32 ": %" PRId32 " replicas in sync, min.insync.replicas is %" PRId32,
             p->topic, p->number, p->limits.in_sync, p->limits.min_in_sync);
    outbox_answer(o, a, BROOK_E_NOT_ENOUGH_REPLICAS, text);
}

void partition_enqueue(struct partition *p, struct partition_append *a)
{
    struct outbox o;
    outbox_init(&o);
    pthread_mutex_lock(&p->state);
    if (!p->is_leader)
        outbox_answer(&o, a, BROOK_E_NOT_LEADER, NULL);
    else if (a->wait_for_all && !watermark_has_enough(&p->limits))
        answer_too_few(p, a, &o);
    else if (p->refusal)
        outbox_answer(&o, a, p->refusal, p->refusal_text);
    else
        append_list_push(&p->queue, a);
    pthread_mutex_unlock(&p->state);
    outbox_post(&o, NULL, NULL);
}

void partition_refuse_appends(struct partition *p, int code, const char *text)
{
    pthread_mutex_lock(&p->state);
    p->refusal = code;
    p->refusal_text = text;
    pthread_mutex_unlock(&p->state);
}

static size_t bytes_of(const struct partition_append *a, bool *has_producers)
{
    size_t bytes = 0;
    for (size_t i = 0; i < a->batches_count; i++) {
        bytes += a->batches[i].header.total_bytes;
        *has_producers |= a->batches[i].header.producer_id >= 0;
    }
    return bytes;
}

/* What one write takes from the queue. */
struct group {
    struct append_list appends;
    size_t appends_count;
    size_t batches_count;
    int32_t leader_epoch;
    bool has_producers; /* idempotent ones */
};

/* Whoever asked has given up by now, and may have sent the same records again. */
static bool is_expired(const struct partition_append *a, int64_t *now_ns)
{
    if (!a->expires_ns)
        return false;
    if (!*now_ns)
        *now_ns = clock_boot_ns();
    return *now_ns > a->expires_ns;
}

static void take_group(struct partition *p, struct group *ret_group, struct outbox *o)
{
    struct group g = {0};
    size_t bytes = 0;
    int64_t now_ns = 0;
    pthread_mutex_lock(&p->state);
    g.leader_epoch = p->leader_epoch;
    while (p->queue.head) {
        struct partition_append *a = p->queue.head;
        if (is_expired(a, &now_ns)) {
            outbox_answer(o, append_list_pop(&p->queue), BROOK_E_REQUEST_EXPIRED, NULL);
            continue;
        }
        bool has_producers = false;
        bytes += bytes_of(a, &has_producers);
        if (g.appends_count > 0 && (bytes > PARTITION_DRAIN_BYTES_MAX ||
                                    g.batches_count + a->batches_count > PARTITION_DRAIN_BATCHES_MAX))
            break;
        append_list_push(&g.appends, append_list_pop(&p->queue));
        g.appends_count++;
        g.batches_count += a->batches_count;
        g.has_producers |= has_producers;
    }
    pthread_mutex_unlock(&p->state);
    *ret_group = g;
}

/* ---- writing ---------------------------------------------------------------------------------------- */

/* Several appends become one: gathered here, given back with their offsets. Kept out of the common path, so
 * that a single append needs no such stack. */
static __attribute__((noinline)) int write_merged(struct partition *p, const struct group *g, int64_t now_ms,
                                                  struct brook_error *error)
{
    struct log_batch all[PARTITION_DRAIN_BATCHES_MAX];
    size_t n = 0;
    int64_t base;
    for (struct partition_append *a = g->appends.head; a; a = a->next) {
        memcpy(all + n, a->batches, a->batches_count * sizeof *all);
        n += a->batches_count;
    }
    int r = log_append(p->log, all, n, g->leader_epoch, now_ms, &base, error);
    n = 0;
    for (struct partition_append *a = g->appends.head; r == 0 && a; a = a->next) {
        memcpy(a->batches, all + n, a->batches_count * sizeof *all);
        n += a->batches_count;
    }
    return r;
}

static int write_new(struct partition *p, const struct group *g, int64_t now_ms, struct brook_error *error)
{
    int64_t base;
    struct partition_append *first = g->appends.head;
    int r = g->appends_count > 1 ? write_merged(p, g, now_ms, error)
                                 : log_append(p->log, first->batches, first->batches_count, g->leader_epoch,
                                              now_ms, &base, error);
    for (struct partition_append *a = first; r == 0 && a; a = a->next)
        a->last_offset = batch_last_offset(&a->batches[a->batches_count - 1].header);
    return r;
}

/* Judge the appends one after the other: refused ones are answered and leave the group. */
static int judge_group(struct partition *p, struct group *g, int64_t now_ms, struct outbox *o,
                       struct brook_error *error)
{
    struct append_list left = {0};
    struct partition_append *a;
    int r = 0;
    log_judge_begin(p->log);
    while ((a = append_list_pop(&g->appends))) {
        struct log_judgement j = {0};
        if (r != -BROOK_E_NOMEM)
            r = log_judge(p->log, a->batches, a->batches_count, now_ms, &j, error);
        if (r < 0 && r != -BROOK_E_NOMEM) {
            outbox_answer(o, a, error->code, error->text);
            g->appends_count--;
            continue;
        }
        a->duplicates = j.duplicates;
        a->last_offset = j.last_offset;
        append_list_push(&left, a);
    }
    g->appends = left;
    return r == -BROOK_E_NOMEM ? r : 0;
}

/* What is new of the whole group, in one go. */
static int write_judged(struct partition *p, const struct group *g, int64_t now_ms, struct brook_error *error)
{
    size_t n = 0;
    int64_t base;
    for (const struct partition_append *a = g->appends.head; a; a = a->next)
        n += a->batches_count - a->duplicates;
    if (n == 0) {
        log_judge_end(p->log);
        return 0;
    }
    struct partition_append *first = g->appends.head;
    if (g->appends_count == 1)
        return log_append(p->log, first->batches + first->duplicates, n, g->leader_epoch, now_ms, &base, error);
    struct log_batch *all = malloc(n * sizeof *all);
    if (!all) {
        log_judge_end(p->log);
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory for %zu batches", n);
    }
    n = 0;
    for (const struct partition_append *a = first; a; a = a->next)
        for (size_t i = a->duplicates; i < a->batches_count; i++)
            all[n++] = a->batches[i]; /* their offsets are set already */
    int r = log_append(p->log, all, n, g->leader_epoch, now_ms, &base, error);
    free(all);
    return r;
}

static int write_group(struct partition *p, struct group *g, struct outbox *o, struct brook_error *error)
{
    int64_t now_ms = clock_wall_ms();
    int r;
    if (!g->has_producers) {
        r = write_new(p, g, now_ms, error);
    } else if ((r = judge_group(p, g, now_ms, o, error)) == 0) {
        r = write_judged(p, g, now_ms, error);
    } else {
        log_judge_end(p->log);
    }
    for (struct partition_append *a = g->appends.head; r == 0 && a; a = a->next)
        a->base_offset = a->batches[0].header.base_offset;
    return r;
}

/* Answer what is decided, remember what waits for the high watermark. Under `append`. */
static void settle(struct partition *p, struct group *g, int result, const struct brook_error *error,
                   struct outbox *o)
{
    struct partition_append *a;
    int64_t log_start = log_start_offset(p->log);
    pthread_mutex_lock(&p->state);
    if (result == 0)
        partition_advance(p, log_end_offset(p->log), o);
    while ((a = append_list_pop(&g->appends))) {
        a->log_start_offset = log_start;
        if (result != 0)
            outbox_answer(o, a, error->code, error->text);
        else if (!a->wait_for_all || watermark_answer(&p->limits, p->high_watermark, a->last_offset) == 0)
            outbox_answer(o, a, 0, NULL);
        else if (!p->is_leader) /* stored, but whether it stays is the next leader's to say */
            outbox_answer_written(o, a, BROOK_E_NOT_LEADER, NULL);
        else if (log_offline_reason(p->log)) /* a flush has failed since: nobody would answer it any more */
            outbox_answer_written(o, a, BROOK_E_STORAGE_ERROR, log_offline_reason(p->log));
        else
            append_list_insert(&p->unacked, a); /* a repeated one lies further down */
    }
    partition_want_flush(p);
    pthread_mutex_unlock(&p->state);
}

/* ---- draining --------------------------------------------------------------------------------------- */

static bool has_queued(struct partition *p)
{
    pthread_mutex_lock(&p->state);
    bool any = p->queue.head != NULL;
    pthread_mutex_unlock(&p->state);
    return any;
}

/* One write, if the append lock is free. Returns false when it is not: its holder looks at the queue after
 * letting go of it. */
static bool drain_once(struct partition *p, struct outbox *o)
{
    if (atomic_load(&p->append_wanted) > 0 || pthread_mutex_trylock(&p->append) != 0)
        return false;
    struct group g;
    take_group(p, &g, o);
    if (g.appends_count > 0) {
        struct brook_error error = {0};
        int r = write_group(p, &g, o, &error);
        settle(p, &g, r, &error, o);
    }
    pthread_mutex_unlock(&p->append);
    return true;
}

static void run_hand_over(struct inbox_item *item)
{
    struct partition *p = CONTAINER_OF(item, struct partition, hand_over);
    pthread_mutex_lock(&p->state);
    struct inbox *own = p->hand_over_to;
    p->hand_over_to = NULL;
    pthread_mutex_unlock(&p->state);
    partition_drain(p, own);
    partition_unref(p);
}

/* Let the loop whose append is next in the queue go on: this one has done its share. */
static void hand_over(struct partition *p)
{
    pthread_mutex_lock(&p->state);
    struct inbox *to = p->queue.head && !p->hand_over_to ? p->queue.head->inbox : NULL;
    if (to) {
        p->hand_over_to = to;
        p->hand_over.run = run_hand_over;
        partition_ref(p);
    }
    pthread_mutex_unlock(&p->state);
    if (to)
        inbox_post(to, &p->hand_over);
}

void partition_drain(struct partition *p, struct inbox *own)
{
    struct outbox o, mine;
    outbox_init(&o);
    outbox_init(&mine);
    int rounds = 0;
    while (has_queued(p)) {
        if (rounds++ == PARTITION_DRAIN_ROUNDS_MAX) {
            hand_over(p);
            break;
        }
        if (!drain_once(p, &o))
            break;
        outbox_post(&o, own, &mine);
    }
    outbox_run(&mine);
}

bool partition_cancel(struct partition *p, struct partition_append *a)
{
    pthread_mutex_lock(&p->state);
    bool is_stored = append_list_remove(&p->unacked, a);
    bool waiting = is_stored || append_list_remove(&p->queue, a);
    int answer = is_stored ? watermark_answer(&p->limits, p->high_watermark, a->last_offset) : -BROOK_E_AGAIN;
    int code = answer == -BROOK_E_NOT_ENOUGH_REPLICAS_AFTER_APPEND ? -answer : BROOK_E_TIMED_OUT;
    pthread_mutex_unlock(&p->state);
    if (!waiting)
        return false;
    brook_error_set(&a->error, code, "%s", brook_error_text(code));
    a->maybe_stored = is_stored;
    a->done(a);
    return true;
}

void partition_with_append_lock(struct partition *p, void (*work)(struct partition *p, void *arg), void *arg)
{
    struct outbox o;
    outbox_init(&o);
    atomic_fetch_add(&p->append_wanted, 1);
    pthread_mutex_lock(&p->append);
    atomic_fetch_sub(&p->append_wanted, 1);
    work(p, arg);
    pthread_mutex_lock(&p->state);
    partition_advance(p, log_end_offset(p->log), &o);
    partition_want_flush(p);
    pthread_mutex_unlock(&p->state);
    pthread_mutex_unlock(&p->append);
    outbox_post(&o, NULL, NULL);
    partition_drain(p, NULL);
}
