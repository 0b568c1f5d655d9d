#include "tests/cluster/agreement.h"

#include "proto/base/clock.h"
#include "tests/support/raw_client.h"

#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TOPICS_MAX 24
#define NAME_BYTES 128

struct stored_partition {
    struct stored *all;
    struct znode_state state;
    int err;
};

struct stored_topic {
    char name[NAME_BYTES];
    struct znode_topic node;
    struct stored_partition *partitions;
};

/* What ZooKeeper says. */
struct stored {
    struct agreement *a;
    struct stored_topic topics[TOPICS_MAX];
    size_t topics_count;
    size_t reads; /* under way */
    int32_t controller;
};

static bool wrong(struct agreement *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool wrong(struct agreement *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(a->why, sizeof a->why, format, args);
    va_end(args);
    return false;
}

static const struct got *get(struct replicated *r, const char *path)
{
    coordinator_get(r->zk, path, caller_begin(&r->caller));
    return caller_end(&r->caller);
}

static const struct got *children(struct replicated *r, const char *path)
{
    coordinator_children(r->zk, path, caller_begin(&r->caller));
    return caller_end(&r->caller);
}

/* ---- reading what is stored ----------------------------------------------------------------------------- */

static bool are_registered(struct agreement *a)
{
    const struct got *got = children(a->r, PATH_BROKER_IDS);
    bool is_so = got->children_count == strlen(a->alive);
    for (size_t i = 0; is_so && i < got->children_count; i++)
        is_so = strstr(a->alive, got->children[i]) != NULL;
    return is_so || wrong(a, "%zu brokers are registered, not %s", got->children_count, a->alive);
}

static bool is_idle(struct agreement *a)
{
    const struct got *got = children(a->r, PATH_DELETE_TOPICS);
    if (got->children_count)
        return wrong(a, "topic %s is being deleted", got->children[0]);
    if (get(a->r, PATH_REASSIGN)->err != -BROOK_E_NO_NODE)
        return wrong(a, "a plan waits");
    if (get(a->r, PATH_PREFERRED_ELECTION)->err != -BROOK_E_NO_NODE)
        return wrong(a, "elections wait");
    return true;
}

static bool read_controller(struct agreement *a, struct stored *s)
{
    const struct got *got = get(a->r, PATH_CONTROLLER);
    if (got->err || znode_decode_controller(got->data, got->data_bytes, &s->controller, NULL))
        return wrong(a, "there is no controller");
    return strchr(a->alive, '0' + s->controller) || wrong(a, "the controller, %d, is gone", s->controller);
}

static void state_arrived(void *arg, const struct coordinator_reply *reply)
{
    struct stored_partition *p = arg;
    p->all->reads--;
    p->err = reply->err ? reply->err : znode_decode_state(reply->data, reply->data_bytes, &p->state, NULL);
}

static bool has_read(void *arg)
{
    return ((struct stored *)arg)->reads == 0;
}

static bool read_topic(struct stored *s, const char *name)
{
    struct stored_topic *t = &s->topics[s->topics_count];
    struct path path;
    const struct got *got = get(s->a->r, path_topic(&path, name));
    if (got->err || znode_decode_topic(got->data, got->data_bytes, &t->node, NULL))
        return wrong(s->a, "topic %s makes no sense", name);
    s->topics_count++;
    snprintf(t->name, sizeof t->name, "%s", name);
    t->partitions = calloc((size_t)t->node.partitions_count + 1, sizeof *t->partitions);
    ck_assert_ptr_nonnull(t->partitions);
    for (int32_t i = 0; i < t->node.partitions_count; i++) {
        t->partitions[i].all = s;
        s->reads++;
        coordinator_get(s->a->r->zk, path_partition_state(&path, name, i),
                        (struct coordinator_call){
                            .inbox = &s->a->r->caller.inbox, .callback = state_arrived, .arg = &t->partitions[i]});
    }
    return true;
}

static bool read_topics(struct stored *s)
{
    char names[TOPICS_MAX][NAME_BYTES];
    const struct got *got = children(s->a->r, PATH_TOPICS);
    size_t count = got->children_count;
    bool is_read = true;
    ck_assert_uint_le(count, TOPICS_MAX);
    for (size_t i = 0; i < count; i++)
        snprintf(names[i], sizeof names[i], "%s", got->children[i]);
    for (size_t i = 0; is_read && i < count; i++)
        is_read = read_topic(s, names[i]);
    ck_assert(caller_wait(&s->a->r->caller, has_read, s, CALLER_TIMEOUT_MS));
    return is_read;
}

static void stored_done(struct stored *s)
{
    for (size_t i = 0; i < s->topics_count; i++) {
        znode_topic_done(&s->topics[i].node);
        free(s->topics[i].partitions);
    }
}

/* ---- whether it makes sense ----------------------------------------------------------------------------- */

static bool has(const int32_t *list, size_t count, int32_t broker)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == broker)
            return true;
    return false;
}

