/* A follower's writes: what the leader sent, and cuts where the logs part. They wait for the append lock. */
#include "broker/partition/partition_state.h"
#include "proto/base/clock.h"

struct replicated {
    int32_t leader_epoch;
    struct log_batch *batches;
    size_t count;
    int64_t leader_high_watermark;
    int64_t cut; /* or where to start over, or to begin */
    struct brook_error *error;
    int result;
};

static bool follows_at(struct partition *p, int32_t leader_epoch)
{
    pthread_mutex_lock(&p->state);
    bool follows = p->is_follower && p->leader_epoch == leader_epoch;
    pthread_mutex_unlock(&p->state);
    return follows;
}

static int fenced(struct partition *p, const struct replicated *r)
{
    return brook_error_set(r->error, BROOK_E_FENCED_EPOCH, "partition %s/%d is not followed at epoch %d any more",
                           p->topic, p->number, r->leader_epoch);
}

static void take_high_watermark(struct partition *p, int64_t leader_high_watermark)
{
    int64_t end = log_end_offset(p->log);
    pthread_mutex_lock(&p->state);
    p->high_watermark = watermark_follow(p->high_watermark, leader_high_watermark, end);
    pthread_mutex_unlock(&p->state);
}

/* Under `append`; the marks that depend on the log's end move when the lock is let go of. */
static void append(struct partition *p, void *arg)
{
    struct replicated *r = arg;
    if (!follows_at(p, r->leader_epoch)) {
        r->result = fenced(p, r);
        return;
    }
    if (r->count > 0)
        r->result = log_append_as_follower(p->log, r->batches, r->count, clock_wall_ms(), r->error);
    if (r->result == 0)
        take_high_watermark(p, r->leader_high_watermark);
}

int partition_append_replicated(struct partition *p, int32_t leader_epoch, struct log_batch *batches, size_t count,
                                int64_t leader_high_watermark, struct brook_error *error)
{
    struct replicated r = {.leader_epoch = leader_epoch,
                           .batches = batches,
                           .count = count,
                           .leader_high_watermark = leader_high_watermark,
                           .error = error};
    partition_with_append_lock(p, append, &r);
    return r.result;
}

static void truncate_(struct partition *p, void *arg)
{
    struct replicated *r = arg;
    r->result = follows_at(p, r->leader_epoch) ? log_truncate(p->log, r->cut, r->error) : fenced(p, r);
}

int partition_truncate(struct partition *p, int32_t leader_epoch, int64_t offset, struct brook_error *error)
{
    struct replicated r = {.leader_epoch = leader_epoch, .cut = offset, .error = error};
    partition_with_append_lock(p, truncate_, &r);
    return r.result;
}

static void start_over(struct partition *p, void *arg)
{
    struct replicated *r = arg;
    r->result = follows_at(p, r->leader_epoch) ? log_start_over(p->log, r->cut, clock_wall_ms(), r->error)
                                               : fenced(p, r);
    if (r->result == 0)
        take_high_watermark(p, r->cut); /* what the leader deleted was below its mark */
}

int partition_start_over(struct partition *p, int32_t leader_epoch, int64_t offset, struct brook_error *error)
{
    struct replicated r = {.leader_epoch = leader_epoch, .cut = offset, .error = error};
    partition_with_append_lock(p, start_over, &r);
    return r.result;
}

static void raise_start(struct partition *p, void *arg)
{
    struct replicated *r = arg;
    if (!follows_at(p, r->leader_epoch)) {
        r->result = fenced(p, r);
        return;
    }
    int removed = log_trim(p->log, r->cut, clock_wall_ms());
    if (removed < 0)
        r->result = brook_error_set(r->error, -removed, "partition %.200s/%d: deleting what the leader deleted: %s",
                                    p->topic, p->number, brook_error_text(removed));
    else
        partition_keep_start(p, r->cut);
}

int partition_raise_start(struct partition *p, int32_t leader_epoch, int64_t start, struct brook_error *error)
{
    struct replicated r = {.leader_epoch = leader_epoch, .cut = start, .error = error};
    partition_with_append_lock(p, raise_start, &r);
    return r.result;
}
