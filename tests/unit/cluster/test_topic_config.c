#include "broker/cluster/topic_config.h"

#include "broker/cluster/config_change.h"
#include "coordination/znodes.h"
#include "tests/support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct topic_config defaults(void)
{
    struct topic_config config = {.message_bytes_max = 1 << 20, .min_insync_replicas = 1};
    log_settings_default(&config.log);
    return config;
}

static int apply(const char *key, const char *value, struct topic_config *ret, struct brook_error *error)
{
    struct topic_config base = defaults();
    struct znode_config_entry entry = {(char *)(uintptr_t)key, (char *)(uintptr_t)value};
    struct znode_config entries = {&entry, 1};
    return topic_config_apply(&base, &entries, ret, error);
}

static const struct {
    const char *key;
    const char *value;
    bool is_legal;
} cases[] = {
    {"retention.ms", "1000", true},
    {"retention.ms", "-1", true},
    {"retention.ms", "-2", false},
    {"retention.ms", "", false},
    {"retention.ms", " 5", false},
    {"retention.ms", "+5", false},
    {"retention.ms", "5 ", false},
    {"retention.ms", "5ms", false},
    {"retention.ms", "1e3", false},
    {"retention.ms", "-", false},
    {"retention.ms", "9223372036854775807", true},
    {"retention.ms", "9223372036854775808", false},
    {"retention.bytes", "-1", true},
    {"segment.bytes", "1023", false},
    {"segment.bytes", "1024", true},
    {"segment.bytes", "2147483647", true},
    {"segment.bytes", "2147483648", false},
    {"segment.ms", "0", false},
    {"segment.ms", "1", true},
    {"segment.index.bytes", "64", true},
    {"index.interval.bytes", "0", true},
    {"index.interval.bytes", "-1", false},
    {"file.delete.delay.ms", "0", true},
    {"max.message.bytes", "63", false},
    {"max.message.bytes", "104857600", true},
    {"max.message.bytes", "104857601", false},
    {"min.insync.replicas", "0", false},
    {"min.insync.replicas", "1", true},
    {"min.insync.replicas", "33", false},
    {"message.timestamp.before.max.ms", "0", true},
    {"message.timestamp.before.max.ms", "-1", false},
    {"message.timestamp.after.max.ms", "9223372036854775807", true},
    {"message.timestamp.after.max.ms", "-1", false},
    {"message.timestamp.type", "LogAppendTime", true},
    {"message.timestamp.type", "CreateTime", true},
    {"message.timestamp.type", "logappendtime", false},
    {"durability", "fsync", true},
    {"durability", "replicated", true},
    {"durability", "interval", true},
    {"durability", "0", false},
    {"durability", "", false},
    {"durability", "fsync ", false},
    {"flush.messages", "0", false},
    {"flush.messages", "1", true},
    {"flush.ms", "-1", false},
    {"flush.ms", "0", true},
    {"cleanup.policy", "delete", true},
    {"cleanup.policy", "compact", true},
    {"cleanup.policy", "compact,delete", true},
    {"cleanup.policy", "delete,compact", true},
    {"cleanup.policy", "compact, delete", false},
    {"cleanup.policy", "1", false},
    {"min.cleanable.dirty.ratio", "0", true},
    {"min.cleanable.dirty.ratio", "0.5", true},
    {"min.cleanable.dirty.ratio", "1.0", true},
    {"min.cleanable.dirty.ratio", "0.000001", true},
    {"min.cleanable.dirty.ratio", "0.0000001", false},
    {"min.cleanable.dirty.ratio", "1.1", false},
    {"min.cleanable.dirty.ratio", "-0.1", false},
    {"min.cleanable.dirty.ratio", "0.", false},
    {"min.cleanable.dirty.ratio", ".5", false},
    {"min.cleanable.dirty.ratio", "half", false},
    {"delete.retention.ms", "-1", false},
    {"max.compaction.lag.ms", "0", false},
    {"Retention.ms", "1", false},
    {"retention", "1", false},
    {"", "1", false},
};

START_TEST(each_value_is_taken_or_refused_by_name)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct topic_config config;
        memset(&config, 0x5a, sizeof config);
        struct topic_config before = config;
        struct brook_error error = {0};
        int err = apply(cases[i].key, cases[i].value, &config, &error);
        ck_assert_msg(err == (cases[i].is_legal ? 0 : -BROOK_E_INVALID_CONFIG), "%s=%s: %d", cases[i].key,
                      cases[i].value, err);
        if (cases[i].is_legal)
            continue;
        ck_assert_int_eq(memcmp(&config, &before, sizeof config), 0);
        ck_assert_ptr_nonnull(strstr(error.text, cases[i].key));
    }
}
END_TEST

