#include "client/cli/reassign_plan.h"

#include "proto/base/err.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void plan_done(struct plan *plan)
{
    for (size_t i = 0; i < plan->count; i++)
        free((void *)(uintptr_t)plan->list[i].replicas);
    free(plan->list);
    json_decref(plan->text);
    memset(plan, 0, sizeof *plan);
}

/* ---- making ----------------------------------------------------------------------------------------- */

struct target {
    int32_t broker;
    const char *rack; /* NULL: none */
    size_t replicas;
    size_t leads;
    bool is_chosen; /* for the partition at hand */
};

static int fill_targets(const struct brook_cluster *cluster, const int32_t *brokers, size_t count,
                        struct target *targets, struct brook_error *error)
{
    for (size_t i = 0; i < count; i++) {
        const struct brook_broker *found = NULL;
        for (size_t k = 0; k < cluster->brokers_count; k++)
            if (cluster->brokers[k].id == brokers[i])
                found = &cluster->brokers[k];
        if (!found)
            return brook_error_set(error, BROOK_E_INVALID, "broker %" PRId32 " is not alive", brokers[i]);
        targets[i] = (struct target){.broker = brokers[i], .rack = found->rack};
    }
    return 0;
}

static struct target *find(struct target *targets, size_t count, int32_t broker)
{
    for (size_t i = 0; i < count; i++)
        if (targets[i].broker == broker)
            return &targets[i];
    return NULL;
}

/* How many of those chosen are in the same rack. */
static size_t rack_use(const struct target *targets, size_t count, const struct target *t)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += targets[i].is_chosen && &targets[i] != t && targets[i].rack && t->rack &&
             strcmp(targets[i].rack, t->rack) == 0;
    return n;
}

static struct target *least(struct target *targets, size_t count)
{
    struct target *best = NULL;
    size_t best_use = 0;
    for (size_t i = 0; i < count; i++) {
        struct target *t = &targets[i];
        if (t->is_chosen)
            continue;
        size_t use = rack_use(targets, count, t);
        if (!best || use < best_use || (use == best_use && t->replicas < best->replicas)) {
            best = t;
            best_use = use;
        }
    }
    return best;
}

/* Who may stay and is not one too many in its rack or on its broker. `share`: no broker needs more replicas. */
static size_t keep(struct target *targets, size_t count, const struct brook_partition *p, size_t replicas, size_t share,
                   int32_t *ret)
{
    size_t n = 0;
    for (size_t i = 0; i < p->replicas_count && n < replicas; i++) {
        struct target *t = find(targets, count, p->replicas[i]);
        if (!t || t->replicas >= share || rack_use(targets, count, t) > 0)
            continue;
        t->is_chosen = true;
        t->replicas++;
        ret[n++] = t->broker;
    }
    return n;
}

static void place(struct target *targets, size_t count, const struct brook_partition *p, size_t replicas, size_t share,
                  int32_t *ret)
{
    for (size_t i = 0; i < count; i++)
        targets[i].is_chosen = false;
    size_t n = keep(targets, count, p, replicas, share, ret);
    while (n < replicas) {
        struct target *t = least(targets, count);
        t->is_chosen = true;
        t->replicas++;
        ret[n++] = t->broker;
    }
    size_t leader = 0;
    for (size_t i = 1; i < n; i++)
        if (find(targets, count, ret[i])->leads < find(targets, count, ret[leader])->leads)
            leader = i;
    int32_t first = ret[leader];
    memmove(ret + 1, ret, leader * sizeof *ret);
    ret[0] = first;
    find(targets, count, first)->leads++;
}

static size_t replicas_of(const struct brook_partition *p, int32_t replicas)
{
    return replicas > 0 ? (size_t)replicas : p->replicas_count;
}

/* Where a partition holds what `from` has one too many of, and has nothing of `to`: move that. A rack does not get
 * more crowded by it. Returns whether one was found. */
static bool move_one(struct plan *plan, struct target *targets, size_t count, struct target *from, struct target *to)
{
    for (size_t i = 0; i < plan->count; i++) {
        int32_t *list = (int32_t *)(uintptr_t)plan->list[i].replicas;
        size_t at = plan->list[i].replicas_count;
        bool has_to = false;
        for (size_t k = 0; k < count; k++)
            targets[k].is_chosen = false;
        for (size_t k = 0; k < plan->list[i].replicas_count; k++) {
            at = list[k] == from->broker ? k : at;
            has_to = has_to || list[k] == to->broker;
            find(targets, count, list[k])->is_chosen = true;
        }
        if (at == plan->list[i].replicas_count || has_to)
            continue;
        size_t before = rack_use(targets, count, from);
        from->is_chosen = false;
        if (rack_use(targets, count, to) > before)
            continue;
        list[at] = to->broker;
        from->replicas--;
        to->replicas++;
        return true;
    }
    return false;
}

/* What was kept where it is can leave somebody short. */
static void even_out(struct plan *plan, struct target *targets, size_t count)
{
    for (;;) {
        struct target *most = targets, *fewest = targets;
        for (size_t i = 1; i < count; i++) {
            most = targets[i].replicas > most->replicas ? &targets[i] : most;
            fewest = targets[i].replicas < fewest->replicas ? &targets[i] : fewest;
        }
        if (most->replicas - fewest->replicas < 2 || !move_one(plan, targets, count, most, fewest))
            return;
    }
}

