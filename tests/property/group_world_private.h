/* Inside of the model world: shared by group_world*.c only. */
#ifndef BROOK_TESTS_GROUP_WORLD_PRIVATE_H
#define BROOK_TESTS_GROUP_WORLD_PRIVATE_H

#include "proto/base/names.h"
#include "tests/property/group_world.h"

/* ---- ZooKeeper ---------------------------------------------------------------------------------------- */

struct offset_node {
    bool exists;
    int64_t value;
    int32_t version;
    uint64_t claim; /* which claim moved it last: not in ZooKeeper, for the check */
};

struct topic_node {
    bool exists;
    int64_t mzxid;
    struct topic_id id;
    int32_t partitions;
    int64_t owner[WORLD_PARTITIONS]; /* session, 0: none */
    int64_t owner_stamp[WORLD_PARTITIONS];
    struct offset_node offset[WORLD_PARTITIONS];
};

struct id_node {
    struct id_node *next;
    char id[MEMBER_ID_BYTES_MAX + 1];
    int64_t session;
    int64_t czxid;
    unsigned mask;
};

struct session {
    struct session *next;
    int64_t id;
    bool alive;
    int64_t contact_ms;
};

/* ---- processes ---------------------------------------------------------------------------------------- */

struct request {
    struct request *next;
    enum group_effect_kind kind;
    uint64_t op;
    int topic;
    int32_t partition;
    bool replace;
    int phase;
    bool applied;
    bool lost; /* the answer never arrives */
    int64_t apply_ms;
    int64_t answer_ms;
    /* Result, and what was read on the way. */
    int err;
    int64_t offset;
    int32_t version;
    uint64_t claim;
    bool ours;
    struct group_view view;
    char *text; /* assignment to write */
    unsigned held[WORLD_TOPICS];
};

struct watch {
    bool active;
    int64_t seen;    /* stamp of what was delivered last, -1: nothing yet */
    bool pending;
    int64_t deliver_ms;
    /* What was read. */
    int64_t zxid;
    bool exists;
    bool ours;
    struct topic_id id;
    char *text;
    unsigned mask;
    char **names;
    size_t names_count;
};

struct held_partition {
    bool has;       /* between ADD and REMOVE or LOST */
    bool delivers;
    bool draining;
    int64_t drained_ms;
    int32_t version;
    int64_t position;
    uint64_t claim;
    uint64_t claimed; /* by the last answer */
    bool committing;
    uint64_t commit_token;
    bool doubt;
};

struct process {
    bool used;
    bool is_static;
    bool leaving;
    bool resumes;
    uint64_t uid;
    char static_id[16];
    struct group_member *machine;
    struct session *session;
    uint64_t generation;
    bool told_connected;
    int64_t frozen_until;
    int64_t cut_until;
    int64_t no_poll_until;
    int64_t lease_until;
    int64_t last_poll;
    int64_t last_tick;
    int64_t last_answer_ms;
    int64_t last_apply_ms;
    int drain_ms;
    int drains;
    unsigned mask;
    struct request *requests;
    struct watch ids, assignment, topics, topic[WORLD_TOPICS], owner[WORLD_TOPICS][WORLD_PARTITIONS];
    struct held_partition held[WORLD_TOPICS][WORLD_PARTITIONS];
};

/* A commit on its way through a broker: it needs no session of the member's. */
struct commit {
    struct commit *next;
    int member;
    uint64_t uid;
    uint64_t token;
    char id[MEMBER_ID_BYTES_MAX + 1];
    int topic;
    int32_t partition;
    int64_t offset;
    int32_t version;
    uint64_t claim;
    int64_t apply_ms;
    int64_t answer_ms;
    bool applied;
    int err;
    int32_t new_version;
};

struct world {
    uint64_t random;
    int64_t now;
    int64_t zxid;
    uint64_t claims;
    uint64_t uids;
    bool faults;
    struct topic_patterns *patterns;
    struct topic_node topics[WORLD_TOPICS];
    struct id_node *ids;
    int64_t ids_pzxid;
    char *assignment;
    int32_t assignment_version;
    int64_t assignment_stamp;
    int64_t topics_stamp;
    struct session *sessions;
    struct process members[WORLD_MEMBERS];
    struct commit *commits;
    int writes;
    int reads;
    int reports[GROUP_REPORT_LEASE_OVER + 1];
    int64_t last_unowned;
};

extern const char *const world_topic_names[WORLD_TOPICS];

/* ---- group_world_zookeeper.c --------------------------------------------------------------------------- */

struct id_node *id_find(struct world *w, const char *id);
void id_delete(struct world *w, const char *id);
struct session *session_new(struct world *w);
void session_end(struct world *w, struct session *s);
void describe_mask(unsigned mask, struct znode_member *ret);
int topic_index(const char *name);
bool is_read(const struct request *r);
struct request *request_add(struct world *w, struct process *m, const struct group_effect *e);
void request_drop(struct request *r);
/* One read or write of the request. Returns whether it was the last. */
bool apply_once(struct world *w, struct process *m, struct request *r);
void apply_due(struct world *w, struct process *m);

/* ---- group_world_process.c ----------------------------------------------------------------------------- */

bool fault(struct world *w, unsigned percent);
void step(struct world *w, struct process *m, struct group_event e);
void process_turn(struct world *w, int member);
void process_end(struct world *w, int member);
void commits_go_on(struct world *w);
#endif
