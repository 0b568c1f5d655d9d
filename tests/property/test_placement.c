/* Where replicas go, under random brokers, racks and numbers. */
#include "broker/cluster/placement.h"
#include "tests/property/controller_model.h"

#define PARTITIONS_MAX 120

static const char *const racks[] = {"a", "b", "c", "d"};

struct spread {
    int32_t replicas[BROKERS_MAX];
    int32_t leads[BROKERS_MAX];
};

static void count_spread(struct spread *s, const int32_t *brokers, int32_t count, int32_t replicas)
{
    for (int32_t i = 0; i < count * replicas; i++) {
        s->replicas[brokers[i]]++;
        s->leads[brokers[i]] += i % replicas == 0;
    }
}

/* The difference between the most and the least, among those that take any. */
static int32_t difference(const struct cluster_model *m, const int32_t *per_broker, bool spare_draining)
{
    int32_t least = INT32_MAX, most = 0;
    for (int i = 0; i < BROKERS_MAX; i++) {
        if (!m->is_alive[i] || (spare_draining && m->brokers[i].draining))
            continue;
        least = per_broker[i] < least ? per_broker[i] : least;
        most = per_broker[i] > most ? per_broker[i] : most;
    }
    return most - least;
}

static void check_distinct(const struct cluster_model *m, const int32_t *list, int32_t replicas)
{
    for (int32_t k = 0; k < replicas; k++) {
        ck_assert(m->is_alive[list[k]]);
        ck_assert(!contains(list, k, list[k]));
    }
}

static int staying(const struct cluster_model *m)
{
    int n = 0;
    for (int i = 0; i < BROKERS_MAX; i++)
        n += m->is_alive[i] && !m->brokers[i].draining;
    return n;
}

START_TEST(replicas_and_leaders_are_balanced_within_one_without_racks)
{
    uint64_t seed = suite_seed();
    for (int round = 0; round < suite_rounds(5000); round++) {
        struct cluster_model m;
        struct spread s = {0};
        int32_t placed[PARTITIONS_MAX * BROKERS_MAX];
        int32_t count = 1 + (int32_t)suite_random_below(&seed, PARTITIONS_MAX);
        begin(&m);
        for (int i = 0; i < BROKERS_MAX; i++) {
            m.is_alive[i] = suite_random_below(&seed, 4) > 0;
            m.brokers[i].draining = suite_random_below(&seed, 6) == 0;
        }
        refresh(&m);
        int32_t replicas = 1 + (int32_t)suite_random_below(&seed, BROKERS_MAX);
        int err = placement_make(&m.alive, NULL, 0, suite_random(&seed), count, replicas, placed, NULL);
        ck_assert_int_eq(err, !m.alive.count                       ? -BROOK_E_BROKER_NOT_AVAILABLE
                              : (size_t)replicas > m.alive.count ? -BROOK_E_INVALID_REPLICATION
                                                                   : 0);
        if (err)
            continue;
        bool spare = staying(&m) >= replicas;
        count_spread(&s, placed, count, replicas);
        for (int32_t i = 0; i < count; i++)
            check_distinct(&m, placed + i * replicas, replicas);
        for (int i = 0; spare && i < BROKERS_MAX; i++)
            ck_assert(!m.brokers[i].draining || s.replicas[i] == 0);
        ck_assert_int_le(difference(&m, s.replicas, spare), 1);
        ck_assert_int_le(difference(&m, s.leads, spare), 1);
    }
}
END_TEST

static int racks_of(const int32_t *list, int32_t replicas, const struct cluster_model *m, int32_t *per_rack)
{
    int n = 0;
    memset(per_rack, 0, 4 * sizeof *per_rack);
    for (int32_t k = 0; k < replicas; k++)
        n += per_rack[m->brokers[list[k]].rack[0] - 'a']++ == 0;
    return n;
}

/* Racks of any sizes: each partition is in as many as possible, and in none twice more than in another that
 * had room. */
