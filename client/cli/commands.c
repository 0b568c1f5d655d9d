#include "client/cli/commands.h"

const struct cli_command *const cli_commands[] = {
    &cmd_topic_create,
    &cmd_topic_list,
    &cmd_topic_describe,
    &cmd_topic_grow,
    &cmd_topic_delete,
    &cmd_topic_delete_records,
    &cmd_produce,
    &cmd_consume,
    &cmd_group_list,
    &cmd_group_describe,
    &cmd_cluster,
    &cmd_log_dump,
    &cmd_log_verify,
    &cmd_log_find_time,
    &cmd_bench_produce,
    &cmd_bench_consume,
    &cmd_bench_latency,
    &cmd_bench_limit,
    &cmd_bench_durability,
    NULL,
};
