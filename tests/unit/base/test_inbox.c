#include "tests/support/suite.h"

#include "proto/base/err.h"
#include "proto/base/inbox.h"

#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#define POSTERS 4
#define ITEMS_EACH 5000

struct numbered {
    struct inbox_item item;
    int poster;
    int number;
};

/* What the draining thread has seen; only its thread touches it. */
static int next_number[POSTERS];
static int runs;
static int heard[16];

static void hear(struct inbox_item *item)
{
    struct numbered *n = CONTAINER_OF(item, struct numbered, item);
    heard[runs++] = n->number;
}

static struct numbered numbered(int number)
{
    return (struct numbered){.item = {.run = hear}, .number = number};
}

static bool is_readable(const struct inbox *inbox, int timeout_ms)
{
    struct pollfd p = {.fd = inbox_fd(inbox), .events = POLLIN};
    return poll(&p, 1, timeout_ms) == 1;
}

START_TEST(items_run_in_the_order_posted)
{
    struct inbox inbox;
    struct numbered a = numbered(1), b = numbered(2), c = numbered(3);
    ck_assert_int_eq(inbox_init(&inbox), 0);
    inbox_post(&inbox, &a.item);
    inbox_post(&inbox, &b.item);
    inbox_post(&inbox, &c.item);
    ck_assert(inbox_drain(&inbox));
    ck_assert_int_eq(runs, 3);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(heard[i], i + 1);
    ck_assert(!inbox_drain(&inbox));
    inbox_done(&inbox);
}
END_TEST

START_TEST(descriptor_is_readable_exactly_while_something_is_queued)
{
    struct inbox inbox;
    struct numbered a = numbered(1), b = numbered(2);
    ck_assert_int_eq(inbox_init(&inbox), 0);
    for (int i = 0; i < 3; i++) {
        ck_assert(!is_readable(&inbox, 0));
        inbox_post(&inbox, &a.item);
        inbox_post(&inbox, &b.item);
        ck_assert(is_readable(&inbox, 0));
        inbox_drain(&inbox);
    }
    ck_assert(!is_readable(&inbox, 0));
    inbox_done(&inbox);
}
END_TEST

START_TEST(burst_costs_one_wake_up)
{
    struct inbox inbox;
    struct numbered items[10];
    eventfd_t count;
    ck_assert_int_eq(inbox_init(&inbox), 0);
    for (int i = 0; i < 10; i++) {
        items[i] = numbered(i);
        inbox_post(&inbox, &items[i].item);
    }
    ck_assert_int_eq(eventfd_read(inbox_fd(&inbox), &count), 0);
    ck_assert_uint_eq(count, 1);
    inbox_drain(&inbox);
    inbox_done(&inbox);
}
END_TEST

static struct inbox again_inbox;

static void post_again(struct inbox_item *item)
{
    if (++runs < 3)
        inbox_post(&again_inbox, item);
}

START_TEST(item_may_post_itself_again_and_runs_at_the_next_drain)
{
    struct inbox_item item = {.run = post_again};
    ck_assert_int_eq(inbox_init(&again_inbox), 0);
    inbox_post(&again_inbox, &item);
    for (int i = 1; i <= 3; i++) {
        ck_assert(is_readable(&again_inbox, 0));
        ck_assert(inbox_drain(&again_inbox));
        ck_assert_int_eq(runs, i);
    }
    ck_assert(!is_readable(&again_inbox, 0));
    ck_assert(!inbox_drain(&again_inbox));
    inbox_done(&again_inbox);
}
END_TEST

static void free_itself(struct inbox_item *item)
{
    struct numbered *n = CONTAINER_OF(item, struct numbered, item);
    memset(n, 0xee, sizeof *n);
    free(n);
    runs++;
}

START_TEST(item_may_free_itself)
{
    struct inbox inbox;
    ck_assert_int_eq(inbox_init(&inbox), 0);
    for (int i = 0; i < 5; i++) {
        struct numbered *n = malloc(sizeof *n);
        n->item.run = free_itself;
        inbox_post(&inbox, &n->item);
    }
    ck_assert(inbox_drain(&inbox));
    ck_assert_int_eq(runs, 5);
    inbox_done(&inbox);
}
END_TEST

START_TEST(done_drops_what_is_queued_and_takes_half_built_ones)
{
    struct inbox inbox;
    struct numbered a = numbered(1);
    ck_assert_int_eq(inbox_init(&inbox), 0);
    int fd = inbox_fd(&inbox);
    inbox_post(&inbox, &a.item);
    inbox_done(&inbox);
    ck_assert_int_eq(runs, 0);
    ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
    inbox_done(&inbox);

    struct inbox zeroed = {0};
    inbox_done(&zeroed);
    ck_assert_int_ge(fcntl(0, F_GETFD), 0);
}
END_TEST

START_TEST(init_says_when_no_descriptor_is_left)
{
    struct rlimit before, none;
    struct inbox inbox = {0};
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 3, .rlim_max = before.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    int r = inbox_init(&inbox);
    inbox_done(&inbox);
    setrlimit(RLIMIT_NOFILE, &before);
    ck_assert_int_eq(r, -BROOK_E_IO);
}
END_TEST

static void check_order(struct inbox_item *item)
{
    struct numbered *n = CONTAINER_OF(item, struct numbered, item);
    if (n->number == next_number[n->poster])
        next_number[n->poster]++;
    runs++;
}

struct poster {
    struct inbox *inbox;
    struct numbered *items;
};

static void *post_all(void *arg)
{
    struct poster *p = arg;
    for (int i = 0; i < ITEMS_EACH; i++)
        inbox_post(p->inbox, &p->items[i].item);
    return NULL;
}

START_TEST(posts_of_many_threads_run_once_each_and_in_their_order)
{
    struct inbox inbox;
    pthread_t threads[POSTERS];
    struct poster posters[POSTERS];
    static struct numbered items[POSTERS][ITEMS_EACH];
    ck_assert_int_eq(inbox_init(&inbox), 0);
    for (int p = 0; p < POSTERS; p++) {
        for (int i = 0; i < ITEMS_EACH; i++)
            items[p][i] = (struct numbered){.item = {.run = check_order}, .poster = p, .number = i};
        posters[p] = (struct poster){.inbox = &inbox, .items = items[p]};
        ck_assert_int_eq(pthread_create(&threads[p], NULL, post_all, &posters[p]), 0);
    }
    /* Only by the descriptor: a lost wake-up shows as a time-out here. */
    while (runs < POSTERS * ITEMS_EACH) {
        ck_assert(is_readable(&inbox, 10000));
        ck_assert(inbox_drain(&inbox));
    }
    for (int p = 0; p < POSTERS; p++) {
        pthread_join(threads[p], NULL);
        ck_assert_int_eq(next_number[p], ITEMS_EACH);
    }
    ck_assert(!inbox_drain(&inbox));
    ck_assert_int_eq(runs, POSTERS * ITEMS_EACH);
    inbox_done(&inbox);
}
END_TEST

SUITE_MAIN("base/inbox", SUITE_TEST(items_run_in_the_order_posted),
           SUITE_TEST(descriptor_is_readable_exactly_while_something_is_queued),
           SUITE_TEST(burst_costs_one_wake_up),
           SUITE_TEST(item_may_post_itself_again_and_runs_at_the_next_drain),
           SUITE_TEST(item_may_free_itself), SUITE_TEST(done_drops_what_is_queued_and_takes_half_built_ones),
           SUITE_TEST(init_says_when_no_descriptor_is_left),
           SUITE_TEST_SLOW(posts_of_many_threads_run_once_each_and_in_their_order, 60))
