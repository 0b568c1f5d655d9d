/* Retention, checkpoints and new settings: what hosting does to open partitions from time to time. */
#include "broker/cluster/hosting_internal.h"
#include "broker/storage/file.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A round over partitions: it holds a reference to each, so none can leave before the round is through with
 * it. */
struct round_item {
    struct partition *partition; /* NULL: not open, the numbers below are what is known */
    char *topic;
    int32_t number;
    int64_t recovery_point;
    int64_t start_offset;
    int64_t high_watermark;
    int64_t cleaned_offset;
    int32_t reached_epoch;
};
struct round {
    struct disk_job job;
    struct hosting *hosting;
    struct host_dir *dir;  /* checkpoint */
    int err;               /* likewise */
    bool is_broken;        /* the disk is why */
    struct brook_error error;
    struct hosted *hosted; /* configure */
    struct log_settings settings;
    size_t count;
    struct round_item items[];
};

static void round_free(struct round *round)
{
    for (size_t i = 0; i < round->count; i++) {
        partition_unref(round->items[i].partition);
        free(round->items[i].topic);
    }
    free(round);
}

static bool is_stopping(const struct round *round)
{
    return atomic_load_explicit(&round->hosting->stop_duties, memory_order_relaxed);
}

/* All that its log held is on the disk. */
static bool is_closed_well(const struct hosted *h)
{
    return h->status == HOSTED_LEAVING && h->end == HOSTED_END_CLOSE && !h->is_cancelled && !h->err;
}

/* `dir` NULL: all of them. `only_open`: leave the others out. NULL: out of memory. */
static struct round *round_new(struct hosting *hosting, struct host_dir *dir, bool only_open)
{
    struct round *round = calloc(1, sizeof *round + HASH_COUNT(hosting->table) * sizeof round->items[0]);
    if (!round)
        return NULL;
    round->hosting = hosting;
    round->dir = dir;
    for (struct hosted *h = hosting->table; h; h = h->hh.next) {
        bool is_open = h->status == HOSTED_OPEN;
        if ((dir && h->dir != dir) || (only_open && !is_open) || (h->is_new && !is_open))
            continue;
        char *topic = strdup(h->topic);
        if (!topic) {
            round_free(round);
            return NULL;
        }
        round->items[round->count++] = (struct round_item){
            .partition = is_open ? partition_ref(h->partition) : NULL,
            .topic = topic,
            .number = h->number,
            .recovery_point = h->hint.recovery_point,
            .start_offset = h->hint.start_offset,
            .high_watermark = h->high_watermark,
            .cleaned_offset = h->hint.cleaned_offset,
            .reached_epoch = is_closed_well(h) ? h->reached_epoch : -1,
        };
    }
    return round;
}

static void duty_ended(struct round *round)
{
    struct hosting *hosting = round->hosting;
    round_free(round);
    hosting->duties--;
    hosting_check_closed(hosting);
}

static void start(struct round *round, void (*run)(struct disk_job *job), void (*done)(struct disk_job *job))
{
    round->hosting->duties++;
    round->job.run = run;
    round->job.done = done;
    disk_pool_submit(round->hosting->pool, &round->job);
}

/* ---- retention -------------------------------------------------------------------------------------- */

struct retained {
    int64_t now_ms;
    int64_t removed;
    int64_t future_ms;
};

static void retain_one(struct partition *p, void *arg)
{
    struct retained *retained = arg;
    struct log *log = partition_log(p);
    retained->removed = log_retain(log, retained->now_ms);
    retained->future_ms = log_take_future_stamp(log);
}

static void retain_run(struct disk_job *job)
{
    struct round *round = CONTAINER_OF(job, struct round, job);
    char subject[HOSTED_SUBJECT_BYTES];
    for (size_t i = 0; i < round->count && !is_stopping(round); i++) {
        struct round_item *item = &round->items[i];
        struct retained retained = {.now_ms = clock_wall_ms()};
        partition_with_append_lock(item->partition, retain_one, &retained);
        snprintf(subject, sizeof subject, "partition=%s/%" PRId32, item->topic, item->number);
        if (retained.future_ms)
            diag_log(round->hosting->diag, DIAG_WARN, subject,
                     "records are stamped %" PRId64 " hours ahead of the broker's clock: not their stamps, which would hold "
                     "them back, but the time of their append counts for retention.ms",
                     retained.future_ms / 3600000);
        if (!retained.removed)
            continue;
        if (retained.removed < 0)
            diag_log(round->hosting->diag, DIAG_ERROR, subject, "retention failed: %s",
                     brook_error_text((int)retained.removed));
        else
            diag_log(round->hosting->diag, DIAG_INFO, subject, "retention removed %" PRId64 " segment%s",
                     retained.removed, retained.removed == 1 ? "" : "s");
    }
}

