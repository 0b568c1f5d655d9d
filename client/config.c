#include "client/config.h"

#include "proto/base/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { TEXT, NUMBER, BYTES, MS, FLAG, CHOICE };

struct setting {
    const char *key;
    enum kind kind;
    const char *standard;
    int64_t least, most;
    const char *choices;
    const char *description;
};

static const struct setting settings[CONFIG_COUNT] = {
#define X(id, key, kind, standard, least, most, choices, description)                                        \
    [CONFIG_##id] = {key, kind, standard, least, most, choices, description},
    CONFIG_KEYS(X)
#undef X
};
static const char *const kind_names[] = {"text", "number", "bytes", "ms", "flag", "choice"};

struct value {
    char *text; /* NULL: the default */
    int64_t number;
};

struct brook_config {
    struct value values[CONFIG_COUNT];
    brook_log_callback *log;
    void *log_arg;
};

static int find(const char *key)
{
    for (int i = 0; i < CONFIG_COUNT; i++)
        if (strcmp(settings[i].key, key) == 0)
            return i;
    return -1;
}

static int parse_number(const struct setting *s, const char *text, int64_t *ret, struct brook_error *error)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0)
        return brook_error_set(error, BROOK_E_CONFIG, "%s: \"%.60s\" is not a whole number", s->key, text);
    if (n < s->least || n > s->most)
        return brook_error_set(error, BROOK_E_CONFIG, "%s: %lld is outside %" PRId64 "..%" PRId64, s->key, n,
                               s->least, s->most);
    *ret = n;
    return 0;
}

static int parse_flag(const struct setting *s, const char *text, int64_t *ret, struct brook_error *error)
{
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
        return brook_error_set(error, BROOK_E_CONFIG, "%s: \"%.60s\" is neither true nor false", s->key,
                               text);
    *ret = text[0] == 't';
    return 0;
}

static int parse_choice(const struct setting *s, const char *text, int64_t *ret, struct brook_error *error)
{
    size_t bytes = strlen(text);
    int64_t place = 0;
    for (const char *p = s->choices; p; p = strchr(p, '|')) {
        p += *p == '|';
        if (bytes > 0 && strncmp(p, text, bytes) == 0 && (p[bytes] == '|' || p[bytes] == '\0')) {
            *ret = place;
            return 0;
        }
        place++;
    }
    return brook_error_set(error, BROOK_E_CONFIG, "%s: \"%.60s\" is none of %s", s->key, text, s->choices);
}

static int parse(const struct setting *s, const char *text, int64_t *ret, struct brook_error *error)
{
    switch (s->kind) {
    case FLAG:
        return parse_flag(s, text, ret, error);
    case CHOICE:
        return parse_choice(s, text, ret, error);
    case TEXT:
        *ret = 0;
        return 0;
    case NUMBER:
    case BYTES:
    case MS:
        return parse_number(s, text, ret, error);
    }
    return -BROOK_E_INVALID;
}

int brook_config_new(brook_config **ret_config)
{
    brook_config *config = calloc(1, sizeof *config);
    if (!config)
        return -BROOK_E_NOMEM;
    for (int i = 0; i < CONFIG_COUNT; i++)
        parse(&settings[i], settings[i].standard, &config->values[i].number, NULL);
    *ret_config = config;
    return 0;
}

brook_config *brook_config_copy(const brook_config *config)
{
    brook_config *copy;
    if (brook_config_new(&copy) < 0)
        return NULL;
    for (int i = 0; i < CONFIG_COUNT; i++) {
        copy->values[i].number = config->values[i].number;
        if (config->values[i].text && !(copy->values[i].text = strdup(config->values[i].text))) {
            brook_config_free(copy);
            return NULL;
        }
    }
    copy->log = config->log;
    copy->log_arg = config->log_arg;
    return copy;
}

void brook_config_free(brook_config *config)
{
    if (!config)
        return;
    for (int i = 0; i < CONFIG_COUNT; i++)
        free(config->values[i].text);
    free(config);
}

