#include "client/consumer_set.h"

#include "client/consumer_batch.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "proto/base/pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#define IDLE_EXPANDED_BYTES ((size_t)16 << 20)

void set_lock(struct consumer_set *set)
{
    pthread_mutex_lock(&set->lock);
}

void set_unlock(struct consumer_set *set)
{
    pthread_mutex_unlock(&set->lock);
}

static int init_changed(struct consumer_set *set)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&set->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return pthread_mutex_init(&set->lock, NULL) == 0 ? 0 : -BROOK_E_NOMEM;
}

static void set_free(struct consumer_set *set)
{
    assert(!set->by_name && set->batches_out == 0);
    while (set->idle_chunks) {
        struct consumer_chunk *chunk = set->idle_chunks;
        set->idle_chunks = chunk->next;
        free(chunk);
    }
    while (set->idle_batches) {
        struct brook_batch *batch = set->idle_batches;
        set->idle_batches = batch->idle_next;
        free(batch);
    }
    codec_free(set->codec);
    pool_unref(set->pool);
    if (set->fd >= 0)
        close(set->fd);
    pthread_cond_destroy(&set->changed);
    pthread_mutex_destroy(&set->lock);
    free(set);
}

int set_new(const struct consumer_settings *settings, struct inbox *inbox,
            void (*run)(struct inbox_item *item), struct consumer_set **ret_set)
{
    struct consumer_set *set = calloc(1, sizeof *set);
    if (!set)
        return -BROOK_E_NOMEM;
    set->settings = *settings;
    set->inbox = inbox;
    set->kick.run = run;
    set->refs = 1;
    set->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int r = init_changed(set);
    if (set->fd < 0)
        r = -BROOK_E_IO;
    if (r == 0)
        r = codec_new(&set->codec);
    /* What is out bounds it (set_take_batch()), so that the pool itself need not. */
    if (r == 0)
        r = pool_new(SIZE_MAX / 2, IDLE_EXPANDED_BYTES, &set->pool);
    if (r < 0) {
        set_free(set);
        return r;
    }
    *ret_set = set;
    return 0;
}

struct consumer_set *set_ref(struct consumer_set *set)
{
    set->refs++;
    return set;
}

void set_unref_unlock(struct consumer_set *set)
{
    assert(set->refs > 0);
    bool is_last = --set->refs == 0;
    set_unlock(set);
    if (is_last)
        set_free(set);
}

void set_close(struct consumer_set *set)
{
    set_lock(set);
    set->is_closed = true;
    struct consumer_partition *p, *next;
    HASH_ITER (hh_name, set->by_name, p, next)
        set_remove(set, p, false);
    struct rebalance_note *note, *note_next;
    DL_FOREACH_SAFE (set->notes, note, note_next) {
        DL_DELETE(set->notes, note);
        consumer_partition_unref(TAKE(note->partition));
    }
    set->inbox = NULL;
    pthread_cond_broadcast(&set->changed);
    set_unlock(set);
}

/* ---- partitions ---- */

void consumer_partition_ref(struct consumer_partition *p)
{
    p->refs++;
}

void consumer_partition_unref(struct consumer_partition *p)
{
    if (!p || --p->refs > 0)
        return;
    assert(!p->chunks && !p->puller);
    progress_done(&p->progress);
    free(p->topic);
    free(p->key);
    free(p);
}

/* The key of a partition's name. Legal names end in no NUL, so keys of different topics differ. */
static size_t make_key(char *key, const char *topic, int32_t partition)
{
    size_t bytes = strnlen(topic, TOPIC_NAME_BYTES_MAX);
    memcpy(key, topic, bytes);
    memcpy(key + bytes, &partition, sizeof partition);
    return bytes + sizeof partition;
}

struct consumer_partition *set_find(struct consumer_set *set, const char *topic, int32_t partition)
{
    char key[TOPIC_NAME_BYTES_MAX + sizeof partition];
    size_t bytes = make_key(key, topic, partition);
    struct consumer_partition *p;
    HASH_FIND(hh_name, set->by_name, key, bytes, p);
    return p;
}

struct consumer_partition *set_find_id(struct consumer_set *set, const struct partition_id *id)
{
    struct consumer_partition *p;
    HASH_FIND(hh_id, set->by_id, id, sizeof *id, p);
    return p;
}

static void forget_id(struct consumer_set *set, struct consumer_partition *p)
{
    if (p->has_id)
        HASH_DELETE(hh_id, set->by_id, p);
    p->has_id = false;
}

