#!/usr/bin/env bash
# Makes the Debian package of carom from a program that is built already. `deploy/debian/package.sh --help` tells the
# options; `make deb` builds the program first.
#
# The same program and the same files give the same bytes, so that everybody can see that a package holds what it is said to
# hold: no time but that of the last commit, no user but root, nothing of the machine that packs. That is said of packing
# alone: a program has paths of the one who built it in it, so that two builds of one commit may differ.
set -euo pipefail

# Files are made with these rights, whatever the user's own habit is.
umask 022
# Sorting and messages of tools are the same everywhere.
export LC_ALL=C

usage() {
    cat <<'END'
Makes carom_VERSION_ARCH.deb from a program that is built already.

Usage: deploy/debian/package.sh [OPTIONS]

Options:
  --binary PATH    The carom to pack [default: target/release/carom]
  --loadgen PATH   A carom-loadgen to pack as well [default: none]
  --out DIR        Where the package is written; made if it does not exist [default: target/debian]
  --fast           Compress little: for a try of the package, not for its users
  -h, --help       Print help

The time of all files is SOURCE_DATE_EPOCH, or that of the last commit. The path of the package is printed.

Exit codes: 0 the package is there, 1 something failed, 2 wrong options
END
}

complain() {
    printf 'package.sh: %s\n' "$*" >&2
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

root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
binary=$root/target/release/carom
loadgen=''
out=$root/target/debian
# One thread: with several, xz parts its input, and the bytes would depend on the machine.
compression=(-Zxz -z6 --threads-max=1)

read_options() { # ARGUMENT...
    while (($# > 0)); do
        case $1 in
            --fast)
                compression=(-Zgzip -z1)
                shift
                continue
                ;;
            -h | --help)
                usage
                exit 0
                ;;
            --binary | --loadgen | --out) [[ -n ${2-} ]] || refuse "$1 needs a value" ;;
            *) refuse "unknown option: $1" ;;
        esac
        case $1 in
            --binary) binary=$2 ;;
            --loadgen) loadgen=$2 ;;
            --out) out=$2 ;;
        esac
        shift 2
    done
    [[ -f $binary && -x $binary ]] || refuse "--binary: $binary is not a program; \`make deb\` builds one"
    [[ -z $loadgen || (-f $loadgen && -x $loadgen) ]] || refuse "--loadgen: $loadgen is not a program"
    # A name without a slash would be looked for among the commands, and some of the steps are done elsewhere.
    binary=$(realpath -- "$binary")
    if [[ -n $loadgen ]]; then loadgen=$(realpath -- "$loadgen"); fi
}

# ---- What is known of the package ----

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

# The version of the workspace, which all its packages have.
read_version() {
    version=$(awk '/^\[/ { here = $0 == "[workspace.package]" } here && $1 == "version" { gsub(/"/, "", $3); print $3 }' \
        "$root/Cargo.toml")
    [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || fail "Cargo.toml has no version that can be used: '$version'"
    # A program of another version under this name would mislead everybody who looks for a fault.
    local said
    said=$("$binary" --version) || fail "$binary does not run here"
    [[ $said == "carom $version" ]] || fail "$binary says that it is '$said', and Cargo.toml has $version"
    # In Debian's order 1.0.0~rc.1 comes before 1.0.0, as 1.0.0-rc.1 does in that of Cargo.
    version=${version/-/\~}
}

# Whether the tree is a repository of its own, and not only unpacked somewhere inside of another.
is_repository() {
    local prefix
    prefix=$(git -C "$root" rev-parse --show-prefix 2>/dev/null) && [[ -z $prefix ]]
}

# What differs from the last commit is packed as it is, since who tries a change wants that; but not without a word.
warn_of_changes() {
    local changed
    is_repository || return 0
    changed=$(git -C "$root" status --porcelain --untracked-files=no) || return 0
    [[ -z $changed ]] || complain "warning: files that differ from the last commit, and are packed as they are: $(wc -l <<<"$changed")"
}

read_time() {
    if [[ -z ${SOURCE_DATE_EPOCH-} ]]; then
        SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>"$work/git") || {
            cat "$work/git" >&2
            fail 'there is no commit whose time could be used; set SOURCE_DATE_EPOCH'
        }
    fi
    [[ $SOURCE_DATE_EPOCH =~ ^[0-9]+$ ]] || fail "SOURCE_DATE_EPOCH is not a number of seconds: $SOURCE_DATE_EPOCH"
    # dpkg-deb takes it for the outer archive.
    export SOURCE_DATE_EPOCH
}

