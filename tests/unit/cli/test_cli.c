#include "client/cli/cli.h"
#include "client/cli/format.h"
#include "client/cli/histogram.h"
#include "tests/support/suite.h"

#include <stdlib.h>
#include <string.h>

START_TEST(times_are_read_in_every_form_and_nothing_else_is)
{
    int64_t ms = -1;
    const int64_t now = 1700000000000;
    ck_assert_int_eq(cli_parse_time("-2h", now, &ms), 0);
    ck_assert_int_eq(ms, now - 7200000);
    ck_assert_int_eq(cli_parse_time("-1.5m", now, &ms), 0);
    ck_assert_int_eq(ms, now - 90000);
    ck_assert_int_eq(cli_parse_time("@1700000000", now, &ms), 0);
    ck_assert_int_eq(ms, now);
    ck_assert_int_eq(cli_parse_time("2023-11-14T22:13:20Z", now, &ms), 0);
    ck_assert_int_eq(ms, now);
    ck_assert_int_eq(cli_parse_time("2023-11-14T22:13Z", now, &ms), 0);
    ck_assert_int_eq(ms, now - 20000);
    ck_assert_int_eq(cli_parse_time("@1700000000.05", now, &ms), 0);
    ck_assert_int_eq(ms, now + 50);
    ck_assert_int_eq(cli_parse_time("2023-11-14T22:13:20.123Z", now, &ms), 0);
    ck_assert_int_eq(ms, now + 123);
    static const char *const bad[] = {"", "yesterday", "-2", "-2x", "-h", "-2hh", "@", "@-1", "@12x",
                                      "2023-13-01", "2023-11-14T22:13:20ZZ", "2023-11-14T22:13:20.Z", "@1.", "@1.1234", "@.5",
                                      "2023-11-14T22:13.5Z", "-99999999999d"};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(cli_parse_time(bad[i], now, &ms) == -BROOK_E_INVALID, "'%s' was taken", bad[i]);
}
END_TEST

static char *printed(const char *format, const struct brook_message *m, size_t *ret_bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, ret_bytes);
    ck_assert_ptr_nonnull(out);
    format_print(format, "orders", 3, m, out);
    fclose(out);
    return text;
}

START_TEST(formats_print_bytes_unchanged)
{
    struct brook_message m = {.offset = 42, .timestamp = 7, .key = "k", .key_bytes = 1, .value = "a\0b", .value_bytes = 3};
    size_t bytes;
    char *text = printed("%t/%p@%o %T %k=%v%%\\n", &m, &bytes);
    static const char expected[] = "orders/3@42 7 k=a\0b%\n";
    ck_assert_uint_eq(bytes, sizeof expected - 1);
    ck_assert_mem_eq(text, expected, bytes);
    free(text);
}
END_TEST

START_TEST(formats_with_unknown_directives_are_refused)
{
    struct brook_error error;
    ck_assert_int_eq(format_check("%t %p %o %T %k %v %h %% \\n\\t\\\\\\0", &error), 0);
    ck_assert_int_eq(format_check("%x", &error), -BROOK_E_INVALID);
    ck_assert_ptr_nonnull(strstr(error.text, "%x"));
    ck_assert_int_eq(format_check("100%", &error), -BROOK_E_INVALID);
    ck_assert_int_eq(format_check("\\q", &error), -BROOK_E_INVALID);
    ck_assert_int_eq(format_check("\\", &error), -BROOK_E_INVALID);
}
END_TEST

START_TEST(json_carries_binary_values_as_base64)
{
    struct brook_message m = {.value = "\xff\x00\x01", .value_bytes = 3, .key = "caf\xc3\xa9", .key_bytes = 5};
    json_t *object = format_json("t", 0, &m);
    ck_assert_str_eq(json_string_value(json_object_get(object, "value_base64")), "/wAB");
    ck_assert_str_eq(json_string_value(json_object_get(object, "key")), "caf\xc3\xa9");
    json_decref(object);
    m = (struct brook_message){.value = NULL};
    object = format_json("t", 0, &m);
    ck_assert(json_is_null(json_object_get(object, "value")));
    json_decref(object);
}
END_TEST

START_TEST(percentiles_are_within_two_percent)
{
    struct histogram *h = calloc(1, sizeof *h);
    ck_assert_ptr_nonnull(h);
    for (int64_t i = 1; i <= 1000000; i++)
        histogram_add(h, i);
    static const double fractions[] = {0.01, 0.5, 0.9, 0.99, 0.999};
    for (unsigned i = 0; i < sizeof fractions / sizeof fractions[0]; i++) {
        double expected = fractions[i] * 1000000;
        double got = (double)histogram_percentile(h, fractions[i]);
        ck_assert_msg(got > expected * 0.98 && got < expected * 1.02, "p%g: %g", fractions[i], got);
    }
    ck_assert_int_eq(histogram_percentile(h, 1.0), 1000000);
    ck_assert_int_eq(h->max, 1000000);
    histogram_add(h, INT64_MAX);
    histogram_add(h, -5);
    ck_assert_int_eq(h->max, INT64_MAX);
    free(h);
}
END_TEST

START_TEST(every_command_documents_itself)
{
    for (int i = 0; cli_commands[i]; i++) {
        const struct cli_command *c = cli_commands[i];
        ck_assert_ptr_nonnull(c->summary);
        ck_assert_ptr_nonnull(c->description);
        ck_assert_ptr_nonnull(c->arguments);
        ck_assert_ptr_nonnull(c->run);
        for (const struct cli_option *o = c->options; o && o->name; o++)
            for (const struct cli_option *g = cli_global_options; g->name; g++) {
                ck_assert_str_ne(o->name, g->name);
                ck_assert_msg(!o->letter || o->letter != g->letter, "-%c of %s twice", o->letter, c->name);
            }
    }
}
END_TEST

SUITE_MAIN("cli", SUITE_TEST(times_are_read_in_every_form_and_nothing_else_is), SUITE_TEST(formats_print_bytes_unchanged),
           SUITE_TEST(formats_with_unknown_directives_are_refused), SUITE_TEST(json_carries_binary_values_as_base64),
           SUITE_TEST(percentiles_are_within_two_percent), SUITE_TEST(every_command_documents_itself))
