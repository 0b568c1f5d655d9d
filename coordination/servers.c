#include "coordination/servers.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool znode_path_is_legal(const char *path)
{
    if (path[0] != '/')
        return false;
    if (!path[1])
        return true;
    for (const char *part = path + 1;; part++) {
        size_t n = strcspn(part, "/");
        if (n == 0 || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)part[i] < 0x20 || part[i] == 0x7f)
                return false;
        part += n;
        if (!*part)
            return true;
    }
}

static bool is_numeric(const char *host)
{
    struct in6_addr v6;
    struct in_addr v4;
    return inet_pton(AF_INET, host, &v4) == 1 || inet_pton(AF_INET6, host, &v6) == 1;
}

static int parse_port(const char *text, size_t bytes, struct server *s)
{
    int port = 0;
    if (bytes == 0 || bytes > 5)
        return -BROOK_E_CONFIG;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -BROOK_E_CONFIG;
        port = port * 10 + (text[i] - '0');
    }
    if (port < 1 || port > 65535)
        return -BROOK_E_CONFIG;
    snprintf(s->port, sizeof s->port, "%d", port);
    return 0;
}

static bool is_host(const char *host, bool in_brackets)
{
    if (!*host)
        return false;
    if (in_brackets)
        return strchr(host, ':') && strspn(host, "0123456789abcdefABCDEF:.%") >= 2;
    return strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") == strlen(host);
}

/* One "host:port" or "[v6]:port" of `bytes`. */
static int parse_server(const char *text, size_t bytes, struct server *s, struct brook_error *error)
{
    bool in_brackets = bytes > 0 && text[0] == '[';
    const char *host = in_brackets ? text + 1 : text;
    const char *end = memchr(host, in_brackets ? ']' : ':', bytes - (size_t)(host - text));
    const char *stop = text + bytes;
    if (in_brackets && !end)
        return brook_error_set(error, BROOK_E_CONFIG, "ZooKeeper server \"%.*s\": no ] after [", (int)bytes,
                               text);
    size_t host_bytes = (size_t)((end ? end : stop) - host);
    if (host_bytes > SERVER_HOST_BYTES_MAX)
        return brook_error_set(error, BROOK_E_CONFIG, "the name of a ZooKeeper server is too long");
    memcpy(s->host, host, host_bytes);
    s->host[host_bytes] = '\0';

    const char *rest = end ? end + (in_brackets ? 1 : 0) : stop;
    int r = rest < stop && *rest == ':' ? parse_port(rest + 1, (size_t)(stop - rest - 1), s) : -BROOK_E_CONFIG;
    if (r < 0 || !is_host(s->host, in_brackets))
        return brook_error_set(error, BROOK_E_CONFIG,
                               "ZooKeeper server \"%.*s\" is not host:port (IPv6 is written [address]:port)",
                               (int)bytes, text);
    s->is_numeric = in_brackets || is_numeric(s->host);
    return 0;
}

static int parse_chroot(const char *text, struct servers *ret, struct brook_error *error)
{
    size_t bytes = strlen(text);
    if (strchr(text, ','))
        return brook_error_set(error, BROOK_E_CONFIG,
                               "the ZooKeeper path \"%s\" stands once, behind the last server", text);
    if (bytes > 1 && text[bytes - 1] == '/')
        bytes--;
    if (bytes >= sizeof ret->chroot)
        return brook_error_set(error, BROOK_E_CONFIG, "the ZooKeeper path is too long");
    memcpy(ret->chroot, text, bytes);
    ret->chroot[bytes] = '\0';
    if (bytes && !znode_path_is_legal(ret->chroot))
        return brook_error_set(error, BROOK_E_CONFIG, "\"%s\" is not a ZooKeeper path", text);
    if (bytes == 1)
        ret->chroot[0] = '\0';
    return 0;
}

int servers_parse(const char *connect, struct servers *ret, struct brook_error *error)
{
    memset(ret, 0, sizeof *ret);
    if (!connect || !*connect)
        return brook_error_set(error, BROOK_E_CONFIG, "no ZooKeeper servers are given");
    size_t hosts_bytes = strcspn(connect, "/");
    int r = parse_chroot(connect + hosts_bytes, ret, error);
    if (r < 0)
        return r;
    const char *end = connect + hosts_bytes;
    for (const char *at = connect; at <= end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end;
        if (ret->count == SERVERS_MAX)
            return brook_error_set(error, BROOK_E_CONFIG, "more than %d ZooKeeper servers", SERVERS_MAX);
        struct server *s = &ret->list[ret->count];
        if ((r = parse_server(at, (size_t)(stop - at), s, error)) < 0)
            return r;
        ret->count++;
        ret->has_names = ret->has_names || !s->is_numeric;
        at = stop + 1;
    }
    return 0;
}

static void add_address(const struct addrinfo *info, struct addresses *to)
{
    char host[NI_MAXHOST], port[NI_MAXSERV], text[sizeof to->text[0]];
    if (to->count == SERVER_ADDRESSES_MAX ||
        getnameinfo(info->ai_addr, info->ai_addrlen, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return;
    if ((size_t)snprintf(text, sizeof text, "%s:%s", host, port) >= sizeof text)
        return;
    for (size_t i = 0; i < to->count; i++)
        if (strcmp(to->text[i], text) == 0)
            return;
    memcpy(to->text[to->count++], text, sizeof text);
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(a, b);
}

int servers_resolve(const struct servers *servers, struct addresses *ret, struct brook_error *error)
{
    int fault = 0;
    const char *unknown = "";
    ret->count = 0;
    for (size_t i = 0; i < servers->count; i++) {
        const struct server *s = &servers->list[i];
        struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                 .ai_flags = AI_NUMERICSERV | (s->is_numeric ? AI_NUMERICHOST : 0)};
        struct addrinfo *list = NULL;
        int r = getaddrinfo(s->host, s->port, &hints, &list);
        if (r != 0) {
            fault = r;
            unknown = s->host;
            continue;
        }
        for (const struct addrinfo *info = list; info; info = info->ai_next)
            add_address(info, ret);
        freeaddrinfo(list);
    }
    if (ret->count == 0)
        return brook_error_set(error, BROOK_E_NOT_FOUND, "ZooKeeper server %s: %s", unknown,
                               gai_strerror(fault));
    qsort(ret->text, ret->count, sizeof ret->text[0], compare_texts);
    return 0;
}

bool addresses_equal(const struct addresses *a, const struct addresses *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (strcmp(a->text[i], b->text[i]) != 0)
            return false;
    return true;
}

char *addresses_to_list(const struct addresses *addresses)
{
    size_t count = addresses->count | 1;
    char *list = malloc(count * sizeof addresses->text[0]);
    size_t n = 0;
    for (size_t i = 0; list && i < count; i++)
        n += (size_t)sprintf(list + n, "%s%s", i ? "," : "", addresses->text[i % addresses->count]);
    return list;
}
