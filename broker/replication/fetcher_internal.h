/* Inside of the fetchers, shared by fetcher*.c and by nobody else. Everything but the orders is one thread's. */
#ifndef BROOK_REPLICATION_FETCHER_INTERNAL_H
#define BROOK_REPLICATION_FETCHER_INTERNAL_H

#include "broker/partition/partition.h"
#include "broker/replication/fetcher.h"
#include "broker/replication/follower_state.h"
#include "broker/replication/replica.h"
#include "proto/base/inbox.h"
#include "proto/wire/channel.h"
#include "proto/wire/resolver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <uthash.h>

#define FETCHER_BACKOFF_MS_MIN 20
#define FETCHER_BACKOFF_MS_MAX 1000
/* So many refusals in a row because of who leads, 20 to 60 ms apart, are nothing to speak of. */
#define FETCHER_PASSING_FAILURES 30
#define FETCHER_CONNECT_TIMEOUT_MS 5000
/* Between two rounds in which leaders' log starts become ours: each is a synced write. */
#define FETCHER_STARTS_MS 100
#define FETCHER_STARTS_MAX 4096
/* Logs cut under one write of checkpoints, which holds up others who write them. */
#define FETCHER_CUTS_MAX 512
/* Between two rounds in which reached epochs are kept, likewise: their leaders wait. */
#define FETCHER_REACHED_MS 10
#define FETCHER_REACHED_MAX 4096
/* Partitions named in one request. */
#define FETCHER_NAMES_MAX 5000
/* Batches appended in one go. */
#define FETCHER_BATCHES_MAX 512

struct event;
struct event_base;

struct fetch_key {
    uint8_t topic_id[16];
    int32_t number;
};

/* A partition that is followed. In one of its link's lists: named, when the leader has it and has nothing yet; due (to
 * be named in the next pull), asking (EpochEnd), cutting (at the end of the turn), waiting (until retry_ns). */
enum fetch_place { FETCH_NAMED, FETCH_DUE, FETCH_ASKING, FETCH_CUTTING, FETCH_WAITING };

struct fetch_entry {
    struct fetch_key key;
    UT_hash_handle hh;
    struct fetch_link *link;
    struct replica *replica; /* a reference */
    struct partition *partition;
    struct follower_state state;
    enum fetch_place place;
    TAILQ_ENTRY(fetch_entry) in_place;
    uint64_t session;      /* that knows it; 0: none */
    uint64_t named_by;     /* number of the pull that named it last */
    int64_t pulled_offset; /* as named then */
    unsigned failures;     /* in a row */
    int64_t retry_ns;
    int told; /* the failure that was said */
    int64_t leader_start; /* where the leader's log begins; our log is to begin there when it is in that list */
    bool is_behind;
    TAILQ_ENTRY(fetch_entry) in_behind;
    int64_t epoch_start; /* of the leader's epoch, as it was told; -1: not yet */
    int32_t reaching;    /* the epoch that is to be kept when it is in that list */
    bool is_reaching;
    TAILQ_ENTRY(fetch_entry) in_reaching;
    bool is_waiting_safe;
    struct partition_waiter safe; /* for the disk, where the topic says fsync */
    struct inbox_item grave;
};
TAILQ_HEAD(fetch_entries, fetch_entry);

/* The connection to one leader. */
struct fetch_link {
    struct fetch_link *next;
    struct fetch_thread *thread;
    int32_t broker_id;
    char *host;
    uint16_t port;
    struct channel *channel; /* NULL: to be made */
    struct lookup *lookup; /* under way */
    bool is_ready;
    bool is_down_told;
    unsigned failures;
    int64_t retry_ns;
    size_t entries_count;
    struct fetch_entries lists[FETCH_WAITING + 1];
    uint64_t session; /* ours: counts sessions of this link, from 1 */
    uint32_t session_id;
    int32_t session_epoch;
    bool is_first_out; /* the session's first pull is under way: its id is still to come */
    uint64_t pulls;      /* counts those that were sent, from 1 */
    unsigned pulls_in_flight;
    int64_t broker_epoch; /* of this broker: the newest that an entry was ordered with. A session is of one */
    struct fetch_key *forgets; /* named in this session, and not followed any more */
    size_t forgets_count, forgets_capacity;
};

struct fetch_order;

/* What may be taken in now; refilled by time, overdrawn by one answer. */
struct fetch_allowance {
    int64_t bytes;
    int64_t ns; /* as of then */
};

