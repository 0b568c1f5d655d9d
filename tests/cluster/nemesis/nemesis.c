#include "tests/cluster/nemesis/world.h"

#include "proto/base/clock.h"
#include "tests/cluster/nemesis/replicas.h"
#include "tests/support/suite.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEP_MS 10
#define FLUSH_MS 45000
#define CATCH_UP_MS 60000
#define REPLICAS_EQUAL_MS 30000
#define RECORD_PAUSE_MS 20

static const char *const group_names[WORLD_GROUPS_MAX] = {"g1", "g2"};

int64_t world_now(const struct world *w)
{
    return clock_boot_ms() - w->began_ms;
}

static void say(const struct world *w, const char *format, va_list args)
{
    fprintf(w->options->talk, "%8.3f  ", (double)world_now(w) / 1000);
    vfprintf(w->options->talk, format, args);
    fputc('\n', w->options->talk);
    fflush(w->options->talk);
}

void world_say(const struct world *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(w, format, args);
    va_end(args);
}

void world_surprise(struct world *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(w, format, args);
    va_end(args);
    w->report->surprises++;
}

void world_start_broker(struct world *w, int id)
{
    watch_started(w->watch, id);
    brokers_restart(w->brokers, id);
    network_set_pid(w->network, id, brokers_pid(w->brokers, id));
    w->is_up[id] = true;
}

static bool is_up(void *arg, int broker)
{
    struct world *w = arg;
    return broker >= 1 && broker <= w->options->brokers && w->is_up[broker];
}

/* ---- beginning ------------------------------------------------------------------------------------------------------ */

static void set(brook_config *config, const char *key, const char *value)
{
    struct brook_error error = {0};
    ck_assert_msg(brook_config_set(config, key, value, &error) == 0, "%s", error.text);
}

static void start_brokers(struct world *w)
{
    static const char *const settings[] = {"replica.lag.time.max.ms=4000", "replica.socket.timeout.ms=3000",
                                           "log.segment.bytes=262144",
                                           "message.max.bytes=131072", NULL};
    const struct nemesis_options *o = w->options;
    w->network = network_new(o->mode, o->brokers);
    struct brokers_options options = {.session_timeout_ms = WORLD_SESSION_MS,
                                      .settings = settings,
                                      .has_power_disks = o->has_power_disks,
                                      .zookeeper_address = network_zookeeper_address(w->network),
                                      .place = network_place,
                                      .place_arg = w->network};
    w->brokers = brokers_start(o->brokers, &options);
    for (int id = 1; id <= o->brokers; id++) {
        network_set_pid(w->network, id, brokers_pid(w->brokers, id));
        w->is_up[id] = true;
    }
    network_reconnect(w->network);
}

static void create_topic(struct world *w, int topic)
{
    char min_insync[16];
    struct brook_error error = {0};
    snprintf(min_insync, sizeof min_insync, "%d", w->options->replicas > 1 ? w->options->replicas - 1 : 1);
    const struct brook_setting settings[] = {{"min.insync.replicas", min_insync},
                                             {"durability", w->topics.durability[topic]}};
    int e = brook_admin_create_topic(w->admin, w->topics.names[topic], topics_partitions(&w->topics, topic),
                                     w->options->replicas, settings, 2, false, 20000, &error);
    ck_assert_msg(e == 0, "%s", error.text);
}

static void create_topics(struct world *w)
{
    struct brook_error error = {0};
    brook_config *config = brokers_config(w->brokers);
    ck_assert_msg(brook_admin_new(config, &w->admin, &error) == 0, "%s", error.text);
    brook_config_free(config);
    for (int i = 0; i < w->topics.count; i++)
        create_topic(w, i);
}

static void log_line(void *arg, int level, const char *subject, const char *message)
{
    struct world *w = arg;
    fprintf(w->client_log, "%8.3f %d %s %s\n", (double)world_now(w) / 1000, level, subject, message);
}

/* What clients log goes beside what brokers do. */
static brook_config *client_config(struct world *w)
{
    char path[PATH_MAX + 64];
    brook_config *config = brokers_config(w->brokers);
    snprintf(path, sizeof path, "%.*s/clients.log", (int)(strrchr(brokers_log(w->brokers, 1), '/') - brokers_log(w->brokers, 1)),
             brokers_log(w->brokers, 1));
    if (!w->client_log)
        w->client_log = fopen(path, "we");
    ck_assert_ptr_nonnull(w->client_log);
    setlinebuf(w->client_log);
    brook_config_set_log(config, log_line, w);
    set(config, "request.timeout.ms", "3000");
    return config;
}

