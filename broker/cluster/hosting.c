#include "broker/cluster/hosting.h"

#include "broker/cluster/hosting_internal.h"
#include "broker/storage/throttle.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *hosted_subject(const struct hosted *h, int32_t epoch, char buffer[HOSTED_SUBJECT_BYTES])
{
    if (epoch < 0)
        snprintf(buffer, HOSTED_SUBJECT_BYTES, "partition=%s/%" PRId32, h->topic, h->number);
    else
        snprintf(buffer, HOSTED_SUBJECT_BYTES, "partition=%s/%" PRId32 " epoch=%" PRId32, h->topic, h->number,
                 epoch);
    return buffer;
}

/* ---- life ------------------------------------------------------------------------------------------- */

static int add_dirs(struct hosting *hosting, const struct hosting_settings *settings)
{
    hosting->dirs = calloc(settings->data_dirs_count, sizeof *hosting->dirs);
    if (!hosting->dirs)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < settings->data_dirs_count; i++) {
        struct host_dir *dir = &hosting->dirs[hosting->dirs_count];
        dir->hosting = hosting;
        dir->path = strdup(settings->data_dirs[i]);
        if (!dir->path)
            return -BROOK_E_NOMEM;
        pthread_mutex_init(&dir->lock, NULL);
        hosting->dirs_count++;
    }
    return 0;
}

int hosting_new(const struct hosting_settings *settings, struct inbox *inbox,
                const struct hosting_events *events, struct hosting **ret_hosting)
{
    assert(settings->data_dirs_count > 0);
    struct hosting *hosting = calloc(1, sizeof *hosting);
    if (!hosting)
        return -BROOK_E_NOMEM;
    hosting->broker_id = settings->broker_id;
    hosting->defaults = *settings->defaults;
    hosting->retention_check_ms = settings->retention_check_ms;
    hosting->free_bytes_min = settings->free_bytes_min;
    hosting->diag = settings->diag;
    hosting->inbox = inbox;
    hosting->events = *events;
    hosting->broker_epoch = -1;
    hosting->clean_from = -1;
    hosting->disk_from = -1;
    hosting->note.registration = -1;
    int err = add_dirs(hosting, settings);
    if (!err)
        err = disk_pool_new(settings->disk_threads, inbox, &hosting->pool);
    hosting->cleaner = settings->cleaner;
    if (!err && settings->cleaner.threads > 0)
        err = disk_pool_new(settings->cleaner.threads, inbox, &hosting->cleaners);
    if (!err)
        err = throttle_new(settings->cleaner.bytes_per_s, &hosting->throttle);
    if (!err)
        err = flusher_new(FLUSHER_THREADS_MAX, &hosting->flusher);
    if (!err)
        err = hosting_start_replication(hosting, settings);
    if (!err)
        err = open_files_new(settings->open_files_max ? settings->open_files_max : OPEN_FILES_UNLIMITED,
                             &hosting->files);
    if (err) {
        hosting_free(hosting);
        return err;
    }
    *ret_hosting = hosting;
    return 0;
}

void hosting_free(struct hosting *hosting)
{
    if (!hosting)
        return;
    atomic_store(&hosting->stop_duties, true);
    fetchers_free(hosting->fetchers);
    throttle_stop(hosting->throttle);
    flusher_stop(hosting->flusher);
    disk_pool_free(hosting->cleaners);
    disk_pool_free(hosting->pool);
    struct hosted *h, *next;
    HASH_ITER(hh, hosting->table, h, next)
    hosted_remove(h);
    for (size_t i = 0; i < hosting->dirs_count; i++) {
        data_dir_close(hosting->dirs[i].dir, false);
        pthread_mutex_destroy(&hosting->dirs[i].lock);
        free(hosting->dirs[i].path);
    }
    flusher_free(hosting->flusher);
    throttle_free(hosting->throttle);
    open_files_unref(hosting->files);
    free(hosting->dirs);
    free(hosting->cluster_id);
    free(hosting);
}

void hosting_open(struct hosting *hosting, const char *cluster_id)
{
    hosting->cluster_id = strdup(cluster_id);
    hosting_open_dirs(hosting);
}

int64_t hosting_clean_from(const struct hosting *hosting)
{
    return hosting->clean_from;
}

void hosting_set_broker_epoch(struct hosting *hosting, int64_t broker_epoch)
{
    hosting->broker_epoch = broker_epoch;
    /* The next registration of this very process has lost nothing; but for what was found lost. */
    hosting->clean_from = hosting->has_lost_records ? -1 : broker_epoch;
}

/* ---- the table -------------------------------------------------------------------------------------- */

