/* brook cluster reassign */
#include "client/cli/commands.h"
#include "client/cli/reassign_plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BROKERS_MAX 1000
#define WATCH_MS 500
#define LEADERS_WAIT_MS 2000 /* for leaders that do not say how far a move is */

/* "1,2,3". Returns how many, or -1 after having said what is wrong. */
static int read_brokers(struct cli *cli, const char *text, int32_t brokers[BROKERS_MAX])
{
    int n = 0;
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        long id = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : -1;
        if (id < 0 || id > INT32_MAX || errno || n == BROKERS_MAX || (*end && *end != ',')) {
            cli_usage(cli, "--brokers: '%s' is no list of broker ids", text);
            return -1;
        }
        brokers[n++] = (int32_t)id;
        if (!*end)
            return n;
        at = end;
    }
}

static struct brook_cluster *describe(struct cli *cli, brook_admin *admin)
{
    struct brook_error error = {0};
    struct brook_cluster *cluster = NULL;
    if (brook_admin_describe_cluster(admin, (const char *const *)cli->arguments, (size_t)cli->arguments_count,
                                     cli->timeout_ms, &cluster, &error) < 0) {
        cli_fail("can not read the cluster", &error);
        return NULL;
    }
    for (size_t t = 0; t < cluster->topics_count; t++)
        if (cluster->topics[t].error.code && cli->arguments_count) {
            cli_fail(cluster->topics[t].name, &cluster->topics[t].error);
            brook_cluster_free(cluster);
            return NULL;
        }
    return cluster;
}

/* ---- progress --------------------------------------------------------------------------------------- */

static bool is_asked_for(const struct cli *cli, const char *topic)
{
    for (int i = 0; i < cli->arguments_count; i++)
        if (strcmp(cli->arguments[i], topic) == 0)
            return true;
    return cli->arguments_count == 0;
}

static int show_json(const struct cli *cli, const struct brook_reassignments *all)
{
    json_t *list = json_array();
    for (size_t i = 0; i < all->count; i++) {
        const struct brook_reassignment *r = &all->list[i];
        if (is_asked_for(cli, r->topic))
            json_array_append_new(
                list, json_pack("{s:s,s:i,s:i,s:o,s:o,s:o,s:o,s:o}", "topic", r->topic, "partition", (int)r->partition,
                                "leader", (int)r->leader, "replicas", cli_ids_json(r->replicas, r->replicas_count),
                                "adding", cli_ids_json(r->adding, r->adding_count), "removing",
                                cli_ids_json(r->removing, r->removing_count), "target",
                                cli_ids_json(r->target, r->target_count), "isr", cli_ids_json(r->isr, r->isr_count)));
    }
    return cli_print_json(json_pack("{s:I,s:I,s:o}", "throttle_bytes", (json_int_t)all->throttle_bytes, "quota_bytes",
                                    (json_int_t)all->quota_bytes, "partitions", list));
}

static int show_people(const struct cli *cli, const struct brook_reassignments *all)
{
    const char *titles[] = {"TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING", "AFTERWARDS", "IN SYNC"};
    struct cli_table *table = cli_table_new(7, titles);
    size_t shown = 0;
    for (size_t i = 0; i < all->count; i++) {
        const struct brook_reassignment *r = &all->list[i];
        char number[16], replicas[300], adding[300], removing[300], target[300], isr[300];
        if (!is_asked_for(cli, r->topic))
            continue;
        snprintf(number, sizeof number, "%" PRId32, r->partition);
        cli_join_ids(r->replicas, r->replicas_count, replicas, sizeof replicas);
        cli_join_ids(r->adding, r->adding_count, adding, sizeof adding);
        cli_join_ids(r->removing, r->removing_count, removing, sizeof removing);
        cli_join_ids(r->target, r->target_count, target, sizeof target);
        cli_join_ids(r->isr, r->isr_count, isr, sizeof isr);
        const char *cells[] = {r->topic, number, replicas, adding, removing, target, isr};
        cli_table_add(table, cells);
        shown++;
    }
    if (shown)
        cli_table_print(table, stdout);
    else
        printf("nothing is being moved\n");
    if (all->throttle_bytes)
        printf("throttle: %" PRId64 " bytes per second and broker, until nothing is being moved any more\n",
               all->throttle_bytes);
    if (all->quota_bytes)
        printf("replication.quota.bytes, for all replicas that are not in sync: %" PRId64 "\n", all->quota_bytes);
    cli_table_free(table);
    return CLI_OK;
}

