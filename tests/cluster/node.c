#include "tests/cluster/node.h"

#include "broker/partition/partition.h"
#include "proto/base/clock.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- a node's log ----------------------------------------------------------------------------------- */

static void note_line(void *arg, enum diag_level level, const char *subject, const char *message)
{
    struct node *n = arg;
    if (getenv("BROOK_TEST_LOG"))
        fprintf(stderr, "# %lld node %d %s %s %s\n", (long long)(clock_boot_ms() % 1000000), (int)n->id,
                diag_level_name(level), subject, message);
    if (!strncmp(message, "recovered", 9))
        atomic_fetch_add(&n->recovered, 1);
    /* Nodes are cluster threads without listeners: nobody can be pulled from. */
    if (level < DIAG_WARN || !strncmp(message, "can not pull from broker", 24))
        return;
    atomic_fetch_add(&n->warnings, 1);
}

/* ---- worlds ----------------------------------------------------------------------------------------- */

static struct world the_world;

struct world *world_begin(struct zookeeper *zk, const char *chroot)
{
    struct world *w = &the_world;
    static char connect[128];
    memset(w, 0, sizeof *w);
    snprintf(connect, sizeof connect, "%s", zookeeper_connect(zk, chroot));
    w->connect = connect;
    caller_init(&w->caller);
    w->admin = caller_connect(&w->caller, connect, 10000, NULL);
    for (int32_t i = 0; i < NODES_MAX; i++) {
        struct node *n = &w->nodes[i];
        n->id = i + 1;
        n->retention_check_ms = 300;
        n->diag = (struct diag){.level_min = DIAG_DEBUG, .sink = note_line, .sink_arg = n};
        snprintf(n->directory, sizeof n->directory, "%s/node%d", suite_directory(), (int)n->id);
        ck_assert_int_eq(inbox_init(&n->inbox), 0);
    }
    return w;
}

void world_end(struct world *w)
{
    for (int i = 0; i < NODES_MAX; i++) {
        node_stop(w, &w->nodes[i]);
        inbox_done(&w->nodes[i].inbox);
    }
    coordinator_free(w->admin, false, 2000);
    caller_done(&w->caller);
}

struct node *world_node(struct world *w, int32_t id)
{
    return &w->nodes[id - 1];
}

static void drain_all(struct world *w)
{
    inbox_drain(&w->caller.inbox);
    for (int i = 0; i < NODES_MAX; i++)
        inbox_drain(&w->nodes[i].inbox);
}

bool world_try(struct world *w, bool (*condition)(void *arg), void *arg, int timeout_ms)
{
    int64_t until = clock_boot_ms() + timeout_ms;
    for (;;) {
        drain_all(w);
        if (condition(arg))
            return true;
        if (clock_boot_ms() >= until)
            return false;
        poll(NULL, 0, 1);
    }
}

void world_wait(struct world *w, bool (*condition)(void *arg), void *arg)
{
    if (!world_try(w, condition, arg, NODE_TIMEOUT_MS))
        ck_abort_msg("waited in vain");
}

static bool never(void *arg)
{
    return false;
}

void world_idle(struct world *w, int ms)
{
    world_try(w, never, NULL, ms);
}

/* ---- nodes ------------------------------------------------------------------------------------------ */

static void note_ready(void *arg, const struct brook_error *error)
{
    struct node *n = arg;
    n->ready_count++;
    n->ready_error = *error;
}

static void note_view(void *arg, struct view *view)
{
    struct node *n = arg;
    view_unref(n->view);
    n->view = view;
}