struct hosted *hosted_add(struct hosting *hosting, struct host_dir *dir, const char *topic, int32_t number)
{
    size_t bytes = strlen(topic) + 16;
    struct hosted *h = calloc(1, sizeof *h + bytes);
    if (!h)
        return NULL;
    h->topic = strdup(topic);
    if (!h->topic) {
        free(h);
        return NULL;
    }
    snprintf(h->name, bytes, "%s-%" PRId32, topic, number);
    h->hosting = hosting;
    h->dir = dir;
    h->number = number;
    h->led_epoch = h->barred_epoch = h->epoch_before = h->followed = h->refused_version = -1;
    h->reached_epoch = -1;
    h->hint = (struct log_hint){.recovery_point = -1, .start_offset = -1};
    h->log_settings = hosting->defaults.log;
    dir->partitions_count++;
    HASH_ADD_STR(hosting->table, name, h);
    return h;
}

void hosted_remove(struct hosted *h)
{
    HASH_DEL(h->hosting->table, h);
    h->dir->partitions_count--;
    replica_unref(h->replica);
    partition_unref(h->partition);
    log_close(h->log);
    free(h->topic);
    free(h);
}

struct hosted *hosted_find(struct hosting *hosting, const char *topic, int32_t number)
{
    char name[TOPIC_ID_TEXT_BYTES + 256];
    struct hosted *h;
    snprintf(name, sizeof name, "%s-%" PRId32, topic, number);
    HASH_FIND_STR(hosting->table, name, h);
    return h;
}

static struct hosted *find_open(struct hosting *hosting, const struct image_topic *topic, int32_t number)
{
    struct hosted *h = hosted_find(hosting, topic->name, number);
    return h && h->status == HOSTED_OPEN && topic_id_equal(&h->topic_id, &topic->node.topic_id) ? h : NULL;
}

struct partition *hosting_find(struct hosting *hosting, const struct image_topic *topic, int32_t number)
{
    struct hosted *h = find_open(hosting, topic, number);
    return h ? h->partition : NULL;
}

struct replica *hosting_find_replica(struct hosting *hosting, const struct image_topic *topic, int32_t number)
{
    struct hosted *h = find_open(hosting, topic, number);
    return h ? h->replica : NULL;
}

bool hosting_follows(struct hosting *hosting, const struct image_topic *topic, int32_t number)
{
    struct hosted *h = find_open(hosting, topic, number);
    return h && h->followed >= 0;
}

bool hosting_end(struct hosting *hosting, const struct image_topic *topic, int32_t number, int32_t *ret_last_epoch,
                 int64_t *ret_end)
{
    struct hosted *h = hosted_find(hosting, topic->name, number);
    struct epoch_end end;
    if (!h || !topic_id_equal(&h->topic_id, &topic->node.topic_id))
        return false;
    *ret_last_epoch = -1;
    *ret_end = -1;
    if (h->status == HOSTED_FAILED)
        return true;
    if (h->status != HOSTED_OPEN)
        return false;
    int64_t broker_epoch;
    int32_t leader_epoch = topic->partitions[number].leader_epoch;
    if (replica_epoch_end(h->replica, leader_epoch, INT32_MAX, &end, &broker_epoch) ||
        broker_epoch != hosting->broker_epoch)
        return false;
    *ret_end = end.end;
    *ret_last_epoch = end.epoch;
    return true;
}

bool hosting_leads(struct hosting *hosting, const struct image_topic *topic, int32_t number)
{
    struct hosted *h = find_open(hosting, topic, number);
    return h && h->led_epoch >= 0;
}

/* ---- following the image ---------------------------------------------------------------------------- */

/* Whether the state counts the present registration. */
static bool is_counted(const struct hosting *hosting, const struct image_partition *p)
{
    for (int32_t i = 0; i < p->isr_count; i++)
        if (p->isr[i] == hosting->broker_id)
            return p->isr_epochs[i] == hosting->broker_epoch;
    return false;
}

/* No earlier life of this broker had it. */
static bool is_of_this_life(const struct hosting *hosting, const struct image_partition *p)
{
    return p->version >= 0 && p->leader_epoch == 0 && is_counted(hosting, p);
}

/* Others have all that counts: what is here, if anything, is fetched anew. */
static bool is_refilled(const struct hosting *hosting, const struct image_partition *p)
{
    for (int32_t i = 0; i < p->isr_count; i++)
        if (p->isr[i] == hosting->broker_id)
            return false;
    return p->version >= 0 && p->leader >= 0 && p->isr_count > 0;
}

