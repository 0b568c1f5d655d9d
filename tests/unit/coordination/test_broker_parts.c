/* What a broker takes part with, each by itself, against a real ZooKeeper: notifications, the controller's
 * seat, the registration, served entries, tombstones, trees, the beginning of a cluster. */
#include "coordination/bootstrap.h"
#include "coordination/changes.h"
#include "coordination/controller_seat.h"
#include "coordination/paths.h"
#include "coordination/registry.h"
#include "coordination/served.h"
#include "coordination/tombstones.h"
#include "coordination/tree.h"
#include "proto/base/clock.h"
#include "tests/support/caller.h"
#include "tests/support/suite.h"
#include "tests/support/zookeeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct zookeeper *zk;

static struct coordinator *begin(struct caller *k, const char *chroot)
{
    caller_init(k);
    struct coordinator *c = caller_connect(k, zookeeper_connect(zk, chroot), 4000, NULL);
    coordinator_create_path(c, PATH_CHANGES, NULL, 0, caller_begin(k));
    caller_end(k);
    coordinator_create_path(c, PATH_BROKER_IDS, NULL, 0, caller_begin(k));
    caller_end(k);
    return c;
}

static int create(struct caller *k, struct coordinator *c, const char *path, const char *data)
{
    coordinator_create_path(c, path, data, strlen(data), caller_begin(k));
    return caller_end(k)->err;
}

static const struct got *get(struct caller *k, struct coordinator *c, const char *path)
{
    coordinator_get(c, path, caller_begin(k));
    return caller_end(k);
}

static bool exists(struct caller *k, struct coordinator *c, const char *path)
{
    return get(k, c, path)->err == 0;
}

static int delete (struct caller *k, struct coordinator *c, const char *path)
{
    coordinator_delete(c, path, -1, caller_begin(k));
    return caller_end(k)->err;
}

/* ---- notifications ---------------------------------------------------------------------------------- */

struct heard {
    unsigned changed;
    unsigned lost;
    char topics[64][16]; /* the first topic of each */
    unsigned changed_wanted;
    unsigned lost_wanted;
};

static void note_changed(void *arg, const struct znode_change *change)
{
    struct heard *h = arg;
    if (h->changed < 64 && change->topics_count)
        snprintf(h->topics[h->changed], sizeof h->topics[0], "%s", change->topics[0]);
    h->changed++;
}

static void note_lost(void *arg)
{
    ((struct heard *)arg)->lost++;
}

static bool heard_enough(void *arg)
{
    struct heard *h = arg;
    return h->changed >= h->changed_wanted && h->lost >= h->lost_wanted;
}

static void wait_heard(struct caller *k, struct heard *h, unsigned changed, unsigned lost)
{
    h->changed_wanted = changed;
    h->lost_wanted = lost;
    ck_assert(caller_wait(k, heard_enough, h, 5000));
}

static void announce(struct caller *k, struct coordinator *c, unsigned number)
{
    char name[16];
    char *topics[] = {name};
    struct znode_change change = {.topics = topics, .topics_count = 1};
    struct coordinator_multi *multi = coordinator_multi_new();
    snprintf(name, sizeof name, "t%u", number);
    ck_assert_int_eq(changes_announce(multi, &change), 0);
    coordinator_multi_send(c, &multi, caller_begin(k));
    ck_assert_int_eq(caller_end(k)->err, 0);
}

static struct changes *watch(struct coordinator *c, struct inbox *inbox, struct heard *h)
{
    struct changes_events events = {note_changed, note_lost, h};
    struct changes *changes;
    memset(h, 0, sizeof *h);
    ck_assert_int_eq(changes_new(c, inbox, &events, &changes), 0);
    return changes;
}

START_TEST(notifications_arrive_once_each_and_in_order)
{
    struct caller k;
    struct coordinator *c = begin(&k, "/order");
    struct heard h;
    announce(&k, c, 99);
    struct changes *changes = watch(c, &k.inbox, &h);
    wait_heard(&k, &h, 0, 1); /* what was before: read everything */
    for (unsigned i = 0; i < 40; i++)
        announce(&k, c, i);
    wait_heard(&k, &h, 40, 1);
    caller_idle(&k, 50);
    ck_assert_uint_eq(h.changed, 40);
    ck_assert_uint_eq(h.lost, 1);
    for (unsigned i = 0; i < 40; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%u", i);
        ck_assert_str_eq(h.topics[i], name);
    }
    changes_free(changes);
    coordinator_free(c, false, 5000);
    caller_done(&k);
}
END_TEST

