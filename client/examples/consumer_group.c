/* Share topics with the other members of a group: start it several times and watch the partitions move.
 *
 *     consumer_group ZOOKEEPER GROUP TOPIC...          e.g. consumer_group localhost:2181/brook billing
 * orders
 *
 * Offsets are committed by hand here, after each batch. With enable.auto.commit (the default) that is not
 * needed: what was released is committed by itself.
 */
#include <brook/brook.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static volatile sig_atomic_t is_over;

static void on_signal(int number)
{
    is_over = 1;
}

static int die(const char *what, const struct brook_error *error)
{
    fprintf(stderr, "%s: %s\n", what, error->text);
    return EXIT_FAILURE;
}

static void say(const char *what, const struct brook_position *positions, size_t count)
{
    for (size_t i = 0; i < count; i++)
        fprintf(stderr, "%s %s/%d\n", what, positions[i].topic, positions[i].partition);
}

/* These three run inside poll and close. */
static void on_assigned(void *arg, const struct brook_position *positions, size_t count)
{
    say("reading", positions, count);
}

/* The last chance to commit what was done of these. */
static void on_revoking(void *arg, const struct brook_position *positions, size_t count)
{
    brook_consumer *consumer = *(brook_consumer **)arg;
    struct brook_error error;
    say("giving up", positions, count);
    if (brook_consumer_commit(consumer, NULL, 0, BROOK_COMMIT_SYNC, 2000, &error) < 0)
        fprintf(stderr, "%s\n", error.text);
}

/* Somebody else reads these already: what was not committed will be read there again. */
static void on_lost(void *arg, const struct brook_position *positions, size_t count)
{
    say("lost", positions, count);
}

static void work_on(brook_batch *batch)
{
    struct brook_message m;
    while (brook_batch_next(batch, &m) == 0)
        printf("%s/%d %lld %.*s\n", brook_batch_topic(batch), brook_batch_partition(batch),
               (long long)m.offset, (int)m.value_bytes, m.value ? (const char *)m.value : "");
    fflush(stdout);
}

static void consume(brook_consumer *consumer)
{
    struct brook_error error;
    while (!is_over) {
        brook_batch *batch;
        int r = brook_consumer_poll(consumer, 500, &batch, &error);
        if (r == -BROOK_E_AGAIN)
            continue;
        if (r < 0) {
            fprintf(stderr, "%s\n", error.text);
            continue;
        }
        work_on(batch);
        brook_batch_release(batch); /* now its records count as processed ... */
        if (brook_consumer_commit(consumer, NULL, 0, BROOK_COMMIT_ASYNC, 0, &error) <
            0) /* ... and are committed */
            fprintf(stderr, "%s\n", error.text);
    }
}

int main(int argc, char **argv)
{
    struct brook_error error;
    brook_config *config;
    brook_consumer *consumer;
    if (argc < 4) {
        fprintf(stderr, "usage: %s ZOOKEEPER GROUP TOPIC...\n", argv[0]);
        return 2;
    }
    if (brook_config_new(&config) < 0)
        return EXIT_FAILURE;
    if (brook_config_set(config, "zookeeper.connect", argv[1], &error) < 0 ||
        brook_config_set(config, "group.id", argv[2], &error) < 0 ||
        brook_config_set(config, "auto.offset.reset", "earliest", &error) < 0 ||
        brook_config_set(config, "enable.auto.commit", "false", &error) < 0)
        return die("configuration", &error);
    if (brook_consumer_new(config, &consumer, &error) < 0)
        return die("consumer", &error);
    brook_config_free(config);

    struct brook_rebalance callbacks = {on_assigned, on_revoking, on_lost, &consumer};
    brook_consumer_on_rebalance(consumer, &callbacks);
    if (brook_consumer_subscribe(consumer, (const char *const *)argv + 3, (size_t)argc - 3, &error) < 0)
        return die("subscribe", &error);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    consume(consumer);
    return brook_consumer_close(consumer, 10000) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
