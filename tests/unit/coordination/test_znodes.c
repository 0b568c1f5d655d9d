/* The JSON of the znodes: round trips, Kafka's own samples, and bytes that are anything. */
#include "coordination/znodes.h"
#include "tests/support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct brook_error error;

/* ---- every decoder behind one face --------------------------------------------------------------------- */

static int decode_cluster_id(const char *data, size_t bytes)
{
    char *id = NULL;
    int r = znode_decode_cluster_id(data, bytes, &id, &error);
    free(id);
    return r;
}

static int decode_broker(const char *data, size_t bytes)
{
    struct znode_broker b = {0};
    int r = znode_decode_broker(data, bytes, &b, &error);
    znode_broker_done(&b);
    return r;
}

static int decode_topic(const char *data, size_t bytes)
{
    struct znode_topic t = {0};
    int r = znode_decode_topic(data, bytes, &t, &error);
    znode_topic_done(&t);
    return r;
}

static int decode_state(const char *data, size_t bytes)
{
    struct znode_state s;
    return znode_decode_state(data, bytes, &s, &error);
}

static int decode_change(const char *data, size_t bytes)
{
    struct znode_change c = {0};
    int r = znode_decode_change(data, bytes, &c, &error);
    znode_change_done(&c);
    return r;
}

static int decode_controller(const char *data, size_t bytes)
{
    int32_t id;
    return znode_decode_controller(data, bytes, &id, &error);
}

static int decode_number(const char *data, size_t bytes)
{
    int64_t n;
    return znode_decode_number(data, bytes, &n, &error);
}

static int decode_offset(const char *data, size_t bytes)
{
    int64_t n;
    return znode_decode_offset(data, bytes, &n, &error);
}

static int decode_config(const char *data, size_t bytes)
{
    struct znode_config c = {0};
    int r = znode_decode_config(data, bytes, &c, &error);
    znode_config_done(&c);
    return r;
}

static int decode_block(const char *data, size_t bytes)
{
    int64_t last;
    return znode_decode_producer_block(data, bytes, &last, &error);
}

static int decode_member(const char *data, size_t bytes)
{
    struct znode_member m = {0};
    int r = znode_decode_member(data, bytes, &m, &error);
    znode_member_done(&m);
    return r;
}

static int decode_assignment(const char *data, size_t bytes)
{
    struct znode_assignment a = {0};
    int r = znode_decode_assignment(data, bytes, &a, &error);
    znode_assignment_done(&a);
    return r;
}

static int decode_plan(const char *data, size_t bytes)
{
    struct znode_wishes w = {0};
    int r = znode_decode_wishes(data, bytes, ZNODE_WISH_REASSIGN, &w, &error);
    znode_wishes_done(&w);
    return r;
}

static int decode_elections(const char *data, size_t bytes)
{
    struct znode_wishes w = {0};
    int r = znode_decode_wishes(data, bytes, ZNODE_WISH_ELECT, &w, &error);
    znode_wishes_done(&w);
    return r;
}

static int decode_throttle(const char *data, size_t bytes)
{
    int64_t bytes_per_s;
    return znode_decode_throttle(data, bytes, &bytes_per_s, &error);
}

static int decode_ends(const char *data, size_t bytes)
{
    struct znode_ends e = {0};
    int r = znode_decode_ends(data, bytes, &e, &error);
    znode_ends_done(&e);
    return r;
}

typedef int decoder(const char *data, size_t bytes);

