/* Compaction of what is hosted here: which logs, the dirtiest first, on threads of its own, since one log may take
 * hours and the disk threads have others waiting.
 *
 * A round: one thread looks at all logs that are to be compacted and sorts those that are due; then all threads take
 * from that list. A partition that leaves, and the broker's stop, end a compaction at its next batch. */
#include "broker/cluster/hosting_internal.h"
#include "broker/storage/compaction.h"
#include "broker/storage/throttle.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The throttle is asked when so much has been read or written. */
#define CHARGE_BYTES ((size_t)64 << 10)

struct clean_item {
    struct partition *partition; /* a reference; what it keeps alive is `hosted`, too */
    struct hosted *hosted;
    int32_t ppm;
};

struct clean_worker {
    struct disk_job job;
    struct clean_round *round;
    struct clean_item *item; /* at work on */
    size_t uncharged;
};

struct clean_round {
    struct disk_job scan;
    struct hosting *hosting;
    struct clean_worker *workers;
    int working;
    _Atomic size_t next;
    size_t count;
    struct clean_item items[];
};

static bool is_stopping(const struct hosting *hosting)
{
    return atomic_load_explicit(&hosting->stop_duties, memory_order_relaxed);
}

/* ---- one log ------------------------------------------------------------------------------------------ */

static bool is_wanted(const struct clean_worker *w)
{
    return !is_stopping(w->round->hosting) &&
           !atomic_load_explicit(&w->item->hosted->stop_cleaning, memory_order_relaxed);
}

/* In steps of a tenth of a second, between which it is seen that the partition leaves. */
static bool go_on(void *arg, size_t bytes)
{
    struct clean_worker *w = arg;
    struct hosting *hosting = w->round->hosting;
    int64_t rate = hosting->cleaner.bytes_per_s;
    size_t step = rate > 0 ? (size_t)(rate / 10 + 1) : SIZE_MAX;
    w->uncharged += bytes;
    while (w->uncharged >= CHARGE_BYTES && is_wanted(w)) {
        size_t n = step;
        if (n > w->uncharged)
            n = w->uncharged;
        if (!throttle_take(hosting->throttle, n))
            return false;
        w->uncharged -= n;
    }
    return is_wanted(w);
}

struct exclusive {
    void (*work)(void *work_arg);
    void *work_arg;
};

static void run_exclusive(struct partition *p, void *arg)
{
    struct exclusive *e = arg;
    e->work(e->work_arg);
}

static void exclusively(void *arg, void (*work)(void *work_arg), void *work_arg)
{
    struct clean_worker *w = arg;
    struct exclusive e = {work, work_arg};
    partition_with_append_lock(w->item->partition, run_exclusive, &e);
}

/* A full disk is tried again soon, then ever later; at once when there is room (has_room_again()). Anything else that fails
 * does not pass so quickly. Returns for how long. */
static int64_t postpone(struct clean_worker *w, int err)
{
    struct hosted *h = w->item->hosted;
    int64_t wait_ms = HOSTING_CLEAN_RETRY_MS;
    if (err == -BROOK_E_STORAGE_FULL) {
        int failures = atomic_fetch_add(&h->clean_full, 1);
        wait_ms = HOSTING_CLEAN_FULL_MS << (failures < 10 ? failures : 10);
        wait_ms = wait_ms < HOSTING_CLEAN_RETRY_MS ? wait_ms : HOSTING_CLEAN_RETRY_MS;
        atomic_store(&h->clean_free_before, atomic_load(&h->dir->free_seen));
    } else {
        atomic_store(&h->clean_full, 0);
    }
    atomic_store(&h->clean_after_ms, clock_boot_ms() + wait_ms);
    return wait_ms;
}

/* There was none, and now there is as much as all of it could take. */
static bool has_room_again(const struct clean_item *item, int64_t bytes)
{
    const struct hosted *h = item->hosted;
    int64_t free_bytes = atomic_load(&h->dir->free_seen);
    return atomic_load(&h->clean_full) > 0 && free_bytes >= bytes &&
           free_bytes - atomic_load(&h->clean_free_before) >= bytes / 2;
}

static void say(const struct clean_worker *w, int err, const struct compaction_result *r,
                const struct brook_error *error, int64_t ms, int64_t wait_ms)
{
    char subject[HOSTED_SUBJECT_BYTES];
    const struct diag *diag = w->round->hosting->diag;
    hosted_subject(w->item->hosted, -1, subject);
    if (r->passes > 0 && !err)
        diag_log(diag, DIAG_INFO, subject,
                 "compacted %" PRId64 " bytes to %" PRId64 " in %.3f s: %" PRId64 " records removed, %" PRId32
                 " segments made %" PRId32 " (%" PRId32 " left as they were), %" PRId32
                 " passes, %zu keys in a map of %zu bytes",
                 r->bytes_before, r->bytes_after, (double)ms / 1000, r->records_removed, r->segments_before,
                 r->segments_after, r->segments_left, r->passes, r->keys, r->map_bytes);
    else if (wait_ms)
        diag_log(diag, DIAG_ERROR, subject, "not compacted, tried again in %" PRId64 " s%s: %s", wait_ms / 1000,
                 err == -BROOK_E_STORAGE_FULL ? ", or when there is room" : "",
                 error->text[0] ? error->text : brook_error_text(err));
}

