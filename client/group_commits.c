#include "client/group_commits.h"

#include "proto/base/err.h"
#include "proto/base/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

/* Commits that failed for the moment are repeated after this long, doubling up to the maximum. */
#define RETRY_MS 50
#define RETRY_MS_MAX 2000

struct lane;

/* One position of a call, in the queue of its lane. */
struct wait {
    struct wait *next;
    struct call *call;
    uint64_t number; /* of the commit that ends it */
    int32_t partition;
    int64_t offset;
    const char *topic; /* the call's copy */
};

struct call {
    struct call *prev, *next;
    group_commits_done *done; /* NULL: was called, or nobody cares */
    void *arg;
    int64_t deadline_ms;
    int err;
    struct brook_position which;
    size_t open;
    size_t count;
    struct wait waits[];
};

enum lane_state { LANE_IDLE, LANE_UNDER_WAY, LANE_IN_DOUBT };

struct lane {
    UT_hash_handle hh;    /* by name */
    UT_hash_handle hh_id; /* by number */
    struct lane *prev, *next; /* of those that have something to send */
    bool is_ready;
    uint64_t id;
    enum lane_state state;
    bool finishing;
    int32_t partition;
    int32_t version;
    int64_t stored;
    /* Commits are numbered; a call waits for the number its value got. */
    uint64_t number;
    uint64_t sent_number;
    int64_t sent;
    bool has_waiting;
    int64_t waiting;
    int64_t not_before_ms;
    int retry_ms;
    struct wait *first; /* in the order of their numbers */
    struct wait **last;
    size_t key_bytes;
    char topic[]; /* with NUL, then the partition: the key */
};

struct group_commits {
    struct group_commits_events events;
    struct lane *lanes;
    struct lane *lanes_by_id;
    struct lane *ready;
    struct call *calls;
    uint64_t ids;
};

int group_commits_new(const struct group_commits_events *events, struct group_commits **ret_commits)
{
    struct group_commits *c = calloc(1, sizeof *c);
    if (!c)
        return -BROOK_E_NOMEM;
    c->events = *events;
    *ret_commits = c;
    return 0;
}

/* ---- calls -------------------------------------------------------------------------------------------- */

static void call_finish(struct call *call)
{
    group_commits_done *done = call->done;
    call->done = NULL;
    if (done)
        done(call->arg, call->err, call->err ? &call->which : NULL);
}

static void call_unref(struct group_commits *c, struct call *call)
{
    if (--call->open > 0)
        return;
    DL_DELETE(c->calls, call);
    call_finish(call);
    free(call);
}

static void wait_end(struct group_commits *c, struct wait *wait, int err)
{
    struct call *call = wait->call;
    if (err && !call->err) {
        call->err = err;
        call->which = (struct brook_position){wait->topic, wait->partition, wait->offset};
    }
    call_unref(c, call);
}

/* ---- lanes -------------------------------------------------------------------------------------------- */

struct lane_key {
    char bytes[TOPIC_NAME_BYTES_MAX + 1 + sizeof(int32_t)];
    size_t count;
};

static void make_key(struct lane_key *key, const char *topic, int32_t partition)
{
    size_t topic_bytes = strnlen(topic, TOPIC_NAME_BYTES_MAX);
    memset(key->bytes, 0, sizeof key->bytes);
    memcpy(key->bytes, topic, topic_bytes);
    memcpy(key->bytes + topic_bytes + 1, &partition, sizeof partition);
    key->count = topic_bytes + 1 + sizeof partition;
}

static struct lane *find(const struct group_commits *c, const char *topic, int32_t partition)
{
    struct lane_key key;
    struct lane *lane = NULL;
    make_key(&key, topic, partition);
    HASH_FIND(hh, c->lanes, key.bytes, key.count, lane);
    return lane;
}

static void set_ready(struct group_commits *c, struct lane *lane, bool is_ready)
{
    if (lane->is_ready == is_ready)
        return;
    lane->is_ready = is_ready;
    if (is_ready)
        DL_APPEND(c->ready, lane);
    else
        DL_DELETE(c->ready, lane);
}

/* Take the waits up to a number out of their lane. */
static struct wait *take_waits(struct lane *lane, uint64_t number)
{
    struct wait *first = lane->first;
    struct wait **end = &first;
    while (*end && (*end)->number <= number)
        end = &(*end)->next;
    lane->first = *end;
    if (!lane->first)
        lane->last = &lane->first;
    *end = NULL;
    return first;
}

/* Callbacks may call back in: no lane is held across this. */
static void end_waits(struct group_commits *c, struct wait *wait, int err)
{
    while (wait) {
        struct wait *next = wait->next;
        wait_end(c, wait, err);
        wait = next;
    }
}

static void lane_close(struct group_commits *c, struct lane *lane, int err)
{
    set_ready(c, lane, false);
    HASH_DELETE(hh, c->lanes, lane);
    HASH_DELETE(hh_id, c->lanes_by_id, lane);
    struct wait *waits = take_waits(lane, UINT64_MAX);
    free(lane);
    end_waits(c, waits, err);
}