static int place_all(const struct brook_cluster *cluster, struct target *targets, size_t count, int32_t replicas,
                     size_t share, struct plan *plan, struct brook_error *error)
{
    for (size_t t = 0; t < cluster->topics_count; t++)
        for (size_t i = 0; i < cluster->topics[t].partitions_count; i++) {
            const struct brook_partition *p = &cluster->topics[t].partitions[i];
            size_t n = replicas_of(p, replicas);
            if (n > count)
                return brook_error_set(error, BROOK_E_INVALID_REPLICATION, "%s: %zu replicas do not fit on %zu brokers",
                                       cluster->topics[t].name, n, count);
            int32_t *list = calloc(n + 1, sizeof *list);
            if (!list)
                return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
            place(targets, count, p, n, share, list);
            plan->list[plan->count++] = (struct brook_partition_plan){cluster->topics[t].name, p->partition, list, n};
        }
    even_out(plan, targets, count);
    return 0;
}

/* In the order in which they were placed. */
static void drop_unchanged(const struct brook_cluster *cluster, struct plan *plan)
{
    size_t kept = 0, at = 0;
    for (size_t t = 0; t < cluster->topics_count; t++)
        for (size_t i = 0; i < cluster->topics[t].partitions_count; i++) {
            const struct brook_partition *p = &cluster->topics[t].partitions[i];
            struct brook_partition_plan *made = &plan->list[at++];
            if (made->replicas_count == p->replicas_count &&
                memcmp(made->replicas, p->replicas, p->replicas_count * sizeof *p->replicas) == 0)
                free((void *)(uintptr_t)made->replicas);
            else
                plan->list[kept++] = *made;
        }
    plan->count = kept;
}

int plan_make(const struct brook_cluster *cluster, const int32_t *brokers, size_t brokers_count, int32_t replicas,
              struct plan *ret, struct brook_error *error)
{
    struct plan plan = {0};
    size_t partitions = 0, all = 0;
    for (size_t t = 0; t < cluster->topics_count; t++)
        for (size_t i = 0; i < cluster->topics[t].partitions_count; i++, partitions++)
            all += replicas_of(&cluster->topics[t].partitions[i], replicas);
    struct target *targets = calloc(brokers_count + 1, sizeof *targets);
    plan.list = calloc(partitions + 1, sizeof *plan.list);
    int r = targets && plan.list ? 0 : brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    if (!r)
        r = fill_targets(cluster, brokers, brokers_count, targets, error);
    if (!r)
        r = place_all(cluster, targets, brokers_count, replicas, (all + brokers_count - 1) / brokers_count, &plan, error);
    free(targets);
    if (r < 0) {
        plan_done(&plan);
        return r;
    }
    drop_unchanged(cluster, &plan);
    *ret = plan;
    return 0;
}

/* ---- files ------------------------------------------------------------------------------------------ */

static int read_entry(const json_t *entry, struct brook_partition_plan *ret)
{
    const json_t *topic = json_object_get(entry, "topic"), *partition = json_object_get(entry, "partition"),
                 *replicas = json_object_get(entry, "replicas");
    if (!json_is_string(topic) || !json_is_integer(partition) || !json_is_array(replicas))
        return -BROOK_E_INVALID;
    size_t count = json_array_size(replicas);
    int32_t *list = calloc(count + 1, sizeof *list);
    if (!list)
        return -BROOK_E_NOMEM;
    *ret = (struct brook_partition_plan){json_string_value(topic), (int32_t)json_integer_value(partition), list, count};
    for (size_t i = 0; i < count; i++) {
        const json_t *broker = json_array_get(replicas, i);
        json_int_t id = json_integer_value(broker);
        if (!json_is_integer(broker) || id < 0 || id > INT32_MAX)
            return -BROOK_E_INVALID;
        list[i] = (int32_t)id;
    }
    return 0;
}

int plan_read(const char *file, struct plan *ret, struct brook_error *error)
{
    json_error_t why;
    struct plan plan = {.text = json_load_file(file, JSON_REJECT_DUPLICATES, &why)};
    if (!plan.text)
        return brook_error_set(error, BROOK_E_INVALID, "%.200s: line %d: %.100s", file, why.line, why.text);
    const json_t *partitions = json_object_get(plan.text, "partitions");
    int r = json_is_array(partitions) ? 0 : -BROOK_E_INVALID;
    plan.list = calloc(json_array_size(partitions) + 1, sizeof *plan.list);
    for (size_t i = 0; !r && plan.list && i < json_array_size(partitions); i++)
        r = read_entry(json_array_get(partitions, i), &plan.list[plan.count++]);
    if (r < 0 || !plan.list) {
        plan_done(&plan);
        return brook_error_set(error, BROOK_E_INVALID,
                               "%.200s is no plan: {\"partitions\":[{\"topic\":..,\"partition\":..,\"replicas\":[..]}]}", file);
    }
    *ret = plan;
    return 0;
}

json_t *plan_json(const struct brook_partition_plan *list, size_t count)
{
    json_t *partitions = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *replicas = json_array();
        for (size_t k = 0; k < list[i].replicas_count; k++)
            json_array_append_new(replicas, json_integer(list[i].replicas[k]));
        json_array_append_new(partitions, json_pack("{s:s,s:i,s:o}", "topic", list[i].topic, "partition",
                                                    (int)list[i].partition, "replicas", replicas));
    }
    return json_pack("{s:i,s:o}", "version", 1, "partitions", partitions);
}
