/* Petitions: what clients ask of the controller is added to a node of /admin, which it empties (controller_wishes.c),
 * and answered when that has happened.
 *
 * Any broker does this. Several petitions may lie in a node at once: each is added by compare-and-set, and adding one a
 * second time (an outcome that was not known) does no harm. Made by any thread (petition_new), then the cluster
 * thread's; answered on the thread of the inbox in the petition.
 */
#ifndef BROOK_CLUSTER_PETITIONS_H
#define BROOK_CLUSTER_PETITIONS_H

#include "broker/cluster/cluster.h"
#include "broker/cluster/image.h"
#include "broker/cluster/state_reader.h"

struct petition;
struct petitions;

#define PETITIONS_WAITING_MAX 1000        /* beyond it -BROOK_E_BUSY */
#define PETITION_NODE_BYTES_MAX (250 << 10) /* of the node with what others asked for; beyond it -BROOK_E_TOO_MANY */

struct petitions_settings {
    struct coordinator *coordinator;
    struct inbox *inbox; /* the cluster thread's */
    struct image *image;
    struct state_reader *reader;
    int32_t replicas_max; /* 1: no partition is moved */
};

/* Everything is copied. Never NULL: without memory the petition is answered so when it is submitted. */
struct petition *petition_new(const struct cluster_petition *what, int timeout_ms, struct inbox *inbox,
                              cluster_petition_callback *callback, void *arg);
/* Answer at once. Takes the petition. */
void petition_refuse(struct petition *petition, int code, const char *why);

int petitions_new(const struct petitions_settings *settings, struct petitions **ret_petitions);
/* After the coordinator was freed and the inbox drained: what waits is answered -BROOK_E_STOPPING. NULL is fine. */
void petitions_free(struct petitions *petitions);
/* Takes it. */
void petitions_submit(struct petitions *petitions, struct petition *petition);
/* To be called every turn; `is_idle`: nothing is being read. Returns when to call again. */
int64_t petitions_tick(struct petitions *petitions, int64_t now_ms, bool is_idle);
#endif