static struct lane *lane_new(const char *topic, int32_t partition)
{
    struct lane_key key;
    make_key(&key, topic, partition);
    struct lane *lane = calloc(1, sizeof *lane + key.count);
    if (!lane)
        return NULL;
    memcpy(lane->topic, key.bytes, key.count);
    lane->key_bytes = key.count;
    lane->partition = partition;
    lane->last = &lane->first;
    return lane;
}

int group_commits_open(struct group_commits *c, const char *topic, int32_t partition, int64_t stored,
                       int32_t version)
{
    group_commits_close(c, topic, partition, -BROOK_E_FENCED);
    struct lane *lane = lane_new(topic, partition);
    if (!lane)
        return -BROOK_E_NOMEM;
    lane->id = ++c->ids;
    lane->stored = stored;
    lane->version = version;
    HASH_ADD_KEYPTR(hh, c->lanes, lane->topic, lane->key_bytes, lane);
    if (!lane->hh.tbl) {
        free(lane);
        return -BROOK_E_NOMEM;
    }
    HASH_ADD(hh_id, c->lanes_by_id, id, sizeof lane->id, lane);
    if (!lane->hh_id.tbl) {
        HASH_DELETE(hh, c->lanes, lane);
        free(lane);
        return -BROOK_E_NOMEM;
    }
    return 0;
}

void group_commits_close(struct group_commits *c, const char *topic, int32_t partition, int err)
{
    struct lane *lane = find(c, topic, partition);
    if (lane)
        lane_close(c, lane, err);
}

void group_commits_close_all(struct group_commits *c, int err)
{
    while (c->lanes)
        lane_close(c, c->lanes, err);
}

void group_commits_free(struct group_commits *c)
{
    if (!c)
        return;
    group_commits_close_all(c, -BROOK_E_CLOSED);
    free(c);
}

static void check_finished(struct group_commits *c, struct lane *lane)
{
    if (lane->finishing && lane->state == LANE_IDLE && !lane->has_waiting)
        c->events.finished(c->events.arg, lane->topic, lane->partition);
}

void group_commits_finish(struct group_commits *c, const char *topic, int32_t partition)
{
    struct lane *lane = find(c, topic, partition);
    if (!lane || lane->finishing)
        return;
    lane->finishing = true;
    check_finished(c, lane);
}

bool group_commits_is_finishing(const struct group_commits *c, const char *topic, int32_t partition)
{
    const struct lane *lane = find(c, topic, partition);
    return lane && lane->finishing;
}

int64_t group_commits_stored(const struct group_commits *c, const char *topic, int32_t partition)
{
    const struct lane *lane = find(c, topic, partition);
    return lane ? lane->stored : -1;
}

/* ---- adding ------------------------------------------------------------------------------------------- */

static struct call *call_new(const struct brook_position *positions, size_t count)
{
    size_t text = 0;
    for (size_t i = 0; i < count; i++)
        text += strlen(positions[i].topic) + 1;
    struct call *call = calloc(1, sizeof *call + count * sizeof *call->waits + text);
    if (!call)
        return NULL;
    char *at = (char *)(call->waits + count);
    for (size_t i = 0; i < count; i++) {
        call->waits[i] = (struct wait){
            .call = call, .topic = at, .partition = positions[i].partition, .offset = positions[i].offset};
        at = stpcpy(at, positions[i].topic) + 1;
    }
    /* One more than there are, so that it does not end while it is being added. */
    call->open = count + 1;
    call->count = count;
    return call;
}

static void enqueue(struct group_commits *c, struct lane *lane, struct wait *wait)
{
    bool is_sent = lane->state != LANE_IDLE && !lane->has_waiting && lane->sent == wait->offset;
    if (lane->state == LANE_IDLE && !lane->has_waiting && lane->stored == wait->offset) {
        wait_end(c, wait, 0);
        return;
    }
    if (is_sent) {
        wait->number = lane->sent_number;
    } else {
        wait->number = ++lane->number;
        lane->waiting = wait->offset;
        lane->has_waiting = true;
        set_ready(c, lane, lane->state == LANE_IDLE);
    }
    wait->next = NULL;
    *lane->last = wait;
    lane->last = &wait->next;
}

void group_commits_add(struct group_commits *c, const struct brook_position *positions, size_t count,
                       int64_t deadline_ms, group_commits_done *done, void *arg)
{
    struct call *call = call_new(positions, count);
    if (!call) {
        if (done)
            done(arg, -BROOK_E_NOMEM, count ? positions : NULL);
        return;
    }
    call->done = done;
    call->arg = arg;
    call->deadline_ms = deadline_ms;
    DL_APPEND(c->calls, call);
    for (size_t i = 0; i < count; i++) {
        struct wait *wait = &call->waits[i];
        struct lane *lane = find(c, wait->topic, wait->partition);
        if (lane && !lane->finishing)
            enqueue(c, lane, wait);
        else
            wait_end(c, wait, -BROOK_E_FENCED);
    }
    call_unref(c, call);
}

/* ---- the wire ----------------------------------------------------------------------------------------- */

