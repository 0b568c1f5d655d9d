/* The main job, end to end, with real brokers: records in, a group out, members that come, go and die. */
#include "tests/support/brokers.h"
#include "tests/support/suite.h"

#include "proto/base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SESSION_MS 2000
#define TICK_MS 200

static const char *const member_settings[] = {"session.timeout.ms=2000", "auto.commit.interval.ms=100", NULL};

/* ---- producing ---------------------------------------------------------------------------------------------- */

static void count_report(void *arg, const struct brook_report *report)
{
    int64_t *stored = arg;
    ck_assert_msg(report->outcome == BROOK_STORED, "%s", report->error.text);
    ++*stored;
}

/* Records "first" ... "first + count - 1", number n into partition n % partitions (or -1: any). */
static void produce_numbers(struct brokers *b, const char *topic, int64_t first, int64_t count, int32_t partitions)
{
    brook_config *config = brokers_config(b);
    brook_producer *producer;
    struct brook_error error = {0};
    int64_t stored = 0;
    ck_assert_msg(brook_producer_new(config, &producer, &error) == 0, "%s", error.text);
    brook_producer_on_report(producer, count_report, &stored);
    for (int64_t i = first; i < first + count; i++) {
        char text[32];
        struct brook_record r = {.topic = topic, .partition = partitions > 0 ? (int32_t)(i % partitions) : -1, .value = text};
        r.value_bytes = (size_t)snprintf(text, sizeof text, "%lld", (long long)i);
        ck_assert_msg(brook_producer_send(producer, &r, BROOK_SEND_WAIT, &error) == 0, "%s", error.text);
    }
    ck_assert_int_eq(brook_producer_flush(producer, 20000), 0);
    ck_assert_int_eq(brook_producer_close(producer, 1000), 0);
    ck_assert_int_eq(stored, count);
    brook_config_free(config);
}

/* ---- what the members printed ---------------------------------------------------------------------------------- */

struct seen {
    int64_t count;      /* lines */
    int64_t duplicates; /* lines whose number was printed before, by any member */
    int64_t missing;    /* numbers below `numbers` that nobody printed */
    bool in_order;      /* per member and partition, offsets rose */
};

static struct seen collect(const struct member *members, int count, int64_t numbers)
{
    struct seen s = {.in_order = true};
    uint8_t *times = calloc((size_t)numbers + 1, 1);
    ck_assert_ptr_nonnull(times);
    for (int i = 0; i < count; i++) {
        int64_t last[64];
        memset(last, 0xff, sizeof last);
        FILE *f = fopen(members[i].output, "re");
        int partition;
        long long offset, number;
        while (f && fscanf(f, "%d %lld %lld", &partition, &offset, &number) == 3) {
            ck_assert(number >= 0 && number < numbers && partition >= 0 && partition < 64);
            s.in_order = s.in_order && offset > last[partition];
            last[partition] = offset;
            s.duplicates += times[number] > 0;
            times[number] = 1;
            s.count++;
        }
        if (f)
            fclose(f);
    }
    for (int64_t i = 0; i < numbers; i++)
        s.missing += !times[i];
    free(times);
    return s;
}

struct lines {
    const struct member *members;
    int count;
    int64_t wanted;
};

static bool has_lines(void *arg)
{
    const struct lines *l = arg;
    int64_t sum = 0;
    for (int i = 0; i < l->count; i++)
        sum += member_lines(&l->members[i]);
    return sum >= l->wanted;
}

static void wait_lines(const struct member *members, int count, int64_t wanted, int timeout_ms)
{
    struct lines l = {members, count, wanted};
    bool fine = suite_wait(has_lines, &l, timeout_ms);
    if (!fine)
        for (int i = 0; i < count; i++) {
            char command[300];
            snprintf(command, sizeof command, "tail -n 20 %s >&2", members[i].talk);
            fprintf(stderr, "# member %d: %lld lines\n", i, (long long)member_lines(&members[i]));
            if (system(command) != 0)
                fprintf(stderr, "# no talk\n");
        }
    ck_assert_msg(fine, "the members did not print %lld lines", (long long)wanted);
}

/* ---- groups as the cluster sees them ------------------------------------------------------------------------------ */

struct ownership {
    brook_admin *admin;
    const char *group;
    size_t partitions; /* that must have an owner, equal to the assigned member */
    size_t owners;     /* by so many members */
    bool committed;    /* and every stored offset is at the end */
};

static bool is_owned(void *arg)
{
    const struct ownership *o = arg;
    struct brook_group *g;
    if (brook_admin_describe_group(o->admin, o->group, 2000, &g, NULL) < 0)
        return false;
    const char *owners[64];
    size_t owners_count = 0, owned = 0;
    bool committed = true;
    for (size_t i = 0; i < g->partitions_count; i++) {
        const struct brook_group_partition *p = &g->partitions[i];
        committed = committed && p->offset == p->end;
        if (!p->owner || !p->assigned || strcmp(p->owner, p->assigned) != 0)
            continue;
        owned++;
        size_t k = 0;
        while (k < owners_count && strcmp(owners[k], p->owner) != 0)
            k++;
        if (k == owners_count)
            owners[owners_count++] = p->owner;
    }
    bool fine = owned == o->partitions && owners_count == o->owners && (!o->committed || committed);
    brook_group_free(g);
    return fine;
}

