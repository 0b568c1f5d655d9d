#include "tests/support/rig.h"

#include "tests/support/suite.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const listeners[] = {"127.0.0.1:0"};

static void count_warnings(void *arg, enum diag_level level, const char *subject, const char *message)
{
    struct rig *rig = arg;
    if (level < DIAG_WARN)
        return;
    pthread_mutex_lock(&rig->warnings_lock);
    rig->warnings_count++;
    snprintf(rig->last_warning, sizeof rig->last_warning, "%s", message);
    pthread_mutex_unlock(&rig->warnings_lock);
    fprintf(stderr, "# %s %s %s\n", diag_level_name(level), subject, message);
}

unsigned rig_warnings(struct rig *rig)
{
    pthread_mutex_lock(&rig->warnings_lock);
    unsigned count = rig->warnings_count;
    pthread_mutex_unlock(&rig->warnings_lock);
    return count;
}

bool rig_warned_of(struct rig *rig, const char *text)
{
    pthread_mutex_lock(&rig->warnings_lock);
    bool found = strstr(rig->last_warning, text) != NULL;
    pthread_mutex_unlock(&rig->warnings_lock);
    return found;
}

void rig_prepare(struct rig *rig)
{
    *rig = (struct rig){
        .net_settings = {.listeners = listeners,
                         .listeners_count = 1,
                         .threads_count = 2,
                         .disk_threads_count = 1,
                         .frame_bytes_max = 8 << 20,
                         .queued_bytes_max = 16 << 20,
                         .requests_in_flight_max = 1000,
                         .output_bytes_max = 4 << 20,
                         .connections_max = 1000,
                         .connections_per_address_max = 1000,
                         .hello_ms_max = 5000,
                         .idle_ms_max = 60000,
                         .frame_ms_max = 5000,
                         .frame_bytes_per_s_min = 16384,
                         .send_ms_max = 5000,
                         .stop_ms_max = 1000},
        .handler_settings = {.broker_id = FAKE_CLUSTER_BROKER,
                             .software = "rig",
                             .frame_bytes_max = 8 << 20,
                             .message_bytes_max = 2 << 20,
                             .partitions_per_request_max = 1000,
                             .topics_per_request_max = 1000,
                             .pull_bytes_max = 4 << 20,
                             .pull_wait_ms_max = 30000,
                             .request_timeout_ms_max = 30000,
                             .pull_sessions_per_connection_max = 4,
                             .pulls_parked_per_connection_max = 8,
                             .expanded_bytes_max = 64 << 20},
    };
    pthread_mutex_init(&rig->warnings_lock, NULL);
    rig->diag = (struct diag){.level_min = DIAG_WARN, .sink = count_warnings, .sink_arg = rig};
    rig->cluster = fake_cluster_new(suite_directory());
}

void rig_start(struct rig *rig)
{
    struct brook_error error = {0};
    signal(SIGPIPE, SIG_IGN); /* as the server does: sendfile has no flag for it */
    int r = net_new(&rig->net_settings, &rig->handler_settings, &rig->diag, &rig->net, &error);
    ck_assert_msg(r == 0, "%s", error.text);
    rig->port = net_port(rig->net, 0);
    fake_cluster_set_port(rig->cluster, rig->port);
    ck_assert_int_eq(net_start(rig->net, rig->cluster), 0);
    ck_assert_int_eq(net_accept(rig->net, &error), 0);
    fake_cluster_settle(rig->cluster);
}

void rig_stop(struct rig *rig)
{
    net_stop_accepting(rig->net);
    net_stop(rig->net);
    fake_cluster_free(rig->cluster);
    net_free(rig->net);
}

struct wanted {
    struct rig *rig;
    uint32_t count;
};

static bool has_count(void *arg)
{
    const struct wanted *w = arg;
    return net_connections(w->rig->net) == w->count;
}

bool rig_wait_connections(struct rig *rig, uint32_t count, int ms)
{
    struct wanted w = {rig, count};
    return suite_wait(has_count, &w, ms);
}

size_t rig_resident_bytes(void)
{
    unsigned long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f) {
        if (fscanf(f, "%lu %lu", &size, &resident) != 2)
            resident = 0;
        fclose(f);
    }
    return (size_t)resident * 4096;
}