size_t group_commits_take(struct group_commits *c, struct group_commits_entry *entries, size_t entries_max,
                          int64_t now_ms)
{
    size_t count = 0;
    struct lane *lane, *next;
    DL_FOREACH_SAFE (c->ready, lane, next) {
        if (count == entries_max)
            break;
        if (now_ms < lane->not_before_ms)
            continue;
        set_ready(c, lane, false);
        lane->state = LANE_UNDER_WAY;
        lane->sent = lane->waiting;
        lane->sent_number = lane->number;
        lane->has_waiting = false;
        entries[count++] = (struct group_commits_entry){
            lane->id, lane->topic, lane->partition, lane->sent, lane->version};
    }
    return count;
}

/* The commit under way has ended; on with what waits. */
static void lane_go_on(struct group_commits *c, struct lane *lane, int err)
{
    uint64_t id = lane->id;
    lane->state = LANE_IDLE;
    if (lane->has_waiting && lane->waiting == lane->stored) {
        lane->has_waiting = false;
        lane->sent_number = lane->number;
    }
    set_ready(c, lane, lane->has_waiting);
    end_waits(c, take_waits(lane, lane->sent_number), err);
    HASH_FIND(hh_id, c->lanes_by_id, &id, sizeof id, lane);
    if (lane)
        check_finished(c, lane);
}

/* The same value again, unless a newer one has come. */
static void lane_try_again(struct group_commits *c, struct lane *lane)
{
    lane->state = LANE_IDLE;
    if (!lane->has_waiting) {
        lane->has_waiting = true;
        lane->waiting = lane->sent;
    }
    set_ready(c, lane, true);
}

static void back_off(struct lane *lane, int64_t now_ms)
{
    lane->retry_ms = lane->retry_ms == 0 ? RETRY_MS : lane->retry_ms * 2;
    if (lane->retry_ms > RETRY_MS_MAX)
        lane->retry_ms = RETRY_MS_MAX;
    lane->not_before_ms = now_ms + lane->retry_ms;
}

/* Whether an answer leaves it open if the commit was carried out, or refuses it for a reason that may be out
 * of date. */
static bool is_doubtful(int err)
{
    enum brook_advice advice = brook_error_advice(err);
    return advice == BROOK_ADVICE_UNKNOWN || advice == BROOK_ADVICE_FENCED || err == -BROOK_E_BAD_VERSION;
}

static bool is_for_the_moment(int err)
{
    enum brook_advice advice = brook_error_advice(err);
    return advice == BROOK_ADVICE_RETRY || advice == BROOK_ADVICE_REFRESH;
}

void group_commits_answer(struct group_commits *c, uint64_t id, int err, int32_t version, int64_t now_ms)
{
    struct lane *lane = NULL;
    HASH_FIND(hh_id, c->lanes_by_id, &id, sizeof id, lane);
    if (!lane || lane->state != LANE_UNDER_WAY)
        return;
    if (err == 0) {
        lane->stored = lane->sent;
        lane->version = version;
        lane->retry_ms = 0;
        lane->not_before_ms = 0;
        lane_go_on(c, lane, 0);
    } else if (is_doubtful(err)) {
        back_off(lane, now_ms);
        lane->state = LANE_IN_DOUBT;
        c->events.doubt(c->events.arg, lane->topic, lane->partition, err);
    } else if (is_for_the_moment(err)) {
        back_off(lane, now_ms);
        lane_try_again(c, lane);
    } else {
        lane_go_on(c, lane, err);
    }
}

void group_commits_resolved(struct group_commits *c, const char *topic, int32_t partition, int64_t stored,
                            int32_t version)
{
    struct lane *lane = find(c, topic, partition);
    if (!lane || lane->state != LANE_IN_DOUBT)
        return;
    lane->stored = stored;
    lane->version = version;
    if (stored == lane->sent) {
        lane->retry_ms = 0;
        lane->not_before_ms = 0;
        lane_go_on(c, lane, 0);
    } else {
        lane_try_again(c, lane);
    }
}

/* ---- time --------------------------------------------------------------------------------------------- */

static struct call *find_late(struct group_commits *c, int64_t now_ms)
{
    struct call *call;
    DL_FOREACH (c->calls, call)
        if (call->done && call->deadline_ms && now_ms >= call->deadline_ms)
            return call;
    return NULL;
}

void group_commits_tick(struct group_commits *c, int64_t now_ms)
{
    struct call *call;
    while ((call = find_late(c, now_ms)) != NULL) {
        if (!call->err) {
            call->err = -BROOK_E_TIMED_OUT;
            call->which = (struct brook_position){call->waits[0].topic, call->waits[0].partition,
                                                  call->waits[0].offset};
        }
        /* Its waits stay in their lanes, and it with them. */
        call_finish(call);
    }
}

int64_t group_commits_next_ms(const struct group_commits *c)
{
    int64_t at = INT64_MAX;
    for (const struct lane *lane = c->ready; lane; lane = lane->next)
        if (lane->not_before_ms < at)
            at = lane->not_before_ms;
    for (const struct call *call = c->calls; call; call = call->next)
        if (call->done && call->deadline_ms && call->deadline_ms < at)
            at = call->deadline_ms;
    return at;
}