static void clean(struct clean_worker *w)
{
    struct hosting *hosting = w->round->hosting;
    struct partition *p = w->item->partition;
    struct compaction_settings settings = {.map_bytes_max = (size_t)(hosting->cleaner.map_bytes / hosting->cleaner.threads),
                                           .expanded_bytes_max = (size_t)hosting->cleaner.expanded_bytes_max,
                                           .go_on = go_on,
                                           .exclusively = exclusively,
                                           .arg = w};
    struct compaction_result result;
    struct brook_error error = {0};
    struct partition_marks marks;
    partition_marks(p, &marks);
    int64_t before_ms = clock_boot_ms();
    int err =
        log_compact(partition_log(p), marks.high_watermark, clock_wall_ms(), &settings, &result, &error);
    int64_t wait_ms = err && err != -BROOK_E_CLOSED && err != -BROOK_E_AGAIN ? postpone(w, err) : 0;
    if (!err)
        atomic_store(&w->item->hosted->clean_full, 0);
    say(w, err, &result, &error, clock_boot_ms() - before_ms, wait_ms);
}

/* ---- a round ------------------------------------------------------------------------------------------ */

static void round_end(struct clean_round *round)
{
    struct hosting *hosting = round->hosting;
    for (size_t i = 0; i < round->count; i++)
        partition_unref(round->items[i].partition);
    free(round->workers);
    free(round);
    hosting->is_cleaning = false;
    hosting->duties--;
    hosting_check_closed(hosting);
}

static void work_run(struct disk_job *job)
{
    struct clean_worker *w = CONTAINER_OF(job, struct clean_worker, job);
    struct clean_round *round = w->round;
    size_t i;
    while (!is_stopping(round->hosting) && (i = atomic_fetch_add(&round->next, 1)) < round->count) {
        w->item = &round->items[i];
        if (go_on(w, 0))
            clean(w);
        partition_unref(TAKE(w->item->partition)); /* others wait for the last reference */
    }
}

static void work_done(struct disk_job *job)
{
    struct clean_round *round = CONTAINER_OF(job, struct clean_worker, job)->round;
    if (--round->working == 0)
        round_end(round);
}

static int compare(const void *a, const void *b)
{
    const struct clean_item *x = a, *y = b;
    return (x->ppm < y->ppm) - (x->ppm > y->ppm);
}

static bool is_due(const struct hosting *hosting, struct clean_item *item)
{
    struct log *log = partition_log(item->partition);
    struct partition_marks marks;
    struct compaction_need need;
    bool is_early = clock_boot_ms() < atomic_load(&item->hosted->clean_after_ms);
    if (is_stopping(hosting) || log_offline_reason(log) || (is_early && !atomic_load(&item->hosted->clean_full)))
        return false;
    partition_marks(item->partition, &marks);
    if (log_compaction_need(log, marks.high_watermark, clock_wall_ms(), &need) != 0)
        return false;
    item->ppm = need.ppm;
    int64_t bytes = need.dirt.clean_bytes + need.dirt.dirty_bytes;
    return need.is_due && (!is_early || has_room_again(item, bytes));
}

static void scan_run(struct disk_job *job)
{
    struct clean_round *round = CONTAINER_OF(job, struct clean_round, scan);
    size_t due = 0;
    for (size_t i = 0; i < round->count; i++) {
        if (is_due(round->hosting, &round->items[i]))
            round->items[due++] = round->items[i];
        else
            partition_unref(round->items[i].partition);
    }
    round->count = due;
    qsort(round->items, due, sizeof round->items[0], compare);
}

static void scan_done(struct disk_job *job)
{
    struct clean_round *round = CONTAINER_OF(job, struct clean_round, scan);
    struct hosting *hosting = round->hosting;
    int threads = round->count < (size_t)hosting->cleaner.threads ? (int)round->count : hosting->cleaner.threads;
    round->workers = threads > 0 ? calloc((size_t)threads, sizeof *round->workers) : NULL;
    if (!round->workers)
        return round_end(round);
    round->working = threads;
    for (int i = 0; i < threads; i++) {
        struct clean_worker *w = &round->workers[i];
        w->round = round;
        w->job.run = work_run;
        w->job.done = work_done;
        disk_pool_submit(hosting->cleaners, &w->job);
    }
}

void hosting_start_cleaning(struct hosting *hosting)
{
    struct clean_round *round;
    if (hosting->is_cleaning || !hosting->cleaners)
        return;
    round = calloc(1, sizeof *round + HASH_COUNT(hosting->table) * sizeof round->items[0]);
    if (!round)
        return;
    round->hosting = hosting;
    for (struct hosted *h = hosting->table; h; h = h->hh.next)
        if (h->status == HOSTED_OPEN && log_settings_compact(&h->log_settings))
            round->items[round->count++] = (struct clean_item){partition_ref(h->partition), h, 0};
    if (round->count == 0) {
        free(round);
        return;
    }
    hosting->is_cleaning = true;
    hosting->duties++;
    round->scan.run = scan_run;
    round->scan.done = scan_done;
    disk_pool_submit(hosting->cleaners, &round->scan);
}
