/* Inside of the group driver: shared by group_{driver,effects,register,requests,watch}.c only. Loop thread,
 * but where marked [any].
 *
 *     group_driver.c    the public calls; steps; time
 *     group_effects.c   each effect of the machine, carried out or handed on
 *     group_register.c  the ids node
 *     group_watch.c     what is followed: ids, assignment, topics, owner nodes
 *     group_requests.c  views, assignments, claims, and commits on the wire
 */
#ifndef BROOK_CLIENT_GROUP_DRIVER_PRIVATE_H
#define BROOK_CLIENT_GROUP_DRIVER_PRIVATE_H

#include "client/client.h"
#include "client/group_commits.h"
#include "client/group_driver.h"
#include "client/group_member.h"
#include "coordination/coordinator.h"
#include "coordination/ownership.h"
#include "coordination/paths.h"

#include <stdatomic.h>

/* Positions handed to the consumer at once. */
#define GROUP_POSITIONS_MAX 128

struct topic_watch;
struct owner_watch;
struct registration;

/* What outlives the group: session events can not be called off. */
struct session_tap {
    struct group *group; /* NULL: gone */
};

struct group {
    struct client *client;
    struct coordinator *coordinator;
    struct group_events events;
    unsigned refs; /* the owner, and each request under way */
    bool closed;

    /* Settings. */
    const char *name;
    const char *instance_id; /* NULL: a dynamic member */
    char host[64];
    char incarnation[24];
    int settle_ms;
    int request_timeout_ms;

    struct topic_patterns *patterns;
    struct group_member *machine;
    bool running; /* effects are being carried out */
    struct client_timer *timer;
    struct session_tap *tap;
    struct client_listener listener;

    /* [any] */
    _Atomic int64_t polled_ms; /* INT64_MAX: a poll is running */
    _Atomic uint64_t generation;
    bool continues_without_lease;

    /* Partitions of the present registration. */
    struct ownership *ownership; /* made when needed */
    struct owner_watch *owner_watches;
    struct registration *registration;
    struct group_view_read *view_read;
    uint64_t view_op;

    struct observation *ids;
    struct observation *assignment;
    struct observation *topics;
    struct topic_watch *topic_watches;

    struct group_commits *commits;

    /* Effects of one kind in a row go to the consumer as one call. */
    enum group_effect_kind batch_kind;
    size_t batch_count;
    struct brook_position batch[GROUP_POSITIONS_MAX];

    /* A leave under way. */
    void (*left)(void *arg, int err);
    void *left_arg;
    int64_t leave_deadline_ms;
    enum group_leave_mode leave_mode;
    bool keeps_session;
};

/* group_driver.c */
/* Fill in the time and the rest, step, carry out. */
void group_step(struct group *g, struct group_event event);
void group_ref(struct group *g);
void group_unref(struct group *g);
struct coordinator_call group_call(struct group *g, coordinator_callback *callback, void *arg);
void group_end_leave(struct group *g, int err);
void group_log(const struct group *g, enum diag_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* group_effects.c */
void group_carry_out(struct group *g);

/* group_register.c */
void group_register(struct group *g, uint64_t op, bool replace);
void group_unregister(struct group *g, uint64_t op);
void group_forget_registration(struct group *g);

/* group_watch.c */
void group_watch_group(struct group *g);
void group_unwatch_group(struct group *g);
void group_check_group(struct group *g);
void group_watch_topics(struct group *g);
void group_watch_topic(struct group *g, const char *topic);
void group_unwatch_topic(struct group *g, const char *topic);
void group_watch_owner(struct group *g, const char *topic, int32_t partition);
void group_unwatch_owner(struct group *g, const char *topic, int32_t partition);
void group_unwatch_owners(struct group *g);
/* The id of a topic that is watched and exists; NULL: not known. */
const struct topic_id *group_topic_id(const struct group *g, const char *topic);

/* group_requests.c */
struct ownership *group_ownership(struct group *g);
void group_read_view(struct group *g, uint64_t op);
void group_write(struct group *g, uint64_t op, const struct znode_assignment *assignment, int32_t version);
void group_claim(struct group *g, const struct group_effect *effect);
void group_release(struct group *g, const struct group_effect *effect);
void group_verify(struct group *g, const struct group_effect *effect);
void group_list_owned(struct group *g, uint64_t op);
void group_send_commits(struct group *g);
#endif
