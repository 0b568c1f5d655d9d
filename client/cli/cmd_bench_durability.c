/* brook bench durability: what sharing syncs gains. Acknowledgements a second, beside how often one file (and as many
 * as there are partitions) can be appended to and synced on the same disk just before and just after. */
#include "client/cli/bench.h"
#include "client/cli/bench_sync.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SYNC_SECONDS 1.0
#define PARALLEL_SECONDS 0.5

/* Sends with so many on their way and no more: who waits for an acknowledgement sends the next when it comes. */
struct flight {
    struct bench *bench;
    int64_t most;
    int64_t under_way;
    int64_t failures;
    int64_t *sent_ns; /* one per place; a record's opaque points to its own */
    int64_t **free;   /* places that are free: most - under_way */
};

static void on_report(void *arg, const struct brook_report *report)
{
    struct flight *f = arg;
    int64_t *sent_ns = report->opaque;
    if (report->outcome == BROOK_STORED)
        histogram_add(&f->bench->latency, (bench_now_ns() - *sent_ns) / 1000);
    else
        f->failures++;
    f->free[f->most - f->under_way] = sent_ns;
    f->under_way--;
}

static void flight_init(struct flight *f, struct bench *b, int64_t most)
{
    *f = (struct flight){.bench = b, .most = most};
    f->sent_ns = calloc((size_t)most, sizeof *f->sent_ns);
    f->free = calloc((size_t)most, sizeof *f->free);
    if (!f->sent_ns || !f->free)
        abort();
    for (int64_t i = 0; i < most; i++)
        f->free[i] = &f->sent_ns[i];
}

static void flight_done(struct flight *f)
{
    free(f->sent_ns);
    free(f->free);
}

/* Round the partitions until the time is up. */
static bool fly(struct flight *f, brook_producer *producer, int32_t partitions, double seconds)
{
    struct bench *b = f->bench;
    struct brook_error error = {0};
    uint8_t *value = malloc((size_t)b->value_bytes + 8);
    if (!value)
        abort();
    int64_t until_ns = bench_now_ns() + (int64_t)(seconds * 1e9);
    bool fine = true;
    for (b->records = 0; fine && bench_now_ns() < until_ns && !cli_interrupted();) {
        if (f->under_way == f->most && brook_producer_poll(producer, b->cli->timeout_ms) == 0)
            fine = (cli_say("no acknowledgement in %d ms", b->cli->timeout_ms), false);
        while (fine && f->under_way < f->most) {
            int64_t *sent_ns = f->free[f->most - f->under_way - 1];
            bench_value(b, b->records, value);
            struct brook_record record = {.topic = b->topic,
                                          .partition = (int32_t)(b->records % partitions),
                                          .value = value,
                                          .value_bytes = (size_t)b->value_bytes,
                                          .opaque = sent_ns};
            *sent_ns = bench_now_ns();
            if (brook_producer_send(producer, &record, BROOK_SEND_WAIT, &error) < 0) {
                fine = (cli_fail("send", &error), false);
                break;
            }
            f->under_way++;
            b->records++;
        }
    }
    free(value);
    return fine && brook_producer_flush(producer, b->cli->timeout_ms) == 0;
}

/* One topic of so many partitions; times and latencies are left in `b`. */
static bool measure_acks(struct bench *b, int32_t partitions, int64_t in_flight, double seconds)
{
    struct brook_error error = {0};
    brook_producer *producer;
    struct flight f, warm_up;
    if (brook_producer_new(b->cli->config, &producer, &error) < 0)
        return cli_fail("can not start", &error), false;
    flight_init(&warm_up, b, in_flight);
    flight_init(&f, b, in_flight);
    brook_producer_on_report(producer, on_report, &warm_up);
    bool fine = fly(&warm_up, producer, partitions, 0.2); /* connections, first segments */
    memset(&b->latency, 0, sizeof b->latency);
    brook_producer_on_report(producer, on_report, &f);
    bench_start(b);
    fine = fine && fly(&f, producer, partitions, seconds);
    bench_stop(b);
    if (fine && f.failures + warm_up.failures)
        fine = (cli_say("%" PRId64 " records were not stored", f.failures + warm_up.failures), false);
    brook_producer_close(producer, 0);
    flight_done(&f);
    flight_done(&warm_up);
    return fine && !cli_interrupted();
}

/* What one part of the run found. */
struct finding {
    int32_t partitions;
    double acks;     /* batches acknowledged a second */
    double syncs;    /* append and sync of one file in turn, a second: the mean of before and after */
    double parallel; /* of as many files as partitions, each by a thread of its own */
};

static bool measure(struct bench *b, const char *directory, int64_t in_flight, double seconds, struct finding *f)
{
    double before, after;
    size_t bytes = (size_t)b->value_bytes;
    const char *mode = cli_value(b->cli, "durability");
    if (!bench_sync_often(directory, 1, bytes, SYNC_SECONDS, &before) ||
        !bench_make_topic(b, f->partitions, mode ? mode : "fsync"))
        return false;
    bool fine = measure_acks(b, f->partitions, in_flight, seconds);
    bench_drop_topic(b);
    if (!fine || !bench_sync_often(directory, 1, bytes, SYNC_SECONDS, &after) ||
        !bench_sync_often(directory, f->partitions, bytes, PARALLEL_SECONDS, &f->parallel))
        return false;
    f->acks = (double)b->records / b->seconds;
    f->syncs = (before + after) / 2;
    return true;
}

