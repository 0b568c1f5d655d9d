#!/bin/sh
# TAP: log dump, log verify and log find-time on partition and data directories: what they say, and that they leave
# everything as it was, on a directory that can not be written to as well.
brook="$top_builddir/client/cli/brook"
golden="$top_srcdir/tests/golden/segment"
first=00000000000000000000
n=0
unset BROOK_ZOOKEEPER
HOME=/nonexistent
export HOME
directory=$(mktemp -d)
trap 'chmod -R u+w "$directory"; rm -rf "$directory"' EXIT

report() { # NAME GOOD OUTPUT
    n=$((n + 1))
    if [ "$2" = 1 ]; then echo "ok $n - $1"; else
        echo "not ok $n - $1"
        echo "# $3" | head -n 8 >&2
    fi
}
check() { # NAME EXIT TEXT-IN-OUTPUT COMMAND...
    name=$1 wanted=$2 text=$3 good=0
    shift 3
    output=$("$@" 2>&1)
    code=$?
    case $output in *"$text"*) [ $code -eq "$wanted" ] && good=1 ;; esac
    report "$name" $good "exit $code, output: $output"
}
bytes() { printf %b "$1"; } # of \0ooo

# A data directory as Kafka leaves it: two partitions, one set aside, an aborted transaction, a producer's snapshot.
data=$directory/data
new() {
    [ -e "$data" ] && chmod -R u+w "$data"
    rm -rf "$data"
    mkdir -p "$data/orders-0" "$data/a-b-1" "$data/old-0.0123456789abcdef0123456789abcdef-stray"
    cp "$golden"/* "$data/orders-0"
    cp "$golden"/* "$data/old-0.0123456789abcdef0123456789abcdef-stray"
    : >"$data/a-b-1/$first.log"
    printf '#\n#Tue Nov 14 22:13:20 UTC 2023\nversion=1\nnode.id=1\ncluster.id=abcdefghijklmnopqrstuv\n' >"$data/meta.properties"
    printf '0\n1\norders 0 3\n' >"$data/recovery-point-offset-checkpoint"
    cp "$data/recovery-point-offset-checkpoint" "$data/replication-offset-checkpoint"
    printf '0\n0\n' >"$data/log-start-offset-checkpoint"
    cp "$data/log-start-offset-checkpoint" "$data/cleaner-offset-checkpoint"
    printf '{"version":0,"brokerEpoch":7}' >"$data/.kafka_cleanshutdown"
    printf 'version: 0\ntopic_id: AQIDBAUGBwgJCgsMDQ4PEA' >"$data/orders-0/partition.metadata"
    printf '0\n1\n0 0\n' >"$data/orders-0/leader-epoch-checkpoint"
    bytes '\0\01\0233\0224\0375\0170\0\0\0\01\0\0\0\0\0\0\017\0240\0\03\0\0\0\07\0\0\0\0\0\0\0\0\0\0\0\0\0\0\01\0213\0317\0345\0150\0\0377\0377\0377\0377\0377\0377\0377\0377\0377\0377\0377\0377' \
        >"$data/orders-0/00000000000000000003.snapshot"
    bytes '\0\0\0\0\0\0\0\0\017\0240\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\012\0\0\0\0\0\0\0\013' >"$data/orders-0/$first.txnindex"
}

new
check "all is well in a data directory of Kafka's" 0 "nothing is wrong" "$brook" log verify "$data"
check "what was set aside is noted" 0 "set aside" "$brook" log verify "$data"
check "verify prints a rate" 0 "GB/s" "$brook" log verify "$data/orders-0"
check "verify says JSON" 0 '"damage": 0' sh -c "\"$brook\" log verify --json \"$data/orders-0\" | tr -s ' ' | sed 's/:\\([0-9]\\)/: \\1/g'"
check "a data directory is a table" 0 "orders-0" "$brook" log dump "$data"
check "the table has the topic's id" 0 "AQIDBAUGBwgJCgsMDQ4PEA  1         161    0      3    0" "$brook" log dump "$data"
check "the table as JSON" 0 '"end_offset":3' "$brook" log dump --json "$data"
check "a partition's files are all printed" 0 "topic_id: AQIDBAUGBwgJCgsMDQ4PEA" "$brook" log dump "$data/orders-0"
check "a producer's snapshot is printed" 0 "producerId: 4000 producerEpoch: 3 lastSequence: 7" "$brook" log dump "$data/orders-0/00000000000000000003.snapshot"
check "an aborted transaction is printed" 0 "firstOffset: 0 lastOffset: 10 lastStableOffset: 11" "$brook" log dump "$data/orders-0/$first.txnindex"
check "a time between two records finds the later" 0 "offset: 1 timestamp: 1700000000005" "$brook" log find-time "$data/orders-0" 2023-11-14T22:13:20.001Z
check "a time in seconds" 0 "offset: 0 timestamp: 1700000000000" "$brook" log find-time "$data/orders-0" @1700000000
check "a time between two records finds the later, in seconds" 0 "offset: 2 timestamp: 1700000000010" "$brook" log find-time "$data/orders-0" @1700000000.006
check "a time before now" 1 "no record at or after -1s" "$brook" log find-time "$data/orders-0" -- -1s
check "a bad time is wrong usage" 2 "'soon' is no time" "$brook" log find-time "$data/orders-0" soon
check "a directory that is not there" 1 "nothing-0" "$brook" log verify "$data/nothing-0"
printf '0\n1\norders 0 2\n' >"$data/log-start-offset-checkpoint"
check "deleted records are not found by time" 0 "offset: 2" "$brook" log find-time "$data/orders-0" @1700000000

# What is wrong is told apart, and where.
new; head -c 150 "$golden/$first.log" >"$data/orders-0/$first.log"
check "a torn tail and its position" 1 "torn tail: $data/orders-0/$first.log: at 91: 59 bytes" "$brook" log verify "$data"
new; { head -c 80 "$golden/$first.log"; printf X; tail -c +82 "$golden/$first.log"; } >"$data/orders-0/$first.log"
check "damage in front of a valid batch and its position" 1 "damage: $data/orders-0/$first.log: at 0: 91 bytes" "$brook" log verify "$data"
new; cp "$golden/$first.log" "$data/orders-0/00000000000000000003.log"; head -c 150 "$golden/$first.log" >"$data/orders-0/$first.log"
check "a torn tail with a segment behind it is damage" 1 "damage: $data/orders-0/$first.log: at 91" "$brook" log verify "$data"
new; cat "$golden/$first.log" "$golden/$first.log" >"$data/orders-0/$first.log"
check "offsets that fall are damage" 1 "damage: $data/orders-0/$first.log: at 161" "$brook" log verify "$data"
new; bytes '\0\0\0\02\0\0\0\062' >"$data/orders-0/$first.index"
check "an index entry between two batches" 1 "index: $data/orders-0/$first.index: at 0: no batch begins" "$brook" log verify "$data"
new; bytes '\0\0\0\01\0\0\0\0133' >"$data/orders-0/$first.index"
check "an index entry with another offset" 1 "ends at another offset" "$brook" log verify "$data"
new; head -c 80 /dev/zero >>"$data/orders-0/$first.index"
check "an index that was not trimmed" 1 "index: $data/orders-0/$first.index: at 8: nothing but zeros" "$brook" log verify "$data"
new; head -c 12 /dev/zero >"$data/orders-0/$first.timeindex"
check "a time index of zeros" 1 "index: $data/orders-0/$first.timeindex: at 0" "$brook" log verify "$data"
new; printf x >>"$data/orders-0/$first.index"
check "an index that is no whole number of entries" 1 "not a whole number" "$brook" log verify "$data"
new; rm "$data/orders-0/$first.index" "$data/orders-0/$first.timeindex"
check "indexes that are missing are only noted" 0 "is not there" "$brook" log verify "$data"
new; printf '0\n1\n1 0\n' >"$data/orders-0/leader-epoch-checkpoint"
check "another epoch than the batches'" 1 "offset 0 is of epoch 0, the file says 1" "$brook" log verify "$data"
new; printf '0\n2\n0 0\n5 9\n' >"$data/orders-0/leader-epoch-checkpoint"
check "an epoch behind the log's end" 1 "behind the log's end 3" "$brook" log verify "$data"
for file in meta.properties recovery-point-offset-checkpoint replication-offset-checkpoint log-start-offset-checkpoint \
    .kafka_cleanshutdown orders-0/leader-epoch-checkpoint orders-0/partition.metadata orders-0/00000000000000000003.snapshot \
    orders-0/$first.txnindex; do
    new; printf 'bad' >"$data/$file"
    check "a bad $file" 1 "side file: $data/$file" "$brook" log verify "$data"
    check "a bad $file can be dumped" 1 "$file" "$brook" log dump "$data/$file"
done
new; : >"$data/cleaner-offset-checkpoint"
check "an empty checkpoint is only noted" 0 "is empty" "$brook" log verify "$data"
new; printf old >"$data/orders-0/leader-epoch-checkpoint.tmp"
check "what a crash left is only noted" 0 "leader-epoch-checkpoint.tmp" "$brook" log verify "$data"
# Message format v1: "k" -> "v" at offset 0, with its own checksum.
new; rm "$data/orders-0/$first.index" "$data/orders-0/$first.timeindex"
bytes '\0\0\0\0\0\0\0\0\0\0\0\030' >"$directory/v1"
bytes '\01\0\0\0\01\0213\0317\0345\0150\0\0\0\0\01k\0\0\0\01v' >"$directory/body"
sum=$(gzip -c "$directory/body" | tail -c 8 | od -An -tu4 -N4 --endian=little | tr -d ' ')
bytes "$(printf '\\0%03o\\0%03o\\0%03o\\0%03o' $((sum >> 24 & 255)) $((sum >> 16 & 255)) $((sum >> 8 & 255)) $((sum & 255)))" >>"$directory/v1"
cat "$directory/v1" "$directory/body" >"$data/orders-0/$first.log"
check "a format before v2 is named" 1 "a message of a format before v2" "$brook" log verify "$data"

# A log that is cut while it is dumped: the dump waits for room in the pipe, far from the end, when it happens.
grown=$directory/$first.log
cat "$golden/$first.log" >"$grown"
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do cat "$grown" "$grown" >"$grown.double" && mv "$grown.double" "$grown"; done
output=$({ "$brook" log dump "$grown" 2>"$directory/said"; echo "exit $?" >"$directory/code"; } | { read -r line; : >"$grown"; cat >/dev/null; }
    cat "$directory/code"; grep -v "do not rise" "$directory/said")
good=0; case $output in "exit 1"*"became shorter while it was read"*) good=1 ;; esac
report "a log that is cut while it is dumped" $good "$output"

# A segment that is removed while the one before it is checked: what is found there fills the pipe first.
new; cat "$golden/$first.log" >"$grown"
for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do cat "$grown" "$grown" >"$grown.double" && mv "$grown.double" "$grown"; done
mv "$grown" "$data/orders-0/$first.log"
cp "$golden/$first.log" "$data/orders-0/00000000000000000003.log"
output=$("$brook" log verify "$data/orders-0" 2>&1 | { read -r line; rm "$data/orders-0/00000000000000000003.log"; grep -v "below 3 that came"; })
good=0; case $output in *"No such file"*) ;; *"1 segments, "*) good=1 ;; esac
report "a segment that is removed while another is checked" $good "$output"

new; ln -s nothing "$data/a-b-1/00000000000000000009.log"
check "what can not be read is told" 1 "unreadable: $data/a-b-1: opening" "$brook" log verify "$data"
check "and the other partitions are checked" 1 "3 segments" "$brook" log verify "$data"
check "and nothing is said to be well" 0 "" sh -c "! \"$brook\" log verify \"$data\" \"$data/a-b-1\" 2>&1 | grep 'nothing is wrong'"
check "nor of a partition alone" 0 "" sh -c "! \"$brook\" log verify \"$data/a-b-1\" 2>&1 | grep 'nothing is wrong'"

# Nothing is changed: names, contents, sizes, times of change; and no right to write is needed.
new
chmod -R a-w "$data"
look() { (cd "$data" && find . -printf '%p %m %s %T@ %C@\n' | sort && find . -type f -exec cksum {} + | sort); }
before=$(look)
as_other="env"
[ "$(id -u)" = 0 ] && command -v setpriv >/dev/null && chmod a+rx "$directory" && as_other="setpriv --bounding-set -all --inh-caps -all --ambient-caps -all --reuid 65534 --regid 65534 --clear-groups"
run_all() {
    # A libtool wrapper must be able to find its library: only a program that runs is tried without rights.
    "$@" "$brook" log verify "$data" && "$@" "$brook" log dump -r "$data" "$data/orders-0" && "$@" "$brook" log find-time "$data/orders-0" @1700000000
}
if $as_other "$brook" --version >/dev/null 2>&1; then output=$(run_all $as_other 2>&1); else output=$(run_all env 2>&1); fi
code=$?
good=0; [ $code = 0 ] && good=1
report "a directory without the right to write can be read" $good "exit $code: $output"
good=0; [ "$before" = "$(look)" ] && good=1
report "nothing in it was changed" $good "$before
$(look)"
echo "1..$n"
