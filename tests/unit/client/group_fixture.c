#include "tests/unit/client/group_fixture.h"

#include "coordination/coordinator.h"
#include "coordination/offsets.h"
#include "coordination/paths.h"
#include "coordination/znodes.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "tests/support/caller.h"
#include "tests/support/stub_broker.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct zookeeper *fixture_zk;
const char *const fixture_topics[FIXTURE_TOPICS] = {"alpha", "beta", "gamma"};

struct fixture_admin {
    struct caller k;
    struct coordinator *c;
    /* The broker's part, on the stub's thread. */
    struct caller broker;
    struct coordinator *broker_session;
    struct offsets *offsets;
};

/* ---- the broker --------------------------------------------------------------------------------------- */

struct answer {
    bool done;
    size_t count;
    struct offsets_result results[1000];
};

static void on_commit(void *arg, const struct offsets_commit_reply *reply)
{
    struct answer *a = arg;
    a->done = true;
    a->count = reply->count;
    memcpy(a->results, reply->results, reply->count * sizeof *reply->results);
}

static bool is_done(void *arg)
{
    return ((struct answer *)arg)->done;
}

static const char *text_of(const ProtobufCBinaryData *b, char *to, size_t room)
{
    snprintf(to, room, "%.*s", (int)b->len, (const char *)b->data);
    return to;
}

static void carry_out(struct fixture_admin *a, const Brook__CommitOffsetsRequest *q, struct answer *answer)
{
    static char topics[1000][64];
    static struct offsets_entry entries[1000];
    char group[128], member[160];
    for (size_t i = 0; i < q->n_offsets; i++)
        entries[i] = (struct offsets_entry){text_of(&q->offsets[i]->topic, topics[i], sizeof topics[i]),
                                            q->offsets[i]->partition, q->offsets[i]->offset,
                                            q->offsets[i]->expected_version};
    ck_assert_int_eq(offsets_commit(a->offsets, text_of(&q->group, group, sizeof group),
                                    text_of(&q->member, member, sizeof member), entries, q->n_offsets,
                                    &a->broker.inbox, on_commit, answer),
                     0);
    ck_assert(caller_wait(&a->broker, is_done, answer, CALLER_TIMEOUT_MS));
}

static enum stub_verdict on_request(void *arg, const struct stub_request *request)
{
    static struct answer answer;
    static Brook__CommittedOffset committed[1000];
    static Brook__CommittedOffset *pointers[1000];
    static Brook__Status status[1000];
    if (request->request->body_case != BROOK__REQUEST__BODY_COMMIT_OFFSETS)
        return STUB_PASS;
    answer.done = false;
    carry_out(arg, request->request->commit_offsets, &answer);
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__CommitOffsetsResponse body = BROOK__COMMIT_OFFSETS_RESPONSE__INIT;
    for (size_t i = 0; i < answer.count; i++) {
        brook__committed_offset__init(&committed[i]);
        brook__status__init(&status[i]);
        committed[i].has_version = 1;
        committed[i].version = answer.results[i].version;
        status[i].has_code = 1;
        status[i].code = -answer.results[i].err;
        committed[i].status = answer.results[i].err ? &status[i] : NULL;
        pointers[i] = &committed[i];
    }
    body.n_offsets = answer.count;
    body.offsets = pointers;
    response.body_case = BROOK__RESPONSE__BODY_COMMIT_OFFSETS;
    response.commit_offsets = &body;
    stub_reply(request, &response, NULL, 0, 0);
    return STUB_DONE;
}

/* ---- the administrator -------------------------------------------------------------------------------- */

static void make_path(struct fixture *f, const char *path)
{
    coordinator_create_path(f->admin->c, path, "", 0, caller_begin(&f->admin->k));
    caller_end(&f->admin->k);
}

