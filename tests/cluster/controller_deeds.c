#include "tests/cluster/controller_deeds.h"

#include "proto/base/clock.h"
#include "proto/wire/envelope.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define GROUP "g"
#define MANY 110 /* partitions that do not fit one write of states */
#define FEW 4
#define RECORDS 30 /* of each partition that is moved */

/* ---- a broker's death, and its stop ----------------------------------------------------------------------- */

/* Who is not the controller and leads something. */
static void choose_victim(struct stage *s)
{
    for (int32_t p = 0; p < s->r->partitions && !s->victim; p++) {
        int32_t leader = replicated_leader(s->r, "t", p);
        if (leader >= 0 && leader != s->controller)
            s->victim = leader;
    }
    ck_assert_int_gt(s->victim, 0);
}

static void kill_victim(struct stage *s)
{
    brokers_kill(s->r->b, s->victim);
    stage_expire(s, s->victim);
}

static void restart_victim(struct stage *s)
{
    brokers_restart(s->r->b, s->victim);
}

static void stop_victim(struct stage *s)
{
    brokers_signal(s->r->b, s->victim, SIGTERM);
}

static bool has_stopped(struct stage *s)
{
    int code = 0;
    if (brokers_pid(s->r->b, s->victim) && brokers_is_running(s->r->b, s->victim, &code))
        return false;
    ck_assert_msg(code == 0, "broker %d stopped with %d", s->victim, code);
    return true;
}

/* ---- topics made, grown and deleted ----------------------------------------------------------------------- */

static void name_new(struct stage *s)
{
    stage_name_topic(s, "new");
    s->partitions = MANY;
}

static void ask_create(struct stage *s)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__CreateTopicsRequest create = BROOK__CREATE_TOPICS_REQUEST__INIT;
    Brook__NewTopic topic = BROOK__NEW_TOPIC__INIT, *topics = &topic;
    topic.has_name = topic.has_partitions = topic.has_replicas = true;
    topic.name = envelope_text(s->topic);
    topic.partitions = s->partitions;
    topic.replicas = 2;
    create.n_topics = 1;
    create.topics = &topics;
    request.body_case = BROOK__REQUEST__BODY_CREATE_TOPICS;
    request.create_topics = &create;
    stage_ask(s, &request);
}

static bool is_made(struct stage *s)
{
    int32_t count = stage_count_partitions(s);
    return count == s->partitions || (!count && s->may_be_nothing);
}

static void make_small(struct stage *s)
{
    stage_name_topic(s, "grown");
    s->partitions = FEW;
    replicated_topic(s->r, s->topic, FEW, 2, NULL);
    stage_wait_whole(s, "a topic made");
}

static void ask_grow(struct stage *s)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__AddPartitionsRequest grow = BROOK__ADD_PARTITIONS_REQUEST__INIT;
    s->partitions = 2 * FEW;
    grow.has_topic = grow.has_partitions = true;
    grow.topic = envelope_text(s->topic);
    grow.partitions = s->partitions;
    request.body_case = BROOK__REQUEST__BODY_ADD_PARTITIONS;
    request.add_partitions = &grow;
    stage_ask(s, &request);
}

static bool is_grown(struct stage *s)
{
    int32_t count = stage_count_partitions(s);
    return count == s->partitions || (count == FEW && s->may_be_nothing);
}

static void name_begun(struct stage *s)
{
    stage_name_topic(s, "begun");
    s->partitions = 1;
}

/* With one of the directories above its states. */
static void begin_by_hand(struct stage *s)
{
    const char *text = stage_node_text(s->partitions, s->others[0], s->others[1]);
    struct path path;
    struct coordinator_multi *multi = coordinator_multi_new();
    ck_assert_ptr_nonnull(multi);
    coordinator_multi_create(multi, path_topic(&path, s->topic), text, strlen(text), ZNODE_PERSISTENT);
    coordinator_multi_create(multi, path_partitions(&path, s->topic), NULL, 0, ZNODE_PERSISTENT);
    coordinator_multi_send(s->r->zk, &multi, caller_begin(&s->r->caller));
    ck_assert_int_eq(caller_end(&s->r->caller)->err, 0);
}

static bool is_away(struct stage *s)
{
    struct path path;
    return !stage_exists(s, path_topic(&path, s->topic));
}

static bool is_away_now(void *arg)
{
    return is_away(arg);
}

static void put_offset(struct stage *s, int32_t partition, const char *offset)
{
    struct path path;
    stage_put(s, path_offset(&path, GROUP, s->topic, partition), offset);
}

static void make_doomed(struct stage *s)
{
    stage_name_topic(s, "doomed");
    s->partitions = MANY;
    replicated_topic(s->r, s->topic, MANY, 2, NULL);
    put_offset(s, 0, "5");
    put_offset(s, 1, "6");
    stage_wait_whole(s, "a topic made");
}

