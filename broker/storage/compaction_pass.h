/* One pass of a compaction; shared by compaction.c (the order of things) and compaction_write.c (a group of
 * segments made one), and by nobody else. */
#ifndef BROOK_STORAGE_COMPACTION_PASS_H
#define BROOK_STORAGE_COMPACTION_PASS_H

#include "broker/storage/batch_compact.h"
#include "broker/storage/batch_reader.h"
#include "broker/storage/compaction.h"
#include "broker/storage/compaction_keep.h"
#include "broker/storage/log_state.h"

struct compaction_pass {
    struct log *log;
    const struct compaction_settings *settings;
    struct compaction_result *result;
    struct brook_error *error;
    int64_t now_ms;

    /* as of the pass's beginning */
    struct log_settings log_settings;
    uint64_t generation;
    struct segment **segments; /* references */
    struct compaction_segment *plan;
    size_t count;
    int64_t start; /* compacted below */
    int64_t end;   /* of the last segment */

    struct key_map *map;
    int64_t map_end;
    struct compaction_keep keep;
    struct batch_compactor *compactor;
    struct batch_reader reader;
};

/* The sentence for what reading `s` ended with. Returns `r`. */
int compaction_fault(struct compaction_pass *p, const struct segment *s, int r);
/* The next batch of segment `place`, which p->reader is in. Its base offset and length are not covered by the
 * checksum: what does not rise, or leaves the segment, is as bad as a wrong checksum. *next is where offsets go
 * on; set it to the segment's base before the first. Returns as batch_reader_next(). */
int compaction_next(struct compaction_pass *p, size_t place, int64_t *next, struct batch_header *ret_header,
                    const uint8_t **ret_data);
/* Make segments [place, place + count) one and put it in their place; leaves a single one alone, and writes nothing, of
 * which nothing goes. Returns 0 or as log_compact(). */
int compaction_write_group(struct compaction_pass *p, size_t place, size_t count);
#endif
