#include "broker/settings_check.h"

#include "broker/cluster/cluster.h"
#include "broker/settings_table.h"
#include "coordination/coordinator.h"
#include "proto/base/cleanup.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void settings_fault(struct settings_faults *faults, const char *format, ...)
{
    va_list args;
    char *line;
    va_start(args, format);
    int n = vasprintf(&line, format, args);
    va_end(args);
    if (n < 0)
        return;
    char **lines = realloc(faults->lines, (faults->count + 1) * sizeof(char *));
    if (!lines) {
        free(line);
        return;
    }
    faults->lines = lines;
    faults->lines[faults->count++] = line;
}

void settings_faults_done(struct settings_faults *faults)
{
    for (size_t i = 0; i < faults->count; i++)
        free(faults->lines[i]);
    free(faults->lines);
    *faults = (struct settings_faults){0};
}

bool settings_is_given(const struct settings *s, const char *name)
{
    const struct setting *row = settings_table_find(name, strlen(name));
    return s->is_given[row - settings_table];
}

static void check_required(const struct settings *s, struct settings_faults *faults)
{
    for (size_t i = 0; i < settings_table_count; i++)
        if (settings_table[i].is_required && !s->is_given[i])
            settings_fault(faults, "%s must be set: %s", settings_table[i].name,
                           settings_table[i].description);
}

static void check_sizes(const struct settings *s, struct settings_faults *faults)
{
    if (s->queued_max_bytes < (int64_t)s->socket_request_max_bytes + 4)
        settings_fault(faults,
                       "queued.max.bytes=%" PRId64
                       " has no room for one frame of socket.request.max.bytes=%" PRId32,
                       s->queued_max_bytes, s->socket_request_max_bytes);
    if ((int64_t)s->message_max_bytes + 32768 > s->socket_request_max_bytes)
        settings_fault(
            faults, "message.max.bytes=%" PRId32 " does not fit a frame of socket.request.max.bytes=%" PRId32,
            s->message_max_bytes, s->socket_request_max_bytes);
    if ((int64_t)s->fetch_max_bytes + 1048576 > s->socket_request_max_bytes)
        settings_fault(faults,
                       "fetch.max.bytes=%" PRId32 " does not fit a frame of socket.request.max.bytes=%" PRId32
                       " with its envelope",
                       s->fetch_max_bytes, s->socket_request_max_bytes);
    if (s->message_max_bytes > s->log_segment_bytes)
        settings_fault(faults,
                       "message.max.bytes=%" PRId32 " does not fit a file of log.segment.bytes=%" PRId64,
                       s->message_max_bytes, s->log_segment_bytes);
}

static void check_replicas(const struct settings *s, struct settings_faults *faults)
{
    if (s->min_insync_replicas > s->default_replication_factor)
        settings_fault(faults,
                       "min.insync.replicas=%" PRId32 ": more than default.replication.factor=%" PRId32
                       ": nothing could be written with acks=all to a topic that says nothing of both",
                       s->min_insync_replicas, s->default_replication_factor);
}

static void check_pairs(const struct settings *s, struct settings_faults *faults)
{
    if (settings_is_given(s, "log.retention.ms") && settings_is_given(s, "log.retention.hours"))
        settings_fault(faults,
                       "log.retention.ms and log.retention.hours are both set: one of them says how long");
    if (settings_is_given(s, "log.roll.ms") && settings_is_given(s, "log.roll.hours"))
        settings_fault(faults, "log.roll.ms and log.roll.hours are both set: one of them says how long");
}

static void check_list(const char *name, const char *list, struct settings_faults *faults)
{
    size_t count;
    AUTO_FREE char **items = settings_split(list ? list : "", &count);
    if (!items)
        return;
    if (!count)
        settings_fault(faults, "%s is empty", name);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(items[i], items[j]) == 0)
                settings_fault(faults, "%s names %s twice", name, items[i]);
}

const char *settings_strip_scheme(const char *listener)
{
    static const char plain[] = "PLAINTEXT://";
    if (strncasecmp(listener, plain, sizeof plain - 1) == 0)
        return listener + sizeof plain - 1;
    return strstr(listener, "://") ? NULL : listener;
}

static void check_address(const char *name, const char *listener, bool is_advertised,
                          struct settings_faults *faults)
{
    const char *address = settings_strip_scheme(listener);
    const char *colon = address ? strrchr(address, ':') : NULL;
    char *end = NULL;
    if (!address) {
        settings_fault(faults, "%s: \"%s\": this version offers PLAINTEXT only", name, listener);
        return;
    }
    long port = colon ? strtol(colon + 1, &end, 10) : -1;
    if (!colon || end == colon + 1 || *end || port < 0 || port > 65535) {
        settings_fault(faults, "%s: \"%s\" is not host:port", name, listener);
        return;
    }
    if (!is_advertised)
        return;
    size_t host = (size_t)(colon - address);
    if (host == 0 || (host == 7 && strncmp(address, "0.0.0.0", 7) == 0) ||
        (host == 4 && strncmp(address, "[::]", 4) == 0))
        settings_fault(faults, "%s: \"%s\" is not an address that a client could connect to", name, listener);
}

static void check_addresses(const struct settings *s, struct settings_faults *faults)
{
    size_t count;
    check_list("listeners", s->listeners, faults);
    check_list("log.dirs", s->log_dirs, faults);
    AUTO_FREE char **items = settings_split(s->listeners ? s->listeners : "", &count);
    for (size_t i = 0; items && i < count; i++)
        check_address("listeners", items[i], false, faults);
    if (s->advertised_listeners)
        check_address("advertised.listeners", s->advertised_listeners, true, faults);
}

static void check_zookeeper(const struct settings *s, struct settings_faults *faults)
{
    struct brook_error error = {0};
    if (s->zookeeper_connect && coordinator_check_connect(s->zookeeper_connect, &error) < 0)
        settings_fault(faults, "zookeeper.connect: %s", error.text);
}

void settings_check(const struct settings *s, struct settings_faults *faults)
{
    check_required(s, faults);
    check_sizes(s, faults);
    check_replicas(s, faults);
    check_zookeeper(s, faults);
    check_pairs(s, faults);
    check_addresses(s, faults);
}

/* ---- derived ------------------------------------------------------------------------------------------- */

int64_t settings_retention_ms(const struct settings *s)
{
    if (settings_is_given(s, "log.retention.ms"))
        return s->log_retention_ms;
    return s->log_retention_hours < 0 ? -1 : (int64_t)s->log_retention_hours * 3600000;
}

int64_t settings_roll_ms(const struct settings *s)
{
    return settings_is_given(s, "log.roll.ms") ? s->log_roll_ms : (int64_t)s->log_roll_hours * 3600000;
}
