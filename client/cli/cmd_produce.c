#include "client/cli/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HEADERS_MAX 32
#define COMPLAINTS_MAX 10
/* How long a signal may have to wait. */
#define ROOM_POLL_MS 100

struct produce {
    struct cli *cli;
    brook_producer *producer;
    struct brook_record record; /* topic, partition and headers are the same for all */
    struct brook_header headers[HEADERS_MAX];
    const char *separator; /* between key and value; NULL: no keys */
    const char *null_value; /* a value that is this is written as none; NULL: all are written */
    int delimiter;
    int64_t lines; /* read so far: the number of the record that is being sent */
    int64_t accepted;
    int64_t bytes;
    int64_t stored;
    int64_t failed;
    struct timespec started;
    struct timespec spoken;
};

static double seconds_since(const struct timespec *then)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - then->tv_sec) + (double)(now.tv_nsec - then->tv_nsec) / 1e9;
}

static void on_report(void *arg, const struct brook_report *report)
{
    struct produce *p = arg;
    if (report->outcome == BROOK_STORED) {
        p->stored++;
        return;
    }
    if (p->failed++ < COMPLAINTS_MAX)
        cli_say("record %" PRIdPTR ": %s: %s", (intptr_t)report->opaque,
                report->outcome == BROOK_MAYBE_STORED ? "may or may not be stored" : "not stored", report->error.text);
}

static void progress(struct produce *p, bool last)
{
    if (!p->cli->progress || (!last && seconds_since(&p->spoken) < 0.5))
        return;
    clock_gettime(CLOCK_MONOTONIC, &p->spoken);
    double seconds = seconds_since(&p->started);
    fprintf(stderr, "\r%" PRId64 " records, %.1f MB, %.0f records/s%s", p->stored, (double)p->bytes / 1e6,
            (double)p->stored / (seconds > 0 ? seconds : 1), last ? "\n" : "");
}

static bool split_headers(struct produce *p)
{
    const char *text;
    for (size_t i = 0; (text = cli_value_at(p->cli, "header", (int)i)) != NULL; i++) {
        const char *equals = strchr(text, '=');
        if (i == HEADERS_MAX || !equals) {
            cli_usage(p->cli, "--header: '%s' is not KEY=VALUE (at most %d of them)", text, HEADERS_MAX);
            return false;
        }
        p->headers[i] = (struct brook_header){text, (size_t)(equals - text), equals + 1, strlen(equals + 1)};
        p->record.headers_count = i + 1;
    }
    p->record.headers = p->headers;
    return true;
}

/* Wait for room, but not longer than until a signal. */
static int send_patiently(struct produce *p, const struct brook_record *record, struct brook_error *error)
{
    int r;
    while ((r = brook_producer_send(p->producer, record, 0, error)) == -BROOK_E_QUEUE_FULL && !cli_interrupted()) {
        brook_producer_poll(p->producer, ROOM_POLL_MS);
        progress(p, false);
    }
    return r;
}

/* Hand one line over. Returns 0, or a negative code after having said what is wrong. */
static int send_line(struct produce *p, const char *line, size_t bytes)
{
    struct brook_record record = p->record;
    struct brook_error error = {0};
    record.value = line;
    record.value_bytes = bytes;
    if (p->separator) {
        size_t width = strlen(p->separator);
        const char *at = memmem(line, bytes, p->separator, width);
        if (at) {
            record.key = line;
            record.key_bytes = (size_t)(at - line);
            record.value = at + width;
            record.value_bytes = bytes - record.key_bytes - width;
        }
    }
    if (p->null_value && record.value_bytes == strlen(p->null_value) &&
        memcmp(record.value, p->null_value, record.value_bytes) == 0) {
        record.value = NULL;
        record.value_bytes = 0;
    }
    record.opaque = (void *)(intptr_t)++p->lines;
    int r = send_patiently(p, &record, &error);
    if (r == -BROOK_E_QUEUE_FULL)
        return 0; /* interrupted: the reader looks, too */
    if (r == 0) {
        p->accepted++;
        p->bytes += (int64_t)bytes;
        return 0;
    }
    if (p->failed++ < COMPLAINTS_MAX)
        cli_say("record %" PRIdPTR ": not stored: %s", (intptr_t)record.opaque, error.text);
    /* A record that is too large is one record's trouble; all else would go wrong again. */
    return r == -BROOK_E_MESSAGE_TOO_LARGE ? 0 : r;
}

static int read_file(struct produce *p, FILE *in, const char *name)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    int r = 0;
    while (r == 0 && !cli_interrupted() && (n = getdelim(&line, &capacity, p->delimiter, in)) > 0) {
        size_t bytes = (size_t)n - (line[n - 1] == (char)p->delimiter);
        r = send_line(p, line, bytes);
        if ((p->lines & 0xfff) == 0) {
            brook_producer_poll(p->producer, 0);
            progress(p, false);
        }
    }
    free(line);
    if (r == 0 && ferror(in) && !cli_interrupted()) {
        cli_say("%s: %s", name, strerror(errno));
        r = -BROOK_E_IO;
    }
    return r;
}

