/* /config/topics/<T>, /config/brokers/<id>. */
#include "coordination/znodes.h"
#include "coordination/znodes_json.h"

#include <stdlib.h>
#include <string.h>

#define CONFIG_ENTRIES_MAX 256
#define CONFIG_TEXT_BYTES_MAX 4096

void znode_config_done(struct znode_config *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->count; i++) {
        free(c->entries[i].key);
        free(c->entries[i].value);
    }
    free(c->entries);
    memset(c, 0, sizeof *c);
}

char *znode_encode_config(const struct znode_config *c)
{
    AUTO_JSON json_t *root = json_pack("{s:i, s:{}}", "version", 1, "config");
    json_t *config = json_object_get(root, "config");
    for (size_t i = 0; i < c->count; i++)
        if (json_object_set_new(config, c->entries[i].key, json_string(c->entries[i].value)) < 0)
            return NULL;
    return json_to_text(root);
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct znode_config_entry *)a)->key, ((const struct znode_config_entry *)b)->key);
}

static int decode_entries(json_t *config, struct znode_config *c, struct brook_error *error)
{
    size_t count = json_object_size(config);
    const char *key;
    json_t *value;
    if (count == 0)
        return 0;
    if (count > CONFIG_ENTRIES_MAX)
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "more than %d settings", CONFIG_ENTRIES_MAX);
    c->entries = calloc(count, sizeof *c->entries);
    if (!c->entries)
        return -BROOK_E_NOMEM;
    json_object_foreach(config, key, value)
    {
        struct znode_config_entry *entry = &c->entries[c->count];
        int r = json_get_text(config, key, JSON_REQUIRED, CONFIG_TEXT_BYTES_MAX, &entry->value, error);
        if (r < 0)
            return r;
        c->count++;
        if (!(entry->key = strdup(key)))
            return -BROOK_E_NOMEM;
    }
    qsort(c->entries, c->count, sizeof *c->entries, compare_entries);
    return 0;
}

int znode_decode_config(const char *data, size_t bytes, struct znode_config *ret, struct brook_error *error)
{
    AUTO_JSON json_t *root = NULL;
    json_t *config = NULL;
    struct znode_config c = {0};
    int r = json_load_object(data, bytes, 1, 1, &root, error);
    if (r < 0 || (r = json_get_object(root, "config", JSON_OPTIONAL, &config, error)) < 0)
        return r;
    if (config && (r = decode_entries(config, &c, error)) < 0) {
        znode_config_done(&c);
        return r;
    }
    *ret = c;
    return 0;
}
