/* What brokers say to each other: pulls, questions for epochs, comparisons. Messages are lost, late and doubled. */
#include "tests/property/cluster_world_private.h"

#include <string.h>

struct message *world_new_message(struct world *w)
{
    for (int i = 0; i < MESSAGES_MAX; i++)
        if (w->messages[i].kind == MESSAGE_NONE)
            return &w->messages[i];
    return NULL;
}

static void send(struct world *w, const struct message *m)
{
    struct message *slot = world_new_message(w);
    if (slot)
        *slot = *m;
}

void broker_follow(struct world *w, struct broker *b)
{
    struct epoch_history history = broker_history(b);
    if (!broker_follows(b) || b->broker_epoch < 0)
        return;
    struct message m = {.from = broker_id(w, b), .to = b->follower.leader, .topic = b->topic, .life = b->life};
    switch (b->follower.phase) {
    case FOLLOWER_IDLE:
        return;
    case FOLLOWER_CUT:
        TRACE(w, "broker %d cuts to %d", m.from, (int)b->follower.cut);
        broker_cut(w, b, (int32_t)b->follower.cut);
        history = broker_history(b);
        follower_state_cut(&b->follower, &history);
        return;
    case FOLLOWER_ASK:
        m.kind = MESSAGE_ASK;
        m.asked = b->follower.asked;
        m.pull.current_epoch = b->follower.leader_epoch;
        break;
    case FOLLOWER_PULL:
        m.kind = MESSAGE_PULL;
        broker_reach(w, b);
        follower_state_pull(&b->follower, &history, m.from, b->broker_epoch, broker_safe_end(b), b->reached_epoch,
                            &m.pull);
        break;
    }
    send(w, &m);
}

/* ---- at the leader ---------------------------------------------------------------------------------- */

/* Make the pull look as if the rule were not there. */
static void forge(struct world *w, const struct broker *b, const struct epoch_history *history,
                  struct leader_pull *pull)
{
    const struct leader_state *s = &b->leader;
    if (is_broken(w, CLUSTER_COUNT_EARLY) || is_broken(w, CLUSTER_EPOCH_START))
        pull->reached_epoch = s->leader_epoch;
    if (is_broken(w, CLUSTER_FENCED_PULL) && pull->current_epoch < s->leader_epoch)
        pull->current_epoch = pull->reached_epoch = s->leader_epoch;
    if (is_broken(w, CLUSTER_LAST_EPOCH) && pull->offset <= history->log_end)
        pull->last_epoch = epoch_history_before(history, pull->offset);
    for (int32_t i = 0; is_broken(w, CLUSTER_POSITION_EPOCH) && i < s->replicas_count; i++) {
        const struct leader_replica *r = &s->replicas[i];
        int64_t newest = r->live_epoch > r->broker_epoch ? r->live_epoch : r->broker_epoch;
        if (r->broker_id == pull->broker_id && newest > pull->broker_epoch)
            pull->broker_epoch = newest;
    }
}

static void answer_pull(struct world *w, struct broker *b, const struct message *m)
{
    struct epoch_history history = broker_history(b);
    struct message answer = *m;
    answer.kind = MESSAGE_PULLED;
    answer.from = m->to;
    answer.to = m->from;
    answer.error = -BROOK_E_NOT_LEADER;
    if (broker_leads(b)) {
        struct leader_pull pull = m->pull;
        forge(w, b, &history, &pull);
        answer.error = leader_state_pull(&b->leader, &history, &pull, w->now);
        answer.epoch_start = b->limits.epoch_start;
        if (!answer.error)
            broker_publish(w, b);
    }
    answer.high_watermark = b->high_watermark;
    for (int64_t at = m->pull.offset; !answer.error && at < b->log_end && answer.records_count < RECORDS_PER_PULL; at++)
        answer.records[answer.records_count++] = b->log[at];
    send(w, &answer);
}

static void answer_question(struct world *w, struct broker *b, const struct message *m)
{
    struct epoch_history history = broker_history(b);
    struct message answer = *m;
    answer.kind = MESSAGE_TOLD;
    answer.from = m->to;
    answer.to = m->from;
    answer.error = -BROOK_E_NOT_LEADER;
    if (broker_leads(b))
        answer.error =
            leader_state_epoch_end(&b->leader, &history, m->pull.current_epoch, m->asked, &answer.told);
    send(w, &answer);
}

