/* What other threads send a loop. */
#include "broker/net/connection.h"
#include "broker/net/listener_counts.h"
#include "broker/net/loop.h"

#include <stdlib.h>
#include <unistd.h>

#define MS ((int64_t)1000000)

struct adoption {
    struct inbox_item item;
    struct io_loop *loop;
    int fd;
    struct sockaddr_storage address;
};

static void take_over(struct io_loop *loop, int fd, const struct sockaddr_storage *address)
{
    if (loop->face.is_stopping) {
        close(fd);
        listener_counts_remove(loop->counts, address);
    } else if (!connection_new(loop, fd, address)) {
        listener_counts_remove(loop->counts, address);
    }
}

static void adopt(struct inbox_item *item)
{
    struct adoption *a = CONTAINER_OF(item, struct adoption, item);
    loop_turn_begin(a->loop);
    take_over(a->loop, a->fd, &a->address);
    free(a);
}

void loop_adopt(struct io_loop *loop, int fd, const struct sockaddr_storage *address)
{
    struct adoption *a = malloc(sizeof *a);
    if (!a) {
        close(fd);
        listener_counts_remove(loop->counts, address);
        return;
    }
    *a = (struct adoption){.item.run = adopt, .loop = loop, .fd = fd, .address = *address};
    inbox_post(&loop->inbox, &a->item);
}

struct configuration {
    struct inbox_item item;
    struct io_loop *loop;
    struct net_settings settings;
};

static void configure(struct inbox_item *item)
{
    struct configuration *c = CONTAINER_OF(item, struct configuration, item);
    struct net_settings *s = &c->loop->settings;
    s->hello_ms_max = c->settings.hello_ms_max;
    s->idle_ms_max = c->settings.idle_ms_max;
    s->frame_ms_max = c->settings.frame_ms_max;
    s->send_ms_max = c->settings.send_ms_max;
    free(c);
}

void loop_configure(struct io_loop *loop, const struct net_settings *settings)
{
    struct configuration *c = malloc(sizeof *c);
    if (!c)
        return;
    *c = (struct configuration){.item.run = configure, .loop = loop, .settings = *settings};
    inbox_post(&loop->inbox, &c->item);
}

static void begin_stop(struct inbox_item *item)
{
    struct io_loop *loop = CONTAINER_OF(item, struct io_loop, stop_item);
    struct connection *c, *next;
    loop_turn_begin(loop);
    loop->face.is_stopping = true;
    loop->stop_at_ns = loop->face.now_ns + loop->settings.stop_ms_max * MS;
    for (c = TAILQ_FIRST(&loop->connections); c; c = next) {
        next = TAILQ_NEXT(c, in_connections);
        connection_close(c);
    }
}

void loop_stop(struct io_loop *loop)
{
    loop->stop_item.run = begin_stop;
    inbox_post(&loop->inbox, &loop->stop_item);
}

void loop_join(struct io_loop *loop)
{
    if (!loop->is_running)
        return;
    pthread_join(loop->thread, NULL);
    loop->is_running = false;
}
