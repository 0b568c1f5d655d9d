#include "coordination/offsets_private.h"

#include "proto/base/err.h"
#include "proto/base/names.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct offsets_slot {
    UT_hash_handle hh;
    struct offsets_list waiting; /* behind the write that owns the slot */
    char key[];                  /* "group/topic/partition" */
};

void offsets_list_init(struct offsets_list *list)
{
    list->head = NULL;
    list->tail = &list->head;
}

void offsets_list_push(struct offsets_list *list, struct offsets_write *write)
{
    write->next = NULL;
    *list->tail = write;
    list->tail = &write->next;
}

struct offsets_write *offsets_list_pop(struct offsets_list *list)
{
    struct offsets_write *write = list->head;
    if (write) {
        list->head = write->next;
        if (!list->head)
            list->tail = &list->head;
    }
    return write;
}

int offsets_new(struct coordinator *coordinator, struct inbox *inbox, struct offsets **ret_offsets)
{
    struct offsets *offsets = calloc(1, sizeof *offsets);
    if (!offsets)
        return -BROOK_E_NOMEM;
    offsets->coordinator = coordinator;
    offsets->inbox = inbox;
    offsets->refs = 1;
    offsets_list_init(&offsets->ready);
    *ret_offsets = offsets;
    return 0;
}

void offsets_ref(struct offsets *offsets)
{
    atomic_fetch_add(&offsets->refs, 1);
}

void offsets_unref(struct offsets *offsets)
{
    if (atomic_fetch_sub(&offsets->refs, 1) == 1)
        free(offsets);
}

void offsets_free(struct offsets *offsets)
{
    if (!offsets)
        return;
    offsets->closed = true;
    struct offsets_write *write;
    /* Ending a write makes the next one of its partition ready. */
    while ((write = offsets_list_pop(&offsets->ready)) != NULL)
        offsets_write_end(write, -BROOK_E_CLOSED, -1);
    offsets_unref(offsets);
}

/* ---- slots: one write per partition under way --------------------------------------------------------- */

static struct offsets_slot *slot_get(struct offsets *offsets, const struct offsets_commit *commit,
                                     const struct offsets_entry *entry, bool *ret_made)
{
    char key[GROUP_NAME_BYTES_MAX + TOPIC_NAME_BYTES_MAX + 16];
    size_t bytes =
        (size_t)snprintf(key, sizeof key, "%s/%s/%d", commit->group, entry->topic, entry->partition);
    struct offsets_slot *slot = NULL;
    HASH_FIND(hh, offsets->slots, key, bytes, slot);
    *ret_made = !slot;
    if (slot)
        return slot;
    slot = calloc(1, sizeof *slot + bytes + 1);
    if (!slot)
        return NULL;
    memcpy(slot->key, key, bytes + 1);
    offsets_list_init(&slot->waiting);
    HASH_ADD_KEYPTR(hh, offsets->slots, slot->key, bytes, slot);
    if (!slot->hh.tbl) {
        free(slot);
        return NULL;
    }
    return slot;
}

static void slot_pass_on(struct offsets *offsets, struct offsets_slot *slot)
{
    struct offsets_write *next = offsets_list_pop(&slot->waiting);
    if (next) {
        offsets_list_push(&offsets->ready, next);
        return;
    }
    HASH_DEL(offsets->slots, slot);
    free(slot);
}

/* ---- commits ------------------------------------------------------------------------------------------ */

static void commit_reply(struct inbox_item *item)
{
    struct offsets_commit *commit = CONTAINER_OF(item, struct offsets_commit, item);
    struct offsets_commit_reply reply = {commit->results, commit->count};
    commit->callback(commit->arg, &reply);
    free(commit);
}

static void commit_end(struct offsets_commit *commit)
{
    struct offsets *offsets = commit->offsets;
    atomic_fetch_sub(&offsets->waiting, commit->count);
    commit->item.run = commit_reply;
    inbox_post(commit->inbox, &commit->item);
    offsets_unref(offsets);
}

