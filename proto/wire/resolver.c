#include "proto/wire/resolver.h"

#include "proto/base/err.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int resolver_parse(const char *host, uint16_t port, struct resolver_address *ret_address)
{
    struct resolver_address a = {0};
    struct sockaddr_in *four = (void *)&a.address;
    struct sockaddr_in6 *six = (void *)&a.address;
    if (inet_pton(AF_INET, host, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons(port);
        a.bytes = sizeof *four;
    } else if (inet_pton(AF_INET6, host, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(port);
        a.bytes = sizeof *six;
    } else {
        return -BROOK_E_NOT_FOUND;
    }
    *ret_address = a;
    return 0;
}

/* Shared by the loop and the lookup's thread until both have let go. */
struct lookup {
    struct inbox_item item;
    pthread_mutex_t lock;
    bool cancelled; /* under lock: the thread posts nothing any more */
    struct inbox *inbox;
    resolver_callback *callback;
    void *arg;
    char host[256];
    char port[8];
    struct resolver_address addresses[RESOLVER_ADDRESSES_MAX];
    size_t count;
    char text[160];
};

static void lookup_free(struct lookup *l)
{
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static void deliver(struct inbox_item *item)
{
    struct lookup *l = CONTAINER_OF(item, struct lookup, item);
    struct resolver_answer answer = {
        .addresses = l->addresses, .count = l->count, .text = l->count > 0 ? NULL : l->text};
    /* The thread may still be on its way out of the lock. */
    pthread_mutex_lock(&l->lock);
    bool wanted = !l->cancelled;
    pthread_mutex_unlock(&l->lock);
    if (wanted)
        l->callback(l->arg, &answer);
    lookup_free(l);
}

static void look_up(struct lookup *l)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int r = getaddrinfo(l->host, l->port, &hints, &found);
    for (struct addrinfo *a = found; r == 0 && a && l->count < RESOLVER_ADDRESSES_MAX; a = a->ai_next) {
        if (a->ai_addrlen > sizeof l->addresses[0].address)
            continue;
        memcpy(&l->addresses[l->count].address, a->ai_addr, a->ai_addrlen);
        l->addresses[l->count++].bytes = a->ai_addrlen;
    }
    if (found)
        freeaddrinfo(found);
    snprintf(l->text, sizeof l->text, "%.100s: %.50s", l->host, r ? gai_strerror(r) : "no address");
}

static void *run(void *arg)
{
    struct lookup *l = arg;
    look_up(l);
    pthread_mutex_lock(&l->lock);
    bool orphan = l->cancelled;
    if (!orphan)
        inbox_post(l->inbox, &l->item);
    pthread_mutex_unlock(&l->lock);
    if (orphan)
        lookup_free(l);
    return NULL;
}

static int start(struct lookup *l)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(&thread, &attributes, run, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return r ? -BROOK_E_IO : 0;
}

int lookup_new(struct inbox *inbox, const char *host, uint16_t port, resolver_callback *callback, void *arg,
               struct lookup **ret_lookup)
{
    struct lookup *l = calloc(1, sizeof *l);
    if (!l)
        return -BROOK_E_NOMEM;
    pthread_mutex_init(&l->lock, NULL);
    l->item.run = deliver;
    l->inbox = inbox;
    l->callback = callback;
    l->arg = arg;
    snprintf(l->host, sizeof l->host, "%s", host);
    snprintf(l->port, sizeof l->port, "%u", port);
    int r = start(l);
    if (r < 0) {
        lookup_free(l);
        return r;
    }
    *ret_lookup = l;
    return 0;
}

void lookup_cancel(struct lookup *l)
{
    pthread_mutex_lock(&l->lock);
    l->cancelled = true;
    pthread_mutex_unlock(&l->lock);
}
