#include "tests/cluster/nemesis/trail.h"

#include <stdlib.h>

void trail_add(struct trail *t, struct trail_entry entry)
{
    if (t->count == t->room) {
        t->room = t->room ? 2 * t->room : 1024;
        t->entries = realloc(t->entries, t->room * sizeof *t->entries);
        if (!t->entries)
            abort();
    }
    t->entries[t->count++] = entry;
}

void trail_done(struct trail *t)
{
    free(t->entries);
    *t = (struct trail){0};
}
