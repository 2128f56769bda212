#!/usr/bin/env bash
# Builds the files of a release in dist/: tarball, Debian package, container image, bill of materials and checksums.
# `deploy/release/release.sh --help` lists the options; `make release` calls this script.
#
# Releases are reproducible: the same commit, built with the same Rust, C compiler and Debian packages, gives the same bytes in any
# directory. The compilers replace the paths of this machine, all times are that of the commit, and archives are sorted.
set -euo pipefail

# File modes do not depend on the umask of the user.
umask 022
# Sort order and messages of tools do not depend on the locale.
export LC_ALL=C

usage() {
    cat <<'END_OF_HELP'
Builds the files of a release: tarball, Debian package, container image, bill of materials and checksums.

Usage: deploy/release/release.sh [OPTIONS]

Options:
  --binary PATH    Package this carom binary instead of compiling; needs --loadgen
  --loadgen PATH   Package this carom-loadgen binary
  --out DIR        Output directory; its files are replaced [default: dist]
  --fast           Compress less, for tests
  -h, --help       Print help

The time of all files is SOURCE_DATE_EPOCH, or that of the last commit. Cargo compiles in the directory `dist` below its target
directory, because other compiler flags would invalidate the builds there.

Exit codes: 0 success, 1 failure, 2 wrong options
END_OF_HELP
}

# ---- Options ----

root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=debian/common.sh
source "$root/deploy/debian/common.sh"
here=$root/deploy/release
binary=''
loadgen=''
out=$root/dist
level=9
fast=()

read_options() { # ARGUMENT...
    while (($# > 0)); do
        case $1 in
            --fast)
                level=1
                fast=(--fast)
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
    [[ -z $binary && -z $loadgen || -n $binary && -n $loadgen ]] || refuse 'pass both --binary and --loadgen, or neither'
    local program
    for program in "$binary" "$loadgen"; do
        [[ -z $program || (-f $program && -x $program) ]] || refuse "$program is not an executable file"
    done
}

# ---- Metadata ----

read_machine() {
    arch=$(dpkg --print-architecture)
    case $arch in
        amd64) target=x86_64-unknown-linux-gnu ;;
        arm64) target=aarch64-unknown-linux-gnu ;;
        *) fail "releases are for amd64 and arm64; this machine has $arch" ;;
    esac
}

read_commit() {
    revision=$(git -C "$root" rev-parse HEAD 2>/dev/null) || revision=unknown
    if [[ -z ${SOURCE_DATE_EPOCH-} ]]; then
        SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>/dev/null) ||
            fail 'there is no commit to take the time from; set SOURCE_DATE_EPOCH'
    fi
    [[ $SOURCE_DATE_EPOCH =~ ^[0-9]+$ ]] || fail "SOURCE_DATE_EPOCH is not a number of seconds: $SOURCE_DATE_EPOCH"
    # For package.sh, and for build scripts of crates.
    export SOURCE_DATE_EPOCH
}

# ---- Compiling ----