static void wait_owned(brook_admin *admin, const char *group, size_t partitions, size_t owners, bool committed,
                       int timeout_ms)
{
    struct ownership o = {admin, group, partitions, owners, committed};
    int64_t until = clock_boot_ms() + timeout_ms;
    while (!is_owned(&o))
        ck_assert_msg(clock_boot_ms() < until, "the group did not settle on %zu owners of %zu partitions", owners,
                      partitions);
}

static brook_admin *admin_of(struct brokers *b)
{
    brook_config *config = brokers_config(b);
    brook_admin *admin;
    struct brook_error error = {0};
    ck_assert_msg(brook_admin_new(config, &admin, &error) == 0, "%s", error.text);
    brook_config_free(config);
    return admin;
}

/* ---- tests ------------------------------------------------------------------------------------------------------------ */

/* Lines that are hard: empty, of 1 MiB, with every byte, and no final newline: through the command, bytes unchanged. */
START_TEST(every_line_comes_back_once_with_its_bytes_unchanged)
{
    struct brokers *b = brokers_start(3, NULL);
    brokers_create_topic(b, "lines", 6);
    char script[8192];
    snprintf(script, sizeof script,
             "set -e; cd '%s'; export BROOK_ZOOKEEPER=%s; brook=\"$top_builddir/client/cli/brook\"\n"
             "{ for i in $(seq 3000); do echo \"line $i\"; echo; done; head -c 1048576 /dev/zero | tr '\\0' x; echo\n"
             "  head -c 700000 /dev/urandom; echo; head -c 1048575 /dev/urandom | tr '\\n' ' '; echo; printf 'no newline'; } >in\n"
             "\"$brook\" produce lines --file in --quiet\n"
             "\"$brook\" consume lines --group g --until-end >out\n"
             "{ cat in; echo; } | LC_ALL=C sort >in.sorted; LC_ALL=C sort out >out.sorted; cmp in.sorted out.sorted\n"
             /* per partition in order: one partition keeps the file as it is */
             "\"$brook\" produce lines --file in --partition 2 --quiet -c zstd\n"
             "\"$brook\" consume lines --partition 2 --until-end | tail -c \"$(( $(wc -c <in) + 1 ))\" >one; { cat in; echo; } | cmp - one\n"
             /* nothing is left for the group but what came since */
             "\"$brook\" consume lines --group g --until-end | wc -l >again; test \"$(cat again)\" = \"$(( $(wc -l <in) + 1 ))\"\n",
             suite_directory(), brokers_connect(b));
    ck_assert_int_eq(system(script), 0);
    brokers_free(b);
}
END_TEST

START_TEST(a_killed_members_partitions_are_read_on_in_time_from_the_last_commit)
{
    struct brokers *b = brokers_start(3, NULL);
    brook_admin *admin = admin_of(b);
    struct member m[2];
    brokers_create_topic(b, "t", 6);
    member_start(b, &m[0], "m0", "g", "t", member_settings);
    member_start(b, &m[1], "m1", "g", "t", member_settings);
    wait_owned(admin, "g", 6, 2, false, 10000);
    produce_numbers(b, "t", 0, 6000, 6);
    wait_lines(m, 2, 6000, 10000);
    wait_owned(admin, "g", 6, 2, true, 5000);

    int64_t before = member_lines(&m[1]);
    member_kill(&m[0]);
    int64_t killed = clock_boot_ms();
    /* One record in each partition: the last of the dead member's shows when its partitions are read again. */
    produce_numbers(b, "t", 6000, 6, 6);
    struct lines l = {&m[1], 1, before + 6};
    while (!has_lines(&l))
        ck_assert_msg(clock_boot_ms() - killed < 30000, "nobody took over");
    int64_t took = clock_boot_ms() - killed;
    fprintf(stderr, "# taken over after %lld ms\n", (long long)took);
#ifndef BROOK_SANITIZED
    ck_assert_msg(took < SESSION_MS + TICK_MS + 1000, "taken over after %lld ms", (long long)took);
#endif
    ck_assert_int_eq(member_stop(&m[1], 10000), 0);
    struct seen s = collect(m, 2, 6006);
    ck_assert_int_eq(s.missing, 0);
    ck_assert_int_eq(s.duplicates, 0);
    ck_assert(s.in_order);
    brook_admin_free(admin);
    brokers_free(b);
}
END_TEST

