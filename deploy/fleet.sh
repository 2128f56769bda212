#!/usr/bin/env bash
# Runs a fleet on this machine, to try it: a Redis Cluster and carom nodes that share it, all on loopback, until Ctrl-C.
# `deploy/fleet.sh --help` lists the options. In production, each of them runs on a machine of its own.
#
# Many functions are called only by traps and by `wait_until`, which shellcheck does not see:
# shellcheck disable=SC2317
set -euo pipefail

# Timeout of every wait while the fleet starts, in seconds. Generous, because the machine may be busy compiling.
readonly PATIENCE=60
# Timeout for the shutdown of servers, in seconds. carom takes at most 10 for its clients, and Redis 10 for its replicas.
readonly END_WITHIN=20
# Three masters, the minimum for a failover, with a replica each.
readonly CLUSTER_SERVERS=6
# Public ports are BASE+1 to BASE+99; admin ports begin at BASE+101.
readonly NODES_MAX=99
# Requests per second of --load, in total. Few, because everything shares the CPUs of one machine.
readonly LOAD_RATE=3000
# Links that --load creates before it measures.
readonly LOAD_LINKS=2000
# Visits of the link that shows that all nodes count together; each node gets another number of them.
readonly SHOWN_VISITS=5
# Time within which all nodes must show the same counts, in seconds.
readonly COUNTED_WITHIN=10

usage() {
    cat <<'END'
Runs a Redis Cluster and carom nodes that share it, all on loopback, until Ctrl-C.

Usage: deploy/fleet.sh [OPTIONS]

Options:
  --single         One Redis server instead of a cluster of three masters and three replicas
  --nodes N        Number of carom nodes, 1 to 99 [default: 3]
  --port BASE      First port, 1024 to 65229 [default: 18080]: public listeners from BASE+1, admin listeners from
                   BASE+101, Redis from BASE+201, its cluster bus from BASE+301
  --dir DIR        Directory for data, logs and code secret; it is kept, and can be used again with the same --port
                   [default: a temporary directory that is removed at the end]
  --load SECONDS   Send requests to all nodes for this long, then exit with the exit code of carom-loadgen
  --carom PATH     The carom to run [default: built with cargo]
  --loadgen PATH   The carom-loadgen to run [default: built with cargo]
  -h, --help       Print help

Exit codes: 0 success, 1 failure, 2 wrong options; with --load those of carom-loadgen, or 130 after Ctrl-C
END
}

say() {
    printf '%s\n' "$*"
}

# A copy of standard error, for messages while the shell's own messages about killed processes are discarded.
exec 3>&2

complain() {
    printf 'fleet.sh: %s\n' "$*" >&3
}

# Exits with 1. The EXIT trap stops everything that runs.
fail() {
    complain "$*"
    exit 1
}

refuse() {
    complain "$*"
    complain 'see --help'
    exit 2
}

# ---- Options ----

is_single=''
nodes=3
base=18080
dir=''
seconds=''
carom=''
loadgen=''

# Succeeds if a text is a whole number within bounds. Rejects leading zeros, because the shell would read the number as octal.
is_number() { # TEXT LEAST MOST
    [[ $1 =~ ^[1-9][0-9]{0,5}$ ]] && (($1 >= $2 && $1 <= $3))
}

read_options() { # ARGUMENT...
    while (($# > 0)); do
        case $1 in
            --single)
                is_single=yes
                shift
                continue
                ;;
            -h | --help)
                usage
                exit 0
                ;;
            --nodes | --port | --dir | --load | --carom | --loadgen)
                [[ -n ${2-} ]] || refuse "$1 needs a value"
                ;;
            *) refuse "unknown option: $1" ;;
        esac
        case $1 in
            --nodes)
                is_number "$2" 1 "$NODES_MAX" || refuse "--nodes: $2 is not a number from 1 to $NODES_MAX"
                nodes=$2
                ;;
            --port)
                # Ports below 1024 need root, and BASE+306 is the last one.
                is_number "$2" 1024 65229 || refuse "--port: $2 is not a number from 1024 to 65229"
                base=$2
                ;;
            --load)
                is_number "$2" 1 86400 || refuse "--load: $2 is not a number of seconds from 1 to 86400"
                seconds=$2
                ;;
            --dir) dir=$2 ;;
            --carom | --loadgen)
                [[ -f $2 && -x $2 ]] || refuse "$1: $2 is not an executable file"
                if [[ $1 == --carom ]]; then carom=$2; else loadgen=$2; fi
                ;;
        esac
        shift 2
    done
}

