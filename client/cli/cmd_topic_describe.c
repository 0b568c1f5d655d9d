/* brook topic describe */
#include "client/cli/commands.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LEADERS_WAIT_MS_MAX 3000 /* for leaders that do not answer; the table then says so */

/* What is shown of a topic. */
struct described {
    const struct brook_cluster *cluster;
    const struct brook_topic *topic;
    const struct brook_replicas *replicas; /* in the order of topic->partitions */
    const struct brook_config_entries *configs;
};

static struct brook_replicas *ask_leaders(struct cli *cli, brook_admin *admin, const struct brook_topic *t)
{
    struct brook_error error = {0};
    struct brook_replicas *replicas = NULL;
    struct brook_partition_name *names = calloc(t->partitions_count + 1, sizeof *names);
    if (!names)
        abort();
    for (size_t i = 0; i < t->partitions_count; i++)
        names[i] = (struct brook_partition_name){t->name, t->partitions[i].partition};
    int wait_ms = cli->timeout_ms >= 0 && cli->timeout_ms < LEADERS_WAIT_MS_MAX ? cli->timeout_ms : LEADERS_WAIT_MS_MAX;
    if (brook_admin_describe_replicas(admin, names, t->partitions_count, wait_ms, &replicas, &error) < 0)
        cli_fail(t->name, &error);
    free(names);
    return replicas;
}

static bool is_alive(const struct brook_cluster *cluster, int32_t broker)
{
    for (size_t i = 0; i < cluster->brokers_count; i++)
        if (cluster->brokers[i].id == broker)
            return true;
    return false;
}

/* Why the partition's state in ZooKeeper makes no sense; of the topic itself with -1. NULL: it does. */
static const char *unreadable_reason(const struct described *d, int32_t partition)
{
    for (size_t i = 0; i < d->cluster->unreadable_count; i++) {
        const struct brook_unreadable *node = &d->cluster->unreadable[i];
        if (node->topic && !strcmp(node->topic, d->topic->name) && node->partition == partition)
            return node->reason;
    }
    return NULL;
}

/* ---- for machines ----------------------------------------------------------------------------------- */

static json_t *progress_json(const struct described *d, const struct brook_partition_replicas *p)
{
    json_t *list = json_array();
    for (size_t i = 0; i < p->replicas_count; i++) {
        const struct brook_replica *r = &p->replicas[i];
        json_array_append_new(list, json_pack("{s:i,s:b,s:b,s:I,s:I,s:I}", "broker", r->broker_id, "alive",
                                              is_alive(d->cluster, r->broker_id), "in_sync", r->is_in_sync, "end",
                                              (json_int_t)r->end, "lag", (json_int_t)r->lag, "behind_ms",
                                              (json_int_t)r->behind_ms));
    }
    return list;
}

static json_t *topic_json(const struct described *d)
{
    json_t *partitions = json_array(), *settings = json_object();
    const struct brook_topic *t = d->topic;
    for (size_t i = 0; i < t->partitions_count; i++) {
        const struct brook_partition *p = &t->partitions[i];
        const struct brook_partition_replicas *progress = &d->replicas->list[i];
        json_array_append_new(
            partitions,
            json_pack("{s:i,s:i,s:i,s:o,s:o,s:o,s:s?,s:s?,s:I,s:I,s:I,s:o,s:s?}", "partition", p->partition, "leader", p->leader,
                      "leader_epoch", p->leader_epoch, "replicas", cli_ids_json(p->replicas, p->replicas_count), "isr",
                      cli_ids_json(p->isr, p->isr_count), "offline", cli_ids_json(p->offline, p->offline_count), "reason",
                      p->why_leaderless, "unreadable", unreadable_reason(d, p->partition), "start", (json_int_t)progress->start, "end",
                      (json_int_t)progress->high_watermark, "log_end", (json_int_t)progress->end, "progress",
                      progress_json(d, progress), "error", progress->error.code ? progress->error.text : NULL));
    }
    for (size_t i = 0; i < d->configs->count; i++)
        json_object_set_new(settings, d->configs->entries[i].key,
                            json_pack("{s:s,s:b}", "value", d->configs->entries[i].value, "default",
                                      d->configs->entries[i].is_default));
    return json_pack("{s:s,s:s,s:s?,s:o,s:o}", "topic", t->name, "topic_id", t->topic_id, "unreadable", unreadable_reason(d, -1),
                     "partitions", partitions,
                     "settings", settings);
}

/* ---- for people ------------------------------------------------------------------------------------- */

static void write_offset(int64_t offset, char text[24])
{
    if (offset < 0)
        snprintf(text, 24, "?");
    else
        snprintf(text, 24, "%" PRId64, offset);
}

/* "3:120 (12 s, away)": broker 3 lacks 120 records, has been without some for so long, and is not there. */
static int write_lag(const struct described *d, const struct brook_replica *r, char *text, size_t room)
{
    char lag[24];
    bool is_away = !is_alive(d->cluster, r->broker_id);
    write_offset(r->lag, lag);
    if (!is_away && r->is_in_sync && r->lag == 0)
        return snprintf(text, room, "%" PRId32 ":0", r->broker_id);
    return snprintf(text, room, "%" PRId32 ":%s (%.1f s%s)", r->broker_id, lag, (double)r->behind_ms / 1000,
                    is_away ? ", away" : "");
}

/* All but the leader. */
static void write_lags(const struct described *d, const struct brook_partition_replicas *p, char *text, size_t room)
{
    size_t n = 0;
    snprintf(text, room, p->error.code ? "?" : "-");
    for (size_t i = 0; i < p->replicas_count && n + 64 < room; i++) {
        if (p->replicas[i].broker_id == p->leader)
            continue;
        n += (size_t)snprintf(text + n, room - n, "%s", n ? ", " : "");
        n += (size_t)write_lag(d, &p->replicas[i], text + n, room - n);
    }
}