struct collected {
    char text[32][128];
    size_t count;
};

static void collect(void *arg, const char *key, const char *value, const char *description)
{
    struct collected *c = arg;
    ck_assert_uint_gt(strlen(description), 10);
    snprintf(c->text[c->count++], sizeof c->text[0], "%s=%s", key, value);
}

static bool has(const struct collected *c, const char *text)
{
    for (size_t i = 0; i < c->count; i++)
        if (!strcmp(c->text[i], text))
            return true;
    return false;
}

START_TEST(what_is_set_is_what_is_shown_and_nothing_else_moves)
{
    struct topic_config base = defaults();
    struct collected before = {.count = 0};
    topic_config_visit(&base, collect, &before);
    ck_assert_uint_eq(before.count, 21);
    for (size_t i = 0; i < before.count; i++) {
        char key[128], line[160];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(before.text[i], "="), before.text[i]);
        struct topic_config config;
        struct collected after = {.count = 0};
        const char *value = "65536"; /* legal for all others */
        if (!strcmp(key, "min.insync.replicas"))
            value = "7";
        else if (!strcmp(key, "durability"))
            value = "interval";
        else if (!strcmp(key, "unclean.leader.election.enable"))
            value = "true";
        else if (!strcmp(key, "message.timestamp.type"))
            value = "LogAppendTime";
        else if (!strcmp(key, "cleanup.policy"))
            value = "compact,delete";
        else if (!strcmp(key, "min.cleanable.dirty.ratio"))
            value = "0.25";
        ck_assert_int_eq(apply(key, value, &config, NULL), 0);
        topic_config_visit(&config, collect, &after);
        snprintf(line, sizeof line, "%s=%s", key, value);
        ck_assert(has(&after, line));
        for (size_t k = 0; k < before.count; k++)
            ck_assert(k == i || !strcmp(before.text[k], after.text[k]));
    }
}
END_TEST

START_TEST(durability_depends_on_the_replicas_unless_it_was_said)
{
    static const struct {
        const char *said; /* NULL: nothing */
        int32_t replicas, mode;
    } modes[] = {
        {NULL, 1, DURABILITY_FSYNC},          {NULL, 2, DURABILITY_REPLICATED},  {NULL, 3, DURABILITY_REPLICATED},
        {"replicated", 1, DURABILITY_REPLICATED}, {"fsync", 3, DURABILITY_FSYNC}, {"interval", 1, DURABILITY_INTERVAL},
    };
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        struct topic_config config = defaults();
        if (modes[i].said)
            ck_assert_int_eq(apply("durability", modes[i].said, &config, NULL), 0);
        topic_config_resolve(&config, modes[i].replicas);
        ck_assert_int_eq(config.durability.mode, modes[i].mode);
    }
}
END_TEST

START_TEST(settings_in_force_are_used_as_far_as_they_make_sense)
{
    struct topic_config base = defaults(), config;
    struct znode_config_entry entries[] = {
        {"compression.type", "lz4"}, {"retention.ms", "77"}, {"segment.bytes", "lots"}};
    struct znode_config all = {entries, 3};
    struct brook_error error = {0};
    ck_assert_uint_eq(topic_config_apply_usable(&base, &all, &config, &error), 2);
    ck_assert_ptr_nonnull(strstr(error.text, "compression.type"));
    ck_assert_int_eq(config.log.retention_ms, 77);
    ck_assert_int_eq(config.log.segment_bytes, base.log.segment_bytes);
}
END_TEST

START_TEST(a_segment_has_to_hold_the_largest_batch)
{
    struct topic_config base = defaults(), config;
    struct brook_error error = {0};
    struct znode_config_entry small[] = {{"segment.bytes", "4096"}}, both[] = {{"max.message.bytes", "4096"}, {"segment.bytes", "4096"}},
                              other[] = {{"retention.ms", "5"}};
    struct znode_config said = {small, 1};
    base.message_bytes_max = 1 << 20;
    ck_assert_int_eq(topic_config_apply(&base, &said, &config, NULL), 0);
    ck_assert_int_eq(topic_config_check_sizes(&config, &said, &error), -BROOK_E_INVALID_CONFIG);
    ck_assert_str_eq(error.text, "segment.bytes=4096 is less than max.message.bytes=1048576: a segment has to hold the largest batch");
    said = (struct znode_config){both, 2};
    ck_assert_int_eq(topic_config_apply(&base, &said, &config, NULL), 0);
    ck_assert_int_eq(topic_config_check_sizes(&config, &said, &error), 0);
    /* What others decided for all topics is not this one's fault. */
    base.log.segment_bytes = 2048;
    said = (struct znode_config){other, 1};
    ck_assert_int_eq(topic_config_apply(&base, &said, &config, NULL), 0);
    ck_assert_int_eq(topic_config_check_sizes(&config, &said, &error), 0);
}
END_TEST

