#include "coordination/tombstones.h"

#include "coordination/paths.h"
#include "proto/base/cleanup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SWEPT_MIN 100 /* so that not every deletion sweeps */

struct tombstones_read {
    struct coordinator *coordinator;
    bool sweep;
    tombstones_callback *callback;
    void *arg;
};

void tombstones_add(struct coordinator_multi *multi, const struct topic_id *topic_id)
{
    char text[TOPIC_ID_TEXT_BYTES];
    char path[sizeof PATH_DELETED_TOPICS + TOPIC_ID_TEXT_BYTES + 2];
    topic_id_format(topic_id, text);
    snprintf(path, sizeof path, "%s/%s-", PATH_DELETED_TOPICS, text);
    coordinator_multi_create(multi, path, NULL, 0, ZNODE_SEQUENTIAL);
}

static bool parse(const char *child, struct topic_id *ret)
{
    char text[TOPIC_ID_TEXT_BYTES];
    if (strlen(child) < sizeof text || child[sizeof text - 1] != '-')
        return false;
    memcpy(text, child, sizeof text - 1);
    text[sizeof text - 1] = 0;
    return topic_id_parse(text, ret) == 0;
}

static int64_t sequence(const char *child)
{
    const char *dash = strrchr(child, '-');
    return dash ? strtoll(dash + 1, NULL, 10) : -1;
}

static int compare_age(const void *a, const void *b)
{
    int64_t left = sequence(*(const char *const *)a), right = sequence(*(const char *const *)b);
    return (left > right) - (left < right);
}

static void sweep(struct coordinator *coordinator, const struct coordinator_reply *reply)
{
    AUTO_FREE const char **names = malloc((reply->children_count + 1) * sizeof *names);
    struct coordinator_multi *multi = coordinator_multi_new();
    if (!names || !multi) {
        coordinator_multi_free(multi);
        return;
    }
    memcpy(names, reply->children, reply->children_count * sizeof *names);
    qsort(names, reply->children_count, sizeof *names, compare_age);
    for (size_t i = 0; i < reply->children_count - TOMBSTONES_KEPT && i < 1000; i++) {
        char path[PATH_BYTES_MAX];
        snprintf(path, sizeof path, "%s/%s", PATH_DELETED_TOPICS, names[i]);
        coordinator_multi_delete(multi, path, -1);
    }
    coordinator_multi_send(coordinator, &multi, (struct coordinator_call){0});
}

static void listed(void *arg, const struct coordinator_reply *reply)
{
    AUTO_FREE struct tombstones_read *read = arg;
    size_t total = reply->err ? 0 : reply->children_count;
    AUTO_FREE struct topic_id *ids = malloc((total + 1) * sizeof *ids);
    int err = reply->err == -BROOK_E_NO_NODE ? 0 : reply->err;
    size_t count = 0;
    if (!ids)
        err = -BROOK_E_NOMEM;
    for (size_t i = 0; !err && i < total; i++)
        count += parse(reply->children[i], &ids[count]);
    if (read->sweep && !err && total > TOMBSTONES_KEPT + SWEPT_MIN)
        sweep(read->coordinator, reply);
    read->callback(read->arg, err, ids, err ? 0 : count);
}

void tombstones_read(struct coordinator *coordinator, bool sweep_old, struct inbox *inbox,
                     tombstones_callback *callback, void *arg)
{
    struct tombstones_read *read = malloc(sizeof *read);
    if (!read) {
        callback(arg, -BROOK_E_NOMEM, NULL, 0);
        return;
    }
    *read = (struct tombstones_read){coordinator, sweep_old, callback, arg};
    coordinator_children(coordinator, PATH_DELETED_TOPICS,
                         (struct coordinator_call){.inbox = inbox, .callback = listed, .arg = read});
}
