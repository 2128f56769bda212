#!/usr/bin/env bash
# Tests the package in a clean Debian root: installs it, serves, upgrades, removes and purges it, and runs it as a container, and
# runs the image of a release. `make package-test` calls this script; `deploy/debian/test.sh --help` lists the options.
#
# Many functions are called only by traps and by `wait_until`, which shellcheck does not see:
# shellcheck disable=SC2317
set -euo pipefail

# Timeout of every wait, in seconds. Generous, because the machine may be busy compiling.
readonly PATIENCE=60

root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=debian/common.sh
source "$root/deploy/debian/common.sh"

usage() {
    cat <<'END'
Installs the package in a clean Debian root, tests, upgrades, removes and purges it, and runs it as a container.

Usage: deploy/debian/test.sh [OPTIONS]

Options:
  --binary PATH    The carom binary to package [default: release/carom in CARGO_TARGET_DIR, or in target]
  --cache FILE     Archive of the clean root; created if missing [default: target/debian/root.tar]
  --only-root      Create the archive of the clean root if it is missing, and test nothing
  -h, --help       Print help

It needs root, no systemd, and on the first run the package mirror of this machine. Exit codes: 0 success, 1 failure, 2 wrong
options
END
}

# Prints a message with the seconds since the start.
say() {
    printf '%3d s  %s\n' "$SECONDS" "$*"
}

read_options() { # ARGUMENT...
    while (($# > 0)); do
        case $1 in
            --binary | --cache) [[ -n ${2-} ]] || refuse "$1 needs a value" ;;
            --only-root)
                only_root=yes
                shift
                continue
                ;;
            -h | --help)
                usage
                exit 0
                ;;
            *) refuse "unknown option: $1" ;;
        esac
        if [[ $1 == --binary ]]; then binary=$2; else cache=$2; fi
        shift 2
    done
}

wait_until() { # WHAT COMMAND...
    local what=$1 give_up=$((SECONDS + PATIENCE))
    shift
    until "$@"; do
        ((SECONDS < give_up)) || fail "no $what after $PATIENCE seconds"
        sleep 0.05
    done
}

# ---- Cleanup ----

# The running node and container.
node=''
container=''

# The EXIT trap. Mounts disappear with the namespace of this script, but must be gone before files are removed.
finish() {
    local status=$?
    set +e
    trap '' INT TERM HUP
    if [[ -n $container ]]; then crun --root "$work/crun" delete --force "$container" 2>/dev/null; fi
    if [[ -n $node ]]; then
        kill -KILL "$node" 2>/dev/null
        wait "$node" 2>/dev/null
    fi
    if ((status != 0)); then
        for log in "$work"/*.log; do
            [[ -s $log ]] || continue
            complain "the end of ${log##*/}:"
            tail -n 15 "$log" >&2
        done
    fi
    umount "$system/proc" "$system/sys" "$system/var/log/carom" 2>/dev/null
    rm -rf --one-file-system -- "$work"
    exit "$status"
}

# ---- A clean root ----

# Prints the mirror and code name of this machine's own release.
mirror() {
    local codename
    codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    apt-get indextargets --format "\$(REPO_URI) $codename" \
        'Created-By: Packages' 'Component: main' "Codename: $codename" "Architecture: $(dpkg --print-architecture)" |
        head -n 1
}

