#include "broker/storage/header_cursor.h"

#include "broker/storage/file.h"

#include <errno.h>

void header_cursor_init(struct header_cursor *c, int fd, int64_t position, int64_t end)
{
    c->fd = fd;
    c->cached_only = false;
    c->position = position;
    c->end = end;
    c->block_position = position;
    c->block_bytes = 0;
}

/* Have the header at c->position in the block. */
static int fill(struct header_cursor *c)
{
    int64_t at = c->position - c->block_position;
    if (at + BATCH_HEADER_BYTES <= (int64_t)c->block_bytes)
        return 0;
    int64_t left = c->end - c->position;
    size_t wanted = left < HEADER_CURSOR_BLOCK_BYTES ? (size_t)left : HEADER_CURSOR_BLOCK_BYTES;
    ssize_t n = (c->cached_only ? file_read_cached : file_read)(c->fd, c->block, wanted, c->position);
    if (n < 0)
        return c->cached_only && errno == EAGAIN ? -BROOK_E_LOCKED : -BROOK_E_STORAGE_ERROR;
    c->block_position = c->position;
    c->block_bytes = (size_t)n;
    return n < BATCH_HEADER_BYTES ? -BROOK_E_CORRUPT_BATCH : 0;
}

int header_cursor_next(struct header_cursor *c, struct batch_header *ret_header, int64_t *ret_position)
{
    if (c->position == c->end)
        return -BROOK_E_AGAIN;
    if (c->position + BATCH_HEADER_BYTES > c->end)
        return -BROOK_E_CORRUPT_BATCH;
    int r = fill(c);
    if (r != 0)
        return r;
    struct batch_header header;
    r = batch_read_header(c->block + (c->position - c->block_position), BATCH_HEADER_BYTES, &header);
    if (r != 0 && r != -BROOK_E_AGAIN)
        return r == -BROOK_E_UNSUPPORTED_FORMAT ? r : -BROOK_E_CORRUPT_BATCH;
    if ((int64_t)header.total_bytes > c->end - c->position)
        return -BROOK_E_CORRUPT_BATCH;
    *ret_header = header;
    *ret_position = c->position;
    c->position += (int64_t)header.total_bytes;
    return 0;
}
