#include "broker/cluster/state_reader.h"

#include "coordination/paths.h"
#include "proto/base/cleanup.h"
#include "proto/base/names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum step_kind { STEP_ALL, STEP_BROKERS, STEP_TOPIC, STEP_NODE, STEP_STATES, STEP_ENDS };

/* Something to read, in the order asked for. States are read one by one as there is room. */
struct step {
    struct step *next;
    struct state_reader *reader;
    enum step_kind kind;
    unsigned calls; /* under way that point here */
    bool is_issued;
    struct topic_id topic_id; /* STATES */
    int32_t *numbers;         /* NULL: 0 .. count - 1 */
    int32_t count;
    int32_t at;
    struct image_broker *brokers; /* BROKERS, as they come in */
    size_t brokers_count;
    char name[]; /* topic */
};

struct call {
    struct step *step;
    int32_t number;
};

struct state_reader {
    struct coordinator *coordinator;
    struct inbox *inbox;
    struct image *image;
    struct state_reader_events events;
    struct step *head;
    struct step **tail;
    unsigned in_flight;
    unsigned nodes; /* steps that read topics' nodes, or will */
    int err;
    bool is_reading_all;
    bool read_all_again;
    bool is_complete;
    bool is_pumping;
};

static void pump(struct state_reader *r);

/* ---- steps ------------------------------------------------------------------------------------------ */

static void fail(struct state_reader *r, int err)
{
    if (!r->err)
        r->err = err;
}

static bool reads_nodes(enum step_kind kind)
{
    return kind == STEP_ALL || kind == STEP_TOPIC || kind == STEP_NODE;
}

static struct step *add(struct state_reader *r, enum step_kind kind, const char *name)
{
    size_t bytes = strlen(name) + 1;
    struct step *step = calloc(1, sizeof *step + bytes);
    if (!step) {
        fail(r, -BROOK_E_NOMEM);
        return NULL;
    }
    step->reader = r;
    step->kind = kind;
    memcpy(step->name, name, bytes);
    *r->tail = step;
    r->tail = &step->next;
    r->nodes += reads_nodes(kind);
    return step;
}

static void step_free(struct step *step)
{
    step->reader->nodes -= reads_nodes(step->kind);
    for (size_t i = 0; i < step->brokers_count; i++)
        znode_broker_done(&step->brokers[i].node);
    free(step->brokers);
    free(step->numbers);
    free(step);
}

static void issue(struct step *step, int32_t number, bool children, const char *path,
                  coordinator_callback *callback)
{
    struct state_reader *r = step->reader;
    struct call *call = malloc(sizeof *call);
    if (!call)
        return fail(r, -BROOK_E_NOMEM);
    *call = (struct call){step, number};
    step->calls++;
    r->in_flight++;
    struct coordinator_call how = {.inbox = r->inbox, .callback = callback, .arg = call, .urgent = true};
    if (children)
        coordinator_children(r->coordinator, path, how);
    else
        coordinator_get(r->coordinator, path, how);
}

/* A call has ended: returns what it was about. The step lives until step_release(). */
static struct step *answered(void *arg, int32_t *ret_number, const struct coordinator_reply *reply)
{
    struct call *call = arg;
    struct step *step = call->step;
    *ret_number = call->number;
    free(call);
    step->reader->in_flight--;
    if (reply->err && reply->err != -BROOK_E_NO_NODE)
        fail(step->reader, reply->err);
    return step;
}

static void step_release(struct step *step)
{
    struct state_reader *r = step->reader;
    if (--step->calls == 0 && step->is_issued)
        step_free(step);
    pump(r);
}

/* Said once, and again when the reason is another. */
static void say_odd(struct state_reader *r, const char *path, const char *topic, int32_t partition,
                    const struct brook_error *error)
{
    if (unreadable_put(image_unreadable(r->image), path, topic, partition, error->text))
        r->events.odd(r->events.arg, path, error);
}

/* It was read, or is gone. */
static void say_well(struct state_reader *r, const char *path)
{
    if (unreadable_clear(image_unreadable(r->image), path))
        r->events.mended(r->events.arg, path);
}

