#include "coordination/ownership_private.h"
#include "coordination/reads.h"

#include "proto/base/err.h"

#include <stdio.h>
#include <stdlib.h>

struct list {
    struct ownership *ownership;
    ownership_list_callback *callback;
    void *arg;
    struct path folder;
    int32_t *partitions; /* that have an owner node */
    size_t count;
    int32_t *ours;
    size_t ours_count;
};

static void list_end(void *arg, int err)
{
    struct list *list = arg;
    struct ownership *ownership = list->ownership;
    if (!ownership->closed)
        list->callback(list->arg, err, list->ours, err ? 0 : list->ours_count);
    free(list->partitions);
    free(list->ours);
    free(list);
    ownership_unref(ownership);
}

static void owner_path(void *arg, size_t item, struct path *path)
{
    struct list *list = arg;
    /* Both parts fit: the folder was made by the same rule. */
    snprintf(path->text, sizeof path->text, "%.*s/%d", (int)sizeof path->text - 16, list->folder.text,
             list->partitions[item]);
}

static int on_owner(void *arg, size_t item, const struct coordinator_reply *reply)
{
    struct list *list = arg;
    if (list->ownership->closed)
        return -BROOK_E_CLOSED;
    if (!reply->err && reply->stat.ephemeral_owner == list->ownership->session_id)
        list->ours[list->ours_count++] = list->partitions[item];
    return reply->err == -BROOK_E_NO_NODE ? 0 : reply->err;
}

static int take_partitions(struct list *list, const struct coordinator_reply *reply)
{
    size_t count = reply->err ? 0 : reply->children_count;
    list->partitions = calloc(count + 1, sizeof *list->partitions);
    list->ours = calloc(count + 1, sizeof *list->ours);
    if (!list->partitions || !list->ours)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        int32_t partition = path_partition_number(reply->children[i]);
        if (partition >= 0)
            list->partitions[list->count++] = partition;
    }
    return reply->err == -BROOK_E_NO_NODE ? 0 : reply->err;
}

static void on_children(void *arg, const struct coordinator_reply *reply)
{
    struct list *list = arg;
    int err = take_partitions(list, reply);
    struct reads_plan plan = {.coordinator = list->ownership->coordinator,
                              .inbox = list->ownership->inbox,
                              .kind = READS_EXISTS,
                              .count = list->count,
                              .path = owner_path,
                              .answer = on_owner,
                              .end = list_end,
                              .arg = list};
    if (!err)
        err = reads_start(&plan);
    if (err)
        list_end(list, err);
}

void ownership_list(struct ownership *ownership, const char *topic, ownership_list_callback *callback,
                    void *arg)
{
    struct list *list = calloc(1, sizeof *list);
    if (!list) {
        callback(arg, -BROOK_E_NOMEM, NULL, 0);
        return;
    }
    *list = (struct list){.ownership = ownership, .callback = callback, .arg = arg};
    path_group_owners(&list->folder, ownership->group, topic);
    ownership_ref(ownership);
    coordinator_children(ownership->coordinator, list->folder.text,
                         ownership_call(ownership, on_children, list));
}