int brook_config_set(brook_config *config, const char *key, const char *value, struct brook_error *error)
{
    int i = find(key);
    if (i < 0)
        return brook_error_set(error, BROOK_E_CONFIG, "\"%.80s\" is not a setting", key);
    int64_t number;
    int r = parse(&settings[i], value, &number, error);
    if (r < 0)
        return r;
    char *text = strdup(value);
    if (!text)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    free(config->values[i].text);
    config->values[i].text = text;
    config->values[i].number = number;
    return 0;
}

const char *brook_config_get(const brook_config *config, const char *key)
{
    int i = find(key);
    return i < 0 ? NULL : config_text(config, (enum config_id)i);
}

/* The text without blanks at both ends, in place. */
static char *trim(char *text)
{
    static const char blanks[] = " \t\r\n";
    text += strspn(text, blanks);
    for (size_t n = strlen(text); n > 0 && strchr(blanks, text[n - 1]); n--)
        text[n - 1] = '\0';
    return text;
}

static int load_line(brook_config *config, char *line, const char *file, int number,
                     struct brook_error *error)
{
    line = trim(line);
    if (*line == '\0' || *line == '#')
        return 0;
    char *equals = strchr(line, '=');
    if (!equals)
        return brook_error_set(error, BROOK_E_CONFIG, "%s:%d: not \"key = value\"", file, number);
    *equals = '\0';
    struct brook_error why;
    int r = brook_config_set(config, trim(line), trim(equals + 1), &why);
    return r < 0 ? brook_error_set(error, -r, "%.80s:%d: %.150s", file, number, why.text) : 0;
}

int brook_config_load(brook_config *config, const char *file, struct brook_error *error)
{
    FILE *stream = fopen(file, "re");
    if (!stream)
        return brook_error_set(error, errno == ENOENT ? BROOK_E_NOT_FOUND : BROOK_E_IO, "%s: %s", file,
                               strerror(errno));
    AUTO_FREE char *line = NULL;
    size_t room = 0;
    int r = 0;
    for (int number = 1; r == 0 && getline(&line, &room, stream) >= 0; number++)
        r = load_line(config, line, file, number, error);
    if (r == 0 && ferror(stream))
        r = brook_error_set(error, BROOK_E_IO, "%s: %s", file, strerror(errno));
    fclose(stream);
    return r;
}

void brook_config_describe(brook_config_visitor *visitor, void *arg)
{
    for (int i = 0; i < CONFIG_COUNT; i++) {
        const struct setting *s = &settings[i];
        char range[64] = "";
        if (s->kind == NUMBER || s->kind == BYTES || s->kind == MS)
            snprintf(range, sizeof range, "%" PRId64 "..%" PRId64, s->least, s->most);
        const char *shown = s->kind == CHOICE ? s->choices : s->kind == FLAG ? "true|false" : range;
        visitor(arg, s->key, kind_names[s->kind], s->standard, shown, s->description);
    }
}

void brook_config_set_log(brook_config *config, brook_log_callback *callback, void *arg)
{
    config->log = callback;
    config->log_arg = arg;
}

const char *config_text(const brook_config *config, enum config_id id)
{
    const char *text = config->values[id].text;
    return text ? text : settings[id].standard;
}

int64_t config_number(const brook_config *config, enum config_id id)
{
    return config->values[id].number;
}

int config_int(const brook_config *config, enum config_id id)
{
    int64_t n = config->values[id].number;
    return n > INT_MAX ? INT_MAX : (int)n;
}

bool config_flag(const brook_config *config, enum config_id id)
{
    return config->values[id].number != 0;
}

bool config_is_set(const brook_config *config, enum config_id id)
{
    return config->values[id].text != NULL;
}

bool config_has(const brook_config *config, enum config_id id)
{
    return config_text(config, id)[0] != '\0';
}

static void to_callback(void *arg, enum diag_level level, const char *subject, const char *message)
{
    const brook_config *config = arg;
    if (config->log)
        config->log(config->log_arg, (int)level, subject, message);
}

void config_diag(const brook_config *config, struct diag *diag)
{
    *diag = (struct diag){.level_min = config->log ? DIAG_DEBUG : DIAG_ERROR,
                          .sink = to_callback,
                          .sink_arg = (void *)(uintptr_t)config};
}
