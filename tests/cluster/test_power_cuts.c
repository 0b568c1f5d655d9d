/* Power cuts of real brokers: each data directory is a file system of its own that is shut down as it is
 * (power_disk.h), so no page cache survives. What durability=fsync promises when the power of all goes at once, and
 * what durability=replicated does as long as one in sync keeps running. */
#include "tests/cluster/replicated.h"
#include "tests/support/power_disk.h"

#include "proto/base/clock.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BROKERS 3
#define ROUNDS 3

static const struct brokers_options with_power_disks = {.has_power_disks = true};
static const int all[BROKERS] = {1, 2, 3};

/* ---- files ---------------------------------------------------------------------------------------------- */

/* Bytes in the segment files of a broker's partition. */
static int64_t log_bytes(struct replicated *r, int id, const char *topic, int32_t partition)
{
    char path[2 * PATH_MAX];
    struct stat st;
    int64_t bytes = 0;
    const char *directory = replicated_directory(r, id, topic, partition);
    DIR *dir = opendir(directory);
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        size_t n = strlen(e->d_name);
        snprintf(path, sizeof path, "%s/%s", directory, e->d_name);
        if (n == 24 && strcmp(e->d_name + 20, ".log") == 0 && stat(path, &st) == 0)
            bytes += st.st_size;
    }
    if (dir)
        closedir(dir);
    return bytes;
}

static int64_t log_bytes_of_all(struct replicated *r, const char *topic)
{
    int64_t bytes = 0;
    for (int id = 1; id <= BROKERS; id++)
        for (int32_t p = 0; p < r->partitions; p++)
            bytes += log_bytes(r, id, topic, p);
    return bytes;
}

/* ---- cuts ----------------------------------------------------------------------------------------------- */

struct goal {
    struct replicated *r;
    int64_t stored;
};

static bool has_stored(void *arg)
{
    struct goal *g = arg;
    return g->r->stored >= g->stored;
}

/* Records are on their way, some of them acknowledged, when this returns. */
static void send_until_some_are_stored(struct replicated *r, int64_t count, int64_t wanted)
{
    struct goal g = {r, r->stored + wanted};
    replicated_send(r, count);
    ck_assert(replicated_wait(r, has_stored, &g, REPLICATED_WAIT_MS));
}

static void restart_all(struct replicated *r, const int *ids, int count)
{
    for (int i = 0; i < count; i++)
        brokers_restart(r->b, ids[i]);
}

START_TEST(of_an_fsync_topic_nothing_is_lost_when_the_power_of_all_goes)
{
    struct replicated *r = replicated_begin(BROKERS, &with_power_disks);
    uint64_t seed = suite_seed();
    replicated_topic(r, "t", 3, BROKERS, "durability=fsync");
    replicated_send(r, 30);
    replicated_flush(r);
    for (int round = 0; round < ROUNDS; round++) {
        /* The first time directories and segments are new, and each has but a few records. */
        if (round)
            send_until_some_are_stored(r, 4000, (int64_t)suite_random_below(&seed, 3000));
        brokers_cut_power(r->b, all, BROKERS);
        restart_all(r, all, BROKERS);
        replicated_send(r, 100);
        replicated_flush(r);
        replicated_wait_isr(r, "123");
    }
    replicated_check(r);
    replicated_end(r);
}
END_TEST

START_TEST(of_a_replicated_topic_nothing_is_lost_while_one_in_sync_keeps_running)
{
    struct replicated *r = replicated_begin(BROKERS, &with_power_disks);
    uint64_t seed = suite_seed();
    replicated_topic(r, "t", 3, BROKERS, NULL);
    for (int spared = 1; spared <= BROKERS; spared++) {
        const int cut[] = {spared % 3 + 1, (spared + 1) % 3 + 1};
        send_until_some_are_stored(r, 4000, 1000 + (int64_t)suite_random_below(&seed, 2000));
        brokers_cut_power(r->b, cut, 2);
        restart_all(r, cut, 2);
        replicated_send(r, 100);
        replicated_flush(r);
        replicated_wait_isr(r, "123");
    }
    replicated_check(r);
    replicated_end(r);
}
END_TEST

/* It comes back before its session is over, and must not be taken for the one that had it all. */
START_TEST(a_leader_that_lost_its_tail_and_is_back_at_once_is_not_believed)
{
    const struct brokers_options options = {.session_timeout_ms = 6000, .has_power_disks = true};
    struct replicated *r = replicated_begin(BROKERS, &options);
    replicated_topic(r, "t", 1, BROKERS, NULL);
    for (int round = 0; round < BROKERS; round++) {
        replicated_send(r, 2000);
        replicated_flush(r);
        int id = replicated_leader(r, "t", 0);
        int64_t before = log_bytes(r, id, "t", 0);
        brokers_cut_power(r->b, &id, 1);
        ck_assert_int_lt(log_bytes(r, id, "t", 0), before);
        brokers_restart(r->b, id);
        replicated_send(r, 100);
        replicated_flush(r);
        replicated_wait_isr(r, "123");
    }
    replicated_check(r);
    replicated_end(r);
}
END_TEST

/* That the tests above can fail: a kill takes nothing, a cut does. */
START_TEST(what_a_cut_takes_is_what_was_not_synced)
{
    struct replicated *r = replicated_begin(BROKERS, &with_power_disks);
    replicated_topic(r, "t", 3, BROKERS, NULL);
    replicated_send(r, 3000);
    replicated_flush(r);
    int64_t before = log_bytes_of_all(r, "t");
    for (int id = 1; id <= BROKERS; id++)
        brokers_kill(r->b, id);
    ck_assert_int_eq(log_bytes_of_all(r, "t"), before); /* a killed process loses nothing */
    brokers_cut_power(r->b, all, BROKERS);
    ck_assert_int_lt(log_bytes_of_all(r, "t"), before);
    restart_all(r, all, BROKERS);
    replicated_wait_isr(r, "123"); /* its promise is void, and it goes on */
    r->stored = r->sent = 0;
    replicated_send(r, 100);
    replicated_flush(r);
    replicated_end(r);
}
END_TEST

int main(void)
{
    const char *why = power_disks_begin(suite_directory());
    if (why) {
        printf("1..0 # SKIP %s\n", why);
        return 0;
    }
    const struct suite_test tests[] = {
        SUITE_TEST_SLOW(of_an_fsync_topic_nothing_is_lost_when_the_power_of_all_goes, 120),
        SUITE_TEST_SLOW(of_a_replicated_topic_nothing_is_lost_while_one_in_sync_keeps_running, 120),
        SUITE_TEST_SLOW(a_leader_that_lost_its_tail_and_is_back_at_once_is_not_believed, 90),
        SUITE_TEST_SLOW(what_a_cut_takes_is_what_was_not_synced, 60)};
    return suite_run("cluster/power_cuts", tests, sizeof tests / sizeof tests[0]);
}
