/* Looking at the files of logs from outside, for offline tools: what is in them, and what is wrong with it.
 *
 * Nothing is ever written, created, renamed or locked, and no index and no side file is believed: a
 * directory on read-only media, one of Apache Kafka's, or one that a running broker has open is as good
 * as any (of the last, the newest end may just be in the making). One thread; blocks on the disk.
 */
#ifndef BROOK_STORAGE_INSPECT_H
#define BROOK_STORAGE_INSPECT_H

#include "broker/storage/epochs.h"
#include "broker/storage/partition_metadata.h"

#include <limits.h>
#include <stdbool.h>

/* From harmless to bad. */
enum inspect_kind {
    INSPECT_NOTE,      /* worth knowing, nothing is wrong */
    INSPECT_SIDE_FILE, /* counts as not known at the next start */
    INSPECT_INDEX,     /* does not agree with the log: made anew when it is opened or used */
    INSPECT_TORN,      /* the log's last append did not finish: cut at the next start, nothing else is lost */
    INSPECT_DAMAGE,    /* a bad batch with valid ones behind it, offsets that fall, a format before v2, ... */
    INSPECT_UNREADABLE,  /* a file or a partition that could not be read, of a data directory */
    INSPECT_KINDS_COUNT
};
/* "note", "side file", "index", "torn tail", "damage", "unreadable" */
const char *inspect_kind_name(enum inspect_kind kind);

struct inspect_finding {
    enum inspect_kind kind;
    const char *path;
    int64_t position; /* in the file; -1: the file as a whole */
    const char *text;
};

struct inspect {
    void (*found)(void *arg, const struct inspect_finding *finding); /* borrowed for the call */
    void *arg;
    /* added to */
    int64_t partitions;
    int64_t segments;
    int64_t batches; /* valid ones */
    int64_t records;
    int64_t bytes; /* of `.log` files, every one of them read */
    int64_t findings[INSPECT_KINDS_COUNT];
};

/* Check a partition's directory: every batch's checksum, that offsets rise over all segments, that both
 * indexes and the epoch file agree with the log, the side files. Returns 0, or -BROOK_E_STORAGE_ERROR
 * (something could not be read) or -BROOK_E_NOMEM; what was found is told through `found`. The log may be in use: a
 * file that is gone when its turn comes, and from a second listing too, is passed over. */
int inspect_partition(struct inspect *in, const char *directory, struct brook_error *error);
/* A data directory: its side files, then each partition, the set aside and the future ones too. One that can not be
 * read is told, and the others are checked. */
int inspect_data_dir(struct inspect *in, const char *directory, struct brook_error *error);
/* One file by its name: a `.log` with the indexes beside it; an index against its `.log`; a side file.
 * -BROOK_E_INVALID: a file of no kind that is known here. */
int inspect_file(struct inspect *in, const char *path, struct brook_error *error);

/* Whether `directory` looks like a data directory: a meta.properties, or partitions, in it. */
bool inspect_is_data_dir(const char *directory);

/* ---- what is there ----------------------------------------------------------------------------------- */

struct inspect_summary {
    char topic[256]; /* of the directory's name; "" when that is none of a partition */
    int32_t partition;
    bool has_topic_id;
    uint8_t topic_id[TOPIC_ID_BYTES];
    int64_t segments;
    int64_t bytes;
    int64_t start_offset; /* of the checkpoint in the data directory where there is one, else the first
                             segment's */
    int64_t end_offset;   /* behind the last batch whose header makes sense; no checksum is looked at */
    int32_t leader_epoch; /* of that batch; -1: none */
};
/* A partition at a glance. Returns 0, -BROOK_E_NOT_FOUND (no segment in it), or as above. */
int inspect_summarize(const char *directory, struct inspect_summary *ret_summary, struct brook_error *error);

struct inspect_record {
    int64_t offset;
    int64_t timestamp;
    char segment[PATH_MAX];
};
/* The first record of a partition whose timestamp is >= `timestamp`, exact to the record, from all batch
 * headers and no index; records that were deleted by offset (log-start-offset-checkpoint) do not count.
 * Returns 0; -BROOK_E_NOT_FOUND; a batch's error, or as above. */
int inspect_find_time(const char *directory, int64_t timestamp, struct inspect_record *ret_record,
                      struct brook_error *error);
#endif
