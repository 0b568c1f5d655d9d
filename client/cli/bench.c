#include "client/cli/bench.h"

#include "proto/base/clock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NOISE_BYTES ((size_t)1 << 20)

int64_t bench_now_ns(void)
{
    return clock_boot_ns();
}

void bench_value(const struct bench *b, int64_t number, uint8_t *value)
{
    size_t at = (size_t)((uint64_t)number * 2654435761u % (NOISE_BYTES / 2));
    memcpy(value, b->noise + at, (size_t)b->value_bytes);
    memcpy(value, &number, b->value_bytes < 8 ? (size_t)b->value_bytes : 8);
}

uint64_t bench_touch(const void *value, size_t bytes)
{
    const uint8_t *p = value;
    uint64_t sum = 0, word;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        memcpy(&word, p, 8);
        sum ^= word;
    }
    while (bytes--)
        sum += *p++;
    return sum;
}

void bench_warm_memory(int64_t bytes)
{
    char path[] = "/tmp/brook-bench-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0)
        return;
    unlink(path);
    static const char block[1 << 16];
    while (bytes > 0 && write(fd, block, sizeof block) == (ssize_t)sizeof block)
        bytes -= (int64_t)sizeof block;
    close(fd);
}

/* User and system CPU seconds of a process; 0 when it is not there. */
static double cpu_of(int pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    unsigned long long user = 0, system = 0;
    const char *p = strrchr(text, ')');
    if (!p || sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) != 2)
        return 0;
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static int64_t resident_of(int pid)
{
    char path[64];
    long long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    if (fscanf(f, "%*d %lld", &pages) != 1)
        pages = 0;
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

static double brokers_cpu(const struct bench *b)
{
    double sum = 0;
    for (int i = 0; i < b->pids_count; i++)
        sum += cpu_of(b->pids[i]);
    return sum;
}

void bench_start(struct bench *b)
{
    b->broker_cpu_start = brokers_cpu(b);
    b->client_cpu_start_ns = clock_cpu_ns();
    b->started_ns = clock_boot_ns();
}

void bench_stop(struct bench *b)
{
    b->seconds = (double)(clock_boot_ns() - b->started_ns) / 1e9;
    b->client_cpu_seconds = (double)(clock_cpu_ns() - b->client_cpu_start_ns) / 1e9;
    b->broker_cpu_seconds = brokers_cpu(b) - b->broker_cpu_start;
}

bool bench_make_topic(struct bench *b, int32_t partitions, const char *durability)
{
    struct brook_error error = {0};
    snprintf(b->topic, sizeof b->topic, "bench-%" PRIx64, (uint64_t)clock_wall_ms());
    struct brook_setting setting = {"durability", durability};
    if (brook_admin_create_topic(b->admin, b->topic, partitions, 0, &setting, durability ? 1 : 0, false,
                                 b->cli->timeout_ms, &error) < 0)
        return cli_fail("can not create a topic", &error), false;
    b->own_topic = !cli_flag(b->cli, "keep");
    return true;
}

void bench_drop_topic(struct bench *b)
{
    struct brook_error error = {0};
    if (b->own_topic && brook_admin_delete_topic(b->admin, b->topic, b->cli->timeout_ms, &error) < 0)
        cli_fail(b->topic, &error);
    b->own_topic = false;
}

static bool read_pids(struct bench *b)
{
    for (const char *text; (text = cli_value_at(b->cli, "broker-pid", b->pids_count)) != NULL;) {
        char *end;
        long pid = strtol(text, &end, 10);
        if (*end || pid <= 0 || b->pids_count == BENCH_BROKERS_MAX)
            return cli_usage(b->cli, "--broker-pid: '%s' is not a process (at most %d)", text, BENCH_BROKERS_MAX), false;
        b->pids[b->pids_count++] = (int)pid;
    }
    return true;
}

bool bench_open(struct bench *b, struct cli *cli, int64_t records, bool needs_topic)
{
    memset(b, 0, sizeof *b);
    b->cli = cli;
    if (!cli_number(cli, "records", records, 1, INT64_MAX / 65536, &b->records) ||
        !cli_number(cli, "size", 200, 1, (int64_t)NOISE_BYTES / 2, &b->value_bytes) || !read_pids(b))
        return false;
    b->noise = malloc(NOISE_BYTES);
    if (!b->noise)
        abort();
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < NOISE_BYTES; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        b->noise[i] = (uint8_t)state;
    }
    if (!needs_topic)
        return true;
    b->admin = cli_admin(cli);
    if (!b->admin)
        return false;
    if (cli->arguments_count) {
        snprintf(b->topic, sizeof b->topic, "%s", cli->arguments[0]);
        return true;
    }
    int64_t partitions;
    return cli_number(cli, "partitions", 1, 1, 20000, &partitions) &&
           bench_make_topic(b, (int32_t)partitions, cli_value(cli, "durability"));
}

