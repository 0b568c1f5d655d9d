#include "tests/support/guard.h"
#include "tests/support/suite.h"

#include "proto/base/names.h"

#include <string.h>

typedef bool is_legal(const void *name, size_t bytes);

static const struct {
    is_legal *is_legal;
    size_t bytes_max;
    const char *alphabet;
} kinds[] = {
    {name_is_legal_topic, TOPIC_NAME_BYTES_MAX,
     "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"},
    {name_is_legal_group, GROUP_NAME_BYTES_MAX,
     "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"},
    {name_is_legal_member, MEMBER_ID_BYTES_MAX,
     "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-:"},
};

START_TEST(exactly_the_alphabet_is_legal)
{
    for (unsigned k = 0; k < 3; k++)
        for (int c = 0; c < 256; c++) {
            char name[3] = {'a', (char)c, 'z'};
            bool wanted = c != 0 && strchr(kinds[k].alphabet, c);
            ck_assert_msg(kinds[k].is_legal(name, 3) == wanted, "kind %u, byte %d", k, c);
        }
}
END_TEST

START_TEST(length_is_one_to_the_limit)
{
    char name[256];
    memset(name, 'n', sizeof name);
    for (unsigned k = 0; k < 3; k++)
        for (size_t n = 0; n <= sizeof name; n++)
            ck_assert_int_eq(kinds[k].is_legal(name, n), n >= 1 && n <= kinds[k].bytes_max);
}
END_TEST

START_TEST(directory_names_are_not_names)
{
    for (unsigned k = 0; k < 3; k++) {
        ck_assert(!kinds[k].is_legal(".", 1));
        ck_assert(!kinds[k].is_legal("..", 2));
        ck_assert(kinds[k].is_legal("...", 3));
        ck_assert(kinds[k].is_legal(".a", 2));
        ck_assert(kinds[k].is_legal("a.", 2));
        ck_assert(!kinds[k].is_legal("../x", 4));
        ck_assert(!kinds[k].is_legal("a/b", 3));
        ck_assert(!kinds[k].is_legal("a\0b", 3));
    }
}
END_TEST

START_TEST(name_need_not_end_in_nul)
{
    struct guard guard;
    guard_init(&guard, 8);
    for (unsigned k = 0; k < 3; k++)
        ck_assert(kinds[k].is_legal(guard_copy(&guard, "orders", 6), 6));
    guard_done(&guard);
}
END_TEST

START_TEST(directory_and_znode_names_fit_their_limits)
{
    /* "<topic>-<partition>.<32 hex digits>-delete" */
    ck_assert_int_le(TOPIC_NAME_BYTES_MAX + 1 + 10 + 1 + 32 + 7, 255);
    ck_assert_int_le(TOPIC_NAME_BYTES_MAX + GROUP_NAME_BYTES_MAX, 300);
}
END_TEST

SUITE_MAIN("base/names", SUITE_TEST(exactly_the_alphabet_is_legal), SUITE_TEST(length_is_one_to_the_limit),
           SUITE_TEST(directory_names_are_not_names), SUITE_TEST(name_need_not_end_in_nul),
           SUITE_TEST(directory_and_znode_names_fit_their_limits))