/* May be in a directory that is not seen, and must not begin anew. */
static bool may_be_elsewhere(const struct hosting *hosting, const struct host_dir *missing,
                             const struct image_partition *p)
{
    return missing && !is_of_this_life(hosting, p) && !(missing->is_suspect && is_refilled(hosting, p));
}

static void fail_missed(struct hosted *h)
{
    if (h->dir->is_suspect)
        brook_error_set(&h->error, BROOK_E_STORAGE_ERROR,
                        "it was on this broker and is found nowhere, and the data directory %.200s is new: is it mounted?",
                        h->dir->path);
    else
        brook_error_set(&h->error, BROOK_E_STORAGE_ERROR, "%s", h->dir->failure);
    hosted_fail(h);
}

/* It was offline, as it is found nowhere; now others are known to have all of it. */
static bool refill_missed(struct hosted *h, const struct image_partition *p)
{
    if (h->status != HOSTED_FAILED || h->is_new || h->is_unwanted || !h->is_missed || !h->dir->is_suspect ||
        !is_refilled(h->hosting, p))
        return false;
    h->is_missed = false;
    h->is_new = true;
    hosted_start_open(h);
    return true;
}

static void create(struct hosting *hosting, const struct image_topic *topic, int32_t number)
{
    struct host_dir *missing = hosting_missing_dir(hosting);
    bool may_be_there = may_be_elsewhere(hosting, missing, &topic->partitions[number]);
    if (may_be_there && topic->partitions[number].version < 0)
        return; /* its state is being read */
    struct host_dir *dir = may_be_there ? missing : hosting_choose_dir(hosting, NULL);
    struct hosted *h = hosted_add(hosting, dir ? dir : &hosting->dirs[0], topic->name, number);
    if (!h)
        return;
    h->topic_id = topic->node.topic_id;
    h->is_new = !may_be_there;
    h->log_settings = topic->config.log;
    if (dir && !may_be_there)
        return hosted_start_open(h);
    h->is_missed = may_be_there;
    if (may_be_there)
        return fail_missed(h);
    brook_error_set(&h->error, BROOK_E_STORAGE_ERROR, "every data directory is full or has failed");
    hosted_fail(h);
}

/* Not coming back. */
static bool is_going(const struct hosted *h)
{
    return h->status == HOSTED_LEAVING && h->end != HOSTED_END_REOPEN;
}

static void mark_unwanted(struct hosted *h, const char *why)
{
    if (h->is_unwanted)
        return;
    h->is_unwanted = true;
    h->hosting->has_unwanted = true;
    if (h->status == HOSTED_OPEN)
        hosted_resign(h, why);
}

static void follow_durability(struct hosted *h, const struct durability *d)
{
    if (h->is_durability_set && h->durability.mode == d->mode && h->durability.flush_ms == d->flush_ms &&
        h->durability.flush_messages == d->flush_messages)
        return;
    h->durability = *d;
    h->is_durability_set = true;
    partition_set_durability(h->partition, d);
}

static void follow_partition(struct hosting *hosting, const struct image_topic *topic, int32_t number)
{
    struct hosted *h = hosted_find(hosting, topic->name, number);
    if (!h)
        return create(hosting, topic, number);
    if (is_going(h))
        return; /* `changed` is called when it has left */
    if (!topic_id_equal(&h->topic_id, &topic->node.topic_id))
        return mark_unwanted(h, "the topic was made anew");
    if (refill_missed(h, &topic->partitions[number]) || h->status != HOSTED_OPEN || h->is_unwanted)
        return;
    if (!h->is_configuring && memcmp(&h->log_settings, &topic->config.log, sizeof h->log_settings) != 0)
        hosted_configure(h, &topic->config.log);
    struct durability durability = topic->config.durability;
    durability.mode = durability_mode_for(durability.mode, topic->node.replicas[number].count);
    follow_durability(h, &durability);
    hosted_follow_role(h, topic);
}

static bool is_assigned(const struct hosting *hosting, const struct znode_replicas *replicas)
{
    for (int32_t i = 0; i < replicas->count; i++)
        if (replicas->brokers[i] == hosting->broker_id)
            return true;
    return false;
}

/* Whether others lead and hold it since a later leader epoch than any that the log here knows: the end of a move, and not
 * a ZooKeeper that was set back to an earlier day. */
static bool has_moved(const struct hosted *h, const struct image_topic *topic)
{
    struct znode_state state;
    if (!image_partition_state(&topic->partitions[h->number], &state) || state.leader < 0)
        return false;
    for (int32_t i = 0; i < state.isr_count; i++)
        if (state.isr[i] == h->hosting->broker_id)
            return false;
    return state.leader_epoch > log_last_epoch(partition_log(h->partition));
}