static void ask_delete(struct stage *s)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__DeleteTopicsRequest doomed = BROOK__DELETE_TOPICS_REQUEST__INIT;
    ProtobufCBinaryData name = envelope_text(s->topic);
    doomed.n_topics = 1;
    doomed.topics = &name;
    request.body_case = BROOK__REQUEST__BODY_DELETE_TOPICS;
    request.delete_topics = &doomed;
    stage_ask(s, &request);
}

static void delete_again(struct stage *s)
{
    ask_delete(s);
    ck_assert(replicated_wait(s->r, is_away_now, s, REPLICATED_WAIT_MS));
}

static bool has_offset(struct stage *s, int32_t partition, const char *offset)
{
    struct path path;
    coordinator_get(s->r->zk, path_offset(&path, GROUP, s->topic, partition), caller_begin(&s->r->caller));
    const struct got *got = caller_end(&s->r->caller);
    return !got->err && strcmp(got->data, offset) == 0;
}

static bool is_deleted(struct stage *s)
{
    struct path path;
    int32_t count = stage_count_partitions(s);
    if (count)
        return s->may_be_nothing && count == s->partitions;
    return !stage_exists(s, path_topic(&path, s->topic)) && !stage_exists(s, path_topic_config(&path, s->topic)) &&
           has_offset(s, 0, "") && has_offset(s, 1, "");
}

static bool is_made_now(void *arg)
{
    return is_made(arg);
}

/* The same name again, and the group has read some of it. Not asked of the one that is cut off. */
static void make_again(struct stage *s)
{
    struct path path;
    s->partitions = 2;
    ask_create(s);
    ck_assert(replicated_wait(s->r, is_made_now, s, REPLICATED_WAIT_MS));
    for (int32_t p = 0; p < 2; p++) {
        coordinator_set(s->r->zk, path_offset(&path, GROUP, s->topic, p), "7", 1, -1, caller_begin(&s->r->caller));
        ck_assert_int_eq(caller_end(&s->r->caller)->err, 0);
    }
}

static bool is_there_again(struct stage *s)
{
    return stage_count_partitions(s) == 2 && has_offset(s, 0, "7") && has_offset(s, 1, "7");
}

/* No broker keeps anything of it. */
static bool has_no_directory(struct stage *s)
{
    for (int32_t id = 1; id <= STAGE_BROKERS; id++)
        if (stage_has_directory(s, id))
            return false;
    return true;
}

static bool is_gone(struct stage *s)
{
    return stage_count_partitions(s) > 0 || has_no_directory(s);
}

/* ---- moves and elections ---------------------------------------------------------------------------------- */

