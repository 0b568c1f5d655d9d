#include "broker/cluster/topic_deletion.h"

#include "coordination/changes.h"
#include "coordination/paths.h"
#include "coordination/tombstones.h"
#include "coordination/tree.h"
#include "proto/base/clock.h"
#include "proto/base/cleanup.h"
#include "proto/base/diag.h"
#include "proto/base/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#define ENDED_MAX 256

/* One topic's removal: a chain of calls. */
struct deletion {
    UT_hash_handle hh; /* by name */
    struct topic_deletions *all;
    uint64_t term;
    bool is_running;
    int64_t not_before_ms;
    bool has_node;
    bool has_config;
    struct topic_id topic_id; /* zero: the node made no sense */
    char **groups;            /* whose offsets are to be emptied */
    size_t groups_count;
    size_t groups_next;
    int32_t *numbers; /* partitions that the group before groups_next has offsets of */
    size_t numbers_count;
    size_t numbers_next;
    char **paths; /* below and with the topic's node, children first */
    size_t paths_count;
    size_t paths_next;
    char name[];
};

struct topic_deletions {
    struct topic_deletions_settings s;
    struct deletion *table;
    unsigned running;
    uint64_t term;
    bool is_active;
    int32_t epoch_version;
};

int topic_deletions_new(const struct topic_deletions_settings *settings,
                        struct topic_deletions **ret_deletions)
{
    struct topic_deletions *all = calloc(1, sizeof *all);
    if (!all)
        return -BROOK_E_NOMEM;
    all->s = *settings;
    *ret_deletions = all;
    return 0;
}

static void free_texts(char ***texts, size_t *count)
{
    for (size_t i = 0; i < *count; i++)
        free((*texts)[i]);
    free(*texts);
    *texts = NULL;
    *count = 0;
}

static void clear(struct deletion *d)
{
    free_texts(&d->groups, &d->groups_count);
    free_texts(&d->paths, &d->paths_count);
    free(TAKE(d->numbers));
    d->groups_next = d->numbers_count = d->numbers_next = d->paths_next = 0;
    d->has_node = d->has_config = false;
    memset(&d->topic_id, 0, sizeof d->topic_id);
}

static void deletion_free(struct deletion *d)
{
    HASH_DEL(d->all->table, d);
    clear(d);
    free(d);
}

void topic_deletions_free(struct topic_deletions *all)
{
    if (!all)
        return;
    struct deletion *d, *next;
    HASH_ITER(hh, all->table, d, next)
    deletion_free(d);
    free(all);
}

void topic_deletions_start(struct topic_deletions *all, int32_t epoch_version)
{
    all->is_active = true;
    all->term++;
    all->epoch_version = epoch_version;
}

void topic_deletions_stop(struct topic_deletions *all)
{
    all->is_active = false;
    all->term++;
}

static struct coordinator_call call_of(struct deletion *d, coordinator_callback *callback)
{
    return (struct coordinator_call){.inbox = d->all->s.inbox, .callback = callback, .arg = d};
}

/* The chain ends. Whether it did all or failed, a little later it may begin anew, if there is an intent then.
 */
static void end(struct deletion *d)
{
    d->is_running = false;
    d->all->running--;
    d->not_before_ms = clock_boot_ms() + TOPIC_DELETION_RETRY_MS;
    clear(d);
}

/* Whether to go on after an answer; if not, the chain has ended. */
static bool goes_on(struct deletion *d, int err)
{
    bool is_current = d->all->is_active && d->term == d->all->term;
    if (!err && is_current)
        return true;
    end(d);
    return false;
}

/* Every write needs the seat, and the intent: without it the topic of this name is another one, made since.
 */
static struct coordinator_multi *fenced_multi(struct deletion *d)
{
    struct path path;
    struct coordinator_multi *multi = coordinator_multi_new();
    if (!multi)
        return NULL;
    coordinator_multi_check(multi, PATH_CONTROLLER_EPOCH, d->all->epoch_version);
    coordinator_multi_check(multi, path_delete_topic(&path, d->name), -1);
    return multi;
}

static void send(struct deletion *d, struct coordinator_multi **multi, coordinator_callback *callback)
{
    struct coordinator_call call = call_of(d, callback);
    call.generation = coordinator_generation(d->all->s.coordinator);
    coordinator_multi_send(d->all->s.coordinator, multi, call);
}

