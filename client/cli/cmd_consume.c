#include "client/cli/commands.h"
#include "client/cli/format.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct consume {
    struct cli *cli;
    brook_consumer *consumer;
    brook_admin *admin;           /* until-end and times need it; else NULL */
    const char *group;            /* NULL: explicit assignment */
    const char *format;
    const char *from;
    int64_t max;                  /* -1: no limit */
    int64_t idle_ms_max;          /* -1: for ever */
    struct brook_position *ends;  /* --until-end: per partition, the end at the start */
    size_t ends_count;
    struct timespec asked;        /* when the group's offsets were last looked at */
    int64_t count;
    bool verbose;
};

static void say_positions(const char *what, const struct brook_position *positions, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (positions[i].offset >= 0)
            cli_say("%s %s/%" PRId32 " at %" PRId64, what, positions[i].topic, positions[i].partition,
                    positions[i].offset);
        else
            cli_say("%s %s/%" PRId32, what, positions[i].topic, positions[i].partition);
}

static void on_assigned(void *arg, const struct brook_position *positions, size_t count)
{
    say_positions("assigned", positions, count);
}

static void on_revoking(void *arg, const struct brook_position *positions, size_t count)
{
    say_positions("handing over", positions, count);
}

static void on_lost(void *arg, const struct brook_position *positions, size_t count)
{
    say_positions("lost", positions, count);
}

/* ---- where to begin and where to end --------------------------------------------------------------------- */

/* All partitions of the topics on the command line with `offset`; one block for free(). NULL after having said why. */
static struct brook_position *all_partitions(struct consume *c, int64_t offset, size_t *ret_count)
{
    struct brook_error error = {0};
    struct brook_cluster *cluster = NULL;
    const char *const *names = (const char *const *)c->cli->arguments;
    if (brook_admin_describe_cluster(c->admin, names, (size_t)c->cli->arguments_count, c->cli->timeout_ms, &cluster,
                                     &error) < 0) {
        cli_fail("can not read the topics", &error);
        return NULL;
    }
    size_t n = 0;
    for (size_t i = 0; i < cluster->topics_count; i++)
        n += cluster->topics[i].partitions_count;
    struct brook_position *positions = calloc(n + 1, sizeof *positions);
    if (!positions)
        abort();
    n = 0;
    for (size_t i = 0; i < cluster->topics_count; i++) {
        const struct brook_topic *t = &cluster->topics[i];
        if (t->error.code) {
            cli_fail(t->name, &t->error);
            free(positions);
            positions = NULL;
            break;
        }
        for (size_t j = 0; j < t->partitions_count; j++)
            positions[n++] = (struct brook_position){c->cli->arguments[i], t->partitions[j].partition, offset};
    }
    brook_cluster_free(cluster);
    *ret_count = n;
    return positions;
}

/* Replace the offsets by the first ones at or after --from's time. */
static bool seek_times(struct consume *c, struct brook_position *positions, size_t count, int64_t time_ms)
{
    struct brook_error error = {0};
    int64_t *times = calloc(count + 1, sizeof *times);
    if (!times)
        abort();
    for (size_t i = 0; i < count; i++)
        times[i] = time_ms;
    int r = brook_admin_list_offsets(c->admin, positions, times, count, c->cli->timeout_ms, &error);
    free(times);
    return r == 0 || (cli_fail("can not look the time up", &error), false);
}

static bool note_ends(struct consume *c)
{
    struct brook_error error = {0};
    c->ends = all_partitions(c, BROOK_OFFSET_LATEST, &c->ends_count);
    if (!c->ends)
        return false;
    if (brook_admin_list_offsets(c->admin, c->ends, NULL, c->ends_count, c->cli->timeout_ms, &error) == 0)
        return true;
    for (size_t i = 0; i < c->ends_count; i++)
        if (c->ends[i].offset < 0)
            cli_say("%s/%" PRId32 ": its end is not known", c->ends[i].topic, c->ends[i].partition);
    cli_fail("can not read the ends", &error);
    return false;
}

