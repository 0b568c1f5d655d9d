#include "broker/net/listener_counts.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

struct entry {
    uint8_t address[16]; /* v4 as mapped v6 */
    uint32_t count;
    UT_hash_handle hh;
};

struct listener_counts {
    pthread_mutex_t lock;
    struct entry *entries;
    uint32_t total;
    uint32_t connections_max;
    uint32_t per_address_max;
};

static void key_of(const struct sockaddr_storage *address, uint8_t key[16])
{
    memset(key, 0, 16);
    if (address->ss_family == AF_INET6) {
        memcpy(key, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, 16);
    } else if (address->ss_family == AF_INET) {
        key[10] = key[11] = 0xff;
        memcpy(key + 12, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
    }
}

int listener_counts_new(uint32_t connections_max, uint32_t per_address_max,
                        struct listener_counts **ret_counts)
{
    struct listener_counts *c = calloc(1, sizeof *c);
    if (!c)
        return -BROOK_E_NOMEM;
    pthread_mutex_init(&c->lock, NULL);
    c->connections_max = connections_max;
    c->per_address_max = per_address_max;
    *ret_counts = c;
    return 0;
}

void listener_counts_free(struct listener_counts *c)
{
    if (!c)
        return;
    struct entry *e, *next;
    HASH_ITER(hh, c->entries, e, next)
    {
        HASH_DEL(c->entries, e);
        free(e);
    }
    pthread_mutex_destroy(&c->lock);
    free(c);
}

void listener_counts_configure(struct listener_counts *c, uint32_t connections_max, uint32_t per_address_max)
{
    pthread_mutex_lock(&c->lock);
    c->connections_max = connections_max;
    c->per_address_max = per_address_max;
    pthread_mutex_unlock(&c->lock);
}

uint32_t listener_counts_total(struct listener_counts *c)
{
    pthread_mutex_lock(&c->lock);
    uint32_t total = c->total;
    pthread_mutex_unlock(&c->lock);
    return total;
}

static int add(struct listener_counts *c, const uint8_t key[16], struct brook_error *error)
{
    if (c->total >= c->connections_max)
        return brook_error_set(error, BROOK_E_TOO_MANY, "there are %u connections already (max.connections)",
                               c->total);
    struct entry *e;
    HASH_FIND(hh, c->entries, key, 16, e);
    if (e && e->count >= c->per_address_max)
        return brook_error_set(error, BROOK_E_TOO_MANY,
                               "there are %u connections from its address already (max.connections.per.ip)",
                               e->count);
    if (!e) {
        e = calloc(1, sizeof *e);
        if (!e)
            return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
        memcpy(e->address, key, 16);
        HASH_ADD(hh, c->entries, address, 16, e);
    }
    e->count++;
    c->total++;
    return 0;
}

int listener_counts_add(struct listener_counts *c, const struct sockaddr_storage *address,
                        struct brook_error *error)
{
    uint8_t key[16];
    key_of(address, key);
    pthread_mutex_lock(&c->lock);
    int r = add(c, key, error);
    pthread_mutex_unlock(&c->lock);
    return r;
}

void listener_counts_remove(struct listener_counts *c, const struct sockaddr_storage *address)
{
    if (!c)
        return;
    uint8_t key[16];
    struct entry *e;
    key_of(address, key);
    pthread_mutex_lock(&c->lock);
    HASH_FIND(hh, c->entries, key, 16, e);
    if (e) {
        c->total--;
        if (--e->count == 0) {
            HASH_DEL(c->entries, e);
            free(e);
        }
    }
    pthread_mutex_unlock(&c->lock);
}
