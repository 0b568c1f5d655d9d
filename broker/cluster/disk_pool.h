/* Disk threads of the cluster thread: opening, recovering, retaining, closing and removing logs, off every
 * loop.
 *
 * Jobs are embedded in what they are about, run in the order submitted by whichever thread is free, and are
 * handed back through the inbox. Nothing is dropped: disk_pool_free() runs what is queued first. Any thread
 * may submit; `done` runs on the thread that drains the inbox.
 */
#ifndef BROOK_CLUSTER_DISK_POOL_H
#define BROOK_CLUSTER_DISK_POOL_H

#include "proto/base/inbox.h"

struct disk_pool;

struct disk_job {
    void (*run)(struct disk_job *job);  /* on a disk thread */
    void (*done)(struct disk_job *job); /* on the inbox's thread; may free or submit again */
    /* the pool's */
    struct disk_pool *pool;
    struct disk_job *next;
    struct inbox_item item;
};

/* Start `threads` (at least one) threads. Returns 0, -BROOK_E_NOMEM or -BROOK_E_IO. */
int disk_pool_new(int threads, struct inbox *inbox, struct disk_pool **ret_pool);
/* Run all that is queued, then join the threads. The last `done` items are in the inbox then. NULL is fine.
 */
void disk_pool_free(struct disk_pool *pool);
void disk_pool_submit(struct disk_pool *pool, struct disk_job *job);
#endif
