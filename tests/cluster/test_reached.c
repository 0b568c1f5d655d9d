/* The leader epoch that a log has reached decides which log leads, when nobody counts, and it is kept over a stop: a leader
 * that wrote nothing at its epoch has committed all of its log, and a stale replica has a record of a newer epoch than any in
 * it. Real brokers; what a power cut, or another disk, would leave is arranged in their directories. */
#include "tests/cluster/replicated.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void remove_file(struct replicated *r, int id, const char *name)
{
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", brokers_data_directory(r->b, id), name);
    ck_assert_msg(unlink(path) == 0 || access(path, F_OK) != 0, "%s", path);
}

static bool has_file(struct replicated *r, int id, const char *name)
{
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", brokers_data_directory(r->b, id), name);
    return access(path, F_OK) == 0;
}

static uint32_t read_u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* As if the broker, stopped now, had led at `epoch` and nobody had followed: its last batch is of that epoch (which no
 * checksum covers). Its files beside the log know nothing of it. */
static void age_last_batch(struct replicated *r, int id, uint8_t epoch)
{
    char path[2 * PATH_MAX];
    uint8_t head[16];
    const char *directory = replicated_directory(r, id, "t", 0);
    snprintf(path, sizeof path, "%s/00000000000000000000.log", directory);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    off_t at = 0, last = -1;
    while (pread(fd, head, sizeof head, at) == (ssize_t)sizeof head) {
        last = at;
        at += 12 + (off_t)read_u32(head + 8);
    }
    ck_assert_int_gt(last, 0);
    const uint8_t field[4] = {0, 0, 0, epoch};
    ck_assert_int_eq(pwrite(fd, field, sizeof field, last + 12), (ssize_t)sizeof field);
    close(fd);
    snprintf(path, sizeof path, "%s/leader-epoch-checkpoint", directory);
    unlink(path);
    remove_file(r, id, "recovery-point-offset-checkpoint");
    remove_file(r, id, ".brook_registered");
}

static void end_process(struct replicated *r, int id, bool is_clean)
{
    if (is_clean)
        ck_assert_int_eq(brokers_stop(r->b, id, 15000), 0);
    else
        brokers_kill(r->b, id);
}

struct epoch_wait {
    struct replicated *r;
    int32_t leader, above;
};

static bool leads_above(void *arg)
{
    struct epoch_wait *w = arg;
    struct znode_state state;
    return replicated_state(w->r, "t", 0, &state, NULL) && state.leader == w->leader && state.leader_epoch > w->above;
}

static int32_t wait_newer_epoch(struct replicated *r, int32_t leader, int32_t above)
{
    struct epoch_wait w = {r, leader, above};
    struct znode_state state;
    ck_assert(replicated_wait(r, leads_above, &w, REPLICATED_WAIT_MS));
    ck_assert(replicated_state(r, "t", 0, &state, NULL));
    return state.leader_epoch;
}

static bool has_end(void *arg)
{
    struct replicated *r = arg;
    struct brook_error error;
    struct brook_position end = {"t", 0, BROOK_OFFSET_LATEST};
    return brook_admin_list_offsets(r->admin, &end, NULL, 1, 1000, &error) == 0 && end.offset == r->sent;
}

/* `setting`: of the topic. `is_clean`: how the last in sync stops, each time. */
static void last_in_sync_is_known_by_what_it_has_reached(const char *setting, bool is_clean)
{
    struct replicated *r = replicated_begin(2, NULL);
    char alone[16];
    replicated_topic(r, "t", 1, 2, setting);
    for (int i = 0; i < 4; i++) { /* several batches */
        replicated_send(r, 50);
        replicated_flush(r);
    }
    int32_t leader = replicated_leader(r, "t", 0), stale = 3 - leader, epoch = 0;
    snprintf(alone, sizeof alone, "%d", leader);
    brokers_kill(r->b, stale);
    replicated_wait_isr(r, alone);
    replicated_send(r, 1000);
    replicated_flush(r);
    for (int i = 0; i < 2; i++) { /* two epochs, and nothing is written at them */
        end_process(r, leader, is_clean);
        brokers_restart(r->b, leader);
        epoch = wait_newer_epoch(r, leader, epoch);
        ck_assert(replicated_wait(r, has_end, r, REPLICATED_WAIT_MS)); /* what is there is committed at it */
    }
    end_process(r, leader, is_clean);
    ck_assert(has_file(r, leader, "reached-epoch-checkpoint"));
    age_last_batch(r, stale, 1);
    remove_file(r, leader, ".kafka_cleanshutdown"); /* it counts no more, nor does its disk */
    remove_file(r, leader, ".brook_registered");
    brokers_restart(r->b, stale);
    brokers_restart(r->b, leader);
    wait_newer_epoch(r, leader, epoch); /* and the other cuts what nobody else has */
    replicated_wait_isr(r, "12");
    int said = replicated_count_said(r, 1, "longest log") + replicated_count_said(r, 2, "longest log");
    if (!said)
        replicated_show(r);
    ck_assert_int_gt(said, 0);
    replicated_send(r, 100);
    replicated_flush(r);
    replicated_check(r);
    replicated_end(r);
}

