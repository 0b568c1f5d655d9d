#include "broker/cluster/image.h"

#include "tests/support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct image *new_image(void)
{
    struct topic_config defaults = {.message_bytes_max = 1000, .min_insync_replicas = 1};
    struct image *image;
    log_settings_default(&defaults.log);
    ck_assert_int_eq(image_new(&defaults, &image), 0);
    return image;
}

static struct image_topic *put(struct image *image, const char *name, uint8_t id, int32_t partitions)
{
    struct znode_topic node = {.partitions_count = partitions};
    struct image_topic *topic = NULL;
    node.topic_id.bytes[0] = id;
    node.replicas = calloc((size_t)partitions, sizeof *node.replicas);
    for (int32_t i = 0; i < partitions; i++) {
        node.replicas[i].count = 1;
        node.replicas[i].brokers = malloc(sizeof(int32_t));
        node.replicas[i].brokers[0] = 1;
    }
    ck_assert_int_eq(image_put_topic(image, name, &node, 0, &topic), 0);
    return topic;
}

static size_t count_changed(struct image *image)
{
    size_t count = 0;
    while (image_take_changed(image))
        count++;
    return count;
}

static size_t count_gone(struct image *image)
{
    size_t count = 0;
    for (struct image_gone *gone; (gone = image_take_gone(image)) != NULL; count++)
        free(gone);
    return count;
}

START_TEST(only_what_differs_counts_as_a_change)
{
    struct image *image = new_image();
    struct znode_state state = {.leader = 1, .isr_count = 1, .isr = {1}, .isr_epochs = {4}};
    struct image_topic *t = put(image, "t", 1, 2);
    ck_assert_uint_eq(count_changed(image), 1);
    put(image, "t", 1, 2);
    ck_assert_uint_eq(count_changed(image), 0);
    ck_assert_int_eq(image_set_state(t, 0, &state, 0), 0);
    ck_assert_uint_eq(count_changed(image), 1);
    ck_assert_int_eq(image_set_state(t, 0, &state, 0), 0);
    ck_assert_uint_eq(count_changed(image), 0);
    state.isr_epochs[0] = 5;
    ck_assert_int_eq(image_set_state(t, 0, &state, 1), 0);
    ck_assert_uint_eq(count_changed(image), 1);
    struct znode_config none = {0};
    ck_assert_uint_eq(image_set_config(t, &none, NULL), 0);
    ck_assert_uint_eq(count_changed(image), 0);
    put(image, "t", 1, 3);
    ck_assert_uint_eq(count_changed(image), 1);
    struct znode_state back;
    ck_assert(image_partition_state(&t->partitions[0], &back)); /* growing keeps what was known */
    ck_assert_int_eq(back.isr_epochs[0], 5);
    ck_assert(!image_partition_state(&t->partitions[2], &back));
    image_free(image);
}
END_TEST

/* What elections may rely on: made so, and never changed since. */
START_TEST(only_a_topic_that_was_made_fsync_is_one_in_elections)
{
    struct image *image = new_image();
    struct image_topic *t = put(image, "t", 1, 1);
    struct znode_config_entry fsync = {(char *)"durability", (char *)"fsync"};
    struct znode_config_entry other = {(char *)"flush.ms", (char *)"5"};
    struct znode_config_entry replicated = {(char *)"durability", (char *)"replicated"};
    struct znode_config config = {&fsync, 1}, another = {&other, 1}, weaker = {&replicated, 1};
    t->made_zxid = 70;
    ck_assert_uint_eq(image_set_config(t, &another, NULL), 0);
    image_judge_config(t, &another, 0, 70);
    ck_assert(!t->is_made_fsync);
    ck_assert_uint_eq(image_set_config(t, &weaker, NULL), 0);
    image_judge_config(t, &weaker, 0, 70);
    ck_assert(!t->is_made_fsync);
    ck_assert_uint_eq(image_set_config(t, &config, NULL), 0);
    image_judge_config(t, &config, 0, 70);
    ck_assert(t->is_made_fsync);
    image_judge_config(t, &config, 1, 70); /* changed once */
    ck_assert(!t->is_made_fsync);
    image_judge_config(t, &config, 0, 71); /* there were no settings, or others, before */
    ck_assert(!t->is_made_fsync);
    image_free(image);
}
END_TEST

START_TEST(topic_with_another_id_is_another_topic)
{
    struct image *image = new_image();
    struct znode_state state = {.leader = 1, .isr_count = 1, .isr = {1}}, back;
    struct image_topic *t = put(image, "t", 1, 1);
    image_set_state(t, 0, &state, 3);
    t = put(image, "t", 2, 1);
    ck_assert(!image_partition_state(&t->partitions[0], &back));
    struct image_gone *gone = image_take_gone(image);
    ck_assert_ptr_nonnull(gone);
    ck_assert_str_eq(gone->name, "t");
    ck_assert_uint_eq(gone->topic_id.bytes[0], 1);
    free(gone);
    ck_assert_uint_eq(image_topics_count(image), 1);
    ck_assert_uint_eq(count_changed(image), 1);
    image_free(image);
}
END_TEST

