/* brookd: owns everything, starts and stops it in order, and listens to signals.
 *
 * SIGTERM and SIGINT stop the broker: not ready any more, ZooKeeper is told that it leaves, nobody is
 * accepted, what waits is answered, logs are closed, the ZooKeeper session ends; each step is bounded. SIGHUP
 * reads the configuration again and takes over what may change while running.
 */
#ifndef BROOK_BROKER_SERVER_H
#define BROOK_BROKER_SERVER_H

#include "broker/settings.h"

struct server_options {
    const char *file; /* NULL: none */
    const char *const *overrides;
    size_t overrides_count;
};

/* Run until told to stop. `settings` is taken over. Returns the exit status: 0 after a clean stop, 1 else.
 * The calling thread's signal mask is changed; no other thread may run yet. */
int server_run(const struct server_options *options, struct settings *settings);
#endif
