/* Producer ids: unique, whatever becomes of the writes that take their blocks; against a scripted ZooKeeper. */
#include "coordination/paths.h"
#include "coordination/producer_ids.h"
#include "tests/support/caller.h"
#include "tests/support/fake_zookeeper.h"
#include "tests/support/suite.h"

#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 600
#define TAKEN_MAX 4000

static struct fake_zookeeper *fake;
static struct caller k;
static struct coordinator *c;
static struct producer_ids *ids;
static int64_t taken[TAKEN_MAX];
static size_t taken_count, answers, wanted;
static int last_err;

static void begin(void)
{
    fake = fake_zookeeper_start();
    caller_init(&k);
    c = caller_connect(&k, fake_zookeeper_connect(fake, ""), TIMEOUT_MS, NULL);
    ck_assert_int_eq(producer_ids_new(c, &k.inbox, 3, &ids), 0);
    taken_count = answers = wanted = 0;
}

static void end(void)
{
    coordinator_free(c, false, 3000);
    inbox_drain(&k.inbox);
    producer_ids_free(ids);
    caller_done(&k);
    fake_zookeeper_stop(fake);
}

static void note(void *arg, int err, int64_t id)
{
    answers++;
    last_err = err;
    if (err == 0)
        taken[taken_count++] = id;
}

static bool is_answered(void *arg)
{
    return answers >= wanted;
}