# ---- Processes ----

# Process IDs in order of their start, with their names and logs.
redis_pids=()
node_pids=()
# A Redis master, set when the fleet is shown.
master_pid=''
declare -A name_of=() log_of=()
# Processes whose end was reported.
declare -A is_gone=()

# Starts a background program and sets `started` to its process ID. Do not call it in a subshell: the program must be a child of this
# script.
#
# The program has a session of its own, so that Ctrl-C does not reach it, and nodes end before the Redis that they write to. If this
# script is killed with SIGKILL, which no trap sees, the kernel sends SIGTERM to the program.
launch() { # COMMAND...
    setsid setpriv --pdeathsig TERM "$@" </dev/null 3>&- &
    started=$!
}

# Starts a server with a name and a log.
launch_server() { # NAME LOG COMMAND...
    local name=$1 log=$2
    shift 2
    launch "$@" >"$log" 2>&1
    name_of[$started]=$name
    log_of[$started]=$log
}

# Succeeds if a child of this script is running. Other processes do not count, because process IDs are reused.
is_running() { # PID
    local stat field
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    # State and parent follow the name, which may contain anything.
    read -ra field <<<"${stat##*) }"
    [[ ${field[0]} != Z && ${field[1]} == "$$" ]]
}

any_runs() { # PID...
    local pid
    for pid in "$@"; do
        if is_running "$pid"; then return 0; fi
    done
    return 1
}

# Sets `ending` to how a process ended, in words. Succeeds if its exit code was 0.
status_of() { # PID
    local code=0
    wait "$1" || code=$?
    if ((code > 128)); then
        ending="by signal $((code - 128))"
    else
        ending="with exit code $code"
    fi
    ((code == 0))
}

# Reports servers that ended since the last call. Succeeds if there are none.
look_for_ended() {
    local pid is_well=0
    for pid in "${redis_pids[@]}" "${node_pids[@]}"; do
        if [[ -n ${is_gone[$pid]-} ]] || is_running "$pid"; then continue; fi
        status_of "$pid" || true
        complain "${name_of[$pid]} (process $pid) ended $ending"
        is_gone[$pid]=yes
        last_gone=$pid
        is_well=1
    done
    return "$is_well"
}

# Waits until a command succeeds, and exits if a server ends meanwhile.
wait_until() { # WHAT COMMAND...
    local what=$1 give_up=$((SECONDS + PATIENCE))
    shift
    until "$@"; do
        if ! look_for_ended; then
            tail -n 20 "${log_of[$last_gone]}" >&2
            exit 1
        fi
        ((SECONDS < give_up)) || fail "no $what after $PATIENCE seconds"
        sleep 0.1
    done
}

# Stops servers, and kills those that do not stop in time. Succeeds if all exited with 0.
end() { # PID...
    local pid give_up=$((SECONDS + END_WITHIN)) is_well=0
    for pid in "$@"; do
        if is_running "$pid"; then
            kill -TERM "$pid"
            # A suspended process would not receive the signal.
            kill -CONT "$pid"
        fi
    done
    while any_runs "$@" && ((SECONDS < give_up)); do sleep 0.1; done
    for pid in "$@"; do
        if is_running "$pid"; then
            complain "${name_of[$pid]} (process $pid) did not end within $END_WITHIN seconds and is killed"
            kill -KILL "$pid"
        fi
        # An end that was reported before is not a failure: users try what happens without that server.
        if [[ -z ${is_gone[$pid]-} ]] && ! status_of "$pid"; then
            complain "${name_of[$pid]} (process $pid) ended $ending"
            is_well=1
        fi
    done
    return "$is_well"
}

# Stops the load generator, or cargo with its compilers, which are in its process group.
end_helpers() {
    local pid
    for pid in $(jobs -pr); do
        if [[ -z ${name_of[$pid]-} ]]; then
            # The process group does not exist until setsid has run.
            kill -TERM -- "-$pid" 2>/dev/null || kill -TERM "$pid"
            wait "$pid"
        fi
    done
}

