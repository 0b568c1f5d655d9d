#include "client/config.h"
#include "tests/support/suite.h"

#include <brook/config.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static brook_config *fresh(void)
{
    brook_config *config;
    ck_assert_int_eq(brook_config_new(&config), 0);
    return config;
}

static void refuse(brook_config *config, const char *key, const char *value, const char *word)
{
    struct brook_error error;
    ck_assert_int_eq(brook_config_set(config, key, value, &error), -BROOK_E_CONFIG);
    ck_assert_int_eq(error.code, BROOK_E_CONFIG);
    ck_assert_msg(strstr(error.text, word) != NULL, "%s", error.text);
}

START_TEST(a_bad_setting_is_refused_and_named)
{
    brook_config *config = fresh();
    refuse(config, "no.such.key", "1", "no.such.key");
    refuse(config, "linger.ms", "5x", "linger.ms");
    refuse(config, "linger.ms", "", "linger.ms");
    refuse(config, "linger.ms", "-1", "linger.ms");
    refuse(config, "linger.ms", "900001", "900000");
    refuse(config, "linger.ms", "99999999999999999999", "linger.ms");
    refuse(config, "acks", "some", "all|leader|none");
    refuse(config, "acks", "", "acks");
    refuse(config, "acks", "al", "acks");
    refuse(config, "check.crcs", "yes", "check.crcs");
    ck_assert_str_eq(brook_config_get(config, "linger.ms"), "5");
    ck_assert_int_eq(config_int(config, CONFIG_LINGER), 5);
    brook_config_free(config);
}
END_TEST

START_TEST(what_is_set_is_read_back)
{
    brook_config *config = fresh();
    ck_assert_int_eq(brook_config_set(config, "linger.ms", "17", NULL), 0);
    ck_assert_int_eq(brook_config_set(config, "compression", "zstd", NULL), 0);
    ck_assert_int_eq(brook_config_set(config, "check.crcs", "false", NULL), 0);
    ck_assert_int_eq(brook_config_set(config, "group.id", "g", NULL), 0);
    brook_config *copy = brook_config_copy(config);
    brook_config_free(config);
    ck_assert_int_eq(config_int(copy, CONFIG_LINGER), 17);
    ck_assert_int_eq(config_number(copy, CONFIG_COMPRESSION), 4);
    ck_assert(!config_flag(copy, CONFIG_CHECK_CRCS));
    ck_assert(config_has(copy, CONFIG_GROUP_ID));
    ck_assert(!config_has(copy, CONFIG_STATE_DIR));
    ck_assert_str_eq(brook_config_get(copy, "compression"), "zstd");
    ck_assert_str_eq(brook_config_get(copy, "state.dir"), "");
    ck_assert_ptr_null(brook_config_get(copy, "nothing"));
    brook_config_free(copy);
}
END_TEST

static void check_standard(void *arg, const char *key, const char *type, const char *standard,
                           const char *range, const char *description)
{
    int *count = arg;
    brook_config *config = fresh();
    (*count)++;
    ck_assert_msg(brook_config_set(config, key, standard, NULL) == 0, "the default of %s is refused", key);
    ck_assert_msg(strlen(description) > 20 && description[strlen(description) - 1] == '.', "%s", key);
    ck_assert_ptr_nonnull(type);
    ck_assert_ptr_nonnull(range);
    brook_config_free(config);
}

START_TEST(every_default_is_legal_and_described)
{
    int count = 0;
    brook_config_describe(check_standard, &count);
    ck_assert_int_eq(count, CONFIG_COUNT);
}
END_TEST

static int load(brook_config *config, const char *text, struct brook_error *error)
{
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s/brook.conf", suite_directory());
    FILE *file = fopen(name, "w");
    fputs(text, file);
    fclose(file);
    return brook_config_load(config, name, error);
}

START_TEST(a_file_is_read_line_by_line)
{
    brook_config *config = fresh();
    struct brook_error error;
    ck_assert_int_eq(load(config, "# c\n\n linger.ms = 9 \nclient.id=a=b\r\nbatch.size=7", &error), 0);
    ck_assert_int_eq(config_int(config, CONFIG_LINGER), 9);
    ck_assert_str_eq(config_text(config, CONFIG_CLIENT_ID), "a=b");
    ck_assert_int_eq(config_int(config, CONFIG_BATCH_SIZE), 7);
    ck_assert_int_eq(load(config, "linger.ms = 3\nlinger.ms = x\n", &error), -BROOK_E_CONFIG);
    ck_assert_msg(strstr(error.text, ":2: linger.ms") != NULL, "%s", error.text);
    ck_assert_int_eq(load(config, "linger.ms\n", &error), -BROOK_E_CONFIG);
    ck_assert_int_eq(brook_config_load(config, "/nonexistent/brook.conf", &error), -BROOK_E_NOT_FOUND);
    static char longer[5000] = "bootstrap.servers = ";
    memset(longer + 20, 'h', sizeof longer - 21);
    ck_assert_int_eq(load(config, longer, &error), 0);
    ck_assert_uint_eq(strlen(config_text(config, CONFIG_BOOTSTRAP_SERVERS)), sizeof longer - 21);
    brook_config_free(config);
}
END_TEST

static void keep(void *arg, int level, const char *subject, const char *message)
{
    snprintf(arg, 64, "%d %s %s", level, subject, message);
}

START_TEST(log_lines_go_to_the_callback)
{
    brook_config *config = fresh();
    struct diag diag;
    char line[64] = "";
    config_diag(config, &diag);
    diag_log(&diag, DIAG_ERROR, "s", "lost");
    brook_config_set_log(config, keep, line);
    config_diag(config, &diag);
    diag_log(&diag, DIAG_WARN, "s", "n=%d", 4);
    ck_assert_str_eq(line, "2 s n=4");
    brook_config_free(config);
}
END_TEST

SUITE_MAIN("client/config", SUITE_TEST(a_bad_setting_is_refused_and_named),
           SUITE_TEST(what_is_set_is_read_back), SUITE_TEST(every_default_is_legal_and_described),
           SUITE_TEST(a_file_is_read_line_by_line), SUITE_TEST(log_lines_go_to_the_callback))
