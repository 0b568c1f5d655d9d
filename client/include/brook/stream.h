/* Stream: the interface of Kafka's paper, on top of the consumer: an iterator over a topic that never ends.
 *
 *     brook_stream *s;
 *     brook_stream_open(config, "orders", &s, &error);      // member of group.id
 *     while (brook_stream_next(s, &m, &error) == 0)
 *         use(&m);
 *
 * brook_stream_next() blocks until there is a record. A record counts as processed when the next one is asked for.
 * One thread at a time, but brook_stream_stop(), which any thread or signal handler may call.
 */
#ifndef BROOK_STREAM_H
#define BROOK_STREAM_H

#include <brook/consumer.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct brook_stream brook_stream;

int brook_stream_open(const brook_config *config, const char *topic, brook_stream **ret_stream,
                      struct brook_error *error);
/* Returns 0; -BROOK_E_CLOSED after brook_stream_stop(); or an error of brook_consumer_poll() (call again to go on). */
int brook_stream_next(brook_stream *stream, struct brook_message *ret_message, struct brook_error *error);
/* The partition that the last record came from. */
int32_t brook_stream_partition(const brook_stream *stream);
/* Make brook_stream_next() return -BROOK_E_CLOSED, now and from now on. Async-signal-safe. */
void brook_stream_stop(brook_stream *stream);
/* Leave the group within `timeout_ms` and free. */
int brook_stream_close(brook_stream *stream, int timeout_ms);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
