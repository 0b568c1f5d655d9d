/* The settings of a running broker: the main thread takes over what a reload may change while I/O threads list
 * them for DescribeConfigs.
 *
 * One lock, held to copy or exchange a few words and to format values into answers; nothing waits for a disk or
 * a peer under it. The main thread alone changes what is in it, so it reads `settings` without the lock.
 */
#ifndef BROOK_BROKER_SETTINGS_LIVE_H
#define BROOK_BROKER_SETTINGS_LIVE_H

#include "broker/settings.h"

#include <pthread.h>

struct settings_live {
    struct settings *settings; /* owned; for the main thread */
    pthread_mutex_t lock;
};

/* Owns `settings` from here on. */
void settings_live_init(struct settings_live *live, struct settings *settings);
void settings_live_done(struct settings_live *live);

/* Main thread: take over from `fresh` what may change at run time, and free the rest of it. Can not fail. */
void settings_live_update(struct settings_live *live, struct settings *fresh);

/* Any thread: settings_visit() over one state of the settings. The values are good until `visitor` returns, and
 * it must not come back here. */
void settings_live_visit(struct settings_live *live, settings_visitor *visitor, void *arg);
#endif