# Prints the paths of this machine that a binary would embed, each with its replacement. Of several that match, the last one counts.
path_map() { # TARGET-DIR
    local cargo_home registry
    cargo_home=${CARGO_HOME:-$HOME/.cargo}
    printf '%s=%s\n' "$cargo_home" /cargo "$root" /carom "$1" /target
    # The name of a folder here depends on the address of the registry, which may be a mirror.
    for registry in "$cargo_home"/registry/src/*/; do
        printf '%s=%s\n' "${registry%/}" /cargo/registry
    done
    # With the component rust-src, the compiler names the sources of the standard library by their local path.
    printf '%s=%s\n' "$(rustc --print sysroot)/lib/rustlib/src/rust" "/rustc/$(rustc -vV | sed -n 's/^commit-hash: //p')"
}

compile() {
    local target_dir pair rust_flags='' c_flags=${CFLAGS-}
    need_programs cargo:rustup rustc:rustup cc:build-essential
    # Cargo unpacks the sources of crates before path_map looks for them.
    (cd "$root" && cargo fetch --locked --target "$target")
    # Relative to the root, as cargo takes it there.
    target_dir=$(cd "$root" && realpath -m -- "${CARGO_TARGET_DIR:-target}/dist")
    while IFS= read -r pair; do
        [[ $pair != *[[:space:]]* ]] || fail "a path has white space, which C compilers cannot take: ${pair%=*}"
        # Cargo separates flags by this character.
        rust_flags+=${rust_flags:+$'\x1f'}--remap-path-prefix=$pair
        c_flags+=" -ffile-prefix-map=$pair"
    done < <(path_map "$target_dir")
    (cd "$root" && CARGO_ENCODED_RUSTFLAGS=$rust_flags CFLAGS=$c_flags CARGO_INCREMENTAL=0 \
        cargo build --release --locked --target-dir "$target_dir" --package carom --package carom-loadgen)
    binary=$target_dir/release/carom
    loadgen=$target_dir/release/carom-loadgen
}

# ---- The files of a release ----

write_bill() {
    (cd "$root" && cargo metadata --format-version 1 --locked --filter-platform "$target") >"$work/metadata.json"
    # The features of crates as in a build of these packages, without those that tests enable.
    (cd "$root" && cargo tree --locked --package carom --package carom-loadgen --edges normal,build --target "$target" \
        --prefix none --format '{p}') >"$work/tree"
    python3 "$here/sbom.py" --metadata "$work/metadata.json" --tree "$work/tree" --lock "$root/Cargo.lock" \
        --version "$version" --target "$target" --time "$SOURCE_DATE_EPOCH" --out "$new/$name.cdx.json" --notices "$work/third-party-licenses.txt"
}

write_package() {
    package=$("$root/deploy/debian/package.sh" --binary "$binary" --loadgen "$loadgen" --out "$new" \
        --notices "$work/third-party-licenses.txt" "${fast[@]}")
    dpkg-deb --extract "$package" "$work/root"
}

# Writes the files of the package as a tarball, in a folder of its own, below which usr/ becomes the root.
write_tarball() {
    local folder=$work/tarball/$name page
    mkdir -p "$folder"
    mv "$work/root/usr"/* "$work/root/etc" "$folder"
    rm -r "$folder/share/lintian"
    install -m 0644 "$root/LICENSE-APACHE" "$root/LICENSE-MIT" "$folder"
    install -m 0644 "$here/INSTALL.md" "$folder/README.md"
    # There is one folder less between the documents and etc/.
    while IFS= read -r page; do
        sed -i 's,](\.\./\.\./\.\./\.\./etc/,](../../../etc/,g' "$page"
    done < <(find "$folder/share/doc/carom" -maxdepth 1 -name '*.md')
    # Only root could read them after unpacking; the package sets their group at installation.
    chmod 0755 "$folder/etc/carom"
    chmod 0644 "$folder/etc/carom/carom.toml"
    # -n: without name and time, which would differ.
    tar -C "$work/tarball" --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w \
        --mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" | gzip "-$level" -n >"$new/$name.tar.gz"
}

write_image() {
    local folder=$work/tarball/$name
    python3 "$here/image.py" --binary "$folder/bin/carom" --document "$folder/LICENSE-APACHE" --document "$folder/LICENSE-MIT" \
        --document "$work/third-party-licenses.txt" --arch "$arch" --version "$version" --revision "$revision" \
        --time "$SOURCE_DATE_EPOCH" --level "$level" --out "$new/carom-$version-$arch-image.tar"
}

# Moves the new files to the output directory. Files of an earlier release there would not be in SHA256SUMS.
publish() {
    (cd "$new" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
    python3 "$here/check.py" "$new" >/dev/null
    rm -rf -- "$out"
    mkdir -p -- "$(dirname -- "$out")"
    mv -- "$new" "$out"
    printf '%s\n' "$out"/*
}

read_options "$@"
need_programs cargo:rustup dpkg-deb:dpkg dpkg-shlibdeps:dpkg-dev git:git gzip:gzip python3:python3 strip:binutils tar:tar
# An absolute path, because some steps run in other directories.
out=$(realpath -m -- "$out")
[[ $out != / && $out != "$root" ]] || refuse "--out: the files of $out would be removed"
[[ ! -e $out || -e $out/SHA256SUMS || -z $(ls -A "$out") ]] || refuse "--out: $out exists and has no release; its files would be removed"
work=$(mktemp -d -t carom-release.XXXXXX)
trap 'rm -rf -- "$work"' EXIT
new=$work/dist
mkdir "$new"
chmod 0755 "$new"
read_machine
read_commit
if [[ -z $binary ]]; then compile; fi
version=$("$binary" -V)
version=${version#carom }
name=carom-$version-$target
write_bill
write_package
write_tarball
write_image
publish
