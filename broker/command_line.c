#include "broker/command_line.h"

#include "broker/manual.h"

#include "broker/server.h"
#include "proto/base/cleanup.h"
#include "proto/base/err.h"

#include "config.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OVERRIDES_MAX 256
#define EXIT_USAGE 2

enum { OPTION_PRINT = 256, OPTION_CHECK, OPTION_MANUAL, OPTION_LOG_FORMAT, OPTION_VERSION };

enum task { TASK_RUN, TASK_CHECK, TASK_PRINT };

struct command_line {
    struct server_options options;
    const char *overrides[OVERRIDES_MAX];
    char log_format[64];
    enum task task;
};

static const char help[] =
    "Usage: brookd -c FILE [-o KEY=VALUE]...\n"
    "Run a Brook broker.\n"
    "\n"
    "  -c, --config=FILE        read settings from FILE (key=value lines)\n"
    "  -o, --option=KEY=VALUE   set KEY, over what FILE says\n"
    "      --log-format=FORMAT  text or json; the same as -o log.format=FORMAT\n"
    "      --check              say what is wrong with the settings, and end\n"
    "      --print-settings     print all settings as a commented file, and end\n"
    "  -h, --help               print this, and end\n"
    "      --version            print the version, and end\n"
    "\n"
    "SIGTERM stops the broker cleanly, SIGHUP reads FILE again.\n"
    "Exit status: 0 after a clean stop, 1 if the broker could not run, 2 for bad options or settings.\n";

static int add_override(struct command_line *line, const char *text)
{
    if (line->options.overrides_count == OVERRIDES_MAX) {
        fprintf(stderr, "brookd: more than %d -o options\n", OVERRIDES_MAX);
        return -BROOK_E_INVALID;
    }
    line->overrides[line->options.overrides_count++] = text;
    return 0;
}

/* Returns 0; 1 when there is nothing left to do; negative for a bad line, which has been told. */
static int parse(int argc, char **argv, struct command_line *line)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"option", required_argument, NULL, 'o'},
                                            {"log-format", required_argument, NULL, OPTION_LOG_FORMAT},
                                            {"check", no_argument, NULL, OPTION_CHECK},
                                            {"print-settings", no_argument, NULL, OPTION_PRINT},
                                            {"print-manual", no_argument, NULL, OPTION_MANUAL},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, OPTION_VERSION},
                                            {NULL, 0, NULL, 0}};
    int c, r = 0;
    while (r == 0 && (c = getopt_long(argc, argv, "c:o:h", options, NULL)) != -1) {
        switch (c) {
        case 'c':
            line->options.file = optarg;
            break;
        case 'o':
            r = add_override(line, optarg);
            break;
        case OPTION_LOG_FORMAT:
            snprintf(line->log_format, sizeof line->log_format, "log.format=%s", optarg);
            r = add_override(line, line->log_format);
            break;
        case OPTION_CHECK:
            line->task = TASK_CHECK;
            break;
        case OPTION_PRINT:
            line->task = TASK_PRINT;
            break;
        case OPTION_MANUAL:
            return manual_print(stdout) < 0 ? -BROOK_E_NOMEM : 1;
        case 'h':
            fputs(help, stdout);
            return 1;
        case OPTION_VERSION:
            puts("brookd " PACKAGE_VERSION);
            return 1;
        default:
            return -BROOK_E_INVALID;
        }
    }
    if (r == 0 && optind < argc) {
        fprintf(stderr, "brookd: what is \"%s\"? Settings are given with -o KEY=VALUE\n", argv[optind]);
        r = -BROOK_E_INVALID;
    }
    return r;
}

static int load(const struct command_line *line, struct settings **ret)
{
    struct settings_faults faults = {0};
    int r = settings_load(line->options.file, line->options.overrides, line->options.overrides_count, ret,
                          &faults);
    for (size_t i = 0; i < faults.count; i++)
        fprintf(stderr, "brookd: %s\n", faults.lines[i]);
    if (r == -BROOK_E_NOMEM)
        fputs("brookd: out of memory\n", stderr);
    settings_faults_done(&faults);
    return r;
}

static int print(const struct command_line *line)
{
    struct settings *settings;
    bool is_bare = !line->options.file && !line->options.overrides_count;
    if ((is_bare ? settings_default(&settings) : load(line, &settings)) < 0)
        return EXIT_USAGE;
    settings_print(settings, stdout);
    settings_free(settings);
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int command_line_run(int argc, char **argv)
{
    struct command_line line = {0};
    struct settings *settings;
    line.options.overrides = line.overrides;
    int r = parse(argc, argv, &line);
    if (r != 0)
        return r < 0 ? EXIT_USAGE : EXIT_SUCCESS;
    if (line.task == TASK_PRINT)
        return print(&line);
    if (load(&line, &settings) < 0)
        return EXIT_USAGE;
    if (line.task == TASK_RUN)
        return server_run(&line.options, settings);
    puts("the settings are good");
    settings_free(settings);
    return EXIT_SUCCESS;
}