/* The watcher is away (its thread does not look) while several come and one of them is swept. */
START_TEST(gap_in_the_numbers_means_read_everything)
{
    struct caller k, away;
    struct coordinator *c = begin(&k, "/gap");
    struct heard h;
    struct path path;
    caller_init(&away);
    struct coordinator *sleeper = caller_connect(&away, zookeeper_connect(zk, "/gap"), 4000, NULL);
    announce(&k, c, 0);
    struct changes *changes = watch(sleeper, &away.inbox, &h);
    wait_heard(&away, &h, 0, 1);
    int64_t last = changes_last(changes);
    /* Three numbers are used up before the fourth can be seen: made and removed in one multi each. */
    struct coordinator_multi *multi = coordinator_multi_new();
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "change_%010lld", (long long)last + 1 + i);
        coordinator_multi_create(multi, PATH_CHANGE_PREFIX, "{}", 2, ZNODE_SEQUENTIAL);
        if (i == 1)
            coordinator_multi_delete(multi, path_change(&path, name), -1);
    }
    coordinator_multi_send(c, &multi, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    wait_heard(&away, &h, 0, 2);
    caller_idle(&away, 50);
    ck_assert_uint_eq(h.changed, 0);
    announce(&k, c, 5); /* and from there on one by one again */
    wait_heard(&away, &h, 1, 2);
    ck_assert_uint_eq(h.lost, 2);
    changes_free(changes);
    coordinator_free(sleeper, false, 5000);
    caller_done(&away);
    coordinator_free(c, false, 5000);
    caller_done(&k);
}
END_TEST

START_TEST(sweeper_keeps_the_newest)
{
    struct caller k;
    struct coordinator *c = begin(&k, "/sweep");
    struct heard h;
    for (unsigned i = 0; i < CHANGES_KEPT + CHANGES_SWEPT_MIN - 1; i++)
        coordinator_create(c, PATH_CHANGE_PREFIX, "{}", 2, ZNODE_SEQUENTIAL, (struct coordinator_call){0});
    announce(&k, c, 0);
    struct changes *changes = watch(c, &k.inbox, &h);
    changes_sweep(changes, true);
    wait_heard(&k, &h, 0, 1);
    int64_t newest = changes_last(changes);
    for (int i = 0; i < 200; i++) {
        caller_idle(&k, 5);
        coordinator_children(c, PATH_CHANGES, caller_begin(&k));
        if (caller_end(&k)->stat.children_count == CHANGES_KEPT)
            break;
    }
    ck_assert_int_eq(k.got.stat.children_count, CHANGES_KEPT);
    char name[32];
    struct path path;
    snprintf(name, sizeof name, "change_%010lld", (long long)newest);
    ck_assert(exists(&k, c, path_change(&path, name)));
    ck_assert_uint_eq(h.lost, 1); /* to sweep is no news */
    changes_free(changes);
    coordinator_free(c, false, 5000);
    caller_done(&k);
}
END_TEST

/* ---- the controller's seat -------------------------------------------------------------------------- */

struct candidate {
    struct controller_seat *seat;
    int32_t seen;
    unsigned elected;
    unsigned lost;
    int32_t epoch;
    int32_t epoch_version;
};

static void seat_changed(void *arg, int32_t broker_id)
{
    ((struct candidate *)arg)->seen = broker_id;
}

static void seat_elected(void *arg, int32_t epoch, int32_t epoch_version)
{
    struct candidate *x = arg;
    x->elected++;
    x->epoch = epoch;
    x->epoch_version = epoch_version;
}

static void seat_lost(void *arg)
{
    ((struct candidate *)arg)->lost++;
}

static void stand(struct candidate *x, struct coordinator *c, struct inbox *inbox, int32_t id)
{
    struct controller_seat_events events = {seat_changed, seat_elected, seat_lost, x};
    *x = (struct candidate){.seen = -2};
    ck_assert_int_eq(controller_seat_new(c, inbox, id, &events, &x->seat), 0);
    controller_seat_stand(x->seat);
}

