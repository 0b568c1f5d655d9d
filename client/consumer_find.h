/* Questions about positions: where the group stands (any broker), where a log begins or ends (its leader).
 *
 * A pass of the fetcher collects the partitions, then asks for all of them with one request per broker. Also
 * the one shot questions of the API (seek to a time, committed). Loop thread only, unless said otherwise.
 */
#ifndef BROOK_CLIENT_CONSUMER_FIND_H
#define BROOK_CLIENT_CONSUMER_FIND_H

#include "client/consumer_fetcher.h"

/* Ask for `p` in this pass (POSITION_ASK_STORED, POSITION_ASK_LOG). [locked] */
void find_stored(struct consumer_fetcher *f, struct consumer_partition *p);
void find_log(struct consumer_fetcher *f, struct consumer_partition *p, int32_t leader);
/* Send what was collected. Takes and gives up the lock. */
void finds_send(struct consumer_fetcher *f);
void finds_free(struct consumer_fetcher *f);
/* Questions that wait are answered with CLOSED. */
void questions_close(struct consumer_fetcher *f);

/* A question of the application. Begun by question_ask() on any thread but the loop, which waits for the
 * answer. */
enum question_kind { QUESTION_STORED, QUESTION_TIME };
/* Returns 0 and the offset (BROOK_OFFSET_NONE: none is stored), -BROOK_E_TIMED_OUT with the last failure in
 * the sentence, or what can not be healed by asking again. */
int question_ask(struct consumer_fetcher *f, enum question_kind kind, const char *topic, int32_t partition,
                 int64_t timestamp_ms, int timeout_ms, int64_t *ret_offset, struct brook_error *error);
#endif
