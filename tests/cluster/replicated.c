#include "tests/cluster/replicated.h"

#include "proto/base/clock.h"
#include "tests/cluster/nemesis/replicas.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NUMBERS_MAX (1 << 20)
#define SETTINGS_MAX 16

static struct replicated shared;

/* ---- beginning and end ---------------------------------------------------------------------------------- */

static void on_report(void *arg, const struct brook_report *report)
{
    struct replicated *r = arg;
    if (report->outcome == BROOK_STORED) {
        r->acknowledged[(intptr_t)report->opaque] = 1;
        r->stored++;
    } else {
        fprintf(stderr, "# record %lld: %s\n", (long long)(intptr_t)report->opaque, report->error.text);
        r->failed++;
    }
}

static void set(brook_config *config, const char *key, const char *value)
{
    struct brook_error error = {0};
    ck_assert_msg(brook_config_set(config, key, value, &error) == 0, "%s", error.text);
}

/* Among the settings so far, in the place of one of the same name. */
static void add_setting(const char **settings, const char *setting)
{
    size_t i = 0, name = strcspn(setting, "=") + 1;
    while (settings[i] && strncmp(settings[i], setting, name) != 0)
        i++;
    ck_assert_uint_lt(i, SETTINGS_MAX - 1);
    settings[i] = setting;
}

struct replicated *replicated_begin(int brokers, const struct brokers_options *options)
{
    struct brook_error error = {0};
    static const char *settings[SETTINGS_MAX] = {"replica.lag.time.max.ms=1000", "replica.fetch.wait.max.ms=100",
                                                 "leader.imbalance.check.interval.seconds=3600"};
    struct brokers_options o = options ? *options : (struct brokers_options){0};
    struct replicated *r = &shared;
    memset(r, 0, sizeof *r);
    for (size_t i = 0; o.settings && o.settings[i]; i++)
        add_setting(settings, o.settings[i]);
    o.settings = settings;
    r->b = brokers_start(brokers, &o);
    r->acknowledged = calloc(NUMBERS_MAX, 1);
    ck_assert_ptr_nonnull(r->acknowledged);
    caller_init(&r->caller);
    char connect[128];
    snprintf(connect, sizeof connect, "%s", brokers_connect(r->b));
    r->zk = caller_connect(&r->caller, connect, 10000, NULL);
    r->config = brokers_config(r->b);
    set(r->config, "acks", "all");
    set(r->config, "delivery.timeout.ms", "60000");
    set(r->config, "request.timeout.ms", "3000");
    ck_assert_msg(brook_admin_new(r->config, &r->admin, &error) == 0, "%s", error.text);
    ck_assert_msg(brook_producer_new(r->config, &r->producer, &error) == 0, "%s", error.text);
    brook_producer_on_report(r->producer, on_report, r);
    return r;
}

void replicated_end(struct replicated *r)
{
    brook_producer_close(r->producer, 1000);
    brook_admin_free(r->admin);
    brook_config_free(r->config);
    coordinator_free(r->zk, false, 1000);
    caller_done(&r->caller);
    free(r->acknowledged);
    brokers_free(r->b);
}

void replicated_show(struct replicated *r)
{
    char command[PATH_MAX + 64];
    fflush(stderr);
    for (int id = 1; id <= 3; id++) {
        snprintf(command, sizeof command, "tail -n 40 %s >&2", brokers_log(r->b, id));
        if (system(command) != 0)
            fprintf(stderr, "# no log of broker %d\n", id);
    }
}

/* ---- producing ------------------------------------------------------------------------------------------ */

