#include "coordination/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTS_IN_FLIGHT_MAX 64

struct tree {
    struct coordinator *coordinator;
    struct inbox *inbox;
    tree_callback *callback;
    void *arg;
    char **paths; /* parents before children while listing */
    size_t count;
    size_t capacity;
    size_t next; /* the first that was not listed yet */
    unsigned in_flight;
    int err;
};

struct tree_call {
    struct tree *tree;
    char path[];
};

static int add(struct tree *t, const char *parent, const char *child)
{
    if (t->count >= TREE_NODES_MAX)
        return -BROOK_E_TOO_MANY;
    if (t->count == t->capacity) {
        size_t capacity = t->capacity ? 2 * t->capacity : 64;
        char **paths = realloc(t->paths, capacity * sizeof *paths);
        if (!paths)
            return -BROOK_E_NOMEM;
        t->paths = paths;
        t->capacity = capacity;
    }
    size_t bytes = strlen(parent) + 1 + strlen(child) + 1;
    char *path = malloc(bytes);
    if (!path)
        return -BROOK_E_NOMEM;
    snprintf(path, bytes, *child ? "%s/%s" : "%s%s", parent, child);
    t->paths[t->count++] = path;
    return 0;
}

static void finish(struct tree *t)
{
    for (size_t i = 0; i < t->count / 2; i++) {
        char *path = t->paths[i];
        t->paths[i] = t->paths[t->count - 1 - i];
        t->paths[t->count - 1 - i] = path;
    }
    t->callback(t->arg, t->err, t->err ? NULL : t->paths, t->err ? 0 : t->count);
    for (size_t i = 0; i < t->count; i++)
        free(t->paths[i]);
    free(t->paths);
    free(t);
}

static void list_more(struct tree *t);

static void listed(void *arg, const struct coordinator_reply *reply)
{
    struct tree_call *call = arg;
    struct tree *t = call->tree;
    t->in_flight--;
    /* One that has gone has no children; only the root's absence is an answer. */
    bool is_root = t->count == 1 && t->next == 1;
    if (reply->err && (reply->err != -BROOK_E_NO_NODE || is_root) && !t->err)
        t->err = reply->err;
    for (size_t i = 0; !reply->err && !t->err && i < reply->children_count; i++)
        t->err = add(t, call->path, reply->children[i]);
    free(call);
    list_more(t);
}

static void list_more(struct tree *t)
{
    while (!t->err && t->next < t->count && t->in_flight < LISTS_IN_FLIGHT_MAX) {
        const char *path = t->paths[t->next++];
        struct tree_call *call = malloc(sizeof *call + strlen(path) + 1);
        if (!call) {
            t->err = -BROOK_E_NOMEM;
            break;
        }
        call->tree = t;
        memcpy(call->path, path, strlen(path) + 1);
        t->in_flight++;
        coordinator_children(t->coordinator, path,
                             (struct coordinator_call){.inbox = t->inbox, .callback = listed, .arg = call});
    }
    if (!t->in_flight)
        finish(t);
}

void tree_list(struct coordinator *coordinator, const char *root, struct inbox *inbox,
               tree_callback *callback, void *arg)
{
    struct tree *t = calloc(1, sizeof *t);
    if (!t || (t->err = add(t, root, "")) != 0) {
        free(t ? t->paths : NULL);
        free(t);
        callback(arg, -BROOK_E_NOMEM, NULL, 0);
        return;
    }
    t->coordinator = coordinator;
    t->inbox = inbox;
    t->callback = callback;
    t->arg = arg;
    list_more(t);
}
