#!/usr/bin/env bash
# A whole fleet on this machine, to try it: a Redis Cluster and carom nodes that share it, all on loopback, until
# Ctrl-C. `deploy/fleet.sh --help` tells the options. A fleet in earnest has a machine for each of them.
#
# Many functions are called by traps and by `wait_until` only, which shellcheck does not see:
# shellcheck disable=SC2317
set -euo pipefail

# Longest wait for anything that should come by itself while the fleet starts, in seconds. Generous: the machine may
# compile something at the same time.
readonly PATIENCE=60
# Longest wait for the end of servers, in seconds. Both kinds take 10 at most, carom for its clients and Redis for its
# replicas.
readonly END_WITHIN=20
# Three masters, the least that can agree on a failover, with a replica each.
readonly CLUSTER_SERVERS=6
# The second hundred of ports begins behind the first, so there are no more nodes than this.
readonly NODES_MAX=99
# What --load asks for each second, in all. Little: servers, nodes and generator share the CPUs of one machine.
readonly LOAD_RATE=3000
# Links that --load makes before it measures.
readonly LOAD_LINKS=2000

usage() {
    cat <<'END'
Starts a Redis Cluster and carom nodes that share it, all on loopback, and ends everything on Ctrl-C.

Usage: deploy/fleet.sh [OPTIONS]

Options:
  --single         One Redis server in place of a cluster of three masters and three replicas
  --nodes N        How many carom nodes, 1 to 99 [default: 3]
  --port BASE      Where the ports begin, 1024 to 65229 [default: 18080]: nodes listen on BASE+1 and so on, their
                   status on BASE+101, Redis on BASE+201, the servers of the cluster among themselves on BASE+301
  --dir DIR        Where data, logs and the secret key lie; stays, and may be used again with the same --port
                   [default: a temporary directory that is removed at the end]
  --load SECONDS   Send requests to all nodes for that long, then end with the exit code of carom-loadgen
  --carom PATH     The carom to run [default: built with cargo]
  --loadgen PATH   The carom-loadgen to run [default: built with cargo]
  -h, --help       Print help

Exit codes: 0 all is well, 1 something failed, 2 wrong options; with --load those of carom-loadgen, 130 for Ctrl-C
END
}

say() {
    printf '%s\n' "$*"
}

# Standard error once more, for where the shell's own words on processes that were killed are left out.
exec 3>&2

complain() {
    printf 'fleet.sh: %s\n' "$*" >&3
}

# Something went wrong. What runs is ended by the trap on EXIT.
fail() {
    complain "$*"
    exit 1
}

refuse() {
    complain "$*"
    complain '--help tells what is possible'
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

# A whole number within bounds. Without leading zeros, with which the shell would take it for octal.
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
                # Ports below 1024 are for root, and BASE+306 is the last one.
                is_number "$2" 1024 65229 || refuse "--port: $2 is not a number from 1024 to 65229"
                base=$2
                ;;
            --load)
                is_number "$2" 1 86400 || refuse "--load: $2 is not a number of seconds from 1 to 86400"
                seconds=$2
                ;;
            --dir) dir=$2 ;;
            --carom | --loadgen)
                [[ -f $2 && -x $2 ]] || refuse "$1: $2 is not a program"
                if [[ $1 == --carom ]]; then carom=$2; else loadgen=$2; fi
                ;;
        esac
        shift 2
    done
}

# ---- Processes ----

# Process ids in the order of their start, what each is called, and where its output goes.
redis_pids=()
node_pids=()
# A server of Redis that is a master, once the fleet is shown.
master_pid=''
declare -A name_of=() log_of=()
# Those whose end has been told.
declare -A is_gone=()

# Starts a program that goes on by itself; its process id is in `started`. Not for subshells: what they start is no
# child of this script.
#
# In a session of its own Ctrl-C does not reach it, so that the nodes end before the Redis that they write to. Should
# this script be killed with SIGKILL, which no trap sees, the kernel asks it to end.
launch() { # COMMAND...
    setsid setpriv --pdeathsig TERM "$@" </dev/null 3>&- &
    started=$!
}

# Starts a server.
launch_server() { # NAME LOG COMMAND...
    local name=$1 log=$2
    shift 2
    launch "$@" >"$log" 2>&1
    name_of[$started]=$name
    log_of[$started]=$log
}