START_TEST(replicas_stand_in_as_many_racks_as_there_are)
{
    uint64_t seed = suite_seed();
    for (int round = 0; round < suite_rounds(5000); round++) {
        struct cluster_model m;
        int32_t placed[PARTITIONS_MAX * BROKERS_MAX], size[4] = {0}, per_rack[4];
        int racks_count = 0;
        begin(&m);
        for (int i = 0; i < BROKERS_MAX; i++) {
            m.is_alive[i] = suite_random_below(&seed, 5) > 0;
            int rack = (int)suite_random_below(&seed, 4);
            m.brokers[i].rack = racks[rack];
            if (m.is_alive[i])
                racks_count += size[rack]++ == 0;
        }
        refresh(&m);
        if (!m.alive.count)
            continue;
        int32_t replicas = 1 + (int32_t)suite_random_below(&seed, m.alive.count);
        int32_t count = 1 + (int32_t)suite_random_below(&seed, PARTITIONS_MAX);
        ck_assert_int_eq(
            placement_make(&m.alive, NULL, 0, suite_random(&seed), count, replicas, placed, NULL), 0);
        for (int32_t i = 0; i < count; i++) {
            check_distinct(&m, placed + i * replicas, replicas);
            int in = racks_of(placed + i * replicas, replicas, &m, per_rack);
            ck_assert_int_eq(in, replicas < racks_count ? replicas : racks_count);
            for (int a = 0; a < 4; a++)
                for (int b = 0; b < 4; b++)
                    ck_assert(per_rack[a] <= per_rack[b] + 1 || per_rack[b] == size[b]);
        }
    }
}
END_TEST

START_TEST(racks_of_one_size_do_not_cost_balance)
{
    uint64_t seed = suite_seed();
    for (int round = 0; round < suite_rounds(5000); round++) {
        struct cluster_model m;
        struct spread s = {0};
        int32_t placed[PARTITIONS_MAX * BROKERS_MAX];
        int32_t count = 1 + (int32_t)suite_random_below(&seed, PARTITIONS_MAX);
        int32_t replicas = 1 + (int32_t)suite_random_below(&seed, 4);
        begin(&m);
        for (int i = 0; i < BROKERS_MAX; i++) {
            m.is_alive[i] = true;
            m.brokers[i].rack = racks[i / 2];
        }
        refresh(&m);
        ck_assert_int_eq(
            placement_make(&m.alive, NULL, 0, suite_random(&seed), count, replicas, placed, NULL), 0);
        count_spread(&s, placed, count, replicas);
        ck_assert_int_le(difference(&m, s.replicas, false), 1);
        ck_assert_int_le(difference(&m, s.leads, false), 1);
    }
}
END_TEST

START_TEST(added_partitions_even_out_what_the_topic_has)
{
    uint64_t seed = suite_seed();
    for (int round = 0; round < suite_rounds(3000); round++) {
        struct cluster_model m;
        struct spread s = {0};
        int32_t placed[PARTITIONS_MAX * 3], before = 1 + (int32_t)suite_random_below(&seed, 20);
        int32_t more = 1 + (int32_t)suite_random_below(&seed, 60);
        struct znode_replicas existing[20];
        begin(&m);
        for (int i = 0; i < BROKERS_MAX; i++)
            m.is_alive[i] = true;
        refresh(&m);
        placement_make(&m.alive, NULL, 0, suite_random(&seed), before, 3, placed, NULL);
        for (int32_t i = 0; i < before; i++)
            existing[i] = (struct znode_replicas){placed + 3 * i, 3};
        ck_assert_int_eq(placement_make(&m.alive, existing, before, suite_random(&seed), more, 3,
                                        placed + 3 * before, NULL),
                         0);
        count_spread(&s, placed, before + more, 3);
        ck_assert_int_le(difference(&m, s.replicas, false), 1);
        ck_assert_int_le(difference(&m, s.leads, false), 2);
    }
}
END_TEST

