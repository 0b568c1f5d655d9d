#include "broker/settings.h"

#include "broker/settings_check.h"
#include "broker/settings_table.h"
#include "proto/base/cleanup.h"
#include "proto/base/err.h"
#include "proto/base/ratio.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES_MAX 8192

/* ---- values -------------------------------------------------------------------------------------------- */

static void *field(const struct settings *s, const struct setting *row)
{
    return (char *)(uintptr_t)s + row->offset;
}

static bool is_among(const char *choices, const char *value)
{
    size_t bytes = strlen(value);
    for (const char *at = choices; at; at = strchr(at, '|')) {
        at += *at == '|';
        if (strcspn(at, "|") == bytes && memcmp(at, value, bytes) == 0)
            return true;
    }
    return false;
}

static int set_number(struct settings *s, const struct setting *row, const char *value, const char *where,
                      struct settings_faults *faults)
{
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (end == value || *end || isspace((unsigned char)*value)) {
        settings_fault(faults, "%s: %s=%s is not a whole number", where, row->name, value);
        return -BROOK_E_CONFIG;
    }
    if (errno == ERANGE || number < row->min || number > row->max) {
        settings_fault(faults, "%s: %s=%s is outside %" PRId64 " to %" PRId64 "%s%s", where, row->name, value,
                       row->min, row->max, *row->unit ? " " : "", row->unit);
        return -BROOK_E_CONFIG;
    }
    if (row->type == SETTING_INT)
        *(int32_t *)field(s, row) = (int32_t)number;
    else
        *(int64_t *)field(s, row) = number;
    return 0;
}

static int set_text(struct settings *s, const struct setting *row, const char *value, const char *where,
                    struct settings_faults *faults)
{
    bool is_none = !*value && !row->default_value; /* as good as not given */
    if (row->type == SETTING_CHOICE && !is_none && !is_among(row->choices, value)) {
        settings_fault(faults, "%s: %s=%s is none of %s", where, row->name, value, row->choices);
        return -BROOK_E_CONFIG;
    }
    if (row->is_required && !*value) {
        settings_fault(faults, "%s: %s is empty and must be set: %s", where, row->name, row->description);
        return -BROOK_E_CONFIG;
    }
    char *copy = NULL;
    if (*value && !(copy = strdup(value)))
        return -BROOK_E_NOMEM;
    char **text = field(s, row);
    free(*text);
    *text = copy;
    return 0;
}

static int set_ratio(struct settings *s, const struct setting *row, const char *value, const char *where,
                     struct settings_faults *faults)
{
    if (ratio_parse(value, field(s, row)))
        return 0;
    settings_fault(faults, "%s: %s=%s is not a number from 0 to 1", where, row->name, value);
    return -BROOK_E_CONFIG;
}

static int set(struct settings *s, const struct setting *row, const char *value, const char *where,
               struct settings_faults *faults)
{
    bool is_number = row->type == SETTING_INT || row->type == SETTING_LONG;
    if (row->type == SETTING_RATIO)
        return set_ratio(s, row, value, where, faults);
    return is_number ? set_number(s, row, value, where, faults) : set_text(s, row, value, where, faults);
}

static void format_value(const struct settings *s, const struct setting *row, char *to, size_t capacity)
{
    if (row->type == SETTING_INT) {
        snprintf(to, capacity, "%" PRId32, *(int32_t *)field(s, row));
    } else if (row->type == SETTING_LONG) {
        snprintf(to, capacity, "%" PRId64, *(int64_t *)field(s, row));
    } else if (row->type == SETTING_RATIO) {
        char text[RATIO_TEXT_BYTES];
        ratio_format(*(int32_t *)field(s, row), text);
        snprintf(to, capacity, "%s", text);
    } else {
        const char *text = *(char **)field(s, row);
        snprintf(to, capacity, "%s", text ? text : "");
    }
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        end--;
    *end = '\0';
    return text;
}

static void say_unknown(const char *name, const char *where, struct settings_faults *faults)
{
    if (strcmp(name, "durability") == 0)
        settings_fault(faults, "%s: there is no setting %s: it is a topic's, and log.durability is its default",
                       where, name);
    else
        settings_fault(faults, "%s: there is no setting %s", where, name);
}

