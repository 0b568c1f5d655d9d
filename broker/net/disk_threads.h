/* A few threads for work of handlers that may wait for a disk (lookups by time, cold pulls): first come,
 * first served. Done work is posted back to the inbox named in it. Submitting: any thread.
 */
#ifndef BROOK_NET_DISK_THREADS_H
#define BROOK_NET_DISK_THREADS_H

#include "broker/handlers/request.h"

struct disk_threads;

/* Returns 0, -BROOK_E_NOMEM or -BROOK_E_IO (no thread). */
int disk_threads_new(int count, struct disk_threads **ret_threads);
/* Finish what was submitted, then join. NULL is fine. */
void disk_threads_free(struct disk_threads *threads);
void disk_threads_submit(struct disk_threads *threads, struct disk_work *work);
#endif
