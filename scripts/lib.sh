# Shared by the scripts that run a cluster: processes, ZooKeeper, brokers. To be sourced by bash with `home` (a directory
# of one's own; has run/ and log/) and `build` (a build tree) set.

say() { printf '\n== %s\n' "$*"; }
fail() { echo "${0##*/}: $*" >&2; exit 1; }

# ---- processes: a pid file holds the pid and its start time, so that only our own are ever signalled ------------------

start_time_of() { # PID
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
    stat=${stat##*) }
    set -- $stat
    [ "$1" = Z ] || echo "${20}" # one that has ended and waits for its parent is gone
}
remember() { echo "$2 $(start_time_of "$2")" >"$home/run/$1.pid"; } # NAME PID
alive() {                                                         # NAME
    local pid started
    read -r pid started 2>/dev/null <"$home/run/$1.pid" || return 1
    [ -n "$started" ] && [ "$(start_time_of "$pid")" = "$started" ]
}
pid_of() { cut -d' ' -f1 "$home/run/$1.pid"; }
wait_for() { # SECONDS WHAT COMMAND...
    local until=$(($(date +%s) + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$(date +%s)" -lt "$until" ] || fail "waited in vain for $what; logs are in $home/log"
        sleep 0.05
    done
}
gone() { ! alive "$1"; }
end() { # SIGNAL NAME
    alive "$2" || return 0
    kill -s "$1" "$(pid_of "$2")" 2>/dev/null || true
    for _ in $(seq 200); do
        alive "$2" || return 0
        sleep 0.05
    done
    kill -s KILL "$(pid_of "$2")" 2>/dev/null || true
}
# ---- ZooKeeper --------------------------------------------------------------------------------------------------------

port_is_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
free_port() {
    local port
    for _ in $(seq 100); do
        port=$((20000 + RANDOM % 12000))
        port_is_free "$port" && { echo "$port"; return; }
    done
    fail "found no free port"
}
zookeeper_answers() {
    local answer
    exec 3<>"/dev/tcp/127.0.0.1/$zookeeper_port" || return 1
    printf srvr >&3
    read -r -t 0.15 -u 3 answer || { exec 3>&-; return 1; }
    exec 3>&-
    [[ $answer == Zookeeper* ]]
}
start_zookeeper() {
    zookeeper_port=$(free_port)
    cat >"$home/zoo.cfg" <<EOF
tickTime=500
dataDir=$home/zookeeper
clientPort=$zookeeper_port
clientPortAddress=127.0.0.1
maxClientCnxns=0
EOF
    setsid java -Xms32m -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData \
        -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dzookeeper.admin.enableServer=false \
        -Dzookeeper.nio.numWorkerThreads=0 -Dzookeeper.preAllocSize=64 \
        -cp /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar \
        org.apache.zookeeper.server.quorum.QuorumPeerMain "$home/zoo.cfg" >"$home/log/zookeeper.log" 2>&1 </dev/null &
    remember zookeeper $!
    disown
    wait_for 20 "ZooKeeper" zookeeper_answers
    echo "ZooKeeper answers on 127.0.0.1:$zookeeper_port"
}
zk() { # commands on stdin, through ZooKeeper's own command line; its chatter is left out
    /usr/share/zookeeper/bin/zkCli.sh -server "127.0.0.1:$zookeeper_port" 2>/dev/null |
        grep -vE '^(Connecting to|Welcome to|JLine|WATCHER::|WatchedEvent|Exiting JVM|$)' || true
}

# ---- brokers ------------------------------------------------------------------------------------------------------

start_broker() { # ID [KEY=VALUE...]
    local id=$1
    shift
    {
        echo "broker.id=$id"
        echo "listeners=127.0.0.1:0"
        echo "log.dirs=$home/data-$id"
        echo "zookeeper.connect=127.0.0.1:$zookeeper_port/brook"
        echo "zookeeper.session.timeout.ms=${session_ms:-6000}"
        printf '%s\n' "$@"
    } >"$home/broker-$id.conf"
    setsid "$build/brookd" -c "$home/broker-$id.conf" >"$home/log/broker-$id.log" 2>&1 </dev/null &
    remember "broker-$id" $!
    disown
}
brokers_count() { [ "$(brook cluster --json | tr ',{' '\n\n' | grep -c '"id":')" = "$1" ]; }