START_TEST(an_epoch_that_was_led_is_kept_over_a_kill_where_disks_count)
{
    last_in_sync_is_known_by_what_it_has_reached("durability=fsync", false);
}
END_TEST

START_TEST(an_epoch_that_was_led_is_kept_over_a_clean_stop)
{
    last_in_sync_is_known_by_what_it_has_reached(NULL, true);
}
END_TEST

/* Whether both brokers' files say that t/0 has reached the epoch of its state. */
static bool both_keep_it(void *arg)
{
    struct replicated *r = arg;
    struct znode_state state;
    char path[2 * PATH_MAX], wanted[32], line[64];
    if (!replicated_state(r, "t", 0, &state, NULL) || state.leader < 0)
        return false;
    snprintf(wanted, sizeof wanted, "t 0 %d\n", state.leader_epoch);
    int count = 0;
    for (int id = 1; id <= 2; id++) {
        snprintf(path, sizeof path, "%s/reached-epoch-checkpoint", brokers_data_directory(r->b, id));
        FILE *f = fopen(path, "re");
        while (f && fgets(line, sizeof line, f))
            count += strcmp(line, wanted) == 0;
        if (f)
            fclose(f);
    }
    return count == 2;
}

/* A follower keeps it as well, though nothing is written at the epoch; and both do before it is acknowledged there. */
START_TEST(leader_and_follower_keep_it_where_disks_count)
{
    struct replicated *r = replicated_begin(2, NULL);
    replicated_topic(r, "t", 1, 2, "durability=fsync");
    replicated_send(r, 50);
    replicated_flush(r);
    ck_assert(replicated_wait(r, both_keep_it, r, REPLICATED_WAIT_MS)); /* a record of the epoch does as well */
    int32_t leader = replicated_leader(r, "t", 0);
    brokers_kill(r->b, leader);
    char other[16];
    snprintf(other, sizeof other, "%d", replicated_wait_other_leader(r, "t", 0, leader));
    replicated_wait_isr(r, other);
    brokers_restart(r->b, leader);
    replicated_wait_isr(r, "12");
    ck_assert(both_keep_it(r)); /* who is in sync at an epoch has it on its disk */
    replicated_check(r);
    replicated_end(r);
}
END_TEST

START_TEST(nothing_is_written_for_topics_whose_disks_do_not_count)
{
    struct replicated *r = replicated_begin(2, NULL);
    replicated_topic(r, "t", 1, 2, NULL);
    replicated_send(r, 50);
    replicated_flush(r);
    for (int id = 1; id <= 2; id++)
        ck_assert(!has_file(r, id, "reached-epoch-checkpoint")); /* the first checkpoints are a minute away */
    replicated_check(r);
    replicated_end(r);
}
END_TEST

SUITE_MAIN("cluster/reached", SUITE_TEST_SLOW(an_epoch_that_was_led_is_kept_over_a_kill_where_disks_count, 120),
           SUITE_TEST_SLOW(an_epoch_that_was_led_is_kept_over_a_clean_stop, 120),
           SUITE_TEST_SLOW(leader_and_follower_keep_it_where_disks_count, 120),
           SUITE_TEST_SLOW(nothing_is_written_for_topics_whose_disks_do_not_count, 60))
