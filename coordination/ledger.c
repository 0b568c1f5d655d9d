#include "coordination/ledger.h"

#include "proto/base/err.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

struct ledger_entry {
    UT_hash_handle hh;
    char path[];
};

void ledger_clear(struct ledger *l)
{
    struct ledger_entry *entry, *next;
    HASH_ITER(hh, l->entries, entry, next)
    {
        HASH_DEL(l->entries, entry);
        free(entry);
    }
    l->bytes = 0;
}

int ledger_add(struct ledger *l, const char *path)
{
    struct ledger_entry *entry;
    size_t bytes = strlen(path);
    HASH_FIND(hh, l->entries, path, bytes, entry);
    if (entry)
        return 0;
    if (l->bytes + bytes > l->bytes_max)
        return -BROOK_E_TOO_MANY;
    entry = malloc(sizeof *entry + bytes + 1);
    if (!entry)
        return -BROOK_E_NOMEM;
    memcpy(entry->path, path, bytes + 1);
    HASH_ADD(hh, l->entries, path[0], (unsigned)bytes, entry);
    l->bytes += bytes;
    return 0;
}

void ledger_remove(struct ledger *l, const char *path)
{
    struct ledger_entry *entry;
    size_t bytes = strlen(path);
    HASH_FIND(hh, l->entries, path, bytes, entry);
    if (!entry)
        return;
    HASH_DEL(l->entries, entry);
    l->bytes -= bytes;
    free(entry);
}
