/* The offset registry as a broker serves it, and the ownership registry as a member uses it, against a real
 * ZooKeeper: claims fence commits. */
#include "coordination/offsets.h"
#include "coordination/ownership.h"
#include "coordination/paths.h"
#include "tests/support/caller.h"
#include "tests/support/suite.h"
#include "tests/support/zookeeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROUP "g"
#define MEMBER "m1"
#define TIMEOUT_MS 4000
#define RESULTS_MAX 400

static struct zookeeper *zk;

/* A broker (its own session) and a member, drained by one thread. */
struct place {
    struct caller broker;
    struct coordinator *broker_session;
    struct offsets *offsets;
    struct caller member;
    struct coordinator *member_session;
    struct ownership *ownership;
};

static void place_init(struct place *x, const char *chroot)
{
    memset(x, 0, sizeof *x);
    caller_init(&x->broker);
    caller_init(&x->member);
    x->broker_session = caller_connect(&x->broker, zookeeper_connect(zk, chroot), TIMEOUT_MS, NULL);
    x->member_session = caller_connect(&x->member, zookeeper_connect(zk, chroot), TIMEOUT_MS, NULL);
    ck_assert_int_eq(offsets_new(x->broker_session, &x->broker.inbox, &x->offsets), 0);
    ck_assert_int_eq(ownership_new(x->member_session, &x->member.inbox, GROUP, MEMBER,
                                   coordinator_generation(x->member_session), &x->ownership),
                     0);
}

static void place_done(struct place *x)
{
    ownership_free(x->ownership);
    offsets_free(x->offsets);
    coordinator_free(x->member_session, false, 3000);
    coordinator_free(x->broker_session, false, 3000);
    caller_done(&x->member);
    caller_done(&x->broker);
}

static void register_member(struct place *x, const char *member)
{
    struct path path;
    path_group_ids(&path, GROUP);
    coordinator_create_path(x->member_session, path.text, "", 0, caller_begin(&x->member));
    caller_end(&x->member);
    path_group_member(&path, GROUP, member);
    coordinator_create(x->member_session, path.text, "{}", 2, ZNODE_EPHEMERAL, caller_begin(&x->member));
    ck_assert_int_eq(caller_end(&x->member)->err, 0);
}

/* ---- calls that wait ---------------------------------------------------------------------------------- */

struct claim {
    bool done;
    struct ownership_reply reply;
};

static void on_claim(void *arg, const struct ownership_reply *reply)
{
    struct claim *c = arg;
    ck_assert(!c->done);
    c->done = true;
    c->reply = *reply;
}

static bool claim_is_done(void *arg)
{
    return ((struct claim *)arg)->done;
}

typedef void ownership_verb(struct ownership *, const char *, int32_t, uint64_t, ownership_callback *,
                            void *);

static struct ownership_reply own(struct caller *k, struct ownership *o, ownership_verb *verb,
                                  int32_t partition)
{
    struct claim c = {0};
    verb(o, "t", partition, 77, on_claim, &c);
    ck_assert(caller_wait(k, claim_is_done, &c, CALLER_TIMEOUT_MS));
    ck_assert_uint_eq(c.reply.tag, 77);
    ck_assert_int_eq(c.reply.partition, partition);
    return c.reply;
}

struct commit {
    size_t answers;
    size_t count;
    struct offsets_result results[RESULTS_MAX];
};

static void on_commit(void *arg, const struct offsets_commit_reply *reply)
{
    struct commit *c = arg;
    c->answers++;
    c->count = reply->count;
    memcpy(c->results, reply->results, reply->count * sizeof *reply->results);
}

static bool commit_is_done(void *arg)
{
    return ((struct commit *)arg)->answers > 0;
}

static void commit_begin(struct place *x, const char *member, const struct offsets_entry *entries,
                         size_t count, struct commit *c)
{
    memset(c, 0, sizeof *c);
    ck_assert_int_eq(
        offsets_commit(x->offsets, GROUP, member, entries, count, &x->broker.inbox, on_commit, c), 0);
}