/* What Apache Kafka (0.10 to 3.x) wrote, as printed by its shell, and our own forms. */
static const struct sample {
    decoder *decode;
    const char *text;
} samples[] = {
    {decode_cluster_id, "{\"version\":\"1\",\"id\":\"Ux3HWa5cQIe7pTjRv6p2Cw\"}"},
    {decode_broker,
     "{\"listener_security_protocol_map\":{\"PLAINTEXT\":\"PLAINTEXT\"},\"endpoints\":[\"PLAINTEXT://"
     "broker1:9092\"],\"rack\":\"south\",\"jmx_port\":-1,\"features\":{},\"host\":\"broker1\","
     "\"timestamp\":\"1671020353457\",\"port\":9092,\"version\":5}"},
    {decode_broker,
     "{\"version\":1,\"host\":\"localhost\",\"port\":9092,\"jmx_port\":9999,\"timestamp\":\"2233345666\"}"},
    {decode_broker, "{\"version\":5,\"host\":\"h\",\"port\":1,\"offline\":{\"b\":[3,0],\"a\":[1]}}"},
    {decode_topic,
     "{\"version\":2,\"partitions\":{\"0\":[1]},\"adding_replicas\":{},\"removing_replicas\":{}}"},
    {decode_topic, "{\"removing_replicas\":{},\"partitions\":{\"1\":[2,3],\"0\":[1,2]},\"topic_id\":"
                   "\"OHRCbYeXRPWRPmnEiGXMeg\",\"adding_replicas\":{},\"version\":3}"},
    {decode_topic, "{\"version\":1,\"partitions\":{\"0\":[0,1]}}"},
    {decode_topic, "{\"version\":3,\"partitions\":{\"0\":[1,2,3],\"1\":[4,5]},\"adding_replicas\":{\"0\":[3]},"
                   "\"removing_replicas\":{\"0\":[1],\"1\":[5]}}"},
    {decode_state, "{\"controller_epoch\":4,\"leader\":1,\"version\":1,\"leader_epoch\":7,\"isr\":[1,2]}"},
    {decode_state, "{\"controller_epoch\":4,\"leader\":-1,\"version\":1,\"leader_epoch\":8,\"isr\":[2],"
                   "\"isr_epochs\":[3]}"},
    {decode_change, "{\"version\":1,\"brokers\":true,\"topics\":[\"a\"],\"partitions\":{\"b\":[0,3]}}"},
    {decode_change, "{\"version\":1}"},
    {decode_change, "{\"version\":1,\"partitions\":{\"b\":[3]},\"states\":{\"b\":{\"topic_id\":"
                    "\"AAAAAAAAAAAAAAAAAAAAAQ\",\"rows\":[[7,1,-1,2,[1,2],[-1,5]]]}}}"},
    {decode_change, "{\"version\":1,\"assigned\":[\"a\",\"b\"],\"ends\":[\"c\"]}"},
    {decode_plan, "{\"version\":1,\"partitions\":[{\"topic\":\"foo\",\"partition\":1,\"replicas\":[1,2,3],"
                  "\"log_dirs\":[\"any\"]}]}"},
    {decode_plan, "{\"version\":1,\"partitions\":[{\"topic\":\"foo\",\"partition\":1,\"replicas\":[]}]}"},
    {decode_plan, "{\"version\":1,\"partitions\":[],\"throttle\":2000000}"},
    {decode_throttle, "{\"version\":1,\"bytes_per_second\":2000000}"},
    {decode_elections, "{\"version\":1,\"partitions\":[{\"topic\":\"foo\",\"partition\":1},"
                       "{\"topic\":\"foo\",\"partition\":2,\"election\":\"unclean\"}]}"},
    {decode_ends, "{\"version\":1,\"broker_epoch\":5,\"ends\":{\"0\":[7,3,1200],\"1\":[7,-1,-1]}}"},
    {decode_controller, "{\"version\":1,\"brokerid\":1,\"timestamp\":\"1671020353457\"}"},
    {decode_controller,
     "{\"version\":2,\"brokerid\":1,\"timestamp\":\"1671020353457\",\"kraftControllerEpoch\":-1}"},
    {decode_number, "17"},
    {decode_offset, "9223372036854775807"},
    {decode_config, "{\"version\":1,\"config\":{\"retention.ms\":\"1000\",\"cleanup.policy\":\"compact\"}}"},
    {decode_config, "{\"version\":1,\"config\":{}}"},
    {decode_block, "{\"version\":1,\"broker\":1,\"block_start\":\"0\",\"block_end\":\"999\"}"},
    {decode_member,
     "{\"version\":1,\"subscription\":{\"orders\":2},\"pattern\":\"static\",\"timestamp\":\"1416974534\"}"},
    {decode_member, "{\"version\":1,\"subscription\":{\"or(d|b)ers.*\":1},\"pattern\":\"white_list\","
                    "\"timestamp\":\"1416974534\",\"strategy\":\"sticky\",\"algorithm\":1,\"host\":\"h\","
                    "\"incarnation\":\"i\"}"},
    {decode_assignment,
     "{\"version\":1,\"strategy\":\"sticky\",\"algorithm\":1,\"view\":{\"ids_pzxid\":12,\"topics\":"
     "{\"T\":34},\"partitions\":{\"T\":4}},\"members\":[\"m1\",\"m2\"],\"assignment\":{\"T\":"
     "{\"m1\":[0,1],\"m2\":[2]}}}"},
};
#define SAMPLES (sizeof samples / sizeof samples[0])

START_TEST(samples_are_read)
{
    for (size_t i = 0; i < SAMPLES; i++)
        ck_assert_msg(samples[i].decode(samples[i].text, strlen(samples[i].text)) == 0, "%s: %s",
                      samples[i].text, error.text);
}
END_TEST

START_TEST(unknown_fields_and_a_missing_version_do_not_matter)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        char text[1024];
        if (samples[i].text[0] != '{')
            continue;
        snprintf(text, sizeof text, "{\"new_field\":{\"a\":[1,null,\"x\"]},%s", samples[i].text + 1);
        ck_assert_msg(samples[i].decode(text, strlen(text)) == 0, "%s: %s", text, error.text);
        char *version = strstr(text, "\"version\"");
        memcpy(version, "\"v______\"", 9);
        ck_assert_msg(samples[i].decode(text, strlen(text)) == 0, "%s: %s", text, error.text);
    }
}
END_TEST

/* Every cut and thousands of changes give a value or an error with a sentence; memory is the sanitizers'
 * task. */
START_TEST(truncations_and_mutations_are_refused_or_read)
{
    uint64_t seed = suite_seed();
    for (size_t i = 0; i < SAMPLES; i++) {
        size_t n = strlen(samples[i].text);
        for (size_t cut = 0; cut < n; cut++) {
            /* In a block of its own, so that a byte too far is noticed. */
            char *copy = malloc(cut + 1);
            memcpy(copy, samples[i].text, cut);
            error = (struct brook_error){0};
            int r = samples[i].decode(copy, cut);
            bool is_text = samples[i].decode == decode_number || samples[i].decode == decode_offset;
            ck_assert_msg(is_text || r == -BROOK_E_BAD_ZNODE, "%.*s", (int)cut, copy);
            ck_assert(r == 0 || (error.code == BROOK_E_BAD_ZNODE && *error.text));
            free(copy);
        }
        for (int round = 0; round < 2000; round++) {
            char *copy = malloc(n);
            memcpy(copy, samples[i].text, n);
            for (uint64_t changes = 1 + suite_random_below(&seed, 3); changes; changes--)
                copy[suite_random_below(&seed, n)] =
                    suite_random_below(&seed, 2) ? "0123456789-[]{}\",:"[suite_random_below(&seed, 18)]
                                                 : (char)suite_random(&seed);
            int r = samples[i].decode(copy, n);
            ck_assert(r == 0 || r == -BROOK_E_BAD_ZNODE);
            free(copy);
        }
        ck_assert_int_eq(samples[i].decode(NULL, 0),
                         samples[i].decode == decode_offset ? 0 : -BROOK_E_BAD_ZNODE);
    }
}
END_TEST

