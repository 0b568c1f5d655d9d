#!/usr/bin/env bash
# TAP: the format against a real Apache Kafka, both ways. Only with KAFKA_LIBS=DIRECTORY, which holds Kafka's jars (4.x: the
# libs/ of a release, or kafka_2.13 and what it depends on); Java, and a JDK's `java FILE.java`, are needed as well.
#
#   Kafka's broker writes (every codec, transactions committed and aborted) and is stopped, then killed: `brook log verify`
#   finds its directory well, and brookd serves its segments, record by record.
#   brookd writes (every codec): Kafka's dump tool reads segments, indexes and time indexes without a complaint, and the
#   records are the same.
skip() { echo "1..0 # SKIP $*"; exit 0; }
[ -n "${KAFKA_LIBS:-}" ] || skip "no Kafka given: KAFKA_LIBS is not set"
command -v java >/dev/null || skip "no java"
ls "$KAFKA_LIBS"/kafka_2.*.jar >/dev/null 2>&1 || skip "no kafka_2.x jar in $KAFKA_LIBS"
[ -e /usr/share/java/zookeeper.jar ] || skip "no ZooKeeper"

top=$(cd "${top_srcdir:-.}" && pwd)
build=$(cd "${top_builddir:-build}" && pwd)
home=$(mktemp -d)
mkdir -p "$home/run" "$home/log"
. "$top/scripts/lib.sh"
brook() { "$build/client/cli/brook" "$@"; }
codecs="none gzip snappy lz4 zstd"
records=20000
n=0