static void commit_end(struct place *x, struct commit *c)
{
    ck_assert(caller_wait(&x->broker, commit_is_done, c, CALLER_TIMEOUT_MS));
    ck_assert_uint_eq(c->answers, 1);
}

static struct offsets_result commit(struct place *x, const char *member, int32_t partition, int64_t offset,
                                    int32_t version)
{
    struct commit c;
    struct offsets_entry entry = {"t", partition, offset, version};
    commit_begin(x, member, &entry, 1, &c);
    commit_end(x, &c);
    ck_assert_uint_eq(c.count, 1);
    return c.results[0];
}

struct fetch {
    bool done;
    int err;
    size_t count;
    struct offsets_fetched fetched[RESULTS_MAX];
    char topics[RESULTS_MAX][32];
};

static void on_fetch(void *arg, const struct offsets_fetch_reply *reply)
{
    struct fetch *f = arg;
    f->done = true;
    f->err = reply->err;
    f->count = reply->count;
    for (size_t i = 0; i < reply->count; i++) {
        f->fetched[i] = reply->fetched[i];
        snprintf(f->topics[i], sizeof f->topics[i], "%s", reply->fetched[i].topic);
        f->fetched[i].topic = f->topics[i];
    }
}

static bool fetch_is_done(void *arg)
{
    return ((struct fetch *)arg)->done;
}

static void fetch(struct place *x, const char *group, const char *const *topics, size_t count,
                  struct fetch *f)
{
    memset(f, 0, sizeof *f);
    ck_assert_int_eq(offsets_fetch(x->offsets, group, topics, count, &x->broker.inbox, on_fetch, f), 0);
    ck_assert(caller_wait(&x->broker, fetch_is_done, f, CALLER_TIMEOUT_MS));
}

static int64_t stored(struct place *x, int32_t partition)
{
    static struct fetch f;
    const char *topics[] = {"t"};
    fetch(x, GROUP, topics, 1, &f);
    ck_assert_int_eq(f.err, 0);
    for (size_t i = 0; i < f.count; i++)
        if (f.fetched[i].partition == partition)
            return f.fetched[i].offset;
    return -2;
}

/* ---- members ------------------------------------------------------------------------------------------ */

START_TEST(claim_gives_the_version_that_commits_and_each_commit_the_next)
{
    struct place x;
    place_init(&x, "/commit");
    register_member(&x, MEMBER);
    struct ownership_reply claim = own(&x.member, x.ownership, ownership_claim, 3);
    ck_assert_int_eq(claim.err, 0);
    ck_assert_int_eq(claim.offset, -1);
    struct offsets_result r = commit(&x, MEMBER, 3, 0, claim.version);
    ck_assert_int_eq(r.err, 0);
    ck_assert_int_eq(stored(&x, 3), 0);
    r = commit(&x, MEMBER, 3, INT64_MAX, r.version);
    ck_assert_int_eq(r.err, 0);
    ck_assert_int_eq(stored(&x, 3), INT64_MAX);
    ck_assert_int_eq(commit(&x, MEMBER, 3, 7, claim.version).err, -BROOK_E_FENCED);
    ck_assert_int_eq(stored(&x, 3), INT64_MAX);
    place_done(&x);
}
END_TEST

