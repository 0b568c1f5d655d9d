#include "client/cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    interrupted = 1;
}

void cli_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool cli_interrupted(void)
{
    return interrupted;
}

const char *cli_value_at(const struct cli *cli, const char *name, int index)
{
    for (int i = 0; i < cli->values_count; i++)
        if (strcmp(cli->values[i].option->name, name) == 0 && index-- == 0)
            return cli->values[i].value;
    return NULL;
}

const char *cli_value(const struct cli *cli, const char *name)
{
    for (int i = cli->values_count; i-- > 0;)
        if (strcmp(cli->values[i].option->name, name) == 0)
            return cli->values[i].value;
    return NULL;
}

bool cli_flag(const struct cli *cli, const char *name)
{
    return cli_value(cli, name) != NULL;
}

static bool parse_number(const char *text, int64_t *ret)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || errno)
        return false;
    static const char units[] = "kMGT";
    if (*end) {
        const char *unit = strchr(units, *end == 'K' ? 'k' : *end);
        if (!unit || end[1])
            return false;
        for (long i = 0; i <= unit - units; i++)
            if (__builtin_mul_overflow(value, 1000, &value))
                return false;
    }
    *ret = value;
    return true;
}

bool cli_number(struct cli *cli, const char *name, int64_t standard, int64_t min, int64_t max,
                int64_t *ret_value)
{
    const char *text = cli_value(cli, name);
    int64_t value = standard;
    if (text && (!parse_number(text, &value) || value < min || value > max)) {
        cli_usage(cli, "--%s: '%s' is not a number from %lld to %lld", name, text, (long long)min,
                  (long long)max);
        return false;
    }
    *ret_value = value;
    return true;
}

static int parse_ago(const char *text, int64_t now_ms, int64_t *ret_ms)
{
    char *end;
    errno = 0;
    double amount = strtod(text + 1, &end);
    if (end == text + 1 || errno || amount < 0 || !*end || end[1])
        return -BROOK_E_INVALID;
    double unit_s;
    switch (*end) {
    case 's': unit_s = 1; break;
    case 'm': unit_s = 60; break;
    case 'h': unit_s = 3600; break;
    case 'd': unit_s = 86400; break;
    default: return -BROOK_E_INVALID;
    }
    if (amount * unit_s > 1e11)
        return -BROOK_E_INVALID;
    *ret_ms = now_ms - (int64_t)(amount * unit_s * 1000);
    return 0;
}

/* ".5", ".05", ".005" behind seconds: milliseconds; nothing there is 0. Returns what follows, NULL when it is none. */
static const char *take_fraction(const char *at, int64_t *ret_ms)
{
    *ret_ms = 0;
    if (*at != '.')
        return at;
    int64_t unit = 100;
    for (at++; *at >= '0' && *at <= '9' && unit > 0; at++, unit /= 10)
        *ret_ms += (*at - '0') * unit;
    return unit == 100 ? NULL : at;
}

static int parse_seconds(const char *text, int64_t *ret_ms)
{
    char *end;
    int64_t fraction;
    errno = 0;
    long long seconds = strtoll(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || errno != 0 || seconds > 100000000000)
        return -BROOK_E_INVALID;
    const char *rest = take_fraction(end, &fraction);
    if (!rest || *rest)
        return -BROOK_E_INVALID;
    *ret_ms = seconds * 1000 + fraction;
    return 0;
}

