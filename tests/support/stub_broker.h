/* A broker in a thread of the test process: plain sockets, memory for logs, and a function of the test's that
 * may answer, change, delay, garble or drop any request before the stub's own answer.
 *
 *     struct stub_cluster *cluster = stub_cluster_new(1);           // one broker, id 1, on a free port
 *     stub_cluster_add_topic(cluster, "orders", 3);
 *     stub_cluster_on_request(cluster, my_function, &my_state);     // optional
 *     brook_config_set(config, "bootstrap.servers", stub_cluster_servers(cluster), NULL);
 *
 * By itself the stub answers Hello, Metadata, InitProducer, Produce (checks and keeps batches; of idempotent producers
 * each once and in sequence, by the broker's own rules), ListOffsets and Pull
 * (without waiting longer than asked, without sessions; a last_epoch that does not fit is LOG_DIVERGED) for the
 * partitions that the broker leads; anything else is UNSUPPORTED. The function runs on the broker's thread, one
 * request at a time per broker. All functions: any thread.
 */
#ifndef BROOK_TESTS_STUB_BROKER_H
#define BROOK_TESTS_STUB_BROKER_H

#include "proto/record/record.h"
#include "proto/wire/envelope.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stub_cluster;
struct stub_connection;

struct stub_request {
    struct stub_cluster *cluster;
    int32_t broker_id;
    struct stub_connection *connection;
    const Brook__Request *request;
    const uint8_t *records;
    size_t records_bytes;
    unsigned
        number; /* counts the requests of this kind (body), from 0, over all connections of the cluster */
};
/* What the test's function did. */
enum stub_verdict {
    STUB_PASS, /* nothing: the stub answers */
    STUB_DONE  /* it answered, or will not: the stub does nothing more */
};
typedef enum stub_verdict stub_function(void *arg, const struct stub_request *request);

/* `brokers` of them with ids from 1. Never NULL: aborts the test instead. */
struct stub_cluster *stub_cluster_new(unsigned brokers);
void stub_cluster_free(struct stub_cluster *cluster);
void stub_cluster_on_request(struct stub_cluster *cluster, stub_function *function, void *arg);
/* "127.0.0.1:port,..." of all brokers. */
const char *stub_cluster_servers(const struct stub_cluster *cluster);
uint16_t stub_cluster_port(const struct stub_cluster *cluster, int32_t broker_id);

/* Partition p is led by broker 1 + p % brokers, epoch 0. An existing topic is made anew: another id, empty
 * logs. */
void stub_cluster_add_topic(struct stub_cluster *cluster, const char *topic, int32_t partitions);
void stub_cluster_remove_topic(struct stub_cluster *cluster, const char *topic);
/* -1: nobody. The epoch rises by one. */
void stub_cluster_set_leader(struct stub_cluster *cluster, const char *topic, int32_t partition,
                             int32_t broker_id);
/* The records from `end` (where a batch begins) on are gone, as after an election of a replica that did not have
 * them: the epoch rises by one. */
void stub_cluster_cut(struct stub_cluster *cluster, const char *topic, int32_t partition, int64_t end);
/* End all connections; refuse new ones until stub_cluster_start_broker(). */
void stub_cluster_stop_broker(struct stub_cluster *cluster, int32_t broker_id);
void stub_cluster_start_broker(struct stub_cluster *cluster, int32_t broker_id);
unsigned stub_cluster_connections_made(struct stub_cluster *cluster);
unsigned stub_cluster_requests(struct stub_cluster *cluster, Brook__Request__BodyCase body);

/* Walk what is stored. Returns the number of records; `each` may be NULL. */
typedef void stub_record_visitor(void *arg, const struct record *record);
int64_t stub_cluster_walk(struct stub_cluster *cluster, const char *topic, int32_t partition,
                          stub_record_visitor *each, void *arg);
/* Store a batch as if produced; returns its base offset, or -1: no such partition. */
int64_t stub_cluster_append(struct stub_cluster *cluster, const char *topic, int32_t partition,
                            const void *batch, size_t bytes);
/* The partition forgets its idempotent producers, as after their expiry. */
void stub_cluster_forget_producers(struct stub_cluster *cluster, const char *topic, int32_t partition);
/* As if the producer had sent what comes before `next_sequence`, in epoch 0. */
void stub_cluster_know_producer(struct stub_cluster *cluster, const char *topic, int32_t partition, int64_t producer_id,
                                int32_t next_sequence);
int64_t stub_cluster_end_offset(struct stub_cluster *cluster, const char *topic, int32_t partition);

/* ---- for the test's function ------------------------------------------------------------------------ */

/* Send `response` (its correlation id is taken from the request) after `delay_ms`; records behind it. */
void stub_reply(const struct stub_request *request, Brook__Response *response, const void *records,
                size_t records_bytes, int delay_ms);
/* What the stub would answer by itself, sent after `delay_ms`. */
void stub_reply_default(const struct stub_request *request, int delay_ms);
/* Carry the request out and return the packed frame of the reply instead of sending it: free() it. */
uint8_t *stub_render_default(const struct stub_request *request, size_t *ret_bytes);
/* A whole-request error. */
void stub_reply_error(const struct stub_request *request, int code, const char *text);
/* Bytes as they are, at once. */
void stub_send_raw(struct stub_connection *connection, const void *data, size_t bytes);
/* End the connection, after what was sent so far. */
void stub_close(struct stub_connection *connection);
#endif
