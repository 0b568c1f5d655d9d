/* Printing what lies beside the segments: side files, and a data directory at a glance. One thread. */
#ifndef BROOK_CLI_LOG_DUMP_H
#define BROOK_CLI_LOG_DUMP_H

#include "broker/storage/inspect.h"
#include "client/cli/cli.h"

#include <stddef.h>

/* By the name: .snapshot, .txnindex, a checkpoint, partition.metadata, meta.properties, the clean-stop marker. */
bool log_dump_is_side_file(const char *path);
/* Print its content, which is at `data`. Returns the number of things that are wrong, each of which was said. */
int log_dump_side_file(struct cli *cli, const char *path, const void *data, size_t bytes);
/* The side files, then a line for each partition. Returns CLI_OK or CLI_FAILED. */
int log_dump_data_dir(struct cli *cli, const char *directory);
#endif
