/* The administration's insides, shared by its files (admin*.c).
 *
 * A call is a question: a request that any broker may answer, asked again until there is an answer or no time
 * left. The caller waits; the loop asks. One question at a time.
 */
#ifndef BROOK_CLIENT_ADMIN_PARTS_H
#define BROOK_CLIENT_ADMIN_PARTS_H

#include "client/client.h"
#include "client/config.h"

#include <brook/admin.h>
#include <pthread.h>

struct admin_question;

struct brook_admin {
    struct client *client;
    pid_t pid;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* loop */
    struct client_listener listener;
    struct client_timer *again;
    struct admin_question *question; /* NULL: nobody waits */
    uint64_t serial;                 /* of the question: answers to earlier ones are dropped */
};

/* What is asked, and what to do with the answer. `ask` and `take` run on the loop. */
struct admin_question {
    /* Send what is to be sent now; called again whenever a channel or the metadata changed, and after a
     * pause. */
    void (*ask)(brook_admin *admin, struct admin_question *question);
    /* For the ordinary ask: the request, and its answer. `take` returns 0 or a code as the question's result.
     */
    Brook__Request *request;
    int (*take)(struct admin_question *question, const Brook__Response *response, struct brook_error *error);
    void *arg;
    bool repeatable; /* asking twice does no harm */
    int64_t until_ms;
    bool in_flight;
    bool pausing;
    /* lock */
    bool done;
    int result;
    struct brook_error error;
};

/* Ask and wait. Returns the result; fills in *error. */
int admin_run(brook_admin *admin, struct admin_question *question, int timeout_ms, struct brook_error *error);
/* The ordinary ask: `request` to any broker. */
void admin_ask_any(brook_admin *admin, struct admin_question *question);
/* End the question. [loop] */
void admin_finish(brook_admin *admin, struct admin_question *question, int result,
                  const struct brook_error *error);
/* Ask again in a moment. [loop] */
void admin_pause(brook_admin *admin, struct admin_question *question);
int admin_time_left_ms(const struct admin_question *question);
/* Whether the code says that trying again helps. */
bool admin_is_passing(int code);

/* Results live in an arena of their own; the face comes first. */
struct admin_result {
    struct arena *arena;
};
/* NULL: out of memory. The arena holds an admin_result followed by `bytes` zeroed bytes, which are returned.
 */
void *admin_result_new(size_t bytes, struct arena **ret_arena);
void admin_result_free(void *face);
/* Text of a bytes field in the arena; "" when out of memory. */
const char *admin_text(struct arena *arena, const ProtobufCBinaryData *bytes);
#endif
