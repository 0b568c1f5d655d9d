#include "client/cli/commands.h"

#include <inttypes.h>
#include <stdlib.h>

#define NAMED_MAX 20 /* partitions with trouble, by name */

struct counts {
    size_t partitions;
    size_t leaderless;
    size_t behind; /* fewer in sync than assigned */
};

static struct counts count(const struct brook_cluster *cluster)
{
    struct counts c = {0};
    for (size_t i = 0; i < cluster->topics_count; i++)
        for (size_t j = 0; j < cluster->topics[i].partitions_count; j++) {
            const struct brook_partition *p = &cluster->topics[i].partitions[j];
            c.partitions++;
            c.leaderless += p->leader < 0;
            c.behind += p->isr_count < p->replicas_count;
        }
    return c;
}

static size_t led_by(const struct brook_cluster *cluster, int32_t broker)
{
    size_t n = 0;
    for (size_t i = 0; i < cluster->topics_count; i++)
        for (size_t j = 0; j < cluster->topics[i].partitions_count; j++)
            n += cluster->topics[i].partitions[j].leader == broker;
    return n;
}

typedef bool is_trouble(const struct brook_partition *p);

static bool has_no_leader(const struct brook_partition *p)
{
    return p->leader < 0;
}

static bool lacks_replicas(const struct brook_partition *p)
{
    return p->leader >= 0 && p->isr_count < p->replicas_count;
}

static json_t *trouble_json(const struct brook_cluster *cluster, is_trouble *is_it)
{
    json_t *list = json_array();
    for (size_t i = 0; i < cluster->topics_count; i++)
        for (size_t j = 0; j < cluster->topics[i].partitions_count; j++) {
            const struct brook_partition *p = &cluster->topics[i].partitions[j];
            if (is_it(p))
                json_array_append_new(list, json_pack("{s:s,s:i,s:i,s:I,s:I}", "topic", cluster->topics[i].name,
                                                      "partition", p->partition, "leader", p->leader, "replicas",
                                                      (json_int_t)p->replicas_count, "in_sync",
                                                      (json_int_t)p->isr_count));
        }
    return list;
}

/* The first few by name. */
static void trouble_people(const struct brook_cluster *cluster, const char *what, is_trouble *is_it)
{
    size_t n = 0;
    for (size_t i = 0; i < cluster->topics_count; i++)
        for (size_t j = 0; j < cluster->topics[i].partitions_count; j++) {
            const struct brook_partition *p = &cluster->topics[i].partitions[j];
            if (is_it(p) && n++ < NAMED_MAX)
                printf("%s %s/%" PRId32 " (%zu of %zu in sync)\n", what, cluster->topics[i].name, p->partition,
                       p->isr_count, p->replicas_count);
        }
    if (n > NAMED_MAX)
        printf("%s ... and %zu more (--json names all)\n", what, n - NAMED_MAX);
}

static json_t *cluster_json(const struct brook_cluster *cluster)
{
    json_t *brokers = json_array();
    struct counts c = count(cluster);
    for (size_t i = 0; i < cluster->brokers_count; i++) {
        const struct brook_broker *b = &cluster->brokers[i];
        json_array_append_new(brokers, json_pack("{s:i,s:s,s:i,s:s?,s:I}", "id", b->id, "host", b->host, "port",
                                                 b->port, "rack", b->rack, "leads", (json_int_t)led_by(cluster, b->id)));
    }
    return json_pack("{s:s,s:i,s:o,s:I,s:I,s:I,s:I,s:o,s:o}", "cluster_id", cluster->cluster_id, "controller",
                     cluster->controller, "brokers", brokers, "topics", (json_int_t)cluster->topics_count,
                     "partitions", (json_int_t)c.partitions, "leaderless", (json_int_t)c.leaderless,
                     "under_replicated", (json_int_t)c.behind, "leaderless_partitions",
                     trouble_json(cluster, has_no_leader), "under_replicated_partitions",
                     trouble_json(cluster, lacks_replicas));
}

static const char *plural(size_t n)
{
    return n == 1 ? "" : "s";
}

static void cluster_people(const struct brook_cluster *cluster)
{
    struct counts c = count(cluster);
    printf("cluster %s: %zu broker%s, %zu topic%s, %zu partition%s, %zu without leader, %zu under-replicated\n",
           cluster->cluster_id, cluster->brokers_count, plural(cluster->brokers_count), cluster->topics_count,
           plural(cluster->topics_count), c.partitions, plural(c.partitions), c.leaderless, c.behind);
    const char *titles[] = {"  BROKER", "ADDRESS", "RACK", "LEADS", "ROLE"};
    struct cli_table *table = cli_table_new(5, titles);
    for (size_t i = 0; i < cluster->brokers_count; i++) {
        const struct brook_broker *b = &cluster->brokers[i];
        char id[16], address[300], leads[24];
        snprintf(id, sizeof id, "  %" PRId32, b->id);
        snprintf(address, sizeof address, "%s:%" PRId32, b->host, b->port);
        snprintf(leads, sizeof leads, "%zu", led_by(cluster, b->id));
        const char *cells[] = {id, address, b->rack ? b->rack : "-", leads,
                               b->id == cluster->controller ? "controller" : "-"};
        cli_table_add(table, cells);
    }
    cli_table_print(table, stdout);
    cli_table_free(table);
    trouble_people(cluster, "  without leader:", has_no_leader);
    trouble_people(cluster, "  under-replicated:", lacks_replicas);
}

static int run(struct cli *cli)
{
    brook_admin *admin = cli_admin(cli);
    if (!admin)
        return CLI_FAILED;
    struct brook_error error = {0};
    struct brook_cluster *cluster = NULL;
    int r = brook_admin_describe_cluster(admin, NULL, 0, cli->timeout_ms, &cluster, &error);
    brook_admin_free(admin);
    if (r < 0)
        return cli_fail("can not read the cluster", &error);
    int code = CLI_OK;
    if (cli->json)
        code = cli_print_json(cluster_json(cluster));
    else
        cluster_people(cluster);
    brook_cluster_free(cluster);
    return code;
}

const struct cli_command cmd_cluster = {
    .name = "cluster", .arguments = "", .summary = "show brokers, controller and what is wrong with partitions",
    .description = "Show the live brokers, which of them is the controller, how many partitions each leads, and how many\n"
                   "partitions have no leader or too few replicas in sync.",
    .examples = "  brook cluster --json\n", .run = run,
};
