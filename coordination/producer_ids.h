/* Producer ids, unique in the cluster: taken from ZooKeeper a block at a time, given out one by one.
 *
 * `/latest_producer_id_block` names the block that was taken last; the next one is taken by a conditional write. When
 * the outcome of that is not known the node is read again and a new block behind it is taken: an id may be left out, and
 * is never given twice. The first block is taken before anybody asks (producer_ids_prepare()), and the next one when
 * PRODUCER_IDS_LOW are left: so there are at least that many to be given out while ZooKeeper is away. A block is kept in
 * memory only; what a process had left when it ended is nobody's. All of it on the thread that drains `inbox`, where the
 * answers come, too.
 */
#ifndef BROOK_COORDINATION_PRODUCER_IDS_H
#define BROOK_COORDINATION_PRODUCER_IDS_H

#include "proto/base/inbox.h"

#include <stdint.h>

struct coordinator;
struct producer_ids;

#define PRODUCER_IDS_PER_BLOCK 1000
#define PRODUCER_IDS_LOW 100          /* left: the next block is taken */
#define PRODUCER_IDS_WAITING_MAX 10000 /* callers: beyond it -BROOK_E_BUSY */

/* Both are borrowed for the object's life. Returns 0 or -BROOK_E_NOMEM. */
int producer_ids_new(struct coordinator *coordinator, struct inbox *inbox, int32_t broker_id,
                     struct producer_ids **ret_ids);
/* After coordinator_free() and a last look into the inbox: nothing is called any more, who waits is forgotten. NULL is
 * fine. */
void producer_ids_free(struct producer_ids *ids);

/* Begin to take a block if no more than PRODUCER_IDS_LOW ids are left. To be called when there is a session, and now and
 * then: when it fails nothing is tried again before the next call, or the next id that is taken. */
void producer_ids_prepare(struct producer_ids *ids);

/* `err`: 0, or -BROOK_E_COORDINATION_LOST and the like, -BROOK_E_BAD_ZNODE, -BROOK_E_BUSY, -BROOK_E_NOMEM. */
typedef void producer_id_callback(void *arg, int err, int64_t producer_id);
/* Called once, perhaps from inside this. */
void producer_ids_take(struct producer_ids *ids, producer_id_callback *callback, void *arg);
#endif