static bool is_elected(void *arg)
{
    return ((struct candidate *)arg)->elected > ((struct candidate *)arg)->lost;
}

START_TEST(seat_is_one_persons_and_each_epoch_is_new)
{
    struct caller a, b;
    struct coordinator *one = begin(&a, "/seat"), *two = begin(&b, "/seat");
    struct candidate x, y;
    stand(&x, one, &a.inbox, 1);
    ck_assert(caller_wait(&a, is_elected, &x, 5000));
    ck_assert_int_eq(x.epoch, 1);
    stand(&y, two, &b.inbox, 2);
    caller_idle(&b, 100);
    ck_assert_uint_eq(y.elected, 0);
    ck_assert_int_eq(y.seen, 1);
    /* What it writes is fenced by the version it was given. */
    struct coordinator_multi *multi = coordinator_multi_new();
    coordinator_multi_check(multi, PATH_CONTROLLER_EPOCH, x.epoch_version);
    coordinator_multi_send(one, &multi, caller_begin(&a));
    ck_assert_int_eq(caller_end(&a)->err, 0);
    /* Somebody removes the node by hand: whoever gets it next has a new epoch. */
    ck_assert_int_eq(delete (&a, one, PATH_CONTROLLER), 0);
    for (int i = 0; i < 500 && !(x.lost && (y.elected || x.elected == 2)); i++) {
        caller_idle(&a, 5);
        caller_idle(&b, 5);
    }
    ck_assert_uint_eq(x.lost, 1);
    ck_assert_uint_eq((x.elected - 1) + y.elected, 1);
    ck_assert_int_eq(y.elected ? y.epoch : x.epoch, 2);
    int32_t stale = y.elected ? x.epoch_version : x.epoch_version - 1;
    multi = coordinator_multi_new();
    coordinator_multi_check(multi, PATH_CONTROLLER_EPOCH, stale);
    coordinator_multi_send(one, &multi, caller_begin(&a));
    ck_assert_int_eq(caller_end(&a)->err, -BROOK_E_BAD_VERSION);
    controller_seat_free(x.seat);
    controller_seat_free(y.seat);
    coordinator_free(one, false, 5000);
    coordinator_free(two, false, 5000);
    caller_done(&a);
    caller_done(&b);
}
END_TEST

START_TEST(who_leaves_the_seat_to_others_keeps_it_and_does_not_claim_it)
{
    struct caller a;
    struct coordinator *c = begin(&a, "/leave");
    struct candidate x;
    stand(&x, c, &a.inbox, 1);
    ck_assert(caller_wait(&a, is_elected, &x, 5000));
    controller_seat_leave_to_others(x.seat);
    ck_assert_uint_eq(x.lost, 0);
    ck_assert_int_eq(delete (&a, c, PATH_CONTROLLER), 0);
    caller_idle(&a, 300);
    controller_seat_tick(x.seat);
    caller_idle(&a, 100);
    ck_assert_uint_eq(x.lost, 1);
    ck_assert_uint_eq(x.elected, 1);
    controller_seat_stand(x.seat);
    ck_assert(caller_wait(&a, is_elected, &x, 5000));
    controller_seat_free(x.seat);
    coordinator_free(c, false, 5000);
    caller_done(&a);
}
END_TEST

START_TEST(seat_passes_on_when_it_is_released_or_its_session_ends)
{
    struct caller a, b;
    struct coordinator *one = begin(&a, "/pass"), *two = begin(&b, "/pass");
    struct candidate x, y;
    stand(&x, one, &a.inbox, 1);
    ck_assert(caller_wait(&a, is_elected, &x, 5000));
    stand(&y, two, &b.inbox, 2);
    controller_seat_release(x.seat, caller_begin(&a));
    ck_assert_int_eq(caller_end(&a)->err, 0);
    ck_assert_uint_eq(x.lost, 1);
    ck_assert(caller_wait(&b, is_elected, &y, 5000));
    ck_assert_int_eq(y.epoch, 2);
    controller_seat_stand(x.seat);
    controller_seat_free(y.seat);
    coordinator_free(two, false, 5000);
    ck_assert(caller_wait(&a, is_elected, &x, 5000));
    ck_assert_int_eq(x.epoch, 3);
    controller_seat_free(x.seat);
    coordinator_free(one, false, 5000);
    caller_done(&a);
    caller_done(&b);
}
END_TEST

