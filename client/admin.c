#include "client/admin_parts.h"
#include "proto/base/clock.h"
#include "proto/wire/envelope.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_MS 50
#define POOL_BYTES ((size_t)256 << 20)
#define RESULT_BYTES_MAX ((size_t)256 << 20)

/* One request on its way. The question may be gone when its answer comes. */
struct attempt {
    brook_admin *admin;
    uint64_t serial;
};

/* ---- results ---------------------------------------------------------------------------------------- */

void *admin_result_new(size_t bytes, struct arena **ret_arena)
{
    struct arena *arena;
    if (arena_new(RESULT_BYTES_MAX, &arena) < 0)
        return NULL;
    /* 16 bytes, so that the face is aligned. */
    struct admin_result *result = arena_alloc(arena, 16 + bytes);
    if (!result) {
        arena_free(arena);
        return NULL;
    }
    result->arena = arena;
    *ret_arena = arena;
    return (uint8_t *)result + 16;
}

void admin_result_free(void *face)
{
    if (face)
        arena_free(((struct admin_result *)(void *)((uint8_t *)face - 16))->arena);
}

const char *admin_text(struct arena *arena, const ProtobufCBinaryData *bytes)
{
    char *text = arena_string(arena, bytes->data, bytes->len);
    return text ? text : "";
}

/* ---- on the loop ------------------------------------------------------------------------------------ */

bool admin_is_passing(int code)
{
    enum brook_advice advice = brook_error_advice(code);
    return advice == BROOK_ADVICE_RETRY || advice == BROOK_ADVICE_REFRESH;
}

int admin_time_left_ms(const struct admin_question *q)
{
    int64_t left_ms = q->until_ms - clock_boot_ms();
    return left_ms < 1 ? 1 : left_ms > INT32_MAX ? INT32_MAX : (int)left_ms;
}

void admin_finish(brook_admin *admin, struct admin_question *q, int result, const struct brook_error *error)
{
    admin->question = NULL;
    admin->serial++;
    client_timer_stop(admin->again);
    pthread_mutex_lock(&admin->lock);
    q->result = result;
    if (error)
        q->error = *error;
    q->done = true;
    pthread_cond_signal(&admin->changed);
    pthread_mutex_unlock(&admin->lock);
}

void admin_pause(brook_admin *admin, struct admin_question *q)
{
    q->pausing = true;
    client_timer_set(admin->again, PAUSE_MS);
}

/* Something has changed: look whether the question can be asked now. */
static void look(brook_admin *admin)
{
    struct admin_question *q = admin->question;
    if (q && !q->in_flight && !q->pausing)
        q->ask(admin, q);
}

static void on_again(void *arg)
{
    brook_admin *admin = arg;
    if (admin->question)
        admin->question->pausing = false;
    look(admin);
}

static void on_channel(void *arg, int32_t broker_id, enum client_lane lane)
{
    look(arg);
}

static void on_metadata(void *arg)
{
    look(arg);
}

/* The broker may be gone: somebody else leads what it led, or will soon. */
static void on_lost(void *arg, int32_t broker_id, enum client_lane lane, const struct brook_error *why)
{
    brook_admin *admin = arg;
    if (admin->question)
        metadata_refresh(client_metadata(admin->client));
}

/* Whether the request may be sent again after this end of an attempt. */
static bool may_repeat(const struct admin_question *q, int err)
{
    bool unsent = err == -BROOK_E_CONNECT_FAILED || err == -BROOK_E_REQUEST_EXPIRED;
    return err < 0 && (unsent || q->repeatable);
}

static int judge(struct admin_question *q, const struct channel_reply *reply, struct brook_error *error)
{
    if (reply->err < 0)
        return brook_error_set(error, -reply->err, "%s", brook_error_text(reply->err));
    int r = envelope_status_read(reply->response->status, error);
    return r < 0 ? r : q->take(q, reply->response, error);
}

static void on_answer(void *arg, const struct channel_reply *reply)
{
    struct attempt *attempt = arg;
    brook_admin *admin = attempt->admin;
    struct admin_question *q = admin->serial == attempt->serial ? admin->question : NULL;
    free(attempt);
    if (!q)
        return;
    struct brook_error error = {0};
    q->in_flight = false;
    int r = judge(q, reply, &error);
    bool again = reply->err < 0 ? may_repeat(q, reply->err) : r < 0 && admin_is_passing(r);
    if (again && clock_boot_ms() < q->until_ms) {
        q->error = error; /* what to say when time runs out */
        admin_pause(admin, q);
    } else {
        admin_finish(admin, q, r, &error);
    }
}

