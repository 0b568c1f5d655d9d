/* brook bench produce, consume, latency. */
#include "client/cli/bench.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool configure_producer(struct cli *cli)
{
    static const char *const options[][2] = {{"acks", "acks"},
                                             {"compression", "compression"},
                                             {"linger", "linger.ms"},
                                             {"batch-size", "batch.size"},
                                             {"in-flight", "max.in.flight.requests.per.connection"},
                                             {"in-flight", "max.in.flight.requests.per.partition"}};
    if (!cli_value(cli, "acks") && !cli_configure(cli, "acks", "leader"))
        return false;
    /* One record a request: batches that close with their first record, one batch a request. */
    if (cli_flag(cli, "one-per-request") &&
        (!cli_configure(cli, "batch.size", "1") || !cli_configure(cli, "linger.ms", "0")))
        return false;
    for (unsigned i = 0; i < sizeof options / sizeof options[0]; i++) {
        const char *value = cli_value(cli, options[i][0]);
        if (value && !cli_configure(cli, options[i][1], value))
            return false;
    }
    return true;
}

static int bench_produce(struct cli *cli)
{
    struct bench b;
    int code = CLI_FAILED;
    if (!configure_producer(cli))
        return CLI_USAGE;
    cli_catch_signals();
    if (bench_open(&b, cli, 5000000, true)) {
        int64_t before = bench_stored(&b);
        if (before >= 0 && !cli_flag(cli, "cold"))
            bench_warm_memory(b.records * (b.value_bytes + 16) / 10 * 11);
        bench_start(&b);
        if (before >= 0 && bench_fill(&b, true)) {
            int64_t after = bench_wait_stored(&b, before + b.records);
            if (after - before == b.records)
                code = bench_report(&b, "produce",
                                    json_pack("{s:s,s:I}", "acks", brook_config_get(cli->config, "acks"), "in_flight",
                                              (json_int_t)atoll(brook_config_get(
                                                  cli->config, "max.in.flight.requests.per.connection"))));
            else
                cli_say("the log grew by %" PRId64 " records, not %" PRId64, after - before, b.records);
        }
    }
    bench_close(&b);
    return code;
}

/* ---- consume --------------------------------------------------------------------------------------------- */

static bool assign_all(struct bench *b, brook_consumer *consumer, int64_t offset)
{
    struct brook_error error = {0};
    struct brook_cluster *cluster = NULL;
    const char *names[] = {b->topic};
    if (brook_admin_describe_cluster(b->admin, names, 1, b->cli->timeout_ms, &cluster, &error) < 0)
        return cli_fail(b->topic, &error), false;
    size_t n = cluster->topics_count ? cluster->topics[0].partitions_count : 0;
    struct brook_position *positions = calloc(n + 1, sizeof *positions);
    if (!positions)
        abort();
    for (size_t i = 0; i < n; i++)
        positions[i] = (struct brook_position){b->topic, (int32_t)i, offset};
    int r = brook_consumer_assign(consumer, positions, n, &error);
    free(positions);
    brook_cluster_free(cluster);
    return (r == 0 && n > 0) || (cli_fail(b->topic, &error), false);
}

/* Read until `b->records` were seen; every value is touched. Returns false after having said why. */
static bool read_all(struct bench *b, brook_consumer *consumer, uint64_t *ret_sum)
{
    struct brook_error error = {0};
    struct brook_message m;
    int64_t seen = 0, bytes = 0;
    uint64_t sum = 0;
    while (seen < b->records && !cli_interrupted()) {
        brook_batch *batch;
        int64_t asked = bench_now_ns();
        int r = brook_consumer_poll(consumer, b->cli->timeout_ms, &batch, &error);
        histogram_add(&b->latency, (bench_now_ns() - asked) / 1000);
        if (r == -BROOK_E_AGAIN)
            return cli_say("nothing more after %" PRId64 " records", seen), false;
        if (r < 0)
            return cli_fail("poll", &error), false;
        while (brook_batch_next(batch, &m) == 0) {
            sum ^= bench_touch(m.value, m.value_bytes);
            bytes += (int64_t)m.value_bytes;
            seen++;
        }
        brook_batch_release(batch);
    }
    b->records = seen;
    b->value_bytes = seen ? bytes / seen : 0;
    *ret_sum = sum;
    return !cli_interrupted();
}

