#!/usr/bin/env bash
# Puts the interrupts of a network card where they disturb carom least; the package installs it as carom-affinity.
# `carom-affinity --help` tells the options, and the runbook which mode is for what.
#
# carom runs one thread on each of its CPUs, and the kernel does a good half of the work of a redirect in interrupts. Left
# alone, several queues of a card may interrupt one CPU, whose core is then slower than all others: a redirect takes as
# long as the slowest core needs.
set -euo pipefail

usage() {
    cat <<'END'
Puts the interrupts of a network card, and the sending and receiving of packets, on CPUs.

Usage: carom-affinity --interface NAME [OPTIONS]
       carom-affinity --undo

Options:
  --interface NAME  The network card, such as eth0; again for each: they go round the CPUs one behind the other
  --mode MODE       shared: interrupts are spread evenly over the CPUs of the cores [default]
                    apart: they have CPUs of their own, which --cpus names, and carom gets the others
  --cpus LIST       The CPUs for interrupts, such as 0-3,8 [default with shared: all]
  --dry-run         Print what would be written, and write nothing
  --show            Print what is there now, and write nothing
  --undo            Write back what was there before the first run since the machine was started, for all cards
  --root DIR        Look for /proc, /sys and /run below DIR, for a try
  -h, --help        Print help

Each line that is printed is a file and what is written to it. Exit codes: 0 all is well, 1 something failed, 2 wrong options
END
}

complain() {
    printf 'carom-affinity: %s\n' "$*" >&2
}

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

interfaces=()
mode=shared
list=''
action='write'
root=''