make_root() {
    local address codename
    if [[ ! -s $cache ]]; then
        read -r address codename < <(mirror) || fail 'apt knows no mirror of the release of this machine; run apt-get update'
        say "debootstrap $codename, kept in $cache"
        # apt may have a proxy of its own.
        http_proxy=${http_proxy-$(apt-config dump --format '%v' Acquire::http::Proxy)}
        if [[ -n $http_proxy ]]; then export http_proxy; else unset http_proxy; fi
        # The package depends on adduser and procps; the tests need curl and logrotate.
        debootstrap --variant=minbase --include=adduser,curl,logrotate,procps "$codename" "$system" "$address" >"$work/debootstrap.log" 2>&1 ||
            fail 'debootstrap failed'
        # The downloaded packages are installed now.
        rm -f "$system"/var/cache/apt/archives/*.deb
        mkdir -p -- "$(dirname -- "$cache")"
        tar -C "$system" --numeric-owner -cf "$cache.new" .
        mv -- "$cache.new" "$cache"
    else
        tar -C "$system" --numeric-owner -xf "$cache"
    fi
    # A cached root of an earlier version of this script may lack packages.
    inside dpkg-query --show adduser curl logrotate procps >/dev/null 2>&1 ||
        fail "the root in $cache lacks packages; delete it to create another one"
    # carom reads kernel settings and the list of CPUs.
    mount -t proc proc "$system/proc"
    mount -t sysfs -o ro sysfs "$system/sys"
}

# Runs a command in the clean root, with a clean environment.
inside() { # COMMAND...
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$system" "$@"
}

# ---- The package ----

build_package() {
    local programs=(--binary "$binary")
    if [[ -x $loadgen ]]; then programs+=(--loadgen "$loadgen"); fi
    package=$("$here/package.sh" "${programs[@]}" --out "$work" --fast)
    if command -v lintian >/dev/null; then
        lintian --allow-root --fail-on error --suppress-tags no-manual-page "$package" >"$work/lintian.log" || {
            cat "$work/lintian.log" >&2
            fail 'lintian found errors'
        }
    fi
    cp -- "$package" "$system/root/carom.deb"
    # The same with an earlier version number, to upgrade from.
    dpkg-deb --raw-extract "$package" "$work/earlier"
    sed -i 's/^Version: .*/Version: 0~earlier/' "$work/earlier/DEBIAN/control"
    dpkg-deb --root-owner-group -Zgzip -z1 --build "$work/earlier" "$system/root/carom-earlier.deb" >"$work/dpkg-deb.log"
}

install_package() { # [EARLIER]
    inside dpkg --install "/root/carom${1-}.deb" >"$work/dpkg.log" 2>&1 || fail 'the package cannot be installed'
}

# Checks type, owner and mode of a file.
expect_file() { # PATH WHAT
    local found
    found=$(inside stat -c '%F %U:%G %a' "$1" 2>/dev/null) || found=missing
    [[ $found == "$2" ]] || fail "$1 is '$found' and should be '$2'"
}

check_installed() {
    expect_file /usr/bin/carom 'regular file root:root 755'
    expect_file /usr/sbin/carom-affinity 'regular file root:root 755'
    expect_file /usr/share/man/man1/carom-serve.1.gz 'regular file root:root 644'
    if [[ -x $loadgen ]]; then
        expect_file /usr/bin/carom-loadgen 'regular file root:root 755'
        expect_file /usr/share/man/man1/carom-loadgen-compare.1.gz 'regular file root:root 644'
        inside zgrep -q '^\.SH RECIPES' /usr/share/man/man1/carom-loadgen.1.gz || fail 'carom-loadgen(1) has no recipes'
    fi
    expect_file /usr/share/bash-completion/completions/carom 'regular file root:root 644'
    expect_file /usr/share/zsh/vendor-completions/_carom 'regular file root:root 644'
    expect_file /usr/share/fish/vendor_completions.d/carom.fish 'regular file root:root 644'
    expect_file /etc/carom 'directory root:carom 750'
    expect_file /etc/carom/carom.toml 'regular file root:carom 640'
    expect_file /var/lib/carom 'directory carom:carom 700'
    expect_file /var/log/carom 'directory carom:carom 750'
    expect_file /etc/logrotate.d/carom 'regular file root:root 644'
    local entry
    entry=$(inside getent passwd carom) || fail 'there is no user carom'
    [[ $entry == *:/var/lib/carom:*/nologin ]] || fail "not a system user: $entry"
    [[ $(inside id -Gn carom) == carom ]] || fail 'the user is in other groups than its own'
    # The service starts at boot; the sockets only if the administrator enables them.
    [[ -L $system/etc/systemd/system/multi-user.target.wants/carom.service ]] || fail 'the service is not enabled'
    [[ ! -e $system/etc/systemd/system/sockets.target.wants/carom.socket ]] || fail 'the sockets are enabled'
    [[ ! -e $system/etc/systemd/system/timers.target.wants/carom-backup.timer ]] || fail 'the backups are enabled'
    # Only carom can read its settings.
    as_carom carom config check /etc/carom/carom.toml >/dev/null || fail 'carom cannot read its settings'
    if inside setpriv --reuid nobody --regid nogroup --clear-groups cat /etc/carom/carom.toml >/dev/null 2>&1; then
        fail 'every user can read the settings'
    fi
    inside carom-affinity --interface lo --root /nowhere --dry-run >/dev/null 2>&1 && fail 'carom-affinity accepts a root that does not exist'
    inside carom-affinity --help >/dev/null || fail 'carom-affinity does not run'
}