static bool is_sound(struct agreement *a, const struct stored_topic *t, int32_t number)
{
    const struct stored_partition *p = &t->partitions[number];
    const struct znode_replicas *replicas = &t->node.replicas[number];
    const struct znode_state *state = &p->state;
    size_t living = 0;
    if (p->err)
        return wrong(a, "%s/%d has no state", t->name, number);
    if (state->isr_count < 1 || (a->is_all_in_sync && state->isr_count != replicas->count))
        return wrong(a, "%s/%d has %d of %d in sync, led by %d", t->name, number, state->isr_count, replicas->count,
                     state->leader);
    for (int32_t i = 0; i < state->isr_count; i++) {
        living += strchr(a->alive, '0' + state->isr[i]) != NULL;
        if (!has(replicas->brokers, (size_t)replicas->count, state->isr[i]))
            return wrong(a, "%s/%d: %d is in sync and not assigned", t->name, number, state->isr[i]);
    }
    if (!living)
        return state->leader < 0 || wrong(a, "%s/%d is led by %d, which is gone", t->name, number, state->leader);
    if (state->leader < 0 || !strchr(a->alive, '0' + state->leader))
        return wrong(a, "%s/%d is led by %d", t->name, number, state->leader);
    return has(state->isr, (size_t)state->isr_count, state->leader) ||
           wrong(a, "%s/%d is led by %d, which is not in sync", t->name, number, state->leader);
}

static bool all_sound(struct agreement *a, const struct stored *s)
{
    for (size_t i = 0; i < s->topics_count; i++) {
        if (s->topics[i].node.moves_count)
            return wrong(a, "topic %s is being moved", s->topics[i].name);
        for (int32_t p = 0; p < s->topics[i].node.partitions_count; p++)
            if (!is_sound(a, &s->topics[i], p))
                return false;
    }
    return true;
}

/* ---- what brokers say ----------------------------------------------------------------------------------- */

static const struct stored_topic *find(const struct stored *s, const Brook__TopicInfo *info)
{
    for (size_t i = 0; i < s->topics_count; i++)
        if (strlen(s->topics[i].name) == info->name.len && !memcmp(s->topics[i].name, info->name.data, info->name.len))
            return &s->topics[i];
    return NULL;
}

static bool says_partition(struct agreement *a, int32_t broker, const struct stored_topic *t, int32_t number,
                           const Brook__PartitionInfo *info)
{
    const struct znode_state *state = &t->partitions[number].state;
    const struct znode_replicas *replicas = &t->node.replicas[number];
    if (info->leader != state->leader || info->leader_epoch != state->leader_epoch)
        return wrong(a, "broker %d says that %s/%d is led by %d at epoch %d; %d at %d is stored", broker, t->name,
                     number, info->leader, info->leader_epoch, state->leader, state->leader_epoch);
    if (info->n_replicas != (size_t)replicas->count ||
        memcmp(info->replicas, replicas->brokers, info->n_replicas * sizeof(int32_t)) != 0)
        return wrong(a, "broker %d says other replicas of %s/%d than are stored", broker, t->name, number);
    return (info->n_isr == (size_t)state->isr_count &&
            memcmp(info->isr, state->isr, info->n_isr * sizeof(int32_t)) == 0) ||
           wrong(a, "broker %d says that %zu are in sync of %s/%d, %d are stored", broker, info->n_isr, t->name,
                 number, state->isr_count);
}

