/* Help, manual pages and completion, all from the tables of commands and options. */
#include "client/cli/cli.h"

#include <string.h>

const struct cli_option cli_global_options[] = {
    {"zookeeper", "LIST", "ZooKeeper servers, host:port[,...][/chroot]; default $BROOK_ZOOKEEPER", 'z'},
    {"bootstrap", "LIST", "brokers to begin with instead, host:port[,...]", 'b'},
    {"config", "FILE", "settings of libbrook; default ~/.config/brook.conf, then /etc/brook/brook.conf", 'C'},
    {"client-set", "KEY=VALUE", "one setting of libbrook, see brook-config(5); may be repeated", 'X'},
    {"timeout", "SECONDS", "how long to wait for an answer (30)", 0},
    {"json", NULL, "print JSON for programs", 0},
    {"quiet", NULL, "no progress line", 'q'},
    {"help", NULL, "print help and exit", 'h'},
    {0},
};

static void print_options(const struct cli_option *options, FILE *out)
{
    for (const struct cli_option *o = options; o && o->name; o++) {
        char left[80];
        char letter[8] = "    ";
        if (o->letter)
            snprintf(letter, sizeof letter, "-%c, ", o->letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, o->argument ? " " : "",
                 o->argument ? o->argument : "");
        fprintf(out, "  %-32s %s\n", left, o->text);
    }
}

static void print_name(const struct cli_command *c, FILE *out)
{
    fprintf(out, "%s%s%s", c->group ? c->group : "", c->group ? " " : "", c->name);
}

static void help_all(FILE *out)
{
    fputs("Usage: brook [OPTIONS] COMMAND [ARGUMENTS]\n\n"
          "Produce to, consume from, look at and measure a Brook cluster.\n\nCommands:\n", out);
    for (int i = 0; cli_commands[i]; i++) {
        const struct cli_command *c = cli_commands[i];
        char name[40];
        snprintf(name, sizeof name, "%s%s%s", c->group ? c->group : "", c->group ? " " : "", c->name);
        fprintf(out, "  %-18s %s\n", name, c->summary);
    }
    fputs("\nOptions, in front of the command or behind it:\n", out);
    print_options(cli_global_options, out);
    fputs("      --version                    print the version and exit\n"
          "\nExit status: 0 success, 1 the operation failed, 2 wrong usage.\n"
          "'brook COMMAND --help' tells more.\n", out);
}

void cli_help(const struct cli_command *c, FILE *out)
{
    if (!c) {
        help_all(out);
        return;
    }
    fputs("Usage: brook ", out);
    print_name(c, out);
    fprintf(out, " [OPTIONS]%s%s\n\n%s\n", *c->arguments ? " " : "", c->arguments, c->description);
    if (c->options) {
        fputs("\nOptions:\n", out);
        print_options(c->options, out);
    }
    fputs("\nGeneral options:\n", out);
    print_options(cli_global_options, out);
    if (c->examples)
        fprintf(out, "\nExamples:\n%s", c->examples);
}

/* troff: backslashes and leading dots are commands. */
static void roff(const char *text, FILE *out)
{
    bool line_start = true;
    for (; *text; text++) {
        if (line_start && (*text == '.' || *text == '\''))
            fputs("\\&", out);
        if (*text == '\\' || *text == '-')
            fputc('\\', out);
        fputc(*text == '\\' ? 'e' : *text, out);
        line_start = *text == '\n';
    }
}

static void roff_options(const struct cli_option *options, FILE *out)
{
    for (const struct cli_option *o = options; o && o->name; o++) {
        fputs(".TP\n.B ", out);
        if (o->letter)
            fprintf(out, "\\-%c, ", o->letter);
        fputs("\\-\\-", out);
        roff(o->name, out);
        if (o->argument)
            fprintf(out, " \\fI%s\\fR", o->argument);
        fputc('\n', out);
        roff(o->text, out);
        fputc('\n', out);
    }
}