static bool check_epoch(struct deletion *d, const struct coordinator_reply *reply)
{
    if (reply->err != -BROOK_E_BAD_VERSION || reply->failed_op != 0)
        return true;
    struct topic_deletions *all = d->all;
    bool is_current = d->term == all->term;
    end(d);
    if (is_current)
        all->s.outdated(all->s.arg);
    return false;
}

/* ---- last step -------------------------------------------------------------------------------------- */

static void removed(void *arg, const struct coordinator_reply *reply)
{
    struct deletion *d = arg;
    if (!check_epoch(d, reply))
        return;
    if (!reply->err)
        diag_log(d->all->s.diag, DIAG_INFO, "", "topic %s is deleted", d->name);
    end(d);
}

static void remove_topic(struct deletion *d)
{
    struct path path;
    char *topics[] = {d->name};
    struct znode_change change = {.topics = topics, .topics_count = 1};
    struct coordinator_multi *multi = fenced_multi(d);
    if (!multi)
        return end(d);
    if (d->has_node)
        coordinator_multi_delete(multi, path_topic(&path, d->name), -1);
    if (d->has_config)
        coordinator_multi_delete(multi, path_topic_config(&path, d->name), -1);
    coordinator_multi_delete(multi, path_delete_topic(&path, d->name), -1);
    if (!topic_id_is_zero(&d->topic_id))
        tombstones_add(multi, &d->topic_id);
    if (changes_announce(multi, &change)) {
        coordinator_multi_free(multi);
        return end(d);
    }
    send(d, &multi, removed);
}

static void config_seen(void *arg, const struct coordinator_reply *reply)
{
    struct deletion *d = arg;
    if (!goes_on(d, reply->err == -BROOK_E_NO_NODE ? 0 : reply->err))
        return;
    d->has_config = !reply->err;
    remove_topic(d);
}

/* ---- what is below the topic's node ----------------------------------------------------------------- */

static void remove_more(struct deletion *d);

static void chunk_removed(void *arg, const struct coordinator_reply *reply)
{
    struct deletion *d = arg;
    if (check_epoch(d, reply) && goes_on(d, reply->err))
        remove_more(d);
}

static void remove_more(struct deletion *d)
{
    struct path path;
    size_t last = d->paths_count ? d->paths_count - 1 : 0; /* the root: goes with the intent */
    if (d->paths_next >= last) {
        coordinator_exists(d->all->s.coordinator, path_topic_config(&path, d->name), call_of(d, config_seen));
        return;
    }
    struct coordinator_multi *multi = fenced_multi(d);
    if (!multi)
        return end(d);
    for (int i = 0; i < TOPIC_DELETION_NODES_PER_WRITE && d->paths_next < last; i++)
        coordinator_multi_delete(multi, d->paths[d->paths_next++], -1);
    send(d, &multi, chunk_removed);
}

static void tree_listed(void *arg, int err, char *const *paths, size_t count)
{
    struct deletion *d = arg;
    if (!goes_on(d, err == -BROOK_E_NO_NODE ? 0 : err))
        return;
    d->has_node = count > 0;
    d->paths = calloc(count + 1, sizeof *d->paths);
    for (size_t i = 0; d->paths && i < count; i++) {
        d->paths[i] = strdup(paths[i]);
        if (!d->paths[i])
            return end(d);
        d->paths_count++;
    }
    if (!d->paths)
        return end(d);
    remove_more(d);
}

static void list_tree(struct deletion *d)
{
    struct path path;
    tree_list(d->all->s.coordinator, path_topic(&path, d->name), d->all->s.inbox, tree_listed, d);
}

/* ---- offsets that groups stored --------------------------------------------------------------------- */

static void next_group(struct deletion *d);
static void empty_more(struct deletion *d);

static void offsets_emptied(void *arg, const struct coordinator_reply *reply)
{
    struct deletion *d = arg;
    if (check_epoch(d, reply) && goes_on(d, reply->err))
        empty_more(d);
}

/* Fenced like all else: they may belong to a topic made since. */
static void empty_more(struct deletion *d)
{
    const char *group = d->groups[d->groups_next - 1];
    struct path path;
    if (d->numbers_next == d->numbers_count)
        return next_group(d);
    struct coordinator_multi *multi = fenced_multi(d);
    if (!multi)
        return end(d);
    for (int i = 0; i < TOPIC_DELETION_NODES_PER_WRITE && d->numbers_next < d->numbers_count; i++)
        coordinator_multi_set(multi, path_offset(&path, group, d->name, d->numbers[d->numbers_next++]), "", 0, -1);
    send(d, &multi, offsets_emptied);
}