void replicated_topic(struct replicated *r, const char *topic, int32_t partitions, int32_t replicas,
                      const char *setting)
{
    struct brook_error error = {0};
    char key[64] = "";
    const char *equals = setting ? strchr(setting, '=') : NULL;
    if (equals)
        snprintf(key, sizeof key, "%.*s", (int)(equals - setting), setting);
    struct brook_setting s = {key, equals ? equals + 1 : NULL};
    int e = brook_admin_create_topic(r->admin, topic, partitions, replicas, &s, equals != NULL, false, 15000, &error);
    if (e < 0)
        replicated_show(r);
    ck_assert_msg(e == 0, "%s", error.text);
    if (strcmp(topic, "t") != 0)
        return;
    r->partitions = partitions;
    r->replicas = replicas;
}

void replicated_send(struct replicated *r, int64_t count)
{
    struct brook_error error = {0};
    for (int64_t i = 0; i < count; i++) {
        int64_t number = r->sent++;
        ck_assert_int_lt(number, NUMBERS_MAX);
        struct brook_record record = {.topic = "t", .partition = (int32_t)(number % r->partitions), .value = &number,
                                      .value_bytes = sizeof number, .opaque = (void *)(intptr_t)number};
        ck_assert_msg(brook_producer_send(r->producer, &record, BROOK_SEND_WAIT, &error) == 0, "%s", error.text);
    }
    brook_producer_poll(r->producer, 0);
}

void replicated_flush(struct replicated *r)
{
    int e = brook_producer_flush(r->producer, REPLICATED_WAIT_MS);
    if (e < 0 || r->failed) {
        char *statistics = brook_producer_statistics(r->producer);
        fprintf(stderr, "# %s\n", statistics ? statistics : "no memory");
        free(statistics);
        replicated_show(r);
    }
    ck_assert_int_eq(e, 0);
    ck_assert_int_eq(r->failed, 0);
    ck_assert_int_eq(r->stored, r->sent);
}

/* ---- looking -------------------------------------------------------------------------------------------- */

bool replicated_state(struct replicated *r, const char *topic, int32_t partition, struct znode_state *ret,
                      int32_t *ret_version)
{
    struct path path;
    coordinator_get(r->zk, path_partition_state(&path, topic, partition), caller_begin(&r->caller));
    const struct got *got = caller_end(&r->caller);
    if (got->err || znode_decode_state(got->data, got->data_bytes, ret, NULL) != 0)
        return false;
    if (ret_version)
        *ret_version = got->stat.version;
    return true;
}

int32_t replicated_leader(struct replicated *r, const char *topic, int32_t partition)
{
    struct znode_state state;
    return replicated_state(r, topic, partition, &state, NULL) ? state.leader : -1;
}

bool replicated_wait(struct replicated *r, bool (*condition)(void *arg), void *arg, int timeout_ms)
{
    int64_t until = clock_boot_ms() + timeout_ms;
    for (;;) {
        brook_producer_poll(r->producer, 0);
        if (condition(arg))
            return true;
        if (clock_boot_ms() >= until) {
            replicated_show(r);
            return false;
        }
        usleep(10000);
    }
}

struct wish {
    struct replicated *r;
    const char *topic;
    const char *text;
    int32_t partition;
    int32_t broker;
    int32_t found;
};

static bool is_isr(struct wish *wish, int32_t partition)
{
    struct znode_state state;
    if (!replicated_state(wish->r, "t", partition, &state, NULL) || state.leader < 0 ||
        (size_t)state.isr_count != strlen(wish->text))
        return false;
    for (int32_t i = 0; i < state.isr_count; i++)
        if (!strchr(wish->text, '0' + state.isr[i]))
            return false;
    return strchr(wish->text, '0' + state.leader) != NULL;
}

static bool is_isr_of_all(void *arg)
{
    struct wish *wish = arg;
    for (int32_t p = 0; p < wish->r->partitions; p++)
        if (!is_isr(wish, p))
            return false;
    return true;
}

