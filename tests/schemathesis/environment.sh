#!/usr/bin/env bash
# Makes the virtual environment of schemathesis in the target directory, once for each version of requirements.txt, and prints its path.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

environment=${CARGO_TARGET_DIR:-$here/../../target}/schemathesis
if ! cmp --silent "$here/requirements.txt" "$environment/requirements.txt"; then
    rm -rf "$environment"
    mkdir -p "$(dirname "$environment")"
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements.txt" >&2
    cp "$here/requirements.txt" "$environment/requirements.txt"
fi
realpath "$environment"