void fixture_init(struct fixture *f, const char *chroot)
{
    struct fixture_admin *a = calloc(1, sizeof *a);
    memset(f, 0, sizeof *f);
    f->admin = a;
    snprintf(f->connect, sizeof f->connect, "%s", zookeeper_connect(fixture_zk, chroot));
    caller_init(&a->k);
    caller_init(&a->broker);
    a->c = caller_connect(&a->k, f->connect, 10000, NULL);
    a->broker_session = caller_connect(&a->broker, f->connect, 10000, NULL);
    ck_assert_int_eq(offsets_new(a->broker_session, &a->broker.inbox, &a->offsets), 0);
    make_path(f, PATH_TOPICS);
    f->cluster = stub_cluster_new(1);
    stub_cluster_on_request(f->cluster, on_request, a);
}

void fixture_done(struct fixture *f)
{
    struct fixture_admin *a = f->admin;
    stub_cluster_free(f->cluster);
    offsets_free(a->offsets);
    coordinator_free(a->broker_session, false, 3000);
    coordinator_free(a->c, false, 3000);
    caller_done(&a->broker);
    caller_done(&a->k);
    free(a);
}

static const struct got *look(struct fixture *f, const char *path)
{
    coordinator_get(f->admin->c, path, caller_begin(&f->admin->k));
    return caller_end(&f->admin->k);
}

void fixture_topic(struct fixture *f, int topic, int32_t partitions, bool anew)
{
    static int32_t broker = 1;
    static struct topic_id ids[FIXTURE_TOPICS];
    static struct znode_replicas replicas[FIXTURE_PARTITIONS];
    struct path path;
    path_topic(&path, fixture_topics[topic]);
    bool exists = fixture_exists(f, path.text);
    if (!exists || anew)
        topic_id_random(&ids[topic]);
    for (int32_t p = 0; p < partitions; p++)
        replicas[p] = (struct znode_replicas){&broker, 1};
    struct znode_topic t = {.topic_id = ids[topic], .partitions_count = partitions, .replicas = replicas};
    char *data = znode_encode_topic(&t);
    if (exists)
        coordinator_set(f->admin->c, path.text, data, strlen(data), -1, caller_begin(&f->admin->k));
    else
        coordinator_create(f->admin->c, path.text, data, strlen(data), ZNODE_PERSISTENT,
                           caller_begin(&f->admin->k));
    ck_assert_int_eq(caller_end(&f->admin->k)->err, 0);
    free(data);
}

void fixture_delete(struct fixture *f, const char *path)
{
    coordinator_delete(f->admin->c, path, -1, caller_begin(&f->admin->k));
    ck_assert_int_eq(caller_end(&f->admin->k)->err, 0);
}

void fixture_replace(struct fixture *f, const char *path, const char *data)
{
    struct coordinator_multi *multi = coordinator_multi_new();
    coordinator_multi_delete(multi, path, -1);
    coordinator_multi_create(multi, path, data, strlen(data), ZNODE_EPHEMERAL);
    coordinator_multi_send(f->admin->c, &multi, caller_begin(&f->admin->k));
    ck_assert_int_eq(caller_end(&f->admin->k)->err, 0);
}

bool fixture_exists(struct fixture *f, const char *path)
{
    return look(f, path)->err == 0;
}

int32_t fixture_assignment_version(struct fixture *f)
{
    struct path path;
    const struct got *got = look(f, path_group_assignment(&path, "g"));
    return got->err ? -1 : got->stat.version;
}

int64_t fixture_offset(struct fixture *f, int topic, int32_t partition)
{
    struct path path;
    int64_t offset = -2;
    const struct got *got = look(f, path_offset(&path, "g", fixture_topics[topic], partition));
    if (!got->err)
        ck_assert_int_eq(znode_decode_offset(got->data, got->data_bytes, &offset, NULL), 0);
    return offset;
}

