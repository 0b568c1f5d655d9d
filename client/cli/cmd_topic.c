#include "client/cli/commands.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SETTINGS_MAX 32

/* Fills `settings` from --set KEY=VALUE options; strings are cut in `copies`. Returns the count, or -1 after
 * having said what is wrong. */
static int read_settings(struct cli *cli, struct brook_setting settings[SETTINGS_MAX],
                         char copies[SETTINGS_MAX][512])
{
    int n = 0;
    for (const char *pair; (pair = cli_value_at(cli, "set", n)) != NULL; n++) {
        const char *equals = strchr(pair, '=');
        if (n == SETTINGS_MAX || !equals || equals == pair || strlen(pair) >= sizeof copies[0]) {
            cli_usage(cli, "--set: '%s' is not KEY=VALUE (at most %d of them)", pair, SETTINGS_MAX);
            return -1;
        }
        strcpy(copies[n], pair);
        copies[n][equals - pair] = '\0';
        settings[n].key = copies[n];
        settings[n].value = copies[n] + (equals - pair) + 1;
    }
    return n;
}

static int topic_create(struct cli *cli)
{
    struct brook_setting settings[SETTINGS_MAX];
    char copies[SETTINGS_MAX][512];
    int64_t partitions, replicas;
    int settings_count = read_settings(cli, settings, copies);
    if (settings_count < 0 || !cli_number(cli, "partitions", 0, 1, 20000, &partitions) ||
        !cli_number(cli, "replicas", 0, 1, 32, &replicas))
        return CLI_USAGE;
    brook_admin *admin = cli_admin(cli);
    if (!admin)
        return CLI_FAILED;
    const char *name = cli->arguments[0];
    bool dry = cli_flag(cli, "dry-run");
    struct brook_error error = {0};
    int r = brook_admin_create_topic(admin, name, (int32_t)partitions, (int32_t)replicas, settings,
                                     (size_t)settings_count, dry, cli->timeout_ms, &error);
    brook_admin_free(admin);
    bool is_there = r == -BROOK_E_TOPIC_EXISTS && cli_flag(cli, "if-missing");
    if (r < 0 && !is_there)
        return cli_fail(NULL, &error);
    if (cli->json)
        return cli_print_json(json_pack("{s:s,s:b}", "topic", name, "created", !dry && !is_there));
    printf("%s %s\n", name, is_there ? "exists already" : dry ? "could be created" : "created");
    return CLI_OK;
}

static int topic_delete(struct cli *cli)
{
    brook_admin *admin = cli_admin(cli);
    if (!admin)
        return CLI_FAILED;
    int code = CLI_OK;
    for (int i = 0; i < cli->arguments_count; i++) {
        struct brook_error error = {0};
        const char *name = cli->arguments[i];
        if (brook_admin_delete_topic(admin, name, cli->timeout_ms, &error) < 0)
            code = cli_fail(name, &error);
        else if (cli->json)
            cli_print_json(json_pack("{s:s,s:b}", "topic", name, "deleted", true));
        else
            printf("%s deleted\n", name);
    }
    brook_admin_free(admin);
    return code;
}

static int topic_grow(struct cli *cli)
{
    int64_t partitions;
    if (!cli_value(cli, "partitions"))
        return cli_usage(cli, "--partitions is missing");
    if (!cli_number(cli, "partitions", 0, 1, 20000, &partitions))
        return CLI_USAGE;
    brook_admin *admin = cli_admin(cli);
    if (!admin)
        return CLI_FAILED;
    struct brook_error error = {0};
    int r = brook_admin_add_partitions(admin, cli->arguments[0], (int32_t)partitions, cli->timeout_ms, &error);
    brook_admin_free(admin);
    if (r < 0)
        return cli_fail(cli->arguments[0], &error);
    if (cli->json)
        return cli_print_json(json_pack("{s:s,s:I}", "topic", cli->arguments[0], "partitions", (json_int_t)partitions));
    printf("%s has %" PRId64 " partitions\n", cli->arguments[0], partitions);
    return CLI_OK;
}

