#include "tests/support/fake_cluster.h"

#include "broker/cluster/view_builder.h"
#include "broker/partition/partition.h"
#include "broker/replication/replica.h"
#include "coordination/coordinator.h"
#include "tests/support/suite.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TOPICS_MAX 256
#define LOOPS_MAX 16

struct fake_topic {
    char name[TOPIC_ID_TEXT_BYTES + 256];
    struct topic_id id;
    struct topic_config config;
    bool being_deleted;
    int32_t partitions_count;
    struct fake_partition {
        struct partition *partition;
        struct replica *replica;
        int32_t leader;
        int32_t epoch;
    } * partitions;
};

struct subscriber {
    struct inbox *inbox;
    cluster_view_callback *changed;
    void *arg;
};

struct cluster {
    char directory[512];
    struct fake_topic topics[TOPICS_MAX];
    size_t topics_count;
    uint64_t version;
    pthread_mutex_t lock;
    struct view *view;
    struct coordinator *coordinator; /* NULL: nobody has asked for it */
    struct subscriber subscribers[LOOPS_MAX];
    size_t subscribers_count;
    int32_t port; /* of the broker, as metadata tells it */
};

/* ---- views --------------------------------------------------------------------------------------------- */

static const int32_t ourselves = FAKE_CLUSTER_BROKER;

static void describe_partition(const void *arg, int32_t number, struct view_partition *ret)
{
    const struct fake_topic *t = arg;
    *ret = (struct view_partition){.leader = t->partitions[number].leader,
                                   .leader_epoch = t->partitions[number].epoch,
                                   .replicas_count = 1,
                                   .isr_count = 1,
                                   .replicas = &ourselves,
                                   .isr = &ourselves,
                                   .local = t->partitions[number].partition,
                                   .replica = t->partitions[number].replica};
}

static struct view_block *block_of(const struct fake_topic *t)
{
    struct view_block_source source = {.name = t->name,
                                       .topic_id = t->id,
                                       .config = &t->config,
                                       .being_deleted = t->being_deleted,
                                       .partitions_count = t->partitions_count,
                                       .partition = describe_partition,
                                       .arg = t};
    struct view_block *block = view_block_new(&source);
    ck_assert_ptr_nonnull(block);
    return block;
}

static int compare_topics(const void *a, const void *b)
{
    return strcmp(((const struct fake_topic *)a)->name, ((const struct fake_topic *)b)->name);
}

struct delivery {
    struct inbox_item item;
    struct subscriber to;
    struct view *view;
    pthread_mutex_t *lock; /* of somebody who waits; NULL: nobody does */
    pthread_cond_t *arrived;
    bool *is_there;
};

static void deliver(struct inbox_item *item)
{
    struct delivery *d = CONTAINER_OF(item, struct delivery, item);
    if (d->view)
        d->to.changed(d->to.arg, d->view);
    if (d->lock) {
        pthread_mutex_lock(d->lock);
        *d->is_there = true;
        pthread_cond_signal(d->arrived);
        pthread_mutex_unlock(d->lock);
    }
    free(d);
}

static void post(const struct subscriber *to, struct view *view)
{
    struct delivery *d = calloc(1, sizeof *d);
    ck_assert_ptr_nonnull(d);
    d->item.run = deliver;
    d->to = *to;
    d->view = view_ref(view);
    inbox_post(to->inbox, &d->item);
}

static void publish(struct cluster *c)
{
    static char host[] = "127.0.0.1";
    const struct view_broker broker = {.broker_id = FAKE_CLUSTER_BROKER, .host = host, .port = c->port};
    struct view_block *blocks[TOPICS_MAX];
    qsort(c->topics, c->topics_count, sizeof c->topics[0], compare_topics);
    for (size_t i = 0; i < c->topics_count; i++)
        blocks[i] = block_of(&c->topics[i]);
    struct view_source source = {.version = ++c->version,
                                 .cluster_id = "fake",
                                 .controller = FAKE_CLUSTER_BROKER,
                                 .brokers = &broker,
                                 .brokers_count = 1,
                                 .blocks = blocks,
                                 .blocks_count = c->topics_count};
    struct view *view = view_new(&source);
    ck_assert_ptr_nonnull(view);
    for (size_t i = 0; i < c->topics_count; i++)
        view_block_unref(blocks[i]);
    pthread_mutex_lock(&c->lock);
    view_unref(c->view);
    c->view = view;
    for (size_t i = 0; i < c->subscribers_count; i++)
        post(&c->subscribers[i], view);
    pthread_mutex_unlock(&c->lock);
}