static brook_config *producer_config(struct world *w)
{
    brook_config *config = client_config(w);
    bool knows = brook_config_get(config, "enable.idempotence") != NULL;
    w->report->idempotent = knows && !w->options->no_idempotence;
    if (knows)
        set(config, "enable.idempotence", w->report->idempotent ? "true" : "false");
    if (!w->report->idempotent)
        set(config, "max.in.flight.requests.per.partition", "1");
    set(config, "delivery.timeout.ms", "40000");
    set(config, "retry.backoff.ms", "20");
    set(config, "retry.backoff.max.ms", "200");
    return config;
}

static brook_config *reader_config(struct world *w)
{
    brook_config *config = client_config(w);
    set(config, "auto.offset.reset", "none");
    return config;
}

static void start_clients(struct world *w)
{
    const struct nemesis_options *o = w->options;
    brook_config *config = producer_config(w);
    struct producers_options po = {.config = config,
                                   .topics = &w->topics,
                                   .count = o->producers,
                                   .pause_ms = RECORD_PAUSE_MS,
                                   .acks = w->acks};
    for (int32_t p = 0; p < o->partitions; p++)
        gaps_seen(w->acks, p, clock_boot_ms());
    w->producers = producers_new(&po);
    brook_config_free(config);
    config = reader_config(w);
    w->watermarks = watermarks_new(config, &w->topics, o->talk);
    for (int i = 0; i < WORLD_READERS; i++)
        w->readers[i] = reader_new(config, &w->topics);
    brook_config_free(config);
    for (int i = 0; i < o->groups; i++)
        w->groups[i] = group_new(w->brokers, group_names[i], &w->topics, o->members);
}

/* Records come through everywhere. */
static bool has_begun(void *arg)
{
    struct world *w = arg;
    return producers_acknowledged(w->producers) >= 10 * w->options->producers * w->options->partitions;
}

static void begin(struct world *w)
{
    const struct nemesis_options *o = w->options;
    w->began_ms = clock_boot_ms();
    topics_init(&w->topics, o->topics, o->partitions);
    w->report->faults = calloc(NEMESIS_FAULTS_MAX, sizeof *w->report->faults);
    ck_assert_ptr_nonnull(w->report->faults);
    w->acks = gaps_new(o->partitions);
    start_brokers(w);
    create_topics(w);
    struct watch_options wo = {.connect = brokers_connect(w->brokers),
                               .topics = &w->topics,
                               .brokers = o->brokers,
                               .groups_count = o->groups,
                               .is_up = is_up,
                               .is_up_arg = w,
                               .findings = o->talk};
    memcpy(wo.groups, group_names, sizeof group_names);
    w->watch = watch_new(&wo);
    w->wishes = wishes_new(wo.connect);
    w->schedule = (struct schedule){.random = o->seed,
                                    .brokers = o->brokers,
                                    .partitions = o->partitions,
                                    .groups = o->groups,
                                    .members = o->members,
                                    .session_ms = WORLD_SESSION_MS,
                                    .may_lose_disk = o->replicas > 1,
                                    .may_move = o->replicas > 1,
                                    .may_cut_power = o->has_power_disks,
                                    .is_all_on_disk = o->topics == TOPICS_FSYNC};
    start_clients(w);
    ck_assert(suite_wait(has_begun, w, WORLD_RECOVERY_MS));
    deeds_wait_calm(w);
}

/* ---- faults --------------------------------------------------------------------------------------------------------- */

static void wait_until(struct world *w, int64_t at_ms)
{
    do {
        usleep(STEP_MS * 1000);
        deeds_expire(w, false);
        deeds_mend(w);
    } while (world_now(w) < at_ms);
}

/* False: the cluster does not get over it, and more would show nothing. */
static bool carry_out(struct world *w, const struct fault *f)
{
    if (fault_wants_calm(&w->schedule, f->kind)) {
        deeds_expire(w, true);
        if (!deeds_wait_calm(w))
            return false;
    }
    while (w->active_count == WORLD_ACTIVE_MAX)
        wait_until(w, 0);
    deeds_begin(w, f);
    wait_until(w, world_now(w) + f->pause_ms);
    if (!fault_wants_calm(&w->schedule, f->kind))
        return true;
    deeds_expire(w, true);
    return deeds_wait_calm(w);
}

static void follow_plan(struct world *w)
{
    for (size_t i = 0; i < w->options->plan_count; i++) {
        struct fault f = schedule_draw(&w->schedule, w->options->plan[i]);
        f.pause_ms = f.lasts_ms + WORLD_SESSION_MS / 4;
        if (!carry_out(w, &f))
            return;
    }
}

