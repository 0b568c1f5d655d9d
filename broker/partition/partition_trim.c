/* Deleting records: the new start is made durable first, then it counts, then files go. A crash in between leaves
 * a start that is raised, and segments below it for retention. */
#include "broker/partition/partition_state.h"
#include "proto/base/clock.h"

#include <inttypes.h>

void partition_on_trim(struct partition *p, int (*persist)(void *arg, int64_t start_offset), void *arg)
{
    p->persist_start = persist;
    p->persist_start_arg = arg;
}

static int refuse_offset(const struct partition *p, int64_t before, int64_t high_watermark,
                         struct brook_error *error)
{
    return brook_error_set(error, BROOK_E_OFFSET_OUT_OF_RANGE,
                           "partition %.200s/%" PRId32 ": records below %" PRId64
                           " can not be deleted, the high watermark is %" PRId64,
                           p->topic, p->number, before, high_watermark);
}

/* The offset that `before` stands for. */
static int judge(struct partition *p, int64_t before, int64_t *ret_start, struct brook_error *error)
{
    struct partition_marks marks;
    partition_marks(p, &marks);
    if (!marks.is_leader)
        return brook_error_set(error, BROOK_E_NOT_LEADER, "partition %.200s/%" PRId32 " is not led here any more",
                               p->topic, p->number);
    if (before < -1 || before > marks.high_watermark)
        return refuse_offset(p, before, marks.high_watermark, error);
    const char *offline = log_offline_reason(p->log);
    if (offline)
        return brook_error_set(error, BROOK_E_LOG_OFFLINE, "partition %.100s/%" PRId32 " is offline: %.100s",
                               p->topic, p->number, offline);
    int64_t start = before < 0 ? marks.high_watermark : before;
    *ret_start = start > marks.log_start ? start : marks.log_start;
    return 0;
}

struct trim {
    int64_t start;
    int result;
};

/* The start that counts now. What it releases (followers have to know) goes when the append lock is let go of. */
static void note_deleted(struct partition *p, int64_t start)
{
    pthread_mutex_lock(&p->state);
    if (start > p->deleted_start)
        p->deleted_start = start;
    if (start > p->kept_start)
        p->kept_start = start;
    pthread_mutex_unlock(&p->state);
}

static void trim(struct partition *p, void *arg)
{
    struct trim *t = arg;
    int64_t asked = t->start;
    t->result = log_trim(p->log, t->start, clock_wall_ms());
    t->start = log_start_offset(p->log);
    if (t->result >= 0)
        note_deleted(p, asked);
}

void partition_keep_start(struct partition *p, int64_t start)
{
    pthread_mutex_lock(&p->state);
    if (start > p->kept_start)
        p->kept_start = start;
    pthread_mutex_unlock(&p->state);
}

int partition_delete_records(struct partition *p, int64_t before, bool validate_only, int64_t *ret_start,
                             struct brook_error *error)
{
    struct trim t = {0};
    int r = judge(p, before, &t.start, error);
    if (r == 0 && !validate_only && p->persist_start) {
        r = p->persist_start(p->persist_start_arg, t.start);
        if (r != 0)
            brook_error_set(error, -r, "partition %.200s/%" PRId32 ": the new start could not be written: %s",
                            p->topic, p->number, brook_error_text(r));
    }
    if (r == 0 && !validate_only) {
        partition_with_append_lock(p, trim, &t);
        if (t.result < 0)
            r = brook_error_set(error, -t.result, "partition %.200s/%" PRId32 ": deleting records: %s", p->topic,
                                p->number, brook_error_text(t.result));
    }
    if (r == 0)
        *ret_start = t.start;
    return r;
}
