/* brook bench availability: for how long partitions accept nothing while brokers stop, die and come back. One record at a
 * time is on its way to each partition; the next follows its acknowledgement after the interval. */
#include "client/cli/bench.h"

#include "proto/base/clock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define MS ((int64_t)1000000)

struct probe {
    STAILQ_ENTRY(probe) next; /* those that wait for their time; all wait equally long, so the first is due first */
    const char *topic;
    int32_t partition;
    int64_t due_ns;
    int64_t sent_ns; /* the first try, when several were needed; 0: nothing is under way */
    int64_t longest_ns;
};

struct probing {
    struct bench b; /* latency: of all records */
    brook_producer *producer;
    struct probe *probes;
    size_t count;
    STAILQ_HEAD(, probe) waiting;
    size_t answered_first; /* partitions that have acknowledged one: measured from then on */
    int64_t interval_ns;
    int64_t slow_ns;
    int64_t failures;
    int64_t last_slow_ms; /* by the clock on the wall, when the last slow one was acknowledged; 0: none was */
};

static bool is_measuring(const struct probing *p)
{
    return p->answered_first == p->count;
}

static void note_wait(struct probing *p, struct probe *probe, int64_t now_ns)
{
    int64_t wait_ns = now_ns - probe->sent_ns;
    if (wait_ns > probe->longest_ns)
        probe->longest_ns = wait_ns;
    if (wait_ns >= p->slow_ns)
        p->last_slow_ms = clock_wall_ms();
}

static void on_report(void *arg, const struct brook_report *report)
{
    struct probing *p = arg;
    struct probe *probe = report->opaque;
    int64_t now_ns = bench_now_ns();
    probe->due_ns = now_ns;
    if (report->outcome != BROOK_STORED) {
        p->failures++; /* tried again at once; the wait goes on */
        STAILQ_INSERT_HEAD(&p->waiting, probe, next);
        return;
    }
    if (is_measuring(p)) {
        histogram_add(&p->b.latency, (now_ns - probe->sent_ns) / 1000);
        note_wait(p, probe, now_ns);
    } else {
        p->answered_first++;
        if (is_measuring(p))
            cli_say("every partition has acknowledged a record");
    }
    probe->sent_ns = 0;
    probe->due_ns += p->interval_ns;
    STAILQ_INSERT_TAIL(&p->waiting, probe, next);
}

/* ---- what is probed ------------------------------------------------------------------------------------------ */

static bool add_topic(struct probing *p, const char *name)
{
    struct brook_error error = {0};
    struct brook_cluster *cluster = NULL;
    if (brook_admin_describe_cluster(p->b.admin, &name, 1, p->b.cli->timeout_ms, &cluster, &error) < 0)
        return cli_fail(name, &error), false;
    bool is_there = cluster->topics_count == 1 && !cluster->topics[0].error.code;
    size_t count = is_there ? cluster->topics[0].partitions_count : 0;
    if (!is_there)
        cli_fail(name, cluster->topics_count ? &cluster->topics[0].error : &error);
    struct probe *probes = realloc(p->probes, (p->count + count + 1) * sizeof *probes);
    if (!probes)
        abort();
    p->probes = probes;
    for (size_t i = 0; i < count; i++)
        probes[p->count++] = (struct probe){.topic = name, .partition = (int32_t)i};
    brook_cluster_free(cluster);
    return is_there;
}

/* Spread over the interval from the beginning. */
static bool find_partitions(struct probing *p)
{
    struct cli *cli = p->b.cli;
    for (int i = 0; i < cli->arguments_count; i++)
        if (!add_topic(p, cli->arguments[i]))
            return false;
    int64_t now_ns = bench_now_ns();
    for (size_t i = 0; i < p->count; i++) {
        p->probes[i].due_ns = now_ns + p->interval_ns * (int64_t)i / (int64_t)p->count;
        STAILQ_INSERT_TAIL(&p->waiting, &p->probes[i], next);
    }
    return true;
}

/* ---- the run ------------------------------------------------------------------------------------------------- */

static bool send_due(struct probing *p, int64_t now_ns)
{
    struct brook_error error = {0};
    struct probe *probe;
    while ((probe = STAILQ_FIRST(&p->waiting)) && probe->due_ns <= now_ns) {
        uint8_t value[8];
        int64_t number = p->b.records++;
        memcpy(value, &number, sizeof value);
        struct brook_record record = {.topic = probe->topic, .partition = probe->partition, .value = value,
                                      .value_bytes = sizeof value, .opaque = probe};
        STAILQ_REMOVE_HEAD(&p->waiting, next);
        if (!probe->sent_ns)
            probe->sent_ns = now_ns;
        if (brook_producer_send(p->producer, &record, BROOK_SEND_WAIT, &error) < 0)
            return cli_fail(probe->topic, &error), false;
    }
    return true;
}

static bool run_for(struct probing *p, int64_t seconds)
{
    int64_t now_ns = bench_now_ns(), until_ns = now_ns + seconds * 1000 * MS;
    bool fine = true;
    while (fine && now_ns < until_ns && !cli_interrupted()) {
        fine = send_due(p, now_ns);
        const struct probe *first = STAILQ_FIRST(&p->waiting);
        int64_t wait_ms = first ? (first->due_ns - now_ns) / MS : 50;
        brook_producer_poll(p->producer, wait_ms < 1 ? 1 : wait_ms > 50 ? 50 : (int)wait_ms);
        now_ns = bench_now_ns();
    }
    brook_producer_flush(p->producer, p->b.cli->timeout_ms);
    bench_stop(&p->b);
    return fine;
}

