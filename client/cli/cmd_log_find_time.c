/* brook log find-time: the first record at or after a time, offline. */
#include "client/cli/commands.h"

#include "broker/storage/inspect.h"
#include "proto/base/clock.h"

#include <inttypes.h>

static void print(struct cli *cli, const struct inspect_record *record)
{
    if (cli->json)
        cli_print_json(json_pack("{s:I,s:I,s:s}", "offset", (json_int_t)record->offset, "timestamp",
                                 (json_int_t)record->timestamp, "segment", record->segment));
    else
        printf("offset: %" PRId64 " timestamp: %" PRId64 " segment: %s\n", record->offset, record->timestamp,
               record->segment);
}

static int run(struct cli *cli)
{
    int64_t time_ms;
    struct inspect_record record;
    struct brook_error error = {0};
    if (cli_parse_time(cli->arguments[1], clock_wall_ms(), &time_ms) < 0)
        return cli_usage(cli, "'%s' is no time: 2026-11-30T08:00, -2h, @1700000000", cli->arguments[1]);
    int r = inspect_find_time(cli->arguments[0], time_ms, &record, &error);
    if (r == -BROOK_E_NOT_FOUND && error.code == 0)
        return cli_say("%s: no record at or after %s", cli->arguments[0], cli->arguments[1]), CLI_FAILED;
    if (r != 0)
        return cli_fail("log find-time", &error);
    print(cli, &record);
    return CLI_OK;
}

const struct cli_command cmd_log_find_time = {
    .group = "log", .name = "find-time", .arguments = "DIRECTORY TIME", .arguments_min = 2, .arguments_max = 2,
    .summary = "find the first record at or after a time, offline",
    .description = "Print offset, timestamp (ms) and segment of the first record of a partition's directory whose timestamp is\n"
                   "at or after TIME: 2026-11-30T08:00:00.5 (local; with Z: UTC), @1700000000.5 (seconds), or -2h before now, which\n"
                   "-- has to stand before. Exact to the record, found in the batches themselves whatever the indexes say. Nothing is ever written.\n"
                   "Exits with 1 when there is no such record.",
    .examples = "  brook log find-time /var/lib/brook/orders-0 2026-11-30T08:00Z\n"
                "  brook log find-time /var/lib/brook/orders-0 -- -2h\n",
    .is_offline = true, .run = run,
};