void cli_manual(FILE *out)
{
    fprintf(out, ".TH BROOK 1 \"\" \"brook %s\" \"User Commands\"\n.SH NAME\n"
                 "brook \\- produce to, consume from, look at and measure a Brook cluster\n"
                 ".SH SYNOPSIS\n.B brook\n[\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]\n"
                 ".SH DESCRIPTION\nData goes to standard output, talk to standard error.\n.SH OPTIONS\n",
            brook_version());
    roff_options(cli_global_options, out);
    fputs(".SH COMMANDS\n", out);
    for (int i = 0; cli_commands[i]; i++) {
        const struct cli_command *c = cli_commands[i];
        fputs(".SS brook ", out);
        print_name(c, out);
        fputc(' ', out);
        roff(c->arguments, out);
        fputc('\n', out);
        roff(c->description, out);
        fputc('\n', out);
        roff_options(c->options, out);
        if (c->examples) {
            fputs(".PP\nExamples:\n.nf\n", out);
            roff(c->examples, out);
            fputs(".fi\n", out);
        }
    }
    fputs(".SH EXIT STATUS\n0 success, 1 the operation failed, 2 wrong usage.\n.SH ENVIRONMENT\n.TP\n"
          ".B BROOK_ZOOKEEPER\nwhere ZooKeeper is, when neither option says it\n.SH FILES\n"
          "~/.config/brook.conf, /etc/brook/brook.conf\n.SH SEE ALSO\nbrook\\-config(5), brookd(8)\n", out);
}

static void roff_setting(void *arg, const char *key, const char *type, const char *standard, const char *range,
                         const char *description)
{
    FILE *out = arg;
    fputs(".TP\n.B ", out);
    roff(key, out);
    fputs("\n", out);
    roff(description, out);
    fputs("\n.br\n", out);
    roff(type, out);
    if (range && *range) {
        fputs(", ", out);
        roff(range, out);
    }
    fputs("; default: ", out);
    roff(standard && *standard ? standard : "(none)", out);
    fputs("\n", out);
}

void cli_manual_config(FILE *out)
{
    fprintf(out, ".TH BROOK-CONFIG 5 \"\" \"brook %s\" \"File Formats\"\n.SH NAME\n"
                 "brook\\-config \\- settings of libbrook\n.SH DESCRIPTION\n"
                 "One \\fIkey = value\\fR a line; # begins a comment. Unknown keys and bad values are errors.\n"
                 ".SH SETTINGS\n", brook_version());
    brook_config_describe(roff_setting, out);
    fputs(".SH SEE ALSO\nbrook(1)\n", out);
}

void cli_completion(FILE *out)
{
    fputs("# bash completion for brook, made from its own tables\n_brook() {\n"
          "    local current=${COMP_WORDS[COMP_CWORD]} words=\"${COMP_WORDS[*]:1:COMP_CWORD-1}\"\n"
          "    case \"$words \" in\n", out);
    for (int i = 0; cli_commands[i]; i++) {
        const struct cli_command *c = cli_commands[i];
        fputs("    *\"", out);
        print_name(c, out);
        fputs(" \"*) COMPREPLY=($(compgen -W \"", out);
        for (const struct cli_option *o = c->options; o && o->name; o++)
            fprintf(out, "--%s ", o->name);
        for (const struct cli_option *o = cli_global_options; o->name; o++)
            fprintf(out, "--%s ", o->name);
        fputs("\" -- \"$current\")) ;;\n", out);
    }
    const char *previous = NULL;
    for (int i = 0; cli_commands[i]; i++) {
        const char *group = cli_commands[i]->group;
        if (!group || (previous && strcmp(group, previous) == 0))
            continue;
        fprintf(out, "    *\"%s \") COMPREPLY=($(compgen -W \"", group);
        for (int j = 0; cli_commands[j]; j++)
            if (cli_commands[j]->group && strcmp(cli_commands[j]->group, group) == 0)
                fprintf(out, "%s ", cli_commands[j]->name);
        fputs("\" -- \"$current\")) ;;\n", out);
        previous = group;
    }
    fputs("    *) COMPREPLY=($(compgen -W \"", out);
    previous = NULL;
    for (int i = 0; cli_commands[i]; i++) {
        const char *word = cli_commands[i]->group ? cli_commands[i]->group : cli_commands[i]->name;
        if (!previous || strcmp(word, previous) != 0)
            fprintf(out, "%s ", word);
        previous = word;
    }
    fputs("\" -- \"$current\")) ;;\n    esac\n}\ncomplete -o default -F _brook brook\n", out);
}
