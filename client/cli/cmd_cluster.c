#include "client/cli/commands.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NAMED_MAX 20 /* partitions with trouble, by name */

struct counts {
    size_t partitions;
    size_t leaderless;
    size_t behind; /* fewer in sync than assigned, not counting those that come for a move */
    size_t moving;
};

/* The cluster, and what is being moved in it, by topic and partition. */
struct picture {
    const struct brook_cluster *cluster;
    const struct brook_reassignment **moves;
    size_t moves_count;
    int64_t throttle; /* of the moves; 0: none */
};

static int compare_moves(const void *a, const void *b)
{
    const struct brook_reassignment *x = *(const struct brook_reassignment *const *)a;
    const struct brook_reassignment *y = *(const struct brook_reassignment *const *)b;
    int by_topic = strcmp(x->topic, y->topic);
    return by_topic ? by_topic : (x->partition > y->partition) - (x->partition < y->partition);
}

static const struct brook_reassignment *move_of(const struct picture *all, const char *topic, int32_t partition)
{
    const struct brook_reassignment key = {.topic = topic, .partition = partition}, *at = &key;
    const struct brook_reassignment **found =
        all->moves_count ? bsearch(&at, all->moves, all->moves_count, sizeof *all->moves, compare_moves) : NULL;
    return found ? *found : NULL;
}

static bool is_in_sync(const struct brook_partition *p, int32_t broker)
{
    for (size_t i = 0; i < p->isr_count; i++)
        if (p->isr[i] == broker)
            return true;
    return false;
}

/* How many replicas lack; those that come for a move have time. */
static size_t lacking(const struct picture *all, const char *topic, const struct brook_partition *p)
{
    size_t n = p->replicas_count - p->isr_count;
    const struct brook_reassignment *move = move_of(all, topic, p->partition);
    for (size_t i = 0; move && n > 0 && i < move->adding_count; i++)
        n -= !is_in_sync(p, move->adding[i]);
    return n;
}

