#include "proto/base/inbox.h"

#include "proto/base/err.h"

#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

int inbox_init(struct inbox *inbox)
{
    inbox->head = NULL;
    inbox->tail = &inbox->head;
    inbox->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (inbox->fd < 0)
        return -BROOK_E_IO;
    pthread_mutex_init(&inbox->lock, NULL);
    return 0;
}

void inbox_done(struct inbox *inbox)
{
    if (!inbox->tail || inbox->fd < 0)
        return;
    close(inbox->fd);
    inbox->fd = -1;
    pthread_mutex_destroy(&inbox->lock);
}

int inbox_fd(const struct inbox *inbox)
{
    return inbox->fd;
}

void inbox_post(struct inbox *inbox, struct inbox_item *item)
{
    item->next = NULL;
    pthread_mutex_lock(&inbox->lock);
    bool was_empty = inbox->head == NULL;
    *inbox->tail = item;
    inbox->tail = &item->next;
    /* Under the lock, so that the descriptor can not be closed by an owner who saw this item run. */
    if (was_empty)
        eventfd_write(inbox->fd, 1);
    pthread_mutex_unlock(&inbox->lock);
}

bool inbox_drain(struct inbox *inbox)
{
    eventfd_t count;
    pthread_mutex_lock(&inbox->lock);
    struct inbox_item *item = inbox->head;
    inbox->head = NULL;
    inbox->tail = &inbox->head;
    if (item)
        eventfd_read(inbox->fd, &count);
    pthread_mutex_unlock(&inbox->lock);

    bool any = item != NULL;
    while (item) {
        struct inbox_item *next = item->next;
        item->run(item);
        item = next;
    }
    return any;
}
