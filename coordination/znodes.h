/* The only place that knows the JSON of each znode. Where Apache Kafka had the node, its fields are kept;
 * readers ignore unknown fields and accept a missing "version". Decoders take bytes that may be anything and
 * answer -BROOK_E_BAD_ZNODE with a sentence; what they return is owned by the caller (x_done / x_free).
 * Encoders return a NUL-terminated string (free()) or NULL when out of memory. Pure, any thread.
 */
#ifndef BROOK_COORDINATION_ZNODES_H
#define BROOK_COORDINATION_ZNODES_H

#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- topic ids: 16 bytes, written as 22 characters of base64url -------------------------------------- */

#define TOPIC_ID_TEXT_BYTES 23 /* with NUL */
struct topic_id {
    uint8_t bytes[16];
};
void topic_id_random(struct topic_id *ret);
bool topic_id_is_zero(const struct topic_id *id);
bool topic_id_equal(const struct topic_id *a, const struct topic_id *b);
void topic_id_format(const struct topic_id *id, char text[TOPIC_ID_TEXT_BYTES]);
int topic_id_parse(const char *text, struct topic_id *ret);

/* ---- /cluster/id -------------------------------------------------------------------------------------- */
char *znode_encode_cluster_id(const char *id);
int znode_decode_cluster_id(const char *data, size_t bytes, char **ret_id, struct brook_error *error);

/* Some partitions of one topic; in a notification perhaps with what was written. */
struct znode_quote;
struct znode_change_partitions {
    char *topic;
    int32_t *partitions;
    size_t partitions_count;
    struct topic_id topic_id;
    struct znode_quote *quotes; /* one per partition; NULL: the states have to be read */
};

/* ---- /brokers/ids/<id> --------------------------------------------------------------------------------- */
/* Ours beside Kafka's fields: "broker_epoch", "clean_from", "disk_from", "draining", "offline":{"T":[0,3]}. */
struct znode_broker {
    char *host;
    int32_t port;
    char *rack;        /* NULL: none */
    char *incarnation; /* random text, new with every process */
    int64_t timestamp_ms;
    int64_t broker_epoch;
    int64_t clean_from; /* the epoch that stopped cleanly; -1: none */
    int64_t disk_from;  /* the epoch that its data directories were last registered with; -1: none */
    bool draining;
    struct znode_change_partitions *offline; /* its replicas whose logs are offline; by topic, numbers rising */
    size_t offline_count;
};
/* Whether the broker says so of that replica. */
bool znode_broker_is_offline(const struct znode_broker *b, const char *topic, int32_t partition);
void znode_broker_done(struct znode_broker *b);
char *znode_encode_broker(const struct znode_broker *b);
int znode_decode_broker(const char *data, size_t bytes, struct znode_broker *ret, struct brook_error *error);

/* ---- /brokers/topics/<T> -------------------------------------------------------------------------------- */
struct znode_replicas {
    int32_t *brokers;
    int32_t count;
};
/* A partition that is being moved: "adding_replicas" and "removing_replicas" as Kafka's, of those that hold it now;
 * ours is "target_replicas", the list afterwards in its order. */
struct znode_move {
    int32_t partition;
    struct znode_replicas adding;
    struct znode_replicas removing;
    struct znode_replicas target; /* never empty: all but `removing` when it was not written, or did not fit */
};
struct znode_topic {
    struct topic_id topic_id;
    bool is_marked; /* ours, "marked": true: topic_mark.h */
    int32_t partitions_count; /* numbered 0 .. count - 1 without holes, at most ZNODE_PARTITIONS_MAX */
    struct znode_replicas *replicas; /* per partition */
    struct znode_move *moves; /* by partition */
    size_t moves_count;
};
#define ZNODE_PARTITIONS_MAX 20000
void znode_topic_done(struct znode_topic *t);
/* NULL: the partition is not being moved. */
const struct znode_move *znode_topic_move(const struct znode_topic *t, int32_t partition);
char *znode_encode_topic(const struct znode_topic *t);
int znode_decode_topic(const char *data, size_t bytes, struct znode_topic *ret, struct brook_error *error);

