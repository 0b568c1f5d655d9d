/* The loop, its connections and the metadata cache, from the inside. */
#include "client/client.h"
#include "proto/wire/resolver.h"
#include "proto/base/clock.h"
#include "tests/support/stub_broker.h"
#include "tests/support/suite.h"

#include <brook/brook.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 10000

struct fixture {
    struct stub_cluster *cluster;
    brook_config *config;
    struct client *client;
    struct client_listener listener;
    atomic_int ready, lost, changed;
    /* what look() does and finds */
    const char *topic;
    struct metadata_topic seen;
    int32_t leaders[8];
    bool known;
    int32_t broker_id;
    enum client_lane lane;
    bool has_channel;
};

static void on_ready(void *arg, int32_t broker_id, enum client_lane lane)
{
    struct fixture *f = arg;
    atomic_fetch_add(&f->ready, 1);
}

static void on_lost(void *arg, int32_t broker_id, enum client_lane lane, const struct brook_error *why)
{
    struct fixture *f = arg;
    atomic_fetch_add(&f->lost, 1);
}

static void on_changed(void *arg)
{
    struct fixture *f = arg;
    atomic_fetch_add(&f->changed, 1);
}

static void listen_on_loop(void *arg)
{
    struct fixture *f = arg;
    client_listen(f->client, &f->listener);
}

static void unlisten_on_loop(void *arg)
{
    struct fixture *f = arg;
    client_unlisten(f->client, &f->listener);
}

static void fixture_open(struct fixture *f, unsigned brokers)
{
    memset(f, 0, sizeof *f);
    f->cluster = stub_cluster_new(brokers);
    ck_assert_int_eq(brook_config_new(&f->config), 0);
    brook_config_set(f->config, "bootstrap.servers", stub_cluster_servers(f->cluster), NULL);
    brook_config_set(f->config, "reconnect.backoff.ms", "10", NULL);
    brook_config_set(f->config, "reconnect.backoff.max.ms", "100", NULL);
}

static void fixture_start(struct fixture *f)
{
    struct brook_error error;
    ck_assert_msg(client_new(f->config, 1 << 20, &f->client, &error) == 0, "%s", error.text);
    f->listener = (struct client_listener){
        .channel_ready = on_ready, .channel_lost = on_lost, .metadata_changed = on_changed, .arg = f};
    client_call(f->client, listen_on_loop, f);
}

static void fixture_close(struct fixture *f)
{
    client_call(f->client, unlisten_on_loop, f);
    client_free(f->client);
    brook_config_free(f->config);
    stub_cluster_free(f->cluster);
}

static void look(void *arg)
{
    struct fixture *f = arg;
    const struct metadata_topic *t = metadata_topic(client_metadata(f->client), f->topic);
    f->known = t != NULL;
    if (!t)
        return;
    f->seen = *t;
    for (int32_t i = 0; i < t->partitions_count && i < 8; i++)
        f->leaders[i] = t->partitions[i].leader;
}

static bool is_known(void *arg)
{
    struct fixture *f = arg;
    client_call(f->client, look, f);
    return f->known && f->seen.error == 0 && f->seen.partitions_count > 0;
}

static void want_channel(void *arg)
{
    struct fixture *f = arg;
    struct channel *c = client_channel(f->client, f->broker_id, f->lane);
    f->has_channel = c && channel_get_state(c) == CHANNEL_READY;
}

static bool has_channel(void *arg)
{
    struct fixture *f = arg;
    client_call(f->client, want_channel, f);
    return f->has_channel;
}

START_TEST(a_client_without_addresses_is_refused)
{
    struct client *client;
    struct brook_error error;
    brook_config *config;
    ck_assert_int_eq(brook_config_new(&config), 0);
    ck_assert_int_eq(client_new(config, 1 << 20, &client, &error), -BROOK_E_CONFIG);
    brook_config_set(config, "bootstrap.servers", "a:b:c:", NULL);
    ck_assert_int_eq(client_new(config, 1 << 20, &client, &error), -BROOK_E_CONFIG);
    brook_config_free(config);
}
END_TEST

START_TEST(metadata_is_fetched_for_what_is_wanted_and_questions_coalesce)
{
    struct fixture f;
    fixture_open(&f, 2);
    stub_cluster_add_topic(f.cluster, "a", 4);
    fixture_start(&f);
    f.topic = "a";
    ck_assert(suite_wait(is_known, &f, WAIT_MS));
    ck_assert_int_eq(f.seen.partitions_count, 4);
    ck_assert_int_eq(f.leaders[0], 1);
    ck_assert_int_eq(f.leaders[1], 2);
    for (int i = 0; i < 200; i++)
        ck_assert(is_known(&f));
    ck_assert_uint_eq(stub_cluster_requests(f.cluster, BROOK__REQUEST__BODY_METADATA), 1);
    fixture_close(&f);
}
END_TEST