/* --unset KEY options behind `count` settings. Returns the count of all, or -1 after having said what is wrong. */
static int read_unset(struct cli *cli, struct brook_setting settings[SETTINGS_MAX], int count)
{
    const char *key;
    for (int i = 0; (key = cli_value_at(cli, "unset", i)) != NULL; i++) {
        if (count == SETTINGS_MAX || !*key || strchr(key, '=')) {
            cli_usage(cli, "--unset: '%s' is not a KEY (at most %d settings)", key, SETTINGS_MAX);
            return -1;
        }
        settings[count++] = (struct brook_setting){key, NULL};
    }
    if (count == 0) {
        cli_usage(cli, "--set or --unset is needed");
        return -1;
    }
    return count;
}

static int topic_alter(struct cli *cli)
{
    struct brook_setting settings[SETTINGS_MAX];
    char copies[SETTINGS_MAX][512];
    int count = read_settings(cli, settings, copies);
    if (count < 0 || (count = read_unset(cli, settings, count)) < 0)
        return CLI_USAGE;
    brook_admin *admin = cli_admin(cli);
    if (!admin)
        return CLI_FAILED;
    const char *name = cli->arguments[0];
    bool dry = cli_flag(cli, "dry-run");
    struct brook_error error = {0};
    int r = brook_admin_alter_config(admin, name, settings, (size_t)count, dry, cli->timeout_ms, &error);
    brook_admin_free(admin);
    if (r < 0)
        return cli_fail(NULL, &error);
    if (cli->json)
        return cli_print_json(json_pack("{s:s,s:b}", "topic", name, "altered", !dry));
    printf("%s %s\n", name, dry ? "could be altered" : "altered");
    return CLI_OK;
}

static struct brook_cluster *describe(struct cli *cli, brook_admin *admin, const char *const *names, size_t count)
{
    struct brook_error error = {0};
    struct brook_cluster *cluster = NULL;
    if (brook_admin_describe_cluster(admin, names, count, cli->timeout_ms, &cluster, &error) < 0)
        cli_fail("can not read the topics", &error);
    return cluster;
}

static int leaderless(const struct brook_topic *t)
{
    int n = 0;
    for (size_t i = 0; i < t->partitions_count; i++)
        n += t->partitions[i].leader < 0;
    return n;
}

static int list_people(const struct brook_cluster *cluster)
{
    const char *titles[] = {"TOPIC", "PARTITIONS", "REPLICAS", "WITHOUT LEADER"};
    struct cli_table *table = cli_table_new(4, titles);
    for (size_t i = 0; i < cluster->topics_count; i++) {
        const struct brook_topic *t = &cluster->topics[i];
        char partitions[16], replicas[16], without[16];
        snprintf(partitions, sizeof partitions, "%zu", t->partitions_count);
        snprintf(replicas, sizeof replicas, "%zu", t->partitions_count ? t->partitions[0].replicas_count : 0);
        snprintf(without, sizeof without, "%d", leaderless(t));
        const char *cells[] = {t->name, partitions, replicas, without};
        cli_table_add(table, cells);
    }
    cli_table_print(table, stdout);
    cli_table_free(table);
    return CLI_OK;
}

static int topic_list(struct cli *cli)
{
    brook_admin *admin = cli_admin(cli);
    if (!admin)
        return CLI_FAILED;
    struct brook_cluster *cluster = describe(cli, admin, NULL, 0);
    brook_admin_free(admin);
    if (!cluster)
        return CLI_FAILED;
    int code = CLI_OK;
    if (cli->json) {
        json_t *list = json_array();
        for (size_t i = 0; i < cluster->topics_count; i++)
            json_array_append_new(list, json_pack("{s:s,s:s,s:I,s:i}", "topic", cluster->topics[i].name, "topic_id",
                                                  cluster->topics[i].topic_id, "partitions",
                                                  (json_int_t)cluster->topics[i].partitions_count, "leaderless",
                                                  leaderless(&cluster->topics[i])));
        code = cli_print_json(list);
    } else {
        code = list_people(cluster);
    }
    brook_cluster_free(cluster);
    return code;
}