static void mark_unassigned(struct hosted *h, const struct image_topic *topic)
{
    if (!h->is_unwanted && h->status == HOSTED_OPEN)
        h->has_moved = has_moved(h, topic);
    mark_unwanted(h, h->has_moved ? "the partition was moved to other brokers"
                                  : "the partition is not assigned to this broker");
}

/* Moved away: what it led or followed ends at once. */
static void part_with(struct hosting *hosting, const struct image_topic *topic, int32_t number)
{
    struct hosted *h = hosted_find(hosting, topic->name, number);
    if (h && !is_going(h) && topic_id_equal(&h->topic_id, &topic->node.topic_id))
        mark_unassigned(h, topic);
}

void hosting_follow_one(struct hosting *hosting, const struct image_topic *topic, int32_t number)
{
    if (!hosting->is_opened || hosting->is_closing || number >= topic->node.partitions_count)
        return;
    if (is_assigned(hosting, &topic->node.replicas[number]))
        follow_partition(hosting, topic, number);
    else
        part_with(hosting, topic, number);
}

void hosting_follow(struct hosting *hosting, const struct image_topic *topic)
{
    for (int32_t i = 0; i < topic->node.partitions_count; i++)
        hosting_follow_one(hosting, topic, i);
}

/* ---- giving up -------------------------------------------------------------------------------------- */

void hosting_unwant(struct hosting *hosting, const char *topic, const struct topic_id *topic_id)
{
    for (struct hosted *h = hosting->table; h; h = h->hh.next)
        if (!is_going(h) && !strcmp(h->topic, topic) && topic_id_equal(&h->topic_id, topic_id))
            mark_unwanted(h, "the topic is gone");
}

/* All that is known of was followed: where nothing is missed, a suspect directory is one that was added. */
static void explain_dirs(struct hosting *hosting)
{
    for (struct hosted *h = hosting->table; h; h = h->hh.next)
        if (h->is_missed)
            return;
    for (size_t i = 0; i < hosting->dirs_count; i++)
        if (hosting->dirs[i].is_suspect)
            hosting->dirs[i].is_explained = true;
}

void hosting_compare(struct hosting *hosting, const struct image *image)
{
    explain_dirs(hosting);
    for (struct hosted *h = hosting->table; h; h = h->hh.next) {
        if (is_going(h))
            continue;
        const struct image_topic *topic = image_find(image, h->topic);
        if (!topic && unreadable_has_topic(image_unreadable((struct image *)(uintptr_t)image), h->topic))
            continue; /* nobody knows what becomes of it */
        if (!topic || !topic_id_equal(&topic->node.topic_id, &h->topic_id))
            mark_unwanted(h, "the topic is gone");
        else if (h->number >= topic->node.partitions_count)
            mark_unwanted(h, "the topic has no such partition");
        else if (!is_assigned(hosting, &topic->node.replicas[h->number]))
            mark_unassigned(h, topic);
    }
}

bool hosting_has_unwanted(const struct hosting *hosting)
{
    return hosting->has_unwanted;
}

void hosting_give_up(struct hosting *hosting, bool (*is_deleted)(void *arg, const struct topic_id *topic_id),
                     void *arg)
{
    hosting->has_unwanted = false;
    if (hosting->is_closing)
        return;
    struct hosted *h, *next;
    HASH_ITER(hh, hosting->table, h, next)
    {
        if (!h->is_unwanted || is_going(h))
            continue;
        if (h->status == HOSTED_OPENING || h->status == HOSTED_LEAVING) {
            hosting->has_unwanted = true; /* when it is open, or closed */
            continue;
        }
        bool deleted = h->has_moved || (!topic_id_is_zero(&h->topic_id) && is_deleted(arg, &h->topic_id));
        hosted_leave(h, deleted ? HOSTED_END_DELETE : HOSTED_END_SET_ASIDE);
    }
}

/* ---- the end ---------------------------------------------------------------------------------------- */

void hosting_check_closed(struct hosting *hosting)
{
    if (!hosting->is_closing || hosting->is_closed || hosting->opening || hosting->leaving ||
        hosting->duties || hosting->dirs_pending)
        return;
    flusher_stop(hosting->flusher); /* closing syncs the logs, and they are taken out of their partitions */
    struct hosted *h, *next;
    HASH_ITER(hh, hosting->table, h, next)
    if (h->status == HOSTED_OPEN)
        hosted_leave(h, HOSTED_END_CLOSE);
    if (!hosting->leaving)
        hosting_close_dirs(hosting);
}