/* ---- registration ----------------------------------------------------------------------------------- */

struct registrant {
    struct registry *registry;
    unsigned registered;
    unsigned refused;
    unsigned vanished;
    int64_t epoch;
    struct brook_error error;
};

static void note_registered(void *arg, int64_t broker_epoch)
{
    struct registrant *x = arg;
    x->registered++;
    x->epoch = broker_epoch;
}

static void note_refused(void *arg, const struct brook_error *error)
{
    struct registrant *x = arg;
    x->refused++;
    x->error = *error;
}

static void note_vanished(void *arg)
{
    ((struct registrant *)arg)->vanished++;
}

static void enlist(struct registrant *x, struct coordinator *c, struct inbox *inbox)
{
    struct registry_settings settings = {7, "box", 1234, "r1"};
    struct registry_events events = {note_registered, note_refused, note_vanished, x};
    *x = (struct registrant){0};
    ck_assert_int_eq(registry_new(c, inbox, &settings, &events, &x->registry), 0);
    registry_register(x->registry, -1, -1);
}

static bool is_registered(void *arg)
{
    return registry_broker_epoch(((struct registrant *)arg)->registry) >= 0;
}

static bool is_refused(void *arg)
{
    return ((struct registrant *)arg)->refused > 0;
}

START_TEST(registration_names_its_epoch_comes_back_and_refuses_a_second)
{
    struct caller a, b;
    struct coordinator *one = begin(&a, "/registry"), *two;
    struct registrant x, y;
    struct znode_broker entry;
    enlist(&x, one, &a.inbox);
    ck_assert(caller_wait(&a, is_registered, &x, 5000));
    const struct got *got = get(&a, one, "/brokers/ids/7");
    ck_assert_int_eq(znode_decode_broker(got->data, got->data_bytes, &entry, NULL), 0);
    ck_assert_str_eq(entry.host, "box");
    ck_assert_str_eq(entry.incarnation, registry_incarnation(x.registry));
    ck_assert_int_eq(entry.broker_epoch, x.epoch);
    znode_broker_done(&entry);
    ck_assert_int_eq(get(&a, one, "/brokers/epochs/7")->stat.version, x.epoch);

    int64_t before = x.epoch;
    ck_assert_int_eq(delete (&a, one, "/brokers/ids/7"), 0);
    for (int i = 0; i < 500 && x.registered < 2; i++)
        caller_idle(&a, 5);
    ck_assert_uint_eq(x.vanished, 1);
    ck_assert_int_eq(x.epoch, before + 1);

    caller_init(&b);
    two = caller_connect(&b, zookeeper_connect(zk, "/registry"), 500,
                         NULL); /* waits for 500 ms and the margin */
    enlist(&y, two, &b.inbox);
    ck_assert(caller_wait(&b, is_refused, &y, 8000));
    ck_assert_ptr_nonnull(strstr(y.error.text, "broker id 7"));
    ck_assert_ptr_nonnull(strstr(y.error.text, registry_incarnation(x.registry)));
    ck_assert(is_registered(&x));

    registry_unregister(x.registry, caller_begin(&a));
    ck_assert_int_eq(caller_end(&a)->err, 0);
    registry_register(y.registry, -1, -1);
    ck_assert(caller_wait(&b, is_registered, &y, 5000));
    ck_assert_int_eq(y.epoch, before + 2);
    registry_free(x.registry);
    registry_free(y.registry);
    coordinator_free(one, false, 5000);
    coordinator_free(two, false, 5000);
    caller_done(&a);
    caller_done(&b);
}
END_TEST

/* ---- served entries --------------------------------------------------------------------------------- */

static void settle(struct caller *k, struct served *s, int64_t *now_ms)
{
    for (int i = 0; i < 4; i++) {
        *now_ms += SERVED_INTERVAL_MS;
        served_tick(s, *now_ms);
        caller_idle(k, 30);
    }
}