as_carom() { # COMMAND...
    inside setpriv --reuid carom --regid carom --clear-groups --no-new-privs "$@"
}

# ---- The service ----

# Prints a value of the installed unit.
of_unit() { # KEY
    sed -n "s/^$1=//p" "$system/usr/lib/systemd/system/carom.service"
}

# Sets `files` and `locked_bytes` to the limits of the unit, or to those of this machine if root cannot raise them that far.
read_limits() {
    local hard
    files=$(of_unit LimitNOFILE)
    hard=$(ulimit -H -n)
    if [[ $hard != unlimited ]] && ((hard < files)); then files=$hard; fi
    locked_bytes=$(numfmt --from=iec "$(of_unit LimitMEMLOCK)")
    hard=$(ulimit -H -l)
    if [[ $hard != unlimited ]] && ((hard * 1024 < locked_bytes)); then locked_bytes=$((hard * 1024)); fi
}

# Starts the command of the unit, as its user and within its limits. Only the ports differ, and there is an access log.
start_service() {
    local command
    read -ra command <<<"$(of_unit ExecStart)"
    # Remove the announcement of the previous node.
    rm -f "$work/service.out"
    prlimit --nofile="$files" --memlock="$locked_bytes" \
        env -i PATH=/usr/sbin:/usr/bin CAROM_LISTEN=127.0.0.1:0 CAROM_ADMIN_LISTEN=127.0.0.1:0 \
        CAROM_ACCESS_LOG_FILE=/var/log/carom/access.log \
        chroot "$system" setpriv --reuid carom --regid carom --clear-groups --no-new-privs --bounding-set=-all \
        "${command[@]}" >"$work/service.out" 2>"$work/service.log" &
    node=$!
    wait_for_service service
}

# Waits until a node is ready, and sets `public` and `admin` to its addresses.
wait_for_service() { # LOG-NAME
    wait_until 'announcement of the node' announced "$work/$1.out"
    public=$(sed -n 's|.* serves \(http://[0-9.:]*\).*|\1|p' "$work/$1.out")
    admin=$(sed -n 's|.*status at \(http://[0-9.:]*\).*|\1|p' "$work/$1.out")
    wait_until 'ready node' asks -o /dev/null "$admin/readyz"
}

# Succeeds if the node has printed its addresses. Exits at once if the node has ended.
announced() { # FILE
    kill -0 "$node" 2>/dev/null || fail 'the node has ended'
    grep -qs ' serves http://' "$1"
}

asks() { # CURL-ARGUMENT...
    inside curl -q -sS --fail --noproxy '*' --max-time 10 "$@" 2>/dev/null
}

# Creates a link; `code` is its short code.
shorten() {
    local answer
    answer=$(asks -H 'Content-Type: application/json' -d '{"longUrl": "https://example.com/a/long/way?to=go"}' \
        "$public/rest/v3/short-urls") || fail 'cannot create a link'
    code=$(sed -n 's/.*"shortCode":"\([^"]*\)".*/\1/p' <<<"$answer")
    [[ -n $code ]] || fail "no code in $answer"
}

follow() {
    local answer
    answer=$(asks -o /dev/null -w '%{http_code} %{redirect_url}' "$public/$code") || fail "$public/$code cannot be followed"
    [[ $answer == '302 https://example.com/a/long/way?to=go' ]] || fail "$public/$code answers $answer"
}

# Waits until the node has ended, and fails unless its exit code is 0.
wait_for_end() {
    local status=0
    wait_until 'end of the node' has_ended
    wait "$node" || status=$?
    node=''
    ((status == 0)) || fail "the node ended with $status"
}

