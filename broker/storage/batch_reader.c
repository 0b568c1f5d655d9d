#include "broker/storage/batch_reader.h"

#include "broker/storage/file.h"

#include <stdlib.h>

void batch_reader_start(struct batch_reader *r, int fd, int64_t position, int64_t end)
{
    r->fd = fd;
    r->position = position;
    r->end = end;
    r->buffer_position = position;
    r->buffer_bytes = 0;
}

void batch_reader_done(struct batch_reader *r)
{
    free(r->buffer);
    *r = (struct batch_reader){0};
}

/* Have `bytes` from r->position on in the buffer. */
static int fill(struct batch_reader *r, size_t bytes)
{
    int64_t at = r->position - r->buffer_position;
    if (at + (int64_t)bytes <= (int64_t)r->buffer_bytes)
        return 0;
    if ((int64_t)bytes > r->end - r->position)
        return -BROOK_E_CORRUPT_BATCH;
    size_t wanted = bytes > BATCH_READER_BYTES ? bytes : BATCH_READER_BYTES;
    if (r->capacity < wanted) {
        free(r->buffer);
        r->buffer = malloc(wanted);
        r->capacity = r->buffer ? wanted : 0;
        if (!r->buffer)
            return -BROOK_E_NOMEM;
    }
    if ((int64_t)wanted > r->end - r->position)
        wanted = (size_t)(r->end - r->position);
    r->buffer_position = r->position;
    r->buffer_bytes = 0;
    ssize_t n = file_read(r->fd, r->buffer, wanted, r->position);
    if (n < 0)
        return -BROOK_E_STORAGE_ERROR;
    r->buffer_bytes = (size_t)n;
    return (size_t)n < bytes ? -BROOK_E_CORRUPT_BATCH : 0;
}

int batch_reader_next(struct batch_reader *r, struct batch_header *ret_header, const uint8_t **ret_data,
                      int64_t *ret_position)
{
    struct batch_header h;
    if (r->position == r->end)
        return -BROOK_E_AGAIN;
    int e = fill(r, BATCH_HEADER_BYTES);
    if (e == 0)
        e = batch_read_header(r->buffer + (r->position - r->buffer_position), BATCH_HEADER_BYTES, &h);
    if (e != 0 && e != -BROOK_E_AGAIN)
        return e == -BROOK_E_NOMEM || e == -BROOK_E_STORAGE_ERROR ? e : -BROOK_E_CORRUPT_BATCH;
    e = fill(r, h.total_bytes);
    if (e != 0)
        return e;
    const uint8_t *data = r->buffer + (r->position - r->buffer_position);
    e = batch_check_crc(data, &h);
    if (e != 0)
        return e;
    *ret_header = h;
    *ret_data = data;
    *ret_position = r->position;
    r->position += (int64_t)h.total_bytes;
    return 0;
}