/* The same for each partition of the topic. */
static void put_wishes(struct stage *s, const char *path, const char *wish)
{
    char text[4096];
    size_t at = (size_t)snprintf(text, sizeof text, "{\"version\":1,\"partitions\":[");
    for (int p = 0; p < s->partitions; p++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s{\"topic\":\"%s\",\"partition\":%d%s}", p ? "," : "",
                               s->topic, p, wish);
    snprintf(text + at, sizeof text - at, "]}");
    stage_put(s, path, text);
}

static void put_plan(struct stage *s, int32_t first, int32_t second)
{
    char wish[64];
    snprintf(wish, sizeof wish, ",\"replicas\":[%d,%d]", first, second);
    put_wishes(s, PATH_REASSIGN, wish);
}

static void make_moving(struct stage *s)
{
    stage_put_topic(s, "moved", 3, s->others[0], s->others[1]);
    stage_fill(s, RECORDS);
}

static int32_t third(const struct stage *s)
{
    int32_t broker = 1;
    while (broker == s->controller || broker == s->others[0] || broker == s->others[1])
        broker++;
    return broker;
}

static void ask_move(struct stage *s)
{
    put_plan(s, s->others[1], third(s));
}

static bool is_placed(struct stage *s, int32_t first, int32_t second)
{
    struct znode_topic node;
    if (!stage_read_node(s, &node))
        return false;
    bool is_so = !node.moves_count;
    for (int32_t p = 0; p < node.partitions_count; p++)
        is_so = is_so && node.replicas[p].count == 2 && node.replicas[p].brokers[0] == first &&
                node.replicas[p].brokers[1] == second;
    znode_topic_done(&node);
    return is_so;
}

static bool is_moved(struct stage *s)
{
    return is_placed(s, s->others[1], third(s));
}

/* Removed from where it was moved away, and all there where it is now. */
static bool has_left(struct stage *s)
{
    return !stage_has_directory(s, s->others[0]) && stage_is_full(s, RECORDS);
}

static bool has_stayed(struct stage *s)
{
    return stage_is_full(s, RECORDS);
}

/* One of the two is asleep, so that nothing can get to it. */
static void begin_move(struct stage *s)
{
    make_moving(s);
    brokers_signal(s->r->b, third(s), SIGSTOP);
    put_plan(s, s->others[1], third(s));
    int64_t until = clock_boot_ms() + REPLICATED_WAIT_MS;
    for (size_t moves = 0; !moves && clock_boot_ms() < until;) {
        struct znode_topic node;
        if (!stage_read_node(s, &node))
            continue;
        moves = node.moves_count;
        znode_topic_done(&node);
    }
    ck_assert(!stage_exists(s, PATH_REASSIGN));
    s->sleeper = third(s);
}

static void ask_cancel(struct stage *s)
{
    put_wishes(s, PATH_REASSIGN, ",\"replicas\":[]");
}

static bool is_cancelled(struct stage *s)
{
    return is_placed(s, s->others[0], s->others[1]);
}

static void wake(struct stage *s)
{
    brokers_signal(s->r->b, s->sleeper, SIGCONT);
    s->sleeper = 0;
}

/* The list is turned round; leaders stay. */
static void make_unpreferred(struct stage *s)
{
    stage_put_topic(s, "chosen", 3, s->others[0], s->others[1]);
    put_plan(s, s->others[1], s->others[0]);
    stage_wait_whole(s, "lists turned round");
    ck_assert(is_placed(s, s->others[1], s->others[0]));
    for (int32_t p = 0; p < 3; p++)
        ck_assert_int_eq(replicated_leader(s->r, s->topic, p), s->others[0]);
}

static void ask_elect(struct stage *s)
{
    put_wishes(s, PATH_PREFERRED_ELECTION, "");
}

static bool is_preferred(struct stage *s)
{
    for (int32_t p = 0; p < s->partitions; p++)
        if (replicated_leader(s->r, s->topic, p) != s->others[1])
            return false;
    return true;
}

/* ---- becoming controller ----------------------------------------------------------------------------------- */

/* The controller leads something that is to be led by another then. */
static void choose_heir(struct stage *s)
{
    stage_put_topic(s, "left", 1, s->controller, s->others[1]);
    s->victim = s->controller;
    s->actor = s->others[0];
}

static bool has_inherited(void *arg)
{
    struct stage *s = arg;
    coordinator_get(s->r->zk, PATH_CONTROLLER, caller_begin(&s->r->caller));
    const struct got *got = caller_end(&s->r->caller);
    int32_t broker = -1;
    if (!got->err)
        znode_decode_controller(got->data, got->data_bytes, &broker, NULL);
    return broker == s->actor || zookeeper_gate_is_shut(s->gates[s->actor]);
}

/* The others learn of it when it is the heir's already. */
static void kill_controller(struct stage *s)
{
    for (int32_t id = 1; id <= STAGE_BROKERS; id++)
        if (id != s->actor && id != s->victim)
            zookeeper_gate_shut(s->gates[id]);
    kill_victim(s);
    ck_assert(replicated_wait(s->r, has_inherited, s, REPLICATED_WAIT_MS));
    for (int32_t id = 1; id <= STAGE_BROKERS; id++)
        if (id != s->actor && id != s->victim)
            zookeeper_gate_open(s->gates[id]);
}

const struct deed controller_deeds[] = {
    {.name = "elections after a broker's death",
     .prepare = choose_victim,
     .begin = kill_victim,
     .restore = restart_victim},
    {.name = "controlled shutdown of a broker",
     .prepare = choose_victim,
     .begin = stop_victim,
     .is_done = has_stopped,
     .restore = restart_victim},
    {.name = "becoming controller",
     .prepare = choose_heir,
     .begin = kill_controller,
     .restore = restart_victim,
     .clean = stage_remove_topic},
    {.name = "making a topic",
     .prepare = name_new,
     .begin = ask_create,
     .is_done = is_made,
     .clean = stage_remove_topic},
    {.name = "making a topic that somebody began by hand",
     .prepare = name_begun,
     .begin = begin_by_hand,
     .is_done = is_made,
     .tempt = delete_again,
     .is_unhurt = is_away,
     .clean = stage_remove_topic},
    {.name = "adding partitions",
     .prepare = make_small,
     .begin = ask_grow,
     .is_done = is_grown,
     .clean = stage_remove_topic},
    {.name = "deleting a topic",
     .prepare = make_doomed,
     .begin = ask_delete,
     .is_done = is_deleted,
     .tempt = make_again,
     .is_unhurt = is_there_again,
     .is_kept = is_gone,
     .clean = stage_remove_topic},
    {.name = "moving partitions",
     .prepare = make_moving,
     .begin = ask_move,
     .is_done = is_moved,
     .is_kept = has_left,
     .clean = stage_remove_topic},
    {.name = "cancelling a move",
     .prepare = begin_move,
     .begin = ask_cancel,
     .is_done = is_cancelled,
     .restore = wake,
     .is_kept = has_stayed,
     .clean = stage_remove_topic},
    {.name = "preferred elections",
     .prepare = make_unpreferred,
     .begin = ask_elect,
     .is_done = is_preferred,
     .clean = stage_remove_topic},
};
const int controller_deeds_count = sizeof controller_deeds / sizeof controller_deeds[0];