static void say_foreign(struct state_reader *r, const char *parent, const char *child, const char *what)
{
    char path[PATH_BYTES_MAX];
    struct brook_error error;
    snprintf(path, sizeof path, "%s/%.200s", parent, child);
    brook_error_set(&error, BROOK_E_BAD_ZNODE, "%s", what);
    say_odd(r, path, NULL, -1, &error);
}

static void keep_children(struct state_reader *r, const char *parent, const struct coordinator_reply *reply)
{
    if (!reply->err && unreadable_keep_children(image_unreadable(r->image), parent, reply->children, reply->children_count))
        r->events.mended(r->events.arg, parent);
}

/* ---- brokers ---------------------------------------------------------------------------------------- */

static void broker_read(void *arg, const struct coordinator_reply *reply)
{
    int32_t id;
    struct step *step = answered(arg, &id, reply);
    struct brook_error error;
    struct znode_broker node;
    struct path path;
    path_broker_id(&path, id);
    if (!reply->err && znode_decode_broker(reply->data, reply->data_bytes, &node, &error)) {
        say_odd(step->reader, path.text, NULL, -1, &error);
    } else if (!reply->err) {
        step->brokers[step->brokers_count++] = (struct image_broker){id, node};
        say_well(step->reader, path.text);
    }
    if (step->calls == 1 && !step->reader->err) {
        image_set_brokers(step->reader->image, step->brokers, step->brokers_count);
        step->brokers = NULL;
        step->brokers_count = 0;
    }
    step_release(step);
}

static void brokers_listed(void *arg, const struct coordinator_reply *reply)
{
    int32_t unused;
    struct step *step = answered(arg, &unused, reply);
    struct state_reader *r = step->reader;
    struct path path;
    size_t count = reply->err ? 0 : reply->children_count;
    step->brokers = calloc(count + 1, sizeof *step->brokers);
    if (!step->brokers)
        fail(r, -BROOK_E_NOMEM);
    for (size_t i = 0; step->brokers && i < count; i++) {
        int32_t id = path_partition_number(reply->children[i]); /* canonical decimal, like a partition's */
        if (id >= 0)
            issue(step, id, false, path_broker_id(&path, id), broker_read);
        else
            say_foreign(r, PATH_BROKER_IDS, reply->children[i], "not the number of a broker");
    }
    keep_children(r, PATH_BROKER_IDS, reply);
    if (step->calls == 1 && step->brokers && !r->err) {
        image_set_brokers(r->image, step->brokers, 0);
        step->brokers = NULL;
    }
    step_release(step);
}

/* ---- topics ----------------------------------------------------------------------------------------- */

static void take_state(struct state_reader *r, struct image_topic *topic, int32_t number,
                       const struct znode_state *state, int32_t version)
{
    int32_t before = topic->partitions[number].version;
    if (image_set_state(topic, number, state, version))
        fail(r, -BROOK_E_NOMEM);
    else if (version != before)
        r->events.state(r->events.arg, topic, number);
}

static void state_read(void *arg, const struct coordinator_reply *reply)
{
    int32_t number;
    struct step *step = answered(arg, &number, reply);
    struct state_reader *r = step->reader;
    struct image_topic *topic = image_find(r->image, step->name);
    struct brook_error error;
    struct znode_state state;
    struct path path;
    if (topic && topic_id_equal(&topic->node.topic_id, &step->topic_id) &&
        number < topic->node.partitions_count && (!reply->err || reply->err == -BROOK_E_NO_NODE)) {
        path_partition_state(&path, step->name, number);
        bool is_odd = !reply->err && znode_decode_state(reply->data, reply->data_bytes, &state, &error);
        topic->partitions[number].is_unreadable = is_odd;
        if (reply->err)
            image_set_state(topic, number, NULL, -1);
        else if (!is_odd)
            take_state(r, topic, number, &state, reply->stat.version);
        if (is_odd)
            say_odd(r, path.text, step->name, number, &error);
        else
            say_well(r, path.text);
    }
    step_release(step);
}

