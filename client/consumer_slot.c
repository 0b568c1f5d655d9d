#include "client/consumer_slot.h"

#include "proto/base/err.h"

#include <assert.h>
#include <brook/types.h>
#include <stdlib.h>

void commit_slot_init(struct commit_slot *s, bool has_owner, int64_t stored, int32_t version)
{
    *s = (struct commit_slot){
        .has_owner = has_owner, .stored = stored, .version = version, .sent = -1, .waiting = -1};
}

uint64_t commit_slot_want(struct commit_slot *s, int64_t offset)
{
    if (s->state == COMMIT_IDLE && s->waiting < 0 && s->stored == offset)
        return 0;
    s->waiting = offset;
    s->waiting_number = ++s->last_number;
    return s->last_number;
}

bool commit_slot_has_work(const struct commit_slot *s)
{
    return s->state == COMMIT_IDLE && s->waiting >= 0;
}

bool commit_slot_is_busy(const struct commit_slot *s)
{
    return s->state != COMMIT_IDLE || s->waiting >= 0;
}

void commit_slot_begin(struct commit_slot *s)
{
    assert(commit_slot_has_work(s));
    s->state = COMMIT_SENT;
    s->sent = s->waiting;
    s->sent_number = s->waiting_number;
    s->waiting = -1;
}

static void end(struct commit_slot *s, int code)
{
    s->state = COMMIT_IDLE;
    s->ended = s->sent_number;
    s->ended_code = code;
}

/* Nothing happened: the value waits again, unless a newer one does. */
static enum commit_verdict put_back(struct commit_slot *s)
{
    s->state = COMMIT_IDLE;
    if (s->waiting < 0) {
        s->waiting = s->sent;
        s->waiting_number = s->sent_number;
    }
    return COMMIT_AGAIN;
}

static bool is_in_question(int code)
{
    switch (code) {
    case BROOK_E_BAD_VERSION:
    case BROOK_E_NO_NODE:
        return true; /* somebody, perhaps our own lost commit, moved the node */
    default:
        break;
    }
    enum brook_advice advice = brook_error_advice(code);
    return advice == BROOK_ADVICE_UNKNOWN || advice == BROOK_ADVICE_FENCED;
}

enum commit_verdict commit_slot_end(struct commit_slot *s, int code, int32_t version)
{
    assert(s->state == COMMIT_SENT);
    code = abs(code);
    if (code == 0) {
        s->stored = s->sent;
        s->version = version;
        end(s, 0);
        return COMMIT_DONE;
    }
    if (s->has_owner && is_in_question(code)) {
        s->state = COMMIT_RESOLVING;
        return COMMIT_RESOLVE;
    }
    enum brook_advice advice = brook_error_advice(code);
    if (advice == BROOK_ADVICE_RETRY || advice == BROOK_ADVICE_REFRESH || advice == BROOK_ADVICE_UNKNOWN)
        return put_back(s);
    end(s, code);
    return COMMIT_FAILED;
}

enum commit_verdict commit_slot_resolved(struct commit_slot *s, int64_t stored, int32_t version)
{
    if (s->state != COMMIT_RESOLVING)
        return COMMIT_DONE;
    s->stored = stored;
    s->version = version;
    if (stored != s->sent)
        return put_back(s);
    end(s, 0);
    return COMMIT_DONE;
}

void commit_slot_abandon(struct commit_slot *s, int code)
{
    s->state = COMMIT_IDLE;
    s->waiting = -1;
    s->ended = s->last_number;
    s->ended_code = abs(code);
}

bool commit_slot_has_ended(const struct commit_slot *s, uint64_t number, int *ret_code)
{
    if (number > s->ended)
        return false;
    *ret_code = s->ended_code;
    return true;
}
