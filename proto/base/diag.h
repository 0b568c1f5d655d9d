/* Diagnostics: one line per event, `level time subject message`, or the same as a JSON object.
 *
 * A `diag` is owned by the program (or by a library handle) and handed down to the layers that decide what
 * happens next; leaves return errors instead of logging. Lines are written whole with one write(2), so any
 * thread may log. A line is at most DIAG_LINE_MAX bytes and never holds payload or secrets.
 */
#ifndef BROOK_BASE_DIAG_H
#define BROOK_BASE_DIAG_H

#include <stdbool.h>

#define DIAG_LINE_MAX 2048

enum diag_level { DIAG_DEBUG, DIAG_INFO, DIAG_WARN, DIAG_ERROR };

/* Receives a finished message instead of stderr (a library handle passes it to its application). */
typedef void diag_sink(void *arg, enum diag_level level, const char *subject, const char *message);

struct diag {
    enum diag_level level_min; /* may be changed while others log, by an atomic store */
    bool json;
    diag_sink *sink; /* NULL: stderr */
    void *sink_arg;
};

/* `subject` names the thing ("partition=orders/3 epoch=7"); it may be "". `diag` may be NULL: nothing. */
void diag_log(const struct diag *diag, enum diag_level level, const char *subject, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* "debug", "info", "warn" or "error" to a level. Returns 0 or -BROOK_E_INVALID. */
int diag_level_parse(const char *text, enum diag_level *ret_level);
const char *diag_level_name(enum diag_level level);
#endif