static void offsets_listed(void *arg, const struct coordinator_reply *reply)
{
    struct deletion *d = arg;
    if (!goes_on(d, reply->err == -BROOK_E_NO_NODE ? 0 : reply->err))
        return;
    size_t count = reply->err ? 0 : reply->children_count;
    free(d->numbers);
    d->numbers_count = d->numbers_next = 0;
    d->numbers = malloc((count + 1) * sizeof *d->numbers);
    if (!d->numbers)
        return end(d);
    for (size_t i = 0; i < count; i++) {
        int32_t number = path_partition_number(reply->children[i]);
        if (number >= 0)
            d->numbers[d->numbers_count++] = number;
    }
    empty_more(d);
}

static void next_group(struct deletion *d)
{
    struct path path;
    if (d->groups_next >= d->groups_count)
        return list_tree(d);
    const char *group = d->groups[d->groups_next++];
    coordinator_children(d->all->s.coordinator, path_group_offsets(&path, group, d->name),
                         call_of(d, offsets_listed));
}

static void groups_listed(void *arg, const struct coordinator_reply *reply)
{
    struct deletion *d = arg;
    if (!goes_on(d, reply->err == -BROOK_E_NO_NODE ? 0 : reply->err))
        return;
    size_t count = reply->err ? 0 : reply->children_count;
    d->groups = calloc(count + 1, sizeof *d->groups);
    if (!d->groups)
        return end(d);
    for (size_t i = 0; i < count; i++) {
        if (!name_is_legal_group(reply->children[i], strlen(reply->children[i])))
            continue;
        d->groups[d->groups_count] = strdup(reply->children[i]);
        if (!d->groups[d->groups_count])
            return end(d);
        d->groups_count++;
    }
    next_group(d);
}

/* ---- first step ------------------------------------------------------------------------------------- */

static void node_read(void *arg, const struct coordinator_reply *reply)
{
    struct deletion *d = arg;
    struct znode_topic node;
    if (!goes_on(d, reply->err == -BROOK_E_NO_NODE ? 0 : reply->err))
        return;
    if (!reply->err && !znode_decode_topic(reply->data, reply->data_bytes, &node, NULL)) {
        d->topic_id = node.topic_id;
        znode_topic_done(&node);
    }
    coordinator_children(d->all->s.coordinator, PATH_CONSUMERS, call_of(d, groups_listed));
}

static void intent_seen(void *arg, const struct coordinator_reply *reply)
{
    struct deletion *d = arg;
    struct path path;
    if (goes_on(d, reply->err))
        coordinator_get(d->all->s.coordinator, path_topic(&path, d->name), call_of(d, node_read));
}

/* Those that ended are remembered for a moment only. */
static void prune(struct topic_deletions *all)
{
    struct deletion *d, *next;
    if (HASH_COUNT(all->table) < ENDED_MAX)
        return;
    HASH_ITER(hh, all->table, d, next)
    if (!d->is_running && clock_boot_ms() >= d->not_before_ms)
        deletion_free(d);
}

static struct deletion *find_or_add(struct topic_deletions *all, const char *topic)
{
    struct deletion *d;
    HASH_FIND_STR(all->table, topic, d);
    if (d)
        return d;
    prune(all);
    d = calloc(1, sizeof *d + strlen(topic) + 1);
    if (!d)
        return NULL;
    d->all = all;
    memcpy(d->name, topic, strlen(topic) + 1);
    HASH_ADD_STR(all->table, name, d);
    return d;
}

void topic_deletions_want(struct topic_deletions *all, const char *topic)
{
    struct path path;
    if (!all->is_active || all->running >= TOPIC_DELETIONS_IN_FLIGHT_MAX ||
        !name_is_legal_topic(topic, strlen(topic)))
        return;
    struct deletion *d = find_or_add(all, topic);
    if (!d || d->is_running || clock_boot_ms() < d->not_before_ms)
        return;
    d->is_running = true;
    d->term = all->term;
    all->running++;
    coordinator_exists(all->s.coordinator, path_delete_topic(&path, topic), call_of(d, intent_seen));
}