void replicated_wait_isr(struct replicated *r, const char *brokers)
{
    struct wish wish = {.r = r, .text = brokers};
    if (replicated_wait(r, is_isr_of_all, &wish, REPLICATED_WAIT_MS))
        return;
    for (int32_t p = 0; p < r->partitions; p++) {
        struct znode_state state = {.leader = -2};
        replicated_state(r, "t", p, &state, NULL);
        fprintf(stderr, "# t/%d: leader %d epoch %d, in sync", p, state.leader, state.leader_epoch);
        for (int32_t i = 0; i < state.isr_count; i++)
            fprintf(stderr, " %d", state.isr[i]);
        fprintf(stderr, "\n");
    }
    ck_abort_msg("%s did not get in sync", brokers);
}

static bool is_other_leader(void *arg)
{
    struct wish *wish = arg;
    wish->found = replicated_leader(wish->r, wish->topic, wish->partition);
    return wish->found >= 0 && wish->found != wish->broker;
}

int32_t replicated_wait_other_leader(struct replicated *r, const char *topic, int32_t partition, int32_t than)
{
    struct wish wish = {.r = r, .topic = topic, .partition = partition, .broker = than};
    if (!replicated_wait(r, is_other_leader, &wish, REPLICATED_WAIT_MS)) {
        ck_abort_msg("%s/%d: nobody but %d leads (%d)", topic, partition, than, wish.found);
    }
    return wish.found;
}

int replicated_count_said(struct replicated *r, int id, const char *text)
{
    char line[1024];
    int count = 0;
    FILE *f = fopen(brokers_log(r->b, id), "re");
    while (f && fgets(line, sizeof line, f))
        count += strstr(line, text) != NULL;
    if (f)
        fclose(f);
    return count;
}

bool replicated_has_said(struct replicated *r, int id, const char *text, int times)
{
    return replicated_count_said(r, id, text) >= times;
}

static bool has_said(void *arg)
{
    struct wish *wish = arg;
    return replicated_has_said(wish->r, wish->broker, wish->text, wish->partition);
}

void replicated_wait_said(struct replicated *r, int id, const char *text, int times)
{
    struct wish wish = {.r = r, .text = text, .partition = times, .broker = id};
    if (replicated_wait(r, has_said, &wish, REPLICATED_WAIT_MS))
        return;
    ck_abort_msg("broker %d did not say: %s", id, text);
}

static bool is_other_controller(void *arg)
{
    struct wish *wish = arg;
    coordinator_get(wish->r->zk, PATH_CONTROLLER, caller_begin(&wish->r->caller));
    const struct got *got = caller_end(&wish->r->caller);
    const char *at = got->err ? NULL : strstr(got->data, "\"brokerid\":");
    wish->found = at ? atoi(at + strlen("\"brokerid\":")) : -1;
    return wish->found >= 0 && wish->found != wish->broker;
}

int32_t replicated_wait_controller(struct replicated *r, int32_t than)
{
    struct wish wish = {.r = r, .broker = than};
    if (!replicated_wait(r, is_other_controller, &wish, REPLICATED_WAIT_MS))
        ck_abort_msg("no controller but %d", than);
    return wish.found;
}

/* ---- directories ---------------------------------------------------------------------------------------- */

const char *replicated_directory(struct replicated *r, int id, const char *topic, int32_t partition)
{
    static char path[PATH_MAX + 300];
    snprintf(path, sizeof path, "%s/%s-%d", brokers_data_directory(r->b, id), topic, partition);
    return path;
}

static int is_log(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n == 24 && strcmp(e->d_name + 20, ".log") == 0;
}

size_t replicated_cut_tail(struct replicated *r, int id, const char *topic, int32_t partition, size_t bytes)
{
    struct dirent **names;
    struct stat st;
    char path[2 * PATH_MAX];
    const char *directory = replicated_directory(r, id, topic, partition);
    int n = scandir(directory, &names, is_log, alphasort);
    ck_assert_int_gt(n, 0);
    snprintf(path, sizeof path, "%s/%s", directory, names[n - 1]->d_name);
    while (n > 0)
        free(names[--n]);
    free(names);
    ck_assert_int_eq(stat(path, &st), 0);
    size_t has = (size_t)st.st_size;
    size_t cut = bytes < has ? bytes : has;
    ck_assert_int_eq(truncate(path, (off_t)(has - cut)), 0);
    return cut;
}

