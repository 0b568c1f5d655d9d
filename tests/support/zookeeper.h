/* A real ZooKeeper server for tests: Debian's, started directly with java, in a directory of its own, on a
 * free loopback port, ready when this returns (about half a second).
 *
 * Start it in main() before the suite runs, one per program: Check forks for every test, and a server that
 * was started in a test would be everybody's own. Tests keep apart by a chroot each (zookeeper_connect()).
 * The server dies with the process that started it. Everything here prints and aborts when it can not do its
 * part.
 *
 *     static struct zookeeper *zk;
 *     int main(void)
 *     {
 *         zk = zookeeper_start(NULL);
 *         int r = suite_run(...);
 *         zookeeper_stop(zk);
 *         return r;
 *     }
 */
#ifndef BROOK_TESTS_ZOOKEEPER_H
#define BROOK_TESTS_ZOOKEEPER_H

#include <stddef.h>

struct zookeeper_options {
    const char *address; /* NULL: 127.0.0.1; "::1" */
    int tick_ms;         /* 0: 200 */
    int session_ms_min;  /* 0: 2 ticks */
    int session_ms_max;  /* 0: 60000 */
    int connections_max; /* per address; 0: no limit */
    const char *more;    /* more lines of zoo.cfg; NULL: none */
};

struct zookeeper;
/* `options` NULL: all defaults. Never NULL. */
struct zookeeper *zookeeper_start(const struct zookeeper_options *options);
/* Kill it and remove its directory. NULL is fine. */
void zookeeper_stop(struct zookeeper *z);

int zookeeper_port(const struct zookeeper *z);
/* "127.0.0.1:port" and `chroot` ("" or "/x"), in a buffer of the thread. */
const char *zookeeper_connect(const struct zookeeper *z, const char *chroot);

/* SIGSTOP and SIGCONT: a server that hangs. */
void zookeeper_pause(struct zookeeper *z);
void zookeeper_continue(struct zookeeper *z);
/* SIGKILL, and a start on the same port and data. Only in the process that started it: a test that wants this
 * has a server of its own. */
void zookeeper_kill(struct zookeeper *z);
void zookeeper_restart(struct zookeeper *z);

/* A four-letter command ("srvr", "mntr", "wchp", "cons"); the answer is cut to `room`. Returns its length, or
 * -1 when the server did not answer within `timeout_ms`. */
int zookeeper_ask(const struct zookeeper *z, const char *command, char *answer, size_t room, int timeout_ms);
/* A loopback port that nobody listens on right now. */
int zookeeper_free_port(void);
#endif