START_TEST(placement_is_balanced_within_one_and_spares_those_that_drain)
{
    uint64_t seed = suite_seed();
    for (int round = 0; round < suite_rounds(20000); round++) {
        struct cluster_model m;
        int32_t placed[300], per_broker[BROKERS_MAX] = {0};
        int32_t count = 1 + (int32_t)suite_random_below(&seed, 300);
        int usable = 0;
        begin(&m);
        for (int i = 0; i < BROKERS_MAX; i++) {
            m.is_alive[i] = suite_random_below(&seed, 2);
            m.brokers[i].draining = suite_random_below(&seed, 4) == 0;
            usable += m.is_alive[i] && !m.brokers[i].draining;
        }
        refresh(&m);
        int err = placement_make(&m.alive, NULL, 0, suite_random(&seed), count, 1, placed, NULL);
        ck_assert_int_eq(err, m.alive.count ? 0 : -BROOK_E_BROKER_NOT_AVAILABLE);
        if (err)
            continue;
        for (int32_t i = 0; i < count; i++) {
            ck_assert(m.is_alive[placed[i]]);
            per_broker[placed[i]]++;
        }
        int32_t least = count, most = 0;
        for (int i = 0; i < BROKERS_MAX; i++) {
            bool takes = m.is_alive[i] && (!m.brokers[i].draining || !usable);
            ck_assert(takes || per_broker[i] == 0);
            if (!takes)
                continue;
            least = per_broker[i] < least ? per_broker[i] : least;
            most = per_broker[i] > most ? per_broker[i] : most;
        }
        ck_assert_int_le(most - least, 1);
    }
}
END_TEST

/* ---- what a death brings ---------------------------------------------------------------------------- */

#define MANY_BROKERS 16
#define MANY_PARTITIONS 1000

struct crowd {
    struct controller_broker list[MANY_BROKERS];
    struct controller_brokers alive;
};

/* `racks_count` 0: no racks; else `n` is a multiple of it, and racks are of one size. */
static void gather(struct crowd *c, int32_t n, int32_t racks_count)
{
    *c = (struct crowd){.alive = {c->list, (size_t)n}};
    for (int32_t i = 0; i < n; i++)
        c->list[i] = (struct controller_broker){.broker_id = i,
                                                .clean_from = -1,
                                                .disk_from = -1,
                                                .rack = racks_count ? racks[i % racks_count] : NULL};
}

/* The most that falls on a broker when `dead` dies, less the least, among those that may be its second. */
static int32_t uneven_after(const struct crowd *c, int32_t dead, const int32_t *placed, int32_t count,
                            int32_t replicas, bool other_racks)
{
    int32_t falls_on[MANY_BROKERS] = {0}, least = INT32_MAX, most = 0;
    for (int32_t i = 0; i < count; i++)
        if (placed[i * replicas] == dead)
            falls_on[placed[i * replicas + 1]]++;
    for (int32_t b = 0; b < (int32_t)c->alive.count; b++) {
        if (b == dead || (other_racks && c->list[b].rack == c->list[dead].rack))
            continue;
        least = falls_on[b] < least ? falls_on[b] : least;
        most = falls_on[b] > most ? falls_on[b] : most;
    }
    return most - least;
}

static void check_leads_after_deaths(const struct crowd *c, uint64_t start, int32_t count, int32_t replicas,
                                     bool other_racks)
{
    int32_t placed[MANY_PARTITIONS * 5];
    ck_assert_int_eq(placement_make(&c->alive, NULL, 0, start, count, replicas, placed, NULL), 0);
    for (int32_t dead = 0; dead < (int32_t)c->alive.count; dead++)
        ck_assert_int_le(uneven_after(c, dead, placed, count, replicas, other_racks), 2);
}

