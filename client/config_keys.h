/* The one table of libbrook's settings. Everything that knows a setting is made from it: the checks of
 * brook_config_set(), the getters of client/config.h, `brook config`, and the manual page brook-config(5).
 *
 * X(identifier, key, kind, standard, least, most, choices, description)
 *   kind      TEXT, NUMBER, BYTES, MS (numbers with a unit), FLAG, CHOICE (`choices`, split by |)
 *   standard  the default, as text; "" is allowed for TEXT only
 *   least, most  the range of numbers, both ends included
 */
#ifndef BROOK_CLIENT_CONFIG_KEYS_H
#define BROOK_CLIENT_CONFIG_KEYS_H

#define CONFIG_YEAR_MS (366LL * 24 * 3600 * 1000)
#define CONFIG_GIB (1LL << 30)

#define CONFIG_KEYS_COMMON(X) \
    X(ZOOKEEPER_CONNECT, "zookeeper.connect", TEXT, "", 0, 0, NULL, \
      "ZooKeeper servers, host:port,host:port/chroot. Brokers are found there; groups need it.") \
    X(BOOTSTRAP_SERVERS, "bootstrap.servers", TEXT, "", 0, 0, NULL, \
      "Brokers to ask first, host:port,host:port. Takes precedence over zookeeper.connect for finding" \
      " brokers.") \
    X(CLIENT_ID, "client.id", TEXT, "libbrook", 0, 0, NULL, \
      "Name of this client in the brokers' logs and quotas, at most 255 bytes.") \
    X(METADATA_MAX_AGE, "metadata.max.age.ms", MS, "300000", 100, CONFIG_YEAR_MS, NULL, \
      "Ask for leaders and partitions again after this long, even if nothing failed.") \
    X(REQUEST_TIMEOUT, "request.timeout.ms", MS, "30000", 1, 3600000, NULL, \
      "How long to wait for the reply to one request.") \
    X(CONNECT_TIMEOUT, "connect.timeout.ms", MS, "10000", 1, 3600000, NULL, \
      "How long a connection may take until the broker has answered Hello.") \
    X(RECONNECT_BACKOFF, "reconnect.backoff.ms", MS, "50", 1, 3600000, NULL, \
      "Wait before connecting again to a broker that failed; doubles with each failure.") \
    X(RECONNECT_BACKOFF_MAX, "reconnect.backoff.max.ms", MS, "1000", 1, 3600000, NULL, \
      "The longest wait before connecting again.") \
    X(CONNECTIONS_MAX_IDLE, "connections.max.idle.ms", MS, "540000", 0, CONFIG_YEAR_MS, NULL, \
      "Close connections that were not used for this long. 0: never.") \
    X(SOCKET_FRAME_BYTES_MAX, "receive.frame.max.bytes", BYTES, "104857600", 4096, 4 * CONFIG_GIB - 1, NULL, \
      "The largest reply that is accepted from a broker.")

#define CONFIG_KEYS_PRODUCER(X) \
    X(ACKS, "acks", CHOICE, "all", 0, 0, "all|leader|none|-1|1|0", \
      "When a record counts as stored: all (in-sync replicas have it), leader (its leader has it), " \
      "none (sent).") \
    X(ENABLE_IDEMPOTENCE, "enable.idempotence", FLAG, "true", 0, 0, NULL, \
      "Let brokers store each record once and in order, however often its batch is sent. Needs acks=all, " \
      "retries and at most 5 for max.in.flight.requests.per.partition: with other settings true is " \
      "refused, and the default gives way.") \
    X(BATCH_SIZE, "batch.size", BYTES, "262144", 1, CONFIG_GIB, NULL, \
      "Close a partition's batch when its records reach this size. 1: one record per batch and per " \
      "request.") \
    X(BATCH_RECORDS_MAX, "batch.records.max", NUMBER, "1000000", 1, 1000000, NULL, \
      "Close a partition's batch at this number of records.") \
    X(LINGER, "linger.ms", MS, "5", 0, 900000, NULL, \
      "Let a batch that is not full wait this long for more records. 0: send at once.") \
    X(COMPRESSION, "compression", CHOICE, "none", 0, 0, "none|gzip|snappy|lz4|zstd", \
      "Codec of the batches.") \
    X(BUFFER_MEMORY, "buffer.memory", BYTES, "67108864", 65536, 1024 * CONFIG_GIB, NULL, \
      "Memory of records that wait or are in flight. Beyond it send answers QUEUE_FULL or waits.") \
    X(DELIVERY_TIMEOUT, "delivery.timeout.ms", MS, "120000", 1, CONFIG_YEAR_MS, NULL, \
      "Report a record as failed when it was not stored within this time of its send, retries included.") \
    X(RETRIES, "retries", NUMBER, "2147483647", 0, 2147483647, NULL, \
      "How often a batch is sent again after a failure. 0: never, so that nothing can be stored twice " \
      "(there is no idempotence then).") \
    X(RETRY_BACKOFF, "retry.backoff.ms", MS, "100", 1, 300000, NULL, \
      "Wait before a failed batch is sent again; doubles with each failure.") \
    X(RETRY_BACKOFF_MAX, "retry.backoff.max.ms", MS, "1000", 1, 300000, NULL, \
      "The longest wait before a failed batch is sent again.") \
    X(MAX_IN_FLIGHT, "max.in.flight.requests.per.connection", NUMBER, "32", 1, 100000, NULL, \
      "Produce requests that may be on their way to one broker.") \
    X(MAX_IN_FLIGHT_PARTITION, "max.in.flight.requests.per.partition", NUMBER, "0", 0, 100000, NULL, \
      "What may be on its way for one partition: batches with idempotence, else produce requests. 0: 5 with " \
      "idempotence; without it one, so that a batch that has to be sent again never comes behind a later " \
      "one, but as many as the connection allows where retries is 0. Without idempotence more than one " \
      "with retries risks the order of records.") \
    X(MAX_REQUEST_SIZE, "max.request.size", BYTES, "2097152", 1024, CONFIG_GIB, NULL, \
      "The largest record, and about the largest request: batches of several partitions share one up " \
      "to this size.") \
    X(PARTITIONER, "partitioner", CHOICE, "murmur2", 0, 0, "murmur2|random", \
      "Partition of a record that names none: murmur2 of its key as Kafka's producer does; without a " \
      "key, and always with random, one partition at random until its batch is full.") \
    X(STATISTICS_INTERVAL, "statistics.interval.ms", MS, "0", 0, 86400000, NULL, \
      "Write statistics to the log callback at this interval. 0: never.")

