#include "tests/cluster/stage.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

#define CHROOT "/brook"
#define ALL "1234"

static struct stage stage;

/* ---- the stage ------------------------------------------------------------------------------------------ */

static bool begins(const char *path, const char *with, const char **ret_rest)
{
    size_t bytes = strlen(with);
    *ret_rest = path + bytes;
    return strncmp(path, with, bytes) == 0;
}

/* The controller's writes, and those that carry out what a client asked for; not registrations, changes of ISRs, and
 * what brokers tell people and the controller. */
static bool is_counted(const char *path)
{
    const char *rest;
    if (!strcmp(path, CHROOT PATH_CONTROLLER) || !strcmp(path, CHROOT PATH_CONTROLLER_EPOCH) ||
        begins(path, CHROOT PATH_CONFIG_TOPICS "/", &rest) || begins(path, CHROOT PATH_CONSUMERS "/", &rest))
        return true;
    if (!begins(path, CHROOT PATH_TOPICS "/", &rest))
        return false;
    const char *state = strstr(rest, "/state");
    return !strchr(rest, '/') || (strstr(rest, "/partitions") && !state);
}

static void through_gate(void *arg, const struct zookeeper *zookeeper, int id, struct brokers_place *place)
{
    struct stage *s = arg;
    if (!s->gates[id])
        s->gates[id] = zookeeper_gate_start(zookeeper_port(zookeeper), is_counted);
    snprintf(place->zookeeper, sizeof place->zookeeper, "127.0.0.1:%d/brook", zookeeper_gate_port(s->gates[id]));
}

struct stage *stage_begin(void)
{
    static const char *const settings[] = {"controlled.shutdown.max.ms=2000", NULL};
    struct stage *s = &stage;
    memset(s, 0, sizeof *s);
    s->seed = suite_seed();
    /* Sessions end when a test says so. */
    const struct brokers_options options = {
        .place = through_gate, .place_arg = s, .settings = settings, .session_timeout_ms = 10000};
    s->r = replicated_begin(STAGE_BROKERS, &options);
    replicated_topic(s->r, "t", 6, 3, NULL);
    return s;
}

void stage_end(struct stage *s)
{
    replicated_end(s->r);
    for (int id = 1; id <= STAGE_BROKERS; id++)
        zookeeper_gate_stop(s->gates[id]);
}

