/* New producer ids for handlers: the cluster thread keeps the block (coordination/producer_ids.h). */
#include "broker/cluster/cluster_internal.h"

#include <stdlib.h>

/* Goes to the cluster thread and comes back. */
struct id_wish {
    struct inbox_item item;
    struct cluster *cluster;
    struct inbox *inbox;
    cluster_producer_id_callback *callback;
    void *arg;
    int err;
    int64_t producer_id;
};

static void deliver(struct inbox_item *item)
{
    struct id_wish wish = *CONTAINER_OF(item, struct id_wish, item);
    free(CONTAINER_OF(item, struct id_wish, item));
    wish.callback(wish.arg, wish.err, wish.producer_id);
}

static void answer(void *arg, int err, int64_t producer_id)
{
    struct id_wish *wish = arg;
    wish->err = err;
    wish->producer_id = producer_id;
    wish->item.run = deliver;
    inbox_post(wish->inbox, &wish->item);
}

static void carry_out(struct inbox_item *item)
{
    struct id_wish *wish = CONTAINER_OF(item, struct id_wish, item);
    struct cluster *c = wish->cluster;
    if (c->is_stopping || c->has_failed)
        answer(wish, -BROOK_E_STOPPING, -1);
    else
        producer_ids_take(c->producer_ids, answer, wish);
}

int cluster_new_producer_id(struct cluster *c, struct inbox *inbox, cluster_producer_id_callback *callback,
                            void *arg)
{
    struct id_wish *wish = calloc(1, sizeof *wish);
    if (!wish)
        return -BROOK_E_NOMEM;
    *wish = (struct id_wish){
        .item.run = carry_out, .cluster = c, .inbox = inbox, .callback = callback, .arg = arg};
    inbox_post(&c->inbox, &wish->item);
    return 0;
}