static void follow_seed(struct world *w)
{
    int64_t until = world_now(w) + (int64_t)w->options->seconds * 1000;
    while (world_now(w) < until && w->report->faults_count < NEMESIS_FAULTS_MAX) {
        struct fault f = schedule_next(&w->schedule, &w->view);
        if (!carry_out(w, &f))
            return;
    }
}

/* ---- ending --------------------------------------------------------------------------------------------------------- */

static bool groups_have_reached(struct world *w, const int64_t *ends)
{
    for (int g = 0; g < w->options->groups; g++)
        for (int32_t p = 0; p < w->options->partitions; p++)
            if (ends[p] > 0 && watch_committed(w->watch, g, p) < ends[p])
                return false;
    return true;
}

static void wait_for_readers(struct world *w, const int64_t *ends)
{
    int64_t until = clock_boot_ms() + CATCH_UP_MS;
    bool all = false;
    while (!all && clock_boot_ms() < until) {
        usleep(STEP_MS * 1000);
        deeds_mend(w);
        all = groups_have_reached(w, ends);
        for (int i = 0; i < WORLD_READERS; i++)
            all = all && reader_has_reached(w->readers[i], ends);
    }
    if (!all)
        world_surprise(w, "readers and groups have not reached the end after %d ms", CATCH_UP_MS);
}

static void stop_readers(struct world *w)
{
    for (int i = 0; i < WORLD_READERS; i++)
        reader_stop(w->readers[i]);
}

/* The high watermarks when nothing is written any more; none is below one that was seen. */
static void take_ends(struct world *w, int64_t *ends)
{
    int64_t highest[WATERMARKS_PARTITIONS_MAX];
    int64_t until = clock_boot_ms() + CATCH_UP_MS;
    watermarks_stop(w->watermarks);
    while (!watermarks_ask(w->watermarks, 5000, ends) && clock_boot_ms() < until)
        usleep(STEP_MS * 1000);
    watermarks_highest(w->watermarks, highest);
    for (int32_t p = 0; p < w->options->partitions; p++)
        if (ends[p] < highest[p])
            world_surprise(w, "the high watermark of partition %d ends at %" PRId64 " and was %" PRId64, (int)p, ends[p],
                           highest[p]);
}

static void take_starts(struct world *w, struct checker *c, int64_t *starts)
{
    int64_t until = clock_boot_ms() + CATCH_UP_MS;
    while (!watermarks_ask_starts(w->watermarks, 5000, starts) && clock_boot_ms() < until)
        usleep(STEP_MS * 1000);
    for (int32_t p = 0; p < w->options->partitions; p++)
        checker_start(c, p, starts[p], w->asked[p], w->confirmed[p]);
}

/* What was deleted is known from the first reader, which was given it before. */
static void take_deleted(struct world *w, struct checker *c, const int64_t *starts)
{
    int64_t next[WATCH_PARTITIONS_MAX] = {0};
    const struct trail *trail = reader_trail(w->readers[0]);
    for (size_t i = 0; i < trail->count; i++) {
        const struct trail_entry *e = &trail->entries[i];
        if (e->offset < next[e->partition] || e->offset >= starts[e->partition])
            continue;
        next[e->partition] = e->offset + 1;
        checker_log(c, *e);
    }
}

static void read_log(struct world *w, struct checker *c, const int64_t *ends)
{
    brook_config *config = reader_config(w);
    struct reader *last = reader_new(config, &w->topics);
    int64_t until = clock_boot_ms() + CATCH_UP_MS;
    while (!reader_has_reached(last, ends) && clock_boot_ms() < until)
        usleep(STEP_MS * 1000);
    if (!reader_has_reached(last, ends))
        world_surprise(w, "the log can not be read to its end");
    reader_stop(last);
    const struct trail *trail = reader_trail(last);
    for (size_t i = 0; i < trail->count; i++)
        checker_log(c, trail->entries[i]);
    reader_free(last);
    brook_config_free(config);
}

static void load_replica(struct world *w, int broker, int32_t partition, int64_t start, struct replica *ret)
{
    char path[PATH_MAX + 128];
    snprintf(path, sizeof path, "%s/%s-%d", brokers_data_directory(w->brokers, broker),
             topics_name(&w->topics, partition), (int)topics_number(&w->topics, partition));
    replica_load(ret, path);
    replica_begin_at(ret, start);
}

