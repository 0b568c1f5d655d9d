/* The controller at work: carries out what controller.h decides, as long as this broker holds the seat.
 *
 * Level-triggered: it is shown topics and brokers as the image knows them, decides, and writes states and the
 * notification that names them in multis that check the controller epoch. What fails is read again and
 * decided again; nothing is remembered that is not in ZooKeeper, so the next controller goes on where this
 * one stopped. The cluster thread's alone.
 */
#ifndef BROOK_CLUSTER_CONTROLLER_DRIVER_H
#define BROOK_CLUSTER_CONTROLLER_DRIVER_H

#include "broker/cluster/image.h"
#include "broker/cluster/state_reader.h"
#include "coordination/coordinator.h"

struct controller_driver;
struct diag;
struct quota;

#define CONTROLLER_STATES_PER_WRITE 100
#define CONTROLLER_WRITES_IN_FLIGHT_MAX 8

struct controller_driver_settings {
    struct coordinator *coordinator;
    struct inbox *inbox;
    struct image *image;
    struct state_reader *reader;
    struct quota *quota; /* the throttle of moves */
    const struct diag *diag;
    bool rebalance_leaders;         /* auto.leader.rebalance.enable */
    int64_t rebalance_interval_ms;  /* leader.imbalance.check.interval.seconds */
    int64_t absent_wait_ms;         /* leader.election.absent.wait.ms */
    /* A write was refused for its epoch: another controller was elected. Call controller_driver_stop(). */
    void (*outdated)(void *arg);
    void *arg;
};

int controller_driver_new(const struct controller_driver_settings *settings,
                          struct controller_driver **ret_driver);
/* After the coordinator was freed and the inbox drained. NULL is fine. */
void controller_driver_free(struct controller_driver *driver);

/* The seat is ours, with this epoch and this version of /controller_epoch; everything is looked at as soon as
 * the image is complete. */
void controller_driver_start(struct controller_driver *driver, int32_t epoch, int32_t epoch_version);
/* The seat is lost: writes under way end by themselves, nothing new is begun. */
void controller_driver_stop(struct controller_driver *driver);
bool controller_driver_is_active(const struct controller_driver *driver);

/* A broker has told the ends of its logs of this topic. */
void controller_driver_read_ends(struct controller_driver *driver, const char *topic);
/* A topic has changed in the image. */
void controller_driver_consider(struct controller_driver *driver, struct image_topic *topic);
/* Brokers, or much else, have changed: consider all topics. */
void controller_driver_consider_all(struct controller_driver *driver);
/* To be called at the end of each turn: writes what was decided, begins deletions, and looks at everything if
 * that is due and the image is complete. Returns when to call again if nothing happens before. */
int64_t controller_driver_run(struct controller_driver *driver, int64_t now_ms);
#endif