# The packages that the programs need to be loaded, as Debian knows them.
read_depends() { # PROGRAM...
    # It wants a source package around it, and needs no more of that than this.
    mkdir -p "$work/source/debian"
    printf 'Source: carom\n\nPackage: carom\nArchitecture: any\n' >"$work/source/debian/control"
    local said
    said=$(cd "$work/source" && dpkg-shlibdeps -O "${@/#/-e}" 2>"$work/shlibdeps") || {
        cat "$work/shlibdeps" >&2
        fail 'dpkg-shlibdeps cannot tell what the program needs'
    }
    depends=${said#shlibs:Depends=}
    [[ $depends == *libc6* ]] || fail "dpkg-shlibdeps found no C library: '$said'"
}

# ---- Contents ----

put() { # MODE SOURCE TARGET
    install -D -m "$1" -- "$2" "$stage/$3"
}

put_program() { # SOURCE TARGET
    put 0755 "$1" "$2"
    # Tables of lines are for debuggers. Names of functions stay: without them the backtraces that the runbook asks for
    # would say nothing.
    strip --strip-debug --remove-section=.comment "$stage/$2"
}

put_programs() {
    put_program "$binary" usr/bin/carom
    if [[ -n $loadgen ]]; then put_program "$loadgen" usr/bin/carom-loadgen; fi
    put 0755 "$root/deploy/affinity.sh" usr/sbin/carom-affinity
}

put_settings() {
    # Not for everybody, from the first moment on: a password of Redis may stand there later. The group, which does not
    # exist before the package is installed, gets its right in postinst.
    install -d -m 0750 "$stage/etc/carom"
    put 0640 "$here/carom.toml" etc/carom/carom.toml
    put 0644 "$root/deploy/systemd/carom.service" usr/lib/systemd/system/carom.service
    put 0644 "$root/deploy/systemd/carom.socket" usr/lib/systemd/system/carom.socket
    put 0644 "$root/deploy/sysctl.d/60-carom.conf" usr/lib/sysctl.d/60-carom.conf
    put 0644 "$root/deploy/logrotate/carom" etc/logrotate.d/carom
}

# A document for the folder of documents, whose links lead to where things are installed. Of what is not, the words stay.
put_document() { # SOURCE TARGET
    put 0644 "$1" "$2"
    sed -i \
        -e 's,](\.\./,](,g' \
        -e 's,](deploy/RUNBOOK\.md,](RUNBOOK.md,g' \
        -e 's,](deploy/logrotate/,](../../../../etc/logrotate.d/,g' \
        -e 's,](deploy/sysctl\.d/,](../../../lib/sysctl.d/,g' \
        -e 's,](deploy/systemd/,](../../../lib/systemd/system/,g' \
        -e 's,](deploy/,](../../carom/,g' \
        -e 's,](container/,](../../carom/container/,g' \
        -e 's,](src/api/openapi\.json),](openapi.json),g' \
        -e 's,](CHANGELOG\.md,](NEWS.md,g' \
        -e 's,](LICENSE-[A-Z]*),](copyright),g' \
        -e 's,!\{0\,1\}\[\([^]]*\)\](\(bench\|docs\|src\|tests\)/[^)]*),\1,g' \
        "$stage/$2"
}

put_documents() {
    local doc=usr/share/doc/carom
    # Not compressed: the unit and the messages of the program name them as they are.
    put_document "$root/README.md" "$doc/README.md"
    put_document "$root/ARCHITECTURE.md" "$doc/ARCHITECTURE.md"
    put_document "$root/deploy/RUNBOOK.md" "$doc/RUNBOOK.md"
    put_document "$root/CHANGELOG.md" "$doc/NEWS.md"
    put 0644 "$root/src/api/openapi.json" "$doc/openapi.json"
    put 0644 "$here/copyright" "$doc/copyright"
    # Debian's own form, with a pointer to what people want to read.
    {
        printf 'carom (%s) unstable; urgency=medium\n\n' "$version"
        printf '  * What changed is in /usr/share/doc/carom/NEWS.md.\n\n'
        printf ' -- The carom contributors <packages@carom.example>  %s\n' "$(date -u -R -d "@$SOURCE_DATE_EPOCH")"
    } >"$work/changelog"
    # Without the name and time that gzip would write into it.
    gzip -9 -n "$work/changelog"
    put 0644 "$work/changelog.gz" "$doc/changelog.gz"
    put 0644 "$here/lintian-overrides" usr/share/lintian/overrides/carom
    # An exception for what is not there would be a warning itself.
    if [[ -z $loadgen ]]; then sed -i '/carom-loadgen/d' "$stage/usr/share/lintian/overrides/carom"; fi
}

# Configurations of what stands around carom, each with its reasons in it.
put_examples() {
    local folder file
    for folder in container grafana haproxy keepalived nginx prometheus redis; do
        while read -r file; do
            put 0644 "$root/$file" "usr/share/carom/$folder/${file##*/}"
        done < <(files_of "deploy/$folder")
    done
    sed -i -e 's,](\.\./\.\./README\.md,](../../doc/carom/README.md,g' -e 's,](\.\./RUNBOOK\.md,](../../doc/carom/RUNBOOK.md,g' \
        "$stage/usr/share/carom/container/README.md"
}

# The files of a folder: those that git knows, where it is asked, and not what an editor may have left beside them.
files_of() { # FOLDER
    if is_repository; then
        git -C "$root" ls-files -- "$1"
    else
        (cd -- "$root" && printf '%s\n' "$1"/*)
    fi
}

# ---- The archive ----

put_control() {
    local size script
    install -d -m 0755 "$stage/DEBIAN"
    # In units of 1,024 bytes, each file rounded up and each directory as one, as dpkg-gencontrol counts. What `du` says
    # would depend on the file system here.
    size=$(find "$stage" -path "$stage/DEBIAN" -prune -o \( -type f -printf '%s\n' -o -printf '1\n' \) |
        awk '{ sum += int(($1 + 1023) / 1024) } END { print sum }')
    sed -e '/^#/d' -e "s/@VERSION@/$version/" -e "s/@ARCH@/$arch/" -e "s/@DEPENDS@/$depends/" -e "s/@SIZE@/$size/" \
        "$here/control.in" >"$stage/DEBIAN/control"
    printf '%s\n' /etc/carom/carom.toml /etc/logrotate.d/carom >"$stage/DEBIAN/conffiles"
    for script in postinst prerm postrm; do put 0755 "$here/$script" "DEBIAN/$script"; done
    (cd "$stage" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
}

pack() {
    local package=$out/carom_${version}_$arch.deb
    mkdir -p -- "$out"
    # Where the temporary directory hands its group down, these have the bit for it.
    find "$stage" -type d -exec chmod g-s {} +
    find "$stage" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
    # It sorts what it packs. Under a name of its own until it is whole.
    dpkg-deb --root-owner-group "${compression[@]}" --build "$stage" "$package.new" >"$work/dpkg-deb"
    mv -- "$package.new" "$package"
    printf '%s\n' "$package"
}

read_options "$@"
need_programs awk:gawk dpkg-deb:dpkg dpkg-shlibdeps:dpkg-dev gzip:gzip install:coreutils strip:binutils
here=$root/deploy/debian
work=$(mktemp -d -t carom-package.XXXXXX)
trap 'rm -rf -- "$work"' EXIT
stage=$work/stage
mkdir "$stage"
arch=$(dpkg --print-architecture)
read_version
read_time
warn_of_changes
put_programs
read_depends "$stage"/usr/bin/*
put_settings
put_documents
put_examples
put_control
pack
