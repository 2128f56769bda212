#!/usr/bin/env bash
# Builds the Debian package of carom from an existing binary. `deploy/debian/package.sh --help` lists the options; `make deb`
# builds the binary first.
#
# Packaging is reproducible: the same binary and files always give the same bytes, so that anyone can check what a package
# contains. All times are that of the last commit, and all files belong to root. The binary itself is reproducible if
# deploy/release/release.sh builds it; otherwise it embeds paths of the build machine.
set -euo pipefail

# File modes do not depend on the umask of the user.
umask 022
# Sort order and messages of tools do not depend on the locale.
export LC_ALL=C

usage() {
    cat <<'END'
Builds carom_VERSION_ARCH.deb from an existing binary.

Usage: deploy/debian/package.sh [OPTIONS]

Options:
  --binary PATH    The carom binary to package [default: release/carom in CARGO_TARGET_DIR, or in target]
  --loadgen PATH   A carom-loadgen binary to include [default: none]
  --notices PATH   A file with the licences of libraries to include [default: none]
  --out DIR        Output directory; created if it does not exist [default: target/debian]
  --fast           Compress less, for tests
  -h, --help       Print help

Prints the path of the package. The time of all files is SOURCE_DATE_EPOCH, or that of the last commit.

Exit codes: 0 success, 1 failure, 2 wrong options
END
}

# ---- Options ----

root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=debian/common.sh
source "$root/deploy/debian/common.sh"
binary=${CARGO_TARGET_DIR:-$root/target}/release/carom
loadgen=''
notices=''
out=$root/target/debian
# One thread: with several, xz splits its input, and the bytes would depend on the machine.
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
            --binary | --loadgen | --notices | --out) [[ -n ${2-} ]] || refuse "$1 needs a value" ;;
            *) refuse "unknown option: $1" ;;
        esac
        case $1 in
            --binary) binary=$2 ;;
            --loadgen) loadgen=$2 ;;
            --notices) notices=$2 ;;
            --out) out=$2 ;;
        esac
        shift 2
    done
    [[ -f $binary && -x $binary ]] || refuse "--binary: $binary is not an executable file; \`make deb\` builds one"
    [[ -z $loadgen || (-f $loadgen && -x $loadgen) ]] || refuse "--loadgen: $loadgen is not an executable file"
    [[ -z $notices || -f $notices ]] || refuse "--notices: $notices is not a file"
    # A name without a slash would be looked up in PATH, and some steps run in other directories.
    binary=$(realpath -- "$binary")
    if [[ -n $loadgen ]]; then loadgen=$(realpath -- "$loadgen"); fi
}

# ---- Metadata ----

# Reads the version of the workspace, which all its crates share.
read_version() {
    version=$(awk '/^\[/ { here = $0 == "[workspace.package]" } here && $1 == "version" { gsub(/"/, "", $3); print $3 }' \
        "$root/Cargo.toml")
    [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || fail "Cargo.toml has an unusable version: '$version'"
    # A package whose binary has another version would mislead everyone who debugs it.
    local said
    said=$("$binary" -V) || fail "cannot run $binary"
    [[ $said == "carom $version" ]] || fail "$binary is '$said', but Cargo.toml has version $version"
    # Debian sorts 1.0.0~rc.1 before 1.0.0, as Cargo does with 1.0.0-rc.1.
    version=${version/-/\~}
}

# Succeeds if the tree is a git repository of its own, rather than a directory inside another repository.
is_repository() {
    local prefix
    prefix=$(git -C "$root" rev-parse --show-prefix 2>/dev/null) && [[ -z $prefix ]]
}

# Warns of uncommitted changes, which are packaged too.
warn_of_changes() {
    local changed
    is_repository || return 0
    changed=$(git -C "$root" status --porcelain --untracked-files=no) || return 0
    [[ -z $changed ]] || complain "warning: the package includes uncommitted changes in $(wc -l <<<"$changed") files"
}

read_time() {
    if [[ -z ${SOURCE_DATE_EPOCH-} ]]; then
        SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>"$work/git") || {
            cat "$work/git" >&2
            fail 'there is no commit to take the time from; set SOURCE_DATE_EPOCH'
        }
    fi
    [[ $SOURCE_DATE_EPOCH =~ ^[0-9]+$ ]] || fail "SOURCE_DATE_EPOCH is not a number of seconds: $SOURCE_DATE_EPOCH"
    # dpkg-deb uses it for the outer archive.
    export SOURCE_DATE_EPOCH
}