finish() {
    end TERM broker-1
    end KILL zookeeper
    end KILL kafka
    rm -rf "$home"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM
report() { # CODE NAME [FILE]
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; else
        echo "not ok $n - $2"
        [ -z "${3:-}" ] || sed 's/^/# /' "$3" | tail -n 12 >&2
    fi
}
kafka() { java -Xmx512m -cp "$KAFKA_LIBS/*" "$@"; }

# ---- Kafka writes ---------------------------------------------------------------------------------------------------------

start_kafka() {
    setsid java -Xmx512m -cp "$KAFKA_LIBS/*" kafka.Kafka "$home/kafka.properties" >"$home/log/kafka.log" 2>&1 </dev/null &
    remember kafka $!
    disown
    wait_for 60 "Kafka" listens
}
listens() { ! port_is_free "$kafka_port"; }
kafka_port=$(free_port)
cat >"$home/kafka.properties" <<EOF
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((kafka_port + 1))
listeners=PLAINTEXT://127.0.0.1:$kafka_port,CONTROLLER://127.0.0.1:$((kafka_port + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$kafka_port
controller.listener.names=CONTROLLER
log.dirs=$home/kafka
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
EOF
kafka kafka.tools.StorageTool format -t AQIDBAUGBwgJCgsMDQ4PEA -c "$home/kafka.properties" >"$home/log/format.log" 2>&1
report $? "Kafka's storage is formatted" "$home/log/format.log"
start_kafka
kafka "$top/tests/golden/KafkaWriter.java" "127.0.0.1:$kafka_port" $records >"$home/written" 2>"$home/log/writer.log"
report $? "Kafka's producer writes every codec and transactions" "$home/log/writer.log"
end TERM kafka
[ -e "$home/kafka/.kafka_cleanshutdown" ]
report $? "Kafka stopped cleanly" "$home/log/kafka.log"

brook log verify "$home/kafka" >"$home/log/verify" 2>&1
report $? "brook log verify finds nothing wrong in Kafka's data directory" "$home/log/verify"
brook log dump "$home/kafka" >"$home/log/dump" 2>&1 && grep -q '^k-zstd-0 ' "$home/log/dump"
report $? "brook log dump shows Kafka's data directory" "$home/log/dump"
brook log dump "$home"/kafka/k-transactions-0 >"$home/log/dump" 2>&1 && grep -q 'isControl: true' "$home/log/dump" &&
    [ "$(grep -c 'lastStableOffset' "$home/log/dump")" = 2 ]
report $? "control batches and aborted transactions are shown" "$home/log/dump"

# ---- brookd serves it -----------------------------------------------------------------------------------------------------

start_zookeeper >/dev/null
export BROOK_ZOOKEEPER=127.0.0.1:$zookeeper_port/brook
start_broker 1
wait_for 30 "the broker" brokers_count 1
for topic in $(cut -d' ' -f1 "$home/written" | sort -u); do brook topic create "$topic" --partitions 1; done >/dev/null
end TERM broker-1
for topic in $(cut -d' ' -f1 "$home/written" | sort -u); do
    rm "$home/data-1/$topic-0"/0*
    cp "$home/kafka/$topic-0"/0* "$home/kafka/$topic-0/leader-epoch-checkpoint" "$home/data-1/$topic-0"
done
rm -f "$home"/data-1/*-offset-checkpoint "$home/data-1/.kafka_cleanshutdown"
start_broker 1
wait_for 30 "the broker" brokers_count 1
served() {
    local topic code all=0
    for topic in $(cut -d' ' -f1 "$home/written" | sort -u); do
        brook consume "$topic" --until-end --format '%t %o %v\n' >"$home/one"
        code=$?
        [ $code = 0 ] || all=1
        echo "$topic: exit $code, $(wc -l <"$home/one") records" >&2
        cat "$home/one"
    done
    return $all
}
served >"$home/served" 2>"$home/log/consume.log" && sort "$home/written" | cmp -s - <(sort "$home/served")
report $? "brookd serves what Kafka wrote, record by record ($(wc -l <"$home/served") of $(wc -l <"$home/written"))" "$home/log/consume.log"
[ "$(grep -c 'recovered: ' "$home/log/broker-1.log")" = 6 ] && ! grep -q 'can not be opened' "$home/log/broker-1.log"
report $? "every log of Kafka's was scanned and opened" "$home/log/broker-1.log"

# ---- a Kafka that is killed -----------------------------------------------------------------------------------------------

start_kafka
end KILL kafka
brook log verify "$home/kafka" >"$home/log/verify" 2>&1
! grep -q '^damage' "$home/log/verify" && grep -q 'nothing but zeros from here on' "$home/log/verify"
report $? "of a killed Kafka the indexes are untrimmed and nothing is damaged" "$home/log/verify"

# ---- Brook writes, Kafka's dump tool reads --------------------------------------------------------------------------------

for codec in $codecs; do
    brook topic create "b-$codec" --partitions 1 --set segment.bytes=1048576 --set max.message.bytes=1048576 >/dev/null
    seq 1 $records | sed "s/^\(.*\)$/k\1:value \1 of $codec, long enough that several segments are needed/" |
        brook produce "b-$codec" --key-separator : --compression "$codec" --batch-size 4096 >/dev/null 2>"$home/log/produce.log"
    report $? "brook produces with $codec" "$home/log/produce.log"
done
end TERM broker-1
# What the tool says about a file that is not as it should be.
complaints='isvalid: false|Mismatches in|Non-consecutive|invalid bytes|out of order|Exception|ERROR|Could not'
for codec in $codecs; do
    list=$(ls "$home/data-1/b-$codec-0"/0*.log "$home/data-1/b-$codec-0"/0*index | paste -sd,)
    kafka kafka.tools.DumpLogSegments --files "$list" --print-data-log >"$home/kafka-dump" 2>&1
    code=$?
    [ $code = 0 ] && ! grep -E "$complaints" "$home/kafka-dump" >"$home/log/complaints" &&
        [ "$(sed -n 's/^| offset: .* payload: //p' "$home/kafka-dump" | cksum)" = \
          "$(seq 1 $records | sed "s/^\(.*\)$/value \1 of $codec, long enough that several segments are needed/" | cksum)" ]
    report $? "Kafka's dump tool reads $(ls "$home/data-1/b-$codec-0"/0*.log | wc -l) segments of $codec with their indexes" "$home/log/complaints"
done
brook log verify "$home/data-1" >"$home/log/verify" 2>&1
report $? "brook log verify finds nothing wrong in Brook's data directory" "$home/log/verify"
echo "1..$n"