/* A group may wait for topics that are not there yet, but people should know; and a cluster that can not be reached is
 * told now rather than waited for in silence. */
static bool look_at_topics(struct consume *c)
{
    struct brook_error error = {0};
    struct brook_cluster *cluster = NULL;
    bool by_name = !cli_flag(c->cli, "pattern");
    if (brook_admin_describe_cluster(c->admin, by_name ? (const char *const *)c->cli->arguments : NULL,
                                     by_name ? (size_t)c->cli->arguments_count : 0, c->cli->timeout_ms, &cluster,
                                     &error) < 0) {
        cli_fail("can not read the topics", &error);
        return false;
    }
    bool fine = true;
    for (size_t i = 0; by_name && i < cluster->topics_count; i++) {
        const struct brook_topic *t = &cluster->topics[i];
        if (t->error.code == BROOK_E_UNKNOWN_TOPIC)
            cli_say("%s: no such topic yet: waiting for it", t->name);
        else if (t->error.code)
            fine = (cli_fail(NULL, &t->error), false);
    }
    brook_cluster_free(cluster);
    return fine;
}

static bool assign(struct consume *c)
{
    struct brook_error error = {0};
    int64_t partition, offset, time_ms = -1;
    int64_t start = strcmp(c->from, "latest") == 0 ? BROOK_OFFSET_LATEST : BROOK_OFFSET_EARLIEST;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (strcmp(c->from, "latest") != 0 && strcmp(c->from, "earliest") != 0 &&
        cli_parse_time(c->from, (int64_t)now.tv_sec * 1000, &time_ms) < 0) {
        cli_usage(c->cli, "--from: '%s' is neither earliest, latest nor a time", c->from);
        return false;
    }
    if (!cli_number(c->cli, "partition", -1, 0, INT32_MAX, &partition) ||
        !cli_number(c->cli, "offset", -1, 0, INT64_MAX, &offset))
        return false;
    size_t count;
    struct brook_position *positions = all_partitions(c, offset >= 0 ? offset : start, &count);
    if (!positions)
        return false;
    if (partition >= 0) {
        size_t kept = 0;
        for (size_t i = 0; i < count; i++)
            if (positions[i].partition == partition)
                positions[kept++] = positions[i];
        count = kept;
        if (!count)
            cli_say("%s has no partition %" PRId64, c->cli->arguments[0], partition);
    }
    bool fine = count > 0 && (time_ms < 0 || seek_times(c, positions, count, time_ms));
    if (fine && brook_consumer_assign(c->consumer, positions, count, &error) < 0)
        fine = (cli_fail("can not start", &error), false);
    free(positions);
    return fine;
}

static bool subscribe(struct consume *c)
{
    struct brook_error error = {0};
    static const struct brook_rebalance loud = {on_assigned, on_revoking, on_lost, NULL};
    if (c->verbose)
        brook_consumer_on_rebalance(c->consumer, &loud);
    int r = cli_flag(c->cli, "pattern")
                ? brook_consumer_subscribe_pattern(c->consumer, c->cli->arguments[0], &error)
                : brook_consumer_subscribe(c->consumer, (const char *const *)c->cli->arguments,
                                           (size_t)c->cli->arguments_count, &error);
    return r == 0 || (cli_fail("can not join", &error), false);
}

static bool half_a_second_passed(struct timespec *since)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t ms = (now.tv_sec - since->tv_sec) * 1000 + (now.tv_nsec - since->tv_nsec) / 1000000;
    if (ms < 500)
        return false;
    *since = now;
    return true;
}

/* Has everything below the ends been read: by this consumer, or by the group as its commits tell? */
static bool reached_ends(struct consume *c)
{
    if (!c->ends || (c->group && !half_a_second_passed(&c->asked)))
        return false;
    if (c->group && brook_consumer_commit(c->consumer, NULL, 0, BROOK_COMMIT_SYNC, 5000, NULL) < 0)
        return false;
    for (size_t i = 0; i < c->ends_count; i++) {
        const struct brook_position *end = &c->ends[i];
        int64_t at = -1;
        int r = c->group ? brook_consumer_committed(c->consumer, end->topic, end->partition, 5000, &at, NULL)
                         : brook_consumer_position(c->consumer, end->topic, end->partition, &at);
        if (!c->group && r == -BROOK_E_NOT_ASSIGNED)
            continue;
        if (r < 0 || (at < end->offset && end->offset > 0))
            return false;
    }
    return true;
}

