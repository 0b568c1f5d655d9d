/* Send lines of standard input as records; say which ones could not be stored.
 *
 *     producer BROKERS TOPIC < lines          e.g. producer localhost:9092 orders < orders.txt
 */
#include <brook/brook.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Runs inside poll, flush, close and a send that waits, once for each accepted record. */
static void on_report(void *arg, const struct brook_report *report)
{
    long *failed = arg;
    if (report->outcome == BROOK_STORED)
        return;
    ++*failed;
    fprintf(stderr, "line %ld: %s%s\n", (long)(size_t)report->opaque,
            report->outcome == BROOK_MAYBE_STORED ? "perhaps stored: " : "", report->error.text);
}

static int die(const char *what, const struct brook_error *error)
{
    fprintf(stderr, "%s: %s\n", what, error->text);
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    struct brook_error error;
    brook_config *config;
    brook_producer *producer;
    if (argc != 3) {
        fprintf(stderr, "usage: %s BROKERS TOPIC\n", argv[0]);
        return 2;
    }
    if (brook_config_new(&config) < 0)
        return EXIT_FAILURE;
    if (brook_config_set(config, "bootstrap.servers", argv[1], &error) < 0 ||
        brook_config_set(config, "compression", "lz4", &error) < 0)
        return die("configuration", &error);
    if (brook_producer_new(config, &producer, &error) < 0)
        return die("producer", &error);
    brook_config_free(config); /* the producer has a copy */

    long failed = 0, number = 0;
    char *line = NULL;
    size_t room = 0;
    ssize_t bytes;
    brook_producer_on_report(producer, on_report, &failed);
    while ((bytes = getline(&line, &room, stdin)) > 0) {
        if (line[bytes - 1] == '\n')
            bytes--;
        struct brook_record record = {.topic = argv[2],
                                      .partition = BROOK_PARTITION_ANY,
                                      .value = line,
                                      .value_bytes = (size_t)bytes,
                                      .opaque = (void *)(size_t)++number};
        /* The record is copied; with memory full, wait for room instead of getting QUEUE_FULL. */
        if (brook_producer_send(producer, &record, BROOK_SEND_WAIT, &error) < 0) {
            fprintf(stderr, "line %ld: %s\n", number, error.text);
            failed++;
        }
        brook_producer_poll(producer, 0); /* run the reports that are there */
    }
    free(line);
    /* Wait for the rest, a minute at most; what is not acknowledged then is reported as failed. */
    brook_producer_close(producer, 60000);
    fprintf(stderr, "%ld lines, %ld failed\n", number, failed);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
