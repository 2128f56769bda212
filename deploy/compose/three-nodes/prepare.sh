#!/usr/bin/env bash
# Writes the secrets of the three nodes, before their first start: .env with the code secret and passwords, and an API key for Prometheus.
# It changes nothing that exists, so it can run again.
set -euo pipefail
umask 077
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"

fail() {
    printf 'prepare.sh: %s\n' "$*" >&2
    exit 1
}

# Prints 64 random hexadecimal digits.
random() {
    od -An -N32 -tx1 /dev/urandom | tr -d ' \n'
}

# The engine: docker, or podman with a compose provider.
engine=${ENGINE-docker}
command -v "$engine" >/dev/null || fail "missing: $engine; set ENGINE to the container engine, such as podman"

if [[ ! -e .env ]]; then
    printf '%s=%s\n' CAROM_SPACE_KEY "$(random)" CAROM_FLEET_PASSWORD "$(random)" GRAFANA_PASSWORD "$(random)" >.env.new
    mv .env.new .env
    echo 'created .env: keep a copy of CAROM_SPACE_KEY, from which short codes are generated'
fi
if [[ ! -s secrets/prometheus.key ]]; then
    mkdir -p secrets
    # The key is in the data of node1, which shares it with the fleet. Without a terminal (-T), only the key is on standard output.
    "$engine" compose run --rm --no-deps -T node1 app add prometheus --role admin >secrets/prometheus.key.new ||
        fail 'cannot create an API key in the volume of node1; is the image loaded?'
    [[ $(<secrets/prometheus.key.new) == carom_ak_* ]] || fail 'secrets/prometheus.key.new is not an API key'
    # Prometheus runs as another user. The directory keeps the key from other users of this machine.
    chmod 0644 secrets/prometheus.key.new
    mv secrets/prometheus.key.new secrets/prometheus.key
    echo 'created secrets/prometheus.key'
fi
echo "ready: $engine compose up --detach"