void admin_ask_any(brook_admin *admin, struct admin_question *q)
{
    struct channel *channel = client_any_channel(admin->client);
    if (!channel)
        return;
    struct attempt *attempt = malloc(sizeof *attempt);
    if (!attempt) {
        admin_pause(admin, q);
        return;
    }
    *attempt = (struct attempt){.admin = admin, .serial = admin->serial};
    q->request->has_deadline_ms = 0;
    q->in_flight = true;
    if (channel_send(channel, q->request, NULL, 0, admin_time_left_ms(q), on_answer, attempt) < 0) {
        q->in_flight = false;
        free(attempt);
        admin_pause(admin, q);
    }
}

struct call {
    brook_admin *admin;
    struct admin_question *question;
};

static void begin(void *arg)
{
    struct call *call = arg;
    call->admin->question = call->question;
    call->admin->serial++;
    look(call->admin);
}

/* Time is over: say what stood in the way. */
static void give_up(void *arg)
{
    struct call *call = arg;
    struct admin_question *q = call->question;
    if (call->admin->question != q)
        return;
    const struct brook_error *why = q->error.code ? &q->error : client_last_error(call->admin->client);
    struct brook_error error;
    brook_error_set(&error, BROOK_E_TIMED_OUT, "no answer in time%s%.200s", why->code ? ": " : "",
                    why->code ? why->text : "");
    admin_finish(call->admin, q, -BROOK_E_TIMED_OUT, &error);
}

/* ---- the caller's side ------------------------------------------------------------------------------ */

static void wait_done(brook_admin *admin, struct admin_question *q)
{
    struct timespec until;
    int left_ms = admin_time_left_ms(q);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += left_ms / 1000;
    until.tv_nsec += left_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    pthread_mutex_lock(&admin->lock);
    while (!q->done && pthread_cond_timedwait(&admin->changed, &admin->lock, &until) == 0)
        ;
    pthread_mutex_unlock(&admin->lock);
}

int admin_run(brook_admin *admin, struct admin_question *q, int timeout_ms, struct brook_error *error)
{
    struct call call = {.admin = admin, .question = q};
    q->until_ms = clock_boot_ms() + (timeout_ms < 0 ? INT32_MAX : timeout_ms);
    q->error = (struct brook_error){0};
    q->done = q->in_flight = q->pausing = false;
    client_call(admin->client, begin, &call);
    wait_done(admin, q);
    client_call(admin->client, give_up, &call);
    if (q->result < 0 && error)
        *error = q->error;
    return q->result;
}

static void start_on_loop(void *arg)
{
    brook_admin *admin = arg;
    client_listen(admin->client, &admin->listener);
}

static void stop_on_loop(void *arg)
{
    brook_admin *admin = arg;
    client_unlisten(admin->client, &admin->listener);
    client_timer_free(admin->again);
}

int brook_admin_new(const brook_config *config, brook_admin **ret_admin, struct brook_error *error)
{
    brook_admin *admin = calloc(1, sizeof *admin);
    if (!admin)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    admin->pid = getpid();
    int r = client_new(config, POOL_BYTES, &admin->client, error);
    if (r < 0) {
        free(admin);
        return r;
    }
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&admin->lock, NULL);
    pthread_cond_init(&admin->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    admin->listener =
        (struct client_listener){.channel_ready = on_channel, .channel_lost = on_lost, .metadata_changed = on_metadata,
                                 .arg = admin};
    admin->again = client_timer_new(admin->client, on_again, admin);
    if (!admin->again) {
        client_free(admin->client);
        free(admin);
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    }
    client_call(admin->client, start_on_loop, admin);
    *ret_admin = admin;
    return 0;
}

void brook_admin_free(brook_admin *admin)
{
    if (!admin)
        return;
    bool ours = admin->pid == getpid();
    if (ours)
        client_call(admin->client, stop_on_loop, admin);
    client_free(admin->client);
    if (ours) {
        pthread_cond_destroy(&admin->changed);
        pthread_mutex_destroy(&admin->lock);
    }
    free(admin);
}