START_TEST(what_a_dead_broker_led_falls_on_all_others_alike)
{
    uint64_t seed = suite_seed();
    for (int round = 0; round < suite_rounds(2000); round++) {
        struct crowd c;
        int32_t replicas = 2 + (int32_t)suite_random_below(&seed, 4);
        int32_t n = replicas + (int32_t)suite_random_below(&seed, (uint64_t)(MANY_BROKERS + 1 - replicas));
        gather(&c, n, 0);
        check_leads_after_deaths(&c, suite_random(&seed),
                                 1 + (int32_t)suite_random_below(&seed, MANY_PARTITIONS), replicas, false);
    }
}
END_TEST

START_TEST(what_a_dead_broker_led_falls_on_all_other_racks_alike)
{
    uint64_t seed = suite_seed();
    for (int round = 0; round < suite_rounds(2000); round++) {
        struct crowd c;
        int32_t racks_count = 2 + (int32_t)suite_random_below(&seed, 3);
        int32_t replicas = 2 + (int32_t)suite_random_below(&seed, (uint64_t)racks_count - 1);
        gather(&c, racks_count * (1 + (int32_t)suite_random_below(&seed, 4)), racks_count);
        check_leads_after_deaths(&c, suite_random(&seed),
                                 1 + (int32_t)suite_random_below(&seed, MANY_PARTITIONS), replicas, true);
    }
}
END_TEST

/* A topic that grows step by step: what it has is not moved, what is added makes good for it. */
START_TEST(a_grown_topic_falls_on_all_others_nearly_alike)
{
    uint64_t seed = suite_seed();
    for (int round = 0; round < suite_rounds(500); round++) {
        struct crowd c;
        int32_t placed[MANY_PARTITIONS * 3], count = 0;
        struct znode_replicas existing[MANY_PARTITIONS];
        int32_t n = 4 + (int32_t)suite_random_below(&seed, MANY_BROKERS - 3);
        gather(&c, n, 0);
        while (count < MANY_PARTITIONS / 2) {
            int32_t more = 1 + (int32_t)suite_random_below(&seed, 60);
            ck_assert_int_eq(placement_make(&c.alive, existing, count, suite_random(&seed), more, 3,
                                            placed + 3 * count, NULL),
                             0);
            for (int32_t end = count + more; count < end; count++)
                existing[count] = (struct znode_replicas){placed + 3 * count, 3};
        }
        for (int32_t dead = 0; dead < n; dead++)
            ck_assert_int_le(uneven_after(&c, dead, placed, count, 3, false), 3);
    }
}
END_TEST

START_TEST(topics_of_one_partition_have_all_pairs_of_first_and_second)
{
    for (int32_t n = 3; n <= MANY_BROKERS; n++) {
        struct crowd c;
        bool is_seen[MANY_BROKERS][MANY_BROKERS] = {0};
        gather(&c, n, 0);
        for (int32_t start = 0; start < n * (n - 1); start++) {
            int32_t placed[3];
            ck_assert_int_eq(placement_make(&c.alive, NULL, 0, (uint64_t)start, 1, 3, placed, NULL), 0);
            ck_assert(!is_seen[placed[0]][placed[1]]);
            is_seen[placed[0]][placed[1]] = true;
        }
    }
}
END_TEST

SUITE_MAIN("property/placement",
           SUITE_TEST_SLOW(placement_is_balanced_within_one_and_spares_those_that_drain, 60),
           SUITE_TEST_SLOW(replicas_and_leaders_are_balanced_within_one_without_racks, 60),
           SUITE_TEST_SLOW(replicas_stand_in_as_many_racks_as_there_are, 60),
           SUITE_TEST_SLOW(racks_of_one_size_do_not_cost_balance, 60),
           SUITE_TEST_SLOW(added_partitions_even_out_what_the_topic_has, 60),
           SUITE_TEST_SLOW(what_a_dead_broker_led_falls_on_all_others_alike, 60),
           SUITE_TEST_SLOW(what_a_dead_broker_led_falls_on_all_other_racks_alike, 60),
           SUITE_TEST_SLOW(a_grown_topic_falls_on_all_others_nearly_alike, 60),
           SUITE_TEST(topics_of_one_partition_have_all_pairs_of_first_and_second))