# Succeeds if the node has ended. Until this script waits for it, the process is a zombie.
has_ended() {
    local stat
    { read -r stat <"/proc/$node/stat"; } 2>/dev/null || return 0
    [[ ${stat##*) } == Z* ]]
}

# Rotates the access log while carom writes it.
rotate() {
    local log=$system/var/log/carom/access.log
    wait_until 'line in the access log' test -s "$log"
    inside logrotate --force /etc/logrotate.conf >"$work/logrotate.log" 2>&1 || fail 'logrotate fails'
    compgen -G "$log-*" >/dev/null || fail 'the access log was not rotated'
    wait_until 'new access log' test -e "$log"
    expect_file /var/log/carom/access.log 'regular empty file carom:carom 640'
}

try_service() {
    say 'serve as the unit does, create and follow a link, rotate the access log'
    start_service
    shorten
    follow
    rotate
    kill -TERM "$node"
    wait_for_end
}

# ---- Upgrade and removal ----

try_upgrade() {
    say 'upgrade: settings and links remain'
    printf '# ours\n' >>"$system/etc/carom/carom.toml"
    install_package
    check_installed
    [[ $(tail -n 1 "$system/etc/carom/carom.toml") == '# ours' ]] || fail 'the settings were replaced'
    start_service
    follow
    kill -TERM "$node"
    wait_for_end
}

try_removal() {
    say 'remove and purge: the links remain'
    printf 'key\n' >"$system/etc/carom/go.example.key"
    inside dpkg --remove carom >"$work/dpkg.log" 2>&1 || fail 'the package cannot be removed'
    [[ ! -e $system/usr/bin/carom ]] || fail 'the program is still there'
    expect_file /etc/carom/carom.toml 'regular file root:carom 640'
    # Purge with the logs on a file system of their own.
    mount -t tmpfs tmpfs "$system/var/log/carom"
    touch "$system/var/log/carom/access.log"
    inside /var/lib/dpkg/info/carom.postrm purge >"$work/dpkg.log" 2>&1 || fail 'the purge fails if the log directory is a mount'
    [[ -z $(ls -A "$system/var/log/carom") ]] || fail 'the logs of a mount are still there'
    umount "$system/var/log/carom"
    inside dpkg --purge carom >"$work/dpkg.log" 2>&1 || fail 'the package cannot be purged'
    [[ ! -e $system/etc/carom/carom.toml ]] || fail 'the settings are still there'
    [[ ! -e $system/var/log/carom ]] || fail 'the logs are still there'
    [[ -s $system/etc/carom/go.example.key ]] || fail "a file of the administrator's is gone"
    [[ -d $system/var/lib/carom/links && -s $system/var/lib/carom/space.key ]] || fail 'the links are gone'
    grep -q '/var/lib/carom' "$work/dpkg.log" || fail 'the purge does not say where the links are'
    [[ ! -e $system/etc/systemd/system/multi-user.target.wants/carom.service ]] || fail 'the service is still enabled'
}

# ---- Under systemd ----

# Replaces systemctl with a script that records its arguments, and makes the root look as if systemd were running.
pretend_systemd() {
    mkdir -p "$system/run/systemd/system"
    cat >"$system/usr/bin/systemctl" <<'END'
#!/bin/sh
printf '%s\n' "$*" >>/root/systemctl
case "$*" in
    *is-enabled*) echo enabled ;;
    *is-active*) exit 3 ;;
esac
END
    chmod 0755 "$system/usr/bin/systemctl"
}

# Succeeds if a command calls systemctl with these words.
is_asked() { # WORDS COMMAND...
    local words=$1
    shift
    : >"$system/root/systemctl"
    "$@" >"$work/dpkg.log" 2>&1 || fail "$* failed"
    grep -q -- "$words" "$system/root/systemctl"
}

try_systemd() {
    say 'with systemd: start, restart, stop; nothing if policy-rc.d forbids it'
    pretend_systemd
    is_asked ' start carom.service' install_package || fail 'the service is not started'
    is_asked ' restart carom.service' install_package || fail 'the service is not restarted'
    is_asked 'stop carom-backup.timer carom.socket carom.service' inside dpkg --remove carom || fail 'the service is not stopped'
    printf '#!/bin/sh\nexit 101\n' >"$system/usr/sbin/policy-rc.d"
    chmod 0755 "$system/usr/sbin/policy-rc.d"
    if is_asked 'start carom.service' install_package; then fail 'policy-rc.d is ignored'; fi
    rm -r "$system/usr/bin/systemctl" "$system/usr/sbin/policy-rc.d" "$system/run/systemd"
}

# ---- The container ----

# Sets root file system, data directory and user of the next bundles.
use_root() { # ROOT DATA UID GID
    container_root=$1
    data=$2
    uid=$3
    gid=$4
}

# Writes a container configuration like the `docker run` of the documentation: no capabilities, a read-only root, the host network, and
# the seccomp profile.
make_bundle() { # SECCOMP-FILE COMMAND-IN-JSON
    mkdir -p "$work/bundle" "$data"
    chown "$uid:$gid" "$data"
    cat >"$work/bundle/config.json" <<END
{
  "ociVersion": "1.0.2",
  "process": {
    "user": {"uid": $uid, "gid": $gid},
    "args": $2,
    "env": ["PATH=/usr/bin:/bin", "CAROM_DATA_DIR=/var/lib/carom", "CAROM_LISTEN=127.0.0.1:0", "CAROM_ADMIN_LISTEN=127.0.0.1:0"],
    "cwd": "/",
    "capabilities": {"bounding": [], "effective": [], "inheritable": [], "permitted": [], "ambient": []},
    "rlimits": [
      {"type": "RLIMIT_NOFILE", "soft": $files, "hard": $files},
      {"type": "RLIMIT_MEMLOCK", "soft": $locked_bytes, "hard": $locked_bytes}
    ],
    "noNewPrivileges": true
  },
  "root": {"path": "$container_root", "readonly": true},
  "mounts": [
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "nodev", "noexec", "ro"]},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
    {"destination": "/var/lib/carom", "type": "bind", "source": "$data", "options": ["bind", "rw"]}
  ],
  "linux": {
    "namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}],
    "seccomp": $(<"$1")
  }
}
END
}

