/* Print a partition from an offset on, without a group and without ZooKeeper.
 *
 *     consumer_assign BROKERS TOPIC PARTITION [OFFSET]          without OFFSET: from its beginning
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

static void print(brook_batch *batch)
{
    struct brook_message m;
    while (brook_batch_next(batch, &m) == 0) {
        printf("%lld\t", (long long)m.offset);
        fwrite(m.value, 1, m.value_bytes, stdout); /* a view into the batch: good until its release */
        putchar('\n');
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct brook_error error;
    brook_config *config;
    brook_consumer *consumer;
    if (argc != 4 && argc != 5) {
        fprintf(stderr, "usage: %s BROKERS TOPIC PARTITION [OFFSET]\n", argv[0]);
        return 2;
    }
    if (brook_config_new(&config) < 0)
        return EXIT_FAILURE;
    if (brook_config_set(config, "bootstrap.servers", argv[1], &error) < 0)
        return die("configuration", &error);
    if (brook_consumer_new(config, &consumer, &error) < 0)
        return die("consumer", &error);
    brook_config_free(config);

    struct brook_position start = {.topic = argv[2],
                                   .partition = atoi(argv[3]),
                                   .offset = argc == 5 ? atoll(argv[4]) : BROOK_OFFSET_EARLIEST};
    if (brook_consumer_assign(consumer, &start, 1, &error) < 0)
        return die("assign", &error);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    while (!is_over) {
        brook_batch *batch;
        int r = brook_consumer_poll(consumer, 500, &batch, &error);
        if (r == 0) {
            print(batch);
            brook_batch_release(batch);
        } else if (r != -BROOK_E_AGAIN) {
            /* Told once; the library goes on trying. A damaged place could be passed with a seek. */
            fprintf(stderr, "%s\n", error.text);
        }
    }
    brook_consumer_close(consumer, 1000);
    return EXIT_SUCCESS;
}