static void add_states(struct state_reader *r, const struct image_topic *topic, const int32_t *numbers,
                       size_t count)
{
    struct step *step = add(r, STEP_STATES, topic->name);
    if (!step)
        return;
    step->topic_id = topic->node.topic_id;
    step->count = numbers ? (int32_t)count : topic->node.partitions_count;
    if (!numbers)
        return;
    step->numbers = malloc(count * sizeof *numbers + 1);
    if (step->numbers)
        memcpy(step->numbers, numbers, count * sizeof *numbers);
    else
        step->count = 0, fail(r, -BROOK_E_NOMEM);
}

static void config_read(void *arg, const struct coordinator_reply *reply)
{
    int32_t unused;
    struct step *step = answered(arg, &unused, reply);
    struct state_reader *r = step->reader;
    struct image_topic *topic = image_find(r->image, step->name);
    struct znode_config config = {0};
    struct brook_error error;
    struct path path;
    path_topic_config(&path, step->name);
    if (topic && !reply->err && znode_decode_config(reply->data, reply->data_bytes, &config, &error))
        say_odd(r, path.text, step->name, -1, &error);
    else if (topic && (!reply->err || reply->err == -BROOK_E_NO_NODE)) {
        if (image_set_config(topic, &config, &error))
            say_odd(r, path.text, step->name, -1, &error);
        else
            say_well(r, path.text);
    }
    if (topic && (!reply->err || reply->err == -BROOK_E_NO_NODE))
        topic->config_zxid = reply->err ? -1 : reply->stat.mzxid;
    if (topic)
        image_judge_config(topic, &config, reply->err ? -1 : reply->stat.version, reply->err ? -1 : reply->stat.czxid);
    znode_config_done(&config);
    step_release(step);
}

/* The node of a topic that is known: only who is assigned may have changed, and then the states are as they
 * were. */
static bool is_reassigned(const struct step *step, const struct znode_topic *node)
{
    const struct image_topic *topic = image_find(step->reader->image, step->name);
    return step->kind == STEP_NODE && topic && topic_id_equal(&topic->node.topic_id, &node->topic_id) &&
           topic->node.partitions_count == node->partitions_count;
}

static void topic_read(void *arg, const struct coordinator_reply *reply)
{
    int32_t unused;
    struct step *step = answered(arg, &unused, reply);
    struct state_reader *r = step->reader;
    struct image_topic *topic;
    struct znode_topic node;
    struct brook_error error;
    struct path path;
    path_topic(&path, step->name);
    if (reply->err == -BROOK_E_NO_NODE) {
        image_remove_topic(r->image, step->name);
        say_well(r, path.text);
    } else if (!reply->err && znode_decode_topic(reply->data, reply->data_bytes, &node, &error)) {
        say_odd(r, path.text, step->name, -1, &error);
        image_keep_topic(r->image, step->name);
    } else if (!reply->err) {
        say_well(r, path.text);
        bool is_known = is_reassigned(step, &node);
        int err = image_put_topic(r->image, step->name, &node, reply->stat.version, &topic);
        if (err)
            fail(r, err);
        else
            topic->made_zxid = reply->stat.czxid;
        if (!err && !is_known && step->kind == STEP_NODE)
            add(r, STEP_TOPIC, step->name);
        else if (!err && !is_known)
            add_states(r, topic, NULL, 0);
    }
    step_release(step);
}

/* ---- ends of logs ----------------------------------------------------------------------------------- */

static void end_read(void *arg, const struct coordinator_reply *reply)
{
    int32_t id;
    struct step *step = answered(arg, &id, reply);
    struct state_reader *r = step->reader;
    struct image_topic *topic = image_find(r->image, step->name);
    struct znode_ends ends = {0};
    struct brook_error error;
    struct path path;
    if (topic && !reply->err && znode_decode_ends(reply->data, reply->data_bytes, &ends, &error))
        say_odd(r, path_topic_end(&path, step->name, id), step->name, -1, &error);
    else if (topic && !reply->err && image_set_ends(topic, id, &ends))
        fail(r, -BROOK_E_NOMEM);
    else if (topic && !reply->err)
        say_well(r, path_topic_end(&path, step->name, id));
    znode_ends_done(&ends);
    step_release(step);
}

