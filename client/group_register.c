/* The ids node. Registering walks over ZooKeeper's answers:
 *
 *     create --done--> registered
 *            --no folder--> make it --> create
 *            --is there--> read it: another session's -> refused, the machine tries again
 *                                   ours, as it should be -> set (a new incarnation), nobody needs to know
 *                                   ours, another subscription -> multi {delete, create}, so that all see it
 */
#include "client/group_driver_private.h"

#include "proto/base/clock.h"
#include "proto/base/err.h"

#include <stdlib.h>
#include <string.h>

/* One at a time. The group forgets it when it is closed; it frees itself with its answer. */
struct registration {
    struct group *group; /* NULL: forgotten */
    uint64_t op;
    bool replace;
    struct coordinator *coordinator;
    int64_t session_id;
    char *data;
    size_t data_bytes;
    struct path path;
    struct path folder;
};

static void registration_end(struct registration *r, int err)
{
    struct group *g = r->group;
    uint64_t op = r->op;
    free(r->data);
    free(r);
    if (!g)
        return;
    g->registration = NULL;
    group_step(g, (struct group_event){.kind = GROUP_EVENT_REGISTERED, .op = op, .err = err});
}

static bool is_over(struct registration *r)
{
    if (r->group)
        return false;
    registration_end(r, 0);
    return true;
}

void group_forget_registration(struct group *g)
{
    if (g->registration)
        g->registration->group = NULL;
    g->registration = NULL;
}

static void create(struct registration *r);

static void on_set(void *arg, const struct coordinator_reply *reply)
{
    struct registration *r = arg;
    if (!is_over(r))
        registration_end(r, reply->err);
}

static void send_replace(struct registration *r)
{
    struct coordinator_multi *multi = coordinator_multi_new();
    if (!multi) {
        registration_end(r, -BROOK_E_NOMEM);
        return;
    }
    coordinator_multi_delete(multi, r->path.text, -1);
    coordinator_multi_create(multi, r->path.text, r->data, r->data_bytes, ZNODE_EPHEMERAL);
    coordinator_multi_send(r->coordinator, &multi, group_call(r->group, on_set, r));
}

static bool says_the_same(const struct znode_member *a, const struct znode_member *b)
{
    if (a->is_pattern != b->is_pattern || a->topics_count != b->topics_count || !a->strategy ||
        strcmp(a->strategy, b->strategy) != 0 || a->algorithm_version != b->algorithm_version)
        return false;
    for (size_t i = 0; i < a->topics_count; i++) {
        bool found = false;
        for (size_t j = 0; j < b->topics_count && !found; j++)
            found = strcmp(a->topics[i], b->topics[j]) == 0;
        if (!found)
            return false;
    }
    return true;
}

static void on_existing(void *arg, const struct coordinator_reply *reply)
{
    struct registration *r = arg;
    if (is_over(r))
        return;
    if (reply->err == -BROOK_E_NO_NODE) {
        create(r);
        return;
    }
    if (reply->err || reply->stat.ephemeral_owner != r->session_id) {
        registration_end(r, reply->err ? reply->err : -BROOK_E_NODE_EXISTS);
        return;
    }
    struct znode_member theirs = {0};
    struct znode_member ours;
    group_member_describe(r->group->machine, &ours);
    bool same = znode_decode_member(reply->data, reply->data_bytes, &theirs, NULL) == 0 &&
                says_the_same(&theirs, &ours);
    znode_member_done(&theirs);
    if (r->replace || !same)
        send_replace(r);
    else
        coordinator_set(r->coordinator, r->path.text, r->data, r->data_bytes, -1,
                        group_call(r->group, on_set, r));
}

static void on_folder(void *arg, const struct coordinator_reply *reply)
{
    struct registration *r = arg;
    if (is_over(r))
        return;
    if (reply->err == 0 || reply->err == -BROOK_E_NODE_EXISTS)
        create(r);
    else
        registration_end(r, reply->err);
}

static void on_created(void *arg, const struct coordinator_reply *reply)
{
    struct registration *r = arg;
    if (is_over(r))
        return;
    struct coordinator_call existing = group_call(r->group, on_existing, r);
    struct coordinator_call folder = group_call(r->group, on_folder, r);
    if (reply->err == -BROOK_E_NODE_EXISTS)
        coordinator_get(r->coordinator, r->path.text, existing);
    else if (reply->err == -BROOK_E_NO_NODE)
        coordinator_create_path(r->coordinator, r->folder.text, "", 0, folder);
    else
        registration_end(r, reply->err);
}

static void create(struct registration *r)
{
    coordinator_create(r->coordinator, r->path.text, r->data, r->data_bytes, ZNODE_EPHEMERAL,
                       group_call(r->group, on_created, r));
}

static struct registration *registration_new(struct group *g)
{
    struct registration *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    struct znode_member member;
    group_member_describe(g->machine, &member);
    member.host = g->host;
    member.incarnation = g->incarnation;
    member.timestamp_ms = clock_wall_ms();
    r->data = znode_encode_member(&member);
    if (!r->data) {
        free(r);
        return NULL;
    }
    r->data_bytes = strlen(r->data);
    r->group = g;
    r->coordinator = g->coordinator;
    r->session_id = coordinator_session_id(g->coordinator);
    path_group_member(&r->path, g->name, group_member_get_id(g->machine));
    path_group_ids(&r->folder, g->name);
    return r;
}

void group_register(struct group *g, uint64_t op, bool replace)
{
    group_forget_registration(g);
    struct registration *r = registration_new(g);
    if (!r) {
        group_step(g, (struct group_event){.kind = GROUP_EVENT_REGISTERED, .op = op, .err = -BROOK_E_NOMEM});
        return;
    }
    r->op = op;
    r->replace = replace;
    g->registration = r;
    create(r);
}

/* ---- the end ------------------------------------------------------------------------------------------- */

struct unregistration {
    struct group *group;
    uint64_t op;
};

static void on_unregistered(void *arg, const struct coordinator_reply *reply)
{
    struct unregistration *u = arg;
    struct group *g = u->group;
    group_step(g, (struct group_event){.kind = GROUP_EVENT_UNREGISTERED,
                                       .op = u->op,
                                       .err = reply->err == -BROOK_E_NO_NODE ? 0 : reply->err});
    free(u);
    group_unref(g);
}

void group_unregister(struct group *g, uint64_t op)
{
    struct unregistration *u = calloc(1, sizeof *u);
    if (!u) {
        group_step(g,
                   (struct group_event){.kind = GROUP_EVENT_UNREGISTERED, .op = op, .err = -BROOK_E_NOMEM});
        return;
    }
    *u = (struct unregistration){g, op};
    group_ref(g);
    struct path path;
    path_group_member(&path, g->name, group_member_get_id(g->machine));
    coordinator_delete_own(g->coordinator, path.text, group_call(g, on_unregistered, u));
}
