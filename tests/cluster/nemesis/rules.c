#include "tests/cluster/nemesis/rules.h"

#include <stdlib.h>

static int32_t *leader_of(struct state_rule *r, int32_t epoch)
{
    if (epoch >= r->count) {
        r->leaders = realloc(r->leaders, (size_t)(epoch + 1) * sizeof *r->leaders);
        if (!r->leaders)
            abort();
        for (int32_t i = r->count; i <= epoch; i++)
            r->leaders[i] = -1;
        r->count = epoch + 1;
    }
    return &r->leaders[epoch];
}

const char *state_rule_look(struct state_rule *r, int32_t leader, int32_t epoch, int isr_count)
{
    const char *wrong = NULL;
    if (isr_count < 1)
        wrong = "no replica in sync";
    if (r->is_known && epoch < r->epoch)
        wrong = "leader epoch went back";
    if (leader >= 0 && epoch >= 0) {
        int32_t *known = leader_of(r, epoch);
        if (*known >= 0 && *known != leader)
            wrong = "two leaders in one epoch";
        *known = leader;
    }
    r->is_known = true;
    r->epoch = epoch;
    return wrong;
}

void state_rule_done(struct state_rule *r)
{
    free(r->leaders);
    *r = (struct state_rule){0};
}

bool rises(int64_t *highest, int64_t value)
{
    if (value < 0)
        return true;
    if (value < *highest)
        return false;
    *highest = value;
    return true;
}
