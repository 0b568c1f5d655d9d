#include "tests/cluster/nemesis/groups.h"

#include "tests/cluster/nemesis/payload.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define STOP_MS 15000

/* One process: a place in the group has several, one after the other. */
struct life {
    struct member member;
    bool was_killed;
};
struct group {
    struct brokers *brokers;
    const char *name;
    const struct topics *topics;
    int members;
    struct life *lives;
    size_t lives_count;
    size_t at[GROUP_MEMBERS_MAX]; /* which life a place has now */
};

static const char *const settings[] = {"session.timeout.ms=2000", "auto.commit.interval.ms=200",
                                       "auto.offset.reset=earliest", "rebalance.settle.ms=50", NULL};

void group_member_start(struct group *g, int member)
{
    char name[64];
    g->lives = realloc(g->lives, (g->lives_count + 1) * sizeof *g->lives);
    if (!g->lives)
        abort();
    struct life *life = &g->lives[g->lives_count];
    *life = (struct life){0};
    snprintf(name, sizeof name, "%.20s-%zu", g->name, g->lives_count);
    member_start_with(g->brokers, &life->member, name, g->name, g->topics->names, g->topics->count, "%t %p %o %v\\n",
                      settings);
    g->at[member] = g->lives_count++;
}

struct group *group_new(struct brokers *b, const char *name, const struct topics *topics, int members)
{
    struct group *g = calloc(1, sizeof *g);
    if (!g || members > GROUP_MEMBERS_MAX)
        abort();
    *g = (struct group){.brokers = b, .name = name, .topics = topics, .members = members};
    for (int i = 0; i < members; i++)
        group_member_start(g, i);
    return g;
}

int group_members(const struct group *g)
{
    return g->members;
}

void group_member_kill(struct group *g, int member)
{
    struct life *life = &g->lives[g->at[member]];
    member_kill(&life->member);
    life->was_killed = true;
}

void group_member_signal(struct group *g, int member, int signal_number)
{
    kill(g->lives[g->at[member]].member.pid, signal_number);
}

int group_mend(struct group *g)
{
    int count = 0;
    for (int i = 0; i < g->members; i++) {
        struct life *life = &g->lives[g->at[i]];
        if (life->member.pid && waitpid(life->member.pid, NULL, WNOHANG) == life->member.pid) {
            life->member.pid = 0;
            group_member_start(g, i);
            count++;
        }
    }
    return count;
}

void group_stop(struct group *g)
{
    for (int i = 0; i < g->members; i++) {
        struct life *life = &g->lives[g->at[i]];
        if (life->member.pid && member_stop(&life->member, STOP_MS) < 0)
            life->was_killed = true;
    }
}

/* "<topic> <partition> <offset> <value>" */
static bool read_line(const struct topics *topics, const char *line, size_t bytes, struct trail_entry *ret)
{
    char topic[64];
    int32_t number;
    int value_at = 0;
    if (sscanf(line, "%63s %" SCNd32 " %" SCNd64 " %n", topic, &number, &ret->offset, &value_at) != 3 || !value_at ||
        (ret->partition = topics_find(topics, topic, number)) < 0)
        return false;
    return payload_read(line + value_at, bytes - (size_t)value_at, &ret->producer, &ret->sequence);
}

static int64_t read_life(const struct topics *topics, const struct life *life, struct trail *trail)
{
    char line[PAYLOAD_BYTES_MAX + 128];
    int64_t bad = 0;
    FILE *f = fopen(life->member.output, "re");
    while (f && fgets(line, sizeof line, f)) {
        struct trail_entry e;
        size_t bytes = strlen(line);
        bool is_whole = bytes > 0 && line[bytes - 1] == '\n';
        if (is_whole && read_line(topics, line, bytes - 1, &e))
            trail_add(trail, e);
        else
            bad += is_whole || !life->was_killed;
    }
    if (f)
        fclose(f);
    return bad;
}

int64_t group_testify(struct group *g, struct checker *c)
{
    struct trail trail = {0};
    int64_t bad = 0;
    for (size_t i = 0; i < g->lives_count; i++)
        bad += read_life(g->topics, &g->lives[i], &trail);
    checker_group(c, &trail, 1);
    trail_done(&trail);
    return bad;
}

void group_free(struct group *g)
{
    if (!g)
        return;
    free(g->lives);
    free(g);
}
