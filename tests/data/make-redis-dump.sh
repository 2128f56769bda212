#!/usr/bin/env bash
# Writes redis-NAME.rdb: what Redis holds of a fleet whose only node has the links of data-dir-NAME.tar.gz. Run it with
# the same arguments as make-data-dir.sh, after it: make-redis-dump.sh target/release/carom [NAME]
set -euo pipefail

carom=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=${2:-$("$carom" -V | awk '{ print $2 }')}
work=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" || true; wait; rm -rf "$work"' EXIT
mkdir "$work/data" "$work/redis"
tar -xzf "$here/data-dir-$name.tar.gz" -C "$work/data"

redis-server --port 18997 --bind 127.0.0.1 --save '' --dir "$work/redis" --rdbcompression no >"$work/redis.log" &
pids+=($!)
until redis-cli -p 18997 PING >/dev/null 2>&1; do sleep 0.1; done
# States that expire would be gone when the dump is read.
CAROM_BASE_URL=http://carom.test CAROM_DOMAINS_SERVE=http://go.test CAROM_LINKS_DEFAULT_TTL=off \
    CAROM_LINKS_KEEP_EXPIRED=forever CAROM_LINKS_MULTI_SEGMENT_SLUGS=true CAROM_LOG_LEVEL=warn CAROM_FLEET_NODE=old \
    CAROM_FLEET_RETENTION=forever \
    "$carom" serve --cores 1 --data-dir "$work/data" --listen 127.0.0.1:18999 --admin-listen 127.0.0.1:18998 \
    --redis redis://127.0.0.1:18997 >"$work/out" &
pids+=($!)
is_synced() {
    curl -fsS http://127.0.0.1:18998/status -H 'Accept: application/json' |
        jq -e '.redis.connected and .fleet.comparing == 0 and .fleet.outbox == 0' >/dev/null
}
until is_synced 2>/dev/null; do sleep 0.1; done
redis-cli -p 18997 SAVE
cp "$work/redis/dump.rdb" "$here/redis-$name.rdb"
ls -l "$here/redis-$name.rdb"
