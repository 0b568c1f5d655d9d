/* Inside of the offset registry: shared by offsets*.c only. Everything here but the commit's reply lives on
 * the thread that drains offsets->inbox.
 *
 *     commit --has--> writes --each waits in or owns--> slot (one per partition in use)
 *                       '--ready--> batch (one multi under way)
 */
#ifndef BROOK_COORDINATION_OFFSETS_PRIVATE_H
#define BROOK_COORDINATION_OFFSETS_PRIVATE_H

#include "coordination/offsets.h"

#include <stdatomic.h>

/* Multis under way at a time: the rest waits, and is batched the better for it. */
#define OFFSETS_BATCHES_MAX 64

struct offsets_write;
struct offsets_slot;

struct offsets_list {
    struct offsets_write *head;
    struct offsets_write **tail;
};

struct offsets {
    struct coordinator *coordinator;
    struct inbox *inbox;
    _Atomic size_t waiting; /* entries accepted and not answered */
    _Atomic unsigned refs;  /* the owner, and each commit and fetch on its way */
    bool closed;
    struct offsets_slot *slots; /* uthash */
    struct offsets_list ready;  /* own their slots, wait for a batch */
    unsigned batches;
};

struct offsets_commit {
    struct inbox_item item; /* on its way in, later on its way out */
    struct offsets *offsets;
    struct inbox *inbox;
    offsets_commit_callback *callback;
    void *arg;
    char *group;
    char *member; /* NULL: a simple consumer */
    size_t count;
    size_t open; /* writes without a result */
    struct offsets_write *writes;
    struct offsets_result *results;
};

struct offsets_write {
    struct offsets_write *next;
    struct offsets_commit *commit;
    struct offsets_slot *slot;
    struct offsets_entry entry;
    bool alone;         /* was in a multi that was refused, or had to make its nodes first */
    unsigned path_tries; /* how often its nodes were made */
};

void offsets_ref(struct offsets *offsets);
void offsets_unref(struct offsets *offsets);

void offsets_list_init(struct offsets_list *list);
void offsets_list_push(struct offsets_list *list, struct offsets_write *write);
struct offsets_write *offsets_list_pop(struct offsets_list *list); /* NULL: empty */

/* Give the write its result, hand its slot to the next in line, answer the commit if this was its last. */
void offsets_write_end(struct offsets_write *write, int err, int32_t version);
/* Send what is ready, as far as OFFSETS_BATCHES_MAX allows. */
void offsets_pump(struct offsets *offsets);
#endif
