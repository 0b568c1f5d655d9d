/* What tests of data directories share: hosting over the directories "a" and "b", life after life, on a disk that may be told
 * to fail, with a topic of which every partition is led here. One thread; time is what the test says it is.
 */
#ifndef BROOK_TESTS_DIRS_WORLD_H
#define BROOK_TESTS_DIRS_WORLD_H

#include "broker/cluster/hosting.h"
#include "broker/partition/partition.h"
#include "proto/base/diag.h"
#include "tests/support/faulty_io.h"
#include "tests/unit/storage/fixture.h"

#define BROKER 1
#define CLUSTER "wUxlYmA2Qzq9qPEkQJaYsg"
#define DIRS 2
#define PARTITIONS 6
#define ROOM 1000

struct world {
    struct inbox inbox;
    struct hosting *hosting;
    struct image *image;
    struct image_topic *topic;
    struct diag diag;
    char paths[DIRS][PATH_MAX];
    int dirs_count;
    struct topic_config config;
    int64_t broker_epoch; /* which life it is */
    int64_t noted_epoch;
    int64_t now_ms;
    bool is_opened, is_closed, was_clean;
    int open_code;
    _Atomic unsigned errors, warnings;
    _Atomic bool is_distrusted; /* a sync or a directory failed: until the next life */
    char last_error[700], last_warning[700];
    int64_t stored[PARTITIONS]; /* records that were acknowledged */
    int awaited;                /* a partition, or an answer */
};

/* No life yet, directories that are not there, a disk that is well, and the topic with id 1. */
void world_init(struct world *w, const char *name, int dirs_count);
void world_done(struct world *w);
/* Begin a life. Returns the code that the broker could not start with. */
int world_start(struct world *w);
void world_stop(struct world *w);
/* A first life with all partitions made in it, and records; and the next one, which finds them. */
void world_begin(struct world *w, const char *name);
void world_begin_again(struct world *w);

/* Make the topic, or make it anew with another id. */
void world_put_topic(struct world *w, uint8_t id);
/* As the controller does: epoch 0 when it was made in this life, a new one after each registration. */
void world_put_state(struct world *w, int partition, int32_t epoch);

/* For suite_wait(), about `awaited`. */
bool world_is_hosted(void *world);
bool world_is_led_at_last(void *world); /* time goes on */
bool world_is_led_or_told(void *world);
bool world_is_told(void *world); /* so many lines that warn, or errors; time goes on */
bool world_is_noted(void *world);
void world_wait_led(struct world *w, int partition);
/* Until there were so many lines that warn. */
void world_wait_told(struct world *w, int lines);

/* Returns the code; what is acknowledged is counted, and must have the next offset. */
int world_append(struct world *w, int partition);
/* All that was acknowledged is there. */
void world_check_records(struct world *w, int partition);

/* In which directory things are. */
bool world_is_there(const struct world *w, int dir, const char *name);
bool world_has_partition(const struct world *w, int dir, int partition);
int world_dir_of(const struct world *w, int partition);
#endif
