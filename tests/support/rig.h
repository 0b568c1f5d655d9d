/* A broker's network side in the test's process: real loops, handlers, partitions and sockets over the fake
 * cluster.
 *
 *     struct rig rig;
 *     rig_prepare(&rig);               // settings with short times, to be changed by the test
 *     rig.net_settings.idle_ms_max = 200;
 *     rig_start(&rig);
 *     raw_open(&client, rig.port);
 *     rig_stop(&rig);
 */
#ifndef BROOK_TESTS_RIG_H
#define BROOK_TESTS_RIG_H

#include "broker/net/net.h"
#include "proto/base/diag.h"
#include "tests/support/fake_cluster.h"
#include "tests/support/raw_client.h"

#include <pthread.h>

struct rig {
    struct net_settings net_settings;
    struct handler_settings handler_settings;
    struct diag diag;
    struct cluster *cluster;
    struct net *net;
    int port;
    pthread_mutex_t warnings_lock;
    unsigned warnings_count;
    char last_warning[256];
};

void rig_prepare(struct rig *rig);
void rig_start(struct rig *rig);
void rig_stop(struct rig *rig);
/* Log lines at warning or above so far; whether the last one has `text` in it. */
unsigned rig_warnings(struct rig *rig);
bool rig_warned_of(struct rig *rig, const char *text);
/* Wait until so many connections are open. */
bool rig_wait_connections(struct rig *rig, uint32_t count, int ms);
/* Resident memory of this process. */
size_t rig_resident_bytes(void);
#endif