void set_identify(struct consumer_set *set, struct consumer_partition *p, const uint8_t *topic_id)
{
    forget_id(set, p);
    memset(&p->id, 0, sizeof p->id);
    memcpy(p->id.topic_id, topic_id, TOPIC_ID_BYTES);
    p->id.partition = p->partition;
    if (set_find_id(set, &p->id))
        return; /* two topics with one id: a broken cluster; the first has it */
    HASH_ADD(hh_id, set->by_id, id, sizeof p->id, p);
    p->has_id = p->hh_id.tbl != NULL;
}

static struct consumer_partition *partition_new(const char *topic, int32_t partition)
{
    struct consumer_partition *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->refs = 1;
    p->topic = strndup(topic, TOPIC_NAME_BYTES_MAX);
    p->key = malloc(strlen(topic) + sizeof partition);
    progress_init(&p->progress);
    if (!p->topic || !p->key) {
        consumer_partition_unref(p);
        return NULL;
    }
    p->partition = partition;
    p->key_bytes = make_key(p->key, p->topic, partition);
    p->chunks_tail = &p->chunks;
    p->delivered = -1;
    p->high_watermark = -1;
    p->range_first = p->range_end = -1;
    p->leader_epoch = -1;
    p->nearest = -1;
    p->generation = 1;
    return p;
}

static void add_note(struct consumer_set *set, struct consumer_partition *p, enum rebalance_kind kind)
{
    struct rebalance_note *note = &p->notes[kind];
    if (note->partition)
        return;
    consumer_partition_ref(p);
    note->partition = p;
    note->kind = kind;
    DL_APPEND(set->notes, note);
}

/* Returns whether it was still to be told. */
static bool cancel_note(struct consumer_set *set, struct consumer_partition *p, enum rebalance_kind kind)
{
    struct rebalance_note *note = &p->notes[kind];
    if (!note->partition)
        return false;
    DL_DELETE(set->notes, note);
    note->partition = NULL;
    consumer_partition_unref(p);
    return true;
}

int set_add(struct consumer_set *set, const struct brook_position *position, uint64_t group_generation)
{
    if (set->is_closed)
        return -BROOK_E_CLOSED;
    if (set_find(set, position->topic, position->partition))
        return -BROOK_E_EXISTS;
    struct consumer_partition *p = partition_new(position->topic, position->partition);
    if (!p)
        return -BROOK_E_NOMEM;
    HASH_ADD_KEYPTR(hh_name, set->by_name, p->key, p->key_bytes, p);
    if (!p->hh_name.tbl) {
        consumer_partition_unref(p);
        return -BROOK_E_NOMEM;
    }
    p->group_generation = group_generation;
    p->fetch_bytes = set->settings.partition_fetch_bytes;
    p->auto_committed = group_generation > 0 ? position->offset : BROOK_OFFSET_NONE;
    set_seek(set, p, position->offset);
    if (group_generation > 0 && set->has_callbacks[REBALANCE_ASSIGNED])
        add_note(set, p, REBALANCE_ASSIGNED);
    set_signal(set);
    return 0;
}

static void drop_event(struct consumer_set *set, struct consumer_partition *p)
{
    if (p->event_code != 0)
        DL_DELETE2(set->events, p, event_prev, event_next);
    p->event_code = 0;
}

static void drop_chunks(struct consumer_set *set, struct consumer_partition *p)
{
    if (p->chunks)
        DL_DELETE2(set->ready, p, ready_prev, ready_next);
    set->counters.dropped_bytes += p->queued_bytes;
    while (p->chunks) {
        struct consumer_chunk *chunk = p->chunks;
        p->chunks = chunk->next;
        slab_unref(chunk->slab);
        chunk_give(set, chunk);
    }
    p->chunks_tail = &p->chunks;
    p->queued_bytes = 0;
}

void set_void_fetched(struct consumer_set *set, struct consumer_partition *p)
{
    p->generation++;
    p->is_halted = false;
    drop_chunks(set, p);
    set_kick(set, p);
    set_signal(set);
}

void set_begin_drain(struct consumer_set *set, struct consumer_partition *p)
{
    if (p->life != PARTITION_LIVE)
        return;
    p->life = PARTITION_DRAINING;
    drop_event(set, p);
    if (cancel_note(set, p, REBALANCE_ASSIGNED) || !set->has_callbacks[REBALANCE_REVOKING])
        p->was_revoked = true;
    else
        add_note(set, p, REBALANCE_REVOKING);
    set_void_fetched(set, p);
}