/* Returns how many replicas of the partition differ from the leader's, and with `say` tells where. */
static int compare(struct world *w, int32_t partition, int64_t start, int *ret_compared, bool tell)
{
    struct watch_state s;
    struct replica first, other;
    int different = 0;
    watch_state(w->watch, partition, &s);
    *ret_compared = 0;
    if (s.leader < 0)
        return 1;
    load_replica(w, s.leader, partition, start, &first);
    for (int i = 0; i < s.replicas_count; i++) {
        if (s.replicas[i] == s.leader)
            continue;
        load_replica(w, s.replicas[i], partition, start, &other);
        int64_t at = replica_first_difference(&first, &other);
        ++*ret_compared;
        different += at >= 0;
        if (at >= 0 && tell)
            world_say(w, "replicas differ: partition %d, brokers %d (ends at %" PRId64 ") and %d (%" PRId64 "), at %" PRId64,
                      (int)partition, s.leader, replica_end(&first), s.replicas[i], replica_end(&other), at);
        replica_done(&other);
    }
    replica_done(&first);
    return different;
}

static void compare_replicas(struct world *w, const int64_t *starts)
{
    int64_t until = clock_boot_ms() + REPLICAS_EQUAL_MS;
    for (int32_t p = 0; p < w->options->partitions; p++) {
        int compared, different;
        while ((different = compare(w, p, starts[p], &compared, false)) > 0 && clock_boot_ms() < until)
            usleep(100000);
        if (different)
            compare(w, p, starts[p], &compared, true);
        w->report->replicas_compared += compared;
        w->report->replicas_different += different;
    }
}

static void judge(struct world *w, struct checker *c)
{
    producers_testify(w->producers, c);
    for (int i = 0; i < WORLD_READERS; i++)
        checker_reader(c, reader_trail(w->readers[i]));
    for (int i = 0; i < w->options->groups; i++) {
        group_stop(w->groups[i]);
        int64_t bad = group_testify(w->groups[i], c);
        if (bad)
            world_surprise(w, "%" PRId64 " lines of group %d are no records", bad, i + 1);
    }
    w->report->verdict = *checker_judge(c, w->options->talk);
}

static struct gap longest(const struct world *w, struct gaps *gaps, const struct nemesis_fault *f)
{
    struct gap gap = gaps_longest(gaps, w->began_ms + f->from_ms, w->began_ms + f->to_ms);
    if (gap.partition >= 0) {
        gap.from_ms -= w->began_ms;
        gap.to_ms -= w->began_ms;
    }
    return gap;
}

static void take_times(struct world *w)
{
    for (size_t i = 0; i < w->report->faults_count; i++) {
        struct nemesis_fault *f = &w->report->faults[i];
        f->leaderless = longest(w, watch_leaderless(w->watch), f);
        f->silent = longest(w, w->acks, f);
    }
}

static void end(struct world *w)
{
    int64_t starts[WATERMARKS_PARTITIONS_MAX], ends[WATERMARKS_PARTITIONS_MAX];
    struct nemesis_report *r = w->report;
    struct checker *c = checker_new(w->options->partitions);
    deeds_expire(w, true);
    world_say(w, "no more faults");
    deeds_wait_calm(w);
    if (!producers_stop(w->producers, FLUSH_MS))
        world_surprise(w, "producers could not flush");
    take_times(w);
    take_ends(w, ends);
    wait_for_readers(w, ends);
    stop_readers(w);
    take_starts(w, c, starts);
    take_deleted(w, c, starts);
    read_log(w, c, ends);
    deeds_wait_calm(w);
    compare_replicas(w, starts);
    judge(w, c);
    r->unknown = producers_unknown(w->producers);
    r->not_stored = producers_refused(w->producers);
    r->watermark_answers = watermarks_answers(w->watermarks);
    r->watermark_breaches = watermarks_breaches(w->watermarks);
    r->state_breaches = watch_state_breaches(w->watch);
    r->offset_breaches = watch_offset_breaches(w->watch);
    r->run_ms = world_now(w);
    checker_free(c);
}

static void free_world(struct world *w)
{
    for (int i = 0; i < WORLD_READERS; i++)
        reader_free(w->readers[i]);
    for (int i = 0; i < w->options->groups; i++)
        group_free(w->groups[i]);
    producers_free(w->producers);
    watermarks_free(w->watermarks);
    wishes_free(w->wishes);
    brook_admin_free(w->admin);
    watch_free(w->watch);
    gaps_free(w->acks);
    brokers_free(w->brokers);
    network_free(w->network);
    fclose(w->client_log);
}

void nemesis_run(const struct nemesis_options *options, struct nemesis_report *ret)
{
    struct world w = {.options = options, .report = ret};
    *ret = (struct nemesis_report){0};
    begin(&w);
    if (options->plan)
        follow_plan(&w);
    else
        follow_seed(&w);
    end(&w);
    free_world(&w);
}
