#include "coordination/topic_pattern.h"

#include "proto/base/err.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Steps and memory of one match. Topic names are short: an expression that needs more is a mistake. */
#define MATCH_STEPS_MAX 100000
#define MATCH_HEAP_KIB_MAX 1024
/* Expressions kept compiled: a group rarely has more than one. */
#define COMPILED_MAX 16

struct compiled {
    char *text;
    pcre2_code *code; /* NULL: no expression */
};

struct topic_patterns {
    pcre2_match_context *context;
    pcre2_match_data *data;
    struct compiled compiled[COMPILED_MAX];
    unsigned next; /* to be replaced */
};

static pcre2_code *compile(const char *pattern, int *ret_code, size_t *ret_position)
{
    *ret_position = 0;
    return pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                         PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_NEVER_BACKSLASH_C | PCRE2_NEVER_UTF,
                         ret_code, ret_position, NULL);
}

int topic_pattern_check(const char *pattern, struct brook_error *error)
{
    int code;
    size_t position;
    if (strlen(pattern) > TOPIC_PATTERN_BYTES_MAX)
        return brook_error_set(error, BROOK_E_INVALID, "the expression is longer than %d bytes",
                               TOPIC_PATTERN_BYTES_MAX);
    pcre2_code *compiled = compile(pattern, &code, &position);
    if (!compiled) {
        PCRE2_UCHAR text[120] = "";
        pcre2_get_error_message(code, text, sizeof text);
        return brook_error_set(error, BROOK_E_INVALID, "\"%.60s\": %s, at character %zu", pattern,
                               (const char *)text, position + 1);
    }
    pcre2_code_free(compiled);
    return 0;
}

struct topic_patterns *topic_patterns_new(void)
{
    struct topic_patterns *patterns = calloc(1, sizeof *patterns);
    if (!patterns)
        return NULL;
    patterns->context = pcre2_match_context_create(NULL);
    patterns->data = pcre2_match_data_create(1, NULL);
    if (!patterns->context || !patterns->data) {
        topic_patterns_free(patterns);
        return NULL;
    }
    pcre2_set_match_limit(patterns->context, MATCH_STEPS_MAX);
    pcre2_set_heap_limit(patterns->context, MATCH_HEAP_KIB_MAX);
    return patterns;
}

static void compiled_done(struct compiled *compiled)
{
    free(compiled->text);
    pcre2_code_free(compiled->code);
    *compiled = (struct compiled){0};
}

void topic_patterns_free(struct topic_patterns *patterns)
{
    if (!patterns)
        return;
    for (unsigned i = 0; i < COMPILED_MAX; i++)
        compiled_done(&patterns->compiled[i]);
    pcre2_match_context_free(patterns->context);
    pcre2_match_data_free(patterns->data);
    free(patterns);
}

static const pcre2_code *find(struct topic_patterns *patterns, const char *pattern)
{
    for (unsigned i = 0; i < COMPILED_MAX; i++)
        if (patterns->compiled[i].text && strcmp(patterns->compiled[i].text, pattern) == 0)
            return patterns->compiled[i].code;
    char *text = strdup(pattern);
    if (!text)
        return NULL;
    int code;
    size_t position;
    struct compiled *slot = &patterns->compiled[patterns->next];
    patterns->next = (patterns->next + 1) % COMPILED_MAX;
    compiled_done(slot);
    *slot = (struct compiled){text, compile(pattern, &code, &position)};
    return slot->code;
}

bool topic_patterns_match(struct topic_patterns *patterns, const char *pattern, const char *topic)
{
    const pcre2_code *code = find(patterns, pattern);
    if (!code)
        return false;
    return pcre2_match(code, (PCRE2_SPTR)topic, strlen(topic), 0, 0, patterns->data,
                       patterns->context) >= 0;
}
