/* Producer: records go in one by one, batches go out per partition, every accepted record gets one report.
 *
 * brook_producer_send() copies the record into its batch and returns at once. Batches leave when full
 * (`batch.size`), when `linger.ms` have passed, or on flush. Memory is bounded by `buffer.memory`: beyond it send
 * answers -BROOK_E_QUEUE_FULL, or waits if asked to. Any number of threads may send.
 */
#ifndef BROOK_PRODUCER_H
#define BROOK_PRODUCER_H

#include <brook/config.h>
#include <brook/types.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct brook_producer brook_producer;

struct brook_record {
    const char *topic;
    int32_t partition; /* or BROOK_PARTITION_ANY */
    int64_t timestamp; /* ms since 1970; 0: now */
    const void *key;   /* NULL: none */
    size_t key_bytes;
    const void *value; /* NULL: null, a tombstone in compacted topics */
    size_t value_bytes;
    const struct brook_header *headers;
    size_t headers_count;
    void *opaque; /* comes back in the report */
};

enum brook_send_flag {
    /* Wait for room instead of answering QUEUE_FULL (inside a callback: never). Reports hold room, so who waits runs
     * those that are there. */
    BROOK_SEND_WAIT = 1
};

/* What became of a record. */
enum brook_outcome {
    BROOK_STORED,      /* acknowledged as `acks` asks */
    BROOK_NOT_STORED,  /* certainly not in the log */
    BROOK_MAYBE_STORED /* the answer was lost: it may be there (with enable.idempotence once at most) */
};

struct brook_report {
    const char *topic;
    int32_t partition;
    int64_t offset; /* -1 when not known (acks none, failures, a repeated batch that the broker remembers vaguely) */
    enum brook_outcome outcome;
    struct brook_error error; /* code 0: none */
    void *opaque;
};
/* One report; `report` is good during the call. Runs inside poll, flush, close, and a send that waits for room
 * (BROOK_SEND_WAIT): on whichever threads call these, at the same time if there are several. */
typedef void brook_report_callback(void *arg, const struct brook_report *report);

/* Chooses a partition for a record without one: 0 <= result < partitions_count. Called on the sending thread, inside
 * send; for a record that was sent before its topic was known on the producer's own thread, once it is, with a copy
 * of the record. So both may call at the same time, and the function must neither wait nor call functions of the
 * producer. A result that is none: -BROOK_E_UNKNOWN_PARTITION, of send or in the report. */
typedef int32_t brook_partitioner(void *arg, const struct brook_record *record, int32_t partitions_count);

/* Returns 0 or -BROOK_E_CONFIG, -BROOK_E_NOMEM, -BROOK_E_IO with a sentence. Does not wait for a connection. */
int brook_producer_new(const brook_config *config, brook_producer **ret_producer, struct brook_error *error);
/* Both before the first send. Without a report callback, failures are counted (brook_producer_failures()). */
void brook_producer_on_report(brook_producer *producer, brook_report_callback *callback, void *arg);
void brook_producer_set_partitioner(brook_producer *producer, brook_partitioner *partitioner, void *arg);

/* Returns 0: accepted, one report will come. Else nothing was accepted: -BROOK_E_QUEUE_FULL,
 * -BROOK_E_MESSAGE_TOO_LARGE, -BROOK_E_ILLEGAL_NAME, -BROOK_E_INVALID, -BROOK_E_UNKNOWN_PARTITION, -BROOK_E_CLOSED.
 * A topic that is not known yet is looked up in the background; the record is reported as failed if it does not
 * exist at `delivery.timeout.ms`, or at once when a broker says so twice. */
int brook_producer_send(brook_producer *producer, const struct brook_record *record, unsigned flags,
                        struct brook_error *error);

/* Run reports that are there; wait up to `timeout_ms` for the first (0: do not wait, -1: as long as it takes).
 * Returns the number of reports run. */
int brook_producer_poll(brook_producer *producer, int timeout_ms);
/* Send everything now and wait until all accepted records were reported. Returns 0 or -BROOK_E_TIMED_OUT. */
int brook_producer_flush(brook_producer *producer, int timeout_ms);
/* Give up everything not yet acknowledged; it is reported as NOT_STORED or MAYBE_STORED with PURGED. */
void brook_producer_purge(brook_producer *producer);
/* Flush for at most `timeout_ms`, purge the rest, report all, free. Returns the number of records that were not
 * stored, or maybe not (0: all are stored). */
int64_t brook_producer_close(brook_producer *producer, int timeout_ms);
/* Records reported as anything but STORED so far. */
int64_t brook_producer_failures(const brook_producer *producer);
/* Readable while reports wait; for foreign event loops. Owned by the handle. */
int brook_producer_fd(const brook_producer *producer);
/* A JSON object: rates, sizes, latencies, queue. The caller frees it (free()); NULL: out of memory. */
char *brook_producer_statistics(brook_producer *producer);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