START_TEST(former_owner_and_unregistered_member_are_refused)
{
    struct place x;
    struct caller k;
    place_init(&x, "/fenced");
    register_member(&x, MEMBER);
    struct ownership_reply first = own(&x.member, x.ownership, ownership_claim, 0);
    ck_assert_int_eq(commit(&x, MEMBER, 0, 10, first.version).err, 0);
    ck_assert_int_eq(own(&x.member, x.ownership, ownership_release, 0).err, 0);
    /* Another member takes it over. */
    caller_init(&k);
    struct coordinator *other = caller_connect(&k, zookeeper_connect(zk, "/fenced"), TIMEOUT_MS, NULL);
    struct ownership *others;
    ck_assert_int_eq(ownership_new(other, &k.inbox, GROUP, "m2", coordinator_generation(other), &others), 0);
    struct ownership_reply second = own(&k, others, ownership_claim, 0);
    ck_assert_int_eq(second.err, 0);
    ck_assert_int_eq(second.offset, 10);
    ck_assert_int_eq(commit(&x, MEMBER, 0, 11, first.version + 1).err, -BROOK_E_FENCED);
    ck_assert_int_eq(commit(&x, "m2", 0, 11, second.version).err, -BROOK_E_STALE_MEMBER);
    ck_assert_int_eq(stored(&x, 0), 10);
    ck_assert(!own(&x.member, x.ownership, ownership_verify, 0).ours);
    struct ownership_reply verified = own(&k, others, ownership_verify, 0);
    ck_assert(verified.ours);
    ck_assert_int_eq(verified.version, second.version);
    ck_assert_int_eq(verified.offset, 10);
    ownership_free(others);
    coordinator_free(other, false, 3000);
    caller_done(&k);
    place_done(&x);
}
END_TEST

START_TEST(claim_of_an_owned_partition_is_refused_and_watched_until_it_goes)
{
    struct place x;
    struct caller k;
    place_init(&x, "/owned");
    ck_assert_int_eq(own(&x.member, x.ownership, ownership_claim, 0).err, 0);
    caller_init(&k);
    struct coordinator *other = caller_connect(&k, zookeeper_connect(zk, "/owned"), TIMEOUT_MS, NULL);
    struct ownership *others;
    ck_assert_int_eq(ownership_new(other, &k.inbox, GROUP, "m2", coordinator_generation(other), &others), 0);
    ck_assert_int_eq(own(&k, others, ownership_claim, 0).err, -BROOK_E_NODE_EXISTS);
    /* A release of what is not ours leaves it alone, and counts as done. */
    ck_assert_int_eq(own(&k, others, ownership_release, 0).err, 0);
    ck_assert(own(&x.member, x.ownership, ownership_verify, 0).ours);
    ck_assert_int_eq(own(&x.member, x.ownership, ownership_release, 0).err, 0);
    ck_assert_int_eq(own(&k, others, ownership_claim, 0).err, 0);
    ownership_free(others);
    coordinator_free(other, false, 3000);
    caller_done(&k);
    place_done(&x);
}
END_TEST

START_TEST(claim_of_what_is_ours_already_voids_older_versions)
{
    struct place x;
    place_init(&x, "/resume");
    register_member(&x, MEMBER);
    struct ownership_reply first = own(&x.member, x.ownership, ownership_claim, 0);
    struct ownership_reply again = own(&x.member, x.ownership, ownership_claim, 0);
    ck_assert_int_eq(again.err, 0);
    ck_assert_int_gt(again.version, first.version);
    ck_assert_int_eq(commit(&x, MEMBER, 0, 1, first.version).err, -BROOK_E_FENCED);
    ck_assert_int_eq(commit(&x, MEMBER, 0, 1, again.version).err, 0);
    place_done(&x);
}
END_TEST

/* The claim writes the offset back that it has read: it must not do so over a commit that came in between. */
START_TEST(claim_never_takes_a_commit_back)
{
    enum { ROUNDS = 200 };
    struct place x;
    static struct commit c;
    int committed = 0;
    place_init(&x, "/race");
    for (int i = 0; i < ROUNDS; i++) {
        struct claim claim = {0};
        struct offsets_entry entry = {"t", 0, i, -1};
        commit_begin(&x, NULL, &entry, 1, &c);
        ownership_claim(x.ownership, "t", 0, 0, on_claim, &claim);
        commit_end(&x, &c);
        ck_assert(caller_wait(&x.member, claim_is_done, &claim, CALLER_TIMEOUT_MS));
        ck_assert_int_eq(claim.reply.err, 0);
        if (c.results[0].err == 0) {
            ck_assert_int_eq(stored(&x, 0), i);
            committed++;
        }
        ck_assert_int_eq(own(&x.member, x.ownership, ownership_release, 0).err, 0);
    }
    ck_assert_int_gt(committed, 0);
    place_done(&x);
}
END_TEST

