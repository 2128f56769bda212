#!/usr/bin/env bash
# Runs a command with TMPDIR on a tmpfs, if one has room: `tests/in-memory.sh COMMAND [ARGUMENT…]`.
#
# Nodes of tests sync every change, so on a slow disk most of their time is waiting. What a `kill -9` leaves is the same on both: the page
# cache survives the process. Tests of power failures keep unsynced writes back themselves. TEST_TMPDIR names another folder.
set -euo pipefail

# Free bytes from which on the tmpfs is used. All tests together had 3 GiB there at most.
ROOM=$((8 * 1024 * 1024 * 1024))

memory=/dev/shm
if [ -n "${TEST_TMPDIR:-}" ]; then
    export TMPDIR=$TEST_TMPDIR
elif [ -w "$memory" ] && [ "$(df --output=avail --block-size=1 "$memory" | tail -n 1)" -ge "$ROOM" ]; then
    TMPDIR=$(mktemp -d "$memory/carom-tests.XXXXXX")
    export TMPDIR
    trap 'rm -rf "$TMPDIR"' EXIT
fi
"$@"
