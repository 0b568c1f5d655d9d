/* The leader epochs that logs have reached, on the disk: what a comparison of logs asks after a power cut
 * (replication/election.h). Of topics that were made with durability=fsync each is kept before anything hangs on it, many partitions in one
 * write; of all others by the last checkpoint before a clean stop. */
#include "broker/cluster/hosting_internal.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"

#include <inttypes.h>
#include <stdlib.h>

#define KEEP_RETRY_MS 1000

/* ---- a log is opened ---------------------------------------------------------------------------------- */

int hosted_check_epochs(struct hosted *h)
{
    if (log_end_offset(h->log) >= h->hint.recovery_point)
        return 0;
    h->reached_epoch = -1;
    pthread_mutex_lock(&h->dir->lock);
    int err = data_dir_forget_reached(h->dir->dir, h->topic, h->number);
    pthread_mutex_unlock(&h->dir->lock);
    return err;
}

void hosted_start_epochs(struct hosted *h)
{
    pthread_mutex_lock(&h->dir->lock);
    int32_t kept = data_dir_reached(h->dir->dir, h->topic, h->number);
    pthread_mutex_unlock(&h->dir->lock);
    replica_epoch_kept(h->replica, kept);
    replica_reach_epoch(h->replica, h->reached_epoch); /* the same process had the log before */
    h->is_epoch_due = false;
}

/* ---- leaders ------------------------------------------------------------------------------------------ */

/* All that is due in one directory, in one write. What becomes due meanwhile goes into the next. */
struct reached_job {
    struct disk_job job;
    struct host_dir *dir;
    int err;
    size_t count;
    struct replica **replicas; /* references */
    struct data_dir_start epochs[];
};

static void job_free(struct reached_job *j)
{
    for (size_t i = 0; i < j->count; i++)
        replica_unref(j->replicas[i]);
    free(j->replicas);
    free(j);
}

static struct reached_job *job_new(struct host_dir *dir)
{
    size_t most = dir->partitions_count;
    struct reached_job *j = calloc(1, sizeof *j + most * sizeof j->epochs[0]);
    if (j)
        j->replicas = calloc(most + 1, sizeof(struct replica *));
    if (!j || !j->replicas) {
        free(j);
        return NULL;
    }
    j->dir = dir;
    for (struct hosted *h = dir->hosting->table; h && j->count < most; h = h->hh.next) {
        int32_t epoch = h->dir == dir && h->is_epoch_due && h->status == HOSTED_OPEN ? replica_awaited_epoch(h->replica) : -1;
        h->is_epoch_due = h->is_epoch_due && h->dir != dir;
        if (epoch < 0)
            continue;
        j->replicas[j->count] = replica_ref(h->replica);
        j->epochs[j->count++] = (struct data_dir_start){partition_topic(h->partition), h->number, epoch};
    }
    return j;
}

static void keep_run(struct disk_job *job)
{
    struct reached_job *j = CONTAINER_OF(job, struct reached_job, job);
    pthread_mutex_lock(&j->dir->lock);
    j->err = data_dir_keep_reached(j->dir->dir, j->epochs, j->count);
    pthread_mutex_unlock(&j->dir->lock);
}

/* Until it could be written the partitions commit nothing: it is tried on. */
static void try_again(struct reached_job *j)
{
    struct hosting *hosting = j->dir->hosting;
    diag_log(hosting->diag, DIAG_WARN, "", "%s: the leader epochs of %zu partitions can not be kept, trying on: %s",
             j->dir->path, j->count, brook_error_text(j->err));
    for (struct hosted *h = hosting->table; h; h = h->hh.next)
        if (h->dir == j->dir)
            hosted_heed_epoch(h);
    hosting->next_epochs_ms = clock_boot_ms() + KEEP_RETRY_MS;
}

static void keep_done(struct disk_job *job)
{
    struct reached_job *j = CONTAINER_OF(job, struct reached_job, job);
    struct hosting *hosting = j->dir->hosting;
    j->dir->reached = NULL;
    for (size_t i = 0; i < j->count && !j->err; i++)
        replica_epoch_kept(j->replicas[i], (int32_t)j->epochs[i].offset);
    if (j->err)
        try_again(j);
    job_free(j);
    hosting->duties--;
    (void)hosting_keep_epochs(hosting, clock_boot_ms());
    hosting_check_closed(hosting);
}

static void start(struct host_dir *dir)
{
    struct hosting *hosting = dir->hosting;
    struct reached_job *j = job_new(dir);
    if (j && !j->count) {
        job_free(j);
        return;
    }
    if (!j) {
        hosting->has_epochs_due = true;
        hosting->next_epochs_ms = clock_boot_ms() + KEEP_RETRY_MS;
        return;
    }
    dir->reached = j;
    hosting->duties++;
    j->job.run = keep_run;
    j->job.done = keep_done;
    disk_pool_submit(hosting->pool, &j->job);
}

int64_t hosting_keep_epochs(struct hosting *hosting, int64_t now_ms)
{
    bool is_held_up = false;
    if (!hosting->has_epochs_due || hosting->is_closing)
        return INT64_MAX;
    if (now_ms < hosting->next_epochs_ms)
        return hosting->next_epochs_ms;
    hosting->has_epochs_due = false;
    for (size_t i = 0; i < hosting->dirs_count; i++) {
        struct host_dir *dir = &hosting->dirs[i];
        if (dir->reached)
            is_held_up = true; /* goes on when that is done */
        else if (!dir->is_failed)
            start(dir);
    }
    hosting->has_epochs_due |= is_held_up;
    return hosting->has_epochs_due && !is_held_up ? hosting->next_epochs_ms : INT64_MAX;
}

void hosted_heed_epoch(struct hosted *h)
{
    if (h->is_epoch_due || h->status != HOSTED_OPEN || replica_awaited_epoch(h->replica) < 0)
        return;
    h->is_epoch_due = h->hosting->has_epochs_due = true;
}

/* ---- followers ---------------------------------------------------------------------------------------- */

/* All of the list that lie in that directory. */
static int keep_in(struct host_dir *dir, struct data_dir_start *list, struct partition *const *partitions,
                   const int32_t *epochs, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (partition_owner(partitions[i]) == dir)
            list[n++] = (struct data_dir_start){partition_topic(partitions[i]), partition_number(partitions[i]), epochs[i]};
    if (!n)
        return 0;
    pthread_mutex_lock(&dir->lock);
    int err = data_dir_keep_reached(dir->dir, list, n);
    pthread_mutex_unlock(&dir->lock);
    return err;
}

int hosting_keep_reached(void *arg, struct partition *const *partitions, const int32_t *epochs, size_t count)
{
    struct hosting *hosting = arg;
    AUTO_FREE struct data_dir_start *list = calloc(count, sizeof *list);
    int err = list ? 0 : -BROOK_E_NOMEM;
    for (size_t i = 0; i < hosting->dirs_count && !err; i++)
        err = keep_in(&hosting->dirs[i], list, partitions, epochs, count);
    return err;
}
