#include "client/bootstrap.h"

#include "client/config.h"
#include "coordination/coordinator.h"
#include "coordination/paths.h"
#include "coordination/znodes.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ZooKeeper is not asked more often. */
#define SEARCH_INTERVAL_MS 1000
#define BROKERS_MAX 4096

struct bootstrap {
    struct client *client;
    struct links *links;
    int64_t searched_ms; /* 0: never */
    size_t answers_due;
    struct links_address *found;
    size_t found_count, found_room;
};

/* ---- bootstrap.servers ------------------------------------------------------------------------------ */

static int parse_port(const char *text, uint16_t *ret_port)
{
    char *end;
    unsigned long port = strtoul(text, &end, 10);
    if (end == text || *end != '\0' || port == 0 || port > 65535)
        return -BROOK_E_CONFIG;
    *ret_port = (uint16_t)port;
    return 0;
}

/* `entry` is cut in place. */
static int parse_entry(char *entry, struct links_address *ret)
{
    char *colon = strrchr(entry, ':');
    char *host = entry;
    ret->port = BOOTSTRAP_PORT;
    if (*entry == '[') {
        char *bracket = strchr(entry, ']');
        if (!bracket || (bracket[1] != '\0' && bracket[1] != ':'))
            return -BROOK_E_CONFIG;
        colon = bracket[1] == ':' ? bracket + 1 : NULL;
        *bracket = '\0';
        host = entry + 1;
    }
    if (colon) {
        *colon = '\0';
        if (parse_port(colon + 1, &ret->port) < 0)
            return -BROOK_E_CONFIG;
    }
    ret->host = host;
    return *host && strlen(host) < 256 && !strpbrk(host, " \t/[]") ? 0 : -BROOK_E_CONFIG;
}

static size_t count_entries(const char *text)
{
    size_t count = 1;
    for (; *text; text++)
        count += *text == ',';
    return count;
}

int bootstrap_parse(const char *text, struct links_address **ret_addresses, size_t *ret_count,
                    struct brook_error *error)
{
    size_t count = count_entries(text);
    size_t bytes = strlen(text) + 1;
    AUTO_FREE struct links_address *addresses = malloc(count * sizeof *addresses + bytes);
    if (!addresses)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    char *copy = memcpy(addresses + count, text, bytes);
    size_t n = 0;
    char *rest = copy;
    for (char *entry; (entry = strsep(&rest, ","));) {
        entry += strspn(entry, " \t");
        entry[strcspn(entry, " \t")] = '\0';
        char shown[80];
        snprintf(shown, sizeof shown, "%s", entry);
        if (parse_entry(entry, &addresses[n++]) < 0)
            return brook_error_set(error, BROOK_E_CONFIG, "bootstrap.servers: \"%s\" is not host:port",
                                   shown);
    }
    *ret_count = n;
    *ret_addresses = TAKE(addresses);
    return 0;
}

static void offer_configured(struct bootstrap *b, const char *servers)
{
    AUTO_FREE struct links_address *addresses = NULL;
    size_t count;
    if (bootstrap_parse(servers, &addresses, &count, NULL) == 0)
        links_offer(b->links, addresses, count);
}

/* ---- /brokers/ids ----------------------------------------------------------------------------------- */

static void forget_found(struct bootstrap *b)
{
    for (size_t i = 0; i < b->found_count; i++)
        free((char *)(uintptr_t)b->found[i].host);
    b->found_count = 0;
}

static void add_found(struct bootstrap *b, char **host, int32_t port)
{
    if (b->found_count == b->found_room) {
        size_t room = b->found_room ? 2 * b->found_room : 16;
        struct links_address *wider = realloc(b->found, room * sizeof *wider);
        if (!wider)
            return;
        b->found = wider;
        b->found_room = room;
    }
    b->found[b->found_count++] = (struct links_address){.host = TAKE(*host), .port = (uint16_t)port};
}

static void on_broker(void *arg, const struct coordinator_reply *reply)
{
    struct bootstrap *b = arg;
    struct znode_broker broker;
    if (reply->err == 0 && znode_decode_broker(reply->data, reply->data_bytes, &broker, NULL) == 0) {
        if (broker.port > 0 && broker.port <= 65535)
            add_found(b, &broker.host, broker.port);
        znode_broker_done(&broker);
    }
    if (--b->answers_due > 0)
        return;
    if (b->found_count > 0 && b->links)
        links_offer(b->links, b->found, b->found_count);
    forget_found(b);
}

static void on_ids(void *arg, const struct coordinator_reply *reply)
{
    struct bootstrap *b = arg;
    b->answers_due--;
    if (reply->err == -BROOK_E_CLOSED || !b->links)
        return;
    if (reply->err < 0 || reply->children_count == 0) {
        diag_log(client_diag(b->client), DIAG_WARN, "", "no broker is registered in ZooKeeper (%s)",
                 reply->err < 0 ? brook_error_text(reply->err) : PATH_BROKER_IDS " is empty");
        return;
    }
    struct brook_error error;
    struct coordinator *coordinator = client_coordinator(b->client, &error);
    struct coordinator_call call = {.inbox = client_inbox(b->client), .callback = on_broker, .arg = b};
    for (size_t i = 0; i < reply->children_count && i < BROKERS_MAX; i++) {
        struct path path;
        int32_t id = path_partition_number(reply->children[i]);
        if (id < 0)
            continue;
        b->answers_due++;
        coordinator_get(coordinator, path_broker_id(&path, id), call);
    }
}

static void search_zookeeper(struct bootstrap *b)
{
    struct brook_error error;
    struct coordinator *coordinator = client_coordinator(b->client, &error);
    if (!coordinator) {
        diag_log(client_diag(b->client), DIAG_ERROR, "", "%s", error.text);
        return;
    }
    struct coordinator_call call = {.inbox = client_inbox(b->client), .callback = on_ids, .arg = b};
    b->answers_due = 1;
    coordinator_children(coordinator, PATH_BROKER_IDS, call);
}

void bootstrap_search(struct bootstrap *b)
{
    int64_t now_ms = clock_boot_ms();
    if (b->answers_due > 0 || (b->searched_ms && now_ms - b->searched_ms < SEARCH_INTERVAL_MS))
        return;
    b->searched_ms = now_ms;
    const char *servers = config_text(client_config(b->client), CONFIG_BOOTSTRAP_SERVERS);
    if (*servers)
        offer_configured(b, servers);
    else
        search_zookeeper(b);
}

int bootstrap_new(struct client *client, struct links *links, struct bootstrap **ret_bootstrap)
{
    struct bootstrap *b = calloc(1, sizeof *b);
    if (!b)
        return -BROOK_E_NOMEM;
    b->client = client;
    b->links = links;
    *ret_bootstrap = b;
    return 0;
}

void bootstrap_stop(struct bootstrap *b)
{
    b->links = NULL;
}

void bootstrap_free(struct bootstrap *b)
{
    if (!b)
        return;
    forget_found(b);
    free(b->found);
    free(b);
}
