/* Znodes that make no sense: which, since when they are known, and why. Pure; one thread.
 *
 * Whoever reads a node that can not be used puts it here with the sentence why, and takes it out when it is as it should be
 * or gone. So it is said once, and again when the reason changes; others can be shown what is wrong, and what is
 * in here can be looked at more often than the rest.
 */
#ifndef BROOK_CLUSTER_UNREADABLE_H
#define BROOK_CLUSTER_UNREADABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UNREADABLE_MAX 1000 /* beyond it, nothing more is remembered */

struct unreadable_node {
    char *path;
    char *topic;       /* NULL: it is of no topic */
    int32_t partition; /* -1: of none */
    char *reason;
};
struct unreadable {
    struct unreadable_node *list; /* by path */
    size_t count;
};

void unreadable_done(struct unreadable *all);
/* Copies. True: it is to be said, as it was not known, or for another reason. (Without memory: false.) */
bool unreadable_put(struct unreadable *all, const char *path, const char *topic, int32_t partition, const char *reason);
/* True: it was in here. */
bool unreadable_clear(struct unreadable *all, const char *path);
/* The topic is gone, and all its nodes with it; returns how many there were. */
size_t unreadable_forget_topic(struct unreadable *all, const char *topic);
/* Of the nodes directly beneath `parent`, those that are not among its children are gone; returns how many. */
size_t unreadable_keep_children(struct unreadable *all, const char *parent, const char *const *children, size_t count);
/* NULL: it is not in here. Borrowed until the next change. */
const struct unreadable_node *unreadable_find(const struct unreadable *all, const char *path);
/* Whether the topic's own node is in here: what is known of it is all that is to be had. */
bool unreadable_has_topic(const struct unreadable *all, const char *topic);
#endif
