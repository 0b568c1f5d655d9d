#include "client/cli/commands.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int group_list(struct cli *cli)
{
    brook_admin *admin = cli_admin(cli);
    if (!admin)
        return CLI_FAILED;
    struct brook_error error = {0};
    struct brook_names *names = NULL;
    int r = brook_admin_list_groups(admin, cli->timeout_ms, &names, &error);
    brook_admin_free(admin);
    if (r < 0)
        return cli_fail("can not read the groups", &error);
    int code = CLI_OK;
    if (cli->json) {
        json_t *list = json_array();
        for (size_t i = 0; i < names->count; i++)
            json_array_append_new(list, json_string(names->names[i]));
        code = cli_print_json(list);
    } else {
        for (size_t i = 0; i < names->count; i++)
            printf("%s\n", names->names[i]);
    }
    brook_names_free(names);
    return code;
}

static json_t *text_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

static json_t *number_or_null(int64_t value)
{
    return value >= 0 ? json_integer(value) : json_null();
}

static int64_t lag_of(const struct brook_group_partition *p)
{
    return p->offset >= 0 && p->end >= p->offset ? p->end - p->offset : -1;
}

static json_t *group_json(const struct brook_group *g)
{
    json_t *members = json_array(), *partitions = json_array();
    for (size_t i = 0; i < g->members_count; i++) {
        json_t *topics = json_array();
        for (size_t t = 0; t < g->members[i].topics_count; t++)
            json_array_append_new(topics, json_string(g->members[i].topics[t]));
        json_array_append_new(members, json_pack("{s:s,s:s,s:o,s:b}", "member", g->members[i].id, "host",
                                                 g->members[i].host, "topics", topics, "pattern",
                                                 g->members[i].is_pattern));
    }
    for (size_t i = 0; i < g->partitions_count; i++) {
        const struct brook_group_partition *p = &g->partitions[i];
        json_array_append_new(partitions,
                              json_pack("{s:s,s:i,s:o,s:o,s:o,s:o,s:o}", "topic", p->topic, "partition", p->partition,
                                        "owner", text_or_null(p->owner), "assigned", text_or_null(p->assigned),
                                        "offset", number_or_null(p->offset), "end", number_or_null(p->end), "lag",
                                        number_or_null(lag_of(p))));
    }
    return json_pack("{s:s,s:s,s:o,s:o}", "group", g->name, "strategy", g->strategy, "members", members, "partitions",
                     partitions);
}

static void number_text(int64_t value, char *text, size_t room)
{
    if (value >= 0)
        snprintf(text, room, "%" PRId64, value);
    else
        snprintf(text, room, "-");
}

static void group_people(const struct brook_group *g)
{
    printf("%s  %zu member%s%s%s\n", g->name, g->members_count, g->members_count == 1 ? "" : "s",
           *g->strategy ? ", strategy " : "", g->strategy);
    const char *titles[] = {"  TOPIC", "PARTITION", "OFFSET", "END", "LAG", "OWNER"};
    struct cli_table *table = cli_table_new(6, titles);
    for (size_t i = 0; i < g->partitions_count; i++) {
        const struct brook_group_partition *p = &g->partitions[i];
        char topic[256], partition[16], offset[24], end[24], lag[24];
        snprintf(topic, sizeof topic, "  %s", p->topic);
        snprintf(partition, sizeof partition, "%" PRId32, p->partition);
        number_text(p->offset, offset, sizeof offset);
        number_text(p->end, end, sizeof end);
        number_text(lag_of(p), lag, sizeof lag);
        const char *cells[] = {topic, partition, offset, end, lag, p->owner ? p->owner : "-"};
        cli_table_add(table, cells);
    }
    cli_table_print(table, stdout);
    cli_table_free(table);
}

static int group_describe(struct cli *cli)
{
    brook_admin *admin = cli_admin(cli);
    if (!admin)
        return CLI_FAILED;
    int code = CLI_OK;
    for (int i = 0; i < cli->arguments_count; i++) {
        struct brook_error error = {0};
        struct brook_group *group = NULL;
        if (brook_admin_describe_group(admin, cli->arguments[i], cli->timeout_ms, &group, &error) < 0) {
            code = cli_fail(cli->arguments[i], &error);
            continue;
        }
        if (cli->json)
            cli_print_json(group_json(group));
        else
            group_people(group);
        brook_group_free(group);
    }
    brook_admin_free(admin);
    return code;
}

const struct cli_command cmd_group_list = {
    .group = "group", .name = "list", .arguments = "", .summary = "list consumer groups",
    .description = "List all consumer groups, one name a line.", .examples = "  brook group list\n", .run = group_list,
};
const struct cli_command cmd_group_describe = {
    .group = "group", .name = "describe", .arguments = "GROUP...", .arguments_min = 1, .arguments_max = -1,
    .summary = "show owner, stored offset, end and lag of each partition",
    .description = "Show the members of a group and, for each partition, its owner, the stored offset (the next record\n"
                   "to read), the end of the partition and the lag between the two.",
    .examples = "  brook group describe billing\n", .run = group_describe,
};
