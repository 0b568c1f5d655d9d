/* An inbox: how one thread hands work to the loop of another.
 *
 * Mutex, list with embedded nodes, eventfd. Posting allocates nothing and can not fail. The eventfd is
 * written only when the inbox was empty, so a burst costs one wake-up. Items run in the order posted, on the
 * thread that drains, outside the lock; an item may be freed or posted again from its own run function.
 * An inbox must outlive everybody who may post to it: join the threads first.
 */
#ifndef BROOK_BASE_INBOX_H
#define BROOK_BASE_INBOX_H

#include <pthread.h>
#include <stdbool.h>

struct inbox_item {
    struct inbox_item *next;
    void (*run)(struct inbox_item *item);
};

struct inbox {
    pthread_mutex_t lock;
    struct inbox_item *head;
    struct inbox_item **tail;
    int fd;
};

/* Returns 0 or -BROOK_E_IO (no descriptor left). */
int inbox_init(struct inbox *inbox);
/* Drops what is queued without running it. Safe on a zeroed inbox whose init failed. */
void inbox_done(struct inbox *inbox);
/* Readable while something is queued. Owned by the inbox. */
int inbox_fd(const struct inbox *inbox);
/* Any thread. `item` belongs to the inbox until its run function is called. */
void inbox_post(struct inbox *inbox, struct inbox_item *item);
/* Owner thread only: run all that was queued at the call. Returns whether anything ran. */
bool inbox_drain(struct inbox *inbox);

/* The structure of `type` that embeds `pointer` as `member`. */
#define CONTAINER_OF(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))
#endif
