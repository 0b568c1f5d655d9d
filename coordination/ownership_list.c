#include "coordination/ownership_private.h"

#include "proto/base/err.h"

#include <stdio.h>
#include <stdlib.h>

/* Reads of one listing under way at a time. */
#define READS_MAX 128

struct list;

struct entry {
    struct list *list;
    int32_t partition;
    bool ours;
};

struct list {
    struct ownership *ownership;
    ownership_list_callback *callback;
    void *arg;
    struct path folder;
    int err;
    struct entry *entries;
    size_t count;
    size_t asked;
    size_t open;
};

static void list_end(struct list *list)
{
    struct ownership *ownership = list->ownership;
    int32_t *ours = malloc((list->count + 1) * sizeof *ours);
    size_t count = 0;
    int err = ours ? list->err : -BROOK_E_NOMEM;
    for (size_t i = 0; !err && i < list->count; i++)
        if (list->entries[i].ours)
            ours[count++] = list->entries[i].partition;
    if (!ownership->closed)
        list->callback(list->arg, err, ours, count);
    free(ours);
    free(list->entries);
    free(list);
    ownership_unref(ownership);
}

static void list_go_on(struct list *list);

static void on_entry(void *arg, const struct coordinator_reply *reply)
{
    struct entry *entry = arg;
    struct list *list = entry->list;
    entry->ours = !reply->err && reply->stat.ephemeral_owner == list->ownership->session_id;
    if (reply->err && reply->err != -BROOK_E_NO_NODE)
        list->err = reply->err;
    list->open--;
    list_go_on(list);
}

static void list_go_on(struct list *list)
{
    struct ownership *ownership = list->ownership;
    while (list->asked < list->count && list->open < READS_MAX && !list->err && !ownership->closed) {
        struct entry *entry = &list->entries[list->asked++];
        char path[PATH_BYTES_MAX + 16];
        snprintf(path, sizeof path, "%s/%d", list->folder.text, entry->partition);
        list->open++;
        coordinator_exists(ownership->coordinator, path, ownership_call(ownership, on_entry, entry));
    }
    if (list->open == 0)
        list_end(list);
}

static void on_children(void *arg, const struct coordinator_reply *reply)
{
    struct list *list = arg;
    size_t count = reply->err ? 0 : reply->children_count;
    if (reply->err && reply->err != -BROOK_E_NO_NODE)
        list->err = reply->err;
    list->entries = calloc(count + 1, sizeof *list->entries);
    if (!list->entries) {
        list->err = -BROOK_E_NOMEM;
        count = 0;
    }
    for (size_t i = 0; i < count; i++) {
        int32_t partition = path_partition_number(reply->children[i]);
        if (partition >= 0)
            list->entries[list->count++] = (struct entry){.list = list, .partition = partition};
    }
    list_go_on(list);
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
