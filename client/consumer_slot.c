#include "client/consumer_slot.h"

#include "proto/base/err.h"

#include <assert.h>
#include <brook/types.h>
#include <stdlib.h>

void commit_slot_init(struct commit_slot *s)
{
    *s = (struct commit_slot){.stored = BROOK_OFFSET_NONE, .sent = -1, .waiting = -1};
}

uint64_t commit_slot_want(struct commit_slot *s, int64_t offset)
{
    if (!s->is_in_flight && s->waiting < 0 && s->stored == offset)
        return 0;
    s->waiting = offset;
    s->waiting_number = ++s->last_number;
    return s->last_number;
}

bool commit_slot_has_work(const struct commit_slot *s)
{
    return !s->is_in_flight && s->waiting >= 0;
}

void commit_slot_begin(struct commit_slot *s)
{
    assert(commit_slot_has_work(s));
    s->is_in_flight = true;
    s->sent = s->waiting;
    s->sent_number = s->waiting_number;
    s->waiting = -1;
}

static void end(struct commit_slot *s, int code)
{
    s->ended = s->sent_number;
    s->ended_code = code;
}

enum commit_verdict commit_slot_end(struct commit_slot *s, int code)
{
    assert(s->is_in_flight);
    code = abs(code);
    s->is_in_flight = false;
    if (code == 0) {
        s->stored = s->sent;
        end(s, 0);
        return COMMIT_DONE;
    }
    s->stored = BROOK_OFFSET_NONE;
    enum brook_advice advice = brook_error_advice(code);
    if (advice == BROOK_ADVICE_RETRY || advice == BROOK_ADVICE_REFRESH || advice == BROOK_ADVICE_UNKNOWN) {
        if (s->waiting < 0) {
            s->waiting = s->sent;
            s->waiting_number = s->sent_number;
        }
        return COMMIT_AGAIN;
    }
    end(s, code);
    return COMMIT_FAILED;
}

void commit_slot_abandon(struct commit_slot *s, int code)
{
    s->is_in_flight = false;
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
