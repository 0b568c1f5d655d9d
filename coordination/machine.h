/* A call that takes several requests: the part that all such calls share.
 *
 * The state of a call begins with a struct machine and lives from machine_new() until the call has been
 * answered (machine_finish()) and its last request has come back. At most one request is under way at a time.
 * machine_new() and machine_launch() may be called by any thread; all else runs on the session thread. After
 * machine_finish() the machine may be gone: return.
 */
#ifndef BROOK_COORDINATION_MACHINE_H
#define BROOK_COORDINATION_MACHINE_H

#include "coordination/session.h"

struct machine;
typedef void machine_step(struct machine *m, struct request *r);

struct machine {
    struct machine *prev, *next;
    struct coordinator *coordinator;
    struct inbox_item item;
    struct timer timer;
    struct answer *answer;
    uint64_t generation; /* that the requests are bound to; 0: any */
    bool urgent;
    bool is_waiting; /* for a request */
    bool is_over;
    machine_step *step;
    void (*wake)(struct machine *m);
    void (*start)(struct machine *m);
    void (*release)(struct machine *m); /* frees what the state of the call owns; NULL: nothing */
};

/* A zeroed state of `bytes` that begins with the machine. */
void *machine_new(struct coordinator *c, size_t bytes, struct coordinator_call call,
                  void (*start)(struct machine *));
/* Hand it to the session thread, which calls `start`. */
void machine_launch(struct machine *m);
/* Send a request; `step` gets the reply, unless the coordinator is closed meanwhile: then the call is
 * answered. */
void machine_send(struct machine *m, struct internal request, machine_step *step);
/* Call `wake` after `ms`. */
void machine_sleep(struct machine *m, int64_t ms, void (*wake)(struct machine *m));
/* Answer with `err` and whatever m->answer holds besides. */
void machine_finish(struct machine *m, int err);
#endif