/* ---- for tests ----------------------------------------------------------------------------------------- */

struct cluster *fake_cluster_new(const char *directory)
{
    struct cluster *c = calloc(1, sizeof *c);
    ck_assert_ptr_nonnull(c);
    snprintf(c->directory, sizeof c->directory, "%s", directory);
    pthread_mutex_init(&c->lock, NULL);
    c->port = 9092;
    publish(c);
    return c;
}

void fake_cluster_set_port(struct cluster *c, int port)
{
    c->port = port;
    publish(c);
}

void fake_cluster_free(struct cluster *c)
{
    coordinator_free(c->coordinator, false, 1000);
    view_unref(c->view);
    for (size_t i = 0; i < c->topics_count; i++) {
        for (int32_t n = 0; n < c->topics[i].partitions_count; n++) {
            replica_unref(c->topics[i].partitions[n].replica);
            partition_unref(c->topics[i].partitions[n].partition);
        }
        free(c->topics[i].partitions);
    }
    pthread_mutex_destroy(&c->lock);
    free(c);
}

void fake_cluster_topic_defaults(struct topic_config *config)
{
    *config = (struct topic_config){.message_bytes_max = 2 << 20,
                                    .min_insync_replicas = 1,
                                    .timestamp_before_ms_max = INT64_MAX,
                                    .timestamp_after_ms_max = INT64_MAX};
    log_settings_default(&config->log);
}

/* One replica each, so nothing is ever to be looked at. */
static const struct replica_settings replicas = {.broker_id = FAKE_CLUSTER_BROKER, .lag_ms_max = 10000};

static void take_role(struct fake_partition *p)
{
    struct znode_state state = {.leader = p->leader,
                                .leader_epoch = p->epoch,
                                .isr_count = 1,
                                .isr = {FAKE_CLUSTER_BROKER},
                                .isr_epochs = {1}};
    int32_t broker = FAKE_CLUSTER_BROKER;
    struct znode_replicas assigned = {.brokers = &broker, .count = 1};
    struct replica_news news = {.state = &state,
                                .version = p->epoch,
                                .replicas = &assigned,
                                .broker_epoch = 1,
                                .is_assigned = true,
                                .min_in_sync = 1};
    struct replica_step step;
    ck_assert_int_eq(replica_take_news(p->replica, &news, &step), REPLICA_CHANGE);
}

static struct partition *open_partition(const struct cluster *c, const struct fake_topic *t, int32_t number)
{
    char path[1024];
    struct log_hint hint = {.recovery_point = -1, .start_offset = -1};
    struct log_recovery recovery;
    struct brook_error error;
    struct log *log;
    struct partition *p;
    snprintf(path, sizeof path, "%s/%s-%d", c->directory, t->name, number);
    int r = log_open(path, &t->config.log, &hint, &log, &recovery, &error);
    ck_assert_msg(r == 0, "%s", r == 0 ? "" : error.text);
    ck_assert_int_eq(partition_new(t->name, number, t->id.bytes, &log, &p), 0);
    return p;
}