/* ---- /brokers/topics/<T>/partitions/<P>/state ------------------------------------------------------------ */
#define ZNODE_REPLICAS_MAX 32
struct znode_state {
    int32_t controller_epoch;
    int32_t leader; /* -1: none */
    int32_t leader_epoch;
    int32_t isr_count;
    int32_t isr[ZNODE_REPLICAS_MAX];
    int64_t isr_epochs[ZNODE_REPLICAS_MAX]; /* broker epoch of each; -1: not written */
};
char *znode_encode_state(const struct znode_state *s);
int znode_decode_state(const char *data, size_t bytes, struct znode_state *ret, struct brook_error *error);

/* ---- /brokers/topics/<T>/brokers/<id> --------------------------------------------------------------------- */
char *znode_encode_served(const int32_t *leads, size_t leads_count, const int32_t *follows, size_t follows_count);

/* ---- /brokers/changes/change_<seq> ----------------------------------------------------------------------- */
/* {"version":1,"brokers":true,"topics":["a"],"assigned":["b"],"partitions":{"b":[0,3]},"ends":["c"]}: what to read
 * again. Besides, of partitions whose states were written in the same multi, what was written:
 * "states":{"b":{"topic_id":"...","rows":[[version,controller_epoch,leader,leader_epoch,[isr],[isr_epochs]], ...]}},
 * a row for each number in "partitions". */
struct znode_quote {
    int32_t version; /* that the node got by the write */
    struct znode_state state;
};
struct znode_change {
    bool brokers;   /* the set of live brokers */
    char **topics;  /* whole topics: made, grown, deleted, configured */
    size_t topics_count;
    struct znode_change_partitions *states; /* partition states; to be encoded, a topic may come several times */
    size_t states_count;
    char **assigned; /* topic nodes alone: their settings and states are as they were */
    size_t assigned_count;
    char **ends; /* topics of which a broker has told the ends of its logs */
    size_t ends_count;
};
void znode_change_done(struct znode_change *c);
char *znode_encode_change(const struct znode_change *c);
int znode_decode_change(const char *data, size_t bytes, struct znode_change *ret, struct brook_error *error);

/* ---- /controller, /controller_epoch ----------------------------------------------------------------------- */
char *znode_encode_controller(int32_t broker_id, int64_t timestamp_ms);
int znode_decode_controller(const char *data, size_t bytes, int32_t *ret_broker_id, struct brook_error *error);
/* Also for other nodes that hold one decimal number. */
char *znode_encode_number(int64_t number);
int znode_decode_number(const char *data, size_t bytes, int64_t *ret, struct brook_error *error);

/* ---- /config/topics/<T>: {"version":1,"config":{"k":"v"}} ------------------------------------------------ */
struct znode_config {
    struct znode_config_entry {
        char *key;
        char *value;
    } *entries; /* sorted by key */
    size_t count;
};
void znode_config_done(struct znode_config *c);
char *znode_encode_config(const struct znode_config *c);
int znode_decode_config(const char *data, size_t bytes, struct znode_config *ret, struct brook_error *error);

/* ---- /admin/reassign_partitions, /admin/preferred_replica_election ---------------------------------------- */
/* {"version":1,"partitions":[{"topic":"T","partition":0,"replicas":[1,2]}]}: wishes that wait for the controller.
 * The second has no "replicas". Ours: an empty list cancels what runs; "throttle":N, beside "partitions" of the first, is
 * the throttle of the moves that run then (0: none); "election":"unclean" lets a replica lead
 * that may lack records. Written by hand or by a broker for a client. */