void bench_close(struct bench *b)
{
    bench_drop_topic(b);
    brook_admin_free(b->admin);
    free(b->noise);
}

static int32_t partitions_of(struct bench *b)
{
    struct brook_error error = {0};
    struct brook_cluster *cluster = NULL;
    const char *names[] = {b->topic};
    if (brook_admin_describe_cluster(b->admin, names, 1, b->cli->timeout_ms, &cluster, &error) < 0) {
        cli_fail(b->topic, &error);
        return -1;
    }
    int32_t n = -1;
    if (cluster->topics_count != 1 || cluster->topics[0].error.code)
        cli_fail(b->topic, cluster->topics_count ? &cluster->topics[0].error : &error);
    else
        n = (int32_t)cluster->topics[0].partitions_count;
    brook_cluster_free(cluster);
    return n;
}

int64_t bench_stored(struct bench *b)
{
    struct brook_error error = {0};
    int32_t n = partitions_of(b);
    if (n <= 0)
        return -1;
    struct brook_position *positions = calloc(2 * (size_t)n, sizeof *positions);
    if (!positions)
        abort();
    for (int32_t i = 0; i < 2 * n; i++)
        positions[i] = (struct brook_position){b->topic, i % n, i < n ? BROOK_OFFSET_EARLIEST : BROOK_OFFSET_LATEST};
    int64_t sum = -1;
    if (brook_admin_list_offsets(b->admin, positions, NULL, 2 * (size_t)n, b->cli->timeout_ms, &error) < 0) {
        cli_fail(b->topic, &error);
    } else {
        sum = 0;
        for (int32_t i = 0; i < n; i++)
            sum += positions[n + i].offset - positions[i].offset;
    }
    free(positions);
    return sum;
}

int64_t bench_wait_stored(struct bench *b, int64_t records)
{
    int64_t until_ns = bench_now_ns() + (int64_t)b->cli->timeout_ms * 1000000;
    int64_t stored;
    while ((stored = bench_stored(b)) >= 0 && stored < records && bench_now_ns() < until_ns && !cli_interrupted())
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    return stored;
}

/* ---- producing ---------------------------------------------------------------------------------------- */

static void on_report(void *arg, const struct brook_report *report)
{
    struct bench *b = arg;
    if (report->opaque)
        histogram_add(&b->latency, (bench_now_ns() - (int64_t)(intptr_t)report->opaque) / 1000);
}

/* Every so many records one is timed: reading the clock for each would be measured too. */
#define LATENCY_EVERY 64

static bool send_all(struct bench *b, brook_producer *producer)
{
    struct brook_error error = {0};
    uint8_t *value = malloc((size_t)b->value_bytes + 8);
    if (!value)
        abort();
    struct brook_record record = {
        .topic = b->topic, .partition = BROOK_PARTITION_ANY, .value = value, .value_bytes = (size_t)b->value_bytes};
    bool fine = true;
    for (int64_t i = 0; fine && i < b->records && !cli_interrupted(); i++) {
        bench_value(b, i, value);
        record.opaque = i % LATENCY_EVERY == 0 ? (void *)(intptr_t)bench_now_ns() : NULL;
        if (brook_producer_send(producer, &record, BROOK_SEND_WAIT, &error) < 0)
            fine = (cli_fail("send", &error), false);
        if (i % 4096 == 0)
            brook_producer_poll(producer, 0);
    }
    free(value);
    return fine;
}

