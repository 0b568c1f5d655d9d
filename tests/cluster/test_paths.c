/* What an administrator sees in ZooKeeper: the paths and the readable JSON of a living cluster. */
#include "tests/support/brokers.h"
#include "tests/support/suite.h"

#include "coordination/coordinator.h"
#include "proto/base/inbox.h"

#include <jansson.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct answer {
    bool done;
    int err;
    char *data;
    size_t children;
    char child[256]; /* the first */
    int64_t ephemeral_owner;
};

static void on_answer(void *arg, const struct coordinator_reply *reply)
{
    struct answer *a = arg;
    a->done = true;
    a->err = reply->err;
    a->ephemeral_owner = reply->stat.ephemeral_owner;
    a->data = reply->data ? strndup(reply->data, reply->data_bytes) : NULL;
    a->children = reply->children_count;
    if (reply->children_count)
        snprintf(a->child, sizeof a->child, "%s", reply->children[0]);
}

struct reader {
    struct coordinator *coordinator;
    struct inbox inbox;
};

static struct answer ask(struct reader *r, const char *path, bool children)
{
    struct answer a = {0};
    struct coordinator_call call = {.inbox = &r->inbox, .callback = on_answer, .arg = &a};
    if (children)
        coordinator_children(r->coordinator, path, call);
    else
        coordinator_get(r->coordinator, path, call);
    while (!a.done) {
        struct pollfd p = {inbox_fd(&r->inbox), POLLIN, 0};
        poll(&p, 1, 1000);
        inbox_drain(&r->inbox);
    }
    ck_assert_msg(a.err == 0, "%s: %s", path, brook_error_text(a.err));
    return a;
}

static json_t *read_json(struct reader *r, const char *path, bool *ret_ephemeral)
{
    struct answer a = ask(r, path, false);
    json_error_t error;
    json_t *json = json_loads(a.data, JSON_DECODE_ANY, &error);
    ck_assert_msg(json != NULL, "%s holds '%s': %s", path, a.data, error.text);
    if (ret_ephemeral)
        *ret_ephemeral = a.ephemeral_owner != 0;
    free(a.data);
    return json;
}

static void expect_fields(struct reader *r, const char *path, bool ephemeral, const char *const *fields)
{
    bool is_ephemeral;
    json_t *json = read_json(r, path, &is_ephemeral);
    ck_assert_msg(is_ephemeral == ephemeral, "%s is %sephemeral", path, is_ephemeral ? "" : "not ");
    for (; *fields; fields++)
        ck_assert_msg(json_object_get(json, *fields) != NULL, "%s has no \"%s\"", path, *fields);
    json_decref(json);
}
#define FIELDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void expect_text(struct reader *r, const char *path, const char *text)
{
    struct answer a = ask(r, path, false);
    ck_assert_msg(a.data && strcmp(a.data, text) == 0, "%s holds '%s', not '%s'", path, a.data, text);
    free(a.data);
}

START_TEST(zookeeper_shows_the_cluster_as_short_readable_json)
{
    struct brokers *b = brokers_start(3, NULL);
    struct member m;
    struct reader r = {0};
    struct brook_error error = {0};
    brokers_create_topic(b, "orders", 6);
    member_start(b, &m, "m", "billing", "orders", NULL);
    char script[1024];
    snprintf(script, sizeof script,
             "seq 100 | \"$top_builddir/client/cli/brook\" -z %s produce orders --partition 3 --quiet",
             brokers_connect(b));
    ck_assert_int_eq(system(script), 0);
    for (int i = 0; member_lines(&m) < 100 && i < 1000; i++)
        usleep(20000);
    ck_assert_int_eq(member_lines(&m), 100);

    struct coordinator_settings settings = {.connect = brokers_connect(b), .session_timeout_ms = 4000};
    ck_assert_int_eq(inbox_init(&r.inbox), 0);
    ck_assert_msg(coordinator_new(&settings, &r.coordinator, &error) == 0, "%s", error.text);
    expect_fields(&r, "/cluster/id", false, FIELDS("version", "id"));
    expect_fields(&r, "/brokers/ids/1", true, FIELDS("version", "host", "port", "endpoints", "timestamp", "incarnation", "broker_epoch"));
    expect_fields(&r, "/controller", true, FIELDS("version", "brokerid", "timestamp"));
    expect_fields(&r, "/brokers/topics/orders", false, FIELDS("version", "topic_id", "partitions"));
    expect_fields(&r, "/brokers/topics/orders/partitions/3/state", false,
                  FIELDS("controller_epoch", "leader", "version", "leader_epoch", "isr"));
    expect_fields(&r, "/config/topics/orders", false, FIELDS("version", "config"));
    /* Written for people: coalesced, at most once a second. */
    struct answer served = {0};
    for (int i = 0; served.children != 3; i++) {
        ck_assert_int_lt(i, 500);
        usleep(20000);
        served = ask(&r, "/brokers/topics/orders/brokers", true);
    }
    expect_fields(&r, "/brokers/topics/orders/brokers/1", true, FIELDS("version", "leads", "follows"));
    expect_fields(&r, "/consumers/billing/assignment", false, FIELDS("version", "strategy", "view", "assignment"));

    struct answer ids = ask(&r, "/consumers/billing/ids", true);
    ck_assert_uint_eq(ids.children, 1);
    char path[512];
    snprintf(path, sizeof path, "/consumers/billing/ids/%s", ids.child);
    expect_fields(&r, path, true, FIELDS("version", "subscription", "pattern", "timestamp"));
    expect_text(&r, "/consumers/billing/owners/orders/3", ids.child);
    struct answer changes = ask(&r, "/brokers/changes", true);
    ck_assert_uint_ge(changes.children, 1);

    ck_assert_int_eq(member_stop(&m, 10000), 0);
    expect_text(&r, "/consumers/billing/offsets/orders/3", "100");
    expect_text(&r, "/consumers/billing/offsets/orders/0", "0");
    coordinator_free(r.coordinator, false, 3000);
    inbox_done(&r.inbox);
    brokers_free(b);
}
END_TEST

SUITE_MAIN("cluster/paths", SUITE_TEST_SLOW(zookeeper_shows_the_cluster_as_short_readable_json, 60))