START_TEST(served_entries_follow_at_most_once_a_second_and_never_bring_a_topic_back)
{
    struct caller k;
    struct coordinator *c = begin(&k, "/served");
    struct served *s;
    int32_t leads[] = {0, 2};
    int64_t now_ms = 1000000;
    ck_assert_int_eq(create(&k, c, "/brokers/topics/t", "{}"), 0);
    ck_assert_int_eq(served_new(c, &k.inbox, 3, NULL, &s), 0);
    ck_assert_int_eq(served_tick(s, now_ms), INT64_MAX);
    ck_assert_int_eq(served_set(s, "t", leads, 2, NULL, 0), 0);
    ck_assert_int_eq(served_set(s, "gone", leads, 1, NULL, 0), 0);
    settle(&k, s, &now_ms);
    ck_assert_ptr_nonnull(strstr(get(&k, c, "/brokers/topics/t/brokers/3")->data, "\"leads\":[0,2]"));
    ck_assert(k.got.stat.ephemeral_owner == coordinator_session_id(c));
    ck_assert(!exists(&k, c, "/brokers/topics/gone"));
    /* The first change is written at once, the two within the same second in one go later. */
    int32_t version = get(&k, c, "/brokers/topics/t/brokers/3")->stat.version;
    served_set(s, "t", leads, 1, NULL, 0);
    served_tick(s, now_ms);
    caller_idle(&k, 30);
    ck_assert_int_eq(get(&k, c, "/brokers/topics/t/brokers/3")->stat.version, version + 1);
    served_set(s, "t", NULL, 0, leads, 1);
    ck_assert_int_eq(served_tick(s, now_ms + 1), now_ms + SERVED_INTERVAL_MS);
    served_set(s, "t", leads, 2, leads, 1);
    ck_assert_int_eq(served_tick(s, now_ms + 2), now_ms + SERVED_INTERVAL_MS);
    settle(&k, s, &now_ms);
    ck_assert_int_eq(get(&k, c, "/brokers/topics/t/brokers/3")->stat.version, version + 2);
    ck_assert_ptr_nonnull(strstr(k.got.data, "\"follows\":[0]"));
    served_set(s, "t", NULL, 0, NULL, 0);
    settle(&k, s, &now_ms);
    ck_assert(!exists(&k, c, "/brokers/topics/t/brokers/3"));
    served_free(s);
    coordinator_free(c, false, 5000);
    caller_done(&k);
}
END_TEST

/* ---- tombstones, trees, the beginning --------------------------------------------------------------- */

struct found {
    bool is_answered;
    int err;
    size_t count;
    struct topic_id ids[8];
    char paths[16][64];
};

static bool is_answered(void *arg)
{
    return ((struct found *)arg)->is_answered;
}

static void note_tombstones(void *arg, int err, const struct topic_id *ids, size_t count)
{
    struct found *f = arg;
    f->is_answered = true;
    f->err = err;
    f->count = count;
    for (size_t i = 0; i < count && i < 8; i++)
        f->ids[i] = ids[i];
}

START_TEST(tombstones_are_read_back_and_their_number_is_bounded)
{
    struct caller k;
    struct coordinator *c = begin(&k, "/tombstones");
    struct found f = {0};
    struct topic_id newest;
    tombstones_read(c, false, &k.inbox, note_tombstones, &f);
    ck_assert(caller_wait(&k, is_answered, &f, 5000));
    ck_assert_int_eq(f.err, 0); /* no directory: none */
    ck_assert_uint_eq(f.count, 0);
    ck_assert_int_eq(create(&k, c, PATH_DELETED_TOPICS, ""), 0);
    for (int i = 0; i < TOMBSTONES_KEPT + 200; i += 100) {
        struct coordinator_multi *multi = coordinator_multi_new();
        for (int n = 0; n < 100; n++) {
            topic_id_random(&newest);
            tombstones_add(multi, &newest);
        }
        coordinator_multi_send(c, &multi, caller_begin(&k));
        ck_assert_int_eq(caller_end(&k)->err, 0);
    }
    f.is_answered = false;
    tombstones_read(c, true, &k.inbox, note_tombstones, &f);
    ck_assert(caller_wait(&k, is_answered, &f, 5000));
    ck_assert_uint_eq(f.count, TOMBSTONES_KEPT + 200);
    coordinator_children(c, PATH_DELETED_TOPICS, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->stat.children_count, TOMBSTONES_KEPT);
    coordinator_free(c, false, 5000);
    caller_done(&k);
}
END_TEST

