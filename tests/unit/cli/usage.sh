#!/bin/sh
# TAP: wrong words are refused with exit 2 and a sentence; help and version work; offline commands need no cluster.
brook="$top_builddir/client/cli/brook"
golden="$top_srcdir/tests/golden/segment/00000000000000000000"
n=0
unset BROOK_ZOOKEEPER
HOME=/nonexistent
export HOME
check() { # NAME EXIT TEXT-IN-OUTPUT COMMAND...
    name=$1 wanted=$2 text=$3
    shift 3
    n=$((n + 1))
    output=$("$@" 2>&1)
    code=$?
    case $output in *"$text"*) found=1 ;; *) found=0 ;; esac
    if [ $code -eq "$wanted" ] && [ $found = 1 ]; then
        echo "ok $n - $name"
    else
        echo "not ok $n - $name"
        echo "# exit $code, output: $output" | head -n 5 >&2
    fi
}
check "help lists the commands" 0 "topic create" "$brook" --help
check "help of a command" 0 "--key-separator" "$brook" produce --help
check "help of a group of commands" 0 "describe" "$brook" topic --help
check "version" 0 "brook 0." "$brook" --version
check "no arguments is wrong usage" 2 "Usage" "$brook"
check "an unknown command is named" 2 "unknown command 'frobnicate'" "$brook" frobnicate
check "an unknown subcommand is named" 2 "unknown command 'topic frobnicate'" "$brook" topic frobnicate
check "an unknown option is named" 2 "--frobnicate" "$brook" topic list --frobnicate
check "a missing argument is named" 2 "NAME is missing" "$brook" topic create
check "an extra argument is named" 2 "unexpected argument 'b'" "$brook" topic create a b
check "a bad number is named" 2 "--partitions: 'x'" "$brook" -b 127.0.0.1:1 topic create a --partitions x
check "a number out of range is named" 2 "--partitions: '0'" "$brook" -b 127.0.0.1:1 topic create a --partitions 0
check "an option without its value is named" 2 "needs a value" "$brook" topic create a --partitions
check "a bad setting of the library is named" 2 "no.such.key" "$brook" topic list -X no.such.key=1
check "a bad value of the library is named" 2 "linger.ms" "$brook" topic list -X linger.ms=soon
check "a missing configuration file is named" 2 "/nonexistent/brook.conf" "$brook" topic list --config /nonexistent/brook.conf
check "no cluster named is wrong usage" 2 "zookeeper.connect" "$brook" topic list
check "a bad format is refused" 2 "%x" "$brook" -b 127.0.0.1:1 consume t --format %x
check "group and offset exclude each other" 2 "--group" "$brook" -b 127.0.0.1:1 consume t --group g --offset 3
check "a day that is not there is refused" 2 "--from" "$brook" consume t --from 2026-02-31 -b 127.0.0.1:1
check "a bad number of a bench is wrong usage" 2 "--records: 'abc'" "$brook" bench limit --records abc
check "an unreadable file is named" 1 "/nonexistent/input" "$brook" produce t --file /nonexistent/input -b 127.0.0.1:1
check "an unreachable broker is an error, in time" 1 "" "$brook" topic list -b 127.0.0.1:1 --timeout 1
check "log dump reads a golden segment" 0 "baseOffset: 2 lastOffset: 2" "$brook" log dump "$golden.log"
check "log dump prints records" 0 "value: hello" "$brook" log dump --records "$golden.log"
check "log dump prints an index" 0 "offset: 2 position: 91" "$brook" log dump "$golden.index"
check "log dump prints a time index" 0 "timestamp: 1700000000010 offset: 2" "$brook" log dump "$golden.timeindex"
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
head -c 150 "$golden.log" >"$directory/00000000000000000000.log"
check "log dump says where a torn tail begins" 1 "59 invalid bytes at the end, from 91" "$brook" log dump "$directory/00000000000000000000.log"
check "log dump says JSON of an index" 0 '"position":91' "$brook" log dump --json "$golden.index"
check "log dump says JSON of a time index" 0 '"timestamp":1700000000010' "$brook" log dump --json "$golden.timeindex"
check "log dump says JSON of records with their headers" 0 '"headers":[{"key":"h","value":"x"}]' "$brook" log dump -r --json "$golden.log"
check "log dump of an empty partition prints its file" 1 "a batch that is not whole" "$brook" log dump "$directory"
check "log dump refuses what is no segment" 1 "not a .log" "$brook" log dump "$0"
check "the manual page has every command" 0 "brook bench latency" "$brook" --print-manual
check "the settings have a manual page" 0 "linger.ms" sh -c "\"$brook\" --print-config-manual | tr -d '\\\\'"
check "the completion is bash" 0 "" bash -c "source <(\"$brook\" --print-completion) && complete -p brook"
check "one word and two are told apart" 0 "brook cluster [OPTION" "$brook" cluster --help
check "help of a command beneath a command" 0 "--throttle" "$brook" cluster reassign --help
check "a list of brokers is checked" 2 "--brokers: '1,x'" "$brook" -b 127.0.0.1:1 cluster reassign --brokers 1,x
check "plans exclude each other" 2 "exclude each other" "$brook" -b 127.0.0.1:1 cluster reassign --brokers 1 --cancel
check "a plan that is none is refused" 1 "is no plan" sh -c "echo '{\"partitions\":[7]}' >$directory/plan; $brook -b 127.0.0.1:1 cluster reassign --plan $directory/plan"
echo "1..$n"