static void retain_done(struct disk_job *job)
{
    struct round *round = CONTAINER_OF(job, struct round, job);
    round->hosting->is_retaining = false;
    duty_ended(round);
}

void hosting_start_retention(struct hosting *hosting)
{
    struct round *round = hosting->is_retaining ? NULL : round_new(hosting, NULL, true);
    if (!round)
        return;
    hosting->is_retaining = true;
    start(round, retain_run, retain_done);
}

/* ---- checkpoints ------------------------------------------------------------------------------------ */

static int write_checkpoint(struct host_dir *dir, struct round *round)
{
    struct brook_error *error = &round->error;
    struct data_dir_checkpoint *entries = calloc(round->count + 1, sizeof *entries);
    if (!entries)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    pthread_mutex_lock(&dir->lock);
    for (size_t i = 0; i < round->count; i++) {
        const struct round_item *item = &round->items[i];
        entries[i] = (struct data_dir_checkpoint){item->topic, item->number, item->recovery_point,
                                                  item->start_offset, item->high_watermark, item->cleaned_offset,
                                                  item->reached_epoch};
        /* A follower may have cut its log since, which it does under this lock. */
        int64_t durable = item->partition ? log_durable_end(partition_log(item->partition)) : INT64_MAX;
        if (durable < entries[i].recovery_point)
            entries[i].recovery_point = durable;
    }
    int err = data_dir_checkpoint(dir->dir, entries, round->count, error);
    round->is_broken = err == -BROOK_E_STORAGE_ERROR && storage_is_broken(errno);
    pthread_mutex_unlock(&dir->lock);
    free(entries);
    return err;
}

static void rest_one(struct partition *p, void *arg)
{
    (void)arg;
    log_rest(partition_log(p));
}

/* What is dirty is synced first: it bounds what the next start has to read again after a crash. */
static void checkpoint_run(struct disk_job *job)
{
    struct round *round = CONTAINER_OF(job, struct round, job);
    for (size_t i = 0; i < round->count; i++) {
        struct round_item *item = &round->items[i];
        struct partition_marks marks;
        if (is_stopping(round))
            return;
        if (!item->partition)
            continue;
        struct log *log = partition_log(item->partition);
        if (!log_offline_reason(log))
            partition_flush(item->partition);
        if (log_can_rest(log, clock_wall_ms() - HOSTING_CHECKPOINT_MS))
            partition_with_append_lock(item->partition, rest_one, NULL);
        partition_marks(item->partition, &marks);
        item->recovery_point = log_durable_end(log);
        item->start_offset = marks.log_start;
        item->high_watermark = marks.high_watermark;
        item->cleaned_offset = log_cleaned_offset(log);
    }
    round->err = write_checkpoint(round->dir, round);
}

static void checkpoint_done(struct disk_job *job)
{
    struct round *round = CONTAINER_OF(job, struct round, job);
    if (round->is_broken)
        host_dir_fail(round->dir, round->error.text);
    else if (round->err)
        diag_log(round->hosting->diag, DIAG_WARN, "", "%s: checkpoints not written: %s", round->dir->path,
                 round->error.text);
    duty_ended(round);
}

void hosting_start_checkpoint(struct hosting *hosting, struct host_dir *dir)
{
    struct round *round = dir->is_failed ? NULL : round_new(hosting, dir, false);
    if (round)
        start(round, checkpoint_run, checkpoint_done);
}

int hosting_write_last_checkpoint(struct host_dir *dir)
{
    struct round *round = round_new(dir->hosting, dir, false);
    if (!round)
        return -BROOK_E_NOMEM;
    int err = write_checkpoint(dir, round);
    round_free(round);
    return err;
}

/* ---- settings --------------------------------------------------------------------------------------- */

static void configure_one(struct partition *p, void *arg)
{
    log_configure(partition_log(p), arg);
}

static void configure_run(struct disk_job *job)
{
    struct round *round = CONTAINER_OF(job, struct round, job);
    partition_with_append_lock(round->items[0].partition, configure_one, &round->settings);
}

/* One at a time for a partition; a later change of mind is found when the topic is followed again. */
static void configure_done(struct disk_job *job)
{
    struct round *round = CONTAINER_OF(job, struct round, job);
    struct hosted *h = round->hosted; /* there as long as we hold its partition */
    h->is_configuring = false;
    h->log_settings = round->settings;
    round->hosting->events.changed(round->hosting->events.arg, h->topic, h->number);
    duty_ended(round);
}

void hosted_configure(struct hosted *h, const struct log_settings *settings)
{
    struct round *round = calloc(1, sizeof *round + sizeof round->items[0]);
    if (!round)
        return;
    round->hosting = h->hosting;
    round->hosted = h;
    round->settings = *settings;
    round->count = 1;
    round->items[0].partition = partition_ref(h->partition);
    h->is_configuring = true;
    start(round, configure_run, configure_done);
}
