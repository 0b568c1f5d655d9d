#include "broker/manual.h"

#include "broker/settings.h"

#include "config.h"

/* Backslashes, and dots and quotes at the beginning of a line, are troff's own. */
static void roff(const char *text, FILE *to)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", to);
    for (; *text; text++) {
        if (*text == '-' || *text == '\\')
            fputc('\\', to);
        fputc(*text == '\\' ? 'e' : *text, to);
    }
}

static void print_setting(void *arg, const char *name, const char *value, bool is_default, const char *description)
{
    FILE *to = arg;
    fputs(".TP\n.B ", to);
    roff(name, to);
    fputc('\n', to);
    roff(description, to);
    if (*value) {
        fputs("\n.br\nDefault: ", to);
        roff(value, to);
    }
    fputc('\n', to);
}

int manual_print(FILE *to)
{
    struct settings *settings;
    int r = settings_default(&settings);
    if (r < 0)
        return r;
    fputs(".TH BROOKD 8 \"\" \"brook " PACKAGE_VERSION "\" \"System Administration\"\n.SH NAME\nbrookd \\- a broker of a "
          "Brook cluster\n.SH SYNOPSIS\n.B brookd\n\\-c \\fIFILE\\fR [\\-o \\fIKEY\\fR=\\fIVALUE\\fR]...\n.br\n.B brookd\n"
          "\\-\\-check | \\-\\-print\\-settings | \\-\\-version | \\-\\-help\n.SH DESCRIPTION\n"
          "Registers in ZooKeeper, keeps the partitions that the cluster gives it in its data directories, and serves "
          "producers and consumers. SIGTERM stops it cleanly, SIGHUP makes it read its file again. Log lines go to "
          "standard error.\n.SH OPTIONS\n.TP\n.B \\-c, \\-\\-config=\\fIFILE\\fR\nread settings from FILE: one "
          "\\fIkey=value\\fR a line, # begins a comment\n.TP\n.B \\-o, \\-\\-option=\\fIKEY\\fR=\\fIVALUE\\fR\nset KEY, over "
          "what FILE says\n.TP\n.B \\-\\-log\\-format=\\fIFORMAT\\fR\ntext or json\n.TP\n.B \\-\\-check\nsay everything that "
          "is wrong with the settings, and end\n.TP\n.B \\-\\-print\\-settings\nprint all settings as a commented file, and "
          "end\n.SH SETTINGS\n", to);
    settings_visit(settings, print_setting, to);
    fputs(".SH EXIT STATUS\n0 after a clean stop, 1 if the broker could not run, 2 for bad options or settings.\n"
          ".SH SEE ALSO\nbrook(1), brook\\-config(5)\n", to);
    settings_free(settings);
    return 0;
}