void offsets_write_end(struct offsets_write *write, int err, int32_t version)
{
    struct offsets_commit *commit = write->commit;
    struct offsets_slot *slot = write->slot;
    struct offsets_result *result = &commit->results[write - commit->writes];
    result->err = err;
    result->version = err ? -1 : version;
    if (slot)
        slot_pass_on(commit->offsets, slot);
    if (--commit->open == 0)
        commit_end(commit);
}

static int write_check(const struct offsets_write *write)
{
    const struct offsets_entry *entry = &write->entry;
    if (!name_is_legal_topic(entry->topic, strlen(entry->topic)))
        return -BROOK_E_ILLEGAL_NAME;
    if (entry->partition < 0 || entry->offset < -1 || (write->commit->member && entry->expected_version < 0))
        return -BROOK_E_INVALID;
    return 0;
}

static void write_start(struct offsets *offsets, struct offsets_write *write)
{
    bool made = false;
    int err = offsets->closed ? -BROOK_E_CLOSED : write_check(write);
    if (!err) {
        write->slot = slot_get(offsets, write->commit, &write->entry, &made);
        err = write->slot ? 0 : -BROOK_E_NOMEM;
    }
    if (err)
        offsets_write_end(write, err, -1);
    else
        offsets_list_push(made ? &offsets->ready : &write->slot->waiting, write);
}

static void commit_start(struct inbox_item *item)
{
    struct offsets_commit *commit = CONTAINER_OF(item, struct offsets_commit, item);
    struct offsets *offsets = commit->offsets;
    size_t count = commit->count;
    offsets_ref(offsets);
    /* The last one that fails at once ends the commit: it must not be touched after that. */
    for (size_t i = 0; i < count; i++)
        write_start(offsets, &commit->writes[i]);
    offsets_pump(offsets);
    offsets_unref(offsets);
}

/* One block: the commit, its writes and results, and all strings. */
static struct offsets_commit *commit_new(const char *group, const char *member,
                                         const struct offsets_entry *entries, size_t count)
{
    size_t text = strlen(group) + 1 + (member ? strlen(member) + 1 : 0);
    for (size_t i = 0; i < count; i++)
        text += strlen(entries[i].topic) + 1;
    struct offsets_commit *commit = malloc(sizeof *commit + count * sizeof *commit->writes +
                                           count * sizeof *commit->results + text);
    if (!commit)
        return NULL;
    *commit = (struct offsets_commit){.count = count, .open = count};
    commit->writes = (struct offsets_write *)(void *)(commit + 1);
    commit->results = (struct offsets_result *)(void *)(commit->writes + count);
    char *at = (char *)(commit->results + count);
    commit->group = at;
    at = stpcpy(at, group) + 1;
    if (member) {
        commit->member = at;
        at = stpcpy(at, member) + 1;
    }
    for (size_t i = 0; i < count; i++) {
        commit->writes[i] = (struct offsets_write){.commit = commit, .entry = entries[i]};
        commit->writes[i].entry.topic = at;
        at = stpcpy(at, entries[i].topic) + 1;
    }
    return commit;
}

int offsets_commit(struct offsets *offsets, const char *group, const char *member,
                   const struct offsets_entry *entries, size_t count, struct inbox *inbox,
                   offsets_commit_callback *callback, void *arg)
{
    if (count == 0)
        return -BROOK_E_INVALID;
    if (count > OFFSETS_ENTRIES_MAX)
        return -BROOK_E_TOO_MANY;
    if (!name_is_legal_group(group, strlen(group)) ||
        (member && !name_is_legal_member(member, strlen(member))))
        return -BROOK_E_ILLEGAL_NAME;
    if (atomic_fetch_add(&offsets->waiting, count) + count > OFFSETS_WAITING_MAX) {
        atomic_fetch_sub(&offsets->waiting, count);
        return -BROOK_E_BUSY;
    }
    struct offsets_commit *commit = commit_new(group, member, entries, count);
    if (!commit) {
        atomic_fetch_sub(&offsets->waiting, count);
        return -BROOK_E_NOMEM;
    }
    commit->offsets = offsets;
    commit->inbox = inbox;
    commit->callback = callback;
    commit->arg = arg;
    commit->item.run = commit_start;
    offsets_ref(offsets);
    inbox_post(offsets->inbox, &commit->item);
    return 0;
}
