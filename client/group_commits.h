/* A member's commits: one lane per owned partition, and the calls that wait for them.
 *
 * In a lane one commit is under way at a time; newer values wait and replace what waits. A lane knows the
 * version of its offset node, which comes from the claim and from each answer. An answer that is not a plain
 * yes puts the lane in doubt: nothing is sent until the doubt was resolved (what is stored, with which
 * version) or the partition is lost. What is stored already is not sent. Knows no network and no ZooKeeper;
 * time is told (ms). Loop thread.
 */
#ifndef BROOK_CLIENT_GROUP_COMMITS_H
#define BROOK_CLIENT_GROUP_COMMITS_H

#include <brook/types.h>
#include <stdbool.h>
#include <stdint.h>

struct group_commits;

struct group_commits_events {
    /* Find out what became of a commit: `err` (negative) is the answer to it, or why there was none. */
    void (*doubt)(void *arg, const char *topic, int32_t partition, int err);
    /* After group_commits_finish(): nothing is under way any more. */
    void (*finished)(void *arg, const char *topic, int32_t partition);
    void *arg;
};

int group_commits_new(const struct group_commits_events *events, struct group_commits **ret_commits);
/* All calls end with -BROOK_E_CLOSED. NULL is fine. */
void group_commits_free(struct group_commits *commits);

/* A partition was claimed. Returns 0 or -BROOK_E_NOMEM (an earlier lane of the partition is closed in any
 * case). */
int group_commits_open(struct group_commits *commits, const char *topic, int32_t partition, int64_t stored,
                       int32_t version);
/* It is given up or lost: what is under way and what waits ends with `err`. */
void group_commits_close(struct group_commits *commits, const char *topic, int32_t partition, int err);
void group_commits_close_all(struct group_commits *commits, int err);
/* Call finished() as soon as nothing is under way; at once, if so now. */
void group_commits_finish(struct group_commits *commits, const char *topic, int32_t partition);
bool group_commits_is_finishing(const struct group_commits *commits, const char *topic, int32_t partition);
/* What is known to be stored; -1: nothing, or no lane. */
int64_t group_commits_stored(const struct group_commits *commits, const char *topic, int32_t partition);

/* As group_commit() in group_driver.h: `done` is called once, perhaps from inside. `deadline_ms` 0: none. */
typedef void group_commits_done(void *arg, int err, const struct brook_position *which);
void group_commits_add(struct group_commits *commits, const struct brook_position *positions, size_t count,
                       int64_t deadline_ms, group_commits_done *done, void *arg);

/* What is to be sent: each entry is under way from here on until group_commits_answer(). Returns their
 * number. */
struct group_commits_entry {
    uint64_t lane;
    const char *topic; /* good until the lane closes */
    int32_t partition;
    int64_t offset;
    int32_t version;
};
size_t group_commits_take(struct group_commits *commits, struct group_commits_entry *entries,
                          size_t entries_max, int64_t now_ms);
/* The answer to an entry (only `lane` of it is looked at): 0 with the new version, or negative. Lanes that
 * were closed meanwhile are passed over. */
void group_commits_answer(struct group_commits *commits, uint64_t lane, int err, int32_t version,
                          int64_t now_ms);
/* A doubt is over: the partition is still ours, and this is stored. */
void group_commits_resolved(struct group_commits *commits, const char *topic, int32_t partition,
                            int64_t stored, int32_t version);

/* End the calls whose time is over. */
void group_commits_tick(struct group_commits *commits, int64_t now_ms);
/* When there is something to be sent or ended next; INT64_MAX: never. */
int64_t group_commits_next_ms(const struct group_commits *commits);
#endif