long fixture_packets(void)
{
    static char text[8192];
    ck_assert_int_gt(zookeeper_ask(fixture_zk, "mntr", text, sizeof text, 2000), 0);
    const char *at = strstr(text, "zk_packets_received");
    ck_assert_ptr_nonnull(at);
    return strtol(at + strlen("zk_packets_received"), NULL, 10);
}

/* ---- peers: what the group tells ---------------------------------------------------------------------- */

static int topic_index(const char *name)
{
    for (int t = 0; t < FIXTURE_TOPICS; t++)
        if (strcmp(name, fixture_topics[t]) == 0)
            return t;
    ck_abort_msg("topic %s", name);
    return -1;
}

static struct peer_partition *place_of(struct peer *p, const char *topic, int32_t partition)
{
    return &p->partitions[topic_index(topic)][partition];
}

static void on_assigned(void *arg, const struct brook_position *positions, size_t count)
{
    struct peer *p = arg;
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < count; i++) {
        struct peer_partition *x = place_of(p, positions[i].topic, positions[i].partition);
        ck_assert(!x->has);
        *x = (struct peer_partition){true, true, positions[i].offset, group_generation(p->group)};
    }
    p->assigned += (int)count;
    pthread_mutex_unlock(&p->lock);
}

static void on_revoking(void *arg, const struct brook_position *positions, size_t count)
{
    struct peer *p = arg;
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < count; i++) {
        struct peer_partition *x = place_of(p, positions[i].topic, positions[i].partition);
        ck_assert(x->has && x->delivers);
        x->delivers = false;
    }
    p->revoked += (int)count;
    pthread_mutex_unlock(&p->lock);
    if (p->drain_ms >= 0)
        client_timer_set(p->timer, p->drain_ms);
}

static void on_lost(void *arg, const struct brook_position *positions, size_t count)
{
    struct peer *p = arg;
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < count; i++) {
        struct peer_partition *x = place_of(p, positions[i].topic, positions[i].partition);
        ck_assert(x->has);
        x->has = x->delivers = false;
    }
    p->lost += (int)count;
    pthread_mutex_unlock(&p->lock);
}

static int64_t on_drain_over(void *arg, const char *topic, int32_t partition)
{
    struct peer *p = arg;
    pthread_mutex_lock(&p->lock);
    struct peer_partition *x = place_of(p, topic, partition);
    ck_assert(x->has && !x->delivers);
    x->has = false;
    p->hurried++;
    pthread_mutex_unlock(&p->lock);
    return -1;
}

static void on_failed(void *arg, const struct brook_error *error)
{
    struct peer *p = arg;
    pthread_mutex_lock(&p->lock);
    p->failure = *error;
    pthread_mutex_unlock(&p->lock);
}

static void let_go(struct peer *p, int64_t offset)
{
    for (int t = 0; t < FIXTURE_TOPICS; t++)
        for (int32_t n = 0; n < FIXTURE_PARTITIONS; n++) {
            struct peer_partition *x = &p->partitions[t][n];
            pthread_mutex_lock(&p->lock);
            bool goes = x->has && !x->delivers;
            x->has = x->has && x->delivers;
            pthread_mutex_unlock(&p->lock);
            if (goes)
                group_drained(p->group, fixture_topics[t], n, offset);
        }
}

static void on_timer(void *arg)
{
    let_go(arg, -1);
}

/* ---- peers: on their loop ----------------------------------------------------------------------------- */

struct order {
    struct peer *p;
    const struct peer_options *options;
    enum group_leave_mode mode;
    bool kept;
    int64_t offset;
    struct brook_position position;
    _Atomic bool done;
    int err;
};

static void start(void *arg)
{
    struct order *o = arg;
    struct brook_error error = {0};
    struct group_events events = {on_assigned, on_revoking, on_lost, on_drain_over, on_failed, o->p};
    o->err = group_new(o->p->client, &events, &o->p->group, &error);
    ck_assert_msg(o->err == 0, "%s", error.text);
    o->p->timer = client_timer_new(o->p->client, on_timer, o->p);
}

