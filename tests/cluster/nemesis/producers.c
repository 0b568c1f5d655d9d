#include "tests/cluster/nemesis/producers.h"

#include "proto/base/clock.h"
#include "tests/cluster/nemesis/payload.h"
#include "tests/support/suite.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

struct one {
    struct producers *all;
    int32_t number;
    pthread_t thread;
    brook_producer *producer;
    int64_t *next; /* sequence, per partition */
    struct trail acknowledged;
    _Atomic int64_t count, unknown, refused;
    _Atomic bool flushed;
};

struct producers {
    struct producers_options options;
    _Atomic bool is_over;
    _Atomic int flush_timeout_ms;
    struct one *list;
};

/* A record's number travels as its opaque pointer. */
static void *opaque_of(int64_t sequence)
{
    return (void *)(intptr_t)sequence;
}

static void on_report(void *arg, const struct brook_report *report)
{
    struct one *one = arg;
    if (report->outcome != BROOK_STORED) {
        atomic_fetch_add(report->outcome == BROOK_MAYBE_STORED ? &one->unknown : &one->refused, 1);
        return;
    }
    int32_t partition = topics_find(one->all->options.topics, report->topic, report->partition);
    trail_add(&one->acknowledged, (struct trail_entry){.partition = partition,
                                                       .producer = one->number,
                                                       .sequence = (int64_t)(intptr_t)report->opaque,
                                                       .offset = report->offset});
    one->count++;
    gaps_seen(one->all->options.acks, partition, clock_boot_ms());
}

/* Its buffer is full while a partition has no leader: then it waits with all the others, like anybody. */
static void send_one(struct one *one, int32_t partition)
{
    char value[PAYLOAD_BYTES_MAX];
    const struct topics *topics = one->all->options.topics;
    struct brook_record record = {.topic = topics_name(topics, partition),
                                  .partition = topics_number(topics, partition),
                                  .value = value,
                                  .value_bytes = payload_write(value, one->number, one->next[partition]),
                                  .opaque = opaque_of(one->next[partition])};
    struct brook_error error;
    if (brook_producer_send(one->producer, &record, 0, &error) == 0)
        one->next[partition]++;
}

static void *run(void *arg)
{
    struct one *one = arg;
    const struct producers_options *o = &one->all->options;
    while (!one->all->is_over) {
        for (int32_t p = 0; p < o->topics->partitions; p++)
            send_one(one, p);
        int64_t until = clock_boot_ms() + o->pause_ms;
        for (int64_t left; (left = until - clock_boot_ms()) > 0;)
            brook_producer_poll(one->producer, (int)left);
    }
    one->flushed = brook_producer_flush(one->producer, one->all->flush_timeout_ms) == 0;
    brook_producer_close(one->producer, 0);
    return NULL;
}

struct producers *producers_new(const struct producers_options *options)
{
    struct producers *p = calloc(1, sizeof *p);
    struct brook_error error = {0};
    if (!p || !(p->list = calloc((size_t)options->count, sizeof *p->list)))
        abort();
    p->options = *options;
    for (int i = 0; i < options->count; i++) {
        struct one *one = &p->list[i];
        one->all = p;
        one->number = i;
        if (!(one->next = calloc((size_t)options->topics->partitions, sizeof *one->next)))
            abort();
        ck_assert_msg(brook_producer_new(options->config, &one->producer, &error) == 0, "%s", error.text);
        brook_producer_on_report(one->producer, on_report, one);
        ck_assert_int_eq(pthread_create(&one->thread, NULL, run, one), 0);
    }
    return p;
}

bool producers_stop(struct producers *p, int timeout_ms)
{
    bool flushed = true;
    p->flush_timeout_ms = timeout_ms;
    p->is_over = true;
    for (int i = 0; i < p->options.count; i++) {
        pthread_join(p->list[i].thread, NULL);
        flushed = flushed && p->list[i].flushed;
    }
    return flushed;
}

void producers_testify(const struct producers *p, struct checker *c)
{
    for (int i = 0; i < p->options.count; i++)
        checker_acknowledged(c, &p->list[i].acknowledged);
}

int64_t producers_unknown(const struct producers *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->options.count; i++)
        n += p->list[i].unknown;
    return n;
}

int64_t producers_refused(const struct producers *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->options.count; i++)
        n += p->list[i].refused;
    return n;
}

int64_t producers_acknowledged(struct producers *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->options.count; i++)
        n += p->list[i].count;
    return n;
}

void producers_free(struct producers *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->options.count; i++) {
        trail_done(&p->list[i].acknowledged);
        free(p->list[i].next);
    }
    free(p->list);
    free(p);
}