START_TEST(full_read_removes_what_it_did_not_see)
{
    struct image *image = new_image();
    put(image, "a", 1, 1);
    put(image, "b", 2, 1);
    put(image, "c", 3, 1);
    image_begin_round(image);
    put(image, "b", 2, 1);
    put(image, "d", 4, 1);
    image_end_round(image);
    ck_assert_uint_eq(image_topics_count(image), 2);
    ck_assert_str_eq(image_topic_at(image, 0)->name, "b");
    ck_assert_str_eq(image_topic_at(image, 1)->name, "d");
    ck_assert_uint_eq(count_gone(image), 2);
    ck_assert_uint_eq(count_changed(image), 2); /* a and c are in no list any more */
    image_free(image);
}
END_TEST

START_TEST(deletion_intents_mark_topics_that_are_there_or_come_later)
{
    struct image *image = new_image();
    const char *names[] = {"z", "a"};
    struct image_topic *a = put(image, "a", 1, 1);
    count_changed(image);
    ck_assert(!image_knows_deleting(image));
    ck_assert_int_eq(image_set_deleting(image, names, 2), 0);
    ck_assert(image_knows_deleting(image));
    ck_assert(a->is_being_deleted);
    ck_assert_uint_eq(count_changed(image), 1);
    ck_assert(put(image, "z", 2, 1)->is_being_deleted);
    ck_assert(!put(image, "m", 3, 1)->is_being_deleted);
    ck_assert_int_eq(image_set_deleting(image, NULL, 0), 0);
    ck_assert(!a->is_being_deleted);
    ck_assert_uint_eq(image_deleting_count(image), 0);
    image_free(image);
}
END_TEST

static struct image_broker broker(int32_t id, int64_t epoch)
{
    return (struct image_broker){id,
                                 {.host = strdup("h"), .incarnation = strdup("i"), .broker_epoch = epoch}};
}

START_TEST(brokers_change_when_one_registers_again)
{
    struct image *image = new_image();
    for (int64_t epoch = 1; epoch <= 2; epoch++) {
        for (int again = 0; again < 2; again++) {
            struct image_broker *brokers = calloc(2, sizeof *brokers);
            brokers[0] = broker(7, epoch);
            brokers[1] = broker(3, 1);
            image_set_brokers(image, brokers, 2);
            ck_assert_int_eq(image_take_brokers_changed(image), !again);
        }
        ck_assert_int_eq(image_alive(image)->brokers[0].broker_id, 3);
        ck_assert_int_eq(controller_find_broker(image_alive(image), 7)->broker_epoch, epoch);
    }
    image_free(image);
}
END_TEST

/* A model beside it: a sorted set of names. */
START_TEST(order_and_lookup_hold_under_random_changes)
{
    uint64_t seed = suite_seed();
    struct image *image = new_image();
    bool is_there[64] = {false};
    char name[16];
    for (int round = 0; round < 20000; round++) {
        uint64_t i = suite_random_below(&seed, 64);
        snprintf(name, sizeof name, "t%02u", (unsigned)i);
        if (suite_random_below(&seed, 2))
            put(image, name, (uint8_t)(i + 1), 1);
        else
            image_remove_topic(image, name);
        is_there[i] = image_find(image, name) != NULL;
        if (round % 97)
            continue;
        size_t at = 0;
        for (uint64_t k = 0; k < 64; k++) {
            snprintf(name, sizeof name, "t%02u", (unsigned)k);
            ck_assert_int_eq(image_find(image, name) != NULL, is_there[k]);
            if (is_there[k])
                ck_assert_str_eq(image_topic_at(image, at++)->name, name);
        }
        ck_assert_uint_eq(at, image_topics_count(image));
        count_gone(image);
        count_changed(image);
    }
    image_free(image);
}
END_TEST

SUITE_MAIN("unit/cluster/image", SUITE_TEST(only_what_differs_counts_as_a_change),
           SUITE_TEST(only_a_topic_that_was_made_fsync_is_one_in_elections),
           SUITE_TEST(topic_with_another_id_is_another_topic),
           SUITE_TEST(full_read_removes_what_it_did_not_see),
           SUITE_TEST(deletion_intents_mark_topics_that_are_there_or_come_later),
           SUITE_TEST(brokers_change_when_one_registers_again),
           SUITE_TEST(order_and_lookup_hold_under_random_changes))
