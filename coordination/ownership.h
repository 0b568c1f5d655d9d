/* The ownership registry of one group, as one member uses it: claim, release, verify, watch.
 *
 * A partition's ephemeral owner node is the lock to read it; its offset node's version is the token to
 * commit.
 *
 *     claim    read the offset node (made empty if missing), then
 *              multi { create owner node (ephemeral), set offset node to the value and version read }
 *              When the owner node is this session's already (an answer was lost, or the session was taken
 *              up again): multi { set owner node, set offset node }, so that older tokens are void.
 *     release  delete the owner node, on the session that made it only.
 *     verify   sync, read the offset node, then look whose the owner node is: if ours, so is the version.
 *
 * Position and version come from the answer of the multi and from nowhere else. A lost answer is followed up
 * inside (sync, read again) as long as the session lives. What this does not know: who should own what,
 * drains, commits. Loop thread: all calls, and all callbacks come through `inbox`.
 */
#ifndef BROOK_COORDINATION_OWNERSHIP_H
#define BROOK_COORDINATION_OWNERSHIP_H

#include "proto/base/inbox.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct coordinator;
struct ownership;
struct ownership_watch;

struct ownership_reply {
    /* As they were passed. */
    uint64_t tag;
    const char *topic;
    int32_t partition;
    /* claim: 0; -BROOK_E_NODE_EXISTS (somebody else's: watch it); else it is not claimed now, try again:
     * -BROOK_E_SESSION_EXPIRED, _COORDINATION_LOST, _OUTCOME_UNKNOWN (perhaps claimed), _CLOSED, ...
     * release: 0 also when it was gone or somebody else's. verify: 0 or could not find out. */
    int err;
    int64_t offset;  /* claim, verify: next offset to read, -1: none stored */
    int32_t version; /* claim, verify: of the offset node */
    bool ours;       /* verify: the owner node is this session's */
};
typedef void ownership_callback(void *arg, const struct ownership_reply *reply);

/* `group` and `member` are copied; calls are carried out in session `generation` only. Returns 0 or
 * -BROOK_E_NOMEM. */
int ownership_new(struct coordinator *coordinator, struct inbox *inbox, const char *group, const char *member,
                  uint64_t generation, struct ownership **ret_ownership);
/* Callbacks stop at once; requests under way are left to their fate (nodes made stay). NULL is fine. */
void ownership_free(struct ownership *ownership);

/* Each calls back exactly once, unless ownership_free() comes first; from inside the call only without memory
 * (-BROOK_E_NOMEM). `topic` is borrowed until then; `tag` comes back with the reply. */
void ownership_claim(struct ownership *ownership, const char *topic, int32_t partition, uint64_t tag,
                     ownership_callback *callback, void *arg);
void ownership_release(struct ownership *ownership, const char *topic, int32_t partition, uint64_t tag,
                       ownership_callback *callback, void *arg);
void ownership_verify(struct ownership *ownership, const char *topic, int32_t partition, uint64_t tag,
                      ownership_callback *callback, void *arg);

/* Follow an owner node: called with what is, again and again, until freed. NULL: no memory, or no room for
 * another watch. */
typedef void ownership_watch_callback(void *arg, bool exists, bool ours);
struct ownership_watch *ownership_watch_new(struct ownership *ownership, const char *topic, int32_t partition,
                                            ownership_watch_callback *callback, void *arg);
void ownership_watch_free(struct ownership_watch *watch);

/* Which partitions of a topic have an owner node of this session (after a session was taken up again). Reads
 * every owner node of the topic. */
typedef void ownership_list_callback(void *arg, int err, const int32_t *partitions, size_t count);
void ownership_list(struct ownership *ownership, const char *topic, ownership_list_callback *callback,
                    void *arg);
#endif