static struct counts count(const struct picture *all)
{
    struct counts c = {.moving = all->moves_count};
    for (size_t i = 0; i < all->cluster->topics_count; i++)
        for (size_t j = 0; j < all->cluster->topics[i].partitions_count; j++) {
            const struct brook_partition *p = &all->cluster->topics[i].partitions[j];
            c.partitions++;
            c.leaderless += p->leader < 0;
            c.behind += lacking(all, all->cluster->topics[i].name, p) > 0;
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

static bool has_offline(const struct picture *all, const char *topic, const struct brook_partition *p)
{
    (void)all, (void)topic;
    return p->offline_count > 0;
}

typedef bool is_trouble(const struct picture *all, const char *topic, const struct brook_partition *p);

static bool has_no_leader(const struct picture *all, const char *topic, const struct brook_partition *p)
{
    (void)all, (void)topic;
    return p->leader < 0;
}

static bool lacks_replicas(const struct picture *all, const char *topic, const struct brook_partition *p)
{
    return p->leader >= 0 && lacking(all, topic, p) > 0;
}

static json_t *trouble_json(const struct picture *all, is_trouble *is_it)
{
    const struct brook_cluster *cluster = all->cluster;
    json_t *list = json_array();
    for (size_t i = 0; i < cluster->topics_count; i++)
        for (size_t j = 0; j < cluster->topics[i].partitions_count; j++) {
            const struct brook_partition *p = &cluster->topics[i].partitions[j];
            if (is_it(all, cluster->topics[i].name, p))
                json_array_append_new(list, json_pack("{s:s,s:i,s:i,s:I,s:I,s:o,s:s?}", "topic", cluster->topics[i].name,
                                                      "partition", p->partition, "leader", p->leader, "replicas",
                                                      (json_int_t)p->replicas_count, "in_sync",
                                                      (json_int_t)p->isr_count, "offline",
                                                      cli_ids_json(p->offline, p->offline_count), "reason",
                                                      p->why_leaderless));
        }
    return list;
}

/* "t/0 (2 of 3 in sync)", "t/0: waits for broker 2 (in sync, not running)", "t/0 on broker 2" */
static void print_trouble(const char *what, const char *topic, const struct brook_partition *p, is_trouble *is_it)
{
    char offline[300];
    cli_join_ids(p->offline, p->offline_count, offline, sizeof offline);
    printf("%s %s/%" PRId32, what, topic, p->partition);
    if (is_it == has_no_leader && p->why_leaderless)
        printf(": %s\n", p->why_leaderless);
    else if (is_it == has_offline)
        printf(" on %s %s%s\n", p->offline_count == 1 ? "broker" : "brokers", offline,
               p->offline_count == 1 && p->offline[0] == p->leader ? ", which leads it in name" : "");
    else
        printf(" (%zu of %zu in sync)\n", p->isr_count, p->replicas_count);
}

/* The first few by name. */
static void trouble_people(const struct picture *all, const char *what, is_trouble *is_it)
{
    const struct brook_cluster *cluster = all->cluster;
    size_t n = 0;
    for (size_t i = 0; i < cluster->topics_count; i++)
        for (size_t j = 0; j < cluster->topics[i].partitions_count; j++) {
            const struct brook_partition *p = &cluster->topics[i].partitions[j];
            if (is_it(all, cluster->topics[i].name, p) && n++ < NAMED_MAX)
                print_trouble(what, cluster->topics[i].name, p, is_it);
        }
    if (n > NAMED_MAX)
        printf("%s ... and %zu more (--json names all)\n", what, n - NAMED_MAX);
}

static json_t *unreadable_json(const struct brook_cluster *cluster)
{
    json_t *list = json_array();
    for (size_t i = 0; i < cluster->unreadable_count; i++)
        json_array_append_new(list, json_pack("{s:s,s:s}", "path", cluster->unreadable[i].path, "reason",
                                              cluster->unreadable[i].reason));
    return list;
}

static void unreadable_people(const struct brook_cluster *cluster)
{
    for (size_t i = 0; i < cluster->unreadable_count; i++)
        printf("  unreadable in ZooKeeper: %s: %s\n", cluster->unreadable[i].path, cluster->unreadable[i].reason);
}

static json_t *cluster_json(const struct picture *all)
{
    const struct brook_cluster *cluster = all->cluster;
    json_t *brokers = json_array();
    struct counts c = count(all);
    for (size_t i = 0; i < cluster->brokers_count; i++) {
        const struct brook_broker *b = &cluster->brokers[i];
        json_array_append_new(brokers, json_pack("{s:i,s:s,s:i,s:s?,s:I}", "id", b->id, "host", b->host, "port",
                                                 b->port, "rack", b->rack, "leads", (json_int_t)led_by(cluster, b->id)));
    }
    return json_pack("{s:s,s:i,s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:o,s:o,s:o}", "cluster_id", cluster->cluster_id, "controller",
                     cluster->controller, "brokers", brokers, "topics", (json_int_t)cluster->topics_count,
                     "partitions", (json_int_t)c.partitions, "leaderless", (json_int_t)c.leaderless,
                     "under_replicated", (json_int_t)c.behind, "moving", (json_int_t)c.moving, "move_throttle_bytes",
                     (json_int_t)all->throttle, "leaderless_partitions",
                     trouble_json(all, has_no_leader), "under_replicated_partitions",
                     trouble_json(all, lacks_replicas), "offline_partitions", trouble_json(all, has_offline),
                     "unreadable", unreadable_json(cluster));
}

static const char *plural(size_t n)
{
    return n == 1 ? "" : "s";
}

static void cluster_people(const struct picture *all)
{
    const struct brook_cluster *cluster = all->cluster;
    struct counts c = count(all);
    printf("cluster %s: %zu broker%s, %zu topic%s, %zu partition%s, %zu without leader, %zu under-replicated",
           cluster->cluster_id, cluster->brokers_count, plural(cluster->brokers_count), cluster->topics_count,
           plural(cluster->topics_count), c.partitions, plural(c.partitions), c.leaderless, c.behind);
    if (c.moving)
        printf(", %zu being moved", c.moving);
    if (c.moving && all->throttle)
        printf(" (at most %" PRId64 " bytes/s per broker)", all->throttle);
    printf("\n");
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
    trouble_people(all, "  without leader:", has_no_leader);
    trouble_people(all, "  under-replicated:", lacks_replicas);
    trouble_people(all, "  log offline:", has_offline);
    unreadable_people(cluster);
}

static int show(struct cli *cli, const struct brook_cluster *cluster, const struct brook_reassignments *moves)
{
    struct picture all = {cluster, calloc(moves->count + 1, sizeof *all.moves), moves->count, moves->throttle_bytes};
    int code = CLI_OK;
    if (!all.moves)
        abort();
    for (size_t i = 0; i < moves->count; i++)
        all.moves[i] = &moves->list[i];
    qsort(all.moves, all.moves_count, sizeof *all.moves, compare_moves);
    if (cli->json)
        code = cli_print_json(cluster_json(&all));
    else
        cluster_people(&all);
    free(all.moves);
    return code;
}

static int run(struct cli *cli)
{
    brook_admin *admin = cli_admin(cli);
    if (!admin)
        return CLI_FAILED;
    struct brook_error error = {0};
    struct brook_cluster *cluster = NULL;
    struct brook_reassignments *moves = NULL;
    int r = brook_admin_describe_cluster(admin, NULL, 0, cli->timeout_ms, &cluster, &error);
    if (r == 0)
        r = brook_admin_list_reassignments(admin, cli->timeout_ms, &moves, &error);
    brook_admin_free(admin);
    int code = r < 0 ? cli_fail("can not read the cluster", &error) : show(cli, cluster, moves);
    brook_reassignments_free(moves);
    brook_cluster_free(cluster);
    return code;
}

const struct cli_command cmd_cluster = {
    .name = "cluster", .arguments = "", .summary = "show brokers, controller and what is wrong with partitions",
    .description = "Show the live brokers, which of them is the controller, how many partitions each leads, and how many\n"
                   "partitions have no leader, too few replicas in sync, or are being moved to other brokers. Named are partitions\n"
                   "without a leader, with who is waited for, those with too few replicas in sync, those whose log is offline\n"
                   "on a broker that runs (a disk failed: its log says why), and nodes of ZooKeeper that make no sense: what\n"
                   "such a node said before goes on to count until it is mended.",
    .examples = "  brook cluster --json\n", .run = run,
};
