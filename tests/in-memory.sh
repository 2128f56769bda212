#!/usr/bin/env bash
# Runs a command with TMPDIR on a tmpfs, if one has room: `tests/in-memory.sh COMMAND [ARGUMENT…]`.
#
# Nodes of tests sync every change, so on a slow disk they wait most of the time. A `kill -9` leaves the same on a disk and on a tmpfs: the
# page cache survives the process. Tests of power failures keep unsynced writes back themselves. TEST_TMPDIR names another folder.
set -euo pipefail

# The least free space for which the tmpfs is used, in bytes. All tests together took at most 3 GiB.
ROOM=$((8 * 1024 * 1024 * 1024))

memory=/dev/shm
if [ -n "${TEST_TMPDIR:-}" ]; then
    export TMPDIR=$TEST_TMPDIR
elif [ -w "$memory" ] && [ "$(df --output=avail --block-size=1 "$memory" | tail -n 1)" -ge "$ROOM" ]; then
    TMPDIR=$(mktemp -d "$memory/carom-tests.XXXXXX")
    # Some nodes run as another user.
    chmod 711 "$TMPDIR"
    export TMPDIR
    trap 'rm -rf "$TMPDIR"' EXIT
fi
"$@"