void hosting_close(struct hosting *hosting)
{
    hosting->is_closing = true;
    fetchers_free(TAKE(hosting->fetchers));
    atomic_store(&hosting->stop_duties, true);
    throttle_stop(hosting->throttle);
    hosting_check_closed(hosting);
}

/* ---- timers ----------------------------------------------------------------------------------------- */

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Tried again later: the disk may have room, or the directory its rights, by then. */
static int64_t retry_failed(struct hosting *hosting, int64_t now_ms)
{
    int64_t next = INT64_MAX;
    if (!hosting->failed)
        return next;
    for (struct hosted *h = hosting->table; h; h = h->hh.next) {
        if (h->status != HOSTED_FAILED || h->is_unwanted || h->is_told_offline ||
            (h->dir->is_failed && !h->is_new) || h->is_missed)
            continue;
        bool is_due = h->retry_ms && now_ms >= h->retry_ms;
        if (is_due && (!h->is_new || hosted_move_new(h)))
            hosted_start_open(h);
        else if (is_due || !h->retry_ms)
            h->retry_ms = now_ms + HOSTING_RETRY_MS;
        if (h->status == HOSTED_FAILED)
            next = sooner(next, h->retry_ms);
    }
    return next;
}

const char *hosting_say_scanned(const struct hosting *hosting, char buffer[HOSTING_SCANNED_BYTES])
{
    int64_t bytes = atomic_load_explicit(&hosting->bytes_scanned, memory_order_relaxed);
    int64_t ms = clock_boot_ms() - hosting->began_ms;
    buffer[0] = '\0';
    if (bytes)
        snprintf(buffer, HOSTING_SCANNED_BYTES, ", %.1f MB checked at %.2f GB/s", (double)bytes / 1e6,
                 (double)bytes / 1e6 / (double)(ms ? ms : 1));
    return buffer;
}

static void say_progress(struct hosting *hosting, int64_t now_ms)
{
    char scanned[HOSTING_SCANNED_BYTES];
    if (hosting->next_progress_ms && now_ms >= hosting->next_progress_ms && hosting->found)
        diag_log(hosting->diag, DIAG_INFO, "", "opening logs: %zu of %zu done%s",
                 hosting->found - hosting->opening, hosting->found, hosting_say_scanned(hosting, scanned));
    if (!hosting->next_progress_ms || now_ms >= hosting->next_progress_ms)
        hosting->next_progress_ms = now_ms + HOSTING_PROGRESS_MS;
}

int64_t hosting_tick(struct hosting *hosting, int64_t now_ms)
{
    if (hosting->is_closing)
        return INT64_MAX;
    if (!hosting->is_opened) {
        say_progress(hosting, now_ms);
        return hosting->next_progress_ms;
    }
    if (!hosting->next_checkpoint_ms) {
        hosting->next_checkpoint_ms = now_ms + HOSTING_CHECKPOINT_MS;
        hosting->next_retention_ms = now_ms + hosting->retention_check_ms;
        hosting->next_cleaning_ms = now_ms + hosting->cleaner.backoff_ms;
    }
    if (now_ms >= hosting->next_cleaning_ms) {
        hosting->next_cleaning_ms = now_ms + hosting->cleaner.backoff_ms;
        hosting_start_cleaning(hosting);
    }
    if (now_ms >= hosting->next_retention_ms) {
        hosting->next_retention_ms = now_ms + hosting->retention_check_ms;
        hosting_start_retention(hosting);
    }
    if (now_ms >= hosting->next_checkpoint_ms) {
        hosting->next_checkpoint_ms = now_ms + HOSTING_CHECKPOINT_MS;
        for (size_t i = 0; i < hosting->dirs_count; i++)
            hosting_start_checkpoint(hosting, &hosting->dirs[i]);
    }
    if (now_ms >= hosting->next_space_ms) {
        hosting->next_space_ms = now_ms + HOSTING_SPACE_MS;
        hosting_look_at_space(hosting);
    }
    if (now_ms >= hosting->next_offline_ms) {
        hosting->next_offline_ms = now_ms + HOSTING_OFFLINE_CHECK_MS;
        hosting_look_for_offline(hosting);
    }
    int64_t lag_ms = sooner(hosting_check_lag(hosting, now_ms), hosting_keep_epochs(hosting, now_ms));
    int64_t cleaning_ms = hosting->cleaners ? hosting->next_cleaning_ms : INT64_MAX;
    return sooner(sooner(sooner(retry_failed(hosting, now_ms), sooner(lag_ms, cleaning_ms)),
                         sooner(hosting->next_offline_ms, hosting->next_space_ms)),
                  sooner(hosting->next_retention_ms, hosting->next_checkpoint_ms));
}
