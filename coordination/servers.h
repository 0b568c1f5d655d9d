/* The ZooKeeper servers of a connect string, and their addresses.
 *
 * The library is given numeric addresses only: it would ask the resolver at every turn otherwise, and a
 * resolver that is down would take a healthy session with it. And an odd number of them: it steps by two
 * after a loss, and with an even number never tries half of them. Parsing and formatting are pure;
 * servers_resolve() may block as long as the resolver does. Any thread.
 */
#ifndef BROOK_COORDINATION_SERVERS_H
#define BROOK_COORDINATION_SERVERS_H

#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define SERVERS_MAX 16
#define SERVER_HOST_BYTES_MAX 255
#define SERVER_ADDRESSES_MAX 64

struct server {
    char host[SERVER_HOST_BYTES_MAX + 1]; /* without brackets */
    char port[6];
    bool is_numeric;
};

struct servers {
    struct server list[SERVERS_MAX];
    size_t count;
    bool has_names;                         /* at least one needs the resolver */
    char chroot[SERVER_HOST_BYTES_MAX + 1]; /* "" or "/a/b": no slash at the end */
};

/* Parse "host:port[,host:port...][/chroot]"; "[v6]:port". The port is not optional, as in ZooKeeper's C library.
 * Returns 0 or -BROOK_E_CONFIG with a sentence; *ret is undefined then. */
int servers_parse(const char *connect, struct servers *ret, struct brook_error *error);

/* "address:port" each, as the library wants them (IPv6 without brackets); sorted, none twice. */
struct addresses {
    char text[SERVER_ADDRESSES_MAX][72];
    size_t count;
};
/* Look up every host; those that can not be found are left out. Blocks. Returns 0, or -BROOK_E_NOT_FOUND when
 * nothing at all was found, with the resolver's words in *error. */
int servers_resolve(const struct servers *servers, struct addresses *ret, struct brook_error *error);
bool addresses_equal(const struct addresses *a, const struct addresses *b);
/* The list for the library, of odd length (one is named twice if need be); free() it. NULL: out of memory. */
char *addresses_to_list(const struct addresses *addresses);

/* Whether `path` is a legal absolute znode path. */
bool znode_path_is_legal(const char *path);
#endif
