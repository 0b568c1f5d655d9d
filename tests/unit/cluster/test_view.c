#include "broker/cluster/view_builder.h"
#include "proto/base/clock.h"
#include "tests/support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int32_t replicas[] = {1, 2, 3};
static const int32_t isr[] = {2, 3};

static void fill(const void *arg, int32_t number, struct view_partition *ret)
{
    *ret = (struct view_partition){.leader = number % 3,
                                   .leader_epoch = number * 10,
                                   .replicas_count = 3,
                                   .isr_count = number % 3,
                                   .replicas = replicas,
                                   .isr = isr};
}

static struct view_block *block(const char *name, uint32_t id, int32_t partitions)
{
    struct topic_config config = {.message_bytes_max = 5};
    struct view_block_source source = {
        .name = name, .config = &config, .partitions_count = partitions, .partition = fill};
    memcpy(source.topic_id.bytes, &id, sizeof id);
    struct view_block *b = view_block_new(&source);
    ck_assert_ptr_nonnull(b);
    return b;
}

static struct view *view_of(struct view_block **blocks, size_t count, uint64_t version)
{
    struct view_broker brokers[] = {{1, "a", 10, NULL}, {5, "b", 11, "r"}, {9, "c", 12, NULL}};
    struct view_source source = {version, "id", 5, brokers, 3, blocks, count, NULL, 0};
    struct view *view = view_new(&source);
    ck_assert_ptr_nonnull(view);
    return view;
}

START_TEST(everything_is_found_by_name_and_by_id)
{
    enum { COUNT = 3000 };
    struct view_block *blocks[COUNT];
    char name[32];
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "topic-%05u", i);
        blocks[i] = block(name, i + 1, 2);
    }
    struct view *view = view_of(blocks, COUNT, 7);
    ck_assert_uint_eq(view_topics_count(view), COUNT);
    ck_assert_uint_eq(view_version(view), 7);
    for (uint32_t i = 0; i < COUNT; i++) {
        struct topic_id id = {0};
        uint32_t number = i + 1;
        memcpy(id.bytes, &number, sizeof number);
        snprintf(name, sizeof name, "topic-%05u?", i); /* names need not end in NUL */
        ck_assert_ptr_eq(view_topic(view, name, strlen(name) - 1), view_topic_at(view, i));
        ck_assert_ptr_eq(view_topic_by_id(view, id.bytes), view_topic_at(view, i));
        ck_assert_ptr_null(view_topic(view, name, strlen(name)));
    }
    struct topic_id none = {{9, 9, 9, 9, 9}};
    ck_assert_ptr_null(view_topic_by_id(view, none.bytes));
    ck_assert_ptr_null(view_topic(view, "", 0));
    view_unref(view);
    for (uint32_t i = 0; i < COUNT; i++)
        view_block_unref(blocks[i]);
}
END_TEST

START_TEST(block_holds_its_own_copies)
{
    char name[] = "orders";
    struct view_block *blocks[] = {block(name, 1, 5)};
    memset(name, 'x', sizeof name - 1);
    struct view *view = view_of(blocks, 1, 1);
    view_block_unref(blocks[0]);
    const struct view_topic *topic = view_topic(view, "orders", 6);
    ck_assert_ptr_nonnull(topic);
    ck_assert_int_eq(topic->config.message_bytes_max, 5);
    for (int32_t i = 0; i < 5; i++) {
        const struct view_partition *p = &topic->partitions[i];
        ck_assert_int_eq(p->leader_epoch, i * 10);
        ck_assert_ptr_ne(p->replicas, replicas);
        ck_assert_int_eq(memcmp(p->replicas, replicas, sizeof replicas), 0);
        ck_assert_int_eq(p->isr_count, i % 3);
        ck_assert_int_eq(memcmp(p->isr, isr, (size_t)p->isr_count * sizeof isr[0]), 0);
    }
    view_unref(view);
}
END_TEST

START_TEST(brokers_are_found_and_others_are_not)
{
    struct view *view = view_of(NULL, 0, 1);
    ck_assert_str_eq(view_broker(view, 5)->host, "b");
    ck_assert_str_eq(view_broker(view, 5)->rack, "r");
    ck_assert_ptr_null(view_broker(view, 1)->rack);
    ck_assert_ptr_null(view_broker(view, 2));
    ck_assert_ptr_null(view_broker(view, -1));
    ck_assert_int_eq(view_controller(view), 5);
    ck_assert_str_eq(view_cluster_id(view), "id");
    ck_assert_ptr_null(view_topic(view, "x", 1));
    view_unref(view);
}
END_TEST

/* Publishing costs what changed: the blocks of the old view are in the new one. */
START_TEST(unchanged_blocks_are_shared_and_outlive_the_view_that_goes)
{
    struct view_block *blocks[] = {block("a", 1, 3), block("b", 2, 3)};
    struct view *first = view_of(blocks, 2, 1);
    const struct view_topic *kept = view_topic(first, "a", 1);
    view_block_unref(blocks[1]);
    blocks[1] = block("b", 2, 4);
    struct view *second = view_of(blocks, 2, 2);
    ck_assert_ptr_eq(view_topic(second, "a", 1), kept);
    ck_assert_int_eq(view_topic(first, "b", 1)->partitions_count, 3);
    ck_assert_int_eq(view_topic(second, "b", 1)->partitions_count, 4);
    view_unref(first);
    ck_assert_str_eq(kept->name, "a");
    view_unref(second);
    view_block_unref(blocks[0]);
    view_block_unref(blocks[1]);
}
END_TEST

SUITE_MAIN("unit/cluster/view", SUITE_TEST(everything_is_found_by_name_and_by_id),
           SUITE_TEST(block_holds_its_own_copies), SUITE_TEST(brokers_are_found_and_others_are_not),
           SUITE_TEST(unchanged_blocks_are_shared_and_outlive_the_view_that_goes))