static bool configure(struct produce *p)
{
    struct cli *cli = p->cli;
    static const char *const options[][2] = {
        {"acks", "acks"}, {"compression", "compression"}, {"linger", "linger.ms"}, {"batch-size", "batch.size"}};
    for (unsigned i = 0; i < sizeof options / sizeof options[0]; i++) {
        const char *value = cli_value(cli, options[i][0]);
        if (value && !cli_configure(cli, options[i][1], value))
            return false;
    }
    int64_t partition;
    if (!cli_number(cli, "partition", BROOK_PARTITION_ANY, 0, INT32_MAX, &partition) || !split_headers(p))
        return false;
    p->separator = cli_value(cli, "key-separator");
    if (p->separator && !*p->separator) {
        cli_usage(cli, "--key-separator must not be empty");
        return false;
    }
    p->null_value = cli_value(cli, "null-value");
    p->delimiter = cli_flag(cli, "null") ? '\0' : '\n';
    p->record.topic = cli->arguments[0];
    p->record.partition = (int32_t)partition;
    const char *key = cli_value(cli, "key");
    if (key) {
        p->record.key = key;
        p->record.key_bytes = strlen(key);
    }
    return true;
}

static int finish(struct produce *p, int r)
{
    int64_t lost = brook_producer_close(p->producer, cli_interrupted() ? 5000 : p->cli->timeout_ms);
    double seconds = seconds_since(&p->started);
    progress(p, true);
    if (p->cli->json)
        cli_print_json(json_pack("{s:s,s:I,s:I,s:I,s:f}", "topic", p->record.topic, "stored", (json_int_t)p->stored,
                                 "failed", (json_int_t)p->failed, "bytes", (json_int_t)p->bytes, "seconds", seconds));
    else if (p->failed)
        cli_say("%" PRId64 " of %" PRId64 " records stored in %s", p->stored, p->stored + p->failed, p->record.topic);
    else if (!cli_flag(p->cli, "quiet"))
        cli_say("%" PRId64 " records (%" PRId64 " bytes) stored in %s", p->stored, p->bytes, p->record.topic);
    return r == 0 && lost == 0 && p->failed == 0 && !cli_interrupted() ? CLI_OK : CLI_FAILED;
}

static int run(struct cli *cli)
{
    struct produce p = {.cli = cli};
    if (!configure(&p))
        return CLI_USAGE;
    const char *file = cli_value(cli, "file");
    FILE *in = !file || strcmp(file, "-") == 0 ? stdin : fopen(file, "re");
    if (!in) {
        cli_say("%s: %s", file, strerror(errno));
        return CLI_FAILED;
    }
    setvbuf(in, NULL, _IOFBF, 1 << 18);
    struct brook_error error = {0};
    if (brook_producer_new(cli->config, &p.producer, &error) < 0) {
        if (in != stdin)
            fclose(in);
        return cli_fail("can not start", &error);
    }
    brook_producer_on_report(p.producer, on_report, &p);
    cli_catch_signals();
    clock_gettime(CLOCK_MONOTONIC, &p.started);
    int r = read_file(&p, in, file ? file : "standard input");
    int code = finish(&p, r);
    if (in != stdin)
        fclose(in);
    return code;
}

static const struct cli_option options[] = {
    {"file", "FILE", "read this file or pipe instead of standard input", 'f'},
    {"partition", "N", "put all records into this partition", 'p'},
    {"key", "KEY", "give all records this key", 'k'},
    {"key-separator", "TEXT", "what stands in front of TEXT in a line is the record's key", 'K'},
    {"null-value", "TEXT", "a value that is TEXT is written as null: in a compacted topic it deletes the key", 0},
    {"header", "KEY=VALUE", "a header for all records; may be repeated", 'H'},
    {"acks", "none|leader|all", "what to wait for", 'a'},
    {"compression", "CODEC", "none, gzip, snappy, lz4 or zstd", 'c'},
    {"linger", "MS", "how long a batch may wait for more records", 0},
    {"batch-size", "BYTES", "how large a batch may grow", 0},
    {"null", NULL, "records end in a zero byte instead of a newline", '0'},
    {0},
};

const struct cli_command cmd_produce = {
    .name = "produce", .arguments = "TOPIC", .arguments_min = 1, .arguments_max = 1,
    .summary = "lines become records",
    .description = "Read lines and store each as one record, byte for byte, without its newline. Empty lines are records.\n"
                   "Exits with 1 if any record was not stored, after having said which.",
    .examples = "  brook produce orders --file orders.txt\n"
                "  tail -f app.log | brook produce logs --compression zstd\n"
                "  printf 'k1:v1\\n' | brook produce orders --key-separator :\n"
                "  printf 'k1:-\\n' | brook produce orders --key-separator : --null-value -\n",
    .options = options, .run = run,
};