struct topic_id fake_cluster_add_topic_with(struct cluster *c, const char *name, int32_t partitions,
                                            const struct topic_config *config)
{
    ck_assert_uint_lt(c->topics_count, TOPICS_MAX);
    struct fake_topic *t = &c->topics[c->topics_count++];
    snprintf(t->name, sizeof t->name, "%s", name);
    topic_id_random(&t->id);
    t->config = *config;
    t->partitions_count = partitions;
    t->partitions = calloc((size_t)partitions, sizeof t->partitions[0]);
    ck_assert_ptr_nonnull(t->partitions);
    for (int32_t n = 0; n < partitions; n++) {
        t->partitions[n].partition = open_partition(c, t, n);
        t->partitions[n].leader = FAKE_CLUSTER_BROKER;
        t->partitions[n].epoch = 1;
        ck_assert_int_eq(replica_new(&replicas, t->partitions[n].partition, &t->partitions[n].replica), 0);
        take_role(&t->partitions[n]);
    }
    struct topic_id id = t->id;
    publish(c);
    return id;
}

struct topic_id fake_cluster_add_topic(struct cluster *c, const char *name, int32_t partitions)
{
    struct topic_config config;
    fake_cluster_topic_defaults(&config);
    return fake_cluster_add_topic_with(c, name, partitions, &config);
}

static struct fake_topic *find(struct cluster *c, const char *name)
{
    for (size_t i = 0; i < c->topics_count; i++)
        if (strcmp(c->topics[i].name, name) == 0)
            return &c->topics[i];
    ck_abort_msg("no topic %s", name);
    return NULL;
}

struct partition *fake_cluster_partition(struct cluster *c, const char *topic, int32_t number)
{
    return find(c, topic)->partitions[number].partition;
}

void fake_cluster_set_leader(struct cluster *c, const char *topic, int32_t number, int32_t leader,
                             int32_t epoch)
{
    struct fake_partition *p = &find(c, topic)->partitions[number];
    p->leader = leader;
    p->epoch = epoch;
    take_role(p);
    publish(c);
}

void fake_cluster_delete_topic(struct cluster *c, const char *name)
{
    find(c, name)->being_deleted = true;
    publish(c);
}

void fake_cluster_settle(struct cluster *c)
{
    for (size_t i = 0; i < c->subscribers_count; i++) {
        pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
        bool is_there = false;
        struct delivery *d = calloc(1, sizeof *d);
        ck_assert_ptr_nonnull(d);
        *d =
            (struct delivery){.item.run = deliver, .lock = &lock, .arrived = &arrived, .is_there = &is_there};
        inbox_post(c->subscribers[i].inbox, &d->item);
        pthread_mutex_lock(&lock);
        while (!is_there)
            pthread_cond_wait(&arrived, &lock);
        pthread_mutex_unlock(&lock);
    }
}

/* ---- cluster.h ----------------------------------------------------------------------------------------- */

int cluster_new(const struct cluster_settings *settings, const struct cluster_events *events,
                struct cluster **ret_cluster, struct brook_error *error)
{
    return brook_error_set(error, BROOK_E_UNSUPPORTED, "this is the fake cluster: fake_cluster_new()");
}

void cluster_drain(struct cluster *c)
{
}

void cluster_free(struct cluster *c)
{
    fake_cluster_free(c);
}

int cluster_subscribe(struct cluster *c, struct inbox *inbox, cluster_view_callback *changed, void *arg)
{
    pthread_mutex_lock(&c->lock);
    ck_assert_uint_lt(c->subscribers_count, LOOPS_MAX);
    struct subscriber *s = &c->subscribers[c->subscribers_count++];
    *s = (struct subscriber){.inbox = inbox, .changed = changed, .arg = arg};
    post(s, c->view);
    pthread_mutex_unlock(&c->lock);
    return 0;
}

int64_t cluster_replication_quota(const struct cluster *c)
{
    (void)c;
    return 0;
}

int64_t cluster_move_throttle(const struct cluster *c)
{
    (void)c;
    return 0;
}

struct offsets *cluster_offsets(struct cluster *c)
{
    return NULL;
}

const struct topic_config *cluster_topic_defaults(const struct cluster *c)
{
    static struct topic_config defaults;
    fake_cluster_topic_defaults(&defaults);
    return &defaults;
}