bool bench_fill(struct bench *b, bool with_latency)
{
    struct brook_error error = {0};
    brook_producer *producer;
    if (brook_producer_new(b->cli->config, &producer, &error) < 0)
        return cli_fail("can not start", &error), false;
    brook_producer_on_report(producer, on_report, b);
    bool fine = send_all(b, producer);
    if (fine && brook_producer_flush(producer, b->cli->timeout_ms) < 0)
        fine = (cli_say("not everything was acknowledged in time"), false);
    int64_t failures = brook_producer_failures(producer);
    if (fine && failures)
        fine = (cli_say("%" PRId64 " records were not stored", failures), false);
    if (with_latency)
        bench_stop(b);
    brook_producer_close(producer, 0);
    return fine && !cli_interrupted();
}

/* Figures without it can not be compared. */
static const char *durability_of(struct bench *b)
{
    struct brook_error error = {0};
    struct brook_config_entries *entries = NULL;
    if (b->admin && !*b->durability &&
        brook_admin_describe_config(b->admin, b->topic, b->cli->timeout_ms, &entries, &error) == 0) {
        for (size_t i = 0; i < entries->count; i++)
            if (!strcmp(entries->entries[i].key, "durability"))
                snprintf(b->durability, sizeof b->durability, "%s", entries->entries[i].value);
        brook_config_entries_free(entries);
    }
    return *b->durability ? b->durability : "not known";
}

/* ---- the result ------------------------------------------------------------------------------------------ */

int bench_report(struct bench *b, const char *what, json_t *extra)
{
    double per_second = (double)b->records / b->seconds;
    double bytes_per_second = per_second * (double)b->value_bytes;
    if (!b->cli->json) {
        json_decref(extra);
        printf("%s: %" PRId64 " records of %" PRId64 " bytes in %.2f s: %.0f records/s, %.1f MB/s; durability %s; client CPU "
               "%.2f s",
               what, b->records, b->value_bytes, b->seconds, per_second, bytes_per_second / 1e6, durability_of(b),
               b->client_cpu_seconds);
        if (b->pids_count)
            printf(", broker CPU %.2f s", b->broker_cpu_seconds);
        if (b->latency.total)
            printf("; latency us p50 %" PRId64 " p99 %" PRId64 " p99.9 %" PRId64 " max %" PRId64,
                   histogram_percentile(&b->latency, 0.5), histogram_percentile(&b->latency, 0.99),
                   histogram_percentile(&b->latency, 0.999), b->latency.max);
        putchar('\n');
        return CLI_OK;
    }
    json_t *result = json_pack("{s:s,s:s,s:I,s:I,s:f,s:f,s:f,s:f}", "bench", what, "durability", durability_of(b), "records", (json_int_t)b->records,
                               "value_bytes", (json_int_t)b->value_bytes, "seconds", b->seconds, "records_per_second",
                               per_second, "bytes_per_second", bytes_per_second, "client_cpu_seconds",
                               b->client_cpu_seconds);
    if (b->pids_count) {
        int64_t resident = 0;
        for (int i = 0; i < b->pids_count; i++)
            resident += resident_of(b->pids[i]);
        json_object_set_new(result, "broker_cpu_seconds", json_real(b->broker_cpu_seconds));
        json_object_set_new(result, "broker_resident_bytes", json_integer(resident));
    }
    if (b->latency.total)
        json_object_set_new(result, "latency_us", histogram_json(&b->latency));
    if (extra)
        json_object_update(result, extra);
    json_decref(extra);
    return cli_print_json(result);
}
