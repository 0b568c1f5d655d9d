/* brook cluster elect */
#include "client/cli/commands.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Whether an election could change something. */
static bool is_wanted(const struct brook_partition *p, bool unclean)
{
    return unclean ? p->leader < 0 : p->replicas_count > 0 && p->leader >= 0 && p->leader != p->replicas[0];
}

static struct brook_partition_name *choose(const struct brook_cluster *cluster, bool unclean, size_t *ret_count)
{
    size_t all = 0, n = 0;
    for (size_t t = 0; t < cluster->topics_count; t++)
        all += cluster->topics[t].partitions_count;
    struct brook_partition_name *list = calloc(all + 1, sizeof *list);
    if (!list)
        abort();
    for (size_t t = 0; t < cluster->topics_count; t++)
        for (size_t i = 0; i < cluster->topics[t].partitions_count; i++)
            if (is_wanted(&cluster->topics[t].partitions[i], unclean))
                list[n++] = (struct brook_partition_name){cluster->topics[t].name,
                                                          cluster->topics[t].partitions[i].partition};
    *ret_count = n;
    return list;
}

static int show(struct cli *cli, const struct brook_partition_name *list, const struct brook_error *errors, size_t count)
{
    json_t *results = json_array();
    size_t held = 0;
    for (size_t i = 0; i < count; i++) {
        const char *text = errors[i].code ? errors[i].text : NULL;
        held += !text;
        json_array_append_new(results, json_pack("{s:s,s:i,s:b,s:s?}", "topic", list[i].topic, "partition",
                                                 (int)list[i].partition, "elected", !text, "error", text));
        if (text)
            cli_say("%s", text);
    }
    int code = CLI_OK;
    if (cli->json)
        code = cli_print_json(results);
    else {
        printf("%zu of %zu partitions are led by another replica now\n", held, count);
        json_decref(results);
    }
    return held == count ? code : CLI_FAILED;
}

/* Nobody leads there, and this election does not change it: not an error, but not nothing either. */
static void say_leaderless(const struct brook_cluster *cluster)
{
    size_t n = 0;
    for (size_t t = 0; t < cluster->topics_count; t++)
        for (size_t i = 0; i < cluster->topics[t].partitions_count; i++)
            n += cluster->topics[t].partitions[i].leader < 0;
    if (n > 0)
        cli_say("%zu partitions have no leader, which only a replica in sync changes, or --unclean; `brook cluster` says why", n);
}

static int elect(struct cli *cli, brook_admin *admin, const struct brook_cluster *cluster)
{
    bool unclean = cli_flag(cli, "unclean");
    size_t count;
    struct brook_error error = {0};
    struct brook_partition_name *list = choose(cluster, unclean, &count);
    struct brook_error *errors = calloc(count + 1, sizeof *errors);
    if (!errors)
        abort();
    int code = CLI_OK;
    int r = count ? brook_admin_elect_leaders(admin, list, count, unclean, cli->timeout_ms, errors, &error) : 0;
    bool is_told = false;
    for (size_t i = 0; i < count; i++)
        is_told = is_told || errors[i].code;
    if (r < 0 && !is_told)
        code = cli_fail("no election was held", &error);
    else
        code = show(cli, list, errors, count);
    if (!unclean)
        say_leaderless(cluster);
    free(list);
    free(errors);
    return code;
}

static int run(struct cli *cli)
{
    brook_admin *admin = cli_admin(cli);
    if (!admin)
        return CLI_FAILED;
    struct brook_error error = {0};
    struct brook_cluster *cluster = NULL;
    int code = CLI_FAILED;
    if (brook_admin_describe_cluster(admin, (const char *const *)cli->arguments, (size_t)cli->arguments_count,
                                     cli->timeout_ms, &cluster, &error) < 0) {
        code = cli_fail("can not read the cluster", &error);
    } else {
        code = CLI_OK;
        for (size_t t = 0; t < cluster->topics_count && code == CLI_OK; t++)
            if (cluster->topics[t].error.code && cli->arguments_count)
                code = cli_fail(cluster->topics[t].name, &cluster->topics[t].error);
        if (code == CLI_OK)
            code = elect(cli, admin, cluster);
    }
    brook_cluster_free(cluster);
    brook_admin_free(admin);
    return code;
}

static const struct cli_option options[] = {
    {"unclean", NULL, "where nobody leads, let the longest log lead: acknowledged records may be lost", 0},
    {0},
};

const struct cli_command cmd_cluster_elect = {
    .group = "cluster", .name = "elect", .arguments = "[TOPIC...]", .arguments_min = 0, .arguments_max = -1,
    .summary = "give leadership back to preferred replicas",
    .description = "Let the preferred replica, the first of each list, lead again where another one does, of the topics\n"
                   "named or of all. The cluster does so by itself now and then (auto.leader.rebalance.enable).",
    .examples = "  brook cluster elect\n  brook cluster elect orders --unclean\n", .options = options, .run = run,
};