/* Start and end offsets of all partitions of a topic; -1 where they are not known. One block for free(). */
static struct brook_position *read_offsets(struct cli *cli, brook_admin *admin, const struct brook_topic *t)
{
    size_t n = t->partitions_count;
    struct brook_position *positions = calloc(2 * n + 1, sizeof *positions);
    if (!positions)
        abort();
    for (size_t i = 0; i < 2 * n; i++) {
        positions[i].topic = t->name;
        positions[i].partition = t->partitions[i % n].partition;
        positions[i].offset = i < n ? BROOK_OFFSET_EARLIEST : BROOK_OFFSET_LATEST;
    }
    struct brook_error error = {0};
    /* A partition without leader has no answer; the table then says so. */
    brook_admin_list_offsets(admin, positions, NULL, 2 * n, cli->timeout_ms < 3000 ? cli->timeout_ms : 3000, &error);
    for (size_t i = 0; i < 2 * n; i++)
        if (positions[i].offset < 0)
            positions[i].offset = -1;
    return positions;
}

static json_t *ids_json(const int32_t *ids, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static json_t *topic_json(const struct brook_topic *t, const struct brook_position *offsets,
                          const struct brook_config_entries *configs)
{
    json_t *partitions = json_array(), *settings = json_object();
    for (size_t i = 0; i < t->partitions_count; i++) {
        const struct brook_partition *p = &t->partitions[i];
        json_array_append_new(
            partitions, json_pack("{s:i,s:i,s:i,s:o,s:o,s:I,s:I}", "partition", p->partition, "leader", p->leader,
                                  "leader_epoch", p->leader_epoch, "replicas",
                                  ids_json(p->replicas, p->replicas_count), "isr", ids_json(p->isr, p->isr_count),
                                  "start", (json_int_t)offsets[i].offset, "end",
                                  (json_int_t)offsets[t->partitions_count + i].offset));
    }
    for (size_t i = 0; configs && i < configs->count; i++)
        json_object_set_new(settings, configs->entries[i].key,
                            json_pack("{s:s,s:b}", "value", configs->entries[i].value, "default",
                                      configs->entries[i].is_default));
    return json_pack("{s:s,s:s,s:o,s:o}", "topic", t->name, "topic_id", t->topic_id, "partitions", partitions,
                     "settings", settings);
}

static void join_ids(const int32_t *ids, size_t count, char *text, size_t room)
{
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count && n < room - 12; i++)
        n += (size_t)snprintf(text + n, room - n, "%s%" PRId32, i ? "," : "", ids[i]);
}

