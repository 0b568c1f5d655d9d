/* The subcommands, one file each (cmd_x.c). */
#ifndef BROOK_CLI_COMMANDS_H
#define BROOK_CLI_COMMANDS_H

#include "client/cli/cli.h"

extern const struct cli_command cmd_topic_create;
extern const struct cli_command cmd_topic_list;
extern const struct cli_command cmd_topic_describe;
extern const struct cli_command cmd_topic_grow;
extern const struct cli_command cmd_topic_alter;
extern const struct cli_command cmd_topic_delete;
extern const struct cli_command cmd_topic_delete_records;
extern const struct cli_command cmd_produce;
extern const struct cli_command cmd_consume;
extern const struct cli_command cmd_group_list;
extern const struct cli_command cmd_group_describe;
extern const struct cli_command cmd_cluster;
extern const struct cli_command cmd_cluster_elect;
extern const struct cli_command cmd_cluster_reassign;
extern const struct cli_command cmd_log_dump;
extern const struct cli_command cmd_log_verify;
extern const struct cli_command cmd_log_find_time;
extern const struct cli_command cmd_bench_produce;
extern const struct cli_command cmd_bench_consume;
extern const struct cli_command cmd_bench_latency;
extern const struct cli_command cmd_bench_limit;
extern const struct cli_command cmd_bench_durability;
extern const struct cli_command cmd_bench_availability;
#endif