START_TEST(joins_and_polite_leaves_take_under_a_second_and_repeat_nothing)
{
    struct brokers *b = brokers_start(3, NULL);
    brook_admin *admin = admin_of(b);
    struct member m[3];
    brokers_create_topic(b, "t", 6);
    member_start(b, &m[0], "m0", "g", "t", member_settings);
    wait_owned(admin, "g", 6, 1, false, 10000);
    produce_numbers(b, "t", 0, 3000, 6);
    wait_lines(m, 1, 3000, 10000);
    for (int joining = 1; joining < 3; joining++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", joining);
        member_start(b, &m[joining], name, "g", "t", member_settings);
        wait_owned(admin, "g", 6, (size_t)joining + 1, false, 10000);
        produce_numbers(b, "t", 3000 * joining, 3000, 6);
        wait_lines(m, joining + 1, 3000 * (joining + 1), 10000);
    }
    kill(m[1].pid, SIGTERM);
    int64_t left = clock_boot_ms();
    wait_owned(admin, "g", 6, 2, false, 10000);
    int64_t took = clock_boot_ms() - left;
    fprintf(stderr, "# settled %lld ms after a polite leave\n", (long long)took);
#ifndef BROOK_SANITIZED
    ck_assert_msg(took < 1000, "settled after %lld ms", (long long)took);
#endif
    produce_numbers(b, "t", 9000, 3000, 6);
    wait_lines(m, 3, 12000, 10000);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(member_stop(&m[i], 10000), 0);
    struct seen s = collect(m, 3, 12000);
    ck_assert_int_eq(s.missing, 0);
    ck_assert_int_eq(s.duplicates, 0);
    ck_assert(s.in_order);
    brook_admin_free(admin);
    brokers_free(b);
}
END_TEST

START_TEST(a_member_stopped_past_its_session_delivers_nothing_more_of_what_it_lost)
{
    struct brokers *b = brokers_start(3, NULL);
    brook_admin *admin = admin_of(b);
    struct member m[2];
    brokers_create_topic(b, "t", 6);
    member_start(b, &m[0], "m0", "g", "t", member_settings);
    member_start(b, &m[1], "m1", "g", "t", member_settings);
    wait_owned(admin, "g", 6, 2, false, 10000);
    produce_numbers(b, "t", 0, 6000, 6);
    wait_lines(m, 2, 6000, 10000);
    wait_owned(admin, "g", 6, 2, true, 5000);

    kill(m[0].pid, SIGSTOP);
    int64_t lines = member_lines(&m[0]);
    produce_numbers(b, "t", 6000, 6000, 6);
    wait_owned(admin, "g", 6, 1, false, 20000);
    wait_lines(m, 2, 12000, 10000);
    kill(m[0].pid, SIGCONT);
    /* It rejoins; what it prints from then on are new records of partitions that it owns again. */
    wait_owned(admin, "g", 6, 2, true, 20000);
    ck_assert_int_eq(member_lines(&m[0]), lines);
    produce_numbers(b, "t", 12000, 6000, 6);
    wait_lines(m, 2, 18000, 10000);
    ck_assert_int_eq(member_stop(&m[0], 10000), 0);
    ck_assert_int_eq(member_stop(&m[1], 10000), 0);
    struct seen s = collect(m, 2, 18000);
    ck_assert_int_eq(s.missing, 0);
    ck_assert_int_eq(s.duplicates, 0);
    brook_admin_free(admin);
    brokers_free(b);
}
END_TEST

/* Kills at any moment: nothing is ever skipped, and what is read twice lies behind the last commit. */
START_TEST(members_killed_at_random_skip_nothing)
{
    struct brokers *b = brokers_start(3, NULL);
    uint64_t state = suite_seed();
    struct member m[6];
    brokers_create_topic(b, "t", 6);
    int started = 0;
    int64_t made = 0;
    member_start(b, &m[started], "m0", "g", "t", member_settings);
    for (started = 1; started < 6; started++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", started);
        member_start(b, &m[started], name, "g", "t", member_settings);
        produce_numbers(b, "t", made, 4000, 6);
        made += 4000;
        wait_lines(m, started + 1, (int64_t)suite_random_below(&state, (uint64_t)made), 20000);
        member_kill(&m[started - 1]);
    }
    struct lines l = {m, 6, made};
    for (int64_t until = clock_boot_ms() + 30000; clock_boot_ms() < until;) {
        if (has_lines(&l) && collect(m, 6, made).missing == 0)
            break;
        usleep(50000);
    }
    ck_assert_int_eq(collect(m, 6, made).missing, 0);
    ck_assert_int_eq(member_stop(&m[5], 10000), 0);
    brokers_free(b);
}
END_TEST

BROKERS_MAIN("cluster/main_job", SUITE_TEST_SLOW(every_line_comes_back_once_with_its_bytes_unchanged, 60),
           SUITE_TEST_SLOW(a_killed_members_partitions_are_read_on_in_time_from_the_last_commit, 60),
           SUITE_TEST_SLOW(joins_and_polite_leaves_take_under_a_second_and_repeat_nothing, 60),
           SUITE_TEST_SLOW(a_member_stopped_past_its_session_delivers_nothing_more_of_what_it_lost, 60),
           SUITE_TEST_SLOW(members_killed_at_random_skip_nothing, 90))