/* One whose ZooKeeper never answers: what handlers ask of it ends with COORDINATION_LOST. */
struct coordinator *cluster_coordinator(struct cluster *c)
{
    const struct coordinator_settings settings = {.connect = "127.0.0.1:1", .session_timeout_ms = 500};
    struct brook_error error;
    pthread_mutex_lock(&c->lock);
    if (!c->coordinator)
        ck_assert_int_eq(coordinator_new(&settings, &c->coordinator, &error), 0);
    pthread_mutex_unlock(&c->lock);
    return c->coordinator;
}

bool cluster_is_ready(struct cluster *c, struct brook_error *why)
{
    return true;
}

struct answer {
    struct inbox_item item;
    cluster_topic_callback *cb;
    void *arg;
    struct cluster_topic_result result;
};

static void run_answer(struct inbox_item *item)
{
    struct answer *a = CONTAINER_OF(item, struct answer, item);
    a->cb(a->arg, &a->result);
    free(a);
}

/* Every administrative intent is refused the same way: it has a test of its own with the real cluster. */
static void refuse(const char *what, const char *name, struct inbox *inbox, cluster_topic_callback *cb,
                   void *arg)
{
    struct answer *a = calloc(1, sizeof *a);
    ck_assert_ptr_nonnull(a);
    a->item.run = run_answer;
    a->cb = cb;
    a->arg = arg;
    brook_error_set(&a->result.error, BROOK_E_NOT_CONTROLLER, "%s %s: the fake cluster has no controller",
                    what, name);
    inbox_post(inbox, &a->item);
}

void cluster_create_topic(struct cluster *c, const struct cluster_new_topic *topic, bool validate_only,
                          int timeout_ms, struct inbox *inbox, cluster_topic_callback *cb, void *arg)
{
    refuse("create", topic->name, inbox, cb, arg);
}

void cluster_delete_topic(struct cluster *c, const char *name, bool validate_only, int timeout_ms,
                          struct inbox *inbox, cluster_topic_callback *cb, void *arg)
{
    refuse("delete", name, inbox, cb, arg);
}

void cluster_alter_config(struct cluster *c, const char *name, const struct znode_config *changes,
                          bool validate_only, int timeout_ms, struct inbox *inbox, cluster_topic_callback *cb,
                          void *arg)
{
    refuse("alter", name, inbox, cb, arg);
}

void cluster_add_partitions(struct cluster *c, const char *name, int32_t partitions, bool validate_only,
                            int timeout_ms, struct inbox *inbox, cluster_topic_callback *cb, void *arg)
{
    refuse("add partitions to", name, inbox, cb, arg);
}

struct id_answer {
    struct inbox_item item;
    cluster_producer_id_callback *callback;
    void *arg;
};

static void answer_id(struct inbox_item *item)
{
    static int64_t next = 1000;
    struct id_answer *a = CONTAINER_OF(item, struct id_answer, item);
    a->callback(a->arg, 0, next++);
    free(a);
}

int cluster_new_producer_id(struct cluster *c, struct inbox *inbox, cluster_producer_id_callback *callback,
                            void *arg)
{
    struct id_answer *a = malloc(sizeof *a);
    ck_assert_ptr_nonnull(a);
    *a = (struct id_answer){.item.run = answer_id, .callback = callback, .arg = arg};
    inbox_post(inbox, &a->item);
    return 0;
}

struct petition_answer {
    struct inbox_item item;
    cluster_petition_callback *cb;
    void *arg;
};

static void answer_petition(struct inbox_item *item)
{
    struct petition_answer *a = CONTAINER_OF(item, struct petition_answer, item);
    struct cluster_petition_result result = {0};
    brook_error_set(&result.error, BROOK_E_UNSUPPORTED, "this cluster has no controller");
    a->cb(a->arg, &result);
    free(a);
}

void cluster_petition(struct cluster *c, const struct cluster_petition *what, int timeout_ms, struct inbox *inbox,
                      cluster_petition_callback *cb, void *arg)
{
    struct petition_answer *a = malloc(sizeof *a);
    ck_assert_ptr_nonnull(a);
    *a = (struct petition_answer){.item.run = answer_petition, .cb = cb, .arg = arg};
    inbox_post(inbox, &a->item);
}
