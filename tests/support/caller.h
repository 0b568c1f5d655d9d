/* A thread's end of a coordinator, for tests: an inbox, calls that wait, and what sessions and observations
 * delivered, copied.
 *
 *     struct caller k; caller_init(&k);
 *     coordinator_get(c, "/a", caller_begin(&k));
 *     ck_assert_int_eq(caller_end(&k)->err, 0);
 *
 * One call at a time per caller. Everything fails the test when it takes longer than CALLER_TIMEOUT_MS.
 */
#ifndef BROOK_TESTS_CALLER_H
#define BROOK_TESTS_CALLER_H

#include "coordination/coordinator.h"

#define CALLER_TIMEOUT_MS 15000
#define CALLER_CHILDREN_MAX 64
#define CALLER_OPS_MAX 16

/* A reply that can be kept. */
struct got {
    unsigned count; /* how many arrived: for a call at most 1 */
    int err;
    uint64_t generation;
    int64_t sent_ns;
    struct znode_stat stat;
    char path[512];
    char data[4096];
    size_t data_bytes;
    char children[CALLER_CHILDREN_MAX][128]; /* sorted */
    size_t children_count;
    size_t failed_op;
    bool has_op_stats;
    struct znode_stat op_stats[CALLER_OPS_MAX];
    size_t op_stats_max; /* how many to copy: set by the test */
};

struct caller {
    struct inbox inbox;
    struct got got;
    /* Session events, newest last. */
    struct coordinator_session events[64];
    size_t events_count;
    bool urgent;
    uint64_t generation; /* for the calls to come */
};

void caller_init(struct caller *k);
void caller_done(struct caller *k);

/* The call to pass to a verb; forgets the last reply. */
struct coordinator_call caller_begin(struct caller *k);
/* Wait for the reply. */
const struct got *caller_end(struct caller *k);
/* A callback that copies into the struct got that `arg` points to. */
void got_copy(void *arg, const struct coordinator_reply *reply);

/* Drain the inbox until `condition(arg)`; false after `timeout_ms` (three times that under sanitizers). */
bool caller_wait(struct caller *k, bool (*condition)(void *arg), void *arg, int timeout_ms);
/* Drain the inbox for so long. */
void caller_idle(struct caller *k, int ms);
/* Note session events of `c` in `events`; wait until at least `count` came, and until one of a kind came at
 * or behind index `from` (its index is returned). */
void caller_listen(struct caller *k, struct coordinator *c);
size_t caller_wait_event(struct caller *k, enum coordinator_event event, size_t from);

/* A coordinator that may yet have to find a server. */
struct coordinator *caller_start(struct caller *k, const char *connect, int timeout_ms);
/* A coordinator that is connected. `session_file` may be NULL. */
struct coordinator *caller_connect(struct caller *k, const char *connect, int timeout_ms,
                                   const char *session_file);
/* A round trip. */
void caller_sync(struct caller *k, struct coordinator *c);
/* coordinator_free(); returns how many ms it took. */
int64_t caller_free_timed(struct coordinator *c, bool keep, int timeout_ms);
#endif