read_options() { # ARGUMENT...
    while (($# > 0)); do
        case $1 in
            --dry-run | --show | --undo)
                [[ $action == write ]] || refuse "--$action and $1 exclude each other"
                action=${1#--}
                shift
                continue
                ;;
            -h | --help)
                usage
                exit 0
                ;;
            --interface | --mode | --cpus | --root) [[ -n ${2-} ]] || refuse "$1 needs a value" ;;
            *) refuse "unknown option: $1" ;;
        esac
        case $1 in
            --interface)
                # It becomes a part of paths.
                [[ $2 =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]] || refuse "--interface: $2 is no name of an interface"
                interfaces+=("$2")
                ;;
            --mode)
                [[ $2 == shared || $2 == apart ]] || refuse "--mode: $2 is neither shared nor apart"
                mode=$2
                ;;
            --cpus) list=$2 ;;
            --root) root=${2%/} ;;
        esac
        shift 2
    done
    [[ $action == undo ]] || ((${#interfaces[@]} > 0)) || refuse 'which card? name it with --interface'
    [[ $mode == shared || -n $list || $action == undo || $action == show ]] ||
        refuse '--mode apart needs --cpus: which CPUs are for interrupts?'
}

# ---- CPUs ----

# The CPUs of a list such as 0-3,8, one a line and none twice. 1: it is no list; 2: a part of it runs backwards.
expand() { # LIST
    local part parts
    [[ $1 =~ ^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$ ]] || return 1
    IFS=, read -ra parts <<<"$1"
    for part in "${parts[@]}"; do ((10#${part%-*} <= 10#${part#*-})) || return 2; done
    for part in "${parts[@]}"; do
        seq "${part%-*}" "${part#*-}"
    done | awk '!seen[$0]++'
}

# CPUs as carom and the kernel write them: runs as 4-7, and one alone as 3-3, which carom would take for a count otherwise.
contract() { # CPU...
    local cpu runs=() first='' last=''
    for cpu in "$@" ''; do
        if [[ -n $last && -n $cpu ]] && ((cpu == last + 1)); then
            last=$cpu
            continue
        fi
        if [[ -n $first ]]; then
            if ((first == last && $# > 1)); then runs+=("$first"); else runs+=("$first-$last"); fi
        fi
        first=$cpu
        last=$cpu
    done
    (IFS=, && printf '%s' "${runs[*]}")
}

# The mask of some CPUs as the kernel reads it: groups of 32 bits in hexadecimal, the highest first, with commas between.
mask_of() { # CPU...
    local cpu word group words=(0) text=''
    for cpu in "$@"; do
        for ((word = ${#words[@]}; word <= cpu / 32; word++)); do words[word]=0; done
        word=$((cpu / 32))
        words[word]=$((words[word] | 1 << cpu % 32))
    done
    for ((word = ${#words[@]} - 1; word >= 0; word--)); do
        # Only the first group may be short.
        if [[ -z $text ]]; then printf -v group '%x' "${words[word]}"; else printf -v group ',%08x' "${words[word]}"; fi
        text+=$group
    done
    printf '%s' "$text"
}

# Which CPUs there are, which are for interrupts, and which are left: `online`, `cpus` and `others`.
choose_cpus() {
    local file=$root/sys/devices/system/cpu/online cpu status=0
    [[ -r $file ]] || fail "$file cannot be read"
    mapfile -t online < <(expand "$(<"$file")")
    if [[ -z $list ]]; then
        cpus=("${online[@]}")
    else
        expand "$list" >/dev/null || status=$?
        ((status != 2)) || refuse "--cpus: $list runs backwards"
        ((status == 0)) || refuse "--cpus: $list is no list of CPUs such as 0-3,8"
        mapfile -t cpus < <(expand "$list")
    fi
    local -A is_online=() is_chosen=()
    for cpu in "${online[@]}"; do is_online[$cpu]=yes; done
    for cpu in "${cpus[@]}"; do
        [[ -n ${is_online[$cpu]-} ]] || fail "there is no CPU $cpu, or it is switched off; those in use: $(<"$file")"
        is_chosen[$cpu]=yes
    done
    others=()
    for cpu in "${online[@]}"; do
        if [[ -z ${is_chosen[$cpu]-} ]]; then others+=("$cpu"); fi
    done
    if [[ $mode == apart ]] && ((${#others[@]} == 0)); then
        fail '--mode apart: no CPU is left for carom; name fewer with --cpus'
    fi
}

# ---- Queues and interrupts ----

# Numbers of the queues of one kind, in order.
queues_of() { # INTERFACE rx|tx
    local path
    for path in "$root/sys/class/net/$1/queues/$2"-*; do
        [[ -d $path ]] && printf '%s\n' "${path##*-}"
    done | sort -n
}

# The interrupts that belong to a card, one a line: the list of its device, or the one that it has without such a list. The
# list of a virtio card is one level higher, at its PCI device; above a PCI device would be that of a bridge.
listed_of() { # INTERFACE
    local device folder irq
    [[ -e $root/sys/class/net/$1/device ]] || return 0
    device=$(readlink -f -- "$root/sys/class/net/$1/device")
    for folder in "$device" "$device/.."; do
        if [[ -d $folder/msi_irqs ]]; then
            for irq in "$folder"/msi_irqs/*; do printf '%s\n' "${irq##*/}"; done
            return
        elif [[ -r $folder/irq ]]; then
            cat -- "$folder/irq"
            return
        fi
    done
}

# All interrupts with a number, and what they are called: what stands behind the last two blanks, which may have one in it.
named() {
    awk '$1 ~ /^[0-9]+:$/ { irq = $1; sub(":", "", irq); sub(/ +$/, ""); sub(/.*  /, ""); print irq, $0 }' "$root/proc/interrupts"
}

# The interrupts of the queues of a card, as lines of an interrupt, a queue, and a name.
#
# A card with MSI-X lists its interrupts in sysfs, also those that belong to no queue. Only the names in /proc/interrupts tell
# which is which, and each driver has its own way: eth0-TxRx-3, i40e-eth0-TxRx-3, mlx5_comp3@pci:0000:3b:00.0,
# virtio2-input.3, eth0 (queue 3). What they share is a number at the end, but for what stands behind an @ and a bracket.
interrupts_of() { # INTERFACE
    local interface=$1 device='' irq name rest found=() sole=()
    local -A listed=()
    for irq in $(listed_of "$interface"); do listed[$irq]=yes; done
    if [[ -e $root/sys/class/net/$interface/device ]]; then
        device=$(basename -- "$(readlink -f -- "$root/sys/class/net/$interface/device")")
    fi
    while read -r irq name; do
        if [[ -z ${listed[$irq]-} && $name != "$interface" && $name != *"$interface"[-\ ]* && $name != "${device:-none}"-* ]]; then
            continue
        fi
        # The card's own name says nothing of the interrupt, whatever word or number is in it.
        rest=${name%%@*}
        rest=${rest%)}
        if [[ $rest =~ ^(.*[^A-Za-z0-9])?"$interface"([^A-Za-z0-9].*)?$ ]]; then rest=${BASH_REMATCH[1]}${BASH_REMATCH[2]}; fi
        # If it has no other, that is for everything, whatever it is called.
        sole+=("$irq 0 $name")
        # Those for commands, events and faults may end in a number, too.
        case $rest in
            *async* | *config* | *control* | *ctrl* | *event* | *fdir* | *mgmnt* | *mgmt* | *misc*) continue ;;
        esac
        if [[ $rest =~ ([0-9]+)$ ]]; then found+=("$irq $((10#${BASH_REMATCH[1]})) $name"); fi
    done < <(named)
    if ((${#found[@]} == 0 && ${#sole[@]} == 1 && ${#listed[@]} <= 1)); then found=("${sole[@]}"); fi
    if ((${#found[@]} > 0)); then printf '%s\n' "${found[@]}" | sort -n -k 2,2 -k 1,1; fi
}

# ---- What is to be written ----

# Paths and what belongs there, in the order in which it is written.
paths=()
declare -A wanted=()

want() { # PATH VALUE
    paths+=("$1")
    wanted[$1]=$2
}

# The CPUs for interrupts in the order in which this card takes them: each begins behind the last one of the card before, or
# the first CPUs would have the interrupts of all cards with few queues.
order=()
# How many CPUs were passed over so far, and how many interrupts were placed.
passed=0
placed=0

put_in_order() {
    local start=$((passed % ${#cpus[@]}))
    order=("${cpus[@]:start}" "${cpus[@]:0:start}")
}

# The interrupt of queue i goes to the i-th CPU in order, and begins again at the first where there are more queues: each CPU
# has as many as any other, give or take one. A sending and a receiving queue of one number share a CPU.
plan_interrupts() { # INTERFACE
    local irq queue name queues=0 count=0
    while read -r irq queue name; do
        want "$root/proc/irq/$irq/smp_affinity_list" "${order[queue % ${#order[@]}]}"
        count=$((count + 1))
        if ((queue >= queues)); then queues=$((queue + 1)); fi
    done < <(interrupts_of "$1")
    placed=$((placed + count))
    passed=$((passed + queues))
    if ((count == 0)); then
        complain "$1: no interrupt belongs to a queue, so all stay where they are"
    fi
}

# XPS: which CPUs send by which queue. One that sends by the queue whose interrupt comes to it shares neither its lock nor
# its memory with another. CPUs that get no interrupts are spread over all queues.
plan_sending() { # INTERFACE
    local queues queue index members turn
    mapfile -t queues < <(queues_of "$1" tx)
    # With one queue all send by it anyway, and the kernel may refuse to be told.
    if ((${#queues[@]} < 2)); then return; fi
    for ((turn = 0; turn < ${#queues[@]}; turn++)); do
        members=()
        # Queues beyond the number of CPUs go round once more, as their interrupts do.
        if ((turn >= ${#order[@]})); then members+=("${order[turn % ${#order[@]}]}"); fi
        for ((index = turn; index < ${#order[@]}; index += ${#queues[@]})); do members+=("${order[index]}"); done
        for ((index = turn; index < ${#others[@]}; index += ${#queues[@]})); do members+=("${others[index]}"); done
        queue=${queues[turn]}
        want "$root/sys/class/net/$1/queues/tx-$queue/xps_cpus" "$(mask_of "${members[@]}")"
    done
}

# RPS: with fewer receiving queues than CPUs, the CPU that is interrupted passes packets on, by connection, so that the others
# do their share. That costs an interrupt between CPUs for each, so with enough queues it is off, and more queues are better
# where the card has them.
plan_receiving() { # INTERFACE
    local queues turn index members mask
    mapfile -t queues < <(queues_of "$1" rx)
    ((${#queues[@]} > 0)) || fail "$1 has no receiving queues"
    for ((turn = 0; turn < ${#queues[@]}; turn++)); do
        members=()
        for ((index = turn; index < ${#order[@]}; index += ${#queues[@]})); do members+=("${order[index]}"); done
        mask=0
        if ((${#queues[@]} < ${#cpus[@]})); then mask=$(mask_of "${members[@]}"); fi
        want "$root/sys/class/net/$1/queues/rx-${queues[turn]}/rps_cpus" "$mask"
    done
    if ((${#queues[@]} < ${#cpus[@]})); then
        complain "$1 has ${#queues[@]} receiving queues for ${#cpus[@]} CPUs; if it can have more: ethtool -L $1 combined ${#cpus[@]}"
    fi
}

# A bond, a bridge or a VLAN is made of other interfaces, to which its interrupts come.
refuse_made_of_others() { # INTERFACE
    local folder=$root/sys/class/net/$1 path members=()
    [[ ! -e $folder/device ]] || return 0
    for path in "$folder"/lower_*; do
        if [[ -e $path || -L $path ]]; then members+=("${path##*/lower_}"); fi
    done
    if ((${#members[@]} == 0)) && [[ -r $folder/bonding/slaves ]]; then read -ra members <"$folder/bonding/slaves"; fi
    ((${#members[@]} == 0)) || fail "$1 has no interrupts of its own; name what it is made of: ${members[*]/#/--interface }"
}

plan() { # INTERFACE
    [[ -d $root/sys/class/net/$1 ]] || fail "there is no interface $1; those there are: $(ls -m "$root/sys/class/net")"
    refuse_made_of_others "$1"
    put_in_order
    plan_interrupts "$1"
    plan_sending "$1"
    plan_receiving "$1"
}

# irqbalance moves interrupts as it thinks best, every ten seconds.
look_for_irqbalance() {
    if cat "$root"/proc/[0-9]*/comm 2>/dev/null | grep -qx irqbalance; then
        complain 'irqbalance runs, and will move the interrupts again: systemctl disable --now irqbalance'
    fi
}

# ---- Doing it ----

# What a file holds now. Some cannot be read, those of a card that is switched off for instance.
held() { # PATH
    cat -- "$1" 2>/dev/null || true
}

# Writes to a file of the kernel. A program of its own does it, because its failure is told when the file is closed.
put() { # PATH VALUE
    printf '%s\n' "$2" | tee -- "$1" >/dev/null 2>&1
}

need_root() {
    [[ -n $root || $EUID == 0 ]] || fail 'only root may do this; --dry-run shows what would be done'
}

# Writes all that is wanted, and remembers what was there.
write_all() {
    local path before is_well=0
    need_root
    mkdir -p -- "$root/run/carom-affinity" || fail "$root/run/carom-affinity cannot be made"
    for path in "${paths[@]}"; do
        before=$(held "$path")
        # What was there before the first run is what --undo is for. /run is empty after a start, and so is the kernel's memory.
        if ! grep -qsF -- "$path " "$memory"; then
            printf '%s %s\n' "$path" "$before" >>"$memory" || fail "$memory cannot be written"
        fi
        if put "$path" "${wanted[$path]}"; then
            printf '%s %s (was %s)\n' "$path" "${wanted[$path]}" "${before:-unknown}"
        else
            # The kernel places the interrupts of some cards itself.
            complain "$path does not take ${wanted[$path]}; it stays at ${before:-unknown}"
            is_well=1
        fi
    done
    return "$is_well"
}

undo_all() {
    local path before is_well=0 left=()
    need_root
    [[ -e $memory ]] || fail 'nothing was changed since the machine was started'
    while read -r path before; do
        # A card may have gone, or have fewer queues now.
        if [[ ! -e $path ]]; then
            complain "$path is not there any more"
        elif [[ -n $before ]] && put "$path" "$before"; then
            printf '%s %s\n' "$path" "$before"
        else
            complain "$path does not take '$before'"
            is_well=1
            # For another try. What could not be read before can never be written back.
            if [[ -n $before ]]; then left+=("$path $before"); fi
        fi
    done <"$memory"
    if ((${#left[@]} > 0)); then printf '%s\n' "${left[@]}" >"$memory"; else rm -- "$memory"; fi
    return "$is_well"
}

read_options "$@"
memory=$root/run/carom-affinity/before
if [[ $action == undo ]]; then
    undo_all
    exit
fi
choose_cpus
for interface in "${interfaces[@]}"; do plan "$interface"; done
if [[ $mode == apart && $action != show ]] && ((placed == 0)); then
    fail '--mode apart: there is no interrupt to place, so nothing was written; to spread packets alone, take --mode shared'
fi
# Before anything is written, so that it is told also where something cannot be.
if [[ $action != show ]]; then look_for_irqbalance; fi
status=0
case $action in
    show) for path in "${paths[@]}"; do printf '%s %s\n' "$path" "$(held "$path")"; done ;;
    dry-run) for path in "${paths[@]}"; do printf '%s %s\n' "$path" "${wanted[$path]}"; done ;;
    write) write_all || status=$? ;;
esac
if [[ $mode == apart && $action != show ]]; then
    printf 'in /etc/carom/carom.toml: cores = "%s"\n' "$(contract "${others[@]}")"
fi
exit "$status"
