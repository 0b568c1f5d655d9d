/* A run: some consecutive record batches of one partition, checked and ready to be walked.
 *
 * Checksum, structure and compression are dealt with when the run is filled, a few batches at a time so that
 * the bytes are still in the cache when the application reads them; walking it then can not fail. Records are
 * views into the bytes of the reply or, where a batch was compressed, into a slab that the run owns. Knows no
 * network, no locks and no partitions. One thread at a time per run.
 */
#ifndef BROOK_CLIENT_CONSUMER_RUN_H
#define BROOK_CLIENT_CONSUMER_RUN_H

#include "proto/record/record.h"

struct brook_error;
struct pool;
struct slab;

/* A run ends at whichever comes first. */
#define RUN_BATCHES_MAX 32
#define RUN_BYTES_MAX ((size_t)256 << 10)

struct record_run {
    struct record_walker at; /* in the batch that is read now */
    unsigned index;
    unsigned count;
    struct slab *expanded; /* NULL: nothing was compressed */
    size_t expanded_bytes;
    struct record_walker batches[RUN_BATCHES_MAX];
};

/* How to read. Everything is borrowed. */
struct run_reader {
    struct codec *codec;
    struct pool *pool; /* for what is expanded */
    size_t expanded_bytes_max;
    bool check_crc;
    size_t expanded_guess; /* what the last batch took; kept by run_fill() */
};

/* Fill the empty `run` from the whole batches at `data`, with the records from `position` on. `end`: the high
 * watermark that came with them, which none can reach; -1: not known.
 * Returns 0 with *ret_used bytes taken and *ret_next, the offset behind what was taken; the run may still be
 * empty (count 0): control batches, lower records, or a partial batch at the end, all of which are taken too.
 * A batch that is bad ends a run before it; when it is the first, its error is returned, *ret_next is the
 * offset of its first wanted record and nothing is taken: -BROOK_E_CORRUPT_BATCH, _BAD_BATCH,
 * _UNSUPPORTED_FORMAT, _UNSUPPORTED_CODEC, _EXPANDS_TOO_FAR, _NOMEM. */
int run_fill(struct record_run *run, struct run_reader *reader, const uint8_t *data, size_t bytes,
             int64_t position, int64_t end, size_t *ret_used, int64_t *ret_next);
/* The next record; -BROOK_E_AGAIN behind the last. */
int run_next(struct record_run *run, struct record *ret_record);
/* Forget the records, give back what was expanded. */
void run_clear(struct record_run *run);

/* What a look at the headers alone says about the bytes of a reply: how far whole batches reach, and where to
 * pull next. Batches wholly below `position` are left out at the front. */
struct read_epochs;
struct run_extent {
    size_t skip_bytes;   /* in front: lower batches */
    size_t whole_bytes;  /* whole batches behind them, and a header that makes no sense, if one ends them */
    int64_t next;        /* the offset behind them, or `position` */
    size_t needed_bytes; /* of the partial batch at the end, when that is the first; else 0 */
    bool is_bad;         /* a header makes no sense: what follows can not be read */
};
/* `epochs`: told of the leader epochs of the whole batches. */
void run_measure(const uint8_t *data, size_t bytes, int64_t position, int64_t end, struct read_epochs *epochs,
                 struct run_extent *ret);
#endif
