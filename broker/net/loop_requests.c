/* Requests of a loop, and what the loop does for handlers. */
#include "broker/net/connection.h"
#include "broker/net/disk_threads.h"
#include "broker/net/loop.h"
#include "broker/partition/partition.h"

#include <stdlib.h>

/* Kept for reuse. */
#define FREE_REQUESTS_MAX 1024

static struct io_loop *loop_of(struct request_loop *face)
{
    return CONTAINER_OF(face, struct io_loop, face);
}

static struct connection *connection_of(struct request *r)
{
    return CONTAINER_OF(r->peer, struct connection, peer);
}

struct request *loop_request_new(struct io_loop *loop, struct request_peer *peer)
{
    if (deadlines_reserve(&loop->deadlines, loop->requests_count + 1) < 0)
        return NULL;
    struct request *r = loop->free_requests;
    if (r) {
        loop->free_requests = r->next;
        loop->free_requests_count--;
    } else if (!(r = malloc(sizeof *r))) {
        return NULL;
    }
    request_init(r, &loop->face, peer);
    struct connection *c = connection_of(r);
    r->next = c->requests;
    if (c->requests)
        c->requests->previous = r;
    c->requests = r;
    c->requests_count++;
    loop->requests_count++;
    loop->busy_ns = loop->face.now_ns;
    loop->is_trimmed = false;
    return r;
}

void loop_request_end(struct io_loop *loop, struct request *r)
{
    struct connection *c = connection_of(r);
    if (loop->current == r)
        loop->current = NULL;
    if (r->heap_index)
        deadlines_set(&loop->deadlines, r, 0);
    if (r->previous)
        r->previous->next = r->next;
    else
        c->requests = r->next;
    if (r->next)
        r->next->previous = r->previous;
    slab_unref(r->slab);
    request_done(r);
    if (loop->free_requests_count < FREE_REQUESTS_MAX) {
        r->next = loop->free_requests;
        loop->free_requests = r;
        loop->free_requests_count++;
    } else {
        free(r);
    }
    loop->requests_count--;
    connection_request_ended(c);
}

static void op_reply(struct request *r, Brook__Response *response, struct log_range *ranges,
                     size_t ranges_count)
{
    struct io_loop *loop = loop_of(r->loop);
    connection_reply(connection_of(r), response, ranges, ranges_count);
    loop_request_end(loop, r);
    arena_reset(loop->face.reply_arena);
}

static void op_end(struct request *r, const struct brook_error *close_because)
{
    struct io_loop *loop = loop_of(r->loop);
    struct connection *c = connection_of(r);
    if (close_because && c->state == CONNECTION_OPEN) {
        connection_complain(c, close_because->text);
        connection_close(c);
    }
    loop_request_end(loop, r);
    arena_reset(loop->face.reply_arena);
}

static void op_set_deadline(struct request *r, int64_t deadline_ns)
{
    deadlines_set(&loop_of(r->loop)->deadlines, r, deadline_ns);
}

static void op_touch(struct request_loop *face, struct partition *p)
{
    struct io_loop *loop = loop_of(face);
    size_t slot = ((uintptr_t)p >> 6) * 0x9e3779b1u % LOOP_TOUCHED_SLOTS;
    if (loop->touched_slots[slot] == p)
        return;
    if (loop->touched_count == loop->touched_capacity) {
        size_t capacity = loop->touched_capacity ? 2 * loop->touched_capacity : 64;
        struct partition **touched = realloc(loop->touched, capacity * sizeof(struct partition *));
        if (!touched) { /* what would be drained together is drained now */
            partition_drain(p, loop->face.inbox);
            return;
        }
        loop->touched = touched;
        loop->touched_capacity = capacity;
    }
    loop->touched[loop->touched_count++] = partition_ref(p);
    loop->touched_slots[slot] = p;
}

static void op_submit(struct request_loop *face, struct disk_work *work)
{
    work->inbox = face->inbox;
    disk_threads_submit(loop_of(face)->disk_threads, work);
}

const struct request_ops loop_request_ops = {op_reply, op_end, op_set_deadline, op_touch, op_submit};
