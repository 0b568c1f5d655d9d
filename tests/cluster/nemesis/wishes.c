#include "tests/cluster/nemesis/wishes.h"

#include "coordination/paths.h"
#include "coordination/znodes.h"
#include "tests/support/caller.h"

#include <stdlib.h>
#include <string.h>

#define SESSION_MS 4000

struct wishes {
    struct caller caller;
    struct coordinator *coordinator;
};

struct wishes *wishes_new(const char *connect)
{
    struct wishes *w = calloc(1, sizeof *w);
    if (!w)
        abort();
    caller_init(&w->caller);
    w->coordinator = caller_connect(&w->caller, connect, SESSION_MS, NULL);
    return w;
}

void wishes_free(struct wishes *w)
{
    if (!w)
        return;
    coordinator_free(w->coordinator, false, 1000);
    caller_done(&w->caller);
    free(w);
}

static bool wish(struct wishes *w, const char *path, const struct znode_wishes *list, enum znode_wish_kind kind)
{
    char *text = znode_encode_wishes(list, kind);
    if (!text)
        abort();
    coordinator_create_path(w->coordinator, path, text, strlen(text), caller_begin(&w->caller));
    bool done = caller_end(&w->caller)->err == 0;
    free(text);
    return done;
}

bool wishes_elect(struct wishes *w, const struct topics *topics)
{
    int32_t partitions = topics->partitions;
    struct znode_wish *list = calloc((size_t)partitions, sizeof *list);
    struct znode_wishes wishes = {.list = list, .count = (size_t)partitions};
    if (!list)
        abort();
    for (int32_t p = 0; p < partitions; p++)
        list[p] = (struct znode_wish){.topic = (char *)(intptr_t)topics_name(topics, p),
                                      .partition = topics_number(topics, p)};
    bool done = wish(w, PATH_PREFERRED_ELECTION, &wishes, ZNODE_WISH_ELECT);
    free(list);
    return done;
}

bool wishes_move(struct wishes *w, const struct topics *topics, int32_t partition, const int32_t *replicas,
                 int32_t count)
{
    struct znode_wish one = {.topic = (char *)(intptr_t)topics_name(topics, partition),
                             .partition = topics_number(topics, partition),
                             .replicas = {(int32_t *)(intptr_t)replicas, count}};
    struct znode_wishes wishes = {.list = &one, .count = 1};
    return wish(w, PATH_REASSIGN, &wishes, ZNODE_WISH_REASSIGN);
}
