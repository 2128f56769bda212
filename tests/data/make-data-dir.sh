#!/usr/bin/env bash
# Writes data-dir-NAME.tar.gz, a data directory with links of every kind, and data-dir-NAME.json, what a node must answer
# for each of them. Run it once for a release whose format changes, with the binary of that release:
# make-data-dir.sh target/release/carom [NAME]. Without a name, it is the version of the binary.
set -euo pipefail

carom=$(realpath "$1")
name=${2:-$("$carom" -V | awk '{ print $2 }')}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
node=
trap 'if [ -n "$node" ]; then kill "$node" || true; fi; rm -rf "$work"' EXIT
data=$work/data
public=http://127.0.0.1:18999
links=$public/rest/v3/short-urls

start() {
    CAROM_BASE_URL=http://carom.test CAROM_DOMAINS_SERVE=http://go.test CAROM_LINKS_DEFAULT_TTL=off \
        CAROM_LINKS_KEEP_EXPIRED=forever CAROM_LINKS_MULTI_SEGMENT_SLUGS=true CAROM_LOG_LEVEL=warn \
        "$carom" serve --cores 1 --data-dir "$data" --listen 127.0.0.1:18999 --admin-listen 127.0.0.1:18998 \
        >"$work/out" &
    node=$!
    until curl -fsS "$public/rest/health" >/dev/null 2>&1; do sleep 0.1; done
}

stop() {
    kill "$node"
    wait "$node"
    node=
}

# Asks the API with a key: METHOD KEY URL BODY.
ask() {
    curl -fsS -X "$1" -H "X-Api-Key: $2" -H 'Content-Type: application/json' "$3" ${4:+-d "$4"}
}

# The code of a link: KEY BODY.
create() {
    ask POST "$1" "$links" "$2" | jq -r .shortCode
}

mkdir "$data"
ops=$("$carom" app add ops --role admin --data-dir "$data")
shop=$("$carom" app add shop --role write-own --data-dir "$data")
start

codes=()
codes+=("$(create "$ops" '{"longUrl": "https://example.org/custom?a=1#top", "customSlug": "custom-slug"}')")
codes+=("$(create "$ops" '{"longUrl": "https://example.org/issued"}')")
codes+=("$(create "$ops" '{"longUrl": "https://example.org/private", "private": true}')")
codes+=("$(create "$ops" '{"longUrl": "https://example.org/expired", "customSlug": "expired", "validUntil": "2020-01-01T00:00:00Z"}')")
codes+=("$(create "$ops" '{"longUrl": "https://example.org/later", "customSlug": "later", "validSince": "2999-01-01T00:00:00Z"}')")
codes+=("$(create "$ops" '{"longUrl": "https://example.org/lasting", "customSlug": "lasting", "validUntil": "9999-12-31T23:59:59Z"}')")
codes+=("$(create "$ops" '{"longUrl": "https://example.org/limited", "customSlug": "limited", "maxVisits": 5}')")
codes+=("$(create "$ops" '{"longUrl": "https://example.org/used-up", "customSlug": "used-up", "maxVisits": 1}')")
codes+=("$(create "$ops" '{"longUrl": "https://example.org/tagged", "customSlug": "tagged", "title": "Grüße <b>", "tags": ["Sale", "two words"], "crawlable": true}')")
codes+=("$(create "$ops" '{"longUrl": "https://bücher.example/ä", "customSlug": "permanent", "redirectStatus": 308, "cacheSeconds": 60, "forwardQuery": false}')")
codes+=("$(create "$ops" '{"longUrl": "https://example.org/archived", "customSlug": "archived", "archived": true}')")
codes+=("$(create "$ops" '{"longUrl": "https://example.org/before", "customSlug": "changed"}')")
codes+=("$(create "$shop" '{"longUrl": "https://example.org/of-an-app", "appVersion": "1.4.2"}')")
codes+=("$(create "$ops" '{"longUrl": "https://example.org/with-slashes", "customSlug": "with/slashes"}')")
codes+=("$(create "$ops" '{"longUrl": "https://example.org/ruled", "customSlug": "ruled"}')")
ask POST "$ops" "$links/ruled/redirect-rules" '{"redirectRules": [
    {"longUrl": "https://example.org/android", "conditions": [{"type": "device", "matchKey": null, "matchValue": "android"}]},
    {"longUrl": "https://example.org/edge", "conditions": [{"type": "browser", "matchKey": null, "matchValue": "edge"}]}]}' >/dev/null
curl -fsS -X POST -H "X-Api-Key: $ops" -H 'Content-Type: application/x-ndjson' "$links/bulk/import" -o /dev/null \
    -d '{"shortCode": "imported", "longUrl": "https://example.org/imported", "dateCreated": "2025-06-01T12:00:00Z", "visitsSummary": {"total": 7, "bots": 1}}'
codes+=(imported)
domain_codes=()
domain_codes+=("$(create "$ops" '{"longUrl": "https://example.org/of-a-domain", "customSlug": "custom-slug", "domain": "go.test"}')")
domain_codes+=("$(create "$ops" '{"longUrl": "https://example.org/issued-in-a-domain", "domain": "go.test"}')")
create "$ops" '{"longUrl": "https://example.org/deleted", "customSlug": "deleted"}' >/dev/null
ask PATCH "$ops" "$links/changed" '{"longUrl": "https://example.org/after"}' >/dev/null
ask DELETE "$ops" "$links/deleted"

visit() {
    curl -sS -o /dev/null -H "Host: $1" "$public/$2"
}
for _ in 1 2 3; do visit carom.test custom-slug; done
for _ in 1 2; do visit carom.test limited; done
for _ in 1 2 3 4; do visit go.test custom-slug; done
visit carom.test used-up
# What a link answers to a visitor, and what the API says of it afterwards: HOST CODE QUERY.
visit_once() {
    # A visit of a link with a limit would use up what is left.
    case $2 in limited | used-up) ;; *) curl -sS -o /dev/null -D "$work/head-$1-${2//\//_}" -H "Host: $1" "$public/$2" ;; esac
}
expect_link() {
    local head=$work/head-$1-${2//\//_}
    [ -e "$head" ] || : >"$head"
    jq -n --arg host "$1" --arg code "$2" --argjson record "$(ask GET "$ops" "$links/$2$3")" \
        --argjson rules "$(ask GET "$ops" "$links/$2/redirect-rules$3" | jq .redirectRules)" \
        --arg status "$(awk 'NR == 1 { print $2 }' "$head")" \
        --arg location "$(awk 'tolower($1) == "location:" { print $2 }' "$head" | tr -d '\r')" \
        '{host: $host, code: $code, status: (if $status == "" then null else $status | tonumber end),
          location: (if $location == "" then null else $location end), record: $record, rules: $rules}'
}
for code in "${codes[@]}"; do visit_once carom.test "$code"; done
for code in "${domain_codes[@]}"; do visit_once go.test "$code"; done
sleep 3
records=$work/records
for code in "${codes[@]}"; do expect_link carom.test "$code" '' >>"$records"; done
for code in "${domain_codes[@]}"; do expect_link go.test "$code" '?domain=go.test' >>"$records"; done
jq -s --arg ops "$ops" --arg shop "$shop" '{keys: {ops: $ops, shop: $shop}, links: .}' "$records" \
    >"$here/data-dir-$name.json"
stop

rm -f "$data"/*.sock
# Journals are allocated ahead: their holes take no room in a sparse archive.
tar --sparse --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "$data" -cf - . | gzip -9n >"$here/data-dir-$name.tar.gz"
ls -l "$here/data-dir-$name".*