/* Where to stop in the batch's partition: INT64_MAX without --until-end. */
static int64_t end_of(const struct consume *c, const brook_batch *batch)
{
    for (size_t i = 0; i < c->ends_count; i++)
        if (c->ends[i].partition == brook_batch_partition(batch) &&
            strcmp(c->ends[i].topic, brook_batch_topic(batch)) == 0)
            return c->ends[i].offset;
    return INT64_MAX;
}

/* ---- printing ------------------------------------------------------------------------------------------------ */

static bool print_message(struct consume *c, const brook_batch *batch, const struct brook_message *m)
{
    const char *topic = brook_batch_topic(batch);
    int32_t partition = brook_batch_partition(batch);
    if (c->cli->json)
        return cli_print_json(format_json(topic, partition, m)) == CLI_OK;
    if (c->format) {
        format_print(c->format, topic, partition, m, stdout);
    } else {
        if (m->value)
            fwrite(m->value, 1, m->value_bytes, stdout);
        fputc('\n', stdout);
    }
    return !ferror(stdout);
}

/* Print a batch and give it back. What was printed is flushed first: only then is it processed. */
static bool print_batch(struct consume *c, brook_batch *batch)
{
    struct brook_message m;
    int64_t end = end_of(c, batch), next = -1;
    bool fine = true, all = false;
    while (fine && (c->max < 0 || c->count < c->max)) {
        all = brook_batch_next(batch, &m) < 0;
        if (all || m.offset >= end)
            break;
        fine = print_message(c, batch, &m);
        next = m.offset + 1;
        c->count++;
    }
    fine = cli_flush(c->cli) && fine;
    if (fine && all) {
        brook_batch_release(batch);
        return true;
    }
    /* What lies behind the end, or behind --max, is left for the next time. */
    if (next < 0)
        next = end;
    if (fine && next >= end)
        brook_consumer_pause(c->consumer, brook_batch_topic(batch), brook_batch_partition(batch), NULL);
    brook_batch_release_at(batch, fine ? next : 0);
    return fine;
}

static int loop(struct consume *c)
{
    int64_t idle_ms = 0;
    const int step_ms = 250;
    while (!cli_interrupted() && (c->max < 0 || c->count < c->max) && !reached_ends(c)) {
        brook_batch *batch = NULL;
        struct brook_error error = {0};
        int r = brook_consumer_poll(c->consumer, step_ms, &batch, &error);
        if (r == 0) {
            idle_ms = 0;
            if (!print_batch(c, batch))
                return c->cli->has_enough ? CLI_OK : CLI_FAILED;
        } else if (r == -BROOK_E_AGAIN) {
            idle_ms += step_ms;
            if (c->idle_ms_max >= 0 && idle_ms >= c->idle_ms_max)
                break;
        } else if (brook_error_advice(r) == BROOK_ADVICE_RETRY || brook_error_advice(r) == BROOK_ADVICE_REFRESH ||
                   brook_error_advice(r) == BROOK_ADVICE_FENCED) {
            cli_say("%s", error.text);
        } else {
            return cli_fail(NULL, &error);
        }
    }
    return CLI_OK;
}