static void note_tree(void *arg, int err, char *const *paths, size_t count)
{
    struct found *f = arg;
    f->is_answered = true;
    f->err = err;
    f->count = count;
    for (size_t i = 0; i < count && i < 16; i++)
        snprintf(f->paths[i], sizeof f->paths[0], "%s", paths[i]);
}

START_TEST(tree_is_listed_children_first)
{
    struct caller k;
    struct coordinator *c = begin(&k, "/tree");
    struct found f = {0};
    tree_list(c, "/nothing", &k.inbox, note_tree, &f);
    ck_assert(caller_wait(&k, is_answered, &f, 5000));
    ck_assert_int_eq(f.err, -BROOK_E_NO_NODE);
    create(&k, c, "/r/a/x", "");
    create(&k, c, "/r/a/y", "");
    create(&k, c, "/r/b", "");
    f.is_answered = false;
    tree_list(c, "/r", &k.inbox, note_tree, &f);
    ck_assert(caller_wait(&k, is_answered, &f, 5000));
    ck_assert_int_eq(f.err, 0);
    ck_assert_uint_eq(f.count, 5);
    ck_assert_str_eq(f.paths[4], "/r");
    for (size_t i = 0; i < f.count; i++)
        ck_assert_int_eq(delete (&k, c, f.paths[i]), 0); /* in this order it works */
    coordinator_free(c, false, 5000);
    caller_done(&k);
}
END_TEST

struct founded {
    unsigned answers;
    char ids[2][64];
};

static void note_id(void *arg, int err, const char *cluster_id)
{
    struct founded *f = arg;
    ck_assert_int_eq(err, 0);
    snprintf(f->ids[f->answers++], sizeof f->ids[0], "%s", cluster_id);
}

static bool has_two(void *arg)
{
    return ((struct founded *)arg)->answers == 2;
}

START_TEST(two_that_begin_at_once_agree_on_the_cluster_id)
{
    struct caller a, b;
    caller_init(&a);
    caller_init(&b);
    struct coordinator *one = caller_connect(&a, zookeeper_connect(zk, "/founded"), 4000, NULL);
    struct coordinator *two = caller_connect(&b, zookeeper_connect(zk, "/founded"), 4000, NULL);
    struct founded f = {0};
    bootstrap_cluster(one, true, &a.inbox, note_id, &f);
    bootstrap_cluster(two, true, &a.inbox, note_id, &f);
    ck_assert(caller_wait(&a, has_two, &f, 5000));
    ck_assert_str_eq(f.ids[0], f.ids[1]);
    ck_assert_uint_eq(strlen(f.ids[0]), 22);
    ck_assert(exists(&a, one, PATH_CHANGES));
    ck_assert(exists(&a, one, PATH_DELETE_TOPICS));
    coordinator_free(one, false, 5000);
    coordinator_free(two, false, 5000);
    caller_done(&a);
    caller_done(&b);
}
END_TEST

int main(void)
{
    zk = zookeeper_start(NULL);
    const struct suite_test tests[] = {
        SUITE_TEST(notifications_arrive_once_each_and_in_order),
        SUITE_TEST(gap_in_the_numbers_means_read_everything),
        SUITE_TEST(sweeper_keeps_the_newest),
        SUITE_TEST(seat_is_one_persons_and_each_epoch_is_new),
        SUITE_TEST(seat_passes_on_when_it_is_released_or_its_session_ends),
        SUITE_TEST(who_leaves_the_seat_to_others_keeps_it_and_does_not_claim_it),
        SUITE_TEST(registration_names_its_epoch_comes_back_and_refuses_a_second),
        SUITE_TEST(served_entries_follow_at_most_once_a_second_and_never_bring_a_topic_back),
        SUITE_TEST(tombstones_are_read_back_and_their_number_is_bounded),
        SUITE_TEST(tree_is_listed_children_first),
        SUITE_TEST(two_that_begin_at_once_agree_on_the_cluster_id),
    };
    int r = suite_run("coordination/broker_parts", tests, sizeof tests / sizeof tests[0]);
    zookeeper_stop(zk);
    return r;
}