static bool measure(struct probing *p, int64_t seconds)
{
    struct brook_error error = {0};
    if (brook_producer_new(p->b.cli->config, &p->producer, &error) < 0)
        return cli_fail("can not start", &error), false;
    brook_producer_on_report(p->producer, on_report, p);
    bool fine = find_partitions(p);
    bench_start(&p->b);
    fine = fine && run_for(p, seconds);
    if (fine && !is_measuring(p))
        fine = (cli_say("%zu of %zu partitions acknowledged nothing", p->count - p->answered_first, p->count), false);
    brook_producer_close(p->producer, 0);
    return fine;
}

/* ---- the result ------------------------------------------------------------------------------------------------ */

struct finding {
    struct histogram longest; /* by partition, microseconds */
    int64_t slow;             /* partitions */
    int64_t silent;           /* acknowledged nothing more */
};

static void find_longest(struct probing *p, struct finding *ret)
{
    int64_t now_ns = bench_now_ns();
    memset(ret, 0, sizeof *ret);
    for (size_t i = 0; i < p->count; i++) {
        struct probe *probe = &p->probes[i];
        if (probe->sent_ns) {
            ret->silent++;
            note_wait(p, probe, now_ns);
        }
        ret->slow += probe->longest_ns >= p->slow_ns;
        histogram_add(&ret->longest, probe->longest_ns / 1000);
    }
}

static int report(struct probing *p)
{
    struct finding f;
    find_longest(p, &f);
    if (p->b.cli->json)
        return bench_report(&p->b, "availability",
                            json_pack("{s:I,s:I,s:o,s:I,s:I,s:I,s:I,s:I}", "partitions", (json_int_t)p->count,
                                      "interval_ms", (json_int_t)(p->interval_ns / MS), "longest_us",
                                      histogram_json(&f.longest), "slow_ms", (json_int_t)(p->slow_ns / MS),
                                      "slow_partitions", (json_int_t)f.slow, "last_slow_ms",
                                      (json_int_t)p->last_slow_ms, "silent_partitions", (json_int_t)f.silent,
                                      "failures", (json_int_t)p->failures));
    printf("%zu partitions; longest wait for an acknowledgement by partition: ms p50 %.1f p99 %.1f max %.1f; %" PRId64
           " waited %" PRId64 " ms or more, %" PRId64 " to the end; %" PRId64 " records failed and were sent again\n",
           p->count, (double)histogram_percentile(&f.longest, 0.5) / 1e3,
           (double)histogram_percentile(&f.longest, 0.99) / 1e3, (double)f.longest.max / 1e3, f.slow, p->slow_ns / MS,
           f.silent, p->failures);
    return bench_report(&p->b, "availability", NULL);
}

static int run(struct cli *cli)
{
    struct probing p = {0};
    int64_t interval_ms, slow_ms, seconds;
    int code = CLI_FAILED;
    if (!cli_number(cli, "interval", 100, 1, 60000, &interval_ms) ||
        !cli_number(cli, "slow", 1000, 1, INT32_MAX, &slow_ms) ||
        !cli_number(cli, "seconds", 10, 1, 86400, &seconds) ||
        !cli_configure(cli, "acks", cli_value(cli, "acks") ? cli_value(cli, "acks") : "all"))
        return CLI_USAGE;
    cli_catch_signals();
    if (bench_open(&p.b, cli, 1, false) && (p.b.admin = cli_admin(cli)) != NULL) {
        p.b.records = 0;
        p.b.value_bytes = 8;
        p.interval_ns = interval_ms * MS;
        p.slow_ns = slow_ms * MS;
        STAILQ_INIT(&p.waiting);
        if (measure(&p, seconds))
            code = report(&p);
    }
    free(p.probes);
    bench_close(&p.b);
    return code;
}

static const struct cli_option options[] = {
    {"interval", "MS", "between an acknowledgement and the next record to the partition (100)", 'i'},
    {"seconds", "S", "how long; SIGTERM and SIGINT end it earlier (10)", 0},
    {"slow", "MS", "count partitions that waited at least this long (1000)", 0},
    {"acks", "leader|all", "what to wait for (all)", 'a'},
    {"broker-pid", "PID", "say what this broker used as well; may be repeated", 0},
    {0},
};

const struct cli_command cmd_bench_availability = {
    .group = "bench", .name = "availability", .arguments = "TOPIC...", .arguments_min = 1, .arguments_max = 1000,
    .summary = "measure for how long partitions accept nothing",
    .description = "Send one record after the other to every partition of the topics, while somebody stops, kills and starts\n"
                   "brokers. Says on stderr when every partition has acknowledged one; measured is what comes after that: how\n"
                   "long each partition made a record wait at most. A record that fails is sent again, and its wait goes on.",
    .examples = "  brook bench availability events --seconds 30 --json\n", .options = options, .run = run,
};