struct fetch_thread {
    struct fetchers *fetchers;
    pthread_t thread;
    bool is_started;
    struct event_base *base;
    struct event *mail;
    struct event *timer;
    struct inbox inbox;
    struct pool *pool;
    struct arena *arena;
    struct fetch_link *links;
    struct fetch_entry *entries;
    struct fetch_order *held; /* there was no memory for them: tried again, oldest last */
    struct fetch_entries behind; /* those whose log is to begin later than it does */
    int64_t starts_due_ns;       /* not before */
    struct fetch_entries reaching; /* those whose reached epoch is to be kept */
    int64_t reached_due_ns;        /* not before */
    bool is_stopping;
    struct fetch_allowance catching_up; /* of those that are not in sync */
    struct fetch_allowance moved;       /* of those of them that a move adds */
    uint64_t random;
};

struct fetchers {
    struct fetcher_settings s;
    _Atomic int64_t quota_bytes_per_s;
    _Atomic int64_t throttle_bytes_per_s;
    int threads_count;
    struct fetch_thread threads[];
};

/* fetcher.c */
void fetch_entry_move(struct fetch_entry *e, enum fetch_place place);
/* Try again later, this partition alone; `why` is said once until it goes well again. */
void fetch_entry_back_off(struct fetch_entry *e, int code, const char *why);
int64_t fetcher_backoff_ns(struct fetch_thread *t, unsigned failures);

/* fetcher_link.c */
struct fetch_link *fetch_link_of(struct fetch_thread *t, const struct fetcher_leader *leader); /* NULL: no memory */
void fetch_link_free(struct fetch_link *link);
/* Do what is due: connect, ask, pull. Returns when to look again (clock_boot_ns()), INT64_MAX: not by time. */
int64_t fetch_link_run(struct fetch_link *link, int64_t now_ns);
/* A new session: all are to be named anew. */
void fetch_link_restart_session(struct fetch_link *link);
/* End the connection, which is of no use, and make another one a little later. */
void fetch_link_drop(struct fetch_link *link, const char *why);

/* fetcher_pull.c */
/* Send a pull, if one is due. */
void fetch_link_pull(struct fetch_link *link);
/* Ask EpochEnd for those that have to. */
void fetch_link_ask(struct fetch_link *link);

/* fetcher_apply.c */
/* The leader's answer about one partition, to the pull that named it last. `records` is good during the call. */
void fetch_entry_take(struct fetch_entry *e, const Brook__PulledPartition *part, uint8_t *records);
/* An answer to an earlier pull: the newest one will be answered too, but marks are told once only. */
void fetch_entry_take_marks(struct fetch_entry *e, const Brook__PulledPartition *part);
void fetch_entry_take_epoch_end(struct fetch_entry *e, int32_t current_epoch, int32_t asked, const Brook__EpochEnd *end);
/* Go on with what follower_state says, and into the list that goes with it. */
void fetch_entry_continue(struct fetch_entry *e);

/* The log was cut as follower_state said: go on. */
void fetch_entry_was_cut(struct fetch_entry *e);

/* fetcher_cuts.c */
/* Cut the logs of all that are to be cut. */
void fetch_link_cut(struct fetch_link *link);
/* Let the log, which begins at `lowest`, begin anew at `offset`. Returns 0, or an error: it waits then. */
int fetch_entry_start_over(struct fetch_entry *e, int64_t lowest, int64_t offset);

/* fetcher_starts.c */
/* Let logs begin where their leaders' do, if it is time. Returns when to look again, INT64_MAX: not by time. */
int64_t fetch_thread_raise_starts(struct fetch_thread *t, int64_t now_ns);
/* An answer says where the leader's log begins. */
void fetch_entry_heed_start(struct fetch_entry *e, int64_t leader_start);
void fetch_entry_forget_start(struct fetch_entry *e);

/* fetcher_reached.c */
/* Keep what was reached, if it is time. Returns when to look again, INT64_MAX: not by time. */
int64_t fetch_thread_keep_reached(struct fetch_thread *t, int64_t now_ns);
/* The leader's epoch has been told, or more of the log is safe: perhaps it is reached. Returns whether the leader has to
 * be told now; when it has to be kept first, the entry becomes due by itself. */
bool fetch_entry_reach(struct fetch_entry *e);
void fetch_entry_forget_reached(struct fetch_entry *e);

/* fetcher_apply.c */
/* What follower_state says of the log as it is, with `safe_end` of it safe. */
int32_t fetch_entry_reached(struct fetch_entry *e, int64_t safe_end);
/* Fill what the next pull says of the partition. */
void fetch_entry_pull(struct fetch_entry *e, struct leader_pull *ret);
#endif