/* ---- the end's check ------------------------------------------------------------------------------------ */

static int64_t ends_of(struct replicated *r, struct brook_position *ends)
{
    struct brook_error error = {0};
    int64_t total = 0, until = clock_boot_ms() + REPLICATED_WAIT_MS;
    int e;
    do {
        for (int32_t p = 0; p < r->partitions; p++)
            ends[p] = (struct brook_position){"t", p, BROOK_OFFSET_LATEST};
        e = brook_admin_list_offsets(r->admin, ends, NULL, (size_t)r->partitions, 10000, &error);
    } while (e < 0 && clock_boot_ms() < until); /* a new leader does not know it at once */
    ck_assert_msg(e == 0, "%s", error.text);
    for (int32_t p = 0; p < r->partitions; p++)
        total += ends[p].offset;
    return total;
}

static void read_all(struct replicated *r)
{
    struct brook_error error = {0};
    brook_consumer *consumer;
    struct brook_position at[16], ends[16];
    int64_t total = ends_of(r, ends), read = 0, next[16] = {0}, last[16];
    uint8_t *seen = calloc(NUMBERS_MAX, 1);
    ck_assert_ptr_nonnull(seen);
    for (int32_t p = 0; p < r->partitions; p++) {
        at[p] = (struct brook_position){"t", p, BROOK_OFFSET_EARLIEST};
        last[p] = -1;
    }
    ck_assert_int_eq(brook_consumer_new(r->config, &consumer, &error), 0);
    ck_assert_int_eq(brook_consumer_assign(consumer, at, (size_t)r->partitions, &error), 0);
    while (read < total) {
        brook_batch *batch;
        struct brook_message m;
        int64_t number;
        ck_assert_msg(brook_consumer_poll(consumer, 10000, &batch, &error) == 0, "%s", error.text);
        int32_t p = brook_batch_partition(batch);
        while (brook_batch_next(batch, &m) == 0) {
            ck_assert_int_eq(m.offset, next[p]++);
            read++;
            if (m.value_bytes != sizeof number)
                continue; /* not of the producer's */
            memcpy(&number, m.value, sizeof number);
            ck_assert(number >= 0 && number < r->sent && number % r->partitions == p);
            ck_assert_msg(seen[number] || number > last[p], "%lld comes behind %lld", (long long)number,
                          (long long)last[p]);
            last[p] = number > last[p] ? number : last[p];
            seen[number] = 1;
        }
        brook_batch_release(batch);
    }
    for (int64_t i = 0; i < r->sent; i++)
        ck_assert_msg(seen[i] || !r->acknowledged[i], "record %lld was acknowledged and is gone", (long long)i);
    brook_consumer_close(consumer, 1000);
    free(seen);
}

/* Nothing is written any more, and all are in sync: what the followers lack is on its way. */
static bool are_equal(void *arg)
{
    struct wish *wish = arg;
    struct znode_state state;
    struct replica first, other;
    bool equal = replicated_state(wish->r, "t", wish->partition, &state, NULL) && state.isr_count > 0;
    for (int32_t i = 1; equal && i < state.isr_count; i++) {
        replica_load(&first, replicated_directory(wish->r, state.isr[0], "t", wish->partition));
        replica_load(&other, replicated_directory(wish->r, state.isr[i], "t", wish->partition));
        equal = replica_first_difference(&first, &other) == -1;
        replica_done(&first);
        replica_done(&other);
    }
    return equal;
}

void replicated_check(struct replicated *r)
{
    read_all(r);
    for (int32_t p = 0; p < r->partitions; p++) {
        struct wish wish = {.r = r, .partition = p};
        if (replicated_wait(r, are_equal, &wish, REPLICATED_WAIT_MS))
            continue;
        ck_abort_msg("the replicas of t/%d differ", p);
    }
}