void set_remove(struct consumer_set *set, struct consumer_partition *p, bool is_lost)
{
    if (p->life == PARTITION_GONE)
        return;
    p->life = PARTITION_GONE;
    bool was_told = !cancel_note(set, p, REBALANCE_ASSIGNED) && p->group_generation > 0;
    cancel_note(set, p, REBALANCE_REVOKING);
    drop_event(set, p);
    if (is_lost && was_told && !p->was_revoked && set->has_callbacks[REBALANCE_LOST])
        add_note(set, p, REBALANCE_LOST);
    HASH_DELETE(hh_name, set->by_name, p);
    forget_id(set, p);
    set_void_fetched(set, p);
    pthread_cond_broadcast(&set->changed);
    consumer_partition_unref(p);
}

bool set_is_drained(const struct consumer_partition *p)
{
    return p->life == PARTITION_DRAINING && p->was_revoked && p->batches_out == 0;
}

/* ---- positions ---- */

void set_start_at(struct consumer_set *set, struct consumer_partition *p, int64_t offset)
{
    p->delivered = offset;
    progress_start(&p->progress, offset);
    read_epochs_clear(&p->epochs);
}

static void start_as_known(struct consumer_set *set, struct consumer_partition *p)
{
    set_start_at(set, p, p->position.phase == POSITION_KNOWN ? p->position.offset : -1);
    set_void_fetched(set, p);
}

void set_seek(struct consumer_set *set, struct consumer_partition *p, int64_t offset)
{
    struct position_effects effects = position_start(&p->position, set->settings.reset, offset);
    drop_event(set, p);
    start_as_known(set, p);
    if (effects.report != 0)
        set_put_event(set, p, effects.report, -1);
}

struct position_effects set_topic_anew(struct consumer_set *set, struct consumer_partition *p)
{
    struct position_effects effects = position_topic_anew(&p->position);
    p->high_watermark = -1;
    p->auto_committed = BROOK_OFFSET_NONE;
    start_as_known(set, p);
    return effects;
}

struct position_effects set_truncate(struct consumer_set *set, struct consumer_partition *p, int32_t epoch,
                                     int64_t end)
{
    struct position_effects effects = {0};
    int64_t at = read_epochs_cut(&p->epochs, p->position.offset, epoch, end);
    if (at < p->delivered) {
        effects = position_on_truncation(&p->position, at);
        p->delivered = at;
        progress_start(&p->progress, at);
        p->auto_committed = BROOK_OFFSET_NONE;
    } else {
        p->position.offset = p->delivered;
    }
    p->high_watermark = -1;
    set_void_fetched(set, p);
    return effects;
}

void set_pause(struct consumer_set *set, struct consumer_partition *p, bool is_paused)
{
    if (p->is_paused == is_paused)
        return;
    p->is_paused = is_paused;
    /* What was fetched makes room for the others; it is fetched again when the pause ends. */
    if (p->position.phase == POSITION_KNOWN)
        p->position.offset = p->delivered;
    set_void_fetched(set, p);
}

bool set_is_hungry(const struct consumer_set *set, const struct consumer_partition *p)
{
    return p->life == PARTITION_LIVE && !p->is_paused && !p->is_halted && p->queued_bytes < p->fetch_bytes;
}

bool set_wait(struct consumer_set *set, const bool *done, int timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    int r = 0;
    while (!*done && r == 0)
        r = timeout_ms < 0 ? pthread_cond_wait(&set->changed, &set->lock)
                           : pthread_cond_timedwait(&set->changed, &set->lock, &until);
    return *done;
}

int64_t set_now_ms(void)
{
    return clock_boot_ms();
}

/* ---- signals ---- */

bool set_is_full(const struct consumer_set *set)
{
    return set->batches_out > 0 && set->bytes_out >= (size_t)set->settings.queued_bytes_max;
}

void set_signal(struct consumer_set *set)
{
    bool has_news = set->events || set->notes || set->failures_count > 0 ||
                    (set->ready && !set_is_full(set)) || set->is_closed;
    if (has_news == set->is_signalled)
        return;
    set->is_signalled = has_news;
    eventfd_t count;
    if (has_news)
        eventfd_write(set->fd, 1);
    else
        eventfd_read(set->fd, &count);
}

void set_mark(struct consumer_set *set, struct consumer_partition *p)
{
    if (p->is_marked)
        return;
    consumer_partition_ref(p);
    p->is_marked = true;
    LL_PREPEND2(set->marked, p, marked_next);
}

void set_kick(struct consumer_set *set, struct consumer_partition *p)
{
    if (p)
        set_mark(set, p);
    if (set->is_kicked || !set->inbox)
        return;
    set->is_kicked = true;
    inbox_post(set->inbox, &set->kick);
}

struct consumer_partition *set_take_marked(struct consumer_set *set)
{
    struct consumer_partition *list = TAKE(set->marked);
    for (struct consumer_partition *p = list; p; p = p->marked_next)
        p->is_marked = false;
    return list;
}
