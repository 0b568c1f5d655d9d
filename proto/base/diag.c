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

/* Bytes of the UTF-8 character at `p`, 0 when there is none (cut, overlong, a surrogate, beyond U+10FFFF). */
static size_t utf8_bytes(const unsigned char *p)
{
    if (p[0] < 0x80)
        return 1;
    size_t bytes = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < bytes; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) ||
        (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return bytes;
}

/* Append `text` as the inside of a JSON string; what does not fit is dropped, what is not UTF-8 replaced. */
static size_t json_escape(char *to, size_t room, const char *text)
{
    size_t n = 0;
    const unsigned char *p = (const unsigned char *)text;
    while (*p && n + 7 < room) {
        size_t bytes = utf8_bytes(p);
        if (*p == '"' || *p == '\\') {
            to[n++] = '\\';
            to[n++] = (char)*p;
        } else if (*p < 0x20 || bytes == 0) {
            n += (size_t)snprintf(to + n, room - n, "\\u%04x", bytes == 0 ? 0xfffd : *p);
        } else {
            memcpy(to + n, p, bytes);
            n += bytes;
        }
        p += bytes == 0 ? 1 : bytes;
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

static void write_stderr(const struct diag *diag, enum diag_level level, const char *subject,
                         const char *message)
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
        int made = snprintf(line, sizeof line, "%-5s %s %s%s%s\n", level_names[level], when, subject,
                            *subject ? " " : "", message);
        n = (size_t)made < sizeof line ? (size_t)made : sizeof line - 1;
        one_line(line);
        line[n - 1] = '\n';
    }
    while (write(STDERR_FILENO, line, n) < 0 && errno == EINTR)
        ;
}

void diag_log(const struct diag *diag, enum diag_level level, const char *subject, const char *format, ...)
{
    if (!diag || level < __atomic_load_n(&diag->level_min, __ATOMIC_RELAXED))
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
