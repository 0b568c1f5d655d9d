/* brook topic delete-records: the beginning of partitions goes before its time. */
#include "client/cli/commands.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --before: an offset, "end", or a time that is looked up. Returns false after having said what is wrong. */
static bool read_before(struct cli *cli, int64_t *ret_offset, int64_t *ret_ms)
{
    const char *before = cli_value(cli, "before"), *time = cli_value(cli, "before-time");
    *ret_ms = -1;
    *ret_offset = BROOK_OFFSET_LATEST;
    if (!before == !time) {
        cli_usage(cli, "either --before or --before-time is needed");
        return false;
    }
    if (before && strcmp(before, "end") == 0)
        return true;
    if (before)
        return cli_number(cli, "before", 0, 0, INT64_MAX - 1, ret_offset);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (cli_parse_time(time, (int64_t)now.tv_sec * 1000, ret_ms) == 0)
        return true;
    cli_usage(cli, "--before-time: '%s' is not a time", time);
    return false;
}

/* Positions of one partition or of all of the topic, on the heap. NULL: it was said why not. */
static struct brook_position *list_positions(struct cli *cli, brook_admin *admin, const char *topic,
                                             int64_t partition, size_t *ret_count)
{
    struct brook_error error = {0};
    struct brook_cluster *cluster = NULL;
    int r = brook_admin_describe_cluster(admin, &topic, 1, cli->timeout_ms, &cluster, &error);
    if (r == 0 && cluster->topics[0].error.code)
        error = cluster->topics[0].error;
    if (error.code) {
        brook_cluster_free(cluster);
        cli_fail(topic, &error);
        return NULL;
    }
    size_t count = partition >= 0 ? 1 : cluster->topics[0].partitions_count;
    struct brook_position *positions = calloc(count + 1, sizeof *positions);
    if (!positions)
        abort();
    for (size_t i = 0; i < count; i++)
        positions[i] = (struct brook_position){
            .topic = topic,
            .partition = partition >= 0 ? (int32_t)partition : cluster->topics[0].partitions[i].partition};
    brook_cluster_free(cluster);
    *ret_count = count;
    return positions;
}

/* What is to be kept begins at the first record of that time. */
static int find_time(struct cli *cli, brook_admin *admin, struct brook_position *positions, size_t count, int64_t ms,
                     struct brook_error *error)
{
    int64_t *times = malloc(count * sizeof *times);
    if (!times)
        abort();
    for (size_t i = 0; i < count; i++)
        times[i] = ms;
    int r = brook_admin_list_offsets(admin, positions, times, count, cli->timeout_ms, error);
    free(times);
    return r;
}

static int print_starts(struct cli *cli, const struct brook_position *positions, size_t count, bool dry)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        if (positions[i].offset < 0)
            continue; /* it was said why */
        if (cli->json)
            json_array_append_new(list, json_pack("{s:s,s:i,s:I,s:b}", "topic", positions[i].topic, "partition",
                                                  positions[i].partition, "start", (json_int_t)positions[i].offset,
                                                  "deleted", !dry));
        else
            printf("%s/%" PRId32 " %s at offset %" PRId64 "\n", positions[i].topic, positions[i].partition,
                   dry ? "would begin" : "begins", positions[i].offset);
    }
    if (cli->json)
        return cli_print_json(list);
    json_decref(list);
    return CLI_OK;
}

static int delete_records(struct cli *cli, brook_admin *admin, int64_t partition, int64_t before, int64_t ms)
{
    struct brook_error error = {0};
    size_t count;
    bool dry = cli_flag(cli, "dry-run");
    struct brook_position *positions = list_positions(cli, admin, cli->arguments[0], partition, &count);
    if (!positions)
        return CLI_FAILED;
    int r = 0;
    if (ms >= 0)
        r = find_time(cli, admin, positions, count, ms, &error);
    for (size_t i = 0; ms < 0 && i < count; i++)
        positions[i].offset = before;
    bool is_asked = r == 0;
    if (is_asked)
        r = brook_admin_delete_records(admin, positions, count, dry, cli->timeout_ms, &error);
    int code = is_asked ? print_starts(cli, positions, count, dry) : CLI_FAILED;
    free(positions);
    return r < 0 ? cli_fail(NULL, &error) : code;
}

static int topic_delete_records(struct cli *cli)
{
    int64_t partition = -1, before, ms;
    if (!cli_value(cli, "partition") == !cli_flag(cli, "all-partitions"))
        return cli_usage(cli, "either --partition or --all-partitions is needed");
    if (!cli_number(cli, "partition", -1, 0, INT32_MAX, &partition) || !read_before(cli, &before, &ms))
        return CLI_USAGE;
    brook_admin *admin = cli_admin(cli);
    if (!admin)
        return CLI_FAILED;
    int code = delete_records(cli, admin, partition, before, ms);
    brook_admin_free(admin);
    return code;
}

static const struct cli_option options[] = {
    {"partition", "P", "the partition", 'p'},
    {"all-partitions", NULL, "all partitions of the topic", 0},
    {"before", "OFFSET", "delete what is below this offset; 'end': everything", 0},
    {"before-time", "TIME", "delete what is before the first record of this time or later, such as -24h", 0},
    {"dry-run", NULL, "check and say what would be the first offset, delete nothing", 0},
    {0},
};

const struct cli_command cmd_topic_delete_records = {
    .group = "topic", .name = "delete-records", .arguments = "NAME", .arguments_min = 1, .arguments_max = 1,
    .summary = "delete the oldest records of partitions",
    .description = "Delete the records of partitions below an offset, for good. The partitions begin there from then "
                   "on; readers that stand below go on as their auto.offset.reset says. Disk space is given back "
                   "segment by segment.",
    .examples = "  brook topic delete-records orders --partition 3 --before 120000\n"
                "  brook topic delete-records orders --all-partitions --before-time -24h\n",
    .options = options, .run = topic_delete_records,
};
