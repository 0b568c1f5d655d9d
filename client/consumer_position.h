/* Where the next pull of one partition begins, and what to do when that can not be found out.
 *
 * Only two facts make a position jump as auto.offset.reset says: "no offset is stored", and "out of range" said by
 * the partition's leader. A third one, that the log has been cut, lets it go back to where. Everything else leaves
 * the position where it is and tries again, later and later. Pure: time is an argument (ms of any one clock), I/O and
 * logging are the caller's. */
#ifndef BROOK_CLIENT_CONSUMER_POSITION_H
#define BROOK_CLIENT_CONSUMER_POSITION_H

#include <stdbool.h>
#include <stdint.h>

#define POSITION_BACKOFF_MS_MIN 50
#define POSITION_BACKOFF_MS_MAX 1000
#define POSITION_DAMAGE_MS_MAX 10000 /* between two looks at the same damage */

enum reset_policy { RESET_EARLIEST, RESET_LATEST, RESET_NONE };

enum position_phase {
    POSITION_ASK_STORED, /* ask the group's offset */
    POSITION_ASK_LOG,    /* ask the leader for `query` */
    POSITION_KNOWN,      /* pull from `offset` */
    POSITION_STUCK       /* nothing but a seek helps (auto.offset.reset=none) */
};

struct consumer_position {
    enum position_phase phase;
    enum reset_policy reset;
    int64_t query;  /* BROOK_OFFSET_EARLIEST or _LATEST */
    int64_t offset; /* in POSITION_KNOWN; else the last one that was, or -1 */
    int failures;   /* in a row */
    int64_t not_before_ms;
    int64_t damaged_offset; /* where damage was found last, ... */
    int damages;            /* ... so often */
    int told;               /* the failure that lasts and was reported already; 0: none */
};

/* What the caller has to do after an event. */
struct position_effects {
    bool refresh;   /* the metadata is out of date */
    int report;     /* tell the application: a positive code, 0: nothing */
    bool was_reset; /* the position jumps by policy: log it */
};

/* `offset`: a number, or BROOK_OFFSET_EARLIEST, _LATEST, _STORED; BROOK_OFFSET_NONE: it is known that none is
 * stored. */
struct position_effects position_start(struct consumer_position *p, enum reset_policy reset, int64_t offset);
/* The topic was made anew under its name: its first record is the next one. With reset=none: stuck, reported.
 */
struct position_effects position_topic_anew(struct consumer_position *p);

/* Answers; `code` 0 or a number of the list, either sign. `offset` of a stored offset: BROOK_OFFSET_NONE:
 * none. */
struct position_effects position_on_stored(struct consumer_position *p, int code, int64_t offset,
                                           int64_t now_ms);
struct position_effects position_on_log(struct consumer_position *p, int code, int64_t offset,
                                        int64_t now_ms);
/* A pull brought records up to `next`, or (next = offset) nothing new. */
void position_on_records(struct consumer_position *p, int64_t next);
/* A pull failed for this partition. `by_leader`: the answer is of the partition's leader in its present
 * epoch. */
struct position_effects position_on_pull_error(struct consumer_position *p, int code, bool by_leader,
                                               int64_t now_ms);
/* The records from `offset` on that were given out are gone from the log: that is reported in any case, and with
 * reset=none the position is stuck there. */
struct position_effects position_on_truncation(struct consumer_position *p, int64_t offset);
/* What was pulled is damaged from `offset` on. */
struct position_effects position_on_damage(struct consumer_position *p, int code, int64_t offset,
                                           int64_t now_ms);
/* No request could be sent or it got lost: nobody said anything. */
void position_on_silence(struct consumer_position *p, int64_t now_ms);

static inline bool position_is_due(const struct consumer_position *p, int64_t now_ms)
{
    return p->phase != POSITION_STUCK && now_ms >= p->not_before_ms;
}
#endif