# Reads the packages of the shared libraries that the binaries need.
read_depends() { # PROGRAM...
    # dpkg-shlibdeps expects a source package; this much is enough.
    mkdir -p "$work/source/debian"
    printf 'Source: carom\n\nPackage: carom\nArchitecture: any\n' >"$work/source/debian/control"
    local said
    said=$(cd "$work/source" && dpkg-shlibdeps -O "${@/#/-e}" 2>"$work/shlibdeps") || {
        cat "$work/shlibdeps" >&2
        fail 'dpkg-shlibdeps failed'
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
    # Removes debug information, but keeps function names, for the stack traces that the runbook asks for.
    strip --strip-debug --remove-section=.comment "$stage/$2"
}

put_programs() {
    put_program "$binary" usr/bin/carom
    if [[ -n $loadgen ]]; then put_program "$loadgen" usr/bin/carom-loadgen; fi
    put 0755 "$root/deploy/affinity.sh" usr/sbin/carom-affinity
}

put_settings() {
    # Restricted from the start, because it may hold the password of Redis later. postinst sets the group, which does not exist
    # before the installation.
    install -d -m 0750 "$stage/etc/carom"
    put 0640 "$here/carom.toml" etc/carom/carom.toml
    put 0644 "$root/deploy/systemd/carom.service" usr/lib/systemd/system/carom.service
    put 0644 "$root/deploy/systemd/carom.socket" usr/lib/systemd/system/carom.socket
    put 0644 "$root/deploy/systemd/carom-backup.service" usr/lib/systemd/system/carom-backup.service
    put 0644 "$root/deploy/systemd/carom-backup.timer" usr/lib/systemd/system/carom-backup.timer
    put 0644 "$root/deploy/sysctl.d/60-carom.conf" usr/lib/sysctl.d/60-carom.conf
    put 0644 "$root/deploy/logrotate/carom" etc/logrotate.d/carom
}

# Installs a document, with its links rewritten to installed paths. Links to files that are not installed become plain text.
put_document() { # SOURCE TARGET
    put 0644 "$1" "$2"
    sed -i \
        -e 's,](\.\./,](,g' \
        -e 's,](deploy/logrotate/,](../../../../etc/logrotate.d/,g' \
        -e 's,](deploy/sysctl\.d/,](../../../lib/sysctl.d/,g' \
        -e 's,](deploy/systemd/,](../../../lib/systemd/system/,g' \
        -e 's,](deploy/,](../../carom/,g' \
        -e 's,](container/,](../../carom/container/,g' \
        -e 's,](src/api/rest/openapi\.json),](openapi.json),g' \
        -e 's,](CHANGELOG\.md,](NEWS.md,g' \
        -e 's,](LICENSE-[A-Z]*),](copyright),g' \
        -e 's,\[\(CONTRIBUTING\.md\)\]([^)]*),\1,g' \
        -e 's,](docs/src/,](docs/,g' \
        -e 's,<img src="src/[^>]*> ,,' \
        -e 's,!\{0\,1\}\[\([^]]*\)\](\(bench\|docs/screens\|src\|tests\)/[^)]*),\1,g' \
        "$stage/$2"
}

put_documents() {
    local doc=usr/share/doc/carom
    # Uncompressed: the unit and messages of carom name these paths.
    put_document "$root/README.md" "$doc/README.md"
    put_document "$root/ARCHITECTURE.md" "$doc/ARCHITECTURE.md"
    put_document "$root/CHANGELOG.md" "$doc/NEWS.md"
    put 0644 "$root/src/api/rest/openapi.json" "$doc/openapi.json"
    # The book. Its pages link only to each other, so their links need no rewriting.
    local page
    while read -r page; do
        put 0644 "$root/$page" "$doc/docs/${page#docs/src/}"
    done < <(files_of docs/src)
    put 0644 "$here/copyright" "$doc/copyright"
    if [[ -n $notices ]]; then put 0644 "$notices" "$doc/third-party-licenses.txt"; fi
    # The changelog in Debian's format, which points to the readable one.
    {
        printf 'carom (%s) unstable; urgency=medium\n\n' "$version"
        printf '  * See /usr/share/doc/carom/NEWS.md.\n\n'
        printf ' -- The carom contributors <packages@carom.example>  %s\n' "$(date -u -R -d "@$SOURCE_DATE_EPOCH")"
    } >"$work/changelog"
    # -n: without name and time, which would differ.
    gzip -9 -n "$work/changelog"
    put 0644 "$work/changelog.gz" "$doc/changelog.gz"
    put 0644 "$here/lintian-overrides" usr/share/lintian/overrides/carom
    # lintian warns of an override without a match.
    if [[ -z $loadgen ]]; then sed -i '/carom-loadgen/d' "$stage/usr/share/lintian/overrides/carom"; fi
}

# Installs completions and man pages, which the binaries write themselves.
put_generated() {
    local pair page
    for pair in bash:bash-completion/completions/carom zsh:zsh/vendor-completions/_carom \
        fish:fish/vendor_completions.d/carom.fish; do
        "$binary" completions "${pair%%:*}" >"$work/completions" || fail "$binary has no completions for ${pair%%:*}"
        put 0644 "$work/completions" "usr/share/${pair#*:}"
    done
    "$binary" man "$work/man" >"$work/man.log" || fail "$binary has no man pages"
    if [[ -n $loadgen ]]; then "$loadgen" man "$work/man" >>"$work/man.log" || fail "$loadgen has no man pages"; fi
    # -n: without name and time, which would differ.
    gzip -9 -n "$work/man/"*.1
    for page in "$work/man/"*.1.gz; do put 0644 "$page" "usr/share/man/man1/${page##*/}"; done
}

# Installs example configurations of balancers, proxies, Redis, monitoring and containers.
put_examples() {
    local folder file mode page
    for folder in caddy certbot compose container grafana haproxy keepalived nginx prometheus redis; do
        while read -r file; do
            mode=0644
            if [[ -x $root/$file ]]; then mode=0755; fi
            put "$mode" "$root/$file" "usr/share/carom/${file#deploy/}"
        done < <(files_of "deploy/$folder")
    done
    # The drop-in has no effect there; the administrator copies it to use it.
    put 0644 "$root/deploy/systemd/carom.service.d/bypass.conf" usr/share/carom/systemd/bypass.conf
    for page in compose container; do
        sed -i -e 's,](\.\./\.\./docs/src/,](../../doc/carom/docs/,g' "$stage/usr/share/carom/$page/README.md"
    done
}

# Prints the files of a folder: in a git repository, only tracked ones, without leftovers of editors. Elsewhere, all but the secrets that
# deploy/compose/three-nodes/prepare.sh writes.
files_of() { # FOLDER
    if is_repository; then
        git -C "$root" ls-files -- "$1"
    else
        (cd -- "$root" && find "$1" -type f ! -name '.env*' ! -path '*/secrets/*' | sort)
    fi
}

# ---- The archive ----

put_control() {
    local size script
    install -d -m 0755 "$stage/DEBIAN"
    # In units of 1,024 bytes, each file rounded up and each directory as one, as dpkg-gencontrol counts. `du` would depend on
    # the file system.
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
    # Directories may have inherited the setgid bit from the temporary directory.
    find "$stage" -type d -exec chmod g-s {} +
    find "$stage" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
    # dpkg-deb sorts the files. The package gets its name once it is complete.
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
put_generated
put_examples
put_control
pack