static void take(size_t count)
{
    wanted = answers + count;
    for (size_t i = 0; i < count; i++)
        producer_ids_take(ids, note, NULL);
    ck_assert(caller_wait(&k, is_answered, NULL, 10000));
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void check_unique(void)
{
    qsort(taken, taken_count, sizeof taken[0], compare);
    for (size_t i = 1; i < taken_count; i++)
        ck_assert_int_gt(taken[i], taken[i - 1]);
}

static void check_node(const char *expected)
{
    coordinator_get(c, PATH_PRODUCER_ID_BLOCK, caller_begin(&k));
    const struct got *got = caller_end(&k);
    ck_assert_int_eq(got->err, 0);
    ck_assert_str_eq(got->data, expected);
}

START_TEST(ids_come_from_blocks_and_the_next_block_before_the_last_is_gone)
{
    begin();
    take(PRODUCER_IDS_PER_BLOCK - PRODUCER_IDS_LOW - 1);
    ck_assert_int_eq(taken[0], 0);
    check_node("{\"version\":1,\"broker\":3,\"block_start\":\"0\",\"block_end\":\"999\"}");
    take(1);
    caller_idle(&k, 100);
    check_node("{\"version\":1,\"broker\":3,\"block_start\":\"1000\",\"block_end\":\"1999\"}");
    /* Without ZooKeeper as many as are left. */
    fake_zookeeper_script(fake, (struct fake_rule){.op = FAKE_SYNC, .answer = FAKE_STALL, .times = 1});
    take(PRODUCER_IDS_LOW + PRODUCER_IDS_PER_BLOCK);
    ck_assert_uint_eq(taken_count, 2 * PRODUCER_IDS_PER_BLOCK);
    check_unique();
    ck_assert_int_eq(taken[taken_count - 1], 2 * PRODUCER_IDS_PER_BLOCK - 1);
    end();
}
END_TEST

static bool is_taken(void *arg)
{
    return fake_zookeeper_version(fake, PATH_PRODUCER_ID_BLOCK) >= *(const int *)arg;
}

static void wait_version(int version)
{
    ck_assert(caller_wait(&k, is_taken, &version, 10000));
}

START_TEST(a_block_is_there_before_the_first_question_and_only_one)
{
    begin();
    producer_ids_prepare(ids);
    producer_ids_prepare(ids); /* on its way already */
    wait_version(0);
    check_node("{\"version\":1,\"broker\":3,\"block_start\":\"0\",\"block_end\":\"999\"}");
    producer_ids_prepare(ids); /* a registration later */
    check_node("{\"version\":1,\"broker\":3,\"block_start\":\"0\",\"block_end\":\"999\"}");
    ck_assert_uint_eq(fake_zookeeper_count(fake, FAKE_GET), 3); /* one, and those of the two checks */
    fake_zookeeper_script(fake, (struct fake_rule){.op = FAKE_SYNC, .answer = FAKE_STALL, .times = 100});
    for (int i = 0; i < PRODUCER_IDS_PER_BLOCK; i++)
        producer_ids_take(ids, note, NULL);
    ck_assert_uint_eq(taken_count, PRODUCER_IDS_PER_BLOCK); /* nobody waited for anything */
    check_unique();
    take(1);
    ck_assert_int_eq(last_err, -BROOK_E_COORDINATION_LOST);
    end();
}
END_TEST

START_TEST(who_asks_while_the_first_block_is_on_its_way_gets_of_it)
{
    begin();
    producer_ids_prepare(ids);
    take(1);
    ck_assert_int_eq(taken[0], 0);
    ck_assert_uint_eq(fake_zookeeper_count(fake, FAKE_GET), 1);
    check_node("{\"version\":1,\"broker\":3,\"block_start\":\"0\",\"block_end\":\"999\"}");
    end();
}
END_TEST

static bool is_read(void *arg)
{
    return fake_zookeeper_count(fake, FAKE_GET) >= *(const unsigned *)arg;
}

START_TEST(next_block_that_could_not_be_taken_is_taken_later)
{
    begin();
    producer_ids_prepare(ids);
    take(PRODUCER_IDS_PER_BLOCK - PRODUCER_IDS_LOW - 1);
    fake_zookeeper_put(fake, PATH_PRODUCER_ID_BLOCK, "nonsense");
    unsigned reads = fake_zookeeper_count(fake, FAKE_GET) + 1;
    take(1);
    ck_assert(caller_wait(&k, is_read, &reads, 10000));
    check_node("nonsense"); /* its answer comes behind the one that could not be read */
    fake_zookeeper_put(fake, PATH_PRODUCER_ID_BLOCK,
                       "{\"version\":1,\"broker\":9,\"block_start\":\"5000\",\"block_end\":\"5999\"}");
    int version = fake_zookeeper_version(fake, PATH_PRODUCER_ID_BLOCK);
    producer_ids_prepare(ids);
    wait_version(version + 1);
    check_node("{\"version\":1,\"broker\":3,\"block_start\":\"6000\",\"block_end\":\"6999\"}");
    take(PRODUCER_IDS_LOW + 1);
    ck_assert_int_eq(taken[taken_count - 2], 999);
    ck_assert_int_eq(taken[taken_count - 1], 6000);
    end();
}
END_TEST

START_TEST(block_whose_write_has_an_unknown_outcome_is_nobodys)
{
    static const enum fake_answer losses[] = {FAKE_CLOSE, FAKE_STALL, FAKE_EXPIRE};
    for (size_t l = 0; l < 3; l++)
        for (int apply = 0; apply < 2; apply++) {
            begin();
            fake_zookeeper_put(fake, PATH_PRODUCER_ID_BLOCK,
                               "{\"version\":1,\"broker\":9,\"block_start\":\"5000\",\"block_end\":\"5999\"}");
            fake_zookeeper_script(fake,
                                  (struct fake_rule){.op = FAKE_SET, .apply = apply, .answer = losses[l]});
            take(1);
            ck_assert_int_eq(last_err, 0);
            ck_assert_int_eq(taken[0], apply ? 7000 : 6000);
            end();
        }
}
END_TEST

START_TEST(block_that_another_broker_took_first_is_not_used)
{
    begin();
    fake_zookeeper_put(fake, PATH_PRODUCER_ID_BLOCK,
                       "{\"version\":1,\"broker\":9,\"block_start\":\"0\",\"block_end\":\"999\"}");
    struct producer_ids *other;
    ck_assert_int_eq(producer_ids_new(c, &k.inbox, 4, &other), 0);
    wanted = 2;
    producer_ids_take(ids, note, NULL);
    producer_ids_take(other, note, NULL); /* both read the same version */
    ck_assert(caller_wait(&k, is_answered, NULL, 10000));
    ck_assert_uint_eq(taken_count, 2);
    check_unique();
    ck_assert_int_eq(taken[0], 1000);
    ck_assert_int_eq(taken[1], 2000);
    producer_ids_free(other);
    end();
}
END_TEST

START_TEST(node_that_makes_no_sense_is_an_error_and_so_is_the_end_of_all_numbers)
{
    begin();
    fake_zookeeper_put(fake, PATH_PRODUCER_ID_BLOCK, "nonsense");
    take(2);
    ck_assert_int_eq(last_err, -BROOK_E_BAD_ZNODE);
    fake_zookeeper_put(fake, PATH_PRODUCER_ID_BLOCK,
                       "{\"version\":1,\"broker\":9,\"block_start\":\"0\",\"block_end\":\"9223372036854775807\"}");
    take(1);
    ck_assert_int_eq(last_err, -BROOK_E_BAD_ZNODE);
    ck_assert_uint_eq(taken_count, 0);
    fake_zookeeper_put(fake, PATH_PRODUCER_ID_BLOCK,
                       "{\"version\":1,\"broker\":9,\"block_start\":\"0\",\"block_end\":\"9\"}");
    take(1);
    ck_assert_int_eq(last_err, 0);
    ck_assert_int_eq(taken[0], 10);
    end();
}
END_TEST

SUITE_MAIN("coordination/producer_ids",
           SUITE_TEST(ids_come_from_blocks_and_the_next_block_before_the_last_is_gone),
           SUITE_TEST_SLOW(a_block_is_there_before_the_first_question_and_only_one, 60),
           SUITE_TEST(who_asks_while_the_first_block_is_on_its_way_gets_of_it),
           SUITE_TEST(next_block_that_could_not_be_taken_is_taken_later),
           SUITE_TEST_SLOW(block_whose_write_has_an_unknown_outcome_is_nobodys, 60),
           SUITE_TEST(block_that_another_broker_took_first_is_not_used),
           SUITE_TEST(node_that_makes_no_sense_is_an_error_and_so_is_the_end_of_all_numbers))
