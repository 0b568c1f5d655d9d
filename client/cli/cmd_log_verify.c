/* brook log verify: is all of it well, offline. */
#include "client/cli/commands.h"

#include "broker/storage/inspect.h"
#include "proto/base/clock.h"

#include <inttypes.h>
#include <sys/stat.h>

struct verify {
    struct cli *cli;
    struct inspect in;
};

static void found(void *arg, const struct inspect_finding *f)
{
    struct verify *v = arg;
    if (v->cli->json) {
        json_t *object = json_pack("{s:s,s:s,s:s}", "kind", inspect_kind_name(f->kind), "file", f->path, "text", f->text);
        if (f->position >= 0)
            json_object_set_new(object, "position", json_integer(f->position));
        cli_print_json(object);
    } else if (f->position >= 0) {
        printf("%s: %s: at %" PRId64 ": %s\n", inspect_kind_name(f->kind), f->path, f->position, f->text);
    } else {
        printf("%s: %s: %s\n", inspect_kind_name(f->kind), f->path, f->text);
    }
}

static int verify(struct verify *v, const char *path, struct brook_error *error)
{
    struct stat st;
    bool is_directory = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    if (!is_directory)
        return inspect_file(&v->in, path, error);
    return inspect_is_data_dir(path) ? inspect_data_dir(&v->in, path, error) : inspect_partition(&v->in, path, error);
}

static int64_t count_faults(const struct inspect *in)
{
    int64_t count = 0;
    for (int kind = INSPECT_NOTE + 1; kind < INSPECT_KINDS_COUNT; kind++)
        count += in->findings[kind];
    return count;
}

static void print_totals(const struct verify *v, bool all_read, int64_t nanoseconds)
{
    const struct inspect *in = &v->in;
    double seconds = (double)(nanoseconds > 0 ? nanoseconds : 1) / 1e9, rate = (double)in->bytes / seconds / 1e9;
    if (v->cli->json) {
        json_t *object = json_pack("{s:I,s:I,s:I,s:I,s:I,s:f,s:f}", "partitions", (json_int_t)in->partitions, "segments",
                                   (json_int_t)in->segments, "batches", (json_int_t)in->batches, "records",
                                   (json_int_t)in->records, "bytes", (json_int_t)in->bytes, "seconds", seconds,
                                   "gigabytes_per_second", rate);
        for (int kind = 0; kind < INSPECT_KINDS_COUNT; kind++)
            json_object_set_new(object, inspect_kind_name(kind), json_integer(in->findings[kind]));
        cli_print_json(object);
        return;
    }
    printf("%" PRId64 " segments, %" PRId64 " batches, %" PRId64 " records, %" PRId64 " bytes in %.3f s (%.2f GB/s)",
           in->segments, in->batches, in->records, in->bytes, seconds, rate);
    if (all_read && count_faults(in) == 0)
        printf(": nothing is wrong");
    for (int kind = INSPECT_NOTE + 1; kind < INSPECT_KINDS_COUNT; kind++)
        if (in->findings[kind] > 0)
            printf("; %s: %" PRId64, inspect_kind_name(kind), in->findings[kind]);
    putchar('\n');
}

static int run(struct cli *cli)
{
    struct verify v = {.cli = cli, .in = {.found = found, .arg = &v}};
    int code = CLI_OK;
    int64_t start = clock_boot_ns();
    for (int i = 0; i < cli->arguments_count; i++) {
        struct brook_error error = {0};
        if (verify(&v, cli->arguments[i], &error) != 0)
            code = cli_fail("log verify", &error);
    }
    print_totals(&v, code == CLI_OK, clock_boot_ns() - start);
    return code == CLI_OK && count_faults(&v.in) > 0 ? CLI_FAILED : code;
}

const struct cli_command cmd_log_verify = {
    .group = "log", .name = "verify", .arguments = "FILE|DIRECTORY...", .arguments_min = 1, .arguments_max = -1,
    .summary = "check the files of a log, offline",
    .description = "Check every batch's checksum, that offsets rise, that the indexes and the file of leader epochs agree with\n"
                   "the batches, and the side files, of a partition's or a whole data directory (Brook's or Apache Kafka's)\n"
                   "or of single files. Nothing is ever written. What is found is one of: a note (nothing is wrong), a side\n"
                   "file (counts as not known at the next start), an index (made anew), a torn tail (an append that did not\n"
                   "finish: cut at the next start), damage (valid batches lie behind a bad one; nothing is cut), unreadable (the\n"
                   "rest of a data directory is checked all the same). A broker may be running: a file that it removes\n"
                   "meanwhile is passed over.\n"
                   "Exits with 1 when anything but notes was found or a file can not be read.",
    .examples = "  brook log verify /var/lib/brook\n  brook log verify /var/lib/brook/orders-0 --json\n",
    .is_offline = true, .run = run,
};
