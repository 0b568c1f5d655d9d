/* What every subcommand shares: the table of options (which also makes --help, the manual page and the completion),
 * parsing, where the cluster is, how to speak to people and to machines.
 *
 * Data goes to stdout, talk to stderr. Exit codes: 0 ok, 1 the operation failed, 2 usage. One thread.
 */
#ifndef BROOK_CLI_H
#define BROOK_CLI_H

#include <brook/brook.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* One option of a command. Tables end with a NULL name. */
struct cli_option {
    const char *name;     /* without the dashes */
    const char *argument; /* NULL: a flag */
    const char *text;
    char letter; /* 0: none */
};

struct cli;

struct cli_command {
    const char *group; /* "topic", or NULL for commands of one word */
    const char *name;
    const char *arguments; /* "NAME", "[FILE...]" */
    const char *summary;   /* one line */
    const char *description;
    const char *examples;
    const struct cli_option *options; /* NULL: none */
    int arguments_min;
    int arguments_max; /* -1: no limit */
    bool is_offline;   /* needs no cluster */
    int (*run)(struct cli *cli);
};

/* All of them, in the order of the manual; ends with a NULL name. */
extern const struct cli_command *const cli_commands[];
extern const struct cli_option cli_global_options[];

#define CLI_VALUES_MAX 64

/* One run of the program. */
struct cli {
    const struct cli_command *command;
    struct {
        const struct cli_option *option;
        const char *value;
    } values[CLI_VALUES_MAX];
    int values_count;
    char **arguments; /* what is no option */
    int arguments_count;
    brook_config *config;
    bool json;
    bool progress; /* stderr is a terminal */
    bool is_usage; /* cli_usage() was called: the exit code is CLI_USAGE */
    bool is_told;  /* that standard output is gone */
    bool has_enough; /* whoever reads standard output */
    int timeout_ms;
};

/* The whole program. Returns its exit code. */
int cli_main(int argc, char **argv);

/* The last value of an option, NULL when it was not given; a flag's value is "". */
const char *cli_value(const struct cli *cli, const char *name);
/* The `index`-th value of a repeated option, NULL behind the last. */
const char *cli_value_at(const struct cli *cli, const char *name, int index);
bool cli_flag(const struct cli *cli, const char *name);
/* A number in [min, max] ("2M", "64k" allowed). Returns false after having said what is wrong. */
bool cli_number(struct cli *cli, const char *name, int64_t standard, int64_t min, int64_t max,
                int64_t *ret_value);
/* Milliseconds since 1970 from "2026-11-30T08:00[:00[.123]][Z]" (local time without Z), "-2h", "-30m", "-7d",
 * "@1700000000[.123]" (seconds). Returns 0 or -BROOK_E_INVALID. `now_ms` is what "-2h" counts from. */
int cli_parse_time(const char *text, int64_t now_ms, int64_t *ret_ms);

/* "brook: ..." on stderr; with --json nothing else changes: errors are talk. */
void cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Say that `what` failed and return CLI_FAILED. */
int cli_fail(const char *what, const struct brook_error *error);
/* Say what is wrong with the command line; the program will exit with CLI_USAGE, which is returned. */
int cli_usage(struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Set a key of cli->config; says what is wrong and returns false. */
bool cli_configure(struct cli *cli, const char *key, const char *value);
/* Open the administration handle, or say why not. */
brook_admin *cli_admin(struct cli *cli);

/* Print a JSON value on one line and drop the reference. Returns CLI_OK or CLI_FAILED (stdout is gone). */
int cli_print_json(json_t *value);
/* Flush stdout. Returns false when it is gone: a full disk is told once and must not look like success; a reader that
 * has had enough (a closed pipe) is neither. */
bool cli_flush(struct cli *cli);

/* A table for people: columns as wide as their widest cell. */
/* Ids of brokers: as a JSON list, and as "1,2,3" ("-": none; cut off where there is no room). */
json_t *cli_ids_json(const int32_t *ids, size_t count);
void cli_join_ids(const int32_t *ids, size_t count, char *text, size_t room);

struct cli_table;
struct cli_table *cli_table_new(int columns, const char *const *titles);
void cli_table_add(struct cli_table *table, const char *const *cells);
void cli_table_print(struct cli_table *table, FILE *out);
void cli_table_free(struct cli_table *table);

/* Texts made from the tables: help of one command or of all (command NULL), the manual page, the completion. */
void cli_help(const struct cli_command *command, FILE *out);
void cli_manual(FILE *out);
void cli_manual_config(FILE *out);
void cli_completion(FILE *out);

/* SIGINT and SIGTERM end loops politely: true once one arrived. */
void cli_catch_signals(void);
bool cli_interrupted(void);
#endif