/* "value # comment": whoever writes this means a comment, and must not get a directory of that name. */
static bool has_comment(const char *value)
{
    for (const char *at = strchr(value, '#'); at; at = strchr(at + 1, '#'))
        if (at == value || isspace((unsigned char)at[-1]))
            return true;
    return false;
}

/* One "key=value", in place. `seen`: where each row was set before, or NULL. */
static int take_assignment(struct settings *s, char *text, const char *where, char **seen,
                           struct settings_faults *faults)
{
    char *equals = strchr(text, '=');
    if (!equals) {
        settings_fault(faults, "%s: \"%s\" is not key=value", where, text);
        return -BROOK_E_CONFIG;
    }
    *equals = '\0';
    const char *name = trim(text), *value = trim(equals + 1);
    const struct setting *row = settings_table_find(name, strlen(name));
    if (!row) {
        say_unknown(name, where, faults);
        return -BROOK_E_CONFIG;
    }
    size_t index = (size_t)(row - settings_table);
    if (seen && seen[index]) {
        settings_fault(faults, "%s: %s was set before, at %s", where, name, seen[index]);
        return -BROOK_E_CONFIG;
    }
    if (seen && !(seen[index] = strdup(where)))
        return -BROOK_E_NOMEM;
    s->is_given[index] = true;
    if (has_comment(value)) {
        settings_fault(faults, "%s: %s=%s: a comment needs a line of its own", where, name, value);
        return -BROOK_E_CONFIG;
    }
    return set(s, row, value, where, faults);
}

static int worst(int a, int b)
{
    return a == -BROOK_E_NOMEM || b == 0 ? a : b;
}

static int read_lines(struct settings *s, FILE *from, const char *name, char **seen,
                      struct settings_faults *faults)
{
    char line[LINE_BYTES_MAX];
    int r = 0;
    for (int number = 1; fgets(line, sizeof line, from); number++) {
        char where[512];
        snprintf(where, sizeof where, "%s:%d", name, number);
        if (!strchr(line, '\n') && !feof(from)) {
            settings_fault(faults, "%s: the line is longer than %d bytes", where, LINE_BYTES_MAX - 2);
            return -BROOK_E_CONFIG;
        }
        char *text = trim(line);
        if (*text && *text != '#')
            r = worst(r, take_assignment(s, text, where, seen, faults));
    }
    if (ferror(from)) {
        settings_fault(faults, "%s: %s", name, strerror(errno));
        return -BROOK_E_CONFIG;
    }
    return r;
}

static int read_file(struct settings *s, const char *name, struct settings_faults *faults)
{
    char *seen[SETTINGS_MAX] = {0};
    FILE *from = fopen(name, "re");
    if (!from) {
        settings_fault(faults, "%s: %s", name, strerror(errno));
        return -BROOK_E_CONFIG;
    }
    int r = read_lines(s, from, name, seen, faults);
    fclose(from);
    for (size_t i = 0; i < SETTINGS_MAX; i++)
        free(seen[i]);
    return r;
}

static int take_overrides(struct settings *s, const char *const *overrides, size_t count,
                          struct settings_faults *faults)
{
    int r = 0;
    for (size_t i = 0; i < count; i++) {
        AUTO_FREE char *copy = strdup(overrides[i]);
        if (!copy)
            return -BROOK_E_NOMEM;
        r = worst(r, take_assignment(s, trim(copy), "-o", NULL, faults));
    }
    return r;
}

/* ---- the face ------------------------------------------------------------------------------------------ */

int settings_default(struct settings **ret)
{
    struct settings *s = calloc(1, sizeof *s);
    struct settings_faults none = {0};
    if (!s)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < settings_table_count; i++)
        if (settings_table[i].default_value &&
            set(s, &settings_table[i], settings_table[i].default_value, "default", &none) < 0) {
            settings_free(s);
            return -BROOK_E_NOMEM;
        }
    *ret = s;
    return 0;
}

void settings_free(struct settings *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < settings_table_count; i++)
        if (settings_table[i].type == SETTING_TEXT || settings_table[i].type == SETTING_CHOICE)
            free(*(char **)field(s, &settings_table[i]));
    free(s);
}