int cli_parse_time(const char *text, int64_t now_ms, int64_t *ret_ms)
{
    if (text[0] == '-')
        return parse_ago(text, now_ms, ret_ms);
    if (text[0] == '@')
        return parse_seconds(text + 1, ret_ms);
    static const char *const formats[] = {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"};
    for (unsigned i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        struct tm tm = {.tm_isdst = -1};
        const char *end = strptime(text, formats[i], &tm);
        int64_t fraction = 0;
        if (!end || (i == 0 && !(end = take_fraction(end, &fraction))))
            continue;
        bool utc = *end == 'Z';
        if (end[utc])
            continue;
        struct tm given = tm;
        time_t seconds = utc ? timegm(&tm) : mktime(&tm);
        if (tm.tm_mday != given.tm_mday || tm.tm_mon != given.tm_mon) /* the 31st of February */
            return -BROOK_E_INVALID;
        *ret_ms = (int64_t)seconds * 1000 + fraction;
        return 0;
    }
    return -BROOK_E_INVALID;
}

void cli_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("brook: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

int cli_fail(const char *what, const struct brook_error *error)
{
    const char *text = error->text[0] ? error->text : brook_error_text(error->code);
    if (what)
        cli_say("%s: %s", what, text);
    else
        cli_say("%s", text);
    return CLI_FAILED;
}

int cli_usage(struct cli *cli, const char *format, ...)
{
    const struct cli_command *c = cli->command;
    cli->is_usage = true;
    va_list args;
    va_start(args, format);
    fputs("brook: ", stderr);
    vfprintf(stderr, format, args);
    va_end(args);
    if (c)
        fprintf(stderr, "\nTry 'brook %s%s%s --help'.\n", c->group ? c->group : "", c->group ? " " : "", c->name);
    else
        fprintf(stderr, "\nTry 'brook --help'.\n");
    return CLI_USAGE;
}

bool cli_configure(struct cli *cli, const char *key, const char *value)
{
    struct brook_error error = {0};
    if (brook_config_set(cli->config, key, value, &error) == 0)
        return true;
    cli_fail(NULL, &error);
    return false;
}

brook_admin *cli_admin(struct cli *cli)
{
    struct brook_error error = {0};
    brook_admin *admin = NULL;
    int r = brook_admin_new(cli->config, &admin, &error);
    if (r < 0)
        cli_fail("can not start", &error);
    cli->is_usage = r == -BROOK_E_CONFIG;
    return admin;
}

int cli_print_json(json_t *value)
{
    int r = value ? json_dumpf(value, stdout, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(10)) : -1;
    json_decref(value);
    return r == 0 && putchar('\n') != EOF ? CLI_OK : CLI_FAILED;
}

bool cli_flush(struct cli *cli)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    cli->has_enough = cli->has_enough || errno == EPIPE;
    if (!cli->is_told && !cli->has_enough)
        cli_say("standard output: %s", strerror(errno ? errno : EIO));
    cli->is_told = true;
    return false;
}

/* ---- the command line -------------------------------------------------------------------------------- */

#define OPTION_SLOTS 64

/* getopt_long's tables from ours: values are 256 + index. */
static int build_getopt(const struct cli_option *const tables[2], const struct cli_option **by_index,
                        struct option *longs, char *letters)
{
    int n = 0;
    size_t l = 0;
    letters[l++] = ':';
    for (int t = 0; t < 2; t++)
        for (const struct cli_option *o = tables[t]; o && o->name && n < OPTION_SLOTS - 1; o++, n++) {
            by_index[n] = o;
            longs[n] = (struct option){o->name, o->argument ? required_argument : no_argument, NULL, 256 + n};
            if (o->letter) {
                letters[l++] = o->letter;
                if (o->argument)
                    letters[l++] = ':';
            }
        }
    longs[n] = (struct option){0};
    letters[l] = '\0';
    return n;
}

static const struct cli_option *find_letter(const struct cli_option **by_index, int count, int letter)
{
    for (int i = 0; i < count; i++)
        if (by_index[i]->letter == letter)
            return by_index[i];
    return NULL;
}

/* Parse argv (argv[0] is skipped) into cli->values and cli->arguments. Returns CLI_OK or CLI_USAGE. */
static int parse_options(struct cli *cli, int argc, char **argv)
{
    const struct cli_option *const tables[2] = {cli_global_options, cli->command->options};
    const struct cli_option *by_index[OPTION_SLOTS];
    struct option longs[OPTION_SLOTS];
    char letters[2 * OPTION_SLOTS + 2];
    int count = build_getopt(tables, by_index, longs, letters);
    optind = 0;
    int c;
    while ((c = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
        if (c == ':')
            return cli_usage(cli, "%s needs a value", argv[optind - 1]);
        if (c == '?')
            return cli_usage(cli, "unknown or ambiguous option %s", argv[optind - 1]);
        const struct cli_option *o = c >= 256 ? by_index[c - 256] : find_letter(by_index, count, c);
        if (cli->values_count == CLI_VALUES_MAX)
            return cli_usage(cli, "more than %d options", CLI_VALUES_MAX);
        cli->values[cli->values_count].option = o;
        cli->values[cli->values_count++].value = optarg ? optarg : "";
    }
    cli->arguments = argv + optind;
    cli->arguments_count = argc - optind;
    return CLI_OK;
}

static const struct cli_command *find_command(const char *first, const char *second, int *ret_words)
{
    const struct cli_command *one_word = NULL; /* "cluster" is one, and so is "cluster elect" */
    for (int i = 0; cli_commands[i]; i++) {
        const struct cli_command *c = cli_commands[i];
        if (!c->group && strcmp(c->name, first) == 0)
            one_word = c;
        if (c->group && second && strcmp(c->group, first) == 0 && strcmp(c->name, second) == 0) {
            *ret_words = 2;
            return c;
        }
    }
    *ret_words = 1;
    return one_word;
}

static bool is_group(const char *name)
{
    for (int i = 0; cli_commands[i]; i++)
        if (cli_commands[i]->group && strcmp(cli_commands[i]->group, name) == 0)
            return true;
    return false;
}

/* The first file of defaults that exists; the others are not read. */
static int load_defaults(struct cli *cli)
{
    char home[512] = "";
    const char *given = cli_value(cli, "config");
    if (!given && getenv("HOME"))
        snprintf(home, sizeof home, "%s/.config/brook.conf", getenv("HOME"));
    const char *files[] = {given ? given : home, given ? "" : "/etc/brook/brook.conf"};
    for (unsigned i = 0; i < 2; i++) {
        struct brook_error error = {0};
        if (!*files[i])
            continue;
        int r = brook_config_load(cli->config, files[i], &error);
        if (r == 0)
            return CLI_OK;
        if (r != -BROOK_E_NOT_FOUND || given) {
            cli_fail(files[i], &error);
            return CLI_USAGE;
        }
    }
    return CLI_OK;
}

/* What libbrook has to say: trouble always, the rest only when asked for. */
static void show_log(void *arg, int level, const char *subject, const char *message)
{
    const struct cli *cli = arg;
    if (level >= 2 || cli_flag(cli, "verbose"))
        cli_say("%s%s%s", subject, *subject ? ": " : "", message);
}

static bool names_cluster(const struct cli *cli)
{
    const char *zookeeper = brook_config_get(cli->config, "zookeeper.connect");
    const char *bootstrap = brook_config_get(cli->config, "bootstrap.servers");
    return (zookeeper && *zookeeper) || (bootstrap && *bootstrap);
}

static int configure(struct cli *cli)
{
    if (brook_config_new(&cli->config) < 0) {
        cli_say("out of memory");
        return CLI_FAILED;
    }
    int r = load_defaults(cli);
    if (r != CLI_OK)
        return r;
    const char *zookeeper = cli_value(cli, "zookeeper");
    const char *bootstrap = cli_value(cli, "bootstrap");
    if (!zookeeper && !bootstrap)
        zookeeper = getenv("BROOK_ZOOKEEPER");
    if (zookeeper && *zookeeper && !cli_configure(cli, "zookeeper.connect", zookeeper))
        return CLI_USAGE;
    if (bootstrap && !cli_configure(cli, "bootstrap.servers", bootstrap))
        return CLI_USAGE;
    for (int i = 0; cli_value_at(cli, "client-set", i); i++) {
        char pair[1024];
        snprintf(pair, sizeof pair, "%s", cli_value_at(cli, "client-set", i));
        char *equals = strchr(pair, '=');
        if (!equals)
            return cli_usage(cli, "--client-set: '%s' is not KEY=VALUE", pair);
        *equals = '\0';
        if (!cli_configure(cli, pair, equals + 1))
            return CLI_USAGE;
    }
    if (!cli->command->is_offline && !names_cluster(cli))
        return cli_usage(cli, "which cluster? Give --zookeeper (zookeeper.connect) or --bootstrap, or set BROOK_ZOOKEEPER");
    brook_config_set_log(cli->config, show_log, cli);
    return CLI_OK;
}

static int run_command(struct cli *cli, int argc, char **argv)
{
    int r = parse_options(cli, argc, argv);
    if (r != CLI_OK)
        return r;
    if (cli_flag(cli, "help")) {
        cli_help(cli->command, stdout);
        return CLI_OK;
    }
    const struct cli_command *c = cli->command;
    if (cli->arguments_count < c->arguments_min)
        return cli_usage(cli, "%s is missing", c->arguments);
    if (c->arguments_max >= 0 && cli->arguments_count > c->arguments_max)
        return cli_usage(cli, "unexpected argument '%s'", cli->arguments[c->arguments_max]);
    int64_t seconds;
    if (!cli_number(cli, "timeout", 30, 1, 86400, &seconds))
        return CLI_USAGE;
    cli->timeout_ms = (int)seconds * 1000;
    cli->json = cli_flag(cli, "json");
    cli->progress = isatty(STDERR_FILENO) && !cli_flag(cli, "quiet");
    r = configure(cli);
    if (r == CLI_OK)
        r = c->run(cli);
    return cli->is_usage ? CLI_USAGE : r;
}

/* Global options may stand in front of the command: find where it begins. */
static int skip_globals(int argc, char **argv)
{
    int i = 1;
    while (i < argc && argv[i][0] == '-' && argv[i][1]) {
        const char *name = argv[i];
        bool takes_value = false;
        for (const struct cli_option *o = cli_global_options; o->name; o++)
            if (o->argument && ((name[1] == '-' && strcmp(name + 2, o->name) == 0) ||
                                (o->letter && name[1] == o->letter && !name[2])))
                takes_value = true;
        i += takes_value ? 2 : 1;
    }
    return i;
}

static int run_without_command(struct cli *cli, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            cli_help(NULL, stdout);
            return CLI_OK;
        }
        if (strcmp(argv[i], "--version") == 0) {
            printf("brook %s\n", brook_version());
            return CLI_OK;
        }
        if (strcmp(argv[i], "--print-manual") == 0 || strcmp(argv[i], "--print-config-manual") == 0) {
            (strstr(argv[i], "config") ? cli_manual_config : cli_manual)(stdout);
            return CLI_OK;
        }
        if (strcmp(argv[i], "--print-completion") == 0) {
            cli_completion(stdout);
            return CLI_OK;
        }
    }
    if (argc > 1)
        return cli_usage(cli, "no command given");
    cli_help(NULL, stderr);
    return CLI_USAGE;
}