int node_try_start_at(struct node *n, const char *connect, int32_t broker_id, const char *directory,
                      struct brook_error *error)
{
    const char *directories[] = {directory};
    struct cluster_settings settings = {
        .broker_id = broker_id,
        .advertised_host = "127.0.0.1",
        .advertised_port = 9000 + broker_id,
        .zookeeper_connect = connect,
        .zookeeper_session_timeout_ms = NODE_SESSION_MS,
        .data_dirs = directories,
        .data_dirs_count = 1,
        .disk_threads_count = 2,
        .partitions_default = 1,
        .replicas_default = 1,
        .retention_check_ms = n->retention_check_ms,
        .replicas_max = n->replicas_max ? n->replicas_max : CLUSTER_REPLICAS_MAX,
        .rebalance_leaders = n->rebalance_interval_ms > 0,
        .rebalance_interval_ms = n->rebalance_interval_ms,
        .absent_wait_ms = n->absent_wait_ms,
        .replication = {.lag_ms_max = 600000}, /* nobody pulls here: who is in sync is the test's to write */
        .controlled_shutdown_ms_max = 3000,
        .diag = &n->diag,
    };
    struct cluster_events events = {&n->inbox, note_ready, n};
    log_settings_default(&settings.topic_defaults.log);
    settings.topic_defaults.message_bytes_max = 1 << 20;
    settings.topic_defaults.min_insync_replicas = 1;
    n->ready_count = 0;
    return cluster_new(&settings, &events, &n->cluster, error);
}

void node_start_at(struct world *w, struct node *n, int32_t broker_id, const char *directory)
{
    struct brook_error error;
    ck_assert_msg(node_try_start_at(n, w->connect, broker_id, directory, &error) == 0, "%s", error.text);
    ck_assert_int_eq(cluster_subscribe(n->cluster, &n->inbox, note_view, n), 0);
}

void node_start(struct world *w, struct node *n)
{
    node_start_at(w, n, n->id, n->directory);
}

static bool was_told_ready(void *arg)
{
    return ((struct node *)arg)->ready_count > 0;
}

void node_wait_ready(struct world *w, struct node *n)
{
    world_wait(w, was_told_ready, n);
    ck_assert_msg(n->ready_error.code == 0, "%s", n->ready_error.text);
}

/* What an I/O loop does when it ends: let go of everything. */
static void end_loop(struct node *n)
{
    inbox_drain(&n->inbox);
    view_unref(n->view);
    n->view = NULL;
}

void node_drop(struct world *w, struct node *n)
{
    if (!n->cluster)
        return;
    end_loop(n);
    struct cluster *cluster = n->cluster;
    n->cluster = NULL;
    /* A view may come between the loop's end and the stop: the real broker stops its loops' inboxes last too.
     */
    cluster_free(cluster);
    end_loop(n);
}

void node_stop(struct world *w, struct node *n)
{
    if (n->cluster)
        cluster_drain(n->cluster);
    node_drop(w, n);
}

/* ---- intents ---------------------------------------------------------------------------------------- */

static void note_result(void *arg, const struct cluster_topic_result *result)
{
    struct node *n = arg;
    n->is_told = true;
    n->result = *result;
}

static bool was_told(void *arg)
{
    return ((struct node *)arg)->is_told;
}

static int wait_result(struct world *w, struct node *n)
{
    world_wait(w, was_told, n);
    return n->result.error.code;
}

void node_begin_create(struct node *n, const char *topic, int32_t partitions, int timeout_ms)
{
    struct cluster_new_topic wanted = {.name = topic, .partitions = partitions};
    n->is_told = false;
    cluster_create_topic(n->cluster, &wanted, false, timeout_ms, &n->inbox, note_result, n);
}

int node_create(struct world *w, struct node *n, const char *topic, int32_t partitions)
{
    node_begin_create(n, topic, partitions, 10000);
    return wait_result(w, n);
}

int node_create_with(struct world *w, struct node *n, const struct cluster_new_topic *topic, bool validate_only)
{
    n->is_told = false;
    cluster_create_topic(n->cluster, topic, validate_only, 10000, &n->inbox, note_result, n);
    return wait_result(w, n);
}

void node_begin_delete(struct node *n, const char *topic, int timeout_ms)
{
    n->is_told = false;
    cluster_delete_topic(n->cluster, topic, false, timeout_ms, &n->inbox, note_result, n);
}

int node_delete(struct world *w, struct node *n, const char *topic)
{
    node_begin_delete(n, topic, 10000);
    return wait_result(w, n);
}

int node_grow(struct world *w, struct node *n, const char *topic, int32_t partitions)
{
    n->is_told = false;
    cluster_add_partitions(n->cluster, topic, partitions, false, 10000, &n->inbox, note_result, n);
    return wait_result(w, n);
}

/* ---- looking ---------------------------------------------------------------------------------------- */

const struct view_topic *node_topic(const struct node *n, const char *topic)
{
    return n->view ? view_topic(n->view, topic, strlen(topic)) : NULL;
}

