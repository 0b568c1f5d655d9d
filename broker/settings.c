#include "broker/settings.h"

#include "broker/settings_table.h"
#include "proto/base/cleanup.h"
#include "proto/base/err.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES_MAX 8192

/* ---- faults -------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void fault(struct settings_faults *faults, const char *format,
                                                        ...)
{
    va_list args;
    char *line;
    va_start(args, format);
    int n = vasprintf(&line, format, args);
    va_end(args);
    if (n < 0)
        return;
    char **lines = realloc(faults->lines, (faults->count + 1) * sizeof(char *));
    if (!lines) {
        free(line);
        return;
    }
    faults->lines = lines;
    faults->lines[faults->count++] = line;
}

void settings_faults_done(struct settings_faults *faults)
{
    for (size_t i = 0; i < faults->count; i++)
        free(faults->lines[i]);
    free(faults->lines);
    *faults = (struct settings_faults){0};
}

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
        fault(faults, "%s: %s=%s is not a whole number", where, row->name, value);
        return -BROOK_E_CONFIG;
    }
    if (errno == ERANGE || number < row->min || number > row->max) {
        fault(faults, "%s: %s=%s is outside %" PRId64 " to %" PRId64 "%s%s", where, row->name, value,
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
    if (row->type == SETTING_CHOICE && !is_among(row->choices, value)) {
        fault(faults, "%s: %s=%s is none of %s", where, row->name, value, row->choices);
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

static int set(struct settings *s, const struct setting *row, const char *value, const char *where,
               struct settings_faults *faults)
{
    bool is_number = row->type == SETTING_INT || row->type == SETTING_LONG;
    return is_number ? set_number(s, row, value, where, faults) : set_text(s, row, value, where, faults);
}

static void format_value(const struct settings *s, const struct setting *row, char *to, size_t capacity)
{
    if (row->type == SETTING_INT) {
        snprintf(to, capacity, "%" PRId32, *(int32_t *)field(s, row));
    } else if (row->type == SETTING_LONG) {
        snprintf(to, capacity, "%" PRId64, *(int64_t *)field(s, row));
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
        fault(faults, "%s: there is no setting %s: it is a topic's, and log.durability is its default", where,
              name);
    else
        fault(faults, "%s: there is no setting %s", where, name);
}

/* One "key=value", in place. `seen`: where each row was set before, or NULL. */
static int take_assignment(struct settings *s, char *text, const char *where, char **seen,
                           struct settings_faults *faults)
{
    char *equals = strchr(text, '=');
    if (!equals) {
        fault(faults, "%s: \"%s\" is not key=value", where, text);
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
        fault(faults, "%s: %s was set before, at %s", where, name, seen[index]);
        return -BROOK_E_CONFIG;
    }
    if (seen && !(seen[index] = strdup(where)))
        return -BROOK_E_NOMEM;
    s->is_given[index] = true;
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
            fault(faults, "%s: the line is longer than %d bytes", where, LINE_BYTES_MAX - 2);
            return -BROOK_E_CONFIG;
        }
        char *text = trim(line);
        if (*text && *text != '#')
            r = worst(r, take_assignment(s, text, where, seen, faults));
    }
    if (ferror(from)) {
        fault(faults, "%s: %s", name, strerror(errno));
        return -BROOK_E_CONFIG;
    }
    return r;
}

