/* Committing: collecting what was released, and waiting for commits that the loop carries out. */
#include "client/consumer.h"
#include "proto/base/cleanup.h"
#include "proto/base/err.h"

#include <stdlib.h>
#include <string.h>

struct position_block *positions_copy(const struct brook_position *positions, size_t count)
{
    size_t bytes = sizeof(struct position_block) + count * sizeof *positions;
    for (size_t i = 0; i < count; i++)
        bytes += strlen(positions[i].topic) + 1;
    struct position_block *block = malloc(bytes);
    if (!block)
        return NULL;
    block->count = count;
    char *text = (char *)(block->positions + count);
    for (size_t i = 0; i < count; i++) {
        size_t topic_bytes = strlen(positions[i].topic) + 1;
        block->positions[i] = positions[i];
        block->positions[i].topic = memcpy(text, positions[i].topic, topic_bytes);
        text += topic_bytes;
    }
    return block;
}

struct position_block *consumer_collect(struct brook_consumer *c, bool only_new)
{
    struct position_block *block = NULL;
    set_lock(c->set);
    AUTO_FREE struct brook_position *positions =
        calloc(HASH_CNT(hh_name, c->set->by_name) + 1, sizeof *positions);
    size_t count = 0;
    struct consumer_partition *p, *next;
    HASH_ITER (hh_name, c->set->by_name, p, next) {
        int64_t offset = progress_processed(&p->progress);
        if (!positions || offset < 0 || (only_new && offset == p->auto_committed))
            continue;
        positions[count++] = (struct brook_position){p->topic, p->partition, offset};
        if (only_new)
            p->auto_committed = offset;
    }
    if (positions)
        block = positions_copy(positions, count);
    set_unlock(c->set);
    return block;
}

void consumer_commit_on_loop(struct brook_consumer *c, const struct position_block *block, int timeout_ms,
                             commits_callback *done, void *arg)
{
    struct group *group = atomic_load(&c->group);
    set_lock(c->set);
    bool is_member = group && c->mode != CONSUMER_ASSIGNED;
    set_unlock(c->set);
    if (is_member)
        group_commit(group, block->positions, block->count, timeout_ms, done, arg);
    else
        commits_commit(c->commits, block->positions, block->count, done, arg);
}

void consumer_auto_commit(void *arg)
{
    struct brook_consumer *c = arg;
    AUTO_FREE struct position_block *block = consumer_collect(c, true);
    if (block && block->count > 0)
        consumer_commit_on_loop(c, block, 0, NULL, NULL);
    client_timer_set(c->auto_commit, c->set->settings.auto_commit_interval_ms);
}

/* A commit of the application: shared by its thread and the loop; the second to let go frees it. */
struct commit_job {
    struct inbox_item item;
    struct brook_consumer *c;
    struct consumer_set *set; /* with a reference: the end may come after the consumer's */
    struct position_block *block;
    int timeout_ms;
    unsigned refs; /* this and the rest under the set's lock */
    bool is_done;
    int err;
    struct event_place which;
};

/* Returns with the lock given up. [locked] */
static void job_unref_unlock(struct commit_job *job)
{
    if (--job->refs > 0) {
        set_unlock(job->set);
        return;
    }
    struct consumer_set *set = job->set;
    free(job->block);
    free(job);
    set_unref_unlock(set);
}

static void on_committed(void *arg, int err, const struct brook_position *which)
{
    struct commit_job *job = arg;
    set_lock(job->set);
    job->is_done = true;
    job->err = err;
    if (which && which->topic) {
        strncpy(job->which.topic, which->topic, sizeof job->which.topic - 1);
        job->which.partition = which->partition;
    }
    pthread_cond_broadcast(&job->set->changed);
    job_unref_unlock(job);
}

static void commit_on_loop(struct inbox_item *item)
{
    struct commit_job *job = CONTAINER_OF(item, struct commit_job, item);
    consumer_commit_on_loop(job->c, job->block, job->timeout_ms, on_committed, job);
}

static int wait_for(struct commit_job *job, int timeout_ms, struct brook_error *error)
{
    if (!set_wait(job->set, &job->is_done, timeout_ms))
        return brook_error_set(error, BROOK_E_TIMED_OUT,
                               "the commit was not answered in time: it may still happen");
    if (job->err == 0)
        return 0;
    if (job->which.topic[0] == '\0')
        return brook_error_set(error, -job->err, "commit: %s", brook_error_text(job->err));
    return brook_error_set(error, -job->err, "commit of %s/%d: %s", job->which.topic, job->which.partition,
                           brook_error_text(job->err));
}

static int run_job(struct brook_consumer *c, struct position_block *block, enum brook_commit_mode mode,
                   int timeout_ms, struct brook_error *error)
{
    struct commit_job *job = calloc(1, sizeof *job);
    if (!job) {
        free(block);
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    }
    *job = (struct commit_job){.item.run = commit_on_loop,
                               .c = c,
                               .block = block,
                               .timeout_ms = mode == BROOK_COMMIT_SYNC && timeout_ms > 0 ? timeout_ms : 0,
                               .refs = 2};
    set_lock(c->set);
    job->set = set_ref(c->set);
    set_unlock(c->set);
    inbox_post(client_inbox(c->client), &job->item);
    set_lock(job->set);
    int r = mode == BROOK_COMMIT_SYNC ? wait_for(job, timeout_ms, error) : 0;
    job_unref_unlock(job);
    return r;
}

int brook_consumer_commit(brook_consumer *c, const struct brook_position *positions, size_t count,
                          enum brook_commit_mode mode, int timeout_ms, struct brook_error *error)
{
    if (!c->group_id[0])
        return brook_error_set(error, BROOK_E_CONFIG, "group.id is not set");
    for (size_t i = 0; positions && i < count; i++)
        if (!positions[i].topic || !name_is_legal_topic(positions[i].topic, strlen(positions[i].topic)) ||
            positions[i].partition < 0 || positions[i].offset < 0)
            return brook_error_set(error, BROOK_E_INVALID, "position %zu is no place that can be committed",
                                   i);
    struct position_block *block = positions ? positions_copy(positions, count) : consumer_collect(c, false);
    if (!block)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    if (block->count == 0) {
        free(block);
        return 0;
    }
    return run_job(c, block, mode, timeout_ms, error);
}
