/* Walking the batch headers of a segment's file, from a position where a batch starts, without reading bodies
 * that lie beyond one small block. Checks no checksum. One thread; blocks on the disk, unless
 * told to look at the page cache only.
 *
 *     header_cursor_init(&c, fd, position, end);
 *     while ((r = header_cursor_next(&c, &header, &position)) == 0) ...
 *     r == -BROOK_E_AGAIN: the walk ended exactly at `end`
 */
#ifndef BROOK_STORAGE_HEADER_CURSOR_H
#define BROOK_STORAGE_HEADER_CURSOR_H

#include "proto/record/batch.h"

#define HEADER_CURSOR_BLOCK_BYTES 4096

struct header_cursor {
    int fd;
    bool cached_only; /* false after init; may be set then: -BROOK_E_LOCKED instead of waiting for the disk */
    int64_t position; /* of the next batch */
    int64_t end;
    int64_t block_position;
    size_t block_bytes;
    uint8_t block[HEADER_CURSOR_BLOCK_BYTES];
};

void header_cursor_init(struct header_cursor *c, int fd, int64_t position, int64_t end);
/* Returns 0 and the next batch's header and position; -BROOK_E_AGAIN at the end; -BROOK_E_CORRUPT_BATCH where
 * no whole batch follows; -BROOK_E_UNSUPPORTED_FORMAT; -BROOK_E_STORAGE_ERROR; -BROOK_E_LOCKED. After a
 * failure the cursor stays. */
int header_cursor_next(struct header_cursor *c, struct batch_header *ret_header, int64_t *ret_position);
#endif
