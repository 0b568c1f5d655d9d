/* A blocking client for tests: bytes, frames and envelopes by hand, so that also what no client library would
 * send can be sent. Failures of the test's own doing end the test.
 */
#ifndef BROOK_TESTS_RAW_CLIENT_H
#define BROOK_TESTS_RAW_CLIENT_H

#include "coordination/znodes.h"
#include "proto/schema/envelope.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct raw_client {
    int fd;
    uint64_t correlation_id; /* of the last request sent */
    uint32_t deadline_ms;    /* of those to be sent; 0: what they say themselves */
    uint8_t *held;           /* not sent yet: raw_hold() */
    size_t held_bytes;
    bool holds;
    uint8_t *frame; /* of the last reply */
    size_t frame_capacity;
    Brook__Response *response;
    const uint8_t *records;
    size_t records_bytes;
};

void raw_connect(struct raw_client *c, int port);
/* The two halves of it. */
void raw_socket(struct raw_client *c);
void raw_connect_socket(struct raw_client *c, int port);
/* Connect and say hello. */
void raw_open(struct raw_client *c, int port);
void raw_close(struct raw_client *c);

void raw_send_bytes(struct raw_client *c, const void *data, size_t bytes);
/* From here on keep what is to be sent; then send it all in one write. */
void raw_hold(struct raw_client *c);
void raw_release(struct raw_client *c);
/* Frame a request into malloc'ed memory. */
uint8_t *raw_frame(const Brook__Request *request, const void *records, size_t records_bytes,
                   size_t *ret_bytes);
/* Numbers the request and sends it. */
void raw_send(struct raw_client *c, Brook__Request *request, const void *records, size_t records_bytes);
/* The next reply, good until the next call; NULL when the broker has closed. Waits up to 10 s, then fails. */
Brook__Response *raw_receive(struct raw_client *c);
Brook__Response *raw_ask(struct raw_client *c, Brook__Request *request, const void *records,
                         size_t records_bytes);
/* Whether nothing arrives for so long. */
bool raw_is_silent(struct raw_client *c, int ms);
/* Wait for the broker to close the connection (whatever it sends before is dropped). */
bool raw_is_closed(struct raw_client *c, int ms);
int raw_status(const Brook__Response *response);

/* ---- requests ------------------------------------------------------------------------------------------ */

/* A batch of `count` records whose values are `value_bytes` of 'v', at `to`. Returns its bytes. */
size_t raw_batch(void *to, size_t capacity, int count, size_t value_bytes);
/* Send a produce of one partition. */
void raw_send_produce(struct raw_client *c, const struct topic_id *topic, int32_t partition, int acks,
                      const void *records, size_t bytes);
/* Send it with one batch of one record, wait, and return the offset; fails the test on an error. */
int64_t raw_produce(struct raw_client *c, const struct topic_id *topic, int32_t partition,
                    size_t value_bytes);

struct raw_pull {
    uint32_t session_id;
    int32_t session_epoch; /* -1: none */
    uint32_t max_wait_ms;
    uint32_t min_bytes;
    uint32_t max_bytes;
    size_t count;
    struct raw_pull_entry {
        const struct topic_id *topic;
        int32_t partition;
        int64_t offset;
        uint32_t max_bytes;
        int32_t current_epoch;
        int32_t last_epoch; /* -1: not said */
    } entries[128];
    size_t forget_count;
    struct raw_pull_entry forget[16];
};
/* One entry, no session, no waiting. */
void raw_pull_init(struct raw_pull *p, const struct topic_id *topic, int32_t partition, int64_t offset);
void raw_send_pull(struct raw_client *c, const struct raw_pull *p);
Brook__PullResponse *raw_pull(struct raw_client *c, const struct raw_pull *p);
#endif
