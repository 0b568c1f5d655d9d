/* What the consumer's tests share: a stub cluster with pull sessions and stored offsets, a consumer of it,
 * and a group driver that does what the test says.
 */
#ifndef BROOK_TESTS_CONSUMER_FIXTURE_H
#define BROOK_TESTS_CONSUMER_FIXTURE_H

#include "tests/support/stub_broker.h"
#include "tests/support/suite.h"

#include <brook/brook.h>
#include <pthread.h>

#define WAIT_MS 5000
#define STORED_MAX 64

struct stored_offset {
    char topic[32];
    int32_t partition;
    int64_t offset;
    unsigned writes;
};

struct consumer_fixture {
    struct stub_cluster *cluster;
    brook_config *config;
    brook_consumer *consumer;
    /* Asked before anything else; STUB_PASS: go on. */
    stub_function *function;
    void *function_arg;
    bool no_sessions;
    pthread_mutex_t lock; /* of what follows */
    struct stored_offset stored[STORED_MAX];
    unsigned stored_count;
    int commit_code;          /* answer to every commit entry */
    struct brook_error error; /* of the last call of the test */
};

void fixture_open(struct consumer_fixture *f, unsigned brokers);
void fixture_set(struct consumer_fixture *f, const char *key, const char *value);
/* Make the consumer. */
void fixture_start(struct consumer_fixture *f);
void fixture_assign(struct consumer_fixture *f, const char *topic, int32_t partition, int64_t offset);
void fixture_close(struct consumer_fixture *f);

/* Append one batch of `count` records "topic/partition/offset" of `value_bytes` (0: as short as it is). */
void fixture_append(struct consumer_fixture *f, const char *topic, int32_t partition, int count,
                    size_t value_bytes);
/* The same, compressed with zstd. */
void fixture_append_compressed(struct consumer_fixture *f, const char *topic, int32_t partition, int count,
                               size_t value_bytes);
/* Append a batch with one byte of a record changed. */
void fixture_append_damaged(struct consumer_fixture *f, const char *topic, int32_t partition, int count);
/* Poll until a batch comes; fails the test on anything but "nothing yet". */
brook_batch *fixture_poll(struct consumer_fixture *f);
/* Poll until something but "nothing yet" comes, and return it; a batch is released. */
int fixture_poll_event(struct consumer_fixture *f);
/* Read and release until `end`, from one partition, from *at on without a gap; values are checked. */
void fixture_read_to(struct consumer_fixture *f, int32_t partition, int64_t *at, int64_t end);
/* Check the values of a batch; returns the offset behind the last record. */
int64_t fixture_check_batch(struct consumer_fixture *f, brook_batch *batch, int64_t first);
void fixture_store(struct consumer_fixture *f, const char *topic, int32_t partition, int64_t offset);
/* -1: none. */
int64_t fixture_stored(struct consumer_fixture *f, const char *topic, int32_t partition);
unsigned fixture_stored_writes(struct consumer_fixture *f);
bool fixture_wait_stored(struct consumer_fixture *f, const char *topic, int32_t partition, int64_t offset);

/* ---- the group driver of the test: client/group_driver.h, without a group ---- */

enum fake_group_kind { FAKE_ASSIGNED, FAKE_REVOKING, FAKE_LOST };
void fake_group_do(enum fake_group_kind kind, const struct brook_position *positions, size_t count);
/* The time is over: returns what the consumer wants committed. */
int64_t fake_group_drain_over(const char *topic, int32_t partition);
void fake_group_fail(const struct brook_error *error);
/* What group_drained() said last: -2 not yet. */
int64_t fake_group_drained(void);
void fake_group_may_deliver(bool may);
int64_t fake_group_committed(void); /* the last offset that was committed through it; -2: none */
unsigned fake_group_leaves(void);
#endif