int32_t node_leader(const struct node *n, const char *topic, int32_t partition)
{
    const struct view_topic *t = node_topic(n, topic);
    return t && partition < t->partitions_count ? t->partitions[partition].leader : -2;
}

struct leader_wish {
    struct node *n;
    const char *topic;
    int32_t partition;
    int32_t leader;
};

static bool is_led(void *arg)
{
    struct leader_wish *wish = arg;
    if (node_leader(wish->n, wish->topic, wish->partition) != wish->leader)
        return false;
    struct partition *local = node_topic(wish->n, wish->topic)->partitions[wish->partition].local;
    return wish->leader != wish->n->id || (local && partition_is_leader(local, NULL));
}

void node_wait_leader(struct world *w, struct node *n, const char *topic, int32_t partition, int32_t leader)
{
    struct leader_wish wish = {n, topic, partition, leader};
    if (!world_try(w, is_led, &wish, NODE_TIMEOUT_MS))
        ck_abort_msg("node %d: %s/%d is led by %d, not %d", (int)n->id, topic, (int)partition,
                     (int)node_leader(n, topic, partition), (int)leader);
}

static bool is_gone(void *arg)
{
    struct leader_wish *wish = arg;
    return !node_topic(wish->n, wish->topic);
}

void node_wait_topic_gone(struct world *w, struct node *n, const char *topic)
{
    struct leader_wish wish = {.n = n, .topic = topic};
    world_wait(w, is_gone, &wish);
}

bool node_has_directory(const struct node *n, const char *topic, int32_t partition)
{
    char path[1024];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s-%d", n->directory, topic, (int)partition);
    return stat(path, &st) == 0;
}

/* ---- administrator ---------------------------------------------------------------------------------- */

const struct got *admin_get(struct world *w, const char *path)
{
    coordinator_get(w->admin, path, caller_begin(&w->caller));
    return caller_end(&w->caller);
}

bool admin_exists(struct world *w, const char *path)
{
    coordinator_exists(w->admin, path, caller_begin(&w->caller));
    return caller_end(&w->caller)->err == 0;
}

const struct got *admin_children(struct world *w, const char *path)
{
    coordinator_children(w->admin, path, caller_begin(&w->caller));
    return caller_end(&w->caller);
}

int admin_create(struct world *w, const char *path, const char *data)
{
    coordinator_create_path(w->admin, path, data, strlen(data), caller_begin(&w->caller));
    return caller_end(&w->caller)->err;
}

int admin_set(struct world *w, const char *path, const char *data, int32_t version)
{
    coordinator_set(w->admin, path, data, strlen(data), version, caller_begin(&w->caller));
    return caller_end(&w->caller)->err;
}

int admin_delete(struct world *w, const char *path)
{
    coordinator_delete(w->admin, path, -1, caller_begin(&w->caller));
    return caller_end(&w->caller)->err;
}

int32_t admin_controller(struct world *w)
{
    int32_t id = -1;
    const struct got *got = admin_get(w, PATH_CONTROLLER);
    if (!got->err)
        znode_decode_controller(got->data, got->data_bytes, &id, NULL);
    return id;
}

void admin_expire(struct world *w, const struct node *n)
{
    char from[600], to[600], buffer[4096];
    snprintf(from, sizeof from, "%s/zookeeper.session", n->directory);
    snprintf(to, sizeof to, "%s/stolen.session", suite_directory());
    FILE *in = fopen(from, "r"), *out = fopen(to, "w");
    ck_assert(in && out);
    fwrite(buffer, 1, fread(buffer, 1, sizeof buffer, in), out);
    fclose(in);
    fclose(out);
    struct coordinator_settings settings = {.connect = w->connect,
                                            .session_timeout_ms = NODE_SESSION_MS,
                                            .session_file = to,
                                            .resume_session = true};
    struct coordinator *thief;
    struct caller k;
    caller_init(&k);
    ck_assert_int_eq(coordinator_new(&settings, &thief, NULL), 0);
    caller_listen(&k, thief);
    caller_wait_event(&k, COORDINATOR_CONNECTED, 0);
    ck_assert(k.events[0].resumed);
    coordinator_free(thief, false, 2000);
    caller_done(&k);
}