static int read_file(struct settings *s, const char *name, struct settings_faults *faults)
{
    char *seen[SETTINGS_MAX] = {0};
    FILE *from = fopen(name, "re");
    if (!from) {
        fault(faults, "%s: %s", name, strerror(errno));
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

/* ---- what does not go together ------------------------------------------------------------------------- */

static bool is_given(const struct settings *s, const char *name)
{
    const struct setting *row = settings_table_find(name, strlen(name));
    return s->is_given[row - settings_table];
}

static void check_required(const struct settings *s, struct settings_faults *faults)
{
    for (size_t i = 0; i < settings_table_count; i++)
        if (settings_table[i].is_required && !s->is_given[i])
            fault(faults, "%s must be set: %s", settings_table[i].name, settings_table[i].description);
}

static void check_sizes(const struct settings *s, struct settings_faults *faults)
{
    if (s->queued_max_bytes < (int64_t)s->socket_request_max_bytes + 4)
        fault(faults,
              "queued.max.bytes=%" PRId64 " has no room for one frame of socket.request.max.bytes=%" PRId32,
              s->queued_max_bytes, s->socket_request_max_bytes);
    if ((int64_t)s->message_max_bytes + 32768 > s->socket_request_max_bytes)
        fault(faults,
              "message.max.bytes=%" PRId32 " does not fit a frame of socket.request.max.bytes=%" PRId32,
              s->message_max_bytes, s->socket_request_max_bytes);
    if (s->message_max_bytes > s->log_segment_bytes)
        fault(faults, "message.max.bytes=%" PRId32 " does not fit a file of log.segment.bytes=%" PRId64,
              s->message_max_bytes, s->log_segment_bytes);
    if (s->min_insync_replicas > s->default_replication_factor)
        fault(faults,
              "min.insync.replicas=%" PRId32 " is more than default.replication.factor=%" PRId32
              ": acks=all could never succeed",
              s->min_insync_replicas, s->default_replication_factor);
}

static void check_pairs(const struct settings *s, struct settings_faults *faults)
{
    if (is_given(s, "log.retention.ms") && is_given(s, "log.retention.hours"))
        fault(faults, "log.retention.ms and log.retention.hours are both set: one of them says how long");
    if (is_given(s, "log.roll.ms") && is_given(s, "log.roll.hours"))
        fault(faults, "log.roll.ms and log.roll.hours are both set: one of them says how long");
}

static void check_list(const char *name, const char *list, struct settings_faults *faults)
{
    size_t count;
    AUTO_FREE char **items = settings_split(list ? list : "", &count);
    if (!items)
        return;
    if (!count)
        fault(faults, "%s is empty", name);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(items[i], items[j]) == 0)
                fault(faults, "%s names %s twice", name, items[i]);
}

const char *settings_strip_scheme(const char *listener)
{
    static const char plain[] = "PLAINTEXT://";
    if (strncasecmp(listener, plain, sizeof plain - 1) == 0)
        return listener + sizeof plain - 1;
    return strstr(listener, "://") ? NULL : listener;
}

static void check_address(const char *name, const char *listener, bool is_advertised,
                          struct settings_faults *faults)
{
    const char *address = settings_strip_scheme(listener);
    const char *colon = address ? strrchr(address, ':') : NULL;
    char *end = NULL;
    if (!address) {
        fault(faults, "%s: \"%s\": this version offers PLAINTEXT only", name, listener);
        return;
    }
    long port = colon ? strtol(colon + 1, &end, 10) : -1;
    if (!colon || end == colon + 1 || *end || port < 0 || port > 65535) {
        fault(faults, "%s: \"%s\" is not host:port", name, listener);
        return;
    }
    if (!is_advertised)
        return;
    size_t host = (size_t)(colon - address);
    if (host == 0 || (host == 7 && strncmp(address, "0.0.0.0", 7) == 0) ||
        (host == 4 && strncmp(address, "[::]", 4) == 0))
        fault(faults, "%s: \"%s\" is not an address that a client could connect to", name, listener);
}

static void check_addresses(const struct settings *s, struct settings_faults *faults)
{
    size_t count;
    check_list("listeners", s->listeners, faults);
    check_list("log.dirs", s->log_dirs, faults);
    AUTO_FREE char **items = settings_split(s->listeners ? s->listeners : "", &count);
    for (size_t i = 0; items && i < count; i++)
        check_address("listeners", items[i], false, faults);
    if (s->advertised_listeners)
        check_address("advertised.listeners", s->advertised_listeners, true, faults);
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
        check_required(s, faults);
        check_sizes(s, faults);
        check_pairs(s, faults);
        check_addresses(s, faults);
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
        char value[4096];
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
        char value[4096] = "";
        if (s->is_given[i] || settings_table[i].default_value)
            format_value(s, &settings_table[i], value, sizeof value);
        visitor(arg, settings_table[i].name, value, !s->is_given[i], settings_table[i].description);
    }
}

void settings_compare(const struct settings *from, const struct settings *to, settings_change *change,
                      void *arg)
{
    for (size_t i = 0; i < settings_table_count; i++) {
        char before[4096], after[4096];
        format_value(from, &settings_table[i], before, sizeof before);
        format_value(to, &settings_table[i], after, sizeof after);
        if (strcmp(before, after) != 0)
            change(arg, settings_table[i].name, before, after, settings_table[i].at_run_time);
    }
}

/* ---- derived ------------------------------------------------------------------------------------------- */

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

int64_t settings_retention_ms(const struct settings *s)
{
    if (is_given(s, "log.retention.ms"))
        return s->log_retention_ms;
    return s->log_retention_hours < 0 ? -1 : (int64_t)s->log_retention_hours * 3600000;
}

int64_t settings_roll_ms(const struct settings *s)
{
    return is_given(s, "log.roll.ms") ? s->log_roll_ms : (int64_t)s->log_roll_hours * 3600000;
}