# Mounts cgroup v2: crun requires a single cgroup version even if it uses none. Only this script sees the mount.
show_cgroups() {
    umount --recursive /sys/fs/cgroup 2>/dev/null || true
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
}

# Runs a container without a cgroup, because cgroups differ between machines.
run_container() { # NAME
    exec crun --root "$work/crun" --cgroup-manager=disabled run --bundle "$work/bundle" "carom-test-$$-$1"
}

start_container() { # NAME
    container=carom-test-$$-$1
    (run_container "$1") >"$work/$1.out" 2>"$work/$1.log" &
    node=$!
}

# Runs a container until it ends, and sets `ending` to its exit code.
ended_container() { # NAME
    start_container "$1"
    ending=0
    wait_until 'end of the container' has_ended
    wait "$node" || ending=$?
    node=''
    container=''
}

# Starts a container, creates and visits a link, makes a backup, checks the health, and drains.
serve_in_container() { # NAME
    make_bundle "$profile" "$serve"
    start_container "$1"
    wait_for_service "$1"
    shorten
    follow
    # With the same seccomp profile as the node.
    crun --root "$work/crun" exec --user "$uid:$gid" "$container" carom backup /var/lib/carom/backup >"$work/backup.log" 2>&1 ||
        fail 'the backup in the container fails'
    # The health check of the image.
    crun --root "$work/crun" exec "$container" carom health --admin "${admin#http://}" >"$work/health.log" 2>&1 ||
        fail 'the health check fails'
    crun --root "$work/crun" kill "$container" TERM
    wait_for_end
    container=''
}

try_container() {
    local profile=$here/../container/seccomp.json serve='["/usr/bin/carom", "serve"]'
    say 'container with the seccomp profile: serve, create and follow a link, back up, drain'
    show_cgroups
    # The container has mounts of its own there.
    umount "$system/proc" "$system/sys"
    use_root "$system" "$work/data" "$(inside id -u carom)" "$(inside id -g carom)"
    serve_in_container serves
    try_repair "$profile"

    say 'without io_uring: exit code 10'
    sed 's/"io_uring_enter", "io_uring_register", "io_uring_setup"/"getpid"/' "$profile" >"$work/without.json"
    if cmp -s "$profile" "$work/without.json"; then fail 'the profile has no io_uring to remove'; fi
    make_bundle "$work/without.json" "$serve"
    ended_container without
    ((ending == 10)) || fail "without io_uring, the exit code is $ending"
    grep -q 'io_uring' "$work/without.log" || fail 'the log does not name io_uring'

    say 'the profile refuses namespaces and new processes'
    make_bundle "$profile" '["/usr/bin/unshare", "--user", "/usr/bin/true"]'
    ended_container unshare
    ((ending != 0)) || fail 'a namespace can be created'
    grep -q 'unshare failed' "$work/unshare.log" || fail 'unshare failed for another reason'
    # Without a second command, bash would replace itself instead of starting a process.
    make_bundle "$profile" '["/usr/bin/bash", "-c", "/usr/bin/id; exit 7"]'
    local since=$SECONDS
    ended_container shell
    ((SECONDS - since < 10)) || fail 'a shell that cannot start a process retries for too long'
    if grep -q 'uid=' "$work/shell.out"; then fail 'a shell can start a process'; fi
    grep -q 'fork' "$work/shell.log" || fail 'the shell does not name fork'
}