static void topic_people(const struct brook_topic *t, const struct brook_position *offsets,
                         const struct brook_config_entries *configs)
{
    printf("%s  id %s\n", t->name, t->topic_id);
    const char *titles[] = {"  PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "START", "END"};
    struct cli_table *table = cli_table_new(7, titles);
    for (size_t i = 0; i < t->partitions_count; i++) {
        const struct brook_partition *p = &t->partitions[i];
        char number[16], leader[16], epoch[16], replicas[256], isr[256], start[24], end[24];
        int64_t first = offsets[i].offset, last = offsets[t->partitions_count + i].offset;
        snprintf(number, sizeof number, "  %" PRId32, p->partition);
        snprintf(leader, sizeof leader, p->leader < 0 ? "none" : "%" PRId32, p->leader);
        snprintf(epoch, sizeof epoch, "%" PRId32, p->leader_epoch);
        join_ids(p->replicas, p->replicas_count, replicas, sizeof replicas);
        join_ids(p->isr, p->isr_count, isr, sizeof isr);
        snprintf(start, sizeof start, first < 0 ? "?" : "%" PRId64, first);
        snprintf(end, sizeof end, last < 0 ? "?" : "%" PRId64, last);
        const char *cells[] = {number, leader, epoch, replicas, isr, start, end};
        cli_table_add(table, cells);
    }
    cli_table_print(table, stdout);
    cli_table_free(table);
    for (size_t i = 0; configs && i < configs->count; i++)
        if (!configs->entries[i].is_default)
            printf("  %s=%s\n", configs->entries[i].key, configs->entries[i].value);
}

static int describe_one(struct cli *cli, brook_admin *admin, const struct brook_topic *t)
{
    if (t->error.code)
        return cli_fail(t->name, &t->error);
    struct brook_error error = {0};
    struct brook_config_entries *configs = NULL;
    if (brook_admin_describe_config(admin, t->name, cli->timeout_ms, &configs, &error) < 0)
        return cli_fail(t->name, &error);
    struct brook_position *offsets = read_offsets(cli, admin, t);
    int code = CLI_OK;
    if (cli->json)
        code = cli_print_json(topic_json(t, offsets, configs));
    else
        topic_people(t, offsets, configs);
    free(offsets);
    brook_config_entries_free(configs);
    return code;
}

static int topic_describe(struct cli *cli)
{
    brook_admin *admin = cli_admin(cli);
    if (!admin)
        return CLI_FAILED;
    int code = CLI_FAILED;
    struct brook_cluster *cluster =
        describe(cli, admin, (const char *const *)cli->arguments, (size_t)cli->arguments_count);
    if (cluster) {
        code = CLI_OK;
        for (size_t i = 0; i < cluster->topics_count; i++)
            if (describe_one(cli, admin, &cluster->topics[i]) != CLI_OK)
                code = CLI_FAILED;
    }
    brook_cluster_free(cluster);
    brook_admin_free(admin);
    return code;
}

static const struct cli_option create_options[] = {
    {"partitions", "N", "how many partitions; default: the cluster's num.partitions", 'p'},
    {"replicas", "N", "copies of each partition; default: the cluster's default.replication.factor", 'r'},
    {"set", "KEY=VALUE", "a topic setting, such as retention.ms=86400000; may be repeated", 's'},
    {"dry-run", NULL, "check everything, create nothing", 0},
    {"if-missing", NULL, "a topic that exists already is no failure", 0},
    {0},
};
static const struct cli_option grow_options[] = {{"partitions", "N", "how many partitions afterwards", 'p'}, {0}};

static const struct cli_option alter_options[] = {
    {"set", "KEY=VALUE", "a topic setting, such as retention.ms=86400000; may be repeated", 's'},
    {"unset", "KEY", "a setting whose value is to be the broker's default again; may be repeated", 'u'},
    {"dry-run", NULL, "check everything, change nothing", 0},
    {0},
};

const struct cli_command cmd_topic_create = {
    .group = "topic", .name = "create", .arguments = "NAME", .arguments_min = 1, .arguments_max = 1,
    .summary = "create a topic",
    .description = "Create a topic and wait until its partitions have leaders. Names are up to 200 of [A-Za-z0-9._-].",
    .examples = "  brook topic create orders --partitions 12 --set retention.ms=86400000\n",
    .options = create_options, .run = topic_create,
};
const struct cli_command cmd_topic_list = {
    .group = "topic", .name = "list", .arguments = "", .summary = "list topics",
    .description = "List all topics with their number of partitions.",
    .examples = "  brook topic list --json\n", .run = topic_list,
};
const struct cli_command cmd_topic_describe = {
    .group = "topic", .name = "describe", .arguments = "NAME...", .arguments_min = 1, .arguments_max = -1,
    .summary = "show leaders, replicas, offsets and settings of topics",
    .description = "Show for each partition its leader, replicas, first offset and end, and the topic's own settings.",
    .examples = "  brook topic describe orders\n", .run = topic_describe,
};
const struct cli_command cmd_topic_grow = {
    .group = "topic", .name = "grow", .arguments = "NAME", .arguments_min = 1, .arguments_max = 1,
    .summary = "add partitions to a topic",
    .description = "Add partitions to a topic. Records already there stay where they are, so keys may change partition.",
    .examples = "  brook topic grow orders --partitions 24\n", .options = grow_options, .run = topic_grow,
};
const struct cli_command cmd_topic_alter = {
    .group = "topic", .name = "alter", .arguments = "NAME", .arguments_min = 1, .arguments_max = 1,
    .summary = "change settings of a topic",
    .description = "Change settings of a topic while it is used. Settings that are not named stay as they are.",
    .examples = "  brook topic alter orders --set retention.ms=3600000 --unset retention.bytes\n",
    .options = alter_options, .run = topic_alter,
};
const struct cli_command cmd_topic_delete = {
    .group = "topic", .name = "delete", .arguments = "NAME...", .arguments_min = 1, .arguments_max = -1,
    .summary = "delete topics with all their records",
    .description = "Delete topics with all their records. Stored offsets of groups are emptied.",
    .examples = "  brook topic delete orders\n", .run = topic_delete,
};