/* ---- changes ---------------------------------------------------------------------------------------- */

/* "key=value,key" (no value: taken away), applied to `old`, as text again; NULL: refused. */
static const char *change(const char *old, const char *changes, bool *ret_changed)
{
    static char text[512];
    struct znode_config parsed[2] = {{0}}, next = {0};
    struct topic_config base = defaults();
    struct brook_error error = {0};
    const char *from[] = {old, changes};
    for (int k = 0; k < 2; k++) {
        char copy[256], *save = NULL;
        snprintf(copy, sizeof copy, "%s", from[k]);
        parsed[k].entries = calloc(16, sizeof *parsed[k].entries);
        for (char *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
            char *equals = strchr(word, '=');
            struct znode_config_entry *e = &parsed[k].entries[parsed[k].count++];
            e->value = equals ? strdup(equals + 1) : NULL;
            if (equals)
                *equals = '\0';
            e->key = strdup(word);
        }
    }
    int r = config_change_apply(&parsed[0], &parsed[1], &base, 2, &next, ret_changed, &error);
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < next.count; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s=%s", i ? "," : "", next.entries[i].key,
                              next.entries[i].value);
    ck_assert_int_eq(r, r ? -BROOK_E_INVALID_CONFIG : 0);
    ck_assert(r == 0 || error.text[0]);
    znode_config_done(&parsed[0]);
    znode_config_done(&parsed[1]);
    znode_config_done(&next);
    return r ? NULL : text;
}

START_TEST(a_change_touches_what_it_names)
{
    static const struct {
        const char *old, *changes, *next;
        bool is_changed;
    } table[] = {
        {"", "retention.ms=5", "retention.ms=5", true},
        {"retention.ms=5", "retention.ms=6", "retention.ms=6", true},
        {"retention.ms=5", "retention.ms=5", "retention.ms=5", false},
        {"retention.ms=5,segment.ms=7", "retention.ms", "segment.ms=7", true},
        {"segment.ms=7", "retention.ms", "segment.ms=7", false},
        {"segment.ms=7", "segment.ms,retention.ms=1", "retention.ms=1", true},
        {"odd=1", "odd", "", true},
        {"odd=1", "retention.ms=5", NULL, false},
        {"", "odd", NULL, false},
        {"", "odd=1", NULL, false},
        {"", "retention.ms=x", NULL, false},
        {"", "retention.ms=1,retention.ms=1", NULL, false},
        {"", "retention.ms=1,retention.ms", NULL, false},
        {"", "min.insync.replicas=2", "min.insync.replicas=2", true},
        {"", "min.insync.replicas=3", NULL, false},
        {"min.insync.replicas=3", "retention.ms=5", "min.insync.replicas=3,retention.ms=5", true},
        {"min.insync.replicas=3", "min.insync.replicas=1", "min.insync.replicas=1", true},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        bool is_changed = false;
        const char *next = change(table[i].old, table[i].changes, &is_changed);
        ck_assert_msg(!next == !table[i].next && (!next || !strcmp(next, table[i].next)), "%s + %s: %s", table[i].old,
                      table[i].changes, next ? next : "refused");
        ck_assert_msg(is_changed == table[i].is_changed, "%s + %s", table[i].old, table[i].changes);
    }
}
END_TEST

SUITE_MAIN("unit/cluster/topic_config", SUITE_TEST(a_change_touches_what_it_names),
            SUITE_TEST(each_value_is_taken_or_refused_by_name),
           SUITE_TEST(what_is_set_is_what_is_shown_and_nothing_else_moves),
           SUITE_TEST(a_segment_has_to_hold_the_largest_batch),
           SUITE_TEST(durability_depends_on_the_replicas_unless_it_was_said),
           SUITE_TEST(settings_in_force_are_used_as_far_as_they_make_sense))