void stage_expire(struct stage *s, int32_t broker)
{
    char from[PATH_MAX], to[PATH_MAX], buffer[4096];
    snprintf(from, sizeof from, "%.3000s/zookeeper.session", brokers_data_directory(s->r->b, broker));
    snprintf(to, sizeof to, "%.3000s/stolen.session", suite_directory());
    FILE *in = fopen(from, "re"), *out = fopen(to, "we");
    ck_assert(in && out);
    fwrite(buffer, 1, fread(buffer, 1, sizeof buffer, in), out);
    fclose(in);
    fclose(out);
    char connect[64];
    snprintf(connect, sizeof connect, "%s", zookeeper_connect(brokers_zookeeper(s->r->b), ""));
    const struct coordinator_settings settings = {
        .connect = connect, .session_timeout_ms = 10000, .session_file = to, .resume_session = true};
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

void stage_wait_whole(struct stage *s, const char *what)
{
    struct agreement a = {.r = s->r, .alive = ALL, .asked = ALL, .is_all_in_sync = true};
    agreement_wait(&a, what);
}

bool stage_exists(struct stage *s, const char *path)
{
    coordinator_exists(s->r->zk, path, caller_begin(&s->r->caller));
    int err = caller_end(&s->r->caller)->err;
    ck_assert(err == 0 || err == -BROOK_E_NO_NODE);
    return err == 0;
}

/* ---- asking --------------------------------------------------------------------------------------------- */

void stage_put(struct stage *s, const char *path, const char *text)
{
    coordinator_create_path(s->r->zk, path, text, strlen(text), caller_begin(&s->r->caller));
    ck_assert_int_eq(caller_end(&s->r->caller)->err, 0);
}

void stage_ask(struct stage *s, Brook__Request *request)
{
    int port = agreement_port(s->r, s->asked);
    ck_assert_int_gt(port, 0);
    if (s->is_asking)
        raw_close(&s->client);
    raw_open(&s->client, port);
    s->is_asking = true;
    raw_send(&s->client, request, NULL, 0);
}

void stage_name_topic(struct stage *s, const char *kind)
{
    snprintf(s->topic, sizeof s->topic, "%s%d", kind, s->round);
}

const char *stage_node_text(int partitions, int32_t first, int32_t second)
{
    static char text[8192];
    char id_text[TOPIC_ID_TEXT_BYTES];
    struct topic_id id;
    topic_id_random(&id);
    topic_id_format(&id, id_text);
    size_t at = (size_t)snprintf(text, sizeof text, "{\"version\":3,\"topic_id\":\"%s\",\"partitions\":{", id_text);
    for (int p = 0; p < partitions; p++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s\"%d\":[%d,%d]", p ? "," : "", p, first, second);
    snprintf(text + at, sizeof text - at, "}}");
    return text;
}

void stage_put_topic(struct stage *s, const char *kind, int partitions, int32_t first, int32_t second)
{
    struct path path;
    stage_name_topic(s, kind);
    s->partitions = partitions;
    stage_put(s, path_topic(&path, s->topic), stage_node_text(partitions, first, second));
    stage_wait_whole(s, "a topic made by hand");
}

bool stage_read_node(struct stage *s, struct znode_topic *ret)
{
    struct path path;
    coordinator_get(s->r->zk, path_topic(&path, s->topic), caller_begin(&s->r->caller));
    const struct got *got = caller_end(&s->r->caller);
    ck_assert(got->err == 0 || got->err == -BROOK_E_NO_NODE);
    return !got->err && znode_decode_topic(got->data, got->data_bytes, ret, NULL) == 0;
}

int32_t stage_count_partitions(struct stage *s)
{
    struct znode_topic node;
    if (!stage_read_node(s, &node))
        return 0;
    int32_t count = node.partitions_count;
    znode_topic_done(&node);
    return count;
}

void stage_remove_topic(struct stage *s)
{
    struct brook_error error = {0};
    int e = brook_admin_delete_topic(s->r->admin, s->topic, 15000, &error);
    ck_assert_msg(e == 0 || e == -BROOK_E_UNKNOWN_TOPIC, "%s is not deleted: %s", s->topic, error.text);
    stage_wait_whole(s, "a topic removed");
}

void stage_fill(struct stage *s, int records)
{
    struct brook_error error = {0};
    brook_producer *producer;
    ck_assert_msg(brook_producer_new(s->r->config, &producer, &error) == 0, "%s", error.text);
    for (int i = 0; i < records * s->partitions; i++) {
        struct brook_record record = {
            .topic = s->topic, .partition = i % s->partitions, .value = &i, .value_bytes = sizeof i};
        ck_assert_msg(brook_producer_send(producer, &record, BROOK_SEND_WAIT, &error) == 0, "%s", error.text);
    }
    ck_assert_int_eq(brook_producer_flush(producer, REPLICATED_WAIT_MS), 0);
    brook_producer_close(producer, 1000);
}

bool stage_is_full(struct stage *s, int records)
{
    struct brook_error error;
    struct brook_position ends[16];
    for (int32_t p = 0; p < s->partitions; p++)
        ends[p] = (struct brook_position){s->topic, p, BROOK_OFFSET_LATEST};
    if (brook_admin_list_offsets(s->r->admin, ends, NULL, (size_t)s->partitions, 1000, &error) < 0)
        return false;
    for (int32_t p = 0; p < s->partitions; p++)
        if (ends[p].offset != records)
            return false;
    return true;
}

bool stage_has_directory(struct stage *s, int32_t broker)
{
    char pattern[PATH_MAX];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%.3000s/%s-*", brokers_data_directory(s->r->b, broker), s->topic);
    bool has_some = glob(pattern, 0, NULL, &found) == 0;
    if (has_some)
        globfree(&found);
    return has_some;
}