#define CONFIG_KEYS_CONSUMER(X) \
    X(CLIENT_RACK, "client.rack", TEXT, "", 0, 0, NULL, \
      "Where this consumer stands, as broker.rack says it of brokers, at most 255 bytes: it reads from a replica " \
      "in that rack that is in sync, else from the leader.") \
    X(GROUP_ID, "group.id", TEXT, "", 0, 0, NULL, "The group that shares the topics; at most 100 bytes.") \
    X(GROUP_INSTANCE_ID, "group.instance.id", TEXT, "", 0, 0, NULL, \
      "Name of a static member, unique in its group: it keeps its partitions over a restart. Needs " \
      "state.dir.") \
    X(STATE_DIR, "state.dir", TEXT, "", 0, 0, NULL, \
      "Directory in which static members keep their ZooKeeper session.") \
    X(SESSION_TIMEOUT, "session.timeout.ms", MS, "10000", 100, 3600000, NULL, \
      "A member that is not heard of for this long loses its partitions. Asked for; ZooKeeper may " \
      "answer another.") \
    X(AUTO_OFFSET_RESET, "auto.offset.reset", CHOICE, "latest", 0, 0, "earliest|latest|none", \
      "Where to begin when the group has no offset, or the offset is not in the log any more. none: " \
      "an error.") \
    X(ENABLE_AUTO_COMMIT, "enable.auto.commit", FLAG, "true", 0, 0, NULL, \
      "Commit offsets of released batches by itself.") \
    X(AUTO_COMMIT_INTERVAL, "auto.commit.interval.ms", MS, "5000", 10, 86400000, NULL, \
      "How often offsets are committed by itself.") \
    X(MAX_POLL_INTERVAL, "max.poll.interval.ms", MS, "300000", 100, CONFIG_YEAR_MS, NULL, \
      "A member that does not poll for this long leaves its group until it polls again.") \
    X(REBALANCE_DRAIN, "rebalance.drain.ms", MS, "5000", 0, 3600000, NULL, \
      "Time for the application to finish what it holds of a partition that goes to another member.") \
    X(REBALANCE_SETTLE, "rebalance.settle.ms", MS, "200", 0, 60000, NULL, \
      "Wait about this long after a change in the group before assigning anew, so that changes come " \
      "together.") \
    X(GROUP_ON_LEASE_LOSS, "group.on.lease.loss", CHOICE, "stop", 0, 0, "stop|continue", \
      "What to do when ZooKeeper was not heard of for half the session timeout: stop delivering, or " \
      "continue and risk that records are delivered twice.") \
    X(PARTITION_ASSIGNMENT_STRATEGY, "partition.assignment.strategy", CHOICE, "sticky", 0, 0, \
      "range|roundrobin|sticky", "How a group divides partitions; the oldest member's wins.") \
    X(FETCH_MIN_BYTES, "fetch.min.bytes", BYTES, "1", 0, CONFIG_GIB, NULL, \
      "A broker answers a pull when it has this much, or at fetch.max.wait.ms.") \
    X(FETCH_MAX_BYTES, "fetch.max.bytes", BYTES, "8388608", 1, CONFIG_GIB, NULL, \
      "The most that one pull asks for; a single larger batch is still delivered.") \
    X(MAX_PARTITION_FETCH_BYTES, "max.partition.fetch.bytes", BYTES, "4194304", 1, CONFIG_GIB, NULL, \
      "The most that one pull asks for of one partition; a single larger batch is still delivered.") \
    X(FETCH_MAX_WAIT, "fetch.max.wait.ms", MS, "500", 0, 3600000, NULL, \
      "How long a broker may hold a pull for which there is nothing.") \
    X(QUEUED_MAX_BYTES, "queued.max.bytes", BYTES, "67108864", 65536, 1024 * CONFIG_GIB, NULL, \
      "Memory of batches pulled ahead and of batches not yet released.") \
    X(CHECK_CRCS, "check.crcs", FLAG, "true", 0, 0, NULL, "Check the checksum of every batch.")

#define CONFIG_KEYS(X) CONFIG_KEYS_COMMON(X) CONFIG_KEYS_PRODUCER(X) CONFIG_KEYS_CONSUMER(X)
#endif
