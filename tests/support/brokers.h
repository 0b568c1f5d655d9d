/* Real brokers for cluster tests: brookd processes of this build on free loopback ports, in throw-away directories, beside
 * a real ZooKeeper. Everything started here dies with the test process that started it, however that ends.
 *
 *     struct brokers *b = brokers_start(3, NULL);
 *     brook_config *config = brokers_config(b);
 *     ...
 *     brokers_free(b);
 */
#ifndef BROOK_TESTS_BROKERS_H
#define BROOK_TESTS_BROKERS_H

#include <brook/brook.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct brokers;
struct suite_test;
struct zookeeper;

/* Where a broker listens, what it tells others, and where it looks for ZooKeeper. */
struct brokers_place {
    char listeners[64];
    char advertised[64]; /* "": not set */
    char zookeeper[64];  /* with the chroot */
    char rack[32];       /* "": not set */
    char namespace[64];  /* of `ip netns`, for the process; "": ours */
};

struct brokers_options {
    int tick_ms;               /* of ZooKeeper; 0: 200 */
    int session_timeout_ms;    /* of brokers; 0: 2000 */
    const char *const *settings; /* "key=value" for all brokers, NULL at the end; NULL: none */
    const char *zookeeper_address; /* NULL: 127.0.0.1 */
    bool own_zookeeper; /* the test stops it: not the program's */
    bool has_power_disks; /* each data directory is one (power_disk.h), after power_disks_begin() */
    /* Called before each start of a broker, to change where it stands; NULL: as it is. */
    void (*place)(void *arg, const struct zookeeper *zookeeper, int id, struct brokers_place *place);
    void *place_arg;
};

/* A main() as SUITE_MAIN's with one ZooKeeper for the program: brokers_start() uses it, in a chroot for each test, unless its
 * options are about ZooKeeper. */
#define BROKERS_MAIN(name, ...) \
    int main(void) \
    { \
        const struct suite_test tests[] = {__VA_ARGS__}; \
        return brokers_suite_run(name, tests, sizeof tests / sizeof tests[0]); \
    }
int brokers_suite_run(const char *name, const struct suite_test *tests, unsigned count);

/* Start ZooKeeper and brokers 1 to `count`, and wait until all are registered. Aborts the test on failure. */
struct brokers *brokers_start(int count, const struct brokers_options *options);
void brokers_free(struct brokers *b);

struct zookeeper *brokers_zookeeper(struct brokers *b);
/* "127.0.0.1:port/brook", or of a chroot of the test's own */
const char *brokers_connect(const struct brokers *b);
/* A configuration with zookeeper.connect set and short time-outs; the caller frees it. */
brook_config *brokers_config(const struct brokers *b);
const char *brokers_data_directory(const struct brokers *b, int id);

/* The broker's output, standard and error. */
const char *brokers_log(const struct brokers *b, int id);

/* 0: not started, or ended by one of the calls below. */
pid_t brokers_pid(const struct brokers *b, int id);
void brokers_signal(struct brokers *b, int id, int signal_number);
/* SIGKILL and reap. */
void brokers_kill(struct brokers *b, int id);
/* The power of their hosts is cut at the same moment: SIGKILL, and of their data what was not synced is gone. They do
 * not run then; those that did not run before lose what they left unsynced. Needs has_power_disks. */
void brokers_cut_power(struct brokers *b, const int *ids, int count);
/* What a broker that does not run had on its disk goes. */
void brokers_empty_disk(struct brokers *b, int id);
/* False when a broker that should run has ended by itself; it is reaped then, and *ret_code set as by brokers_stop(). */
bool brokers_is_running(struct brokers *b, int id, int *ret_code);
/* SIGTERM, wait at most `timeout_ms`, reap. Returns the exit code, 128 + signal, or -1 (still running: killed). */
int brokers_stop(struct brokers *b, int id, int timeout_ms);
/* Start a broker again with its data (or for the first time); does not wait. */
void brokers_restart(struct brokers *b, int id);
/* Write the file of a running broker anew with these settings ("key=value", NULL at the end) and SIGHUP it; does not
 * wait. */
void brokers_reload(struct brokers *b, int id, const char *const *settings);
/* Wait until exactly `count` brokers are registered; false after `timeout_ms`. */
bool brokers_wait_registered(struct brokers *b, int count, int timeout_ms);
/* A second process with the same id, on a data directory of its own; returns its exit code (-1: ran on, killed) and
 * what it said. */
int brokers_run_double(struct brokers *b, int id, int timeout_ms, char *output, size_t room);

/* Make a topic and wait for its leaders. Aborts the test on failure. */
void brokers_create_topic(struct brokers *b, const char *topic, int32_t partitions);

/* ---- members: `brook consume` in processes of their own ------------------------------------------------------ */

struct member {
    pid_t pid;
    char output[256]; /* file: "partition offset value" lines */
    char talk[256];   /* file: stderr */
};
/* `settings`: "key=value" of libbrook, NULL at the end; NULL: none. */
void member_start(struct brokers *b, struct member *m, const char *name, const char *group, const char *topic,
                  const char *const *settings);
/* Of up to 8 topics; its lines are of the form `format`, of `brook consume`. */
void member_start_with(struct brokers *b, struct member *m, const char *name, const char *group,
                       const char *const *topics, int topics_count, const char *format, const char *const *settings);
/* Lines in the output file so far. */
int64_t member_lines(const struct member *m);
/* SIGTERM and reap; returns the exit code. */
int member_stop(struct member *m, int timeout_ms);
void member_kill(struct member *m);
#endif
