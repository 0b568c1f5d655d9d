/* The state reader: reads what ZooKeeper says about topics, partitions and brokers into the image.
 *
 * Reads are pipelined, a bounded number at a time, so that ten thousand partitions take one pass. What is
 * asked for while a pass is under way joins it. Absence at any level is a fact, not an error; an error makes
 * the pass fail as a whole, and it is for the caller to ask again later. The cluster thread's alone.
 */
#ifndef BROOK_CLUSTER_STATE_READER_H
#define BROOK_CLUSTER_STATE_READER_H

#include "broker/cluster/image.h"
#include "coordination/coordinator.h"

#define STATE_READS_IN_FLIGHT_MAX 256

struct state_reader;

struct state_reader_events {
    /* Nothing is under way any more. `err`: 0, or what the first read that failed said: then everything has
     * to be read again some time. */
    void (*settled)(void *arg, int err);
    /* A partition's state is another than before. Others of the topic may still be on their way. */
    void (*state)(void *arg, struct image_topic *topic, int32_t number);
    /* A znode that makes no sense, or settings that can not be used: what was known is kept. Once, and again when the
     * reason is another (image_unreadable()). */
    void (*odd)(void *arg, const char *path, const struct brook_error *error);
    /* Such a znode makes sense now, or is gone. */
    void (*mended)(void *arg, const char *path);
    void *arg;
};

/* All but the events are borrowed. Returns 0 or -BROOK_E_NOMEM. */
int state_reader_new(struct coordinator *coordinator, struct inbox *inbox, struct image *image,
                     const struct state_reader_events *events, struct state_reader **ret_reader);
/* After the coordinator was freed and the inbox drained. NULL is fine. */
void state_reader_free(struct state_reader *reader);

/* Read everything. Topics that are not there any more leave the image when the pass succeeds. */
void state_reader_read_all(struct state_reader *reader);
void state_reader_read_brokers(struct state_reader *reader);
/* The topic's node, settings and states. */
void state_reader_read_topic(struct state_reader *reader, const char *name);
/* What brokers have told about the ends of their logs (the controller asks). */
void state_reader_read_ends(struct state_reader *reader, const char *name);
/* What a notification names, but for ends of logs. States that it quotes are taken at once where nothing else is to be
 * read first. */
void state_reader_read_change(struct state_reader *reader, const struct znode_change *change);

/* Look again at what made no sense: nobody announces that it was mended. */
void state_reader_read_unreadable(struct state_reader *reader);

/* Everything is being read. */
bool state_reader_is_reading_all(const struct state_reader *reader);
bool state_reader_is_idle(const struct state_reader *reader);
/* Everything was read since state_reader_forget(), and nothing failed since. */
bool state_reader_is_complete(const struct state_reader *reader);
/* A new session: what was read before counts as stale. */
void state_reader_forget(struct state_reader *reader);
#endif