struct watched {
    unsigned count;
    bool exists;
    bool ours;
};

static void on_watch(void *arg, bool exists, bool ours)
{
    *(struct watched *)arg = (struct watched){((struct watched *)arg)->count + 1, exists, ours};
}

static bool is_ours(void *arg)
{
    const struct watched *w = arg;
    return w->exists && w->ours;
}

static bool is_gone(void *arg)
{
    const struct watched *w = arg;
    return w->count > 0 && !w->exists;
}

START_TEST(owner_node_is_watched_from_claim_to_removal_by_hand)
{
    struct place x;
    struct watched w = {0};
    place_init(&x, "/watch");
    struct ownership_watch *watch = ownership_watch_new(x.ownership, "t", 5, on_watch, &w);
    ck_assert(caller_wait(&x.member, is_gone, &w, CALLER_TIMEOUT_MS));
    ck_assert_int_eq(own(&x.member, x.ownership, ownership_claim, 5).err, 0);
    ck_assert(caller_wait(&x.member, is_ours, &w, CALLER_TIMEOUT_MS));
    struct path path;
    coordinator_delete(x.broker_session, path_owner(&path, GROUP, "t", 5), -1, caller_begin(&x.broker));
    ck_assert_int_eq(caller_end(&x.broker)->err, 0);
    ck_assert(caller_wait(&x.member, is_gone, &w, CALLER_TIMEOUT_MS));
    ownership_watch_free(watch);
    place_done(&x);
}
END_TEST

static void on_list(void *arg, int err, const int32_t *partitions, size_t count)
{
    struct claim *c = arg;
    c->done = true;
    c->reply.err = err;
    for (size_t i = 0; i < count; i++)
        c->reply.version |= 1 << partitions[i];
}

START_TEST(list_names_what_this_session_owns_and_no_more)
{
    struct place x;
    struct claim c = {0};
    place_init(&x, "/list");
    ck_assert_int_eq(own(&x.member, x.ownership, ownership_claim, 1).err, 0);
    ck_assert_int_eq(own(&x.member, x.ownership, ownership_claim, 4).err, 0);
    struct path path;
    coordinator_create(x.broker_session, path_owner(&path, GROUP, "t", 2), "x", 1, ZNODE_EPHEMERAL,
                       caller_begin(&x.broker));
    ck_assert_int_eq(caller_end(&x.broker)->err, 0);
    ownership_list(x.ownership, "t", on_list, &c);
    ck_assert(caller_wait(&x.member, claim_is_done, &c, CALLER_TIMEOUT_MS));
    ck_assert_int_eq(c.reply.err, 0);
    ck_assert_int_eq(c.reply.version, (1 << 1) | (1 << 4));
    place_done(&x);
}
END_TEST

/* ---- many at once ------------------------------------------------------------------------------------- */

START_TEST(many_partitions_go_in_few_multis_and_one_refusal_hurts_nobody_else)
{
    enum { COUNT = 250, BAD = 123 };
    static struct commit c;
    static struct offsets_entry entries[COUNT];
    struct place x;
    place_init(&x, "/many");
    register_member(&x, MEMBER);
    for (int32_t p = 0; p < COUNT; p++)
        entries[p] = (struct offsets_entry){"t", p, p + 1,
                                            own(&x.member, x.ownership, ownership_claim, p).version};
    commit_begin(&x, MEMBER, entries, COUNT, &c);
    commit_end(&x, &c);
    for (int32_t p = 0; p < COUNT; p++) {
        ck_assert_int_eq(c.results[p].err, 0);
        entries[p].expected_version = c.results[p].version + (p == BAD);
        entries[p].offset++;
    }
    commit_begin(&x, MEMBER, entries, COUNT, &c);
    commit_end(&x, &c);
    for (int32_t p = 0; p < COUNT; p++)
        ck_assert_int_eq(c.results[p].err, p == BAD ? -BROOK_E_FENCED : 0);
    ck_assert_int_eq(stored(&x, BAD), BAD + 1);
    ck_assert_int_eq(stored(&x, BAD + 1), BAD + 3);
    place_done(&x);
}
END_TEST

