#!/usr/bin/env bash
# Repeats end-to-end tests while each CPU is busy: `tests/repeat.sh FILTER COUNT [CARGO_ARGUMENT…]`.
#
# FILTER is a part of their names, such as `fleet::slots::paused_master`. A busy loop of normal priority runs on each CPU, beside the tests.
# The output of a run that fails stays in target/repeat or REPEAT_OUTPUT. The exit code is 1 if any run has failed. The arguments are those
# of `cargo test` that say what to build, by default `--package carom --locked`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ $# -lt 2 ] || ! [[ $2 =~ ^[1-9][0-9]*$ ]]; then
    echo "usage: tests/repeat.sh FILTER COUNT [CARGO_ARGUMENT…] (COUNT is a whole number from 1)" >&2
    exit 2
fi
filter=$1 count=$2
shift 2
if [ $# -eq 0 ]; then set -- --package carom --locked; fi

# The binary is run by itself, because the loops would slow Cargo down.
binary=$(cargo test "$@" --test e2e --no-run --message-format=json | sed -n 's/.*"executable":"\([^"]*\/e2e-[^"]*\)".*/\1/p' | tail -n 1)
if [ -z "$binary" ]; then
    echo "cargo test $* --test e2e builds no test binary" >&2
    exit 2
fi
if ! "$binary" --list "$filter" | grep -q ': test$'; then
    echo "no end-to-end test has '$filter' in its name" >&2
    exit 2
fi

# Not in TMPDIR, which may be removed after this.
output=${REPEAT_OUTPUT:-${CARGO_TARGET_DIR:-target}/repeat}
mkdir -p "$output"
rm -f "$output"/run-*.log
loops=()

# The trap calls it.
# shellcheck disable=SC2317
finish() {
    if [ ${#loops[@]} -gt 0 ]; then kill "${loops[@]}" 2>/dev/null || true; fi
    rmdir "$output" 2>/dev/null || true
}
trap finish EXIT

# The CPUs that this process may use.
for cpu in $(seq 0 $(($(nproc --all) - 1))); do
    taskset --cpu-list "$cpu" true 2>/dev/null || continue
    taskset --cpu-list "$cpu" bash -c 'while :; do :; done' &
    loops+=($!)
done
echo "$count runs of '$filter', beside ${#loops[@]} busy loops"

failed=0
for run in $(seq 1 "$count"); do
    log=$output/run-$run.log
    if "$binary" "$filter" --nocapture --test-threads 1 >"$log" 2>&1; then
        rm "$log"
    else
        failed=$((failed + 1))
        echo "run $run has failed: $log"
    fi
    if [ $((run % 10)) -eq 0 ]; then echo "$run of $count runs, $failed failed"; fi
done
if [ "$failed" -gt 0 ]; then
    echo "$failed of $count runs have failed; their output is in $output"
    exit 1
fi
echo "all $count runs have passed"
