#include "broker/cluster/config_change.h"

#include "broker/cluster/topic_config.h"
#include "coordination/znodes.h"

#include <stdlib.h>
#include <string.h>

static const struct znode_config_entry *find(const struct znode_config *config, const char *key)
{
    for (size_t i = 0; i < config->count; i++)
        if (!strcmp(config->entries[i].key, key))
            return &config->entries[i];
    return NULL;
}

/* Each key once, and what is taken away is a setting, or was set. */
static int check_changes(const struct znode_config *old, const struct znode_config *changes,
                         struct brook_error *error)
{
    for (size_t i = 0; i < changes->count; i++) {
        const struct znode_config_entry *e = &changes->entries[i];
        if (find(changes, e->key) != e)
            return brook_error_set(error, BROOK_E_INVALID_CONFIG, "%.100s: named more than once", e->key);
        if (!e->value && !find(old, e->key) && !topic_config_knows(e->key))
            return brook_error_set(error, BROOK_E_INVALID_CONFIG, "%.100s: no such topic setting", e->key);
    }
    return 0;
}

static int add(struct znode_config *config, const struct znode_config_entry *entry)
{
    struct znode_config_entry copy = {strdup(entry->key), strdup(entry->value)};
    if (!copy.key || !copy.value) {
        free(copy.key);
        free(copy.value);
        return -BROOK_E_NOMEM;
    }
    config->entries[config->count++] = copy;
    return 0;
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct znode_config_entry *)a)->key, ((const struct znode_config_entry *)b)->key);
}

/* What stays of `old`, then what is set. */
static int merge(const struct znode_config *old, const struct znode_config *changes, struct znode_config *to)
{
    int r = 0;
    to->entries = calloc(old->count + changes->count + 1, sizeof *to->entries);
    if (!to->entries)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < old->count && r == 0; i++)
        if (!find(changes, old->entries[i].key))
            r = add(to, &old->entries[i]);
    for (size_t i = 0; i < changes->count && r == 0; i++)
        if (changes->entries[i].value)
            r = add(to, &changes->entries[i]);
    qsort(to->entries, to->count, sizeof *to->entries, compare);
    return r;
}

static bool is_equal(const struct znode_config *a, const struct znode_config *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        const struct znode_config_entry *other = find(b, a->entries[i].key);
        if (!other || strcmp(other->value, a->entries[i].value) != 0)
            return false;
    }
    return true;
}

int config_change_apply(const struct znode_config *old, const struct znode_config *changes,
                        const struct topic_config *defaults, int32_t replicas, struct znode_config *ret,
                        bool *ret_changed, struct brook_error *error)
{
    struct znode_config merged = {0};
    struct topic_config config;
    int r = check_changes(old, changes, error);
    if (r == 0 && merge(old, changes, &merged) != 0)
        r = brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    if (r == 0)
        r = topic_config_apply(defaults, &merged, &config, error);
    if (r == 0 && find(changes, "min.insync.replicas"))
        r = topic_config_check_replicas(&config, replicas, error);
    if (r == 0)
        r = topic_config_check_sizes(&config, changes, error);
    if (r != 0) {
        znode_config_done(&merged);
        return r;
    }
    *ret_changed = !is_equal(old, &merged);
    *ret = merged;
    return 0;
}