static struct brook_reassignments *list_running(struct cli *cli, brook_admin *admin)
{
    struct brook_error error = {0};
    struct brook_reassignments *all = NULL;
    if (brook_admin_list_reassignments(admin, cli->timeout_ms, &all, &error) < 0)
        cli_fail("can not read what is being moved", &error);
    return all;
}

static int show_running(struct cli *cli, brook_admin *admin)
{
    struct brook_reassignments *all = list_running(cli, admin);
    if (!all)
        return CLI_FAILED;
    int code = cli->json ? show_json(cli, all) : show_people(cli, all);
    brook_reassignments_free(all);
    return code;
}

static bool holds(const int32_t *ids, size_t count, int32_t id)
{
    for (size_t i = 0; i < count; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* Records that replicas of the target lack, of one partition. One that has not begun lacks all. */
static int64_t lacking_of(const struct brook_reassignment *r, const struct brook_partition_replicas *p)
{
    int64_t records = 0;
    for (size_t i = 0; i < p->replicas_count; i++)
        if (holds(r->target, r->target_count, p->replicas[i].broker_id))
            records += p->replicas[i].lag >= 0 ? p->replicas[i].lag : p->end - p->start;
    return records;
}

/* How many partitions are being moved, and how many records are still to be copied for that; -1: no leader says so. */
static size_t count_running(struct cli *cli, brook_admin *admin, const struct brook_reassignments *all,
                            int64_t *ret_lacking)
{
    struct brook_error error = {0};
    struct brook_replicas *replicas = NULL;
    struct brook_partition_name *names = calloc(all->count + 1, sizeof *names);
    size_t *places = calloc(all->count + 1, sizeof *places);
    size_t n = 0;
    if (!names || !places)
        abort();
    for (size_t i = 0; i < all->count; i++)
        if (is_asked_for(cli, all->list[i].topic)) {
            places[n] = i;
            names[n++] = (struct brook_partition_name){all->list[i].topic, all->list[i].partition};
        }
    *ret_lacking = -1;
    if (n && brook_admin_describe_replicas(admin, names, n, LEADERS_WAIT_MS, &replicas, &error) == 0) {
        *ret_lacking = 0;
        for (size_t i = 0; i < n; i++)
            *ret_lacking += lacking_of(&all->list[places[i]], &replicas->list[i]);
    }
    brook_replicas_free(replicas);
    free(names);
    free(places);
    return n;
}

static const char *plural(size_t n, const char *one, const char *many)
{
    return n == 1 ? one : many;
}

/* On a terminal one line that changes; else a line whenever a partition has arrived. */
static void say_progress(const struct cli *cli, size_t left, size_t before, int64_t lacking, int64_t throttle)
{
    char records[128] = "";
    if (lacking >= 0)
        snprintf(records, sizeof records, ", %" PRId64 " records to copy", lacking);
    if (throttle)
        snprintf(records + strlen(records), sizeof records - strlen(records), ", throttled to %" PRId64 " bytes/s per broker",
                 throttle);
    if (cli->progress && left)
        fprintf(stderr, "\r\033[K%zu %s being moved%s", left, plural(left, "partition is", "partitions are"), records);
    else if (left && left != before)
        cli_say("%zu %s being moved%s", left, plural(left, "partition is", "partitions are"), records);
    else if (!left)
        fprintf(stderr, "%sbrook: nothing is being moved any more\n", cli->progress ? "\r\033[K" : "");
}

/* Until nothing is left, or somebody interrupts: the move goes on all the same. */
static int watch(struct cli *cli, brook_admin *admin)
{
    size_t before = SIZE_MAX;
    cli_catch_signals();
    while (!cli_interrupted()) {
        int64_t lacking;
        struct brook_reassignments *all = list_running(cli, admin);
        if (!all)
            return CLI_FAILED;
        size_t left = count_running(cli, admin, all, &lacking);
        int64_t throttle = all->throttle_bytes;
        brook_reassignments_free(all);
        say_progress(cli, left, before, lacking, throttle);
        before = left;
        if (!left)
            return CLI_OK;
        struct timespec pause = {0, WATCH_MS * 1000000L};
        nanosleep(&pause, NULL);
    }
    return CLI_FAILED;
}

/* ---- plans ------------------------------------------------------------------------------------------ */

/* To cancel: an empty list for each partition that is being moved. */
static int plan_cancel(struct cli *cli, const struct brook_reassignments *all, struct plan *ret)
{
    *ret = (struct plan){.list = calloc(all->count + 1, sizeof *ret->list)};
    if (!ret->list)
        abort();
    for (size_t i = 0; i < all->count; i++)
        if (is_asked_for(cli, all->list[i].topic))
            ret->list[ret->count++] =
                (struct brook_partition_plan){.topic = all->list[i].topic, .partition = all->list[i].partition};
    return CLI_OK;
}

static void say_taken(const struct cli *cli, const struct plan *plan, size_t taken, int64_t quota, bool is_dry)
{
    if (plan->count && cli_flag(cli, "cancel"))
        printf("%zu %s\n", taken, is_dry ? "could go back" : plural(taken, "partition goes back", "partitions go back"));
    else if (plan->count && is_dry)
        printf("%zu %s could be moved\n", taken, plural(taken, "partition", "partitions"));
    else if (plan->count || quota < 0)
        printf("%zu %s being moved\n", taken, plural(taken, "partition is", "partitions are"));
    if (quota > 0)
        printf("new replicas are copied with at most %" PRId64 " bytes per second and broker%s\n", quota,
               is_dry ? " then" : ", until nothing is being moved any more");
    else if (quota == 0)
        printf("new replicas are copied without limit%s\n", is_dry ? " then" : "");
}

static int carry_out(struct cli *cli, brook_admin *admin, const struct plan *plan, int64_t quota)
{
    struct brook_error error = {0};
    struct brook_error *errors = calloc(plan->count + 1, sizeof *errors);
    if (!errors)
        abort();
    bool is_dry = cli_flag(cli, "dry-run");
    int r = brook_admin_reassign(admin, plan->list, plan->count, quota, is_dry, cli->timeout_ms, errors, &error);
    size_t refused = 0;
    for (size_t i = 0; i < plan->count; i++) {
        refused += errors[i].code != 0;
        if (errors[i].code)
            cli_say("%s", errors[i].text);
    }
    free(errors);
    if (r < 0 && !refused)
        return cli_fail("the plan was not taken over", &error);
    size_t taken = plan->count - refused;
    if (cli->json)
        cli_print_json(json_pack("{s:I,s:I}", "accepted", (json_int_t)taken, "refused", (json_int_t)refused));
    else
        say_taken(cli, plan, taken, quota, is_dry);
    if (refused)
        return CLI_FAILED;
    return cli_flag(cli, "watch") && !is_dry ? watch(cli, admin) : CLI_OK;
}

static int cancel(struct cli *cli, brook_admin *admin, int64_t quota)
{
    struct plan plan;
    struct brook_reassignments *all = list_running(cli, admin);
    if (!all)
        return CLI_FAILED;
    plan_cancel(cli, all, &plan);
    int code = plan.count ? carry_out(cli, admin, &plan, quota) : show_people(cli, all);
    plan_done(&plan);
    brook_reassignments_free(all);
    return code;
}

static int from_file(struct cli *cli, brook_admin *admin, int64_t quota)
{
    struct plan plan;
    struct brook_error error = {0};
    if (plan_read(cli_value(cli, "plan"), &plan, &error) < 0)
        return cli_fail(NULL, &error);
    int code = carry_out(cli, admin, &plan, quota);
    plan_done(&plan);
    return code;
}

static int over_brokers(struct cli *cli, brook_admin *admin, const int32_t *brokers, int count, int64_t replicas,
                        int64_t quota)
{
    struct plan plan;
    struct brook_error error = {0};
    struct brook_cluster *cluster = describe(cli, admin);
    if (!cluster)
        return CLI_FAILED;
    int code;
    if (plan_make(cluster, brokers, (size_t)count, (int32_t)replicas, &plan, &error) < 0) {
        code = cli_fail("no plan can be made", &error);
    } else {
        code = cli_flag(cli, "print") ? cli_print_json(plan_json(plan.list, plan.count))
                                      : carry_out(cli, admin, &plan, quota);
        plan_done(&plan);
    }
    brook_cluster_free(cluster);
    return code;
}

static int run(struct cli *cli)
{
    int32_t brokers[BROKERS_MAX];
    int count = 0;
    int64_t quota, replicas;
    const char *list = cli_value(cli, "brokers");
    bool has_plan = cli_value(cli, "plan") != NULL, is_cancel = cli_flag(cli, "cancel");
    if ((list != NULL) + has_plan + is_cancel > 1)
        return cli_usage(cli, "--brokers, --plan and --cancel exclude each other");
    if (!cli_number(cli, "throttle", -1, 0, INT64_MAX, &quota) || !cli_number(cli, "replicas", 0, 1, 32, &replicas))
        return CLI_USAGE;
    if ((replicas || cli_flag(cli, "print")) && !list)
        return cli_usage(cli, "--replicas and --print go with --brokers");
    if (list && (count = read_brokers(cli, list, brokers)) < 0)
        return CLI_USAGE;
    brook_admin *admin = cli_admin(cli);
    if (!admin)
        return CLI_FAILED;
    struct plan none = {0};
    int code = list        ? over_brokers(cli, admin, brokers, count, replicas, quota)
               : has_plan  ? from_file(cli, admin, quota)
               : is_cancel ? cancel(cli, admin, quota)
               : quota >= 0 ? carry_out(cli, admin, &none, quota)
               : cli_flag(cli, "watch") ? watch(cli, admin)
                                        : show_running(cli, admin);
    brook_admin_free(admin);
    return code;
}

static const struct cli_option options[] = {
    {"brokers", "ID,ID...", "spread the topics over these brokers, moving as little as that needs", 0},
    {"replicas", "N", "with --brokers: so many copies of each partition; default: as many as now", 'r'},
    {"print", NULL, "with --brokers: print the plan, to be kept or changed, and do nothing", 0},
    {"plan", "FILE", "carry out a plan: {\"partitions\":[{\"topic\":\"T\",\"partition\":0,\"replicas\":[1,2]}]}", 0},
    {"cancel", NULL, "go back to the replicas of before the move that runs", 0},
    {"throttle", "BYTES", "bytes per second that each broker may pull for replicas that moves add, until the last has ended; 0: no limit", 0},
    {"dry-run", NULL, "check everything, move nothing", 0},
    {"watch", NULL, "wait until nothing is being moved any more", 0},
    {0},
};

const struct cli_command cmd_cluster_reassign = {
    .group = "cluster", .name = "reassign", .arguments = "[TOPIC...]", .arguments_min = 0, .arguments_max = -1,
    .summary = "move partitions to other brokers, or show what is being moved",
    .description = "Move the partitions of the topics named, or of all, to other brokers. New replicas are added first; when\n"
                   "all that are to stay are in sync the others go. Without options: show what is being moved.\n"
                   "A throttle holds for replicas that moves add, and ends by itself with the last of them; the brokers'\n"
                   "replication.quota.bytes is the limit that stands, for every replica that is not in sync.",
    .examples = "  brook cluster reassign orders --brokers 2,3,4 --throttle 20M --watch\n"
                "  brook cluster reassign --brokers 1,2,3 --print > plan.json\n"
                "  brook cluster reassign --plan plan.json\n  brook cluster reassign --cancel\n",
    .options = options, .run = run,
};