START_TEST(a_bootstrap_connection_becomes_the_brokers_own)
{
    struct fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "a", 1);
    fixture_start(&f);
    f.topic = "a";
    ck_assert(suite_wait(is_known, &f, WAIT_MS));
    f.broker_id = 1;
    f.lane = CLIENT_LANE_REQUESTS;
    ck_assert(suite_wait(has_channel, &f, WAIT_MS));
    ck_assert_uint_eq(stub_cluster_connections_made(f.cluster), 1);
    f.lane = CLIENT_LANE_PULLS;
    ck_assert(suite_wait(has_channel, &f, WAIT_MS));
    ck_assert_uint_eq(stub_cluster_connections_made(f.cluster), 2);
    f.broker_id = 77;
    client_call(f.client, want_channel, &f);
    ck_assert(!f.has_channel);
    fixture_close(&f);
}
END_TEST

static bool is_lost(void *arg)
{
    struct fixture *f = arg;
    return atomic_load(&f->lost) > 0;
}

START_TEST(a_lost_connection_is_told_and_made_again)
{
    struct fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "a", 1);
    fixture_start(&f);
    f.topic = "a";
    ck_assert(suite_wait(is_known, &f, WAIT_MS));
    f.broker_id = 1;
    ck_assert(suite_wait(has_channel, &f, WAIT_MS));
    stub_cluster_stop_broker(f.cluster, 1);
    ck_assert(suite_wait(is_lost, &f, WAIT_MS));
    ck_assert(!has_channel(&f));
    stub_cluster_start_broker(f.cluster, 1);
    ck_assert(suite_wait(has_channel, &f, WAIT_MS));
    fixture_close(&f);
}
END_TEST

static void refresh(void *arg)
{
    struct fixture *f = arg;
    metadata_refresh(client_metadata(f->client));
}

static bool leader_is_two(void *arg)
{
    struct fixture *f = arg;
    client_call(f->client, look, f);
    return f->leaders[0] == 2;
}

START_TEST(a_new_leader_is_learned_and_an_old_epoch_is_not_believed)
{
    struct fixture f;
    fixture_open(&f, 2);
    stub_cluster_add_topic(f.cluster, "a", 1);
    fixture_start(&f);
    f.topic = "a";
    ck_assert(suite_wait(is_known, &f, WAIT_MS));
    ck_assert_int_eq(f.leaders[0], 1);
    stub_cluster_set_leader(f.cluster, "a", 0, 2);
    for (int i = 0; i < 100; i++)
        client_call(f.client, refresh, &f);
    ck_assert(suite_wait(leader_is_two, &f, WAIT_MS));
    /* A hundred calls were a few questions. */
    ck_assert_uint_le(stub_cluster_requests(f.cluster, BROOK__REQUEST__BODY_METADATA), 6);
    fixture_close(&f);
}
END_TEST

static bool generation_is_two(void *arg)
{
    struct fixture *f = arg;
    client_call(f->client, look, f);
    if (f->seen.generation < 2)
        client_call(f->client, refresh, f);
    return f->seen.generation == 2 && f->seen.partitions_count == 2;
}

START_TEST(a_topic_made_anew_replaces_everything_even_with_older_epochs)
{
    struct fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "a", 3);
    for (int i = 0; i < 5; i++)
        stub_cluster_set_leader(f.cluster, "a", 0, 1);
    fixture_start(&f);
    f.topic = "a";
    ck_assert(suite_wait(is_known, &f, WAIT_MS));
    ck_assert_uint_eq(f.seen.generation, 1);
    stub_cluster_add_topic(f.cluster, "a", 2);
    ck_assert(suite_wait(generation_is_two, &f, WAIT_MS));
    ck_assert_int_eq(f.leaders[0], 1);
    fixture_close(&f);
}
END_TEST

static bool is_unknown_twice(void *arg)
{
    struct fixture *f = arg;
    client_call(f->client, look, f);
    return f->known && f->seen.error == BROOK_E_UNKNOWN_TOPIC && f->seen.times_unknown >= 2;
}

START_TEST(a_topic_that_is_not_there_is_asked_for_again)
{
    struct fixture f;
    fixture_open(&f, 1);
    fixture_start(&f);
    f.topic = "later";
    ck_assert(suite_wait(is_unknown_twice, &f, WAIT_MS));
    stub_cluster_add_topic(f.cluster, "later", 1);
    ck_assert(suite_wait(is_known, &f, WAIT_MS));
    ck_assert_int_eq(f.seen.times_unknown, 0);
    fixture_close(&f);
}
END_TEST

