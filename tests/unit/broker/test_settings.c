#include "broker/settings.h"
#include "broker/settings_table.h"
#include "proto/base/err.h"
#include "tests/support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOOD "broker.id=1", "zookeeper.connect=localhost:2181"

static int load(struct settings **ret, struct settings_faults *faults, const char *const *overrides,
                size_t count)
{
    *faults = (struct settings_faults){0};
    return settings_load(NULL, overrides, count, ret, faults);
}
#define LOAD(ret, faults, ...) \
    load(ret, faults, (const char *const[]){__VA_ARGS__}, \
         sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* Load GOOD and `extra`, expect one fault that has `text` in it. */
static void expect_fault(const char *extra, const char *text)
{
    struct settings *s;
    struct settings_faults faults;
    ck_assert_int_eq(LOAD(&s, &faults, GOOD, extra), -BROOK_E_CONFIG);
    ck_assert_msg(faults.count == 1, "%s: %zu faults", extra, faults.count);
    ck_assert_msg(strstr(faults.lines[0], text) != NULL, "%s", faults.lines[0]);
    settings_faults_done(&faults);
}

static const char *write_file(const char *text)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/brookd.conf", suite_directory());
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
    return path;
}

START_TEST(defaults_and_two_lines_are_enough)
{
    struct settings *s;
    struct settings_faults faults;
    ck_assert_int_eq(LOAD(&s, &faults, GOOD), 0);
    ck_assert_int_eq(s->broker_id, 1);
    ck_assert_str_eq(s->listeners, "PLAINTEXT://:9092");
    ck_assert_int_eq(s->message_max_bytes, 2097152);
    ck_assert_int_eq(settings_retention_ms(s), 168 * 3600000ll);
    ck_assert_int_eq(settings_roll_ms(s), 168 * 3600000ll);
    ck_assert_ptr_null(s->log_durability);
    ck_assert_ptr_null(s->broker_rack);
    settings_free(s);
}
END_TEST

START_TEST(all_faults_are_listed_at_once)
{
    struct settings *s;
    struct settings_faults faults;
    ck_assert_int_eq(LOAD(&s, &faults, "nonsense", "what.is.this=1", "num.partitions=many", "log.level=loud",
                          "max.connections=0", "broker.id=1"),
                     -BROOK_E_CONFIG);
    ck_assert_uint_eq(faults.count, 6); /* and zookeeper.connect is missing */
    settings_faults_done(&faults);
}
END_TEST

START_TEST(each_kind_of_bad_value_is_refused)
{
    expect_fault("num.partitions=", "not a whole number");
    expect_fault("num.partitions=1x", "not a whole number");
    expect_fault("num.partitions=1.5", "not a whole number");
    expect_fault("num.partitions=0x10", "not a whole number");
    expect_fault("num.partitions=-1", "outside 1 to 20000");
    expect_fault("num.partitions=99999999999999999999", "outside");
    expect_fault("log.format=xml", "none of text|json");
    expect_fault("log.level=", "none of");
    expect_fault("log.level=info|warn", "none of");
    expect_fault("Broker.Id=1", "there is no setting");
    expect_fault("broker.id", "not key=value");
    expect_fault("listeners=TLS://:9093", "PLAINTEXT only");
    expect_fault("listeners=nowhere", "not host:port");
    expect_fault("listeners=:99999", "not host:port");
    expect_fault("listeners=", "listeners is empty");
    expect_fault("listeners=:9092,:9092", "twice");
    expect_fault("log.dirs=/a,/b,/a", "twice");
    expect_fault("advertised.listeners=PLAINTEXT://0.0.0.0:9092", "could connect to");
    expect_fault("advertised.listeners=[::]:9092", "could connect to");
    expect_fault("advertised.listeners=:9092", "could connect to");
}
END_TEST

