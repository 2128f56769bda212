#!/usr/bin/env bash
# Distributes the interrupts of network cards over CPUs, so that they slow carom down least. The package installs it as
# carom-affinity. `carom-affinity --help` lists the options; /usr/share/doc/carom/docs/operate/tuning.md says which mode to
# choose.
#
# carom runs one thread on each of its CPUs, and the kernel does about half of the work of a redirect in interrupts. By
# default, several queues of a card may interrupt the same CPU. The core on that CPU is then slower than the others, and its
# latency becomes the p99.
set -euo pipefail

usage() {
    cat <<'END'
Distributes the interrupts, sending and receiving of network cards over CPUs.

Usage: carom-affinity --interface NAME [OPTIONS]
       carom-affinity --undo

Options:
  --interface NAME  The network card, such as eth0; repeat it for several
  --mode MODE       shared: spread interrupts evenly over the CPUs of the cores [default]
                    apart: give interrupts the CPUs of --cpus, and carom the others
  --cpus LIST       The CPUs for interrupts, such as 0-3,8 [default with shared: all]
  --dry-run         Print the changes without making them
  --show            Print the current values and change nothing
  --undo            Restore the values from before the first run since boot, of all cards
  --root DIR        Use /proc, /sys and /run below DIR, for tests
  -h, --help        Print help

Each line of the output is a file and the value written to it. Exit codes: 0 success, 1 failure, 2 wrong options
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
    complain 'see --help'
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
                # It becomes part of paths.
                [[ $2 =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]] || refuse "--interface: $2 is not the name of an interface"
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
    [[ $action == undo ]] || ((${#interfaces[@]} > 0)) || refuse 'name the network card with --interface'
    [[ $mode == shared || -n $list || $action == undo || $action == show ]] ||
        refuse '--mode apart needs --cpus: the CPUs for interrupts'
}

# ---- CPUs ----

# Prints the CPUs of a list such as 0-3,8, one per line, without duplicates. Returns 1 if it is not a list, 2 if a range in it
# is reversed.
expand() { # LIST
    local part parts
    [[ $1 =~ ^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$ ]] || return 1
    IFS=, read -ra parts <<<"$1"
    for part in "${parts[@]}"; do ((10#${part%-*} <= 10#${part#*-})) || return 2; done
    for part in "${parts[@]}"; do
        seq "${part%-*}" "${part#*-}"
    done | awk '!seen[$0]++'
}

# Prints CPUs as carom and the kernel write them: ranges such as 4-7. A single CPU is 3-3, because carom reads 3 as a count.
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

# Prints the mask of some CPUs as the kernel reads it: groups of 32 bits in hexadecimal, highest first, separated by commas.
mask_of() { # CPU...
    local cpu word group words=(0) text=''
    for cpu in "$@"; do
        for ((word = ${#words[@]}; word <= cpu / 32; word++)); do words[word]=0; done
        word=$((cpu / 32))
        words[word]=$((words[word] | 1 << cpu % 32))
    done
    for ((word = ${#words[@]} - 1; word >= 0; word--)); do
        # Only the first group is unpadded.
        if [[ -z $text ]]; then printf -v group '%x' "${words[word]}"; else printf -v group ',%08x' "${words[word]}"; fi
        text+=$group
    done
    printf '%s' "$text"
}

# Sets `online` to all CPUs in use, `cpus` to those for interrupts, and `others` to the rest.
choose_cpus() {
    local file=$root/sys/devices/system/cpu/online cpu status=0
    [[ -r $file ]] || fail "$file cannot be read"
    mapfile -t online < <(expand "$(<"$file")")
    if [[ -z $list ]]; then
        cpus=("${online[@]}")
    else
        expand "$list" >/dev/null || status=$?
        ((status != 2)) || refuse "--cpus: $list has a reversed range"
        ((status == 0)) || refuse "--cpus: $list is not a list of CPUs such as 0-3,8"
        mapfile -t cpus < <(expand "$list")
    fi
    local -A is_online=() is_chosen=()
    for cpu in "${online[@]}"; do is_online[$cpu]=yes; done
    for cpu in "${cpus[@]}"; do
        [[ -n ${is_online[$cpu]-} ]] || fail "there is no CPU $cpu, or it is offline; online are $(<"$file")"
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

# Prints the numbers of the queues of one kind, in order.
queues_of() { # INTERFACE rx|tx
    local path
    for path in "$root/sys/class/net/$1/queues/$2"-*; do
        [[ -d $path ]] && printf '%s\n' "${path##*-}"
    done | sort -n
}

# Prints the interrupts of a card, one per line: the list of its device, or its only interrupt if there is no list. The list
# of a virtio card is one level up, at its PCI device.
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

# Prints number and name of each numbered interrupt. The name follows the last two blanks, and may contain single blanks.
named() {
    awk '$1 ~ /^[0-9]+:$/ { irq = $1; sub(":", "", irq); sub(/ +$/, ""); sub(/.*  /, ""); print irq, $0 }' "$root/proc/interrupts"
}

# Prints the interrupts of the queues of a card: interrupt, queue and name per line.
#
# A card with MSI-X lists its interrupts in sysfs, including those without a queue. Only the names in /proc/interrupts tell them
# apart, and each driver names them differently: eth0-TxRx-3, i40e-eth0-TxRx-3, mlx5_comp3@pci:0000:3b:00.0,
# virtio2-input.3, eth0 (queue 3). All end with the number of the queue, apart from a bracket or an @ and what follows it.
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
        # Ignore the name of the card, which may contain words and numbers too.
        rest=${name%%@*}
        rest=${rest%)}
        if [[ $rest =~ ^(.*[^A-Za-z0-9])?"$interface"([^A-Za-z0-9].*)?$ ]]; then rest=${BASH_REMATCH[1]}${BASH_REMATCH[2]}; fi
        # A card with a single interrupt uses it for everything, whatever its name.
        sole+=("$irq 0 $name")
        # Interrupts for commands, events and faults may end with a number too.
        case $rest in
            *async* | *config* | *control* | *ctrl* | *event* | *fdir* | *mgmnt* | *mgmt* | *misc*) continue ;;
        esac
        if [[ $rest =~ ([0-9]+)$ ]]; then found+=("$irq $((10#${BASH_REMATCH[1]})) $name"); fi
    done < <(named)
    if ((${#found[@]} == 0 && ${#sole[@]} == 1 && ${#listed[@]} <= 1)); then found=("${sole[@]}"); fi
    if ((${#found[@]} > 0)); then printf '%s\n' "${found[@]}" | sort -n -k 2,2 -k 1,1; fi
}

# ---- Planning ----

# Paths in the order of writing, and the value for each.
paths=()
declare -A wanted=()

want() { # PATH VALUE
    paths+=("$1")
    wanted[$1]=$2
}

# The CPUs for interrupts in the order in which this card uses them. Each card continues after the last CPU of the previous
# one; otherwise the first CPUs would get the interrupts of all cards with few queues.
order=()
# Number of CPUs used so far, and of interrupts placed.
passed=0
placed=0

put_in_order() {
    local start=$((passed % ${#cpus[@]}))
    order=("${cpus[@]:start}" "${cpus[@]:0:start}")
}

# Plans interrupts: that of queue i goes to the i-th CPU in order, starting over if there are more queues. So all CPUs get the same
# number, give or take one. The sending and the receiving queue of one number share a CPU.
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
        complain "$1: no interrupt belongs to a queue, so none is moved"
    fi
}

# Plans XPS: which CPUs send through which queue. A CPU that sends through the queue whose interrupt it gets shares neither lock nor
# memory with others. CPUs without interrupts are spread over all queues.
plan_sending() { # INTERFACE
    local queues queue index members turn
    mapfile -t queues < <(queues_of "$1" tx)
    # With one queue, all CPUs send through it anyway, and the kernel may refuse the setting.
    if ((${#queues[@]} < 2)); then return; fi
    for ((turn = 0; turn < ${#queues[@]}; turn++)); do
        members=()
        # With more queues than CPUs, start over, as their interrupts do.
        if ((turn >= ${#order[@]})); then members+=("${order[turn % ${#order[@]}]}"); fi
        for ((index = turn; index < ${#order[@]}; index += ${#queues[@]})); do members+=("${order[index]}"); done
        for ((index = turn; index < ${#others[@]}; index += ${#queues[@]})); do members+=("${others[index]}"); done
        queue=${queues[turn]}
        want "$root/sys/class/net/$1/queues/tx-$queue/xps_cpus" "$(mask_of "${members[@]}")"
    done
}

# Plans RPS: with fewer receiving queues than CPUs, the interrupted CPU passes packets on to others, by connection. Each costs an
# interrupt between CPUs, so RPS is off if there are enough queues. More queues are better if the card has them.
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
        complain "$1 has ${#queues[@]} receiving queues for ${#cpus[@]} CPUs; if the card supports more: ethtool -L $1 combined ${#cpus[@]}"
    fi
}

# Refuses a bond, bridge or VLAN: the interfaces below it have the interrupts.
refuse_made_of_others() { # INTERFACE
    local folder=$root/sys/class/net/$1 path members=()
    [[ ! -e $folder/device ]] || return 0
    for path in "$folder"/lower_*; do
        if [[ -e $path || -L $path ]]; then members+=("${path##*/lower_}"); fi
    done
    if ((${#members[@]} == 0)) && [[ -r $folder/bonding/slaves ]]; then read -ra members <"$folder/bonding/slaves"; fi
    ((${#members[@]} == 0)) || fail "$1 has no interrupts of its own; name the interfaces below it: ${members[*]/#/--interface }"
}

plan() { # INTERFACE
    [[ -d $root/sys/class/net/$1 ]] || fail "there is no interface $1; the interfaces are $(ls -m "$root/sys/class/net")"
    refuse_made_of_others "$1"
    put_in_order
    plan_interrupts "$1"
    plan_sending "$1"
    plan_receiving "$1"
}

# Warns of irqbalance, which moves interrupts every ten seconds.
look_for_irqbalance() {
    if cat "$root"/proc/[0-9]*/comm 2>/dev/null | grep -qx irqbalance; then
        complain 'irqbalance is running and will revert these changes: systemctl disable --now irqbalance'
    fi
}

# ---- Writing ----

# Prints the value of a file. Some cannot be read, such as those of a card that is down.
held() { # PATH
    cat -- "$1" 2>/dev/null || true
}

# Writes to a file of the kernel, with a separate program, because errors may show only when the file is closed.
put() { # PATH VALUE
    printf '%s\n' "$2" | tee -- "$1" >/dev/null 2>&1
}

need_root() {
    [[ -n $root || $EUID == 0 ]] || fail 'must be root; --dry-run shows the changes without making them'
}

# Writes all planned values and remembers the previous ones.
write_all() {
    local path before is_well=0
    need_root
    mkdir -p -- "$root/run/carom-affinity" || fail "cannot create $root/run/carom-affinity"
    for path in "${paths[@]}"; do
        before=$(held "$path")
        # --undo restores the values from before the first run. A reboot clears /run, and resets the kernel as well.
        if ! grep -qsF -- "$path " "$memory"; then
            printf '%s %s\n' "$path" "$before" >>"$memory" || fail "cannot write $memory"
        fi
        if put "$path" "${wanted[$path]}"; then
            printf '%s %s (was %s)\n' "$path" "${wanted[$path]}" "${before:-unknown}"
        else
            # The kernel manages the interrupts of some cards itself.
            complain "$path does not accept ${wanted[$path]}; it stays at ${before:-unknown}"
            is_well=1
        fi
    done
    return "$is_well"
}

undo_all() {
    local path before is_well=0 left=()
    need_root
    [[ -e $memory ]] || fail 'nothing was changed since boot'
    while read -r path before; do
        # The card may be gone, or have fewer queues.
        if [[ ! -e $path ]]; then
            complain "$path no longer exists"
        elif [[ -n $before ]] && put "$path" "$before"; then
            printf '%s %s\n' "$path" "$before"
        else
            complain "$path does not accept '$before'"
            is_well=1
            # Keep it for another try. A value that could not be read cannot be restored.
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
    fail '--mode apart: there is no interrupt to place, so nothing was written; use --mode shared to spread packets only'
fi
# Before writing, so that the warning shows even if a write fails.
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