#define QUOTE(id, rows) \
    "{\"version\":1,\"partitions\":{\"t\":[3]},\"states\":{\"t\":{\"topic_id\":\"" id "\",\"rows\":[" rows "]}}}"

START_TEST(nonsense_is_refused)
{
    static const struct sample bad[] = {
        {decode_cluster_id, "{\"version\":\"1\",\"id\":\"\"}"},
        {decode_cluster_id, "{\"version\":\"2\",\"id\":\"x\"}"},
        {decode_broker, "{\"version\":5,\"host\":\"\",\"port\":1}"},
        {decode_broker, "{\"version\":5,\"host\":\"h\",\"port\":0}"},
        {decode_broker, "{\"version\":5,\"host\":\"h\",\"port\":65536}"},
        {decode_broker, "{\"version\":5,\"host\":\"h\",\"port\":\"x\"}"},
        {decode_broker, "{\"version\":5,\"host\":\"h\\u0000x\",\"port\":1}"},
        {decode_broker, "{\"version\":5,\"host\":\"h\",\"host\":\"g\",\"port\":1}"},
        {decode_broker, "{\"version\":5,\"host\":\"h\",\"port\":1,\"offline\":{\"a/b\":[1]}}"},
        {decode_broker, "{\"version\":5,\"host\":\"h\",\"port\":1,\"offline\":{\"a\":[-1]}}"},
        {decode_broker, "{\"version\":5,\"host\":\"h\",\"port\":1,\"offline\":[]}"},
        {decode_broker, "[]"},
        {decode_broker, "{\"version\":5,\"host\":\"h\",\"port\":1} x"},
        {decode_topic, "{\"version\":3,\"partitions\":{}}"},
        {decode_topic, "{\"version\":3,\"partitions\":{\"0\":[]}}"},
        {decode_topic, "{\"version\":3,\"partitions\":{\"0\":[1,1]}}"},
        {decode_topic, "{\"version\":3,\"partitions\":{\"0\":[-1]}}"},
        {decode_topic, "{\"version\":3,\"partitions\":{\"0\":[2147483648]}}"},
        {decode_topic, "{\"version\":3,\"partitions\":{\"1\":[1]}}"},
        {decode_topic, "{\"version\":3,\"partitions\":{\"0\":[1],\"2\":[1]}}"},
        {decode_topic, "{\"version\":3,\"partitions\":{\"00\":[1]}}"},
        {decode_topic, "{\"version\":3,\"partitions\":{\"0\":[1]},\"topic_id\":\"short\"}"},
        {decode_topic, "{\"version\":3,\"partitions\":{\"0\":[1]},\"topic_id\":\"OHRCbYeXRPWRPmnEiGXMe*\"}"},
        {decode_state, "{\"controller_epoch\":4,\"leader\":-2,\"version\":1,\"leader_epoch\":7,\"isr\":[1]}"},
        {decode_state, "{\"controller_epoch\":4,\"leader\":1,\"version\":1,\"leader_epoch\":-1,\"isr\":[1]}"},
        {decode_state,
         "{\"controller_epoch\":4,\"leader\":1,\"version\":1,\"leader_epoch\":7,\"isr\":[1,1]}"},
        {decode_state, "{\"controller_epoch\":4,\"leader\":1,\"version\":2,\"leader_epoch\":7,\"isr\":[1]}"},
        {decode_state, "{\"controller_epoch\":4,\"leader\":1,\"version\":1,\"leader_epoch\":7,\"isr\":[1],"
                       "\"isr_epochs\":[1,2]}"},
        {decode_change, "{\"version\":1,\"topics\":[\"a/b\"]}"},
        {decode_change, "{\"version\":1,\"topics\":[7]}"},
        {decode_change, "{\"version\":1,\"assigned\":[\"a/b\"]}"},
        {decode_change, "{\"version\":1,\"ends\":{}}"},
        {decode_topic, "{\"version\":3,\"partitions\":{\"0\":[1,2]},\"adding_replicas\":{\"0\":[3]}}"},
        {decode_topic, "{\"version\":3,\"partitions\":{\"0\":[1,2]},\"adding_replicas\":{\"1\":[1]}}"},
        {decode_topic, "{\"version\":3,\"partitions\":{\"0\":[1,2]},\"removing_replicas\":{\"0\":[2,1]}}"},
        {decode_topic, "{\"version\":3,\"partitions\":{\"0\":[1,2]},\"removing_replicas\":{\"0\":7}}"},
        {decode_plan, "{\"version\":1,\"partitions\":[{\"topic\":\"a\",\"partition\":0}]}"},
        {decode_plan, "{\"version\":1,\"partitions\":[{\"topic\":\"a\",\"partition\":-1,\"replicas\":[1]}]}"},
        {decode_plan, "{\"version\":1,\"partitions\":[{\"topic\":\"a/b\",\"partition\":0,\"replicas\":[1]}]}"},
        {decode_plan, "{\"version\":1,\"partitions\":[{\"topic\":\"a\",\"partition\":0,\"replicas\":[1,1]}]}"},
        {decode_plan, "{\"version\":1,\"partitions\":[7]}"},
        {decode_plan, "{\"version\":1,\"partitions\":[],\"throttle\":-1}"},
        {decode_plan, "{\"version\":1,\"partitions\":[],\"throttle\":\"2M\"}"},
        {decode_throttle, "{\"version\":1}"},
        {decode_throttle, "{\"version\":1,\"bytes_per_second\":-1}"},
        {decode_elections,
         "{\"version\":1,\"partitions\":[{\"topic\":\"a\",\"partition\":0,\"election\":\"dirty\"}]}"},
        {decode_ends, "{\"version\":1,\"broker_epoch\":5,\"ends\":{\"0\":[7,3]}}"},
        {decode_ends, "{\"version\":1,\"broker_epoch\":5,\"ends\":{\"0\":[7,3,-2]}}"},
        {decode_ends, "{\"version\":1,\"ends\":{}}"},
        {decode_change, "{\"version\":1,\"partitions\":{\"..\":[0]}}"},
        {decode_change, "{\"version\":1,\"partitions\":{\"t\":[20000]}}"},
        {decode_change, "{\"version\":1,\"partitions\":{\"t\":[3]},\"states\":[]}"},
        {decode_change, QUOTE("AAAAAAAAAAAAAAAAAAAAAQ", "")},
        {decode_change, QUOTE("AAAAAAAAAAAAAAAAAAAAA", "[7,1,1,2,[1],[5]]")},
        {decode_change, QUOTE("AAAAAAAAAAAAAAAAAAAAAQ", "[7,1,1,2,[1],[5]],[7,1,1,2,[1],[5]]")},
        {decode_change, QUOTE("AAAAAAAAAAAAAAAAAAAAAQ", "7")},
        {decode_change, QUOTE("AAAAAAAAAAAAAAAAAAAAAQ", "[7,1,1,2,[1]]")},
        {decode_change, QUOTE("AAAAAAAAAAAAAAAAAAAAAQ", "[-1,1,1,2,[1],[5]]")},
        {decode_change, QUOTE("AAAAAAAAAAAAAAAAAAAAAQ", "[7,1,-2,2,[1],[5]]")},
        {decode_change, QUOTE("AAAAAAAAAAAAAAAAAAAAAQ", "[7,1,null,2,[1],[5]]")},
        {decode_change, QUOTE("AAAAAAAAAAAAAAAAAAAAAQ", "[7,1,1,2,[1,1],[5,5]]")},
        {decode_change, QUOTE("AAAAAAAAAAAAAAAAAAAAAQ", "[7,1,1,2,[1,2],[5]]")},
        {decode_change, QUOTE("AAAAAAAAAAAAAAAAAAAAAQ", "[7,1,1,2,[1],[-2]]")},
        {decode_change, QUOTE("AAAAAAAAAAAAAAAAAAAAAQ", "[7,1,1,2,{},[]]")},
        {decode_number, "017"},
        {decode_number, "-0"},
        {decode_number, " 1"},
        {decode_number, "1\n"},
        {decode_number, "9223372036854775808"},
        {decode_number, "-9223372036854775809"},
        {decode_offset, "-1"},
        {decode_config, "{\"version\":1,\"config\":{\"a\":1}}"},
        {decode_block, "{\"version\":1,\"block_start\":\"5\",\"block_end\":\"4\"}"},
        {decode_member, "{\"version\":1,\"subscription\":{\"a/b\":1},\"pattern\":\"static\"}"},
        {decode_member, "{\"version\":1,\"subscription\":{\"a\":1,\"b\":1},\"pattern\":\"white_list\"}"},
        {decode_member, "{\"version\":1,\"subscription\":{\"a\":1},\"pattern\":\"grey_list\"}"},
        {decode_member, "{\"version\":1,\"subscription\":{\"a\":1},\"strategy\":\"best\"}"},
        {decode_assignment,
         "{\"version\":1,\"strategy\":\"s\",\"algorithm\":1,\"view\":{\"ids_pzxid\":1,\"topics\":"
         "{\"T\":1},\"partitions\":{\"T\":2}},\"members\":[\"m\"],\"assignment\":{\"T\":{\"n\":[0]}}}"},
        {decode_assignment,
         "{\"version\":1,\"strategy\":\"s\",\"algorithm\":1,\"view\":{\"ids_pzxid\":1,\"topics\":"
         "{\"T\":1},\"partitions\":{\"T\":2}},\"members\":[\"m\"],\"assignment\":{\"T\":[0]}}"},
        {decode_assignment,
         "{\"version\":1,\"strategy\":\"s\",\"algorithm\":1,\"view\":{\"ids_pzxid\":1,\"topics\":"
         "{\"T\":1},\"partitions\":{\"T\":2}},\"members\":[\"m\"],\"assignment\":{\"T\":[0,1]}}"},
        {decode_assignment,
         "{\"version\":1,\"strategy\":\"s\",\"algorithm\":1,\"view\":{\"ids_pzxid\":1,\"topics\":"
         "{\"T\":1},\"partitions\":{\"T\":2}},\"members\":[\"m\"],\"assignment\":{\"T\":[0,-2]}}"},
        {decode_assignment,
         "{\"version\":1,\"strategy\":\"s\",\"algorithm\":1,\"view\":{\"ids_pzxid\":1,\"topics\":"
         "{\"T\":1},\"partitions\":{\"T\":2}},\"members\":[\"m\"],\"assignment\":{\"T\":[0,\"m\"]}}"},
        {decode_assignment,
         "{\"version\":1,\"strategy\":\"s\",\"algorithm\":1,\"view\":{\"ids_pzxid\":1,\"topics\":"
         "{\"T\":1},\"partitions\":{\"T\":2}},\"members\":[\"m\"],\"assignment\":{\"T\":{\"m\":[2]}}}"},
        {decode_assignment,
         "{\"version\":1,\"strategy\":\"s\",\"algorithm\":1,\"view\":{\"ids_pzxid\":1,\"topics\":"
         "{\"T\":1},\"partitions\":{\"T\":2}},\"members\":[\"m\",\"m\"],\"assignment\":{\"T\":{}}}"},
        {decode_assignment,
         "{\"version\":1,\"strategy\":\"s\",\"algorithm\":1,\"view\":{\"ids_pzxid\":1,\"topics\":"
         "{\"T\":1},\"partitions\":{\"T\":2}},\"members\":[\"m\",\"n\"],\"assignment\":{\"T\":"
         "{\"m\":[0],\"n\":[0]}}}"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(bad[i].decode(bad[i].text, strlen(bad[i].text)) == -BROOK_E_BAD_ZNODE, "%s",
                      bad[i].text);
}
END_TEST

START_TEST(limits_are_kept)
{
    enum { ROOM = 1 << 20 };
    char *text = malloc(ROOM);
    for (int count = ZNODE_PARTITIONS_MAX; count <= ZNODE_PARTITIONS_MAX + 1; count++) {
        size_t n = (size_t)sprintf(text, "{\"version\":3,\"partitions\":{");
        for (int p = 0; p < count; p++)
            n += (size_t)sprintf(text + n, "%s\"%d\":[1,2]", p ? "," : "", p);
        n += (size_t)sprintf(text + n, "}}");
        ck_assert_int_eq(decode_topic(text, n), count > ZNODE_PARTITIONS_MAX ? -BROOK_E_BAD_ZNODE : 0);
    }
    size_t n = (size_t)sprintf(text, "{\"version\":3,\"partitions\":{\"0\":[");
    for (int r = 0; r <= ZNODE_REPLICAS_MAX; r++)
        n += (size_t)sprintf(text + n, "%s%d", r ? "," : "", r);
    n += (size_t)sprintf(text + n, "]}}");
    ck_assert_int_eq(decode_topic(text, n), -BROOK_E_BAD_ZNODE);
    /* Nesting is somebody else's stack. */
    memset(text, '[', 100000);
    ck_assert_int_eq(decode_topic(text, 100000), -BROOK_E_BAD_ZNODE);
    free(text);
}
END_TEST

/* ---- round trips --------------------------------------------------------------------------------------- */

START_TEST(moves_are_kept_with_their_order_and_a_target_that_does_not_fit_is_made_anew)
{
    static const struct {
        const char *text;
        int32_t target[3];
        int32_t count;
    } cases[] = {
        {"{\"partitions\":{\"0\":[1,2,3,4]},\"adding_replicas\":{\"0\":[3,4]},\"removing_replicas\":{\"0\":[1]},"
         "\"target_replicas\":{\"0\":[4,3,2]}}",
         {4, 3, 2},
         3},
        {"{\"partitions\":{\"0\":[1,2,3,4]},\"adding_replicas\":{\"0\":[3,4]},\"removing_replicas\":{\"0\":[1]}}",
         {2, 3, 4},
         3},
        {"{\"partitions\":{\"0\":[1,2,3,4]},\"removing_replicas\":{\"0\":[1,4]},\"target_replicas\":{\"0\":[1,2]}}",
         {2, 3},
         2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct znode_topic t, back;
        ck_assert_msg(!znode_decode_topic(cases[i].text, strlen(cases[i].text), &t, &error), "%s", error.text);
        char *text = znode_encode_topic(&t);
        ck_assert_int_eq(znode_decode_topic(text, strlen(text), &back, &error), 0);
        free(text);
        const struct znode_move *m = znode_topic_move(&back, 0);
        ck_assert_ptr_nonnull(m);
        ck_assert_int_eq(m->target.count, cases[i].count);
        ck_assert_mem_eq(m->target.brokers, cases[i].target, (size_t)cases[i].count * sizeof(int32_t));
        ck_assert_int_eq(m->removing.count, t.moves[0].removing.count);
        ck_assert_int_eq(m->adding.count, t.moves[0].adding.count);
        znode_topic_done(&t);
        znode_topic_done(&back);
    }
}
END_TEST

START_TEST(topic_ids_are_22_characters)
{
    for (int i = 0; i < 1000; i++) {
        struct topic_id id, back;
        char text[TOPIC_ID_TEXT_BYTES];
        topic_id_random(&id);
        ck_assert(!topic_id_is_zero(&id));
        topic_id_format(&id, text);
        ck_assert_uint_eq(strlen(text), 22);
        ck_assert_int_eq(topic_id_parse(text, &back), 0);
        ck_assert(topic_id_equal(&id, &back));
    }
    struct topic_id zero = {{0}};
    char text[TOPIC_ID_TEXT_BYTES];
    topic_id_format(&zero, text);
    ck_assert_str_eq(text, "AAAAAAAAAAAAAAAAAAAAAA");
    /* The last character has four bits to spare: one text for one id. */
    ck_assert_int_eq(topic_id_parse("AAAAAAAAAAAAAAAAAAAAAB", &zero), -BROOK_E_INVALID);
    ck_assert_int_eq(topic_id_parse("AAAAAAAAAAAAAAAAAAAAAAA", &zero), -BROOK_E_INVALID);
}
END_TEST

START_TEST(brokers_round_trip)
{
    struct znode_broker b = {.host = (char *)"h.example",
                             .port = 9092,
                             .rack = (char *)"r\"1",
                             .incarnation = (char *)"abc",
                             .timestamp_ms = 1700000000000,
                             .broker_epoch = 7,
                             .clean_from = 6,
                             .disk_from = 5,
                             .draining = true};
    struct znode_broker back = {0};
    char *text = znode_encode_broker(&b);
    ck_assert_int_eq(znode_decode_broker(text, strlen(text), &back, &error), 0);
    ck_assert_str_eq(back.host, b.host);
    ck_assert_str_eq(back.rack, b.rack);
    ck_assert_str_eq(back.incarnation, b.incarnation);
    ck_assert_int_eq(back.port, 9092);
    ck_assert_int_eq(back.timestamp_ms, b.timestamp_ms);
    ck_assert_int_eq(back.broker_epoch, 7);
    ck_assert_int_eq(back.clean_from, 6);
    ck_assert_int_eq(back.disk_from, 5);
    ck_assert(back.draining);
    free(text);
    znode_broker_done(&back);
    b.rack = NULL;
    b.host = (char *)"::1";
    text = znode_encode_broker(&b);
    ck_assert_ptr_nonnull(strstr(text, "//[::1]:9092\""));
    ck_assert_int_eq(znode_decode_broker(text, strlen(text), &back, &error), 0);
    ck_assert_ptr_null(back.rack);
    free(text);
    znode_broker_done(&back);
}
END_TEST

START_TEST(topics_round_trip)
{
    enum { PARTITIONS = 137 };
    struct znode_topic t = {.partitions_count = PARTITIONS}, back = {0};
    topic_id_random(&t.topic_id);
    t.replicas = calloc(PARTITIONS, sizeof *t.replicas);
    for (int32_t p = 0; p < PARTITIONS; p++) {
        t.replicas[p].count = 1 + p % 3;
        t.replicas[p].brokers = calloc(3, sizeof(int32_t));
        for (int32_t r = 0; r < t.replicas[p].count; r++)
            t.replicas[p].brokers[r] = p * 10 + r;
    }
    char *text = znode_encode_topic(&t);
    ck_assert_int_eq(znode_decode_topic(text, strlen(text), &back, &error), 0);
    ck_assert(topic_id_equal(&t.topic_id, &back.topic_id));
    ck_assert_int_eq(back.partitions_count, PARTITIONS);
    for (int32_t p = 0; p < PARTITIONS; p++) {
        ck_assert_int_eq(back.replicas[p].count, t.replicas[p].count);
        ck_assert_mem_eq(back.replicas[p].brokers, t.replicas[p].brokers,
                         (size_t)t.replicas[p].count * sizeof(int32_t));
    }
    free(text);
    znode_topic_done(&t);
    znode_topic_done(&back);
}
END_TEST

START_TEST(states_round_trip)
{
    struct znode_state s = {.controller_epoch = 3,
                            .leader = -1,
                            .leader_epoch = 9,
                            .isr_count = 2,
                            .isr = {5, 4},
                            .isr_epochs = {11, -1}};
    struct znode_state back;
    char *text = znode_encode_state(&s);
    ck_assert_int_eq(znode_decode_state(text, strlen(text), &back, &error), 0);
    ck_assert_int_eq(back.controller_epoch, 3);
    ck_assert_int_eq(back.leader, -1);
    ck_assert_int_eq(back.leader_epoch, 9);
    ck_assert_int_eq(back.isr_count, 2);
    ck_assert_int_eq(back.isr[0], 5);
    ck_assert_int_eq(back.isr_epochs[0], 11);
    ck_assert_int_eq(back.isr_epochs[1], -1);
    free(text);
}
END_TEST

START_TEST(small_values_round_trip)
{
    char *text, *id = NULL;
    int32_t broker = 0;
    int64_t number = 0;
    text = znode_encode_cluster_id("abc");
    ck_assert_int_eq(znode_decode_cluster_id(text, strlen(text), &id, &error), 0);
    ck_assert_str_eq(id, "abc");
    free(id);
    free(text);
    text = znode_encode_controller(12, 1700000000000);
    ck_assert_int_eq(znode_decode_controller(text, strlen(text), &broker, &error), 0);
    ck_assert_int_eq(broker, 12);
    free(text);
    static const int64_t numbers[] = {0, 1, -1, INT64_MAX, INT64_MIN, 1234567890123};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        text = znode_encode_number(numbers[i]);
        ck_assert_int_eq(znode_decode_number(text, strlen(text), &number, &error), 0);
        ck_assert(number == numbers[i]);
        free(text);
    }
    text = znode_encode_producer_block(1, 1000, 1999);
    ck_assert_int_eq(znode_decode_producer_block(text, strlen(text), &number, &error), 0);
    ck_assert_int_eq(number, 1999);
    free(text);
    ck_assert_int_eq(znode_decode_offset("", 0, &number, &error), 0);
    ck_assert_int_eq(number, -1);
    ck_assert_int_eq(znode_decode_offset("42", 2, &number, &error), 0);
    ck_assert_int_eq(number, 42);
    text = znode_encode_served((const int32_t[]){0, 3}, 2, NULL, 0);
    ck_assert_str_eq(text, "{\"version\":1,\"leads\":[0,3],\"follows\":[]}");
    free(text);
}
END_TEST

/* A topic that is listed in two places is one topic with all of its partitions. */
START_TEST(quoted_states_round_trip)
{
    int32_t numbers[] = {5, 9, 2, 0};
    struct znode_quote quotes[] = {
        {3,
         {.controller_epoch = 1, .leader = 2, .leader_epoch = 4, .isr_count = 2, .isr = {2, 1}, .isr_epochs = {7, -1}}},
        {0, {.leader = -1, .isr_count = 1, .isr = {6}, .isr_epochs = {8}}},
        {8, {.controller_epoch = 9, .leader = 0, .leader_epoch = 1}},
        {INT32_MAX, {.leader = INT32_MAX, .leader_epoch = INT32_MAX}},
    };
    struct znode_change_partitions states[] = {
        {.topic = (char *)"a", .partitions = &numbers[0], .partitions_count = 1, .quotes = &quotes[0]},
        {.topic = (char *)"b", .partitions = &numbers[1], .partitions_count = 1, .quotes = &quotes[1]},
        {.topic = (char *)"a", .partitions = &numbers[2], .partitions_count = 2, .quotes = &quotes[2]},
    };
    struct znode_change c = {.states = states, .states_count = 3}, back = {0};
    topic_id_random(&states[0].topic_id);
    topic_id_random(&states[1].topic_id);
    states[2].topic_id = states[0].topic_id;
    char *text = znode_encode_change(&c);
    ck_assert_int_eq(znode_decode_change(text, strlen(text), &back, &error), 0);
    free(text);
    ck_assert_uint_eq(back.states_count, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct znode_change_partitions *named = &back.states[i];
        bool is_a = strcmp(named->topic, "a") == 0;
        ck_assert_uint_eq(named->partitions_count, is_a ? 3 : 1);
        ck_assert(topic_id_equal(&named->topic_id, &states[is_a ? 0 : 1].topic_id));
        for (size_t k = 0; k < named->partitions_count; k++) {
            size_t at = is_a ? (k ? k + 1 : 0) : 1;
            ck_assert_int_eq(named->partitions[k], numbers[at]);
            ck_assert_int_eq(named->quotes[k].version, quotes[at].version);
            ck_assert_mem_eq(&named->quotes[k].state, &quotes[at].state, sizeof quotes[at].state);
        }
    }
    znode_change_done(&back);
}
END_TEST

START_TEST(changes_and_configs_round_trip)
{
    char *topics[] = {(char *)"a", (char *)"b"};
    int32_t numbers[] = {0, 3};
    struct znode_change_partitions states[] = {{.topic = (char *)"c", .partitions = numbers, .partitions_count = 2}};
    struct znode_change c = {
        .brokers = true, .topics = topics, .topics_count = 2, .states = states, .states_count = 1};
    struct znode_change back = {0};
    char *text = znode_encode_change(&c);
    ck_assert_int_eq(znode_decode_change(text, strlen(text), &back, &error), 0);
    ck_assert(back.brokers);
    ck_assert_uint_eq(back.topics_count, 2);
    ck_assert_str_eq(back.topics[1], "b");
    ck_assert_str_eq(back.states[0].topic, "c");
    ck_assert_int_eq(back.states[0].partitions[1], 3);
    ck_assert_ptr_null(back.states[0].quotes);
    free(text);
    znode_change_done(&back);

    struct znode_config_entry entries[] = {{(char *)"z", (char *)"1"}, {(char *)"a", (char *)"x y"}};
    struct znode_config config = {entries, 2}, read = {0};
    text = znode_encode_config(&config);
    ck_assert_int_eq(znode_decode_config(text, strlen(text), &read, &error), 0);
    ck_assert_uint_eq(read.count, 2);
    ck_assert_str_eq(read.entries[0].key, "a");
    ck_assert_str_eq(read.entries[0].value, "x y");
    ck_assert_str_eq(read.entries[1].key, "z");
    free(text);
    znode_config_done(&read);
}
END_TEST

/* Changes of several topics are gathered as they come. */
START_TEST(a_topic_named_twice_in_a_notification_keeps_all_its_partitions)
{
    int32_t first[] = {0, 3}, other[] = {1}, second[] = {7};
    struct znode_change_partitions states[] = {
        {.topic = (char *)"c", .partitions = first, .partitions_count = 2},
        {.topic = (char *)"d", .partitions = other, .partitions_count = 1},
        {.topic = (char *)"c", .partitions = second, .partitions_count = 1}};
    struct znode_change c = {.states = states, .states_count = 3}, back = {0};
    char *text = znode_encode_change(&c);
    ck_assert_int_eq(znode_decode_change(text, strlen(text), &back, &error), 0);
    ck_assert_uint_eq(back.states_count, 2);
    for (size_t i = 0; i < 2; i++) {
        bool is_c = strcmp(back.states[i].topic, "c") == 0;
        ck_assert_uint_eq(back.states[i].partitions_count, is_c ? 3 : 1);
        ck_assert_int_eq(back.states[i].partitions[is_c ? 2 : 0], is_c ? 7 : 1);
    }
    free(text);
    znode_change_done(&back);
}
END_TEST

START_TEST(members_and_assignments_round_trip)
{
    char *topics[] = {(char *)"orders.*"};
    struct znode_member m = {.topics = topics,
                             .topics_count = 1,
                             .is_pattern = true,
                             .strategy = (char *)"roundrobin",
                             .algorithm_version = 2,
                             .host = (char *)"h",
                             .incarnation = (char *)"i",
                             .timestamp_ms = 5};
    struct znode_member member = {0};
    char *text = znode_encode_member(&m);
    ck_assert_int_eq(znode_decode_member(text, strlen(text), &member, &error), 0);
    ck_assert(member.is_pattern);
    ck_assert_str_eq(member.topics[0], "orders.*");
    ck_assert_str_eq(member.strategy, "roundrobin");
    ck_assert_int_eq(member.algorithm_version, 2);
    ck_assert_str_eq(member.incarnation, "i");
    free(text);
    znode_member_done(&member);

    char *members[] = {(char *)"m1", (char *)"m2", (char *)"idle"};
    int32_t owner[] = {1, 0, -1, 1, -1};
    struct znode_assignment_topic topic[] = {{(char *)"T", 34, 5, owner}, {(char *)"U", 35, 0, owner}};
    struct znode_assignment a = {.strategy = (char *)"sticky",
                                 .algorithm_version = 1,
                                 .ids_pzxid = 12,
                                 .topics = topic,
                                 .topics_count = 2,
                                 .members = members,
                                 .members_count = 3};
    struct znode_assignment back = {0};
    text = znode_encode_assignment(&a);
    ck_assert_int_eq(znode_decode_assignment(text, strlen(text), &back, &error), 0);
    ck_assert_uint_eq(back.members_count, 3);
    ck_assert_str_eq(back.members[2], "idle");
    ck_assert_int_eq(back.ids_pzxid, 12);
    ck_assert_uint_eq(back.topics_count, 2);
    const struct znode_assignment_topic *t =
        strcmp(back.topics[0].name, "T") == 0 ? &back.topics[0] : &back.topics[1];
    ck_assert_int_eq(t->zxid, 34);
    ck_assert_int_eq(t->partitions_count, 5);
    ck_assert_mem_eq(t->owner, owner, sizeof owner);
    free(text);
    znode_assignment_done(&back);
}
END_TEST

START_TEST(assignment_of_a_large_group_fits_its_node_and_round_trips)
{
    enum { MEMBERS = 300, TOPICS = 100, PARTITIONS = 600 };
    static char names[MEMBERS][64];
    static char topic_names[TOPICS][64];
    static int32_t owner[PARTITIONS];
    char *members[MEMBERS];
    struct znode_assignment_topic topics[TOPICS];
    for (int m = 0; m < MEMBERS; m++) {
        snprintf(names[m], sizeof names[m], "a-host-with-a-long-name-%03d-0123456789abcdef", m);
        members[m] = names[m];
    }
    for (int32_t p = 0; p < PARTITIONS; p++)
        owner[p] = p == 7 ? -1 : p % MEMBERS;
    for (int t = 0; t < TOPICS; t++) {
        snprintf(topic_names[t], sizeof topic_names[t], "topic-%03d", t);
        topics[t] = (struct znode_assignment_topic){topic_names[t], t, PARTITIONS, owner};
    }
    struct znode_assignment a = {.strategy = (char *)"sticky",
                                 .algorithm_version = 1,
                                 .topics = topics,
                                 .topics_count = TOPICS,
                                 .members = members,
                                 .members_count = MEMBERS};
    struct znode_assignment back = {0};
    char *text = znode_encode_assignment(&a);
    ck_assert_uint_lt(strlen(text), 512 << 10);
    ck_assert_int_eq(znode_decode_assignment(text, strlen(text), &back, &error), 0);
    ck_assert_uint_eq(back.topics_count, TOPICS);
    for (int t = 0; t < TOPICS; t++) {
        ck_assert_int_eq(back.topics[t].partitions_count, PARTITIONS);
        ck_assert_mem_eq(back.topics[t].owner, owner, sizeof owner);
    }
    free(text);
    znode_assignment_done(&back);
}
END_TEST

SUITE_MAIN("coordination/znodes", SUITE_TEST(samples_are_read),
           SUITE_TEST(assignment_of_a_large_group_fits_its_node_and_round_trips),
           SUITE_TEST(unknown_fields_and_a_missing_version_do_not_matter),
           SUITE_TEST(truncations_and_mutations_are_refused_or_read), SUITE_TEST(nonsense_is_refused),
           SUITE_TEST(limits_are_kept), SUITE_TEST(moves_are_kept_with_their_order_and_a_target_that_does_not_fit_is_made_anew),
           SUITE_TEST(topic_ids_are_22_characters),
           SUITE_TEST(brokers_round_trip), SUITE_TEST(topics_round_trip), SUITE_TEST(states_round_trip),
           SUITE_TEST(small_values_round_trip), SUITE_TEST(changes_and_configs_round_trip),
           SUITE_TEST(quoted_states_round_trip),
           SUITE_TEST(a_topic_named_twice_in_a_notification_keeps_all_its_partitions),
           SUITE_TEST(members_and_assignments_round_trip))
