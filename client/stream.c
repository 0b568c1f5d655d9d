#include "client/consumer.h"
#include "client/consumer_batch.h"
#include "proto/base/err.h"

#include <brook/stream.h>
#include <stdlib.h>

struct brook_stream {
    brook_consumer *consumer;
    brook_batch *batch; /* NULL: none is being read */
    int32_t partition;
    int64_t current; /* offset of the record that the application has; -1: none */
};

int brook_stream_open(const brook_config *config, const char *topic, brook_stream **ret_stream,
                      struct brook_error *error)
{
    struct brook_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    stream->partition = -1;
    stream->current = -1;
    int r = brook_consumer_new(config, &stream->consumer, error);
    if (r == 0)
        r = brook_consumer_subscribe(stream->consumer, &topic, 1, error);
    if (r < 0) {
        brook_consumer_close(stream->consumer, 0);
        free(stream);
        return r;
    }
    *ret_stream = stream;
    return 0;
}

/* The application has asked for the next one: what it had is processed. */
static void settle(struct brook_stream *stream)
{
    if (stream->current < 0)
        return;
    atomic_store_explicit(&stream->batch->processed, stream->current + 1, memory_order_relaxed);
    stream->current = -1;
}

int brook_stream_next(brook_stream *stream, struct brook_message *ret_message, struct brook_error *error)
{
    settle(stream);
    for (;;) {
        if (atomic_load_explicit(&stream->consumer->is_interrupted, memory_order_relaxed))
            return brook_error_set(error, BROOK_E_CLOSED, "the stream was stopped");
        if (stream->batch && brook_batch_next(stream->batch, ret_message) == 0) {
            stream->current = ret_message->offset;
            return 0;
        }
        brook_batch_release(stream->batch);
        stream->batch = NULL;
        int r = brook_consumer_poll(stream->consumer, -1, &stream->batch, error);
        if (r < 0)
            return r;
        stream->partition = brook_batch_partition(stream->batch);
    }
}

int32_t brook_stream_partition(const brook_stream *stream)
{
    return stream->partition;
}

void brook_stream_stop(brook_stream *stream)
{
    consumer_interrupt(stream->consumer);
}

int brook_stream_close(brook_stream *stream, int timeout_ms)
{
    if (!stream)
        return 0;
    /* The record in hand was not finished: nobody asked for the next one. */
    if (stream->batch)
        brook_batch_release_at(stream->batch, atomic_load(&stream->batch->processed));
    int r = brook_consumer_close(stream->consumer, timeout_ms);
    free(stream);
    return r;
}
