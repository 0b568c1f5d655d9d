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
    .examples = "  brook topic create orders --partitions 12 --replicas 3 --set min.insync.replicas=2\n",
    .options = create_options, .run = topic_create,
};
const struct cli_command cmd_topic_list = {
    .group = "topic", .name = "list", .arguments = "", .summary = "list topics",
    .description = "List all topics with their number of partitions.",
    .examples = "  brook topic list --json\n", .run = topic_list,
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