static int unknown_command(struct cli *cli, const char *first, const char *second)
{
    if (!is_group(first))
        return cli_usage(cli, "unknown command '%s'", first);
    if (second && strcmp(second, "--help") != 0 && strcmp(second, "-h") != 0)
        return cli_usage(cli, "unknown command '%s %s'", first, second);
    FILE *out = second ? stdout : stderr;
    for (int i = 0; cli_commands[i]; i++)
        if (cli_commands[i]->group && strcmp(cli_commands[i]->group, first) == 0)
            fprintf(out, "brook %s %-10s %s\n", first, cli_commands[i]->name, cli_commands[i]->summary);
    return second ? CLI_OK : CLI_USAGE;
}

static int finish(struct cli *cli, int code)
{
    bool fine = cli_flush(cli);
    brook_config_free(cli->config);
    return fine || cli->has_enough ? code : CLI_FAILED;
}

int cli_main(int argc, char **argv)
{
    struct cli cli = {0};
    signal(SIGPIPE, SIG_IGN);
    int at = skip_globals(argc, argv);
    if (at >= argc)
        return finish(&cli, run_without_command(&cli, argc, argv));
    if (strcmp(argv[at], "help") == 0) {
        cli_help(NULL, stdout);
        return finish(&cli, CLI_OK);
    }
    int words;
    const char *second = at + 1 < argc ? argv[at + 1] : NULL;
    cli.command = find_command(argv[at], second, &words);
    if (!cli.command)
        return finish(&cli, unknown_command(&cli, argv[at], second));
    /* Take the command's words out, so that one pass parses all options wherever they stand. */
    memmove(argv + at, argv + at + words, (size_t)(argc - at - words + 1) * sizeof *argv);
    return finish(&cli, run_command(&cli, argc - words, argv));
}
