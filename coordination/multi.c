#include "coordination/multi.h"

#include "coordination/servers.h"

#include <stdlib.h>
#include <string.h>

struct coordinator_multi *coordinator_multi_new(void)
{
    return calloc(1, sizeof(struct coordinator_multi));
}

static void flight_done(struct multi_flight *f)
{
    for (size_t i = 0; f->paths && i < f->count; i++)
        free(f->paths[i]);
    free(f->paths);
    free(f->ops);
    free(f->results);
    free(f->stats);
    memset(f, 0, sizeof *f);
}

void coordinator_multi_free(struct coordinator_multi *multi)
{
    if (!multi)
        return;
    flight_done(&multi->flight);
    for (size_t i = 0; i < multi->count; i++) {
        free(multi->ops[i].path);
        free(multi->ops[i].data);
    }
    free(multi->ops);
    free(multi);
}

static int grow(struct coordinator_multi *m)
{
    if (m->count < m->capacity)
        return 0;
    size_t capacity = m->capacity ? m->capacity * 2 : 8;
    struct multi_op *ops = realloc(m->ops, capacity * sizeof *ops);
    if (!ops)
        return -BROOK_E_NOMEM;
    m->ops = ops;
    m->capacity = capacity;
    return 0;
}

static int copy_op(struct multi_op *op, const char *path, const void *data)
{
    op->path = strdup(path);
    op->data = malloc(op->data_bytes + 1);
    if (!op->path || !op->data) {
        free(op->path);
        free(op->data);
        return -BROOK_E_NOMEM;
    }
    if (op->data_bytes)
        memcpy(op->data, data, op->data_bytes);
    return 0;
}

static void add(struct coordinator_multi *m, struct multi_op op, const char *path, const void *data)
{
    if (m->err)
        return;
    if (!znode_path_is_legal(path))
        m->err = -BROOK_E_INVALID;
    else if (op.data_bytes > COORDINATOR_NODE_BYTES_MAX)
        m->err = -BROOK_E_NODE_TOO_LARGE;
    else if (grow(m) < 0 || copy_op(&op, path, data) < 0)
        m->err = -BROOK_E_NOMEM;
    if (m->err)
        return;
    m->ops[m->count++] = op;
    m->bytes += MULTI_OVERHEAD_BYTES + strlen(path) + op.data_bytes;
}

void coordinator_multi_check(struct coordinator_multi *m, const char *path, int32_t version)
{
    add(m, (struct multi_op){.type = MULTI_CHECK, .version = version}, path, NULL);
}

void coordinator_multi_create(struct coordinator_multi *m, const char *path, const void *data,
                              size_t data_bytes, enum znode_mode mode)
{
    add(m, (struct multi_op){.type = MULTI_CREATE, .data_bytes = data_bytes, .mode = mode}, path, data);
}

void coordinator_multi_set(struct coordinator_multi *m, const char *path, const void *data, size_t data_bytes,
                           int32_t version)
{
    add(m, (struct multi_op){.type = MULTI_SET, .data_bytes = data_bytes, .version = version}, path, data);
}

void coordinator_multi_delete(struct coordinator_multi *m, const char *path, int32_t version)
{
    add(m, (struct multi_op){.type = MULTI_DELETE, .version = version}, path, NULL);
}

size_t coordinator_multi_count(const struct coordinator_multi *m)
{
    return m->count;
}

size_t coordinator_multi_bytes(const struct coordinator_multi *m)
{
    return m->bytes;
}

static int flight_reserve(struct multi_flight *f, size_t count)
{
    flight_done(f);
    f->ops = calloc(count + 1, sizeof *f->ops);
    f->results = calloc(count + 1, sizeof *f->results);
    f->stats = calloc(count + 1, sizeof *f->stats);
    f->paths = calloc(count + 1, sizeof *f->paths);
    f->count = count;
    return f->ops && f->results && f->stats && f->paths ? 0 : -BROOK_E_NOMEM;
}

static void op_init(zoo_op_t *to, const struct multi_op *op, const char *path, struct Stat *stat)
{
    switch (op->type) {
    case MULTI_CHECK:
        zoo_check_op_init(to, path, op->version);
        break;
    case MULTI_CREATE:
        zoo_create_op_init(to, path, op->data, (int)op->data_bytes, &ZOO_OPEN_ACL_UNSAFE, (int)op->mode, NULL,
                           0);
        break;
    case MULTI_SET:
        zoo_set_op_init(to, path, op->data, (int)op->data_bytes, op->version, stat);
        break;
    case MULTI_DELETE:
        zoo_delete_op_init(to, path, op->version);
        break;
    }
}

int multi_prepare(struct coordinator_multi *m, const char *chroot)
{
    struct multi_flight *f = &m->flight;
    size_t chroot_bytes = strlen(chroot);
    if (flight_reserve(f, m->count) < 0)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < m->count; i++) {
        f->paths[i] = malloc(chroot_bytes + strlen(m->ops[i].path) + 1);
        if (!f->paths[i])
            return -BROOK_E_NOMEM;
        strcpy(stpcpy(f->paths[i], chroot), m->ops[i].path);
        op_init(&f->ops[i], &m->ops[i], f->paths[i], &f->stats[i]);
        /* What an op that the server never looked at is left with. */
        f->results[i].err = ZRUNTIMEINCONSISTENCY;
    }
    return 0;
}

int multi_result(const struct coordinator_multi *m, int rc, size_t *ret_failed_op)
{
    const struct multi_flight *f = &m->flight;
    *ret_failed_op = 0;
    /* A lost link leaves all ops with the same code, or with none. */
    if (rc == ZOK || rc == ZCONNECTIONLOSS)
        return rc;
    for (size_t i = 0; i < f->count; i++)
        if (f->results[i].err != ZOK && f->results[i].err != ZRUNTIMEINCONSISTENCY) {
            *ret_failed_op = i;
            return f->results[i].err;
        }
    return rc;
}

void stat_from_zookeeper(struct znode_stat *to, const struct Stat *from)
{
    to->czxid = from->czxid;
    to->mzxid = from->mzxid;
    to->pzxid = from->pzxid;
    to->ephemeral_owner = from->ephemeralOwner;
    to->version = from->version;
    to->cversion = from->cversion;
    to->children_count = from->numChildren;
}