static void add_partition(const struct described *d, size_t index, struct cli_table *table)
{
    const struct brook_partition *p = &d->topic->partitions[index];
    const struct brook_partition_replicas *progress = &d->replicas->list[index];
    char number[16], leader[16], epoch[16], replicas[400], isr[400], start[24], end[24], lags[2400];
    snprintf(number, sizeof number, "  %" PRId32, p->partition);
    snprintf(leader, sizeof leader, p->leader < 0 ? "none" : "%" PRId32, p->leader);
    snprintf(epoch, sizeof epoch, "%" PRId32, p->leader_epoch);
    cli_join_ids(p->replicas, p->replicas_count, replicas, sizeof replicas);
    cli_join_ids(p->isr, p->isr_count, isr, sizeof isr);
    write_offset(progress->start, start);
    write_offset(progress->high_watermark, end);
    write_lags(d, progress, lags, sizeof lags);
    const char *cells[] = {number, leader, epoch, replicas, isr, start, end, lags};
    cli_table_add(table, cells);
}

/* What a table has no room for. */
static void explain_partition(const struct described *d, size_t index)
{
    char offline[400];
    const struct brook_partition *p = &d->topic->partitions[index];
    const struct brook_partition_replicas *progress = &d->replicas->list[index];
    const char *unreadable = unreadable_reason(d, p->partition);
    cli_join_ids(p->offline, p->offline_count, offline, sizeof offline);
    if (p->why_leaderless)
        printf("  partition %" PRId32 ": no leader: %s\n", p->partition, p->why_leaderless);
    else if (progress->error.code)
        printf("  partition %" PRId32 ": %s\n", p->partition, progress->error.text);
    if (p->offline_count)
        printf("  partition %" PRId32 ": the log is offline on %s %s\n", p->partition,
               p->offline_count == 1 ? "broker" : "brokers", offline);
    if (unreadable)
        printf("  partition %" PRId32 ": its state in ZooKeeper is unreadable, what it said before counts: %s\n",
               p->partition, unreadable);
}

static void topic_people(const struct described *d)
{
    const char *titles[] = {"  PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "START", "END", "LAG"};
    struct cli_table *table = cli_table_new(8, titles);
    printf("%s  id %s\n", d->topic->name, d->topic->topic_id);
    for (size_t i = 0; i < d->topic->partitions_count; i++)
        add_partition(d, i, table);
    cli_table_print(table, stdout);
    cli_table_free(table);
    for (size_t i = 0; i < d->topic->partitions_count; i++)
        explain_partition(d, i);
    for (size_t i = 0; i < d->cluster->unreadable_count; i++) {
        const struct brook_unreadable *node = &d->cluster->unreadable[i];
        if (node->topic && !strcmp(node->topic, d->topic->name) && node->partition < 0)
            printf("  unreadable in ZooKeeper: %s: %s\n", node->path, node->reason);
    }
    for (size_t i = 0; i < d->configs->count; i++)
        if (!d->configs->entries[i].is_default)
            printf("  %s=%s\n", d->configs->entries[i].key, d->configs->entries[i].value);
}

/* ---- the command ------------------------------------------------------------------------------------ */

static int describe_one(struct cli *cli, brook_admin *admin, const struct brook_cluster *cluster,
                        const struct brook_topic *t)
{
    if (t->error.code)
        return cli_fail(t->name, &t->error);
    struct brook_error error = {0};
    struct brook_config_entries *configs = NULL;
    if (brook_admin_describe_config(admin, t->name, cli->timeout_ms, &configs, &error) < 0)
        return cli_fail(t->name, &error);
    struct brook_replicas *replicas = ask_leaders(cli, admin, t);
    struct described d = {cluster, t, replicas, configs};
    int code = CLI_OK;
    if (!replicas)
        code = CLI_FAILED;
    else if (cli->json)
        code = cli_print_json(topic_json(&d));
    else
        topic_people(&d);
    brook_replicas_free(replicas);
    brook_config_entries_free(configs);
    return code;
}

static int topic_describe(struct cli *cli)
{
    brook_admin *admin = cli_admin(cli);
    if (!admin)
        return CLI_FAILED;
    struct brook_error error = {0};
    struct brook_cluster *cluster = NULL;
    int code = CLI_OK;
    if (brook_admin_describe_cluster(admin, (const char *const *)cli->arguments, (size_t)cli->arguments_count,
                                     cli->timeout_ms, &cluster, &error) < 0)
        code = cli_fail("can not read the topics", &error);
    for (size_t i = 0; cluster && i < cluster->topics_count; i++)
        if (describe_one(cli, admin, cluster, &cluster->topics[i]) != CLI_OK)
            code = CLI_FAILED;
    brook_cluster_free(cluster);
    brook_admin_free(admin);
    return code;
}

const struct cli_command cmd_topic_describe = {
    .group = "topic", .name = "describe", .arguments = "NAME...", .arguments_min = 1, .arguments_max = -1,
    .summary = "show leaders, replicas, offsets and settings of topics",
    .description = "Show for each partition its leader, its replicas and those in sync, the first offset, the end that consumers\n"
                   "see, and the lag of each follower as its leader knows it, and the topic's own settings. A lag of\n"
                   "3:120 (4.2 s, away) says: broker 3 lacks 120 records, has not had all for 4.2 seconds, and is not there.",
    .examples = "  brook topic describe orders\n  brook topic describe orders --json\n", .run = topic_describe,
};
