#include "proto/base/diag.h"

#include "proto/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {"debug", "info", "warn", "error"};

const char *diag_level_name(enum diag_level level)
{
    return level_names[level];
}

int diag_level_parse(const char *text, enum diag_level *ret_level)
{
    for (unsigned i = 0; i < sizeof level_names / sizeof level_names[0]; i++)
        if (strcmp(text, level_names[i]) == 0) {
            *ret_level = (enum diag_level)i;
            return 0;
        }
    return -BROOK_E_INVALID;
}

/* Append `text` as the inside of a JSON string; what does not fit is dropped. */
static size_t json_escape(char *to, size_t room, const char *text)
{
    size_t n = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p && n + 7 < room; p++) {
        if (*p == '"' || *p == '\\') {
            to[n++] = '\\';
            to[n++] = (char)*p;
        } else if (*p < 0x20) {
            n += (size_t)snprintf(to + n, room - n, "\\u%04x", *p);
        } else {
            to[n++] = (char)*p;
        }
    }
    to[n] = '\0';
    return n;
}

static void one_line(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = ' ';
}

static void write_stderr(const struct diag *diag, enum diag_level level, const char *subject, char *message)
{
    char line[DIAG_LINE_MAX];
    char when[40];
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    size_t w = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(when + w, sizeof when - w, ".%03ldZ", now.tv_nsec / 1000000);

    size_t n;
    if (diag->json) {
        n = (size_t)snprintf(line, sizeof line, "{\"level\":\"%s\",\"time\":\"%s\",\"subject\":\"",
                             level_names[level], when);
        n += json_escape(line + n, 512, subject);
        n += (size_t)snprintf(line + n, sizeof line - n, "\",\"message\":\"");
        n += json_escape(line + n, sizeof line - n - 4, message);
        n += (size_t)snprintf(line + n, sizeof line - n, "\"}\n");
    } else {
        one_line(message);
        int made = snprintf(line, sizeof line, "%-5s %s %s%s%s\n", level_names[level], when, subject,
                            *subject ? " " : "", message);
        n = (size_t)made < sizeof line ? (size_t)made : sizeof line - 1;
        line[n - 1] = '\n';
    }
    while (write(STDERR_FILENO, line, n) < 0 && errno == EINTR)
        ;
}

void diag_log(const struct diag *diag, enum diag_level level, const char *subject, const char *format, ...)
{
    if (!diag || level < diag->level_min)
        return;
    int saved = errno;
    char message[DIAG_LINE_MAX - 256];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (diag->sink)
        diag->sink(diag->sink_arg, level, subject, message);
    else
        write_stderr(diag, level, subject, message);
    errno = saved;
}
