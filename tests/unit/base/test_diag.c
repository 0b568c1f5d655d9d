#include "tests/support/suite.h"

#include "proto/base/diag.h"
#include "proto/base/err.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What the tests log goes to a file in place of stderr; `lines` is what it holds afterwards. */
static char lines[1 << 20];
static int real_stderr;
static FILE *capture;

static void capture_begin(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/stderr", suite_directory());
    capture = fopen(path, "w+");
    ck_assert_ptr_nonnull(capture);
    real_stderr = dup(STDERR_FILENO);
    dup2(fileno(capture), STDERR_FILENO);
}

static size_t capture_end(void)
{
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    rewind(capture);
    size_t n = fread(lines, 1, sizeof lines - 1, capture);
    lines[n] = '\0';
    fclose(capture);
    return n;
}

static void log_one(bool json, const char *subject, const char *message)
{
    const struct diag diag = {.level_min = DIAG_DEBUG, .json = json};
    capture_begin();
    diag_log(&diag, DIAG_WARN, subject, "%s", message);
    size_t n = capture_end();
    ck_assert_uint_gt(n, 0);
    ck_assert_uint_le(n, DIAG_LINE_MAX);
    ck_assert_ptr_eq(strchr(lines, '\n'), lines + n - 1);
}

/* The message of the one line, as a JSON parser reads it. */
static void assert_json(const char *subject, const char *message, const char *wanted)
{
    json_error_t error;
    log_one(true, subject, message);
    json_t *line = json_loads(lines, 0, &error);
    ck_assert_msg(line != NULL, "%s: %s", error.text, lines);
    ck_assert_str_eq(json_string_value(json_object_get(line, "level")), "warn");
    ck_assert_str_eq(json_string_value(json_object_get(line, "subject")), subject);
    ck_assert_uint_eq(strlen(json_string_value(json_object_get(line, "time"))),
                      strlen("2024-01-01T00:00:00.000Z"));
    if (wanted)
        ck_assert_str_eq(json_string_value(json_object_get(line, "message")), wanted);
    json_decref(line);
}

START_TEST(text_line_has_level_time_subject_and_message)
{
    int year, month, day, hour, minute, second, ms, end = 0;
    log_one(false, "partition=orders/3", "now it leads");
    int n = sscanf(lines, "warn  %d-%d-%dT%d:%d:%d.%dZ partition=orders/3 now it leads%n", &year, &month,
                   &day, &hour, &minute, &second, &ms, &end);
    ck_assert_int_eq(n, 7);
    ck_assert_int_eq(lines[end], '\n');
    log_one(false, "", "alone");
    ck_assert_ptr_nonnull(strstr(lines, "Z alone\n"));
}
END_TEST

START_TEST(json_says_what_was_said)
{
    assert_json("topic=x", "plain", "plain");
    assert_json("", "", "");
    assert_json("a \"quoted\" \\ thing", "\"\\/\b\f\n\r\t\x01\x1f\x7f", "\"\\/\b\f\n\r\t\x01\x1f\x7f");
    assert_json("", "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x8c\x8a",
                "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x8c\x8a");
}
END_TEST

START_TEST(json_stays_json_when_the_text_is_not_utf8)
{
    assert_json("",
                "a\xff"
                "b",
                "a\xef\xbf\xbd"
                "b");
    assert_json("", "cut \xe2\x82", NULL);
    assert_json("", "overlong \xc0\x80 \xe0\x80\x80 \xf0\x80\x80\x80", NULL);
    assert_json("", "surrogate \xed\xa0\x80, beyond \xf4\x90\x80\x80 \xf8\x88\x80\x80\x80", NULL);
    for (int c = 1; c < 256; c++) {
        char message[] = {'<', (char)c, '>', '\0'};
        assert_json("", message, NULL);
    }
}
END_TEST

START_TEST(long_messages_are_cut_and_stay_one_line)
{
    static char message[3 * DIAG_LINE_MAX];
    static const char *const units[] = {"x", "\"", "\n", "\xc3\xbc", "\xff", "\xf0\x9f\x8c\x8a"};
    for (unsigned u = 0; u < 6; u++) {
        size_t step = strlen(units[u]);
        for (size_t i = 0; i + step < sizeof message; i += step)
            memcpy(message + i, units[u], step);
        for (size_t n = 1500; n < sizeof message; n += 97) {
            char saved = message[n];
            message[n] = '\0';
            log_one(false, "s", message);
            assert_json("s", message, NULL);
            message[n] = saved;
        }
    }
}
END_TEST

START_TEST(long_subjects_leave_room_for_the_message)
{
    static char subject[4000];
    json_error_t error;
    memset(subject, '"', sizeof subject - 1);
    log_one(true, subject, "heard");
    json_t *line = json_loads(lines, 0, &error);
    ck_assert_msg(line != NULL, "%s: %s", error.text, lines);
    ck_assert_str_eq(json_string_value(json_object_get(line, "message")), "heard");
    json_decref(line);
    log_one(false, subject, "cut off");
}
END_TEST