static void print(struct bench *b, const struct finding *f, int64_t in_flight)
{
    printf("%d partition%s, %" PRId64 " acks at a time: %.0f batches/s acknowledged, %.1f times the %.0f/s of append and "
           "fdatasync in turn",
           f->partitions, f->partitions == 1 ? "" : "s", in_flight, f->acks, f->acks / f->syncs, f->syncs);
    if (f->partitions > 1)
        printf(" (%d files at once: %.0f/s)", f->partitions, f->parallel);
    printf("; us p50 %" PRId64 " p99 %" PRId64 " p99.9 %" PRId64 " max %" PRId64 "; client CPU %.2f s",
           histogram_percentile(&b->latency, 0.5), histogram_percentile(&b->latency, 0.99),
           histogram_percentile(&b->latency, 0.999), b->latency.max, b->client_cpu_seconds);
    if (b->pids_count)
        printf(", broker CPU %.2f s", b->broker_cpu_seconds);
    putchar('\n');
}

static json_t *finding_json(struct bench *b, const struct finding *f)
{
    json_t *o = json_pack("{s:i,s:f,s:f,s:f,s:f,s:f,s:o,s:f}", "partitions", f->partitions, "batches_per_second", f->acks,
                          "syncs_per_second", f->syncs, "ratio", f->acks / f->syncs, "parallel_syncs_per_second",
                          f->parallel, "seconds", b->seconds, "latency_us", histogram_json(&b->latency),
                          "client_cpu_seconds", b->client_cpu_seconds);
    if (b->pids_count)
        json_object_set_new(o, "broker_cpu_seconds", json_real(b->broker_cpu_seconds));
    return o;
}

/* One record a request; nothing is repeated, nothing waits for company. */
static bool configure(struct cli *cli, int64_t in_flight)
{
    char number[24];
    snprintf(number, sizeof number, "%" PRId64, in_flight);
    return cli_configure(cli, "acks", "all") && cli_configure(cli, "batch.size", "1") &&
           cli_configure(cli, "linger.ms", "0") &&
           cli_configure(cli, "max.in.flight.requests.per.connection", number) &&
           cli_configure(cli, "max.in.flight.requests.per.partition", number);
}

static int run(struct cli *cli)
{
    static const int32_t standard[] = {1, 64};
    struct bench b = {0};
    int64_t in_flight, seconds, partitions;
    const char *directory = cli_value(cli, "directory") ? cli_value(cli, "directory") : "/tmp";
    bool is_given = cli_value(cli, "partitions") != NULL;
    if (!cli_number(cli, "in-flight", 64, 1, 1000, &in_flight) || !cli_number(cli, "seconds", 5, 1, 3600, &seconds) ||
        !cli_number(cli, "partitions", 1, 1, BENCH_SYNC_FILES_MAX, &partitions) || !configure(cli, in_flight))
        return CLI_USAGE;
    cli_catch_signals();
    bool fine = bench_open(&b, cli, 1, false) && (b.admin = cli_admin(cli)) != NULL;
    json_t *all = json_array();
    for (int i = 0; fine && i < (is_given ? 1 : 2); i++) {
        struct finding f = {.partitions = is_given ? (int32_t)partitions : standard[i]};
        fine = measure(&b, directory, in_flight, (double)seconds, &f);
        if (fine && cli->json)
            json_array_append_new(all, finding_json(&b, &f));
        else if (fine)
            print(&b, &f, in_flight);
        cli_flush(cli);
    }
    bench_close(&b);
    if (!fine || !cli->json)
        json_decref(all);
    if (!fine)
        return CLI_FAILED;
    return cli->json ? cli_print_json(json_pack("{s:s,s:I,s:o}", "bench", "durability", "in_flight",
                                                (json_int_t)in_flight, "runs", all))
                     : CLI_OK;
}

static const struct cli_option options[] = {
    {"in-flight", "N", "acknowledgements waited for at a time (64)", 'n'},
    {"partitions", "N", "of the topic made for the run (1, then 64)", 'p'},
    {"seconds", "S", "how long each run lasts (5)", 0},
    {"size", "BYTES", "bytes of each value (200)", 's'},
    {"durability", "MODE", "fsync, replicated or interval (fsync)", 0},
    {"directory", "PATH", "where files are synced: on the broker's disk (/tmp)", 'd'},
    {"broker-pid", "PID", "say what this broker used as well; may be repeated", 0},
    {0},
};

const struct cli_command cmd_bench_durability = {
    .group = "bench", .name = "durability", .arguments = "", .summary = "measure what sharing syncs gains",
    .description = "Send one record a request with acks=all to a topic with durability=fsync, so many on their way at a time,\n"
                   "and no more: latency is from send to acknowledgement. Just before and just after, one file is appended to\n"
                   "and synced in turn, and then as many files as partitions at once. Once with one partition, once with 64.",
    .examples = "  brook bench durability --directory /var/lib/brook --json\n", .options = options, .run = run,
};
