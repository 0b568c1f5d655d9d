/* What the bench commands share: a topic to work on, values that differ, clocks, what brokers used, the result. */
#ifndef BROOK_CLI_BENCH_H
#define BROOK_CLI_BENCH_H

#include "client/cli/commands.h"
#include "client/cli/histogram.h"

#define BENCH_BROKERS_MAX 16

struct bench {
    struct cli *cli;
    brook_admin *admin;
    char topic[64];
    char durability[16]; /* of the topic, as the broker says; empty: not asked yet */
    bool own_topic; /* made for this run, deleted at its end */
    int64_t records;
    int64_t value_bytes;
    uint8_t *noise; /* where values are cut from */
    int pids[BENCH_BROKERS_MAX];
    int pids_count;
    double broker_cpu_start;
    int64_t client_cpu_start_ns;
    int64_t started_ns;
    double seconds;
    double client_cpu_seconds;
    double broker_cpu_seconds;
    struct histogram latency; /* microseconds */
};

extern const struct cli_option bench_common_options[];

int64_t bench_now_ns(void);
/* Read the common options, make the topic if none was named. Returns false after having said why not. */
bool bench_open(struct bench *b, struct cli *cli, int64_t records, bool needs_topic);
void bench_close(struct bench *b);
/* A topic for this run (NULL: with the durability it has by default), deleted by bench_drop_topic() or bench_close().
 * Returns false after having said why. */
bool bench_make_topic(struct bench *b, int32_t partitions, const char *durability);
void bench_drop_topic(struct bench *b);
/* The value of record `number`: its number, then bytes cut from noise at a place of its own. Written to `value`. */
void bench_value(const struct bench *b, int64_t number, uint8_t *value);
/* Touch every byte of a value; the result keeps the compiler honest. */
uint64_t bench_touch(const void *value, size_t bytes);
/* Use memory for page cache and give it back, so that the run does not measure the machine waking its memory up. */
void bench_warm_memory(int64_t bytes);
/* From here to there: time, CPU of this process and of the brokers named by --broker-pid. */
void bench_start(struct bench *b);
void bench_stop(struct bench *b);
/* Put b->records into the topic; latency is filled in. Returns false after having said why. */
bool bench_fill(struct bench *b, bool with_latency);
/* Sum over partitions of end - start; -1 after having said why not. */
int64_t bench_stored(struct bench *b);
/* The same, after waiting for `records` to be seen: what is not acknowledged by all may be flushed a little later. */
int64_t bench_wait_stored(struct bench *b, int64_t records);
/* One line for people, or the JSON object with `extra` (stolen, may be NULL) merged in. */
int bench_report(struct bench *b, const char *what, json_t *extra);
#endif
