/* The fetchers: threads that pull from leaders and append what comes to the partitions followed here.
 *
 * Each thread has an event loop, a connection and a pull session per leader, and the partitions that fall to it; an
 * append that waits for the disk holds up that thread and no client. A partition that fails backs off alone. What to do
 * next about a partition is follower_state's to decide; whom to follow, the caller's.
 * All functions: one thread (the cluster thread); they never wait.
 */
#ifndef BROOK_REPLICATION_FETCHER_H
#define BROOK_REPLICATION_FETCHER_H

#include <stddef.h>
#include <stdint.h>

struct diag;
struct fetchers;
struct partition;
struct replica;

#define FETCHER_THREADS_MAX 64

struct fetcher_settings {
    int32_t broker_id;
    int threads;                  /* num.replica.fetchers */
    uint32_t bytes_max;           /* of one answer: replica.fetch.response.max.bytes */
    uint32_t partition_bytes_max; /* of one partition in it: replica.fetch.max.bytes */
    uint32_t wait_ms_max;         /* replica.fetch.wait.max.ms */
    int request_timeout_ms;       /* replica.socket.timeout.ms: on top of the wait */
    uint32_t frame_bytes_max;
    const char *software;   /* borrowed */
    const struct diag *diag; /* borrowed */
    /* Logs are about to be cut to `offsets`: see to it that no checkpoint on stable storage says they were synced
     * beyond, until end_cuts. On a fetcher's thread, may wait for the disk; all that are due at once. Returns 0, or a
     * storage error: then there is no end_cuts, and it is tried again later. NULL: nobody keeps any. */
    int (*begin_cuts)(void *arg, struct partition *const *partitions, const int64_t *offsets, size_t count);
    void (*end_cuts)(void *arg, struct partition *const *partitions, size_t count);
    /* Leaders' logs begin at these offsets: put them on stable storage as starts of ours. On a fetcher's thread, as
     * above; a whole round's at once. Returns 0 or an error: tried again later. NULL: nobody keeps any. */
    int (*keep_starts)(void *arg, struct partition *const *partitions, const int64_t *starts, size_t count);
    /* The logs have reached these leader epochs, up to whose starts they are on the disk: put that on stable storage, as
     * above. Asked where replica_counts_by_disk(). NULL: nobody keeps any. */
    int (*keep_reached)(void *arg, struct partition *const *partitions, const int32_t *epochs, size_t count);
    void *arg;
};

/* Returns 0, -BROOK_E_NOMEM or -BROOK_E_IO. */
int fetchers_new(const struct fetcher_settings *settings, struct fetchers **ret_fetchers);
/* End the threads and wait for them: an append under way comes to its end. No reference to a replica is left. NULL is
 * fine. */
void fetchers_free(struct fetchers *f);

/* Where brokers are. Addresses are copied; a changed one counts from the next connection on. */
struct fetcher_leader {
    int32_t broker_id;
    const char *host;
    uint16_t port;
};
/* Follow at `leader_epoch` (the replica's partition follows at it already), as the registration `broker_epoch` of this
 * broker. Replaces what was said of the replica before. Returns 0 or -BROOK_E_NOMEM: then nothing changes. */
int fetchers_follow(struct fetchers *f, struct replica *replica, const struct fetcher_leader *leader,
                    int32_t leader_epoch, int64_t broker_epoch);
/* Follow no more. The reference is let go of a little later. Waits for memory when there is none. */
void fetchers_stop(struct fetchers *f, struct replica *replica);
/* Bytes per second that replicas of this process may take in while they catch up, and those that a move adds beside that
 * (replica_set_catching_up()); 0: as many as come. */
void fetchers_set_quota(struct fetchers *f, int64_t bytes_per_s, int64_t moved_bytes_per_s);
#endif