# Whether a process runs. It must be a child of this script: numbers of processes are used again.
is_running() { # PID
    local stat field
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    # Behind the name, in which anything may stand: the state and the parent.
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

# How a process ended, in words, and whether that was well.
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

# Tells of servers that have ended since the last look. Succeeds if there are none.
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

# Waits until a command succeeds, while the fleet starts: no server may end meanwhile.
wait_until() { # WHAT COMMAND...
    local what=$1 give_up=$((SECONDS + PATIENCE))
    shift
    until "$@"; do
        if ! look_for_ended; then
            tail -n 20 "${log_of[$last_gone]}" >&2
            exit 1
        fi
        ((SECONDS < give_up)) || fail "waited $PATIENCE seconds in vain for $what"
        sleep 0.1
    done
}

# Ends servers, and kills those that do not end in time. Succeeds if all ended well.
end() { # PID...
    local pid give_up=$((SECONDS + END_WITHIN)) is_well=0
    for pid in "$@"; do
        if is_running "$pid"; then
            kill -TERM "$pid"
            # One that was stopped would not hear of it.
            kill -CONT "$pid"
        fi
    done
    while any_runs "$@" && ((SECONDS < give_up)); do sleep 0.1; done
    for pid in "$@"; do
        if is_running "$pid"; then
            complain "${name_of[$pid]} (process $pid) did not end within $END_WITHIN seconds and is killed"
            kill -KILL "$pid"
        fi
        # What was told of is nothing new: somebody tries what happens without it.
        if [[ -z ${is_gone[$pid]-} ]] && ! status_of "$pid"; then
            complain "${name_of[$pid]} (process $pid) ended $ending"
            is_well=1
        fi
    done
    return "$is_well"
}

# Ends what is neither a node nor Redis: the generator, or cargo with its compilers, which are in its process group.
end_helpers() {
    local pid
    for pid in $(jobs -pr); do
        if [[ -z ${name_of[$pid]-} ]]; then
            # There is no group in the moment before it gets its session.
            kill -TERM -- "-$pid" 2>/dev/null || kill -TERM "$pid"
            wait "$pid"
        fi
    done
}

# Warnings in the logs of nodes, which go with a temporary directory.
show_warnings() {
    local pid
    for pid in "${node_pids[@]}"; do
        if grep -qE ' (WARN|ERROR) ' "${log_of[$pid]}"; then
            complain "the last warnings of ${name_of[$pid]}:"
            grep -E ' (WARN|ERROR) ' "${log_of[$pid]}" | tail -n 5 >&2
        fi
    done
}

# The trap on EXIT, whatever the reason.
finish() {
    local status=$?
    # All of this happens, whatever fails, and a second Ctrl-C does not leave half of it behind.
    set +e
    trap '' INT TERM HUP PIPE
    if ((${#redis_pids[@]} > 0)); then say 'Everything ends ...' 2>/dev/null; fi
    end_helpers
    # Nodes first: they bring to Redis what it does not have yet.
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

# The trap on signals, of which some come from programs: SIGPIPE when nobody reads what is said here.
interrupt() {
    # An end that was asked for is a good one, but a load that was not sent is none that held.
    if [[ -n $seconds ]]; then exit 130; fi
    exit 0
}

# ---- What is needed ----

# Checks that there are programs, and names the Debian packages that hold the missing ones.
need_programs() { # PROGRAM:PACKAGE...
    local pair missing=()
    for pair in "$@"; do
        command -v "${pair%:*}" >/dev/null || missing+=("$pair")
    done
    if ((${#missing[@]} > 0)); then
        fail "missing: ${missing[*]%:*}; on Debian: apt-get install ${missing[*]#*:}"
    fi
}

# A program of this repository that cargo builds; its path is in `built`.
build() { # PACKAGE
    local messages=$dir/$1.json
    command -v cargo >/dev/null ||
        fail 'missing: Rust; see https://rustup.rs, or name programs with --carom and --loadgen'
    say "cargo build --release --package $1"
    # The messages tell where the program is, wherever the target directory may be.
    launch cargo build --release --locked --manifest-path "$root/Cargo.toml" --package "$1" --bin "$1" \
        --message-format json-render-diagnostics >"$messages"
    wait "$started" || fail "$1 cannot be built"
    built=$(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$messages" | tail -n 1)
    rm -- "$messages"
    [[ -x $built ]] || fail "cargo does not say where $1 is"
}

# Checks that nobody listens on the ports. Without this one of the servers below would be taken for ours.
need_ports() { # PORT...
    local port
    for port in "$@"; do
        if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            fail "port $port is in use; another --port than $base moves all ports"
        fi
    done
}

# Makes the directory, or checks that the one that was named holds nothing else.
prepare_dir() {
    if [[ -z $dir ]]; then
        # In this order, so that no signal in between leaves it behind.
        is_temporary=yes
        dir=$(mktemp -d -t carom-fleet.XXXXXX)
        return
    fi
    mkdir -p -- "$dir"
    # From here on programs with other working directories get it.
    dir=$(CDPATH='' cd -- "$dir" && pwd)
    if [[ -e $dir/fleet ]]; then
        # The servers of a cluster wrote down each other's ports.
        [[ $(<"$dir/fleet") == "$layout" ]] ||
            refuse "--dir: $dir was made with $(<"$dir/fleet"), and this is $layout"
    elif [[ -n $(ls -A -- "$dir") ]]; then
        refuse "--dir: $dir is not empty, and no fleet that was ready once"
    fi
}

# The CPUs that this process may use, from a list such as 0-3,8.
usable_cpus() {
    local ranges range
    IFS=, read -ra ranges <<<"$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)"
    for range in "${ranges[@]}"; do
        seq "${range%-*}" "${range#*-}"
    done
}

# Chooses the CPUs of the fleet, in `cpus`. The generator gets one of its own where there are two, or its figures would
# be of the time that it waits for a CPU, and it would say so with exit code 3.
share_cpus() {
    mapfile -t cpus < <(usable_cpus)
    generator_cpu=${cpus[-1]}
    if [[ -n $seconds ]] && ((${#cpus[@]} > 1)); then
        unset -v 'cpus[-1]'
        # Whatever this script starts from now on stays on these.
        taskset -pc "$(IFS=,; printf '%s' "${cpus[*]}")" $$ >/dev/null
    fi
}

# ---- Redis ----

ask_redis() { # PORT COMMAND...
    local port=$1
    shift
    timeout --foreground 5 redis-cli -h 127.0.0.1 -p "$port" "$@" 2>/dev/null | tr -d '\r'
}

# Whether that process, and nobody else on its port, has loaded its data and answers.
redis_answers() { # PORT PID
    ask_redis "$1" INFO server | grep -qx "process_id:$2"
}

launch_redis() { # INDEX OPTION...
    local port=$((base + 201 + $1)) home=$dir/redis$1
    shift
    mkdir -p -- "$home"
    # What is otherwise than on servers of their own: loopback and these ports, a log on standard output, no word to
    # the systemd that may have started this script, replicas that are linked at once and not after a wait for more of
    # them, and an end also while a first AOF is written, which Redis would refuse.
    launch_server "redis on port $port" "$home.log" redis-server "$dir/redis.conf" \
        --bind 127.0.0.1 --port "$port" --dir "$home" --logfile '' --supervised no --daemonize no \
        --repl-diskless-sync-delay 0 --shutdown-on-sigterm force "$@"
    redis_pids+=("$started")
}

# Whether a server of the cluster sees all others and all slots, and has the data of its master if it is a replica.
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
    # As it is meant for servers, but for the directory: Redis goes there as soon as it reads that line, whatever comes
    # later, and it is for the user of Redis alone.
    grep -v '^dir ' "$root/deploy/redis/$configuration" >"$dir/redis.conf"
    for ((index = 0; index < ${#redis_ports[@]}; index++)); do
        if [[ -n $is_single ]]; then
            launch_redis "$index"
        else
            # The usual distance of 10,000 may lead beyond the last port, or to somebody else's. Without a name to
            # announce a server would have to learn its own from others.
            launch_redis "$index" --cluster-port $((base + 301 + index)) --cluster-announce-ip 127.0.0.1
        fi
    done
    for index in "${!redis_ports[@]}"; do
        port=${redis_ports[index]}
        wait_until "an answer of Redis on port $port" redis_answers "$port" "${redis_pids[index]}"
    done
    if [[ -z $is_single ]]; then
        # A directory that is used again holds servers that know each other.
        if [[ ! -e $dir/fleet ]]; then
            launch timeout "$PATIENCE" redis-cli --cluster create "${redis_ports[@]/#/127.0.0.1:}" \
                --cluster-replicas 1 --cluster-yes >"$dir/cluster-create.log" 2>&1
            if ! wait "$started"; then
                tail -n 20 "$dir/cluster-create.log" >&2
                fail 'the cluster cannot be made'
            fi
        fi
        for port in "${redis_ports[@]}"; do
            wait_until "a whole cluster around port $port" is_whole "$port"
        done
    fi
    printf '%s\n' "$layout" >"$dir/fleet"
}

# ---- Nodes ----

# Whether a node serves, is connected with Redis, and has compared its links. Its own announcement shows that it is not
# somebody else who answers on its port.
is_ready() { # LOG ADMIN-PORT
    local status
    grep -q ' serves http://' "$1" || return 1
    ask_node "$2" readyz >/dev/null && status=$(ask_node "$2" status) || return 1
    [[ $status == *'"connected":true'* && $status == *'"comparing":0,'* ]]
}

# What a node says on its admin port; fails unless its status is 200. Neither a proxy nor settings of the user are used.
ask_node() { # ADMIN-PORT PATH
    curl -q -sS --fail --noproxy '*' --max-time 5 "http://127.0.0.1:$1/$2" 2>/dev/null
}

start_nodes() {
    local number cpu name
    # All nodes must have the same key: their codes come from one permutation.
    if [[ ! -s $dir/space.key ]]; then "$carom" key new >"$dir/space.key"; fi
    for ((number = 1; number <= nodes; number++)); do
        name=node$number
        # One core each, and not all on the same CPU, which a count of 1 would mean.
        cpu=${cpus[(number - 1) % ${#cpus[@]}]}
        launch_server "$name" "$dir/$name.log" env "CAROM_SPACE_KEY_FILE=$dir/space.key" "CAROM_FLEET_NODE=$name" \
            "$carom" serve --data-dir "$dir/$name" --listen "127.0.0.1:$((base + number))" \
            --admin-listen "127.0.0.1:$((base + 100 + number))" --cores "$cpu-$cpu" --redis "$redis_url"
        node_pids+=("$started")
    done
    for ((number = 1; number <= nodes; number++)); do
        wait_until "a ready node$number" is_ready "$dir/node$number.log" $((base + 100 + number))
    done
}

# ---- What to do with it ----

# Where everything listens.
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
            # What it says of itself is the older word.
            role=replica
        fi
        printf 'redis   127.0.0.1:%s   %-7s   process %s\n' "${redis_ports[index]}" "$role" "${redis_pids[index]}"
    done
    say "data and logs in $dir"
    say
}

# What is worth a try.
suggest() {
    cat <<END
Make a link on one node, and follow it on another with the shortCode of the answer:
  curl -H 'Content-Type: application/json' -d '{"longUrl": "https://example.com/"}' \\
       http://127.0.0.1:$((base + 1))/rest/v3/short-urls
  curl -i http://127.0.0.1:$((base + nodes))/CODE
END
    if ((nodes > 1)); then
        cat <<END
End a node without a warning; the others have its links:
  kill -9 ${node_pids[0]}
END
    fi
    if [[ -n $is_single ]]; then
        cat <<END
Let Redis stand still for a while; links are made and followed all the same:
  kill -STOP $master_pid
  kill -CONT $master_pid
END
    else
        cat <<END
End a master of Redis; its replica takes its place, and links are made and followed meanwhile:
  kill -9 $master_pid
END
    fi
    say
}

# Sends requests to all nodes at once. Its exit code is that of the generator.
load() {
    local index arguments=() code=0
    for index in "${!node_pids[@]}"; do
        arguments+=(--target "127.0.0.1:$((base + index + 1))")
    done
    # As many connections to each node, and all kinds of requests; each must be answered, and rightly.
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

# Waits for Ctrl-C, and tells of servers that end.
stay() {
    while any_runs "${node_pids[@]}"; do
        look_for_ended || true
        sleep 0.2
    done 2>/dev/null
    look_for_ended 2>/dev/null || true
    fail 'no node is left'
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

# The key and the data are for nobody else; what cargo builds may be. Settings for other nodes and servers are none for
# these.
umask 077
unset -v "${!CAROM_@}" REDISCLI_AUTH
share_cpus

say "Redis starts on ports ${redis_ports[*]}"
start_redis
say "carom starts on ports ${node_ports[*]:0:nodes}"
start_nodes
show
if [[ -n $seconds ]]; then
    say "carom-loadgen asks all nodes for $seconds seconds"
    load
fi
suggest
say 'The fleet is ready. Ctrl-C ends it.'
stay