/* Whatever coordinator_new() would refuse: --check must not call it good. */
START_TEST(a_bad_zookeeper_address_is_refused)
{
    static const struct {
        const char *setting, *text;
    } bad[] = {{"zookeeper.connect=", "zookeeper.connect is empty"},
               {"zookeeper.connect=127.0.0.1:99999,,", "\"127.0.0.1:99999\" is not host:port"},
               {"zookeeper.connect=127.0.0.1:2181,,", "is not host:port"},
               {"zookeeper.connect=127.0.0.1:2181/a//b/", "is not a ZooKeeper path"},
               {"zookeeper.connect=127.0.0.1:2181/a,127.0.0.1:2182/a", "stands once"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct settings *s;
        struct settings_faults faults;
        ck_assert_int_eq(LOAD(&s, &faults, "broker.id=1", bad[i].setting), -BROOK_E_CONFIG);
        ck_assert_msg(faults.count == 1, "%s: %zu faults", bad[i].setting, faults.count);
        ck_assert_ptr_nonnull(strstr(faults.lines[0], "zookeeper.connect"));
        ck_assert_msg(strstr(faults.lines[0], bad[i].text) != NULL, "%s", faults.lines[0]);
        settings_faults_done(&faults);
    }
}
END_TEST

START_TEST(an_empty_zookeeper_address_is_listed_among_other_faults)
{
    struct settings *s;
    struct settings_faults faults = {0};
    const char *path = write_file("broker.id=x\nzookeeper.connect=\nnum.partitions=0\n");
    ck_assert_int_eq(settings_load(path, NULL, 0, &s, &faults), -BROOK_E_CONFIG);
    ck_assert_uint_eq(faults.count, 3);
    ck_assert_ptr_nonnull(strstr(faults.lines[1], "brookd.conf:2: zookeeper.connect is empty"));
    settings_faults_done(&faults);
}
END_TEST

/* Nobody wants a directory called "d # comment". */
START_TEST(a_comment_behind_a_value_is_refused)
{
    expect_fault("log.dirs=/tmp/d # comment", "a comment needs a line of its own");
    expect_fault("log.dirs=/tmp/d\t#", "a comment needs a line of its own");
    expect_fault("log.dirs=# comment", "a comment needs a line of its own");
    expect_fault("num.partitions=5 # comment", "a comment needs a line of its own");
    struct settings *s;
    struct settings_faults faults;
    ck_assert_int_eq(LOAD(&s, &faults, GOOD, "log.dirs=/tmp/d#1,/tmp/e#2#"), 0);
    ck_assert_str_eq(s->log_dirs, "/tmp/d#1,/tmp/e#2#");
    settings_free(s);
}
END_TEST

START_TEST(durability_is_one_of_three_and_named_as_a_default)
{
    expect_fault("durability=fsync", "log.durability is its default");
    expect_fault("log.durability=sometimes", "is none of fsync|replicated|interval");
    expect_fault("log.flush.interval.messages=0", "is outside 1 to");
    struct settings *s;
    struct settings_faults faults;
    ck_assert_int_eq(LOAD(&s, &faults, GOOD, "log.durability="), 0);
    ck_assert_ptr_null(s->log_durability);
    settings_free(s);
}
END_TEST

START_TEST(contradictions_are_refused)
{
    expect_fault("queued.max.bytes=1000000", "no room for one frame");
    expect_fault("message.max.bytes=104857600", "does not fit a frame");
    expect_fault("log.segment.bytes=1000000", "does not fit a file");
    expect_fault("min.insync.replicas=2", "min.insync.replicas=2: more than default.replication.factor=1");
    struct settings *s;
    struct settings_faults faults;
    ck_assert_int_eq(LOAD(&s, &faults, GOOD, "log.retention.ms=1", "log.retention.hours=1", "log.roll.ms=1",
                          "log.roll.hours=1"),
                     -BROOK_E_CONFIG);
    ck_assert_uint_eq(faults.count, 2);
    settings_faults_done(&faults);
}
END_TEST

START_TEST(a_file_is_read_and_overridden)
{
    struct settings *s;
    struct settings_faults faults = {0};
    const char *over[] = {"num.partitions=7"};
    const char *path =
        write_file("# comment\n\n  broker.id = 3 \nzookeeper.connect=a:1,b:2/x=y\nnum.partitions=5\n"
                   "log.retention.ms=-1\nbroker.rack=r 1");
    ck_assert_int_eq(settings_load(path, over, 1, &s, &faults), 0);
    ck_assert_int_eq(s->broker_id, 3);
    ck_assert_str_eq(s->zookeeper_connect, "a:1,b:2/x=y");
    ck_assert_int_eq(s->num_partitions, 7);
    ck_assert_int_eq(settings_retention_ms(s), -1);
    ck_assert_str_eq(s->broker_rack, "r 1");
    settings_free(s);
}
END_TEST

START_TEST(faults_of_a_file_name_their_line)
{
    struct settings *s;
    struct settings_faults faults = {0};
    const char *path = write_file("broker.id=1\nzookeeper.connect=a:1\nbroker.id=2\nx=1\n");
    ck_assert_int_eq(settings_load(path, NULL, 0, &s, &faults), -BROOK_E_CONFIG);
    ck_assert_uint_eq(faults.count, 2);
    ck_assert_ptr_nonnull(strstr(faults.lines[0], "brookd.conf:3: broker.id was set before, at "));
    ck_assert_ptr_nonnull(strstr(faults.lines[1], "brookd.conf:4: there is no setting x"));
    settings_faults_done(&faults);
    ck_assert_int_eq(settings_load("/nowhere/x.conf", NULL, 0, &s, &faults), -BROOK_E_CONFIG);
    ck_assert_ptr_nonnull(strstr(faults.lines[0], "No such file"));
    settings_faults_done(&faults);
}
END_TEST

START_TEST(a_line_without_end_is_refused)
{
    struct settings *s;
    struct settings_faults faults = {0};
    char *text = malloc(20000);
    memset(text, 'a', 19999);
    text[19999] = '\0';
    ck_assert_int_eq(settings_load(write_file(text), NULL, 0, &s, &faults), -BROOK_E_CONFIG);
    ck_assert_ptr_nonnull(strstr(faults.lines[0], "longer than"));
    settings_faults_done(&faults);
    free(text);
}
END_TEST

static char *print(const struct settings *s)
{
    char *text;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    ck_assert_ptr_nonnull(f);
    settings_print(s, f);
    fclose(f);
    return text;
}

START_TEST(what_is_printed_reads_back_the_same)
{
    struct settings *s, *again;
    struct settings_faults faults;
    ck_assert_int_eq(LOAD(&s, &faults, GOOD, "log.dirs=/a,/b", "log.retention.ms=5", "log.format=json"), 0);
    char *text = print(s);
    ck_assert_int_eq(settings_load(write_file(text), NULL, 0, &again, &faults), 0);
    char *text_again = print(again);
    ck_assert_str_eq(text, text_again);
    free(text);
    free(text_again);
    settings_free(s);
    settings_free(again);
}
END_TEST

/* deploy/brookd.conf.example is brookd --print-settings > that file. */
START_TEST(the_example_file_is_what_is_printed)
{
    char path[1024];
    const char *top = getenv("top_srcdir");
    snprintf(path, sizeof path, "%s/deploy/brookd.conf.example", top ? top : ".");
    FILE *f = fopen(path, "r");
    ck_assert_msg(f != NULL, "%s", path);
    char *expected = calloc(1, 1 << 20);
    size_t bytes = fread(expected, 1, (1 << 20) - 1, f);
    fclose(f);
    ck_assert_uint_gt(bytes, 0);
    struct settings *s;
    ck_assert_int_eq(settings_default(&s), 0);
    char *text = print(s);
    ck_assert_str_eq(text, expected);
    settings_free(s);
    free(text);
    free(expected);
}
END_TEST

START_TEST(the_example_file_loads_with_the_required_two)
{
    char path[1024];
    const char *top = getenv("top_srcdir"), *over[] = {GOOD};
    struct settings *s;
    struct settings_faults faults = {0};
    snprintf(path, sizeof path, "%s/deploy/brookd.conf.example", top ? top : ".");
    ck_assert_int_eq(settings_load(path, over, 2, &s, &faults), 0);
    settings_free(s);
}
END_TEST

static void count_change(void *arg, const char *name, const char *from, const char *to, bool at_run_time)
{
    int *counts = arg;
    counts[at_run_time ? 1 : 0]++;
}

START_TEST(changes_say_whether_they_need_a_restart)
{
    struct settings *a, *b;
    struct settings_faults faults;
    int counts[2] = {0};
    ck_assert_int_eq(LOAD(&a, &faults, GOOD), 0);
    ck_assert_int_eq(LOAD(&b, &faults, GOOD, "max.connections=5", "log.level=warn", "num.io.threads=3"), 0);
    settings_compare(a, b, count_change, counts);
    ck_assert_int_eq(counts[0], 1);
    ck_assert_int_eq(counts[1], 2);
    settings_free(a);
    settings_free(b);
}
END_TEST

START_TEST(only_what_may_change_is_taken_over)
{
    struct settings *a, *b;
    struct settings_faults faults;
    ck_assert_int_eq(LOAD(&a, &faults, GOOD), 0);
    ck_assert_int_eq(LOAD(&b, &faults, GOOD, "max.connections=5", "log.level=warn", "num.io.threads=3"), 0);
    ck_assert_int_eq(settings_take_over(a, b), 0);
    ck_assert_int_eq(a->max_connections, 5);
    ck_assert_str_eq(a->log_level, "warn");
    ck_assert_int_eq(a->num_io_threads, 0);
    settings_free(a);
    settings_free(b);
}
END_TEST

START_TEST(every_row_has_a_default_within_its_range_and_a_sentence)
{
    struct settings *s;
    ck_assert_int_eq(settings_default(&s), 0);
    for (size_t i = 0; i < settings_table_count; i++) {
        const struct setting *row = &settings_table[i];
        size_t n = strlen(row->description);
        ck_assert_msg(n > 10 && row->description[n - 1] == '.', "%s", row->name);
        for (size_t j = 0; j < i; j++)
            ck_assert_str_ne(row->name, settings_table[j].name);
        if (row->type == SETTING_INT && row->default_value) {
            ck_assert_int_ge(atoi(row->default_value), row->min);
            ck_assert_int_le(atoi(row->default_value), row->max);
        }
    }
    settings_free(s);
}
END_TEST

SUITE_MAIN("broker/settings", SUITE_TEST(defaults_and_two_lines_are_enough),
           SUITE_TEST(all_faults_are_listed_at_once), SUITE_TEST(each_kind_of_bad_value_is_refused),
           SUITE_TEST(a_bad_zookeeper_address_is_refused),
           SUITE_TEST(an_empty_zookeeper_address_is_listed_among_other_faults),
           SUITE_TEST(a_comment_behind_a_value_is_refused),
           SUITE_TEST(durability_is_one_of_three_and_named_as_a_default), SUITE_TEST(contradictions_are_refused),
           SUITE_TEST(a_file_is_read_and_overridden), SUITE_TEST(faults_of_a_file_name_their_line),
           SUITE_TEST(a_line_without_end_is_refused), SUITE_TEST(what_is_printed_reads_back_the_same),
           SUITE_TEST(the_example_file_is_what_is_printed),
           SUITE_TEST(the_example_file_loads_with_the_required_two),
           SUITE_TEST(changes_say_whether_they_need_a_restart),
           SUITE_TEST(only_what_may_change_is_taken_over),
           SUITE_TEST(every_row_has_a_default_within_its_range_and_a_sentence))