START_TEST(names_are_resolved_and_a_dead_address_does_not_stand_in_the_way)
{
    struct fixture f;
    char servers[200];
    fixture_open(&f, 1);
    snprintf(servers, sizeof servers, "127.0.0.1:1,no-such-host.invalid:9092,localhost:%u",
             stub_cluster_port(f.cluster, 1));
    brook_config_set(f.config, "bootstrap.servers", servers, NULL);
    stub_cluster_add_topic(f.cluster, "a", 1);
    fixture_start(&f);
    f.topic = "a";
    ck_assert(suite_wait(is_known, &f, WAIT_MS));
    fixture_close(&f);
}
END_TEST

static enum stub_verdict wrong_broker(void *arg, const struct stub_request *q)
{
    /* Everybody's metadata says that broker 1 is at broker 2's address and the reverse. */
    if (q->request->body_case != BROOK__REQUEST__BODY_HELLO)
        return STUB_PASS;
    ((struct stub_request *)(uintptr_t)q)->broker_id = 3 - q->broker_id;
    return STUB_PASS;
}

START_TEST(a_broker_that_is_another_than_expected_is_not_used)
{
    struct fixture f;
    fixture_open(&f, 2);
    stub_cluster_add_topic(f.cluster, "a", 1);
    fixture_start(&f);
    f.topic = "a";
    ck_assert(suite_wait(is_known, &f, WAIT_MS));
    stub_cluster_on_request(f.cluster, wrong_broker, NULL);
    f.broker_id = 2;
    f.lane = CLIENT_LANE_PULLS;
    ck_assert(!has_channel(&f));
    ck_assert(suite_wait(is_lost, &f, WAIT_MS));
    ck_assert(!has_channel(&f));
    stub_cluster_on_request(f.cluster, NULL, NULL);
    ck_assert(suite_wait(has_channel, &f, WAIT_MS));
    fixture_close(&f);
}
END_TEST

static void note_mask(void *arg)
{
    sigset_t *mask = arg;
    pthread_sigmask(SIG_SETMASK, NULL, mask);
}

START_TEST(the_loop_blocks_all_signals)
{
    struct fixture f;
    sigset_t mask;
    fixture_open(&f, 1);
    fixture_start(&f);
    client_call(f.client, note_mask, &mask);
    ck_assert_int_eq(sigismember(&mask, SIGTERM), 1);
    ck_assert_int_eq(sigismember(&mask, SIGALRM), 1);
    ck_assert_int_eq(sigismember(&mask, SIGPIPE), 1);
    fixture_close(&f);
}
END_TEST

struct answers {
    int count;
    size_t addresses;
};
static void on_resolved(void *arg, const struct resolver_answer *answer)
{
    struct answers *answers = arg;
    answers->count++;
    answers->addresses = answer->count;
}

START_TEST(a_lookup_given_up_answers_nobody)
{
    struct inbox inbox;
    struct answers answers = {0};
    struct lookup *lookup;
    ck_assert_int_eq(inbox_init(&inbox), 0);
    ck_assert_int_eq(lookup_new(&inbox, "localhost", 80, on_resolved, &answers, &lookup), 0);
    int64_t until = clock_boot_ms() + WAIT_MS;
    while (answers.count == 0 && clock_boot_ms() < until)
        inbox_drain(&inbox);
    ck_assert_int_eq(answers.count, 1);
    ck_assert_uint_gt(answers.addresses, 0);
    for (int i = 0; i < 50; i++) {
        ck_assert_int_eq(lookup_new(&inbox, "localhost", 80, on_resolved, &answers, &lookup), 0);
        lookup_cancel(lookup);
    }
    until = clock_boot_ms() + 200;
    while (clock_boot_ms() < until)
        inbox_drain(&inbox);
    ck_assert_int_eq(answers.count, 1);
    inbox_done(&inbox);
}
END_TEST

START_TEST(clients_come_and_go_without_leaving_anything)
{
    for (int i = 0; i < 20; i++) {
        struct fixture f;
        fixture_open(&f, 1);
        fixture_start(&f);
        f.topic = "a";
        client_call(f.client, look, &f);
        fixture_close(&f);
    }
}
END_TEST

SUITE_MAIN("client/client", SUITE_TEST(a_client_without_addresses_is_refused),
           SUITE_TEST(metadata_is_fetched_for_what_is_wanted_and_questions_coalesce),
           SUITE_TEST(a_bootstrap_connection_becomes_the_brokers_own),
           SUITE_TEST(a_lost_connection_is_told_and_made_again),
           SUITE_TEST(a_new_leader_is_learned_and_an_old_epoch_is_not_believed),
           SUITE_TEST(a_topic_made_anew_replaces_everything_even_with_older_epochs),
           SUITE_TEST(a_topic_that_is_not_there_is_asked_for_again),
           SUITE_TEST(names_are_resolved_and_a_dead_address_does_not_stand_in_the_way),
           SUITE_TEST(a_broker_that_is_another_than_expected_is_not_used),
           SUITE_TEST(the_loop_blocks_all_signals), SUITE_TEST(a_lookup_given_up_answers_nobody),
           SUITE_TEST(clients_come_and_go_without_leaving_anything))
