/* Where logs part from their leaders' they are cut. No checkpoint may say that more was synced than is left, and each
 * checkpoint is a synced write of all partitions of a directory: so those that are to be cut at a time go together.
 * After a change of many leaders that may be hundreds.
 */
#include "broker/replication/fetcher_internal.h"
#include "proto/base/diag.h"

#include <inttypes.h>
#include <stdio.h>

struct cuts_round {
    struct fetch_entry *entries[FETCHER_CUTS_MAX];
    struct partition *partitions[FETCHER_CUTS_MAX];
    int64_t lowest[FETCHER_CUTS_MAX];
    size_t count;
};

static void tell_cut(const struct fetch_entry *e, int64_t log_end, int64_t high_watermark)
{
    const struct diag *diag = e->link->thread->fetchers->s.diag;
    char subject[288];
    snprintf(subject, sizeof subject, "partition=%s/%" PRId32 " epoch=%" PRId32, partition_topic(e->partition),
             e->key.number, e->state.leader_epoch);
    if (follower_state_cuts_committed(&e->state, high_watermark))
        diag_log(diag, DIAG_ERROR, subject,
                 "cutting the log from %" PRId64 " to %" PRId64 ": records below the high watermark %" PRId64
                 " are lost, which only an unclean election does",
                 log_end, e->state.cut, high_watermark);
    else
        diag_log(diag, DIAG_INFO, subject,
                 "cutting the log from %" PRId64 " to %" PRId64 ", where it parts from the leader's", log_end,
                 e->state.cut);
}

static int cut_one(struct fetch_entry *e, struct brook_error *error)
{
    struct partition_marks marks;
    partition_marks(e->partition, &marks);
    tell_cut(e, marks.log_end, marks.high_watermark);
    if (e->state.cut < log_start_offset(partition_log(e->partition)))
        return partition_start_over(e->partition, e->state.leader_epoch, e->state.cut, error);
    return partition_truncate(e->partition, e->state.leader_epoch, e->state.cut, error);
}

static void collect(struct fetch_link *link, struct cuts_round *round)
{
    struct fetch_entry *e;
    round->count = 0;
    TAILQ_FOREACH(e, &link->lists[FETCH_CUTTING], in_place)
    {
        if (round->count == FETCHER_CUTS_MAX)
            break;
        round->entries[round->count] = e;
        round->partitions[round->count] = e->partition;
        round->lowest[round->count++] = e->state.cut;
    }
}

/* They come back together, too. */
static void put_off(const struct cuts_round *round, int err)
{
    for (size_t i = 0; i < round->count; i++) {
        fetch_entry_back_off(round->entries[i], -err, NULL);
        round->entries[i]->retry_ns = round->entries[0]->retry_ns;
    }
}

static void cut_round(const struct fetcher_settings *s, const struct cuts_round *round)
{
    int begun = s->begin_cuts ? s->begin_cuts(s->arg, round->partitions, round->lowest, round->count) : 0;
    if (begun) {
        put_off(round, begun);
        return;
    }
    for (size_t i = 0; i < round->count; i++) {
        struct brook_error error = {0};
        int err = cut_one(round->entries[i], &error);
        if (err)
            fetch_entry_back_off(round->entries[i], -err, error.text);
        else
            fetch_entry_was_cut(round->entries[i]);
    }
    if (s->begin_cuts)
        s->end_cuts(s->arg, round->partitions, round->count);
}

void fetch_link_cut(struct fetch_link *link)
{
    static _Thread_local struct cuts_round round;
    for (collect(link, &round); round.count; collect(link, &round))
        cut_round(&link->thread->fetchers->s, &round);
}

int fetch_entry_start_over(struct fetch_entry *e, int64_t lowest, int64_t offset)
{
    const struct fetcher_settings *s = &e->link->thread->fetchers->s;
    struct brook_error error = {0};
    int err = s->begin_cuts ? s->begin_cuts(s->arg, &e->partition, &lowest, 1) : 0;
    if (!err) {
        err = partition_start_over(e->partition, e->state.leader_epoch, offset, &error);
        if (s->begin_cuts)
            s->end_cuts(s->arg, &e->partition, 1);
    }
    if (err)
        fetch_entry_back_off(e, -err, error.text);
    return err;
}