static void subscribe(void *arg)
{
    struct order *o = arg;
    struct brook_error error = {0};
    const struct peer_options *x = o->options;
    const char *standard[] = {"alpha"};
    size_t count = 0;
    while (x && x->topics[count])
        count++;
    const char *const *topics = count ? x->topics : standard;
    ck_assert_msg(group_subscribe(o->p->group, topics, count ? count : 1, x ? x->pattern : NULL, &error) == 0,
                  "%s", error.text);
}

static void end(void *arg)
{
    struct order *o = arg;
    if (o->mode == GROUP_LEAVE_FOR_RESTART && !o->kept)
        client_keep_session(o->p->client);
    group_free(o->p->group);
    client_timer_free(o->p->timer);
}

static bool order_is_done(void *arg)
{
    return atomic_load(&((struct order *)arg)->done);
}

static void on_left(void *arg, int err)
{
    struct order *o = arg;
    o->err = err;
    atomic_store(&o->done, true);
}

static void leave(void *arg)
{
    struct order *o = arg;
    group_leave(o->p->group, o->mode, 10000, on_left, o);
}

static void on_committed(void *arg, int err, const struct brook_position *which)
{
    on_left(arg, err);
}

static void commit(void *arg)
{
    struct order *o = arg;
    group_commit(o->p->group, &o->position, 1, 10000, on_committed, o);
}

static void let_go_now(void *arg)
{
    struct order *o = arg;
    let_go(o->p, o->offset);
}

/* ---- peers: calls ------------------------------------------------------------------------------------- */

static void on_log(void *arg, int level, const char *subject, const char *message)
{
    if (getenv("BROOK_VERBOSE"))
        fprintf(stderr, "# %lld %s: %s\n", (long long)clock_boot_ms(), subject, message);
}

static void set(brook_config *config, const char *key, const char *value)
{
    struct brook_error error = {0};
    ck_assert_msg(brook_config_set(config, key, value, &error) == 0, "%s", error.text);
}

struct peer *peer_new(struct fixture *f, const struct peer_options *options)
{
    struct peer *p = calloc(1, sizeof *p);
    struct order order = {.p = p, .options = options};
    struct brook_error error = {0};
    brook_config *config;
    char number[16];
    p->fixture = f;
    p->drain_ms = options ? options->drain_ms : 0;
    pthread_mutex_init(&p->lock, NULL);
    ck_assert_int_eq(brook_config_new(&config), 0);
    brook_config_set_log(config, on_log, NULL);
    set(config, "zookeeper.connect", f->connect);
    set(config, "bootstrap.servers", stub_cluster_servers(f->cluster));
    set(config, "group.id", "g");
    snprintf(number, sizeof number, "%d", FIXTURE_TIMEOUT_MS);
    set(config, "session.timeout.ms", number);
    set(config, "rebalance.settle.ms", "100");
    set(config, "rebalance.drain.ms", "3000");
    for (int i = 0; options && options->settings[i]; i += 2)
        set(config, options->settings[i], options->settings[i + 1]);
    ck_assert_msg(client_new(config, 1 << 20, &p->client, &error) == 0, "%s", error.text);
    brook_config_free(config);
    client_call(p->client, start, &order);
    group_poll_begin(p->group);
    peer_subscribe(p, options);
    return p;
}

void peer_subscribe(struct peer *p, const struct peer_options *options)
{
    struct order order = {.p = p, .options = options};
    client_call(p->client, subscribe, &order);
}

