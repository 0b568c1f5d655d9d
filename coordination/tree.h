/* Listing a whole subtree of ZooKeeper, for removing it.
 *
 * Lists level by level with a bounded number of calls under way. What comes or goes meanwhile may or may not
 * be in the answer: whoever deletes by it must be ready to list again. Threads: as of coordinator.h; the
 * callback runs on the thread that drains the inbox of the call.
 */
#ifndef BROOK_COORDINATION_TREE_H
#define BROOK_COORDINATION_TREE_H

#include "coordination/coordinator.h"

#define TREE_NODES_MAX 200000

/* `paths` are borrowed for the callback: children before their parents, the root last. `err`: 0;
 * -BROOK_E_NO_NODE (no such root); -BROOK_E_TOO_MANY; otherwise what a call answered, and nothing is listed.
 */
typedef void tree_callback(void *arg, int err, char *const *paths, size_t count);

/* Call from the thread that drains `inbox`. Exactly one answer. */
void tree_list(struct coordinator *coordinator, const char *root, struct inbox *inbox,
               tree_callback *callback, void *arg);
#endif