int settings_load(const char *file, const char *const *overrides, size_t overrides_count,
                  struct settings **ret, struct settings_faults *faults)
{
    struct settings *s;
    int r = settings_default(&s);
    if (r < 0)
        return r;
    if (file)
        r = read_file(s, file, faults);
    r = worst(r, take_overrides(s, overrides, overrides_count, faults));
    if (r != -BROOK_E_NOMEM) {
        settings_check(s, faults);
    }
    if (r == 0 && faults->count)
        r = -BROOK_E_CONFIG;
    if (r < 0) {
        settings_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

static void print_facts(const struct setting *row, FILE *to)
{
    const char *before = "# (";
    if (row->is_required) {
        fprintf(to, "%srequired", before);
        before = "; ";
    }
    if (row->type == SETTING_INT || row->type == SETTING_LONG) {
        fprintf(to, "%s%s%s%" PRId64 " to %" PRId64, before, row->unit, *row->unit ? ", " : "", row->min,
                row->max);
        before = "; ";
    } else if (row->type == SETTING_RATIO) {
        fprintf(to, "%s0 to 1", before);
        before = "; ";
    } else if (row->choices) {
        fprintf(to, "%s%s", before, row->choices);
        before = "; ";
    }
    if (row->at_run_time) {
        fprintf(to, "%smay change while running", before);
        before = "; ";
    }
    if (*before == ';')
        fputs(")\n", to);
}

void settings_print(const struct settings *s, FILE *to)
{
    fputs("# brookd: every setting with its default. Lines that begin with # say what holds if nothing is "
          "said.\n",
          to);
    for (size_t i = 0; i < settings_table_count; i++) {
        const struct setting *row = &settings_table[i];
        char value[LINE_BYTES_MAX];
        format_value(s, row, value, sizeof value);
        if (!s->is_given[i] && !row->default_value)
            value[0] = '\0';
        fprintf(to, "\n# %s\n", row->description);
        print_facts(row, to);
        fprintf(to, "%s%s=%s\n", s->is_given[i] ? "" : "#", row->name, value);
    }
}

void settings_visit(const struct settings *s, settings_visitor *visitor, void *arg)
{
    for (size_t i = 0; i < settings_table_count; i++) {
        char value[LINE_BYTES_MAX] = "";
        if (s->is_given[i] || settings_table[i].default_value)
            format_value(s, &settings_table[i], value, sizeof value);
        visitor(arg, settings_table[i].name, value, !s->is_given[i], settings_table[i].description);
    }
}

int settings_take_over(struct settings *to, const struct settings *from)
{
    struct settings_faults none = {0};
    for (size_t i = 0; i < settings_table_count; i++) {
        char value[LINE_BYTES_MAX];
        if (!settings_table[i].at_run_time)
            continue;
        format_value(from, &settings_table[i], value, sizeof value);
        if (set(to, &settings_table[i], value, "", &none) < 0)
            return -BROOK_E_NOMEM;
        to->is_given[i] = from->is_given[i];
    }
    return 0;
}

void settings_compare(const struct settings *from, const struct settings *to, settings_change *change,
                      void *arg)
{
    for (size_t i = 0; i < settings_table_count; i++) {
        char before[LINE_BYTES_MAX], after[LINE_BYTES_MAX];
        format_value(from, &settings_table[i], before, sizeof before);
        format_value(to, &settings_table[i], after, sizeof after);
        if (strcmp(before, after) != 0)
            change(arg, settings_table[i].name, before, after, settings_table[i].at_run_time);
    }
}

char **settings_split(const char *list, size_t *ret_count)
{
    size_t most = 1;
    for (const char *at = list; *at; at++)
        most += *at == ',';
    char **items = calloc(1, most * sizeof(char *) + strlen(list) + 1);
    if (!items)
        return NULL;
    char *text = strcpy((char *)(items + most), list), *at = text;
    size_t count = 0;
    for (char *item; (item = strsep(&at, ","));) {
        item = trim(item);
        if (*item)
            items[count++] = item;
    }
    *ret_count = count;
    return items;
}