static bool says_topic(struct agreement *a, int32_t broker, const struct stored *s, const Brook__TopicInfo *info)
{
    const struct stored_topic *t = find(s, info);
    if (!t)
        return wrong(a, "broker %d knows a topic that is not stored: %.*s", broker, (int)info->name.len,
                     (const char *)info->name.data);
    if (info->status || info->topic_id.len != sizeof t->node.topic_id.bytes ||
        memcmp(info->topic_id.data, t->node.topic_id.bytes, info->topic_id.len) != 0)
        return wrong(a, "broker %d knows another topic %s than is stored", broker, t->name);
    if (info->n_partitions != (size_t)t->node.partitions_count)
        return wrong(a, "broker %d knows %zu partitions of %s, %d are stored", broker, info->n_partitions, t->name,
                     t->node.partitions_count);
    for (size_t i = 0; i < info->n_partitions; i++)
        if (!says_partition(a, broker, t, (int32_t)i, info->partitions[i]))
            return false;
    return true;
}

static bool says_all(struct agreement *a, int32_t broker, const struct stored *s, const Brook__MetadataResponse *said)
{
    if (said->controller_id != s->controller)
        return wrong(a, "broker %d says that %d is the controller, not %d", broker, said->controller_id, s->controller);
    if (said->n_topics != s->topics_count)
        return wrong(a, "broker %d knows %zu topics, %zu are stored", broker, said->n_topics, s->topics_count);
    for (size_t i = 0; i < said->n_topics; i++)
        if (!says_topic(a, broker, s, said->topics[i]))
            return false;
    return true;
}

/* Who is registered listens, but for the moment before it is gone. */
static bool listens(int port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    bool is_so = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return is_so;
}

static bool agrees(struct agreement *a, int32_t broker, const struct stored *s)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__MetadataRequest metadata = BROOK__METADATA_REQUEST__INIT;
    struct raw_client client;
    int port = agreement_port(a->r, broker);
    if (!port)
        return wrong(a, "broker %d is not registered", broker);
    if (!listens(port))
        return wrong(a, "broker %d does not listen", broker);
    raw_open(&client, port);
    metadata.has_all = metadata.all = true;
    request.body_case = BROOK__REQUEST__BODY_METADATA;
    request.metadata = &metadata;
    const Brook__Response *response = raw_ask(&client, &request, NULL, 0);
    bool is_so = response && !raw_status(response) ? says_all(a, broker, s, response->metadata)
                                                   : wrong(a, "broker %d says nothing", broker);
    raw_close(&client);
    return is_so;
}

int agreement_port(struct replicated *r, int32_t broker)
{
    struct path path;
    struct znode_broker node;
    const struct got *got = get(r, path_broker_id(&path, broker));
    if (got->err || znode_decode_broker(got->data, got->data_bytes, &node, NULL))
        return 0;
    int port = (int)node.port;
    znode_broker_done(&node);
    return port;
}

bool agreement_holds(void *arg)
{
    struct agreement *a = arg;
    struct stored *s = calloc(1, sizeof *s);
    ck_assert_ptr_nonnull(s);
    s->a = a;
    bool is_so = are_registered(a) && is_idle(a) && read_controller(a, s) && read_topics(s) && all_sound(a, s);
    for (const char *broker = a->asked; is_so && *broker; broker++)
        is_so = agrees(a, *broker - '0', s);
    stored_done(s);
    free(s);
    return is_so;
}

void agreement_wait(struct agreement *a, const char *what)
{
    if (!replicated_wait(a->r, agreement_holds, a, REPLICATED_WAIT_MS))
        ck_abort_msg("%s: %s", what, a->why);
}
