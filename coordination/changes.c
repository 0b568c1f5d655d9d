#include "coordination/changes.h"

#include "coordination/paths.h"
#include "proto/base/cleanup.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct changes {
    struct coordinator *coordinator;
    struct inbox *inbox;
    struct changes_events events;
    struct observation *observation;
    int64_t last; /* -1: nothing seen yet */
    bool sweep;
    bool closed;
    unsigned reads; /* under way; the last one to end frees a closed object */
};

static void release(struct changes *c)
{
    if (c->closed && !c->reads)
        free(c);
}

static void change_read(void *arg, const struct coordinator_reply *reply)
{
    struct changes *c = arg;
    c->reads--;
    if (c->closed)
        return release(c);
    struct znode_change change;
    if (reply->err || znode_decode_change(reply->data, reply->data_bytes, &change, NULL)) {
        c->events.lost(c->events.arg);
        return;
    }
    c->events.changed(c->events.arg, &change);
    znode_change_done(&change);
}

static void read_change(struct changes *c, const char *child)
{
    struct path path;
    struct coordinator_call call = {.inbox = c->inbox, .callback = change_read, .arg = c, .urgent = true};
    c->reads++;
    coordinator_get(c->coordinator, path_change(&path, child), call);
}

static int compare_names(const void *a, const void *b)
{
    int64_t left = path_sequence(*(const char *const *)a);
    int64_t right = path_sequence(*(const char *const *)b);
    return (left > right) - (left < right);
}

/* All but the newest CHANGES_KEPT go, in one multi: one wake-up for the watchers. Whoever loses the race
 * against another sweeper has nothing left to do. */
static void sweep(struct changes *c, const char *const *names, size_t count)
{
    if (!c->sweep || count < CHANGES_KEPT + CHANGES_SWEPT_MIN)
        return;
    struct coordinator_multi *multi = coordinator_multi_new();
    if (!multi)
        return;
    struct path path;
    for (size_t i = 0; i < count - CHANGES_KEPT && i < 1000; i++)
        coordinator_multi_delete(multi, path_change(&path, names[i]), -1);
    coordinator_multi_send(c->coordinator, &multi, (struct coordinator_call){0});
}

/* `names` are sorted. Whether every number after `last` is there, and not too many. */
static bool is_complete(const char *const *names, size_t count, int64_t last, size_t *ret_first)
{
    size_t first = count;
    while (first > 0 && path_sequence(names[first - 1]) > last)
        first--;
    if (count - first > CHANGES_READ_MAX || path_sequence(names[count - 1]) < last)
        return false;
    for (size_t i = first; i < count; i++)
        if (path_sequence(names[i]) != last + 1 + (int64_t)(i - first))
            return false;
    *ret_first = first;
    return true;
}

static void apply(struct changes *c, const char *const *names, size_t count)
{
    size_t first = 0;
    int64_t newest = path_sequence(names[count - 1]);
    bool complete = c->last >= 0 && is_complete(names, count, c->last, &first);
    c->last = newest;
    if (!complete) {
        c->events.lost(c->events.arg);
        return;
    }
    for (size_t i = first; i < count; i++)
        read_change(c, names[i]);
}

/* The directory is there and empty (or not there). With the first notification the numbers begin. */
static void apply_empty(struct changes *c, int err)
{
    bool was_known = c->last >= 0;
    c->last = -1;
    if (was_known || !err)
        c->events.lost(c->events.arg);
}

static void listed(void *arg, const struct coordinator_reply *reply)
{
    struct changes *c = arg;
    AUTO_FREE const char **names = malloc((reply->children_count + 1) * sizeof *names);
    if (!names) {
        c->last = -1;
        c->events.lost(c->events.arg);
        return;
    }
    size_t count = 0;
    for (size_t i = 0; !reply->err && i < reply->children_count; i++)
        if (path_sequence(reply->children[i]) >= 0)
            names[count++] = reply->children[i];
    if (!count)
        return apply_empty(c, reply->err);
    qsort(names, count, sizeof *names, compare_names);
    apply(c, names, count);
    sweep(c, names, count);
}

int changes_new(struct coordinator *coordinator, struct inbox *inbox, const struct changes_events *events,
                struct changes **ret_changes)
{
    struct changes *c = calloc(1, sizeof *c);
    if (!c)
        return -BROOK_E_NOMEM;
    c->coordinator = coordinator;
    c->inbox = inbox;
    c->events = *events;
    c->last = -1;
    c->observation = coordinator_observe(coordinator, OBSERVE_CHILDREN, PATH_CHANGES, 0, inbox, listed, c);
    if (!c->observation) {
        free(c);
        return -BROOK_E_NOMEM;
    }
    *ret_changes = c;
    return 0;
}

void changes_free(struct changes *c)
{
    if (!c)
        return;
    observation_free(c->observation);
    c->closed = true;
    release(c);
}

void changes_sweep(struct changes *c, bool sweep_old)
{
    c->sweep = sweep_old;
}

int64_t changes_last(const struct changes *c)
{
    return c->last;
}

int changes_announce(struct coordinator_multi *multi, const struct znode_change *change)
{
    AUTO_FREE char *text = znode_encode_change(change);
    if (!text)
        return -BROOK_E_NOMEM;
    coordinator_multi_create(multi, PATH_CHANGE_PREFIX, text, strlen(text), ZNODE_SEQUENTIAL);
    return 0;
}