START_TEST(line_breaks_from_outside_make_no_lines)
{
    log_one(false, "client=evil\nerror 2024", "first\nerror second\r\x1b[2J");
    ck_assert_ptr_null(strchr(lines, '\r'));
    ck_assert_ptr_null(strchr(lines, '\x1b'));
    ck_assert_ptr_nonnull(strstr(lines, "client=evil error 2024 first error second  [2J\n"));
}
END_TEST

START_TEST(levels_below_the_least_are_silent)
{
    capture_begin();
    for (int least = DIAG_DEBUG; least <= DIAG_ERROR; least++)
        for (int level = DIAG_DEBUG; level <= DIAG_ERROR; level++) {
            const struct diag diag = {.level_min = (enum diag_level)least};
            diag_log(&diag, (enum diag_level)level, "", "least %d level %d", least, level);
        }
    diag_log(NULL, DIAG_ERROR, "", "to nobody");
    capture_end();
    for (int least = 0; least < 4; least++)
        for (int level = 0; level < 4; level++) {
            char text[40];
            snprintf(text, sizeof text, "least %d level %d\n", least, level);
            ck_assert_int_eq(strstr(lines, text) != NULL, level >= least);
        }
    ck_assert_ptr_null(strstr(lines, "nobody"));
}
END_TEST

static void remember(void *arg, enum diag_level level, const char *subject, const char *message)
{
    snprintf(arg, 100, "%d|%s|%s", (int)level, subject, message);
}

START_TEST(sink_takes_the_place_of_stderr)
{
    char heard[100] = "";
    const struct diag diag = {.level_min = DIAG_INFO, .json = true, .sink = remember, .sink_arg = heard};
    capture_begin();
    diag_log(&diag, DIAG_INFO, "s", "m%d", 1);
    ck_assert_uint_eq(capture_end(), 0);
    ck_assert_str_eq(heard, "1|s|m1");
}
END_TEST

START_TEST(logging_leaves_errno_alone)
{
    const struct diag diag = {.level_min = DIAG_INFO};
    capture_begin();
    close(STDERR_FILENO);
    errno = ENOSPC;
    diag_log(&diag, DIAG_ERROR, "", "to nowhere");
    int after = errno;
    capture_end();
    ck_assert_int_eq(after, ENOSPC);
}
END_TEST

START_TEST(level_names_are_read_back)
{
    enum diag_level level = DIAG_WARN;
    for (int i = DIAG_DEBUG; i <= DIAG_ERROR; i++) {
        ck_assert_int_eq(diag_level_parse(diag_level_name((enum diag_level)i), &level), 0);
        ck_assert_int_eq((int)level, i);
    }
    ck_assert_int_eq(diag_level_parse("loud", &level), -BROOK_E_INVALID);
    ck_assert_int_eq(diag_level_parse("", &level), -BROOK_E_INVALID);
    ck_assert_int_eq((int)level, DIAG_ERROR);
}
END_TEST

static void *log_many(void *arg)
{
    const struct diag diag = {.level_min = DIAG_INFO};
    for (int i = 0; i < 500; i++)
        diag_log(&diag, DIAG_INFO, arg, "line %d of a few hundred that may not mix", i);
    return NULL;
}

START_TEST(lines_of_threads_do_not_mix)
{
    pthread_t threads[4];
    static char names[4][16];
    capture_begin();
    for (int i = 0; i < 4; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        pthread_create(&threads[i], NULL, log_many, names[i]);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    capture_end();
    int count = 0;
    for (char *line = strtok(lines, "\n"); line; line = strtok(NULL, "\n"), count++) {
        ck_assert_int_eq(strncmp(line, "info  ", 6), 0);
        ck_assert_str_eq(line + strlen(line) - 7, "not mix");
    }
    ck_assert_int_eq(count, 2000);
}
END_TEST

SUITE_MAIN("base/diag", SUITE_TEST(text_line_has_level_time_subject_and_message),
           SUITE_TEST(json_says_what_was_said), SUITE_TEST(json_stays_json_when_the_text_is_not_utf8),
           SUITE_TEST(long_messages_are_cut_and_stay_one_line),
           SUITE_TEST(long_subjects_leave_room_for_the_message),
           SUITE_TEST(line_breaks_from_outside_make_no_lines), SUITE_TEST(levels_below_the_least_are_silent),
           SUITE_TEST(sink_takes_the_place_of_stderr), SUITE_TEST(logging_leaves_errno_alone),
           SUITE_TEST(level_names_are_read_back), SUITE_TEST(lines_of_threads_do_not_mix))