static void answer_comparison(struct world *w, struct broker *b, const struct message *m)
{
    struct epoch_history history = broker_history(b);
    struct message answer = *m;
    if (b->broker_epoch < 0 || (replica_role_may_report(&b->role, m->asked) && !is_broken(w, CLUSTER_FREEZE)))
        return;
    answer.kind = MESSAGE_REPORT;
    answer.from = m->to;
    answer.to = m->from;
    bool is_told_whole = !b->was_fsync || is_broken(w, CLUSTER_REPORT_UNSAFE);
    struct epoch_end end = epoch_history_report(&history, is_told_whole ? b->log_end : b->durable_end,
                                                is_broken(w, CLUSTER_REACHED) ? -1 : b->reached_epoch);
    answer.report = (struct controller_end){.broker_id = m->to,
                                            .broker_epoch = b->broker_epoch,
                                            .leader_epoch = m->asked,
                                            .last_epoch = end.epoch,
                                            .end = end.end};
    send(w, &answer);
}

/* ---- at the follower -------------------------------------------------------------------------------- */

static void take_records(struct world *w, struct broker *b, const struct message *m)
{
    struct epoch_history history = broker_history(b);
    if (m->error) {
        follower_state_refused(&b->follower, &history, m->pull.current_epoch, m->error, 0);
        return;
    }
    if (!follower_state_may_append(&b->follower, &history, m->pull.current_epoch, m->pull.offset))
        return;
    for (int32_t i = 0; i < m->records_count; i++)
        broker_append(w, b, m->records[i]);
    b->told_start = (int32_t)m->epoch_start;
    broker_reach(w, b);
    b->high_watermark = watermark_follow(b->high_watermark, m->high_watermark, b->log_end);
}

static void take_answer(struct broker *b, const struct message *m)
{
    struct epoch_history history = broker_history(b);
    if (m->error)
        follower_state_refused(&b->follower, &history, m->pull.current_epoch, m->error, 0);
    else
        follower_state_epoch_end(&b->follower, &history, m->pull.current_epoch, m->asked, &m->told);
}

void broker_handle(struct world *w, struct broker *b, const struct message *m)
{
    bool is_mine = m->life == b->life;
    if (m->topic != b->topic && m->kind != MESSAGE_REPORT)
        return;
    switch (m->kind) {
    case MESSAGE_NONE:
        break;
    case MESSAGE_PULL:
        answer_pull(w, b, m);
        break;
    case MESSAGE_ASK:
        answer_question(w, b, m);
        break;
    case MESSAGE_COMPARE:
        answer_comparison(w, b, m);
        break;
    case MESSAGE_PULLED:
        if (is_mine && broker_follows(b))
            take_records(w, b, m);
        break;
    case MESSAGE_TOLD:
        if (is_mine && broker_follows(b))
            take_answer(b, m);
        break;
    case MESSAGE_REPORT:
        if (is_mine)
            controller_take_report(w, b, m->topic, &m->report);
        break;
    }
}

static void keep_for_late(struct world *w, const struct message *m)
{
    if (m->kind == MESSAGE_PULL && world_chance(w, 40))
        w->late[world_below(w, LATE_MAX)] = *m;
}

void world_deliver_late(struct world *w)
{
    struct message *m = &w->late[world_below(w, LATE_MAX)];
    struct broker *to = &w->b[m->to];
    if (m->kind == MESSAGE_NONE || !to->is_up || to->is_paused || !broker_leads(to))
        return;
    broker_handle(w, to, m);
    if (world_chance(w, 32))
        m->kind = MESSAGE_NONE;
}

/* Deliver it, or lose it, or deliver it and keep it for another time. */
void world_deliver(struct world *w, struct message *m)
{
    struct message taken = *m;
    struct broker *to = &w->b[m->to];
    if (m->kind == MESSAGE_NONE || (to->is_up && to->is_paused))
        return;
    if (w->is_healing || !world_chance(w, w->loss))
        m->kind = MESSAGE_NONE;
    keep_for_late(w, &taken);
    bool is_lost = !w->is_healing && world_chance(w, w->loss);
    if (to->is_up && !is_lost && !(w->parted[taken.from] & bit(taken.to)))
        broker_handle(w, to, &taken);
}