# Prints the last warnings of the nodes, whose logs may be in a temporary directory.
show_warnings() {
    local pid
    for pid in "${node_pids[@]}"; do
        if grep -qE ' (WARN|ERROR) ' "${log_of[$pid]}"; then
            complain "the last warnings of ${name_of[$pid]}:"
            grep -E ' (WARN|ERROR) ' "${log_of[$pid]}" | tail -n 5 >&2
        fi
    done
}

# The EXIT trap.
finish() {
    local status=$?
    # Neither a failure nor a second Ctrl-C interrupts the cleanup.
    set +e
    trap '' INT TERM HUP PIPE
    if ((${#redis_pids[@]} > 0)); then say 'Stopping ...' 2>/dev/null; fi
    end_helpers
    # Nodes first: they sync their last changes to Redis.
    if ! end "${node_pids[@]}" 2>/dev/null && ((status == 0)); then status=1; fi
    if ! end "${redis_pids[@]}" 2>/dev/null && ((status == 0)); then status=1; fi
    if ((status != 0)); then show_warnings; fi
    if [[ -n $is_temporary && -n $dir ]]; then
        rm -rf -- "$dir"
    elif ((${#redis_pids[@]} > 0)); then
        say "Data and logs are in $dir" 2>/dev/null
    fi
    exit "$status"
}

# The trap on signals. SIGPIPE means that nobody reads the output any more.
interrupt() {
    # Ctrl-C is the normal end, but an interrupted load is not a success.
    if [[ -n $seconds ]]; then exit 130; fi
    exit 0
}

# ---- Prerequisites ----

# Fails if programs are missing, and names the Debian packages that have them.
need_programs() { # PROGRAM:PACKAGE...
    local pair missing=()
    for pair in "$@"; do
        command -v "${pair%:*}" >/dev/null || missing+=("$pair")
    done
    if ((${#missing[@]} > 0)); then
        fail "missing: ${missing[*]%:*}; on Debian: apt-get install ${missing[*]#*:}"
    fi
}

# Builds a program of this repository and sets `built` to its path.
build() { # PACKAGE
    local messages=$dir/$1.json
    command -v cargo >/dev/null ||
        fail 'missing: Rust; see https://rustup.rs, or name existing binaries with --carom and --loadgen'
    say "cargo build --release --package $1"
    # The messages have the path of the program, wherever the target directory is.
    launch cargo build --release --locked --manifest-path "$root/Cargo.toml" --package "$1" --bin "$1" \
        --message-format json-render-diagnostics >"$messages"
    wait "$started" || fail "cannot build $1"
    built=$(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$messages" | tail -n 1)
    rm -- "$messages"
    [[ -x $built ]] || fail "cargo does not name the path of $1"
}

# Fails if a port is in use. Otherwise its server would be mistaken for one of ours.
need_ports() { # PORT...
    local port
    for port in "$@"; do
        if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            fail "port $port is in use; choose another --port than $base"
        fi
    done
}

# Creates the directory, or checks that the named one has nothing else in it.
prepare_dir() {
    if [[ -z $dir ]]; then
        # In this order, so that the directory is removed even if a signal arrives in between.
        is_temporary=yes
        dir=$(mktemp -d -t carom-fleet.XXXXXX)
        return
    fi
    mkdir -p -- "$dir"
    # Absolute, because programs with other working directories get it.
    dir=$(CDPATH='' cd -- "$dir" && pwd)
    if [[ -e $dir/fleet ]]; then
        # The servers of a cluster have stored each other's ports.
        [[ $(<"$dir/fleet") == "$layout" ]] ||
            refuse "--dir: $dir was created with $(<"$dir/fleet"), not with $layout"
    elif [[ -n $(ls -A -- "$dir") ]]; then
        refuse "--dir: $dir is neither empty nor the directory of a fleet"
    fi
}

# Prints the CPUs that this process may use, from a list such as 0-3,8.
usable_cpus() {
    local ranges range
    IFS=, read -ra ranges <<<"$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)"
    for range in "${ranges[@]}"; do
        seq "${range%-*}" "${range#*-}"
    done
}

# Sets `cpus` to the CPUs of the fleet. If there are two or more, the load generator gets one of its own. Otherwise it would measure
# its own waits for a CPU, and exit with 3.
share_cpus() {
    mapfile -t cpus < <(usable_cpus)
    generator_cpu=${cpus[-1]}
    if [[ -n $seconds ]] && ((${#cpus[@]} > 1)); then
        unset -v 'cpus[-1]'
        # All programs started from now on run on these.
        taskset -pc "$(IFS=,; printf '%s' "${cpus[*]}")" $$ >/dev/null
    fi
}

# ---- Redis ----

ask_redis() { # PORT COMMAND...
    local port=$1
    shift
    timeout --foreground 5 redis-cli -h 127.0.0.1 -p "$port" "$@" 2>/dev/null | tr -d '\r'
}

# Succeeds if this process, and no other one on its port, has loaded its data and answers.
redis_answers() { # PORT PID
    ask_redis "$1" INFO server | grep -qx "process_id:$2"
}

launch_redis() { # INDEX OPTION...
    local port=$((base + 201 + $1)) home=$dir/redis$1
    shift
    mkdir -p -- "$home"
    # Differences from production: loopback and these ports, a log on standard output, no notification to a systemd that may have
    # started this script, full syncs without delay, and a shutdown even while the first AOF is written, which Redis would refuse.
    launch_server "redis on port $port" "$home.log" redis-server "$dir/redis.conf" \
        --bind 127.0.0.1 --port "$port" --dir "$home" --logfile '' --supervised no --daemonize no \
        --repl-diskless-sync-delay 0 --shutdown-on-sigterm force "$@"
    redis_pids+=("$started")
}

# Succeeds if a server sees the whole cluster and all slots and, if it is a replica, has the data of its master.
is_whole() { # PORT
    local cluster replication
    cluster=$(ask_redis "$1" CLUSTER INFO) && replication=$(ask_redis "$1" INFO replication) || return 1
    [[ $cluster == *cluster_state:ok* && $cluster == *cluster_slots_ok:16384* ]] || return 1
    [[ $cluster == *cluster_known_nodes:$CLUSTER_SERVERS* ]] || return 1
    [[ $replication == *role:master* || $replication == *master_link_status:up* ]]
}

start_redis() {
    local index port configuration=cluster.conf
    if [[ -n $is_single ]]; then configuration=single.conf; fi
    # The production configuration without `dir`: Redis changes to that directory at once, and only its own user may.
    grep -v '^dir ' "$root/deploy/redis/$configuration" >"$dir/redis.conf"
    for ((index = 0; index < ${#redis_ports[@]}; index++)); do
        if [[ -n $is_single ]]; then
            launch_redis "$index"
        else
            # The default bus port, 10,000 higher, may not exist or be in use. The announced address saves a server from having to
            # learn its own from others.
            launch_redis "$index" --cluster-port $((base + 301 + index)) --cluster-announce-ip 127.0.0.1
        fi
    done
    for index in "${!redis_ports[@]}"; do
        port=${redis_ports[index]}
        wait_until "answer of Redis on port $port" redis_answers "$port" "${redis_pids[index]}"
    done
    if [[ -z $is_single ]]; then
        # In a reused directory, the servers know each other already.
        if [[ ! -e $dir/fleet ]]; then
            launch timeout "$PATIENCE" redis-cli --cluster create "${redis_ports[@]/#/127.0.0.1:}" \
                --cluster-replicas 1 --cluster-yes >"$dir/cluster-create.log" 2>&1
            if ! wait "$started"; then
                tail -n 20 "$dir/cluster-create.log" >&2
                fail 'cannot create the cluster'
            fi
        fi
        for port in "${redis_ports[@]}"; do
            wait_until "complete cluster seen from port $port" is_whole "$port"
        done
    fi
    printf '%s\n' "$layout" >"$dir/fleet"
}

# ---- Nodes ----

# Succeeds if a node serves, is connected to Redis, and has compared its links. Its announcement in the log proves that no other program
# answers on its port.
is_ready() { # LOG ADMIN-PORT
    local status
    grep -q ' serves http://' "$1" || return 1
    ask_node "$2" readyz >/dev/null && status=$(ask_node "$2" status) || return 1
    [[ $status == *'"connected":true'* && $status == *'"comparing":0,'* ]]
}

# Prints the response of a node's admin listener; fails unless the status is 200. Ignores proxies and curl settings of the user.
ask_node() { # ADMIN-PORT PATH
    curl -q -sS --fail --noproxy '*' --max-time 5 "http://127.0.0.1:$1/$2" 2>/dev/null
}

start_nodes() {
    local number cpu name
    # All nodes must have the same code secret: their short codes come from one permutation.
    if [[ ! -s $dir/space.key ]]; then "$carom" key new >"$dir/space.key"; fi
    for ((number = 1; number <= nodes; number++)); do
        name=node$number
        # One core each, on different CPUs: a count of 1 would put all on the same one.
        cpu=${cpus[(number - 1) % ${#cpus[@]}]}
        launch_server "$name" "$dir/$name.log" env "CAROM_SPACE_KEY_FILE=$dir/space.key" "CAROM_FLEET_NODE=$name" \
            "$carom" serve --data-dir "$dir/$name" --listen "127.0.0.1:$((base + number))" \
            --admin-listen "127.0.0.1:$((base + 100 + number))" --cores "$cpu-$cpu" --redis "$redis_url"
        node_pids+=("$started")
    done
    for ((number = 1; number <= nodes; number++)); do
        wait_until "ready node$number" is_ready "$dir/node$number.log" $((base + 100 + number))
    done
}

# ---- Use ----

# Prints where everything listens.
show() {
    local index role
    say
    for index in "${!node_pids[@]}"; do
        printf 'node%-3s http://127.0.0.1:%s   status http://127.0.0.1:%s/status   process %s\n' \
            $((index + 1)) $((base + index + 1)) $((base + index + 101)) "${node_pids[index]}"
    done
    for index in "${!redis_ports[@]}"; do
        role=$(ask_redis "${redis_ports[index]}" INFO replication | sed -n 's/^role://p')
        if [[ $role == master ]]; then
            master_pid=${redis_pids[index]}
        else
            # Redis reports the older word, slave.
            role=replica
        fi
        printf 'redis   127.0.0.1:%s   %-7s   process %s\n' "${redis_ports[index]}" "$role" "${redis_pids[index]}"
    done
    say "data and logs in $dir"
    say
}

# Prints commands to try.
suggest() {
    cat <<END
Create a link on one node, and visit it on another with the shortCode of the response:
  curl -H 'Content-Type: application/json' -d '{"longUrl": "https://example.com/"}' \\
       http://127.0.0.1:$((base + 1))/rest/v3/short-urls
  curl -i http://127.0.0.1:$((base + nodes))/CODE
END
    if ((nodes > 1)); then
        cat <<END
Kill a node; the others have its links:
  kill -9 ${node_pids[0]}
END
    fi
    if [[ -n $is_single ]]; then
        cat <<END
Suspend Redis for a while; you can still create and visit links:
  kill -STOP $master_pid
  kill -CONT $master_pid
END
    else
        cat <<END
Kill a Redis master; its replica takes over, and you can still create and visit links:
  kill -9 $master_pid
END
    fi
    say
}

# Visits one link through all nodes, and prints the visits that each node shows, until all show all of them.
show_counts() {
    local made code number visit sent=0 deadline shown
    made=$(curl -q -sS --fail --noproxy '*' --max-time 5 -H 'Content-Type: application/json' \
        -d '{"longUrl": "https://example.com/counted"}' "http://127.0.0.1:$((base + 1))/rest/v3/short-urls") ||
        fail 'node1 creates no link'
    code=$(sed -n 's/.*"shortCode":"\([^"]*\)".*/\1/p' <<<"$made")
    for ((number = 1; number <= nodes; number++)); do
        wait_until "link $code on node$number" redirects $((base + number)) "$code"
        sent=$((sent + 1))
        for ((visit = 1; visit < SHOWN_VISITS + number; visit++)); do
            redirects $((base + number)) "$code" || fail "node$number does not redirect $code"
            sent=$((sent + 1))
        done
    done
    deadline=$((SECONDS + COUNTED_WITHIN))
    until shown=$(counts_of "$code") && ! tr ' ' '\n' <<<"$shown" | grep -qvx "$sent"; do
        ((SECONDS < deadline)) ||
            fail "after $COUNTED_WITHIN seconds, the nodes show $shown visits of $code, which has $sent"
        sleep 0.2
    done
    say "Visits of $code: $sent in total, from $((SHOWN_VISITS + 1)) on node1 to $((SHOWN_VISITS + nodes)) on node$nodes"
    number=1
    for visit in $shown; do
        say "node$number shows $visit"
        number=$((number + 1))
    done
    say
}

# Succeeds if a node redirects a short code.
redirects() { # PORT CODE
    [[ $(curl -q -sS --noproxy '*' --max-time 5 -o /dev/null -w '%{http_code}' "http://127.0.0.1:$1/$2" 2>/dev/null) == 302 ]]
}

# Prints the visits of a link that each node shows, in order.
counts_of() { # CODE
    local number reply all=()
    for ((number = 1; number <= nodes; number++)); do
        reply=$(curl -q -sS --fail --noproxy '*' --max-time 5 \
            "http://127.0.0.1:$((base + number))/rest/v3/short-urls/$1" 2>/dev/null) || return 1
        all+=("$(sed -n 's/.*"visitsSummary":{[^}]*"total":\([0-9]*\).*/\1/p' <<<"$reply")")
    done
    printf '%s' "${all[*]}"
}

# Sends requests to all nodes, and exits with the exit code of the load generator.
load() {
    local index arguments=() code=0
    for index in "${!node_pids[@]}"; do
        arguments+=(--target "127.0.0.1:$((base + index + 1))")
    done
    # Equally many connections to each node, and requests of all kinds. Every response must be correct.
    launch taskset -c "$generator_cpu" "$loadgen" "${arguments[@]}" --connections $((nodes * 16)) \
        --create "$LOAD_LINKS" --rate "$LOAD_RATE" --mix redirect=90,create=5,miss=5 --warmup 1s \
        --duration "${seconds}s" --slo errors=0
    local generator=$started
    while is_running "$generator"; do
        look_for_ended || true
        sleep 0.1
    done 2>/dev/null
    wait "$generator" || code=$?
    exit "$code"
}

# Waits for Ctrl-C, and reports servers that end.
stay() {
    while any_runs "${node_pids[@]}"; do
        look_for_ended || true
        sleep 0.2
    done 2>/dev/null
    look_for_ended 2>/dev/null || true
    fail 'no node is running'
}

# ---- All of it ----

is_temporary=''
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
read_options "$@"

if [[ -n $is_single ]]; then servers=1; else servers=$CLUSTER_SERVERS; fi
layout="${is_single:+--single }--port $base"
mapfile -t node_ports < <(seq $((base + 1)) $((base + nodes)) && seq $((base + 101)) $((base + 100 + nodes)))
mapfile -t redis_ports < <(seq $((base + 201)) $((base + 200 + servers)))
mapfile -t bus_ports < <(seq $((base + 301)) $((base + 300 + servers)))
redis_url=$(IFS=,; printf 'redis://%s' "${redis_ports[*]/#/127.0.0.1:}")

need_programs redis-server:redis-server redis-cli:redis-tools curl:curl setpriv:util-linux
need_ports "${node_ports[@]}" "${redis_ports[@]}" "${bus_ports[@]}"

trap finish EXIT
trap interrupt INT TERM HUP PIPE
prepare_dir
if [[ -z $carom ]]; then
    build carom
    carom=$built
fi
if [[ -n $seconds && -z $loadgen ]]; then
    build carom-loadgen
    loadgen=$built
fi

# Only the user may read code secret and data; what cargo builds may be readable. Settings for other nodes do not apply to these.
umask 077
unset -v "${!CAROM_@}" REDISCLI_AUTH
share_cpus

say "Starting Redis on ports ${redis_ports[*]}"
start_redis
say "Starting carom on ports ${node_ports[*]:0:nodes}"
start_nodes
show
if [[ -n $seconds ]]; then
    say "carom-loadgen sends requests to all nodes for $seconds seconds"
    load
fi
show_counts
suggest
say 'The fleet is ready. Ctrl-C stops it.'
stay