static void destroy(struct peer *p, struct order *order)
{
    client_call(p->client, end, order);
    client_free(p->client);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

int peer_leave(struct peer *p, enum group_leave_mode mode)
{
    struct order order = {.p = p, .mode = mode};
    client_call(p->client, leave, &order);
    ck_assert(suite_wait(order_is_done, &order, 15000));
    order.kept = group_keeps_session(p->group) || mode == GROUP_LEAVE;
    destroy(p, &order);
    return order.err;
}

void peer_kill(struct peer *p)
{
    struct order order = {.p = p, .mode = GROUP_LEAVE_FOR_RESTART};
    destroy(p, &order);
}

bool peer_has(struct peer *p, int topic, int32_t partition)
{
    pthread_mutex_lock(&p->lock);
    bool has = p->partitions[topic][partition].has;
    pthread_mutex_unlock(&p->lock);
    return has;
}

int64_t peer_offset(struct peer *p, int topic, int32_t partition)
{
    pthread_mutex_lock(&p->lock);
    int64_t offset = p->partitions[topic][partition].offset;
    pthread_mutex_unlock(&p->lock);
    return offset;
}

bool peer_delivers(struct peer *p, int topic, int32_t partition)
{
    pthread_mutex_lock(&p->lock);
    struct peer_partition x = p->partitions[topic][partition];
    bool delivers = x.delivers && group_may_deliver(p->group, x.generation);
    pthread_mutex_unlock(&p->lock);
    return delivers;
}

int peer_count(struct peer *p, int topic)
{
    int count = 0;
    for (int32_t n = 0; n < FIXTURE_PARTITIONS; n++)
        count += peer_delivers(p, topic, n);
    return count;
}

void peer_let_go(struct peer *p, int64_t offset)
{
    struct order order = {.p = p, .offset = offset};
    client_call(p->client, let_go_now, &order);
}

int peer_commit(struct peer *p, int topic, int32_t partition, int64_t offset)
{
    struct order order = {.p = p, .position = {fixture_topics[topic], partition, offset}};
    client_call(p->client, commit, &order);
    ck_assert(suite_wait(order_is_done, &order, 15000));
    return order.err;
}

struct id_order {
    struct peer *p;
    char *id;
    size_t room;
};

static void get_id(void *arg)
{
    struct id_order *o = arg;
    group_member_id(o->p->group, o->id, o->room);
}

void peer_member_id(struct peer *p, char *id, size_t room)
{
    struct id_order order = {p, id, room};
    client_call(p->client, get_id, &order);
}

bool peers_share(struct peer **peers, int count, int topic, int32_t partitions)
{
    bool complete = true;
    for (int32_t n = 0; n < partitions; n++) {
        int deliverers = 0;
        for (int i = 0; i < count; i++)
            deliverers += peer_delivers(peers[i], topic, n);
        ck_assert_msg(deliverers <= 1, "%d members deliver %s/%d", deliverers, fixture_topics[topic], n);
        complete = complete && deliverers == 1;
    }
    for (int i = 0; i < count && complete; i++) {
        int own = peer_count(peers[i], topic);
        complete = own >= partitions / count && own <= (partitions + count - 1) / count;
    }
    return complete;
}

struct sharing {
    struct peer **peers;
    int count;
    int topic;
    int32_t partitions;
};

static bool is_shared(void *arg)
{
    const struct sharing *s = arg;
    return peers_share(s->peers, s->count, s->topic, s->partitions);
}

int64_t peers_settle(struct peer **peers, int count, int topic, int32_t partitions, int timeout_ms)
{
    struct sharing s = {peers, count, topic, partitions};
    int64_t begin = clock_boot_ms();
    bool settled = suite_wait(is_shared, &s, timeout_ms);
    for (int i = 0; i < count && !settled; i++)
        fprintf(stderr, "# peer %d delivers %d of %d partitions\n", i, peer_count(peers[i], topic),
                partitions);
    ck_assert_msg(settled, "not shared within %d ms", timeout_ms);
    return clock_boot_ms() - begin;
}

bool peer_delivers_nothing(void *arg)
{
    return peer_count(((struct peer_gone *)arg)->p, 0) == 0;
}

bool peer_has_lost(void *arg)
{
    const struct peer_gone *g = arg;
    return g->p->lost >= g->lost;
}
