#include "tests/cluster/nemesis/readers.h"

#include "tests/cluster/nemesis/payload.h"
#include "tests/support/suite.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct reader {
    pthread_t thread;
    brook_consumer *consumer;
    const struct topics *topics;
    _Atomic bool is_over;
    _Atomic int64_t *next; /* offset behind the last one seen, per partition */
    _Atomic int64_t errors;
    struct trail trail;
};

static void note(struct reader *r, brook_batch *batch)
{
    struct brook_message m;
    int32_t partition = topics_find(r->topics, brook_batch_topic(batch), brook_batch_partition(batch));
    while (brook_batch_next(batch, &m) == 0) {
        struct trail_entry e = {.partition = partition, .producer = -1, .offset = m.offset};
        if (!m.value || !payload_read(m.value, m.value_bytes, &e.producer, &e.sequence))
            e.producer = -1;
        trail_add(&r->trail, e);
        r->next[e.partition] = m.offset + 1;
    }
}

static void *run(void *arg)
{
    struct reader *r = arg;
    while (!r->is_over) {
        struct brook_error error = {0};
        brook_batch *batch;
        int e = brook_consumer_poll(r->consumer, 20, &batch, &error);
        if (e == 0) {
            note(r, batch);
            brook_batch_release(batch);
        } else if (e != -BROOK_E_AGAIN) {
            if (r->errors++ < 5)
                fprintf(stderr, "# reader: %s\n", error.text);
        }
    }
    return NULL;
}

struct reader *reader_new(const brook_config *config, const struct topics *topics)
{
    struct brook_position positions[64];
    int32_t partitions = topics->partitions;
    struct brook_error error = {0};
    struct reader *r = calloc(1, sizeof *r);
    ck_assert(partitions <= 64 && r && (r->next = calloc((size_t)partitions, sizeof *r->next)));
    r->topics = topics;
    for (int32_t p = 0; p < partitions; p++)
        positions[p] = (struct brook_position){topics_name(topics, p), topics_number(topics, p), BROOK_OFFSET_EARLIEST};
    ck_assert_msg(brook_consumer_new(config, &r->consumer, &error) == 0, "%s", error.text);
    ck_assert_msg(brook_consumer_assign(r->consumer, positions, (size_t)partitions, &error) == 0, "%s", error.text);
    ck_assert_int_eq(pthread_create(&r->thread, NULL, run, r), 0);
    return r;
}

int64_t reader_next(struct reader *r, int32_t partition)
{
    return r->next[partition];
}

bool reader_has_reached(struct reader *r, const int64_t *ends)
{
    for (int32_t p = 0; p < r->topics->partitions; p++)
        if (r->next[p] < ends[p])
            return false;
    return true;
}

void reader_stop(struct reader *r)
{
    r->is_over = true;
    pthread_join(r->thread, NULL);
    brook_consumer_close(r->consumer, 1000);
}

const struct trail *reader_trail(const struct reader *r)
{
    return &r->trail;
}

int64_t reader_errors(const struct reader *r)
{
    return r->errors;
}

void reader_free(struct reader *r)
{
    if (!r)
        return;
    trail_done(&r->trail);
    free((void *)r->next);
    free(r);
}
