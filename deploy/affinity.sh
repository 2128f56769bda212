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
  --interface NAME  The network card, such as eth0; may be repeated
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

# The CPUs of a list such as 0-3,8, one a line and none twice.
expand() { # LIST
    local part parts
    [[ $1 =~ ^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$ ]] || return 1
    IFS=, read -ra parts <<<"$1"
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
    local file=$root/sys/devices/system/cpu/online cpu
    [[ -r $file ]] || fail "$file cannot be read"
    mapfile -t online < <(expand "$(<"$file")")
    if [[ -z $list ]]; then
        cpus=("${online[@]}")
    else
        expand "$list" >/dev/null || refuse "--cpus: $list is no list of CPUs such as 0-3,8"
        mapfile -t cpus < <(expand "$list")
        ((${#cpus[@]} > 0)) || refuse "--cpus: $list runs backwards"
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

# The interrupts of the queues of a card, as lines of an interrupt, a queue, and a name.
#
# A card with MSI-X lists its interrupts in sysfs, also those that belong to no queue. The list of a virtio card is one
# level higher, at its PCI device. Only the names in /proc/interrupts tell which is which, and each driver has its own way:
# eth0-TxRx-3, i40e-eth0-TxRx-3, mlx5_comp3@pci:0000:3b:00.0, virtio2-input.3. What they share is a number at the end, but
# for what stands behind an @.
interrupts_of() { # INTERFACE
    local interface=$1 device='' irq name folder
    local -A listed=()
    if [[ -e $root/sys/class/net/$interface/device ]]; then
        device=$(readlink -f -- "$root/sys/class/net/$interface/device")
        for folder in "$device/msi_irqs" "$device/../msi_irqs"; do
            [[ -d $folder ]] || continue
            for irq in "$folder"/*; do listed[${irq##*/}]=yes; done
            break
        done
        device=${device##*/}
    fi
    while read -r irq name; do
        if [[ -z ${listed[$irq]-} && $name != *"$interface"-* && $name != "${device:-none}"-* ]]; then continue; fi
        name=${name%%@*}
        # The card's own name may end in a number, and so may interrupts for commands, events and faults.
        case $name in
            "$interface" | *async* | *config* | *control* | *ctrl* | *event* | *fdir* | *mgmnt* | *mgmt* | *misc*) continue ;;
        esac
        if [[ $name =~ ([0-9]+)$ ]]; then printf '%s %s %s\n' "$irq" "$((10#${BASH_REMATCH[1]}))" "$name"; fi
    done < <(awk '$1 ~ /^[0-9]+:$/ { sub(":", "", $1); print $1, $NF }' "$root/proc/interrupts") | sort -n -k 2,2 -k 1,1
}

# ---- What is to be written ----

# Paths and what belongs there, in the order in which it is written.
paths=()
declare -A wanted=()

want() { # PATH VALUE
    paths+=("$1")
    wanted[$1]=$2
}

# The interrupt of queue i goes to the i-th CPU, and begins again at the first where there are more queues: each CPU has as
# many as any other, give or take one. A sending and a receiving queue of one number share a CPU.
plan_interrupts() { # INTERFACE
    local irq queue name count=0
    while read -r irq queue name; do
        want "$root/proc/irq/$irq/smp_affinity_list" "${cpus[queue % ${#cpus[@]}]}"
        count=$((count + 1))
    done < <(interrupts_of "$1")
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
        if ((turn >= ${#cpus[@]})); then members+=("${cpus[turn % ${#cpus[@]}]}"); fi
        for ((index = turn; index < ${#cpus[@]}; index += ${#queues[@]})); do members+=("${cpus[index]}"); done
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
        for ((index = turn; index < ${#cpus[@]}; index += ${#queues[@]})); do members+=("${cpus[index]}"); done
        mask=0
        if ((${#queues[@]} < ${#cpus[@]})); then mask=$(mask_of "${members[@]}"); fi
        want "$root/sys/class/net/$1/queues/rx-${queues[turn]}/rps_cpus" "$mask"
    done
    if ((${#queues[@]} < ${#cpus[@]})); then
        complain "$1 has ${#queues[@]} receiving queues for ${#cpus[@]} CPUs; if it can have more: ethtool -L $1 combined ${#cpus[@]}"
    fi
}

plan() { # INTERFACE
    [[ -d $root/sys/class/net/$1 ]] || fail "there is no interface $1; those there are: $(ls -m "$root/sys/class/net")"
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
    mkdir -p -- "$root/run/carom-affinity"
    for path in "${paths[@]}"; do
        before=$(held "$path")
        # What was there before the first run is what --undo is for. /run is empty after a start, and so is the kernel's memory.
        if ! grep -qsF -- "$path " "$memory"; then printf '%s %s\n' "$path" "$before" >>"$memory"; fi
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
    local path before is_well=0
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
        fi
    done <"$memory"
    rm -- "$memory"
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
# Before anything is written, so that it is told also where something cannot be.
if [[ $action != show ]]; then look_for_irqbalance; fi
case $action in
    show) for path in "${paths[@]}"; do printf '%s %s\n' "$path" "$(held "$path")"; done ;;
    dry-run) for path in "${paths[@]}"; do printf '%s %s\n' "$path" "${wanted[$path]}"; done ;;
    write) write_all ;;
esac
if [[ $mode == apart && $action != show ]]; then
    printf 'in /etc/carom/carom.toml: cores = "%s"\n' "$(contract "${others[@]}")"
fi
