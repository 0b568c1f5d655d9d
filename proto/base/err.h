/* The one list of errors.
 *
 * Broker, wire, library, command line and documentation are made from BROOK_ERRORS below: a number that
 * never changes its meaning, a name, a text for people, and advice for programs. Functions return 0 or the
 * negative number (-BROOK_E_IO). A number that this list does not have (a newer peer sent it) is kept as it
 * is; brook_error_advice() then answers by range: 100 and above is BROOK_ADVICE_RETRY, all else FATAL.
 *
 * This header is installed as <brook/err.h>. Everything here is constant data or pure: any thread.
 */
#ifndef BROOK_ERR_H
#define BROOK_ERR_H

#include <stdarg.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* What a program should do about an error. */
enum brook_advice {
    BROOK_ADVICE_NONE,    /* success */
    BROOK_ADVICE_RETRY,   /* the same call may work later */
    BROOK_ADVICE_REFRESH, /* fetch metadata again, then retry */
    BROOK_ADVICE_FIX,     /* the request is wrong and stays wrong */
    BROOK_ADVICE_FATAL,   /* this client or broker can not go on */
    BROOK_ADVICE_FENCED,  /* somebody else has the right now: give it up */
    BROOK_ADVICE_UNKNOWN  /* it may or may not have happened */
};

