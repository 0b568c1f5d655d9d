/* The helper thread that asks the resolver. It may hang there longer than the coordinator lives, so it is
 * detached and shares with it a block that counts its holders. */
#include "coordination/session.h"
#include "proto/base/cleanup.h"

#include <signal.h>
#include <stddef.h>

struct resolver {
    struct inbox_item item;
    pthread_mutex_t lock;
    struct coordinator *coordinator; /* NULL: abandoned */
    int holders;                     /* coordinator and thread */
    struct servers servers;
    struct addresses addresses;
    int err;
    struct brook_error error;
};

static void let_go(struct resolver *r)
{
    pthread_mutex_lock(&r->lock);
    bool last = --r->holders == 0;
    pthread_mutex_unlock(&r->lock);
    if (last) {
        pthread_mutex_destroy(&r->lock);
        free(r);
    }
}

static void arrive(struct inbox_item *item)
{
    struct resolver *r = CONTAINER_OF(item, struct resolver, item);
    struct coordinator *c = r->coordinator;
    if (c) {
        c->link.resolver = NULL;
        link_resolved(c, r->err, &r->addresses, &r->error);
    }
    let_go(r);
}

static void *work(void *arg)
{
    struct resolver *r = arg;
    r->err = servers_resolve(&r->servers, &r->addresses, &r->error);
    r->item.run = arrive;
    /* Under the lock, so that the inbox is there: who abandons us takes the lock first. */
    pthread_mutex_lock(&r->lock);
    if (r->coordinator)
        inbox_post(&r->coordinator->inbox, &r->item);
    pthread_mutex_unlock(&r->lock);
    let_go(r);
    return NULL;
}

int thread_start(pthread_t *ret, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(ret, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r == 0 ? 0 : -BROOK_E_IO;
}

int resolver_start(struct coordinator *c, struct resolver **ret)
{
    pthread_t thread;
    struct resolver *r = calloc(1, sizeof *r);
    if (!r)
        return -BROOK_E_NOMEM;
    pthread_mutex_init(&r->lock, NULL);
    r->coordinator = c;
    r->holders = 2;
    r->servers = c->servers;
    if (thread_start(&thread, work, r) < 0) {
        pthread_mutex_destroy(&r->lock);
        free(r);
        return -BROOK_E_IO;
    }
    pthread_detach(thread);
    *ret = r;
    return 0;
}

void resolver_abandon(struct resolver *resolver)
{
    if (!resolver)
        return;
    pthread_mutex_lock(&resolver->lock);
    resolver->coordinator = NULL;
    pthread_mutex_unlock(&resolver->lock);
    let_go(resolver);
}