static int bench_consume(struct cli *cli)
{
    struct bench b;
    struct brook_error error = {0};
    brook_consumer *consumer = NULL;
    int code = CLI_FAILED;
    uint64_t sum;
    if (!configure_producer(cli))
        return CLI_USAGE;
    cli_catch_signals();
    if (!bench_open(&b, cli, 5000000, true))
        goto out;
    if (!cli->arguments_count) {
        bench_warm_memory(b.records * (b.value_bytes + 16) / 10 * 11);
        if (!bench_fill(&b, false))
            goto out;
        memset(&b.latency, 0, sizeof b.latency);
    }
    int64_t stored = bench_stored(&b);
    if (stored < 0)
        goto out;
    if (cli->arguments_count && (stored < b.records || !cli_value(cli, "records")))
        b.records = stored;
    if (brook_consumer_new(cli->config, &consumer, &error) < 0) {
        cli_fail("can not start", &error);
        goto out;
    }
    bench_start(&b);
    if (assign_all(&b, consumer, BROOK_OFFSET_EARLIEST) && read_all(&b, consumer, &sum)) {
        bench_stop(&b);
        code = bench_report(&b, "consume", json_pack("{s:I}", "checksum", (json_int_t)(sum >> 1)));
    }
    brook_consumer_close(consumer, 1000);
out:
    bench_close(&b);
    return code;
}

/* ---- latency ------------------------------------------------------------------------------------------------ */

/* One side sends at a fixed rate with the send time in each value, the other reads at the tail. */
struct latency {
    struct bench *b;
    brook_consumer *consumer;
    struct histogram end_to_end;
    bool fine;
};

static void *read_tail(void *arg)
{
    struct latency *l = arg;
    struct brook_message m;
    int64_t seen = 0;
    while (seen < l->b->records && !cli_interrupted()) {
        struct brook_error error = {0};
        brook_batch *batch;
        int r = brook_consumer_poll(l->consumer, 10000, &batch, &error);
        if (r < 0) {
            if (r != -BROOK_E_AGAIN)
                cli_fail("poll", &error);
            else
                cli_say("nothing more after %" PRId64 " records", seen);
            return NULL;
        }
        int64_t now = bench_now_ns(), sent;
        while (brook_batch_next(batch, &m) == 0) {
            memcpy(&sent, m.value, sizeof sent);
            histogram_add(&l->end_to_end, (now - sent) / 1000);
            seen++;
        }
        brook_batch_release(batch);
    }
    l->fine = seen >= l->b->records;
    return NULL;
}

static void on_latency_report(void *arg, const struct brook_report *report)
{
    struct bench *b = arg;
    if (report->outcome == BROOK_STORED)
        histogram_add(&b->latency, (bench_now_ns() - (int64_t)(intptr_t)report->opaque) / 1000);
}

/* Send one record each 1/rate seconds; late ones are sent at once and timed from when they were due. */
static bool send_at_rate(struct bench *b, brook_producer *producer, int64_t rate)
{
    struct brook_error error = {0};
    uint8_t *value = calloc(1, (size_t)b->value_bytes + 8);
    if (!value)
        abort();
    struct brook_record record = {
        .topic = b->topic, .partition = BROOK_PARTITION_ANY, .value = value, .value_bytes = (size_t)b->value_bytes};
    int64_t start = bench_now_ns();
    bool fine = true;
    for (int64_t i = 0; fine && i < b->records && !cli_interrupted(); i++) {
        int64_t due = start + (int64_t)((double)i * 1e9 / (double)rate);
        while (bench_now_ns() < due)
            brook_producer_poll(producer, due - bench_now_ns() > 2000000 ? 1 : 0);
        bench_value(b, i, value);
        memcpy(value, &due, sizeof due);
        record.opaque = (void *)(intptr_t)due;
        if (brook_producer_send(producer, &record, BROOK_SEND_WAIT, &error) < 0)
            fine = (cli_fail("send", &error), false);
    }
    free(value);
    return fine && brook_producer_flush(producer, b->cli->timeout_ms) == 0;
}

static bool run_latency(struct bench *b, struct latency *l, int64_t rate)
{
    struct brook_error error = {0};
    brook_producer *producer;
    pthread_t reader;
    if (brook_producer_new(b->cli->config, &producer, &error) < 0)
        return cli_fail("can not start", &error), false;
    brook_producer_on_report(producer, on_latency_report, b);
    bool fine = false;
    if (pthread_create(&reader, NULL, read_tail, l) == 0) {
        bench_start(b);
        fine = send_at_rate(b, producer, rate);
        pthread_join(reader, NULL);
        bench_stop(b);
    }
    brook_producer_close(producer, 0);
    return fine && l->fine;
}