static void ends_listed(void *arg, const struct coordinator_reply *reply)
{
    int32_t unused;
    struct step *step = answered(arg, &unused, reply);
    struct path path;
    for (size_t i = 0; !reply->err && i < reply->children_count; i++) {
        int32_t id = path_partition_number(reply->children[i]);
        if (id >= 0)
            issue(step, id, false, path_topic_end(&path, step->name, id), end_read);
    }
    step_release(step);
}

static void topics_listed(void *arg, const struct coordinator_reply *reply)
{
    int32_t unused;
    struct step *step = answered(arg, &unused, reply);
    for (size_t i = 0; !reply->err && i < reply->children_count; i++)
        if (name_is_legal_topic(reply->children[i], strlen(reply->children[i])))
            add(step->reader, STEP_TOPIC, reply->children[i]);
        else
            say_foreign(step->reader, PATH_TOPICS, reply->children[i], "not the name of a topic");
    keep_children(step->reader, PATH_TOPICS, reply);
    step_release(step);
}

/* ---- the queue -------------------------------------------------------------------------------------- */

/* Returns whether the step is issued whole. */
static bool issue_step(struct step *step)
{
    struct path path;
    switch (step->kind) {
    case STEP_ALL:
        image_begin_round(step->reader->image);
        add(step->reader, STEP_BROKERS, "");
        issue(step, 0, true, PATH_TOPICS, topics_listed);
        return true;
    case STEP_BROKERS:
        issue(step, 0, true, PATH_BROKER_IDS, brokers_listed);
        return true;
    case STEP_TOPIC:
        /* Answers come in this order, so the settings find the topic. */
        issue(step, 0, false, path_topic(&path, step->name), topic_read);
        issue(step, 0, false, path_topic_config(&path, step->name), config_read);
        return true;
    case STEP_NODE:
        issue(step, 0, false, path_topic(&path, step->name), topic_read);
        return true;
    case STEP_ENDS:
        issue(step, 0, true, path_topic_ends(&path, step->name), ends_listed);
        return true;
    case STEP_STATES:
        if (step->at < step->count) {
            int32_t number = step->numbers ? step->numbers[step->at] : step->at;
            step->at++;
            issue(step, number, false, path_partition_state(&path, step->name, number), state_read);
        }
        return step->at >= step->count;
    }
    return true;
}

static void settle(struct state_reader *r)
{
    int err = r->err;
    r->err = 0;
    if (r->is_reading_all && !err)
        image_end_round(r->image);
    r->is_complete = !err && (r->is_complete || r->is_reading_all);
    r->is_reading_all = false;
    bool again = r->read_all_again && !err; /* after a failure it is for the caller to say when */
    r->read_all_again = false;
    if (again) {
        state_reader_read_all(r);
        return;
    }
    r->events.settled(r->events.arg, err);
}

static void pump(struct state_reader *r)
{
    if (r->is_pumping)
        return;
    r->is_pumping = true;
    while (r->head && r->in_flight < STATE_READS_IN_FLIGHT_MAX) {
        struct step *step = r->head;
        /* After a failure the rest is not worth asking. */
        if (!r->err && !issue_step(step))
            continue;
        r->head = step->next;
        if (!r->head)
            r->tail = &r->head;
        step->is_issued = true;
        if (!step->calls)
            step_free(step);
    }
    r->is_pumping = false;
    if (!r->head && !r->in_flight)
        settle(r);
}

int state_reader_new(struct coordinator *coordinator, struct inbox *inbox, struct image *image,
                     const struct state_reader_events *events, struct state_reader **ret_reader)
{
    struct state_reader *r = calloc(1, sizeof *r);
    if (!r)
        return -BROOK_E_NOMEM;
    r->coordinator = coordinator;
    r->inbox = inbox;
    r->image = image;
    r->events = *events;
    r->tail = &r->head;
    *ret_reader = r;
    return 0;
}

void state_reader_free(struct state_reader *r)
{
    if (!r)
        return;
    while (r->head) {
        struct step *step = r->head;
        r->head = step->next;
        step_free(step);
    }
    free(r);
}