static bool configure(struct consume *c)
{
    struct cli *cli = c->cli;
    struct brook_error error = {0};
    int64_t idle;
    c->group = cli_value(cli, "group");
    c->format = cli_value(cli, "format");
    c->from = cli_value(cli, "from") ? cli_value(cli, "from") : "earliest";
    c->verbose = cli_flag(cli, "verbose");
    if (!cli_number(cli, "max", -1, 0, INT64_MAX, &c->max) || !cli_number(cli, "idle", -1, 0, 86400, &idle))
        return false;
    c->idle_ms_max = idle < 0 ? -1 : idle * 1000;
    if (c->format && format_check(c->format, &error) < 0)
        return cli_usage(cli, "--format: %s", error.text), false;
    if (c->group && (cli_value(cli, "partition") || cli_value(cli, "offset")))
        return cli_usage(cli, "--group shares all partitions: --partition and --offset do not go with it"), false;
    if (cli_flag(cli, "pattern") && (!c->group || cli_flag(cli, "until-end")))
        return cli_usage(cli, "--pattern needs --group, and does not go with --until-end"), false;
    /* An offset that was named and is not there is an error, not a reason to begin elsewhere. */
    if (!c->group)
        return !cli_value(cli, "offset") || cli_configure(cli, "auto.offset.reset", "none");
    if (strcmp(c->from, "earliest") != 0 && strcmp(c->from, "latest") != 0)
        return cli_usage(cli, "--from: with --group only earliest or latest (where nothing is stored yet)"), false;
    return cli_configure(cli, "group.id", c->group) && cli_configure(cli, "auto.offset.reset", c->from) &&
           (!cli_value(cli, "strategy") ||
            cli_configure(cli, "partition.assignment.strategy", cli_value(cli, "strategy")));
}

static int run(struct cli *cli)
{
    struct consume c = {.cli = cli};
    if (!configure(&c))
        return CLI_USAGE;
    struct brook_error error = {0};
    if (!(c.admin = cli_admin(cli)))
        return CLI_FAILED;
    if (brook_consumer_new(cli->config, &c.consumer, &error) < 0) {
        brook_admin_free(c.admin);
        return cli_fail("can not start", &error);
    }
    cli_catch_signals();
    int code = CLI_FAILED;
    if ((!c.group || look_at_topics(&c)) && (!cli_flag(cli, "until-end") || note_ends(&c)) &&
        (c.group ? subscribe(&c) : assign(&c)))
        code = loop(&c);
    if (brook_consumer_close(c.consumer, 10000) < 0 && code == CLI_OK) {
        cli_say("could not leave in time");
        code = CLI_FAILED;
    }
    if (c.verbose)
        cli_say("%" PRId64 " records", c.count);
    brook_admin_free(c.admin);
    free(c.ends);
    return code;
}

static const struct cli_option options[] = {
    {"group", "GROUP", "share the topics with the other members of this group, and store offsets", 'g'},
    {"partition", "N", "read this partition only", 'p'},
    {"offset", "N", "begin at this offset", 'o'},
    {"from", "WHERE", "earliest, latest, or a time: 2026-11-30T08:00, -2h, @SECONDS (earliest)", 0},
    {"until-end", NULL, "stop at what is the end now (with --group: when the group has got there)", 'e'},
    {"max", "N", "stop after this many records", 'n'},
    {"idle", "SECONDS", "stop after this long without a record", 0},
    {"format", "FORMAT", "%t topic, %p partition, %o offset, %T time in ms, %k key, %v value, %h headers; \\n \\t", 'F'},
    {"pattern", NULL, "TOPIC is a regular expression (PCRE2) for whole names; with --group", 0},
    {"strategy", "NAME", "how the group shares partitions: range, roundrobin or sticky", 0},
    {"verbose", NULL, "say which partitions come and go, and what the library logs", 'v'},
    {0},
};

const struct cli_command cmd_consume = {
    .name = "consume", .arguments = "TOPIC...", .arguments_min = 1, .arguments_max = -1,
    .summary = "records become lines",
    .description = "Print records, each value followed by a newline. With --group partitions are shared with the other\n"
                   "members and offsets are stored, so that the next run goes on where the group stands; a record counts\n"
                   "as processed once it was written to standard output. Without --group nothing is stored. Runs until\n"
                   "interrupted, unless told when to stop.",
    .examples = "  brook consume orders --group billing\n"
                "  brook consume orders --partition 3 --offset 1000 --max 10 --json\n"
                "  brook consume orders --from -2h --until-end --format '%p %o %k %v\\n'\n",
    .options = options, .run = run,
};
