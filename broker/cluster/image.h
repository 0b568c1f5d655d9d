/* The image: what the cluster thread knows of the cluster, as read from ZooKeeper.
 *
 * The state reader fills it, hosting and the controller look at it, and views are made from it. It remembers
 * which topics changed, so that everything downstream costs what changed. It decides nothing and reads
 * nothing. The cluster thread's alone.
 */
#ifndef BROOK_CLUSTER_IMAGE_H
#define BROOK_CLUSTER_IMAGE_H

#include "broker/cluster/controller.h"
#include "broker/cluster/topic_config.h"
#include "broker/cluster/unreadable.h"
#include "broker/cluster/view_builder.h"
#include "coordination/znodes.h"

#include <uthash.h>

struct image;

/* A partition's state znode, small; image_partition_state() makes a struct znode_state of it. */
struct image_partition {
    int32_t version; /* of the znode; -1: there is none (or none was read yet) */
    int32_t controller_epoch;
    int32_t leader;
    int32_t leader_epoch;
    int32_t isr_count;
    int32_t *isr; /* behind isr_epochs, in the same memory */
    int64_t *isr_epochs;
    bool is_busy; /* the controller is writing it */
    bool is_unreadable; /* the node makes no sense: what is here is what it said before */
    /* The controller's note: somebody has asked for an election of this kind. */
    enum { IMAGE_WISH_NONE, IMAGE_WISH_PREFERRED, IMAGE_WISH_UNCLEAN } wish;
    int64_t doubt_ms; /* until when the controller waits for replicas that are away; 0: it does not wait */
    /* The controller's notes on this state, which could not be written; forgotten with the state. */
    unsigned failures; /* in a row; not 0: it is written alone, since it spoils what is written with it */
    int64_t not_before_ms;
};

/* What a broker has told about a partition's log, for the controller. */
struct image_end {
    int32_t partition;
    struct controller_end end;
};

struct image_topic {
    UT_hash_handle hh; /* by name */
    struct image *image;
    char *name;
    struct znode_topic node;
    int32_t node_version;
    struct topic_config config;
    int64_t config_zxid; /* of the last change of the znode that it was read from; -1: there was none */
    int64_t made_zxid;  /* of the topic's znode */
    bool is_made_fsync; /* durability=fsync is a setting of its own, and all are as they were when it was made */
    struct image_partition *partitions; /* node.partitions_count */
    bool is_being_deleted;
    /* The controller's notes about the directories above the states. */
    bool has_directory;       /* "partitions" is there, or will be by a write under way */
    bool has_odd_directories; /* a write found some that it meant to make: they are made singly first */
    bool is_mending;
    bool is_mended;
    struct image_end *ends;
    size_t ends_count;
    uint64_t ends_term;       /* the controller's term in which they were read last */
    bool is_assigning;        /* the controller is writing the node */
    int32_t assigned_version; /* of the node, by the controller's own last write; the image may be behind */
    bool is_ends_due;         /* this broker may have ends to tell */
    uint64_t ends_told;       /* which it told last; 0: none */
    bool is_served_due;       /* what is served of it may have changed */
    uint64_t round;           /* of the full read that saw it last */
    struct view_block *block; /* NULL: to be made anew */
    bool is_changed;
    struct image_topic *next_changed;
};

/* A topic that is not there any more: its partitions are to be given up. */
struct image_gone {
    struct image_gone *next;
    struct topic_id topic_id;
    char name[];
};

struct image_broker {
    int32_t broker_id;
    struct znode_broker node;
};

/* `defaults` are copied. Returns 0 or -BROOK_E_NOMEM. */
int image_new(const struct topic_config *defaults, struct image **ret_image);
void image_free(struct image *image);

/* ---- topics ----------------------------------------------------------------------------------------- */

struct image_topic *image_find(const struct image *image, const char *name); /* NULL: not known */
size_t image_topics_count(const struct image *image);
struct image_topic *image_topic_at(const struct image *image, size_t index); /* by name */

/* The topic's znode as read. Takes what `node` holds (which is zeroed), also on failure. A node with another
 * topic id makes the old topic one that is gone. Returns 0 or -BROOK_E_NOMEM. */
int image_put_topic(struct image *image, const char *name, struct znode_topic *node, int32_t version,
                    struct image_topic **ret_topic);
/* The znode is not there. */
void image_remove_topic(struct image *image, const char *name);
/* The topic's own settings over the broker's defaults. Returns how many could not be used; `error` is about
 * the first. */
size_t image_set_config(struct image_topic *topic, const struct znode_config *config,
                        struct brook_error *error);
/* After image_set_config(), with the znode's version and when it was made: is_made_fsync. */
void image_judge_config(struct image_topic *topic, const struct znode_config *config, int32_t version, int64_t czxid);
/* A state as read or written; NULL: there is none. Returns 0 or -BROOK_E_NOMEM. */
int image_set_state(struct image_topic *topic, int32_t partition, const struct znode_state *state,
                    int32_t version);
/* Returns false, and leaves *ret alone, when the partition has no state. */
bool image_partition_state(const struct image_partition *partition, struct znode_state *ret);
/* What a broker has told of the topic; NULL: nothing (any more). Replaces what it told before. Returns 0 or
 * -BROOK_E_NOMEM. */
int image_set_ends(struct image_topic *topic, int32_t broker_id, const struct znode_ends *ends);
/* What is known of one partition. Returns how many, at most `max`. */
size_t image_ends_of(const struct image_topic *topic, int32_t partition, struct controller_end *ret,
                     size_t max);
/* Names in /admin/delete_topics; copied. Returns 0 or -BROOK_E_NOMEM. */
int image_set_deleting(struct image *image, const char *const *names, size_t count);
/* Whether they were ever read. */
bool image_knows_deleting(const struct image *image);
size_t image_deleting_count(const struct image *image);
const char *image_deleting_at(const struct image *image, size_t index);
bool image_is_deleting(const struct image *image, const char *name);

/* ---- what makes no sense ---------------------------------------------------------------------------- */

/* Nodes that can not be used; the state reader's to fill. Never NULL. */
struct unreadable *image_unreadable(struct image *image);
/* The topic's node makes no sense (any more): a topic that is known stays as it is. */
void image_keep_topic(struct image *image, const char *name);

/* ---- full reads ------------------------------------------------------------------------------------- */

/* Topics put from now on carry a new round; image_end_round() removes those that do not. */
void image_begin_round(struct image *image);
void image_end_round(struct image *image);

/* ---- brokers ---------------------------------------------------------------------------------------- */

/* Those alive. Takes the array and what is in it; sorts it. */
void image_set_brokers(struct image *image, struct image_broker *brokers, size_t count);
const struct image_broker *image_brokers(const struct image *image, size_t *ret_count);
/* Whether a live broker says that its log of the partition is offline. */
bool image_is_offline(const struct image *image, int32_t broker_id, const char *topic, int32_t partition);
/* Whether any broker says so of any. */
bool image_has_offline(const struct image *image);
/* Borrowed, good until the brokers change. */
const struct controller_brokers *image_alive(const struct image *image);

/* ---- changes ---------------------------------------------------------------------------------------- */

/* Views need a new block of it. */
void image_touch(struct image_topic *topic);
/* Look at the topic again, for its own sake and for views. */
void image_mark(struct image_topic *topic);
/* Take the next topic that changed; NULL: no more. */
struct image_topic *image_take_changed(struct image *image);
/* Take the next topic that is gone; the caller frees it. */
struct image_gone *image_take_gone(struct image *image);
/* Whether brokers changed since the last call. */
bool image_take_brokers_changed(struct image *image);
#endif