void state_reader_read_all(struct state_reader *r)
{
    if (r->is_reading_all) {
        r->read_all_again = true;
        return;
    }
    r->is_reading_all = true;
    add(r, STEP_ALL, "");
    pump(r);
}

void state_reader_read_brokers(struct state_reader *r)
{
    add(r, STEP_BROKERS, "");
    pump(r);
}

void state_reader_read_topic(struct state_reader *r, const char *name)
{
    add(r, STEP_TOPIC, name);
    pump(r);
}

void state_reader_read_ends(struct state_reader *r, const char *name)
{
    add(r, STEP_ENDS, name);
    pump(r);
}

/* Whoever is assigned must not be known from an earlier time than the state: while nodes are being read, states are
 * read behind them. */
static bool may_take_quotes(const struct state_reader *r, const struct image_topic *topic,
                            const struct znode_change_partitions *named)
{
    if (r->nodes || !named->quotes || !topic_id_equal(&topic->node.topic_id, &named->topic_id))
        return false;
    for (size_t i = 0; i < named->partitions_count; i++)
        if (named->partitions[i] >= topic->node.partitions_count)
            return false;
    return true;
}

/* What a notification quotes was in the node at that version. Older than what is known it is of no use; but a first
 * version where there was a later one is another node, made by hand. */
static void take_quotes(struct state_reader *r, struct image_topic *topic, const struct znode_change_partitions *named)
{
    for (size_t i = 0; i < named->partitions_count; i++) {
        const struct znode_quote *quote = &named->quotes[i];
        int32_t known = topic->partitions[named->partitions[i]].version;
        if (quote->version > known)
            take_state(r, topic, named->partitions[i], &quote->state, quote->version);
        else if (quote->version == 0 && known > 0)
            add_states(r, topic, &named->partitions[i], 1);
    }
}

void state_reader_read_change(struct state_reader *r, const struct znode_change *change)
{
    if (change->brokers)
        add(r, STEP_BROKERS, "");
    for (size_t i = 0; i < change->topics_count; i++)
        if (name_is_legal_topic(change->topics[i], strlen(change->topics[i])))
            add(r, STEP_TOPIC, change->topics[i]);
    for (size_t i = 0; i < change->assigned_count; i++)
        if (name_is_legal_topic(change->assigned[i], strlen(change->assigned[i])))
            add(r, STEP_NODE, change->assigned[i]);
    for (size_t i = 0; i < change->states_count; i++) {
        const struct znode_change_partitions *named = &change->states[i];
        struct image_topic *topic = image_find(r->image, named->topic);
        if (topic && may_take_quotes(r, topic, named))
            take_quotes(r, topic, named);
        else if (topic)
            add_states(r, topic, named->partitions, named->partitions_count);
        else if (name_is_legal_topic(named->topic, strlen(named->topic)))
            add(r, STEP_TOPIC, named->topic);
    }
    pump(r);
}

void state_reader_read_unreadable(struct state_reader *r)
{
    const struct unreadable *all = image_unreadable(r->image);
    for (size_t i = 0; i < all->count; i++) {
        const struct unreadable_node *node = &all->list[i];
        if (!node->topic || (i && all->list[i - 1].topic && !strcmp(all->list[i - 1].topic, node->topic) &&
                             all->list[i - 1].partition < 0 && node->partition >= 0))
            continue; /* seen with the list of brokers or topics, or with the whole topic */
        struct image_topic *topic = node->partition >= 0 ? image_find(r->image, node->topic) : NULL;
        if (topic && node->partition < topic->node.partitions_count)
            add_states(r, topic, &node->partition, 1);
        else
            add(r, STEP_TOPIC, node->topic);
    }
    add(r, STEP_BROKERS, "");
    pump(r);
}

bool state_reader_is_reading_all(const struct state_reader *r)
{
    return r->is_reading_all;
}

bool state_reader_is_idle(const struct state_reader *r)
{
    return !r->head && !r->in_flight;
}

bool state_reader_is_complete(const struct state_reader *r)
{
    return r->is_complete;
}

void state_reader_forget(struct state_reader *r)
{
    r->is_complete = false;
    if (!state_reader_is_idle(r))
        fail(r, -BROOK_E_SESSION_EXPIRED);
}