START_TEST(commits_of_one_partition_are_carried_out_in_order)
{
    enum { COUNT = 50 };
    static struct commit c[COUNT];
    struct place x;
    place_init(&x, "/order");
    register_member(&x, MEMBER);
    int32_t version = own(&x.member, x.ownership, ownership_claim, 0).version;
    for (int i = 0; i < COUNT; i++) {
        /* Each expects the version that the one before it makes: any other order is refused. */
        struct offsets_entry entry = {"t", 0, i, version + i};
        commit_begin(&x, MEMBER, &entry, 1, &c[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        commit_end(&x, &c[i]);
        ck_assert_int_eq(c[i].results[0].err, 0);
    }
    ck_assert_int_eq(stored(&x, 0), COUNT - 1);
    place_done(&x);
}
END_TEST

/* ---- simple consumers --------------------------------------------------------------------------------- */

START_TEST(commit_without_member_works_where_nobody_owns_and_only_there)
{
    static struct commit c;
    struct place x;
    place_init(&x, "/simple");
    struct offsets_entry entries[] = {{"t", 0, 5, -1}, {"t", 1, 6, -1}, {"t", 2, 7, -1}};
    commit_begin(&x, NULL, entries, 3, &c);
    commit_end(&x, &c);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(c.results[i].err, 0);
    ck_assert_int_eq(own(&x.member, x.ownership, ownership_claim, 1).offset, 6);
    for (int i = 0; i < 3; i++)
        entries[i].offset += 10;
    commit_begin(&x, NULL, entries, 3, &c);
    commit_end(&x, &c);
    ck_assert_int_eq(c.results[0].err, 0);
    ck_assert_int_eq(c.results[1].err, -BROOK_E_OWNED);
    ck_assert_int_eq(c.results[2].err, 0);
    ck_assert_int_eq(stored(&x, 0), 15);
    ck_assert_int_eq(stored(&x, 1), 6);
    ck_assert_int_eq(stored(&x, 2), 17);
    /* -1 forgets. */
    ck_assert_int_eq(commit(&x, NULL, 0, -1, -1).err, 0);
    ck_assert_int_eq(stored(&x, 0), -1);
    place_done(&x);
}
END_TEST

START_TEST(what_makes_no_sense_is_refused_before_anything_is_written)
{
    static struct commit c;
    struct place x;
    place_init(&x, "/nonsense");
    struct offsets_entry entries[] = {{"t/u", 0, 5, 0}, {"t", -1, 6, 0}, {"t", 0, -2, 0}, {"t", 0, 0, -1}};
    commit_begin(&x, MEMBER, entries, 4, &c);
    commit_end(&x, &c);
    ck_assert_int_eq(c.results[0].err, -BROOK_E_ILLEGAL_NAME);
    for (int i = 1; i < 4; i++)
        ck_assert_int_eq(c.results[i].err, -BROOK_E_INVALID);
    ck_assert_int_eq(offsets_commit(x.offsets, "../x", NULL, entries, 1, &x.broker.inbox, on_commit, &c),
                     -BROOK_E_ILLEGAL_NAME);
    ck_assert_int_eq(offsets_commit(x.offsets, GROUP, NULL, entries, 0, &x.broker.inbox, on_commit, &c),
                     -BROOK_E_INVALID);
    ck_assert_int_eq(offsets_commit(x.offsets, GROUP, NULL, entries, OFFSETS_ENTRIES_MAX + 1, &x.broker.inbox,
                                    on_commit, &c),
                     -BROOK_E_TOO_MANY);
    static struct fetch f;
    fetch(&x, GROUP, NULL, 0, &f);
    ck_assert_uint_eq(f.count, 0);
    place_done(&x);
}
END_TEST

START_TEST(fetch_tells_none_stored_from_no_group_and_sorts_partitions_as_numbers)
{
    static struct fetch f;
    struct place x;
    place_init(&x, "/fetch");
    fetch(&x, "nobody", NULL, 0, &f);
    ck_assert_int_eq(f.err, 0);
    ck_assert_uint_eq(f.count, 0);
    for (int32_t p = 11; p >= 8; p--)
        ck_assert_int_eq(commit(&x, NULL, p, p, -1).err, 0);
    ck_assert_int_eq(own(&x.member, x.ownership, ownership_claim, 2).err, 0);
    fetch(&x, GROUP, NULL, 0, &f);
    ck_assert_uint_eq(f.count, 5);
    ck_assert_int_eq(f.fetched[0].partition, 2);
    ck_assert_int_eq(f.fetched[0].offset, -1);
    ck_assert_int_eq(f.fetched[0].err, 0);
    for (size_t i = 1; i < 5; i++)
        ck_assert_int_eq(f.fetched[i].partition, 7 + (int32_t)i);
    place_done(&x);
}
END_TEST

/* ---- trouble ------------------------------------------------------------------------------------------ */

START_TEST(commit_without_zookeeper_says_that_it_could_not_or_does_not_know)
{
    static struct commit c;
    struct place x;
    place_init(&x, "/trouble");
    register_member(&x, MEMBER);
    int32_t version = own(&x.member, x.ownership, ownership_claim, 0).version;
    zookeeper_pause(zk);
    struct offsets_entry entry = {"t", 0, 1, version};
    commit_begin(&x, MEMBER, &entry, 1, &c);
    bool answered = caller_wait(&x.broker, commit_is_done, &c, CALLER_TIMEOUT_MS);
    zookeeper_continue(zk);
    ck_assert(answered);
    ck_assert(c.results[0].err == -BROOK_E_OUTCOME_UNKNOWN || c.results[0].err == -BROOK_E_COORDINATION_LOST);
    place_done(&x);
}
END_TEST

START_TEST(free_answers_what_waits)
{
    enum { COUNT = 300 };
    static struct commit c[COUNT];
    struct place x;
    place_init(&x, "/free");
    for (int i = 0; i < COUNT; i++) {
        struct offsets_entry entry = {"t", 0, i, -1};
        commit_begin(&x, NULL, &entry, 1, &c[i]);
    }
    inbox_drain(&x.broker.inbox);
    place_done(&x);
    int closed = 0;
    for (int i = 0; i < COUNT; i++) {
        ck_assert_uint_eq(c[i].answers, 1);
        closed += c[i].results[0].err == -BROOK_E_CLOSED;
    }
    ck_assert_int_gt(closed, COUNT / 2);
}
END_TEST

int main(void)
{
    const struct suite_test all[] = {
        SUITE_TEST(claim_gives_the_version_that_commits_and_each_commit_the_next),
        SUITE_TEST(former_owner_and_unregistered_member_are_refused),
        SUITE_TEST(claim_of_an_owned_partition_is_refused_and_watched_until_it_goes),
        SUITE_TEST(claim_of_what_is_ours_already_voids_older_versions),
        SUITE_TEST(claim_never_takes_a_commit_back),
        SUITE_TEST(owner_node_is_watched_from_claim_to_removal_by_hand),
        SUITE_TEST(list_names_what_this_session_owns_and_no_more),
        SUITE_TEST(many_partitions_go_in_few_multis_and_one_refusal_hurts_nobody_else),
        SUITE_TEST(commits_of_one_partition_are_carried_out_in_order),
        SUITE_TEST(commit_without_member_works_where_nobody_owns_and_only_there),
        SUITE_TEST(what_makes_no_sense_is_refused_before_anything_is_written),
        SUITE_TEST(fetch_tells_none_stored_from_no_group_and_sorts_partitions_as_numbers),
        SUITE_TEST(commit_without_zookeeper_says_that_it_could_not_or_does_not_know),
        SUITE_TEST(free_answers_what_waits),
    };
    zk = zookeeper_start(NULL);
    int failed = suite_run("coordination/offsets", all, sizeof all / sizeof all[0]);
    zookeeper_stop(zk);
    return failed;
}
