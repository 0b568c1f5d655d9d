#include "coordination/request.h"

#include "coordination/multi.h"
#include "coordination/session.h"
#include "proto/base/clock.h"
#include "proto/base/cleanup.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- answers ------------------------------------------------------------------------------------------- */

void *must_calloc(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory)
        abort();
    return memory;
}

struct answer *answer_new(struct coordinator_call call)
{
    struct answer *a = must_calloc(sizeof *a);
    a->call = call;
    return a;
}

void answer_free(struct answer *a)
{
    if (!a)
        return;
    free(a->path);
    free(a->data);
    free(a->children);
    free(a->op_stats);
    free(a);
}

static void run_callback(struct inbox_item *item)
{
    struct answer *a = CONTAINER_OF(item, struct answer, item);
    a->call.callback(a->call.arg, &a->reply);
    answer_free(a);
}

void answer_post(struct answer *a)
{
    if (!a->call.callback || !a->call.inbox) {
        answer_free(a);
        return;
    }
    a->item.run = run_callback;
    inbox_post(a->call.inbox, &a->item);
}

void answer_copy_data(struct answer *a, const char *data, size_t bytes)
{
    free(a->data);
    a->data = malloc(bytes + 1);
    if (!a->data) {
        a->reply.err = -BROOK_E_NOMEM;
        return;
    }
    if (bytes)
        memcpy(a->data, data, bytes);
    a->data[bytes] = '\0';
    a->reply.data = a->data;
    a->reply.data_bytes = bytes;
}

void answer_copy_children(struct answer *a, char *const *names, size_t count)
{
    size_t bytes = count * sizeof(char *) + 1;
    for (size_t i = 0; i < count; i++)
        bytes += strlen(names[i]) + 1;
    free(a->children);
    a->children = malloc(bytes);
    if (!a->children) {
        a->reply.err = -BROOK_E_NOMEM;
        return;
    }
    char *at = (char *)(a->children + count);
    for (size_t i = 0; i < count; i++) {
        a->children[i] = at;
        at = stpcpy(at, names[i]) + 1;
    }
    a->reply.children = (const char *const *)a->children;
    a->reply.children_count = count;
}

void answer_take(struct answer *to, struct answer *from)
{
    free(to->path);
    free(to->data);
    free(to->children);
    free(to->op_stats);
    to->reply = from->reply;
    to->path = TAKE(from->path);
    to->data = TAKE(from->data);
    to->children = TAKE(from->children);
    to->op_stats = TAKE(from->op_stats);
    memset(&from->reply, 0, sizeof from->reply);
}

/* ---- requests ------------------------------------------------------------------------------------------ */

struct request *request_new(struct coordinator *c, enum request_op op, char *path,
                            struct coordinator_call call)
{
    struct request *r = must_calloc(sizeof *r);
    r->coordinator = c;
    r->op = op;
    r->path = path;
    r->version = -1;
    r->urgent = call.urgent;
    r->generation_wanted = call.generation;
    r->accepted_ms = clock_boot_ms();
    r->answer = answer_new(call);
    return r;
}

void request_free(struct request *r)
{
    if (!r)
        return;
    free(r->path);
    free(r->data);
    coordinator_multi_free(r->multi);
    answer_free(r->answer);
    free(r);
}

int request_copy_data(struct request *r, const void *data, size_t bytes)
{
    r->data = malloc(bytes + 1);
    if (!r->data)
        return -BROOK_E_NOMEM;
    if (bytes)
        memcpy(r->data, data, bytes);
    r->data_bytes = bytes;
    return 0;
}

size_t request_bytes(const struct request *r)
{
    size_t chroot = strlen(r->coordinator->servers.chroot);
    if (r->op == OP_MULTI)
        return MULTI_OVERHEAD_BYTES + coordinator_multi_bytes(r->multi) +
               coordinator_multi_count(r->multi) * chroot;
    return MULTI_OVERHEAD_BYTES + strlen(r->path) + r->data_bytes;
}

bool request_is_read(const struct request *r)
{
    return r->op == OP_GET || r->op == OP_EXISTS || r->op == OP_CHILDREN || r->op == OP_SYNC;
}