# Damages a journal. carom keeps the damaged one under a second name, which needs another system call.
try_repair() { # SECCOMP-FILE
    local journal=$work/data/links/0.jnl at
    say 'with a changed byte in the journal: carom repairs it'
    make_bundle "$1" '["/usr/bin/carom", "serve"]'
    start_container fills
    wait_for_service fills
    shorten
    shorten
    crun --root "$work/crun" kill "$container" KILL
    wait_until 'end of the node' has_ended
    wait "$node" || true
    node=''
    container=''
    # The last but one: a fault at the very end is a truncated write, not damage.
    at=$(grep -abo 'example.com/a/long' "$journal" | tail -n 2 | head -n 1)
    [[ -n $at ]] || fail "the links are not in $journal"
    printf X | dd of="$journal" bs=1 seek="${at%%:*}" conv=notrunc status=none
    start_container repairs
    wait_for_service repairs
    compgen -G "$work/data/links/*.damaged-*" >/dev/null || fail 'nothing was repaired'
    follow
    crun --root "$work/crun" kill "$container" TERM
    wait_for_end
    container=''
}

# ---- The image of a release ----

# Prints a value of a JSON file; PATH is a Python expression.
json_of() { # FILE PATH
    python3 -c 'import json, sys; print(eval(sys.argv[2], {"it": json.load(open(sys.argv[1]))}))' "$@"
}

# Unpacks the layers of the image as an engine does, and runs it with the user and the command of its configuration.
try_image() {
    local profile=$here/../container/seccomp.json serve image=$work/image config layer
    say 'the image of a release: checked, unpacked, and run like the container'
    "$here/../release/release.sh" --binary "$binary" --loadgen "$binary" --out "$work/dist" --fast >"$work/release.log" 2>&1 ||
        fail 'the release cannot be packed'
    mkdir "$image" "$work/layers"
    tar -C "$image" -xf "$work/dist/"*-image.tar
    config=$image/$(json_of "$image/manifest.json" 'it[0]["Config"]')
    for layer in $(json_of "$image/manifest.json" '" ".join(it[0]["Layers"])'); do
        tar -C "$work/layers" --numeric-owner --same-owner --same-permissions -xzf "$image/$layer"
    done
    # Mount points, which an engine creates.
    mkdir -p "$work/layers/proc" "$work/layers/sys" "$work/layers/dev"
    [[ $(json_of "$config" 'it["config"]["User"]') == carom ]] || fail 'the image does not run as carom'
    grep -q '^carom:x:990:990:' "$work/layers/etc/passwd" || fail 'the image has no user carom'
    [[ $(stat -c '%u:%g %a' "$work/layers/var/lib/carom") == '990:990 700' ]] || fail 'the data directory of the image has other rights'
    [[ ! -e $work/layers/bin/sh && ! -e $work/layers/usr/bin/sh ]] || fail 'the image has a shell'
    serve=$(json_of "$config" '__import__("json").dumps(it["config"]["Entrypoint"] + it["config"]["Cmd"])')
    use_root "$work/layers" "$work/image-data" 990 990
    serve_in_container image
}

# ---- All of it ----

here=$root/deploy/debian
binary=${CARGO_TARGET_DIR:-$root/target}/release/carom
cache=$root/target/debian/root.tar
only_root=''
read_options "$@"
if [[ -n $only_root && -s $cache ]]; then exit 0; fi
# `make build` writes both programs to one directory. With --binary, there may be no load generator.
loadgen=${binary%/*}/carom-loadgen
((EUID == 0)) || refuse 'must be root, to create a root file system'
need_programs debootstrap:debootstrap crun:crun prlimit:util-linux python3:python3 setpriv:util-linux unshare:util-linux
# A mount namespace, so that all mounts end with this process.
if [[ ${CAROM_PACKAGE_TEST-} != unshared ]]; then
    CAROM_PACKAGE_TEST=unshared exec unshare --mount --propagation private "${BASH_SOURCE[0]}" "$@"
fi
# Next to the cache: /tmp may be mounted nodev or noexec.
mkdir -p "$root/target/debian"
work=$(mktemp -d "$root/target/debian/test.XXXXXX")
system=$work/system
trap finish EXIT
trap 'exit 1' INT TERM HUP
# mktemp creates a private directory, but the user carom needs access to the root inside.
chmod 0755 "$work"
mkdir "$system"
make_root
if [[ -n $only_root ]]; then exit 0; fi
say 'build and install the package'
build_package
install_package -earlier
check_installed
read_limits
try_service
try_upgrade
try_removal
try_systemd
try_container
try_image
say 'success'
