/* The shortest consumer: an iterator over a topic that never ends, as in Kafka's paper.
 *
 *     stream ZOOKEEPER GROUP TOPIC
 */
#include <brook/brook.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static brook_stream *stream;

static void on_signal(int number)
{
    brook_stream_stop(stream); /* may be called from a signal handler */
}

int main(int argc, char **argv)
{
    struct brook_error error;
    brook_config *config;
    if (argc != 4) {
        fprintf(stderr, "usage: %s ZOOKEEPER GROUP TOPIC\n", argv[0]);
        return 2;
    }
    if (brook_config_new(&config) < 0)
        return EXIT_FAILURE;
    if (brook_config_set(config, "zookeeper.connect", argv[1], &error) < 0 ||
        brook_config_set(config, "group.id", argv[2], &error) < 0 ||
        brook_config_set(config, "auto.offset.reset", "earliest", &error) < 0 ||
        brook_stream_open(config, argv[3], &stream, &error) < 0) {
        fprintf(stderr, "%s\n", error.text);
        return EXIT_FAILURE;
    }
    brook_config_free(config);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);

    struct brook_message m;
    int r;
    while ((r = brook_stream_next(stream, &m, &error)) != -BROOK_E_CLOSED) {
        if (r == 0)
            printf("%.*s\n", (int)m.value_bytes, m.value ? (const char *)m.value : "");
        else
            fprintf(stderr, "%s\n", error.text);
    }
    brook_stream_close(stream, 10000);
    return EXIT_SUCCESS;
}
