#include "client/consumer_position.h"

#include "proto/base/err.h"

#include <assert.h>
#include <brook/types.h>
#include <stdlib.h>

static const struct position_effects nothing;

static void settle(struct consumer_position *p)
{
    p->failures = 0;
    p->not_before_ms = 0;
    p->told = 0;
}

static void know(struct consumer_position *p, int64_t offset)
{
    p->phase = POSITION_KNOWN;
    p->offset = offset;
    settle(p);
}

static void ask_log(struct consumer_position *p, int64_t query)
{
    p->phase = POSITION_ASK_LOG;
    p->query = query;
    settle(p);
}

/* One of the two facts is established. */
static struct position_effects reset(struct consumer_position *p, int code)
{
    settle(p);
    if (p->reset == RESET_NONE) {
        p->phase = POSITION_STUCK;
        return (struct position_effects){.report = code};
    }
    ask_log(p, p->reset == RESET_EARLIEST ? BROOK_OFFSET_EARLIEST : BROOK_OFFSET_LATEST);
    return (struct position_effects){.was_reset = true};
}

static void back_off(struct consumer_position *p, int64_t now_ms)
{
    int doublings = p->failures < 10 ? p->failures : 10;
    int64_t delay_ms = (int64_t)POSITION_BACKOFF_MS_MIN << doublings;
    p->not_before_ms = now_ms + (delay_ms < POSITION_BACKOFF_MS_MAX ? delay_ms : POSITION_BACKOFF_MS_MAX);
    p->failures++;
}

/* Worth telling the application, once while it lasts: what waiting alone will hardly heal. */
static bool is_worth_telling(int code, int failures)
{
    switch (code) {
    case BROOK_E_UNKNOWN_TOPIC:
    case BROOK_E_UNKNOWN_PARTITION:
        return failures >= 2; /* a broker may learn of a new topic late */
    case BROOK_E_CORRUPT_BATCH:
    case BROOK_E_STORAGE_ERROR:
        return true;
    case BROOK_E_OFFSET_OUT_OF_RANGE:
    case BROOK_E_NO_OFFSET:
        return false;
    default:
        break;
    }
    enum brook_advice advice = brook_error_advice(code);
    return advice == BROOK_ADVICE_FIX || advice == BROOK_ADVICE_FATAL;
}

static struct position_effects failed(struct consumer_position *p, int code, int64_t now_ms)
{
    struct position_effects effects = {.refresh = brook_error_advice(code) == BROOK_ADVICE_REFRESH};
    if (p->told != code && is_worth_telling(code, p->failures)) {
        p->told = code;
        effects.report = code;
    }
    back_off(p, now_ms);
    return effects;
}

struct position_effects position_start(struct consumer_position *p, enum reset_policy policy, int64_t offset)
{
    *p = (struct consumer_position){.reset = policy, .offset = -1};
    if (offset >= 0) {
        know(p, offset);
        return nothing;
    }
    if (offset == BROOK_OFFSET_NONE)
        return reset(p, BROOK_E_NO_OFFSET);
    if (offset == BROOK_OFFSET_STORED)
        p->phase = POSITION_ASK_STORED;
    else
        ask_log(p, offset);
    return nothing;
}

struct position_effects position_topic_anew(struct consumer_position *p)
{
    settle(p);
    if (p->reset == RESET_NONE) {
        p->phase = POSITION_STUCK;
        return (struct position_effects){.report = BROOK_E_TOPIC_ID_MISMATCH};
    }
    ask_log(p, BROOK_OFFSET_EARLIEST);
    return (struct position_effects){.was_reset = true};
}

struct position_effects position_on_stored(struct consumer_position *p, int code, int64_t offset,
                                           int64_t now_ms)
{
    if (p->phase != POSITION_ASK_STORED)
        return nothing;
    code = abs(code);
    if (code == BROOK_E_NO_OFFSET || (code == 0 && offset == BROOK_OFFSET_NONE))
        return reset(p, BROOK_E_NO_OFFSET);
    if (code == 0 && offset < 0)
        code = BROOK_E_BAD_ENVELOPE;
    if (code != 0)
        return failed(p, code, now_ms);
    know(p, offset);
    return nothing;
}

struct position_effects position_on_log(struct consumer_position *p, int code, int64_t offset, int64_t now_ms)
{
    if (p->phase != POSITION_ASK_LOG)
        return nothing;
    code = abs(code);
    if (code == 0 && offset < 0)
        code = BROOK_E_OFFSET_NOT_AVAILABLE;
    if (code != 0)
        return failed(p, code, now_ms);
    know(p, offset);
    return nothing;
}

void position_on_records(struct consumer_position *p, int64_t next)
{
    if (p->phase != POSITION_KNOWN)
        return;
    assert(next >= p->offset);
    know(p, next);
}

struct position_effects position_on_pull_error(struct consumer_position *p, int code, bool by_leader,
                                               int64_t now_ms)
{
    if (p->phase != POSITION_KNOWN)
        return nothing;
    code = abs(code);
    if (code == BROOK_E_OFFSET_OUT_OF_RANGE && by_leader)
        return reset(p, code);
    struct position_effects effects = failed(p, code, now_ms);
    if (code == BROOK_E_OFFSET_OUT_OF_RANGE)
        effects.refresh = true;
    return effects;
}

struct position_effects position_on_truncation(struct consumer_position *p, int64_t offset)
{
    know(p, offset);
    if (p->reset == RESET_NONE)
        p->phase = POSITION_STUCK;
    return (struct position_effects){.report = BROOK_E_LOG_DIVERGED};
}

struct position_effects position_on_damage(struct consumer_position *p, int code, int64_t offset,
                                           int64_t now_ms)
{
    p->phase = POSITION_KNOWN;
    p->offset = offset;
    if (p->damages > 0 && p->damaged_offset != offset)
        p->damages = 0;
    p->damaged_offset = offset;
    int doublings = p->damages < 10 ? p->damages : 10;
    int64_t delay_ms = (int64_t)POSITION_BACKOFF_MS_MIN << doublings;
    p->not_before_ms = now_ms + (delay_ms < POSITION_DAMAGE_MS_MAX ? delay_ms : POSITION_DAMAGE_MS_MAX);
    p->damages++;
    /* Each look at the damage is an occurrence of its own: it is never passed over in silence. */
    return (struct position_effects){.report = abs(code)};
}

void position_on_silence(struct consumer_position *p, int64_t now_ms)
{
    if (p->phase != POSITION_STUCK)
        back_off(p, now_ms);
}