static int bench_latency(struct cli *cli)
{
    struct bench b;
    struct latency l = {.b = &b};
    struct brook_error error = {0};
    int64_t rate;
    int code = CLI_FAILED;
    if (!cli_number(cli, "rate", 1000, 1, 10000000, &rate) || !configure_producer(cli) ||
        (!cli_value(cli, "linger") && !cli_configure(cli, "linger.ms", "0")))
        return CLI_USAGE;
    cli_catch_signals();
    if (!bench_open(&b, cli, 10000, true))
        goto out;
    if (b.value_bytes < 8) {
        code = cli_usage(cli, "--size: at least 8, for the time sent");
        goto out;
    }
    if (brook_consumer_new(cli->config, &l.consumer, &error) < 0) {
        cli_fail("can not start", &error);
        goto out;
    }
    if (assign_all(&b, l.consumer, BROOK_OFFSET_LATEST)) {
        brook_batch *none;
        /* Reading must have begun: the position is known once the broker has said where the end is. */
        int64_t at = -1;
        while (at < 0 && !cli_interrupted() && brook_consumer_poll(l.consumer, 20, &none, &error) == -BROOK_E_AGAIN)
            brook_consumer_position(l.consumer, b.topic, 0, &at);
        if (run_latency(&b, &l, rate)) {
            if (!cli->json)
                printf("end to end: us p50 %" PRId64 " p99 %" PRId64 " p99.9 %" PRId64 " max %" PRId64 "\n",
                       histogram_percentile(&l.end_to_end, 0.5), histogram_percentile(&l.end_to_end, 0.99),
                       histogram_percentile(&l.end_to_end, 0.999), l.end_to_end.max);
            code = bench_report(&b, "latency", json_pack("{s:I,s:o}", "rate", (json_int_t)rate, "end_to_end_us",
                                                         histogram_json(&l.end_to_end)));
        }
    }
    brook_consumer_close(l.consumer, 1000);
out:
    bench_close(&b);
    return code;
}

#define COMMON \
    {"records", "N", "how many records", 'n'}, {"size", "BYTES", "bytes of each value (200)", 's'}, \
    {"partitions", "N", "of the topic made for the run (1)", 'p'}, \
    {"durability", "MODE", "likewise: fsync, replicated or interval", 0}, \
    {"keep", NULL, "keep the topic made for the run", 0}, \
    {"broker-pid", "PID", "say what this broker used as well; may be repeated", 0}
#define PRODUCER \
    {"acks", "none|leader|all", "what to wait for (leader)", 'a'}, \
    {"compression", "CODEC", "none, gzip, snappy, lz4 or zstd", 'c'}, \
    {"linger", "MS", "how long a batch may wait for more records", 0}, \
    {"batch-size", "BYTES", "how large a batch may grow", 0}, \
    {"in-flight", "N", "requests in flight per connection", 0}

static const struct cli_option produce_options[] = {
    COMMON, PRODUCER, {"one-per-request", NULL, "one record in each request", '1'},
    {"cold", NULL, "do not warm the machine's memory first", 0}, {0}};
static const struct cli_option consume_options[] = {COMMON, PRODUCER, {0}};
static const struct cli_option latency_options[] = {COMMON, PRODUCER, {"rate", "N", "records a second (1000)", 'r'}, {0}};

const struct cli_command cmd_bench_produce = {
    .group = "bench", .name = "produce", .arguments = "[TOPIC]", .arguments_max = 1,
    .summary = "measure how fast records go in",
    .description = "Send records one by one, each value different, and measure from the first send to the last\n"
                   "acknowledgement; the log's end must then have grown by as many. Without TOPIC one is made and\n"
                   "deleted afterwards. Latency is from send to report, every 64th record.",
    .examples = "  brook bench produce --records 5M\n  brook bench produce --one-per-request --in-flight 1000 --json\n"
                "  brook bench produce --one-per-request --in-flight 64 --acks all --durability fsync --records 100k\n",
    .options = produce_options, .run = bench_produce,
};
const struct cli_command cmd_bench_consume = {
    .group = "bench", .name = "consume", .arguments = "[TOPIC]", .arguments_max = 1,
    .summary = "measure how fast records come out",
    .description = "Read a topic from its beginning: checksums are checked and every value is touched. Without TOPIC one is\n"
                   "made, filled first (not measured) and deleted afterwards. Latency is how long poll took for each batch.",
    .examples = "  brook bench consume --records 5M --json\n", .options = consume_options, .run = bench_consume,
};
const struct cli_command cmd_bench_latency = {
    .group = "bench", .name = "latency", .arguments = "[TOPIC]", .arguments_max = 1,
    .summary = "measure send to acknowledgement and send to arrival",
    .description = "Send at a fixed rate while reading at the tail. A record that could not be sent when it was due is timed\n"
                   "from when it was due.",
    .examples = "  brook bench latency --rate 5000 --records 50k\n", .options = latency_options, .run = bench_latency,
};
