#!/usr/bin/env bash
# Checks the public API against its own description with schemathesis, on a node that this starts: `run.sh BINARY [EXAMPLES]`.
#
# EXAMPLES is the number of requests that are generated for each operation and phase; they are the same in each run.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binary=$(realpath "$1")
examples=${2:-30}

environment=$("$here/environment.sh")

folder=$(mktemp -d)
node=
# The trap calls it.
# shellcheck disable=SC2317
cleanup() {
    if [ -n "$node" ]; then kill "$node" 2>/dev/null || true; wait "$node" 2>/dev/null || true; fi
    rm -rf "$folder"
}
trap cleanup EXIT

cd "$folder"
CAROM_API_COMPAT=shlink,bitly,yourls CAROM_EVENTS_LOG=on CAROM_API_YOURLS_JSONP=true CAROM_LIMITS_MISSES_PER_SECOND=0 "$binary" serve --data-dir "$folder/data" --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 \
    --cores 1 >"$folder/out" 2>"$folder/log" &
node=$!
# The node says where it listens once it is ready.
for _ in $(seq 600); do
    grep --quiet ' serves http' "$folder/out" && break
    kill -0 "$node" 2>/dev/null || { cat "$folder/log" >&2; exit 1; }
    sleep 0.1
done
url=$(grep --only-matching 'http://[^ ,]*' "$folder/out" | head -1)
# The code of the examples in the description.
curl --silent --show-error --fail --output /dev/null --json '{"longUrl": "https://example.com/", "customSlug": "EKyEUwU"}' \
    "$url/rest/v3/short-urls"

status=0
SCHEMATHESIS_HOOKS=hooks PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here "$environment/bin/schemathesis" \
    --config-file "$here/schemathesis.toml" run "$url/rest/v3/openapi.json" --max-examples "$examples" || status=$?
if [ "$status" -ne 0 ]; then
    echo 'the log of the node:' >&2
    cat "$folder/log" >&2
fi
exit "$status"
