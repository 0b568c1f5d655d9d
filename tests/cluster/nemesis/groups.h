/* Consumer groups of a nemesis run: members are `brook consume` processes, which are killed, stopped and continued like
 * brokers. What a member printed before it died counts as seen. One thread. */
#ifndef BROOK_TESTS_NEMESIS_GROUPS_H
#define BROOK_TESTS_NEMESIS_GROUPS_H

#include "tests/cluster/nemesis/checker.h"
#include "tests/cluster/nemesis/topics.h"
#include "tests/support/brokers.h"

#define GROUP_MEMBERS_MAX 4

struct group;
/* `name`, `topics` are borrowed. Never NULL. Starts the members. */
struct group *group_new(struct brokers *b, const char *name, const struct topics *topics, int members);
int group_members(const struct group *g);
/* SIGKILL a member; a new process takes its place with group_member_start(). */
void group_member_kill(struct group *g, int member);
void group_member_start(struct group *g, int member);
void group_member_signal(struct group *g, int member, int signal_number);
/* Start those again that ended by themselves; returns how many did. */
int group_mend(struct group *g);
/* End all members in order, and read what all wrote. */
void group_stop(struct group *g);
/* After group_stop(). Returns lines that could not be read: a killed member's last one may be torn, others not. */
int64_t group_testify(struct group *g, struct checker *c);
void group_free(struct group *g);
#endif
