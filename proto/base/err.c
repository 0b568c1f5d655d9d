#include "proto/base/err.h"

#include <limits.h>
#include <stdio.h>

struct entry {
    int code;
    enum brook_advice advice;
    const char *name;
    const char *text;
};

static const struct entry entries[] = {
#define X(number, name, advice, text) {number, BROOK_ADVICE_##advice, #name, text},
    BROOK_ERRORS(X)
#undef X
};

/* Without its sign. INT_MIN, which a peer may send, has no positive twin. */
static int positive(int code)
{
    if (code == INT_MIN)
        return INT_MAX;
    return code < 0 ? -code : code;
}

static const struct entry *find(int code)
{
    int wanted = positive(code);
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
        if (entries[i].code == wanted)
            return &entries[i];
    return NULL;
}

const char *brook_error_name(int code)
{
    const struct entry *e = find(code);
    return e ? e->name : "UNKNOWN_ERROR";
}

const char *brook_error_text(int code)
{
    const struct entry *e = find(code);
    return e ? e->text : "an error that this version does not know";
}

enum brook_advice brook_error_advice(int code)
{
    const struct entry *e = find(code);
    if (e)
        return e->advice;
    return positive(code) >= BROOK_E_SERVER_ERROR ? BROOK_ADVICE_RETRY : BROOK_ADVICE_FATAL;
}

int brook_error_setv(struct brook_error *error, int code, const char *format, va_list args)
{
    if (error) {
        error->code = positive(code);
        vsnprintf(error->text, sizeof error->text, format, args);
    }
    return -positive(code);
}

int brook_error_set(struct brook_error *error, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int r = brook_error_setv(error, code, format, args);
    va_end(args);
    return r;
}