/* X(number, name, advice, text) */
#define BROOK_ERRORS(X) \
    X(0, OK, NONE, "success") \
    /* this process */ \
    X(1, NOMEM, RETRY, "out of memory") \
    X(2, IO, RETRY, "input or output failed") \
    X(3, INVALID, FIX, "invalid argument") \
    X(4, TIMED_OUT, UNKNOWN, "timed out") \
    X(5, DISCONNECTED, UNKNOWN, "the connection was lost") \
    X(6, CLOSED, FATAL, "the handle is closed") \
    X(7, QUEUE_FULL, RETRY, "the queue is full") \
    X(8, AGAIN, RETRY, "nothing yet") \
    X(9, NOT_FOUND, FIX, "not found") \
    X(10, EXISTS, FIX, "exists already") \
    X(11, UNSUPPORTED, FIX, "not supported") \
    X(12, CONFIG, FIX, "bad configuration") \
    X(13, PURGED, FIX, "given up on request") \
    X(14, CONNECT_FAILED, RETRY, "could not connect") \
    X(15, LOCKED, FIX, "in use by another process") \
    /* frames and messages */ \
    X(20, BAD_FRAME, FIX, "malformed frame") \
    X(21, FRAME_TOO_LARGE, FIX, "the frame is larger than allowed") \
    X(22, BAD_ENVELOPE, FIX, "malformed message") \
    X(23, UNSUPPORTED_VERSION, FATAL, "no protocol version in common") \
    X(24, NOT_BROOK, FIX, "the peer speaks another protocol") \
    X(25, REQUEST_EXPIRED, RETRY, "the request's deadline had passed before it was carried out") \
    X(26, TOO_MANY, FIX, "more than the limit allows") \
    X(27, BUSY, RETRY, "the broker is at a limit") \
    /* record batches */ \
    X(29, PRODUCER_FENCED, FENCED, "the producer id is used with a newer epoch") \
    X(30, CORRUPT_BATCH, RETRY, "the record batch's checksum is wrong") \
    X(31, BAD_BATCH, FIX, "malformed record batch") \
    X(32, MESSAGE_TOO_LARGE, FIX, "the record is larger than allowed") \
    X(33, UNSUPPORTED_CODEC, FIX, "unknown compression codec") \
    X(34, EXPANDS_TOO_FAR, FIX, "the compressed batch expands beyond its limit") \
    X(35, UNSUPPORTED_FORMAT, FIX, "message format older than v2 is not supported") \
    X(36, OUT_OF_SEQUENCE, FATAL, "the batch's sequence number is not the next one") \
    X(37, DUPLICATE_SEQUENCE, FIX, "the batch was stored before") \
    X(38, UNKNOWN_PRODUCER, RETRY, "the producer id is not known") \
    X(39, INVALID_TIMESTAMP, FIX, "the timestamp is outside the allowed window") \
    /* topics and their configuration */ \
    X(40, UNKNOWN_TOPIC, REFRESH, "unknown topic") \
    X(41, UNKNOWN_PARTITION, REFRESH, "unknown partition") \
    X(42, TOPIC_EXISTS, FIX, "the topic exists already") \
    X(43, ILLEGAL_NAME, FIX, "illegal name") \
    X(44, TOPIC_ID_MISMATCH, REFRESH, "the topic was made anew under the same name") \
    X(45, INVALID_CONFIG, FIX, "invalid topic configuration") \
    X(46, INVALID_PARTITIONS, FIX, "invalid number of partitions") \
    X(47, INVALID_REPLICATION, FIX, "invalid number of replicas") \
    X(48, TOPIC_BEING_DELETED, RETRY, "the topic is being deleted") \
    X(49, INVALID_RECORD, FIX, "the topic takes no such record") \
    /* leadership */ \
    X(50, NOT_LEADER, REFRESH, "the broker does not lead the partition") \
    X(51, NO_LEADER, REFRESH, "the partition has no leader") \
    X(52, FENCED_EPOCH, REFRESH, "the leader epoch is older than the broker's") \
    X(53, UNKNOWN_EPOCH, RETRY, "the leader epoch is newer than the broker's") \
    X(54, NOT_ENOUGH_REPLICAS, RETRY, "fewer replicas in sync than min.insync.replicas") \
    X(55, NOT_ENOUGH_REPLICAS_AFTER_APPEND, UNKNOWN, "stored by fewer replicas than min.insync.replicas") \
    X(56, BROKER_NOT_AVAILABLE, RETRY, "the broker is not available") \
    X(57, NOT_CONTROLLER, RETRY, "the broker is not the controller") \
    X(58, STALE_BROKER_EPOCH, FENCED, "the broker epoch is not the newest") \
    X(59, LOG_DIVERGED, RETRY, "the reader's log is not a beginning of the leader's") \
    /* offsets and groups */ \
    X(60, OFFSET_OUT_OF_RANGE, FIX, "the offset is outside the log") \
    X(61, OFFSET_NOT_AVAILABLE, RETRY, "the offset is not known yet") \
    X(62, NO_OFFSET, FIX, "no offset is stored") \
    X(63, FENCED, FENCED, "another member owns the partition") \
    X(64, STALE_MEMBER, FENCED, "the member is not registered any more: rejoin") \
    X(65, OWNED, FIX, "a member of the group owns the partition") \
    X(66, UNKNOWN_GROUP, FIX, "unknown group") \
    X(67, GROUP_NOT_EMPTY, FIX, "the group has members") \
    X(68, NOT_ASSIGNED, FIX, "the partition is not assigned to this consumer") \
    /* storage */ \
    X(70, STORAGE_FULL, RETRY, "the disk is full") \
    X(71, STORAGE_ERROR, RETRY, "the disk failed") \
    X(72, LOG_OFFLINE, REFRESH, "the log is offline") \
    /* coordination */ \
    X(80, COORDINATION_LOST, RETRY, "ZooKeeper can not be reached") \
    X(81, OUTCOME_UNKNOWN, UNKNOWN, "the outcome is not known") \
    X(82, BAD_VERSION, RETRY, "the znode has another version") \
    X(83, NO_NODE, RETRY, "no such znode") \
    X(84, NODE_EXISTS, RETRY, "the znode exists") \
    X(85, NOT_EMPTY, RETRY, "the znode has children") \
    X(86, SESSION_EXPIRED, UNKNOWN, "the ZooKeeper session has expired") \
    X(87, NODE_TOO_LARGE, FIX, "the request is larger than ZooKeeper allows") \
    X(88, BAD_ZNODE, FIX, "the znode's content makes no sense") \
    X(89, ZOOKEEPER_AUTH, FATAL, "ZooKeeper refused the credentials") \
    /* pull sessions */ \
    X(90, UNKNOWN_PULL_SESSION, RETRY, "the pull session is not known") \
    X(91, BAD_PULL_SESSION_EPOCH, RETRY, "the pull session's epoch is not the next one") \
    X(92, SUPERSEDED, RETRY, "a newer pull of the session has taken its place") \
    /* access */ \
    X(95, ACCESS_DENIED, FIX, "access denied") \
    X(96, AUTHENTICATION_REQUIRED, FATAL, "authentication is required") \
    /* from here on: unknown numbers are worth a retry */ \
    X(100, SERVER_ERROR, RETRY, "internal error of the broker") \
    X(101, STOPPING, REFRESH, "the broker is stopping") \
    /* administration of the cluster */ \
    X(110, INVALID_REPLICAS, FIX, "invalid list of replicas") \
    X(111, NO_REASSIGNMENT, FIX, "no reassignment is running") \
    X(112, PREFERRED_NOT_AVAILABLE, RETRY, "the preferred replica can not lead now")

enum brook_err {
#define X(number, name, advice, text) BROOK_E_##name = (number),
    BROOK_ERRORS(X)
#undef X
};

/* A code together with a sentence that names the thing it is about. Plain data, owned by whoever holds it. */
struct brook_error {
    int code; /* 0 or a positive number of the list */
    char text[252];
};

/* All three take the number with either sign. Never NULL; static strings. */
const char *brook_error_name(int code);
const char *brook_error_text(int code);
enum brook_advice brook_error_advice(int code);

/* Fill *error (may be NULL: then nothing is written) and return -code, so that
 * `return brook_error_set(e, BROOK_E_INVALID, "...")` reads well. A too long sentence is cut. */
int brook_error_set(struct brook_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int brook_error_setv(struct brook_error *error, int code, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