struct znode_wish {
    char *topic;
    int32_t partition;
    struct znode_replicas replicas; /* of reassign_partitions */
    bool unclean;                   /* of preferred_replica_election */
};
struct znode_wishes {
    struct znode_wish *list;
    size_t count;
    bool has_throttle; /* of reassign_partitions */
    int64_t throttle;  /* bytes per second and broker; 0: without limit */
};
#define ZNODE_WISHES_MAX 20000
enum znode_wish_kind { ZNODE_WISH_REASSIGN, ZNODE_WISH_ELECT };
void znode_wishes_done(struct znode_wishes *w);
char *znode_encode_wishes(const struct znode_wishes *w, enum znode_wish_kind kind);
int znode_decode_wishes(const char *data, size_t bytes, enum znode_wish_kind kind, struct znode_wishes *ret,
                        struct brook_error *error);

/* ---- /admin/reassign_throttle: {"version":1,"bytes_per_second":2000000} ---------------------------------- */
/* While partitions are being moved: what each broker takes in at most for the replicas that are added. */
char *znode_encode_throttle(int64_t bytes_per_s);
int znode_decode_throttle(const char *data, size_t bytes, int64_t *ret_bytes_per_s, struct brook_error *error);

/* ---- /brokers/topics/<T>/ends/<id> ------------------------------------------------------------------------ */
/* {"version":1,"broker_epoch":5,"ends":{"0":[7,3,1200]}}: of partitions without a leader, the leader epoch that the
 * broker has adopted, the epoch of its last record, and its log end offset (-1, -1: it can not be read). */
struct znode_end {
    int32_t partition;
    int32_t leader_epoch;
    int32_t last_epoch;
    int64_t end;
};
struct znode_ends {
    int64_t broker_epoch;
    struct znode_end *list; /* by partition */
    size_t count;
};
void znode_ends_done(struct znode_ends *e);
char *znode_encode_ends(const struct znode_ends *e);
int znode_decode_ends(const char *data, size_t bytes, struct znode_ends *ret, struct brook_error *error);

/* ---- /latest_producer_id_block: {"version":1,"broker":1,"block_start":"0","block_end":"999"} ------------- */
char *znode_encode_producer_block(int32_t broker_id, int64_t first, int64_t last);
int znode_decode_producer_block(const char *data, size_t bytes, int64_t *ret_last, struct brook_error *error);

/* ---- /consumers/<G>/ids/<member> --------------------------------------------------------------------------- */
struct znode_member {
    char **topics; /* names, or with `is_pattern` one regular expression (PCRE2) */
    size_t topics_count;
    bool is_pattern;
    char *strategy; /* "range", "roundrobin", "sticky" */
    int32_t algorithm_version;
    char *host;
    char *incarnation;
    int64_t timestamp_ms;
};
void znode_member_done(struct znode_member *m);
char *znode_encode_member(const struct znode_member *m);
int znode_decode_member(const char *data, size_t bytes, struct znode_member *ret, struct brook_error *error);

/* ---- /consumers/<G>/assignment -------------------------------------------------------------------------------- */
/* {"version":1,"strategy":"sticky","algorithm":1,"view":{"ids_pzxid":12,"topics":{"T":34},"partitions":{"T":3}},
 *  "members":["m1","m2"],"assignment":{"T":{"m1":[0,1],"m2":[2]}}}
 * Of a large group that becomes, for all its topics, "T":[0,0,1]: per partition the place of its owner in
 * "members", -1: nobody. Readers take both. */
struct znode_assignment {
    char *strategy;
    int32_t algorithm_version;
    int64_t ids_pzxid; /* the view it was made from */
    struct znode_assignment_topic {
        char *name;
        int64_t zxid; /* of the topic node, as seen (mzxid) */
        int32_t partitions_count;
        int32_t *owner; /* per partition an index into members; -1: nobody */
    } *topics;
    size_t topics_count;
    char **members;
    size_t members_count;
};
void znode_assignment_done(struct znode_assignment *a);
char *znode_encode_assignment(const struct znode_assignment *a);
int znode_decode_assignment(const char *data, size_t bytes, struct znode_assignment *ret,
                            struct brook_error *error);

/* ---- /consumers/<G>/offsets/<T>/<P>: decimal text, empty: none stored -------------------------------------- */
/* *ret is -1 for an empty node. */
int znode_decode_offset(const char *data, size_t bytes, int64_t *ret, struct brook_error *error);
#endif
