#include "broker/net/listener_counts.h"
#include "tests/support/suite.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

static struct sockaddr_storage v4(const char *text)
{
    struct sockaddr_storage storage = {0};
    struct sockaddr_in *in = (struct sockaddr_in *)(void *)&storage;
    in->sin_family = AF_INET;
    inet_pton(AF_INET, text, &in->sin_addr);
    return storage;
}

static struct sockaddr_storage v6(const char *text)
{
    struct sockaddr_storage storage = {0};
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)&storage;
    in6->sin6_family = AF_INET6;
    inet_pton(AF_INET6, text, &in6->sin6_addr);
    return storage;
}

START_TEST(an_address_has_its_own_limit)
{
    struct listener_counts *c;
    struct brook_error error;
    struct sockaddr_storage a = v4("10.0.0.1"), mapped = v6("::ffff:10.0.0.1"), b = v6("fe80::1");
    ck_assert_int_eq(listener_counts_new(10, 2, &c), 0);
    ck_assert_int_eq(listener_counts_add(c, &a, &error), 0);
    ck_assert_int_eq(listener_counts_add(c, &mapped, &error), 0);
    ck_assert_int_eq(listener_counts_add(c, &a, &error), -BROOK_E_TOO_MANY);
    ck_assert_ptr_nonnull(strstr(error.text, "max.connections.per.ip"));
    ck_assert_int_eq(listener_counts_add(c, &b, &error), 0);
    listener_counts_remove(c, &mapped);
    ck_assert_int_eq(listener_counts_add(c, &a, &error), 0);
    ck_assert_uint_eq(listener_counts_total(c), 3);
    listener_counts_free(c);
}
END_TEST

START_TEST(the_total_has_a_limit_that_can_change)
{
    struct listener_counts *c;
    struct brook_error error;
    struct sockaddr_storage a = v4("10.0.0.1"), b = v4("10.0.0.2");
    ck_assert_int_eq(listener_counts_new(1, 10, &c), 0);
    ck_assert_int_eq(listener_counts_add(c, &a, &error), 0);
    ck_assert_int_eq(listener_counts_add(c, &b, &error), -BROOK_E_TOO_MANY);
    ck_assert_ptr_nonnull(strstr(error.text, "max.connections"));
    listener_counts_configure(c, 2, 10);
    ck_assert_int_eq(listener_counts_add(c, &b, &error), 0);
    listener_counts_remove(c, &a);
    listener_counts_remove(c, &a); /* more often than added: harmless */
    listener_counts_remove(c, &b);
    ck_assert_uint_eq(listener_counts_total(c), 0);
    listener_counts_free(c);
}
END_TEST

SUITE_MAIN("broker/net/listener_counts", SUITE_TEST(an_address_has_its_own_limit),
           SUITE_TEST(the_total_has_a_limit_that_can_change))
