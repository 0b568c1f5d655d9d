#include "broker/cluster/unreadable.h"

#include "coordination/paths.h"

#include <stdlib.h>
#include <string.h>

static void node_done(struct unreadable_node *node)
{
    free(node->path);
    free(node->topic);
    free(node->reason);
}

void unreadable_done(struct unreadable *all)
{
    for (size_t i = 0; i < all->count; i++)
        node_done(&all->list[i]);
    free(all->list);
    *all = (struct unreadable){0};
}

/* Where the path is, or would be. */
static size_t place_of(const struct unreadable *all, const char *path, bool *ret_is_there)
{
    size_t low = 0, high = all->count;
    *ret_is_there = false;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(all->list[middle].path, path);
        if (order == 0) {
            *ret_is_there = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool change_reason(struct unreadable_node *node, const char *reason)
{
    char *copy = strcmp(node->reason, reason) != 0 ? strdup(reason) : NULL;
    if (!copy)
        return false;
    free(node->reason);
    node->reason = copy;
    return true;
}

bool unreadable_put(struct unreadable *all, const char *path, const char *topic, int32_t partition, const char *reason)
{
    bool is_there;
    size_t at = place_of(all, path, &is_there);
    if (is_there)
        return change_reason(&all->list[at], reason);
    if (all->count == UNREADABLE_MAX)
        return false;
    struct unreadable_node *list = realloc(all->list, (all->count + 1) * sizeof *list);
    if (!list)
        return false;
    all->list = list;
    struct unreadable_node node = {strdup(path), topic ? strdup(topic) : NULL, partition, strdup(reason)};
    if (!node.path || !node.reason || (topic && !node.topic)) {
        node_done(&node);
        return false;
    }
    memmove(list + at + 1, list + at, (all->count - at) * sizeof *list);
    list[at] = node;
    all->count++;
    return true;
}

static void remove_at(struct unreadable *all, size_t at)
{
    node_done(&all->list[at]);
    all->count--;
    memmove(all->list + at, all->list + at + 1, (all->count - at) * sizeof *all->list);
}

bool unreadable_clear(struct unreadable *all, const char *path)
{
    bool is_there;
    size_t at = place_of(all, path, &is_there);
    if (is_there)
        remove_at(all, at);
    return is_there;
}

size_t unreadable_forget_topic(struct unreadable *all, const char *topic)
{
    size_t before = all->count;
    for (size_t i = all->count; i-- > 0;)
        if (all->list[i].topic && !strcmp(all->list[i].topic, topic))
            remove_at(all, i);
    return before - all->count;
}

static bool is_child(const char *path, const char *parent, const char *const *children, size_t count, bool *ret_is_there)
{
    size_t bytes = strlen(parent);
    if (strncmp(path, parent, bytes) != 0 || path[bytes] != '/' || strchr(path + bytes + 1, '/'))
        return false;
    *ret_is_there = false;
    for (size_t i = 0; i < count && !*ret_is_there; i++)
        *ret_is_there = !strcmp(path + bytes + 1, children[i]);
    return true;
}

size_t unreadable_keep_children(struct unreadable *all, const char *parent, const char *const *children, size_t count)
{
    size_t before = all->count;
    bool is_there;
    for (size_t i = all->count; i-- > 0;)
        if (is_child(all->list[i].path, parent, children, count, &is_there) && !is_there)
            remove_at(all, i);
    return before - all->count;
}

const struct unreadable_node *unreadable_find(const struct unreadable *all, const char *path)
{
    bool is_there;
    size_t at = place_of(all, path, &is_there);
    return is_there ? &all->list[at] : NULL;
}

bool unreadable_has_topic(const struct unreadable *all, const char *topic)
{
    struct path path;
    return all->count && unreadable_find(all, path_topic(&path, topic));
}
