# Messages and checks of the scripts that build and test packages, which source this file. They keep `set -euo pipefail`.
# shellcheck shell=bash

complain() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
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
